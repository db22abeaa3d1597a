/* pst_pool_check finds every kind of corruption, and nothing where there is none. */
#include "tests/conformance/conf.h"

#include <stdlib.h>

enum { ROW_BYTES = 4096, ROWS = 20, PAGES = 5, POOL_PAGES = 16, TICKETS = 2 };

/* What may be corrupted: words on the host, written back afterwards. */
typedef struct victim {
    pool_words *pool;
    ticket_words *tickets; /* two, live, of five pages each; six pages are free */
} victim;

static uint32_t *ring_slot(const victim *self, uint64_t i)
{
    return &self->pool->ring[0][(self->pool->state.head[0] + i) % POOL_PAGES];
}

static void duplicate_in_ring(const victim *self)
{
    *ring_slot(self, 1) = *ring_slot(self, 4);
}
static void held_id_in_ring(const victim *self)
{
    *ring_slot(self, 3) = self->tickets[1].table[0];
}
static void id_out_of_range_in_ring(const victim *self)
{
    *ring_slot(self, 0) = POOL_PAGES;
}
static void host_bit_in_ring(const victim *self)
{
    *ring_slot(self, 5) |= PSTI_ID_HOST_BIT;
}
static void no_id_in_ring(const victim *self)
{
    *ring_slot(self, 2) = PSTI_ID_NONE;
}
static void head_ahead(const victim *self)
{
    self->pool->state.head[0]++;
}
static void head_behind(const victim *self)
{
    self->pool->state.head[0]--;
}
static void tail_ahead(const victim *self)
{
    self->pool->state.tail[0]++;
}
static void tail_behind(const victim *self)
{
    self->pool->state.tail[0]--;
}
static void ends_swapped(const victim *self)
{
    const uint64_t head = self->pool->state.head[0];
    self->pool->state.head[0] = self->pool->state.tail[0];
    self->pool->state.tail[0] = head;
}
static void tail_far_away(const victim *self)
{
    self->pool->state.tail[0] += UINT32_MAX;
}
static void free_page_has_owner(const victim *self)
{
    self->pool->owner[0][*ring_slot(self, 2)] = self->pool->owner[0][self->tickets[0].table[1]];
}
static void held_page_has_no_owner(const victim *self)
{
    self->pool->owner[0][self->tickets[0].table[4]] = 0;
}
static void held_page_has_other_owner(const victim *self)
{
    self->pool->owner[0][self->tickets[0].table[1]] =
        self->pool->owner[0][self->tickets[1].table[1]];
}
static void held_page_has_old_owner(const victim *self)
{
    self->pool->owner[0][self->tickets[1].table[2]] -= (uint64_t)0x9e3779b1 << 32;
}
static void held_page_has_owner_of_other_place(const victim *self)
{
    self->pool->owner[0][self->tickets[1].table[2]] -= (uint64_t)1 << 32;
}
static void owners_swapped(const victim *self)
{
    uint64_t *owner = self->pool->owner[0];
    const uint64_t first = owner[self->tickets[0].table[0]];
    owner[self->tickets[0].table[0]] = owner[self->tickets[1].table[0]];
    owner[self->tickets[1].table[0]] = first;
}
static void id_out_of_range_in_table(const victim *self)
{
    self->tickets[0].table[0] = POOL_PAGES + 3;
}
static void no_id_in_table(const victim *self)
{
    self->tickets[1].table[4] = PSTI_ID_NONE;
}
static void host_bit_in_table(const victim *self)
{
    self->tickets[1].table[4] |= PSTI_ID_HOST_BIT;
}
static void id_repeated_in_table(const victim *self)
{
    self->tickets[0].table[3] = self->tickets[0].table[2];
}
static void free_id_in_table(const victim *self)
{
    self->tickets[0].table[1] = *ring_slot(self, 0);
}
static void id_of_other_ticket_in_table(const victim *self)
{
    self->tickets[0].table[1] = self->tickets[1].table[1];
}
static void ids_swapped_in_table(const victim *self)
{
    const uint32_t id = self->tickets[0].table[1];
    self->tickets[0].table[1] = self->tickets[0].table[2];
    self->tickets[0].table[2] = id;
}
static void ids_swapped_between_tables(const victim *self)
{
    const uint32_t id = self->tickets[0].table[2];
    self->tickets[0].table[2] = self->tickets[1].table[2];
    self->tickets[1].table[2] = id;
}
static void ticket_with_a_page_less(const victim *self)
{
    self->tickets[0].head.num_pages--;
}
static void ticket_forgotten(const victim *self)
{
    self->tickets[1].head.state = PSTI_TICKET_EMPTY;
}
static void ticket_of_an_old_epoch(const victim *self)
{
    self->tickets[1].head.epoch--;
}
static void page_count_too_small(const victim *self)
{
    self->pool->state.num_pages[0]--;
}
static void page_count_too_large(const victim *self)
{
    self->pool->state.num_pages[0]++;
}

typedef struct corruption {
    const char *name;
    void (*apply)(const victim *self);
    bool walk_is_blind; /* what the walk over the copies takes from elsewhere */
} corruption;

#define KIND(function)             \
    {                              \
#function, function, false \
    }
static const corruption corruptions[] = {
    KIND(duplicate_in_ring),
    KIND(held_id_in_ring),
    KIND(id_out_of_range_in_ring),
    KIND(host_bit_in_ring),
    KIND(no_id_in_ring),
    KIND(head_ahead),
    KIND(head_behind),
    KIND(tail_ahead),
    KIND(tail_behind),
    KIND(ends_swapped),
    KIND(tail_far_away),
    KIND(free_page_has_owner),
    KIND(held_page_has_no_owner),
    KIND(held_page_has_other_owner),
    KIND(held_page_has_old_owner),
    KIND(held_page_has_owner_of_other_place),
    KIND(owners_swapped),
    KIND(id_out_of_range_in_table),
    KIND(no_id_in_table),
    KIND(host_bit_in_table),
    KIND(id_repeated_in_table),
    KIND(ids_swapped_in_table),
    KIND(free_id_in_table),
    KIND(id_of_other_ticket_in_table),
    KIND(ids_swapped_between_tables),
    KIND(ticket_with_a_page_less),
    KIND(ticket_forgotten),
    KIND(ticket_of_an_old_epoch),
    {"page_count_too_small", page_count_too_small, true},
    {"page_count_too_large", page_count_too_large, true},
};

typedef struct scene {
    lockstep ls;
    ls_group group;
    uint32_t tickets[TICKETS];
    pool_words good;
    ticket_words good_tickets[TICKETS];
} scene;

static void write_back(scene *self, const pool_words *pool, const ticket_words *tickets)
{
    lockstep *ls = &self->ls;
    LS_TRY(pool_words_write(ls->pool, pool, ls->stream));
    for (int i = 0; i < TICKETS; i++)
        LS_TRY(ticket_words_write(ls->tickets[self->tickets[i]], &tickets[i], ls->stream));
}

static void read_again(scene *self)
{
    lockstep *ls = &self->ls;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    for (int i = 0; i < TICKETS; i++)
        LS_TRY(ticket_words_read(ls->tickets[i], &ls->words_of[i], ls->stream));
}

/* Two live tickets in a pool that has been used: head and tail are not at the ring's start. */
static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode)
{
    const ls_options options = conf_options(mode, POOL_PAGES, 0);
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    const int64_t rows = ROWS;
    oracle_random random = oracle_random_seeded(9);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    lockstep *ls = &self->ls;
    ls_group_make(ls, &like, &random, &self->group);
    ls_group_set_counts(ls, &self->group, &rows);
    for (int i = 0; i < TICKETS; i++)
        self->tickets[i] = ls_ticket_make(ls, &self->group);
    for (int i = 0; i < 7; i++) {
        ls_stash(ls, self->tickets[i % 2], &self->group);
        if (i > 0 && i < 6)
            ls_release(ls, self->tickets[(i + 1) % 2]);
    }
    ls_release(ls, self->tickets[1]);
    ls_stash(ls, self->tickets[1], &self->group);
    ls_reset(ls, PST_RESET_FAULTS);
    pool_words_make(ls->pool, &self->good);
    LS_TRY(pool_words_read(ls->pool, &self->good, ls->stream));
    for (int i = 0; i < TICKETS; i++) {
        ticket_words_make(ls->tickets[i], &self->good_tickets[i]);
        LS_TRY(ticket_words_read(ls->tickets[i], &self->good_tickets[i], ls->stream));
    }
    return !ls->failed;
}

static void tear_down(scene *self)
{
    pool_words_free(&self->good);
    for (int i = 0; i < TICKETS; i++)
        ticket_words_free(&self->good_tickets[i]);
    ls_group_free(&self->ls, &self->group);
    ls_close(&self->ls);
}

/* Corrupts, checks, mends, checks. */
static void try_corruption(scene *self, const corruption *what)
{
    lockstep *ls = &self->ls;
    const victim words = {.pool = &ls->words, .tickets = ls->words_of};
    read_again(self);
    const uint64_t checks = ls->words.status.checks;
    what->apply(&words);
    write_back(self, &ls->words, ls->words_of);
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    read_again(self);
    CHECK_MSG(ls->words.status.check_errors > 0, "%s was not found", what->name);
    CHECK_MSG(ls->words.status.flags == 1u << PST_FAULT_CHECK, "%s: flags 0x%x", what->name,
              ls->words.status.flags);
    CHECK_EQ(ls->words.status.fault, PST_FAULT_CHECK);
    CHECK_EQ(ls->words.status.fault_ticket, UINT32_MAX);
    CHECK_EQ(ls->words.status.step_valid, 0);
    CHECK_EQ(ls->words.status.checks, checks + 1);
    CHECK_MSG(what->walk_is_blind ||
                  pool_words_violations(ls->pool, &ls->words, ls->words_of, TICKETS) > 0,
              "%s: the walk over the words is blind", what->name);
    self->good.status.checks =
        ls->words.status.checks; /* tells the marks of one check from others */
    write_back(self, &self->good, self->good_tickets);
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    read_again(self);
    CHECK_MSG(ls->words.status.check_errors == 0 && ls->words.status.flags == 0,
              "%s: found after it was mended", what->name);
}

CONFORMANCE(Check, FindsEveryKindOfCorruption)
{
    static scene self;
    CONF_EACH_MODE (mode) {
        if (!set_up(&self, conf, mode))
            return;
        for (size_t i = 0; i < sizeof(corruptions) / sizeof(corruptions[0]); i++) {
            try_corruption(&self, &corruptions[i]);
            if (psti_test_failed())
                return;
        }
        self.ls.oracle->status.checks = self.ls.words.status.checks;
        ls_compare(&self.ls);
        tear_down(&self);
    }
}

/* Ids from the number of pages on are wrong, that number itself among them, wherever it stands. */
CONFORMANCE(Check, CountsIdsThatThereAreNoPagesFor)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED))
        return;
    lockstep *ls = &self.ls;
    for (uint32_t pages = POOL_PAGES - TICKETS * PAGES; pages < POOL_PAGES; pages++) {
        read_again(&self);
        ls->words.state.num_pages[0] = pages;
        write_back(&self, &ls->words, ls->words_of);
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        read_again(&self);
        CHECK_EQ(ls->words.status.check_errors, POOL_PAGES - pages);
    }
    self.good.status.checks = ls->words.status.checks;
    write_back(&self, &self.good, self.good_tickets);
    ls->oracle->status.checks = ls->words.status.checks;
    ls_compare(ls);
    tear_down(&self);
}

/* A thread of a block looks at many places; what it finds at each counts. */
CONFORMANCE(Check, CountsErrorsFarBehind)
{
    enum { FAR = 280, MANY = 2 * FAR + 40 };
    const ls_options options = conf_options(PST_POOL_ORDERED, MANY, 0);
    const shape like = conf_prefix_shape(1, 4 * (FAR + 20), ROW_BYTES); /* a page has four rows */
    static conf_pair self;
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    lockstep *ls = &self.ls;
    conf_pair_stash(&self, 0, 4 * (FAR + 20));
    ticket_words *ticket = &ls->words_of[0];
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_read(ls->tickets[0], ticket, ls->stream));
    uint32_t *slot =
        &ls->words.ring[0][(ls->words.state.head[0] + FAR) & ls->pool->view.ring_mask[0]];
    const uint32_t was[] = {ticket->table[FAR], *slot};
    ticket->table[FAR] = *slot = PSTI_ID_NONE;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_write(ls->tickets[0], ticket, ls->stream));
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(ls->words.status.check_errors, 2);
    ticket->table[FAR] = was[0];
    *slot = was[1];
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_write(ls->tickets[0], ticket, ls->stream));
    LS_TRY(pst_pool_check(ls->pool, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->oracle->status.checks = ls->words.status.checks;
    ls_reset(ls, PST_RESET_FAULTS);
    conf_pair_restore(&self, 0, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    conf_pair_close(&self);
}

/* The count is right where exactly one page is concerned. */
CONFORMANCE(Check, CountsOneErrorForOneLostPage)
{
    static scene self;
    if (!set_up(&self, conf, PST_POOL_ORDERED))
        return;
    lockstep *ls = &self.ls;
    read_again(&self);
    ls->words.state.head[0]++;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    for (int again = 0; again < 3; again++) { /* the scratch of one check is not that of the next */
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        read_again(&self);
        CHECK_EQ(ls->words.status.check_errors, 1);
    }
    self.good.status = ls->oracle->status;
    self.good.status.checks = ls->words.status.checks;
    write_back(&self, &self.good, self.good_tickets);
    ls->oracle->status.checks = ls->words.status.checks;
    ls_compare(ls);
    tear_down(&self);
}
