/* All of a GPU: states, and what is saved at the peak of the schedule. */
#include "host/estimate.h"

/* A stage's chunks, by number. */
typedef struct saved {
    const pst_estimate_config *config;
    uint64_t stage;
    psti_split split;
    uint64_t layer_bytes[2]; /* of a dense layer, of one with experts */
    uint64_t *chunk_bytes;   /* for one micro-batch */
    uint64_t *live;
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

static uint64_t chunk_bytes(const saved *self, uint64_t chunk)
{
    const pst_estimate_config *config = self->config;
    const psti_chunk of = psti_chunk_of(config, self->stage, chunk);
    uint64_t bytes = chunk == 0 && self->stage == 0 ? embedding_bytes(self) : 0;
    if (config->recompute_layers != 0) {
        const uint64_t groups = psti_share(of.num_layers, config->recompute_layers);
        return psti_plus(bytes, psti_times(groups, hidden_bytes(self, psti_element_bytes(config))));
    }
    return PSTI_SUM(bytes, psti_times(of.num_layers - of.num_moe, self->layer_bytes[0]),
                    psti_times(of.num_moe, self->layer_bytes[1]));
}

/* The largest group of layers that full recomputation runs again. */
static uint64_t recompute_bytes(const saved *self)
{
    const uint64_t size = self->config->recompute_layers;
    uint64_t most = 0;
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

/* Once: the loss of a micro-batch is gone before the next. */
static uint64_t head_bytes(const saved *self)
{
    const pst_estimate_config *config = self->config;
    if (self->stage != config->pipeline_parallel - 1)
        return 0;
    const uint64_t width = psti_element_bytes(config);
    const uint64_t tokens = psti_tokens(config, &self->split);
    const uint64_t local = psti_local_tokens(config, &self->split);
    return PSTI_SUM(psti_times(2, hidden_bytes(self, width)),
                    PSTI_PRODUCT(4, psti_norm_words(config), local),
                    PSTI_PRODUCT(config->fuses_loss ? width : width + 4, tokens,
                                 config->padded_vocab_size / config->tensor_parallel),
                    psti_times(12, tokens));
}

static pst_status add_up(const saved *self, uint64_t *live, pst_estimate_memory *memory_out)
{
    pst_estimate_memory memory = {
        .num_micro_batches = psti_num_micro_batches(self->config),
        .head_bytes = head_bytes(self),
        .recompute_bytes = recompute_bytes(self),
    };
    const uint64_t num_chunks = self->config->virtual_stages;
    for (uint64_t i = 0; i < num_chunks; i++)
        self->chunk_bytes[i] = chunk_bytes(self, i);
    PSTI_TRY(psti_schedule_peak(self->config, self->stage, self->chunk_bytes, self->live));
    PSTI_TRY(pst_estimate_get_states(self->config, self->stage, &memory.states));
    for (uint64_t i = 0; i < num_chunks; i++) {
        const psti_chunk of = psti_chunk_of(self->config, self->stage, i);
        memory.live_layers += of.num_layers * self->live[i];
        memory.live_moe_layers += of.num_moe * self->live[i];
        memory.saved_bytes =
            psti_plus(memory.saved_bytes, psti_times(self->chunk_bytes[i], self->live[i]));
    }
    if (self->config->moe_rows == PST_MOE_PAGED)
        memory.paging_bytes = psti_paging_bytes(self->config, memory.live_moe_layers);
    memory.bytes = PSTI_SUM(memory.states.bytes, memory.saved_bytes, memory.head_bytes,
                            memory.recompute_bytes, memory.paging_bytes);
    PSTI_CHECK(memory.bytes != PSTI_TOO_MUCH, PST_E_INVALID, "config: memory exceeds 64 bits");
    for (uint64_t i = 0; i < num_chunks && live != NULL; i++)
        live[i] = self->live[i];
    *memory_out = memory;
    return PST_OK;
}

pst_status pst_estimate_get_memory(const pst_estimate_config *given, uint64_t stage, uint64_t *live,
                                   pst_estimate_memory *memory_out)
{
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(memory_out, PST_E_INVALID, "memory_out is NULL");
    PSTI_TRY(psti_estimate_check_stage(&config, stage));
    uint64_t *words = psti_calloc(2 * config.virtual_stages, sizeof(*words));
    PSTI_CHECK(words, PST_E_NOMEM, "no memory for %u chunks", (unsigned)config.virtual_stages);
    const saved self = {
        .config = &config,
        .stage = stage,
        .split = psti_split_of(&config),
        .layer_bytes = {psti_layer_bytes(&config, false), psti_layer_bytes(&config, true)},
        .chunk_bytes = words,
        .live = words + config.virtual_stages,
    };
    const pst_status status = add_up(&self, live, memory_out);
    psti_free(words);
    return status;
}
