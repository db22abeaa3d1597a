/* A small model of dense and MoE layers that runs through the scheduler on any device, and once more with
 * everything kept. Its arithmetic is copies: a dense layer's attention turns its input around by some bytes,
 * its token-wise part is attention's rows again, so the rows that were dropped can be computed from what was
 * swapped whole; its output is the next layer's input. An MoE layer keeps rows that the host has drawn, so
 * many as a count on the device says. Backwards copy what they read to the answers, count its bytes into a
 * gradient that is accumulated over the micro-batches, and spoil the memory. So the answers of two runs are
 * equal bytes only where every byte came back.
 *
 *   memo_open(&memo, device, &wish);
 *   memo_new_data(&memo);  memo_step(&memo), or the launch of a graph of it;  memo_check(&memo);
 *   memo_close(&memo);
 *
 * Swaps, stashes and restores are watched as they are enqueued; memo_check_copies holds them against the
 * simulator: which, in which order on each stream, how many bytes, which buffer. */
#ifndef PAGESTASH_TESTS_MEMO_H
#define PAGESTASH_TESTS_MEMO_H

#include "tests/conformance/conf.h"

#include "host/scheduler/scheduler.h"

enum {
    MEMO_LAYERS = 8,
    MEMO_MICRO_BATCHES = 8,
    MEMO_HIDDEN = 48,
    MEMO_TOKENS = 8,
    MEMO_INPUT = MEMO_TOKENS * MEMO_HIDDEN,
    MEMO_PLANES = 3, /* of a token's row at most, each as wide as the hidden state */
    MEMO_DENSE = MEMO_INPUT * (1 + 2 * MEMO_PLANES),
    /* of an MoE layer: three tensors, with all, a quarter and a tenth of the rows, so that a visit
     * takes 0 to 3 pages */
    MEMO_TENSORS = 3,
    MEMO_ROWS = 12,
    MEMO_ROW = 64,
    MEMO_EXPERTS = (MEMO_ROWS + MEMO_ROWS / 4 + MEMO_ROWS / 10) * MEMO_ROW,
    MEMO_STEPS = 24, /* whose pages the pool has room for, where it has no page too many */
    MEMO_COPIES = 512
};

/* PAGED is MoE, anything else dense. */
typedef struct memo_layer {
    pst_keep keep;
    bool has_whole;  /* the input and attention's output lie in the buffer, and go whole */
    uint32_t planes; /* 1 to MEMO_PLANES: hidden states in a token's row */
    uint32_t swap_tokens;
} memo_layer;

typedef struct memo_wish {
    uint64_t seed;
    pst_schedule_config schedule;
    uint32_t num_layers;
    memo_layer layers[MEMO_LAYERS];
    uint32_t num_sets, num_streams; /* sources, and as many destinations */
    uint32_t max_slots;
    bool keeps_nothing;
    bool records;  /* the scheduler gets no schedule */
    bool is_tight; /* not a page more than the simulator says */
} memo_wish;

/* A swap, stash or restore as it was enqueued. */
typedef struct memo_copy {
    pst_simulated_kind kind;
    uint32_t side, layer, slot; /* side: which of the scheduler's streams */
    uint64_t bytes;             /* of a swap */
    const void *buffer;
} memo_copy;

typedef struct memo {
    memo_wish wish;
    pst_device *device;
    const psti_device_ops *ops; /* the device's own */
    psti_device_ops watched;
    pst_stream stream;
    pst_pool *pool;
    pst_group *experts_group, *rows_group;
    pst_schedule *schedule;
    pst_scheduler *scheduler;
    pst_scheduler_config config;
    pst_layer layers[MEMO_LAYERS];
    uint32_t num_micro_batches; /* there is memory for */
    uint64_t num_steps;         /* new data so often */
    bool leaves[MEMO_LAYERS];   /* in some order so far: what has pinned memory */
    /* device memory, one allocation */
    unsigned char *block;
    uint64_t used_bytes, block_bytes;
    unsigned char *data; /* tokens, rows of experts, counts: as in `image` */
    unsigned char *image;
    uint64_t data_bytes;
    unsigned char *hidden, *gradient, *inputs, *kept, *planned, *work, *attention, *turned;
    unsigned char *sources[PST_MAX_SETS], *destinations[PST_MAX_SETS], *rounding[2];
    int64_t *source_counts[PST_MAX_SETS], *rows; /* of rows_group, by planes */
    unsigned char *answers;
    uint64_t answer_bytes;
    unsigned char *found, *wanted; /* on the host */
    /* what the last step's hooks said, and what they enqueued */
    pst_visit said[2][MEMO_LAYERS][MEMO_MICRO_BATCHES]; /* forward, backward */
    memo_copy copies[MEMO_COPIES];
    uint32_t num_copies;
} memo;

/* ---- memo.c ---- */

void memo_open(memo *self, pst_device *device, const memo_wish *wish);
void memo_close(memo *self);
/* Other tokens and rows for every micro-batch; waits for the device. */
void memo_new_data(memo *self);
/* Rows that an MoE layer has in that step. */
int64_t memo_rows(const memo *self, uint64_t step, uint32_t layer, uint32_t micro_batch);
/* The order from now on; false: there is no such schedule, or it needs more than there is. */
bool memo_use(memo *self, uint32_t num_micro_batches);

/* ---- memo_step.c ---- */

pst_status memo_step(memo *self);
/* A step that ends after so many visits. */
pst_status memo_part_of_step(memo *self, uint32_t num_visits);
pst_status memo_evaluate(memo *self);
/* The answers of a run that keeps everything, without the scheduler. */
pst_status memo_keep_all(memo *self);

/* ---- memo_check.c ---- */

/* After a step: its answers, and the pages that it took where the simulator knows them. */
void memo_check(memo *self, bool recorded);
/* What the last step enqueued. */
void memo_check_copies(memo *self);
/* Two buffers, of swapped layers alone: what stays in place, and MEMO's rule. */
void memo_check_places(memo *self);
/* Pinned memory: slots times bytes of each swapped layer that leaves. */
void memo_check_bytes(memo *self);
/* Pages that a step takes. */
uint64_t memo_demand(const memo *self, uint64_t step);

static inline uint64_t memo_token_bytes(const memo_layer *layer)
{
    return (uint64_t)layer->planes * MEMO_HIDDEN;
}

static inline uint64_t memo_whole_bytes(const memo_layer *layer)
{
    return layer->has_whole ? (1 + (uint64_t)layer->planes) * MEMO_INPUT : 0;
}

static inline uint64_t memo_swap_bytes(const memo_layer *layer)
{
    return memo_whole_bytes(layer) + layer->swap_tokens * memo_token_bytes(layer);
}

static inline unsigned char *memo_at(const memo *self, unsigned char *memory, uint64_t bytes,
                                     uint32_t layer, uint32_t micro_batch)
{
    return memory + ((uint64_t)layer * self->num_micro_batches + micro_batch) * bytes;
}

/* Parts of `data` and `image`. */
static inline unsigned char *memo_tokens(const memo *self, unsigned char *data, uint32_t m)
{
    return memo_at(self, data, MEMO_INPUT, 0, m);
}

static inline unsigned char *memo_experts(const memo *self, unsigned char *data, uint32_t layer,
                                          uint32_t m)
{
    return memo_at(self, data + (uint64_t)self->num_micro_batches * MEMO_INPUT, MEMO_EXPERTS, layer,
                   m);
}

static inline unsigned char *memo_count(const memo *self, unsigned char *data, uint32_t layer,
                                        uint32_t m)
{
    return memo_at(self, memo_experts(self, data, self->wish.num_layers, 0), sizeof(int64_t), layer,
                   m);
}

#define MEMO_TRY(call)                    \
    do {                                  \
        const pst_status memo_s = (call); \
        if (memo_s != PST_OK)             \
            return memo_s;                \
    } while (0)

#endif
