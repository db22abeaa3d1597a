/* The host device: memory of this process, work done in the calling thread.
 *
 * A stream is a label, because what is enqueued is finished before the call returns; but it can be
 * captured. A capture is a list of calls in the order they were made, which is one of the orders
 * its edges allow. Streams join a capture by waiting for an event recorded in it, and must be
 * joined back to the origin before it ends, as on CUDA. */
#include "host/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT 256u

typedef enum node_kind { NODE_LAUNCH, NODE_COPY, NODE_FILL, NODE_RECORD, NODE_WAIT } node_kind;

typedef struct node {
    node_kind kind;
    psti_op op;
    uint8_t value;
    void *args; /* owned */
    void *to;
    const void *from;
    size_t bytes;
    pst_event event;
} node;

typedef struct node_list {
    node *nodes;
    size_t num_nodes, capacity;
    psti_hold **holds;
    size_t num_holds;
} node_list;

typedef struct capture {
    uint64_t id;
    pst_stream origin;
    node_list list;
    bool failed; /* a call could not be recorded */
    struct CUstream_st *streams; /* of this capture, by next_captured */
} capture;

struct CUstream_st {
    capture *captured;  /* NULL: work runs at once */
    uint64_t position;  /* grows with every call recorded on this stream */
    uint64_t joined_at; /* position that somebody has waited for */
    struct CUstream_st *next_captured;
};

struct CUevent_st {
    uint64_t seconds_e9; /* atomic: time of the last record, 0: never */
    uint64_t capture_id; /* of the capture it was recorded in, 0: none */
    struct CUstream_st *stream;
    uint64_t position; /* of that stream, after the record */
};

typedef struct host_state {
    pthread_mutex_t lock; /* streams' and events' capture fields */
    const psti_runners *runners;
    uint64_t captures;
} host_state;

static host_state *state_of(const pst_device *device)
{
    return device->state;
}

/* ---- memory ---- */

static uint64_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (kib == 0)
        return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return kib * 1024;
}

static pst_status host_alloc(pst_device *device, size_t bytes, void **address_out)
{
    (void)device;
    /* without this check overcommit would let the system kill us later */
    const uint64_t available = bytes > (64u << 20) ? available_bytes() : UINT64_MAX;
    void *address = NULL;
    if (!psti_allocation_fails() && bytes <= available && bytes <= SIZE_MAX - ALIGNMENT)
        address = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    PSTI_CHECK(address, PST_E_DEVICE_NOMEM, "%zu bytes wanted, %llu bytes free", bytes,
               (unsigned long long)available_bytes());
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
    info->free_bytes = available_bytes();
    return PST_OK;
}

/* ---- running and recording ---- */

static uint64_t now_e9(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_node(const host_state *state, const node *what)
{
    switch (what->kind) {
    case NODE_LAUNCH:
        state->runners->run[what->op](what->args);
        break;
    case NODE_COPY:
        memmove(what->to, what->from, what->bytes);
        break;
    case NODE_FILL:
        memset(what->to, what->value, what->bytes);
        break;
    case NODE_RECORD:
        __atomic_store_n(&what->event->seconds_e9, now_e9(), __ATOMIC_RELEASE);
        break;
    case NODE_WAIT: /* what was recorded before is done; take part in its happens-before */
        (void)__atomic_load_n(&what->event->seconds_e9, __ATOMIC_ACQUIRE);
        break;
    }
}

static pst_status append(capture *captured, const node *what)
{
    node_list *list = &captured->list;
    if (list->num_nodes == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        node *grown = psti_calloc(capacity, sizeof(node));
        if (!grown) {
            captured->failed = true;
            return PSTI_FAIL(PST_E_NOMEM, "no memory for node %zu of the graph", list->num_nodes);
        }
        if (list->nodes)
            memcpy(grown, list->nodes, list->num_nodes * sizeof(node));
        psti_free(list->nodes);
        list->nodes = grown;
        list->capacity = capacity;
    }
    list->nodes[list->num_nodes++] = *what;
    return PST_OK;
}

/* Runs the call, or records it where the stream is being captured. */
static pst_status enqueue(pst_device *device, const node *what, pst_stream stream)
{
    if (!stream || !stream->captured) {
        run_node(state_of(device), what);
        return PST_OK;
    }
    stream->position++;
    return append(stream->captured, what);
}

static pst_status host_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    const node what = {.kind = NODE_COPY, .to = to, .from = from, .bytes = bytes};
    return enqueue(device, &what, stream);
}

static pst_status host_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    const node what = {.kind = NODE_FILL, .to = to, .value = value, .bytes = bytes};
    return enqueue(device, &what, stream);
}

static pst_status host_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    node what = {.kind = NODE_LAUNCH, .op = op};
    if (!stream || !stream->captured) {
        state_of(device)->runners->run[op](args);
        return PST_OK;
    }
    const size_t bytes = psti_op_args_bytes(op);
    what.args = psti_calloc(1, bytes);
    if (!what.args) {
        stream->captured->failed = true;
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

static pst_status host_stream_create(pst_device *device, pst_stream *stream_out)
{
    (void)device;
    pst_stream stream = psti_calloc(1, sizeof(*stream));
    PSTI_CHECK(stream, PST_E_NOMEM, "no memory for a stream");
    *stream_out = stream;
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
    pst_event event = psti_calloc(1, sizeof(*event));
    PSTI_CHECK(event, PST_E_NOMEM, "no memory for an event");
    *event_out = event;
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
    const node what = {.kind = NODE_RECORD, .event = event};
    if (external || !stream || !stream->captured) {
        pthread_mutex_lock(&state->lock);
        if (!stream || !stream->captured)
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

/* The stream that waits joins the capture the event was recorded in. */
static pst_status join(pst_stream stream, pst_event event)
{
    capture *captured = event->stream->captured;
    PSTI_CHECK(captured && captured->id == event->capture_id, PST_E_CAPTURE,
               "the event was recorded in a capture that has ended");
    PSTI_CHECK(!stream->captured || stream->captured == captured, PST_E_CAPTURE,
               "the event belongs to another capture");
    if (!stream->captured) {
        stream->captured = captured;
        stream->position = 1; /* joining is work that must be joined back */
        stream->joined_at = 0;
        stream->next_captured = captured->streams;
        captured->streams = stream;
    } else {
        stream->position++;
    }
    if (event->position > event->stream->joined_at)
        event->stream->joined_at = event->position;
    return PST_OK;
}

static pst_status host_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    host_state *state = state_of(device);
    const node what = {.kind = NODE_WAIT, .event = event};
    if (external)
        return enqueue(device, &what, stream);
    pthread_mutex_lock(&state->lock);
    const bool captured = event->capture_id != 0;
    pst_status status = PST_OK;
    if (captured && stream)
        status = join(stream, event);
    else if (captured)
        status = PSTI_FAIL(PST_E_CAPTURE, "the default stream cannot join a capture");
    pthread_mutex_unlock(&state->lock);
    if (captured || status != PST_OK)
        return status;
    PSTI_CHECK(!stream || !stream->captured, PST_E_CAPTURE,
               "a captured stream waits for an event recorded outside the capture");
    return enqueue(device, &what, stream);
}

static pst_status host_event_synchronize(pst_device *device, pst_event event)
{
    (void)device;
    (void)__atomic_load_n(&event->seconds_e9, __ATOMIC_ACQUIRE);
    return PST_OK;
}

static pst_status host_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out)
{
    (void)device;
    const uint64_t from = __atomic_load_n(&begin->seconds_e9, __ATOMIC_ACQUIRE);
    const uint64_t to = __atomic_load_n(&end->seconds_e9, __ATOMIC_ACQUIRE);
    PSTI_CHECK(from && to, PST_E_INVALID, "an event was never recorded");
    *seconds_out = ((double)to - (double)from) * 1e-9;
    return PST_OK;
}

/* ---- graphs ---- */

static void drop_list(node_list *list)
{
    for (size_t i = 0; i < list->num_nodes; i++)
        psti_free(list->nodes[i].args);
    for (size_t i = 0; i < list->num_holds; i++)
        __atomic_fetch_sub(&list->holds[i]->graphs, 1, __ATOMIC_RELEASE);
    psti_free(list->nodes);
    psti_free(list->holds);
}

static pst_status host_hold(pst_device *device, pst_stream stream, psti_hold *hold)
{
    (void)device;
    capture *captured = stream ? stream->captured : NULL;
    if (!captured ||
        __atomic_exchange_n(&hold->last_capture, captured->id, __ATOMIC_RELAXED) == captured->id)
        return PST_OK;
    node_list *list = &captured->list;
    psti_hold **grown = psti_calloc(list->num_holds + 1, sizeof(*grown));
    if (!grown) {
        captured->failed = true;
        __atomic_store_n(&hold->last_capture, 0, __ATOMIC_RELAXED);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a node of the graph");
    }
    if (list->holds)
        memcpy(grown, list->holds, list->num_holds * sizeof(*grown));
    psti_free(list->holds);
    list->holds = grown;
    list->holds[list->num_holds++] = hold;
    __atomic_fetch_add(&hold->graphs, 1, __ATOMIC_RELAXED);
    return PST_OK;
}

static pst_status host_graph_begin(pst_device *device, pst_stream stream)
{
    host_state *state = state_of(device);
    PSTI_CHECK(!stream->captured, PST_E_CAPTURE, "the stream is being captured already");
    capture *captured = psti_calloc(1, sizeof(*captured));
    PSTI_CHECK(captured, PST_E_NOMEM, "no memory for a graph");
    captured->origin = stream;
    captured->streams = stream;
    pthread_mutex_lock(&state->lock);
    captured->id = ++state->captures;
    pthread_mutex_unlock(&state->lock);
    stream->captured = captured;
    stream->position = 0;
    stream->joined_at = 0;
    stream->next_captured = NULL;
    return PST_OK;
}

static bool all_joined(const capture *captured)
{
    for (const struct CUstream_st *s = captured->streams; s; s = s->next_captured)
        if (s != captured->origin && s->joined_at < s->position)
            return false;
    return true;
}

static void finish_graph(pst_graph *graph, const node_list *list)
{
    graph->info.num_nodes = 0;
    for (size_t i = 0; i < list->num_nodes; i++) {
        graph->info.num_nodes++;
        graph->info.num_kernels += list->nodes[i].kind == NODE_LAUNCH;
    }
}

static pst_status host_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    host_state *state = state_of(device);
    capture *captured = stream->captured;
    PSTI_CHECK(captured && captured->origin == stream, PST_E_CAPTURE,
               "the stream is not the origin of a capture");
    pthread_mutex_lock(&state->lock);
    const bool joined = all_joined(captured);
    for (struct CUstream_st *s = captured->streams; s; s = s->next_captured)
        s->captured = NULL;
    pthread_mutex_unlock(&state->lock);
    node_list *list = psti_calloc(1, sizeof(*list));
    const bool failed = captured->failed || !list;
    if (joined && !failed) {
        *list = captured->list;
        finish_graph(graph, list);
        graph->state = list;
        psti_free(captured);
        return PST_OK;
    }
    drop_list(&captured->list);
    psti_free(captured);
    psti_free(list);
    PSTI_CHECK(joined, PST_E_CAPTURE, "a stream that joined the capture was not joined back");
    return PSTI_FAIL(PST_E_NOMEM, "the graph could not be recorded for want of memory");
}

static pst_status host_graph_launch(pst_graph *graph, pst_stream stream)
{
    const node_list *list = graph->state;
    PSTI_CHECK(!stream || !stream->captured, PST_E_UNSUPPORTED,
               "a graph cannot be captured into another on the host device");
    for (size_t i = 0; i < list->num_nodes; i++)
        run_node(state_of(graph->device), &list->nodes[i]);
    return PST_OK;
}

static void host_graph_destroy(pst_graph *graph)
{
    drop_list(graph->state);
    psti_free(graph->state);
}

/* ---- open and close ---- */

static void host_close(pst_device *device)
{
    host_state *state = state_of(device);
    pthread_mutex_destroy(&state->lock);
    psti_free(state);
    psti_free(device);
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
    .hold = host_hold,
    .launch = host_launch,
};

pst_status psti_host_device_open(const char *name, int num_sms, const psti_runners *runners,
                                 pst_device **device_out)
{
    pst_device *device = psti_calloc(1, sizeof(*device));
    host_state *state = psti_calloc(1, sizeof(*state));
    if (!device || !state) {
        psti_free(device);
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
    device->info.total_bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    device->info.free_bytes = available_bytes();
    *device_out = device;
    return PST_OK;
}
