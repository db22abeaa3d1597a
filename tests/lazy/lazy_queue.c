/* Queues of the lazy device, and whose turn it is. */
#include "tests/lazy/lazy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/random.h"

/* ---- memory ---- */

void *lazy_zeroed(size_t count, size_t bytes)
{
    void *made = calloc(count, bytes);
    if (!made)
        abort();
    return made;
}

void *lazy_grow(void *array, size_t num, size_t *capacity, size_t bytes)
{
    if (num < *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : 8;
    void *grown = realloc(array, *capacity * bytes);
    if (!grown)
        abort();
    return grown;
}

lazy_mark *lazy_mark_new(uint32_t stream_index, uint32_t refs)
{
    lazy_mark *mark = lazy_zeroed(1, sizeof(*mark));
    mark->refs = refs;
    mark->stream_index = stream_index;
    return mark;
}

lazy_mark *lazy_mark_retain(lazy_mark *mark)
{
    if (mark)
        mark->refs++;
    return mark;
}

void lazy_mark_release(lazy_mark *mark)
{
    if (mark && --mark->refs == 0)
        free(mark);
}

/* ---- what is told ---- */

uint64_t lazy_random(lazy_device *lazy, uint64_t limit)
{
    return random_below(&lazy->random, limit);
}

void lazy_see(const lazy_device *lazy, const lazy_seen *seen)
{
    if (lazy->options.on_node)
        lazy->options.on_node(lazy->options.context, seen);
}

void lazy_see_node(lazy_seen *seen, const psti_node *node)
{
    static const lazy_kind kinds[] = {
        [PSTI_NODE_LAUNCH] = LAZY_LAUNCH, [PSTI_NODE_CALL] = LAZY_CALL,
        [PSTI_NODE_COPY] = LAZY_COPY,     [PSTI_NODE_FILL] = LAZY_FILL,
        [PSTI_NODE_RECORD] = LAZY_RECORD, [PSTI_NODE_WAIT] = LAZY_WAIT};
    seen->kind = kinds[node->kind];
    seen->op = node->op;
    seen->args = node->args;
    seen->event = node->event;
    seen->to = node->to;
    seen->from = node->from;
    seen->bytes = node->bytes;
}

void lazy_report(const lazy_device *lazy, const char *text)
{
    if (lazy->options.report)
        lazy->options.report(lazy->options.context, text);
    else
        psti_test_fail(__FILE__, __LINE__, "%s", text);
}

/* ---- queues ---- */

void lazy_push(lazy_device *lazy, lazy_queue *queue, const lazy_work *work)
{
    lazy_work *pushed = lazy_zeroed(1, sizeof(*pushed));
    *pushed = *work;
    pushed->number = lazy->calls;
    pushed->next = NULL;
    if (queue->first)
        queue->last->next = pushed;
    else
        queue->first = pushed;
    queue->last = pushed;
    if (lazy->options.eager)
        lazy_until(lazy, NULL, NULL);
}

static void pop(lazy_queue *queue)
{
    lazy_work *work = queue->first;
    queue->first = work->next;
    lazy_mark_release(work->mark);
    lazy_mark_release(work->awaited);
    if (work->instance)
        lazy_instance_free(work->instance);
    if (!work->instance)
        free(work->node.args);
    free(work);
}

void lazy_free_queues(lazy_device *lazy, bool all)
{
    lazy_queue **link = &lazy->queues;
    while (*link) {
        lazy_queue *queue = *link;
        if (!all && (!queue->is_closed || queue->first)) {
            link = &queue->next;
            continue;
        }
        while (queue->first)
            pop(queue);
        *link = queue->next;
        free(queue->place.nodes);
        if (queue != &lazy->null_queue)
            free(queue);
    }
}

/* ---- whose turn it is ---- */

static bool can_go_on(const lazy_queue *queue)
{
    const lazy_work *work = queue->first;
    if (!work || queue->is_held || (work->awaited && !work->awaited->is_done))
        return false;
    return !work->instance || !work->instance->has_begun || work->instance->num_left == 0 ||
           lazy_instance_pick(work->instance, 0) >= 0;
}

/* Now and then another stream becomes much faster than the others, so that each gets far ahead. */
static void vary_weights(lazy_device *lazy)
{
    static const uint32_t weights[] = {1, 1, 8, 64, 4096};
    for (lazy_queue *queue = lazy->queues; queue; queue = queue->next)
        queue->weight = weights[lazy_random(lazy, 5)];
}

static lazy_queue *draw(lazy_device *lazy)
{
    uint64_t sum = 0;
    if (lazy_random(lazy, 16) == 0)
        vary_weights(lazy);
    for (const lazy_queue *queue = lazy->queues; queue; queue = queue->next)
        sum += can_go_on(queue) ? queue->weight : 0;
    if (sum == 0)
        return NULL;
    uint64_t left = lazy_random(lazy, sum);
    lazy_queue *queue = lazy->queues;
    for (;; queue = queue->next) {
        const uint64_t mine = can_go_on(queue) ? queue->weight : 0;
        if (left < mine)
            return queue;
        left -= mine;
    }
}

/* ---- running ---- */

/* A record of an event that still exists: its time is noted. */
static bool is_alive(const lazy_device *lazy, const psti_node *node)
{
    return node->kind == PSTI_NODE_RECORD &&
           psti_slots_has(&psti_host_state_of(lazy->device)->events, node->event);
}

static void run_what(const lazy_device *lazy, const psti_node *node)
{
    if (psti_host_run(lazy->device, node) != PST_OK)
        lazy_report(lazy, pst_last_message());
}

static void run_node(lazy_device *lazy, lazy_queue *queue)
{
    lazy_work *work = queue->first;
    lazy_seen seen = {.runs = true,
                      .number = work->number,
                      .stream = queue->stream,
                      .stream_index = queue->index,
                      .external = work->is_external};
    lazy_see_node(&seen, &work->node);
    lazy_see(lazy, &seen);
    if (work->node.kind < PSTI_NODE_RECORD || is_alive(lazy, &work->node))
        run_what(lazy, &work->node);
    if (work->mark)
        work->mark->is_done = true;
    pop(queue);
}

static void run_graph(lazy_device *lazy, lazy_queue *queue)
{
    lazy_work *work = queue->first;
    lazy_instance *instance = work->instance;
    const psti_node *nodes = instance->graph->list->nodes;
    lazy_seen seen = {.runs = true,
                      .number = work->number,
                      .stream = queue->stream,
                      .stream_index = queue->index,
                      .graph = instance->handle};
    if (!instance->has_begun) {
        instance->has_begun = true;
        seen.kind = LAZY_GRAPH_BEGIN;
        lazy_see(lazy, &seen);
    } else {
        const int64_t at = lazy_instance_pick(instance, lazy_random(lazy, instance->num_ready));
        const uint32_t node = instance->ready[at];
        lazy_see_node(&seen, &nodes[node]);
        seen.node = node;
        seen.captured_on = instance->graph->stream_of[node];
        seen.external = seen.kind == LAZY_RECORD || seen.kind == LAZY_WAIT;
        lazy_see(lazy, &seen);
        if (nodes[node].kind < PSTI_NODE_RECORD || is_alive(lazy, &nodes[node]))
            run_what(lazy, &nodes[node]);
        lazy_instance_done(instance, (size_t)at);
    }
    if (instance->num_left > 0)
        return;
    lazy_see(lazy, &(lazy_seen){.runs = true,
                                .kind = LAZY_GRAPH_END,
                                .number = work->number,
                                .stream = queue->stream,
                                .stream_index = queue->index,
                                .graph = instance->handle});
    work->mark->is_done = true;
    pop(queue);
}

bool lazy_step(lazy_device *lazy)
{
    lazy_queue *queue = draw(lazy);
    if (!queue)
        return false;
    if (queue->first->instance)
        run_graph(lazy, queue);
    else
        run_node(lazy, queue);
    if (queue->is_closed && !queue->first)
        lazy_free_queues(lazy, false);
    return true;
}

/* "stream 2 is held back; stream 0 waits for a record in stream 2" */
static pst_status say_who_waits(const lazy_device *lazy)
{
    char text[400] = "no stream can go on:";
    for (const lazy_queue *queue = lazy->queues; queue; queue = queue->next) {
        const lazy_work *work = queue->first;
        const size_t length = strlen(text);
        if (!work)
            continue;
        if (queue->is_held)
            snprintf(text + length, sizeof(text) - length, " stream %u is held back;",
                     queue->index);
        else if (work->awaited && !work->awaited->is_done)
            snprintf(text + length, sizeof(text) - length,
                     " stream %u waits for a record or launch in stream %u;", queue->index,
                     work->awaited->stream_index);
        else
            snprintf(text + length, sizeof(text) - length, " a graph in stream %u waits;",
                     queue->index);
    }
    text[strlen(text) - 1] = '\0';
    lazy_report(lazy, text);
    return PSTI_FAIL(PST_E_CUDA, "%s", text);
}

static bool is_empty(const lazy_device *lazy)
{
    for (const lazy_queue *queue = lazy->queues; queue; queue = queue->next)
        if (queue->first)
            return false;
    return true;
}

pst_status lazy_until(lazy_device *lazy, const lazy_queue *queue, const lazy_mark *mark)
{
    while (queue ? queue->first != NULL : mark ? !mark->is_done : !is_empty(lazy))
        if (!lazy_step(lazy))
            return say_who_waits(lazy);
    return PST_OK;
}
