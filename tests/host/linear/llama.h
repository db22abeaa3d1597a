/* A small Llama-like model for tests, trained by ranks that are threads: vocabulary-parallel embedding,
 * layers of RMSNorm, rotary attention, SwiGLU, and a vocabulary-parallel loss, with sequence parallelism,
 * in float32, by Adam. Its matrices are multiplied in one of several ways. */
#ifndef PAGESTASH_TESTS_LLAMA_H
#define PAGESTASH_TESTS_LLAMA_H

#include <pagestash/pagestash.h>

#include "tests/host/comm/comm_scene.h"

typedef enum llama_way {
    LLAMA_PLAIN,      /* products and exchanges into memory of each call's own, no scratch */
    LLAMA_KEPT,       /* pst_linear and pst_mlp; gathered inputs and hidden tensors are kept */
    LLAMA_RECOMPUTED, /* gathered again in scratch; hidden tensors in pages */
    /* The mistake of nanotron's pull request 203: plain, but what forward gathers is in scratch, and
     * backward reads it there when the lease has ended. */
    LLAMA_ALIASED
} llama_way;

typedef struct llama_form {
    llama_way way;
    uint32_t pieces;
    uint64_t tokens; /* of a sequence, of all ranks */
    uint64_t hidden, heads, ffn, vocab, layers;
    uint64_t micro_batches, steps;
} llama_form;

/* What a rank has at the end. */
typedef struct llama_result {
    double *losses; /* of each step */
    float *weights; /* as llama_weight_at counts them */
    uint64_t num_weights;
    /* bytes: weights, gradients and optimizer; what waits for its backward, at most, without pages;
     * at most all that is allocated at one time, without scratch and pool */
    uint64_t state_bytes, saved_bytes, peak_bytes;
    uint64_t pages;      /* in use, at most */
    uint64_t pool_bytes; /* of the pool; 0: none */
    pst_scratch_info scratch;
} llama_result;

PST_BEGIN_DECLS

/* Trains and fills the result, of which losses and weights are the caller's to free. */
void llama_train(rank_of_test *rank, const llama_form *form, llama_result *result);
void llama_free(llama_result *result);

/* The number of an element among the weights of one rank that has them all. */
uint64_t llama_index_of_all(const llama_form *form, uint64_t num_ranks, uint64_t rank,
                            uint64_t index);

PST_END_DECLS

#endif
