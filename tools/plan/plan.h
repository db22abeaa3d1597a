/* Room tools/plan: the command `pagestash plan`. Uses tools/common, tools/trace and tools/replay. Used
 * by nobody.
 *
 * Its parts, in the order of their work:
 *
 *   cmd_plan.c      what one flag means for another, and what runs when
 *   plan_read.c     trace -> problem: tensors, pins, reserved ranges, layer passes
 *   plan_watch.c    deadline, progress, Ctrl-C
 *   plan_budget.c   the plan among the other users of a GPU's memory
 *   plan_policy.c   the same with a schedule: what becomes of each layer, dense and paged together
 *   plan_idle.c     addresses that are idle between two passes
 *   plan_report.c   text, JSON, and what is wrong in one line
 *   plan_outputs.c  plan file and pictures
 */
#ifndef PAGESTASH_TOOLS_PLAN_H
#define PAGESTASH_TOOLS_PLAN_H

#include "tools/common/json_out.h"
#include "tools/common/tool.h"
#include "tools/replay/replay.h"
#include "tools/trace/trace_file.h"

enum plan_method { PLAN_SEARCH = 0, PLAN_MIP = 1 };

#define PLAN_MAX_BYTES (UINT64_C(1) << 61)
#define PLAN_MAX_PARTS (1u << 20)
#define PLAN_MAX_FACTOR 1000000

#define PLAN_FLAGS(F)                                                                             \
    F(CHOICE, mode, "flat|bilevel", 0, 0, "flat",                                                 \
      "bilevel: the same addresses in every layer; reports what that costs")                      \
    F(CHOICE, method, "search|mip", 0, 0, "search",                                               \
      "mip: MEMO's mixed-integer program through CBC, for small traces")                          \
    F(POWER_OF_2, align, "BYTES", 1, UINT64_C(1) << 30, NULL,                                     \
      "addresses and sizes are multiples of it (512; 1 for a trace that counts in a unit of its " \
      "own)")                                                                                     \
    F(SIZE, capacity, "BYTES", 1, PLAN_MAX_BYTES, NULL,                                           \
      "no tensor ends above this address (no limit)")                                             \
    F(TEXT, pin, "ID@OFFSET,...", 0, 0, NULL, "put tensor ID at address OFFSET")                  \
    F(TEXT, reserve, "A:B,...", 0, 0, NULL, "addresses that no tensor may touch")                 \
    F(FACTOR, deadline, "SECONDS", 0, PLAN_MAX_FACTOR, "60",                                      \
      "ends the search with the best plan so far")                                                \
    F(U64, max_steps, "N", 1, INT64_MAX, NULL,                                                    \
      "ends the search after so many steps: with the same plan on every machine (2^40)")          \
    F(SIZE, search_memory, "BYTES", 1 << 20, PLAN_MAX_BYTES, NULL,                                \
      "most memory of the exact search (1GiB)")                                                   \
    F(U32, threads, "N", 1, 64, "1",                                                              \
      "threads of the search; only with 1 is the plan the same every time")                       \
    F(U64, seed, "N", 0, INT64_MAX, "0", "seed of the search's random choices")                   \
    F(OUTPUT, mip_model, "FILE", 0, 0, NULL,                                                      \
      "write MEMO's program as a CPLEX LP file, and no plan")                                     \
    F(SWITCH, mip_no_cut, NULL, 0, 0, NULL,                                                       \
      "MEMO's program as its paper prints it, without the bound by the live bytes")               \
    F(SIZE, gpu_memory, "BYTES", 1, PLAN_MAX_BYTES, NULL,                                         \
      "memory of the GPU: say whether plan, pages, rounding buffers and reserve fit in it, and "  \
      "where each lies")                                                                          \
    F(SIZE, host_memory, "BYTES", 1, PLAN_MAX_BYTES, NULL,                                        \
      "pinned memory for spilled pages and swapped tensors (0)")                                  \
    F(SIZE, reserve_memory, "BYTES", 1, PLAN_MAX_BYTES, NULL,                                     \
      "memory of the GPU that is left to others (0)")                                             \
    F(FACTOR, quantile, "X", 0, 1, "1",                                                           \
      "share of the routing trace's iterations whose pages must fit in both tiers together")      \
    F(FACTOR, headroom, "X", 0, PLAN_MAX_FACTOR, "1.0",                                           \
      "factor on the pages that these iterations need")                                           \
    F(U64, swap_layers, "N", 1, PLAN_MAX_PARTS, NULL,                                             \
      "layers whose kept tensors may be swapped by tokens; then --swap-input, --swap-attention, " \
      "--swap-other, --swap-tokens, --link-rate and --layer-seconds must be given, too")          \
    F(SIZE, swap_input, "BYTES", 0, PLAN_MAX_BYTES, NULL, "bytes of a layer's input")             \
    F(SIZE, swap_attention, "BYTES", 0, PLAN_MAX_BYTES, NULL,                                     \
      "bytes of the output of a layer's attention")                                               \
    F(SIZE, swap_other, "BYTES", 0, PLAN_MAX_BYTES, NULL, "bytes of all else that a layer keeps") \
    F(U64, swap_tokens, "N", 1, PLAN_MAX_BYTES, NULL, "tokens of a layer")                        \
    F(U64, swap_block, "N", 1, PLAN_MAX_BYTES, "1", "tokens of a block")                          \
    F(SIZE, link_rate, "BYTES", 1, PLAN_MAX_BYTES, NULL, "bytes a second to the host")            \
    F(FACTOR, layer_seconds, "X", 0, PLAN_MAX_FACTOR, NULL, "time of a layer's forward")          \
    F(CHOICE, schedule, "1f1b|gpipe|gpipe-reversed", 0, 0, FLAG_NOT_GIVEN,                        \
      "solve for dense and paged layers together: where each is kept, under this schedule")       \
    F(U32, stages, "P", 1, PLAN_MAX_PARTS, "1", "GPUs of the pipeline")                           \
    F(U32, stage, "R", 0, PLAN_MAX_PARTS, "0",                                                    \
      "the GPU of the pipeline that the trace is of, from 0")                                     \
    F(FACTOR, backward_seconds, "X", 0, PLAN_MAX_FACTOR, NULL,                                    \
      "time of a layer's backward (twice --layer-seconds)")                                       \
    F(FACTOR, recompute_seconds, "X", 0, PLAN_MAX_FACTOR, NULL,                                   \
      "time to compute a dense layer again; without it all that leaves is swapped")               \
    F(SIZE, copy_rate, "BYTES", 1, PLAN_MAX_BYTES, NULL,                                          \
      "bytes a second of stashes and restores on the device (they take no time)")                 \
    F(CHOICE, objective, "bytes|exposed", 0, 0, "bytes",                                          \
      "fewest bytes in all while nothing has to leave, or the least exposed time")                \
    F(CHOICE, sets, "fixed|callers", 0, 0, "fixed",                                               \
      "buffers of the paged layers are named once, or exist while they are used")                 \
    F(TEXT, idle, "PASSES", 0, 0, NULL,                                                           \
      "list addresses idle from pass to pass, as f3:b3,f0.1:b2.1 (phase f, b or w, layer, "       \
      "micro-batch), or layers: each layer's forward to its backward")                            \
    F(OUTPUT, out, "FILE", 0, 0, NULL, "write the plan file that an arena replays")               \
    F(OUTPUT, html, "FILE", 0, 0, NULL, "write a picture of the plan, a web page")                \
    F(OUTPUT, perfetto, "FILE", 0, 0, NULL, "write a timeline for Perfetto")

typedef struct plan_options {
    trace_file file;
    PLAN_FLAGS(FLAG_MEMBER)
    replay_model model;
    const char *json; /* NULL: none */
} plan_options;

/* A trace as the planner sees it. */
typedef struct plan_job {
    const plan_options *options;
    const char *path;
    pst_trace *trace;
    const pst_trace_tensor *all; /* of the trace */
    uint64_t num_all;
    uint32_t *which; /* [num_tensors] planned tensors: their places in `all` */
    pst_plan_tensor *tensors;
    uint64_t *releases;
    pst_plan_block *blocks;
    pst_plan_range *reserved;
    pst_plan_problem problem;
    uint64_t *offsets;   /* [num_tensors] */
    pst_plan plan, flat; /* flat: beside mode bilevel only */
    bool has_flat;
    bool is_mip; /* the plan is the solver's */
    double seconds;
} plan_job;

int plan_read(const plan_options *options, plan_job *job);
void plan_unload(plan_job *job);

/* ---- plan_watch.c */

typedef struct plan_watch {
    double begin, seconds;
    uint64_t shown; /* the last second of the progress line */
} plan_watch;

/* From begin to end Ctrl-C ends what asks the watch, not the command. One at a time. Of the seconds what the planner
 * needs to finish with so many tensors (0: nothing) is kept, at most a tenth. */
void plan_watch_begin(plan_watch *watch, double seconds, uint64_t num_tensors);
void plan_watch_end(plan_watch *watch);
double plan_watch_seconds(const plan_watch *watch); /* that have passed */
/* Asked now and then, by any thread: what is left, 0 or less where it is over; shows the progress. */
double plan_watch_left(void *watch);
bool plan_watch_is_over(void *watch);
bool plan_is_interrupted(void);

/* Addresses idle throughout the passes from `first` to `last`. */
typedef struct plan_idle {
    char from[32], to[32]; /* as on the command line: "f3.0" */
    uint64_t begin, end;   /* instants */
    pst_plan_range *ranges;
    uint64_t num_ranges, bytes;
} plan_idle;

int plan_find_idle(const plan_job *job, plan_idle **idle_out, uint64_t *num_out);
void plan_free_idle(plan_idle *idle, uint64_t num);

/* What becomes of each layer under a schedule. */
typedef struct plan_policy {
    pst_policy answer;
    pst_layer_choice *choices; /* [num_layers] */
    bool *is_dense;            /* [num_layers]; the others are paged */
    uint32_t num_layers;
} plan_policy;

/* What shares the GPU's memory. */
typedef struct plan_budget {
    pst_memory_map map;
    uint64_t page_bytes, demand_quantile, demand_max, total_pages, iterations;
    pst_swap_choice swap;
    bool has_swap;
    uint64_t gpu_bytes, host_bytes, static_bytes, dynamic_bytes;
    plan_policy policy;
    bool has_policy; /* instead of the map */
} plan_budget;

int plan_make_budget(const plan_job *job, plan_budget *budget_out);
void plan_free_budget(plan_budget *budget);

/* ---- plan_policy.c */

int plan_solve_policy(const plan_job *job, plan_policy *policy_out);
void plan_free_policy(plan_policy *policy);
void plan_collect_policy(const plan_policy *policy, metric_list *list);
/* One object for each layer. */
json_t *plan_policy_layers(const plan_policy *policy);
void plan_print_policy_layers(const plan_policy *policy);
/* What is missing, in one line. */
int plan_explain_policy(const plan_job *job, const plan_policy *policy);

int plan_report(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                const plan_budget *budget);
int plan_write_outputs(const plan_job *job);

#endif
