/* What goes wrong on the device or in the system: pages that run out, stale graphs, errors of the
 * driver, allocations that fail, two threads. */
#include <pthread.h>

#include "tests/host/scheduler/rig.h"
#include "tests/lazy/lazy_device.h"
#include "tests/random.h"

/* The program of P3 of the vectors: 30 pages. */
/* What the last step published. */
static pst_pool_status published(rig *self)
{
    pst_pool_status status = {0};
    if (pst_device_synchronize(self->device) || pst_pool_poll(self->pool, &status))
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return status;
}

static void forget_faults(rig *self)
{
    const uint64_t zero = 0;
    CHECK_OK(pst_pool_reset(self->pool, PST_RESET_ALL, self->streams[0]));
    CHECK_OK(
        pst_device_copy(self->device, self->mismatches, &zero, sizeof(zero), self->streams[0]));
    CHECK_OK(pst_device_synchronize(self->device));
}

PST_TEST(SchedulerFaults, OverflowGrowthAndReplay)
{
    rig self;
    rig_config config = rig_first_of_four(8);
    config.num_pages = 21;
    config.max_pages = 30;
    rig_open(&self, &config);
    pst_graph *graph = NULL;
    pst_scheduler_stats stats;
    CHECK_OK(rig_capture(&self, &graph));
    for (uint32_t replay = 0; replay < 2; replay++) {
        CHECK_OK(pst_graph_launch(graph, self.streams[0]));
        const pst_pool_status status = published(&self);
        CHECK_EQ(status.step_valid, 0);
        CHECK_EQ(status.fault, PST_FAULT_EXHAUSTED);
        CHECK_EQ(status.num_faults, 14);
        CHECK_EQ(status.fault_wanted, 2);
        CHECK_EQ(status.fault_free[0], 1);
        CHECK_EQ(status.fault_free[1], 0);
        CHECK_EQ(status.demand_high_water, 30);
        CHECK_EQ(status.high_water[0], 21);
        CHECK_EQ(status.in_use[0], 0);
        const uint32_t seat = 3 * 4 + 2; /* layer 3, slot 2 */
        CHECK_EQ(status.fault_ticket, pst_ticket_index(self.scheduler->tickets[seat]));
        CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
        CHECK_EQ(stats.lost_steps, replay + 1);
        forget_faults(&self);
    }
    CHECK_OK(pst_pool_resize(self.pool, 30, 0));
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    rig_set_counts(&self, 1);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    CHECK_OK(pst_device_synchronize(self.device));
    CHECK_OK(pst_graph_destroy(graph));
    rig_close(&self);
}

/* H1 to H8 of the vectors: what leaves for the host by layer, and what then happens. */
PST_TEST(SchedulerFaults, TiersPageExact)
{
    static const struct tier {
        uint64_t device, host;
        uint32_t num[4];
        uint64_t den, high_water[2], spilled, offloaded, displaced, faults;
        uint64_t wanted, free; /* of the first fault; pages of the device */
    } tiers[] = {
        {30, 0, {0, 0, 0, 0}, 1, {30, 0}, 0, 0, 0, 0, 0, 0},
        {22, 0, {0, 0, 0, 0}, 1, {22, 0}, 0, 0, 0, 14, 1, 0},
        {20, 12, {0, 0, 0, 0}, 1, {20, 10}, 14, 0, 0, 0, 0, 0},
        {20, 12, {1, 1, 1, 1}, 2, {20, 10}, 0, 18, 0, 0, 0, 0},
        {20, 6, {1, 1, 1, 1}, 1, {20, 6}, 0, 14, 38, 4, 3, 2},
        {12, 8, {0, 0, 0, 0}, 1, {12, 8}, 14, 0, 0, 18, 2, 0},
        {16, 12, {1, 0, 0, 0}, 1, {16, 12}, 3, 16, 0, 2, 3, 1},
    };
    for (uint32_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++) {
        const struct tier *t = &tiers[i];
        rig self;
        rig_config config = rig_first_of_four(8);
        config.num_pages = t->device;
        config.num_host_pages = t->host;
        for (uint32_t l = 0; l < 4; l++) {
            config.policy[l].host_num = t->num[l];
            config.policy[l].host_den = t->num[l] ? (uint32_t)t->den : 0;
        }
        rig_open(&self, &config);
        CHECK_OK(rig_step(&self));
        const pst_pool_status status = published(&self);
        CHECK_EQ(status.demand_high_water, 30);
        CHECK_EQ(status.high_water[0], t->high_water[0]);
        CHECK_EQ(status.high_water[1], t->high_water[1]);
        CHECK_EQ(status.spilled_pages, t->spilled);
        CHECK_EQ(status.offloaded_pages, t->offloaded);
        CHECK_EQ(status.displaced_pages, t->displaced);
        CHECK_EQ(status.num_faults, t->faults);
        CHECK_EQ(status.fault, t->faults ? PST_FAULT_EXHAUSTED : PST_FAULT_NONE);
        CHECK_EQ(status.fault_wanted, t->wanted);
        CHECK_EQ(status.fault_free[0], t->free);
        CHECK_EQ(status.fault_free[1], 0);
        CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
        rig_close(&self);
    }
}

/* One visit's rows are out of range: it is lost, and nothing else is. */
PST_TEST(SchedulerFaults, CountOutOfRange)
{
    rig self;
    const rig_config config = rig_first_of_four(8);
    rig_open(&self, &config);
    self.counts[5] = RIG_CAPACITY + 1;
    CHECK_OK(rig_step(&self));
    const pst_pool_status status = published(&self);
    CHECK_EQ(status.fault, PST_FAULT_COUNT);
    CHECK_EQ(status.num_faults, 2);
    CHECK_EQ(status.in_use[0], 0);
    CHECK(*self.mismatches <= RIG_PART_BYTES); /* its own */
    rig_set_counts(&self, 0);
    forget_faults(&self);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerFaults, StaleGraph)
{
    rig self, other;
    const rig_config config = rig_first_of_four(8);
    rig_open(&self, &config);
    rig_config others = rig_first_of_four(6);
    rig_open(&other, &others);
    pst_graph *graph = NULL;
    CHECK_OK(rig_capture(&self, &graph));
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    rig_check(&self);
    CHECK_OK(pst_scheduler_set_schedule(self.scheduler, other.schedule));
    const pst_pool_status before = published(&self);
    CHECK_OK(pst_graph_launch(graph, self.streams[0]));
    const pst_pool_status status = published(&self);
    CHECK_EQ(status.fault, PST_FAULT_SCHEDULE);
    CHECK_EQ(status.step_valid, 0);
    CHECK_EQ(status.in_use[0], 0);
    CHECK_EQ(status.high_water[0], before.high_water[0]);
    forget_faults(&self);
    CHECK_STATUS(pst_scheduler_destroy(self.scheduler), PST_E_BUSY);
    CHECK_SAID("0 steps are open, and 1 captured graphs hold this scheduler");
    CHECK_OK(pst_graph_destroy(graph));
    self.config.schedule.num_micro_batches = 6;
    rig_set_micro_batches(&self, 6);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(rig_begin(&self));
    CHECK_STATUS(pst_scheduler_set_schedule(self.scheduler, other.schedule), PST_E_BUSY);
    CHECK_STATUS(pst_scheduler_destroy(self.scheduler), PST_E_BUSY);
    CHECK_SAID("1 steps are open, and 0 captured graphs hold this scheduler");
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    rig_close(&other);
    rig_close(&self);
}

/* All of a step is in one capture or none of it is. */
PST_TEST(SchedulerFaults, HalfCaptured)
{
    rig self;
    const rig_config config = rig_first_of_four(3);
    rig_open(&self, &config);
    pst_graph *graph = NULL;
    CHECK_OK(rig_begin(&self));
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(rig_passes(&self, 0, 1), PST_E_CAPTURE);
    CHECK_STATUS(pst_scheduler_abort(self.scheduler, self.streams[0]), PST_E_CAPTURE);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_OK(rig_begin(&self));
    CHECK_OK(rig_passes(&self, 0, 1));
    CHECK_STATUS(pst_graph_end(self.device, self.streams[0], &graph), PST_E_CAPTURE);
    CHECK_STATUS(rig_passes(&self, 1, 2), PST_E_CAPTURE);
    CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
    rig_config layers = rig_first_of_four(3);
    layers.scheduler.capture = PST_CAPTURE_LAYERS;
    rig_open(&self, &layers);
    CHECK_OK(pst_graph_begin(self.device, self.streams[0]));
    CHECK_STATUS(rig_begin(&self), PST_E_CAPTURE);
    CHECK_OK(pst_graph_end(self.device, self.streams[0], &graph));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* The n-th call of the driver fails, for every n. */
PST_TEST(SchedulerFaults, DriverErrors)
{
    const lazy_options options = {.eager = true};
    rig_config config = rig_first_of_four(4);
    CHECK_OK(pst_device_open("host", 0, &config.device));
    lazy_make(config.device, &options);
    rig self;
    config.num_layers[0] = 2;
    config.mode = PST_POOL_CONCURRENT;
    rig_open(&self, &config);
    const uint64_t calls = lazy_calls(self.device);
    CHECK_OK(rig_step(&self));
    const uint64_t of_step = lazy_calls(self.device) - calls;
    CHECK(of_step > 50);
    for (uint64_t n = 1; n <= of_step; n += psti_test_step(7)) {
        lazy_fail_at(self.device, n);
        const pst_status status = rig_step(&self);
        CHECK_MSG(status == PST_E_CUDA, "call %llu: %s", (unsigned long long)n,
                  pst_status_name(status));
        lazy_fail_at(self.device, 0);
        if (self.scheduler->state != PSTI_SCHEDULER_IDLE)
            CHECK_STATUS(rig_begin(&self), PST_E_ORDER);
        CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
        forget_faults(&self);
        CHECK_MSG(rig_step(&self) == PST_OK, "after call %llu: %s", (unsigned long long)n,
                  pst_last_message());
        rig_check(&self);
    }
    lazy_fail_at(self.device, 20);
    CHECK_STATUS(rig_step(&self), PST_E_CUDA);
    rig_close(&self); /* destroy also ends what is broken */
}

/* ---- allocations ---- */

PST_TEST(SchedulerFaults, AllocationsOfCreateFail)
{
    rig self;
    rig_config config = rig_first_of_four(3);
    config.num_layers[0] = 2;
    config.keep[1] = PST_KEEP_SWAPPED;
    config.policy[1].swap_tokens = 5;
    rig_open(&self, &config);
    CHECK_OK(pst_scheduler_destroy(self.scheduler));
    self.scheduler = NULL;
    const uint32_t live = self.device->live;
    uint32_t failures = 0;
    for (long n = 0; !self.scheduler; n++) {
        psti_fail_allocation_after(n);
        const pst_status status = pst_scheduler_create(&self.config.scheduler, &self.scheduler);
        psti_fail_allocation_after(-1);
        CHECK_MSG(status == PST_OK || status == PST_E_NOMEM || status == PST_E_DEVICE_NOMEM,
                  "%ld: %s", n, pst_status_name(status));
        CHECK_EQ(status == PST_OK, self.scheduler != NULL);
        if (status != PST_OK)
            CHECK_EQ(self.device->live, live);
        failures += status != PST_OK;
    }
    CHECK(failures > 20);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerFaults, AllocationsOfAnotherScheduleFail)
{
    rig self;
    const rig_config config = rig_first_of_four(8);
    rig_open(&self, &config);
    pst_schedule *schedule = NULL;
    pst_schedule_config other = config.schedule;
    other.kind = PST_SCHEDULE_ZB_H1;
    other.num_micro_batches = 4;
    CHECK_OK(pst_schedule_create(&other, &schedule));
    uint32_t failures = 0;
    for (pst_status status = PST_E_NOMEM; status != PST_OK; failures++) {
        psti_fail_allocation_after((long)failures);
        status = pst_scheduler_set_schedule(self.scheduler, schedule);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || status == PST_E_NOMEM);
        if (status == PST_OK)
            break;
        CHECK_OK(rig_step(&self)); /* as before */
        rig_check(&self);
    }
    CHECK(failures > 5);
    pst_schedule_destroy(self.schedule);
    self.schedule = schedule;
    self.config.schedule = other;
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

PST_TEST(SchedulerFaults, AllocationsWhileRecordingFail)
{
    rig self;
    rig_config config = rig_first_of_four(4);
    config.records = true;
    rig_open(&self, &config);
    uint32_t failures = 0;
    for (pst_status status = PST_E_NOMEM; status != PST_OK; failures++) {
        psti_fail_allocation_after((long)failures);
        status = rig_step(&self);
        psti_fail_allocation_after(-1);
        CHECK_MSG(status == PST_OK || status == PST_E_NOMEM, "%s", pst_last_message());
        if (status != PST_OK)
            CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    }
    CHECK(failures > 5);
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* ---- threads ---- */

typedef struct two {
    rig *self;
    pst_status status;
    pthread_barrier_t *barrier;
} two;

static void *call(void *arg)
{
    two *mine = arg;
    pst_visit visit;
    pthread_barrier_wait(mine->barrier);
    mine->status =
        pst_scheduler_forward_begin(mine->self->scheduler, 0, 0, 0, mine->self->streams[0], &visit);
    return NULL;
}

PST_TEST(SchedulerFaults, TwoThreadsAtOnce)
{
    rig self;
    const rig_config config = rig_first_of_four(2);
    rig_open(&self, &config);
    for (uint32_t round = 0; round < 20; round++) {
        pthread_barrier_t barrier;
        pthread_t threads[2];
        two both[2] = {{&self, PST_OK, &barrier}, {&self, PST_OK, &barrier}};
        pst_scheduler_stats stats;
        pthread_barrier_init(&barrier, NULL, 2);
        CHECK_OK(rig_begin(&self));
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, call, &both[i]), 0);
        CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
        for (uint32_t i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        CHECK(both[0].status + both[1].status == PST_E_ORDER);
        CHECK_OK(pst_scheduler_abort(self.scheduler, self.streams[0]));
    }
    CHECK_OK(rig_step(&self));
    rig_check(&self);
    rig_close(&self);
}

/* ---- the test of the tests ---- */

/* A wait less in the program: bytes differ in some order of the streams, but where another wait implies
 * it.
 * Fault rows 71. */
PST_TEST(SchedulerFaults, WaitLeftOut)
{
    uint32_t waits = 0, found = 0;
    for (uint32_t n = 0;; n++) {
        bool differs = false, has_wait = false;
        for (uint64_t seed = 1; seed <= 8 && !differs; seed++) {
            const lazy_options options = {.seed = seed};
            rig self;
            rig_config config = rig_first_of_four(3);
            uint32_t at = 0;
            config.num_layers[0] = 3;
            config.scheduler.num_sources = 1;
            config.mode = PST_POOL_CONCURRENT;
            CHECK_OK(pst_device_open("host", 0, &config.device));
            lazy_make(config.device, &options);
            rig_open(&self, &config);
            psti_program *program = self.scheduler->now.program;
            for (uint32_t i = 0; i < program->num_operations; i++) {
                psti_operation *op = &program->operations[i];
                if (op->act != PSTI_ACT_WAIT || at++ != n)
                    continue;
                has_wait = true;
                op->act = PSTI_ACT_SWAP_OUT; /* of a layer without bytes to swap: nothing */
            }
            CHECK_OK(rig_step(&self));
            CHECK_OK(pst_device_synchronize(self.device));
            const pst_pool_status status = published(&self);
            differs = *self.mismatches != 0 || status.num_faults > 0;
            forget_faults(&self);
            rig_close(&self);
        }
        if (!has_wait)
            break;
        waits++;
        found += differs;
    }
    CHECK_MSG(waits > 20 && found * 4 >= waits * 3, "%u of %u", found, waits);
}
