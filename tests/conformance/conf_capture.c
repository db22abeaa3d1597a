/* What must not be called while a stream is being captured (device.h): it answers CAPTURE, breaks the
 * capture, and is right again afterwards. */
#include <pthread.h>

#include "tests/conformance/conf.h"

typedef struct scene {
    pst_device *device;
    pst_stream stream, other; /* the first is captured */
    pst_event inside, outside;
    void *memory, *pinned;
    pst_pool *pool;
    pst_group *group;
} scene;

static bool open_scene(scene *self, const conf_run *conf)
{
    const pst_row_space space = {.capacity = 4, .count_type = PST_COUNT_INT64};
    const pst_tensor tensor = {.row_bytes = 16};
    pst_group_config group = PST_GROUP_CONFIG_INIT;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pool.num_pages = 1;
    pool.max_pages = 2;
    group.spaces = &space;
    group.tensors = &tensor;
    group.num_spaces = group.num_tensors = 1;
    *self = (scene){.device = conf->device};
    return pst_pool_create(self->device, &pool, &self->pool) == PST_OK &&
           pst_group_create(&group, &self->group) == PST_OK &&
           pst_stream_create(self->device, &self->stream) == PST_OK &&
           pst_stream_create(self->device, &self->other) == PST_OK &&
           pst_event_create(self->device, &self->inside) == PST_OK &&
           pst_event_create(self->device, &self->outside) == PST_OK &&
           pst_event_record(self->device, self->outside, self->other) == PST_OK &&
           pst_device_alloc(self->device, 64, &self->memory) == PST_OK &&
           pst_device_alloc_pinned(self->device, 64, &self->pinned) == PST_OK &&
           pst_device_synchronize(self->device) == PST_OK;
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_device_free(self->device, self->memory));
    CHECK_OK(pst_device_free_pinned(self->device, self->pinned));
    CHECK_OK(pst_event_destroy(self->device, self->inside));
    CHECK_OK(pst_event_destroy(self->device, self->outside));
    CHECK_OK(pst_stream_destroy(self->device, self->other));
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
}

/* ---- the calls ---- */

static pst_status call_alloc(scene *self)
{
    void *memory = NULL;
    const pst_status status = pst_device_alloc(self->device, 64, &memory);
    return status != PST_OK ? status : pst_device_free(self->device, memory);
}

static pst_status call_alloc_pinned(scene *self)
{
    void *memory = NULL;
    const pst_status status = pst_device_alloc_pinned(self->device, 64, &memory);
    return status != PST_OK ? status : pst_device_free_pinned(self->device, memory);
}

static pst_status call_free(scene *self)
{
    const pst_status status = pst_device_free(self->device, self->memory);
    return status != PST_OK ? status : pst_device_alloc(self->device, 64, &self->memory);
}

static pst_status call_free_pinned(scene *self)
{
    const pst_status status = pst_device_free_pinned(self->device, self->pinned);
    return status != PST_OK ? status : pst_device_alloc_pinned(self->device, 64, &self->pinned);
}

static pst_status call_device_synchronize(scene *self)
{
    return pst_device_synchronize(self->device);
}

static pst_status call_stream_synchronize(scene *self)
{
    return pst_stream_synchronize(self->device, self->stream);
}

static pst_status call_other_synchronize(scene *self)
{
    return pst_stream_synchronize(self->device, self->other);
}

static pst_status call_inside_synchronize(scene *self)
{
    return pst_event_synchronize(self->device, self->inside);
}

static pst_status call_outside_synchronize(scene *self)
{
    return pst_event_synchronize(self->device, self->outside);
}

static pst_status call_elapsed(scene *self)
{
    double seconds = 0;
    return pst_event_elapsed(self->device, self->outside, self->inside, &seconds);
}

static pst_status call_wait_outside(scene *self)
{
    return pst_event_wait(self->device, self->outside, self->stream);
}

static pst_status call_pool(scene *self)
{
    pst_pool *pool = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    const pst_status status = pst_pool_create(self->device, &config, &pool);
    return status != PST_OK ? status : pst_pool_destroy(pool);
}

static pst_status call_resize(scene *self)
{
    return pst_pool_resize(self->pool, 2, 0);
}

static pst_status call_ticket(scene *self)
{
    pst_ticket ticket = {0};
    const pst_status status = pst_ticket_create(self->pool, self->group, &ticket);
    return status != PST_OK ? status : pst_ticket_destroy(ticket);
}

static pst_status call_dirty(scene *self)
{
    pst_dirty *dirty = NULL;
    const pst_status status = pst_dirty_create(self->device, self->group, false, &dirty);
    return status != PST_OK ? status : pst_dirty_destroy(dirty);
}

static const struct {
    const char *name;
    pst_status (*call)(scene *self);
} calls[] = {
    {"alloc", call_alloc},
    {"alloc pinned", call_alloc_pinned},
    {"free", call_free},
    {"free pinned", call_free_pinned},
    {"device synchronize", call_device_synchronize},
    {"stream synchronize", call_stream_synchronize},
    {"synchronize of another stream", call_other_synchronize},
    {"synchronize of a captured event", call_inside_synchronize},
    {"synchronize of another event", call_outside_synchronize},
    {"elapsed", call_elapsed},
    {"wait for an event outside", call_wait_outside},
    {"pool create", call_pool},
    {"pool resize", call_resize},
    {"ticket create", call_ticket},
    {"dirty words", call_dirty},
};

static void begin(scene *self)
{
    CHECK_OK(pst_graph_begin(self->device, self->stream));
    CHECK_OK(pst_device_fill(self->device, self->memory, 1, 64, self->stream));
    CHECK_OK(pst_event_record(self->device, self->inside, self->stream));
}

/* Also called by another thread than the one that captures. */
static void check_refused(scene *self, const char *name, pst_status status)
{
    pst_graph *graph = NULL;
    CHECK_MSG(status == PST_E_CAPTURE, "%s is %s: %s", name, pst_status_name(status),
              pst_last_message());
    CHECK_STATUS(pst_device_fill(self->device, self->memory, 2, 64, self->stream), PST_E_CAPTURE);
    CHECK_STATUS(pst_graph_end(self->device, self->stream, &graph), PST_E_CAPTURE);
    CHECK(graph == NULL);
}

/* Fault rows 33. */
CONFORMANCE(Capture, ForbiddenCallsAreRefusedAndBreakIt)
{
    scene self;
    CHECK(open_scene(&self, conf));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        begin(&self);
        check_refused(&self, calls[i].name, calls[i].call(&self));
        CHECK_OK(pst_event_record(self.device, self.inside, self.stream));
        CHECK_OK(pst_stream_synchronize(self.device, self.stream)); /* elapsed wants it passed */
        CHECK_MSG(calls[i].call(&self) == PST_OK, "%s: %s", calls[i].name, pst_last_message());
        if (psti_test_failed())
            return;
    }
    close_scene(&self);
}

/* ---- beside a capture ---- */

typedef struct beside {
    scene *self;
    pst_status (*call)(scene *self);
    pst_status status;
} beside;

static void *run_beside(void *arg)
{
    beside *b = arg;
    b->status = b->call(b->self);
    return NULL;
}

static pst_status in_another_thread(scene *self, pst_status (*call)(scene *self))
{
    beside b = {.self = self, .call = call, .status = PST_E_INVALID};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_beside, &b) == 0)
        pthread_join(thread, NULL);
    return b.status;
}

static pst_status call_end(scene *self)
{
    pst_graph *graph = NULL;
    return pst_graph_end(self->device, self->stream, &graph);
}

/* Fault rows 34. */
CONFORMANCE(Capture, OtherThreadsMayCallWhatDoesNotTouchIt)
{
    static pst_status (*const legal[])(scene * self) = {
        call_alloc,       call_alloc_pinned,      call_free,
        call_free_pinned, call_other_synchronize, call_outside_synchronize};
    static pst_status (*const illegal[])(scene * self) = {
        call_device_synchronize, call_stream_synchronize, call_inside_synchronize};
    scene self;
    pst_graph *graph = NULL;
    CHECK(open_scene(&self, conf));
    begin(&self);
    for (size_t i = 0; i < sizeof(legal) / sizeof(legal[0]); i++)
        CHECK_MSG(in_another_thread(&self, legal[i]) == PST_OK, "%zu", i);
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    CHECK_OK(pst_graph_destroy(graph));
    for (size_t i = 0; i < sizeof(illegal) / sizeof(illegal[0]); i++) {
        begin(&self);
        check_refused(&self, "beside it", in_another_thread(&self, illegal[i]));
    }
    begin(&self);
    CHECK_STATUS(in_another_thread(&self, call_end), PST_E_CAPTURE);
    (void)pst_graph_end(self.device, self.stream, &graph); /* CUDA does not say whether it broke */
    close_scene(&self);
}
