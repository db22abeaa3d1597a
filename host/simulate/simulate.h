/* Room simulate: what a schedule costs, from the operations that the scheduler would enqueue.
 *
 * Pure: uses base, schedule and program. Used by policy.
 *
 *   simulate_config.c   checks a configuration
 *   simulate_layers.c   checks the layers of a rank, and compiles them
 *   simulate.c          the public call: steps, ranks in turn, results
 *   simulate_ranks.c    what ranks wait for, and who waits for whom when nobody can go on
 *   simulate_copies.c   stash, restore, demote, promote, swaps: pages as the pool counts them, and times
 *   simulate_list.c     a rank in the order of the list
 *   simulate_time.c     a rank in the order of time, for several side streams or interference
 *   simulate_bounds.c   the least and the most pages that any order gives
 */
#ifndef PSTI_HOST_SIMULATE_H
#define PSTI_HOST_SIMULATE_H

#include <pagestash/simulate.h>

#include "host/base/arith.h"
#include "host/base/base.h"
#include "host/program/program.h"
#include "host/schedule/schedule.h"

/* Of a time: not known yet. */
#define PSTI_SIM_UNKNOWN UINT64_MAX
/* Times stay at or below this, and are INVALID once they are there. */
#define PSTI_SIM_TOO_LATE (UINT64_C(1) << 63)
/* Pages of a tier that has as many as it takes. */
#define PSTI_SIM_ENOUGH_PAGES (UINT64_C(1) << 62)

static inline uint64_t psti_sim_after(uint64_t time, uint64_t ns)
{
    return psti_min(psti_plus(time, ns), PSTI_SIM_TOO_LATE);
}

static inline uint64_t psti_sim_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

typedef struct psti_sim_layer {
    uint8_t keep, num_parts;
    uint8_t glus;                      /* bits of parts that a GLU writes */
    uint8_t num_early;                 /* parts that are announced within the core */
    uint8_t part_order[PST_MAX_PARTS]; /* as the others are stashed: those first, by time */
    bool demotes;
    uint32_t host_num, host_den; /* of stashes: 0/0 where it demotes */
    uint32_t num_usages;
    const pst_group_usage *usages;
    const uint64_t *glu_bytes; /* as the caller's; NULL: all */
    uint64_t part_ns[PST_MAX_PARTS];
    pst_times times[4]; /* by pst_pass_kind */
    uint64_t recompute_ns, max_demote_pages, swap_bytes;
} psti_sim_layer;

typedef enum psti_sim_state { PSTI_SIM_EMPTY = 0, PSTI_SIM_LIVE, PSTI_SIM_FAILED } psti_sim_state;

typedef struct psti_sim_ticket {
    uint32_t pages;
    uint32_t host;     /* of those */
    uint8_t state;     /* psti_sim_state */
    bool last_is_host; /* the last page, which need not be full */
} psti_sim_ticket;

/* One operation of a side stream, or of a GLU, between its begin and its end. */
typedef struct psti_sim_copy {
    const psti_operation *op;
    uint32_t part;
    pst_fault fault;
    uint64_t ns;
    uint64_t pages[2];
    uint64_t frees[2]; /* at its end */
} psti_sim_copy;

typedef struct psti_sim psti_sim;
typedef struct psti_sim_main psti_sim_main;

typedef struct psti_sim_rank {
    const psti_sim *all;
    uint32_t stage;
    const pst_schedule *schedule;
    psti_program *program;
    psti_sim_layer *layers; /* chunk after chunk, as the program's first_layer has them */
    uint32_t max_parts;
    uint64_t num_pages[2];

    uint64_t *ends[2]; /* of forward and backward of each life: when the pass ended, or UNKNOWN */
    psti_sim_ticket *tickets; /* [seat * max_parts + part] */
    uint64_t *events;         /* list: [seat * PSTI_NUM_EVENT_KINDS + kind]; time: see there */
    psti_sim_main *main;      /* time */
    /* Time, and bounds. Of each operation. WAIT: number of its record. RECORD: when, or UNKNOWN; JOIN:
     * when the side stream came there. STASH of a visit with early parts: when it may begin. */
    uint64_t *cells;
    uint64_t clock[PST_NUM_SIMULATED_STREAMS]; /* by psti_stream_id */
    uint64_t failed_wanted, swapped_bytes;
    uint64_t next_pass; /* to begin; of a pair the first one's number */
    uint64_t start_ns;  /* of the step */
    uint64_t waited_ns; /* by the visit at hand, for copies */
    bool is_last_step, has_begun;
    bool mixes; /* GLUs on the main stream, and copies beside them: their order is that of time */
    uint64_t first_ns;  /* begin of the first pass */
    uint64_t begun_ns;  /* of the pass or pair at hand */
    uint64_t beside_ns; /* what the other pass of the pair has taken of it so far */
    pst_stage_result result;
} psti_sim_rank;

struct psti_sim {
    pst_simulation_config config; /* zeros replaced */
    bool in_time;                 /* simulate_time.c instead of simulate_list.c */
    bool has_glus;
    pst_chunk_order chunk_order;
    psti_sim_rank *ranks;
    uint64_t origin_ns; /* when the first rank begins the last step */
};

/* ---- simulate_config.c ---- */

/* Fails: INVALID, NOMEM; what was made until then is freed by psti_sim_close. */
pst_status psti_sim_open(psti_sim *self, const pst_simulation_config *config);
void psti_sim_close(psti_sim *self);

/* ---- simulate_layers.c ---- */

/* Whether some part of a stage's is written by a GLU. */
bool psti_sim_has_glus(const psti_sim *self, uint32_t stage);
/* pre: all but the layers has been checked. Fails: INVALID, NOMEM. */
pst_status psti_sim_open_rank(const psti_sim *self, psti_sim_rank *rank);

/* ---- simulate_ranks.c ---- */

/* When the next pass, or both of the next pair, can begin; UNKNOWN: another rank has to go on first. */
uint64_t psti_sim_need(const psti_sim_rank *rank);
/* Names in text which passes wait for which. */
void psti_sim_name_deadlock(const psti_sim *self, char *text, size_t bytes);

/* The two passes of a pair in the order of their visits; a pass alone twice. Returns how many. */
uint32_t psti_sim_passes(const psti_sim_rank *rank, uint64_t pass, uint64_t order_out[2]);
void psti_sim_begin_pass(psti_sim_rank *rank, uint64_t need);
void psti_sim_end_pass(psti_sim_rank *rank, uint64_t pass);

/* ---- simulate_copies.c ---- */

/* Begins an operation: takes its pages, and says how long it runs. part: of a stash. */
void psti_sim_begin_copy(psti_sim_rank *rank, const psti_operation *op, psti_sim_copy *copy);
/* Ends it at this time: frees pages, and tells the listener. */
void psti_sim_end_copy(psti_sim_rank *rank, const psti_sim_copy *copy, uint64_t begin,
                       uint64_t end);

/* ---- simulate_list.c, simulate_time.c: run until the step ends or another rank has to go on. True:
 * something was done. ---- */

bool psti_sim_run_list(psti_sim_rank *rank);
bool psti_sim_run_time(psti_sim_rank *rank);
pst_status psti_sim_open_time(psti_sim_rank *rank);
void psti_sim_begin_step_in_time(psti_sim_rank *rank);
/* Fills the cells: of each wait its record, of other operations UNKNOWN. Overwrites the events. */
void psti_sim_link(const psti_sim_rank *rank);

/* ---- simulate_bounds.c ---- */

/* Of the result. */
void psti_sim_bounds(psti_sim_rank *rank);

/* ---- in all of them ---- */

static inline const psti_sim_layer *psti_sim_layer_of(const psti_sim_rank *rank,
                                                      const psti_visit *visit)
{
    const uint32_t chunk = rank->schedule->passes[visit->pass].chunk;
    return &rank->layers[rank->program->first_layer[chunk] + visit->layer];
}

static inline pst_visit_key psti_sim_key(const psti_sim_rank *rank, const psti_visit *visit)
{
    const pst_pass *pass = &rank->schedule->passes[visit->pass];
    return (pst_visit_key){pass->kind, pass->chunk, visit->layer, pass->micro_batch};
}

static inline bool psti_sim_tells(const psti_sim_rank *rank)
{
    return rank->all->config.on_event && rank->is_last_step;
}

/* Of the main stream; nothing where no time passes. */
void psti_sim_tell_main(const psti_sim_rank *rank, pst_simulated_kind kind, pst_visit_key visit,
                        uint64_t begin, uint64_t end);

/* The main stream waits in a hook of this visit until a time. */
static inline void psti_sim_stall(psti_sim_rank *rank, const psti_visit *visit, uint64_t until)
{
    uint64_t *clock = &rank->clock[PSTI_ON_MAIN];
    if (until <= *clock)
        return;
    const uint64_t ns = until - *clock;
    if (visit->kind == PST_PASS_FORWARD)
        rank->result.exposed_forward_ns += ns;
    else
        rank->result.exposed_backward_ns += ns;
    rank->waited_ns += ns;
    if (psti_sim_tells(rank))
        psti_sim_tell_main(rank, PST_SIMULATED_STALL, psti_sim_key(rank, visit), *clock, until);
    *clock = until;
}

static inline void psti_sim_end_visit(psti_sim_rank *rank, const psti_visit *visit)
{
    if (rank->waited_ns > rank->result.worst_ns) {
        rank->result.worst_ns = rank->waited_ns;
        rank->result.worst = psti_sim_key(rank, visit);
    }
    rank->waited_ns = 0;
}

/* The main stream itself copies in this visit for so long. */
static inline void psti_sim_expose(psti_sim_rank *rank, const psti_visit *visit, uint64_t ns)
{
    uint64_t *exposed = visit->kind == PST_PASS_FORWARD ? &rank->result.exposed_forward_ns
                                                        : &rank->result.exposed_backward_ns;
    *exposed = psti_plus(*exposed, ns);
    rank->waited_ns = psti_plus(rank->waited_ns, ns);
}

static inline bool psti_sim_is_glu(const psti_operation *op)
{
    return op->act == PSTI_ACT_GLU_STASH || op->act == PSTI_ACT_GLU_RESTORE;
}

/* Whether this is the wait of a forward's stashes for their source, which a part that is announced early
 * does not have: it stands right before the first of them. */
static inline bool psti_sim_waits_for_source(const psti_operation *op)
{
    return op->act == PSTI_ACT_WAIT && op->event == PSTI_EVENT_PRODUCED &&
           op[1].act == PSTI_ACT_STASH;
}

/* Of a STASH in the list: how many of its visit stand before it. */
static inline uint32_t psti_sim_stash_place(const psti_sim_layer *layer, const psti_operation *op)
{
    const uint32_t before = (1u << op->part) - 1;
    return (uint32_t)__builtin_popcount(before & ~(uint32_t)layer->glus);
}

/* What a backward computes again before its core. */
static inline uint64_t psti_sim_recompute_ns(const psti_sim_layer *layer, const psti_visit *visit)
{
    const bool is_dropped =
        layer->keep == PST_KEEP_RECOMPUTED || (layer->keep == PST_KEEP_SWAPPED && !visit->in_place);
    return visit->kind != PST_PASS_FORWARD && is_dropped ? layer->recompute_ns : 0;
}

#endif
