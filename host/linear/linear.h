/* Room linear: products of matrices, and the tensor-parallel layers that are made of them.
 * Uses base, device, stash and comm. Used by programs, through product.h and linear.h of the public
 * headers. */
#ifndef PSTI_HOST_LINEAR_H
#define PSTI_HOST_LINEAR_H

#include <pagestash/linear.h>

#include "host/comm/comm.h"
#include "host/device/device.h"
#include "host/linear/linear_layout.h"

/* ---- product_host.c: products that were checked ---- */

pst_status psti_product_enqueue_host(pst_device *device, const pst_product *product,
                                     pst_stream stream);

/* ---- product_cublaslt.c: of cuda, those whose sizes the host knows; k at least 1 ---- */

pst_status psti_product_enqueue_cublaslt(pst_device *device, const pst_product *product,
                                         pst_stream stream);
/* Makes the device ready for them. Not in a capture. Fails: UNSUPPORTED, NOMEM, CUDA. */
pst_status psti_cublaslt_prepare(pst_device *device);

/* ---- product_counted.c: of cuda, by a kernel of the library's ---- */

pst_status psti_product_enqueue_counted(pst_device *device, const pst_product *product,
                                        pst_stream stream);

/* ---- product_blas.c, product_plain.c: D = A * B + D, of float32 ---- */

/* Rows lie `lead` elements apart; a transposed matrix is stored as its columns. */
typedef struct psti_gemm {
    uint32_t m, n, k; /* at least 1 */
    bool a_transposed, b_transposed;
    const float *a, *b;
    float *d;
    uint32_t a_lead, b_lead, d_lead;
} psti_gemm;

typedef void psti_gemm_function(const psti_gemm *gemm);

/* The function that PAGESTASH_BLAS names. Fails: UNSUPPORTED. */
pst_status psti_blas_find(psti_gemm_function **function_out);
void psti_gemm_plain(const psti_gemm *gemm);

/* ---- linear_stage.c: one call of a layer or block, with what it has of scratch ---- */

typedef struct psti_stage {
    const pst_linear *linear; /* whose ranks exchange */
    const char *place;
    pst_stream stream;
    const void *counts; /* of experts, on the device; else NULL */
    pst_lease leases[PSTI_NUM_LENT];
    uint64_t started, finished; /* the last exchange that was started, and finished; 0: none */
} psti_stage;

/* Opens a scope of the scratch, and leases the workspace of products. */
pst_status psti_stage_begin(psti_stage *stage, const pst_linear *linear, const char *place,
                            pst_stream stream);
/* Finishes what was started, releases what is leased, ends the scope. Answers `status`, or what
 * fails here. */
pst_status psti_stage_end(psti_stage *stage, pst_status status);
pst_status psti_stage_lease(psti_stage *stage, psti_lent what, uint64_t bytes, void **address_out);
/* Also of what is not leased. */
pst_status psti_stage_release(psti_stage *stage, psti_lent what);
/* Enqueues an exchange of so many elements, or starts it. reduction of all: sum. */
pst_status psti_stage_exchange(psti_stage *stage, pst_exchange_kind kind, const void *from,
                               void *to, uint64_t count);
pst_status psti_stage_start(psti_stage *stage, pst_exchange_kind kind, const void *from, void *to,
                            uint64_t count, uint64_t *number_out);
/* number 0: nothing was started. */
pst_status psti_stage_finish(psti_stage *stage, uint64_t number);

/* ---- linear.c ---- */

struct pst_linear {
    psti_handle handle;
    pst_device *device;
    pst_linear_config config;
    psti_linear_shape shape;
    uint32_t num_ranks, rank;
    /* Of a block's layer, else 1: rows, weights and results lie one behind the other, and the
     * stage has counts of the rows. */
    uint32_t num_experts;
    bool has_counts;
    pst_count_type count_type;
    uint64_t size;    /* bytes of an element */
    uint64_t columns; /* of this rank's weight, and so of the input that it multiplies */
    uint64_t rows;    /* of this rank's weight */
    pst_linear_bytes bytes;
};

/* Whether the input of COLUMN, or the output's gradient of ROW, is in pieces on the ranks. */
static inline bool psti_linear_gathers(const pst_linear *linear)
{
    return linear->config.sequence_parallel && linear->num_ranks > 1;
}

/* num_experts: 0 for a layer alone. */
pst_status psti_linear_make(const pst_linear_config *config, uint32_t num_experts,
                            pst_count_type count_type, pst_linear **linear_out);
void psti_linear_free(pst_linear *linear); /* NULL is allowed */
/* So much of each name, so that a capture can lease it. */
pst_status psti_lent_reserve(pst_scratch *scratch, const psti_lent_moment *most);

/* Bytes of the matrices of this rank, of all experts. */
typedef struct psti_matrix_bytes {
    uint64_t input, weight, output, weight_gradient;
} psti_matrix_bytes;

psti_matrix_bytes psti_linear_bytes_of(const pst_linear *linear);

/* An operand and how many bytes it has. */
typedef struct psti_operand {
    const char *name;
    const void *address;
    uint64_t bytes;
    bool is_wanted;  /* NULL is refused */
    bool is_written; /* so that it overlaps no other */
} psti_operand;

pst_status psti_operands_check(const pst_scratch *scratch, const psti_operand *operands,
                               int num_operands);
/* name: whose padding it is, with a colon; "" for the struct that was given. */
pst_status psti_padding_check(const char *name, const uint8_t *padding, size_t bytes);

/* ---- linear_check.c ---- */

/* With PAGESTASH_CHECK=1, that all ranks have made this layer. */
pst_status psti_linear_compare(const pst_linear *linear);

/* ---- linear_product.c: the three products of a layer ---- */

/* Of num_rows rows of the input. c: what is added, NULL for nothing; it may be the output. */
pst_status psti_linear_multiply(const pst_linear *linear, const psti_stage *stage,
                                const void *input, const void *weight, const void *c, void *output,
                                uint64_t num_rows);
pst_status psti_linear_multiply_back(const pst_linear *linear, const psti_stage *stage,
                                     const void *output_gradient, const void *weight,
                                     void *input_gradient, uint64_t num_rows);
/* Of all rows. */
pst_status psti_linear_multiply_weight(const pst_linear *linear, const psti_stage *stage,
                                       const void *output_gradient, const void *input,
                                       const pst_linear_operands *operands);

/* ---- linear_forward.c, linear_backward.c: operands were checked, a stage is open ---- */

/* A matrix that ranks have in pieces of rows, and what its products give. */
typedef struct psti_gather {
    const void *own;         /* this rank's piece; may be at its place already */
    unsigned char *gathered; /* all of them */
    const void *weight;
    unsigned char *to;
    uint64_t from_columns, to_columns;
    bool is_backward;
} psti_gather;

pst_status psti_gather_copy_own(const pst_linear *linear, const psti_stage *stage,
                                const psti_gather *gather);
/* Piece after piece, from this rank's own on downwards: while one is multiplied the next one
 * comes. */
pst_status psti_gather_ring(const pst_linear *linear, psti_stage *stage, const psti_gather *gather);

pst_status psti_column_forward(const pst_linear *linear, psti_stage *stage,
                               const pst_linear_operands *operands);
pst_status psti_row_forward(const pst_linear *linear, psti_stage *stage,
                            const pst_linear_operands *operands);
pst_status psti_column_backward(const pst_linear *linear, psti_stage *stage,
                                const pst_linear_operands *operands);
/* The halves of ROW's: the output's gradient is gathered, and stays in scratch for the second. */
pst_status psti_row_backward_input(const pst_linear *linear, psti_stage *stage,
                                   const pst_linear_operands *operands, const void **gradient_out);
pst_status psti_row_backward_weight(const pst_linear *linear, psti_stage *stage,
                                    const pst_linear_operands *operands, const void *gradient);

#endif
