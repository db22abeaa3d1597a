/* The order in which one GPU of a pipeline runs its passes, in constant memory.
 *
 * The one place that knows the order of 1F1B, interleaved and GPipe schedules: the lists of schedule.h
 * are made from it. For those who want no list, since they may have more than 2^32 micro-batches: trace
 * (expansion and derivation) and estimate. All walk the same value:
 *
 *   psti_pipeline pipeline = psti_pipeline_1f1b(&shape);
 *   for (psti_pipeline_pass pass; psti_pipeline_next(&pipeline, &pass);) ...
 */
#ifndef PSTI_HOST_SCHEDULE_PIPELINE_H
#define PSTI_HOST_SCHEDULE_PIPELINE_H

#include <pagestash/schedule.h>

/* A pst_pass with counts of 64 bits. */
typedef struct psti_pipeline_pass {
    uint64_t micro_batch, chunk; /* of this GPU, from 0 */
    pst_pass_kind kind;          /* FORWARD or BACKWARD */
} psti_pipeline_pass;

/* Copied freely: a copy goes on from where it is. */
typedef struct psti_pipeline {
    uint64_t num_chunks;
    uint64_t group;         /* micro-batches that a chunk runs before the next chunk has its turn */
    uint64_t warm_up;       /* forwards before forwards and backwards take turns */
    uint64_t num_passes;    /* forwards, and as many backwards */
    bool is_reversed;       /* the last forward is the first to go back */
    uint64_t num_forwards;  /* so far */
    uint64_t num_backwards; /* so far */
} psti_pipeline;

typedef struct psti_pipeline_shape {
    uint64_t num_stages, stage; /* GPUs of the pipeline, and which */
    uint64_t num_micro_batches;
    uint64_t num_chunks;    /* above 1: interleaved */
    uint64_t group;         /* as above; at least 1 */
    bool overlaps_exchange; /* interleaved: one more forward before the first backward */
} psti_pipeline_shape;

psti_pipeline psti_pipeline_1f1b(const psti_pipeline_shape *shape);
/* One chunk, with so many forwards before forwards and backwards take turns. */
psti_pipeline psti_pipeline_warmed_up(uint64_t num_micro_batches, uint64_t warm_up);
/* One chunk: all forwards, then all backwards from the last to the first. */
psti_pipeline psti_pipeline_reversed(uint64_t num_micro_batches);

/* False: there is none left. */
bool psti_pipeline_next(psti_pipeline *self, psti_pipeline_pass *pass_out);
/* The most passes at once that have run forward and not backward. */
uint64_t psti_pipeline_most_live(const psti_pipeline *self);

/* Is told of each pass and answers how much is live after it. What a chunk adds in its forward it
 * takes away in its backward. */
typedef uint64_t (*psti_live_fn)(void *user, const psti_pipeline_pass *pass);

/* live: for each chunk, the micro-batches that have run forward and not backward when most is live,
 * the first time. Walks the warm-up and one turn of all chunks. pre: all groups are whole. */
void psti_pipeline_peak(const psti_pipeline *self, psti_live_fn live_after, void *user,
                        uint64_t *live);

#endif
