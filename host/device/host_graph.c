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

pst_status psti_capture_append(pst_stream stream, const psti_node *node)
{
    psti_capture *captured = stream->captured;
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
    PSTI_CHECK(!stream->captured, PST_E_CAPTURE, "the stream is being captured already");
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

pst_status psti_capture_join(const psti_captures *captures, pst_stream stream, pst_event event)
{
    psti_capture *captured = psti_capture_find(captures, event->capture_id);
    PSTI_CHECK(captured, PST_E_CAPTURE, "the event was recorded in a capture that has ended");
    PSTI_CHECK(stream, PST_E_CAPTURE, "the default stream cannot join a capture");
    PSTI_CHECK(!stream->captured || stream->captured == captured, PST_E_CAPTURE,
               "the event belongs to another capture");
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
    for (pst_stream s = captured->streams; s; s = s->next_captured)
        s->captured = NULL;
}

pst_status psti_capture_end(psti_captures *captures, pst_stream stream, psti_node_list **list_out)
{
    psti_capture *captured = stream->captured;
    PSTI_CHECK(captured && captured->origin == stream, PST_E_CAPTURE,
               "the stream is not the origin of a capture");
    const bool joined = all_joined(captured);
    const bool whole = !captured->failed;
    close_capture(captures, captured);
    *list_out = captured->list;
    psti_free(captured);
    PSTI_CHECK(joined, PST_E_CAPTURE, "a stream that joined the capture was not joined back");
    PSTI_CHECK(whole, PST_E_NOMEM, "the graph could not be recorded for want of memory");
    return PST_OK;
}
