/* What a captured graph consists of, and what it holds. */
#include "tests/conformance/conf.h"

/* The second ticket is in no graph. */
static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, shape_theme theme)
{
    const ls_options options = conf_options(mode, 120, theme);
    oracle_random random = oracle_random_seeded(theme);
    shape like, other;
    shape_make(&random, theme, 20000, &like);
    shape_like(&random, &like, false, &other);
    if (!conf_pair_open(self, conf, &options, &like, &other, 2))
        return false;
    ls_group_random_counts(&self->ls, &self->source, COUNTS_RANDOM, &self->random);
    return !self->ls.failed;
}

static pst_ticket ticket_of(const conf_pair *self)
{
    return self->ls.tickets[self->tickets[0]];
}

typedef pst_status (*enqueue_fn)(conf_pair *self, pst_stream stream);

static pst_status enqueue_stash(conf_pair *self, pst_stream stream)
{
    return ls_enqueue_stash(ticket_of(self), &self->source, stream);
}
static pst_status enqueue_restore(conf_pair *self, pst_stream stream)
{
    return ls_enqueue_restore(ticket_of(self), &self->destination, NULL, stream);
}
static pst_status enqueue_zeroing(conf_pair *self, pst_stream stream)
{
    const pst_restore_options options =
        ls_restore_options(&self->destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    return ls_enqueue_restore(ticket_of(self), &self->destination, &options, stream);
}
static pst_status enqueue_release(conf_pair *self, pst_stream stream)
{
    return pst_ticket_release(ticket_of(self), stream);
}
static pst_status enqueue_reset(conf_pair *self, pst_stream stream)
{
    return pst_pool_reset(self->ls.pool, PST_RESET_ALL, stream);
}
static pst_status enqueue_step(conf_pair *self, pst_stream stream)
{
    return pst_pool_step(self->ls.pool, stream);
}
static pst_status enqueue_check(conf_pair *self, pst_stream stream)
{
    return pst_pool_check(self->ls.pool, stream);
}

CONFORMANCE(Lifetime, OneKernelNodeForEachOperation)
{
    static const enqueue_fn calls[] = {enqueue_stash,   enqueue_restore, enqueue_zeroing,
                                       enqueue_release, enqueue_reset,   enqueue_step,
                                       enqueue_check};
    static const shape_theme themes[] = {SHAPE_ONE_TENSOR, SHAPE_64_TENSORS, SHAPE_1024_SEGMENTS};
    static conf_pair self;
    for (int theme = 0; theme < 3; theme++) {
        if (!set_up(&self, conf, (pst_pool_mode)(theme % 2), themes[theme]))
            return;
        lockstep *ls = &self.ls;
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            pst_graph_info info = {0};
            conf_graph_begin(ls);
            LS_TRY(calls[i](&self, ls->stream));
            pst_graph *graph = conf_graph_end(ls);
            LS_TRY(pst_graph_get_info(graph, &info));
            conf_graph_destroy(ls, graph);
            CHECK_EQ(info.num_kernels, 1);
            CHECK_EQ(info.num_nodes, 1);
        }
        ls_compare(ls); /* nothing has run */
        conf_pair_close(&self);
    }
}

/* Fault rows 28. */
CONFORMANCE(Lifetime, WhatAGraphUsesCannotBeDestroyed)
{
    static conf_pair self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ANY))
        return;
    lockstep *ls = &self.ls;
    conf_graph_begin(ls);
    LS_TRY(enqueue_stash(&self, ls->stream));
    pst_graph *first = conf_graph_end(ls);
    conf_graph_begin(ls);
    LS_TRY(enqueue_zeroing(&self, ls->stream));
    pst_graph *second = conf_graph_end(ls);
    CHECK_STATUS(pst_pool_destroy(ls->pool), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "2 tickets and 2 captured graphs"), "%s",
              pst_last_message());
    CHECK_STATUS(pst_ticket_destroy(ticket_of(&self)), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "2 captured graphs"), "%s", pst_last_message());
    CHECK_STATUS(pst_dirty_destroy(self.destination.dirty), PST_E_BUSY);
    ls_ticket_free(ls, self.tickets[1]);
    conf_graph_destroy(ls, first);
    CHECK_STATUS(pst_pool_destroy(ls->pool), PST_E_BUSY);
    conf_graph_destroy(ls, second);
    ls_compare(ls);
    conf_pair_close(&self);
}

CONFORMANCE(Lifetime, UsedOftenAnObjectIsHeldOnce)
{
    static conf_pair self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ONE_TENSOR))
        return;
    lockstep *ls = &self.ls;
    conf_graph_begin(ls);
    for (int i = 0; i < 100; i++) {
        LS_TRY(enqueue_stash(&self, ls->stream));
        LS_TRY(enqueue_restore(&self, ls->stream));
    }
    pst_graph *graph = conf_graph_end(ls);
    CHECK_STATUS(pst_ticket_destroy(ticket_of(&self)), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "1 captured graph"), "%s", pst_last_message());
    LS_TRY(pst_graph_launch(graph, ls->stream));
    for (int i = 0; i < 100; i++) {
        oracle_stash(ls->oracle, self.tickets[0], &self.source.model, self.source.values);
        oracle_restore(ls->oracle, self.tickets[0], &self.destination.model, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
    }
    ls_compare(ls);
    conf_graph_destroy(ls, graph);
    conf_pair_close(&self);
}

/* Fault rows 34. */
CONFORMANCE(Lifetime, FailedCaptureHoldsNothing)
{
    static conf_pair self;
    pst_stream other;
    pst_event event;
    pst_graph *graph = NULL;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ONE_TENSOR))
        return;
    lockstep *ls = &self.ls;
    CHECK_OK(pst_stream_create(ls->device, &other));
    CHECK_OK(pst_event_create(ls->device, &event));
    conf_graph_begin(ls);
    LS_TRY(pst_event_record(ls->device, event, ls->stream));
    LS_TRY(pst_event_wait(ls->device, event, other));
    LS_TRY(enqueue_stash(&self, other)); /* is not joined back */
    CHECK_STATUS(pst_graph_end(ls->device, ls->stream, &graph), PST_E_CAPTURE);
    CHECK(graph == NULL);
    ls_stash(ls, self.tickets[0], &self.source); /* neither stream is captured any more */
    CHECK_OK(pst_ticket_release(ticket_of(&self), other));
    CHECK_OK(pst_stream_synchronize(ls->device, other));
    oracle_release(ls->oracle, self.tickets[0]);
    ls_compare(ls);
    CHECK_OK(pst_event_destroy(ls->device, event));
    CHECK_OK(pst_stream_destroy(ls->device, other));
    conf_pair_close(&self);
}

/* The directory of tickets ends where the state begins, and a team goes over it in rounds. */
CONFORMANCE(Lifetime, APoolOfMoreTicketsThanATeamHasThreads)
{
    static conf_pair self;
    ls_options options = conf_options(PST_POOL_ORDERED, 4, 1);
    options.max_tickets = 1536; /* of which teams of 256 take their rounds: 1, 2 or 3 of them */
    options.max_pages = 8;
    const shape like = conf_prefix_shape(1, 4, 4096);
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    for (uint64_t pages = 3; pages > 1 && !self.ls.failed; pages--) {
        conf_pair_stash(&self, 0, 4); /* the state is not all 0 then */
        conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
        ls_resize(&self.ls, pages, 0);
        ls_reset(&self.ls, PST_RESET_PAGES);
    }
    conf_pair_stash(&self, 0, 4);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_step(&self.ls);
    CHECK_EQ(self.ls.oracle->status.num_faults, 0);
    conf_pair_close(&self);
}
