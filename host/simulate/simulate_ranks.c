/* What passes of one rank need of another, and which of them wait for each other. */
#include "host/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

/* A virtual stage: chunk `chunk` of a rank. */
typedef struct place {
    uint32_t stage, chunk;
    bool exists;
} place;

static uint32_t num_chunks(const psti_sim *self)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < self->config.num_stages; i++)
        if (self->ranks[i].schedule->num_chunks > num)
            num = self->ranks[i].schedule->num_chunks;
    return num;
}

/* The virtual stage before this one, or behind it. */
static place neighbour(const psti_sim *self, uint32_t stage, uint32_t chunk, bool behind)
{
    const uint32_t last = self->config.num_stages - 1;
    const bool is_odd = self->chunk_order != PST_CHUNKS_LOOPED && chunk % 2 == 1;
    const bool goes_up = behind != is_odd;
    if (stage != (goes_up ? last : 0))
        return (place){goes_up ? stage + 1 : stage - 1, chunk, true};
    if (self->chunk_order == PST_CHUNKS_DIRECTIONS ||
        (behind ? chunk + 1 == num_chunks(self) : chunk == 0))
        return (place){0};
    const uint32_t to = self->chunk_order == PST_CHUNKS_V ? stage : last - stage;
    return (place){to, behind ? chunk + 1 : chunk - 1, true};
}

/* What a pass waits for. */
static place source_of(const psti_sim_rank *rank, const pst_pass *pass)
{
    if (rank->all->config.alone || pass->kind == PST_PASS_BACKWARD_WEIGHT)
        return (place){0};
    return neighbour(rank->all, rank->stage, pass->chunk, pass->kind != PST_PASS_FORWARD);
}

/* Of the same direction as `pass`, of this micro-batch; NULL: there is no such pass. */
static uint64_t *end_of(const psti_sim_rank *rank, uint32_t chunk, const pst_pass *pass)
{
    const pst_schedule *schedule = rank->schedule;
    const bool is_backward = pass->kind != PST_PASS_FORWARD;
    if (chunk >= schedule->num_chunks || (is_backward && schedule->is_forward_only))
        return NULL;
    const psti_schedule_chunk *list = &schedule->chunks[chunk];
    if (pass->micro_batch >= list->num_micro_batches)
        return NULL;
    return &rank->ends[is_backward][list->lives - schedule->lives + pass->micro_batch];
}

static uint64_t need_of(const psti_sim_rank *rank, const pst_pass *pass)
{
    const place from = source_of(rank, pass);
    if (!from.exists)
        return 0;
    const uint64_t *end = end_of(&rank->all->ranks[from.stage], from.chunk, pass);
    if (!end || *end == PSTI_SIM_UNKNOWN)
        return PSTI_SIM_UNKNOWN;
    return from.stage == rank->stage ? *end : psti_sim_after(*end, rank->all->config.p2p_ns);
}

uint64_t psti_sim_need(const psti_sim_rank *rank)
{
    const pst_pass *pass = &rank->schedule->passes[rank->next_pass];
    const uint64_t need = need_of(rank, pass);
    return pass->pairs ? psti_sim_later(need, need_of(rank, pass + 1)) : need;
}

uint32_t psti_sim_passes(const psti_sim_rank *rank, uint64_t pass, uint64_t order_out[2])
{
    const pst_pass *passes = &rank->schedule->passes[pass];
    order_out[0] = pass;
    if (!passes->pairs)
        return 1;
    const bool is_forward = passes->kind == PST_PASS_FORWARD;
    order_out[0] = is_forward ? pass : pass + 1;
    order_out[1] = is_forward ? pass + 1 : pass;
    return 2;
}

void psti_sim_begin_pass(psti_sim_rank *rank, uint64_t need)
{
    uint64_t *clock = &rank->clock[PSTI_ON_MAIN];
    const pst_pass *pass = &rank->schedule->passes[rank->next_pass];
    if (need > *clock) {
        const pst_visit_key key = {pass->kind, pass->chunk, 0, pass->micro_batch};
        psti_sim_tell_main(rank, PST_SIMULATED_BUBBLE, key, *clock, need);
        rank->result.bubble_ns += need - *clock;
        *clock = need;
    }
    if (!rank->has_begun)
        rank->first_ns = *clock;
    rank->has_begun = true;
    rank->begun_ns = *clock;
    rank->beside_ns = 0;
}

void psti_sim_end_pass(psti_sim_rank *rank, uint64_t pass)
{
    const pst_pass *own = &rank->schedule->passes[pass];
    const uint64_t now = rank->clock[PSTI_ON_MAIN];
    if (own->kind != PST_PASS_BACKWARD_WEIGHT)
        *end_of(rank, own->chunk, own) = now - rank->beside_ns;
    rank->beside_ns = now - rank->begun_ns;
    rank->result.span_ns = now - rank->first_ns;
}

/* ---- deadlocks ---- */

/* Of a rank that cannot go on: the pass, of a pair that of the two, that waits. */
static uint64_t stuck_pass(const psti_sim_rank *rank)
{
    const pst_pass *pass = &rank->schedule->passes[rank->next_pass];
    return rank->next_pass + (pass->pairs && need_of(rank, pass) != PSTI_SIM_UNKNOWN);
}

static bool is_done(const psti_sim_rank *rank)
{
    return rank->next_pass == rank->schedule->num_passes;
}

/* The rank for which this one waits. */
static const psti_sim_rank *awaited(const psti_sim_rank *rank)
{
    const pst_pass *pass = &rank->schedule->passes[stuck_pass(rank)];
    return &rank->all->ranks[source_of(rank, pass).stage];
}

/* Whether there is no pass that it waits for. */
static bool waits_for_nothing(const psti_sim_rank *rank)
{
    const pst_pass *pass = &rank->schedule->passes[stuck_pass(rank)];
    return !end_of(awaited(rank), source_of(rank, pass).chunk, pass);
}

void psti_sim_name_deadlock(const psti_sim *self, char *text, size_t bytes)
{
    const psti_sim_rank *rank = self->ranks;
    char own[PSTI_PASS_TEXT_BYTES], other[PSTI_PASS_TEXT_BYTES];
    while (is_done(rank))
        rank++;
    /* along those who wait, into a ring or to one whose wait has no end */
    for (uint32_t i = 0; i < self->config.num_stages && !waits_for_nothing(rank); i++)
        rank = awaited(rank);
    const uint64_t n = stuck_pass(rank);
    const pst_pass *pass = &rank->schedule->passes[n];
    const place from = source_of(rank, pass);
    const psti_sim_rank *next = &self->ranks[from.stage];
    const pst_pass wanted = {pass->micro_batch, from.chunk, pass->kind, false, {0}};
    int length = snprintf(text, bytes, "stage %u, pass %llu, %s: waits for %s of stage %u, ",
                          rank->stage, (unsigned long long)n, psti_pass_text(pass, own),
                          psti_pass_text(&wanted, other), from.stage);
    if (length < 0 || (size_t)length >= bytes)
        return;
    text += length;
    bytes -= (size_t)length;
    if (waits_for_nothing(rank)) {
        snprintf(text, bytes, "which has no such pass");
        return;
    }
    const uint64_t m = stuck_pass(next);
    snprintf(text, bytes, "which is at pass %llu, %s, and waits, too", (unsigned long long)m,
             psti_pass_text(&next->schedule->passes[m], own));
}
