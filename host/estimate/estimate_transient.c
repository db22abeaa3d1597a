/* What comes and goes within a pass, beside all that is counted as kept.
 *
 * The moments are those of an eager backward: autograd frees a gradient once the node that takes it
 * has run. docs/estimator.md lists them; a gated block takes 6 bytes * tokens * f/t and three
 * tensors of the hidden size, as was measured for Megatron-LM's pull request 482.
 */
#include "host/estimate/estimate.h"

typedef struct moments {
    const pst_estimate_config *config;
    psti_split split;
    uint64_t tokens, local;
    uint64_t width;
    uint64_t head_bytes; /* that are gone when the layers' backward begins */
    uint64_t gradients;  /* that are whole while a layer's backward runs */
    psti_moment highest;
} moments;

/* What a moment takes beside bytes that are counted and no longer there. */
static uint64_t beyond(uint64_t bytes, uint64_t gone)
{
    if (bytes == PSTI_TOO_MUCH)
        return bytes;
    return bytes > gone ? bytes - gone : 0;
}

static void consider(moments *self, const char *name, uint64_t bytes)
{
    if (bytes > self->highest.bytes)
        self->highest = (psti_moment){name, bytes};
}

static uint64_t hidden_bytes(const moments *self, uint64_t rows)
{
    return PSTI_PRODUCT(self->width, rows, self->config->hidden_size);
}

/* What the backward of a layer's part computes anew, if these bits are set: the difference of two
 * ledgers. */
static uint64_t again_bytes(const moments *self, uint32_t bits, bool is_moe)
{
    pst_estimate_config kept = *self->config, again = *self->config;
    if (!is_moe && (bits & PST_RECOMPUTE_MLP) == 0)
        kept.ffn_size = again.ffn_size = 0; /* of dense layers that there may not be */
    kept.recompute &= ~bits;
    return beyond(psti_layer_bytes(&kept, is_moe), psti_layer_bytes(&again, is_moe));
}

/* The product that the second matrix reads, and unfused what it is made of, if one of these bits has
 * them computed anew. */
static uint64_t product_again_bytes(const moments *self, uint32_t bits, uint64_t rows,
                                    uint64_t ffn_size)
{
    const bool is_two = self->config->is_gated && !self->config->fuses_activation;
    if ((self->config->recompute & bits) == 0)
        return 0;
    return PSTI_PRODUCT(is_two ? 2 : 1, self->width, rows, ffn_size);
}

/* Between stages: the gradient that arrives is in its receive buffer, which is counted as the
 * block's; chunks in turn have the next activation and the next gradient on their way besides. */
static uint64_t exchange_bytes(const moments *self)
{
    return self->config->virtual_stages > 1 ? psti_times(2, hidden_bytes(self, self->local)) : 0;
}

/* Of any block: the gradient that arrives and, where its input's is whole, that. */
static uint64_t ends_bytes(const moments *self, uint64_t input_rows)
{
    const bool has_norm_again = self->config->recompute & PST_RECOMPUTE_NORM;
    return PSTI_SUM(self->gradients, hidden_bytes(self, self->local),
                    hidden_bytes(self, input_rows),
                    has_norm_again ? hidden_bytes(self, self->local) : 0, exchange_bytes(self));
}

/* Of a pair of matrices, by columns and then by rows, besides: the gradient behind the pair, which
 * sequence parallelism gathers; in its place, later, the input that is gathered again. */
static uint64_t pair_bytes(const moments *self)
{
    return psti_plus(ends_bytes(self, self->tokens), hidden_bytes(self, self->tokens));
}

/* Gradients of the product and of what the first matrix makes, 2w and 4w where the block is gated.
 * Unfused there are never more than three of 2w either. What is saved in fp8 is widened first. A
 * product in fp8 reads the latter in two layouts, made when the former is gone. */
static uint64_t activation_bytes(const moments *self, uint64_t rows, uint64_t ffn_size)
{
    const uint64_t made = self->config->is_gated ? 2 : 1;
    const uint64_t widened = self->config->saves_inputs_fp8 ? made : 0;
    const uint64_t before = PSTI_PRODUCT(self->width, rows, 1 + widened, ffn_size);
    const uint64_t quantized =
        self->config->fp8
            ? psti_times(2, psti_input_bytes(self->config, rows, psti_times(made, ffn_size)))
            : 0;
    return psti_plus(PSTI_PRODUCT(self->width, rows, made, ffn_size),
                     before > quantized ? before : quantized);
}

/* ---- layers ---- */

static void consider_mlp(moments *self, const char *name, uint64_t ffn_size, uint64_t again)
{
    const uint64_t own = ffn_size / self->split.tensor;
    const uint64_t bytes =
        PSTI_SUM(pair_bytes(self), activation_bytes(self, self->tokens, own), again,
                 product_again_bytes(self, PST_RECOMPUTE_ACTIVATION, self->tokens, own));
    consider(self, name, beyond(bytes, self->head_bytes));
}

/* Gradients of what flash attention takes and makes, with the queries' summed up in fp32 first (as
 * FlashAttention-2 does); of scores and softmax, without it. */
static uint64_t core_bytes(const moments *self, uint64_t q, uint64_t kv, uint64_t out)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t made = PSTI_PRODUCT(self->width, self->tokens, PSTI_SUM(q, kv, out));
    if (config->has_flash_attention)
        return psti_plus(made, PSTI_PRODUCT(4, self->tokens, q));
    return psti_plus(
        made, PSTI_PRODUCT(2, self->width, self->tokens, psti_times(config->sequence_size, heads)));
}

/* A ring has the next keys and values under way, and their gradients. */
static uint64_t ring_bytes(const moments *self, uint64_t kv)
{
    return self->split.context > 1 ? PSTI_PRODUCT(2, self->width, self->tokens, kv) : 0;
}

static void consider_attention(moments *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    uint64_t q = psti_times(heads, config->head_size), out = q;
    uint64_t kv = PSTI_PRODUCT(2, psti_kv_heads(config, &self->split), config->head_size);
    uint64_t before = config->qk_norm != PST_QK_NORM_NONE ? psti_plus(q, kv / 2) : 0;
    if (config->kv_rank != 0) {
        q = psti_times(heads, psti_plus(config->qk_size, config->qk_position_size));
        out = psti_times(heads, config->v_size);
        kv = psti_plus(q, out);
        before = psti_times(heads, psti_plus(config->qk_size, config->v_size));
    }
    const uint64_t bytes =
        PSTI_SUM(pair_bytes(self), core_bytes(self, q, kv, out), ring_bytes(self, kv),
                 PSTI_PRODUCT(self->width, self->tokens, before),
                 again_bytes(self, PST_RECOMPUTE_ATTENTION | PST_RECOMPUTE_LATENT, false));
    consider(self, "attention backward", beyond(bytes, self->head_bytes));
}

/* The same gradients for each row of an expert's buffers, and those of the rows that come in and go
 * out, and of the probabilities. Paged rows are back in the buffers of the layer at work, but for what
 * an activation reads in its pages. */
static void consider_experts(moments *self)
{
    const pst_estimate_config *config = self->config;
    const pst_moe_rows kind =
        config->moe_rows == PST_MOE_PAGED ? PST_MOE_CAPACITY : config->moe_rows;
    const uint64_t rows = psti_moe_rows(config, &self->split, kind);
    const uint64_t own = config->expert_ffn_size / self->split.expert_tensor;
    const uint64_t bytes = PSTI_SUM(
        ends_bytes(self, self->local), activation_bytes(self, rows, own),
        PSTI_PRODUCT(2, self->width, rows, psti_routed_size(config)), psti_times(4, rows),
        again_bytes(self, PST_RECOMPUTE_MOE, true),
        product_again_bytes(self, PST_RECOMPUTE_ACTIVATION | PST_RECOMPUTE_EXPERTS, rows, own));
    const uint64_t in_pages = psti_pages_glu(config) ? psti_glu_bytes(config, rows) : 0;
    consider(self, "expert backward", beyond(bytes, psti_plus(self->head_bytes, in_pages)));
}

static void consider_layers(moments *self, const pst_estimate_states *states)
{
    const pst_estimate_config *config = self->config;
    if (states->num_layers != 0)
        consider_attention(self);
    if (states->num_layers > states->num_moe_layers)
        consider_mlp(self, "MLP backward", config->ffn_size,
                     again_bytes(self, PST_RECOMPUTE_MLP, false));
    if (states->num_moe_layers == 0)
        return;
    consider_experts(self);
    if (config->shared_ffn_size != 0)
        consider_mlp(self, "shared expert backward", config->shared_ffn_size,
                     again_bytes(self, PST_RECOMPUTE_MOE | PST_RECOMPUTE_SHARED, true));
}

/* ---- embedding, loss and step ---- */

/* Rows that live layers have in pages: these stay when the rows are gone. */
static uint64_t held_bytes(const moments *self, uint64_t live_layers)
{
    const pst_estimate_config *config = self->config;
    if (config->moe_rows != PST_MOE_PAGED)
        return 0;
    return PSTI_PRODUCT(live_layers, psti_moe_rows(config, &self->split, PST_MOE_BALANCED),
                        psti_row_bytes(config));
}

/* The gradient of the embedding's matrix, whole as PyTorch makes it before it is added to the one
 * that is kept, of that of its output, which sequence parallelism gathers. What the layers behind it
 * saved, so many bytes, is gone, and so is the head. */
static void consider_embedding(moments *self, const pst_estimate_memory *memory, uint64_t gone)
{
    const pst_estimate_config *config = self->config;
    const uint64_t words = config->padded_vocab_size / self->split.tensor;
    const uint64_t gathered = self->local < self->tokens ? hidden_bytes(self, self->tokens) : 0;
    const uint64_t bytes =
        PSTI_SUM(hidden_bytes(self, words), hidden_bytes(self, self->local), gathered);
    consider(self, "embedding backward",
             beyond(bytes, PSTI_SUM(gone, self->head_bytes, memory->recompute_bytes)));
}

/* Of the model. A depth of multi-token prediction has an embedding of its own, on the last stage, where
 * the loss takes as much and is there when more is saved. */
static void consider_first_embedding(moments *self, uint64_t stage, const psti_chunk_saved *first,
                                     const pst_estimate_memory *memory)
{
    const uint64_t kept = psti_plus(psti_ends_of(self->config, &self->split).embedding,
                                    held_bytes(self, first->num_moe));
    if (stage == 0)
        consider_embedding(self, memory, psti_minus(first->bytes, kept));
}

/* Its gradient in fp32 is written over a copy that is kept, and the narrow one takes the place of
 * the logits. When the output matrix multiplies that one, the copies are gone; the input's gradient
 * is new, so is the matrix's own, as narrow (an empty one where it is added to the kept one at once),
 * and, with sequence parallelism, so are the gathered input and the share that is left.
 * Losses of multi-token prediction come one after the other. */
static void consider_loss(moments *self)
{
    const uint64_t copies = psti_logit_copies(self->config, &self->split);
    const uint64_t whole = hidden_bytes(self, self->tokens);
    const uint64_t words = self->config->padded_vocab_size / self->split.tensor;
    const uint64_t gathered =
        self->local < self->tokens ? psti_plus(whole, hidden_bytes(self, self->local)) : 0;
    const uint64_t bytes =
        PSTI_SUM(whole, gathered, hidden_bytes(self, words), exchange_bytes(self));
    consider(self, "loss", beyond(bytes, copies));
}

/* Masters and two moments in fp32 are stepped by gradients in fp32: narrow ones are copied, unless
 * the width of the states holds the copy (16 bytes) or they are narrow themselves (below 12). Weights
 * are gathered in place. All saved tensors are gone, but not the pages of rows. */
static void consider_step(moments *self, const pst_estimate_memory *memory)
{
    const pst_estimate_config *config = self->config;
    const pst_estimate_states *states = &memory->states;
    const uint64_t width = config->optimizer_width;
    if (config->gradient_width >= 4 || width < 12 || width >= 16)
        return;
    const uint64_t owned = states->optimizer_bytes / width;
    const uint64_t pages =
        psti_plus(memory->paging_bytes, held_bytes(self, memory->live_moe_layers));
    consider(self, "optimizer step",
             beyond(psti_times(4, owned), PSTI_SUM(memory->saved_bytes, memory->head_bytes,
                                                   memory->recompute_bytes, memory->paging_bytes) -
                                              pages));
}

psti_moment psti_transient_of(const pst_estimate_config *config, uint64_t stage,
                              const psti_chunk_saved *first, const pst_estimate_memory *memory)
{
    moments self = {.config = config, .split = psti_split_of(config), .highest = {"none", 0}};
    const bool is_last = stage == config->pipeline_parallel - 1;
    self.tokens = psti_tokens(config, &self.split);
    self.local = psti_local_tokens(config, &self.split);
    self.width = psti_element_bytes(config);
    self.head_bytes = is_last ? psti_ends_of(config, &self.split).head : 0;
    self.gradients = psti_whole_gradients(config, stage, &memory->states);
    consider_layers(&self, &memory->states);
    consider_first_embedding(&self, stage, first, memory);
    if (is_last)
        consider_loss(&self);
    consider_step(&self, memory);
    return self.highest;
}
