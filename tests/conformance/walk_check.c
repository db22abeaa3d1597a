/* What must hold after a step of a random program. */
#include "tests/conformance/walk.h"

#include <inttypes.h>
#include <stdlib.h>

/* So many may be right by chance where nothing was copied; and all where a source may be a
 * destination, too. */
enum { FEW_BYTES = 16 };

/* One step's answers. */
typedef struct outcome {
    walk *of;
    unsigned char *records; /* as they came back */
    bool *fails;            /* [visit][part]: the simulated stash failed */
    uint32_t *uses;         /* [visit][part]: restores of what was stashed */
    pst_pool_status status;
    pst_stage_result simulated;
} outcome;

/* ---- what the simulator says ---- */

/* Orders that the simulator knows, and no other. */
static bool is_comparable(const walk *self, bool first)
{
    const bool is_any_order = self->wish.is_late && self->config.num_streams > 1;
    const bool is_mixed =
        self->announces == 50 && (self->is_small || self->pool_config.num_host_pages > 0);
    const bool has_other_slots = self->wish.layers && (self->own || self->is_changed ||
                                                       self->schedule->config.num_micro_batches !=
                                                           self->drawn.num_micro_batches);
    return !is_any_order && !is_mixed && !has_other_slots && self->defers == 0 && !first &&
           (!self->has_pairs || self->in_order);
}

static uint64_t cell(const walk *self, const pst_visit_key *key, uint32_t part)
{
    return (uint64_t)walk_number(self, key) * PST_MAX_PARTS + part;
}

static pst_group_usage usage_of(const walk *self, uint32_t layer, uint64_t at)
{
    const oracle_group *model = &self->shapes[self->group_of[layer][at % PST_MAX_PARTS]].group;
    int64_t counts[PST_MAX_SPACES * PST_MAX_SEGMENTS], misfit;
    pst_group_usage usage = {0, 0, 0};
    if (!oracle_read_counts(model, self->values + at * self->num_inputs, counts, &misfit))
        psti_test_fail(__FILE__, __LINE__, "a count does not fit");
    oracle_measure(model, counts, self->pool_config.page_bytes, &usage);
    return usage;
}

static void describe_layer(const walk *self, uint32_t l, pst_group_usage *usages,
                           pst_simulated_layer *out)
{
    const pst_layer *layer = &self->layers[l];
    const uint32_t m = self->num_micro_batches;
    *out = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
    out->chunk = layer->chunk;
    out->layer = layer->layer;
    out->keep = layer->keep;
    out->num_parts = layer->num_parts;
    out->policy = layer->policy;
    out->forward = (pst_times){1, 20, 1};
    if (layer->keep != PST_KEEP_PAGED)
        return;
    if (layer->policy.move == PST_MOVE_DEMOTE &&
        self->scheduler->layers[l].demote.share == PST_MIGRATE_UP_TO)
        out->max_demote_pages = self->scheduler->layers[l].demote.max_pages;
    out->usages = usages;
    out->num_usages = m;
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        out->uses[p] = self->parts[l][p].uses;
        out->part_ns[p] = self->announces == 100 ? p + 1 : 0;
        for (uint32_t i = 0; i < m; i++)
            usages[p * m + i] = usage_of(self, l, ((uint64_t)l * m + i) * PST_MAX_PARTS + p);
    }
}

static void note(void *user, const pst_simulated_event *event)
{
    outcome *out = user;
    if (event->kind == PST_SIMULATED_DO_STASH && event->fault != PST_FAULT_NONE)
        out->fails[cell(out->of, &event->visit, event->part)] = true;
}

static void simulate(const walk *self, outcome *out)
{
    pst_simulated_layer layers[WALK_LAYERS];
    const pst_simulated_layer *all = layers;
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    pst_simulation simulation;
    const pst_schedule *schedule = self->schedule;
    const size_t stride = (size_t)self->num_micro_batches * PST_MAX_PARTS;
    pst_group_usage *usages = calloc(self->num_layers * stride + 1, sizeof(*usages));
    for (uint32_t l = 0; l < self->num_layers; l++)
        describe_layer(self, l, usages + l * stride, &layers[l]);
    config.num_stages = 1;
    config.alone = true;
    config.one_ring = self->config.one_ring;
    config.keeps_nothing = self->config.keeps_nothing;
    config.by_slot = self->wish.layers;
    config.schedules = &schedule;
    config.layers = &all;
    config.num_layers = &self->num_layers;
    config.num_sources = self->config.num_sources;
    config.num_destinations = self->config.num_destinations;
    config.ahead = self->config.ahead;
    config.num_streams = self->config.num_streams;
    config.rule = self->config.rule;
    config.mode = self->pool_config.mode;
    config.num_pages[0] = self->pool_config.num_pages;
    config.num_pages[1] = self->pool_config.num_host_pages;
    config.page_bytes = self->pool_config.page_bytes;
    config.in_call_order = true;
    config.on_event = note;
    config.user = out;
    if (pst_simulate(&config, &simulation, &out->simulated) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "the simulator: %s", pst_last_message());
    free(usages);
}

#define SAME(found, wanted)                                                                 \
    CHECK_MSG((uint64_t)(found) == (uint64_t)(wanted), "%s is %" PRIu64 ", %s is %" PRIu64, \
              #found, (uint64_t)(found), #wanted, (uint64_t)(wanted))

static void compare_figures(const outcome *out)
{
    const pst_pool_status *pool = &out->status;
    const pst_stage_result *simulated = &out->simulated;
    SAME(pool->high_water[0], simulated->high_water[0]);
    SAME(pool->high_water[1], simulated->high_water[1]);
    SAME(pool->demand_high_water, simulated->demand_high_water);
    SAME(pool->spilled_pages, simulated->spilled_pages);
    SAME(pool->offloaded_pages, simulated->offloaded_pages);
    SAME(pool->displaced_pages, simulated->displaced_pages);
    SAME(pool->demoted_pages, simulated->demoted_pages);
    SAME(pool->promoted_pages, simulated->promoted_pages);
    SAME(pool->stranded_pages, simulated->stranded_pages);
    SAME(pool->num_faults, simulated->num_faults);
    SAME(pool->fault, simulated->fault);
    if (simulated->fault == PST_FAULT_EXHAUSTED) {
        SAME(pool->fault_wanted, simulated->fault_wanted);
        SAME(pool->fault_free[0], simulated->fault_free[0]);
        SAME(pool->fault_free[1], simulated->fault_free[1]);
    }
}

/* ---- bytes ---- */

static void count_uses(const walk *self, outcome *out)
{
    const psti_program *program = self->scheduler->now.program;
    for (uint32_t i = 0; program && i < program->num_operations; i++) {
        const psti_operation *op = &program->operations[i];
        if (op->act != PSTI_ACT_RESTORE && op->act != PSTI_ACT_DEMOTE &&
            op->act != PSTI_ACT_PROMOTE)
            continue;
        const psti_visit *visit = &program->visits[op->visit];
        const pst_pass *pass = &self->scheduler->now.schedule->passes[visit->pass];
        const pst_visit_key key = {pass->kind, pass->chunk, visit->layer, pass->micro_batch};
        out->uses[cell(self, &key, op->part)]++;
    }
}

/* Bytes that differ where this part was read; false: a failed part has bytes that are right. */
static bool add_mismatches(const walk *self, const outcome *out, const pst_visit_key *key,
                           uint32_t part, uint64_t *mismatches, bool *is_read)
{
    const psti_life *life = psti_schedule_life(self->schedule, key->chunk, key->micro_batch);
    const uint64_t passes[2] = {life->first_backward, life->last_backward};
    unsigned char *record = out->records + walk_number(self, key) * self->record_bytes;
    const uint32_t layer = self->first_layer[key->chunk] + key->layer;
    bool all = true;
    for (uint32_t k = 0; k < (passes[0] == passes[1] ? 1 : 2); k++) {
        const pst_pass_kind kind = self->schedule->passes[passes[k]].kind;
        const uint64_t found = *walk_mismatches_of(self, record, part, kind);
        *mismatches += found;
        const bool reads = walk_reads(self, layer, kind, part);
        all &= found > 0 || !reads;
        *is_read |= reads;
    }
    return all;
}

/* Of one part of a visit. Answers the faults that it stands for. */
static uint64_t check_part(const walk *self, const outcome *out, const pst_visit_key *key,
                           uint32_t part, bool is_known, bool *is_sure)
{
    const uint64_t at = cell(self, key, part);
    const uint32_t layer = self->first_layer[key->chunk] + key->layer;
    uint64_t mismatches = 0;
    bool is_read = false; /* not a part of weight passes where there is none */
    const bool all = add_mismatches(self, out, key, part, &mismatches, &is_read);
    const bool is_paged = self->layers[layer].keep == PST_KEEP_PAGED;
    const uint64_t payload = is_paged ? usage_of(self, layer, at).payload_bytes : 0;
    const bool may_fail = is_paged && (is_known ? out->fails[at] : out->status.num_faults > 0);
    if (mismatches > 0 && !may_fail)
        psti_test_fail(__FILE__, __LINE__,
                       "chunk %u layer %u micro-batch %u part %u: %" PRIu64 " bytes differ",
                       key->chunk, key->layer, key->micro_batch, part, mismatches);
    const bool failed = is_known ? out->fails[at] : mismatches > 0;
    const bool is_ring =
        self->config.one_ring || (self->wish.layers && (self->own || self->is_changed ||
                                                        self->schedule->config.num_micro_batches !=
                                                            self->drawn.num_micro_batches));
    const bool is_spoilt = payload >= FEW_BYTES && !is_ring;
    if (failed && is_spoilt && !all)
        psti_test_fail(__FILE__, __LINE__,
                       "chunk %u layer %u micro-batch %u part %u: its stash failed, and bytes "
                       "are right",
                       key->chunk, key->layer, key->micro_batch, part);
    *is_sure &= is_read && (payload == 0 || is_spoilt);
    return failed && is_paged ? 1 + out->uses[at] : 0;
}

static void check_bytes(const walk *self, const outcome *out, bool is_known, bool first)
{
    uint64_t faults = 0;
    bool is_sure = !first;
    for (uint64_t i = 0; i < self->schedule->num_passes; i++) {
        const pst_pass *pass = &self->schedule->passes[i];
        if (pass->kind != PST_PASS_FORWARD)
            continue;
        for (uint32_t l = 0; l < self->layers_of[pass->chunk]; l++)
            for (uint32_t p = 0; p <= PST_MAX_PARTS && !psti_test_failed(); p++) {
                const pst_visit_key key = {PST_PASS_FORWARD, pass->chunk, l, pass->micro_batch};
                const pst_layer *layer = &self->layers[self->first_layer[pass->chunk] + l];
                if (p < layer->num_parts || (p == PST_MAX_PARTS && layer->keep == PST_KEEP_SWAPPED))
                    faults +=
                        check_part(self, out, &key, p, is_known && p < PST_MAX_PARTS, &is_sure);
            }
    }
    CHECK_MSG(faults == out->status.num_faults || (!is_sure && faults <= out->status.num_faults),
              "%u faults, of which %" PRIu64 " are of parts whose bytes are wrong; the first: %s",
              out->status.num_faults, faults, pst_fault_text((pst_fault)out->status.fault));
}

/* ---- all of it ---- */

static void read_back(walk *self, outcome *out)
{
    const uint64_t visits = (uint64_t)self->num_layers * self->num_micro_batches;
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &out->status));
    CHECK_OK(pst_device_copy(self->device, out->records, self->records, visits * self->record_bytes,
                             self->streams[0]));
    CHECK_OK(pst_stream_synchronize(self->device, self->streams[0]));
}

/* Nothing is left in the pool. */
static void check_pool(walk *self)
{
    pst_pool_status status;
    CHECK_OK(pst_pool_check(self->pool, self->streams[0]));
    CHECK_OK(pst_pool_step(self->pool, self->streams[0]));
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.in_use[0], 0);
    CHECK_EQ(status.in_use[1], 0);
}

void walk_check(walk *self, bool first)
{
    const uint64_t visits = (uint64_t)self->num_layers * self->num_micro_batches;
    const bool is_known = is_comparable(self, first);
    outcome out = {.of = self};
    out.records = calloc(visits + 1, self->record_bytes);
    out.fails = calloc(visits * PST_MAX_PARTS + 1, sizeof(bool));
    out.uses = calloc(visits * PST_MAX_PARTS + 1, sizeof(uint32_t));
    read_back(self, &out);
    count_uses(self, &out);
    if (is_known && !psti_test_failed())
        simulate(self, &out);
    if (is_known && !psti_test_failed())
        compare_figures(&out);
    if (!psti_test_failed())
        check_bytes(self, &out, is_known, first);
    if (!psti_test_failed())
        check_pool(self);
    free(out.records);
    free(out.fails);
    free(out.uses);
}
