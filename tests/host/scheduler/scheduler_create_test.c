/* What a scheduler is made of, what is refused, and other numbers of micro-batches. */
#include <stdio.h>

#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"
#include "tests/random.h"

static rig_config one_f_one_b(uint32_t stages, uint32_t stage, uint32_t micro_batches)
{
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = stages;
    config.schedule.stage = stage;
    config.schedule.num_micro_batches = micro_batches;
    return config;
}

/* ---- refusals ---- */

typedef void (*spoil_fn)(rig *self, pst_scheduler_config *config);

#define SPOILS(name, ...)                                     \
    static void name(rig *self, pst_scheduler_config *config) \
    {                                                         \
        (void)self;                                           \
        (void)config;                                         \
        __VA_ARGS__;                                          \
    }
SPOILS(no_layers, config->num_layers = 0)
SPOILS(no_pool, config->pool = NULL)
SPOILS(twice, self->layers[1].layer = 0)
SPOILS(beyond, self->layers[1].layer = 7)
SPOILS(no_chunk, self->layers[1].chunk = 9)
SPOILS(no_parts, self->layers[2].num_parts = 0)
SPOILS(many_parts, self->layers[2].num_parts = 5)
SPOILS(uses, self->parts[0].uses = 4)
SPOILS(mixed, self->parts[1].sources = NULL)
SPOILS(no_destinations, self->parts[1].destinations = NULL)
SPOILS(many_sets, config->num_sources = 9)
SPOILS(three_streams, config->num_streams = 3)
SPOILS(two_streams, config->num_streams = 2)
SPOILS(small_element, config->layer_bytes = 8)
SPOILS(capture, config->capture = (pst_capture)2)
SPOILS(rule, config->rule = (pst_restore_rule)2)
SPOILS(sms, config->launch[1].num_sms = 2)
SPOILS(tail, config->tail = PST_TAIL_ZERO)
SPOILS(stage, config->num_stages = 2, config->stage = 2)
SPOILS(share, self->layers[3].policy.host_num = 2, self->layers[3].policy.host_den = 1)
SPOILS(no_host_pages, self->layers[3].policy.host_num = 1, self->layers[3].policy.host_den = 2)
SPOILS(tokens, self->layers[3].keep = PST_KEEP_SWAPPED,
       self->layers[3].policy.swap_tokens = RIG_TOKENS + 1)
SPOILS(no_buffer, self->layers[3].keep = PST_KEEP_SWAPPED, self->layers[3].buffers[1] = NULL)
SPOILS(few_slots, config->max_slots = 2)
SPOILS(ring_of_layers, config->one_ring = true, config->capture = PST_CAPTURE_LAYERS)
SPOILS(no_base, self->source_buffers[1][0].bases = NULL)
static const void *const no_count[1];
SPOILS(no_counts, self->source_buffers[0][0].counts = NULL)
SPOILS(null_count, self->source_buffers[0][0].counts = no_count)
SPOILS(null_layers, config->layers = NULL)
SPOILS(many_layers, config->num_layers = PSTI_MAX_SEATS + 1)
SPOILS(null_parts, self->layers[2].parts = NULL)
SPOILS(part_padding, self->parts[0].padding = 3)
SPOILS(padding, config->padding = 1)
SPOILS(no_tail, config->tail = (pst_restore_tail)3)
SPOILS(failed, config->failed = (pst_restore_failed)2)
SPOILS(ring_and_destinations, config->one_ring = true, config->num_destinations = 2)
SPOILS(keep, self->layers[3].keep = (pst_keep)4)
SPOILS(move, self->layers[3].policy.move = (pst_move)2)
SPOILS(no_first_buffer, self->layers[3].keep = PST_KEEP_SWAPPED, self->layers[3].buffers[0] = NULL)
SPOILS(large_swap, self->layers[3].keep = PST_KEEP_SWAPPED,
       self->layers[3].whole_bytes = UINT64_C(1) << 48)

PST_TEST(SchedulerCreate, Refusals)
{
    static const struct spoiled {
        spoil_fn spoil;
        const char *said;
    } all[] = {
        {no_layers, "no layers"},
        {no_pool, "layer 0 of chunk 0: PAGED and SWAPPED need a pool"},
        {twice, "layer 0 of chunk 0: given twice"},
        {beyond, "layers[1]: layer 7 of chunk 0: 4 layers are of that chunk, so they are 0 to 3"},
        {no_chunk, "layers[1]: chunk 9: the schedule has fewer"},
        {no_parts, "layer 2 of chunk 0: num_parts 0: allowed are 1 to 4"},
        {many_parts, "layer 2 of chunk 0: num_parts 5: allowed are 1 to 4"},
        {uses, "layer 0 of chunk 0, part 0: uses 4:"},
        {mixed, "layer 0 of chunk 0, part 1: sources is NULL"},
        {no_destinations, "layer 0 of chunk 0, part 1: destinations is NULL"},
        {many_sets, "num_sources 9, num_destinations 2: allowed are 1 to 8"},
        {three_streams, "num_streams 3: allowed are 1, 2 and 4"},
        {two_streams, "num_streams 2: operations of an ordered pool need one"},
        {small_element, "layer_bytes 8: pst_layer has"},
        {capture, "capture 2:"},
        {rule, "rule 2:"},
        {sms, "num_sms 2: allowed are 0 to 1 on this device"},
        {tail, "layer 0 of chunk 0, part 0: tail PST_TAIL_ZERO needs dirty words"},
        {stage, "stage 2 of num_stages 2"},
        {share, "layer 3 of chunk 0: policy.host_num 2 of host_den 1"},
        {no_host_pages, "layer 3 of chunk 0: policy.host_num 1: the pool has no host pages"},
        {tokens, "layer 3 of chunk 0: swap_tokens 33: it has num_tokens 32"},
        {no_buffer, "layer 3 of chunk 0: a buffer is NULL"},
        {few_slots, "chunk 0: the schedule needs 4 slots, 2 are allowed"},
        {ring_of_layers, "one_ring is for PST_CAPTURE_ITERATION"},
        {no_base, "layer 0 of chunk 0, part 1, source 0: bases is NULL"},
        {no_counts, "layer 0 of chunk 0, part 0, source 0: counts is NULL"},
        {null_count, "layer 0 of chunk 0, part 0, source 0: counts[0] is NULL"},
        {null_layers, "no layers"},
        {many_layers, "num_layers 16777217: too many"},
        {null_parts, "layer 2 of chunk 0: parts is NULL, of num_parts 2"},
        {part_padding, "layer 0 of chunk 0, part 0: padding 3: must be 0"},
        {padding, "padding: must be 0"},
        {no_tail, "tail 3: allowed are untouched, zero and zero all"},
        {failed, "failed 2: allowed are untouched and zero"},
        {ring_and_destinations, "num_destinations 2: one ring has none"},
        {keep, "layer 3 of chunk 0: keep 4: allowed are 0 to 3"},
        {move, "layer 3 of chunk 0: policy.move 2: allowed are direct and demote"},
        {no_first_buffer, "layer 3 of chunk 0: a buffer is NULL"},
        {large_swap, "layer 3 of chunk 0: 281474976710656 bytes to swap"},
    };
    for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rig self;
        rig_config config = one_f_one_b(4, 0, 8);
        pst_scheduler *scheduler = NULL;
        uint64_t device_bytes, host_bytes;
        config.num_parts = 2;
        rig_open(&self, &config);
        const uint32_t live = self.device->live;
        pst_scheduler_config spoiled = self.config.scheduler;
        all[i].spoil(&self, &spoiled);
        CHECK_STATUS(pst_scheduler_create(&spoiled, &scheduler), PST_E_INVALID);
        CHECK_SAID(all[i].said);
        CHECK_STATUS(pst_scheduler_bytes(&spoiled, &device_bytes, &host_bytes), PST_E_INVALID);
        CHECK_EQ(self.device->live, live);
        rig_close(&self);
    }
}

PST_TEST(SchedulerCreate, TicketsAndBytes)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    uint64_t device_bytes = 0, host_bytes = 0;
    pst_scheduler *scheduler = NULL;
    pst_scheduler_stats stats;
    config.num_parts = 2;
    config.max_tickets = 40;
    config.keep[3] = PST_KEEP_SWAPPED;
    config.policy[3].swap_tokens = 4;
    rig_open(&self, &config);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.num_tickets, 3 * 4 * 2);
    CHECK_EQ(stats.num_slots, 4);
    CHECK_OK(pst_scheduler_bytes(&self.config.scheduler, &device_bytes, &host_bytes));
    uint64_t of_ticket = 0;
    CHECK_OK(pst_ticket_bytes(self.pool, self.group, &of_ticket));
    CHECK_EQ(device_bytes, 24 * of_ticket + 8);
    CHECK_EQ(host_bytes, stats.program_bytes + 4 * 512); /* 4 slots of (4 + 4) * 64 bytes */
    CHECK_STATUS(pst_scheduler_create(&self.config.scheduler, &scheduler), PST_E_INVALID);
    CHECK_SAID(
        "the layers need 24 tickets, parts times slots; the pool has max_tickets 40, of which "
        "24 are in use");
    rig_close(&self);
}

/* Of one stage the last two stay in the buffers. With two stages the last alone: passes of other
 * micro-batches need one buffer. What an order of more micro-batches wants comes with it. */
PST_TEST(SchedulerCreate, SwappedLayersThatStayHaveNoHostMemory)
{
    static const struct {
        uint32_t stages, micro_batches, leave, slots, then, leave_then;
    } cases[] = {{1, 3, 3, 1, 1, 3}, {2, 1, 3, 2, 4, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig self;
        rig_config config = one_f_one_b(cases[i].stages, 0, cases[i].micro_batches);
        uint64_t device_bytes = 0, host_bytes = 0;
        config.num_layers[0] = 5;
        config.scheduler.max_slots = cases[i].slots;
        for (uint32_t l = 0; l < 5; l++) {
            config.keep[l] = PST_KEEP_SWAPPED;
            config.policy[l].swap_tokens = 4;
        }
        rig_open(&self, &config);
        CHECK_OK(pst_scheduler_bytes(&self.config.scheduler, &device_bytes, &host_bytes));
        uint64_t expected = self.scheduler->now.program->bytes;
        CHECK_EQ(host_bytes, expected + (uint64_t)cases[i].leave * cases[i].slots * 512);
        uint32_t leave = 0;
        for (uint32_t l = 0; l < 5; l++)
            leave += self.scheduler->layers[l].host_memory != NULL;
        CHECK_EQ(leave, cases[i].leave);
        for (int n = 0; n < 2; n++)
            CHECK_OK(rig_step(&self));
        rig_set_micro_batches(&self, cases[i].then);
        rig_step(&self);
        for (uint32_t l = leave = 0; l < 5; l++)
            leave += self.scheduler->layers[l].host_memory != NULL;
        CHECK_EQ(leave, cases[i].leave_then);
        rig_check(&self);
        rig_close(&self);
    }
}

PST_TEST(SchedulerCreate, DemoteNeedsStreams)
{
    for (uint32_t ok = 0; ok < 2; ok++) {
        rig self;
        rig_config config = one_f_one_b(4, 0, 8);
        config.mode = PST_POOL_CONCURRENT;
        config.num_pages = 200;
        config.num_host_pages = 200;
        rig_open(&self, &config);
        CHECK_OK(pst_scheduler_destroy(self.scheduler));
        self.scheduler = NULL;
        self.layers[1].policy =
            (pst_layer_policy){.host_num = 1, .host_den = 1, .move = PST_MOVE_DEMOTE};
        self.config.scheduler.num_streams = ok ? 4 : 1;
        const pst_status status = pst_scheduler_create(&self.config.scheduler, &self.scheduler);
        CHECK_EQ(status, ok ? PST_OK : PST_E_INVALID);
        if (!ok) {
            CHECK_SAID("layer 1 of chunk 0: policy.move DEMOTE: needs a concurrent pool");
        } else {
            CHECK_OK(rig_step(&self));
            rig_check(&self);
            const pst_pool_status moved = rig_status(&self);
            CHECK(moved.demoted_pages > 0 && moved.demoted_pages == moved.promoted_pages);
        }
        rig_close(&self);
    }
}

/* ---- other numbers of micro-batches ---- */

static void run_numbers(pst_capture capture, bool has_late)
{
    static const uint32_t numbers[] = {6, 16, 8, 2, 1, 12, 16, 5, 7, 9, 10, 11, 13, 14, 15, 6, 8};
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    const lazy_options options = {.seed = 5};
    config.scheduler.capture = capture;
    config.num_layers[0] = 3; /* odd, so that no neighbours share a set */
    if (has_late) {
        CHECK_OK(pst_device_open("host", 0, &config.device));
        lazy_make(config.device, &options);
        config.mode = PST_POOL_CONCURRENT;
    }
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    if (capture == PST_CAPTURE_LAYERS)
        CHECK_OK(rig_capture_layers(&self, 100));
    for (uint32_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        pst_scheduler_stats stats;
        rig_set_micro_batches(&self, numbers[i]);
        CHECK_MSG(rig_step(&self) == PST_OK, "%u micro-batches: %s", numbers[i],
                  pst_last_message());
        rig_check(&self);
        CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
        CHECK_EQ(stats.num_tickets, 12);
    }
    rig_close(&self);
}

PST_TEST(SchedulerCreate, OtherNumbersOfMicroBatches)
{
    run_numbers(PST_CAPTURE_ITERATION, false);
    run_numbers(PST_CAPTURE_ITERATION, true);
    run_numbers(PST_CAPTURE_LAYERS, false);
    run_numbers(PST_CAPTURE_LAYERS, true);
}

PST_TEST(SchedulerCreate, AListHasOneNumber)
{
    rig self, list;
    rig_config config = one_f_one_b(4, 0, 8);
    pst_step_options options = PST_STEP_OPTIONS_INIT;
    rig_open(&self, &config);
    config.schedule = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
    config.schedule.kind = PST_SCHEDULE_LIST;
    config.schedule.passes = self.schedule->passes;
    config.schedule.num_passes = self.schedule->num_passes;
    rig_open(&list, &config);
    options.num_micro_batches = 6;
    CHECK_STATUS(pst_scheduler_step_begin(list.scheduler, &options, list.streams[0]),
                 PST_E_INVALID);
    CHECK_SAID("num_micro_batches 6: the schedule has 8 micro-batches, and is a list");
    options.num_micro_batches = 8;
    CHECK_OK(pst_scheduler_step_begin(list.scheduler, &options, list.streams[0]));
    CHECK_OK(rig_passes(&list, 0, list.schedule->num_passes));
    CHECK_OK(rig_end(&list));
    rig_check(&list);
    rig_close(&list);
    rig_close(&self);
}

/* ---- what ranks compare ---- */

static uint64_t digest_of(const rig_config *config)
{
    rig self;
    uint64_t digest = 0;
    rig_open(&self, config);
    if (pst_scheduler_get_digest(self.scheduler, &digest) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    rig_close(&self);
    return digest;
}

PST_TEST(SchedulerCreate, Digests)
{
    rig_config config = one_f_one_b(4, 0, 8), other = one_f_one_b(4, 3, 8);
    config.mode = other.mode = PST_POOL_CONCURRENT;
    config.num_host_pages = other.num_host_pages = 100;
    const uint64_t digest = digest_of(&config);
    CHECK_EQ(digest_of(&other), digest); /* another stage */
    other.schedule.num_micro_batches = 9;
    CHECK(digest_of(&other) != digest);
    for (uint32_t i = 0; i < 10; i++) {
        other = config;
        pst_layer_policy *policy = &other.policy[2];
        switch (i) {
        case 0:
            other.keep[2] = PST_KEEP_RECOMPUTED;
            break;
        case 1:
            policy->holds = true;
            break;
        case 2:
            policy->move = PST_MOVE_DEMOTE;
            break;
        case 3:
            policy->host_num = policy->host_den = 1;
            break;
        case 4:
            policy->recomputes = true;
            break;
        case 5:
            other.scheduler.num_sources = 3;
            break;
        case 6:
            other.scheduler.num_destinations = 3;
            break;
        case 7:
            other.scheduler.ahead = 1;
            break;
        case 8:
            other.num_parts = 2;
            break;
        default:
            other.scheduler.keeps_nothing = true;
            break;
        }
        CHECK_MSG(digest_of(&other) != digest, "%u", i);
    }
}

/* ---- shapes at the edge ---- */

PST_TEST(SchedulerCreate, Edges)
{
    static const struct edge {
        uint32_t stages, micro_batches, layers, sources, destinations;
    } edges[] = {{4, 2, 4, 2, 2}, {1, 3, 4, 2, 2}, {1, 1, 1, 1, 1},
                 {4, 8, 1, 1, 8}, {4, 8, 3, 1, 8}, {2, 1, 1, 8, 8}};
    for (uint32_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        rig self;
        rig_config config = one_f_one_b(edges[i].stages, 0, edges[i].micro_batches);
        config.num_layers[0] = edges[i].layers;
        config.scheduler.num_sources = edges[i].sources;
        config.scheduler.num_destinations = edges[i].destinations;
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        rig_close(&self);
    }
}

PST_TEST(SchedulerCreate, ChunkWithoutLayers)
{
    rig self;
    rig_config config = RIG_CONFIG;
    config.schedule.kind = PST_SCHEDULE_INTERLEAVED;
    config.schedule.num_stages = 2;
    config.schedule.num_chunks = 2;
    config.schedule.num_micro_batches = 4;
    config.num_layers[0] = 2;
    config.num_layers[1] = 0;
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* A list of forwards alone keeps nothing. */
PST_TEST(SchedulerCreate, ForwardsAlone)
{
    const pst_pass passes[2] = {{.micro_batch = 0}, {.micro_batch = 1}};
    rig self;
    rig_config config = RIG_CONFIG;
    config.schedule.kind = PST_SCHEDULE_LIST;
    config.schedule.passes = passes;
    config.schedule.num_passes = 2;
    config.keep[3] = PST_KEEP_PLANNED;
    rig_open(&self, &config);
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[0], 0, 0));
    CHECK(!self.visit.is_live && self.visit.set == 0);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_OK(rig_step(&self));
    CHECK(!self.visit.is_live && self.visit.set == UINT32_MAX); /* of the last layer */
    rig_check(&self);
    CHECK_EQ(rig_status(&self).high_water[0], 0);
    rig_close(&self);
}

/* Nothing is kept in pages, so there is no pool, and nothing but the order of the hooks. */
PST_TEST(SchedulerCreate, WithoutPool)
{
    const pst_layer layers[2] = {{.layer = 0, .keep = PST_KEEP_PLANNED},
                                 {.layer = 1, .keep = PST_KEEP_RECOMPUTED}};
    pst_schedule_config described = PST_SCHEDULE_CONFIG_INIT;
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    pst_scheduler *scheduler = NULL;
    pst_visit visit;
    described.num_micro_batches = 1;
    CHECK_OK(pst_schedule_create(&described, &schedule));
    config.schedule = schedule;
    config.layers = layers;
    config.num_layers = 2;
    CHECK_OK(pst_scheduler_create(&config, &scheduler));
    CHECK_OK(pst_scheduler_step_begin(scheduler, NULL, NULL));
    for (uint32_t l = 0; l < 2; l++) {
        CHECK_OK(pst_scheduler_forward_begin(scheduler, 0, l, 0, NULL, &visit));
        CHECK_EQ(visit.set, UINT32_MAX);
        CHECK_OK(pst_scheduler_forward_end(scheduler, 0, l, 0, NULL, NULL));
    }
    for (uint32_t l = 2; l-- > 0;) {
        CHECK_OK(pst_scheduler_backward_begin(scheduler, PST_PASS_BACKWARD, 0, l, 0, NULL, &visit));
        CHECK_EQ(visit.first_token, l ? 0 : UINT64_MAX);
        CHECK_OK(pst_scheduler_backward_end(scheduler, PST_PASS_BACKWARD, 0, l, 0, NULL));
    }
    CHECK_OK(pst_scheduler_step_end(scheduler, NULL));
    CHECK_OK(pst_scheduler_destroy(scheduler));
    pst_schedule_destroy(schedule);
}

/* ---- pairs ---- */

PST_TEST(SchedulerPairs, InterleavedInManyWays)
{
    for (uint32_t i = 0; i < psti_test_cases(200); i += psti_test_step(7)) {
        const lazy_options options = {.seed = i + 1};
        rig self;
        rig_config config = RIG_CONFIG;
        config.schedule.kind = PST_SCHEDULE_DUALPIPE;
        config.schedule.num_stages = 4;
        config.schedule.stage = i % 4;
        config.schedule.num_micro_batches = 8;
        config.num_layers[0] = config.num_layers[1] = 2;
        config.seed = i;
        config.two_streams = 1;
        config.own = i % 2;
        config.mode = PST_POOL_CONCURRENT;
        CHECK_OK(pst_device_open("host", 0, &config.device));
        lazy_make(config.device, &options);
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        rig_check(&self);
        rig_close(&self);
    }
}

PST_TEST(SchedulerPairs, AThirdPassBetweenIsRefused)
{
    rig self;
    rig_config config = RIG_CONFIG;
    config.schedule.kind = PST_SCHEDULE_DUALPIPE;
    config.schedule.num_stages = 4;
    config.schedule.num_micro_batches = 8;
    config.num_layers[0] = config.num_layers[1] = 2;
    rig_open(&self, &config);
    uint64_t pair = 0;
    while (!self.schedule->passes[pair].pairs)
        pair++;
    const pst_pass *third = &self.schedule->passes[pair + 2];
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, pair));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[pair], 0, 0));
    CHECK_OK(rig_visit(&self, &self.schedule->passes[pair + 1], 1, 1));
    CHECK_STATUS(rig_visit(&self, third, third->kind == PST_PASS_FORWARD ? 0 : 1, 0), PST_E_ORDER);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* ---- the caller's own form ---- */

/* As few sources wait for their stash as there would be sets. */
PST_TEST(SchedulerOwn, FewSourcesWait)
{
    for (uint32_t sources = 1; sources <= 3; sources++) {
        rig self;
        rig_config config = one_f_one_b(4, 0, 8);
        uint32_t held = 0, most = 0;
        config.own = true;
        config.scheduler.num_sources = sources;
        config.scheduler.keeps_nothing = true;
        rig_open(&self, &config);
        CHECK_OK(rig_begin(&self));
        for (uint64_t i = 0; i < self.schedule->num_passes; i++)
            for (uint32_t n = 0; n < 4; n++) {
                const pst_pass *pass = &self.schedule->passes[i];
                const bool is_forward = pass->kind == PST_PASS_FORWARD;
                CHECK_OK(rig_visit(&self, pass, is_forward ? n : 3 - n, 0));
                held += is_forward;
                held -= self.visit.num_freed;
                most = held > most ? held : most;
            }
        CHECK_OK(rig_end(&self));
        rig_check(&self);
        CHECK_EQ(most, sources);
        rig_close(&self);
    }
}

PST_TEST(SchedulerOwn, DestinationsComeLate)
{
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    pst_scheduler_stats stats;
    config.own = true;
    config.defers = 100;
    rig_open(&self, &config);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.restores, 30);
    CHECK(stats.deferred_restores >= 25);
    rig_close(&self);
}

/* ---- times ---- */

PST_TEST(SchedulerMeasures, OfStepsThatHaveRun)
{
    const lazy_options options = {.seed = 1};
    rig self;
    rig_config config = one_f_one_b(4, 0, 8);
    pst_scheduler_stats stats;
    pst_graph *graph = NULL;
    config.scheduler.measures = true;
    config.mode = PST_POOL_CONCURRENT;
    CHECK_OK(pst_device_open("host", 0, &config.device));
    lazy_make(config.device, &options);
    rig_open(&self, &config);
    for (uint32_t step = 0; step < 2; step++) /* the second finds that the first has not run */
        CHECK_OK(rig_step(&self));
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.measured_steps, 0);
    rig_check(&self);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.measured_steps, 1);
    CHECK(stats.exposed_forward_ns > 0 && stats.exposed_backward_ns > 0);
    CHECK(stats.worst_ns > 0 && stats.worst.layer < 4 && stats.worst.micro_batch < 8);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(rig_capture(&self, &graph)); /* not measured */
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.measured_steps, 2);
    CHECK_EQ(stats.steps, 4);
    CHECK_OK(pst_graph_destroy(graph));
    rig_close(&self);
}
