/* Random takes, gives, captures, steps and ends of graphs, held against a model of the rules that
 * pst_ticket_take states. */
#include "tests/host/stash/slab_scene.h"

enum { TICKETS = 24, STREAMS = 12, GRAPHS = 16 };

typedef enum model_state { FREE, TAKEN, WAITING, HELD } model_state;

typedef struct model_ticket {
    model_state state;
    pst_ticket ticket; /* TAKEN */
    int stream;        /* that it was taken or given with */
    uint32_t capture;  /* into which it was given, 0: none */
    uint32_t used_in;  /* graphs and captures that use it, bits */
    bool by_several;   /* since it was last used by none */
    bool has_key;      /* its stream may take it at once, in that capture or outside */
    uint32_t pushed;   /* when it was given */
    uint32_t number;   /* WAITING: what a step must cover */
    bool is_unclean;   /* FREE: after a graph */
} model_ticket;

typedef struct model {
    slab_scene scene;
    uint64_t seed;
    pst_stream streams[STREAMS];
    int graph_of[STREAMS];        /* that is captured on it, -1: none */
    uint32_t capture_of[STREAMS]; /* its number, never used twice; 0: none */
    uint32_t num_captures;
    bool is_running[GRAPHS];
    pst_graph *graphs[GRAPHS]; /* NULL: none, or it is still captured */
    uint32_t num_pushed, num_given, covered;
    model_ticket tickets[TICKETS];
} model;

static uint32_t draw(model *self, uint32_t below)
{
    self->seed = self->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(self->seed >> 33) % below;
}

enum { NONE = -1, ANY_CLEAN = -2, ANY_UNCLEAN = -3 };

/* The last given under the key, else a free one, else the first given of those that are covered. Free
 * ones after a graph come first outside captures, and last in them. */
static int expected_of(const model *self, int stream)
{
    int last = NONE, first = NONE;
    bool any_clean = false, any_unclean = false;
    for (int i = 0; i < TICKETS; i++) {
        const model_ticket *it = &self->tickets[i];
        any_clean |= it->state == FREE && !it->is_unclean;
        any_unclean |= it->state == FREE && it->is_unclean;
        if (it->state == FREE || it->state == TAKEN)
            continue;
        if (it->has_key && it->stream == stream && it->capture == self->capture_of[stream] &&
            (last == NONE || it->pushed > self->tickets[last].pushed))
            last = i;
        if (it->state == WAITING && it->number <= self->covered &&
            (first == NONE || it->number < self->tickets[first].number))
            first = i;
    }
    if (last != NONE)
        return last;
    if (any_unclean && self->capture_of[stream] == 0)
        return ANY_UNCLEAN;
    if (any_clean)
        return ANY_CLEAN;
    return first != NONE || !any_unclean ? first : ANY_UNCLEAN;
}

static void check_busy(const model *self, pst_status status)
{
    uint32_t counts[4] = {0};
    char message[128];
    for (int i = 0; i < TICKETS; i++)
        counts[self->tickets[i].state]++;
    snprintf(message, sizeof(message),
             "of %d tickets %u are taken, %u are held by graphs, %u wait for a step", TICKETS,
             counts[TAKEN], counts[HELD], counts[WAITING]);
    CHECK_STATUS(status, PST_E_BUSY);
    CHECK_SAID(message);
}

static void take_one(model *self)
{
    const int stream = (int)draw(self, STREAMS);
    const int expected = expected_of(self, stream);
    pst_ticket ticket = {0};
    const pst_status status = pst_ticket_take(self->scene.pool, self->streams[stream], &ticket);
    if (expected == NONE) {
        check_busy(self, status);
        return;
    }
    CHECK_OK(status);
    const uint32_t index = pst_ticket_index(ticket);
    CHECK(index < TICKETS);
    model_ticket *it = &self->tickets[index];
    if (expected < NONE)
        CHECK_MSG(it->state == FREE && it->is_unclean == (expected == ANY_UNCLEAN), "%u", index);
    else
        CHECK_MSG((int)index == expected ||
                      (it->state == WAITING && it->pushed == self->tickets[expected].pushed),
                  "%u, not %d", index, expected);
    it->is_unclean = false;
    it->state = TAKEN;
    it->ticket = ticket;
    it->stream = stream;
}

/* Leaves nothing in it. */
static void use_one(model *self, model_ticket *it)
{
    const pst_stream stream = self->streams[it->stream];
    const int graph = self->graph_of[it->stream];
    CHECK_OK(slab_stash(&self->scene, it->ticket, stream));
    if (draw(self, 2))
        CHECK_OK(slab_restore(&self->scene, it->ticket, stream));
    else
        CHECK_OK(pst_ticket_release(it->ticket, stream));
    if (graph == NONE)
        return;
    it->by_several |= it->used_in != 0 && it->used_in != 1u << graph;
    it->used_in |= 1u << graph;
}

static void give_one(model *self, model_ticket *it)
{
    const int graph = self->graph_of[it->stream];
    CHECK_OK(pst_ticket_give(it->ticket, self->streams[it->stream]));
    it->capture = self->capture_of[it->stream];
    it->pushed = ++self->num_pushed;
    it->has_key =
        it->used_in == 0 || (graph != NONE && !it->by_several && it->used_in == 1u << graph);
    it->state = it->used_in ? HELD : WAITING;
    if (it->state == WAITING)
        it->number = ++self->num_given;
}

static void with_a_taken_one(model *self)
{
    const uint32_t start = draw(self, TICKETS);
    for (uint32_t i = 0; i < TICKETS; i++) {
        model_ticket *it = &self->tickets[(start + i) % TICKETS];
        if (it->state != TAKEN)
            continue;
        if (draw(self, 3) == 0)
            use_one(self, it);
        else
            give_one(self, it);
        return;
    }
}

static void end_capture(model *self, int stream)
{
    const int graph = self->graph_of[stream];
    CHECK_OK(pst_graph_end(self->scene.device, self->streams[stream], &self->graphs[graph]));
    self->graph_of[stream] = NONE;
    self->capture_of[stream] = 0;
}

static void begin_or_end_capture(model *self)
{
    const int stream = (int)draw(self, STREAMS);
    const uint32_t graph = draw(self, GRAPHS);
    if (self->graph_of[stream] != NONE) {
        end_capture(self, stream);
    } else if (!self->is_running[graph]) {
        CHECK_OK(pst_graph_begin(self->scene.device, self->streams[stream]));
        self->is_running[graph] = true;
        self->graph_of[stream] = (int)graph;
        self->capture_of[stream] = ++self->num_captures;
    }
}

static void destroy_graph(model *self, uint32_t graph)
{
    if (!self->graphs[graph])
        return;
    CHECK_OK(pst_graph_destroy(self->graphs[graph]));
    self->graphs[graph] = NULL;
    self->is_running[graph] = false;
    for (int i = 0; i < TICKETS; i++) {
        model_ticket *it = &self->tickets[i];
        const bool was_used = it->used_in != 0;
        it->used_in &= ~(1u << graph);
        if (it->used_in)
            continue;
        it->by_several = false;
        if (!was_used || it->state != HELD)
            continue;
        it->state = FREE;
        it->is_unclean = true;
    }
}

static void step(model *self)
{
    const int stream = (int)draw(self, STREAMS);
    CHECK_OK(pst_pool_step(self->scene.pool, self->streams[stream]));
    if (self->graph_of[stream] != NONE)
        return;
    self->num_pushed++;
    self->num_given++;
    for (int i = 0; i < TICKETS; i++) { /* what graphs left was given anew before the step */
        model_ticket *it = &self->tickets[i];
        if (it->state == FREE && it->is_unclean)
            *it = (model_ticket){.state = WAITING,
                                 .stream = stream,
                                 .has_key = true,
                                 .pushed = self->num_pushed,
                                 .number = self->num_given};
    }
    self->covered = self->num_given;
}

static void run_step(model *self)
{
    const uint32_t what = draw(self, 20);
    if (what < 8)
        take_one(self);
    else if (what < 16)
        with_a_taken_one(self);
    else if (what < 18)
        begin_or_end_capture(self);
    else if (what < 19)
        destroy_graph(self, draw(self, GRAPHS));
    else if (draw(self, 4) == 0)
        step(self);
}

static void run_all(model *self, uint64_t seed, uint32_t steps)
{
    memset(self, 0, sizeof(*self));
    open_slab(&self->scene, TICKETS);
    self->seed = seed;
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(pst_stream_create(self->scene.device, &self->streams[i]));
        self->graph_of[i] = NONE;
    }
    for (uint32_t i = 0; i < steps; i++) {
        run_step(self);
        if (psti_test_failed())
            psti_test_fail(__FILE__, __LINE__, "seed %llu, step %u", (unsigned long long)seed, i);
        if (psti_test_failed())
            return;
    }
    for (int i = 0; i < TICKETS; i++)
        if (self->tickets[i].state == TAKEN)
            give_one(self, &self->tickets[i]);
    for (int i = 0; i < STREAMS; i++)
        if (self->graph_of[i] != NONE)
            end_capture(self, i);
    for (uint32_t i = 0; i < GRAPHS; i++)
        destroy_graph(self, i);
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(pst_stream_destroy(self->scene.device, self->streams[i]));
    close_slab(&self->scene);
}

PST_TEST(Slab, RandomCallsFollowTheRules)
{
    static model self;
    const uint32_t cases = psti_test_cases(100);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++)
        run_all(&self, i + 1, 2000);
}
