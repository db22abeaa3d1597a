/* The table of pages through hooks and a real pool, in both forms of addresses; and each kind of schedule
 * eagerly, as one graph and as graphs of layers, whose page figures are those of the simulator. */
#include "tests/conformance/walk.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/host/program/page_vectors.h"
#include "tests/lazy/lazy_device.h"

enum { ROWS_OF_PAGE = 16, ROW_BYTES = 1024 };

static int64_t rows_of_pages3(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return (int64_t)pages3(chunk, layer, micro_batch) * ROWS_OF_PAGE;
}

static int64_t rows_of_group(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return 100 + (37 * micro_batch + 53 * layer + 71 * chunk) % 97;
}

/* One behind the other. */
static void place(shape *made)
{
    uint64_t at = 0;
    for (uint32_t t = 0; t < made->group.num_tensors; t++) {
        made->group.at[t] = at;
        at += oracle_stride(&made->group, t) + 256;
        at &= ~UINT64_C(255);
    }
    made->arena_bytes = (size_t)at;
}

static shape one_tensor(void)
{
    shape made = {.group = {.num_spaces = 1, .num_tensors = 1}};
    made.group.spaces[0] = (pst_row_space){.capacity = 3 * ROWS_OF_PAGE};
    made.group.tensors[0] = (pst_tensor){.row_bytes = ROW_BYTES};
    place(&made);
    return made;
}

static shape four_tensors(void)
{
    shape made = {.group = {.num_spaces = 1, .num_tensors = 4}};
    made.group.spaces[0] = (pst_row_space){.capacity = 196};
    made.group.tensors[0] = (pst_tensor){.row_bytes = 2048};
    made.group.tensors[1] = (pst_tensor){.row_bytes = 1024};
    made.group.tensors[2] = (pst_tensor){.row_bytes = 64, .num = 1, .den = 32};
    made.group.tensors[3] = (pst_tensor){.row_bytes = 4};
    place(&made);
    return made;
}

static walk_vector vector_of(const row *from, way which, bool is_group)
{
    walk_vector vector = {.schedule = PST_SCHEDULE_CONFIG_INIT,
                          .num_layers = from->layers,
                          .keeps_nothing = which == WAY_NO_KEEP,
                          .is_list = which == WAY_BY_SLOT,
                          .rule = which == WAY_NEXT ? PST_RESTORE_NEXT : PST_RESTORE_ASAP,
                          .rows = is_group ? rows_of_group : rows_of_pages3,
                          .like = is_group ? four_tensors() : one_tensor(),
                          .page_bytes = is_group ? 65536 : PST_PAGE_BYTES_MIN,
                          .num_pages = is_group ? 256 : 64};
    vector.num_sources = which == WAY_NEXT || which == WAY_1_1 ? 1 : 2;
    vector.num_destinations = which == WAY_2_3 ? 3 : vector.num_sources;
    vector.schedule.kind = from->kind;
    vector.schedule.num_stages = from->p;
    vector.schedule.stage = from->rank;
    vector.schedule.num_micro_batches = from->m;
    vector.schedule.num_chunks = from->v;
    vector.schedule.group = from->group;
    return vector;
}

/* The cell's figures as the pool and the scheduler have them. */
static void compare_cell(walk *self, const char *cell, bool is_group, const char *name)
{
    char *at = NULL;
    uint64_t wanted[5];
    pst_pool_status status;
    pst_scheduler_stats stats;
    wanted[0] = strtoull(cell, &at, 10);
    wanted[1] = strtoull(at + 3, &at, 10);
    for (int i = 2; i < 5; i++)
        wanted[i] = strtoull(at + 1, &at, 10);
    walk_new_counts(self);
    CHECK_OK(walk_step(self));
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_OK(pst_scheduler_get_stats(self->scheduler, &stats));
    CHECK_MSG(status.high_water[0] == wanted[is_group] && stats.stashed == wanted[2] &&
                  stats.restores == wanted[3] && stats.kept_in_place == wanted[4],
              "%s: %u, %u stashed, %u restores, %u kept; the table has %s", name,
              (unsigned)status.high_water[0], (unsigned)stats.stashed, (unsigned)stats.restores,
              (unsigned)stats.kept_in_place, cell);
    walk_check(self, false);
}

static void run_cell(const conf_run *conf, const row *from, way which, bool is_group, bool own)
{
    static walk self;
    char name[64];
    const walk_vector vector = vector_of(from, which, is_group);
    const walk_wish wish = {.seed = conf_seed(0),
                            .own = own,
                            .is_late = conf->kind == CONF_LAZY,
                            .layers = which == WAY_BY_SLOT,
                            .vector = &vector};
    snprintf(name, sizeof(name), "%s, way %d, %s", from->name, (int)which,
             own ? "the caller's own" : "fixed sets");
    walk_draw(&self, conf->device, &wish);
    if (from->cells[which][0] == '-') {
        pst_schedule_destroy(self.schedule);
        return;
    }
    walk_open(&self);
    if (!psti_test_failed())
        compare_cell(&self, from->cells[which], is_group, name);
    CHECK_MSG(!psti_test_failed(), "%s", name);
    walk_close(&self);
}

/* In the long tests every cell in both forms, also with the group of four tensors; else each cell in
 * one of them. */
CONF_DEFINE(PageTable, EveryCell, 1u << CONF_HOST | 1u << CONF_LAZY)
{
    const bool is_long = psti_test_cases(5) == 5 && !PSTI_UNDER_TSAN;
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(page_rows) / sizeof(page_rows[0]); i++)
        for (way which = 0; which < NUM_WAYS; which++, n++)
            for (int own = 0; own < 2 && !psti_test_failed(); own++) {
                if (is_long || n % 2 == (uint32_t)own)
                    run_cell(conf, &page_rows[i], which, false, own);
                if (is_long)
                    run_cell(conf, &page_rows[i], which, true, own);
            }
}

/* ---- eagerly, as one graph, as graphs of layers ---- */

typedef struct kind {
    const char *name;
    pst_schedule_kind kind;
    uint32_t p, m, v, group;
    bool overlaps;
} kind;

static const kind kinds[] = {
    {"S1", PST_SCHEDULE_GPIPE, 4, 6, 0, 0, false},
    {"S2", PST_SCHEDULE_GPIPE_REVERSED, 4, 6, 0, 0, false},
    {"S3", PST_SCHEDULE_1F1B, 1, 4, 0, 0, false},
    {"S4", PST_SCHEDULE_1F1B, 4, 8, 0, 0, false},
    {"S5", PST_SCHEDULE_1F1B, 4, 2, 0, 0, false},
    {"S7", PST_SCHEDULE_INTERLEAVED, 2, 5, 2, 3, false},
    {"S8", PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, false},
    {"S9", PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, true},
    {"S10", PST_SCHEDULE_INTERLEAVED, 4, 12, 3, 6, false},
    {"S11", PST_SCHEDULE_INTERLEAVED, 4, 8, 4, 4, false},
    {"S12", PST_SCHEDULE_ZB_H1, 4, 8, 0, 0, false},
    {"S13", PST_SCHEDULE_ZB_H1, 4, 3, 0, 0, false},
    {"S14", PST_SCHEDULE_ZB_H2, 4, 8, 0, 0, false},
    {"S15", PST_SCHEDULE_ZB_H2, 4, 12, 0, 0, false},
    {"S16", PST_SCHEDULE_ZB_V, 4, 8, 0, 0, false},
    {"S18", PST_SCHEDULE_DUALPIPE, 4, 8, 0, 0, false},
    {"S20", PST_SCHEDULE_DUALPIPE_V, 4, 10, 0, 0, false},
};

/* Each step's figures are the simulator's, so all are the same. */
static void run_graphs(walk *self, uint32_t replays)
{
    pst_graph *graph = NULL;
    walk_new_counts(self);
    CHECK_OK(walk_step(self));
    walk_check(self, false);
    CHECK_OK(pst_device_synchronize(self->device));
    if (self->wish.layers) {
        CHECK_OK(walk_capture_layers(self));
    } else {
        CHECK_OK(pst_graph_begin(self->device, self->streams[0]));
        CHECK_OK(walk_step(self));
        CHECK_OK(pst_graph_end(self->device, self->streams[0], &graph));
    }
    for (uint32_t n = 0; n < replays && !psti_test_failed(); n++) {
        walk_new_counts(self);
        if (graph)
            CHECK_OK(pst_graph_launch(graph, self->streams[0]));
        else
            CHECK_OK(walk_step(self));
        walk_check(self, false);
    }
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_graph_destroy(graph));
}

static void run_kind(const conf_run *conf, const kind *of, uint32_t stage, bool layers,
                     uint32_t replays)
{
    static walk self;
    walk_vector vector = {.schedule = PST_SCHEDULE_CONFIG_INIT,
                          .num_layers = 2,
                          .num_sources = 2,
                          .num_destinations = 2,
                          .like = one_tensor(),
                          .page_bytes = PST_PAGE_BYTES_MIN,
                          .num_pages = 512};
    vector.schedule.kind = of->kind;
    vector.schedule.num_stages = of->p;
    vector.schedule.stage = stage;
    vector.schedule.num_micro_batches = of->m;
    vector.schedule.num_chunks = of->v;
    vector.schedule.group = of->group;
    vector.schedule.overlaps_exchange = of->overlaps;
    const walk_wish wish = {.seed = conf_seed(stage),
                            .is_late = conf->kind != CONF_HOST,
                            .layers = layers,
                            .vector = &vector};
    walk_draw(&self, conf->device, &wish);
    walk_open(&self);
    if (!psti_test_failed())
        run_graphs(&self, replays);
    CHECK_MSG(!psti_test_failed(), "%s, stage %u, %s", of->name, stage,
              layers ? "graphs of layers" : "one graph");
    walk_close(&self);
}

CONF_DEFINE(PageTable, GraphsOfEveryKind, 1u << CONF_HOST | 1u << CONF_LAZY | 1u << CONF_SIMT)
{
    const bool is_long = psti_test_cases(5) == 5;
    const bool is_slow = conf->kind == CONF_SIMT;
    if (is_slow)
        lazy_make(conf->device, NULL);
    const size_t few = is_slow && !is_long ? 8 : 1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i += few)
        for (uint32_t stage = 0; stage < kinds[i].p; stage++)
            for (int layers = 0; layers < 2 && !psti_test_failed(); layers++)
                if ((is_long && !is_slow) || stage == i % kinds[i].p)
                    run_kind(conf, &kinds[i], stage, layers, is_long && !is_slow ? 50 : 1);
}
