/* Streams, events and graphs of the host device. A stream is a label, because what is enqueued is
 * finished before the call returns; but it can be captured, by CUDA's rules (host_graph.h). */
#include <time.h>

#include "host/device/host_device.h"

static psti_host_state *lock(const pst_device *device)
{
    psti_host_state *state = psti_host_state_of(device);
    psti_lock_take(&state->lock);
    return state;
}

/* ---- whose they are ---- */

pst_status psti_host_check_stream(const pst_device *device, pst_stream stream)
{
    PSTI_CHECK(!stream || psti_slots_has(&psti_host_state_of(device)->streams, stream),
               PST_E_INVALID, "stream %p is no stream of this device %s, or was destroyed",
               (void *)stream, device->info.name);
    return PST_OK;
}

static pst_status check_event(const pst_device *device, pst_event event)
{
    PSTI_CHECK(psti_slots_has(&psti_host_state_of(device)->events, event), PST_E_INVALID,
               "event %p is no event of this device %s, or was destroyed", (void *)event,
               device->info.name);
    return PST_OK;
}

static pst_status take(pst_device *device, psti_slots *slots, const char *what, void **made_out)
{
    psti_host_state *state = lock(device);
    *made_out = psti_slots_take(slots);
    psti_lock_give(&state->lock);
    PSTI_CHECK(*made_out, PST_E_NOMEM, "no memory for %s", what);
    return PST_OK;
}

/* ---- streams ---- */

pst_status psti_host_stream_create(pst_device *device, pst_stream *stream_out)
{
    void *made = NULL;
    PSTI_TRY(take(device, &psti_host_state_of(device)->streams, "a stream", &made));
    *stream_out = made;
    return PST_OK;
}

/* Refuses what must not be done to a stream that is being captured. */
static pst_status check_free(pst_device *device, pst_stream stream, const char *call)
{
    PSTI_TRY(psti_host_check_stream(device, stream));
    psti_host_state *state = lock(device);
    const bool captured = stream && stream->captured;
    if (captured)
        psti_capture_break(stream->captured, call);
    psti_lock_give(&state->lock);
    PSTI_CHECK(!captured, PST_E_CAPTURE, "%s of a stream that is being captured", call);
    return PST_OK;
}

pst_status psti_host_stream_destroy(pst_device *device, pst_stream stream)
{
    PSTI_TRY(check_free(device, stream, "pst_stream_destroy"));
    psti_host_state *state = lock(device);
    psti_slots_give(&state->streams, stream);
    psti_lock_give(&state->lock);
    return PST_OK;
}

pst_status psti_host_stream_synchronize(pst_device *device, pst_stream stream)
{
    PSTI_TRY(check_free(device, stream, "pst_stream_synchronize"));
    return psti_capture_forbids("pst_stream_synchronize");
}

pst_status psti_host_stream_query(pst_device *device, pst_stream stream, bool *idle_out)
{
    PSTI_TRY(check_free(device, stream, "a query"));
    PSTI_TRY(psti_capture_forbids("a query"));
    *idle_out = true;
    return PST_OK;
}

/* ---- events ---- */

pst_status psti_host_event_create(pst_device *device, pst_event *event_out)
{
    void *made = NULL;
    PSTI_TRY(take(device, &psti_host_state_of(device)->events, "an event", &made));
    *event_out = made;
    return PST_OK;
}

pst_status psti_host_event_destroy(pst_device *device, pst_event event)
{
    PSTI_TRY(check_event(device, event));
    psti_host_state *state = lock(device);
    psti_slots_give(&state->events, event);
    psti_lock_give(&state->lock);
    return PST_OK;
}

pst_status psti_host_event_record(pst_device *device, pst_event event, pst_stream stream,
                                  bool external)
{
    const psti_node node = {.kind = PSTI_NODE_RECORD, .event = event};
    pst_status status = PST_OK;
    PSTI_TRY(check_event(device, event));
    PSTI_TRY(psti_host_check_stream(device, stream));
    psti_host_state *state = lock(device);
    const bool is_mark = stream && stream->captured && !external; /* of a place in the capture */
    if (is_mark)
        status = psti_capture_mark(stream, event);
    else
        event->capture_id = 0;
    psti_lock_give(&state->lock);
    return is_mark ? status : psti_host_enqueue(device, &node, stream);
}

pst_status psti_host_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                bool external)
{
    const psti_node node = {.kind = PSTI_NODE_WAIT, .event = event};
    pst_status status = PST_OK;
    PSTI_TRY(check_event(device, event));
    PSTI_TRY(psti_host_check_stream(device, stream));
    if (external)
        return psti_host_enqueue(device, &node, stream);
    psti_host_state *state = lock(device);
    const bool joins = event->capture_id != 0;
    if (joins) {
        status = psti_capture_join(&state->captures, stream, event);
    } else if (stream && stream->captured) {
        psti_capture_break(stream->captured, "pst_event_wait");
        status = PSTI_FAIL(PST_E_CAPTURE,
                           "a captured stream waits for an event recorded outside the capture");
    }
    psti_lock_give(&state->lock);
    return joins || status != PST_OK ? status : psti_host_enqueue(device, &node, stream);
}

/* Refuses what must not be done to an event whose last record is a place in a capture. */
static pst_status check_recorded(pst_device *device, pst_event event, const char *call)
{
    PSTI_TRY(check_event(device, event));
    psti_host_state *state = lock(device);
    const uint64_t id = event->capture_id;
    psti_capture *captured = id ? psti_capture_find(&state->captures, id) : NULL;
    if (captured)
        psti_capture_break(captured, call);
    psti_lock_give(&state->lock);
    PSTI_CHECK(id == 0, PST_E_CAPTURE, "%s of an event that was recorded in a capture", call);
    return psti_capture_forbids(call);
}

pst_status psti_host_event_synchronize(pst_device *device, pst_event event)
{
    PSTI_TRY(check_recorded(device, event, "pst_event_synchronize"));
    (void)__atomic_load_n(&event->nanoseconds, __ATOMIC_ACQUIRE);
    return PST_OK;
}

pst_status psti_host_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                   double *seconds_out)
{
    PSTI_TRY(check_recorded(device, begin, "pst_event_elapsed"));
    PSTI_TRY(check_recorded(device, end, "pst_event_elapsed"));
    const uint64_t from = __atomic_load_n(&begin->nanoseconds, __ATOMIC_ACQUIRE);
    const uint64_t to = __atomic_load_n(&end->nanoseconds, __ATOMIC_ACQUIRE);
    PSTI_CHECK(from && to, PST_E_INVALID, "an event was never recorded");
    *seconds_out = ((double)to - (double)from) * 1e-9;
    return PST_OK;
}

/* ---- graphs ---- */

pst_status psti_host_capture_of(pst_device *device, pst_stream stream, psti_capture_of *capture_out)
{
    *capture_out = (psti_capture_of){.id = 0};
    if (!stream)
        return PST_OK;
    PSTI_TRY(psti_host_check_stream(device, stream));
    if (stream->captured)
        capture_out->id = stream->captured->id;
    return PST_OK;
}

pst_status psti_host_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    psti_host_state *state = lock(device);
    psti_capture *captured = psti_capture_find(&state->captures, capture->id);
    const pst_status status = captured ? psti_capture_hold(captured, hold) : PST_OK;
    psti_lock_give(&state->lock);
    PSTI_CHECK(captured, PST_E_CAPTURE, "the capture has ended meanwhile");
    return status;
}

pst_status psti_host_graph_begin(pst_device *device, pst_stream stream)
{
    PSTI_TRY(psti_host_check_stream(device, stream));
    psti_host_state *state = lock(device);
    const pst_status status = psti_capture_begin(&state->captures, stream);
    psti_lock_give(&state->lock);
    return status;
}

pst_status psti_host_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    psti_node_list *list = NULL;
    PSTI_TRY(psti_host_check_stream(device, stream));
    psti_host_state *state = lock(device);
    const pst_status status = psti_capture_end(&state->captures, stream, &list);
    psti_lock_give(&state->lock);
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

pst_status psti_host_graph_launch(pst_graph *graph, pst_stream stream)
{
    const psti_node_list *list = graph->state;
    PSTI_TRY(psti_host_check_stream(graph->device, stream));
    PSTI_CHECK(!stream || !stream->captured, PST_E_UNSUPPORTED,
               "a graph cannot be captured into another on the host device");
    for (size_t i = 0; i < list->num_nodes; i++)
        PSTI_TRY(psti_host_run(graph->device, &list->nodes[i]));
    return PST_OK;
}

void psti_host_graph_destroy(pst_graph *graph)
{
    psti_nodes_free(graph->state);
}
