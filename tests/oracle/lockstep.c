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

void ls_turn_rings(lockstep *ls, uint64_t head)
{
    pool_words *words = &ls->words;
    LS_TRY(pool_words_read(ls->pool, words, ls->stream));
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        const uint64_t num_free = ls->oracle->num_free[tier];
        words->state.head[tier] = head;
        words->state.tail[tier] = head + num_free;
        for (uint64_t i = 0; i < num_free; i++)
            words->ring[tier][(head + i) % (ls->pool->view.ring_mask[tier] + 1ull)] =
                ls->oracle->free_ids[tier][i];
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
    if (!ls->options.max_pages)
        ls->options.max_pages = options->num_pages;
    if (!ls->options.max_host_pages)
        ls->options.max_host_pages = options->num_host_pages;
    config.page_bytes = ls->options.page_bytes;
    config.num_pages = options->num_pages;
    config.num_host_pages = options->num_host_pages;
    config.max_pages = options->max_pages;
    config.max_host_pages = options->max_host_pages;
    config.mode = options->mode;
    config.scrub = options->scrub;
    config.fails_fast = options->fails_fast;
    config.slab_tickets = options->slab_tickets;
    config.slab_counts = options->slab_tickets ? options->slab_counts : 0;
    config.max_tickets = ls->options.max_tickets;
    LS_TRY(pst_stream_create(device, &ls->stream));
    LS_TRY(pst_pool_create(device, &config, &ls->pool));
    if (ls->failed)
        return false;
    ls->oracle = oracle_pool_create(config.page_bytes, options->num_pages, options->num_host_pages,
                                    config.max_tickets);
    ls->oracle->fails_fast = options->fails_fast;
    pool_words_make(ls->pool, &ls->words);
    if (options->first_counter)
        ls_turn_rings(ls, options->first_counter);
    if (options->scrub)
        ls_clear_pages(ls, (const uint32_t[]){0, 0});
    ls_compare(ls);
    return !ls->failed;
}

void ls_close(lockstep *ls)
{
    if (ls->oracle->is_stale) /* what is released below would be refused */
        ls_step(ls);
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i].id && ls->oracle->tickets[i].state == ORACLE_LIVE)
            ls_release(ls, i);
    for (uint32_t i = 0; i < LS_MAX_TICKETS && !ls->failed; i++)
        if (ls->tickets[i].id && ls->is_lent[i])
            ls_ticket_give(ls, i);
        else if (ls->tickets[i].id)
            ls_ticket_free(ls, i);
    LS_TRY(pst_pool_destroy(ls->failed ? NULL : ls->pool));
    LS_TRY(pst_device_free_pinned(ls->device, ls->failed ? NULL : ls->expected));
    LS_TRY(pst_stream_destroy(ls->device, ls->failed ? NULL : ls->stream));
    pool_words_free(&ls->words);
    oracle_pool_destroy(ls->oracle);
    free(ls->scratch);
}

/* ---- tickets ---- */

static uint32_t note_ticket(lockstep *ls, pst_ticket ticket, bool is_lent)
{
    const uint32_t index = pst_ticket_index(ticket);
    if (!ticket.id || index >= ls->options.max_tickets || ls->tickets[index].id) {
        LS_FAIL("no ticket, or a second ticket %" PRIu32, index);
        return UINT32_MAX;
    }
    ls->tickets[index] = ticket;
    ls->is_lent[index] = is_lent;
    ticket_words_make(ticket, &ls->words_of[index]);
    return index;
}

static void drop_ticket(lockstep *ls, uint32_t ticket)
{
    ticket_words_free(&ls->words_of[ticket]);
    ls->words_of[ticket] = (ticket_words){.num_counts = 0};
    ls->tickets[ticket] = (pst_ticket){0};
}

uint32_t ls_ticket_make(lockstep *ls, const ls_group *group)
{
    pst_ticket ticket = {0};
    if (ls->failed)
        return UINT32_MAX;
    LS_TRY(pst_ticket_create(ls->pool, group->group, &ticket));
    return note_ticket(ls, ticket, false);
}

void ls_ticket_free(lockstep *ls, uint32_t ticket)
{
    if (ls->failed)
        return;
    const oracle_ticket *model = &ls->oracle->tickets[ticket];
    const bool is_busy = model->state == ORACLE_LIVE && model->num_pages > 0;
    const pst_status status = pst_ticket_destroy(ls->tickets[ticket]);
    if (status != (is_busy ? PST_E_BUSY : PST_OK))
        LS_FAIL("pst_ticket_destroy: %s: %s", pst_status_name(status), pst_last_message());
    if (is_busy || ls->failed)
        return;
    oracle_forget(ls->oracle, ticket);
    drop_ticket(ls, ticket);
}

uint32_t ls_ticket_take(lockstep *ls, bool may_be_busy)
{
    pst_ticket ticket = {0};
    if (ls->failed)
        return UINT32_MAX;
    const pst_status status = pst_ticket_take(ls->pool, ls->stream, &ticket);
    if (status == PST_E_BUSY && may_be_busy)
        return UINT32_MAX;
    if (status != PST_OK)
        LS_FAIL("pst_ticket_take: %s: %s", pst_status_name(status), pst_last_message());
    return ls->failed ? UINT32_MAX : note_ticket(ls, ticket, true);
}

void ls_ticket_give(lockstep *ls, uint32_t ticket)
{
    const pst_ticket handle = ls->tickets[ticket];
    if (ls->failed)
        return;
    LS_TRY(pst_ticket_give(handle, ls->stream));
    oracle_give(ls->oracle, ticket);
    drop_ticket(ls, ticket);
    if (!ls->failed && pst_ticket_index(handle) != UINT32_MAX)
        LS_FAIL("the handle of ticket %" PRIu32 " is good after it was given back", ticket);
    if (!ls->failed && pst_ticket_release(handle, ls->stream) != PST_E_INVALID)
        LS_FAIL("a stale handle of ticket %" PRIu32 " is not refused", ticket);
    ls_compare(ls);
}

/* ---- operations ---- */

static void begin(lockstep *ls)
{
    ls->operation++;
    if (ls->by_graph)
        LS_TRY(pst_graph_begin(ls->device, ls->stream));
}

static void end(lockstep *ls)
{
    pst_graph *graph = NULL;
    if (!ls->by_graph || ls->failed)
        return;
    LS_TRY(pst_graph_end(ls->device, ls->stream, &graph));
    LS_TRY(pst_graph_launch(graph, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    LS_TRY(pst_graph_destroy(graph));
}

void ls_set_offload(lockstep *ls, uint32_t ticket, uint32_t num, uint32_t den)
{
    if (ls->failed)
        return;
    LS_TRY(pst_ticket_set_offload(ls->tickets[ticket], num, den));
    ls->oracle->tickets[ticket].host_num = num;
    ls->oracle->tickets[ticket].host_den = den;
}

bool ls_host_counts_are_right(const ls_group *source)
{
    const oracle_group *model = &source->model;
    for (uint32_t i = 0; i < model->num_spaces; i++) {
        const int64_t count = source->values[oracle_first_input(model, i)];
        if (model->spaces[i].count_type == PST_COUNT_HOST &&
            (count < 0 || count > oracle_capacity(model, i)))
            return false;
    }
    return true;
}

bool ls_fits(const lockstep *ls, uint32_t ticket, const ls_group *source)
{
    const ticket_words *words = &ls->words_of[ticket];
    const psti_pool_view *view = &ls->pool->view;
    const uint64_t most = (uint64_t)view->max_pages[0] + view->max_pages[1];
    oracle_group at_capacity = source->model;
    pst_group_usage usage;
    for (uint32_t i = 0; i < at_capacity.num_spaces; i++)
        at_capacity.spaces[i].capacity = oracle_capacity(&source->model, i);
    oracle_measure(&at_capacity, NULL, ls->options.page_bytes, &usage);
    return oracle_num_counts(&at_capacity) <= words->num_counts &&
           (usage.pages < most ? usage.pages : most) <= words->table_pages;
}

static pst_status enqueue_stash(lockstep *ls, uint32_t ticket, ls_group *source,
                                const pst_stash_options *options)
{
    const pst_ticket handle = ls->tickets[ticket];
    if (ls->calls)
        return ls->calls->stash(ls->calls->context, handle, source, options, ls->stream);
    return pst_ticket_stash(handle, source->group, ls_at(source), options, ls->stream);
}

static pst_status enqueue_restore(lockstep *ls, uint32_t ticket, ls_group *destination,
                                  const pst_restore_options *options)
{
    const pst_ticket handle = ls->tickets[ticket];
    if (ls->calls)
        return ls->calls->restore(ls->calls->context, handle, destination, options, ls->stream);
    return pst_ticket_restore(handle, destination->group, ls_at(destination), options, ls->stream);
}

void ls_stash(lockstep *ls, uint32_t ticket, ls_group *source)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    if (ls->failed)
        return;
    const bool is_right = ls_host_counts_are_right(source) && ls_fits(ls, ticket, source);
    options.launch.num_sms = ls->num_sms;
    begin(ls);
    const pst_status status = enqueue_stash(ls, ticket, source, &options);
    ls_forget_call(source);
    end(ls);
    if (status != (is_right ? PST_OK : PST_E_INVALID))
        LS_FAIL("pst_ticket_stash: %s: %s", pst_status_name(status), pst_last_message());
    if (is_right)
        oracle_stash(ls->oracle, ticket, &source->model, source->values);
    ls_compare(ls);
    if (!ls->failed)
        ls_compare_pages(ls, ticket);
    ls_group_compare(ls, source);
}

void ls_restore_as(lockstep *ls, uint32_t ticket, ls_group *destination, pst_restore_pages pages,
                   pst_restore_tail tail, pst_restore_failed failed)
{
    if (ls->failed)
        return;
    pst_restore_options options = ls_restore_options(destination, pages, tail);
    options.launch.num_sms = ls->num_sms;
    options.failed = failed;
    const bool has_room = oracle_num_counts(&destination->model) <= ls->words_of[ticket].num_counts;
    begin(ls);
    const pst_status status = enqueue_restore(ls, ticket, destination, &options);
    ls_forget_call(destination);
    end(ls);
    if (status != (has_room ? PST_OK : PST_E_INVALID))
        LS_FAIL("pst_ticket_restore: %s: %s", pst_status_name(status), pst_last_message());
    if (has_room)
        oracle_restore_as(ls->oracle, ticket, &destination->model, pages, tail, failed);
    ls_compare(ls);
    ls_group_compare(ls, destination);
}

void ls_restore(lockstep *ls, uint32_t ticket, ls_group *destination, pst_restore_pages pages,
                pst_restore_tail tail)
{
    ls_restore_as(ls, ticket, destination, pages, tail, PST_FAILED_UNTOUCHED);
}

void ls_release(lockstep *ls, uint32_t ticket)
{
    if (ls->failed)
        return;
    begin(ls);
    LS_TRY(pst_ticket_release(ls->tickets[ticket], ls->stream));
    end(ls);
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
    begin(ls);
    if (promotes)
        LS_TRY(pst_ticket_promote(ls->tickets[ticket], &options, ls->stream));
    else
        LS_TRY(pst_ticket_demote(ls->tickets[ticket], &options, ls->stream));
    end(ls);
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

static pst_status resize_outcome(const lockstep *ls, uint64_t num_pages, uint64_t num_host_pages)
{
    const uint64_t *now = ls->oracle->num_pages;
    const uint64_t *num_free = ls->oracle->num_free;
    const bool fewer = num_pages < now[0] || num_host_pages < now[1];
    if (num_pages == 0 || num_pages > ls->options.max_pages ||
        num_host_pages > ls->options.max_host_pages)
        return PST_E_INVALID;
    return fewer && num_free[0] + num_free[1] < now[0] + now[1] ? PST_E_BUSY : PST_OK;
}

void ls_resize(lockstep *ls, uint64_t num_pages, uint64_t num_host_pages)
{
    if (ls->failed)
        return;
    const uint32_t old[] = {ls->pool->num_pages[0], ls->pool->num_pages[1]};
    const pst_status expected = resize_outcome(ls, num_pages, num_host_pages);
    ls->operation++;
    const pst_status status = pst_pool_resize(ls->pool, num_pages, num_host_pages);
    if (status != expected)
        LS_FAIL("pst_pool_resize: %s: %s", pst_status_name(status), pst_last_message());
    if (status == PST_OK && ls->options.scrub)
        ls_clear_pages(ls, old);
    if (status == PST_OK)
        oracle_resize(ls->oracle, num_pages, num_host_pages);
    ls_compare(ls);
}

void ls_check(lockstep *ls)
{
    if (ls->failed)
        return;
    ls->operation++;
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    oracle_check(ls->oracle);
    ls_compare(ls);
}

void ls_expect(lockstep *ls, uint64_t found, uint64_t expected)
{
    void *word = ls->expected;
    if (ls->failed)
        return;
    if (!word)
        LS_TRY(pst_device_alloc_pinned(ls->device, sizeof(*ls->expected), &word));
    ls->expected = word;
    *ls->expected = ls->by_graph ? ~found : found; /* a replay looks anew */
    begin(ls);
    LS_TRY(psti_pool_expect(ls->pool, ls->expected, expected, ls->stream));
    *ls->expected = found;
    end(ls);
    oracle_expect(ls->oracle, found, expected);
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
        ls_compare_status(ls, &polled, &ls->published);
    ls_compare(ls);
}
