/* The host device: memory of this process, work done in the calling thread. A stream is a label,
 * because what is enqueued is finished before the call returns; but it can be captured. */
#include "host/device/host_graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT 256u

typedef struct host_state {
    pthread_mutex_t lock; /* of captures, and of the capture fields of streams and events */
    psti_captures captures;
    const psti_runners *runners;
} host_state;

static host_state *state_of(const pst_device *device)
{
    return device->state;
}

/* ---- memory ---- */

static pst_status host_alloc(pst_device *device, size_t bytes, void **address_out)
{
    (void)device;
    /* without this check overcommit would let the system kill us later */
    const uint64_t available = bytes > (64u << 20) ? psti_available_bytes() : UINT64_MAX;
    void *address = NULL;
    if (!psti_allocation_fails() && bytes <= available && bytes <= SIZE_MAX - ALIGNMENT)
        address = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    PSTI_CHECK(address, PST_E_DEVICE_NOMEM, "%zu bytes wanted, %llu bytes free", bytes,
               (unsigned long long)psti_available_bytes());
    *address_out = address;
    return PST_OK;
}

static pst_status host_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_TRY(host_alloc(device, bytes, address_out));
    memset(*address_out, 0, bytes);
    return PST_OK;
}

static pst_status host_free(pst_device *device, void *address)
{
    (void)device;
    free(address);
    return PST_OK;
}

static pst_status host_get_info(pst_device *device, pst_device_info *info)
{
    *info = device->info;
    info->free_bytes = psti_available_bytes();
    return PST_OK;
}

static pst_status host_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                                 psti_span *span)
{
    (void)device;
    (void)tier;
    return psti_host_span_open(span, reserved);
}

static pst_status host_span_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    (void)device;
    return psti_host_span_resize(span, bytes);
}

static void host_span_close(pst_device *device, psti_span *span)
{
    (void)device;
    psti_host_span_close(span);
}

/* ---- running and recording ---- */

static uint64_t now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_node(const host_state *state, const psti_node *what)
{
    switch (what->kind) {
    case PSTI_NODE_LAUNCH:
        state->runners->run[what->op](what->args);
        break;
    case PSTI_NODE_COPY:
        memmove(what->to, what->from, what->bytes);
        break;
    case PSTI_NODE_FILL:
        memset(what->to, what->value, what->bytes);
        break;
    case PSTI_NODE_RECORD:
        __atomic_store_n(&what->event->nanoseconds, now_nanoseconds(), __ATOMIC_RELEASE);
        break;
    case PSTI_NODE_WAIT: /* what was recorded before is done; take part in its happens-before */
        (void)__atomic_load_n(&what->event->nanoseconds, __ATOMIC_ACQUIRE);
        break;
    }
}

/* Runs the call, or records it where the stream is being captured. */
static pst_status enqueue(pst_device *device, const psti_node *what, pst_stream stream)
{
    host_state *state = state_of(device);
    if (!stream || !stream->captured) {
        run_node(state, what);
        return PST_OK;
    }
    pthread_mutex_lock(&state->lock);
    const pst_status status = psti_capture_append(stream, what);
    pthread_mutex_unlock(&state->lock);
    return status;
}

static pst_status host_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    const psti_node what = {.kind = PSTI_NODE_COPY, .to = to, .from = from, .bytes = bytes};
    return enqueue(device, &what, stream);
}

static pst_status host_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    const psti_node what = {.kind = PSTI_NODE_FILL, .to = to, .value = value, .bytes = bytes};
    return enqueue(device, &what, stream);
}

static pst_status host_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    psti_node what = {.kind = PSTI_NODE_LAUNCH, .op = op};
    if (!stream || !stream->captured) {
        state_of(device)->runners->run[op](args);
        return PST_OK;
    }
    const size_t bytes = psti_op_args_bytes(op);
    what.args = psti_calloc(1, bytes);
    if (!what.args) {
        __atomic_store_n(&stream->captured->failed, true, __ATOMIC_RELAXED);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a node of the graph");
    }
    memcpy(what.args, args, bytes);
    const pst_status status = enqueue(device, &what, stream);
    if (status != PST_OK)
        psti_free(what.args);
    return status;
}

static pst_status host_synchronize(pst_device *device)
{
    (void)device;
    return PST_OK;
}

/* ---- streams and events ---- */

static pst_status make(size_t bytes, const char *what, void **made_out)
{
    *made_out = psti_calloc(1, bytes);
    PSTI_CHECK(*made_out, PST_E_NOMEM, "no memory for %s", what);
    return PST_OK;
}

static pst_status host_stream_create(pst_device *device, pst_stream *stream_out)
{
    (void)device;
    void *made;
    PSTI_TRY(make(sizeof(**stream_out), "a stream", &made));
    *stream_out = made;
    return PST_OK;
}

static pst_status host_stream_destroy(pst_device *device, pst_stream stream)
{
    (void)device;
    PSTI_CHECK(!stream->captured, PST_E_CAPTURE, "the stream is being captured");
    psti_free(stream);
    return PST_OK;
}

static pst_status host_stream_synchronize(pst_device *device, pst_stream stream)
{
    (void)device;
    PSTI_CHECK(!stream || !stream->captured, PST_E_CAPTURE, "the stream is being captured");
    return PST_OK;
}

static pst_status host_event_create(pst_device *device, pst_event *event_out)
{
    (void)device;
    void *made;
    PSTI_TRY(make(sizeof(**event_out), "an event", &made));
    *event_out = made;
    return PST_OK;
}

static pst_status host_event_destroy(pst_device *device, pst_event event)
{
    (void)device;
    psti_free(event);
    return PST_OK;
}

static pst_status host_event_record(pst_device *device, pst_event event, pst_stream stream,
                                    bool external)
{
    host_state *state = state_of(device);
    const psti_node what = {.kind = PSTI_NODE_RECORD, .event = event};
    if (external || !stream || !stream->captured) {
        pthread_mutex_lock(&state->lock);
        event->capture_id = 0;
        pthread_mutex_unlock(&state->lock);
        return enqueue(device, &what, stream);
    }
    pthread_mutex_lock(&state->lock);
    event->capture_id = stream->captured->id;
    event->stream = stream;
    event->position = stream->position;
    pthread_mutex_unlock(&state->lock);
    return PST_OK;
}

static pst_status host_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    host_state *state = state_of(device);
    const psti_node what = {.kind = PSTI_NODE_WAIT, .event = event};
    if (external)
        return enqueue(device, &what, stream);
    pthread_mutex_lock(&state->lock);
    const bool captured = event->capture_id != 0;
    const pst_status status =
        captured ? psti_capture_join(&state->captures, stream, event) : PST_OK;
    pthread_mutex_unlock(&state->lock);
    if (captured)
        return status;
    PSTI_CHECK(!stream || !stream->captured, PST_E_CAPTURE,
               "a captured stream waits for an event recorded outside the capture");
    return enqueue(device, &what, stream);
}

static pst_status host_event_synchronize(pst_device *device, pst_event event)
{
    (void)device;
    (void)__atomic_load_n(&event->nanoseconds, __ATOMIC_ACQUIRE);
    return PST_OK;
}

static pst_status host_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out)
{
    (void)device;
    const uint64_t from = __atomic_load_n(&begin->nanoseconds, __ATOMIC_ACQUIRE);
    const uint64_t to = __atomic_load_n(&end->nanoseconds, __ATOMIC_ACQUIRE);
    PSTI_CHECK(from && to, PST_E_INVALID, "an event was never recorded");
    *seconds_out = ((double)to - (double)from) * 1e-9;
    return PST_OK;
}

/* ---- graphs ---- */

static pst_status host_capture_of(pst_device *device, pst_stream stream,
                                  psti_capture_of *capture_out)
{
    (void)device;
    *capture_out = (psti_capture_of){.id = 0};
    if (stream && stream->captured)
        capture_out->id = stream->captured->id;
    return PST_OK;
}

static pst_status host_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    host_state *state = state_of(device);
    pthread_mutex_lock(&state->lock);
    psti_capture *captured = psti_capture_find(&state->captures, capture->id);
    const pst_status status = captured ? psti_capture_hold(captured, hold) : PST_OK;
    pthread_mutex_unlock(&state->lock);
    PSTI_CHECK(captured, PST_E_CAPTURE, "the capture has ended meanwhile");
    return status;
}

static pst_status host_graph_begin(pst_device *device, pst_stream stream)
{
    host_state *state = state_of(device);
    pthread_mutex_lock(&state->lock);
    const pst_status status = psti_capture_begin(&state->captures, stream);
    pthread_mutex_unlock(&state->lock);
    return status;
}

static pst_status host_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    host_state *state = state_of(device);
    psti_node_list *list = NULL;
    pthread_mutex_lock(&state->lock);
    const pst_status status = psti_capture_end(&state->captures, stream, &list);
    pthread_mutex_unlock(&state->lock);
    if (status != PST_OK) {
        psti_nodes_free(list);
        return status;
    }
    graph->info.num_nodes = list->num_nodes;
    for (size_t i = 0; i < list->num_nodes; i++)
        graph->info.num_kernels += list->nodes[i].kind == PSTI_NODE_LAUNCH;
    graph->state = list;
    return PST_OK;
}

static pst_status host_graph_launch(pst_graph *graph, pst_stream stream)
{
    const psti_node_list *list = graph->state;
    PSTI_CHECK(!stream || !stream->captured, PST_E_UNSUPPORTED,
               "a graph cannot be captured into another on the host device");
    for (size_t i = 0; i < list->num_nodes; i++)
        run_node(state_of(graph->device), &list->nodes[i]);
    return PST_OK;
}

static void host_graph_destroy(pst_graph *graph)
{
    psti_nodes_free(graph->state);
}

/* ---- open and close ---- */

static void host_close(pst_device *device)
{
    host_state *state = state_of(device);
    pthread_mutex_destroy(&state->lock);
    psti_free(state);
    psti_handle_free(device);
}

static const psti_device_ops host_ops = {
    .close = host_close,
    .get_info = host_get_info,
    .alloc = host_alloc,
    .free = host_free,
    .alloc_pinned = host_alloc_pinned,
    .free_pinned = host_free,
    .copy = host_copy,
    .fill = host_fill,
    .synchronize = host_synchronize,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_synchronize = host_stream_synchronize,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_synchronize = host_event_synchronize,
    .event_elapsed = host_event_elapsed,
    .graph_begin = host_graph_begin,
    .graph_end = host_graph_end,
    .graph_launch = host_graph_launch,
    .graph_destroy = host_graph_destroy,
    .capture_of = host_capture_of,
    .hold = host_hold,
    .launch = host_launch,
    .span_open = host_span_open,
    .span_resize = host_span_resize,
    .span_close = host_span_close,
};

pst_status psti_host_device_make(const char *name, int num_sms, const psti_runners *runners,
                                 pst_device **device_out)
{
    pst_device *device = psti_handle_new(sizeof(*device), PSTI_KIND_DEVICE);
    host_state *state = psti_calloc(1, sizeof(*state));
    if (!device || !state) {
        psti_handle_free(device);
        psti_free(state);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a device");
    }
    pthread_mutex_init(&state->lock, NULL);
    state->runners = runners;
    device->ops = &host_ops;
    device->state = state;
    device->info.kind = PST_DEVICE_HOST;
    snprintf(device->info.name, sizeof(device->info.name), "%s", name);
    device->info.num_sms = num_sms;
    device->info.total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    device->info.free_bytes = psti_available_bytes();
    *device_out = device;
    return PST_OK;
}

bool psti_host_is_present(void)
{
    return true;
}

pst_status psti_host_device_open(int index, pst_device **device_out)
{
    PSTI_CHECK(index == 0, PST_E_INVALID, "index %d: host has only device 0", index);
    return psti_host_device_make("host", 1, &psti_host_runners, device_out);
}
