/* What must hold after a step of the small model. */
#include "tests/conformance/memo.h"

#include <inttypes.h>

/* ---- the simulator ---- */

typedef struct prediction {
    const memo *of;
    memo_copy copies[MEMO_COPIES]; /* slot: the micro-batch */
    uint32_t num_copies;
} prediction;

static void note(void *user, const pst_simulated_event *event)
{
    prediction *said = user;
    const pst_visit_key *visit = &event->visit;
    const bool is_swap =
        event->kind == PST_SIMULATED_DO_SWAP_OUT || event->kind == PST_SIMULATED_DO_SWAP_IN;
    if (event->kind < PST_SIMULATED_DO_STASH || said->num_copies == MEMO_COPIES)
        return;
    const uint64_t bytes = is_swap ? memo_swap_bytes(&said->of->wish.layers[visit->layer]) : 0;
    if (is_swap && bytes == 0)
        return; /* nothing to copy */
    said->copies[said->num_copies++] =
        (memo_copy){.kind = event->kind,
                    .side = (uint32_t)event->stream - PST_SIMULATED_STASH,
                    .layer = visit->layer,
                    .slot = visit->micro_batch,
                    .bytes = bytes};
}

static void simulate(const memo *self, uint64_t step, prediction *said, pst_stage_result *result)
{
    pst_simulated_layer layers[MEMO_LAYERS];
    pst_group_usage usages[MEMO_LAYERS][MEMO_MICRO_BATCHES];
    const pst_simulated_layer *all = layers;
    const pst_schedule *schedule = self->schedule;
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    pst_simulation simulation;
    for (uint32_t l = 0; l < self->wish.num_layers; l++) {
        layers[l] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layers[l].layer = l;
        layers[l].keep = self->wish.layers[l].keep;
        layers[l].swap_bytes = memo_swap_bytes(&self->wish.layers[l]);
        layers[l].usages = usages[l];
        layers[l].num_usages = MEMO_MICRO_BATCHES;
        for (uint32_t m = 0; m < MEMO_MICRO_BATCHES; m++) {
            const int64_t rows = memo_rows(self, step, l, m);
            CHECK_OK(
                pst_group_measure(self->experts_group, &rows, PST_PAGE_BYTES_MIN, &usages[l][m]));
        }
    }
    config.num_stages = 1;
    config.alone = true;
    config.schedules = &schedule;
    config.layers = &all;
    config.num_layers = &self->wish.num_layers;
    config.num_sources = config.num_destinations = self->wish.num_sets;
    config.num_streams = self->wish.num_streams;
    config.keeps_nothing = self->wish.keeps_nothing;
    config.mode = self->wish.num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config.num_pages[0] = UINT64_MAX;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.in_call_order = true;
    config.on_event = said ? note : NULL;
    config.user = said;
    CHECK_OK(pst_simulate(&config, &simulation, result));
}

uint64_t memo_demand(const memo *self, uint64_t step)
{
    pst_stage_result result = {0};
    simulate(self, step, NULL, &result);
    return result.demand_high_water;
}

/* Layers that leave in the order of now did not have to before. */
static void note_leaving(memo *self)
{
    static prediction said;
    pst_stage_result result = {0};
    said = (prediction){.of = self};
    simulate(self, 0, &said, &result);
    for (uint32_t i = 0; i < said.num_copies; i++)
        self->leaves[said.copies[i].layer] |= said.copies[i].kind == PST_SIMULATED_DO_SWAP_OUT;
}

/* Pinned memory of the swapped layers that leave, each visit's bytes rounded up. */
static uint64_t swapped_host_bytes(const memo *self)
{
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < self->wish.num_layers; l++)
        if (self->leaves[l])
            bytes += (memo_swap_bytes(&self->wish.layers[l]) + 255) / 256 * 256 *
                     self->scheduler->num_slots[0];
    return bytes;
}

static void check_host_memory(memo *self)
{
    note_leaving(self);
    for (uint32_t l = 0; l < self->wish.num_layers; l++)
        CHECK_MSG((self->scheduler->layers[l].host_memory != NULL) == self->leaves[l],
                  "layer %u has %s pinned memory", l, self->leaves[l] ? "no" : "some");
}

/* ---- copies ---- */

/* The next one from `at` on of that stream. */
static uint32_t next_on(const memo_copy *copies, uint32_t num, uint32_t at, uint32_t side)
{
    while (at < num && copies[at].side != side)
        at++;
    return at;
}

static void same_copy(const memo *self, const memo_copy *found, const memo_copy *wanted)
{
    const uint32_t m = wanted->slot;
    const pst_visit *said = &self->said[wanted->kind == PST_SIMULATED_DO_SWAP_IN][wanted->layer][m];
    CHECK_MSG(found->kind == wanted->kind && found->layer == wanted->layer &&
                  found->slot == said->slot && found->bytes == wanted->bytes,
              "on stream %u: kind %d, layer %u, slot %u, %" PRIu64
              " bytes, where the simulator has kind %d, layer %u, micro-batch %u in slot %u, "
              "%" PRIu64 " bytes",
              found->side, (int)found->kind, found->layer, found->slot, found->bytes,
              (int)wanted->kind, wanted->layer, m, said->slot, wanted->bytes);
    CHECK_MSG(!found->buffer || found->buffer == self->rounding[said->set],
              "layer %u of micro-batch %u: not the buffer that its hook named", wanted->layer, m);
}

void memo_check_copies(memo *self)
{
    static prediction said;
    pst_stage_result result = {0};
    uint64_t out = 0, in = 0;
    said = (prediction){.of = self};
    simulate(self, self->num_steps - 1, &said, &result);
    CHECK_EQ(said.num_copies, self->num_copies);
    for (uint32_t i = 0; i < self->num_copies; i++) {
        out += self->copies[i].kind == PST_SIMULATED_DO_SWAP_OUT ? self->copies[i].bytes : 0;
        in += self->copies[i].kind == PST_SIMULATED_DO_SWAP_IN ? self->copies[i].bytes : 0;
    }
    CHECK_EQ(out, result.link_bytes[0]);
    CHECK_EQ(in, result.link_bytes[1]);
    CHECK(result.swapped_host_bytes <= swapped_host_bytes(self));
    for (uint32_t side = 0; side < 4; side++)
        for (uint32_t i = 0, k = 0; !psti_test_failed(); i++, k++) {
            i = next_on(self->copies, self->num_copies, i, side);
            k = next_on(said.copies, said.num_copies, k, side);
            CHECK_EQ(i == self->num_copies, k == said.num_copies);
            if (i == self->num_copies)
                break;
            same_copy(self, &self->copies[i], &said.copies[k]);
        }
}

/* ---- what stays in place ---- */

/* Swapped visits in the order of the schedule, by themselves: who wrote a buffer last. */
typedef struct holder {
    bool is_known;
    uint32_t layer, micro_batch;
} holder;

static void check_visit(const memo *self, holder holders[2], bool is_forward, uint32_t l,
                        uint32_t m)
{
    const pst_visit *said = &self->said[is_forward ? 0 : 1][l][m];
    CHECK(said->set < 2);
    holder *mine = &holders[said->set];
    if (!is_forward) {
        const pst_visit *before = &self->said[0][l][m];
        CHECK_EQ(said->in_place, before->in_place);
        CHECK_MSG(!said->in_place || (said->set == before->set && mine->is_known &&
                                      mine->layer == l && mine->micro_batch == m),
                  "layer %u of micro-batch %u is in place, and another has its buffer", l, m);
        const uint32_t tokens = self->wish.layers[l].swap_tokens;
        CHECK_EQ(said->first_token,
                 said->in_place || tokens == MEMO_TOKENS ? UINT64_MAX : (uint64_t)tokens);
    }
    *mine = (holder){.is_known = is_forward, .layer = l, .micro_batch = m};
}

/* At a turn the last two swapped layers stay, wherever other layers lie between. */
static void check_turn(const memo *self, uint32_t m)
{
    uint32_t num = 0;
    for (uint32_t l = self->wish.num_layers; l-- > 0;)
        if (self->wish.layers[l].keep == PST_KEEP_SWAPPED && num++ < 2)
            CHECK_MSG(self->said[1][l][m].in_place, "layer %u of micro-batch %u is swapped", l, m);
}

void memo_check_places(memo *self)
{
    const pst_schedule *schedule = self->schedule;
    holder holders[2] = {{false, 0, 0}, {false, 0, 0}};
    for (uint64_t n = 0; n < schedule->num_passes; n++) {
        const pst_pass *pass = &schedule->passes[n];
        const bool is_forward = pass->kind == PST_PASS_FORWARD;
        for (uint32_t i = 0; i < self->wish.num_layers && !psti_test_failed(); i++) {
            const uint32_t l = is_forward ? i : self->wish.num_layers - 1 - i;
            if (self->wish.layers[l].keep == PST_KEEP_SWAPPED)
                check_visit(self, holders, is_forward, l, pass->micro_batch);
        }
        if (!is_forward && n > 0 && schedule->passes[n - 1].kind == PST_PASS_FORWARD &&
            schedule->passes[n - 1].micro_batch == pass->micro_batch && !self->wish.keeps_nothing)
            check_turn(self, pass->micro_batch);
    }
}

/* ---- bytes ---- */

void memo_check_bytes(memo *self)
{
    uint64_t device_bytes = 0, host_bytes = 0;
    pst_scheduler_stats stats;
    for (uint32_t l = 0; l < self->wish.num_layers && self->wish.records; l++)
        self->leaves[l] = self->wish.layers[l].keep == PST_KEEP_SWAPPED &&
                          memo_swap_bytes(&self->wish.layers[l]) > 0;
    check_host_memory(self);
    CHECK_OK(pst_scheduler_bytes(&self->config, &device_bytes, &host_bytes));
    CHECK_OK(pst_scheduler_get_stats(self->scheduler, &stats));
    CHECK_EQ(host_bytes, stats.program_bytes + swapped_host_bytes(self));
}

/* Where an answer lies: of which layer and micro-batch, at which byte of it. */
typedef struct place {
    const char *what;
    uint32_t layer, micro_batch;
    uint64_t byte;
} place;

static place place_of(const memo *self, uint64_t at)
{
    const uint64_t num = self->num_micro_batches, visit = at / MEMO_DENSE;
    const uint64_t kept = self->wish.num_layers * num * MEMO_DENSE, inputs = num * MEMO_INPUT;
    if (at < kept)
        return (place){"what a backward read", (uint32_t)(visit / num), (uint32_t)(visit % num),
                       at % MEMO_DENSE};
    at -= kept;
    if (at < inputs)
        return (place){"an input's gradient", 0, (uint32_t)(at / MEMO_INPUT), at % MEMO_INPUT};
    at -= inputs;
    return (place){"an accumulated gradient", (uint32_t)(at / sizeof(uint64_t)), 0,
                   at % sizeof(uint64_t)};
}

static void check_answers(memo *self)
{
    uint64_t at = 0;
    CHECK_OK(pst_device_copy(self->device, self->found, self->answers, (size_t)self->answer_bytes,
                             self->stream));
    CHECK_OK(pst_stream_synchronize(self->device, self->stream));
    CHECK_OK(memo_keep_all(self));
    while (at < self->answer_bytes && self->found[at] == self->wanted[at])
        at++;
    const place where = place_of(self, at);
    CHECK_MSG(at == self->answer_bytes,
              "data %" PRIu64 ", layer %u, micro-batch %u: %s differs at byte %" PRIu64,
              self->num_steps, where.layer, where.micro_batch, where.what, where.byte);
}

void memo_check(memo *self, bool recorded)
{
    pst_pool_status status;
    pst_stage_result result = {0};
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_MSG(status.num_faults == 0 && status.step_valid, "%u faults", status.num_faults);
    CHECK_EQ(status.in_use[0], 0);
    if (!recorded && self->wish.num_streams == 1) {
        simulate(self, self->num_steps - 1, NULL, &result);
        CHECK_EQ(status.demand_high_water, result.demand_high_water);
    }
    if (!psti_test_failed())
        check_answers(self);
    if (!psti_test_failed() && !recorded)
        memo_check_places(self);
    if (!psti_test_failed())
        check_host_memory(self);
}
