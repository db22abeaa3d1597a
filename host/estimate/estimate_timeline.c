/* What a GPU of a stage holds, pass after pass of an iteration. */
#include "host/estimate/estimate.h"

#include <inttypes.h>

/* Sums of what is live do not wrap: they are not above the memory's, which was refused if so. */
typedef struct timeline {
    const pst_estimate_config *config;
    const psti_chunk_saved *chunks;
    uint64_t head_bytes; /* of a micro-batch; 0 but on the last stage */
    uint64_t states_bytes;
    pst_estimate_moe moe;
    uint64_t num_moe;         /* live layers with experts */
    uint64_t num_ends;        /* live micro-batches of the last chunk */
    pst_estimate_event event; /* the last one */
} timeline;

static void count(uint64_t *sum, bool is_backward, uint64_t amount)
{
    *sum = is_backward ? *sum - amount : *sum + amount;
}

static void take(timeline *self, const psti_pass *pass)
{
    const psti_chunk_saved *chunk = &self->chunks[pass->chunk];
    pst_estimate_event *event = &self->event;
    event->is_backward = pass->is_backward;
    event->chunk = pass->chunk;
    event->micro_batch = pass->micro_batch;
    count(&event->live_layers, pass->is_backward, chunk->num_layers);
    count(&self->num_moe, pass->is_backward, chunk->num_moe);
    count(&event->saved_bytes, pass->is_backward, chunk->bytes);
    if (pass->chunk == self->config->virtual_stages - 1)
        count(&self->num_ends, pass->is_backward, 1);
    event->head_bytes = self->num_ends ? self->head_bytes : 0;
    event->bytes = self->states_bytes + event->saved_bytes + event->head_bytes;
    if (psti_pages(self->config))
        event->bytes += psti_paging_bytes(self->config, &self->moe, self->num_moe);
}

static void run(timeline *self, psti_passes schedule, pst_estimate_event_fn on_event, void *user)
{
    psti_pass pass;
    for (uint64_t number = 0; psti_passes_next(&schedule, &pass); number++) {
        self->event.number = number;
        take(self, &pass);
        if (!on_event(user, &self->event))
            return;
    }
}

pst_status pst_estimate_get_timeline(const pst_estimate_config *given, uint64_t stage,
                                     pst_estimate_event_fn on_event, void *user)
{
    pst_estimate_config config;
    pst_estimate_memory memory;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(on_event, PST_E_INVALID, "on_event is NULL");
    PSTI_TRY(pst_estimate_get_memory(&config, stage, NULL, &memory));
    const psti_passes schedule = psti_passes_of(&config, stage);
    PSTI_CHECK(schedule.num_passes <= UINT64_MAX / 2, PST_E_INVALID,
               "global_batch %" PRIu64 ": its passes exceed 64 bits", config.global_batch);
    psti_chunk_saved *chunks = psti_calloc(config.virtual_stages, sizeof(*chunks));
    PSTI_CHECK(chunks, PST_E_NOMEM, "no memory for %u chunks", (unsigned)config.virtual_stages);
    timeline self = {.config = &config, .chunks = chunks, .states_bytes = memory.states.bytes};
    if (psti_pages(&config))
        self.moe = psti_moe_of(&config);
    self.head_bytes = psti_fill_chunks(&config, stage, chunks);
    run(&self, schedule, on_event, user);
    psti_free(chunks);
    return PST_OK;
}
