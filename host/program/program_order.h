/* What the check of a program knows while it walks one: how far each stream has come in the eyes of the
 * others, and who used an event, a set of buffers or a ticket last. Private to program_check.c and
 * program_order.c. */
#ifndef PSTI_HOST_PROGRAM_ORDER_H
#define PSTI_HOST_PROGRAM_ORDER_H

#include "host/program/program.h"

/* A line is what runs in one order whatever the mixture: a stream, or in a pair what one of the two
 * passes puts on it. The second pass has lines of its own, from PSTI_STREAMS on. */
enum { PSTI_STREAMS = 1 + 4, PSTI_LINES = 2 * PSTI_STREAMS };

/* of[line] = n: the first n accesses of that line are over. */
typedef struct psti_clock {
    uint32_t of[PSTI_LINES];
} psti_clock;

/* An access: the n-th of its line, by an operation, or by the main stream in a visit. */
typedef struct psti_mark {
    uint32_t tick; /* 0: none */
    uint32_t who;  /* operation or visit */
    uint8_t line;
    bool is_visit;
} psti_mark;

/* Where in the order of the hooks something stands. */
typedef struct psti_place {
    uint32_t pair; /* from 1; 0: in none */
    bool is_second;
} psti_place;

typedef struct psti_event_state {
    psti_clock at;
    uint32_t record; /* operation + 1; 0: none yet */
    uint32_t rival;  /* + 1: a record of the other pass of the same pair: either may be last */
    uint32_t wait;   /* + 1: the last wait for it */
    psti_place recorded, waited;
} psti_event_state;

/* A set has one user at a time: the forward that writes it, or the backward into which it is restored;
 * a visit kept in place and one that is held read their user's. */
typedef struct psti_set_state {
    uint32_t user;                    /* visit */
    psti_mark written[PST_MAX_PARTS]; /* by the user */
    psti_mark now[PSTI_LINES];        /* the user's latest accesses */
    psti_mark before[PSTI_LINES];     /* those of the users before it */
} psti_set_state;

typedef enum psti_ticket_step {
    PSTI_TICKET_IS_EMPTY = 0,
    PSTI_TICKET_IS_STASHED,
    PSTI_TICKET_IS_DEMOTED,
    PSTI_TICKET_IS_PROMOTED
} psti_ticket_step;

typedef struct psti_ticket_state {
    psti_mark last;
    uint32_t visit; /* the forward that was stashed */
    uint8_t step;   /* psti_ticket_step */
} psti_ticket_state;

typedef struct psti_order {
    const psti_program_config *config;
    const psti_program *program;
    psti_place place;
    uint32_t num_pairs;
    psti_clock lines[PSTI_LINES];
    uint32_t *first_event; /* [num_seats] */
    psti_event_state *events;
    psti_set_state *sets;
    uint32_t num_sets;
    uint32_t *forward_sets, *backward_sets; /* [num_seats] of aliases; NULL: a visit says its set */
    psti_ticket_state *tickets; /* [num_seats][PST_MAX_PARTS]; of a SWAPPED seat the first */
} psti_order;

/* Fails: NOMEM; free in any case. */
pst_status psti_order_make(psti_order *order, const psti_program_config *config,
                           const psti_program *program);
void psti_order_free(psti_order *order);

/* Between fork and join stand the two passes of a pair; place.is_second says which one is walked. */
void psti_order_fork(psti_order *order);
void psti_order_join(psti_order *order);

/* One operation, by its number. Each fails: INVALID, naming two. */
pst_status psti_order_record(psti_order *order, uint32_t operation);
pst_status psti_order_wait(psti_order *order, uint32_t operation);
void psti_order_join_side(psti_order *order, uint32_t operation);

/* Accesses of the parts in `parts` (bits) of the set that `user` has. */
pst_status psti_order_write(psti_order *order, psti_mark by, uint32_t user, uint32_t parts);
pst_status psti_order_read(psti_order *order, psti_mark by, uint32_t user, uint32_t parts);
/* All accesses of one ticket are ordered. */
pst_status psti_order_ticket(psti_order *order, psti_mark by, psti_ticket_state *ticket);

/* A new access. */
psti_mark psti_order_operation(psti_order *order, uint32_t operation);
psti_mark psti_order_visit(psti_order *order, uint32_t visit);

enum { PSTI_ORDER_TEXT_BYTES = 200 };
/* "stash of part 0 of chunk 0, layer 2, micro-batch 4 on side stream 1"; returns text. */
const char *psti_order_text(const psti_order *order, psti_mark mark,
                            char text[PSTI_ORDER_TEXT_BYTES]);
/* The same of an operation that is no access. */
static inline psti_mark psti_order_mark(uint32_t operation)
{
    return (psti_mark){.who = operation};
}

#endif
