/* All of a GPU: states, and what is saved at the peak of the schedule. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

typedef struct saved {
    const pst_estimate_config *config;
    uint64_t stage;
    psti_split split;
    uint64_t layer_bytes[2]; /* of a dense layer, of one with experts */
    psti_offload offload[2];
} saved;

static uint64_t layer_bytes(const saved *self, uint64_t layer)
{
    return self->layer_bytes[psti_estimate_has_moe(self->config, layer)];
}

/* A tensor of the hidden size for each token, of elements of so many bytes. */
static uint64_t hidden_bytes(const saved *self, uint64_t element_bytes)
{
    return PSTI_PRODUCT(element_bytes, psti_local_tokens(self->config, &self->split),
                        self->config->hidden_size);
}

/* Numbers of the tokens, and the mask after the embedding. */
static uint64_t embedding_bytes(const saved *self)
{
    const uint64_t numbers = psti_times(8, psti_tokens(self->config, &self->split));
    return psti_plus(numbers, self->config->has_hidden_dropout ? hidden_bytes(self, 1) : 0);
}

/* What a depth of multi-token prediction saves beside its layer. */
static uint64_t mtp_bytes(const pst_estimate_config *config)
{
    const psti_split split = psti_split_of(config);
    const psti_mtp of = psti_mtp_of(config, &split);
    return psti_plus(of.norms, of.projection);
}

/* Of a chunk's layers that are run again, or all of them. */
static uint64_t num_run_again(const pst_estimate_config *config, const psti_chunk *of)
{
    const uint64_t most = config->recompute_layers;
    return config->recomputes_block && most < of->num_layers ? most : of->num_layers;
}

psti_again psti_again_of(const pst_estimate_config *config, uint64_t stage, uint64_t chunk)
{
    const psti_chunk of = psti_chunk_of(config, stage, chunk);
    const bool has_mtp = !config->recomputes_block;
    psti_again again = {.num_layers = num_run_again(config, &of)};
    for (uint64_t i = 0; i < again.num_layers; i++)
        again.num_moe += psti_estimate_has_moe(config, of.first + i);
    again.num_layers += has_mtp ? of.num_mtp : 0;
    again.num_moe += has_mtp ? of.num_mtp_moe : 0;
    return again;
}

/* So many layers of a kind that are not run again. */
static void add_layer(const saved *self, psti_chunk_saved *to, uint64_t num, bool is_moe)
{
    const uint64_t offloaded = self->offload[is_moe].bytes;
    const uint64_t kept = psti_minus(self->layer_bytes[is_moe], offloaded);
    to->bytes = psti_plus(to->bytes, psti_times(num, kept));
    to->offloaded = psti_plus(to->offloaded, psti_times(num, offloaded));
}

/* Full recomputation leaves a depth of multi-token prediction its two inputs. */
static psti_chunk_saved chunk_saved(const saved *self, uint64_t chunk)
{
    const pst_estimate_config *config = self->config;
    const psti_chunk of = psti_chunk_of(config, self->stage, chunk);
    const uint64_t embeddings = of.num_mtp + (chunk == 0 && self->stage == 0 ? 1 : 0);
    psti_chunk_saved kept = {.num_layers = of.num_layers + of.num_mtp,
                             .num_moe = of.num_moe + of.num_mtp_moe};
    kept.bytes = psti_times(embeddings, embedding_bytes(self));
    const uint64_t input = hidden_bytes(self, psti_element_bytes(config));
    const uint64_t again = config->recompute_layers ? num_run_again(config, &of) : 0;
    const bool runs_mtp_again = config->recompute_layers != 0 && !config->recomputes_block;
    if (again != 0) {
        const uint64_t size = config->recomputes_block ? 1 : config->recompute_layers;
        kept.bytes = psti_plus(kept.bytes, psti_times(psti_div_up(again, size), input));
    }
    for (uint64_t i = again; i < of.num_layers; i++)
        add_layer(self, &kept, 1, psti_estimate_has_moe(config, of.first + i));
    if (runs_mtp_again) {
        kept.bytes = psti_plus(kept.bytes, PSTI_PRODUCT(2, of.num_mtp, input));
        return kept;
    }
    add_layer(self, &kept, of.num_mtp, of.num_mtp_moe != 0);
    kept.bytes = psti_plus(kept.bytes, psti_times(of.num_mtp, mtp_bytes(config)));
    return kept;
}

/* The largest group of layers that full recomputation runs again; a depth of multi-token prediction
 * is one of its own. */
static uint64_t recompute_bytes(const saved *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t size = config->recomputes_block ? 1 : config->recompute_layers;
    const bool has_mtp = psti_num_mtp(config, self->stage) != 0;
    uint64_t most = 0;
    if (config->recompute_layers == 0)
        return 0;
    if (has_mtp && !config->recomputes_block)
        most = psti_plus(mtp_bytes(config), psti_layer_bytes(config, psti_ends_with_moe(config)));
    for (uint64_t chunk = 0; chunk < config->virtual_stages; chunk++) {
        const psti_chunk of = psti_chunk_of(config, self->stage, chunk);
        uint64_t bytes = 0;
        for (uint64_t i = 0; i < num_run_again(config, &of); i++) {
            bytes = psti_plus(i % size == 0 ? 0 : bytes, layer_bytes(self, of.first + i));
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Of a logit: what each loss keeps, and what one has at a time. In fp32 the first copy is none. */
typedef struct logit {
    uint64_t each, once;
} logit;

static logit logit_of(const pst_estimate_config *config)
{
    const uint64_t width = psti_element_bytes(config);
    const uint64_t narrow = config->type == PST_TRAIN_FP32 ? 0 : width;
    const logit of[] = {[PST_LOSS_UNFUSED] = {4, narrow},
                        [PST_LOSS_FUSED] = {width, 0},
                        [PST_LOSS_COPIED] = {8, narrow}};
    return of[config->loss];
}

/* Of so many bytes for each logit. */
static uint64_t logits_bytes(const pst_estimate_config *config, const psti_split *split,
                             uint64_t bytes)
{
    return PSTI_PRODUCT(bytes, psti_tokens(config, split),
                        config->padded_vocab_size / split->tensor);
}

uint64_t psti_logit_copies(const pst_estimate_config *config, const psti_split *split)
{
    const logit of = logit_of(config);
    return logits_bytes(config, split, of.each + of.once - psti_element_bytes(config));
}

/* Once: the loss of a micro-batch is gone before the next, with overlapped exchanges too, where its
 * backward begins a step and the next loss ends it. A depth of multi-token prediction has
 * logits and a loss of its own from the same matrix; its final norm is among what it saves, but for
 * what the matrix reads. */
static uint64_t head_bytes(const saved *self)
{
    const pst_estimate_config *config = self->config;
    if (self->stage != config->pipeline_parallel - 1)
        return 0;
    const uint64_t width = psti_element_bytes(config);
    const uint64_t tokens = psti_tokens(config, &self->split);
    const uint64_t local = psti_local_tokens(config, &self->split);
    const uint64_t hidden = hidden_bytes(self, width);
    const logit of = logit_of(config);
    const uint64_t loss =
        PSTI_SUM(hidden, logits_bytes(config, &self->split, of.each), psti_times(12, tokens));
    return PSTI_SUM(hidden, PSTI_PRODUCT(4, psti_norm_words(config), local),
                    logits_bytes(config, &self->split, of.once),
                    psti_times(1 + config->mtp_layers, loss));
}

psti_ends psti_ends_of(const pst_estimate_config *config, const psti_split *split)
{
    const saved self = {.config = config, .stage = config->pipeline_parallel - 1, .split = *split};
    const uint64_t statistics =
        PSTI_PRODUCT(4, psti_norm_words(config), psti_local_tokens(config, split));
    psti_ends ends = {.embedding = embedding_bytes(&self), .head = head_bytes(&self)};
    ends.final_norm = psti_plus(hidden_bytes(&self, psti_element_bytes(config)), statistics);
    return ends;
}

static saved saved_of(const pst_estimate_config *config, uint64_t stage)
{
    return (saved){
        .config = config,
        .stage = stage,
        .split = psti_split_of(config),
        .layer_bytes = {psti_layer_bytes(config, false), psti_layer_bytes(config, true)},
        .offload = {psti_offload_of(config, false), psti_offload_of(config, true)},
    };
}

uint64_t psti_fill_chunks(const pst_estimate_config *config, uint64_t stage,
                          psti_chunk_saved *chunks)
{
    const saved self = saved_of(config, stage);
    for (uint64_t i = 0; i < config->virtual_stages; i++)
        chunks[i] = chunk_saved(&self, i);
    return head_bytes(&self);
}

/* ---- the schedule ---- */

/* With overlapped exchanges a step runs a backward beside the forward behind it, layer by layer, so that
 * as much is live as if that forward came after it: in the order without one more forward ahead. */
psti_pipeline psti_pipeline_of(const pst_estimate_config *config, uint64_t stage)
{
    return psti_pipeline_1f1b(&(psti_pipeline_shape){
        .num_stages = config->pipeline_parallel,
        .stage = stage,
        .num_micro_batches = psti_num_micro_batches(config),
        .num_chunks = config->virtual_stages,
        .group = config->micro_batch_group_size,
    });
}

psti_live psti_nothing_live(const pst_estimate_config *config, const psti_chunk_saved *chunks)
{
    psti_live self = {.config = config, .chunks = chunks};
    if (psti_pages(config))
        self.moe = psti_moe_of(config);
    return self;
}

static void count(uint64_t *sum, const psti_pipeline_pass *pass, uint64_t amount)
{
    *sum = pass->kind == PST_PASS_FORWARD ? *sum + amount : *sum - amount;
}

uint64_t psti_live_after(void *live, const psti_pipeline_pass *pass)
{
    psti_live *self = live;
    const psti_chunk_saved *chunk = &self->chunks[pass->chunk];
    count(&self->num_layers, pass, chunk->num_layers);
    count(&self->num_moe, pass, chunk->num_moe);
    count(&self->saved_bytes, pass, chunk->bytes);
    if (!psti_pages(self->config))
        return self->saved_bytes;
    return psti_plus(self->saved_bytes, psti_paging_bytes(self->config, &self->moe, self->num_moe));
}

/* live: for each chunk of a stage, the micro-batches that are when psti_live_after is highest, the
 * first time. Fails: INVALID (what they save exceeds 64 bits). */
static pst_status find_peak(const pst_estimate_config *config, uint64_t stage,
                            const psti_chunk_saved *chunks, uint64_t *live)
{
    const psti_pipeline pipeline = psti_pipeline_of(config, stage);
    const uint64_t most = psti_pipeline_most_live(&pipeline);
    psti_live self = psti_nothing_live(config, chunks);
    for (uint64_t i = 0; i < pipeline.num_chunks && pipeline.num_chunks > 1; i++)
        PSTI_CHECK(psti_times(chunks[i].bytes, most) != PSTI_TOO_MUCH, PST_E_INVALID,
                   "config: saved activations exceed 64 bits");
    psti_pipeline_peak(&pipeline, psti_live_after, &self, live);
    return PST_OK;
}

/* ---- all of it ---- */

static pst_status add_transient(const pst_estimate_config *config, uint64_t stage,
                                const psti_chunk_saved *first, pst_estimate_memory *memory)
{
    const psti_moment highest = psti_transient_of(config, stage, first, memory);
    memory->transient = highest.name;
    memory->transient_bytes = highest.bytes;
    memory->peak_bytes = psti_plus(memory->bytes, highest.bytes);
    PSTI_CHECK(memory->peak_bytes != PSTI_TOO_MUCH, PST_E_INVALID,
               "config: memory exceeds 64 bits (%s)", highest.name);
    return PST_OK;
}

static uint64_t workspace_bytes(const pst_estimate_config *config)
{
    const uint64_t one = ((uint64_t)32 << 20) + 1024;
    return config->keeps_workspaces ? one * (config->num_experts ? 5 : 1) : 0;
}

/* Layers with experts of a group that full recomputation runs again, at most. */
static uint64_t most_of_group(const pst_estimate_config *config, const psti_chunk *chunk)
{
    uint64_t most = psti_min(1, chunk->num_mtp_moe), num = 0; /* a depth is a group of its own */
    for (uint64_t i = 0; i < chunk->num_layers; i++) {
        num = (i % config->recompute_layers == 0 ? 0 : num) +
              psti_estimate_has_moe(config, chunk->first + i);
        most = num > most ? num : most;
    }
    return most;
}

static uint64_t buffered_layers(const pst_estimate_config *config, uint64_t stage,
                                const psti_chunk_saved *chunks, const uint64_t *live,
                                uint64_t live_moe)
{
    uint64_t num = 0;
    if (config->recompute_layers == 0)
        return config->recompute & PST_RECOMPUTE_MOE ? psti_min(1, live_moe) : live_moe;
    for (uint64_t i = 0; i < config->virtual_stages; i++) {
        const psti_chunk chunk = psti_chunk_of(config, stage, i);
        const uint64_t most = most_of_group(config, &chunk);
        if (config->recomputes_block)
            num += (chunks[i].num_moe - psti_again_of(config, stage, i).num_moe) * live[i];
        else
            num = most > num ? most : num;
    }
    return num > 0 ? num : psti_min(1, live_moe);
}

/* Of what goes to host memory, the layer whose backward is next stays. */
static void keep_offloaded(const saved *self, pst_estimate_memory *memory)
{
    const pst_estimate_states *states = &memory->states;
    const bool has[2] = {states->num_moe_layers < states->num_layers, states->num_moe_layers != 0};
    psti_offload most = {0};
    for (int i = 0; i < 2 && memory->offloaded_bytes != 0; i++)
        if (has[i] && self->offload[i].bytes > most.bytes)
            most = self->offload[i];
    memory->reload_bytes = psti_plus(most.bytes, most.largest_part);
    memory->offloaded_bytes =
        psti_minus(memory->offloaded_bytes, psti_min(most.bytes, memory->offloaded_bytes));
}

static pst_status add_up(const pst_estimate_config *config, uint64_t stage,
                         psti_chunk_saved *chunks, uint64_t *live, pst_estimate_memory *memory)
{
    const uint64_t head = psti_fill_chunks(config, stage, chunks);
    const saved self = saved_of(config, stage);
    PSTI_TRY(find_peak(config, stage, chunks, live));
    PSTI_TRY(pst_estimate_get_states(config, stage, &memory->states));
    memory->num_micro_batches = psti_num_micro_batches(config);
    memory->head_bytes = head;
    memory->recompute_bytes = recompute_bytes(&self);
    for (uint64_t i = 0; i < config->virtual_stages; i++) {
        memory->live_layers += chunks[i].num_layers * live[i];
        memory->live_moe_layers += chunks[i].num_moe * live[i];
        memory->saved_bytes = psti_plus(memory->saved_bytes, psti_times(chunks[i].bytes, live[i]));
        memory->offloaded_bytes =
            psti_plus(memory->offloaded_bytes, psti_times(chunks[i].offloaded, live[i]));
    }
    memory->buffered_moe_layers =
        buffered_layers(config, stage, chunks, live, memory->live_moe_layers);
    keep_offloaded(&self, memory);
    if (psti_pages(config)) {
        const pst_estimate_moe moe = psti_moe_of(config);
        memory->paging_bytes = psti_paging_bytes(config, &moe, memory->live_moe_layers);
    }
    memory->empty_bytes = psti_empty_gradients(config, &memory->states);
    if (!config->keeps_fp8_weights)
        memory->cache_bytes = psti_linears_of(config, stage, &memory->states).fp8_bytes;
    memory->workspace_bytes = workspace_bytes(config);
    memory->gathered_bytes = psti_gathered_bytes(config, stage, &memory->states);
    memory->bytes = PSTI_SUM(memory->states.bytes, memory->saved_bytes, memory->head_bytes,
                             memory->recompute_bytes, memory->paging_bytes, memory->empty_bytes,
                             memory->cache_bytes, memory->gathered_bytes, memory->reload_bytes,
                             memory->workspace_bytes);
    PSTI_CHECK(memory->bytes != PSTI_TOO_MUCH, PST_E_INVALID, "config: memory exceeds 64 bits");
    return add_transient(config, stage, chunks, memory);
}

pst_status pst_estimate_get_memory_sized(const pst_estimate_config *given, uint64_t stage,
                                         uint64_t *live, pst_estimate_memory *memory_out,
                                         size_t memory_bytes)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(memory_out, PST_E_INVALID, "memory_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_memory, memory_bytes));
    PSTI_TRY(psti_estimate_check_stage(&config, stage));
    const uint64_t num_chunks = config.virtual_stages;
    psti_chunk_saved *chunks = psti_calloc(num_chunks, sizeof(*chunks) + sizeof(*live));
    PSTI_CHECK(chunks, PST_E_NOMEM, "no memory for %u chunks", (unsigned)num_chunks);
    uint64_t *counts = (uint64_t *)(chunks + num_chunks);
    pst_estimate_memory memory = {.num_micro_batches = 0};
    const pst_status status = add_up(&config, stage, chunks, counts, &memory);
    if (status == PST_OK) {
        memcpy(memory_out, &memory, memory_bytes);
        for (uint64_t i = 0; i < num_chunks && live != NULL; i++)
            live[i] = counts[i];
    }
    psti_free(chunks);
    return status;
}
