/* Blocks for tests: what a rank has, and the same results by layers, products and GLUs alone. */
#ifndef PAGESTASH_TESTS_BLOCK_H
#define PAGESTASH_TESTS_BLOCK_H

#include "tests/host/linear/layer.h"

enum { BLOCK_EXPERTS = 3, OTHER_BYTES = 48 };

/* features: F of all ranks; tokens: of each rank, or the capacity of an expert. */
typedef struct block_form {
    pst_dtype dtype, of_gradient;
    uint32_t pieces, num_experts, interleave;
    pst_count_type count_type;
    bool sequence_parallel, accumulates, has_probability;
    uint64_t tokens, hidden, features;
} block_form;

/* Results of one way to compute them. */
typedef struct block_results {
    layer_tensor output, input_gradient, up_gradient, down_gradient, of_probability;
} block_results;

typedef struct block {
    block_form form;
    rank_of_test *rank;
    uint64_t rows; /* between the layers, of all experts */
    pst_linear_config up, down;
    pst_glu glu;
    pst_scratch *scratch;
    pst_mlp *mlp;
    pst_linear_bytes bytes;
    int64_t *wide; /* counts of experts, on the device */
    int32_t *narrow;
    layer_tensor input, up_weight, down_weight, output_gradient, probability; /* read */
    layer_tensor between, gathered;                                           /* kept */
    block_results found, wanted;
    pst_mlp_operands operands;
    /* of pages: a group of another tensor and the one between the layers */
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    layer_tensor other;
    void *bases[2];
    const void *counts[2];
    int64_t host_count;
    pst_buffers buffers;
} block;

PST_BEGIN_DECLS

void block_open(block *self, const block_form *form, rank_of_test *rank);
void block_close(block *self);
/* The operands have a ticket and a group, or the tensor between the layers. */
void block_set_pages(block *self, bool has_pages);
/* What is written becomes 0xff, but for gradients that are added to. */
void block_clear(block *self, block_results *results);
/* Fills `wanted`; of a device cuda, whose products add in another order, by the host. */
void block_want(block *self);
/* Whether all results are what is wanted: their bits, of cuda within some roundings. */
bool block_is_right(const block *self);

PST_END_DECLS

#endif
