/* What tickets and their operations accept. */
#include <stdio.h>

#include "tests/host/stash/scene.h"

static psti_ticket_record *record_of(pst_ticket ticket)
{
    return psti_ticket_find(ticket)->record;
}

/* Fault rows 1. */
PST_TEST(Ticket, NullArgumentsAreRefused)
{
    small_scene self;
    const pst_ticket none = {0};
    pst_ticket ticket = {77};
    uint64_t bytes = 7;
    small_open(&self);
    CHECK_STATUS(pst_ticket_bytes(NULL, self.group, &bytes), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_bytes(self.pool, NULL, &bytes), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_bytes(self.pool, self.group, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(NULL, self.group, &ticket), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(self.pool, NULL, &ticket), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(self.pool, self.group, NULL), PST_E_INVALID);
    CHECK_EQ(bytes, 7);
    CHECK_EQ(ticket.id, 77);
    CHECK_STATUS(small_stash(&self, none, NULL), PST_E_INVALID);
    CHECK_SAID("ticket 0: none");
    CHECK_STATUS(pst_ticket_stash(self.ticket, NULL, &self.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("group is NULL");
    CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, NULL, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source is NULL");
    CHECK_STATUS(small_restore(&self, none, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_restore(self.ticket, NULL, &self.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("group is NULL");
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, NULL, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("destination is NULL");
    CHECK_STATUS(pst_ticket_release(none, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_demote(none, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_promote(none, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_set_offload(none, 0, 1), PST_E_INVALID);
    CHECK_EQ(pst_ticket_index(none), UINT32_MAX);
    CHECK_EQ(pst_ticket_index(self.ticket), 0);
    CHECK_OK(pst_ticket_destroy(none));
    CHECK_EQ(small_status(self.pool).num_faults, 0); /* nothing was enqueued */
    small_close(&self);
}

PST_TEST(Ticket, OffloadIsAFractionOfAPoolWithHostPages)
{
    small_scene self;
    small_open(&self);
    CHECK_STATUS(pst_ticket_set_offload(self.ticket, 3, 2), PST_E_INVALID);
    CHECK_SAID("offload 3/2: allowed are fractions from 0 to 1");
    CHECK_STATUS(pst_ticket_set_offload(self.ticket, 1, 0), PST_E_INVALID);
    CHECK_SAID("offload 1/0: allowed are fractions from 0 to 1");
    CHECK_STATUS(pst_ticket_set_offload(self.ticket, 1, 2), PST_E_INVALID);
    CHECK_SAID("offload 1/2: the pool has no host pages");
    CHECK_OK(pst_ticket_set_offload(self.ticket, 0, 2));
    small_close(&self);
}

/* The device takes an operation without a number for none. */
PST_TEST(Ticket, EachOperationHasANumber)
{
    small_scene self;
    small_open(&self);
    self.pool->num_ops = UINT32_MAX;
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_EQ(self.pool->num_ops, 1);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    small_close(&self);
}

/* ---- numbers ---- */

/* Every call with this number is refused, and touches nothing. */
static void check_stale(const small_scene *self, pst_ticket ticket)
{
    char message[64];
    snprintf(message, sizeof(message), "ticket %#llx: destroyed, given back or never made",
             (unsigned long long)ticket.id);
    CHECK_STATUS(small_stash(self, ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(small_restore(self, ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_release(ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_demote(ticket, NULL, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_promote(ticket, NULL, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_set_offload(ticket, 0, 1), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_give(ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_destroy(ticket), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_EQ(pst_ticket_index(ticket), UINT32_MAX);
}

/* Fault rows 21. */
PST_TEST(Ticket, NumbersThatWereNeverGivenAreRefused)
{
    static const uint64_t garbage[] = {
        1,        77,        UINT32_MAX,        UINT64_MAX,        0xfffff,
        0xffffff, 0x1000000, (uint64_t)1 << 63, 0xaaaaaaaaaaaaaaaa};
    small_scene self;
    small_open(&self);
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        if (garbage[i] != self.ticket.id)
            check_stale(&self, (pst_ticket){garbage[i]});
    for (int bit = 0; bit < 64; bit++)            /* near to one that is good */
        if (self.ticket.id != (uint64_t)1 << bit) /* 0 is none */
            check_stale(&self, (pst_ticket){self.ticket.id ^ (uint64_t)1 << bit});
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* Where a ticket was, others are: none of the old numbers reaches them. */
/* Fault rows 21. */
PST_TEST(Ticket, NumbersAreNeverUsedTwice)
{
    enum { TIMES = 50 };
    small_scene self;
    pst_ticket old[TIMES];
    small_open(&self);
    CHECK_OK(small_stash(&self, self.ticket, NULL)); /* two pages of three */
    self.count = 1;
    for (int i = 0; i < TIMES; i++) {
        CHECK_OK(pst_ticket_create(self.pool, self.group, &old[i]));
        CHECK_EQ(pst_ticket_index(old[i]), 1);
        CHECK_OK(small_stash(&self, old[i], NULL));
        for (int j = 0; j < i; j++) {
            CHECK(old[j].id != old[i].id);
            CHECK_STATUS(small_restore(&self, old[j], NULL), PST_E_INVALID);
        }
        CHECK_OK(pst_ticket_release(old[i], NULL));
        CHECK_OK(pst_ticket_destroy(old[i]));
        check_stale(&self, old[i]);
    }
    CHECK_EQ(small_status(self.pool).in_use[0], 2);
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* Fault rows 21. */
PST_TEST(Ticket, NumbersOfDestroyedPoolsAreRefused)
{
    small_scene gone, self;
    small_open(&gone);
    const pst_ticket old = gone.ticket;
    small_close(&gone);
    small_open(&self); /* likely in the same memory */
    check_stale(&self, old);
    small_close(&self);
}

/* A group has no device: two pools on two devices are served by one. */
PST_TEST(Ticket, OneGroupServesAllDevices)
{
    small_scene self, other;
    small_open(&self);
    small_open(&other);
    CHECK_OK(pst_ticket_stash(self.ticket, other.group, &self.buffers, NULL, NULL));
    CHECK_OK(pst_ticket_stash(other.ticket, other.group, &self.buffers, NULL, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_ticket_release(other.ticket, NULL));
    CHECK_EQ(small_status(self.pool).num_faults + small_status(other.pool).num_faults, 0);
    small_close(&other);
    small_close(&self);
}

/* ---- sizes ---- */

PST_TEST(Ticket, BytesAreARecordCountsAndPageIds)
{
    static const struct {
        int64_t capacity;
        uint64_t row_bytes, pages;
    } shapes[] = {{1, 1, 1},           {4, 4096, 1},       {5, 4096, 2},
                  {1, 49152, 3},       {1, 1000000000, 3}, /* the pool has three */
                  {1ll << 22, 4096, 3}};
    small_scene self;
    small_configs(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    for (int i = 0; i < 6; i++)
        for (uint32_t segments = 1; segments <= PST_MAX_SEGMENTS; segments *= 1024) {
            uint64_t bytes = 0;
            self.space.capacity = shapes[i].capacity;
            self.space.kind = PST_ROWS_SEGMENTS;
            self.space.num_segments = segments;
            self.tensor.row_bytes = shapes[i].row_bytes;
            CHECK_OK(pst_group_create(&self.group_config, &self.group));
            CHECK_OK(pst_ticket_bytes(self.pool, self.group, &bytes));
            const uint64_t pages =
                segments > 1 ? (i == 0 ? 1 : 3) : shapes[i].pages; /* 16 KiB are 1024 times 16 */
            CHECK_EQ(bytes, 80 + 8 * segments + 4 * pages + psti_canary_room());
            CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
            CHECK_EQ(record_of(self.ticket)->count_room, segments);
            CHECK_EQ(record_of(self.ticket)->table_pages, pages);
            CHECK_OK(pst_ticket_destroy(self.ticket));
            CHECK_OK(pst_group_destroy(self.group));
        }
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* ---- groups of other forms and sizes ---- */

/* Any group within its room can use a ticket; only the one that was stashed can be restored. */
static void check_other_form(small_scene *self)
{
    pst_group *other = NULL;
    CHECK_OK(pst_group_create(&self->group_config, &other));
    CHECK_OK(pst_pool_reset(self->pool, PST_RESET_ALL, NULL));
    memset(self->rows, 9, SMALL_BYTES);
    CHECK_OK(pst_ticket_stash(self->ticket, other, &self->buffers, NULL, NULL));
    memset(self->rows, 8, SMALL_BYTES);
    CHECK_OK(small_restore(self, self->ticket, NULL));
    CHECK_EQ(self->rows[0], 8);
    CHECK_EQ(small_status(self->pool).flags, 1u << PST_FAULT_FORM);
    CHECK_EQ(record_of(self->ticket)->state, PSTI_TICKET_LIVE);
    CHECK_OK(pst_ticket_restore(self->ticket, other, &self->buffers, NULL, NULL));
    CHECK_EQ(self->rows[0], 9);
    CHECK_OK(pst_group_destroy(other));
}

PST_TEST(Ticket, AnotherFormIsAFaultOfTheRestore)
{
    small_scene self;
    small_open(&self);
    self.count = 2;
    self.tensor.row_bytes = 2048;
    check_other_form(&self);
    self.tensor.row_bytes = SMALL_ROW;
    self.tensor.num = 1;
    self.tensor.den = 2;
    check_other_form(&self);
    self.tensor.rounding = PST_ROUND_DOWN;
    check_other_form(&self);
    small_close(&self);
}

PST_TEST(Ticket, AGroupOfMoreCountsIsRefused)
{
    small_scene self;
    pst_group *larger = NULL;
    small_open(&self);
    self.space.kind = PST_ROWS_SEGMENTS;
    self.space.num_segments = 2;
    self.space.capacity = 1;
    CHECK_OK(pst_group_create(&self.group_config, &larger));
    CHECK_STATUS(pst_ticket_stash(self.ticket, larger, &self.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has 2 counts, ticket 0 has room for 1");
    CHECK_STATUS(pst_ticket_restore(self.ticket, larger, &self.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("destination has 2 counts, ticket 0 has room for 1");
    CHECK_OK(pst_group_destroy(larger));
    self.space.kind = PST_ROWS_SUM; /* two that are one */
    const int32_t counts[2] = {0, 1};
    self.counts[0] = counts;
    CHECK_OK(pst_group_create(&self.group_config, &larger));
    CHECK_OK(pst_ticket_stash(self.ticket, larger, &self.buffers, NULL, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_group_destroy(larger));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, ASourceOfMorePagesIsRefused)
{
    small_scene self;
    pst_group *other = NULL;
    const int64_t larger = SMALL_CAPACITY + 1;
    small_open(&self);
    self.space.capacity = larger; /* 3 pages, the table has 2 */
    CHECK_OK(pst_group_create(&self.group_config, &other));
    CHECK_STATUS(pst_ticket_stash(self.ticket, other, &self.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has 3 pages at capacity, ticket 0 has room for 2");
    CHECK_OK(pst_group_destroy(other));
    self.buffers.capacities = &larger; /* of this launch */
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("source has 3 pages at capacity, ticket 0 has room for 2");
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    self.space.capacity = 1; /* a smaller one is fine */
    self.buffers.capacities = NULL;
    self.count = 1;
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(pst_group_create(&self.group_config, &other));
    CHECK_OK(pst_ticket_stash(self.ticket, other, &self.buffers, NULL, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_group_destroy(other));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, ASourceNeedsCountsADestinationDoesNot)
{
    small_scene self;
    small_open(&self);
    memset(self.rows, 5, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    memset(self.rows, 0, SMALL_BYTES);
    self.counts[0] = NULL;
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("source: counts[0] is NULL");
    self.buffers.counts = NULL;
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("source: counts is NULL");
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_EQ(self.rows[SMALL_BYTES - 1], 5);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* Pages lie side by side and hold nothing but rows: what a stranger writes there comes back. */
/* Fault rows 49. */
PST_TEST(Ticket, BytesOfPagesAreNotWatched)
{
    small_scene self;
    small_open(&self);
    memset(self.rows, 5, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    memset(self.rows, 0, SMALL_BYTES);
    unsigned char *pages = self.pool->view.pages[0];
    for (int at = 0; at < 3 * (int)PST_PAGE_BYTES_MIN; at++)
        pages[at] ^= 1;
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    for (int at = 0; at < SMALL_BYTES; at++)
        CHECK_EQ(self.rows[at], 4);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* ---- destroy ---- */

/* Fault rows 27. */
PST_TEST(Ticket, DestroyIsRefusedWhileItHoldsPages)
{
    small_scene self;
    small_open(&self);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_STATUS(pst_ticket_destroy(self.ticket), PST_E_BUSY);
    CHECK_SAID("ticket 0 holds 2 pages: restore or release it first");
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_PAGES, NULL)); /* now it holds nothing */
    small_close(&self);
}

PST_TEST(Ticket, DestroyOfALiveTicketWithoutPagesIsAllowed)
{
    small_scene self;
    small_open(&self);
    self.count = 0;
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(pst_ticket_destroy(self.ticket));
    self.ticket.id = 0;
    const pst_pool_status status = small_status(self.pool);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, AnIndexGivenAgainIsANewTicket)
{
    small_scene self;
    pst_ticket other = {0};
    small_open(&self);
    CHECK_OK(pst_ticket_create(self.pool, self.group, &other));
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(small_stash(&self, other, NULL)); /* one page is left: it fails */
    CHECK_OK(pst_ticket_destroy(other));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &other));
    CHECK_EQ(pst_ticket_index(other), 1);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_FAULTS | PST_RESET_STATISTICS, NULL));
    CHECK_OK(pst_ticket_release(other, NULL));
    const pst_pool_status status = small_status(self.pool);
    CHECK_EQ(status.flags, 1u << PST_FAULT_EMPTY);
    CHECK_EQ(status.fault_ticket, 1);
    CHECK_EQ(status.demand_high_water, 2); /* the failed stash is forgotten */
    CHECK_EQ(status.check_errors, 0);
    CHECK_OK(pst_ticket_destroy(other));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    small_close(&self);
}

/* The launch word is odd while an operation is being written: of the pool in ordered pools, of the
 * ticket in concurrent ones. */
static void overlap_is_noticed(pst_pool_mode mode)
{
    small_scene self;
    pst_pool_status status;
    small_open_in(&self, mode);
    uint64_t *launch = mode == PST_POOL_CONCURRENT ? &record_of(self.ticket)->launch
                                                   : &self.pool->view.state->launch;
    ++*launch;
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.flags, PST_FLAG_ORDER);
    CHECK_EQ(status.in_use[0], 0);
    ++*launch;
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, OverlapInAnOrderedPoolIsNoticed)
{
    overlap_is_noticed(PST_POOL_ORDERED);
}

PST_TEST(Ticket, OverlapInAConcurrentPoolIsNoticed)
{
    overlap_is_noticed(PST_POOL_CONCURRENT);
}
