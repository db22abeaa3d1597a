/* The parts of `pagestash replay`, in the order of their work:
 *
 *   cmd_replay.c    options
 *   replay_flags.c  those that say what is replayed, which plan takes, too
 *   replay_trace.c  routing file -> counts of one rank
 *   replay_plan.c   counts -> capacity, tensors, pages (arithmetic only)
 *   replay_setup.c  device memory, groups, pool, tickets, events
 *   replay_run.c    the iterations
 *   replay_link.c   what crosses the link to host pages, and plain copies of as much
 *   replay_retry.c  what follows an overflow
 *   report.c        text and JSON
 *
 * Words: a *step* is a step of the trace; an *iteration* runs `num_micro_batches` of them; a *slot* is
 * one (micro-batch, layer) of an iteration, and has its own ticket. A *lane* is a stream with its
 * own static and working buffers; slot k runs in lane k mod streams.
 */
#ifndef PAGESTASH_REPLAY_H
#define PAGESTASH_REPLAY_H

#include "tools/common/tool.h"

#define REPLAY_MAX_LANES 2
#define REPLAY_MAX_TENSORS 10
#define REPLAY_MAX_SLOTS (1u << 20)
#define REPLAY_PAGES_BY_FACTOR UINT64_MAX

enum replay_poison {
    REPLAY_POISON_STATIC = 0xa5,  /* over the static buffers, once they are stashed */
    REPLAY_POISON_WORKING = 0x5a, /* over the working buffers, before they are restored */
};

/* Choices are indices into the alternatives of their flags, in the order of the library's enums. */
typedef struct replay_options {
    const char *routing;
    const char *json; /* NULL: none */
    int device;       /* auto, host, cuda */
    uint32_t hidden, ffn;
    int dtype; /* replay_dtype */
    uint32_t ep, rank;
    uint32_t layers; /* 0: all */
    uint32_t num_micro_batches;
    double capacity_factor; /* 0: the trace's maximum */
    uint64_t pages;         /* 0: by headroom */
    double headroom;        /* 0: 1.0 */
    uint64_t host_pages;    /* REPLAY_PAGES_BY_FACTOR: by host_headroom */
    double host_headroom;   /* 0: no host pages */
    uint32_t offload[2];    /* numerator, denominator */
    int on_overflow;        /* replay_on_overflow */
    bool scrub;
    uint64_t page_bytes;
    uint64_t step_begin, step_end; /* half-open; 0:UINT64_MAX is all */
    uint32_t streams;
    bool no_graph;
    uint32_t num_sms;
    int backend; /* pst_backend */
    uint64_t seed;
    int layout;  /* pst_rows_kind */
    int tail;    /* pst_restore_tail */
    int restore; /* pst_restore_pages */
    int mode;    /* pst_pool_mode; -1: by the number of streams */
} replay_options;

enum replay_dtype { REPLAY_BF16 = 0, REPLAY_MXFP8 = 1 };

/* What follows an iteration that wanted more pages than there are. */
enum replay_on_overflow {
    REPLAY_FAIL = 0,  /* nothing: its bytes are lost */
    REPLAY_GROW = 1,  /* the missing pages are added to the device tier, and it is replayed */
    REPLAY_RETRY = 2, /* the same with the host tier */
};

enum replay_tier { REPLAY_DEVICE = 0, REPLAY_HOST = 1, REPLAY_TIERS = 2 };

/* What the file said about our rank. */
typedef struct replay_trace {
    uint32_t num_experts;
    uint32_t num_layers; /* in the file */
    uint64_t first_step; /* in the file */
    uint64_t num_steps;  /* in the file */
    uint32_t layers;     /* replayed */
    uint64_t step_begin; /* replayed */
    uint64_t steps;      /* replayed */
    uint32_t num_counts; /* of a slot: 1 for prefix, the rank's experts for segments */
    int32_t *counts;     /* [steps][layers][num_counts] */
    uint64_t max_count;  /* of the layers replayed: over all steps of the file */
    uint64_t max_count_replayed;
    double mean_count; /* rows of a rank, or of one of its experts, over the same */
} replay_trace;

typedef struct replay_tensor {
    uint64_t row_bytes;
    uint32_t num, den;
    uint64_t offset; /* in a buffer set */
} replay_tensor;

typedef struct replay_plan {
    uint64_t iterations;
    uint32_t slots;
    uint64_t capacity;      /* rows; of one segment */
    double capacity_factor; /* capacity over the mean */
    uint32_t num_tensors;
    replay_tensor tensors[REPLAY_MAX_TENSORS];
    uint64_t set_bytes; /* one set of buffers for all tensors of a layer */

    /* by replay_plan_pages */
    uint64_t *payload;         /* [iterations][slots] live bytes */
    uint32_t *pages;           /* [iterations][slots] */
    uint64_t static_bytes;     /* all slots at capacity */
    uint64_t live_bytes_total; /* over all iterations */
    uint64_t live_bytes_max;
    uint64_t high_water_pages; /* the most that an iteration holds at the end of its forwards */
    uint64_t high_water_live_bytes;   /* of that iteration */
    uint64_t num_pages[REPLAY_TIERS]; /* of the pool, at first */
    uint64_t max_pages[REPLAY_TIERS]; /* that it may grow to */
} replay_plan;

/* Rates over the link to host pages, the plain copies of the same bytes beside them. */
enum replay_rate {
    REPLAY_RATE_STASH,
    REPLAY_RATE_RESTORE,
    REPLAY_RATE_COPY_TO_HOST,
    REPLAY_RATE_COPY_FROM_HOST,
    REPLAY_NUM_RATES
};

/* What a run measured. */
typedef struct replay_result {
    pst_device_info device;
    uint64_t pool_bytes, ticket_bytes, buffer_bytes;
    uint64_t launches_per_layer;
    uint32_t graphs_captured; /* of an iteration */
    pst_pool_status status;   /* after the last iteration */
    uint64_t leaked_pages;    /* most pages in use after an iteration */
    double stash_seconds, restore_seconds, copy_seconds;
    uint64_t mismatched_bytes;
    char fault_place[96]; /* "step 3, micro-batch 0, layer 1"; "" without a fault */

    /* over the iterations that count: not those that were replayed because they overflowed */
    uint64_t spilled_pages, offloaded_pages, displaced_pages;
    uint64_t predicted_spilled, predicted_offloaded;
    uint64_t link_bytes;                /* live bytes that went to host pages */
    double link_rate[REPLAY_NUM_RATES]; /* median over iterations, bytes/s; NAN: nothing crossed */

    uint64_t steps_retried, steps_lost;
    uint64_t times_grown, grown_pages[REPLAY_TIERS];
    double recover_median, recover_max; /* seconds; NAN: no overflow was recovered from */
    char growth_failure[256];           /* why the pool could not grow; "": it could */
} replay_result;

int replay_trace_load(const replay_options *options, replay_trace *trace_out);
void replay_trace_free(replay_trace *trace);

/* Capacity, tensors and iterations. */
int replay_plan_make(const replay_options *options, const replay_trace *trace,
                     replay_plan *plan_out);
/* Pages and bytes of every iteration, by pst_group_measure of any group of the plan's shape. */
int replay_plan_pages(const replay_options *options, const replay_trace *trace,
                      const pst_group *group, replay_plan *plan);
void replay_plan_free(replay_plan *plan);

/* What of a slot lies in host pages, and where the plain copy of as much puts it. */
typedef struct replay_link {
    uint64_t bytes, offset;
} replay_link;

/* Everything on the device: replay_setup.c makes it, replay_run.c uses it. */
typedef struct replay_machine {
    const replay_options *options;
    const replay_trace *trace;
    const replay_plan *plan;
    pst_device *device;
    pst_device_info info;
    uint32_t lanes;
    pst_stream streams[REPLAY_MAX_LANES];
    void *static_set[REPLAY_MAX_LANES];
    void *working_set[REPLAY_MAX_LANES];
    pst_group *working[REPLAY_MAX_LANES];
    pst_group **sources;  /* [slots] */
    pst_ticket **tickets; /* [slots] */
    void *pool_memory;
    pst_pool *pool;
    uint64_t num_pages[REPLAY_TIERS]; /* of the pool, now */
    uint64_t pool_bytes, ticket_bytes;
    void *copy_target; /* of the plain copy that stash and restore are compared with */
    uint64_t copy_target_bytes;
    void *link_target; /* the same in pinned memory; NULL: the pool has no host pages */
    uint64_t link_target_bytes;

    /* Control words: steps [num_micro_batches] then counts [slots][num_counts]. */
    uint64_t control_bytes;
    void *control;        /* on the device */
    void *control_pinned; /* what the next iteration copies there */
    uint64_t *mismatches;
    uint64_t *mismatches_pinned;

    pst_event *events; /* [slots][REPLAY_NUM_TIMES], timed */
    pst_event lane_event, chain_event;
    pst_graph *graph;

    /* Of the iteration that runs, as if its stashes came in the order of the slots. */
    replay_link *link; /* [slots] */
    uint64_t predicted_spilled, predicted_offloaded;
    pst_pool_status before; /* at its beginning */

    double *rates[REPLAY_NUM_RATES]; /* [iterations] */
    double *recover_seconds;         /* [iterations] */
    uint64_t num_rates;
} replay_machine;

enum replay_time {
    REPLAY_TIME_STASH_BEGIN,
    REPLAY_TIME_STASH_END,
    REPLAY_TIME_RESTORE_BEGIN,
    REPLAY_TIME_RESTORE_END,
    REPLAY_TIME_COPY_BEGIN,
    REPLAY_TIME_COPY_END,
    REPLAY_TIME_TO_HOST_BEGIN,
    REPLAY_TIME_TO_HOST_END,
    REPLAY_TIME_FROM_HOST_BEGIN,
    REPLAY_TIME_FROM_HOST_END,
    REPLAY_NUM_TIMES
};

const char *replay_backend_name(int backend);

/* Opens the device and makes buffers and groups, which planning the pages needs. */
int replay_open(replay_machine *machine, const replay_options *options, const replay_trace *trace,
                const replay_plan *plan);
/* Makes the pool, tickets and events. */
int replay_equip(replay_machine *machine);
/* Runs all iterations. */
int replay_run(replay_machine *machine, replay_result *result_out);

/* Records or reads one of a slot's events. */
int replay_mark(const replay_machine *machine, uint32_t slot, enum replay_time time,
                pst_stream stream);
int replay_add_time(const replay_machine *machine, uint32_t slot, enum replay_time begin,
                    double *sum);

/* Computes machine->link and its companions. */
void replay_link_predict(replay_machine *machine, uint64_t iteration);
/* Plain copies of what is predicted to cross the link, both ways. */
int replay_link_copies(const replay_machine *machine);
/* Takes the times of an iteration that is done. */
int replay_link_sample(replay_machine *machine, replay_result *result);
/* Whether the order of the stashes, and so what each tier gets, is known ahead. */
bool replay_order_is_known(const replay_options *options, const pst_device_info *device);

/* After an iteration that overflowed: makes room where --on-overflow says so. *again_out tells
 * whether the iteration can be replayed. */
int replay_recover(replay_machine *machine, const pst_pool_status *status, replay_result *result,
                   bool *again_out);

/* Median of values, which it sorts; NAN of none. */
double replay_median(double *values, uint64_t num);
/* Undoes open and equip, whole or half done. Says what the device would not let go. */
int replay_close(replay_machine *machine, int code);

/* Text on stdout and JSON where asked; says on stderr what went wrong. Returns the exit code. */
int report(const replay_options *options, const replay_trace *trace, const replay_plan *plan,
           const replay_result *result);

#endif
