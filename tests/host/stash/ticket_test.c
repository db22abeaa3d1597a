/* What tickets and their operations accept. */
#include <stdio.h>

#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

PST_TEST(Ticket, NullArgumentsAreRefused)
{
    small_scene self;
    pst_ticket *ticket = untouched;
    uint64_t bytes = 7;
    small_open(&self);
    CHECK_STATUS(pst_ticket_bytes(NULL, self.group, &bytes), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_bytes(self.pool, NULL, &bytes), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_bytes(self.pool, self.group, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(NULL, self.group, &ticket), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(self.pool, NULL, &ticket), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_create(self.pool, self.group, NULL), PST_E_INVALID);
    CHECK_EQ(bytes, 7);
    CHECK(ticket == untouched);
    CHECK_STATUS(pst_ticket_stash(NULL, self.group, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_stash(self.ticket, NULL, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source is NULL");
    CHECK_STATUS(pst_ticket_restore(NULL, self.group, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_restore(self.ticket, NULL, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("destination is NULL");
    CHECK_STATUS(pst_ticket_release(NULL, NULL), PST_E_INVALID);
    CHECK_EQ(pst_ticket_index(NULL), UINT32_MAX);
    CHECK_EQ(pst_ticket_index(self.ticket), 0);
    CHECK_OK(pst_ticket_destroy(NULL));
    CHECK_EQ(small_status(self.pool).num_faults, 0); /* nothing was enqueued */
    small_close(&self);
}

PST_TEST(Ticket, PoolAndGroupMustBeOfOneDevice)
{
    small_scene self, other;
    pst_ticket *ticket = untouched;
    small_open(&self);
    small_open(&other);
    CHECK_STATUS(pst_ticket_create(self.pool, other.group, &ticket), PST_E_INVALID);
    CHECK_SAID("pool and group of two devices");
    CHECK(ticket == untouched);
    CHECK_STATUS(pst_ticket_stash(self.ticket, other.group, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("ticket and source of two devices");
    CHECK_STATUS(pst_ticket_restore(self.ticket, other.group, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("ticket and destination of two devices");
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
            CHECK_OK(pst_group_create(self.device, &self.group_config, &self.group));
            CHECK_OK(pst_ticket_bytes(self.pool, self.group, &bytes));
            const uint64_t pages =
                segments > 1 ? (i == 0 ? 1 : 3) : shapes[i].pages; /* 16 KiB are 1024 times 16 */
            CHECK_EQ(bytes, 80 + 8 * segments + 4 * pages);
            CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
            CHECK_EQ(self.ticket->record->num_counts, segments);
            CHECK_EQ(self.ticket->record->table_pages, pages);
            CHECK_OK(pst_ticket_destroy(self.ticket));
            CHECK_OK(pst_group_destroy(self.group));
        }
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* ---- shapes ---- */

/* stash and restore both refuse a group that is unlike the ticket's. */
static void check_unlike(small_scene *self, const char *difference)
{
    char message[256];
    pst_group *other = NULL;
    CHECK_OK(pst_group_create(self->device, &self->group_config, &other));
    CHECK_STATUS(pst_ticket_stash(self->ticket, other, NULL, NULL), PST_E_INVALID);
    snprintf(message, sizeof(message), "source is unlike the ticket's group: %s", difference);
    CHECK_SAID(message);
    CHECK_STATUS(pst_ticket_restore(self->ticket, other, NULL, NULL), PST_E_INVALID);
    snprintf(message, sizeof(message), "destination is unlike the ticket's group: %s", difference);
    CHECK_SAID(message);
    CHECK_OK(pst_group_destroy(other));
}

PST_TEST(Ticket, GroupsOfAnotherShapeAreRefused)
{
    small_scene self;
    small_open(&self);
    self.tensor.row_bytes = 2048;
    check_unlike(&self, "tensor 0 has 2048 bytes a row, space 0, ratio 1/1, not 4096, 0, 1/1");
    self.tensor.row_bytes = SMALL_ROW;
    self.tensor.num = 1;
    self.tensor.den = 2;
    check_unlike(&self, "tensor 0 has 4096 bytes a row, space 0, ratio 1/2, not 4096, 0, 1/1");
    self.tensor.num = self.tensor.den = 0;
    self.space.kind = PST_ROWS_SEGMENTS;
    self.space.num_segments = 2;
    check_unlike(&self, "space 0 has 2 segments, not 1");
    const pst_tensor two[2] = {self.tensor, self.tensor};
    self.group_config.tensors = two;
    self.group_config.num_tensors = 2;
    self.space.num_segments = 1;
    check_unlike(&self, "2 tensors in 1 row spaces, not 1 in 1");
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, ASourceNeedsCountsADestinationDoesNot)
{
    small_scene self;
    pst_group *destination = NULL;
    small_open(&self);
    self.space.counts = NULL;
    CHECK_OK(pst_group_create(self.device, &self.group_config, &destination));
    CHECK_STATUS(pst_ticket_stash(self.ticket, destination, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has a row space without counts");
    memset(self.rows, 5, SMALL_BYTES);
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
    memset(self.rows, 0, SMALL_BYTES);
    CHECK_OK(pst_ticket_restore(self.ticket, destination, NULL, NULL));
    CHECK_EQ(self.rows[SMALL_BYTES - 1], 5);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    CHECK_OK(pst_group_destroy(destination));
    small_close(&self);
}

PST_TEST(Ticket, ASourceOfLargerCapacitiesIsRefused)
{
    small_scene self;
    pst_group *larger = NULL;
    small_open(&self);
    self.space.capacity = SMALL_CAPACITY + 1; /* 3 pages, the table has 2 */
    CHECK_OK(pst_group_create(self.device, &self.group_config, &larger));
    CHECK_STATUS(pst_ticket_stash(self.ticket, larger, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has larger capacities than the ticket's group");
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_group_destroy(larger));
    self.space.capacity = 1; /* a smaller one is fine */
    self.count = 1;
    CHECK_OK(pst_group_create(self.device, &self.group_config, &larger));
    CHECK_OK(pst_ticket_stash(self.ticket, larger, NULL, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_group_destroy(larger));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* ---- options ---- */

PST_TEST(Ticket, OptionsAreChecked)
{
    static const int sms[] = {-1, INT32_MIN, 2, INT32_MAX};
    small_scene self;
    small_open(&self);
    for (int i = 0; i < 4; i++) {
        char message[64];
        pst_stash_options stash = PST_STASH_OPTIONS_INIT;
        pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
        stash.launch.num_sms = restore.launch.num_sms = sms[i];
        snprintf(message, sizeof(message), "num_sms %d: allowed are 0 to 1 on this device", sms[i]);
        CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, &stash, NULL), PST_E_INVALID);
        CHECK_SAID(message);
        CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &restore, NULL), PST_E_INVALID);
        CHECK_SAID(message);
    }
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    stash.struct_size = 8;
    CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, &stash, NULL), PST_E_INVALID);
    CHECK_SAID("struct_size 8: pst_stash_options has ");
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    restore.struct_size = 0;
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &restore, NULL), PST_E_INVALID);
    CHECK_SAID("struct_size 0: pst_restore_options has ");
    restore = (pst_restore_options)PST_RESTORE_OPTIONS_INIT;
    restore.pages = (pst_restore_pages)2;
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &restore, NULL), PST_E_INVALID);
    CHECK_SAID("pages 2: allowed are consume and keep");
    restore.pages = PST_RESTORE_KEEP;
    restore.tail = (pst_restore_tail)2;
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &restore, NULL), PST_E_INVALID);
    CHECK_SAID("tail 2: allowed are untouched and zero");
    pst_migrate_options share = PST_MIGRATE_OPTIONS_INIT;
    share.max_pages = 1;
    CHECK_STATUS(pst_ticket_demote(self.ticket, &share, NULL), PST_E_INVALID);
    CHECK_SAID("max_pages 1: at least 1 with PST_MIGRATE_UP_TO, else 0");
    share.share = (pst_migrate_share)3;
    CHECK_STATUS(pst_ticket_promote(self.ticket, &share, NULL), PST_E_INVALID);
    CHECK_SAID("share 3: allowed are all, up to and rest");
    CHECK_EQ(small_status(self.pool).num_faults, 0); /* nothing was enqueued */
    small_close(&self);
}

PST_TEST(Ticket, OptionsInsideTheBoundsAreTaken)
{
    small_scene self;
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    small_open(&self);
    self.count = 2;
    stash.launch.num_sms = restore.launch.num_sms = 1;
    restore.pages = PST_RESTORE_KEEP;
    restore.tail = PST_TAIL_ZERO;
    memset(self.rows, 9, SMALL_BYTES);
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, &stash, NULL));
    memset(self.rows, 8, SMALL_BYTES);
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &restore, NULL));
    CHECK_EQ(self.rows[2 * SMALL_ROW - 1], 9);
    CHECK_EQ(self.rows[2 * SMALL_ROW], 0); /* to the capacity, the tail was not known to be zero */
    CHECK_EQ(self.rows[SMALL_BYTES - 1], 0);
    pst_pool_status status = small_status(self.pool);
    CHECK_EQ(status.in_use[0], 1); /* kept */
    self.rows[3 * SMALL_ROW] = 1;
    restore.pages = PST_RESTORE_CONSUME;
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &restore, NULL));
    CHECK_EQ(self.rows[3 * SMALL_ROW], 1); /* behind [live, dirty) nothing is touched */
    status = small_status(self.pool);
    CHECK_EQ(status.in_use[0], 0);
    CHECK_EQ(status.num_faults, 0);
    small_close(&self);
}

/* ---- destroy ---- */

PST_TEST(Ticket, DestroyIsRefusedWhileItHoldsPages)
{
    small_scene self;
    small_open(&self);
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
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
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
    CHECK_OK(pst_ticket_destroy(self.ticket));
    self.ticket = NULL;
    const pst_pool_status status = small_status(self.pool);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.num_faults, 0);
    small_close(&self);
}

PST_TEST(Ticket, AnIndexGivenAgainIsANewTicket)
{
    small_scene self;
    pst_ticket *other = NULL;
    small_open(&self);
    CHECK_OK(pst_ticket_create(self.pool, self.group, &other));
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
    CHECK_OK(pst_ticket_stash(other, self.group, NULL, NULL)); /* one page is left: it fails */
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
    uint64_t *launch =
        mode == PST_POOL_CONCURRENT ? &self.ticket->record->launch : &self.pool->view.state->launch;
    ++*launch;
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.flags, PST_FLAG_ORDER);
    CHECK_EQ(status.in_use[0], 0);
    ++*launch;
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, NULL, NULL));
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
