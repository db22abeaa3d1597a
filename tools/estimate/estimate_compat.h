/* --compat pr482: the report of the analyzer that was pull request 482 of Megatron-LM (2023). */
#ifndef PAGESTASH_ESTIMATE_COMPAT_H
#define PAGESTASH_ESTIMATE_COMPAT_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 pr482_wide;

/* Exactly num / den; den 0: an empty cell. */
typedef struct pr482_value {
    pr482_wide num;
    uint64_t den;
} pr482_value;

/* All but the counts are bytes. */
typedef enum pr482_name {
    PR482_NONE = 0,
    PR482_COUNT, /* of parameters */
    PR482_WEIGHTS,
    PR482_GRADIENTS,
    PR482_OPTIMIZER,
    PR482_SAVED,
    PR482_TOTAL,
    PR482_GPU_COUNT,
    PR482_GPU_WEIGHTS,
    PR482_GPU_GRADIENTS,
    PR482_GPU_OPTIMIZER,
    PR482_GPU_SAVED,
    PR482_GPU_PEAK,
    PR482_EMBEDDING, /* saved by: */
    PR482_LAYER,
    PR482_HIDDEN, /* one tensor of the hidden size, also a message */
    PR482_ATTENTION,
    PR482_QKV,
    PR482_MLP,
    PR482_GLUE,
    PR482_DROP,
    PR482_QKV_PART, /* divided by t */
    PR482_HIDDEN_PART,
    PR482_WORDS, /* weights of: */
    PR482_POSITIONS,
    PR482_NORM_IN,
    PR482_NORM_MLP,
    PR482_W_QKV,
    PR482_W_DENSE,
    PR482_W_UP,
    PR482_W_DOWN,
    PR482_W_QKV_PART, /* divided by t */
    PR482_W_DENSE_PART,
    PR482_W_UP_PART,
    PR482_PP_COUNT, /* messages of a GPU, of the cluster, and their bytes */
    PR482_PP_BYTES,
    PR482_PP_ALL_COUNT,
    PR482_PP_ALL_BYTES,
    PR482_TP_LAYER_BYTES, /* the same: a layer, a micro-batch, an iteration */
    PR482_TP_MICRO_COUNT,
    PR482_TP_MICRO_BYTES,
    PR482_TP_COUNT,
    PR482_TP_BYTES,
    PR482_TP_ALL_MICRO_COUNT,
    PR482_TP_ALL_MICRO_BYTES,
    PR482_TP_ALL_COUNT,
    PR482_TP_ALL_BYTES,
    PR482_DP_COUNT,
    PR482_DP_HALF_BYTES,
    PR482_DP_BYTES,
    PR482_SUM_COUNT, /* of the summary, where a p or t of 1 adds none */
    PR482_SUM_BYTES,
    PR482_NUM_VALUES
} pr482_name;

typedef struct pr482_report {
    uint64_t h, s, b, n, f, v;     /* as the tool called them: v padded */
    uint64_t t, p, d, m, l, world; /* m micro-batches, l layers of a stage */
    uint64_t gpus_per_node;
    pr482_value values[PR482_NUM_VALUES];
} pr482_report;

/* estimate_pr482_print.c: all of it, to stdout. */
void pr482_print(const pr482_report *report);

/* ---- estimate_pr482_text.c: its numbers, lines and tables ---- */

enum { PR482_LABEL_COLUMNS = 43, PR482_SHAPE_COLUMNS = 25, PR482_CELL_COLUMNS = 15 };

typedef struct pr482_shape {
    char text[96];
} pr482_shape;

/* w=[w0,w1],b=[b0]; a zero stands for nothing. */
pr482_shape pr482_shape_of(uint64_t w0, uint64_t w1, uint64_t b0);
/* [b,s,h] */
pr482_shape pr482_message_shape(const pr482_report *report);

void pr482_put_line(char c, int columns);
/* Text to a number of columns; its letters may take several bytes. */
void pr482_put_padded(const char *text, int columns);
/* That, as a line. */
void pr482_put_head(const char *text, int columns);
void pr482_put_title(const char *title, int columns);
void pr482_put_end(int columns);

void pr482_put_count(const char *before, const pr482_report *report, pr482_name name);
void pr482_put_params(const pr482_report *report, pr482_name name);
/* In GiB, which it calls GB, and MiB. */
void pr482_put_giga(const char *before, const pr482_report *report, pr482_name name, int digits,
                    const char *after);
void pr482_put_mega(const pr482_report *report, pr482_name name, const char *after);

/* Label, shape (NULL: none), weights; what is saved stands behind that, where anything does. The
 * line stays open. */
void pr482_put_row(const pr482_report *report, const char *label, const pr482_shape *shape,
                   pr482_name weights, pr482_name saved);
/* The cells of a message in the forward, or in the backward. */
void pr482_put_message(const pr482_report *report, bool is_backward);

/* Ranks first, first + stride, ... as nodes and their GPUs. */
void pr482_put_ranks(const pr482_report *report, const char *before, uint64_t first,
                     uint64_t stride, uint64_t size);

#endif
