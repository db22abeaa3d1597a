/* A pool, a group of one tensor, its buffers and a ticket on the host device, for tests of the host
 * modules. */
#ifndef PAGESTASH_TESTS_SCENE_H
#define PAGESTASH_TESTS_SCENE_H

#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"

typedef struct small_scene {
    pst_device *device;
    pst_pool *pool;
    pst_group *group; /* 8 rows of 4 KiB: 2 pages */
    pst_ticket ticket;
    int32_t count;
    unsigned char *rows;
    void *bases[1];        /* rows */
    const void *counts[1]; /* &count */
    pst_buffers buffers;   /* those; a scene stays where it was opened */
    pst_row_space space;
    pst_tensor tensor;
    pst_group_config group_config;
    pst_pool_config pool_config;
} small_scene;

enum { SMALL_CAPACITY = 8, SMALL_ROW = 4096, SMALL_BYTES = SMALL_CAPACITY * SMALL_ROW };

/* The configs and buffers only, and the device. */
static inline void small_configs(small_scene *self)
{
    static unsigned char rows[SMALL_BYTES] __attribute__((aligned(16)));
    memset(self, 0, sizeof(*self));
    CHECK_OK(pst_device_open("host", 0, &self->device));
    self->rows = rows;
    self->count = SMALL_CAPACITY;
    self->bases[0] = rows;
    self->counts[0] = &self->count;
    self->buffers = (pst_buffers)PST_BUFFERS_INIT;
    self->buffers.bases = self->bases;
    self->buffers.counts = self->counts;
    self->space = (pst_row_space){.capacity = SMALL_CAPACITY};
    self->tensor = (pst_tensor){.row_bytes = SMALL_ROW};
    self->group_config = (pst_group_config)PST_GROUP_CONFIG_INIT;
    self->group_config.spaces = &self->space;
    self->group_config.num_spaces = 1;
    self->group_config.tensors = &self->tensor;
    self->group_config.num_tensors = 1;
    self->pool_config = (pst_pool_config)PST_POOL_CONFIG_INIT;
    self->pool_config.page_bytes = PST_PAGE_BYTES_MIN;
    self->pool_config.num_pages = 3;
    self->pool_config.max_tickets = 4;
}

static inline void small_open_in(small_scene *self, pst_pool_mode mode)
{
    small_configs(self);
    self->pool_config.mode = mode;
    CHECK_OK(pst_pool_create(self->device, &self->pool_config, &self->pool));
    CHECK_OK(pst_group_create(&self->group_config, &self->group));
    CHECK_OK(pst_ticket_create(self->pool, self->group, &self->ticket));
}

static inline void small_open(small_scene *self)
{
    small_open_in(self, PST_POOL_ORDERED);
}

static inline void small_close(small_scene *self)
{
    CHECK_OK(pst_ticket_destroy(self->ticket));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_EQ(self->device->live, 0);
    CHECK_OK(pst_device_close(self->device));
}

/* With the scene's group, buffers and the defaults. */
static inline pst_status small_stash(const small_scene *self, pst_ticket ticket, pst_stream stream)
{
    return pst_ticket_stash(ticket, self->group, &self->buffers, NULL, stream);
}

static inline pst_status small_restore(const small_scene *self, pst_ticket ticket,
                                       pst_stream stream)
{
    return pst_ticket_restore(ticket, self->group, &self->buffers, NULL, stream);
}

/* What the pool says now, after a check of its pages. */
static inline pst_pool_status small_status(pst_pool *pool)
{
    pst_pool_status status = {.check_errors = UINT32_MAX};
    if (pst_pool_check(pool, NULL) || pst_pool_step(pool, NULL) || pst_pool_poll(pool, &status))
        psti_test_fail(__FILE__, __LINE__, "the pool cannot be asked: %s", pst_last_message());
    return status;
}

#endif
