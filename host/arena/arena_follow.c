/* Which malloc of the plan a request is: follows the plan, and finds back to it after a deviation. */
#include <inttypes.h>
#include <stdio.h>

#include "host/arena/arena.h"

/* ---- streams ---- */

uint32_t psti_arena_stream(pst_arena *arena, pst_stream stream)
{
    if (arena->num_bound && arena->bound[arena->last_bound].stream == stream)
        return arena->last_bound;
    for (uint32_t i = 0; i < arena->num_bound; i++)
        if (arena->bound[i].stream == stream)
            return arena->last_bound = i;
    if (arena->num_bound == PST_ARENA_MAX_STREAMS) {
        arena->has_more_streams = true;
        return PSTI_NO_INDEX;
    }
    arena->bound[arena->num_bound] = (psti_bound){.stream = stream, .planned = PSTI_NO_INDEX};
    return arena->last_bound = arena->num_bound++;
}

void psti_arena_bind(pst_arena *arena, uint32_t bound, uint32_t planned)
{
    arena->bound[bound].planned = planned;
    arena->bound_set |= UINT64_C(1) << planned;
}

/* ---- what went wrong ---- */

static const char *const names[PST_NUM_DEVIATIONS] = {
    "size", "stream", "extra", "order", "missing", "blocked", "nomem", "late", "early", "use"};

const char *pst_deviation_name(pst_deviation deviation)
{
    return deviation >= 0 && deviation < PST_NUM_DEVIATIONS ? names[deviation] : "unknown";
}

static void describe(const pst_arena *arena, const psti_request *request, char *out, size_t bytes)
{
    const uint32_t planned =
        request->stream == PSTI_NO_INDEX ? PSTI_NO_INDEX : arena->bound[request->stream].planned;
    if (planned == PSTI_NO_INDEX)
        snprintf(out, bytes, "%" PRIu64 " bytes on a stream of its own", request->bytes);
    else
        snprintf(out, bytes, "%" PRIu64 " bytes on stream %u", request->bytes,
                 arena->stream_names[planned]);
}

void psti_arena_deviates(pst_arena *arena, pst_deviation kind, uint32_t entry,
                         const psti_request *request)
{
    char expected[80] = "nothing";
    char got[80] = "";
    arena->stats.deviations[kind]++;
    char *text = arena->stats.first_deviation;
    if (text[0])
        return;
    if (entry != PSTI_NO_INDEX)
        snprintf(expected, sizeof(expected), "tensor %" PRIu64 " of %" PRIu64 " bytes on stream %u",
                 arena->ids[entry], arena->entries[entry].bytes,
                 arena->stream_names[arena->entries[entry].stream]);
    if (request)
        describe(arena, request, got, sizeof(got));
    snprintf(text, sizeof(arena->stats.first_deviation),
             "%s: iteration %" PRIu64 ", request %" PRIu64 ": %s %s%s%s", names[kind],
             arena->stats.iterations, arena->num_requests, request ? "expected" : "at", expected,
             request ? ", got " : "", got);
}

/* ---- following ---- */

/* Two streams, neither of them bound, are taken for the same one. */
static bool fits(const pst_arena *arena, uint32_t index, const psti_request *request)
{
    const psti_entry *entry = &arena->entries[index];
    if (entry->bytes != request->bytes || request->stream == PSTI_NO_INDEX)
        return false;
    const uint32_t planned = arena->bound[request->stream].planned;
    return planned == entry->stream ||
           (planned == PSTI_NO_INDEX && !(arena->bound_set >> entry->stream & 1));
}

/* How many of the last requests are the entries up to `index`, which fits the last one. */
static uint32_t evidence(const pst_arena *arena, uint32_t index)
{
    const uint64_t most = index - arena->begin + 1;
    uint32_t count = 1;
    while (count < PSTI_HISTORY && count < most && count < arena->num_requests &&
           fits(arena, index - count,
                &arena->history[(arena->num_requests - 1 - count) % PSTI_HISTORY]))
        count++;
    return count;
}

typedef struct candidates {
    uint32_t best;     /* with the most evidence, the nearest of those */
    uint32_t evidence; /* of best */
    uint32_t skipped;  /* the nearest that was skipped before */
    uint32_t ahead;    /* the nearest ahead */
    uint32_t num_ahead;
} candidates;

static void consider(const pst_arena *arena, uint32_t index, candidates *found)
{
    const uint32_t count = evidence(arena, index);
    if (count > found->evidence) {
        found->evidence = count;
        found->best = index;
    }
    if (index < arena->position) {
        if (found->skipped == PSTI_NO_INDEX)
            found->skipped = index;
    } else if (found->num_ahead++ == 0) {
        found->ahead = index;
    }
}

/* An entry around the one expected, as far as one stands out. In this order: two requests in a row
 * that fit; a planned request that was skipped before and comes late; the one that follows when
 * every request since the last that fitted stood for a planned one; the only one ahead. */
static uint32_t look_around(const pst_arena *arena, const psti_request *request)
{
    candidates found = {.best = PSTI_NO_INDEX, .skipped = PSTI_NO_INDEX, .ahead = PSTI_NO_INDEX};
    const uint32_t position = arena->position;
    for (uint32_t d = 1; d <= arena->config.lookahead; d++) {
        if (d < arena->end - position && fits(arena, position + d, request))
            consider(arena, position + d, &found);
        if (d <= position - arena->begin && fits(arena, position - d, request) &&
            arena->entries[position - d].came != arena->cycle)
            consider(arena, position - d, &found);
    }
    if (found.evidence >= 2)
        return found.best;
    if (found.skipped != PSTI_NO_INDEX)
        return found.skipped;
    if (arena->num_missed && arena->num_missed < arena->end - position &&
        fits(arena, position + arena->num_missed, request))
        return position + arena->num_missed;
    return found.num_ahead == 1 ? found.ahead : PSTI_NO_INDEX;
}

static void take(pst_arena *arena, uint32_t index, const psti_request *request)
{
    psti_entry *entry = &arena->entries[index];
    if (arena->bound[request->stream].planned == PSTI_NO_INDEX)
        psti_arena_bind(arena, request->stream, entry->stream);
    entry->came = arena->cycle;
    arena->num_came++;
    if (index < arena->position)
        return;
    arena->position = index + 1;
    arena->num_missed = 0;
}

/* No entry: how it differs from the one expected. */
static void miss(pst_arena *arena, const psti_request *request)
{
    const uint32_t next = arena->position < arena->end ? arena->position : PSTI_NO_INDEX;
    pst_deviation kind = PST_DEVIATION_EXTRA;
    if (next != PSTI_NO_INDEX)
        kind = arena->entries[next].bytes == request->bytes ? PST_DEVIATION_STREAM
                                                            : PST_DEVIATION_SIZE;
    arena->num_missed++;
    psti_arena_deviates(arena, kind, next, request);
}

uint32_t psti_arena_follow(pst_arena *arena, const psti_request *request)
{
    arena->history[arena->num_requests++ % PSTI_HISTORY] = *request;
    if (arena->position < arena->end && fits(arena, arena->position, request)) {
        take(arena, arena->position, request);
        return arena->position - 1;
    }
    const uint32_t index = look_around(arena, request);
    if (index == PSTI_NO_INDEX) {
        miss(arena, request);
        return PSTI_NO_INDEX;
    }
    /* where each missed request stood for a planned one, they have been counted */
    if (index != arena->position + arena->num_missed) {
        psti_arena_deviates(arena, PST_DEVIATION_ORDER,
                            arena->position < arena->end ? arena->position : PSTI_NO_INDEX,
                            request);
        arena->in_step = false;
    }
    take(arena, index, request);
    return index;
}

void psti_arena_go_on(pst_arena *arena)
{
    const uint32_t missing = arena->end - arena->begin - arena->num_came;
    /* who calls before the first request has missed nothing */
    const bool is_first = arena->stats.iterations == 0 && arena->marks[0] == 0;
    if (missing && !(is_first && arena->num_requests == 0)) {
        uint32_t first = arena->begin;
        while (arena->entries[first].came == arena->cycle)
            first++;
        psti_arena_deviates(arena, PST_DEVIATION_MISSING, first, NULL);
        arena->stats.deviations[PST_DEVIATION_MISSING] += missing - 1;
    }
    if (arena->next_mark == 0)
        arena->cycle++;
    arena->begin = arena->marks[arena->next_mark++];
    arena->end =
        arena->next_mark < arena->num_marks ? arena->marks[arena->next_mark] : arena->num_entries;
    if (arena->next_mark == arena->num_marks)
        arena->next_mark = 0;
    arena->position = arena->begin;
    arena->num_came = 0;
    arena->num_missed = 0;
    arena->num_requests = 0;
    arena->in_step = true;
    arena->stats.iterations++;
}
