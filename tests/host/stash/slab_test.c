/* Tickets that a pool lends, outside captures: who may take which one when, and what is released. */
#include "tests/host/stash/counted.h"
#include "tests/host/stash/slab_scene.h"

/* ---- arguments ---- */

PST_TEST(Slab, ArgumentsAreChecked)
{
    small_scene without;
    slab_scene self;
    pst_ticket ticket = {77}, created = {0};
    small_open(&without);
    CHECK_STATUS(pst_ticket_take(without.pool, NULL, &ticket), PST_E_INVALID);
    CHECK_SAID("the pool was made without slab_tickets");
    CHECK_STATUS(pst_ticket_give(without.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("ticket 0 was created: pst_ticket_destroy is for it");
    small_close(&without);
    open_slab(&self, 1);
    CHECK_STATUS(pst_ticket_take(NULL, NULL, &ticket), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_take(self.pool, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("ticket_out is NULL");
    CHECK_EQ(ticket.id, 77);
    CHECK_OK(pst_ticket_give((pst_ticket){0}, NULL));
    CHECK_OK(pst_ticket_take(self.pool, NULL, &ticket));
    CHECK_STATUS(pst_ticket_destroy(ticket), PST_E_INVALID);
    CHECK_SAID("ticket 0 is of the slab: pst_ticket_give is for it");
    CHECK_OK(pst_ticket_create(self.pool, self.base.group, &created)); /* beside it */
    CHECK_EQ(pst_ticket_index(created), 1);
    CHECK_OK(pst_ticket_destroy(created));
    CHECK_OK(pst_ticket_give(ticket, NULL));
    close_slab(&self);
}

PST_TEST(Slab, ATicketHasTheRoomOfTheConfig)
{
    slab_scene self;
    pst_ticket ticket = {0};
    pst_group *other = NULL;
    open_slab(&self, 1);
    CHECK_OK(pst_ticket_take(self.pool, NULL, &ticket));
    self.base.space.capacity = SMALL_CAPACITY + 1;
    CHECK_OK(pst_group_create(&self.base.group_config, &other));
    CHECK_STATUS(pst_ticket_stash(ticket, other, &self.base.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has 3 pages at capacity, ticket 0 has room for 2");
    CHECK_OK(pst_group_destroy(other));
    self.base.space = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 1, .num_segments = 2};
    CHECK_OK(pst_group_create(&self.base.group_config, &other));
    CHECK_STATUS(pst_ticket_stash(ticket, other, &self.base.buffers, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("source has 2 counts, ticket 0 has room for 1");
    CHECK_OK(pst_group_destroy(other));
    CHECK_OK(pst_ticket_give(ticket, NULL));
    close_slab(&self);
}

PST_TEST(Slab, TakenTicketsHoldThePool)
{
    slab_scene self;
    pst_ticket tickets[3];
    pst_pool_info info;
    open_slab(&self, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(pst_ticket_take(self.pool, self.a, &tickets[i]));
        CHECK_EQ(pst_ticket_index(tickets[i]), i);
        CHECK_OK(pst_pool_get_info(self.pool, &info));
        CHECK_EQ(info.slab_taken, i + 1);
        CHECK_EQ(info.num_tickets, i + 1);
    }
    check_none_left(&self, self.a, 3, 3, 0, 0);
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    CHECK_SAID("3 tickets and 0 captured graphs hold this pool");
    for (uint32_t i = 0; i < 3; i++)
        CHECK_OK(pst_ticket_give(tickets[i], self.a));
    CHECK_OK(pst_pool_get_info(self.pool, &info));
    CHECK_EQ(info.slab_taken, 0);
    CHECK_EQ(info.slab_tickets, 3);
    close_slab(&self);
}

/* ---- outside captures ---- */

static void check_stale(const slab_scene *self, pst_ticket old)
{
    CHECK_STATUS(slab_stash(self, old, self->a), PST_E_INVALID);
    CHECK_SAID("ticket 0x");
    CHECK_STATUS(slab_restore(self, old, self->a), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_release(old, self->a), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_demote(old, NULL, self->a), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_promote(old, NULL, self->a), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_set_offload(old, 0, 1), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_give(old, self->a), PST_E_INVALID);
    CHECK_STATUS(pst_ticket_destroy(old), PST_E_INVALID);
    CHECK_EQ(pst_ticket_index(old), UINT32_MAX);
}

/* The same record under new numbers; no old one reaches the bytes of a later owner. */
PST_TEST(Slab, OnTheSameStreamATicketIsTakenAtOnce)
{
    enum { TIMES = 40 };
    slab_scene self;
    pst_ticket tickets[TIMES];
    open_slab(&self, 1);
    for (int i = 0; i < TIMES; i++) {
        CHECK_OK(pst_ticket_take(self.pool, self.a, &tickets[i]));
        CHECK_EQ(pst_ticket_index(tickets[i]), 0);
        memset(self.base.rows, i, SMALL_BYTES);
        CHECK_OK(slab_stash(&self, tickets[i], self.a));
        memset(self.base.rows, 0x77, SMALL_BYTES);
        for (int j = 0; j < i; j++) {
            CHECK(tickets[j].id != tickets[i].id);
            check_stale(&self, tickets[j]);
        }
        CHECK_EQ(self.base.rows[0], 0x77);
        CHECK_OK(slab_restore(&self, tickets[i], self.a));
        CHECK_EQ(self.base.rows[SMALL_BYTES - 1], i);
        CHECK_OK(pst_ticket_give(tickets[i], self.a));
        check_stale(&self, tickets[i]);
    }
    close_slab(&self);
}

/* The one given last comes first: its record is in the cache. */
PST_TEST(Slab, OnTheSameStreamTheLastGivenComesFirst)
{
    slab_scene self;
    pst_ticket tickets[4], again = {0};
    static const int order[] = {2, 0, 3, 1};
    open_slab(&self, 4);
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_ticket_take(self.pool, self.a, &tickets[i]));
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_ticket_give(tickets[order[i]], self.a));
    for (int i = 3; i >= 0; i--) {
        CHECK_OK(pst_ticket_take(self.pool, self.a, &again));
        CHECK_EQ(pst_ticket_index(again), order[i]);
        tickets[i] = again;
    }
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_ticket_give(tickets[i], self.a));
    close_slab(&self);
}

PST_TEST(Slab, OnAnotherStreamAPublishedStepComesBetween)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    CHECK_OK(pst_pool_step(self.pool, self.a)); /* before it was given: of no use */
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(pst_pool_step(self.pool, self.a));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    check_none_left(&self, self.b, 1, 0, 0, 1);
    check_none_left(&self, NULL, 1, 0, 0, 1);
    CHECK_OK(pst_pool_check(self.pool, self.b)); /* no step */
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, self.b));
    check_none_left(&self, self.b, 1, 0, 0, 1);
    CHECK_OK(pst_pool_step(self.pool, self.b));
    CHECK_OK(pst_ticket_take(self.pool, self.b, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.b));
    check_none_left(&self, self.a, 1, 0, 0, 1); /* it is b's now */
    CHECK_OK(pst_ticket_take(self.pool, self.b, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.b));
    close_slab(&self);
}

/* Of several, those that a step covers and no others. */
PST_TEST(Slab, AStepCoversWhatWasGivenBefore)
{
    slab_scene self;
    pst_ticket tickets[4];
    open_slab(&self, 4);
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_ticket_take(self.pool, self.a, &tickets[i]));
    for (int i = 0; i < 3; i++)
        CHECK_OK(pst_ticket_give(tickets[i], self.a));
    CHECK_OK(pst_pool_step(self.pool, self.a));
    CHECK_OK(pst_ticket_give(tickets[3], self.a));
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(pst_ticket_take(self.pool, self.b, &tickets[i]));
        CHECK_EQ(pst_ticket_index(tickets[i]), i); /* the longest given first */
    }
    check_none_left(&self, self.b, 4, 3, 0, 1);
    CHECK_OK(pst_ticket_take(self.pool, self.a, &tickets[3]));
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_ticket_give(tickets[i], self.a));
    close_slab(&self);
}

/* What it says at capture is not what it means at a replay. */
PST_TEST(Slab, ACapturedStepCoversNothing)
{
    slab_scene self;
    pst_ticket ticket = {0};
    pst_graph *graph = NULL;
    open_slab(&self, 1);
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_graph_begin(self.device, self.b));
    CHECK_OK(pst_pool_step(self.pool, self.b));
    CHECK_OK(pst_graph_end(self.device, self.b, &graph));
    CHECK_OK(pst_graph_launch(graph, self.b));
    check_none_left(&self, self.b, 1, 0, 0, 1);
    CHECK_OK(pst_pool_step(self.pool, self.b));
    CHECK_OK(pst_graph_launch(graph, self.b)); /* and takes nothing back */
    CHECK_OK(pst_ticket_take(self.pool, self.b, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self.b));
    CHECK_OK(pst_graph_destroy(graph));
    close_slab(&self);
}

PST_TEST(Slab, AnOwnersOffloadIsNotTheNexts)
{
    slab_scene self;
    pst_ticket ticket = {0};
    open_slab(&self, 1);
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(pst_ticket_set_offload(ticket, 1, 1));
    CHECK_OK(slab_stash(&self, ticket, self.a));
    CHECK_EQ(small_status(self.pool).in_use[1], 2);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
    CHECK_OK(slab_stash(&self, ticket, self.a));
    CHECK_EQ(small_status(self.pool).in_use[0], 2);
    CHECK_OK(pst_ticket_give(ticket, self.a));
    close_slab(&self);
}

/* ---- what giving back releases ---- */

typedef enum last_of {
    NOTHING,
    STASH,
    RESTORE,
    KEEP,
    RELEASE,
    DEMOTE,
    PROMOTE,
    RESTORE_SMALLER,
    RESTORE_OTHER_FORM,
    STASH_AGAIN
} last_of;

static void run(const slab_scene *self, last_of last, pst_ticket ticket, pst_group *half)
{
    const pst_stream stream = self->a;
    const small_scene *base = &self->base;
    const int64_t smaller = SMALL_CAPACITY - 1;
    pst_buffers small = base->buffers;
    pst_restore_options keep = PST_RESTORE_OPTIONS_INIT;
    keep.pages = PST_RESTORE_KEEP;
    small.capacities = &smaller;
    if (last != NOTHING)
        CHECK_OK(slab_stash(self, ticket, stream));
    if (last == RESTORE || last == STASH_AGAIN)
        CHECK_OK(slab_restore(self, ticket, stream));
    if (last == KEEP)
        CHECK_OK(pst_ticket_restore(ticket, base->group, &base->buffers, &keep, stream));
    if (last == RELEASE)
        CHECK_OK(pst_ticket_release(ticket, stream));
    if (last == DEMOTE || last == PROMOTE)
        CHECK_OK(pst_ticket_demote(ticket, NULL, stream));
    if (last == PROMOTE)
        CHECK_OK(pst_ticket_promote(ticket, NULL, stream));
    if (last == RESTORE_SMALLER)
        CHECK_OK(pst_ticket_restore(ticket, base->group, &small, NULL, stream));
    if (last == RESTORE_OTHER_FORM)
        CHECK_OK(pst_ticket_restore(ticket, half, &base->buffers, NULL, stream));
    if (last == STASH_AGAIN)
        CHECK_OK(slab_stash(self, ticket, stream));
}

PST_TEST(Slab, GivingReleasesWhereTheLastOperationMayLeavePages)
{
    static const uint32_t releases[] = {
        [NOTHING] = 0,    [STASH] = 1,           [RESTORE] = 0,
        [KEEP] = 1,       [RELEASE] = 0,         [DEMOTE] = 1,
        [PROMOTE] = 1,    [RESTORE_SMALLER] = 1, [RESTORE_OTHER_FORM] = 1,
        [STASH_AGAIN] = 1};
    slab_scene self;
    pst_group *half = NULL;
    open_slab(&self, 1);
    self.base.tensor.row_bytes /= 2;
    CHECK_OK(pst_group_create(&self.base.group_config, &half));
    count_calls(self.device);
    for (int last = NOTHING; last <= STASH_AGAIN; last++)
        for (self.base.count = 0; self.base.count <= SMALL_CAPACITY; self.base.count += 8) {
            pst_ticket ticket = {0};
            CHECK_OK(pst_ticket_take(self.pool, self.a, &ticket));
            run(&self, (last_of)last, ticket, half);
            calls_since();
            CHECK_OK(pst_ticket_give(ticket, self.a));
            const device_calls calls = calls_since();
            CHECK_MSG(calls.launches[PSTI_OP_RESTORE] == releases[last], "%d: %u releases", last,
                      calls.launches[PSTI_OP_RESTORE]);
            CHECK_EQ(calls.launches[PSTI_OP_STASH] + calls.launches[PSTI_OP_MIGRATE], 0);
            CHECK_EQ(calls.others, 0);
            CHECK_EQ(small_status(self.pool).in_use[0], 0);
            CHECK_EQ(small_status(self.pool).in_use[1], 0);
        }
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL)); /* forms and empty demotes: faults */
    CHECK_OK(pst_group_destroy(half));
    close_slab(&self);
}
