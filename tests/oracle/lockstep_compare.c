/* Lockstep: the words of the pool and of its tickets against what the oracle has. */
#include "tests/oracle/lockstep.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t failed_wanted(const oracle_pool *oracle)
{
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < oracle->num_tickets; i++)
        if (oracle->tickets[i].state == ORACLE_FAILED)
            wanted += oracle->tickets[i].num_pages;
    return wanted;
}

/* What is in no status block yet. */
static void compare_state(lockstep *ls)
{
    const psti_pool_state *state = &ls->words.state;
    const oracle_pool *oracle = ls->oracle;
    if (ls->check_is_loose)
        return;
    LS_SAME(state->refuse & PSTI_REFUSES_ORDER, oracle->refuses, "refusal for want of order");
    LS_SAME((state->refuse & PSTI_REFUSES_SCHEDULE) != 0, oracle->is_stale, "refusal by schedule");
    LS_SAME(state->failed_wanted, failed_wanted(oracle), "pages that failed tickets wanted");
    LS_SAME(state->step_demand, oracle->step_demand, "demand of the step");
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        LS_SAME(state->num_pages[tier], oracle->num_pages[tier], "pages of tier %u", tier);
        LS_SAME(state->step_high[tier], oracle->step_high[tier], "mark of the step, tier %u", tier);
    }
}

static void compare_rings(lockstep *ls)
{
    const pool_words *words = &ls->words;
    const oracle_pool *oracle = ls->oracle;
    LS_SAME(words->state.epoch, oracle->epoch, "epoch");
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint64_t head = words->state.head[tier];
        LS_SAME(words->state.tail[tier] - head, oracle->num_free[tier], "free pages of tier %u",
                tier);
        for (uint64_t i = 0; i < oracle->num_free[tier]; i++) {
            const uint64_t slot = (head + i) % (ls->pool->view.ring_mask[tier] + 1ull);
            LS_SAME(words->ring[tier][slot], oracle->free_ids[tier][i],
                    "free id %" PRIu64 " of tier %u", i, tier);
        }
    }
}

static void compare_ticket(lockstep *ls, uint32_t i)
{
    const ticket_words *words = &ls->words_of[i];
    const oracle_ticket *ticket = &ls->oracle->tickets[i];
    const bool is_old = words->head.epoch != ls->words.state.epoch;
    LS_SAME(is_old ? 0 : words->head.state, ticket->state, "state of ticket %u", i);
    LS_SAME(words->head.index, i, "index of ticket %u", i);
    if (ticket->state != ORACLE_EMPTY)
        LS_SAME(words->head.num_pages, ticket->num_pages, "pages of ticket %u", i);
    if (ticket->state != ORACLE_LIVE)
        return;
    uint64_t num_host = 0;
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        num_host += ticket->ids[page] >> 31;
    LS_SAME(words->head.num_host, num_host, "host pages of ticket %u", i);
    for (uint32_t c = 0; c < oracle_num_counts(&ticket->form); c++)
        LS_SAME(words->counts[c], ticket->counts[c], "count %u of ticket %u", c, i);
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        LS_SAME(words->table[page], ticket->table[page], "page %" PRIu64 " of ticket %u", page, i);
}

#define SAME_FIELD(field) LS_SAME(found->field, expected->field, "status " #field)

void ls_compare_status(lockstep *ls, const pst_pool_status *found, const pst_pool_status *expected)
{
    SAME_FIELD(flags);
    SAME_FIELD(step_valid);
    SAME_FIELD(fault_state);
    SAME_FIELD(fault);
    SAME_FIELD(fault_ticket);
    SAME_FIELD(fault_free[0]);
    SAME_FIELD(fault_free[1]);
    if (!ls->check_is_loose) {
        SAME_FIELD(num_faults);
        SAME_FIELD(check_errors);
    }
    if (!ls->check_is_loose && found->fault != PST_FAULT_CHECK)
        SAME_FIELD(fault_wanted);
    SAME_FIELD(high_water[0]);
    SAME_FIELD(high_water[1]);
    SAME_FIELD(demand_high_water);
    for (int i = 0; i < 4; i++)
        LS_SAME(found->demand_quantiles[i], expected->demand_quantiles[i],
                "status demand_quantiles[%d]", i);
    SAME_FIELD(step_demand);
    SAME_FIELD(spilled_pages);
    SAME_FIELD(offloaded_pages);
    SAME_FIELD(displaced_pages);
    SAME_FIELD(demoted_pages);
    SAME_FIELD(promoted_pages);
    SAME_FIELD(stranded_pages);
    SAME_FIELD(in_use[0]);
    SAME_FIELD(in_use[1]);
    SAME_FIELD(steps);
    SAME_FIELD(checks);
    SAME_FIELD(epoch);
    SAME_FIELD(struct_bytes);
    SAME_FIELD(version);
}

/* Pages that the walk over the device's own words finds wrong, against what the oracle lost. */
static void compare_conservation(lockstep *ls)
{
    if (ls->check_is_loose)
        return;
    LS_SAME(pool_words_violations(ls->pool, &ls->words, ls->words_of, LS_MAX_TICKETS),
            oracle_lost_pages(ls->oracle), "violations of conservation");
}

void ls_compare(lockstep *ls)
{
    if (ls->replays)
        return;
    if (!ls->failed && !ls->skip_checks) {
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        oracle_check(ls->oracle);
    }
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i].id)
            LS_TRY(ticket_words_read(ls->tickets[i], &ls->words_of[i], ls->stream));
    if (!ls->failed)
        LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    if (!ls->failed)
        ls_compare_status(ls, &ls->words.status, &ls->oracle->status);
    if (!ls->failed)
        compare_state(ls);
    if (!ls->failed)
        compare_rings(ls);
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i].id)
            compare_ticket(ls, i);
    if (!ls->failed)
        compare_conservation(ls);
    if (!ls->failed && ls->options.scrub)
        ls_compare_free_pages(ls);
}
