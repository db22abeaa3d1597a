/* Which hook the schedule wants next, and the edges between the caller's streams. */
#include "host/scheduler/scheduler.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- words ---- */

const char *psti_key_text(const pst_scheduler *self, const pst_visit_key *key,
                          char text[PSTI_KEY_TEXT_BYTES])
{
    char chunk[32] = "";
    if (self->num_chunks > 1 || key->chunk > 0)
        snprintf(chunk, sizeof(chunk), "chunk %u, ", key->chunk);
    const bool is_known = key->kind >= PST_PASS_FORWARD && key->kind <= PST_PASS_BACKWARD_WEIGHT;
    snprintf(text, PSTI_KEY_TEXT_BYTES, "%s of %slayer %u, micro-batch %u",
             is_known ? psti_pass_kind_name(key->kind) : "a pass of no kind", chunk, key->layer,
             key->micro_batch);
    return text;
}

static const char *schedule_text(const pst_scheduler *self, char text[PSTI_KEY_TEXT_BYTES])
{
    static const char *const names[] = {"1F1B",       "interleaved", "GPipe", "GPipe reversed",
                                        "ZB-H1",      "ZB-H2",       "ZB-V",  "DualPipe",
                                        "DualPipe-V", "a list"};
    const pst_schedule_config *config = &self->now.schedule->config;
    snprintf(text, PSTI_KEY_TEXT_BYTES, "%s, %u micro-batches",
             self->was_recorded ? "recorded order" : names[config->kind],
             config->num_micro_batches);
    return text;
}

static pst_visit_key key_of(const pst_scheduler *self, uint32_t visit)
{
    const psti_visit *planned = &self->now.program->visits[visit];
    const pst_pass *pass = &self->now.schedule->passes[planned->pass];
    return (pst_visit_key){.kind = pass->kind,
                           .chunk = pass->chunk,
                           .layer = planned->layer,
                           .micro_batch = pass->micro_batch};
}

static bool matches(const pst_scheduler *self, const psti_lane *lane, const pst_visit_key *key)
{
    if (lane->visit == lane->end)
        return false;
    const psti_visit *planned = &self->now.program->visits[lane->visit];
    const pst_pass *pass = &self->now.schedule->passes[planned->pass];
    return planned->layer == key->layer && pass->micro_batch == key->micro_batch &&
           pass->chunk == key->chunk && pass->kind == key->kind;
}

/* ORDER; the visit that is next is that of the first lane that is not done. */
__attribute__((noinline)) static pst_status refuse(const pst_scheduler *self,
                                                   const pst_visit_key *key, const char *what)
{
    char said[PSTI_KEY_TEXT_BYTES], wanted[PSTI_KEY_TEXT_BYTES], schedule[PSTI_KEY_TEXT_BYTES];
    const psti_lane *next = NULL;
    for (uint32_t i = 0; i < self->num_lanes && !next; i++)
        if (self->lanes[i].visit != self->lanes[i].end)
            next = &self->lanes[i];
    psti_key_text(self, key, said);
    schedule_text(self, schedule);
    if (!next)
        return PSTI_FAIL(PST_E_ORDER, "%s%s: the schedule has no more visits; %s", what, said,
                         schedule);
    const pst_visit_key planned = key_of(self, next->visit);
    return PSTI_FAIL(PST_E_ORDER, "%s%s: the schedule's visit %u is %s%s; %s", what, said,
                     next->visit, psti_key_text(self, &planned, wanted),
                     next->is_open ? ", which has begun" : "", schedule);
}

/* ---- passes ---- */

static void open_lane(const pst_scheduler *self, uint64_t pass, psti_lane *lane)
{
    const psti_program *program = self->now.program;
    const uint32_t first = program->first_visit[pass];
    const uint32_t chunk = self->now.schedule->passes[pass].chunk;
    *lane = (psti_lane){.visit = first, .end = first + program->num_layers[chunk]};
}

/* From self->pass on, the next pass or pair that has visits. */
static void open_lanes(pst_scheduler *self)
{
    const pst_schedule *schedule = self->now.schedule;
    bool is_empty = true;
    self->num_lanes = 0;
    self->is_marked = false;
    while (self->pass < schedule->num_passes && is_empty) {
        self->num_lanes = schedule->passes[self->pass].pairs ? 2 : 1;
        for (uint32_t i = 0; i < self->num_lanes; i++) {
            open_lane(self, self->pass + i, &self->lanes[i]);
            is_empty &= self->lanes[i].visit == self->lanes[i].end;
        }
        if (is_empty) {
            self->pass += self->num_lanes;
            self->num_lanes = 0;
        }
    }
}

void psti_cursor_begin_step(pst_scheduler *self, pst_stream stream)
{
    self->before[0] = stream;
    self->num_before = 1;
    self->pass = 0;
    open_lanes(self);
}

void psti_cursor_advance(pst_scheduler *self, psti_lane *lane)
{
    lane->is_open = false;
    if (++lane->visit != lane->end)
        return;
    uint32_t num = 0;
    pst_stream streams[PSTI_MAX_LANES];
    for (uint32_t i = 0; i < self->num_lanes; i++) {
        const psti_lane *each = &self->lanes[i];
        if (each->visit != each->end)
            return;
        if (each->has_stream && (num == 0 || streams[0] != each->stream))
            streams[num++] = each->stream;
    }
    for (uint32_t i = 0; i < num; i++)
        self->before[i] = streams[i];
    self->num_before = num;
    self->pass += self->num_lanes;
    open_lanes(self);
}

pst_status psti_cursor_check_done(const pst_scheduler *self)
{
    char wanted[PSTI_KEY_TEXT_BYTES], schedule[PSTI_KEY_TEXT_BYTES];
    for (uint32_t i = 0; i < self->num_lanes; i++) {
        const psti_lane *lane = &self->lanes[i];
        if (lane->visit == lane->end)
            continue;
        const pst_visit_key key = key_of(self, lane->visit);
        return PSTI_FAIL(PST_E_ORDER, "end of the step: the schedule's visit %u, %s, %s; %s",
                         lane->visit, psti_key_text(self, &key, wanted),
                         lane->is_open ? "has not ended" : "is missing",
                         schedule_text(self, schedule));
    }
    return PST_OK;
}

/* ---- hooks ---- */

pst_status psti_cursor_find_begin(pst_scheduler *self, const pst_visit_key *key,
                                  psti_lane **lane_out)
{
    for (uint32_t i = 0; i < self->num_lanes; i++)
        if (matches(self, &self->lanes[i], key)) {
            if (self->lanes[i].is_open)
                break;
            *lane_out = &self->lanes[i];
            return PST_OK;
        }
    return refuse(self, key, "");
}

pst_status psti_cursor_find_open(pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                                 const char *what, psti_lane **lane_out)
{
    char said[PSTI_KEY_TEXT_BYTES];
    for (uint32_t i = 0; i < self->num_lanes; i++) {
        psti_lane *lane = &self->lanes[i];
        if (!matches(self, lane, key) || !lane->is_open)
            continue;
        PSTI_CHECK(!lane->is_recomputing, PST_E_ORDER,
                   "%s%s: its layer is being computed again: the end of that forward is missing",
                   what, psti_key_text(self, key, said));
        PSTI_CHECK(lane->stream == stream, PST_E_ORDER, "%s%s: it began on another stream", what,
                   psti_key_text(self, key, said));
        *lane_out = lane;
        return PST_OK;
    }
    return refuse(self, key, what);
}

psti_lane *psti_cursor_recomputes(pst_scheduler *self, const pst_visit_key *key)
{
    if (!self->recomputes)
        return NULL;
    for (uint32_t i = 0; i < self->num_lanes; i++) {
        psti_lane *lane = &self->lanes[i];
        if (!lane->is_open)
            continue;
        const pst_visit_key open = key_of(self, lane->visit);
        if (open.kind != PST_PASS_FORWARD && open.chunk == key->chunk && open.layer == key->layer &&
            open.micro_batch == key->micro_batch &&
            self->now.program->visits[lane->visit].keep == PST_KEEP_RECOMPUTED)
            return lane;
    }
    return NULL;
}

/* ---- the caller's streams ---- */

pst_status psti_scheduler_follow(pst_scheduler *self, pst_stream other, pst_stream stream)
{
    if (other == stream || !self->device)
        return PST_OK;
    PSTI_TRY(psti_scheduler_record(self, self->turn[0], other));
    return psti_scheduler_wait(self, self->turn[0], stream);
}

/* Of a pair: both passes begin where the streams before it are now. */
static pst_status mark(pst_scheduler *self)
{
    if (self->is_marked || !self->device)
        return PST_OK;
    for (uint32_t i = 0; i < self->num_before; i++)
        PSTI_TRY(psti_scheduler_record(self, self->turn[i], self->before[i]));
    self->is_marked = true;
    return PST_OK;
}

pst_status psti_cursor_turn(pst_scheduler *self, psti_lane *lane, pst_stream stream)
{
    if (lane->has_stream) {
        const pst_stream last = lane->stream;
        lane->stream = stream;
        if (last == stream)
            return PST_OK;
        /* the marks of a pair are in use until its second pass began */
        if (!self->device)
            return PST_OK;
        PSTI_TRY(psti_scheduler_record(self, self->asked, last));
        return psti_scheduler_wait(self, self->asked, stream);
    }
    lane->has_stream = true;
    lane->stream = stream;
    if (self->num_lanes > 1) {
        PSTI_TRY(mark(self));
        for (uint32_t i = 0; i < self->num_before && self->device; i++)
            if (self->before[i] != stream)
                PSTI_TRY(psti_scheduler_wait(self, self->turn[i], stream));
        return PST_OK;
    }
    for (uint32_t i = 0; i < self->num_before; i++)
        PSTI_TRY(psti_scheduler_follow(self, self->before[i], stream));
    return PST_OK;
}
