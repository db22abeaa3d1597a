/* Whether a list is a schedule, and the passes of each chunk and micro-batch. */
#include "host/schedule/schedule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *psti_pass_kind_name(pst_pass_kind kind)
{
    switch (kind) {
    case PST_PASS_FORWARD:
        return "forward";
    case PST_PASS_BACKWARD:
        return "backward";
    case PST_PASS_BACKWARD_INPUT:
        return "input backward";
    case PST_PASS_BACKWARD_WEIGHT:
        return "weight backward";
    }
    return "unknown pass";
}

const char *psti_pass_text(const pst_pass *pass, char text[PSTI_PASS_TEXT_BYTES])
{
    snprintf(text, PSTI_PASS_TEXT_BYTES, "%s of chunk %" PRIu32 ", micro-batch %" PRIu32,
             psti_pass_kind_name(pass->kind), pass->chunk, pass->micro_batch);
    return text;
}

/* INVALID, with the message: pass N, KIND of chunk C, micro-batch M: ... */
__attribute__((format(printf, 3, 4))) static pst_status bad(const pst_schedule *self, uint64_t n,
                                                            const char *format, ...)
{
    char text[PSTI_PASS_TEXT_BYTES], why[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    return PSTI_FAIL(PST_E_INVALID, "pass %" PRIu64 ", %s: %s", n,
                     psti_pass_text(&self->passes[n], text), why);
}

/* ---- each pass by itself, and pairs ---- */

static bool is_backward(const pst_pass *pass)
{
    return pass->kind != PST_PASS_FORWARD;
}

static pst_status check_pair(const pst_schedule *self, uint64_t n)
{
    char text[PSTI_PASS_TEXT_BYTES];
    const pst_pass *one = &self->passes[n], *other = one + 1;
    if (n + 1 == self->num_passes)
        return bad(self, n, "pairs is true: allowed is false in the last pass");
    psti_pass_text(other, text);
    if (other->pairs)
        return bad(self, n, "pairs with pass %" PRIu64 ", %s, which is itself the first of a pair",
                   n + 1, text);
    if (is_backward(one) == is_backward(other))
        return bad(self, n, "pairs with pass %" PRIu64 ", %s: allowed is a forward with a backward",
                   n + 1, text);
    if (one->chunk == other->chunk && one->micro_batch == other->micro_batch)
        return bad(self, n,
                   "pairs with pass %" PRIu64 ", %s: allowed is another chunk or micro-batch",
                   n + 1, text);
    return PST_OK;
}

static pst_status check_pass(const pst_schedule *self, uint64_t n)
{
    const pst_pass *pass = &self->passes[n];
    const uint32_t allowed = self->config.num_chunks;
    PSTI_CHECK((unsigned)pass->kind <= PST_PASS_BACKWARD_WEIGHT, PST_E_INVALID,
               "pass %" PRIu64 ": kind %d: allowed are 0 to %d, the values of pst_pass_kind", n,
               (int)pass->kind, PST_PASS_BACKWARD_WEIGHT);
    if (allowed != 0 && pass->chunk >= allowed)
        return bad(self, n, "allowed are chunks 0 to %" PRIu32 ", since num_chunks is %" PRIu32,
                   allowed - 1, allowed);
    if (pass->chunk >= self->num_passes)
        return bad(self, n, "%" PRIu64 " passes cannot have so many chunks without a gap",
                   self->num_passes);
    if (pass->micro_batch >= PST_SCHEDULE_MAX_MICRO_BATCHES)
        return bad(self, n, "allowed are micro-batches 0 to %u",
                   PST_SCHEDULE_MAX_MICRO_BATCHES - 1);
    return pass->pairs ? check_pair(self, n) : PST_OK;
}

/* ---- memory for all lives ---- */

static pst_status count_chunks(pst_schedule *self)
{
    uint32_t most = 0;
    for (uint64_t n = 0; n < self->num_passes; n++) {
        PSTI_TRY(check_pass(self, n));
        most = self->passes[n].chunk > most ? self->passes[n].chunk : most;
    }
    self->num_chunks = self->config.num_chunks ? self->config.num_chunks : most + 1;
    PSTI_CHECK(self->num_chunks <= self->num_passes, PST_E_INVALID,
               "num_chunks %" PRIu32 ": the list has %" PRIu64 " passes, and each chunk at least 1",
               self->num_chunks, self->num_passes);
    return PST_OK;
}

static pst_status make_lives(pst_schedule *self)
{
    self->chunks = psti_calloc(self->num_chunks, sizeof(*self->chunks));
    PSTI_CHECK(self->chunks, PST_E_NOMEM, "out of memory for %" PRIu32 " chunks", self->num_chunks);
    for (uint64_t n = 0; n < self->num_passes; n++)
        if (!is_backward(&self->passes[n])) {
            self->chunks[self->passes[n].chunk].num_micro_batches++;
            self->num_lives++;
        }
    self->lives = psti_calloc(self->num_lives + 1, sizeof(*self->lives));
    PSTI_CHECK(self->lives, PST_E_NOMEM, "out of memory for %" PRIu64 " passes", self->num_passes);
    psti_life *next = self->lives;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        self->chunks[c].lives = next;
        next += self->chunks[c].num_micro_batches;
    }
    return PST_OK;
}

/* ---- the order of the passes of each life ---- */

/* The first pass of that kind from n on, for messages; num_passes: there is none. */
static uint64_t find(const pst_schedule *self, uint64_t n, pst_pass_kind kind, const pst_pass *of)
{
    for (; n < self->num_passes; n++)
        if (self->passes[n].kind == kind && self->passes[n].chunk == of->chunk &&
            self->passes[n].micro_batch == of->micro_batch)
            break;
    return n;
}

/* The pass n comes before one of `kind`, or there is none. */
static pst_status too_early(const pst_schedule *self, uint64_t n, pst_pass_kind kind)
{
    const uint64_t later = find(self, n + 1, kind, &self->passes[n]);
    if (later == self->num_passes)
        return bad(self, n, "its %s is not in the list", psti_pass_kind_name(kind));
    return bad(self, n, "comes before its %s, pass %" PRIu64, psti_pass_kind_name(kind), later);
}

static pst_status after(const pst_schedule *self, uint64_t n, uint32_t earlier)
{
    const pst_pass *pass = &self->passes[n];
    const pst_pass_kind kind = self->passes[earlier].kind;
    if (kind == pass->kind)
        return bad(self, n, "it ran already, as pass %" PRIu32, earlier);
    return bad(self, n,
               "comes after its %s, pass %" PRIu32
               ": allowed is a whole backward, or one of the input and one of the weights",
               psti_pass_kind_name(kind), earlier);
}

/* Which passes of a life were seen. */
enum { SAW_FORWARD = 1, SAW_WHOLE = 2, SAW_INPUT = 4, SAW_WEIGHT = 8 };

static pst_status see_forward(const pst_schedule *self, uint64_t n, psti_life *life, uint8_t *saw)
{
    if (*saw & SAW_FORWARD)
        return after(self, n, life->forward);
    *saw |= SAW_FORWARD;
    life->forward = (uint32_t)n;
    return PST_OK;
}

static pst_status see_backward(pst_schedule *self, uint64_t n, psti_life *life, uint8_t *saw)
{
    const bool is_input = self->passes[n].kind == PST_PASS_BACKWARD_INPUT;
    if (!(*saw & SAW_FORWARD))
        return too_early(self, n, PST_PASS_FORWARD);
    if (*saw & (SAW_WHOLE | SAW_INPUT))
        return after(self, n, life->first_backward);
    *saw |= is_input ? SAW_INPUT : SAW_WHOLE;
    self->splits_backward |= is_input;
    life->first_backward = life->last_backward = (uint32_t)n;
    return PST_OK;
}

static pst_status see_weight(const pst_schedule *self, uint64_t n, psti_life *life, uint8_t *saw)
{
    if (*saw & SAW_WHOLE)
        return after(self, n, life->first_backward);
    if (*saw & SAW_WEIGHT)
        return after(self, n, life->last_backward);
    if (!(*saw & SAW_INPUT))
        return too_early(self, n, PST_PASS_BACKWARD_INPUT);
    *saw |= SAW_WEIGHT;
    life->last_backward = (uint32_t)n;
    return PST_OK;
}

static pst_status see(pst_schedule *self, uint64_t n, uint8_t *saw)
{
    const pst_pass *pass = &self->passes[n];
    const psti_schedule_chunk *chunk = &self->chunks[pass->chunk];
    if (pass->micro_batch >= chunk->num_micro_batches) {
        if (is_backward(pass))
            return too_early(self, n, PST_PASS_FORWARD);
        return bad(self, n,
                   "the chunk has %" PRIu32 " forwards, so that micro-batches 0 to %" PRIu32
                   " leave no gap",
                   chunk->num_micro_batches, chunk->num_micro_batches - 1);
    }
    psti_life *life = &chunk->lives[pass->micro_batch];
    saw += life - self->lives;
    switch (pass->kind) {
    case PST_PASS_FORWARD:
        return see_forward(self, n, life, saw);
    case PST_PASS_BACKWARD_WEIGHT:
        return see_weight(self, n, life, saw);
    default:
        return see_backward(self, n, life, saw);
    }
}

/* Every life has a backward, or none has. */
static pst_status check_backwards(pst_schedule *self, const uint8_t *saw)
{
    char text[PSTI_PASS_TEXT_BYTES];
    uint64_t backward = 0, without = 0;
    while (backward < self->num_passes && !is_backward(&self->passes[backward]))
        backward++;
    self->is_forward_only = backward == self->num_passes;
    while (without < self->num_lives && saw[without] & (SAW_WHOLE | SAW_INPUT))
        without++;
    if (self->is_forward_only || without == self->num_lives)
        return PST_OK;
    return bad(self, self->lives[without].forward,
               "it has no backward, and others have: pass %" PRIu64 ", %s", backward,
               psti_pass_text(&self->passes[backward], text));
}

static pst_status check_lives(pst_schedule *self, uint8_t *saw)
{
    for (uint64_t n = 0; n < self->num_passes; n++)
        PSTI_TRY(see(self, n, saw));
    for (uint32_t c = 0; c < self->num_chunks; c++)
        PSTI_CHECK(self->chunks[c].num_micro_batches > 0, PST_E_INVALID,
                   "chunk %" PRIu32 " has no pass: allowed are chunks 0 to %" PRIu32
                   " without a gap",
                   c, self->num_chunks - 1);
    return check_backwards(self, saw);
}

pst_status psti_schedule_index(pst_schedule *self)
{
    PSTI_TRY(count_chunks(self));
    PSTI_TRY(make_lives(self));
    uint8_t *saw = psti_calloc(self->num_lives + 1, 1);
    PSTI_CHECK(saw, PST_E_NOMEM, "out of memory for %" PRIu64 " passes", self->num_passes);
    const pst_status status = check_lives(self, saw);
    psti_free(saw);
    return status;
}
