/* Room program: from a schedule and what becomes of its layers to operations per hook.
 *
 * A pure function, psti_program_make, compiles (schedule, layers, sets, streams) into two lists of
 * operations per visit: what begin and end of the visit enqueue. The executor (host/scheduler) plays
 * them on streams, the simulator (host/simulate) on clocks and counters, and psti_program_check
 * proves that they are ordered. So all three speak of the same operations.
 *
 * Room program: uses base and schedule. Used by scheduler, simulate, policy.
 *
 * A visit is a layer of a pass. Visits are numbered in the order of the schedule, but for pairs,
 * whose forward comes first: the hooks of a pair's two passes may come in any mixture, each pass in its
 * own order, and the program is right for each. A seat is (chunk, layer, slot): what has tickets, events
 * and graphs of its own.
 *
 * Every visit that holds a set of buffers is a user of that set. A set's users stand in the order of
 * visits; each waits for what the one before leaves behind: a stash out of it, or a backward that has
 * read it. A restore is issued as soon as the hook that ends the user before has been called.
 *
 * Parts that a GLU writes (group.h) are stashed and restored by the caller's own launches within the
 * visit, on the main stream. The program has these as operations, so that the simulator counts them
 * and the check orders them; the executor has nothing to do there.
 */
#ifndef PSTI_HOST_PROGRAM_H
#define PSTI_HOST_PROGRAM_H

#include <pagestash/keep.h>
#include <pagestash/scheduler.h>

#include "host/base/base.h"
#include "host/schedule/schedule.h"

#define PSTI_NO_SET UINT8_MAX
#define PSTI_NO_VISIT UINT32_MAX
#define PSTI_MAX_SEATS (1u << 24)

/* ---- what is compiled ---- */

typedef struct psti_program_layer {
    uint8_t keep;                /* pst_keep */
    uint8_t num_parts;           /* PAGED: 1..PST_MAX_PARTS */
    uint8_t uses[PST_MAX_PARTS]; /* PST_USE_ bits, never 0 */
    uint8_t glus;                /* bits of the parts that a GLU writes */
    bool holds;
    bool demotes; /* PST_MOVE_DEMOTE and a share above 0 */
    /* some pages of its GLUs' parts are on the host without a demote, and come back ahead */
    bool promotes;
    uint32_t promote_ahead; /* at least 1 where it demotes or promotes */
} psti_program_layer;

typedef struct psti_program_config {
    const pst_schedule *schedule;
    const uint32_t *num_layers;       /* of each chunk */
    const psti_program_layer *layers; /* chunk after chunk */
    const uint32_t *num_slots; /* of each chunk; at least the schedule's; NULL: the schedule's */
    uint32_t num_sources, num_destinations; /* 1..PST_MAX_SETS; of one ring 0 destinations */
    uint32_t ahead;                         /* 0: as many as destinations, of one ring all sets */
    uint32_t num_streams;                   /* 1, 2 or 4 */
    bool one_ring;                          /* restores go into the same sets that forwards write */
    bool keeps_nothing;
    bool by_slot; /* sets belong to seats: what LAYERS wants */
    pst_restore_rule rule;
    /* by_slot: the sets that the caller gave the seats of its PAGED layers: any numbers, of forwards and
     * backwards (also of weight passes) in one name space; NULL: chosen. */
    const uint32_t *forward_alias, *backward_alias; /* [num_seats] */
} psti_program_config;

/* ---- the program ---- */

typedef enum psti_stream_id {
    PSTI_ON_MAIN = 0, /* the stream that calls the hook */
    PSTI_ON_SIDE      /* first of the side streams: 1 to num_streams */
} psti_stream_id;

/* What an event says has happened. There is one of each kind for a seat. */
typedef enum psti_event_kind {
    PSTI_EVENT_PRODUCED = 0, /* the forward has written the source */
    PSTI_EVENT_STASHED,      /* the source is in pages, or in host memory of a swapped layer */
    PSTI_EVENT_FREE,         /* the set that this seat's next forward writes is free */
    PSTI_EVENT_RESTORED,     /* the destination is there, for the backward */
    PSTI_EVENT_RESTORED_W,   /* for the weight pass */
    PSTI_EVENT_CONSUMED,     /* the backward has read it */
    PSTI_EVENT_CONSUMED_W,   /* the weight pass has */
    PSTI_EVENT_DEMOTED,
    PSTI_EVENT_PROMOTED,
    PSTI_NUM_EVENT_KINDS
} psti_event_kind;

typedef enum psti_act {
    PSTI_ACT_WAIT = 0, /* stream waits for the last record of (event, seat) */
    PSTI_ACT_RECORD,
    PSTI_ACT_JOIN,    /* the main stream waits for all that side stream `stream` has; rule NEXT */
    PSTI_ACT_STASH,   /* part of `visit`, a forward, from the visit's set into the seat's ticket */
    PSTI_ACT_RESTORE, /* part of `visit`, a backward, from the seat's ticket into the visit's set */
    PSTI_ACT_DEMOTE,  /* part of `visit`, a forward */
    PSTI_ACT_PROMOTE, /* part of `visit`, a backward */
    PSTI_ACT_SWAP_OUT,   /* `visit`, a forward of a SWAPPED layer */
    PSTI_ACT_SWAP_IN,    /* `visit`, a backward of one */
    PSTI_ACT_GLU_STASH,  /* part of `visit`, a forward, by the caller on the main stream */
    PSTI_ACT_GLU_RESTORE /* part of `visit`, a backward, the same; `keeps` as of RESTORE */
} psti_act;

typedef struct psti_operation {
    uint8_t act;    /* psti_act */
    uint8_t stream; /* PSTI_ON_MAIN, or PSTI_ON_SIDE + 0.. */
    union {
        uint8_t event; /* WAIT, RECORD: psti_event_kind */
        uint8_t part;  /* STASH, RESTORE, DEMOTE, PROMOTE, GLU_ */
    };
    bool keeps;     /* RESTORE: the ticket stays live, a later pass reads it */
    uint32_t seat;  /* of the event, of the ticket */
    uint32_t visit; /* that it is for; of events the visit that records or that was recorded */
} psti_operation;

typedef struct psti_visit {
    uint32_t pass;  /* of the schedule */
    uint32_t layer; /* within the chunk */
    uint32_t seat;
    uint32_t
        partner;   /* of a backward its forward; of a forward its first backward, PSTI_NO_VISIT in
                       * a forward-only schedule */
    uint8_t set;   /* PAGED: of sources (forward, and a backward in place) or destinations; SWAPPED:
                       * of the two buffers; else PSTI_NO_SET, also with aliases, where the seat says
                       * it, and of a backward that reads no part */
    uint8_t kind;  /* pst_pass_kind */
    bool in_place; /* both visits of it: nothing is enqueued for what is kept */
    bool is_restored; /* a backward into whose set something is restored */
    bool is_held;     /* a weight pass that reads its backward's set */
    bool in_pair;
    uint8_t keep;    /* pst_keep */
    bool is_fetched; /* a backward ahead of which something is enqueued: it is restored, or pages of
                      * a GLU's parts come back from the host */
} psti_visit;

typedef struct psti_program {
    uint32_t num_visits;
    psti_visit *visits;
    uint32_t
        *first_visit; /* [num_passes + 1 of the schedule]: of pass i; of pairs the forward's are
                            * lower. Length of pass i: num_layers of its chunk */
    /* Operations of begin of visit v: [hooks[2 v], hooks[2 v + 1]); of its end: up to hooks[2 v + 2].
     * In an end first come the GLU_ operations. Then, of a forward that is stashed: RECORD PRODUCED,
     * [WAIT], one STASH per part that no GLU writes; so forward_part can take its STASH, with record and
     * wait, ahead. */
    uint32_t *hooks;
    psti_operation *operations;
    uint32_t num_operations;
    uint32_t num_streams;
    uint32_t num_chunks;
    uint32_t *num_layers;  /* of each chunk */
    uint32_t *num_slots;   /* of each chunk */
    uint32_t *first_layer; /* of each chunk: index into layers */
    uint32_t *first_seat;  /* of each chunk: seat = first_seat + layer * num_slots + slot */
    uint32_t num_seats;
    uint32_t conflicts[2]; /* neighbours, forwards and restores, that share a set */
    uint32_t num_kept;     /* forward visits kept in place */
    uint32_t num_stashed;  /* forward visits */
    uint32_t num_restored; /* backward visits */
    uint16_t *event_kinds; /* [num_seats]: bits of the kinds that are recorded or waited for */
    uint64_t bytes;        /* of all this */
} psti_program;

/* Fails: INVALID (what the configuration does not allow), NOMEM. */
pst_status psti_program_make(const psti_program_config *config, psti_program **program_out);
void psti_program_free(psti_program *program); /* NULL is allowed */

/* ---- program_check.c, program_order.c ---- */

/* Proves of a program, for every mixture of the hooks of each pair: each wait comes after its record in
 * the order of the hooks; any two operations on one set, ticket or swapped seat of which one writes are
 * ordered by streams and events, as are these and the main stream's visits; who reads a set or a ticket
 * finds there what is his. Side streams are not all waited for when the last visit ends: the executor
 * has to join them. Time follows operations. INVALID names two operations. NOMEM. */
pst_status psti_program_check(const psti_program_config *config, const psti_program *program);

static inline const psti_operation *psti_begin_hook(const psti_program *program, uint32_t visit,
                                                    uint32_t *num_out)
{
    const uint32_t *hook = program->hooks + (size_t)visit * 2;
    *num_out = hook[1] - hook[0];
    return program->operations + hook[0];
}

static inline const psti_operation *psti_end_hook(const psti_program *program, uint32_t visit,
                                                  uint32_t *num_out)
{
    const uint32_t *hook = program->hooks + (size_t)visit * 2;
    *num_out = hook[2] - hook[1];
    return program->operations + hook[1];
}

#endif
