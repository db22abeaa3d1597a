/* Room kernels: the operations that a device runs, and the argument struct of each. core/ holds
 * what host and device share; host/ and cuda/ run the operations. Uses the public headers alone.
 * Used by host/device, host/stash and host/linear. */
#ifndef PSTI_KERNELS_H
#define PSTI_KERNELS_H

#include <stddef.h>

#include "kernels/core/layout.h"

/* X(NAME, name, args type). On cuda a move has a kernel for each backend, NAME_BACKEND_kernel, a fused
 * one, which begins with the arguments of a move, NAME_ldg_kernel alone; the others have one,
 * NAME_kernel, of a grid sized by NAME_work(args), or of one block. */
#define PSTI_MOVE_LIST(X)               \
    X(STASH, stash, psti_move_args)     \
    X(RESTORE, restore, psti_move_args) \
    X(MIGRATE, migrate, psti_move_args)
#define PSTI_FUSED_LIST(X)                     \
    X(GLU_FORWARD, glu_forward, psti_glu_args) \
    X(GLU_BACKWARD, glu_backward, psti_glu_args)
#define PSTI_GRID_LIST(X)                \
    X(RESET, reset, psti_control_args)   \
    X(RESIZE, resize, psti_control_args) \
    X(SLAB, slab, psti_slab_args)        \
    X(FILL, fill, psti_pattern_args)     \
    X(VERIFY, verify, psti_pattern_args) \
    X(PRODUCT, product, psti_product_args)
#define PSTI_BLOCK_LIST(X)             \
    X(STEP, step, psti_control_args)   \
    X(CHECK, check, psti_control_args) \
    X(EXPECT, expect, psti_expect_args)
#define PSTI_OP_LIST(X) PSTI_MOVE_LIST(X) PSTI_FUSED_LIST(X) PSTI_GRID_LIST(X) PSTI_BLOCK_LIST(X)

typedef enum psti_op {
#define PSTI_OP_ENUM(NAME, name, args) PSTI_OP_##NAME,
    PSTI_OP_LIST(PSTI_OP_ENUM)
#undef PSTI_OP_ENUM
        PSTI_NUM_OPS,
    PSTI_NUM_COPIES = PSTI_OP_GLU_FORWARD, /* the moves that have a kernel for each backend */
    PSTI_NUM_MOVES = PSTI_OP_RESET         /* what has the arguments of a move comes first */
} psti_op;

#ifdef __cplusplus
extern "C" {
#endif

size_t psti_op_args_bytes(psti_op op);
const char *psti_op_name(psti_op op);

/* One function per operation that runs it in the calling thread to its end: kernels/host, and the
 * CUDA source on the CPU in tests/simt. */
typedef void (*psti_run_fn)(const void *args);
typedef struct psti_runners {
    psti_run_fn run[PSTI_NUM_OPS];
} psti_runners;

extern const psti_runners psti_host_runners;

#ifdef __cplusplus
}
#endif

#endif
