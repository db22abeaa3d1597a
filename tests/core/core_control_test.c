/* kernels/core/control.h: the last words of reset, step and check. */
#include "tests/harness.h"

#include "kernels/core/control.h"
#include "kernels/core/mailbox.h"

enum { PAGES = 5, HOST_PAGES = 3 };

typedef struct fixture {
    psti_pool_state state;
    pst_pool_status status;
    uint32_t ring[PSTI_TIERS][8];
    uint64_t owner[PSTI_TIERS][8];
    uint32_t seen[PAGES + HOST_PAGES];
    psti_pool_view view;
    psti_control_args args;
} fixture;

static void set_up(fixture *self)
{
    *self = (fixture){.state = {.num_pages = {PAGES, HOST_PAGES}, .tail = {PAGES, HOST_PAGES}}};
    self->view = (psti_pool_view){.state = &self->state,
                                  .status = &self->status,
                                  .seen = self->seen,
                                  .ring = {self->ring[0], self->ring[1]},
                                  .owner = {self->owner[0], self->owner[1]},
                                  .ring_mask = {7, 3},
                                  .max_pages = {PAGES, HOST_PAGES}};
    self->args = (psti_control_args){.pool = self->view, .num_pages = {PAGES, HOST_PAGES}};
}

/* ---- reset ---- */

PST_TEST(CoreControl, ResetOfPagesFreesAllAndEndsARefusal)
{
    fixture self;
    set_up(&self);
    self.state.head[0] = 77;
    self.state.tail[0] = 78;
    self.state.failed_wanted = 9;
    self.state.epoch = UINT32_MAX;
    self.state.refuse = 1;
    self.state.lock_next = 4;
    self.state.lock_serving = 2;
    self.state.launch = 7;
    psti_reset_pages(&self.state);
    CHECK_EQ(psti_free_pages(&self.state, 0), PAGES);
    CHECK_EQ(psti_free_pages(&self.state, 1), HOST_PAGES);
    CHECK_EQ(self.state.failed_wanted, 0);
    CHECK_EQ(self.state.epoch, 0);
    CHECK_EQ(self.state.refuse, 0);
    CHECK_EQ(self.state.lock_next, self.state.lock_serving);
    CHECK(self.state.launch > 7 && self.state.launch % 2 == 0);
    const uint64_t even = self.state.launch;
    psti_reset_pages(&self.state);
    CHECK(self.state.launch > even && self.state.launch % 2 == 0);
}

/* ---- a number that is expected ---- */

PST_TEST(CoreControl, AnotherNumberIsAFaultAndARefusal)
{
    fixture self;
    uint64_t word = UINT64_C(5) << 33;
    set_up(&self);
    self.status.step_valid = 1;
    const psti_expect_args args = {.pool = self.view, .word = &word, .expected = word};
    psti_expect_word(&args);
    CHECK_EQ(self.state.refuse, 0);
    CHECK_EQ(self.status.step_valid, 1);
    CHECK_EQ(self.status.num_faults, 0);
    word++;
    for (uint32_t i = 1; i <= 2; i++) {
        psti_expect_word(&args);
        CHECK_EQ(self.state.refuse, PSTI_REFUSES_SCHEDULE);
        CHECK_EQ(self.status.step_valid, 0);
        CHECK_EQ(self.status.num_faults, i);
        CHECK_EQ(self.status.flags, 1u << PST_FAULT_SCHEDULE);
        CHECK_EQ(self.status.fault_state, 2);
        CHECK_EQ(self.status.fault, PST_FAULT_SCHEDULE);
        CHECK_EQ(self.status.fault_ticket, UINT32_MAX);
        CHECK_EQ(self.status.fault_wanted, (UINT64_C(5) << 33) + 1);
        CHECK_EQ(self.status.fault_free[0], UINT64_C(5) << 33);
        CHECK_EQ(self.status.fault_free[1], 0);
        word += i; /* the first fault stays */
    }
}

PST_TEST(CoreControl, TheEndOfARefusalBySchedule)
{
    fixture self;
    set_up(&self);
    self.state.refuse = PSTI_REFUSES_SCHEDULE;
    CHECK_EQ(psti_refusal(&self.state, 0), PSTI_REFUSES_SCHEDULE);
    CHECK_EQ(psti_refusal(&self.state, PSTI_MOVE_RELEASE), PSTI_REFUSES_SCHEDULE);
    CHECK_EQ(psti_refusal(&self.state, PSTI_MOVE_RELEASE | PSTI_MOVE_QUIET), 0);
    psti_refuse(&self.view, 3);
    CHECK_EQ(self.state.refuse, PSTI_REFUSES_SCHEDULE | PSTI_REFUSES_ORDER);
    CHECK_EQ(psti_refusal(&self.state, PSTI_MOVE_QUIET), PSTI_REFUSES_ORDER);
    psti_end_schedule_refusal(&self.state);
    CHECK_EQ(self.state.refuse, PSTI_REFUSES_ORDER);
    self.state.refuse |= PSTI_REFUSES_SCHEDULE;
    psti_reset_pages(&self.state);
    CHECK_EQ(self.state.refuse, 0);
}

PST_TEST(CoreControl, ResetOfPagesKeepsTheMarks)
{
    fixture self;
    set_up(&self);
    self.state.step_high[0] = 4;
    self.state.step_high[1] = 2;
    self.state.step_demand = 11;
    psti_reset_pages(&self.state);
    psti_fold_step(&self.state, &self.status);
    CHECK_EQ(self.status.high_water[0], 4);
    CHECK_EQ(self.status.high_water[1], 2);
    CHECK_EQ(self.status.demand_high_water, 11);
}

PST_TEST(CoreControl, ResetOfStatisticsBeginsWithWhatIsInUse)
{
    fixture self;
    set_up(&self);
    self.state.head[0] = 2;
    self.state.failed_wanted = 10;
    self.state.step_demand = 99;
    self.status.high_water[0] = 5;
    self.status.demand_high_water = 99;
    self.status.spilled_pages = 3;
    psti_reset_statistics(&self.state, &self.status);
    CHECK_EQ(self.status.high_water[0], 0);
    CHECK_EQ(self.status.spilled_pages, 0);
    psti_fold_step(&self.state, &self.status);
    CHECK_EQ(self.status.high_water[0], 2);
    CHECK_EQ(self.status.demand_high_water, 12);
}

PST_TEST(CoreControl, ResetOfFaultsLetsANewFirstFaultIn)
{
    fixture self;
    set_up(&self);
    psti_record_fault(&self.view, PST_FAULT_LIVE, 3, 4);
    psti_reset_faults(&self.status);
    CHECK_EQ(self.status.flags, 0);
    CHECK_EQ(self.status.step_valid, 1);
    CHECK_EQ(self.status.num_faults, 0);
    CHECK_EQ(self.status.fault_ticket, UINT32_MAX);
    psti_record_fault(&self.view, PST_FAULT_EMPTY, 5, 6);
    CHECK_EQ(self.status.fault, PST_FAULT_EMPTY);
    CHECK_EQ(self.status.fault_ticket, 5);
}

/* ---- step ---- */

PST_TEST(CoreControl, StepFoldsAndBeginsTheNext)
{
    fixture self;
    set_up(&self);
    self.state.epoch = 6;
    self.state.step_high[0] = 4;
    self.state.step_demand = 20;
    self.state.head[0] = 1;
    self.status.high_water[0] = 2;
    self.status.high_water[1] = 3;
    self.status.demand_high_water = 30;
    psti_fold_step(&self.state, &self.status);
    CHECK_EQ(self.status.high_water[0], 4);
    CHECK_EQ(self.status.high_water[1], 3);
    CHECK_EQ(self.status.step_demand, 20);
    CHECK_EQ(self.status.demand_high_water, 30);
    CHECK_EQ(self.status.in_use[0], 1);
    CHECK_EQ(self.status.in_use[1], 0);
    CHECK_EQ(self.status.steps, 1);
    CHECK_EQ(self.status.epoch, 6);
    CHECK_EQ(self.state.step_high[0], 1);
    CHECK_EQ(self.state.step_demand, 1);
}

/* ---- check ---- */

PST_TEST(CoreControl, CheckMarksAPageOncePerRound)
{
    fixture self;
    set_up(&self);
    const uint32_t ids[] = {0, PAGES - 1, PSTI_ID_HOST_BIT, PSTI_ID_HOST_BIT | (HOST_PAGES - 1)};
    for (uint32_t round = UINT32_MAX - 1; round != 2; round++) {
        if (round == 0)
            continue;
        for (int i = 0; i < 4; i++) {
            CHECK(psti_check_mark(&self.view, ids[i], round));
            CHECK(!psti_check_mark(&self.view, ids[i], round));
        }
    }
}

PST_TEST(CoreControl, CheckOfIds)
{
    fixture self;
    set_up(&self);
    self.owner[0][1] = 55;
    CHECK(psti_check_id(&self.view, 0, 0, 1));
    CHECK(!psti_check_id(&self.view, 0, 0, 1)); /* a second time */
    CHECK(!psti_check_id(&self.view, 1, 0, 1)); /* owned */
    CHECK(psti_check_id(&self.view, 1, 55, 2));
    CHECK(!psti_check_id(&self.view, PAGES, 0, 1));
    CHECK(!psti_check_id(&self.view, PSTI_ID_NONE, 0, 1));
    CHECK(psti_check_id(&self.view, PSTI_ID_HOST_BIT | 2, 0, 1));
    CHECK(!psti_check_id(&self.view, PSTI_ID_HOST_BIT | 3, 0, 1));
    self.state.num_pages[0] = PAGES - 1; /* fewer now than there may be */
    CHECK(!psti_check_id(&self.view, PAGES - 1, 0, 3));
}

PST_TEST(CoreControl, SpansOfTheRing)
{
    fixture self;
    uint64_t head = 0;
    uint64_t errors = 0;
    set_up(&self);
    self.state.head[0] = UINT64_MAX - 1;
    self.state.tail[0] = PAGES - 2;
    CHECK_EQ(psti_check_span(&self.view, 0, &head, &errors), PAGES);
    CHECK_EQ(head, UINT64_MAX - 1);
    CHECK_EQ(errors, 0);
    self.state.tail[0]++;
    CHECK_EQ(psti_check_span(&self.view, 0, &head, &errors), 0);
    CHECK_EQ(errors, 1);
    self.state.tail[0] = self.state.head[0] - 1;
    CHECK_EQ(psti_check_span(&self.view, 0, &head, &errors), 0);
    CHECK_EQ(errors, 2);
}

PST_TEST(CoreControl, ConclusionCountsWrongAndLost)
{
    fixture self;
    set_up(&self);
    psti_check_conclude(&self.view, PAGES + HOST_PAGES, 0);
    CHECK_EQ(self.status.check_errors, 0);
    CHECK_EQ(self.status.num_faults, 0);
    psti_check_conclude(&self.view, PAGES + HOST_PAGES - 3, 1);
    CHECK_EQ(self.status.check_errors, 3);
    CHECK_EQ(self.status.fault, PST_FAULT_CHECK);
    CHECK_EQ(self.status.fault_wanted, 3);
    psti_check_conclude(&self.view, PAGES + HOST_PAGES, 2);
    CHECK_EQ(self.status.check_errors, 2);
    psti_check_conclude(&self.view, 0, UINT64_MAX);
    CHECK_EQ(self.status.check_errors, UINT32_MAX);
}

/* ---- slabs of records ---- */

PST_TEST(CoreControl, RecordsOfASlabAreEmptyAndInTheDirectory)
{
    enum { NUM = 3, ROOM = 5, TABLE = 6, STRIDE = 80 + ROOM * 8 + 32 };
    _Alignas(8) unsigned char memory[NUM * STRIDE];
    uint64_t directory[NUM + 1] = {1, 2, 3, 4};
    fixture self;
    set_up(&self);
    memset(memory, 0xff, sizeof(memory));
    self.view.tickets = directory;
    const psti_slab_args args = {.pool = self.view,
                                 .first_record = (uint64_t)(uintptr_t)memory,
                                 .record_bytes = STRIDE,
                                 .table_pages = TABLE,
                                 .num = NUM,
                                 .count_room = ROOM};
    for (uint32_t i = 0; i < NUM; i++)
        psti_make_record(&args, i);
    for (uint32_t i = 0; i < NUM; i++) {
        const psti_ticket_record expected = {.index = i, .count_room = ROOM, .table_pages = TABLE};
        psti_ticket_record found;
        memcpy(&found, memory + i * STRIDE, sizeof(found));
        CHECK(memcmp(&found, &expected, sizeof(found)) == 0);
        CHECK_EQ(directory[i], (uint64_t)(uintptr_t)memory + i * STRIDE);
        CHECK_EQ(memory[i * STRIDE + sizeof(found)], 0xff); /* nothing behind the header */
    }
    CHECK_EQ(directory[NUM], 4);
}

/* ---- what a step covers ---- */

PST_TEST(CoreControl, CoveredNeverGoesBack)
{
    fixture self;
    psti_mailbox mailbox = {.covered = 0};
    set_up(&self);
    psti_publish_covered(&self.state, 9, &mailbox);
    CHECK_EQ(psti_read_covered(&mailbox), 9);
    psti_publish_covered(&self.state, 4, &mailbox); /* of a graph captured before */
    CHECK_EQ(psti_read_covered(&mailbox), 9);
    psti_publish_covered(&self.state, UINT64_MAX, &mailbox);
    CHECK_EQ(psti_read_covered(&mailbox), UINT64_MAX);
}

/* ---- lost steps ---- */

PST_TEST(CoreControl, AStepIsLostOnlyWherePoolsFailFast)
{
    fixture self;
    set_up(&self);
    self.status.step_valid = 1;
    CHECK(!psti_is_lost(&self.view));
    self.view.fails_fast = 1;
    CHECK(!psti_is_lost(&self.view));
    psti_record_fault(&self.view, PST_FAULT_EMPTY, 0, 0);
    CHECK(psti_is_lost(&self.view));
    self.view.fails_fast = 0;
    CHECK(!psti_is_lost(&self.view));
}
