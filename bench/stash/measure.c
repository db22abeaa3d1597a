/* One configuration: stash, restore and their anchors in turn, so that what else the machine does
 * hits neighbours alike. Checked byte for byte before and after. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_ROUNDS = 3 };
enum { KEYS_OF_ANCHORS = 1 << 20 };

/* Samples of one state; own copies apart by the operation that they stand beside. */
typedef struct sampling {
    bench_rig *rig;
    uint32_t samples;
    bench_slot own[2][BENCH_NUM_ANCHORS]; /* of stash, of restore */
    uint32_t num_own[2];
    bench_series series[2][BENCH_NUM_SLOTS]; /* extras: [0] */
} sampling;

static const bench_slot operations[2] = {BENCH_STASH, BENCH_RESTORE};

static bool is_extra(const sampling *self, bench_slot slot)
{
    for (int op = 0; op < 2; op++)
        for (uint32_t i = 0; i < self->num_own[op]; i++)
            if (self->own[op][i] == slot)
                return false;
    return slot < BENCH_NUM_ANCHORS && self->rig->wanted[slot];
}

/* ---- check ---- */

static int replay_all(const bench_rig *rig, bench_slot slot)
{
    for (uint32_t k = 0; k < rig->num_copies; k++)
        TOOL_PST(pst_graph_launch(rig->copies[k].graphs[slot], rig->timer.stream));
    return TOOL_OK;
}

static int fill_arenas(const bench_rig *rig, uint8_t value)
{
    return tool_status(pst_device_fill(rig->device, rig->arenas, value,
                                       rig->num_copies * rig->shape.arena_bytes,
                                       rig->timer.stream));
}

int bench_check(const bench_rig *rig, uint64_t key, uint64_t *mismatched_bytes)
{
    pst_stream stream = rig->timer.stream;
    *rig->timer.mismatches = 0;
    for (uint32_t k = 0; k < rig->num_copies; k++) {
        const pst_pattern pattern = {.seed = BENCH_SEED, .key = key + k};
        const pst_buffers at = bench_copy_at(&rig->copies[k]);
        TOOL_PST(pst_group_fill(rig->device, rig->group, &at, &pattern, stream));
    }
    TOOL_TRY(replay_all(rig, BENCH_STASH));
    TOOL_TRY(fill_arenas(rig, BENCH_POISON));
    TOOL_TRY(replay_all(rig, BENCH_RESTORE));
    for (uint32_t k = 0; k < rig->num_copies; k++) {
        const pst_buffers at = bench_copy_at(&rig->copies[k]);
        const pst_pattern pattern = {.seed = BENCH_SEED, .key = key + k};
        TOOL_PST(pst_group_verify(rig->device, rig->group, &at, &pattern, BENCH_POISON,
                                  rig->timer.mismatches, stream));
    }
    TOOL_PST(pst_stream_synchronize(rig->device, stream));
    *mismatched_bytes += *rig->timer.mismatches;
    return TOOL_OK;
}

/* There and back again, since the pages are not in the order of rows. */
static int check_pieces(const bench_rig *rig, uint64_t *mismatched_bytes)
{
    const bench_copy *copy = &rig->copies[0];
    const pst_buffers at = bench_copy_at(copy);
    const pst_pattern pattern = {.seed = BENCH_SEED, .key = KEYS_OF_ANCHORS};
    pst_stream stream = rig->timer.stream;
    *rig->timer.mismatches = 0;
    TOOL_PST(pst_group_fill(rig->device, rig->group, &at, &pattern, stream));
    TOOL_PST(pst_graph_launch(copy->graphs[BENCH_CUB_BATCHED], stream));
    TOOL_TRY(fill_arenas(rig, BENCH_POISON));
    TOOL_TRY(bench_enqueue_pieces(rig, &copy->pieces, true));
    TOOL_PST(pst_group_verify(rig->device, rig->group, &at, &pattern, BENCH_POISON,
                              rig->timer.mismatches, stream));
    TOOL_PST(pst_stream_synchronize(rig->device, stream));
    *mismatched_bytes += *rig->timer.mismatches;
    return TOOL_OK;
}

static int check_anchor(const bench_rig *rig, bench_slot slot, uint64_t *mismatched_bytes)
{
    const bench_copy *copy = &rig->copies[0];
    const uint64_t key = KEYS_OF_ANCHORS + (uint64_t)slot;
    const uint64_t bytes =
        slot == BENCH_FULL_CAPACITY ? rig->shape.arena_bytes : rig->shape.live_bytes;
    TOOL_PST(pst_device_fill(rig->device, copy->target, BENCH_POISON, rig->target_bytes,
                             rig->timer.stream));
    if (slot == BENCH_EMPTY_NODE)
        return TOOL_OK;
    if (slot == BENCH_CUB_BATCHED)
        return check_pieces(rig, &mismatched_bytes[slot]);
    TOOL_TRY(bench_fill_flat(&rig->timer, copy->arena, bytes, key));
    TOOL_TRY(bench_replay(&rig->timer, copy->graphs[slot]));
    return bench_verify_flat(&rig->timer, copy->target, bytes, key, &mismatched_bytes[slot]);
}

/* The first replay of a graph brings it to the device. The checks of the operations replay all of
 * theirs, those of the anchors only the first copy's. */
static int warm_up(const bench_rig *rig)
{
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (rig->wanted[slot])
            TOOL_TRY(replay_all(rig, (bench_slot)slot));
    return tool_status(pst_stream_synchronize(rig->device, rig->timer.stream));
}

int bench_check_faults(const bench_rig *rig)
{
    pst_pool_status status;
    TOOL_PST(pst_pool_step(rig->pool, rig->timer.stream));
    TOOL_PST(pst_stream_synchronize(rig->device, rig->timer.stream));
    TOOL_PST(pst_pool_poll(rig->pool, &status));
    if (status.num_faults == 0)
        return TOOL_OK;
    return tool_fail(TOOL_NO, "%u faults, the first: %s", status.num_faults,
                     pst_fault_text((pst_fault)status.fault));
}

/* ---- samples ---- */

static int sample(sampling *self, int op, bench_slot slot, const bench_copy *copy)
{
    double seconds;
    TOOL_TRY(bench_time(&self->rig->timer, copy->graphs[slot], &seconds));
    bench_series_add(&self->series[op][slot], seconds);
    return TOOL_OK;
}

/* Each copy of the buffers once: one sample of each. */
static int cold_phase(sampling *self, int op, bench_slot slot)
{
    const bench_rig *rig = self->rig;
    if (rig->flush)
        TOOL_PST(pst_device_fill(rig->device, rig->flush, BENCH_POISON, bench_flush_bytes(rig),
                                 rig->timer.stream));
    for (uint32_t k = 0; k < rig->num_copies; k++)
        TOOL_TRY(sample(self, op, slot, &rig->copies[k]));
    return TOOL_OK;
}

static int cold_round(sampling *self)
{
    for (int op = 0; op < 2; op++) {
        for (uint32_t i = 0; i < self->num_own[op]; i++)
            TOOL_TRY(cold_phase(self, op, self->own[op][i]));
        TOOL_TRY(cold_phase(self, op, operations[op]));
    }
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (is_extra(self, (bench_slot)slot))
            TOOL_TRY(cold_phase(self, 0, (bench_slot)slot));
    return TOOL_OK;
}

/* The same buffers back to back, after a replay that is not counted. */
static int warm_phase(sampling *self, int op, bench_slot slot, uint32_t num)
{
    const bench_copy *copy = &self->rig->copies[0];
    TOOL_TRY(bench_replay(&self->rig->timer, copy->graphs[slot]));
    for (uint32_t i = 0; i < num; i++)
        TOOL_TRY(sample(self, op, slot, copy));
    return TOOL_OK;
}

static int warm_round(sampling *self, uint32_t num)
{
    const bench_copy *copy = &self->rig->copies[0];
    for (int op = 0; op < 2; op++)
        for (uint32_t i = 0; i < self->num_own[op]; i++)
            TOOL_TRY(warm_phase(self, op, self->own[op][i], num));
    for (int op = 0; op < 2; op++)
        TOOL_TRY(bench_replay(&self->rig->timer, copy->graphs[operations[op]]));
    for (uint32_t i = 0; i < num; i++)
        for (int op = 0; op < 2; op++)
            TOOL_TRY(sample(self, op, operations[op], copy));
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (is_extra(self, (bench_slot)slot))
            TOOL_TRY(warm_phase(self, 0, (bench_slot)slot, num));
    return TOOL_OK;
}

static int take_samples(sampling *self, bench_state state)
{
    const uint32_t copies = self->rig->num_copies;
    memset(self->series, 0, sizeof(self->series));
    if (state == BENCH_WARM) {
        for (int round = 0; round < WARM_ROUNDS; round++)
            TOOL_TRY(warm_round(self, (self->samples + WARM_ROUNDS - 1) / WARM_ROUNDS));
        return TOOL_OK;
    }
    for (uint32_t taken = 0; taken < self->samples; taken += copies)
        TOOL_TRY(cold_round(self));
    return TOOL_OK;
}

/* ---- results ---- */

static int add_anchor(const sampling *self, int op, bench_slot slot, bench_state state,
                      uint64_t mismatched_bytes, bench_report *report, int *index_out)
{
    const bench_rig *rig = self->rig;
    const bool fixed =
        slot == BENCH_DRIVER_COPY || slot == BENCH_CUB_BATCHED || slot == BENCH_FULL_CAPACITY;
    const bench_anchor anchor = {.name = bench_anchor_name(&rig->machine->device, slot),
                                 .role = "configuration",
                                 .state = state,
                                 .bytes = slot == BENCH_FULL_CAPACITY ? rig->shape.arena_bytes
                                                                      : rig->shape.live_bytes,
                                 .num_sms = fixed || rig->timer.is_host ? 0 : rig->what.num_sms,
                                 .nodes = 1,
                                 .seconds = bench_summary(&self->series[op][slot]),
                                 .mismatched_bytes = mismatched_bytes};
    return bench_add_anchor(report, &anchor, index_out);
}

static int fill_row(const sampling *self, int op, bench_state state, const uint64_t *mismatches,
                    bench_report *report, bench_row *row)
{
    const bench_series *series = &self->series[op][operations[op]];
    double best = INFINITY;
    row->seconds = bench_summary(series);
    row->own_copy = BENCH_NO_ANCHOR;
    row->share_of_own_copy = (double)NAN;
    for (uint32_t i = 0; i < self->num_own[op]; i++) {
        const bench_slot slot = self->own[op][i];
        TOOL_TRY(add_anchor(self, op, slot, state, mismatches[slot], report, &row->anchors[slot]));
        const double median = report->anchors[row->anchors[slot]].seconds.median;
        if (median >= best)
            continue;
        best = median;
        row->own_copy = row->anchors[slot];
        row->share_of_own_copy = bench_median_ratio(&self->series[op][slot], series);
    }
    return TOOL_OK;
}

static int fill_rows(const sampling *self, bench_state state, const uint64_t *mismatches,
                     bench_report *report, bench_row *rows)
{
    for (int op = 0; op < 2; op++)
        for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
            rows[op].anchors[slot] = BENCH_NO_ANCHOR;
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++) {
        int index;
        if (!is_extra(self, (bench_slot)slot))
            continue;
        TOOL_TRY(add_anchor(self, 0, (bench_slot)slot, state, mismatches[slot], report, &index));
        rows[0].anchors[slot] = rows[1].anchors[slot] = index;
    }
    for (int op = 0; op < 2; op++)
        TOOL_TRY(fill_row(self, op, state, mismatches, report, &rows[op]));
    return TOOL_OK;
}

static int measure(sampling *self, bench_report *report)
{
    bench_rig *rig = self->rig;
    const pst_device_info *info = &rig->machine->device;
    uint64_t mismatches[BENCH_NUM_ANCHORS] = {0};
    pst_graph_info nodes;
    bench_result result = {.what = rig->what,
                           .bytes = rig->shape.live_bytes,
                           .capacity_bytes = rig->shape.arena_bytes,
                           .pages = rig->pages,
                           .num_sms = rig->what.num_sms ? rig->what.num_sms : info->num_sms,
                           .num_copies = rig->num_copies};
    for (int op = 0; op < 2; op++) {
        TOOL_PST(pst_graph_get_info(rig->copies[0].graphs[operations[op]], &nodes));
        result.nodes[op] = nodes.num_nodes;
    }
    TOOL_TRY(bench_check(rig, 0, &result.mismatched_bytes));
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (rig->wanted[slot])
            TOOL_TRY(check_anchor(rig, (bench_slot)slot, mismatches));
    TOOL_TRY(warm_up(rig));
    for (uint32_t k = 0; k < rig->num_copies; k++)
        TOOL_TRY(bench_fill_flat(&rig->timer, rig->copies[k].arena, rig->shape.arena_bytes, k));
    for (int state = 0; state < BENCH_NUM_STATES; state++) {
        TOOL_TRY(take_samples(self, (bench_state)state));
        TOOL_TRY(fill_rows(self, (bench_state)state, mismatches, report, result.rows[state]));
    }
    TOOL_TRY(bench_check(rig, rig->num_copies, &result.mismatched_bytes));
    TOOL_TRY(bench_check_faults(rig));
    return bench_add_result(report, &result);
}

int bench_measure(pst_device *device, const bench_case *what, uint32_t samples, bool may_skip,
                  bench_report *report)
{
    bench_rig rig;
    bool skipped;
    TOOL_TRY(bench_prepare_or_skip(&rig, device, what, may_skip, report, &skipped));
    if (skipped)
        return TOOL_OK;
    sampling *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return tool_fail(TOOL_NO, "out of memory");
    self->rig = &rig;
    self->samples = samples;
    for (int op = 0; op < 2 && rig.shape.live_bytes; op++)
        self->num_own[op] = bench_own_copies(&report->machine.device, what->backend,
                                             operations[op] == BENCH_STASH, self->own[op]);
    int code = bench_rig_open(&rig);
    if (code == TOOL_OK)
        code = measure(self, report);
    free(self);
    return bench_rig_close(&rig, code);
}
