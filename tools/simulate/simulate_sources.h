/* Where the command has its figures from: files with the pages of visits, times of layers, rates of
 * copies, and routing traces. All functions return a tool_exit, their message printed. */
#ifndef PAGESTASH_SIMULATE_SOURCES_H
#define PAGESTASH_SIMULATE_SOURCES_H

#include "tools/estimate/estimate.h"
#include "tools/replay/replay.h"
#include "tools/simulate/simulate.h"

/* ---- simulate_rows.c: rows of numbers, looked up by their keys ---- */

enum { SIMULATE_MAX_KEYS = 4, SIMULATE_MAX_VALUES = 3 };
#define SIMULATE_ANY UINT32_MAX /* a key that is * */

typedef struct simulate_row {
    uint32_t keys[SIMULATE_MAX_KEYS];
    uint64_t values[SIMULATE_MAX_VALUES];
    uint64_t line;
} simulate_row;

typedef struct simulate_rows {
    const char *path;
    simulate_row *rows; /* ascending by keys */
    uint64_t num_rows, room;
} simulate_rows;

/* visit-pages: keys chunk, layer, micro_batch; value pages. */
int simulate_read_pages(const char *path, simulate_rows *rows_out);
/* times: keys rank (or *), chunk, layer, pass (F, B, W); values before, core, after. */
int simulate_read_times(const char *path, simulate_rows *rows_out);
/* NULL: none. */
const simulate_row *simulate_find_row(const simulate_rows *rows, const uint32_t *keys);
void simulate_free_rows(simulate_rows *rows);

/* user: simulate_pages. */
typedef struct simulate_pages {
    simulate_rows rows;
    uint64_t page_bytes;
} simulate_pages;

int simulate_usage_of_rows(const void *user, uint64_t iteration, const simulate_visit *visit,
                           pst_group_usage *usage_out);

/* user: simulate_rows of times. */
int simulate_times_of_rows(const void *user, const simulate_visit *layer,
                           simulate_times *times_out);

/* ---- simulate_rates.c ---- */

/* Fixed times and rates of a report of pagestash-bench, by its rows of the sweep "bytes", and of the
 * link by its host tier, where it has one. */
int simulate_read_rates(const char *path, pst_simulated_rates *rates_out);

/* ---- simulate_config.c ---- */

/* What a launch line says, in the words of `pagestash estimate`. */
typedef struct simulate_config {
    const char *path;
    char *text, **words;
    int num_words;
    bool has_estimate;
    estimate_options estimate;
    uint64_t num_micro_batches;
    uint32_t *moe_before; /* [layers + 1]: how many with experts come before */
    pst_estimate_moe moe; /* rows of a layer: even, and of its capacity */
    uint64_t dense_bytes; /* that a dense layer keeps */
    uint64_t moe_bytes;   /* that one with experts keeps, beside their rows */
    uint32_t num_tensors; /* of these rows */
    replay_tensor tensors[REPLAY_MAX_TENSORS];
} simulate_config;

/* self is zero, and to be freed whatever the answer. */
int simulate_read_config(const char *path, simulate_config *self);
/* What a stage needs beside that which its layers keep, at the moment when it needs most: weights,
 * embedding, loss, what is there for a moment. In the order of Megatron-LM (1f1b, interleaved). */
int simulate_config_rest(const simulate_config *self, uint32_t rank, uint64_t *bytes_out);
void simulate_free_config(simulate_config *self);

/* ---- simulate_gpu.c ---- */

/* What layers of a launch line take on a GPU. user of simulate_times_of_gpu. */
typedef struct simulate_gpu {
    const simulate_config *config;
    pst_gpu gpu;
    pst_step_times times[PST_NUM_STEP_PARTS];
    uint64_t p2p_ns;
} simulate_gpu;

int simulate_read_gpu(const char *text, const simulate_config *config, simulate_gpu *self);
/* The first layer's with the embedding, the last one's with the loss. To recompute a layer takes its own forward. */
int simulate_times_of_gpu(const void *user, const simulate_visit *layer, simulate_times *times_out);
/* Copies read and write memory; the link is the GPU's own. */
void simulate_rates_of_gpu(const simulate_gpu *self, pst_simulated_rates *rates_out);

/* ---- simulate_routing.c ---- */

/* user: simulate_routing. A visit of micro-batch m of iteration i takes step i * M + m of the trace,
 * and the layer of the trace that its number modulo their count gives. */
typedef struct simulate_routing {
    replay_model model;
    replay_trace trace;
    replay_sizes sizes;
    pst_group *group;
    const simulate_config *config; /* whose tensors the rows have; NULL: the model's */
    bool is_balanced;              /* every visit has the trace's mean rows, or the config's */
    uint32_t num_micro_batches;    /* of an iteration */
    uint64_t num_iterations;
    int64_t *counts; /* room for those of one visit */
} simulate_routing;

int simulate_read_routing(simulate_routing *routing);
int simulate_usage_of_routing(const void *user, uint64_t iteration, const simulate_visit *visit,
                              pst_group_usage *usage_out);
/* The rows of a visit, in routing->counts. */
const int64_t *simulate_routing_counts(const simulate_routing *routing, uint64_t iteration,
                                       const simulate_visit *visit);
void simulate_free_routing(simulate_routing *routing);

#endif
