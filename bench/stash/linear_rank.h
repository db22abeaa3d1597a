/* A rank of a tensor-parallel linear that is measured, and the parts of its calls.
 *
 * On host products and exchanges want the same cores, so where there is none to spare nothing can be hidden.
 * Paced products leave theirs: each waits as long as its share of the multiplications says, as if a processor
 * of its own did them. */
#ifndef PAGESTASH_BENCH_LINEAR_RANK_H
#define PAGESTASH_BENCH_LINEAR_RANK_H

#include <pthread.h>

#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

enum { LINEAR_MAX_RANKS = 4, LINEAR_MAX_MATRICES = 8 };

typedef struct linear_form {
    const char *name;
    pst_linear_kind kind;
    bool is_backward;
    pst_dtype dtype;
} linear_form;

/* What is timed, in turn. */
typedef enum linear_step {
    COPY,     /* memcpy of what is gathered, or summed */
    NOTHING,  /* an exchange of one element for each rank */
    PRODUCTS, /* whole */
    PIECES,   /* the same products in the pieces of a ring */
    EXCHANGE,
    LAYER, /* pieces 1 */
    RING,  /* pieces 0 */
    NUM_STEPS
} linear_step;

typedef struct linear_shared {
    const linear_form *form;
    int num_ranks;
    pst_comm_id id;
    uint64_t tokens, in, out;
    uint32_t samples;
    pthread_barrier_t together;
    bench_series series[NUM_STEPS], hidden;
    bool has_products, is_paced;
    double pace, seconds_per_term; /* of paced products: seconds of all, and of a term */
} linear_shared;

typedef struct linear_rank {
    linear_shared *all;
    int number, code;
    pthread_t thread;
    pst_device *device;
    pst_stream stream;
    pst_comm *comm;
    pst_scratch *scratch;
    pst_linear *linears[2]; /* pieces 0, 1 */
    pst_linear_operands operands;
    uint64_t rows, columns, size; /* of this rank's weight */
    uint64_t wide;                /* elements of a row that ranks exchange */
    void *whole, *part;           /* what is gathered or summed, and this rank's share */
    uint64_t workspace_bytes;     /* of products */
    void *workspace;
    void *memory[LINEAR_MAX_MATRICES];
    int num_matrices;
} linear_rank;

int bench_linear_open(linear_rank *self);
int bench_linear_close(linear_rank *self);
pst_status bench_linear_run(linear_rank *self, linear_step what);

#endif
