/* What a schedule will cost, without a GPU: the operations that the scheduler would enqueue
 * (scheduler.h), on clocks instead of streams and on counters instead of pages.
 *
 * Time. Each stream is a clock in nanoseconds. An operation starts when its stream and the events it
 * waits for are there (max-plus algebra). Ranks wait for each other: the forward of virtual stage s
 * for that of s - 1, its backward for that of s + 1, the last one's backward for its own forward, each
 * p2p_ns later where that is another rank. The passes of a pair begin once both may, and take as long
 * as one after the other; the result of each is there after its own time, as if the other did not run
 * beside it.
 * A stash or restore takes
 *   fixed + device bytes / device rate + host bytes / link rate
 * and fixed alone if it fails. Of a part that a GLU writes, by the main stream, as exposed time:
 *   stash    (device bytes - half of the GLU's) / stash rate + host bytes / out rate
 *   restore  (device bytes - the GLU's) / restore rate + host bytes / in rate
 * since the GLU has read its input anyway, or reads it in the pages.
 *
 * Pages. The pool's arithmetic, exactly (pool.h): with one side stream in the order of the list, as an
 * ordered pool executes it; with several in the order of simulated time (pages are taken when an
 * operation begins and freed when it ends), which a GPU need not follow: then order_is_simulated says
 * so, and high_water_bounds have the least and the most that any order gives which the waits allow.
 * in_call_order wants the list's order with several streams too: that of device `host`. A main stream
 * that stashes beside a side stream counts as several.
 *
 * Exact integers, deterministic, one thread. Pure: no device. Threads: any.
 */
#ifndef PAGESTASH_SIMULATE_H
#define PAGESTASH_SIMULATE_H

#include <pagestash/group.h>
#include <pagestash/keep.h>
#include <pagestash/schedule.h>
#include <pagestash/scheduler.h>

/* Nanoseconds of the main stream before, between and after the hooks of a visit. Frozen. */
typedef struct pst_times {
    uint64_t before, core, after; /* in the order of a visit */
} pst_times;

/* A layer of one stage: what it keeps, how long it takes, how many pages it wants. */
typedef struct pst_simulated_layer {
    size_t struct_size;
    uint32_t chunk, layer;        /* layer 0.. within the chunk; every one exactly once */
    pst_keep keep;                /* what becomes of what it keeps */
    uint32_t num_parts;           /* PAGED: at most PST_MAX_PARTS; 0: 1 */
    uint32_t uses[PST_MAX_PARTS]; /* 0: both (scheduler.h) */
    /* of forward.core, after which the part is announced; 0: with the end */
    uint64_t part_ns[PST_MAX_PARTS];
    pst_layer_policy policy; /* shares and tokens */
    /* of a pass of each kind; those that the schedule has not are not read */
    pst_times forward, backward, backward_input, backward_weight;
    /* on the main stream, behind backward_begin: RECOMPUTED all of it, SWAPPED what the dropped
     * tokens take */
    uint64_t recompute_ns;
    const pst_group_usage *usages; /* PAGED: [num_parts][num_usages] */
    uint32_t num_usages; /* 1: of all micro-batches; else at least the chunk's micro-batches */
    uint32_t padding;    /* 0 */
    uint64_t max_demote_pages; /* DEMOTE: that one demote moves at most; 0: all that are there */
    uint64_t swap_bytes;       /* SWAPPED: of one visit, out and in again */
    /* PAGED: bits of the parts that a GLU writes (scheduler.h). They are stashed and restored on the
     * main stream, at the end of core; their part_ns is 0 */
    uint32_t glu_parts;
    uint32_t padding_2; /* 0 */
    /* [num_parts][num_usages]: of a part's payload_bytes those of the tensor that a GLU writes; NULL:
     * all of such a part */
    const uint64_t *glu_bytes;
} pst_simulated_layer;

#define PST_SIMULATED_LAYER_INIT PST_INIT(pst_simulated_layer)

/* Of copies. Rates in bytes per second; 0: no time. Each time is rounded up to a nanosecond. Live
 * bytes are taken to be spread evenly over the byte stream. Demotes and promotes move whole pages.
 * Frozen. */
typedef struct pst_simulated_rates {
    /* of each operation, whatever its bytes */
    uint64_t stash_fixed_ns, restore_fixed_ns, demote_fixed_ns, promote_fixed_ns;
    uint64_t stash_rate, restore_rate; /* device pages */
    uint64_t out_rate, in_rate;        /* the link: host pages, swaps, demotes and promotes */
} pst_simulated_rates;

/* Streams of a rank, as events name them. */
typedef enum pst_simulated_stream {
    PST_SIMULATED_MAIN = 0,   /* runs the layers */
    PST_SIMULATED_STASH,      /* stashes */
    PST_SIMULATED_RESTORE,    /* restores */
    PST_SIMULATED_TO_HOST,    /* demotes, and swaps out */
    PST_SIMULATED_FROM_HOST,  /* promotes, and swaps in */
    PST_NUM_SIMULATED_STREAMS /* how many there are */
} pst_simulated_stream;

/* What a stream does in an event. */
typedef enum pst_simulated_kind {
    PST_SIMULATED_WORK = 0,    /* a visit's before, core or after */
    PST_SIMULATED_RECOMPUTE,   /* computes dropped tensors again */
    PST_SIMULATED_STALL,       /* the main stream waits for a copy */
    PST_SIMULATED_BUBBLE,      /* the main stream waits for another rank */
    PST_SIMULATED_DO_STASH,    /* pages are written */
    PST_SIMULATED_DO_RESTORE,  /* pages are read and freed */
    PST_SIMULATED_DO_DEMOTE,   /* pages move to the host */
    PST_SIMULATED_DO_PROMOTE,  /* pages move to the device */
    PST_SIMULATED_DO_SWAP_OUT, /* tokens leave for the host */
    PST_SIMULATED_DO_SWAP_IN   /* tokens come back */
} pst_simulated_kind;

/* One of each rank's timeline; of one rank's stream they come in order. Frozen. */
typedef struct pst_simulated_event {
    uint32_t stage;              /* of the rank, from 0 */
    pst_simulated_stream stream; /* with fewer side streams, the one that has the operation */
    pst_simulated_kind kind;     /* what the stream does */
    pst_visit_key visit;         /* whose it is */
    uint32_t part;               /* of the visit's layer; 0 where it is of the whole layer */
    pst_fault fault;             /* of the operation; NONE: it did not fail */
    uint64_t begin_ns, end_ns;   /* on the simulation's clock */
    uint64_t pages[2];           /* that it takes, frees or moves, per tier */
    uint64_t in_use[2];          /* pages of the rank after it */
} pst_simulated_event;

/* Called for each event. The event is valid during the call only. */
typedef void (*pst_simulated_event_fn)(void *user, const pst_simulated_event *event);

/* Which chunk is which virtual stage, with p stages, of chunk c on stage r. */
typedef enum pst_chunk_order {
    PST_CHUNKS_OF_KIND = 0, /* as the schedules' kind has it; of lists: LOOPED */
    PST_CHUNKS_LOOPED = 1,  /* c * p + r */
    PST_CHUNKS_V = 2,       /* even chunks as LOOPED, odd ones from the last stage to the first */
    /* each chunk is a pipeline of its own: even ones run from the first stage to the last, odd ones
     * from the last to the first */
    PST_CHUNKS_DIRECTIONS = 3
} pst_chunk_order;

/* All stages of a pipeline, what their layers do, and how the scheduler runs them. */
typedef struct pst_simulation_config {
    size_t struct_size;
    uint32_t num_stages; /* arrays below have so many elements */
    bool alone;          /* stages wait for no other: each is simulated by itself */
    bool one_ring;       /* these as in pst_scheduler_config */
    bool keeps_nothing;  /* every visit is stashed */
    bool by_slot;        /* sets belong to slots, as with captured layers */
    const pst_schedule *const *schedules;     /* one of each stage */
    const pst_simulated_layer *const *layers; /* of each stage */
    const uint32_t *num_layers;               /* of each stage */
    uint32_t layer_bytes;                     /* sizeof(pst_simulated_layer), set by _INIT */
    /* 0: 2, 2 (of one_ring none, and no other number), as many as destinations, 1 */
    uint32_t num_sources, num_destinations, ahead, num_streams;
    pst_restore_rule rule; /* default: ASAP */
    pst_pool_mode mode;    /* of the pool; default: ordered */
    /* that follow each other, on each stage at once; 0: 1. Pages and times of the last, whose time
     * 0 is when the first stage begins it */
    uint32_t steps;
    uint64_t p2p_ns;                 /* from the end of a pass to where its neighbour can begin */
    uint64_t num_pages[2];           /* UINT64_MAX: as many as it takes */
    uint64_t page_bytes;             /* 0: PST_PAGE_BYTES_DEFAULT */
    pst_simulated_rates rates;       /* of all stages */
    uint32_t interference_per_mille; /* by which the main stream is slower while a copy runs */
    pst_chunk_order chunk_order;     /* default: that of the schedules' kind */
    bool in_call_order;              /* pages are taken and freed in the list's order, see above */
    uint8_t padding[7];              /* 0 */
    pst_simulated_event_fn on_event; /* NULL: none */
    void *user;                      /* first argument of on_event */
} pst_simulation_config;

#define PST_SIMULATION_CONFIG_INIT \
    PST_INIT_1(pst_simulation_config, layer_bytes, pst_simulated_layer)

/* Of one stage. Index 0 of the pairs is the device tier, 1 the host tier. */
typedef struct pst_stage_result {
    /* passes; the most micro-batches alive, tickets and slots, each of all chunks together */
    uint64_t num_passes, peak_in_flight, num_tickets, num_slots;
    uint64_t kept_in_place, stashed, restored; /* visits */
    uint64_t conflicts[2];                     /* neighbours that share a set: forwards, restores */
    uint64_t span_ns;   /* from the first pass's begin to the last one's end */
    uint64_t end_ns;    /* of the main stream */
    uint64_t busy_ns;   /* of the main stream: its work and recomputation */
    uint64_t bubble_ns; /* waits for other ranks, and what is missing at the end to the makespan */
    uint64_t exposed_forward_ns, exposed_backward_ns; /* waits for copies */
    uint64_t recompute_ns;                            /* of the main stream */
    uint64_t stash_busy_ns, restore_busy_ns, link_busy_ns[2], link_bytes[2]; /* [out, in] */
    /* pages, as pst_pool_status has them */
    uint64_t high_water[2], demand_high_water, spilled_pages, offloaded_pages, displaced_pages;
    /* in_use at the end; all as pst_pool_status has them */
    uint64_t demoted_pages, promoted_pages, stranded_pages, num_faults, in_use[2];
    uint64_t high_water_bounds[2]; /* of demand_high_water: least, most */
    bool order_is_simulated;       /* pages were taken in the order of simulated time, see above */
    uint8_t padding[3];            /* 0 */
    pst_fault fault;               /* the first */
    pst_visit_key fault_visit;     /* whose operation had the first fault */
    uint64_t fault_wanted, fault_free[2]; /* pages, as pst_pool_status has them */
    uint64_t worst_ns;                    /* the longest wait of one visit for a copy, and whose */
    pst_visit_key worst;                  /* all 0: none waited */
    uint64_t swapped_host_bytes;          /* most at once in host memory by swapped layers */
    uint64_t program_bytes;               /* host memory of the compiled order */
} pst_stage_result;

/* What all stages share of the result. */
typedef struct pst_simulation {
    uint64_t makespan_ns; /* of several steps: what the last one adds. alone: the longest */
    bool deadlocked;      /* passes wait for each other; then the results are those up to there */
    uint8_t padding[7];   /* 0 */
    char deadlock[256];   /* which; "": none */
} pst_simulation;

PST_BEGIN_DECLS

/* stages: num_stages of stage_bytes each, written. What does not fit is an answer, not a failure.
 * Fails: INVALID (stage, layer and field; times beyond 2^63), NOMEM. */
PST_API pst_status pst_simulate_sized(const pst_simulation_config *config,
                                      pst_simulation *simulation_out, size_t simulation_bytes,
                                      pst_stage_result *stages_out, size_t stage_bytes);
static inline pst_status pst_simulate(const pst_simulation_config *config,
                                      pst_simulation *simulation_out, pst_stage_result *stages_out)
{
    return pst_simulate_sized(config, simulation_out, sizeof(pst_simulation), stages_out,
                              sizeof(pst_stage_result));
}

PST_END_DECLS

#endif
