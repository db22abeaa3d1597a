/* What layers and blocks lease of scratch: pure arithmetic. Of room linear only this header is open to
 * estimate. Sums and products saturate. */
#ifndef PSTI_HOST_LINEAR_LAYOUT_H
#define PSTI_HOST_LINEAR_LAYOUT_H

#include <pagestash/linear.h>

/* X(kind, name in scratch) */
#define PSTI_LENT_LIST(X)                                       \
    X(GATHERED, "allgather")                                    \
    X(SUMS, "reduce_scatter")                                   \
    X(HIDDEN, "hidden") /* forward; its gradient in backward */ \
    X(ACTIVATION, "activation")                                 \
    X(ACTIVATION_GRADIENT, "activation gradient")               \
    X(WORKSPACE, "workspace") /* of products on cuda */

typedef enum psti_lent {
#define PSTI_LENT_ENUM(kind, name) PSTI_LENT_##kind,
    PSTI_LENT_LIST(PSTI_LENT_ENUM)
#undef PSTI_LENT_ENUM
        PSTI_NUM_LENT
} psti_lent;

const char *psti_lent_name(psti_lent what);

/* Bytes of each name that are leased at one moment of a call; 0: it is not. */
typedef struct psti_lent_moment {
    uint64_t bytes[PSTI_NUM_LENT];
} psti_lent_moment;

typedef struct psti_linear_shape {
    pst_linear_kind kind;
    uint32_t pieces; /* 0 or 1 */
    bool sequence_parallel;
    uint64_t num_ranks, tokens, in_features, out_features; /* checked, of all ranks */
    uint64_t element_bytes;
    uint64_t workspace_bytes;
} psti_linear_shape;

/* kept: what forward gathers is in a buffer of the caller's. */
psti_lent_moment psti_linear_forward_lends(const psti_linear_shape *shape, bool kept);
/* Of both gradients. */
psti_lent_moment psti_linear_backward_lends(const psti_linear_shape *shape, bool kept);
/* Of what forward gathers: COLUMN's with sequence parallelism, else 0. */
uint64_t psti_linear_gathered_bytes(const psti_linear_shape *shape);

/* The halves of a chunk that ROW's forward sums by a ring: where one is summed the other travels. Each
 * has two places, and what comes in one is summed there and sent on, while the other receives. */
typedef struct psti_sum_ring {
    uint64_t first_row[2], num_rows[2];
    uint64_t places[2][2]; /* of a half, from the start of the lease */
    uint64_t bytes;
} psti_sum_ring;

psti_sum_ring psti_sum_ring_of(const psti_linear_shape *shape);

enum { PSTI_MLP_MOMENTS = 3 };

/* The moments of a block's calls at which most is leased. */
typedef struct psti_mlp_lends {
    psti_lent_moment forward[PSTI_MLP_MOMENTS], backward[PSTI_MLP_MOMENTS];
} psti_mlp_lends;

/* hidden_bytes: of the tensor between the layers; of experts of all of them. pages: it is in pages
 * between the calls, else in a buffer of the caller's. */
psti_mlp_lends psti_mlp_lends_of(const psti_linear_shape *up, const psti_linear_shape *down,
                                 uint64_t hidden_bytes, bool kept, bool pages);

uint64_t psti_lent_sum(const psti_lent_moment *moment);
/* The highest sum. */
uint64_t psti_lent_most(const psti_lent_moment *moments, int num_moments);
/* Of each name the most. */
void psti_lent_widen(psti_lent_moment *most, const psti_lent_moment *moment);

#endif
