/* A pool with a slab of tickets on the host device. */
#ifndef PAGESTASH_TESTS_SLAB_SCENE_H
#define PAGESTASH_TESTS_SLAB_SCENE_H

#include <stdio.h>

#include "tests/host/stash/scene.h"

/* A pool of 8 pages with a slab, and two streams. self->base.ticket stays none. */
typedef struct slab_scene {
    small_scene base;
    pst_device *device;
    pst_pool *pool;
    pst_stream a, b;
} slab_scene;

static inline void open_slab(slab_scene *self, uint32_t tickets)
{
    memset(self, 0, sizeof(*self));
    small_configs(&self->base);
    self->base.pool_config.num_pages = 8;
    self->base.pool_config.num_host_pages = 2;
    self->base.pool_config.max_tickets = 0;
    self->base.pool_config.slab_tickets = tickets;
    self->base.pool_config.slab_pages = 2;
    self->base.pool_config.slab_counts = 1;
    self->device = self->base.device;
    CHECK_OK(pst_pool_create(self->device, &self->base.pool_config, &self->base.pool));
    CHECK_OK(pst_group_create(&self->base.group_config, &self->base.group));
    self->pool = self->base.pool;
    CHECK_OK(pst_stream_create(self->device, &self->a));
    CHECK_OK(pst_stream_create(self->device, &self->b));
}

static inline void close_slab(slab_scene *self)
{
    const pst_pool_status status = small_status(self->pool);
    CHECK_EQ(status.num_faults, 0);
    CHECK_EQ(status.check_errors, 0);
    CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
    CHECK_OK(pst_stream_destroy(self->device, self->a));
    CHECK_OK(pst_stream_destroy(self->device, self->b));
    small_close(&self->base);
}

static inline pst_status slab_stash(const slab_scene *self, pst_ticket ticket, pst_stream stream)
{
    return small_stash(&self->base, ticket, stream);
}

static inline pst_status slab_restore(const slab_scene *self, pst_ticket ticket, pst_stream stream)
{
    return small_restore(&self->base, ticket, stream);
}

/* A graph that stashes into a ticket taken in its capture; the caller gives it back. */
static inline void capture_stash(const slab_scene *self, pst_stream stream, pst_ticket *ticket_out,
                                 pst_graph **graph_out)
{
    CHECK_OK(pst_graph_begin(self->device, stream));
    CHECK_OK(pst_ticket_take(self->pool, stream, ticket_out));
    CHECK_OK(slab_stash(self, *ticket_out, stream));
    CHECK_OK(pst_graph_end(self->device, stream, graph_out));
}

static inline void check_none_left(slab_scene *self, pst_stream stream, uint32_t all,
                                   uint32_t taken, uint32_t held, uint32_t waiting)
{
    char message[128];
    pst_ticket ticket = {77};
    CHECK_STATUS(pst_ticket_take(self->pool, stream, &ticket), PST_E_BUSY);
    snprintf(message, sizeof(message),
             "of %u tickets %u are taken, %u are held by graphs, %u wait for a step", all, taken,
             held, waiting);
    CHECK_SAID(message);
    CHECK_EQ(ticket.id, 77);
}

#endif
