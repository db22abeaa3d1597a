/* What a transformer layer keeps for its backward: one list of tensors, by shape and split.
 *
 * Room model: pure, uses base alone. Used by estimate, trace (derivation) and plan (the swap
 * fraction), which read the same list. All functions take a config whose zeros are filled in. */
#ifndef PSTI_HOST_MODEL_LEDGER_H
#define PSTI_HOST_MODEL_LEDGER_H

#include <pagestash/estimate.h>

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
/* Rows that a GPU sends to experts, its own too: those of its tokens' choices, or as many as
 * experts have room for where each is filled up to that. */
uint64_t psti_sent_rows(const pst_estimate_config *config, const psti_split *split);
/* Heads of keys and values that a GPU works with: the tensor parallel GPUs share one where there
 * are fewer than GPUs. */
uint64_t psti_kv_heads(const pst_estimate_config *config, const psti_split *split);

/* Bytes of an element of an activation, and of a weight. */
uint64_t psti_element_bytes(const pst_estimate_config *config);
/* Elements of a token on its way to the experts and back. */
uint64_t psti_routed_size(const pst_estimate_config *config);
/* Words of a norm for each element that it spans. */
uint64_t psti_norm_words(const pst_estimate_config *config);

/* Of a linear's input, as it is kept: of the config's type, or in fp8 with scales. */
uint64_t psti_input_bytes(const pst_estimate_config *config, uint64_t rows, uint64_t columns);
/* Of a linear's weight in fp8, with scales, in all layouts that are kept; 0 without fp8. */
uint64_t psti_fp8_weight_bytes(const pst_estimate_config *config, uint64_t outputs,
                               uint64_t inputs);

/* ---- the list ---- */

typedef struct psti_kept {
    const char *name;  /* static text */
    uint64_t bytes;    /* may be 0 */
    bool is_statistic; /* of norms and softmax, in fp32, a few words a token */
} psti_kept;

typedef struct psti_ledger {
    uint32_t num_tensors;
    psti_kept tensors[PST_ESTIMATE_MAX_ENTRIES];
} psti_ledger;

psti_ledger psti_ledger_of(const pst_estimate_config *config, psti_split split, bool is_moe);
/* Of a layer as MEMO counts it, in half precision: LayerNorm, an ungated activation, no dropout,
 * attention that keeps no scores, inputs as one GPU holds them. The tokens are those of one GPU, so
 * nothing is divided any more. There is one head, as wide as the hidden size: of more heads each
 * has an "attention.lse" of this size. */
psti_ledger psti_ledger_of_gpt(uint64_t local_tokens, uint64_t hidden_size, uint64_t ffn_size);
/* What a GPU's experts save for one row that they receive. */
psti_ledger psti_ledger_of_expert_row(const pst_estimate_config *config);

uint64_t psti_ledger_sum(const psti_ledger *self);
/* Without statistics. MEMO (section 4.1: 16 bsh of a layer) swaps the rest and keeps those. */
uint64_t psti_ledger_sum_swapped(const psti_ledger *self);
/* Bytes of a tensor that is there. */
uint64_t psti_ledger_bytes(const psti_ledger *self, const char *name);

/* Sums of the lists above, on one GPU. */
uint64_t psti_row_bytes(const pst_estimate_config *config);
uint64_t psti_layer_bytes(const pst_estimate_config *config, bool is_moe);

/* What a depth of multi-token prediction saves beside its layer, and beside what its embedding and
 * its output matrix save. */
typedef struct psti_mtp {
    uint64_t norms, projection;
} psti_mtp;

psti_mtp psti_mtp_of(const pst_estimate_config *config, const psti_split *split);

#endif
