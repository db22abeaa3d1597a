/* Room tools/estimate: the command `pagestash estimate`. Uses tools/common. Used by
 * tools/simulate, which reads launch lines with it. This file: what its parts share. */
#ifndef PAGESTASH_TOOL_ESTIMATE_H
#define PAGESTASH_TOOL_ESTIMATE_H

#include "host/base/arith.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <stdio.h>

typedef enum estimate_mode {
    ESTIMATE_REPORT = 0,
    ESTIMATE_FIT,
    ESTIMATE_SEARCH,
    ESTIMATE_TIMELINE,
    ESTIMATE_PR482, /* the report of another tool, as that one printed it */
} estimate_mode;

/* Beside torch's tensors: a sum, and what its allocator has and does not give out, a share of the peak. */
typedef struct estimate_reserve {
    uint64_t overhead_bytes; /* context, NCCL: as given, or pst_estimate_get_reserve's */
    uint64_t fragmentation_num, fragmentation_den;
} estimate_reserve;

static inline uint64_t estimate_reserve_of(const estimate_reserve *reserve, uint64_t peak_bytes)
{
    return psti_plus(reserve->overhead_bytes, psti_fraction(peak_bytes, reserve->fragmentation_num,
                                                            reserve->fragmentation_den));
}

typedef struct estimate_options {
    pst_estimate_config config;           /* every zero of the run filled in; chunk_layers owned */
    bool is_moe[PST_ESTIMATE_MAX_LAYERS]; /* what the config's points to, or NULL does */
    const char *preset, *hf_config, *routing; /* NULL: none */
    const char *model;                        /* preset or hf_config; NULL: Megatron's defaults */
    uint64_t model_positions;                 /* the most it was made for; 0: not known */
    uint64_t model_mtp_layers; /* there are as published, counted only if asked for */
    /* Lists of lines for the report, in the order they came. */
    json_t *assumptions;   /* what stands where no flag said anything */
    json_t *warnings;      /* unknown flags, flags given twice */
    json_t *unmodelled;    /* flags that change memory, and are not counted */
    json_t *matters;       /* of these, what changes whole states or sizes */
    bool is_more, is_less; /* than is counted, by one of these; both: it may be either */
    bool takes_gpu_memory; /* memory_bytes is what --gpu has */
    estimate_mode mode;
    const char *json; /* NULL: none; "-": stdout, in place of the text */
    bool is_strict, lists_members, shows_details;
    bool keeps[6]; /* with ESTIMATE_SEARCH: which sizes of estimate_ways were given */
    uint64_t gpus_per_node;
    uint64_t memory_bytes; /* of one GPU */
    estimate_reserve reserve;
    bool has_overhead; /* it was given */
    bool has_load_cv;
    uint64_t load_cv_num, load_cv_den;
    bool has_capacity, has_headroom; /* a flag gave config's */
    uint64_t num_sms;                /* for the shares of waves */
    uint64_t timeline_stage;         /* also of the picture; the heaviest if UINT64_MAX */
    const char *html;                /* NULL: none */
    uint64_t pr482_logit_bytes;      /* 9 or 10 */
    const char *gpu_name;            /* NULL: no times are asked for */
    pst_gpu gpu;                     /* then this one's */
    struct estimate_line *line;      /* what was said, for messages; points into argv */
    bool overlaps_tensor, overlaps_gradients, overlaps_params, overlaps_shared_experts;
} estimate_options;

/* estimate_parse.c: TOOL_USAGE and TOOL_INPUT, their one line printed. Free it in any case. */
int estimate_parse(int argc, char **argv, estimate_options *options);
void estimate_free(estimate_options *options);
/* A list without memory is NULL from then on, which estimate_parse and json_write say. */
void estimate_note(json_t **notes, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Each as a line on stderr. */
void estimate_warn(const json_t *notes, const char *what);

/* estimate_table.c: to stdout. */
void estimate_help(void);

/* estimate_buffers.c: config's capacity and headroom from what --moe-load-cv or --routing say, where no
 * flag gave them. */
int estimate_read_load(estimate_options *options);
/* The same from --moe-load-cv alone, for another split; neither without it. */
pst_status estimate_apply_variation(const estimate_options *options, pst_estimate_config *config);

/* estimate_peak.c: refuses, with what was said that is largest, perhaps an overhead. */
int estimate_refuse_largest(const estimate_options *options, uint64_t overhead_bytes,
                            const char *why);
/* As tool_status, of a run whose flags were taken: what exceeds 64 bits is said with the largest
 * figure of the launch line or of the config.json. */
int estimate_status(const estimate_options *options, pst_status status);
/* The same, of a figure that JSON cannot hold, which the overhead may be a part of. */
int estimate_too_much(const estimate_options *options, const char *figure);
#define ESTIMATE_TRY(options, call) TOOL_TRY(estimate_status((options), (call)))

/* The same file: one stage, the reserve included. Set stage_out->live, or leave it NULL. */
typedef struct estimate_stage {
    pst_estimate_memory memory;
    pst_estimate_traffic traffic;
    uint64_t *chunk_layers, *live; /* of each chunk */
    uint64_t reserve_bytes;        /* of the next */
    uint64_t peak_bytes;           /* UINT64_MAX if it is more */
    uint64_t wire_bytes;           /* that leave one GPU in an iteration; likewise */
} estimate_stage;

/* Kinds of a GPU's bytes beside the reserve and the transient: key of the report, member of
 * pst_estimate_memory, as text. */
#define ESTIMATE_PARTS(X)                                  \
    X(weights, states.weight_bytes, "weights")             \
    X(gradients, states.gradient_bytes, "gradients")       \
    X(optimizer, states.optimizer_bytes, "optimizer")      \
    X(activations, saved_bytes, "saved activations")       \
    X(head, head_bytes, "logits and loss")                 \
    X(recompute, recompute_bytes, "layers computed again") \
    X(paging, paging_bytes, "paging")                      \
    X(empty_gradients, empty_bytes, "empty gradients")     \
    X(fp8_weights, cache_bytes, "weights in fp8")          \
    X(gathered, gathered_bytes, "gathered weights")        \
    X(reloaded, reload_bytes, "saved tensors coming back") \
    X(workspaces, workspace_bytes, "workspaces")

pst_status estimate_measure(const pst_estimate_config *config, uint64_t stage,
                            const estimate_reserve *reserve, estimate_stage *stage_out);

/* The stage that needs most, and the most that leaves a GPU. */
typedef struct estimate_peak {
    uint64_t stage, bytes, wire_bytes, reserve_bytes;
} estimate_peak;

pst_status estimate_peak_of(const pst_estimate_config *config, const estimate_reserve *reserve,
                            estimate_peak *peak_out);

/* The same file: PST_OVERLAP_ bits. */
uint32_t estimate_overlaps(const estimate_options *options);
/* How long a step takes on the gpu; of this config, with the options' overlaps. pre: gpu_name.
 * A millisecond: --search may ask for each split. */
pst_status estimate_predict(const estimate_options *options, const pst_estimate_config *config,
                            pst_step_prediction *prediction_out);

/* One for each mode. */
int estimate_report(const estimate_options *options);
int estimate_fit(const estimate_options *options);
int estimate_search(const estimate_options *options);
int estimate_pr482(const estimate_options *options);
/* estimate_html.c: --html, beside any mode but ESTIMATE_PR482: whether its events are too many; and it, one file that
 * loads nothing else. title: any bytes; what is no UTF-8 shows as '?'. */
int estimate_html_check(const estimate_options *options);
int estimate_html_write(FILE *file, const char *title, const estimate_options *options,
                        uint64_t stage);

/* ---- the report: one tree, which is its JSON and of which its text is printed ---- */

/* estimate_tree.c: to be released by the caller. TOOL_NO: out of memory. TOOL_USAGE: a figure exceeds
 * what JSON can hold. */
int estimate_tree(const estimate_options *options, json_t **tree_out);
/* A new object of a name, if there is a key for it, and numbers. */
json_t *estimate_item(const char *key, const char *name, const json_whole *items, size_t num);
#define ESTIMATE_ITEM(key, name, ...)                               \
    estimate_item((key), (name), (const json_whole[]){__VA_ARGS__}, \
                  sizeof((const json_whole[]){__VA_ARGS__}) / sizeof(json_whole))
#define ESTIMATE_OBJECT(...) ESTIMATE_ITEM(NULL, NULL, __VA_ARGS__)

/* estimate_table.c: the run as it was understood. */
json_t *estimate_config_value(const pst_estimate_config *config);
/* A new list of numbers. */
json_t *estimate_list(const uint64_t *words, uint64_t num);

/* estimate_whatif.c: `whatif`, a list of objects: change, cost, saved_bytes, extra_wire_bytes, peak_bytes,
 * fits; and `together`, the first few of them that fit, where the run does not and no single one does. */
int estimate_put_whatifs(const estimate_options *options, uint64_t stage, bool fits, json_t **tree);

/* estimate_traffic.c: transfers of each stage, of all GPUs, and who takes part. */
void estimate_put_traffic(const estimate_options *options, const estimate_stage *stages,
                          uint64_t heaviest, json_t **tree);

/* estimate_text.c: rows of a list of objects as a table, those that are alike but for the first column
 * once. Values are bytes, shown in GiB or MiB; numbers; lists of them as 1+2; or texts, to the left. */
typedef enum estimate_form { IN_GIB, IN_MIB, AS_MS, AS_NUMBER, AS_TEXT } estimate_form;

typedef struct estimate_column {
    const char *path; /* keys with points between them */
    const char *title;
    estimate_form form;
    int width;
} estimate_column;

/* op: of the rows with that "op" alone; NULL: of all. */
void estimate_print_rows(const json_t *rows, const char *op, const estimate_column *columns,
                         size_t num_columns);
#define ESTIMATE_PRINT_ROWS(rows, ...)                                      \
    estimate_print_rows(rows, NULL, (const estimate_column[]){__VA_ARGS__}, \
                        sizeof((const estimate_column[]){__VA_ARGS__}) / sizeof(estimate_column))
/* The value that keys with points between them lead to. */
const json_t *estimate_at(const json_t *from, const char *path);
uint64_t estimate_whole_at(const json_t *from, const char *path);
/* In lines of at most 100 columns. */
void estimate_print_wrapped(const char *title, const char *text);
void estimate_print_notes(const json_t *tree, const char *key, const char *title);

/* What is not shown otherwise. */
void estimate_print_details(const json_t *tree);

/* estimate_summary.c: the report's first lines; more: a line besides, or NULL. */
void estimate_print_summary(const estimate_options *options, const json_t *tree, const char *more);

#endif
