/* A pool of 3 pages with 2 tickets beside the oracle, and the alphabet: all that can be done to them. */
#ifndef PAGESTASH_TESTS_SMALL_POOL_H
#define PAGESTASH_TESTS_SMALL_POOL_H

#include <pagestash/glu.h>

#include "tests/oracle/lockstep.h"

enum {
    SMALL_TICKETS = 2,
    SMALL_PAGES = 2,
    SMALL_HOST_PAGES = 1,
    SMALL_TENSORS =
        SMALL_PAGES + SMALL_HOST_PAGES + 1, /* of a page each: one more than there are */
    SMALL_ROWS = 2,                         /* of each tensor that has any */
    SMALL_FEATURES = 4                      /* of the GLU that writes the first one */
};

typedef struct small_kind {
    const char *name;
    pst_pool_mode mode;
    bool lends; /* tickets of the slab, else created ones */
    bool scrub, fails_fast;
} small_kind;

/* Rows beside the group's, of the GLU that reads or writes them: on the host device. */
typedef struct small_operands {
    float output[SMALL_ROWS][SMALL_FEATURES];
    float gradient[SMALL_ROWS][SMALL_FEATURES];
    float input_gradient[SMALL_ROWS][2 * SMALL_FEATURES];
} small_operands;

typedef struct small_pool {
    lockstep ls;
    ls_group source, destination, stranger; /* the last one of another form */
    small_kind kind;
    uint32_t tickets[SMALL_TICKETS]; /* index; UINT32_MAX: there is none */
    pst_ticket last[SMALL_TICKETS];  /* handle that it has, or had */
    uint32_t given_last;             /* index of the lent ticket that was */
    ls_calls calls;
    small_operands *operands;
} small_pool;

/* run: with a ticket's index, or, where it changes which ticket there is, with its place; arg is the letter's. */
typedef struct small_letter {
    const char *name;
    void (*run)(small_pool *self, uint32_t ticket, int64_t arg);
    int64_t arg;
    enum { OF_A_TICKET, OF_NO_TICKET, OF_ALL_TICKETS, OF_THE_POOL } when;
    bool moves_marks; /* of pages in use or wanted */
} small_letter;

extern const small_letter small_letters[];
extern const uint32_t small_num_letters;

/* A bit for each place that has a ticket. */
uint32_t small_present(const small_pool *self);
/* Whether the letter can be done to this place where those are present; one of the pool to place 0 alone. */
bool small_applies(uint32_t present, const small_letter *letter, uint32_t place);
/* Another ticket for a place that has none. */
void small_get_ticket(small_pool *self, uint32_t place);
/* Gives or destroys, which may be refused. */
void small_part_with(small_pool *self, uint32_t place);
/* Does it, and looks at all that the pool then shows. */
void small_operate(small_pool *self, const small_letter *letter, uint32_t place);

void small_open(small_pool *self, pst_device *device, const small_kind *kind);
void small_close(small_pool *self);
/* As it was when it was opened, but for what only grows, such as epochs. */
void small_rewind(small_pool *self);

/* ---- small_pool.c: what a GLU computes beside its stash or restore ---- */

/* What a stash reads: numbers that no other operation's source has. */
void small_fill_source(small_pool *self);
void small_glu_stash(small_pool *self, uint32_t ticket, int64_t tensors);
void small_glu_restore(small_pool *self, uint32_t ticket, int64_t pages);
void small_set_counts(small_pool *self, int64_t tensors);

#endif
