/* What a GPU sends and receives in an iteration. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

/* Micro-batches through blocks of the stage's layers. */
typedef struct passes {
    uint64_t attention, mlp, shared, experts;
} passes;

typedef struct traffic {
    const pst_estimate_config *config;
    uint64_t stage;
    psti_split split;
    uint64_t num_passes; /* micro-batches */
    uint64_t mtp_passes; /* of them through depths of multi-token prediction */
    uint64_t embeddings; /* of them that the stage embeds, once more for each depth */
    uint64_t heads;      /* of them that meet the output matrix, as often */
    passes forward;      /* those that run again in a backward count twice */
    passes backward;
    uint64_t mtp_forwards;  /* of a depth's projection for each of its backwards */
    uint64_t tokens, local; /* as in the ledger */
    uint64_t width;         /* bytes of an element, and of a weight */
    psti_transfers *to;     /* so far */
} traffic;

static uint64_t wire_bytes(pst_transfer transfer, uint64_t size, uint64_t total)
{
    if (transfer == PST_TRANSFER_SEND || transfer == PST_TRANSFER_RECEIVE)
        return total;
    return psti_fraction(total, (transfer == PST_TRANSFER_ALL_REDUCE ? 2 : 1) * (size - 1), size);
}

/* What differs between transfers of one kind. */
typedef struct op {
    const char *name;
    pst_transfer transfer;
    pst_parallel parallel;
} op;

static void put(traffic *self, op of, uint64_t size, psti_counts counts, uint64_t payload)
{
    const uint64_t count = psti_plus(counts.forward, counts.backward);
    if (size == 1 || count == 0)
        return;
    self->to->counts[self->to->num_ops] = counts;
    self->to->ops[self->to->num_ops++] = (pst_estimate_op){
        .name = of.name,
        .transfer = of.transfer,
        .parallel = of.parallel,
        .group_size = size,
        .count = count,
        .payload_bytes = payload,
        .wire_bytes = wire_bytes(of.transfer, size, psti_times(count, payload)),
    };
}

/* ---- tensor parallel ---- */

static void put_tensor(traffic *self, const char *name, pst_transfer transfer, psti_counts counts,
                       uint64_t payload)
{
    put(self, (op){name, transfer, PST_PARALLEL_TENSOR}, self->split.tensor, counts, payload);
}

static bool is_end(const traffic *self)
{
    return self->stage == 0 || self->stage == self->config->pipeline_parallel - 1;
}

/* Matrices in pairs, by columns and then by rows: attention, a dense block, shared experts. */
static uint64_t count_pairs(const passes *of)
{
    return PSTI_SUM(of->attention, of->mlp, of->shared);
}

/* Of these, pairs whose first matrix reads the hidden size: latent attention's read latents, which
 * each GPU makes of its own tokens, but for queries without one. */
static uint64_t count_hidden_pairs(const traffic *self, const passes *of)
{
    const pst_estimate_config *config = self->config;
    const bool reads_latents = config->kv_rank != 0 && config->q_rank != 0;
    return psti_minus(count_pairs(of), reads_latents ? of->attention : 0);
}

/* Of these again, inputs that the backward gathers once more: all, or those that it has to because
 * it computes the norm before them anew. Queries without a latent never keep what they gathered,
 * shared experts always. */
static uint64_t count_gathers_again(const traffic *self)
{
    const pst_estimate_config *config = self->config;
    const bool keeps_none = config->kv_rank != 0 && config->q_rank == 0;
    if (config->recompute & PST_RECOMPUTE_GATHER)
        return count_hidden_pairs(self, &self->backward);
    const bool is_norm_again = config->recompute & PST_RECOMPUTE_NORM;
    const bool is_attention_again = keeps_none || (is_norm_again && config->kv_rank == 0);
    return psti_plus(is_norm_again ? self->backward.mlp : 0,
                     is_attention_again ? self->backward.attention : 0);
}

/* Latents of queries, keys and values, and the keys' positions, of which no matrix product keeps a
 * gathered copy. */
static void put_latents(traffic *self, bool is_again)
{
    const pst_estimate_config *config = self->config;
    const uint64_t words = config->kv_rank ? psti_plus(config->q_rank, config->kv_rank) : 0;
    const uint64_t payload = PSTI_PRODUCT(self->width, self->tokens, words);
    const uint64_t position =
        PSTI_PRODUCT(self->width, self->tokens, config->kv_rank ? config->qk_position_size : 0);
    const uint64_t forward = words ? self->forward.attention : 0;
    const uint64_t backward = words ? self->backward.attention : 0;
    const bool is_up_again = config->recompute & PST_RECOMPUTE_LATENT;
    const uint64_t again = is_again ? backward : 0;
    put_tensor(self, "tp.ag.latent", PST_TRANSFER_ALL_GATHER,
               (psti_counts){forward, psti_plus(again, is_up_again ? backward : 0), again},
               payload);
    put_tensor(self, "tp.rs.latent", PST_TRANSFER_REDUCE_SCATTER, (psti_counts){0, backward, 0},
               payload);
    put_tensor(self, "tp.ag.position", PST_TRANSFER_ALL_GATHER,
               (psti_counts){position ? forward : 0, 0, 0}, position);
    put_tensor(self, "tp.rs.position", PST_TRANSFER_REDUCE_SCATTER,
               (psti_counts){0, position ? backward : 0, 0}, position);
}

/* The projection of a depth of multi-token prediction reads rows twice as wide. It is divided by
 * columns, and its output gathered. Megatron-LM's backward of a matrix by columns gathers its input
 * beside the product of the input's gradient, and sums that up beside the weight's. */
static void put_sequence_parallel(traffic *self, uint64_t payload)
{
    const uint64_t again = self->config->recompute & PST_RECOMPUTE_GATHER ? 1 : 0;
    const passes *forward = &self->forward, *backward = &self->backward;
    const uint64_t inputs = count_hidden_pairs(self, backward);
    const uint64_t inputs_again = count_gathers_again(self);
    const uint64_t embeddings = self->embeddings, heads = self->heads, mtp = self->mtp_passes;
    const uint64_t mtp_forwards = psti_times(self->mtp_forwards, mtp);
    const uint64_t mtp_again = psti_times(again, mtp), heads_again = psti_times(again, heads);
    put_tensor(self, "tp.ag", PST_TRANSFER_ALL_GATHER,
               (psti_counts){count_hidden_pairs(self, forward),
                             psti_plus(count_pairs(backward), inputs_again), inputs_again},
               payload);
    put_tensor(self, "tp.rs", PST_TRANSFER_REDUCE_SCATTER,
               (psti_counts){count_pairs(forward), inputs, inputs}, payload);
    put_latents(self, again);
    put_tensor(self, "tp.rs.embed", PST_TRANSFER_REDUCE_SCATTER, (psti_counts){embeddings, 0, 0},
               payload);
    put_tensor(self, "tp.ag.embed_bwd", PST_TRANSFER_ALL_GATHER, (psti_counts){0, embeddings, 0},
               payload);
    put_tensor(self, "tp.ag.mtp", PST_TRANSFER_ALL_GATHER,
               (psti_counts){mtp_forwards, mtp_again, mtp_again}, psti_times(2, payload));
    put_tensor(self, "tp.rs.mtp_dgrad", PST_TRANSFER_REDUCE_SCATTER, (psti_counts){0, mtp, mtp},
               psti_times(2, payload));
    put_tensor(self, "tp.ag.mtp_out", PST_TRANSFER_ALL_GATHER, (psti_counts){mtp_forwards, mtp, 0},
               payload);
    put_tensor(self, "tp.ag.head", PST_TRANSFER_ALL_GATHER,
               (psti_counts){heads, heads_again, heads_again}, payload);
    put_tensor(self, "tp.rs.head_dgrad", PST_TRANSFER_REDUCE_SCATTER,
               (psti_counts){0, heads, heads}, payload);
}

/* With fewer heads of keys and values than GPUs each of these computes a part of a head's, and
 * gathers queries, keys and values of all. */
static void put_shared_heads(traffic *self)
{
    const pst_estimate_config *config = self->config;
    if (config->kv_rank != 0 || config->num_kv_heads >= config->tensor_parallel)
        return;
    const uint64_t heads = PSTI_SUM(config->num_heads, config->num_kv_heads, config->num_kv_heads);
    const uint64_t payload = PSTI_PRODUCT(self->width, self->tokens, heads, config->head_size);
    put_tensor(self, "tp.ag.qkv", PST_TRANSFER_ALL_GATHER,
               (psti_counts){self->forward.attention, 0, 0}, payload);
    put_tensor(self, "tp.rs.qkv", PST_TRANSFER_REDUCE_SCATTER,
               (psti_counts){0, self->backward.attention, 0}, payload);
}

/* What is summed up of an input's gradient is, beside the product of the weight's. */
static void put_sums(traffic *self, uint64_t payload)
{
    const uint64_t latent = PSTI_PRODUCT(self->width, self->tokens,
                                         psti_plus(self->config->q_rank, self->config->kv_rank));
    const uint64_t inputs = count_hidden_pairs(self, &self->backward), mtp = self->mtp_passes;
    const uint64_t latents = self->config->kv_rank ? self->backward.attention : 0;
    const uint64_t heads = self->heads;
    put_tensor(self, "tp.ar", PST_TRANSFER_ALL_REDUCE,
               (psti_counts){count_pairs(&self->forward), inputs, inputs}, payload);
    put_tensor(self, "tp.ar.latent", PST_TRANSFER_ALL_REDUCE, (psti_counts){0, latents, 0}, latent);
    put_tensor(self, "tp.ar.embed", PST_TRANSFER_ALL_REDUCE, (psti_counts){self->embeddings, 0, 0},
               payload);
    put_tensor(self, "tp.ar.mtp_dgrad", PST_TRANSFER_ALL_REDUCE, (psti_counts){0, mtp, mtp},
               psti_times(2, payload));
    put_tensor(self, "tp.ag.mtp_out", PST_TRANSFER_ALL_GATHER,
               (psti_counts){psti_times(self->mtp_forwards, mtp), 0, 0}, payload);
    put_tensor(self, "tp.ar.head_dgrad", PST_TRANSFER_ALL_REDUCE, (psti_counts){0, heads, heads},
               payload);
}

static void put_tensor_parallel(traffic *self)
{
    const uint64_t payload = PSTI_PRODUCT(self->width, self->tokens, self->config->hidden_size);
    if (self->config->sequence_parallel)
        put_sequence_parallel(self, payload);
    else
        put_sums(self, payload);
    put_shared_heads(self);
    /* the largest logit, that of the label, the sum of exponentials */
    put_tensor(self, "tp.ar.ce_scalar", PST_TRANSFER_ALL_REDUCE,
               (psti_counts){psti_times(3, self->heads), 0, 0}, psti_times(4, self->tokens));
}

/* ---- between stages, context parallel, experts ---- */

static void put_pipeline(traffic *self)
{
    const pst_estimate_config *config = self->config;
    if (config->pipeline_parallel == 1)
        return;
    const uint64_t count =
        psti_times(2 * config->virtual_stages - (is_end(self) ? 1 : 0), self->num_passes);
    const psti_counts counts = {count, 0, 0};
    const uint64_t payload = PSTI_PRODUCT(self->width, self->local, config->hidden_size);
    put(self, (op){"pp.send", PST_TRANSFER_SEND, PST_PARALLEL_PIPELINE}, 2, counts, payload);
    put(self, (op){"pp.recv", PST_TRANSFER_RECEIVE, PST_PARALLEL_PIPELINE}, 2, counts, payload);
}

/* A ring that hands keys and values on; backward their gradients too. Scores that are computed anew
 * need them once more. */
static void put_context(traffic *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t kv_heads = psti_kv_heads(config, &self->split);
    const uint64_t latent =
        psti_times(heads, PSTI_SUM(config->qk_size, config->qk_position_size, config->v_size));
    const uint64_t words = config->kv_rank ? latent : PSTI_PRODUCT(2, kv_heads, config->head_size);
    const uint64_t payload = PSTI_PRODUCT(self->width, self->tokens, words);
    const uint64_t again = config->recompute & PST_RECOMPUTE_ATTENTION ? 1 : 0;
    const uint64_t steps = self->split.context - 1, backward = self->backward.attention;
    put(self, (op){"cp.ring.fwd", PST_TRANSFER_SEND, PST_PARALLEL_CONTEXT}, self->split.context,
        (psti_counts){psti_times(steps, self->forward.attention),
                      psti_times(steps, again ? backward : 0), 0},
        payload);
    put(self, (op){"cp.ring.bwd", PST_TRANSFER_SEND, PST_PARALLEL_CONTEXT}, self->split.context,
        (psti_counts){0, psti_times(steps, backward), 0}, psti_times(2, payload));
}

/* Each token once to each GPU that has experts of its own, and its results back. */
static void put_dispatch(traffic *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t size = psti_dispatch_group(&self->split);
    const uint64_t token = psti_times(self->width, psti_routed_size(config));
    const uint64_t payload = psti_dispatched(config, config->num_experts / self->split.experts,
                                             PSTI_PRODUCT(self->local, token, size));
    put(self, (op){"ep.a2a", PST_TRANSFER_ALL_TO_ALL, PST_PARALLEL_EXPERT}, size,
        (psti_counts){psti_times(2, self->forward.experts), psti_times(2, self->backward.experts),
                      0},
        payload);
}

static void put_experts(traffic *self)
{
    const pst_estimate_config *config = self->config;
    if (config->num_experts != 0 && config->dispatcher == PST_DISPATCHER_FLEX) {
        put_dispatch(self);
        return;
    }
    const uint64_t send =
        PSTI_PRODUCT(self->width, psti_sent_rows(config, &self->split), psti_routed_size(config));
    const uint64_t all = psti_times(send, self->split.expert_tensor);
    const uint64_t forward = self->forward.experts, backward = self->backward.experts;
    const psti_counts once = {forward, backward, 0};
    const psti_counts twice = {psti_times(2, forward), psti_times(2, backward), 0};
    put(self, (op){"ep.a2a", PST_TRANSFER_ALL_TO_ALL, PST_PARALLEL_EXPERT}, self->split.experts,
        twice, send);
    put(self, (op){"etp.ag", PST_TRANSFER_ALL_GATHER, PST_PARALLEL_EXPERT_TENSOR},
        self->split.expert_tensor, once, all);
    put(self, (op){"etp.rs", PST_TRANSFER_REDUCE_SCATTER, PST_PARALLEL_EXPERT_TENSOR},
        self->split.expert_tensor, once, all);
}

/* ---- once per iteration ---- */

/* Of so many parameters that `size` GPUs share, of them so many in linears that are kept in fp8. MXFP8
 * is gathered in the wider type, and narrowed in both layouts then. */
static void put_replicas(traffic *self, const op names[3], uint64_t size, uint64_t params,
                         uint64_t linears)
{
    const pst_estimate_config *config = self->config;
    const uint64_t gradients = psti_times(config->gradient_width, params);
    const psti_collectives of = psti_collectives_of(config);
    const bool is_narrow = config->keeps_fp8_weights && config->fp8 != PST_FP8_MXFP8;
    const uint64_t narrow = is_narrow ? linears : 0;
    if (params == 0)
        return;
    if (config->distributed_optimizer || psti_shards_gradients(config)) {
        put(self, names[0], size, (psti_counts){0, of.reductions, 0}, gradients);
        put(self, names[1], size, (psti_counts){of.gathers, 0, 0},
            psti_plus(psti_times(self->width, psti_minus(params, narrow)), narrow));
    } else {
        put(self, names[2], size, (psti_counts){0, 1, 0}, gradients);
    }
}

static void put_gradients(traffic *self, const pst_estimate_states *states)
{
    static const op dense[] = {
        {"dp.rs", PST_TRANSFER_REDUCE_SCATTER, PST_PARALLEL_REPLICA},
        {"dp.ag", PST_TRANSFER_ALL_GATHER, PST_PARALLEL_REPLICA},
        {"dp.ar", PST_TRANSFER_ALL_REDUCE, PST_PARALLEL_REPLICA},
    };
    static const op experts[] = {
        {"edp.rs", PST_TRANSFER_REDUCE_SCATTER, PST_PARALLEL_EXPERT_REPLICA},
        {"edp.ag", PST_TRANSFER_ALL_GATHER, PST_PARALLEL_EXPERT_REPLICA},
        {"edp.ar", PST_TRANSFER_ALL_REDUCE, PST_PARALLEL_EXPERT_REPLICA},
    };
    const pst_estimate_config *config = self->config;
    const psti_linears linears = psti_linears_of(config, self->stage, states);
    put_replicas(self, dense, psti_estimate_dense_group(config),
                 states->params - states->expert_params, linears.words - linears.expert_words);
    if (config->num_experts != 0)
        put_replicas(self, experts, psti_estimate_expert_group(config), states->expert_params,
                     linears.expert_words);
    if (psti_copies_embedding(config) && is_end(self))
        put(self, (op){"embed.ar", PST_TRANSFER_ALL_REDUCE, PST_PARALLEL_EMBEDDING}, 2,
            (psti_counts){0, 1, 0},
            PSTI_PRODUCT(config->gradient_width,
                         config->padded_vocab_size / config->tensor_parallel, config->hidden_size));
}

/* ---- all of it ---- */

static passes passes_of(const traffic *self, uint64_t num_layers, uint64_t num_moe)
{
    const uint64_t moe = psti_times(self->num_passes, num_moe);
    return (passes){.attention = psti_times(self->num_passes, num_layers),
                    .mlp = psti_times(self->num_passes, num_layers - num_moe),
                    .shared = self->config->shared_ffn_size ? moe : 0,
                    .experts = moe};
}

static void add_passes(passes *to, const passes *of, uint32_t bits)
{
    const bool is_moe_again = bits & PST_RECOMPUTE_MOE;
    to->mlp = psti_plus(to->mlp, bits & PST_RECOMPUTE_MLP ? of->mlp : 0);
    to->experts = psti_plus(to->experts, is_moe_again ? of->experts : 0);
    to->shared =
        psti_plus(to->shared, is_moe_again || bits & PST_RECOMPUTE_SHARED ? of->shared : 0);
}

static void fill_passes(traffic *self, const pst_estimate_states *states)
{
    const pst_estimate_config *config = self->config;
    self->backward = passes_of(self, states->num_layers, states->num_moe_layers);
    self->forward = self->backward;
    self->mtp_forwards = config->recompute_layers && !config->recomputes_block ? 2 : 1;
    for (uint64_t chunk = 0; chunk < config->virtual_stages && config->recompute_layers; chunk++) {
        const psti_again of = psti_again_of(config, self->stage, chunk);
        const passes again = passes_of(self, of.num_layers, of.num_moe);
        self->forward.attention = psti_plus(self->forward.attention, again.attention);
        add_passes(&self->forward, &again, PST_RECOMPUTE_ALL);
    }
    add_passes(&self->forward, &self->backward, config->recompute);
}

static traffic traffic_of(const pst_estimate_config *config, uint64_t stage, psti_transfers *to)
{
    traffic self = {.config = config, .stage = stage, .split = psti_split_of(config)};
    self.tokens = psti_tokens(config, &self.split);
    self.local = psti_local_tokens(config, &self.split);
    self.width = psti_element_bytes(config);
    self.mtp_forwards = 1;
    self.to = to;
    to->num_ops = 0;
    return self;
}

void psti_transfers_of(const pst_estimate_config *config, psti_visits visits, psti_transfers *to)
{
    traffic self = traffic_of(config, 0, to);
    self.num_passes = 1;
    self.backward = passes_of(&self, psti_plus(visits.dense, visits.moe), visits.moe);
    self.forward = self.backward;
    self.mtp_passes = visits.mtp;
    self.embeddings = visits.embeddings;
    self.heads = visits.heads;
    put_tensor_parallel(&self);
    put_context(&self);
    put_experts(&self);
}

void psti_transfers_again(const pst_estimate_config *config, bool is_moe, psti_transfers *to)
{
    traffic self = traffic_of(config, 0, to);
    self.num_passes = 1;
    const passes once = passes_of(&self, 1, is_moe);
    if (config->recompute_layers)
        self.forward = once;
    else
        add_passes(&self.forward, &once, config->recompute);
    put_tensor_parallel(&self);
    put_context(&self);
    put_experts(&self);
}

void psti_transfers_of_step(const pst_estimate_config *config, uint64_t stage,
                            const pst_estimate_states *states, psti_transfers *to)
{
    traffic self = traffic_of(config, stage, to);
    put_gradients(&self, states);
}

pst_status pst_estimate_get_traffic_sized(const pst_estimate_config *given, uint64_t stage,
                                          pst_estimate_traffic *traffic_out, size_t traffic_bytes)
{
    pst_estimate_config config;
    pst_estimate_states states;
    pst_estimate_traffic of = {.num_ops = 0};
    psti_transfers to;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(traffic_out, PST_E_INVALID, "traffic_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_traffic, traffic_bytes));
    PSTI_TRY(pst_estimate_get_states(&config, stage, &states));
    traffic self = traffic_of(&config, stage, &to);
    self.num_passes = psti_num_micro_batches(&config);
    fill_passes(&self, &states);
    self.mtp_passes = psti_times(self.num_passes, psti_num_mtp(&config, stage));
    self.embeddings = psti_plus(stage == 0 ? self.num_passes : 0, self.mtp_passes);
    self.heads =
        psti_plus(stage == config.pipeline_parallel - 1 ? self.num_passes : 0, self.mtp_passes);
    put_tensor_parallel(&self);
    put_pipeline(&self);
    put_context(&self);
    put_gradients(&self, &states);
    put_experts(&self);
    for (uint32_t i = 0; i < to.num_ops; i++) {
        PSTI_CHECK(to.ops[i].wire_bytes != PSTI_TOO_MUCH, PST_E_INVALID,
                   "config: bytes of %s exceed 64 bits", to.ops[i].name);
        of.ops[of.num_ops++] = to.ops[i];
    }
    memcpy(traffic_out, &of, traffic_bytes);
    return PST_OK;
}
