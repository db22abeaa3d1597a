/* picture_main html|perfetto LAYERS MICROBATCHES TITLE: draws an invented plan to stdout. Per layer
 * and micro-batch 30 tensors: 6 live from the forward to the backward, 24 within one of them.
 * LAYERS 0: one tensor at the limits of all fields, and a small one that ends when it does.
 *
 * picture_main stage CHUNKS MICROBATCHES TITLE: draws the schedule of the last of four stages, each
 * of so many chunks of one layer. */
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool.h"
#include "tools/estimate/estimate.h"
#include "tools/plan/plan_picture.h"

#define MIB ((uint64_t)1 << 20)

typedef struct plan {
    pst_trace_tensor *tensors;
    uint64_t *offsets;
    uint64_t num, now;
    uint64_t live, bound, peak;
} plan;

static uint64_t take(plan *self, uint64_t bytes, uint64_t offset, uint32_t layer,
                     uint32_t micro_batch, pst_trace_phase phase)
{
    self->tensors[self->num] = (pst_trace_tensor){.id = 100 + self->num,
                                                  .bytes = bytes,
                                                  .begin = self->now++,
                                                  .layer = layer,
                                                  .micro_batch = micro_batch,
                                                  .phase = (uint8_t)phase};
    self->offsets[self->num] = offset;
    self->live += bytes;
    self->bound = self->live > self->bound ? self->live : self->bound;
    self->peak = offset + bytes > self->peak ? offset + bytes : self->peak;
    return self->num++;
}

static void drop(plan *self, uint64_t tensor)
{
    self->tensors[tensor].end = self->now++;
    self->live -= self->tensors[tensor].bytes;
}

/* A chain: each begins before the one before ends, above or below it. */
static void transients(plan *self, uint64_t base, uint32_t count, uint32_t layer,
                       uint32_t micro_batch, pst_trace_phase phase)
{
    uint64_t before = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = (1 + i * 7 % 5) * 64 * MIB;
        const uint64_t tensor =
            take(self, bytes, base + (i % 2) * 320 * MIB, layer, micro_batch, phase);
        if (before != UINT64_MAX)
            drop(self, before);
        before = tensor;
    }
    drop(self, before);
}

static void make_plan(plan *self, uint32_t layers, uint32_t num_micro_batches)
{
    static const uint64_t kept[6] = {128, 128, 384, 128, 512, 512};
    uint64_t *held = calloc(6 * (size_t)layers, sizeof(*held));
    for (uint32_t m = 0; held != NULL && m < num_micro_batches; m++) {
        uint64_t top = 0;
        for (uint32_t l = 0; l < layers; l++) {
            for (int k = 0; k < 6; k++) {
                held[6 * l + (uint32_t)k] = take(self, kept[k] * MIB, top, l, m, PST_PHASE_FORWARD);
                top += kept[k] * MIB;
            }
            transients(self, top, 10, l, m, PST_PHASE_FORWARD);
        }
        for (uint32_t l = layers; l-- > 0;) {
            transients(self, top, 14, l, m, PST_PHASE_BACKWARD);
            for (int k = 6; k-- > 0;) {
                drop(self, held[6 * l + (uint32_t)k]);
                top -= kept[k] * MIB;
            }
        }
    }
    free(held);
}

static void make_edge(plan *self)
{
    self->tensors[0] = (pst_trace_tensor){.id = UINT64_MAX,
                                          .bytes = UINT64_C(1) << 62,
                                          .begin = 0,
                                          .end = (UINT64_C(1) << 53) + 1,
                                          .layer = PST_TRACE_NONE,
                                          .micro_batch = PST_TRACE_NONE,
                                          .phase = 200};
    self->offsets[0] = (UINT64_C(1) << 61) + 1;
    self->tensors[1] = self->tensors[0];
    self->tensors[1].id = 0;
    self->tensors[1].bytes = 1;
    self->tensors[1].begin = 1;
    self->num = 2;
    self->bound = UINT64_C(1) << 62;
    self->peak = self->bound + self->offsets[0];
}

static int draw_stage(uint64_t chunks, uint64_t num_micro_batches, const char *title)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_layers = 4 * chunks;
    config.hidden_size = 4096;
    config.num_heads = 32;
    config.ffn_size = 11008;
    config.vocab_size = 32000;
    config.is_gated = config.has_flash_attention = config.distributed_optimizer = true;
    config.sequence_size = 4096;
    config.world_size = config.pipeline_parallel = 4;
    config.tensor_parallel = config.context_parallel = config.micro_batch = 1;
    config.virtual_stages = chunks;
    config.global_batch = num_micro_batches;
    const estimate_options options = {
        .config = config, .memory_bytes = 80 * 1024 * MIB, .reserve = {1024 * MIB, 0, 1}};
    return tool_flush(estimate_html_write(stdout, title, &options, 3));
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    if (strcmp(argv[1], "stage") == 0)
        return draw_stage((uint64_t)atoi(argv[2]), (uint64_t)atoi(argv[3]), argv[4]);
    const uint32_t layers = (uint32_t)atoi(argv[2]);
    const uint32_t num_micro_batches = (uint32_t)atoi(argv[3]);
    const size_t most = 30 * (size_t)layers * num_micro_batches + 2;
    plan self = {.tensors = calloc(most, sizeof(pst_trace_tensor)),
                 .offsets = calloc(most, sizeof(uint64_t))};
    if (self.tensors != NULL && self.offsets != NULL && layers > 0)
        make_plan(&self, layers, num_micro_batches);
    else if (self.tensors != NULL && self.offsets != NULL && num_micro_batches > 0)
        make_edge(&self);
    const plan_picture picture = {.title = argv[4],
                                  .tensors = self.tensors,
                                  .offsets = self.offsets,
                                  .num_tensors = self.num,
                                  .peak = self.peak,
                                  .bound = self.bound};
    const int code = strcmp(argv[1], "html") == 0 ? plan_html_write(stdout, &picture)
                                                  : plan_perfetto_write(stdout, &picture);
    free(self.tensors);
    free(self.offsets);
    return tool_flush(code);
}
