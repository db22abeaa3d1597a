/* Room tools/replay: the command `pagestash replay`. Uses tools/common and arithmetic of host/base. Used
 * by tools/plan and tools/simulate, which need the pages that a routing trace wants.
 *
 * Its parts, in the order of their work:
 *
 *   cmd_replay.c     what runs when
 *   replay_flags.c   the tables of flags, and what one flag means for another
 *   replay_trace.c   routing file -> counts of one rank
 *   replay_sizes.c   counts -> capacity, tensors, pages (arithmetic only)
 *   replay_order.c   the schedule, and what the simulator says of an iteration
 *   replay_setup.c   device memory, pool, scheduler; their end
 *   replay_timer.c   a pool and a ticket beside, for timing stash and restore alone
 *   replay_run.c     the iterations
 *   replay_link.c    what crosses the link to host pages
 *   replay_retry.c   what follows an overflow
 *   replay_report.c  text and JSON
 *
 * Words: a *step* is a step of the trace; an *iteration* runs `num_micro_batches` of them, in the order
 * of a schedule; a *place* is one (micro-batch, layer) of an iteration: micro-batch times layers plus
 * layer.
 */
#ifndef PAGESTASH_REPLAY_H
#define PAGESTASH_REPLAY_H

#include "tools/common/flags.h"
#include "tools/common/tool.h"

#define REPLAY_MAX_TENSORS 10
#define REPLAY_MAX_SLOTS (1u << 20)
#define REPLAY_NOT_GIVEN UINT64_MAX /* of pages and host_pages */

enum replay_poison {
    REPLAY_POISON_SOURCE = 0xa5,      /* over a source, before a forward writes it */
    REPLAY_POISON_DESTINATION = 0x5a, /* over a destination, once a backward has read it */
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
      "micro-batches of an iteration, one step of the trace each")                                \
    F(U32, expert_model_parallel_size, "N", 1, REPLAY_MAX_PARTS, "1",                             \
      "split the experts over N ranks")                                                           \
    F(U32, expert_model_parallel_rank, "R", 0, REPLAY_MAX_PARTS, "0",                             \
      "take the experts of rank R, from 0")                                                       \
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

#define REPLAY_FLAGS(F)                                                                           \
    F(CHOICE, device, PST_DEVICE_NAMES, 0, 0, "auto", "auto is cuda if there is one, else host")  \
    F(U64, pages, "N", 1, REPLAY_MAX_PAGES, FLAG_NOT_GIVEN, "pages of the pool")                  \
    F(FACTOR, headroom, "X", 0, REPLAY_MAX_FACTOR, NULL,                                          \
      "in place of --pages: X times the predicted high-water mark (1.0)")                         \
    F(U64, host_pages, "N", 0, REPLAY_MAX_PAGES, FLAG_NOT_GIVEN,                                  \
      "host pages of the pool: pinned memory that stashes take when device pages run out (0)")    \
    F(FACTOR, host_headroom, "X", 0, REPLAY_MAX_FACTOR, NULL,                                     \
      "in place of --host-pages: X times the predicted high-water mark")                          \
    F(FRACTION, offload_fraction, "NUM/DEN", 0, 0, "0/1",                                         \
      "the first NUM/DEN of the pages of each stash prefer host pages")                           \
    F(CHOICE, on_overflow, "fail|grow|retry", 0, 0, "fail",                                       \
      "an iteration that lacks pages is lost, or replayed with as many added to the device "      \
      "(grow) or host pages (retry)")                                                             \
    F(SWITCH, scrub, NULL, 0, 0, NULL, "clear a page whenever it is freed")                       \
    F(CHOICE, schedule,                                                                           \
      "1f1b|interleaved|gpipe|gpipe-reversed|zb-h1|zb-h2|zb-v|dualpipe|dualpipe-v", 0, 0, "1f1b", \
      "order of the passes (docs/scheduler.md); dualpipe: each direction has half of "            \
      "the micro-batches")                                                                        \
    F(U32, stages, "P", 1, 1u << 20, "1", "GPUs of the pipeline")                                 \
    F(U32, stage, "R", 0, (1u << 20) - 1, "0",                                                    \
      "the GPU that is replayed, from 0; all layers are its own")                                 \
    F(U32, chunks, "V", 1, 1u << 20, FLAG_NOT_GIVEN,                                              \
      "chunks of the GPU, which share the layers, earlier ones one more (what the schedule has)") \
    F(U32, group, "G", 1, 1u << 20, FLAG_NOT_GIVEN,                                               \
      "interleaved: micro-batches that a chunk runs before the next (P)")                         \
    F(SWITCH, overlaps_exchange, NULL, 0, 0, NULL,                                                \
      "interleaved: one more forward before the first backward")                                  \
    F(U32, limit, "N", 1, 1u << 20, FLAG_NOT_GIVEN, "zb-v: most micro-batches in flight (P)")     \
    F(U32, sources, "F", 1, PST_MAX_SETS, "2", "sets of buffers that forwards write")             \
    F(U32, destinations, "D", 1, PST_MAX_SETS, FLAG_NOT_GIVEN,                                    \
      "sets of buffers that restores write (2)")                                                  \
    F(SWITCH, one_ring, NULL, 0, 0, NULL, "restores go into the F sets, too; with --tail zero")   \
    F(U32, ahead, "K", 0, 1u << 20, "0",                                                          \
      "restores ahead of their backward; 0: as many as there are sets")                           \
    F(CHOICE, rule, "asap|next", 0, 0, "asap",                                                    \
      "restore as soon as a set is free, or one visit ahead as Megatron-LM does")                 \
    F(SWITCH, keeps_nothing, NULL, 0, 0, NULL, "stash every visit, also what could stay")         \
    F(CHOICE, mode, "ordered|concurrent", 0, 0, FLAG_NOT_GIVEN,                                   \
      "mode of the pool (ordered; concurrent with several streams)")                              \
    F(U32, streams, "1|2|4", 1, 4, "1", "streams beside the main one, for stash and restore")     \
    F(SWITCH, no_graph, NULL, 0, 0, NULL,                                                         \
      "enqueue each iteration instead of replaying one captured graph")                           \
    F(U32, num_sms, "N", 0, 1024, "0", "SMs for a stash or restore; 0 is all")                    \
    F(CHOICE, backend, "auto|ldg|bulk|squeeze", 0, 0, "auto",                                     \
      "how stash and restore copy on cuda")                                                       \
    F(CHOICE, tail, "keep|zero", 0, 0, "keep", "what restore does behind the live rows")          \
    F(U64, seed, "N", 0, INT64_MAX, "0", "seed of the bytes that are stashed")

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
    uint32_t slots;         /* places of an iteration */
    uint64_t capacity;      /* rows; of one segment */
    double capacity_factor; /* capacity over the mean */
    uint32_t num_tensors;
    replay_tensor tensors[REPLAY_MAX_TENSORS];
    uint64_t set_bytes; /* one set of buffers for all tensors of a layer */

    /* by replay_sizes_count_pages */
    uint64_t full_bytes; /* of a layer at capacity */
    uint64_t *payload;   /* [iterations][slots] live bytes */
    uint32_t *pages;     /* [iterations][slots] */

    /* by replay_order_predict_all */
    uint64_t static_bytes;            /* all that lives at once, at capacity */
    uint64_t live_bytes_total;        /* of all visits of all iterations */
    uint64_t live_bytes_max;          /* most that wait for their backward at once */
    uint64_t live_bytes_sum;          /* the same of each iteration, of all */
    uint64_t high_water_pages;        /* most in use at once */
    uint64_t least_high_water;        /* in any order that several streams may have */
    uint64_t high_water_live_bytes;   /* in those pages */
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
    uint64_t num_tickets, visits,
        kept_in_place; /* forwards of an iteration; of these, not stashed */
    double exposed_forward_seconds, exposed_backward_seconds; /* NAN: not measured */
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

/* Capacity, tensors and iterations. tensors NULL: those that the model's flags say. */
int replay_sizes_make(const replay_model *model, const replay_trace *trace,
                      const replay_tensor *tensors, uint32_t num_tensors, replay_sizes *sizes_out);
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

/* A chunk of this GPU. */
typedef struct replay_chunk {
    uint32_t first_layer, num_layers;
    uint32_t first_micro_batch, num_micro_batches; /* dualpipe: half of them each */
} replay_chunk;

/* What of a place lies in host pages, and where the plain copy of as much puts it. */
typedef struct replay_link {
    uint64_t host_pages;
    uint64_t bytes, offset; /* live bytes, when host pages come first; of the copy */
} replay_link;

/* The schedule, and the iteration that the simulator saw last. */
typedef struct replay_order {
    const replay_options *options;
    const replay_trace *trace;
    pst_schedule *schedule;
    pst_schedule_info info;
    uint32_t num_chunks;
    replay_chunk *chunks;
    uint64_t num_tickets, visits;
    pst_simulated_layer
        *layers;             /* of the trace, which are those of the chunks, one after the other */
    pst_group_usage *usages; /* [layers][num_micro_batches] */
    bool *is_used;           /* [slots]: dualpipe: a chunk has half of the micro-batches */

    pst_stage_result result;
    pst_fault first_fault;
    uint64_t live_bytes, high_water, high_water_live_bytes; /* in pages; most of them, and then */
    const uint64_t *payload;                                /* of the iteration */
    replay_link *link;                                      /* [slots]; NULL: not asked */
} replay_order;

int replay_order_make(const replay_options *options, const replay_trace *trace,
                      const replay_sizes *sizes, replay_order *order_out);
void replay_order_free(replay_order *order);
uint32_t replay_order_place(const replay_order *order, const pst_visit_key *visit);
/* One iteration in a pool of so many pages, in the order in which the hooks come. */
int replay_order_predict(replay_order *order, const replay_sizes *sizes, uint64_t iteration,
                         const uint64_t num_pages[REPLAY_TIERS], replay_link *link);
/* All of them, in as many pages as they take: what sizes has of the order. */
int replay_order_predict_all(replay_order *order, replay_sizes *sizes);

/* Everything on the device: replay_setup.c makes it, replay_run.c uses it. */
typedef struct replay_machine {
    const replay_options *options;
    const replay_trace *trace;
    const replay_sizes *sizes;
    replay_order *order;
    pst_device *device;
    pst_device_info info;
    pst_stream stream;   /* the layers' */
    pst_stream sides[4]; /* the scheduler's; [options->streams] */
    pst_event edge;
    pst_group *group;                       /* of every layer */
    uint32_t num_sources, num_destinations; /* of one ring: all, none */
    void *sources[2 * PST_MAX_SETS], *destinations[PST_MAX_SETS];
    void *source_counts[2 * PST_MAX_SETS];
    pst_dirty *dirty[PST_MAX_SETS]; /* of the destinations; NULL: the tail is kept */
    void *pool_memory;
    pst_pool *pool;
    uint64_t num_pages[REPLAY_TIERS]; /* of the pool, now */
    uint64_t pool_bytes, ticket_bytes;
    pst_scheduler *scheduler;

    /* Stash and restore alone, and plain copies beside them. */
    pst_pool *timer_pool;
    pst_ticket timer_ticket;
    void *copy_target;
    uint64_t copy_target_bytes;
    void *link_target; /* the same in pinned memory; NULL: the pool has no host pages */
    uint64_t link_target_bytes;
    pst_event *events; /* [slots][REPLAY_NUM_TIMES], timed */

    /* Control words: steps [num_micro_batches] then counts [slots][num_counts]. */
    uint64_t control_bytes;
    void *control;        /* on the device */
    void *control_pinned; /* what the next iteration copies there */
    uint64_t *mismatches;
    uint64_t *mismatches_pinned;

    pst_graph *graph;

    /* Of the iteration that runs. */
    replay_link *link; /* [slots] */
    uint64_t link_bytes;
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
                const replay_sizes *sizes, replay_order *order);
/* Makes the pool, the scheduler and what is timed beside them. */
int replay_equip(replay_machine *machine);
/* Runs all iterations. */
int replay_run(replay_machine *machine, replay_result *result_out);
/* Device memory, written once so that no timed copy pays for first use. */
int replay_take_memory(replay_machine *machine, const char *what, uint8_t value, uint64_t bytes,
                       void **out);

/* The tensors of a layer in the set at base. */
typedef struct replay_bases {
    void *at[REPLAY_MAX_TENSORS];
} replay_bases;
replay_bases replay_bases_in(const replay_sizes *sizes, void *base);
const int32_t *replay_counts_of(const replay_machine *machine, uint32_t place);
pst_launch_options replay_launch(const replay_options *options);

/* ---- replay_timer.c ---- */

int replay_timer_make(replay_machine *machine);
/* The first failure. */
pst_status replay_timer_free(replay_machine *machine);
/* Every stash, restore and plain copy of an iteration once more, each alone. */
int replay_timer_run(replay_machine *machine, uint64_t iteration);
int replay_timer_add(const replay_machine *machine, uint64_t iteration, replay_result *result);
/* Kernels of a stash and a restore. */
int replay_timer_count_launches(const replay_machine *machine, uint64_t *launches_out);

/* Captures what enqueue puts on the machine's stream. */
int replay_capture(const replay_machine *machine, int (*enqueue)(const replay_machine *machine),
                   pst_graph **graph_out);

/* Records or reads one of a place's events. */
int replay_mark(const replay_machine *machine, uint32_t place, enum replay_time time,
                pst_stream stream);
int replay_add_time(const replay_machine *machine, uint32_t place, enum replay_time begin,
                    double *sum);

/* What of this iteration crosses the link: machine->link and link_bytes, of the order's prediction. */
void replay_link_predict(replay_machine *machine, uint64_t iteration);
/* Plain copies of as much as the timed stashes and restores move over the link, both ways. */
int replay_link_copies(const replay_machine *machine);
/* Takes the times of an iteration that is done. */
int replay_link_sample(replay_machine *machine, replay_result *result);
/* Whether the order of stashes and restores, and so what each tier gets, is known ahead. */
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
