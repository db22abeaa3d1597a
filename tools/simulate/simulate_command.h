/* The parts of the command, in the order of their work:
 *
 *   cmd_simulate.c       what runs when
 *   simulate_flags.c     the table of flags
 *   simulate_words.c     values of flags that are more than a number
 *   simulate_setup.c     flags -> simulate_input, with the files that they name
 *   simulate_config.c    --config: sizes, layers and bytes of a launch line
 *   simulate_rows.c, simulate_rates.c, simulate_routing.c   those files
 *   simulate_gpu.c       --gpu: times of the launch line's layers
 *   simulate_model.c     simulate_input -> what pst_simulate takes
 *   simulate_solve.c     what --solve leaves to the policy
 *   simulate_run.c       all iterations, and the one with most pages once more
 *   simulate_check.c     the same operations on a real pool
 *   simulate_events.c    the timeline, kept for the pictures
 *   simulate_report.c, simulate_json.c, simulate_perfetto.c, simulate_html.c   what comes out
 */
#ifndef PAGESTASH_SIMULATE_COMMAND_H
#define PAGESTASH_SIMULATE_COMMAND_H

#include "tools/simulate/simulate_sources.h"

#define SIMULATE_MAX_FACTOR 1000000

/* The links' flags have a slash in their names; they stand in simulate_flags.c. */
#define SIMULATE_FLAGS(F)                                                                          \
    F(TEXT, schedule, "KIND|list:FILE|megatron:FILE", 0, 0, NULL,                                  \
      "1f1b, gpipe, gpipe-reversed, interleaved, zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v, or "    \
      "lists of passes (docs/formats.md)")                                                         \
    F(U32, stages, "P", 1, SIMULATE_MAX_STAGES, FLAG_NOT_GIVEN,                                    \
      "GPUs of the pipeline (1; those of the lists)")                                              \
    F(U32, chunks, "V", 1, 1 << 20, FLAG_NOT_GIVEN, "chunks of each GPU (what the schedule has)")  \
    F(U32, micro_batches, "M", 1, PST_SCHEDULE_MAX_MICRO_BATCHES, FLAG_NOT_GIVEN,                  \
      "micro-batches of a step; dualpipe: of both directions")                                     \
    F(U32, group, "G", 1, PST_SCHEDULE_MAX_MICRO_BATCHES, FLAG_NOT_GIVEN,                          \
      "interleaved: micro-batches that a chunk runs before the next (P)")                          \
    F(SWITCH, overlaps_exchange, NULL, 0, 0, NULL,                                                 \
      "interleaved: one more forward before the first backward")                                   \
    F(U32, limit, "N", 1, PST_SCHEDULE_MAX_MICRO_BATCHES, FLAG_NOT_GIVEN,                          \
      "zb-v: most micro-batches in flight (P)")                                                    \
    F(CHOICE, chunk_order, "looped|v|directions", 0, 0, FLAG_NOT_GIVEN,                            \
      "of lists: chunk C of rank R is virtual stage C*P+R, or odd chunks run from the last rank "  \
      "to the first, or so and each chunk is a pipeline of its own (what the kind has; looped)")   \
    F(TEXT, config, "FILE", 0, 0, NULL,                                                            \
      "a launch line, as pagestash estimate reads it: sizes, layers and bytes that no flag says")  \
    F(TEXT, layers, "L|L0,L1,..", 0, 0, NULL, "layers of each chunk")                              \
    F(U32, model_layers, "N", 1, SIMULATE_MAX_LAYERS, FLAG_NOT_GIVEN,                              \
      "in place of --layers: layers of the whole model; earlier virtual stages have one more")     \
    F(RANGE, moe_layers, "A:B", 0, 0, NULL,                                                        \
      "layers A to B-1 of the model are paged, the others are not looked at (all)")                \
    F(TEXT, rank, "R|all", 0, 0, "all", "one rank alone, which waits for no other")                \
    F(TEXT, visit_pages, "FILE", 0, 0, NULL,                                                       \
      "pages of every visit: CSV with columns chunk,layer,micro_batch,pages")                      \
    F(TEXT, forward_ns, "B,C,A", 0, 0, "0,0,0",                                                    \
      "time of a layer's forward before, inside and after the hooks")                              \
    F(TEXT, backward_ns, "B,C,A", 0, 0, "0,0,0",                                                   \
      "time of its backward before, inside and after the hooks; where that is split, of its "      \
      "input's part")                                                                              \
    F(TEXT, weight_ns, "B,C,A", 0, 0, "0,0,0",                                                     \
      "time of its weights' part likewise; a whole backward has both")                             \
    F(TEXT, times, "FILE", 0, 0, NULL,                                                             \
      "in place of these, times of every layer: CSV with columns "                                 \
      "rank,chunk,layer,pass,before_ns,core_ns,after_ns")                                          \
    F(TEXT, gpu, "NAME|FILE", 0, 0, NULL,                                                          \
      "in place of these, times of --config's layers on this GPU (a100, h100, ..), or on the one " \
      "whose rates a file has, with rates and p2p that no flag says")                              \
    F(U64, stash_ns, "N", 0, UINT64_C(1) << 53, FLAG_NOT_GIVEN,                                    \
      "time of a stash, whatever its pages")                                                       \
    F(U64, restore_ns, "N", 0, UINT64_C(1) << 53, FLAG_NOT_GIVEN,                                  \
      "time of a restore, whatever its pages")                                                     \
    F(TEXT, rates, "FILE", 0, 0, NULL, "in place of both, rates: a report of pagestash-bench")     \
    F(U64, p2p_ns, "N", 0, UINT64_C(1) << 53, FLAG_NOT_GIVEN,                                      \
      "time from a pass's end to its neighbour's begin (0; with --gpu what it takes)")             \
    F(U32, interference, "N", 0, 1000, "0",                                                        \
      "thousandths by which work is slower while a copy runs")                                     \
    F(U32, sources, "F", 1, PST_MAX_SETS, FLAG_NOT_GIVEN,                                          \
      "sets of buffers that forwards write (2)")                                                   \
    F(U32, destinations, "D", 1, PST_MAX_SETS, FLAG_NOT_GIVEN,                                     \
      "sets of buffers that restores write (2)")                                                   \
    F(SWITCH, one_ring, NULL, 0, 0, NULL, "restores go into the F sets, too")                      \
    F(U32, ahead, "K", 0, 1 << 20, FLAG_NOT_GIVEN,                                                 \
      "restores ahead of their backward (as many as sets)")                                        \
    F(CHOICE, streams, "1|2|4", 0, 0, FLAG_NOT_GIVEN,                                              \
      "side streams (1); with more than 1 the pool is concurrent")                                 \
    F(CHOICE, rule, "asap|next", 0, 0, FLAG_NOT_GIVEN,                                             \
      "restore as soon as a set is free (asap), or one visit ahead as Megatron-LM does")           \
    F(SWITCH, by_slot, NULL, 0, 0, NULL, "sets belong to slots, as with captured layers")          \
    F(SWITCH, keeps_nothing, NULL, 0, 0, NULL, "stash every visit, also what could stay")          \
    F(TEXT, pages, "N|auto", 0, 0, "auto", "device pages of the pool; auto: as many as it takes")  \
    F(TEXT, host_pages, "N|auto", 0, 0, NULL, "host pages of the pool (0; with --solve auto)")     \
    F(TEXT, offload, "LAYER=NUM/DEN,..", 0, 0, NULL,                                               \
      "share of a layer's pages that goes to the host; CHUNK.LAYER=NUM/DEN: of one chunk")         \
    F(CHOICE, move, "direct|demote", 0, 0, FLAG_NOT_GIVEN,                                         \
      "with --offload: the stash writes host pages (direct), or they are moved on streams of "     \
      "their own")                                                                                 \
    F(U32, num_steps, "N", 1, 1 << 20, "1", "steps that follow each other; figures of the last")   \
    F(SWITCH, balanced, NULL, 0, 0, NULL, "every visit has the mean rows of --routing")            \
    F(SWITCH, solve, NULL, 0, 0, NULL,                                                             \
      "choose what the flags leave open, so that it fits and waits least: rule, sets, streams, "   \
      "page size, pages, shares, recomputation")                                                   \
    F(SIZE, gpu_memory, "BYTES", 1, UINT64_C(1) << 60, NULL, "for --solve: memory of a GPU")       \
    F(SIZE, host_memory, "BYTES", 0, UINT64_C(1) << 60, NULL,                                      \
      "for --solve: memory of the host (0)")                                                       \
    F(SIZE, reserve_memory, "BYTES", 0, UINT64_C(1) << 60, NULL,                                   \
      "for --solve: memory of the GPU that is kept free (0)")                                      \
    F(SIZE, static_memory, "BYTES", 0, UINT64_C(1) << 60, NULL,                                    \
      "for --solve: memory of the GPU that is taken by all that is not paged (0), with --config "  \
      "by all that is not kept by layers (its)")                                                   \
    F(SIZE, set_memory, "BYTES", 1, UINT64_C(1) << 60, NULL,                                       \
      "for --solve: memory of one set of buffers (tensors of --routing at their capacity)")        \
    F(CHOICE, sets, "fixed|callers", 0, 0, FLAG_NOT_GIVEN,                                         \
      "sets are there always (fixed), or only while they are used")                                \
    F(CHOICE, objective, "least-bytes|least-exposed", 0, 0, FLAG_NOT_GIVEN,                        \
      "what --solve looks at first, of all that fits (least-bytes)")                               \
    F(U64, recompute_ns, "N", 0, UINT64_C(1) << 53, FLAG_NOT_GIVEN,                                \
      "what it takes to recompute a layer, which --solve then may (with --gpu its forward)")       \
    F(SWITCH, compare, NULL, 0, 0, NULL, "simulate --rule next with one stream, too")              \
    F(CHOICE, check, "host|cuda", 0, 0, FLAG_NOT_GIVEN,                                            \
      "run the same operations on a real pool and compare every figure of pages")                  \
    F(OUTPUT, list, "FILE", 0, 0, NULL, "write the passes, as --schedule list:FILE reads them")    \
    F(OUTPUT, perfetto, "FILE", 0, 0, NULL, "write the timeline for ui.perfetto.dev")              \
    F(OUTPUT, html, "FILE", 0, 0, NULL, "write the timeline as one web page")

typedef struct simulate_options {
    SIMULATE_FLAGS(FLAG_MEMBER)
    double copy_gb_per_s;      /* 0: not given */
    const char *link_gb_per_s; /* OUT,IN */
    replay_model routing;
    const char *json;
    uint32_t given; /* PST_POLICY_GIVEN_ bits of the flags that were given */
} simulate_options;

int simulate_parse(int argc, char **argv, simulate_options *options);
json_t *simulate_options_json(const simulate_options *options);

/* ---- simulate_words.c: each says what is wrong with --FLAG and returns a tool_exit ---- */

int simulate_read_times_flag(const char *name, const char *text, pst_times *out);
/* N or auto. */
int simulate_read_pages_flag(const char *name, const char *text, uint64_t *out);
int simulate_read_layers_flag(const char *text, uint32_t **layers_out, uint32_t *num_out);
int simulate_read_offload_flag(const char *text, simulate_offload **offloads_out,
                               uint32_t *num_out);
int simulate_read_link_flag(const char *text, uint64_t *out_rate_out, uint64_t *in_rate_out);
/* One of the library's kinds, or LIST and the file behind list: or megatron: in *path_out. */
int simulate_read_schedule_flag(const char *text, pst_schedule_kind *kind_out,
                                const char **path_out, bool *is_megatron_out);

/* ---- simulate_setup.c ---- */

/* All that the flags name, read and owned. */
typedef struct simulate_job {
    const simulate_options *options;
    simulate_config config; /* its path is NULL where none was given */
    simulate_input input;
    psti_schedule_lists lists;
    uint32_t *chunk_layers;
    simulate_offload *offloads;
    simulate_rows times;
    simulate_gpu gpu;
    simulate_pages pages;
    simulate_routing routing;
    bool has_routing;
    uint64_t num_iterations;
} simulate_job;

/* Options that were not given become --config's. Whatever the answer, the job is to be closed. */
int simulate_open(simulate_options *options, simulate_job *job_out);
void simulate_close(simulate_job *job);

/* ---- simulate_run.c ---- */

/* What --solve chose. */
typedef struct simulate_solution {
    bool is_asked;
    pst_policy policy;
    pst_layer_choice *choices; /* of all layers, stage after stage */
    uint64_t num_choices;
} simulate_solution;

typedef struct simulate_result {
    simulate_solution solution;
    uint64_t num_iterations;
    uint64_t iteration; /* with the highest demand, whose figures these are */
    pst_simulation simulation;
    pst_stage_result *stages; /* [num_stages] */
    uint64_t
        *demands; /* [num_stages + 1][num_iterations], ascending; last: of the stage with most */
    uint64_t num_unfit;   /* iterations with a fault */
    uint64_t most_demand; /* device and host pages, of any stage and iteration */
    bool has_next;        /* --compare */
    pst_simulation next;
    pst_stage_result *next_stages;
    uint64_t checked_operations, num_differences; /* --check */
} simulate_result;

/* Chooses over all iterations, and makes the model and the job what was chosen. */
int simulate_solve(simulate_job *job, simulate_model *model, simulate_solution *solution_out);
/* Leaves the model filled with the iteration. */
int simulate_run(const simulate_job *job, simulate_model *model, simulate_result *result_out);
void simulate_free_result(simulate_result *result);
/* The least of the iterations' demands that is enough for so many thousandths of them. */
uint64_t simulate_quantile(const uint64_t *ascending, uint64_t num, uint32_t per_mille);

/* ---- simulate_check.c ---- */

/* Says on stderr what differs, a line for each figure, and counts it in the result. */
int simulate_check(const simulate_job *job, const simulate_model *model, simulate_result *result);

/* ---- what comes out ---- */

int simulate_report(const simulate_job *job, const simulate_model *model,
                    const simulate_result *result);
int simulate_write_json(const simulate_job *job, const simulate_model *model,
                        const simulate_result *result);
/* "forward of layer 2, chunk 0, micro-batch 1" */
const char *simulate_visit_text(const pst_visit_key *visit, char out[96]);
const char *simulate_kind_name(pst_schedule_kind kind);

#endif
