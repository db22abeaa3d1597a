/* The parts of `pagestash plan`, in the order of their work:
 *
 *   cmd_plan.c      options, and what runs when
 *   plan_read.c     trace -> problem: tensors, pins, reserved ranges, layer passes
 *   plan_budget.c   the plan among the other users of a GPU's memory
 *   plan_idle.c     addresses that are idle between two passes
 *   plan_report.c   text, and what is wrong in one line
 *   plan_json.c     JSON
 *   plan_outputs.c  plan file and pictures
 */
#ifndef PAGESTASH_TOOLS_PLAN_H
#define PAGESTASH_TOOLS_PLAN_H

#include "tools/common/tool.h"
#include "tools/replay/replay.h"

enum plan_method { PLAN_SEARCH = 0, PLAN_MIP = 1 };

typedef struct plan_options {
    const char *inputs[PST_TRACE_NUM_FORMATS]; /* by format; one is given */
    uint32_t trace_rank, iteration, device;
    bool keep_unfreed;

    int mode;                 /* pst_plan_mode */
    int method;               /* plan_method */
    uint64_t align, capacity; /* 0: by format; none */
    const char *pins, *reserved;
    uint64_t seed, max_steps, search_memory;
    uint32_t threads;
    double deadline; /* seconds */
    const char *mip_model;
    bool no_cut;

    replay_options replay; /* its model flags, by replay_model_flags */
    uint64_t gpu_memory, host_memory, reserve_memory;
    double quantile, headroom;
    uint64_t swap_layers, swap_input, swap_attention, swap_other; /* bytes of a layer */
    uint64_t swap_tokens, swap_block, link_rate;
    double layer_seconds;

    const char *idle;
    bool json;
    const char *out, *html, *perfetto;
} plan_options;

/* A trace as the planner sees it. */
typedef struct plan_job {
    const plan_options *options;
    const char *path;
    pst_trace_format format;
    pst_trace *trace;
    const pst_trace_tensor *all; /* of the trace */
    uint64_t num_all;
    uint64_t *which; /* [num_tensors] planned tensors: their places in `all` */
    pst_plan_tensor *tensors;
    uint64_t *releases;
    pst_plan_block *blocks;
    pst_plan_range *reserved;
    pst_plan_problem problem;
    uint64_t *offsets;   /* [num_tensors] */
    pst_plan plan, flat; /* flat: beside mode bilevel only */
    bool has_flat;
    double seconds;
    const char *solver; /* "search", "mip" */
} plan_job;

int plan_read(const plan_options *options, plan_job *job);
void plan_unload(plan_job *job);

/* Addresses idle throughout the passes from `first` to `last`. */
typedef struct plan_idle {
    char from[32], to[32]; /* as on the command line: "f3.0" */
    uint64_t begin, end;   /* instants */
    pst_plan_range *ranges;
    uint64_t num_ranges, bytes;
} plan_idle;

int plan_find_idle(const plan_job *job, plan_idle **idle_out, uint64_t *num_out);
void plan_free_idle(plan_idle *idle, uint64_t num);

/* What shares the GPU's memory. */
typedef struct plan_budget {
    pst_memory_map map;
    uint64_t page_bytes, demand_quantile, demand_max, total_pages, iterations;
    pst_swap_choice swap;
    bool has_swap;
    uint64_t gpu_bytes, host_bytes, static_bytes, dynamic_bytes;
} plan_budget;

int plan_make_budget(const plan_job *job, plan_budget *budget_out);

double plan_gap(uint64_t peak, uint64_t bound);
/* What ended the search before it had a proof; "": nothing. */
const char *plan_ended_by(const pst_plan *plan);
bool plan_is_live(const plan_job *job, uint64_t tensor, uint64_t instant);

int plan_print_json(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                    const plan_budget *budget);
int plan_report(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                const plan_budget *budget);
int plan_write_outputs(const plan_job *job);
/* Whether the outputs could be written, before a long run. */
int plan_check_outputs(const plan_options *options);

#endif
