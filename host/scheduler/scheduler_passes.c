/* What the first step of a scheduler without a schedule has recorded so far: passes, and who has which
 * slot. */
#include "host/scheduler/record.h"

#include <stdio.h>
#include <string.h>

#include "host/base/table.h"

pst_status psti_recording_open(pst_scheduler *self)
{
    uint64_t slots = 0;
    psti_recording *r = psti_scheduler_take(self, 1, sizeof(*r));
    PSTI_CHECK(r, PST_E_NOMEM, "no memory for a recording");
    for (uint32_t c = 0; c < self->num_chunks; c++)
        slots += self->num_slots[c];
    r->owners = psti_scheduler_take(self, slots, sizeof(*r->owners));
    r->first_slot = psti_scheduler_take(self, self->num_chunks, sizeof(*r->first_slot));
    PSTI_CHECK(r->owners && r->first_slot, PST_E_NOMEM, "no memory for a recording");
    for (uint32_t c = 1; c < self->num_chunks; c++)
        r->first_slot[c] = r->first_slot[c - 1] + self->num_slots[c - 1];
    self->recording = r;
    psti_recording_forget(self);
    return PST_OK;
}

/* Its own memory goes with the scheduler's. */
void psti_recording_close(pst_scheduler *self)
{
    if (self->recording)
        psti_free(self->recording->passes);
    self->recording = NULL;
}

void psti_recording_forget(pst_scheduler *self)
{
    psti_recording *r = self->recording;
    if (!r)
        return;
    const uint32_t last = self->num_chunks - 1;
    const uint32_t slots = r->first_slot[last] + self->num_slots[last];
    for (uint32_t i = 0; i < slots; i++)
        r->owners[i] = PSTI_NO_MICRO_BATCH;
    for (uint32_t i = 0; i < PST_MAX_SETS + 2; i++)
        r->last_out[i] = PSTI_NO_SEAT;
    memset(r->is_pending, 0, sizeof(r->is_pending));
    r->num = r->num_actives = 0;
    r->next_source = r->next_destination = r->next_buffer = 0;
}

void psti_recording_begin_step(pst_scheduler *self, pst_stream stream)
{
    psti_recording_forget(self);
    self->before[0] = stream;
    self->num_before = 1;
}

pst_status psti_recording_join(pst_scheduler *self, pst_stream stream)
{
    const psti_recording *r = self->recording;
    for (uint32_t i = 0; r && i < r->num_actives; i++)
        if (r->actives[i].is_open)
            PSTI_TRY(psti_scheduler_follow(self, r->actives[i].stream, stream));
    return PST_OK;
}

/* ---- slots ---- */

uint32_t *psti_recorded_find_slot(const pst_scheduler *self, uint32_t chunk, uint32_t micro_batch)
{
    uint32_t *owners = self->recording->owners + self->recording->first_slot[chunk];
    for (uint32_t slot = 0; slot < self->num_slots[chunk]; slot++)
        if (owners[slot] == micro_batch)
            return &owners[slot];
    return NULL;
}

static pst_status take_slot(pst_scheduler *self, const pst_visit_key *key)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(!psti_recorded_find_slot(self, key->chunk, key->micro_batch), PST_E_ORDER,
               "%s: this micro-batch's forward came before, while recording",
               psti_key_text(self, key, text));
    uint32_t *slot = psti_recorded_find_slot(self, key->chunk, PSTI_NO_MICRO_BATCH);
    PSTI_CHECK(slot, PST_E_INVALID, "chunk %u: the recorded order needs %u slots, %u are allowed",
               key->chunk, self->num_slots[key->chunk] + 1, self->num_slots[key->chunk]);
    *slot = key->micro_batch;
    return PST_OK;
}

/* ---- passes ---- */

static uint32_t next_layer(const pst_scheduler *self, const psti_active *a)
{
    const pst_pass *pass = &self->recording->passes[a->pass];
    return pass->kind == PST_PASS_FORWARD ? a->num_visits
                                          : self->layers_of[pass->chunk] - 1 - a->num_visits;
}

bool psti_recorded_is_done(const pst_scheduler *self, const psti_active *a)
{
    return a->num_visits == self->layers_of[self->recording->passes[a->pass].chunk];
}

psti_active *psti_recorded_find_active(const pst_scheduler *self, const pst_visit_key *key)
{
    psti_recording *r = self->recording;
    for (uint32_t i = 0; i < r->num_actives; i++) {
        const pst_pass *pass = &r->passes[r->actives[i].pass];
        if (!psti_recorded_is_done(self, &r->actives[i]) && pass->kind == key->kind &&
            pass->chunk == key->chunk && pass->micro_batch == key->micro_batch)
            return &r->actives[i];
    }
    return NULL;
}

static pst_status check_new_pass(const pst_scheduler *self, const pst_visit_key *key)
{
    char text[PSTI_KEY_TEXT_BYTES], other[PSTI_KEY_TEXT_BYTES];
    psti_recording *r = self->recording;
    const bool is_forward = key->kind == PST_PASS_FORWARD;
    const uint32_t first = is_forward ? 0 : self->layers_of[key->chunk] - 1;
    PSTI_CHECK(key->layer == first, PST_E_ORDER,
               "%s: its pass begins with layer %u; while recording", psti_key_text(self, key, text),
               first);
    PSTI_CHECK(is_forward || psti_recorded_find_slot(self, key->chunk, key->micro_batch),
               PST_E_ORDER, "%s: its forward did not come before, or it was over; while recording",
               psti_key_text(self, key, text));
    for (uint32_t i = 0; i < r->num_actives; i++) {
        const pst_pass *pass = &r->passes[r->actives[i].pass];
        const pst_visit_key missing = {pass->kind, pass->chunk, next_layer(self, &r->actives[i]),
                                       pass->micro_batch};
        const bool may_pair = r->num_actives == 1 &&
                              (pass->kind == PST_PASS_FORWARD) != is_forward &&
                              (pass->chunk != key->chunk || pass->micro_batch != key->micro_batch);
        PSTI_CHECK(psti_recorded_is_done(self, &r->actives[i]) || may_pair, PST_E_ORDER,
                   "%s: the pass before is not over, %s is missing; while recording",
                   psti_key_text(self, key, text), psti_key_text(self, &missing, other));
    }
    return PST_OK;
}

static pst_status add_pass(pst_scheduler *self, const pst_visit_key *key)
{
    psti_recording *r = self->recording;
    bool pairs = false;
    PSTI_TRY(check_new_pass(self, key));
    for (uint32_t i = 0; i < r->num_actives; i++)
        pairs |= !psti_recorded_is_done(self, &r->actives[i]);
    if (!pairs)
        r->num_actives = 0;
    PSTI_TRY(psti_grow((void **)&r->passes, &r->room, r->num + 1, sizeof(*r->passes)));
    if (key->kind == PST_PASS_FORWARD)
        PSTI_TRY(take_slot(self, key));
    if (pairs)
        r->passes[r->num - 1].pairs = true;
    r->passes[r->num] =
        (pst_pass){.kind = key->kind, .chunk = key->chunk, .micro_batch = key->micro_batch};
    r->actives[r->num_actives++] = (psti_active){.pass = r->num++};
    return PST_OK;
}

/* That a visit is the next of its pass; NULL: of a new one. */
static pst_status check_next(const pst_scheduler *self, const pst_visit_key *key,
                             const psti_active *found)
{
    char text[PSTI_KEY_TEXT_BYTES];
    PSTI_CHECK(key->chunk < self->num_chunks && key->layer < self->layers_of[key->chunk] &&
                   key->micro_batch < PST_SCHEDULE_MAX_MICRO_BATCHES,
               PST_E_ORDER, "%s: there is no such layer or micro-batch; while recording",
               psti_key_text(self, key, text));
    PSTI_CHECK(!found || (!found->is_open && key->layer == next_layer(self, found)), PST_E_ORDER,
               "%s: layer %u of that pass %s; while recording", psti_key_text(self, key, text),
               found ? next_layer(self, found) : 0,
               found && found->is_open ? "has begun" : "comes next");
    return PST_OK;
}

psti_active *psti_recorded_next(pst_scheduler *self, const pst_visit_key *key, pst_status *status)
{
    psti_active *found = psti_recorded_find_active(self, key);
    *status = check_next(self, key, found);
    if (*status != PST_OK)
        return NULL;
    if (found)
        return found;
    *status = add_pass(self, key);
    return *status == PST_OK ? &self->recording->actives[self->recording->num_actives - 1] : NULL;
}

/* ---- the schedule ---- */

pst_status psti_recorded_check_done(const pst_scheduler *self)
{
    char text[PSTI_KEY_TEXT_BYTES];
    const psti_recording *r = self->recording;
    for (uint32_t i = 0; i < r->num_actives; i++) {
        const pst_pass *pass = &r->passes[r->actives[i].pass];
        if (psti_recorded_is_done(self, &r->actives[i]))
            continue;
        const pst_visit_key key = {pass->kind, pass->chunk, next_layer(self, &r->actives[i]),
                                   pass->micro_batch};
        return PSTI_FAIL(PST_E_ORDER, "end of the step: %s %s; while recording",
                         psti_key_text(self, &key, text),
                         r->actives[i].is_open ? "has not ended" : "is missing");
    }
    PSTI_CHECK(r->num > 0, PST_E_ORDER, "end of the step: nothing was recorded");
    return PST_OK;
}

/* Of whom nobody said the pipeline: 1F1B of so many stages as forwards come first, which is right for
 * every number of micro-batches if a forward follows a backward; else it cannot be told from GPipe. */
static bool guess_stages(const psti_recording *r, uint32_t *num_stages_out)
{
    uint64_t forwards = 0;
    while (forwards < r->num && r->passes[forwards].kind == PST_PASS_FORWARD)
        forwards++;
    *num_stages_out = (uint32_t)forwards;
    for (uint64_t i = forwards; i < r->num; i++)
        if (r->passes[i].kind == PST_PASS_FORWARD)
            return forwards < PST_SCHEDULE_MAX_MICRO_BATCHES;
    return false;
}

bool psti_recorded_recognise(const pst_scheduler *self, pst_schedule_config *config)
{
    const psti_recording *r = self->recording;
    uint32_t num_stages = self->num_stages;
    char message[PSTI_MESSAGE_BYTES];
    if (num_stages == 0 && !guess_stages(r, &num_stages))
        return false;
    snprintf(message, sizeof(message), "%s", pst_last_message());
    if (pst_schedule_recognise(r->passes, r->num, num_stages, self->stage, config) != PST_OK) {
        psti_restore_message(message);
        return false;
    }
    return self->num_stages || config->kind == PST_SCHEDULE_1F1B;
}
