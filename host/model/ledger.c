/* What a layer saves for its backward, tensor by tensor. */
#include "host/model/ledger.h"

#include <string.h>

#include "host/base/arith.h"

/* ---- how the work is divided ---- */

psti_split psti_split_of(const pst_estimate_config *config)
{
    return (psti_split){.tensor = config->tensor_parallel,
                        .context = config->context_parallel,
                        .experts = config->expert_parallel,
                        .expert_tensor = config->expert_tensor_parallel,
                        .sequence = config->sequence_parallel};
}

uint64_t psti_tokens(const pst_estimate_config *config, const psti_split *split)
{
    return psti_times(config->sequence_size / split->context, config->micro_batch);
}

uint64_t psti_local_tokens(const pst_estimate_config *config, const psti_split *split)
{
    return psti_div_down(psti_tokens(config, split), split->sequence ? split->tensor : 1);
}

/* Rows that each expert has for those of one GPU. A model may have none. */
static uint64_t rows_of_expert(const pst_estimate_config *config, uint64_t tokens)
{
    if (config->num_experts == 0)
        return 0;
    return psti_div_up(PSTI_PRODUCT(tokens, config->experts_per_token, config->capacity_num),
                       psti_times(config->num_experts, config->capacity_den));
}

static uint64_t capacity_rows(const pst_estimate_config *config, const psti_split *split,
                              uint64_t balanced)
{
    uint64_t rows = psti_div_down(psti_times(balanced, config->capacity_num), config->capacity_den);
    if (config->caps_each_expert)
        rows = PSTI_PRODUCT(rows_of_expert(config, psti_local_tokens(config, split)),
                            config->num_experts, split->expert_tensor);
    return psti_times(psti_div_up(rows, config->row_multiple), config->row_multiple);
}

uint64_t psti_sent_rows(const pst_estimate_config *config, const psti_split *split)
{
    const uint64_t tokens = psti_local_tokens(config, split);
    if (config->moe_rows == PST_MOE_CAPACITY && config->caps_each_expert)
        return psti_times(rows_of_expert(config, tokens), config->num_experts);
    return psti_times(tokens, config->experts_per_token);
}

uint64_t psti_moe_rows(const pst_estimate_config *config, const psti_split *split,
                       pst_moe_rows kind)
{
    const uint64_t tokens = psti_local_tokens(config, split);
    const uint64_t local_experts = config->num_experts / split->experts;
    const uint64_t balanced = PSTI_PRODUCT(tokens, config->experts_per_token, split->expert_tensor);
    if (kind == PST_MOE_BALANCED || kind == PST_MOE_PAGED)
        return balanced;
    if (kind == PST_MOE_CAPACITY)
        return capacity_rows(config, split, balanced);
    return PSTI_PRODUCT(tokens, split->experts, split->expert_tensor,
                        config->experts_per_token < local_experts ? config->experts_per_token
                                                                  : local_experts);
}

uint64_t psti_kv_heads(const pst_estimate_config *config, const psti_split *split)
{
    return config->num_kv_heads < split->tensor ? 1 : config->num_kv_heads / split->tensor;
}

uint64_t psti_routed_size(const pst_estimate_config *config)
{
    return config->latent_size ? config->latent_size : config->hidden_size;
}

uint64_t psti_norm_words(const pst_estimate_config *config)
{
    return config->norm == PST_NORM_RMS ? 1 : 2;
}

uint64_t psti_element_bytes(const pst_estimate_config *config)
{
    return config->type == PST_TRAIN_FP32 ? 4 : 2;
}

/* ---- fp8 ---- */

static uint64_t fp8_scale_bytes(const pst_estimate_config *config, uint64_t columns)
{
    switch (config->fp8) {
    case PST_FP8_BLOCKWISE:
        return psti_times(4, psti_div_up(columns, 128));
    case PST_FP8_MXFP8:
        return psti_div_up(columns, 32);
    default:
        return 0;
    }
}

uint64_t psti_input_bytes(const pst_estimate_config *config, uint64_t rows, uint64_t columns)
{
    if (config->fp8 == PST_FP8_NONE)
        return PSTI_PRODUCT(psti_element_bytes(config), rows, columns);
    return psti_times(rows, psti_plus(columns, fp8_scale_bytes(config, columns)));
}

uint64_t psti_fp8_weight_bytes(const pst_estimate_config *config, uint64_t outputs, uint64_t inputs)
{
    const bool is_blockwise = config->fp8 == PST_FP8_BLOCKWISE;
    const bool is_one = config->fp8 == PST_FP8_TENSORWISE && config->keeps_one_layout;
    const uint64_t scale_rows = is_blockwise ? psti_div_up(outputs, 128) : outputs;
    const uint64_t bytes = psti_plus(psti_times(outputs, inputs),
                                     psti_times(scale_rows, fp8_scale_bytes(config, inputs)));
    if (config->fp8 == PST_FP8_NONE)
        return 0;
    return psti_times(is_one ? 1 : 2, bytes);
}

/* ---- one list of tensors ---- */

typedef struct list {
    const pst_estimate_config *config;
    psti_split split;
    uint64_t tokens;   /* of the tensor parallel group */
    uint64_t local;    /* of one GPU, between the blocks */
    uint64_t gathered; /* of a block's input, as it is saved */
    uint64_t width;    /* bytes of an element */
    psti_ledger made;
} list;

static bool recomputes(const list *self, uint32_t what)
{
    return (self->config->recompute & what) != 0;
}

static void put(list *self, const char *name, uint64_t bytes)
{
    self->made.tensors[self->made.num_tensors++] = (psti_kept){name, bytes, false};
}

static void put_matrix(list *self, const char *name, uint64_t rows, uint64_t columns)
{
    put(self, name, PSTI_PRODUCT(self->width, rows, columns));
}

/* What a linear reads again in its backward. */
static void put_input(list *self, const char *name, uint64_t rows, uint64_t columns)
{
    put(self, name, psti_input_bytes(self->config, rows, columns));
}

/* Of rows, so many words of fp32. */
static void put_words(list *self, const char *name, uint64_t words, uint64_t rows)
{
    put(self, name, PSTI_PRODUCT(4, words, rows));
    self->made.tensors[self->made.num_tensors - 1].is_statistic = true;
}

/* Mean and reciprocal deviation, or the latter alone. */
static void put_statistics(list *self, const char *name, uint64_t rows)
{
    put_words(self, name, psti_norm_words(self->config), rows);
}

static void put_norm_in(list *self, const char *input, const char *statistics)
{
    put_matrix(self, input, self->local, self->config->hidden_size);
    put_statistics(self, statistics, self->local);
}

static void put_hidden_mask(list *self, const char *name)
{
    if (self->config->has_hidden_dropout)
        put(self, name, psti_times(self->local, self->config->hidden_size));
}

/* ---- attention ---- */

static void put_grouped_qkv(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t parts = self->split.tensor;
    const uint64_t q = psti_times(config->num_heads / parts, config->head_size);
    const uint64_t kv_heads = psti_kv_heads(config, &self->split);
    const uint64_t kv = psti_times(kv_heads, config->head_size);
    if (!recomputes(self, PST_RECOMPUTE_NORM))
        put_input(self, "qkv.in", self->gathered, config->hidden_size);
    if (config->qk_norm != PST_QK_NORM_NONE) {
        const uint64_t heads = psti_plus(config->num_heads / parts, kv_heads);
        const uint64_t norms = config->qk_norm == PST_QK_NORM_HEAD ? heads : 2;
        put_matrix(self, "qk_norm.in", self->tokens, psti_plus(q, kv));
        put_statistics(self, "qk_norm.stat", psti_times(self->tokens, norms));
    }
    put_matrix(self, "q", self->tokens, q);
    put_matrix(self, "k", self->tokens, kv);
    put_matrix(self, "v", self->tokens, kv);
}

static void put_latent_qkv(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t q = psti_times(heads, psti_plus(config->qk_size, config->qk_position_size));
    /* two linears read it, each of which has its own in fp8 */
    const uint64_t copies = config->fp8 != PST_FP8_NONE ? 2 : 1;
    if (!recomputes(self, PST_RECOMPUTE_NORM))
        put_input(self, "qkv.in", psti_times(copies, self->local), config->hidden_size);
    const uint64_t kept = recomputes(self, PST_RECOMPUTE_LATENT) ? 0 : self->local;
    const uint64_t gathered = kept ? self->gathered : 0;
    if (config->q_rank != 0) {
        put_matrix(self, "q_down.out", self->local, config->q_rank);
        put_statistics(self, "q_norm.stat", kept);
        put_input(self, "q_up.in", gathered, config->q_rank);
    }
    put_matrix(self, "kv_down.out", self->local,
               psti_plus(config->kv_rank, config->qk_position_size));
    put_statistics(self, "kv_norm.stat", kept);
    put_input(self, "kv_up.in", gathered, config->kv_rank);
    if (recomputes(self, PST_RECOMPUTE_LATENT))
        return;
    put_matrix(self, "q", self->tokens, q);
    put_matrix(self, "k", self->tokens, q);
    put_matrix(self, "v", self->tokens, psti_times(heads, config->v_size));
}

static void put_scores(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t scores = PSTI_PRODUCT(self->tokens, config->sequence_size, heads);
    if (recomputes(self, PST_RECOMPUTE_ATTENTION))
        return;
    if (config->has_flash_attention) {
        put_words(self, "attention.lse", heads, self->tokens);
        return;
    }
    put(self, "softmax.out", psti_times(self->width, scores));
    if (config->has_attention_dropout) {
        put(self, "softmax.mask", scores);
        put(self, "softmax.dropped", psti_times(self->width, scores));
    }
}

static void put_attention(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t size = config->kv_rank ? config->v_size : config->head_size;
    put_norm_in(self, "norm1.in", "norm1.stat");
    if (config->kv_rank)
        put_latent_qkv(self);
    else
        put_grouped_qkv(self);
    put_scores(self);
    /* flash attention keeps its output, which is the projection's input but in fp8 */
    const bool is_apart = config->fp8 != PST_FP8_NONE && config->has_flash_attention;
    put_matrix(self, "attention.out", config->copies_attention || is_apart ? self->tokens : 0,
               psti_times(heads, size));
    put_input(self, "proj.in", self->tokens, psti_times(heads, size));
    put_hidden_mask(self, "proj.mask");
}

/* ---- feed-forward blocks ---- */

typedef struct block {
    const char *fc1_out, *activation, *fc2_in;
    uint64_t rows, ffn_size; /* of one GPU */
    bool is_again;           /* the backward runs the activation function again */
} block;

static void put_block(list *self, block of)
{
    const pst_estimate_config *config = self->config;
    const uint64_t columns = psti_times(config->is_gated ? 2 : 1, of.ffn_size);
    const uint64_t width = config->saves_inputs_fp8 ? 1 : self->width;
    put(self, of.fc1_out, PSTI_PRODUCT(width, of.rows, columns));
    if (of.is_again)
        return;
    if (config->is_gated && !config->fuses_activation)
        put_matrix(self, of.activation, of.rows, of.ffn_size);
    put_input(self, of.fc2_in, of.rows, of.ffn_size);
}

/* A dense block's norm is part of its first matrix, and run again with it. */
static void put_dense(list *self)
{
    if (recomputes(self, PST_RECOMPUTE_MLP)) {
        put_matrix(self, "norm2.in", self->local, self->config->hidden_size);
        return;
    }
    put_norm_in(self, "norm2.in", "norm2.stat");
    if (!recomputes(self, PST_RECOMPUTE_NORM))
        put_input(self, "fc1.in", self->gathered, self->config->hidden_size);
    put_block(self, (block){"fc1.out", "activation.out", "fc2.in", self->tokens,
                            self->config->ffn_size / self->split.tensor,
                            recomputes(self, PST_RECOMPUTE_ACTIVATION)});
}

static void put_router(list *self, uint64_t rows)
{
    const pst_estimate_config *config = self->config;
    const uint64_t choices = psti_times(self->local, config->num_experts);
    put(self, "router.logits", psti_times(4, choices));
    put(self, "router.probs", psti_times(4, choices));
    put(self, "router.map", choices);
    put(self, "dispatch.maps",
        psti_plus(PSTI_PRODUCT(4, self->local, config->experts_per_token), psti_times(4, rows)));
}

static void put_shared(list *self)
{
    const pst_estimate_config *config = self->config;
    if (config->shared_ffn_size == 0 || recomputes(self, PST_RECOMPUTE_SHARED))
        return;
    /* unless it is gathered it is moe.in, in its own type too */
    put_matrix(self, "shared.fc1.in", self->gathered != self->local ? self->tokens : 0,
               config->hidden_size);
    put_block(self, (block){"shared.fc1.out", "shared.activation.out", "shared.fc2.in",
                            self->tokens, config->shared_ffn_size / self->split.tensor,
                            recomputes(self, PST_RECOMPUTE_ACTIVATION)});
    if (config->has_shared_gate)
        put_matrix(self, "shared.gate", self->local, 1);
}

static void put_experts(list *self, uint64_t rows)
{
    const pst_estimate_config *config = self->config;
    put_input(self, "expert.fc1.in", rows, psti_routed_size(config));
    put_block(self, (block){"expert.fc1.out", "expert.activation.out", "expert.fc2.in", rows,
                            config->expert_ffn_size / self->split.expert_tensor,
                            recomputes(self, PST_RECOMPUTE_ACTIVATION | PST_RECOMPUTE_EXPERTS)});
    put(self, "expert.probs", psti_times(4, rows));
    if (config->applies_probs_late)
        put_matrix(self, "expert.fc2.out", rows, psti_routed_size(config));
}

static void put_moe(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t rows = psti_moe_rows(config, &self->split, config->moe_rows);
    put_norm_in(self, "norm2.in", "norm2.stat");
    if (!recomputes(self, PST_RECOMPUTE_NORM))
        put_matrix(self, "moe.in", self->local, config->hidden_size);
    if (recomputes(self, PST_RECOMPUTE_MOE))
        return;
    put_router(self, rows);
    put_experts(self, rows);
    /* down saves no more than moe.in; what it makes is dispatched, and its copies are saved */
    put_input(self, "latent.up.in", self->local, config->latent_size);
    put_shared(self);
}

static list empty_list(const pst_estimate_config *config, psti_split split)
{
    list self = {.config = config, .split = split};
    self.width = psti_element_bytes(config);
    self.tokens = psti_tokens(config, &split);
    self.local = psti_local_tokens(config, &split);
    self.gathered = recomputes(&self, PST_RECOMPUTE_GATHER) ? self.local : self.tokens;
    return self;
}

psti_ledger psti_ledger_of(const pst_estimate_config *config, psti_split split, bool is_moe)
{
    list self = empty_list(config, split);
    put_attention(&self);
    if (is_moe)
        put_moe(&self);
    else
        put_dense(&self);
    put_hidden_mask(&self, "mlp.mask");
    return self.made;
}

psti_ledger psti_ledger_of_gpt(uint64_t local_tokens, uint64_t hidden_size, uint64_t ffn_size)
{
    const pst_estimate_config config = {
        .hidden_size = hidden_size,
        .num_heads = 1,
        .num_kv_heads = 1,
        .head_size = hidden_size,
        .ffn_size = ffn_size,
        .norm = PST_NORM_LAYER,
        .sequence_size = local_tokens,
        .micro_batch = 1,
        .type = PST_TRAIN_BF16,
        .has_flash_attention = true,
    };
    return psti_ledger_of(&config, (psti_split){1, 1, 1, 1, false}, false);
}

psti_ledger psti_ledger_of_expert_row(const pst_estimate_config *config)
{
    list self = empty_list(config, psti_split_of(config));
    put_experts(&self, 1);
    return self.made;
}

/* ---- sums ---- */

static uint64_t sum_of(const psti_ledger *self, bool with_statistics)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->num_tensors; i++)
        if (with_statistics || !self->tensors[i].is_statistic)
            bytes = psti_plus(bytes, self->tensors[i].bytes);
    return bytes;
}

uint64_t psti_ledger_sum(const psti_ledger *self)
{
    return sum_of(self, true);
}

uint64_t psti_ledger_sum_swapped(const psti_ledger *self)
{
    return sum_of(self, false);
}

uint64_t psti_ledger_bytes(const psti_ledger *self, const char *name)
{
    uint32_t i = 0;
    while (strcmp(self->tensors[i].name, name) != 0)
        i++;
    return self->tensors[i].bytes;
}

uint64_t psti_row_bytes(const pst_estimate_config *config)
{
    const psti_ledger row = psti_ledger_of_expert_row(config);
    return psti_ledger_sum(&row);
}

uint64_t psti_layer_bytes(const pst_estimate_config *config, bool is_moe)
{
    const psti_ledger layer = psti_ledger_of(config, psti_split_of(config), is_moe);
    return psti_ledger_sum(&layer);
}

/* Norms of the embedding, of the layers' output and of the depth's own; the first two side by side
 * are the projection's input. */
psti_mtp psti_mtp_of(const pst_estimate_config *config, const psti_split *split)
{
    list norms = empty_list(config, *split), projection = norms;
    for (int i = 0; i < 3; i++)
        put_norm_in(&norms, "mtp.norm.in", "mtp.norm.stat");
    put_input(&projection, "mtp.proj.in", projection.gathered, psti_times(2, config->hidden_size));
    return (psti_mtp){.norms = psti_ledger_sum(&norms.made),
                      .projection = psti_ledger_sum(&projection.made)};
}
