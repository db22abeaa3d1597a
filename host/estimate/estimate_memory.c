/* All of a GPU: states, and what is saved at the peak of the schedule. */
#include <string.h>

#include "host/base/structs.h"
#include "host/estimate/estimate.h"

typedef struct saved {
    const pst_estimate_config *config;
    uint64_t stage;
    psti_split split;
    uint64_t layer_bytes[2]; /* of a dense layer, of one with experts */
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

uint64_t psti_mtp_bytes(const pst_estimate_config *config)
{
    const psti_split split = psti_split_of(config);
    const psti_mtp of = psti_mtp_of(config, &split);
    return PSTI_SUM(of.norms, of.projection, psti_layer_bytes(config, psti_ends_with_moe(config)));
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
    if (config->recompute_layers != 0) {
        const uint64_t groups = psti_div_up(of.num_layers, config->recompute_layers);
        const uint64_t input = hidden_bytes(self, psti_element_bytes(config));
        kept.bytes = psti_plus(kept.bytes, psti_times(groups + 2 * of.num_mtp, input));
        return kept;
    }
    kept.bytes = PSTI_SUM(kept.bytes, psti_times(of.num_layers - of.num_moe, self->layer_bytes[0]),
                          psti_times(of.num_moe, self->layer_bytes[1]),
                          psti_times(of.num_mtp, psti_mtp_bytes(config)));
    return kept;
}

/* The largest group of layers that full recomputation runs again; a depth of multi-token prediction
 * is one of its own. */
static uint64_t recompute_bytes(const saved *self)
{
    const uint64_t size = self->config->recompute_layers;
    uint64_t most =
        size != 0 && psti_num_mtp(self->config, self->stage) ? psti_mtp_bytes(self->config) : 0;
    for (uint64_t chunk = 0; chunk < self->config->virtual_stages && size != 0; chunk++) {
        const psti_chunk of = psti_chunk_of(self->config, self->stage, chunk);
        uint64_t bytes = 0;
        for (uint64_t i = 0; i < of.num_layers; i++) {
            bytes = psti_plus(i % size == 0 ? 0 : bytes, layer_bytes(self, of.first + i));
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Of a logit: the matrix's, and what the loss copies. */
static uint64_t logit_bytes(const pst_estimate_config *config)
{
    static const uint64_t copies[] = {
        [PST_LOSS_UNFUSED] = 4, [PST_LOSS_FUSED] = 0, [PST_LOSS_COPIED] = 8};
    return psti_element_bytes(config) + copies[config->loss];
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
    const uint64_t loss = PSTI_SUM(
        hidden,
        PSTI_PRODUCT(logit_bytes(config), tokens, config->padded_vocab_size / self->split.tensor),
        psti_times(12, tokens));
    return PSTI_SUM(hidden, PSTI_PRODUCT(4, psti_norm_words(config), local),
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

psti_pipeline psti_pipeline_of(const pst_estimate_config *config, uint64_t stage)
{
    return psti_pipeline_1f1b(&(psti_pipeline_shape){
        .num_stages = config->pipeline_parallel,
        .stage = stage,
        .num_micro_batches = psti_num_micro_batches(config),
        .num_chunks = config->virtual_stages,
        .group = config->micro_batch_group_size,
        .overlaps_exchange = config->overlaps_exchange,
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
    }
    if (psti_pages(config)) {
        const pst_estimate_moe moe = psti_moe_of(config);
        memory->paging_bytes = psti_paging_bytes(config, &moe, memory->live_moe_layers);
    }
    memory->empty_bytes = psti_empty_gradients(config, &memory->states);
    memory->bytes = PSTI_SUM(memory->states.bytes, memory->saved_bytes, memory->head_bytes,
                             memory->recompute_bytes, memory->paging_bytes, memory->empty_bytes);
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
