/* What the files of the estimator share. */
#ifndef PSTI_HOST_ESTIMATE_H
#define PSTI_HOST_ESTIMATE_H

#include "host/internal.h"

/* ---- arithmetic: what is too much becomes PSTI_TOO_MUCH, and stays it in sums ---- */

#define PSTI_TOO_MUCH UINT64_MAX

static inline uint64_t psti_plus(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? PSTI_TOO_MUCH : sum;
}

static inline uint64_t psti_times(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? PSTI_TOO_MUCH : product;
}

static inline uint64_t psti_over(uint64_t a, uint64_t b)
{
    return a == PSTI_TOO_MUCH ? a : a / b;
}

/* Rounds up. */
static inline uint64_t psti_share(uint64_t a, uint64_t b)
{
    return a == PSTI_TOO_MUCH ? a : a / b + (a % b != 0);
}

uint64_t psti_sum_of(const uint64_t *terms, size_t num_terms);
uint64_t psti_product_of(const uint64_t *factors, size_t num_factors);

#define PSTI_LIST(...) \
    (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)
#define PSTI_SUM(...) psti_sum_of(PSTI_LIST(__VA_ARGS__))
#define PSTI_PRODUCT(...) psti_product_of(PSTI_LIST(__VA_ARGS__))

/* ---- estimate.c ---- */

/* Checks, and fills in what a zero stands for. */
pst_status psti_estimate_open(const pst_estimate_config *given, pst_estimate_config *config_out);

/* The functions below take an opened config. */

bool psti_estimate_has_moe(const pst_estimate_config *config, uint64_t layer);
/* GPUs that hold the same dense parameters, context parallel ones too; and the same experts. */
uint64_t psti_estimate_dense_group(const pst_estimate_config *config);
uint64_t psti_estimate_expert_group(const pst_estimate_config *config);
uint64_t psti_num_micro_batches(const pst_estimate_config *config);

/* Layers first to first + num_layers - 1 of the model, num_moe of them with experts. */
typedef struct psti_chunk {
    uint64_t first, num_layers, num_moe;
} psti_chunk;

psti_chunk psti_chunk_of(const pst_estimate_config *config, uint64_t stage, uint64_t chunk);
pst_status psti_estimate_check_stage(const pst_estimate_config *config, uint64_t stage);
/* Bytes of an element of an activation. */
uint64_t psti_element_bytes(const pst_estimate_config *config);
/* Words of a norm for each element that it spans. */
uint64_t psti_norm_words(const pst_estimate_config *config);

/* ---- estimate_params.c ---- */

/* Bytes per parameter. */
typedef struct psti_widths {
    uint64_t weight, gradient, optimizer;
} psti_widths;

psti_widths psti_widths_of(pst_train_type type);

/* ---- estimate_ledger.c ---- */

/* How a layer's work is divided. */
typedef struct psti_split {
    uint64_t tensor, context, experts, expert_tensor;
    bool sequence;
} psti_split;

psti_split psti_split_of(const pst_estimate_config *config);
/* Tokens of a micro-batch in a tensor parallel group, and those that one GPU of it holds between
 * the blocks. */
uint64_t psti_tokens(const pst_estimate_config *config, const psti_split *split);
uint64_t psti_local_tokens(const pst_estimate_config *config, const psti_split *split);
/* Rows that a GPU's experts receive. */
uint64_t psti_moe_rows(const pst_estimate_config *config, const psti_split *split,
                       pst_moe_rows kind);
/* Bytes that a GPU's experts save for each row they receive. */
uint64_t psti_row_bytes(const pst_estimate_config *config);
/* The sum of a layer's ledger, on one GPU. */
uint64_t psti_layer_bytes(const pst_estimate_config *config, bool is_moe);

/* ---- estimate_schedule.c ---- */

/* live: for each chunk of a stage, the micro-batches that have run forward and not backward when
 * the sum of live * chunk_bytes is largest, the first time. Fails: INVALID (it exceeds 64 bits),
 * NOMEM. */
pst_status psti_schedule_peak(const pst_estimate_config *config, uint64_t stage,
                              const uint64_t *chunk_bytes, uint64_t *live);

/* ---- estimate_moe.c ---- */

/* What paging takes above the balanced rows of the live layers: buffers, spare and partly filled
 * pages, tables. */
uint64_t psti_paging_bytes(const pst_estimate_config *config, uint64_t live_layers);

#endif
