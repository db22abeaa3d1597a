/* What a GPU of a stage holds, pass after pass of an iteration. */
#include "host/estimate/estimate.h"

#include <inttypes.h>

/* Sums of what is live do not wrap: they are not above the memory's, which was refused if so. */
typedef struct timeline {
    psti_live live;
    uint64_t head_bytes;   /* of a micro-batch; 0 but on the last stage */
    uint64_t always_bytes; /* states, empty gradients, weights in fp8 and gathered, workspaces */
    uint64_t num_ends;     /* live micro-batches of the last chunk */
} timeline;

static pst_estimate_event event_after(timeline *self, const psti_pipeline_pass *pass)
{
    const bool is_backward = pass->kind == PST_PASS_BACKWARD;
    const uint64_t live_bytes = psti_live_after(&self->live, pass);
    if (pass->chunk == self->live.config->virtual_stages - 1)
        self->num_ends = is_backward ? self->num_ends - 1 : self->num_ends + 1;
    pst_estimate_event event = {
        .is_backward = is_backward,
        .chunk = pass->chunk,
        .micro_batch = pass->micro_batch,
        .live_layers = self->live.num_layers,
        .saved_bytes = self->live.saved_bytes,
        .head_bytes = self->num_ends ? self->head_bytes : 0,
    };
    event.bytes = self->always_bytes + event.head_bytes + live_bytes;
    return event;
}

static void run(timeline *self, psti_pipeline pipeline, pst_estimate_event_fn on_event, void *user)
{
    psti_pipeline_pass pass;
    for (uint64_t number = 0; psti_pipeline_next(&pipeline, &pass); number++) {
        pst_estimate_event event = event_after(self, &pass);
        event.number = number;
        if (!on_event(user, &event))
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
    const psti_pipeline pipeline = psti_pipeline_of(&config, stage);
    PSTI_CHECK(pipeline.num_passes <= UINT64_MAX / 2, PST_E_INVALID,
               "global_batch %" PRIu64 ": its passes exceed 64 bits", config.global_batch);
    psti_chunk_saved *chunks = psti_calloc(config.virtual_stages, sizeof(*chunks));
    PSTI_CHECK(chunks, PST_E_NOMEM, "no memory for %u chunks", (unsigned)config.virtual_stages);
    timeline self = {.always_bytes = memory.states.bytes + memory.empty_bytes + memory.cache_bytes +
                                     memory.gathered_bytes + memory.workspace_bytes};
    self.live = psti_nothing_live(&config, chunks);
    self.head_bytes = psti_fill_chunks(&config, stage, chunks);
    run(&self, pipeline, on_event, user);
    psti_free(chunks);
    return PST_OK;
}
