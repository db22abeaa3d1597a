/* Capture on the host device: lists of recorded calls, which streams join and graphs replay. */
#include "host/device/host_graph.h"

#include <string.h>

/* Room for one more element: doubles a full array. */
static void *grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    const size_t doubled = *capacity ? 2 * *capacity : 64;
    void *grown = psti_calloc(doubled, size);
    if (!grown)
        return NULL;
    if (array)
        memcpy(grown, array, count * size);
    psti_free(array);
    *capacity = doubled;
    return grown;
}

static pst_status out_of_memory(psti_capture *captured)
{
    captured->failed = true;
    return PSTI_FAIL(PST_E_NOMEM, "no memory for node %zu of the graph", captured->list->num_nodes);
}

/* ---- calls that a capture forbids ---- */

static _Thread_local psti_capture *captures_here;

void psti_capture_break(psti_capture *captured, const char *call)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&captured->broken_by, &none, call, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

bool psti_captures_break(psti_captures *captures, const char *call)
{
    for (psti_capture *captured = captures->first; captured; captured = captured->next)
        psti_capture_break(captured, call);
    return captures->first != NULL;
}

pst_status psti_capture_forbids(const char *call)
{
    for (psti_capture *captured = captures_here; captured; captured = captured->next_here)
        psti_capture_break(captured, call);
    PSTI_CHECK(!captures_here, PST_E_CAPTURE, "%s by a thread that captures a stream", call);
    return PST_OK;
}

static pst_status check_whole(const psti_capture *captured)
{
    const char *broken_by = __atomic_load_n(&captured->broken_by, __ATOMIC_RELAXED);
    PSTI_CHECK(!broken_by, PST_E_CAPTURE, "the capture is invalid since %s", broken_by);
    return PST_OK;
}

/* ---- recording ---- */

pst_status psti_capture_append(pst_stream stream, const psti_node *node)
{
    psti_capture *captured = stream->captured;
    PSTI_TRY(check_whole(captured));
    psti_node_list *list = captured->list;
    psti_node *nodes = grow(list->nodes, list->num_nodes, &list->nodes_capacity, sizeof(*nodes));
    if (!nodes)
        return out_of_memory(captured);
    list->nodes = nodes;
    list->nodes[list->num_nodes++] = *node;
    stream->position++;
    return PST_OK;
}

pst_status psti_capture_hold(psti_capture *captured, psti_hold *hold)
{
    psti_node_list *list = captured->list;
    for (size_t i = 0; i < list->num_holds; i++)
        if (list->holds[i] == hold)
            return PST_OK;
    psti_hold **holds = grow(list->holds, list->num_holds, &list->holds_capacity, sizeof(*holds));
    if (!holds)
        return out_of_memory(captured);
    list->holds = holds;
    list->holds[list->num_holds++] = hold;
    __atomic_store_n(&hold->last_capture, captured->id, __ATOMIC_RELAXED);
    psti_hold_add(hold);
    return PST_OK;
}

void psti_nodes_free(psti_node_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->num_nodes; i++)
        psti_free(list->nodes[i].args);
    for (size_t i = 0; i < list->num_holds; i++)
        psti_hold_drop(list->holds[i]);
    psti_free(list->nodes);
    psti_free(list->holds);
    psti_free(list);
}

pst_status psti_capture_begin(psti_captures *captures, pst_stream stream)
{
    if (stream->captured) {
        psti_capture_break(stream->captured, "pst_graph_begin");
        return PSTI_FAIL(PST_E_CAPTURE, "the stream is being captured already");
    }
    psti_capture *captured = psti_calloc(1, sizeof(*captured));
    psti_node_list *list = psti_calloc(1, sizeof(*list));
    if (!captured || !list) {
        psti_free(captured);
        psti_free(list);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a graph");
    }
    captured->list = list;
    captured->id = ++captures->count;
    captured->origin = stream;
    captured->streams = stream;
    captured->next = captures->first;
    captures->first = captured;
    captured->next_here = captures_here;
    captures_here = captured;
    stream->captured = captured;
    stream->position = 0;
    stream->joined_at = 0;
    stream->next_captured = NULL;
    return PST_OK;
}

psti_capture *psti_capture_find(const psti_captures *captures, uint64_t id)
{
    psti_capture *captured = captures->first;
    while (captured && captured->id != id)
        captured = captured->next;
    return captured;
}

pst_status psti_capture_mark(pst_stream stream, pst_event event)
{
    PSTI_TRY(check_whole(stream->captured));
    event->capture_id = stream->captured->id;
    event->stream = stream;
    event->position = stream->position;
    return PST_OK;
}

pst_status psti_capture_join(const psti_captures *captures, pst_stream stream, pst_event event)
{
    psti_capture *captured = psti_capture_find(captures, event->capture_id);
    if (!captured || !stream || (stream->captured && stream->captured != captured)) {
        if (captured)
            psti_capture_break(captured, "pst_event_wait");
        if (stream && stream->captured)
            psti_capture_break(stream->captured, "pst_event_wait");
        PSTI_CHECK(captured, PST_E_CAPTURE, "the event was recorded in a capture that has ended");
        PSTI_CHECK(stream, PST_E_CAPTURE, "the default stream cannot join a capture");
        return PSTI_FAIL(PST_E_CAPTURE, "the event belongs to another capture");
    }
    PSTI_TRY(check_whole(captured));
    if (!stream->captured) {
        stream->captured = captured;
        stream->position = 0;
        stream->joined_at = 0;
        stream->next_captured = captured->streams;
        captured->streams = stream;
    }
    stream->position++; /* what was joined must be joined back with this stream */
    if (event->stream != stream && event->position > event->stream->joined_at)
        event->stream->joined_at = event->position;
    return PST_OK;
}

static bool all_joined(const psti_capture *captured)
{
    for (pst_stream s = captured->streams; s; s = s->next_captured)
        if (s != captured->origin && s->joined_at < s->position)
            return false;
    return true;
}

static void close_capture(psti_captures *captures, psti_capture *captured)
{
    psti_capture **link = &captures->first;
    while (*link != captured)
        link = &(*link)->next;
    *link = captured->next;
    link = &captures_here;
    while (*link != captured)
        link = &(*link)->next_here;
    *link = captured->next_here;
    for (pst_stream s = captured->streams; s; s = s->next_captured)
        s->captured = NULL;
}

static bool is_here(const psti_capture *captured)
{
    const psti_capture *at = captures_here;
    while (at && at != captured)
        at = at->next_here;
    return at != NULL;
}

pst_status psti_capture_end(psti_captures *captures, pst_stream stream, psti_node_list **list_out)
{
    psti_capture *captured = stream->captured;
    if (captured && (captured->origin != stream || !is_here(captured))) {
        psti_capture_break(captured, "pst_graph_end");
        PSTI_CHECK(captured->origin == stream, PST_E_CAPTURE,
                   "the stream is not the origin of a capture");
        return PSTI_FAIL(PST_E_CAPTURE, "another thread began the capture");
    }
    PSTI_CHECK(captured, PST_E_CAPTURE, "the stream is not the origin of a capture");
    const bool joined = all_joined(captured);
    const bool has_all = !captured->failed;
    const pst_status whole = check_whole(captured);
    close_capture(captures, captured);
    *list_out = captured->list;
    psti_free(captured);
    PSTI_TRY(whole);
    PSTI_CHECK(joined, PST_E_CAPTURE, "a stream that joined the capture was not joined back");
    PSTI_CHECK(has_all, PST_E_NOMEM, "the graph could not be recorded for want of memory");
    return PST_OK;
}
