/* Tensor-parallel linear layers, and the block of two of them with a gated activation between,
 * whose gathered inputs lie in scratch that cannot alias.
 *
 * Of P ranks. T are the tokens of all of them, K and N the features in and out, matrices are
 * row-major, a weight is (features out, features in) as torch's.
 *
 *                    input       weight      output
 *   COLUMN           (T/P, K)    (N/P, K)    (T, N/P)      gathers the input
 *   ROW              (T, K/P)    (N, K/P)    (T/P, N)      scatters the sum of the output
 *
 * That is with sequence parallelism (arXiv:2205.05198); without, COLUMN has the input (T, K) on
 * each rank, and sums the input's gradient; ROW has the output (T, N) on each, and sums it.
 *
 * COLUMN, backward. The input's gradient is output_gradient * weight, scattered as a sum; the
 * weight's is output_gradient^T * gathered input. The gathered input is gathered again, beside the
 * first product, or read where forward has kept it (`gathered`): the caller's buffer, which may
 * have gone to pages in between. The scatter runs beside the second product.
 * ROW, backward. The output's gradient is gathered in scratch; both products read it.
 *
 * Pieces. With pieces 0 COLUMN's forward and ROW's backward gather as a ring: the product of the
 * piece that has come runs while the next one travels; and ROW's forward scatters as a ring: what a
 * neighbour has summed is C of the product that goes on, in two halves, so that one travels while
 * the other is computed. The order of its additions is that of the ring, and each sum is rounded to
 * dtype: the same bits in every run, but others than with pieces 1, which gathers, multiplies and
 * scatters one after the other. COLUMN's backward is the same with both.
 *
 * Nothing of a call is in scratch when it returns: in the order of the stream every lease is
 * released. That also holds for a call that fails.
 *
 * Threads: layers and blocks do not change once they are made; their scratch and their communicator
 * are used by one at a time.
 */
#ifndef PAGESTASH_LINEAR_H
#define PAGESTASH_LINEAR_H

#include <pagestash/glu.h>
#include <pagestash/product.h>
#include <pagestash/scratch.h>

typedef struct pst_linear pst_linear; /* a layer, made by pst_linear_create */

/* Which dimension of the weight is split over the ranks. */
typedef enum pst_linear_kind {
    PST_LINEAR_COLUMN = 0, /* the features out */
    PST_LINEAR_ROW = 1     /* the features in */
} pst_linear_kind;

/* A caller's product in the place of pst_product_run: fp8, Transformer Engine's, a grouped one. It
 * enqueues on `stream`. On host it is called when the work runs, so at each launch of a graph, with
 * stream NULL, and does it before it returns. */
typedef pst_status pst_product_function(void *user, pst_device *device, const pst_product *product,
                                        pst_stream stream);

/* A layer: its split, its sizes, and what it computes and exchanges with. */
typedef struct pst_linear_config {
    size_t struct_size;
    pst_linear_kind kind;            /* which dimension is split */
    pst_dtype dtype;                 /* BF16, FP16 or FP32: of all but the weight's gradient */
    pst_dtype weight_gradient_dtype; /* dtype or FP32 */
    uint32_t pieces;                 /* 0: one per rank; 1: whole */
    bool sequence_parallel; /* tokens outside the pair of layers are split over the ranks, too */
    uint8_t padding[7];     /* 0 */
    uint64_t tokens;        /* T; a multiple of the ranks with sequence parallelism */
    uint64_t in_features;   /* K; of ROW a multiple of the ranks */
    uint64_t out_features;  /* N; of COLUMN a multiple of the ranks */
    pst_comm *comm;         /* NULL: one rank. It outlives the layer */
    pst_scratch *scratch;   /* outlives the layer; layers of one stream share one */
    pst_product_function *product; /* NULL: pst_product_run */
    void *product_user;            /* first argument of product */
    /* On cuda, of the products (pst_product.workspace): leased of the scratch, as "workspace", by
     * each call. 32 MiB is what cuBLAS advises on an H100. 0: none, as on host. */
    uint64_t workspace_bytes;
} pst_linear_config;

#define PST_LINEAR_CONFIG_INIT PST_INIT(pst_linear_config)

/* Device memory, packed rows as the table above has them, aligned to 16 bytes. What is written
 * overlaps nothing else; but the input may be this rank's part of `gathered`. */
typedef struct pst_linear_operands {
    size_t struct_size;
    const void *input;  /* backward: for the weight's gradient, where `gathered` is NULL */
    const void *weight; /* as the table above has it, of this rank */
    void *output;       /* forward */
    /* COLUMN with sequence parallelism, else NULL: (T, K). Forward: written, the caller keeps it.
     * Backward: read. NULL: gathered in scratch, each time. */
    void *gathered;
    const void *output_gradient; /* backward */
    void *input_gradient;        /* backward; NULL: none is wanted, on no rank */
    void *weight_gradient;       /* backward; NULL: none is wanted, on no rank */
    bool accumulates;            /* the weight's gradient is added to what is there */
    uint8_t padding[7];          /* 0 */
} pst_linear_operands;

#define PST_LINEAR_OPERANDS_INIT PST_INIT(pst_linear_operands)

/* What a call leases of scratch at most, with `gathered` NULL and both gradients, and of a block
 * with a ticket; and what `gathered` has. Frozen. */
typedef struct pst_linear_bytes {
    uint64_t forward_scratch;  /* of one forward, at one time */
    uint64_t backward_scratch; /* of one backward, at one time */
    uint64_t gathered;         /* of pst_linear_operands.gathered; 0: there is none */
} pst_linear_bytes;

PST_BEGIN_DECLS

/* A layer, of the device of its scratch. Sizes the scratch ahead, and on cuda makes the device ready
 * for products, so that the first call can be captured. With PAGESTASH_CHECK=1 the ranks
 * compare their layers before any is refused: then every rank makes the same layers in the same
 * order.
 * Fails: INVALID (a field; what does not divide; a comm of another device; ranks that disagree,
 * said on each), UNSUPPORTED (cuda: no cuBLASLt), NOMEM, DEVICE_NOMEM, PEER, CAPTURE. */
PST_API pst_status pst_linear_create(const pst_linear_config *config, pst_linear **linear_out);
PST_API pst_status pst_linear_destroy(pst_linear *linear); /* NULL is allowed */
/* What calls of the layer lease at most. Pure arithmetic. Fails: INVALID. */
PST_API pst_status pst_linear_get_bytes(const pst_linear *linear, pst_linear_bytes *bytes_out);

/* Enqueued; can be captured, on all ranks or on none; a captured graph does not need the layer.
 * Where one fails by checking its arguments, the other ranks wait for this one: see pst_comm's
 * time-out.
 * Fails: INVALID (an operand is missing, not aligned, overlaps, or lies in a buffer of the scratch
 * that nobody has leased: in another call it holds other bytes), BUSY and CAPTURE (scratch), PEER,
 * what the product answers, CUDA. */
PST_API pst_status pst_linear_forward(pst_linear *linear, const pst_linear_operands *operands,
                                      pst_stream stream);
PST_API pst_status pst_linear_backward(pst_linear *linear, const pst_linear_operands *operands,
                                       pst_stream stream);

/* ---- a whole block: COLUMN, a gated activation, ROW ---- */

typedef struct pst_mlp pst_mlp; /* made by pst_mlp_create */

/* A block: its two layers, what is between, and how many experts. */
typedef struct pst_mlp_config {
    size_t struct_size;
    const pst_linear_config *up; /* COLUMN; out_features is 2F: of each rank gates and ups */
    const pst_linear_config
        *down;          /* ROW; in_features is F; comm, scratch, tokens, dtype as of up */
    const pst_glu *glu; /* the activation between the layers */
    /* 0: dense. Else both layers are of one rank without sequence parallelism, tokens is the
     * capacity of an expert, and the rows and weights of experts lie one behind the other. */
    uint32_t num_experts;
    pst_count_type count_type; /* of experts: INT32 or INT64 */
} pst_mlp_config;

#define PST_MLP_CONFIG_INIT PST_INIT(pst_mlp_config)

/* As above. The tensor between the layers, (T, 2F/P), is the one that `group` says is written by a
 * GLU. */
typedef struct pst_mlp_operands {
    size_t struct_size;
    const void *input;                 /* of up */
    const void *up_weight;             /* of this rank */
    const void *down_weight;           /* of this rank */
    void *output;                      /* forward */
    void *gathered;                    /* see pst_linear_operands */
    const void *output_gradient;       /* backward */
    void *input_gradient;              /* backward; NULL: none is wanted */
    void *up_weight_gradient;          /* backward; NULL: none is wanted */
    void *down_weight_gradient;        /* backward; NULL: none is wanted */
    pst_glu_rows probability;          /* per row of the activation; optional */
    pst_glu_rows probability_gradient; /* backward; optional */
    const void *counts;                /* of experts, on the device; else NULL */
    bool accumulates;                  /* both weights' gradients are added to what is there */
    uint8_t padding[7];                /* 0 */
    /* With a ticket, forward puts the tensor between the layers into its pages, and it is in
     * scratch no longer than the call; backward reads it there. Without, the caller keeps it:
     * `hidden`, written by forward, read by backward. */
    void *hidden;
    pst_ticket ticket; /* id 0: none */
    /* With a ticket as of pst_glu_forward, else NULL. The GLU's tensor has the row space of T rows,
     * all of them live, or of experts one with the counts and capacity above. */
    const pst_group *group;
    const pst_buffers *buffers;         /* of its tensors, and counts; the GLU's base is NULL */
    const pst_stash_options *stash;     /* forward; NULL: the defaults */
    const pst_restore_options *restore; /* backward; NULL: the defaults */
} pst_mlp_operands;

#define PST_MLP_OPERANDS_INIT PST_INIT(pst_mlp_operands)

/* Fails: as pst_linear_create; INVALID (layers that do not fit together, or the GLU). */
PST_API pst_status pst_mlp_create(const pst_mlp_config *config, pst_mlp **mlp_out);
PST_API pst_status pst_mlp_destroy(pst_mlp *mlp); /* NULL is allowed */
/* What calls of the block lease at most. Pure arithmetic. Fails: INVALID. */
PST_API pst_status pst_mlp_get_bytes(const pst_mlp *mlp, pst_linear_bytes *bytes_out);

/* Enqueued; can be captured. Fails: as the layers and pst_glu_forward, pst_glu_backward. */
PST_API pst_status pst_mlp_forward(pst_mlp *mlp, const pst_mlp_operands *operands,
                                   pst_stream stream);
PST_API pst_status pst_mlp_backward(pst_mlp *mlp, const pst_mlp_operands *operands,
                                    pst_stream stream);

PST_END_DECLS

#endif
