/* What the files of the exact search share.
 *
 * The search builds a placement from below. Over every slot stands a floor; maximal ranges of slots
 * with one floor are runs, and a run between higher ones is a valley. What comes next over the
 * outermost slot of a valley either rests on its floor, and then lies within the valley and begins
 * (or ends) there; or it does not, and the slot stays void up to a higher floor. Those are all the
 * choices, whichever valley is asked. Among the placements with the lowest sum of offsets there is
 * one in which every tensor rests on something, nothing would fit into a void below it, and of two
 * tensors of the same slots, one right above the other, the smaller is below: only such are looked for.
 *
 * Pinned tensors are placed like the others, when the floor under them has risen to their address.
 */
#ifndef PSTI_HOST_PLAN_EXACT_H
#define PSTI_HOST_PLAN_EXACT_H

#include "host/plan/plan.h"

#define PSTI_EXACT_NO_TENSOR UINT32_MAX
#define PSTI_EXACT_WALL UINT64_MAX /* beside a slot with which no tensor is shared */

/* Which end of a valley, and which end of a tensor. */
enum { PSTI_EXACT_LEFT = 0, PSTI_EXACT_RIGHT = 1, PSTI_EXACT_SIDES = 2 };

/* Slots that matter only, sizes and pins divided by their greatest common divisor. Read only. */
typedef struct psti_exact_instance {
    uint32_t num_tensors, num_slots, num_pinned;
    uint32_t *begin, *end;
    uint64_t *size, *pin; /* PST_PLAN_FREE: none */
    uint64_t *length;     /* as given, or slots as they were given */
    uint32_t *pinned;     /* those with a pin */
    uint64_t target, unit;
    uint64_t memory_left; /* atomic; bytes */
} psti_exact_instance;

/* What an order prefers. */
typedef enum psti_exact_order {
    PSTI_EXACT_BY_LENGTH = 0,
    PSTI_EXACT_BY_CHANCE,
} psti_exact_order;

/* Which valley is decided first. */
typedef enum psti_exact_focus {
    PSTI_EXACT_FEWEST = 0, /* with the fewest choices */
    PSTI_EXACT_FIRM,       /* the same, but a void counts more */
    PSTI_EXACT_TIGHT,      /* the same, where little may be wasted */
    PSTI_EXACT_SORE,       /* with few choices for the dead ends that it caused */
} psti_exact_focus;

/* One way through the tree. */
typedef struct psti_exact_manner {
    psti_exact_order order;
    psti_exact_focus focus;
    uint64_t seed;
} psti_exact_manner;

/* A level is twice the floor of a run, or that minus 1 for a void: nothing rests there. */
typedef struct psti_exact_run {
    uint64_t level;
    uint32_t end;
    uint32_t before; /* where the run begins that ends here */
    uint32_t lid;    /* 1 + the tensor whose top is the whole run, or 0 */
} psti_exact_run;

/* How a run was, or, with until > 0, slots index..until-1 whose slack fell. */
typedef struct psti_exact_change {
    uint32_t index, until;
    uint64_t slack_lost;
    psti_exact_run run;
} psti_exact_change;

/* The choices at one end of a valley. */
typedef struct psti_exact_corner {
    uint32_t num_choices;
    uint32_t void_begin, void_end;
    uint64_t void_level; /* 0: the slots must not stay void */
} psti_exact_corner;

typedef struct psti_exact_corners {
    bool is_known;
    psti_exact_corner side[PSTI_EXACT_SIDES];
} psti_exact_corners;

/* A decision of the path that is being tried. */
typedef struct psti_exact_frame {
    psti_exact_corner corner;
    size_t num_changes; /* before it */
    uint32_t begin;     /* the valley */
    uint32_t side;
    uint32_t low, high; /* slots around it that no unplaced tensor leaves */
    uint32_t parent;    /* the decision that led into wider slots, or NO_FRAME */
    uint32_t next;      /* tensor to try, if it fits */
    uint32_t placed;    /* or NO_TENSOR */
    bool tries_rest;    /* what is flush with something beside it comes first */
    bool was_void;
} psti_exact_frame;

typedef struct psti_exact_entry {
    double key;
    uint64_t size;
    uint32_t begin, end, tensor;
} psti_exact_entry;

/* Of one thread. */
typedef struct psti_exact_state {
    psti_exact_instance *instance;
    psti_exact_focus focus;
    uint64_t steps; /* since the last reset */
    uint32_t num_unplaced;
    bool is_denied; /* memory_left did not suffice */
    void *memory;
    uint64_t memory_bytes;
    /* of slots */
    uint64_t *slack;   /* what may still be wasted */
    double *sores;     /* dead ends caused, the recent ones counting more; kept over resets */
    double sore;       /* what the next one counts */
    uint64_t *ceiling; /* lowest unplaced pin; NULL without pins */
    uint32_t *live;    /* unplaced tensors */
    uint32_t *cross;   /* unplaced tensors that live here and in the slot before */
    psti_exact_run *runs;
    psti_exact_corners *corners; /* of valleys, as far as known */
    /* unplaced tensors by begin and by end, in the order of the manner */
    uint32_t *head[PSTI_EXACT_SIDES], *next[PSTI_EXACT_SIDES], *prev[PSTI_EXACT_SIDES];
    uint64_t *offset;
    psti_exact_entry *entries;
    psti_exact_change *changes;
    size_t num_changes, max_changes;
    psti_exact_frame *frames;
    size_t num_frames, max_frames;
} psti_exact_state;

static inline uint64_t psti_exact_floor(uint64_t level)
{
    return (level + 1) >> 1;
}

/* Which list of a side a tensor is in. */
static inline uint32_t psti_exact_list(const psti_exact_instance *p, int side, uint32_t tensor)
{
    return side == PSTI_EXACT_LEFT ? p->begin[tensor] : p->end[tensor];
}

/* ---- plan_exact_memory.c ---- */

/* Zeroed bytes out of memory_left. PSTI_FOUND; PSTI_NO_MEMORY; PSTI_STOPPED: beyond memory_left. */
psti_verdict psti_exact_take(psti_exact_instance *instance, uint64_t bytes, void **memory_out);
void psti_exact_give(psti_exact_instance *instance, void *memory, uint64_t bytes); /* or NULL */
/* Makes room for `wanted` entries of so many bytes, some more, and keeps what is there. */
psti_verdict psti_exact_grow(psti_exact_instance *instance, void **memory, size_t *max,
                             size_t wanted, size_t bytes);

/* ---- plan_exact_state.c ---- */

/* Both answer PSTI_FOUND; PSTI_NO_MEMORY; PSTI_STOPPED: beyond memory_left. */
psti_verdict psti_exact_state_open(psti_exact_instance *instance, psti_exact_state *state_out);
psti_verdict psti_exact_reserve_frame(psti_exact_state *state);
/* For one change of as many slots. */
psti_verdict psti_exact_reserve(psti_exact_state *state, uint64_t num_slots);
void psti_exact_state_close(psti_exact_state *state);
/* Nothing is placed, and the lists are in the order of the manner. */
void psti_exact_reset(psti_exact_state *state, const psti_exact_manner *manner);

/* ---- plan_exact_skyline.c ---- */

/* The levels beside a run. */
uint64_t psti_exact_left(const psti_exact_state *state, uint32_t begin);
uint64_t psti_exact_right(const psti_exact_state *state, uint32_t end);
/* At one end of the run at `begin`. Room for the changes was reserved. */
void psti_exact_place(psti_exact_state *state, uint32_t tensor, uint32_t begin);
/* Slots begin..end-1 of the run at `run`; the same. False: too much is wasted, or a tensor fits below. */
bool psti_exact_raise(psti_exact_state *state, uint32_t run, uint32_t begin, uint32_t end,
                      uint64_t level);
/* tensor: PSTI_EXACT_NO_TENSOR, or what was placed since then. */
void psti_exact_undo(psti_exact_state *state, size_t num_changes, uint32_t tensor);

/* ---- plan_exact_corner.c ---- */

psti_exact_corner psti_exact_look(const psti_exact_state *state, uint32_t begin, uint32_t side);
/* Whether the tensor is one of the choices. */
bool psti_exact_fits(const psti_exact_state *state, uint32_t tensor, uint32_t begin, uint32_t side);
/* The lowest pin over the slots, or PSTI_EXACT_WALL. */
uint64_t psti_exact_ceiling(const psti_exact_state *state, uint32_t begin, uint32_t end);

/* ---- plan_exact_search.c ---- */

/* Goes on for at most max_steps. PSTI_STOPPED: there is more to try, or memory_left does not suffice
 * (is_denied). */
psti_verdict psti_exact_continue(psti_exact_state *state, uint64_t max_steps);

/* ---- plan_exact_rise.c: another way, for instances without pins ---- */

typedef struct psti_exact_rise psti_exact_rise;

psti_verdict psti_exact_rise_open(psti_exact_instance *instance, psti_exact_rise **rise_out);
void psti_exact_rise_close(psti_exact_rise *rise); /* NULL is allowed */
/* Ranks by live size and length; then by area, or, if shuffle is not 0, in an order of its own. */
void psti_exact_rise_reset(psti_exact_rise *rise, uint64_t shuffle);
/* As psti_exact_continue. A step of much work counts as several; *steps_out may so pass max_steps. */
psti_verdict psti_exact_rise_continue(psti_exact_rise *rise, uint64_t max_steps,
                                      uint64_t *steps_out);
bool psti_exact_rise_is_denied(const psti_exact_rise *rise);
uint64_t psti_exact_rise_offset(const psti_exact_rise *rise, uint32_t tensor);

#endif
