/* A pool of the library and the oracle, told the same and compared after every operation. */
#include "tests/oracle/lockstep.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ls_fail(lockstep *ls, const char *file, int line, const char *format, ...)
{
    char what[512];
    char text[1024];
    va_list values;
    if (ls->failed)
        return;
    ls->failed = true;
    va_start(values, format);
    vsnprintf(what, sizeof(what), format, values);
    va_end(values);
    snprintf(text, sizeof(text), "%s (seed %" PRIu64 ", operation %" PRIu64 ", %s pool)", what,
             ls->options.seed, ls->operation,
             ls->options.mode == PST_POOL_CONCURRENT ? "concurrent" : "ordered");
    ls->options.report(file, line, text);
}

/* ---- open and close ---- */

/* As if the rings had been used `first_counter` times: slots turn with the counters. */
static void turn_rings(lockstep *ls)
{
    pool_words *words = &ls->words;
    const uint64_t first = ls->options.first_counter;
    LS_TRY(pool_words_read(ls->pool, words, ls->stream));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        words->state.head[tier] = first;
        words->state.tail[tier] = first + ls->pool->num_pages[tier];
        for (uint32_t page = 0; page < ls->pool->num_pages[tier]; page++)
            words->ring[tier][(first + page) % (ls->pool->view.ring_mask[tier] + 1ull)] =
                oracle_id(tier, page);
    }
    LS_TRY(pool_words_write(ls->pool, words, ls->stream));
}

bool ls_open(lockstep *ls, pst_device *device, const ls_options *options)
{
    *ls = (lockstep){.device = device, .options = *options};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    if (!ls->options.page_bytes)
        ls->options.page_bytes = PST_PAGE_BYTES_MIN;
    if (!ls->options.max_tickets)
        ls->options.max_tickets = LS_MAX_TICKETS;
    config.page_bytes = ls->options.page_bytes;
    config.num_pages = options->num_pages;
    config.num_host_pages = options->num_host_pages;
    config.max_pages = options->max_pages;
    config.max_host_pages = options->max_host_pages;
    config.mode = options->mode;
    config.scrub = options->scrub;
    config.max_tickets = ls->options.max_tickets;
    LS_TRY(pst_stream_create(device, &ls->stream));
    LS_TRY(pst_pool_create(device, &config, &ls->pool));
    if (ls->failed)
        return false;
    ls->oracle = oracle_pool_create(config.page_bytes, options->num_pages, options->num_host_pages,
                                    config.max_tickets);
    pool_words_make(ls->pool, &ls->words);
    if (options->first_counter)
        turn_rings(ls);
    if (options->scrub)
        ls_clear_pages(ls, (const uint32_t[]){0, 0});
    ls_compare(ls);
    return !ls->failed;
}

void ls_close(lockstep *ls)
{
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i] && ls->oracle->tickets[i].state == ORACLE_LIVE)
            ls_release(ls, i);
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i])
            ls_ticket_free(ls, i);
    LS_TRY(pst_pool_destroy(ls->failed ? NULL : ls->pool));
    LS_TRY(pst_stream_destroy(ls->device, ls->failed ? NULL : ls->stream));
    pool_words_free(&ls->words);
    oracle_pool_destroy(ls->oracle);
    free(ls->scratch);
}

uint32_t ls_ticket_make(lockstep *ls, const ls_group *group)
{
    pst_ticket *ticket = NULL;
    if (ls->failed)
        return UINT32_MAX;
    LS_TRY(pst_ticket_create(ls->pool, group->group, &ticket));
    const uint32_t index = pst_ticket_index(ticket);
    if (!ticket || index >= ls->options.max_tickets || ls->tickets[index]) {
        LS_FAIL("no ticket, or a second ticket %" PRIu32, index);
        return UINT32_MAX;
    }
    ls->tickets[index] = ticket;
    ticket_words_make(ticket, &ls->words_of[index]);
    return index;
}

void ls_ticket_free(lockstep *ls, uint32_t ticket)
{
    if (ls->failed)
        return;
    LS_TRY(pst_ticket_destroy(ls->tickets[ticket]));
    oracle_forget(ls->oracle, ticket);
    ticket_words_free(&ls->words_of[ticket]);
    ls->words_of[ticket] = (ticket_words){.num_counts = 0};
    ls->tickets[ticket] = NULL;
}

/* ---- comparison ---- */

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
    for (uint32_t c = 0; c < words->num_counts; c++)
        LS_SAME(words->counts[c], ticket->counts[c], "count %u of ticket %u", c, i);
    for (uint64_t page = 0; page < ticket->num_pages; page++)
        LS_SAME(words->table[page], ticket->table[page], "page %" PRIu64 " of ticket %u", page, i);
}

#define SAME_FIELD(field) LS_SAME(found->field, expected->field, "status " #field)

static void compare_status(lockstep *ls, const pst_pool_status *found,
                           const pst_pool_status *expected)
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
    if (!ls->failed && !ls->skip_checks) {
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        oracle_check(ls->oracle);
    }
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i])
            LS_TRY(ticket_words_read(ls->tickets[i], &ls->words_of[i], ls->stream));
    if (!ls->failed)
        LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    if (!ls->failed)
        compare_status(ls, &ls->words.status, &ls->oracle->status);
    if (!ls->failed)
        compare_rings(ls);
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i])
            compare_ticket(ls, i);
    if (!ls->failed)
        compare_conservation(ls);
    if (!ls->failed && ls->options.scrub)
        ls_compare_free_pages(ls);
}

/* ---- operations ---- */

void ls_set_offload(lockstep *ls, uint32_t ticket, uint32_t num, uint32_t den)
{
    if (ls->failed)
        return;
    LS_TRY(pst_ticket_set_offload(ls->tickets[ticket], num, den));
    ls->oracle->tickets[ticket].host_num = num;
    ls->oracle->tickets[ticket].host_den = den;
}

void ls_stash(lockstep *ls, uint32_t ticket, ls_group *source)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch.num_sms = ls->num_sms;
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_ticket_stash(ls->tickets[ticket], source->group, &options, ls->stream));
    oracle_stash(ls->oracle, ticket, &source->model, source->values);
    ls_compare(ls);
    if (!ls->failed)
        ls_compare_pages(ls, ticket);
    ls_group_compare(ls, source);
}

void ls_restore(lockstep *ls, uint32_t ticket, ls_group *destination, pst_restore_pages pages,
                pst_restore_tail tail)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch.num_sms = ls->num_sms;
    options.pages = pages;
    options.tail = tail;
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_ticket_restore(ls->tickets[ticket], destination->group, &options, ls->stream));
    oracle_restore(ls->oracle, ticket, &destination->model, pages, tail);
    ls_compare(ls);
    ls_group_compare(ls, destination);
}

void ls_release(lockstep *ls, uint32_t ticket)
{
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_ticket_release(ls->tickets[ticket], ls->stream));
    oracle_release(ls->oracle, ticket);
    ls_compare(ls);
}

static void migrate(lockstep *ls, uint32_t ticket, bool promotes, uint64_t max_pages)
{
    pst_migrate_options options = PST_MIGRATE_OPTIONS_INIT;
    options.launch.num_sms = ls->num_sms;
    options.share = max_pages == 0            ? PST_MIGRATE_ALL
                    : max_pages == UINT64_MAX ? PST_MIGRATE_REST
                                              : PST_MIGRATE_UP_TO;
    options.max_pages = options.share == PST_MIGRATE_UP_TO ? max_pages : 0;
    if (ls->failed)
        return;
    ls->operation++;
    if (promotes)
        LS_TRY(pst_ticket_promote(ls->tickets[ticket], &options, ls->stream));
    else
        LS_TRY(pst_ticket_demote(ls->tickets[ticket], &options, ls->stream));
    oracle_migrate(ls->oracle, ticket, promotes, max_pages);
    ls_compare(ls);
    if (!ls->failed)
        ls_compare_pages(ls, ticket);
}

void ls_demote(lockstep *ls, uint32_t ticket, uint64_t max_pages)
{
    migrate(ls, ticket, false, max_pages);
}

void ls_promote(lockstep *ls, uint32_t ticket, uint64_t max_pages)
{
    migrate(ls, ticket, true, max_pages);
}

void ls_reset(lockstep *ls, uint32_t what)
{
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_pool_reset(ls->pool, what, ls->stream));
    oracle_reset(ls->oracle, what);
    ls_compare(ls);
}

void ls_resize(lockstep *ls, uint64_t num_pages, uint64_t num_host_pages)
{
    if (ls->failed)
        return;
    const uint32_t old[] = {ls->pool->num_pages[0], ls->pool->num_pages[1]};
    ls->operation++;
    LS_TRY(pst_pool_resize(ls->pool, num_pages, num_host_pages));
    if (ls->options.scrub)
        ls_clear_pages(ls, old);
    oracle_resize(ls->oracle, num_pages, num_host_pages);
    ls_compare(ls);
}

void ls_step(lockstep *ls)
{
    pst_pool_status polled;
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_pool_step(ls->pool, ls->stream));
    oracle_step(ls->oracle, &ls->published);
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    LS_TRY(pst_pool_poll(ls->pool, &polled));
    if (!ls->failed)
        compare_status(ls, &polled, &ls->published);
    ls_compare(ls);
}
