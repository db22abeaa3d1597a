/* Captures and graphs of the lazy device: the host device keeps the list of calls, here are the edges
 * between them, and the launches. */
#include "tests/lazy/lazy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets of nodes ---- */

static void add(lazy_nodes *set, uint32_t node)
{
    for (size_t i = 0; i < set->num; i++)
        if (set->nodes[i] == node)
            return;
    set->nodes = lazy_grow(set->nodes, set->num, &set->capacity, sizeof(*set->nodes));
    set->nodes[set->num++] = node;
}

static void add_all(lazy_nodes *set, const lazy_nodes *others)
{
    for (size_t i = 0; i < others->num; i++)
        add(set, others->nodes[i]);
}

/* ---- captures ---- */

/* The capture that the stream is in; its place in an older one is forgotten. */
static lazy_capture *capture_of(lazy_device *lazy, lazy_queue *queue, pst_stream stream)
{
    const uint64_t id = stream->captured->id;
    lazy_capture *capture = lazy->captures;
    while (capture && capture->id != id)
        capture = capture->next;
    if (!capture) {
        capture = lazy_zeroed(1, sizeof(*capture));
        capture->id = id;
        capture->next = lazy->captures;
        lazy->captures = capture;
    }
    if (queue->capture_id != id)
        queue->place.num = 0;
    queue->capture_id = id;
    return capture;
}

void lazy_note_node(lazy_device *lazy, lazy_queue *queue, pst_stream stream)
{
    lazy_capture *capture = capture_of(lazy, queue, stream);
    const uint32_t node = (uint32_t)capture->num_nodes;
    capture->stream_of = lazy_grow(capture->stream_of, capture->num_nodes, &capture->nodes_capacity,
                                   sizeof(*capture->stream_of));
    capture->stream_of[capture->num_nodes++] = queue->index;
    for (size_t i = 0; i < queue->place.num; i++) {
        capture->edges = lazy_grow(capture->edges, capture->num_edges, &capture->edges_capacity,
                                   sizeof(*capture->edges));
        capture->edges[capture->num_edges++] = (lazy_edge){queue->place.nodes[i], node};
    }
    queue->place.num = 0;
    add(&queue->place, node);
}

void lazy_note_mark(lazy_device *lazy, lazy_queue *queue, pst_stream stream, lazy_event *event)
{
    capture_of(lazy, queue, stream);
    event->place.num = 0;
    add_all(&event->place, &queue->place);
}

void lazy_note_join(lazy_device *lazy, lazy_queue *queue, pst_stream stream,
                    const lazy_event *event)
{
    capture_of(lazy, queue, stream);
    add_all(&queue->place, &event->place);
}

static void free_capture(lazy_capture *capture)
{
    free(capture->edges);
    free(capture->stream_of);
    free(capture);
}

void lazy_drop_captures(lazy_device *lazy)
{
    psti_host_state *state = psti_host_state_of(lazy->device);
    lazy_capture **link = &lazy->captures;
    while (*link) {
        lazy_capture *capture = *link;
        psti_lock_take(&state->lock);
        const bool is_open = psti_capture_find(&state->captures, capture->id) != NULL;
        psti_lock_give(&state->lock);
        if (is_open) {
            link = &capture->next;
            continue;
        }
        *link = capture->next;
        free_capture(capture);
    }
}

/* ---- graphs ---- */

lazy_graph *lazy_graph_new(lazy_device *lazy, uint64_t capture_id, psti_node_list *list)
{
    lazy_graph *graph = lazy_zeroed(1, sizeof(*graph));
    lazy_capture *capture = lazy->captures;
    const size_t num = list->num_nodes;
    while (capture && capture->id != capture_id)
        capture = capture->next;
    graph->list = list;
    graph->first_after = lazy_zeroed(num + 2, sizeof(uint32_t));
    graph->num_before = lazy_zeroed(num + 1, sizeof(uint32_t));
    if (num == 0)
        return graph;
    if (!capture || capture->num_nodes != num) {
        lazy_report(lazy, "the lazy device missed a node of a capture");
        abort();
    }
    graph->stream_of = capture->stream_of;
    capture->stream_of = NULL;
    graph->after = lazy_zeroed(capture->num_edges + 1, sizeof(uint32_t));
    for (size_t i = 0; i < capture->num_edges; i++) {
        graph->first_after[capture->edges[i].from + 2]++;
        graph->num_before[capture->edges[i].to]++;
    }
    for (size_t i = 2; i < num + 2; i++)
        graph->first_after[i] += graph->first_after[i - 1];
    for (size_t i = 0; i < capture->num_edges; i++) /* first_after[n + 1] walks through n's */
        graph->after[graph->first_after[capture->edges[i].from + 1]++] = capture->edges[i].to;
    return graph;
}

void lazy_graph_free(lazy_graph *graph)
{
    lazy_mark_release(graph->last_launch);
    free(graph->first_after);
    free(graph->after);
    free(graph->num_before);
    free(graph->stream_of);
    free(graph);
}

/* ---- launches ---- */

static lazy_event *event_of(const lazy_device *lazy, pst_event event)
{
    if (psti_slots_has(&psti_host_state_of(lazy->device)->events, event))
        return event->above;
    lazy_report(lazy, "a graph was launched that records or awaits an event that was destroyed");
    return NULL;
}

lazy_instance *lazy_instance_new(lazy_device *lazy, const pst_graph *handle, uint32_t stream_index)
{
    const lazy_graph *graph = handle->state;
    const psti_node_list *list = graph->list;
    lazy_instance *made = lazy_zeroed(1, sizeof(*made));
    made->handle = handle;
    made->graph = graph;
    made->num_left = list->num_nodes;
    made->num_before = lazy_zeroed(list->num_nodes + 1, sizeof(uint32_t));
    made->ready = lazy_zeroed(list->num_nodes + 1, sizeof(uint32_t));
    made->marks = lazy_zeroed(list->num_nodes + 1, sizeof(lazy_mark *));
    memcpy(made->num_before, graph->num_before, list->num_nodes * sizeof(uint32_t));
    for (uint32_t i = 0; i < list->num_nodes; i++) {
        if (made->num_before[i] == 0)
            made->ready[made->num_ready++] = i;
        if (list->nodes[i].kind != PSTI_NODE_WAIT)
            continue;
        const lazy_event *event = event_of(lazy, list->nodes[i].event);
        made->marks[i] = event ? lazy_mark_retain(event->last) : NULL;
    }
    for (size_t i = 0; i < list->num_nodes; i++) {
        lazy_event *event = NULL;
        if (list->nodes[i].kind == PSTI_NODE_RECORD)
            event = event_of(lazy, list->nodes[i].event);
        if (!event)
            continue;
        lazy_mark_release(event->last);
        event->last = lazy_mark_new(stream_index, 2);
        made->marks[i] = event->last;
    }
    return made;
}

void lazy_instance_free(lazy_instance *instance)
{
    for (size_t i = 0; i < instance->graph->list->num_nodes; i++)
        lazy_mark_release(instance->marks[i]);
    free(instance->num_before);
    free(instance->ready);
    free(instance->marks);
    free(instance);
}

int64_t lazy_instance_pick(const lazy_instance *instance, uint64_t random)
{
    const psti_node *nodes = instance->graph->list->nodes;
    for (size_t i = 0; i < instance->num_ready; i++) {
        const size_t at = (random + i) % instance->num_ready;
        const uint32_t node = instance->ready[at];
        const lazy_mark *mark = instance->marks[node];
        if (nodes[node].kind != PSTI_NODE_WAIT || !mark || mark->is_done)
            return (int64_t)at;
    }
    return -1;
}

uint32_t lazy_instance_done(lazy_instance *instance, size_t at)
{
    const lazy_graph *graph = instance->graph;
    const uint32_t node = instance->ready[at];
    lazy_mark *mark = instance->marks[node];
    if (mark && graph->list->nodes[node].kind == PSTI_NODE_RECORD)
        mark->is_done = true;
    instance->ready[at] = instance->ready[--instance->num_ready];
    instance->num_left--;
    for (uint32_t i = graph->first_after[node]; i < graph->first_after[node + 1]; i++)
        if (--instance->num_before[graph->after[i]] == 0)
            instance->ready[instance->num_ready++] = graph->after[i];
    return node;
}
