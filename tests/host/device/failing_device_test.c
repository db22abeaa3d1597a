/* A device whose calls fail as CUDA's do after an illegal address: the pool refuses work, and
 * everything can still be destroyed. */
#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"

static pst_status broken; /* what every call of the device answers */

static const psti_device_ops *real;

/* Of single calls: the copy that arrives all the same, counted from 1, 0: none; and of resizes. */
static uint32_t copy_fails_at;
static bool resize_fails, wait_fails;

static pst_status fails_alloc(pst_device *device, size_t bytes, void **address_out)
{
    return broken ? broken : real->alloc(device, bytes, address_out);
}

static pst_status fails_free(pst_device *device, void *address)
{
    const pst_status status = real->free(device, address);
    return broken ? broken : status;
}

static pst_status fails_copy(pst_device *device, void *to, const void *from, size_t bytes,
                             pst_stream stream)
{
    const pst_status status = broken ? broken : real->copy(device, to, from, bytes, stream);
    return copy_fails_at && --copy_fails_at == 0 ? PST_E_CUDA : status;
}

static pst_status fails_synchronize(pst_device *device)
{
    return broken ? broken : real->synchronize(device);
}

static pst_status fails_stream_synchronize(pst_device *device, pst_stream stream)
{
    return wait_fails ? PST_E_CUDA : real->stream_synchronize(device, stream);
}

static pst_status fails_capture_of(pst_device *device, pst_stream stream,
                                   psti_capture_of *capture_out)
{
    return broken ? broken : real->capture_of(device, stream, capture_out);
}

static pst_status fails_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    if (op == PSTI_OP_RESIZE && resize_fails)
        return PST_E_CUDA;
    return broken ? broken : real->launch(device, op, args, stream);
}

typedef struct scene {
    psti_device_ops ops;
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    int32_t count;
    unsigned char rows[64];
    void *bases[1];
    const void *counts[1];
    pst_buffers buffers;
} scene;

static void open_scene(scene *self)
{
    *self = (scene){.count = 3};
    broken = PST_OK;
    CHECK_OK(pst_device_open("host", 0, &self->device));
    real = self->device->ops;
    self->ops = *real;
    self->ops.alloc = fails_alloc;
    self->ops.free = fails_free;
    self->ops.copy = fails_copy;
    self->ops.synchronize = fails_synchronize;
    self->ops.stream_synchronize = fails_stream_synchronize;
    self->ops.capture_of = fails_capture_of;
    self->ops.launch = fails_launch;
    self->device->ops = &self->ops;
    pst_pool_config pool_config = PST_POOL_CONFIG_INIT;
    pool_config.num_pages = 2;
    pool_config.max_pages = 4;
    CHECK_OK(pst_pool_create(self->device, &pool_config, &self->pool));
    const pst_row_space space = {.capacity = 4};
    const pst_tensor tensor = {.row_bytes = 16};
    self->bases[0] = self->rows;
    self->counts[0] = &self->count;
    self->buffers = (pst_buffers)PST_BUFFERS_INIT;
    self->buffers.bases = self->bases;
    self->buffers.counts = self->counts;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    CHECK_OK(pst_group_create(&config, &self->group));
    CHECK_OK(pst_ticket_create(self->pool, self->group, &self->ticket));
}

static pst_status stash(const scene *self, pst_ticket ticket)
{
    return pst_ticket_stash(ticket, self->group, &self->buffers, NULL, NULL);
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_ticket_destroy(self->ticket));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_device_close(self->device));
}

/* Fault rows 38. */
PST_TEST(FailingDevice, AFailedPoolAcceptsOnlyResetAndDestroy)
{
    scene self;
    open_scene(&self);
    broken = PST_E_CUDA;
    CHECK_STATUS(stash(&self, self.ticket), PST_E_CUDA);
    broken = PST_OK;
    CHECK_STATUS(stash(&self, self.ticket), PST_E_CUDA);
    CHECK(strstr(pst_last_message(), "an earlier CUDA error: only pst_pool_reset and "
                                     "pst_pool_destroy are accepted"));
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &self.buffers, NULL, NULL),
                 PST_E_CUDA);
    CHECK_STATUS(pst_ticket_release(self.ticket, NULL), PST_E_CUDA);
    CHECK_STATUS(pst_pool_step(self.pool, NULL), PST_E_CUDA);
    CHECK_STATUS(pst_pool_check(self.pool, NULL), PST_E_CUDA);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_FAULTS, NULL));
    CHECK_STATUS(pst_pool_step(self.pool, NULL), PST_E_CUDA);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(stash(&self, self.ticket));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    close_scene(&self);
}

/* It has not run yet. */
PST_TEST(FailingDevice, ACapturedResetRevivesNothing)
{
    scene self;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    open_scene(&self);
    CHECK_OK(pst_stream_create(self.device, &stream));
    broken = PST_E_CUDA;
    CHECK_STATUS(stash(&self, self.ticket), PST_E_CUDA);
    broken = PST_OK;
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, stream));
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    CHECK_STATUS(stash(&self, self.ticket), PST_E_CUDA);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(stash(&self, self.ticket));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_stream_destroy(self.device, stream));
    close_scene(&self);
}

/* Fault rows 38. */
PST_TEST(FailingDevice, EverythingCanBeDestroyedAfterACudaError)
{
    scene self;
    open_scene(&self);
    CHECK_OK(stash(&self, self.ticket));
    broken = PST_E_CUDA;
    CHECK_STATUS(pst_pool_step(self.pool, NULL), PST_E_CUDA);
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    close_scene(&self);
    broken = PST_OK;
}

PST_TEST(FailingDevice, AnotherErrorLeavesTheObjects)
{
    scene self;
    open_scene(&self);
    broken = PST_E_CAPTURE;
    CHECK_STATUS(pst_ticket_destroy(self.ticket), PST_E_CAPTURE);
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    broken = PST_OK;
    CHECK_OK(stash(&self, self.ticket));
    CHECK_STATUS(pst_ticket_destroy(self.ticket), PST_E_BUSY);
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    close_scene(&self);
}

PST_TEST(FailingDevice, ADestroyedFailedTicketIsNoDemand)
{
    scene self;
    open_scene(&self);
    pst_ticket other = {0};
    pst_pool_status status;
    self.count = -1; /* a count out of bounds wants no pages, an exhausted pool does */
    CHECK_OK(pst_ticket_create(self.pool, self.group, &other));
    CHECK_OK(stash(&self, self.ticket));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.step_demand, 0);
    self.pool->view.state->head[0] = 2; /* no page is free */
    self.count = 1;
    CHECK_OK(stash(&self, other));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.step_demand, 3);
    CHECK_OK(pst_ticket_destroy(other));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.step_demand, 2);
    close_scene(&self);
}

/* Whichever of its copies fails: there is no ticket, and no word of one. */
PST_TEST(FailingDevice, ATicketThatWasNotMadeLeavesNothing)
{
    scene self;
    open_scene(&self);
    uint32_t failures = 0;
    for (pst_status status = PST_E_CUDA; status != PST_OK; failures++) {
        pst_ticket other = {0};
        copy_fails_at = failures + 1;
        status = pst_ticket_create(self.pool, self.group, &other);
        copy_fails_at = 0;
        CHECK(status == PST_OK || status == PST_E_CUDA);
        CHECK_EQ(self.pool->num_tickets, status == PST_OK ? 2 : 1);
        CHECK_EQ(self.pool->view.tickets[1] != 0, status == PST_OK);
        CHECK_EQ(self.pool->ticket_used[1], status == PST_OK);
        if (status == PST_OK)
            CHECK_OK(pst_ticket_destroy(other));
    }
    CHECK(failures > 3); /* the record, the directory, the index */
    CHECK_OK(stash(&self, self.ticket));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    close_scene(&self);
}

PST_TEST(FailingDevice, AResizeThatFailedChangesNothing)
{
    scene self;
    pst_pool_status status;
    open_scene(&self);
    resize_fails = true;
    CHECK_STATUS(pst_pool_resize(self.pool, 4, 0), PST_E_CUDA);
    resize_fails = false;
    CHECK_EQ(self.pool->num_pages[0], 2);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(stash(&self, self.ticket));
    CHECK_OK(pst_pool_check(self.pool, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.num_faults, 0);
    CHECK_EQ(status.in_use[0], 1);
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    wait_fails = true; /* it was launched, and nobody knows what became of it */
    CHECK_STATUS(pst_pool_resize(self.pool, 4, 0), PST_E_CUDA);
    wait_fails = false;
    CHECK_EQ(self.pool->num_pages[0], 2);
    CHECK_STATUS(pst_pool_step(self.pool, NULL), PST_E_CUDA);
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    close_scene(&self);
}
