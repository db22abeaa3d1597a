/* What a captured graph consists of, and what it holds. */
#include "tests/conformance/conf.h"

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group source, destination;
    uint32_t ticket, idle; /* idle is in no graph */
} scene;

static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode, shape_theme theme)
{
    const ls_options options = conf_options(mode, 120, theme);
    shape like, other;
    self->random = oracle_random_seeded(theme);
    shape_make(&self->random, theme, 20000, &like);
    shape_like(&self->random, &like, false, &other);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    ls_group_make(&self->ls, &like, &self->random, &self->source);
    ls_group_make(&self->ls, &other, &self->random, &self->destination);
    ls_group_random_counts(&self->ls, &self->source, COUNTS_RANDOM, &self->random);
    self->ticket = ls_ticket_make(&self->ls, &self->source);
    self->idle = ls_ticket_make(&self->ls, &self->source);
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    ls_group_free(&self->ls, &self->source);
    ls_group_free(&self->ls, &self->destination);
    ls_close(&self->ls);
}

static pst_ticket *ticket_of(const scene *self)
{
    return self->ls.tickets[self->ticket];
}

static void begin(lockstep *ls)
{
    LS_TRY(pst_graph_begin(ls->device, ls->stream));
}

static pst_graph *end(lockstep *ls)
{
    pst_graph *graph = NULL;
    LS_TRY(pst_graph_end(ls->device, ls->stream, &graph));
    return graph;
}

static void destroy(lockstep *ls, pst_graph *graph)
{
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    LS_TRY(pst_graph_destroy(graph));
}

typedef pst_status (*enqueue_fn)(scene *self, pst_stream stream);

static pst_status enqueue_stash(scene *self, pst_stream stream)
{
    return pst_ticket_stash(ticket_of(self), self->source.group, NULL, stream);
}
static pst_status enqueue_restore(scene *self, pst_stream stream)
{
    return pst_ticket_restore(ticket_of(self), self->destination.group, NULL, stream);
}
static pst_status enqueue_zeroing(scene *self, pst_stream stream)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.tail = PST_TAIL_ZERO;
    options.pages = PST_RESTORE_KEEP;
    return pst_ticket_restore(ticket_of(self), self->destination.group, &options, stream);
}
static pst_status enqueue_release(scene *self, pst_stream stream)
{
    return pst_ticket_release(ticket_of(self), stream);
}
static pst_status enqueue_reset(scene *self, pst_stream stream)
{
    return pst_pool_reset(self->ls.pool, PST_RESET_ALL, stream);
}
static pst_status enqueue_step(scene *self, pst_stream stream)
{
    return pst_pool_step(self->ls.pool, stream);
}
static pst_status enqueue_check(scene *self, pst_stream stream)
{
    return pst_pool_check(self->ls.pool, stream);
}

CONFORMANCE(Lifetime, OneKernelNodeForEachOperation)
{
    static const enqueue_fn calls[] = {enqueue_stash,   enqueue_restore, enqueue_zeroing,
                                       enqueue_release, enqueue_reset,   enqueue_step,
                                       enqueue_check};
    static const shape_theme themes[] = {SHAPE_ONE_TENSOR, SHAPE_64_TENSORS, SHAPE_1024_SEGMENTS};
    static scene self;
    for (int theme = 0; theme < 3; theme++) {
        if (!set_up(&self, conf, (pst_pool_mode)(theme % 2), themes[theme]))
            return;
        lockstep *ls = &self.ls;
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            pst_graph_info info = {0};
            begin(ls);
            LS_TRY(calls[i](&self, ls->stream));
            pst_graph *graph = end(ls);
            LS_TRY(pst_graph_get_info(graph, &info));
            destroy(ls, graph);
            CHECK_EQ(info.num_kernels, 1);
            CHECK_EQ(info.num_nodes, 1);
        }
        ls_compare(ls); /* nothing has run */
        tear_down(&self);
    }
}

CONFORMANCE(Lifetime, WhatAGraphUsesCannotBeDestroyed)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ANY))
        return;
    lockstep *ls = &self.ls;
    begin(ls);
    LS_TRY(enqueue_stash(&self, ls->stream));
    pst_graph *first = end(ls);
    begin(ls);
    LS_TRY(enqueue_restore(&self, ls->stream));
    pst_graph *second = end(ls);
    CHECK_STATUS(pst_pool_destroy(ls->pool), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "2 tickets and 2 captured graphs"), "%s",
              pst_last_message());
    CHECK_STATUS(pst_ticket_destroy(ticket_of(&self)), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "2 captured graphs"), "%s", pst_last_message());
    CHECK_STATUS(pst_group_destroy(self.source.group), PST_E_BUSY);
    CHECK_STATUS(pst_group_destroy(self.destination.group), PST_E_BUSY);
    ls_ticket_free(ls, self.idle);
    destroy(ls, first);
    CHECK_STATUS(pst_pool_destroy(ls->pool), PST_E_BUSY);
    destroy(ls, second);
    ls_compare(ls);
    tear_down(&self);
}

CONFORMANCE(Lifetime, UsedOftenAnObjectIsHeldOnce)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ONE_TENSOR))
        return;
    lockstep *ls = &self.ls;
    begin(ls);
    for (int i = 0; i < 100; i++) {
        LS_TRY(enqueue_stash(&self, ls->stream));
        LS_TRY(enqueue_restore(&self, ls->stream));
    }
    pst_graph *graph = end(ls);
    CHECK_STATUS(pst_ticket_destroy(ticket_of(&self)), PST_E_BUSY);
    CHECK_MSG(strstr(pst_last_message(), "1 captured graph"), "%s", pst_last_message());
    LS_TRY(pst_graph_launch(graph, ls->stream));
    for (int i = 0; i < 100; i++) {
        oracle_stash(ls->oracle, self.ticket, &self.source.model, self.source.values);
        oracle_restore(ls->oracle, self.ticket, &self.destination.model, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
    }
    ls_compare(ls);
    destroy(ls, graph);
    tear_down(&self);
}

CONFORMANCE(Lifetime, FailedCaptureHoldsNothing)
{
    static scene self;
    pst_stream other;
    pst_event event;
    pst_graph *graph = NULL;
    if (!set_up(&self, conf, PST_POOL_ORDERED, SHAPE_ONE_TENSOR))
        return;
    lockstep *ls = &self.ls;
    CHECK_OK(pst_stream_create(ls->device, &other));
    CHECK_OK(pst_event_create(ls->device, &event));
    begin(ls);
    LS_TRY(pst_event_record(ls->device, event, ls->stream));
    LS_TRY(pst_event_wait(ls->device, event, other));
    LS_TRY(enqueue_stash(&self, other)); /* is not joined back */
    CHECK_STATUS(pst_graph_end(ls->device, ls->stream, &graph), PST_E_CAPTURE);
    CHECK(graph == NULL);
    ls_stash(ls, self.ticket, &self.source); /* neither stream is captured any more */
    CHECK_OK(pst_ticket_release(ticket_of(&self), other));
    CHECK_OK(pst_stream_synchronize(ls->device, other));
    oracle_release(ls->oracle, self.ticket);
    ls_compare(ls);
    CHECK_OK(pst_event_destroy(ls->device, event));
    CHECK_OK(pst_stream_destroy(ls->device, other));
    tear_down(&self);
}
