/* Which calls of the device describing, taking, giving and enqueueing make: the launch, the question
 * whether the stream is captured, and in a capture the holds. */
#include "tests/host/stash/counted.h"
#include "tests/host/stash/scene.h"

/* The calls since the last time are these, and no others. */
static void check_calls_and(const char *what, psti_op op, uint32_t launches, uint32_t queries,
                            uint32_t holds, uint32_t others)
{
    const device_calls calls = calls_since();
    uint32_t all = 0;
    for (int i = 0; i < PSTI_NUM_OPS; i++)
        all += calls.launches[i];
    CHECK_MSG(calls.others == others, "%s: %u calls beside launches, queries and holds", what,
              calls.others);
    CHECK_MSG(calls.checks == 0 || psti_env_check_mode(), "%s: %u addresses checked", what,
              calls.checks);
    CHECK_MSG(calls.launches[op] == launches && all == launches, "%s: %u launches, %u of them %d",
              what, all, calls.launches[op], (int)op);
    CHECK_MSG(calls.queries == queries && calls.holds == holds, "%s: %u queries, %u holds", what,
              calls.queries, calls.holds);
}

static void check_calls(const char *what, psti_op op, uint32_t launches, uint32_t queries,
                        uint32_t holds)
{
    check_calls_and(what, op, launches, queries, holds, 0);
}

typedef struct calls_scene {
    small_scene base;
    pst_stream stream;
    pst_dirty *dirty;
} calls_scene;

static void open_calls(calls_scene *self, uint32_t slab_tickets)
{
    memset(self, 0, sizeof(*self));
    small_configs(&self->base);
    self->base.pool_config.slab_tickets = slab_tickets;
    self->base.pool_config.num_host_pages = 4;
    CHECK_OK(pst_pool_create(self->base.device, &self->base.pool_config, &self->base.pool));
    CHECK_OK(pst_group_create(&self->base.group_config, &self->base.group));
    CHECK_OK(pst_ticket_create(self->base.pool, self->base.group, &self->base.ticket));
    CHECK_OK(pst_dirty_create(self->base.device, self->base.group, false, &self->dirty));
    CHECK_OK(pst_stream_create(self->base.device, &self->stream));
    count_calls(self->base.device);
    calls_since();
}

static void close_calls(calls_scene *self)
{
    CHECK_OK(pst_stream_destroy(self->base.device, self->stream));
    CHECK_OK(pst_dirty_destroy(self->dirty));
    small_close(&self->base);
}

/* In a capture the pool, the ticket and dirty words are held at their first use in it. */
static void check_enqueueing(calls_scene *self, pst_ticket ticket, uint32_t first_holds,
                             uint32_t dirty_holds)
{
    const small_scene *base = &self->base;
    const pst_stream stream = self->stream;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.tail = PST_TAIL_ZERO;
    options.pages = PST_RESTORE_KEEP;
    options.dirty = self->dirty;
    CHECK_OK(small_stash(base, ticket, stream));
    check_calls("stash", PSTI_OP_STASH, 1, 1, first_holds);
    CHECK_OK(pst_ticket_restore(ticket, base->group, &base->buffers, &options, stream));
    check_calls("restore with dirty words", PSTI_OP_RESTORE, 1, 1, dirty_holds);
    CHECK_OK(pst_ticket_set_offload(ticket, 1, 2));
    check_calls("set_offload", PSTI_OP_STASH, 0, 0, 0);
    CHECK_OK(pst_ticket_demote(ticket, NULL, stream));
    check_calls("demote", PSTI_OP_MIGRATE, 1, 1, 0);
    CHECK_OK(pst_ticket_promote(ticket, NULL, stream));
    check_calls("promote", PSTI_OP_MIGRATE, 1, 1, 0);
    CHECK_OK(small_restore(base, ticket, stream));
    check_calls("restore", PSTI_OP_RESTORE, 1, 1, 0);
    CHECK_OK(small_stash(base, ticket, stream));
    check_calls("stash again", PSTI_OP_STASH, 1, 1, 0);
    CHECK_OK(pst_ticket_release(ticket, stream));
    check_calls("release", PSTI_OP_RESTORE, 1, 1, 0);
}

PST_TEST(Calls, EnqueueingIsOneLaunchAndOneQuestion)
{
    calls_scene self;
    open_calls(&self, 0);
    check_enqueueing(&self, self.base.ticket, 0, 0);
    CHECK_OK(pst_pool_step(self.base.pool, self.stream));
    check_calls("step", PSTI_OP_STEP, 1, 1, 0);
    CHECK_OK(pst_pool_check(self.base.pool, self.stream));
    /* canaries are copied: behind each part, but there is no slab */
    check_calls_and("check", PSTI_OP_CHECK, 1, 1, 0,
                    psti_env_check_mode() ? PSTI_NUM_PARTS - 1 : 0);
    close_calls(&self);
}

PST_TEST(Calls, InACaptureEachObjectIsHeldOnce)
{
    calls_scene self;
    pst_graph *graph = NULL;
    open_calls(&self, 0);
    CHECK_OK(pst_graph_begin(self.base.device, self.stream));
    calls_since();
    check_enqueueing(&self, self.base.ticket, 2, 1);
    CHECK_OK(pst_pool_step(self.base.pool, self.stream));
    check_calls("step", PSTI_OP_STEP, 1, 1, 0);
    CHECK_OK(pst_graph_end(self.base.device, self.stream, &graph));
    CHECK_OK(pst_graph_launch(graph, self.stream));
    CHECK_EQ(small_status(self.base.pool).num_faults, 0);
    CHECK_OK(pst_graph_destroy(graph));
    close_calls(&self);
}

static void check_describing(const calls_scene *self)
{
    pst_group *group = NULL;
    pst_group_usage usage;
    uint64_t bytes = 0;
    pst_pool_info info;
    CHECK_OK(pst_group_create(&self->base.group_config, &group));
    CHECK_OK(pst_group_measure(group, NULL, 0, &usage));
    CHECK_OK(pst_ticket_bytes(self->base.pool, group, &bytes));
    CHECK_EQ(pst_group_num_counts(group), 1);
    CHECK_OK(pst_group_destroy(group));
    CHECK_OK(pst_pool_get_info(self->base.pool, &info));
    check_calls("describing", PSTI_OP_STASH, 0, 0, 0);
}

PST_TEST(Calls, DescribingMakesNone)
{
    calls_scene self;
    pst_graph *graph = NULL;
    open_calls(&self, 0);
    check_describing(&self);
    CHECK_OK(pst_graph_begin(self.base.device, self.stream));
    calls_since();
    check_describing(&self);
    CHECK_OK(pst_graph_end(self.base.device, self.stream, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    close_calls(&self);
}

/* Taken unused, used and consumed: no launch. Left LIVE: one release. */
static void check_lending(calls_scene *self, bool is_captured)
{
    const small_scene *base = &self->base;
    pst_ticket ticket = {0}, none = {77};
    CHECK_OK(pst_ticket_take(base->pool, self->stream, &ticket));
    check_calls("take", PSTI_OP_STASH, 0, 1, 0);
    CHECK_STATUS(pst_ticket_take(base->pool, self->stream, &none), PST_E_BUSY);
    check_calls("take of none", PSTI_OP_STASH, 0, 1, 0);
    CHECK_OK(pst_ticket_give(ticket, self->stream));
    check_calls("give", PSTI_OP_STASH, 0, 1, 0);
    CHECK_OK(pst_ticket_take(base->pool, self->stream, &ticket));
    calls_since();
    CHECK_OK(small_stash(base, ticket, self->stream));
    check_calls("stash", PSTI_OP_STASH, 1, 1, is_captured ? 2 : 0);
    CHECK_OK(small_restore(base, ticket, self->stream));
    calls_since();
    CHECK_OK(pst_ticket_give(ticket, self->stream));
    check_calls("give of a consumed one", PSTI_OP_STASH, 0, 1, 0);
    CHECK_OK(pst_ticket_take(base->pool, self->stream, &ticket));
    CHECK_OK(small_stash(base, ticket, self->stream));
    calls_since();
    CHECK_OK(pst_ticket_give(ticket, self->stream));
    check_calls("give of a live one", PSTI_OP_RESTORE, 1, 1, 0);
    CHECK_OK(pst_ticket_take(base->pool, self->stream, &ticket));
    CHECK_OK(pst_ticket_give(ticket, self->stream));
    calls_since();
}

PST_TEST(Calls, TakingAndGivingOnlyAsk)
{
    calls_scene self;
    pst_graph *graph = NULL;
    open_calls(&self, 1);
    check_lending(&self, false);
    CHECK_OK(pst_pool_step(self.base.pool, self.stream));
    CHECK_OK(pst_graph_begin(self.base.device, self.stream));
    calls_since();
    check_lending(&self, true);
    CHECK_OK(pst_graph_end(self.base.device, self.stream, &graph));
    CHECK_OK(pst_graph_launch(graph, self.stream));
    CHECK_EQ(small_status(self.base.pool).num_faults, 0);
    CHECK_OK(pst_graph_destroy(graph));
    close_calls(&self);
}
