/* The alphabet: each public function of pool.h, ticket.h and glu.h that changes a pool or a ticket, with the
 * arguments that matter to so small a pool. Lockstep says of each what must result: the answer, pages, statistics,
 * bytes. Scrubbing and failing fast are kinds of pools. Not in it:
 *   - captures and replays: the conformance suite, slab_graph_test.c and graph_hold_test.c
 *   - what overlaps on several streams or threads: tests/lazy, tests/relacy, the conformance suite
 *   - damaged words: conf_damage.c and conf_chaos.c
 *   - pst_nccl_agree, which needs a GPU; what it does to a pool is the letter "another rank failed"
 *   - the scheduler, which calls what is here; psti_pool_expect, which its graphs call, is a letter
 *   - what only computes: pst_pool_bytes, pst_pool_recommend_pages, pst_fault_text, pst_ticket_bytes
 * pst_pool_poll, get_info and destroy, and pst_ticket_index, are asked after every letter. */
#include "tests/host/stash/small_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILLER = 0x77 };

/* ---- stash ---- */

/* The first `tensors` have rows; below 0: the first has a negative count, above all: the last too many. */
void small_set_counts(small_pool *self, int64_t tensors)
{
    int64_t rows[SMALL_TENSORS];
    for (int64_t t = 0; t < SMALL_TENSORS; t++)
        rows[t] = t < tensors ? SMALL_ROWS : 0;
    if (tensors < 0)
        rows[0] = -1;
    if (tensors > SMALL_TENSORS)
        rows[SMALL_TENSORS - 1] = SMALL_ROWS + 1;
    ls_group_set_counts(&self->ls, &self->source, rows);
}

static void stash(small_pool *self, uint32_t ticket, int64_t tensors)
{
    small_fill_source(self);
    small_set_counts(self, tensors);
    ls_stash(&self->ls, ticket, &self->source);
}

static void offload(small_pool *self, uint32_t ticket, int64_t halves)
{
    ls_set_offload(&self->ls, ticket, (uint32_t)halves, 2);
    ls_compare(&self->ls);
}

/* ---- restore ---- */

/* Into buffers of which nothing is known: nothing of an earlier restore decides about this one. */
static void clean(small_pool *self, ls_group *destination)
{
    ls_group_poison(&self->ls, destination, FILLER);
    ls_group_mark_dirty(&self->ls, destination);
}

typedef struct restore_kind {
    pst_restore_pages pages;
    pst_restore_tail tail;
    pst_restore_failed failed;
} restore_kind;

static const restore_kind restores[] = {
    {PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED, PST_FAILED_UNTOUCHED},
    {PST_RESTORE_CONSUME, PST_TAIL_ZERO, PST_FAILED_ZERO},
    {PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL, PST_FAILED_UNTOUCHED},
    {PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED, PST_FAILED_ZERO},
    {PST_RESTORE_KEEP, PST_TAIL_ZERO, PST_FAILED_UNTOUCHED},
};

static void restore(small_pool *self, uint32_t ticket, int64_t kind)
{
    const restore_kind *how = &restores[kind];
    clean(self, &self->destination);
    ls_restore_as(&self->ls, ticket, &self->destination, how->pages, how->tail, how->failed);
}

static void restore_to_less(small_pool *self, uint32_t ticket, int64_t rows)
{
    clean(self, &self->destination);
    for (uint32_t i = 0; i < SMALL_TENSORS; i++)
        self->destination.model.capacities[i] = rows;
    ls_restore(&self->ls, ticket, &self->destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    memset(self->destination.model.capacities, 0, sizeof(self->destination.model.capacities));
}

static void restore_to_stranger(small_pool *self, uint32_t ticket, int64_t kind)
{
    clean(self, &self->stranger);
    ls_restore_as(&self->ls, ticket, &self->stranger, restores[kind].pages, restores[kind].tail,
                  restores[kind].failed);
}

static void release(small_pool *self, uint32_t ticket, int64_t unused)
{
    (void)unused;
    ls_release(&self->ls, ticket);
}

static void demote(small_pool *self, uint32_t ticket, int64_t most)
{
    ls_demote(&self->ls, ticket, (uint64_t)most);
}

static void promote(small_pool *self, uint32_t ticket, int64_t most)
{
    ls_promote(&self->ls, ticket, (uint64_t)most);
}

/* ---- handles ---- */

void small_part_with(small_pool *self, uint32_t place)
{
    lockstep *ls = &self->ls;
    const uint32_t index = self->tickets[place];
    ls->operation++;
    if (self->kind.lends) {
        ls_ticket_give(ls, index);
        self->given_last = index;
    } else {
        ls_ticket_free(ls, index);
    }
    if (!ls->tickets[index].id)
        self->tickets[place] = UINT32_MAX;
    ls_compare(ls);
}

void small_get_ticket(small_pool *self, uint32_t place)
{
    lockstep *ls = &self->ls;
    ls->operation++;
    self->tickets[place] =
        self->kind.lends ? ls_ticket_take(ls, false) : ls_ticket_make(ls, &self->source);
    if (ls->failed)
        return;
    self->last[place] = ls->tickets[self->tickets[place]];
    ls_compare(ls);
}

static void part_with(small_pool *self, uint32_t place, int64_t unused)
{
    (void)unused;
    lockstep *ls = &self->ls;
    const pst_ticket handle = self->last[place];
    LS_SAME(self->kind.lends ? pst_ticket_destroy(handle) : pst_ticket_give(handle, ls->stream),
            PST_E_INVALID, "the other way to part with a ticket");
    small_part_with(self, place);
}

static void get_one(small_pool *self, uint32_t place, int64_t unused)
{
    (void)unused;
    small_get_ticket(self, place);
}

static void get_one_more(small_pool *self, uint32_t unused, int64_t unused_too)
{
    lockstep *ls = &self->ls;
    pst_ticket more = {0};
    (void)unused;
    (void)unused_too;
    LS_SAME(pst_ticket_create(ls->pool, self->source.group, &more), PST_E_INVALID,
            "a ticket more than max_tickets");
    LS_SAME(pst_ticket_take(ls->pool, ls->stream, &more),
            self->kind.lends ? PST_E_BUSY : PST_E_INVALID, "take of one more");
    LS_SAME(more.id, 0, "the ticket that was refused");
    ls_compare(ls);
}

static void use_old_handle(small_pool *self, uint32_t place, int64_t unused)
{
    lockstep *ls = &self->ls;
    const pst_ticket old = self->last[place];
    (void)unused;
    const pst_status answers[] = {
        ls_enqueue_stash(old, &self->source, ls->stream),
        ls_enqueue_restore(old, &self->destination, NULL, ls->stream),
        pst_ticket_release(old, ls->stream),
        pst_ticket_demote(old, NULL, ls->stream),
        pst_ticket_promote(old, NULL, ls->stream),
        pst_ticket_set_offload(old, 0, 1),
        pst_ticket_give(old, ls->stream),
        pst_ticket_destroy(old),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        LS_SAME(answers[i], PST_E_INVALID, "answer %zu about a handle that is gone", i);
    ls_compare(ls);
}

/* ---- the pool's ---- */

static void reset(small_pool *self, uint32_t unused, int64_t what)
{
    (void)unused;
    ls_reset(&self->ls, (uint32_t)what);
}

static void step(small_pool *self, uint32_t unused_ticket, int64_t unused)
{
    (void)unused_ticket;
    (void)unused;
    ls_step(&self->ls);
}

static void check(small_pool *self, uint32_t unused_ticket, int64_t unused)
{
    (void)unused_ticket;
    (void)unused;
    ls_check(&self->ls);
}

static void expect(small_pool *self, uint32_t unused, int64_t found)
{
    (void)unused;
    ls_expect(&self->ls, (uint64_t)found, 1);
}

/* Of a group that agrees: the smallest of all ranks' is 0. */
static void agree(small_pool *self, uint32_t unused_ticket, int64_t unused)
{
    lockstep *ls = &self->ls;
    (void)unused_ticket;
    (void)unused;
    ls->operation++;
    LS_TRY(
        pst_device_fill(ls->device, pst_pool_step_valid(ls->pool), 0, sizeof(int32_t), ls->stream));
    ls->oracle->status.step_valid = 0;
    ls_compare(ls);
}

/* arg: device pages, and ten times the host's. */
static void resize(small_pool *self, uint32_t unused, int64_t pages)
{
    (void)unused;
    ls_resize(&self->ls, (uint64_t)pages % 10, (uint64_t)pages / 10);
}

const small_letter small_letters[] = {
    {"stash of no page", stash, 0, OF_A_TICKET, true},
    {"stash of 1", stash, 1, OF_A_TICKET, true},
    {"stash of 2", stash, 2, OF_A_TICKET, true},
    {"stash of 3", stash, 3, OF_A_TICKET, true},
    {"stash of 4", stash, SMALL_TENSORS, OF_A_TICKET, true},
    {"stash of a negative count", stash, -1, OF_A_TICKET, false},
    {"stash of a count above the capacity", stash, SMALL_TENSORS + 1, OF_A_TICKET, false},
    {"stash of 2 by a GLU", small_glu_stash, 2, OF_A_TICKET, false},
    {"stash of a negative count by a GLU", small_glu_stash, -1, OF_A_TICKET, false},
    {"offload of nothing from now on", offload, 0, OF_A_TICKET, false},
    {"offload of half", offload, 1, OF_A_TICKET, false},
    {"offload of all", offload, 2, OF_A_TICKET, false},
    {"restore", restore, 0, OF_A_TICKET, false},
    {"restore that clears the tail that is dirty, and what fails", restore, 1, OF_A_TICKET, false},
    {"restore that clears the whole tail", restore, 2, OF_A_TICKET, false},
    {"restore that keeps, and clears what fails", restore, 3, OF_A_TICKET, false},
    {"restore that keeps, and clears the tail that is dirty", restore, 4, OF_A_TICKET, false},
    {"restore into too small a destination", restore_to_less, SMALL_ROWS - 1, OF_A_TICKET, false},
    {"restore of another form", restore_to_stranger, 1, OF_A_TICKET, false},
    {"restore by a GLU", small_glu_restore, PST_RESTORE_CONSUME, OF_A_TICKET, false},
    {"restore by a GLU that keeps", small_glu_restore, PST_RESTORE_KEEP, OF_A_TICKET, false},
    {"release", release, 0, OF_A_TICKET, true},
    {"demote", demote, 0, OF_A_TICKET, true},
    {"demote of up to 1", demote, 1, OF_A_TICKET, false},
    {"demote of the rest", demote, -1, OF_A_TICKET, false},
    {"promote", promote, 0, OF_A_TICKET, true},
    {"promote of up to 1", promote, 1, OF_A_TICKET, false},
    {"promote of the rest", promote, -1, OF_A_TICKET, false},
    {"give or destroy", part_with, 0, OF_A_TICKET, true},
    {"take or create", get_one, 0, OF_NO_TICKET, true},
    {"any use of a handle that is gone", use_old_handle, 0, OF_NO_TICKET, false},
    {"take and create of one more", get_one_more, 0, OF_ALL_TICKETS, false},
    {"reset of pages", reset, PST_RESET_PAGES, OF_THE_POOL, true},
    {"reset of faults", reset, PST_RESET_FAULTS, OF_THE_POOL, false},
    {"reset of statistics", reset, PST_RESET_STATISTICS, OF_THE_POOL, true},
    {"reset of all", reset, PST_RESET_ALL, OF_THE_POOL, true},
    {"step", step, 0, OF_THE_POOL, true},
    {"check", check, 0, OF_THE_POOL, false},
    {"another rank failed", agree, 0, OF_THE_POOL, false},
    {"graph of this schedule", expect, 1, OF_THE_POOL, false},
    {"graph of another schedule", expect, 2, OF_THE_POOL, false},
    {"resize to 1 page", resize, 1, OF_THE_POOL, true},
    {"resize to 1 and 1 of the host", resize, 11, OF_THE_POOL, false},
    {"resize to 2", resize, 2, OF_THE_POOL, false},
    {"resize to 2 and 1 of the host", resize, 12, OF_THE_POOL, true},
    {"resize to none", resize, 10, OF_THE_POOL, false},
    {"resize to more than there may be", resize, 22, OF_THE_POOL, false},
};
const uint32_t small_num_letters = sizeof(small_letters) / sizeof(small_letters[0]);

/* ---- letters at work ---- */

uint32_t small_present(const small_pool *self)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < SMALL_TICKETS; i++)
        if (self->tickets[i] != UINT32_MAX)
            present |= 1u << i;
    return present;
}

bool small_applies(uint32_t present, const small_letter *letter, uint32_t place)
{
    const bool has = present >> place & 1;
    switch (letter->when) {
    case OF_A_TICKET:
        return has;
    case OF_NO_TICKET:
        return !has;
    case OF_ALL_TICKETS:
        return place == 0 && present == (1u << SMALL_TICKETS) - 1;
    default:
        return place == 0;
    }
}

static void compare_info(small_pool *self)
{
    lockstep *ls = &self->ls;
    const uint32_t num_tickets = (uint32_t)__builtin_popcount(small_present(self));
    pst_pool_info info;
    LS_TRY(pst_pool_get_info(ls->pool, &info));
    LS_SAME(info.num_pages[0], ls->oracle->num_pages[0], "info num_pages[0]");
    LS_SAME(info.num_pages[1], ls->oracle->num_pages[1], "info num_pages[1]");
    LS_SAME(info.max_pages[0], SMALL_PAGES, "info max_pages[0]");
    LS_SAME(info.max_pages[1], SMALL_HOST_PAGES, "info max_pages[1]");
    LS_SAME(info.num_tickets, num_tickets, "info num_tickets");
    LS_SAME(info.slab_taken, self->kind.lends ? num_tickets : 0, "info slab_taken");
    for (uint32_t i = 0; i < SMALL_TICKETS; i++)
        LS_SAME(pst_ticket_index(self->last[i]), self->tickets[i], "index of ticket %u", i);
    if (num_tickets > 0)
        LS_SAME(pst_pool_destroy(ls->pool), PST_E_BUSY, "destroy of a pool with tickets");
}

static void compare_poll(small_pool *self)
{
    lockstep *ls = &self->ls;
    pst_pool_status polled;
    const pst_status status = pst_pool_poll(ls->pool, &polled);
    LS_SAME(status, ls->oracle->status.steps ? PST_OK : PST_E_AGAIN, "answer of poll");
    if (status == PST_OK)
        ls_compare_status(ls, &polled, &ls->published);
}

void small_operate(small_pool *self, const small_letter *letter, uint32_t place)
{
    lockstep *ls = &self->ls;
    const bool has_place = letter->run == part_with || letter->when == OF_NO_TICKET;
    letter->run(self, has_place ? place : self->tickets[place], letter->arg);
    if (ls->replays || ls->failed)
        return;
    for (uint32_t i = 0; i < SMALL_TICKETS && !ls->failed; i++)
        if (self->tickets[i] != UINT32_MAX)
            ls_compare_pages(ls, self->tickets[i]);
    if (!ls->failed)
        compare_info(self);
    if (!ls->failed)
        compare_poll(self);
}
