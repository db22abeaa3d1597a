/* When a stream may reuse what another used: vector clocks (Fidge 1988, Mattern 1989) over marks.
 * A clock counts rows: clock[r][u] = n says that all that was enqueued on u by the first n rows is
 * over before anything that r gets from now on. */
#include "host/trace/trace.h"

#include <inttypes.h>
#include <string.h>

enum { FIRST_EVENTS = 16 };

typedef struct freed {
    uint64_t tensor, row; /* freed by this row */
} freed;

/* What was freed that a stream had used, in order, and how far each other stream has waited. */
typedef struct queue {
    freed *items;
    uint64_t num, capacity;
    uint64_t next[PST_TRACE_MAX_STREAMS];
} queue;

typedef struct clocks {
    pst_trace *trace;
    const pst_trace_config *config;
    const psti_map *ids;
    uint32_t num_streams;
    uint64_t of[PST_TRACE_MAX_STREAMS][PST_TRACE_MAX_STREAMS];
    queue *queues;    /* [num_streams] */
    uint64_t *users;  /* [num_tensors]: mask of streams */
    uint8_t *missing; /* [num_tensors][num_streams]: waits that it lacks */
    uint64_t *events; /* [num_events][num_streams] */
    uint64_t num_events, event_capacity;
    psti_map event_ids;
    uint64_t row, instant; /* of the row in work; requests before it */
} clocks;

static uint32_t dense(const clocks *self, uint32_t stream)
{
    return psti_stream_number(&self->trace->streams, stream);
}

/* Stream r now knows that the first `rows` rows of stream u are over. */
static void learn(clocks *self, uint32_t r, uint32_t u, uint64_t rows)
{
    queue *line = &self->queues[u];
    if (r == u || rows <= self->of[r][u])
        return;
    self->of[r][u] = rows;
    while (line->next[r] < line->num && line->items[line->next[r]].row < rows) {
        const uint64_t at = line->items[line->next[r]++].tensor * self->num_streams + r;
        if (--self->missing[at] == 0)
            self->trace->releases[at] = self->instant;
    }
}

static pst_status take_free(clocks *self, const pst_trace_request *row)
{
    const uint64_t tensor = psti_map_get(self->ids, row->id);
    const uint64_t users = self->users[tensor] |= UINT64_C(1) << dense(self, row->stream);
    for (uint32_t u = 0; u < self->num_streams; u++) {
        queue *line = &self->queues[u];
        if ((users >> u & 1) == 0)
            continue;
        PSTI_TRY(
            psti_grow((void **)&line->items, &line->capacity, line->num + 1, sizeof(*line->items)));
        line->items[line->num++] = (freed){tensor, self->row};
    }
    for (uint32_t r = 0; r < self->num_streams; r++) {
        const uint64_t at = tensor * self->num_streams + r;
        const uint64_t others = users & ~(UINT64_C(1) << r);
        self->missing[at] = (uint8_t)__builtin_popcountll(others);
        if (others == 0)
            self->trace->releases[at] = self->trace->tensors[tensor].end;
    }
    return PST_OK;
}

static pst_status take_record(clocks *self, const pst_trace_request *row)
{
    const uint32_t stream = dense(self, row->stream);
    uint64_t event = psti_map_get(&self->event_ids, row->id);
    if (event == PSTI_MAP_NONE) {
        event = self->num_events;
        PSTI_TRY(psti_map_set(&self->event_ids, row->id, event));
        PSTI_TRY(psti_grow((void **)&self->events, &self->event_capacity,
                           (event + 1) * self->num_streams, sizeof(*self->events)));
        self->num_events++;
    }
    uint64_t *clock = self->events + event * self->num_streams;
    memcpy(clock, self->of[stream], self->num_streams * sizeof(*clock));
    clock[stream] = self->row;
    return PST_OK;
}

static pst_status take_wait(clocks *self, const pst_trace_request *row)
{
    const uint64_t event = psti_map_get(&self->event_ids, row->id);
    if (event == PSTI_MAP_NONE && self->config->has_iteration)
        return PST_OK; /* recorded before the iteration */
    if (event == PSTI_MAP_NONE)
        return PSTI_TRACE_BAD(self->config, row->line, "id",
                              "%" PRIu64 ": wait before record: allowed is the id of an event that "
                              "was recorded",
                              row->id);
    for (uint32_t u = 0; u < self->num_streams; u++)
        learn(self, dense(self, row->stream), u, self->events[event * self->num_streams + u]);
    return PST_OK;
}

static pst_status take_mark(clocks *self, const pst_trace_request *row)
{
    switch (row->tag) {
    case PST_TAG_RECORD:
        return take_record(self, row);
    case PST_TAG_WAIT:
        return take_wait(self, row);
    case PST_TAG_USE:
        self->users[psti_map_get(self->ids, row->id)] |= UINT64_C(1) << dense(self, row->stream);
        return PST_OK;
    case PST_TAG_SYNC:
        for (uint32_t r = 0; r < self->num_streams; r++)
            for (uint32_t u = 0; u < self->num_streams; u++)
                learn(self, r, u, self->row);
        return PST_OK;
    default:
        return PST_OK;
    }
}

static pst_status take_rows(clocks *self)
{
    psti_rows_reader reader = {.of = &self->trace->rows};
    const pst_trace_request *row = &reader.row;
    uint64_t tensor = 0;
    for (; psti_rows_next(&reader); self->row++) {
        if (row->op == PST_TRACE_MALLOC)
            self->users[tensor++] = UINT64_C(1) << dense(self, row->stream);
        else
            PSTI_TRY(row->op == PST_TRACE_FREE ? take_free(self, row) : take_mark(self, row));
        self->instant += row->op != PST_TRACE_MARK;
    }
    return PST_OK;
}

static pst_status open_clocks(clocks *self)
{
    pst_trace *trace = self->trace;
    const uint64_t num_words = trace->num_tensors * self->num_streams; /* below 2^38 */
    self->queues = psti_calloc(self->num_streams, sizeof(*self->queues));
    self->users = psti_calloc((size_t)trace->num_tensors, sizeof(*self->users));
    self->missing = psti_calloc((size_t)num_words, 1);
    trace->releases = psti_calloc((size_t)num_words, sizeof(*trace->releases));
    self->event_capacity = FIRST_EVENTS * self->num_streams;
    self->events = psti_calloc((size_t)self->event_capacity, sizeof(*self->events));
    PSTI_CHECK(self->queues && self->users && self->missing && trace->releases && self->events,
               PST_E_NOMEM, "out of memory for the releases of %" PRIu64 " tensors",
               trace->num_tensors);
    for (uint64_t i = 0; i < num_words; i++)
        trace->releases[i] = trace->num_requests;
    return PST_OK;
}

static void close_clocks(clocks *self)
{
    for (uint32_t u = 0; self->queues != NULL && u < self->num_streams; u++)
        psti_free(self->queues[u].items);
    psti_free(self->queues);
    psti_free(self->users);
    psti_free(self->missing);
    psti_free(self->events);
    psti_map_free(&self->event_ids);
}

pst_status psti_trace_clocks(pst_trace *trace, const pst_trace_config *config, const psti_map *ids)
{
    clocks self = {.trace = trace, .config = config, .ids = ids, .num_streams = trace->streams.num};
    if (trace->streams.num == 1 && trace->rows.num == trace->num_requests)
        return PST_OK; /* no mark to check */
    pst_status status = open_clocks(&self);
    if (status == PST_OK)
        status = take_rows(&self);
    close_clocks(&self);
    if (trace->streams.num == 1) {
        psti_free(trace->releases);
        trace->releases = NULL;
    }
    return status;
}
