/* Room tools/replay: the command `pagestash replay`. Uses tools/common and the order of passes in
 * host/schedule/pipeline.h. Used by tools/plan, which needs the pages that a routing trace wants.
 *
 * Its parts, in the order of their work:
 *
 *   cmd_replay.c     what runs when
 *   replay_flags.c   the tables of flags, and what one flag means for another
 *   replay_trace.c   routing file -> counts of one rank
 *   replay_sizes.c   counts -> capacity, tensors, pages (arithmetic only)
 *   replay_setup.c   device memory, pool, tickets, events
 *   replay_run.c     the iterations
 *   replay_link.c    what crosses the link to host pages, and plain copies of as much
 *   replay_retry.c   what follows an overflow
 *   replay_report.c  text and JSON
 *
 * Words: a *step* is a step of the trace; an *iteration* runs `num_micro_batches` of them; a *slot* is
 * one (micro-batch, layer) of an iteration, and has its own ticket. A *lane* is a stream with its
 * own static and working buffers; slot k runs in lane k mod streams.
 */
#ifndef PAGESTASH_REPLAY_H
#define PAGESTASH_REPLAY_H

#include "tools/common/flags.h"
#include "tools/common/tool.h"

#define REPLAY_MAX_LANES 2
#define REPLAY_MAX_TENSORS 10
#define REPLAY_MAX_SLOTS (1u << 20)
#define REPLAY_NOT_GIVEN UINT64_MAX /* of pages and host_pages */

enum replay_poison {
    REPLAY_POISON_STATIC = 0xa5,  /* over the static buffers, once they are stashed */
    REPLAY_POISON_WORKING = 0x5a, /* over the working buffers, before they are restored */
};

#define REPLAY_MAX_WIDTH (1u << 20)
#define REPLAY_MAX_PARTS (1u << 20) /* ranks, layers, micro-batches */
#define REPLAY_MAX_FACTOR 1000000
#define REPLAY_MAX_PAGES ((1u << 31) - 1)

/* What is replayed: the trace, what of it, and the model. plan takes these, too. */
#define REPLAY_MODEL_FLAGS(F)                                                                     \
    F(TEXT, routing, "FILE", 0, 0, NULL,                                                          \
      "trace: CSV with columns step,layer,e0,e1,...: rows that each expert received; - is stdin") \
    F(RANGE, steps, "A:B", 0, 0, NULL, "steps A to B-1 of the trace (all)")                       \
    F(U32, num_layers, "N", 1, REPLAY_MAX_PARTS, NULL, "first N layers of each step (all)")       \
    F(U32, num_micro_batches, "M", 1, REPLAY_MAX_PARTS, "1",                                      \
      "micro-batches of an iteration, one step of the trace each: all forwards, then all "        \
      "backwards in reverse")                                                                     \
    F(U32, expert_model_parallel_size, "N", 1, REPLAY_MAX_PARTS, "1",                             \
      "split the experts over N ranks")                                                           \
    F(U32, expert_model_parallel_rank, "R", 0, REPLAY_MAX_PARTS, "0", "take rank R of them")      \
    F(U32, hidden_size, "N", 1, REPLAY_MAX_WIDTH, "1024", "width of the model")                   \
    F(U32, moe_ffn_hidden_size, "N", 1, REPLAY_MAX_WIDTH, "512", "width of an expert")            \
    F(CHOICE, dtype, "bf16|mxfp8", 0, 0, "bf16", "what a layer keeps")                            \
    F(CHOICE, layout, "prefix|segments", 0, 0, "prefix",                                          \
      "live rows first, or a slab for each expert")                                               \
    F(FACTOR, capacity_factor, "X", 0, REPLAY_MAX_FACTOR, NULL,                                   \
      "static rows are ceil(X * mean rows of a rank), with --layout segments of one of its "      \
      "experts (the trace's maximum)")                                                            \
    F(POWER_OF_2, page_size, "BYTES", PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX, "256KiB",           \
      "a power of two, 16KiB to 4MiB")

/* Choices are indices into the alternatives of their flags, in the order of the library's enums. */
typedef struct replay_model {
    REPLAY_MODEL_FLAGS(FLAG_MEMBER)
} replay_model;

/* The flags that fill a replay_model; base: its offset in the command's options. */
flag_group replay_model_flags(size_t base);
/* What one of them means for another. */
int replay_check_model(const replay_model *model);

#define REPLAY_FLAGS(F)                                                                          \
    F(CHOICE, device, PST_DEVICE_NAMES, 0, 0, "auto", "auto is cuda if there is one, else host") \
    F(U64, pages, "N", 1, REPLAY_MAX_PAGES, FLAG_NOT_GIVEN, "pages of the pool")                 \
    F(FACTOR, headroom, "X", 0, REPLAY_MAX_FACTOR, NULL,                                         \
      "or X times the predicted high-water mark (1.0)")                                          \
    F(U64, host_pages, "N", 0, REPLAY_MAX_PAGES, FLAG_NOT_GIVEN,                                 \
      "host pages of the pool: pinned memory that stashes take when device pages run out (0)")   \
    F(FACTOR, host_headroom, "X", 0, REPLAY_MAX_FACTOR, NULL,                                    \
      "or X times the predicted high-water mark")                                                \
    F(FRACTION, offload_fraction, "NUM/DEN", 0, 0, "0/1",                                        \
      "the first NUM/DEN of the pages of each stash prefer host pages")                          \
    F(CHOICE, on_overflow, "fail|grow|retry", 0, 0, "fail",                                      \
      "an iteration that lacks pages is lost, or replayed with as many added to the device "     \
      "(grow) or host pages (retry)")                                                            \
    F(SWITCH, scrub, NULL, 0, 0, NULL, "clear a page whenever it is freed")                      \
    F(CHOICE, mode, "ordered|concurrent", 0, 0, FLAG_NOT_GIVEN,                                  \
      "of the pool (ordered; concurrent with two streams)")                                      \
    F(U32, streams, "1|2", 1, 2, "1",                                                            \
      "with 2, every other layer runs on a second stream with its own buffers")                  \
    F(SWITCH, no_graph, NULL, 0, 0, NULL,                                                        \
      "enqueue each iteration instead of replaying one captured graph")                          \
    F(U32, num_sms, "N", 0, 1024, "0", "SMs for a stash or restore; 0 is all")                   \
    F(CHOICE, backend, "auto|ldg|bulk|squeeze", 0, 0, "auto",                                    \
      "how stash and restore copy on cuda")                                                      \
    F(CHOICE, tail, "keep|zero", 0, 0, "keep", "what restore does behind the live rows")         \
    F(CHOICE, restore, "consume|keep", 0, 0, "consume",                                          \
      "restore frees the pages, or leaves them to a release")                                    \
    F(U64, seed, "N", 0, INT64_MAX, "0", "of the bytes that are stashed")

typedef struct replay_options {
    replay_model model;
    REPLAY_FLAGS(FLAG_MEMBER)
    const char *json; /* NULL: none */
} replay_options;

int replay_parse(int argc, char **argv, replay_options *options);
/* The values, by the names of their flags. */
json_t *replay_options_json(const replay_options *options);

enum replay_device { REPLAY_ON_ANY = 0, REPLAY_ON_HOST = 1, REPLAY_ON_CUDA = 2 };
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

typedef struct replay_sizes {
    uint64_t iterations;
    uint32_t slots;
    uint64_t capacity;      /* rows; of one segment */
    double capacity_factor; /* capacity over the mean */
    uint32_t num_tensors;
    replay_tensor tensors[REPLAY_MAX_TENSORS];
    uint64_t set_bytes; /* one set of buffers for all tensors of a layer */

    /* by replay_sizes_count_pages */
    uint64_t *payload;         /* [iterations][slots] live bytes */
    uint32_t *pages;           /* [iterations][slots] */
    uint64_t static_bytes;     /* all slots at capacity */
    uint64_t live_bytes_total; /* over all iterations */
    uint64_t live_bytes_max;
    uint64_t high_water_pages; /* the most that an iteration holds at the end of its forwards */
    uint64_t high_water_live_bytes;   /* of that iteration */
    uint64_t num_pages[REPLAY_TIERS]; /* of the pool, at first */
    uint64_t max_pages[REPLAY_TIERS]; /* that it may grow to */
} replay_sizes;

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

int replay_trace_read(const replay_model *model, replay_trace *trace_out);
void replay_trace_free(replay_trace *trace);

/* Capacity, tensors and iterations. */
int replay_sizes_make(const replay_model *model, const replay_trace *trace,
                      replay_sizes *sizes_out);
/* The group of these tensors: of all layers. */
int replay_make_group(const replay_model *model, const replay_trace *trace,
                      const replay_sizes *sizes, pst_group **group_out);
/* Pages and bytes of every iteration, by pst_group_measure of that group. */
int replay_sizes_count_pages(const replay_model *model, const replay_trace *trace,
                             const pst_group *group, replay_sizes *sizes);
/* X times so many pages, at least 1; the flag is named where that is too many. */
int replay_scale_pages(const char *name, double factor, uint64_t num_pages, uint64_t *pages_out);
/* The pool's pages, once all are counted. */
int replay_sizes_choose_pages(const replay_options *options, replay_sizes *sizes);
void replay_sizes_free(replay_sizes *sizes);

/* What of a slot lies in host pages, and where the plain copy of as much puts it. */
typedef struct replay_link {
    uint64_t bytes, offset;
} replay_link;

/* Everything on the device: replay_setup.c makes it, replay_run.c uses it. */
typedef struct replay_machine {
    const replay_options *options;
    const replay_trace *trace;
    const replay_sizes *sizes;
    pst_device *device;
    pst_device_info info;
    uint32_t lanes;
    pst_stream streams[REPLAY_MAX_LANES];
    pst_group *group; /* of every layer */
    void *static_set[REPLAY_MAX_LANES];
    void *working_set[REPLAY_MAX_LANES];
    pst_dirty *dirty[REPLAY_MAX_LANES]; /* of the working sets; NULL: the tail is kept */
    pst_ticket *tickets;                /* [slots] */
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

/* Opens the device and makes buffers and the group, which planning the pages needs. */
int replay_open(replay_machine *machine, const replay_options *options, const replay_trace *trace,
                const replay_sizes *sizes);
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
int replay_report(const replay_options *options, const replay_trace *trace,
                  const replay_sizes *sizes, const replay_result *result);

#endif
