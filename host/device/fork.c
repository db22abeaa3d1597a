/* What a fork leaves of open devices: host devices go on working in the child, which has memory of its
 * own; CUDA does not, so every call of a cuda device says so there. */
#include "host/device/device.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static pst_device *first;

/* ---- a device in a child ---- */

/* Of the functions made below, which look at nothing. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* NOLINTBEGIN(misc-unused-parameters) */

#define DEAD(name, ...)                                                                       \
    static pst_status dead_##name(__VA_ARGS__)                                                \
    {                                                                                         \
        return PSTI_FAIL(PST_E_NO_DEVICE, "this process is a fork of the one that opened the" \
                                          " device, and CUDA does not work here: open it"     \
                                          " after the fork");                                 \
    }

DEAD(get_info, pst_device *device, pst_device_info *info)
DEAD(alloc, pst_device *device, size_t bytes, void **address_out)
DEAD(free, pst_device *device, void *address)
DEAD(copy, pst_device *device, void *to, const void *from, size_t bytes, pst_stream stream)
DEAD(fill, pst_device *device, void *to, uint8_t value, size_t bytes, pst_stream stream)
DEAD(synchronize, pst_device *device)
DEAD(stream_create, pst_device *device, pst_stream *stream_out)
DEAD(stream, pst_device *device, pst_stream stream)
DEAD(stream_query, pst_device *device, pst_stream stream, bool *idle_out)
DEAD(event_create, pst_device *device, pst_event *event_out)
DEAD(event, pst_device *device, pst_event event)
DEAD(event_on, pst_device *device, pst_event event, pst_stream stream, bool external)
DEAD(event_elapsed, pst_device *device, pst_event begin, pst_event end, double *seconds_out)
DEAD(graph_end, pst_device *device, pst_stream stream, pst_graph *graph)
DEAD(graph_launch, pst_graph *graph, pst_stream stream)
DEAD(capture_of, pst_device *device, pst_stream stream, psti_capture_of *capture_out)
DEAD(hold, pst_device *device, const psti_capture_of *capture, psti_hold *hold)
DEAD(launch, pst_device *device, psti_op op, const void *args, pst_stream stream)
DEAD(within, pst_device *device, psti_function *function, const void *args)
DEAD(check_address, pst_device *device, const void *address, uint64_t bytes)
DEAD(span_open, pst_device *device, uint32_t tier, uint64_t reserved, psti_span *span)
DEAD(span_resize, pst_device *device, psti_span *span, uint64_t bytes)
/* NOLINTEND(misc-unused-parameters) */

/* The parent's memory and graphs are the parent's. */
static void dead_close(pst_device *device)
{
    psti_device_remove(device);
    psti_free(device->state);
    psti_handle_free(device);
}

static void dead_graph_destroy(pst_graph *graph)
{
    (void)graph;
}

static void dead_span_close(pst_device *device, psti_span *span)
{
    (void)device;
    *span = (psti_span){0};
}

static const psti_device_ops dead_ops = {
    .close = dead_close,
    .get_info = dead_get_info,
    .alloc = dead_alloc,
    .free = dead_free,
    .alloc_pinned = dead_alloc,
    .free_pinned = dead_free,
    .copy = dead_copy,
    .fill = dead_fill,
    .synchronize = dead_synchronize,
    .stream_create = dead_stream_create,
    .stream_destroy = dead_stream,
    .stream_synchronize = dead_stream,
    .stream_query = dead_stream_query,
    .event_create = dead_event_create,
    .event_destroy = dead_event,
    .event_record = dead_event_on,
    .event_wait = dead_event_on,
    .event_synchronize = dead_event,
    .event_elapsed = dead_event_elapsed,
    .graph_begin = dead_stream,
    .graph_end = dead_graph_end,
    .graph_launch = dead_graph_launch,
    .graph_destroy = dead_graph_destroy,
    .capture_of = dead_capture_of,
    .hold = dead_hold,
    .launch = dead_launch,
    .within = dead_within,
    .check_address = dead_check_address,
    .span_open = dead_span_open,
    .span_resize = dead_span_resize,
    .span_close = dead_span_close,
};

void psti_device_die(pst_device *device)
{
    device->ops = &dead_ops;
}

pst_status psti_device_check_alive(const pst_device *device)
{
    return device->ops == &dead_ops ? dead_synchronize(NULL) : PST_OK;
}

/* ---- the fork ---- */

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (pst_device *device = first; device; device = device->next)
        if (device->ops->in_child)
            device->ops->in_child(device);
    pthread_mutex_unlock(&lock);
}

/* Taken back by the C library where this library is unloaded. */
static void watch(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void psti_device_add(pst_device *device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    pthread_mutex_lock(&lock);
    device->next = first;
    first = device;
    pthread_mutex_unlock(&lock);
}

void psti_device_remove(pst_device *device)
{
    pthread_mutex_lock(&lock);
    pst_device **link = &first;
    while (*link && *link != device)
        link = &(*link)->next;
    if (*link)
        *link = device->next;
    pthread_mutex_unlock(&lock);
}
