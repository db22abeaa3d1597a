/* Capture and replay: graphs hold what they use, and read counts when they run. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum { LAYERS = 3, POOL_PAGES = 120 };

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group sources[LAYERS];
    ls_group destination; /* shared */
    uint32_t tickets[LAYERS];
    int64_t *captured[LAYERS]; /* counts at capture, of which a graph keeps those of the host's */
} scene;

static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode, shape_theme theme)
{
    const ls_options options = conf_options(mode, POOL_PAGES, theme);
    shape like, other;
    self->random = oracle_random_seeded(theme);
    shape_make(&self->random, theme, 20000, &like);
    shape_like(&self->random, &like, false, &other);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    for (int i = 0; i < LAYERS; i++) {
        ls_group_make(&self->ls, &like, &self->random, &self->sources[i]);
        self->tickets[i] = ls_ticket_make(&self->ls, &self->sources[i]);
        ls_group_random_counts(&self->ls, &self->sources[i], COUNTS_RANDOM, &self->random);
        const size_t inputs = oracle_all_inputs(&self->sources[i].model);
        self->captured[i] = oracle_calloc(inputs, sizeof(int64_t));
        memcpy(self->captured[i], self->sources[i].values, inputs * sizeof(int64_t));
    }
    ls_group_make(&self->ls, &other, &self->random, &self->destination);
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    lockstep *ls = &self->ls;
    for (int i = 0; i < LAYERS; i++) {
        ls_group_free(ls, &self->sources[i]);
        free(self->captured[i]);
        self->captured[i] = NULL;
    }
    ls_group_free(ls, &self->destination);
    ls_close(ls);
}

static pst_ticket ticket_of(const scene *self, int layer)
{
    return self->ls.tickets[self->tickets[layer]];
}

/* New counts on the device. The oracle is given those of the host's as they were captured. */
static void set_counts(scene *self, int layer, counts_kind kind)
{
    ls_group *source = &self->sources[layer];
    const oracle_group *model = &source->model;
    ls_group_random_counts(&self->ls, source, kind, &self->random);
    for (uint32_t i = 0; i < model->num_spaces; i++)
        if (model->spaces[i].count_type == PST_COUNT_HOST)
            source->values[oracle_first_input(model, i)] =
                self->captured[layer][oracle_first_input(model, i)];
}

static pst_graph *capture_stash(scene *self, int layer)
{
    lockstep *ls = &self->ls;
    conf_graph_begin(ls);
    LS_TRY(ls_enqueue_stash(ticket_of(self, layer), &self->sources[layer], ls->stream));
    return conf_graph_end(ls);
}

static pst_graph *capture_restore(scene *self, int layer, pst_restore_tail tail)
{
    lockstep *ls = &self->ls;
    const pst_restore_options options =
        ls_restore_options(&self->destination, PST_RESTORE_CONSUME, tail);
    conf_graph_begin(ls);
    LS_TRY(ls_enqueue_restore(ticket_of(self, layer), &self->destination, &options, ls->stream));
    return conf_graph_end(ls);
}

static void launch(lockstep *ls, pst_graph *graph)
{
    if (!ls->failed)
        LS_TRY(pst_graph_launch(graph, ls->stream));
    ls->operation++;
}

static void replay_stash(scene *self, int layer, pst_graph *graph)
{
    lockstep *ls = &self->ls;
    ls_group *source = &self->sources[layer];
    launch(ls, graph);
    oracle_stash(ls->oracle, self->tickets[layer], &source->model, source->values);
    ls_compare(ls);
    ls_group_compare(ls, source);
}

static void replay_restore(scene *self, int layer, pst_graph *graph, pst_restore_tail tail)
{
    lockstep *ls = &self->ls;
    launch(ls, graph);
    oracle_restore(ls->oracle, self->tickets[layer], &self->destination.model, PST_RESTORE_CONSUME,
                   tail);
    ls_compare(ls);
    ls_group_compare(ls, &self->destination);
}

static void change_counts(scene *self, int layer)
{
    const counts_kind kind =
        oracle_random_one_in(&self->random, 5)
            ? (counts_kind)oracle_random_in(&self->random, COUNTS_GOOD, COUNTS_KINDS - 1)
            : (counts_kind)oracle_random_below(&self->random, COUNTS_GOOD);
    set_counts(self, layer, kind);
    if (oracle_random_one_in(&self->random, 3))
        ls_group_fill(&self->ls, &self->sources[layer], &self->random);
}

/* ---- replay ---- */

/* Fault rows 37. */
CONFORMANCE(Graphs, ReplayReadsTheCountsAnew)
{
    static const shape_theme themes[] = {SHAPE_ANY, SHAPE_8_SPACES, SHAPE_SEGMENTS, SHAPE_RATIOS};
    static scene self;
    for (int theme = 0; theme < 4; theme++) {
        if (!set_up(&self, conf, (pst_pool_mode)(theme % 2), themes[theme]))
            return;
        pst_graph *stash = capture_stash(&self, 0);
        pst_graph *restore = capture_restore(&self, 0, PST_TAIL_ZERO);
        ls_compare(&self.ls);
        for (uint32_t step = 0; step < conf_cases(conf, 40); step++) {
            change_counts(&self, 0);
            replay_stash(&self, 0, stash);
            change_counts(&self, 0); /* the ticket has its own */
            replay_restore(&self, 0, restore, PST_TAIL_ZERO);
        }
        conf_graph_destroy(&self.ls, stash);
        conf_graph_destroy(&self.ls, restore);
        tear_down(&self);
    }
}

CONFORMANCE(Graphs, SeveralGraphsInSeveralOrders)
{
    static const int orders[][LAYERS] = {{2, 1, 0}, {0, 1, 2}, {1, 2, 0}};
    static scene self;
    CONF_EACH_MODE (mode) {
        pst_graph *stash[LAYERS];
        pst_graph *restore[LAYERS];
        if (!set_up(&self, conf, mode, SHAPE_SEGMENTS))
            return;
        for (int i = 0; i < LAYERS; i++) {
            stash[i] = capture_stash(&self, i);
            restore[i] = capture_restore(&self, i, PST_TAIL_UNTOUCHED);
        }
        for (uint32_t step = 0; step < 2 + conf_cases(conf, 18); step++) {
            for (int i = 0; i < LAYERS; i++) {
                const int layer = orders[(step + 1) % 3][i];
                change_counts(&self, layer);
                replay_stash(&self, layer, stash[layer]);
            }
            for (int i = 0; i < LAYERS; i++) {
                const int layer = orders[step % 3][i];
                replay_restore(&self, layer, restore[layer], PST_TAIL_UNTOUCHED);
            }
            ls_step(&self.ls);
        }
        for (int i = 0; i < LAYERS; i++) {
            conf_graph_destroy(&self.ls, stash[i]);
            conf_graph_destroy(&self.ls, restore[i]);
        }
        tear_down(&self);
    }
}

/* A whole step in one graph, whose counts and rows are overwritten between stash and restore. */
CONFORMANCE(Graphs, WholeStepWithCountsOverwrittenInside)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ANY))
        return;
    lockstep *ls = &self.ls;
    pst_graph_info info = {0};
    conf_graph_begin(ls);
    for (int i = 0; i < LAYERS; i++) {
        ls_group *source = &self.sources[i];
        LS_TRY(ls_enqueue_stash(ticket_of(&self, i), source, ls->stream));
        LS_TRY(pst_device_fill(ls->device, source->counts, 0xff, source->counts_bytes, ls->stream));
        LS_TRY(pst_device_fill(ls->device, source->arena, 0x3c, source->arena_bytes, ls->stream));
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        const pst_restore_options options =
            ls_restore_options(&self.destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
        LS_TRY(pst_dirty_mark(self.destination.dirty, ls->stream));
        LS_TRY(ls_enqueue_restore(ticket_of(&self, i), &self.destination, &options, ls->stream));
        /* to look at each layer's rows afterwards */
        LS_TRY(pst_device_copy(ls->device, self.sources[i].arena, self.destination.arena,
                               self.sources[i].arena_bytes < self.destination.arena_bytes
                                   ? self.sources[i].arena_bytes
                                   : self.destination.arena_bytes,
                               ls->stream));
    }
    LS_TRY(pst_pool_step(ls->pool, ls->stream));
    pst_graph *graph = conf_graph_end(ls);
    LS_TRY(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_kernels, 2 * LAYERS + 1);
    CHECK_EQ(info.num_nodes, LAYERS * 6 + 1);
    for (uint32_t step = 0; step < 1 + conf_cases(conf, 30); step++) {
        for (int i = 0; i < LAYERS; i++) {
            ls_group_fill(ls, &self.sources[i], &self.random);
            set_counts(&self, i, COUNTS_RANDOM);
        }
        launch(ls, graph);
        for (int i = 0; i < LAYERS; i++) {
            oracle_stash(ls->oracle, self.tickets[i], &self.sources[i].model,
                         self.sources[i].values);
            memset(self.sources[i].model.image, 0x3c, self.sources[i].arena_bytes);
        }
        for (int i = LAYERS - 1; i >= 0; i--) {
            ls_group *source = &self.sources[i];
            for (uint32_t c = 0; c < oracle_num_counts(&self.destination.model); c++)
                self.destination.model.dirty[c] = ORACLE_ALL_DIRTY;
            oracle_restore(ls->oracle, self.tickets[i], &self.destination.model,
                           PST_RESTORE_CONSUME, PST_TAIL_ZERO);
            memcpy(source->model.image, self.destination.model.image,
                   source->arena_bytes < self.destination.arena_bytes
                       ? source->arena_bytes
                       : self.destination.arena_bytes);
        }
        oracle_step(ls->oracle, &ls->published);
        ls_compare(ls);
        for (int i = 0; i < LAYERS; i++)
            ls_group_compare(ls, &self.sources[i]);
    }
    conf_graph_destroy(ls, graph);
    tear_down(&self);
}

/* Fault rows 35. */
CONFORMANCE(Graphs, LaunchedTwiceTheStashFindsALiveTicket)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_CONCURRENT, SHAPE_ANY))
        return;
    pst_graph *stash = capture_stash(&self, 0);
    replay_stash(&self, 0, stash);
    replay_stash(&self, 0, stash);
    CHECK_EQ(self.ls.oracle->status.fault, PST_FAULT_LIVE);
    ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_CONSUME,
               PST_TAIL_UNTOUCHED);
    replay_stash(&self, 0, stash);
    conf_graph_destroy(&self.ls, stash);
    tear_down(&self);
}

/* ---- several streams ---- */

CONFORMANCE(Graphs, ExternalEventsOrderSeparateGraphs)
{
    static scene self;
    pst_stream forward, backward;
    pst_event stashed;
    pst_graph *graphs[2];
    pst_graph_info info = {0};
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ANY))
        return;
    lockstep *ls = &self.ls;
    CHECK_OK(pst_stream_create(ls->device, &forward));
    CHECK_OK(pst_stream_create(ls->device, &backward));
    CHECK_OK(pst_event_create(ls->device, &stashed));
    CHECK_OK(pst_graph_begin(ls->device, forward));
    CHECK_OK(ls_enqueue_stash(ticket_of(&self, 0), &self.sources[0], forward));
    CHECK_OK(pst_event_record_external(ls->device, stashed, forward));
    CHECK_OK(pst_graph_end(ls->device, forward, &graphs[0]));
    CHECK_OK(pst_graph_begin(ls->device, backward));
    CHECK_OK(pst_event_wait_external(ls->device, stashed, backward));
    CHECK_OK(ls_enqueue_restore(ticket_of(&self, 0), &self.destination, NULL, backward));
    CHECK_OK(pst_graph_end(ls->device, backward, &graphs[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pst_graph_get_info(graphs[i], &info));
        CHECK_EQ(info.num_nodes, 2);
        CHECK_EQ(info.num_kernels, 1);
    }
    for (uint32_t step = 0; step < 1 + conf_cases(conf, 20); step++) {
        change_counts(&self, 0);
        CHECK_OK(pst_graph_launch(graphs[0], forward));
        CHECK_OK(pst_graph_launch(graphs[1], backward));
        CHECK_OK(pst_stream_synchronize(ls->device, backward));
        oracle_stash(ls->oracle, self.tickets[0], &self.sources[0].model, self.sources[0].values);
        oracle_restore(ls->oracle, self.tickets[0], &self.destination.model, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
        ls_compare(ls);
        ls_group_compare(ls, &self.destination);
    }
    CHECK_OK(pst_graph_destroy(graphs[0]));
    CHECK_OK(pst_graph_destroy(graphs[1]));
    CHECK_OK(pst_event_destroy(ls->device, stashed));
    CHECK_OK(pst_stream_destroy(ls->device, forward));
    CHECK_OK(pst_stream_destroy(ls->device, backward));
    tear_down(&self);
}

/* An ordered pool on two streams, each operation waiting for the one before: in a graph and out. */
/* Fault rows 30. */
CONFORMANCE(Graphs, EventsOrderTheStreamsOfAnOrderedPool)
{
    static scene self;
    pst_stream streams[2];
    pst_event events[2];
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_SEGMENTS))
        return;
    lockstep *ls = &self.ls;
    streams[0] = ls->stream;
    CHECK_OK(pst_stream_create(ls->device, &streams[1]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_event_create(ls->device, &events[i]));
    for (int captured = 0; captured < 2; captured++) {
        pst_graph *graph = NULL;
        if (captured)
            conf_graph_begin(ls);
        for (int op = 0; op < 2 * LAYERS; op++) { /* ends on streams[0] after a last wait */
            const int layer = op % LAYERS;
            pst_stream stream = streams[op % 2];
            if (op > 0)
                CHECK_OK(pst_event_wait(ls->device, events[(op + 1) % 2], stream));
            CHECK_OK(
                op < LAYERS
                    ? ls_enqueue_stash(ticket_of(&self, layer), &self.sources[layer], stream)
                    : ls_enqueue_restore(ticket_of(&self, layer), &self.destination, NULL, stream));
            CHECK_OK(pst_event_record(ls->device, events[op % 2], stream));
        }
        CHECK_OK(pst_event_wait(ls->device, events[1], streams[0]));
        if (captured) {
            graph = conf_graph_end(ls);
            launch(ls, graph);
        }
        for (int op = 0; op < 2 * LAYERS; op++)
            if (op < LAYERS)
                oracle_stash(ls->oracle, self.tickets[op], &self.sources[op].model,
                             self.sources[op].values);
            else
                oracle_restore(ls->oracle, self.tickets[op - LAYERS], &self.destination.model,
                               PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        ls_compare(ls);
        ls_group_compare(ls, &self.destination);
        if (graph)
            conf_graph_destroy(ls, graph);
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_event_destroy(ls->device, events[i]));
    CHECK_OK(pst_stream_destroy(ls->device, streams[1]));
    tear_down(&self);
}
