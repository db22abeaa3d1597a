/* The table of a lazy device: the host device checks and captures, what it would run is queued. */
#include "tests/lazy/lazy.h"

#include <stdlib.h>
#include <string.h>

/* ---- which one it is ---- */

static lazy_device *all;
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;

static lazy_device *find(const pst_device *device)
{
    pthread_mutex_lock(&all_mutex);
    lazy_device *lazy = all;
    while (lazy && lazy->device != device)
        lazy = lazy->next;
    pthread_mutex_unlock(&all_mutex);
    if (!lazy)
        abort(); /* no lazy device */
    return lazy;
}

lazy_device *lazy_lock(const pst_device *device)
{
    lazy_device *lazy = find(device);
    pthread_mutex_lock(&lazy->mutex);
    return lazy;
}

pst_status lazy_unlock(lazy_device *lazy, pst_status status)
{
    pthread_mutex_unlock(&lazy->mutex);
    return status;
}

static bool is_captured(pst_stream stream)
{
    return stream && stream->captured;
}

/* ---- what enqueues ---- */

/* A call that enqueues: counted, and refused if it is the one to fail. */
static pst_status begin_call(lazy_device *lazy, pst_stream stream)
{
    lazy->calls++;
    PSTI_CHECK(lazy->fails_at == 0 || --lazy->fails_at > 0, PST_E_CUDA, "call %llu was to fail",
               (unsigned long long)lazy->calls);
    return psti_host_check_stream(lazy->device, stream);
}

static void see_call(lazy_device *lazy, pst_stream stream, const psti_node *node, bool external)
{
    lazy_seen seen = {.number = lazy->calls,
                      .captured = is_captured(stream),
                      .external = external,
                      .stream = stream,
                      .stream_index = lazy_queue_of(lazy, stream)->index};
    lazy_see_node(&seen, node);
    lazy_see(lazy, &seen);
}

static pst_status capture_node(lazy_device *lazy, pst_device *device, const psti_node *node,
                               pst_stream stream)
{
    if (node->kind == PSTI_NODE_LAUNCH)
        return lazy->real->launch(device, node->op, node->args, stream);
    if (node->kind == PSTI_NODE_CALL)
        return lazy->real->call(device, node->function, node->args, node->bytes, stream);
    return psti_host_enqueue(device, node, stream);
}

/* Launch, call, copy and fill. */
static pst_status enqueue(pst_device *device, const psti_node *node, pst_stream stream)
{
    lazy_device *lazy = lazy_lock(device);
    lazy_work work = {.node = *node};
    pst_status status = begin_call(lazy, stream);
    if (status == PST_OK && is_captured(stream))
        status = capture_node(lazy, device, node, stream);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    see_call(lazy, stream, node, false);
    if (is_captured(stream)) {
        lazy_note_node(lazy, lazy_queue_of(lazy, stream), stream);
        return lazy_unlock(lazy, PST_OK);
    }
    if (node->args)
        work.node.args = memcpy(lazy_zeroed(1, node->bytes), node->args, node->bytes);
    lazy_push(lazy, lazy_queue_of(lazy, stream), &work);
    return lazy_unlock(lazy, PST_OK);
}

static pst_status lazy_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    const psti_node node = {.kind = PSTI_NODE_COPY, .to = to, .from = from, .bytes = bytes};
    return enqueue(device, &node, stream);
}

static pst_status lazy_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    const psti_node node = {.kind = PSTI_NODE_FILL, .to = to, .value = value, .bytes = bytes};
    return enqueue(device, &node, stream);
}

static pst_status lazy_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    /* nobody writes through it: the copies are the owners' */
    const psti_node node = {.kind = PSTI_NODE_LAUNCH,
                            .op = op,
                            .args = (void *)(uintptr_t)args,
                            .bytes = psti_op_args_bytes(op)};
    return enqueue(device, &node, stream);
}

static pst_status lazy_call(pst_device *device, psti_function *function, const void *args,
                            size_t bytes, pst_stream stream)
{
    const psti_node node = {.kind = PSTI_NODE_CALL,
                            .function = function,
                            .args = (void *)(uintptr_t)args,
                            .bytes = bytes};
    return enqueue(device, &node, stream);
}

static pst_status lazy_event_record(pst_device *device, pst_event event, pst_stream stream,
                                    bool external)
{
    lazy_device *lazy = lazy_lock(device);
    lazy_work work = {.node = {.kind = PSTI_NODE_RECORD, .event = event}, .is_external = external};
    pst_status status = begin_call(lazy, stream);
    if (status == PST_OK)
        status = lazy->real->event_record(device, event, stream, external);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    lazy_queue *queue = lazy_queue_of(lazy, stream);
    see_call(lazy, stream, &work.node, external);
    if (is_captured(stream) && external) {
        lazy_note_node(lazy, queue, stream);
    } else if (is_captured(stream)) {
        lazy_note_mark(lazy, queue, stream, event->above);
    } else {
        lazy_event *recorded = event->above;
        lazy_mark_release(recorded->last);
        recorded->last = lazy_mark_new(queue->index, 2);
        work.mark = recorded->last;
        lazy_push(lazy, queue, &work);
    }
    return lazy_unlock(lazy, PST_OK);
}

static pst_status lazy_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    lazy_device *lazy = lazy_lock(device);
    lazy_work work = {.node = {.kind = PSTI_NODE_WAIT, .event = event}, .is_external = external};
    pst_status status = begin_call(lazy, stream);
    if (status == PST_OK)
        status = lazy->real->event_wait(device, event, stream, external);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    const lazy_event *awaited = event->above;
    lazy_queue *queue = lazy_queue_of(lazy, stream);
    see_call(lazy, stream, &work.node, external);
    if (is_captured(stream) && external) {
        lazy_note_node(lazy, queue, stream);
    } else if (is_captured(stream)) {
        lazy_note_join(lazy, queue, stream, awaited);
    } else {
        work.awaited = lazy_mark_retain(awaited->last);
        lazy_push(lazy, queue, &work);
    }
    return lazy_unlock(lazy, PST_OK);
}

/* ---- what synchronises ---- */

static pst_status lazy_synchronize(pst_device *device)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = lazy->real->synchronize(device);
    if (status == PST_OK)
        status = lazy_until(lazy, NULL, NULL);
    return lazy_unlock(lazy, status);
}

static pst_status lazy_stream_synchronize(pst_device *device, pst_stream stream)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = lazy->real->stream_synchronize(device, stream);
    if (status == PST_OK)
        status = lazy_until(lazy, lazy_queue_of(lazy, stream), NULL);
    return lazy_unlock(lazy, status);
}

/* It would be asked until the work has ended: so it ends at once. */
static pst_status lazy_stream_query(pst_device *device, pst_stream stream, bool *idle_out)
{
    *idle_out = true;
    return lazy_stream_synchronize(device, stream);
}

static pst_status lazy_event_synchronize(pst_device *device, pst_event event)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = lazy->real->event_synchronize(device, event);
    if (status == PST_OK) {
        const lazy_event *synchronized = event->above;
        lazy_mark *mark = lazy_mark_retain(synchronized->last);
        status = mark ? lazy_until(lazy, NULL, mark) : PST_OK;
        lazy_mark_release(mark);
    }
    return lazy_unlock(lazy, status);
}

static bool has_passed(pst_event event)
{
    const lazy_event *known = event->above;
    return !known->last || known->last->is_done;
}

static pst_status lazy_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                     double *seconds_out)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = lazy->real->event_elapsed(device, begin, end, seconds_out);
    if (status == PST_OK && (!has_passed(begin) || !has_passed(end)))
        status = PSTI_FAIL(PST_E_CUDA, "an event has not been passed");
    return lazy_unlock(lazy, status);
}

/* cudaFree and cudaFreeHost wait for the device. */
static pst_status lazy_free(pst_device *device, void *address)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = psti_capture_forbids("pst_device_free");
    if (status == PST_OK)
        status = lazy_until(lazy, NULL, NULL);
    if (status == PST_OK)
        status = lazy->real->free(device, address);
    return lazy_unlock(lazy, status);
}

static pst_status lazy_free_pinned(pst_device *device, void *address)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = psti_capture_forbids("pst_device_free_pinned");
    if (status == PST_OK)
        status = lazy_until(lazy, NULL, NULL);
    if (status == PST_OK)
        status = lazy->real->free_pinned(device, address);
    return lazy_unlock(lazy, status);
}

/* ---- streams and events ---- */

static pst_status lazy_stream_create(pst_device *device, pst_stream *stream_out)
{
    lazy_device *lazy = lazy_lock(device);
    const pst_status status = lazy->real->stream_create(device, stream_out);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    lazy_queue *queue = lazy_zeroed(1, sizeof(*queue));
    *queue = (lazy_queue){
        .stream = *stream_out, .index = ++lazy->num_streams, .weight = 1, .next = lazy->queues};
    lazy->queues = queue;
    (*stream_out)->above = queue;
    return lazy_unlock(lazy, PST_OK);
}

static pst_status lazy_stream_destroy(pst_device *device, pst_stream stream)
{
    lazy_device *lazy = lazy_lock(device);
    const pst_status known = psti_host_check_stream(device, stream);
    lazy_queue *queue = known == PST_OK ? stream->above : NULL;
    const pst_status status = lazy->real->stream_destroy(device, stream);
    if (status == PST_OK) {
        queue->is_closed = true;
        lazy_free_queues(lazy, false);
    }
    return lazy_unlock(lazy, status);
}

/* What is known of an event stays until the close: what was enqueued with it may still run. */
static pst_status lazy_event_create(pst_device *device, pst_event *event_out)
{
    lazy_device *lazy = lazy_lock(device);
    const pst_status status = lazy->real->event_create(device, event_out);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    lazy_event *event = lazy_zeroed(1, sizeof(*event));
    event->next = lazy->events;
    lazy->events = event;
    (*event_out)->above = event;
    return lazy_unlock(lazy, PST_OK);
}

/* ---- graphs ---- */

static pst_status lazy_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    lazy_device *lazy = lazy_lock(device);
    pst_status status = psti_host_check_stream(device, stream);
    const uint64_t id = status == PST_OK && is_captured(stream) ? stream->captured->id : 0;
    if (status == PST_OK)
        status = lazy->real->graph_end(device, stream, graph);
    if (status == PST_OK)
        graph->state = lazy_graph_new(lazy, id, graph->state);
    lazy_drop_captures(lazy);
    return lazy_unlock(lazy, status);
}

static pst_status lazy_graph_launch(pst_graph *handle, pst_stream stream)
{
    lazy_device *lazy = lazy_lock(handle->device);
    lazy_graph *graph = handle->state;
    const pst_status status = begin_call(lazy, stream);
    if (status != PST_OK)
        return lazy_unlock(lazy, status);
    if (is_captured(stream)) /* it says why not */
        return lazy_unlock(lazy, lazy->real->graph_launch(handle, stream));
    lazy_queue *queue = lazy_queue_of(lazy, stream);
    lazy_see(lazy, &(lazy_seen){.kind = LAZY_GRAPH,
                                .number = lazy->calls,
                                .stream = stream,
                                .stream_index = queue->index,
                                .graph = handle});
    const lazy_work work = {.instance = lazy_instance_new(lazy, handle, queue->index),
                            .awaited = graph->last_launch,
                            .mark = lazy_mark_new(queue->index, 2)};
    graph->last_launch = work.mark;
    lazy_push(lazy, queue, &work);
    return lazy_unlock(lazy, PST_OK);
}

static void lazy_graph_destroy(pst_graph *handle)
{
    lazy_device *lazy = lazy_lock(handle->device);
    lazy_graph *graph = handle->state;
    psti_node_list *list = graph->list;
    const bool has_run = !graph->last_launch || graph->last_launch->is_done;
    if (!has_run) {
        lazy_report(lazy, "a graph was destroyed before it had run");
        lazy_until(lazy, NULL, graph->last_launch);
    }
    lazy_graph_free(graph);
    lazy_unlock(lazy, PST_OK);
    psti_nodes_free(list); /* without the lock: objects are told */
}

/* ---- open and close ---- */

static void lazy_close(pst_device *device)
{
    lazy_device *lazy = find(device);
    void (*close)(pst_device *) = lazy->real->close;
    pthread_mutex_lock(&all_mutex);
    lazy_device **link = &all;
    while (*link != lazy)
        link = &(*link)->next;
    *link = lazy->next;
    pthread_mutex_unlock(&all_mutex);
    lazy_until(lazy, NULL, NULL);
    lazy_free_queues(lazy, true);
    lazy_drop_captures(lazy);
    while (lazy->events) {
        lazy_event *event = lazy->events;
        lazy->events = event->next;
        lazy_mark_release(event->last);
        free(event->place.nodes);
        free(event);
    }
    pthread_mutex_destroy(&lazy->mutex);
    free(lazy);
    close(device);
}

void lazy_make(pst_device *device, const lazy_options *options)
{
    lazy_device *lazy = lazy_zeroed(1, sizeof(*lazy));
    lazy->device = device;
    lazy->real = device->ops;
    lazy->ops = *device->ops;
    lazy->ops.close = lazy_close;
    lazy->ops.free = lazy_free;
    lazy->ops.free_pinned = lazy_free_pinned;
    lazy->ops.copy = lazy_copy;
    lazy->ops.fill = lazy_fill;
    lazy->ops.synchronize = lazy_synchronize;
    lazy->ops.stream_create = lazy_stream_create;
    lazy->ops.stream_destroy = lazy_stream_destroy;
    lazy->ops.stream_synchronize = lazy_stream_synchronize;
    lazy->ops.stream_query = lazy_stream_query;
    lazy->ops.event_create = lazy_event_create;
    lazy->ops.event_record = lazy_event_record;
    lazy->ops.event_wait = lazy_event_wait;
    lazy->ops.event_synchronize = lazy_event_synchronize;
    lazy->ops.event_elapsed = lazy_event_elapsed;
    lazy->ops.graph_end = lazy_graph_end;
    lazy->ops.graph_launch = lazy_graph_launch;
    lazy->ops.graph_destroy = lazy_graph_destroy;
    lazy->ops.launch = lazy_launch;
    lazy->ops.call = lazy_call;
    lazy->options = options ? *options : (lazy_options){.seed = 0};
    lazy->random = lazy->options.seed;
    lazy->null_queue.weight = 1;
    lazy->queues = &lazy->null_queue;
    pthread_mutex_init(&lazy->mutex, NULL);
    device->ops = &lazy->ops;
    pthread_mutex_lock(&all_mutex);
    lazy->next = all;
    all = lazy;
    pthread_mutex_unlock(&all_mutex);
}
