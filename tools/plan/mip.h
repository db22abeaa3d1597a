/* MEMO's own way to a static plan (SIGMOD 2025, section 4.2): a mixed-integer program, written as a
 * CPLEX LP file, or solved by CBC where that is installed. For comparison: pst_plan_run needs
 * neither, and is faster.
 *
 *   minimise M
 *   A_i + S_i <= M                            for every tensor i
 *   A_i + S_i <= A_j + z_ij * big             for every pair live together
 *   A_j + S_j <= A_i + (1 - z_ij) * big       z_ij in {0, 1}
 *   M >= most bytes live at once              not in MEMO; without it CBC proves little
 */
#ifndef PAGESTASH_TOOLS_MIP_H
#define PAGESTASH_TOOLS_MIP_H

#include <pagestash/plan.h>

enum { MIP_MAX_PAIRS = 1000000 };

typedef enum mip_status {
    MIP_OPTIMAL,
    MIP_FEASIBLE,   /* a plan, and no proof that it is the best */
    MIP_IMPOSSIBLE, /* no plan within the capacity, or upper_bytes */
    MIP_TIMEOUT,    /* the solver had not ended when no seconds were left */
} mip_status;

typedef struct mip_options {
    double (*seconds_left)(
        void *user); /* asked now and then; 0 or less ends it. NULL: 60 at first */
    void *user;
    uint64_t
        upper_bytes;  /* only plans with a peak up to this, the large constant; 0: the sizes' sum */
    bool without_cut; /* MEMO's model as printed */
} mip_options;

typedef struct mip_result {
    mip_status status;
    uint64_t peak;       /* of the offsets; 0 where there are none */
    uint64_t bound;      /* on the peak; of mip_bilevel: with the blocks as level 1 made them */
    uint64_t num_pairs;  /* binaries, of the largest model */
    uint32_t num_models; /* solved */
} mip_result;

/* offsets: num_tensors words, written for optimal and feasible. Solved in floating point, but the
 * offsets are integers, computed from the order that the solver found; still to be checked.
 * CBC runs in a process of its own, which is killed when no seconds are left: it looks at the clock
 * seldom, and whatever it has found until then is its own.
 * All return a tool_exit, its message printed: TOOL_USAGE where CBC is not installed, for more than
 * MIP_MAX_PAIRS pairs, and for addresses beyond 2^40 units (the sizes' greatest common divisor). */
int mip_solve(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
              mip_result *result_out);

/* Level 1: one model per kind of block. Level 2: one of the blocks, each one rectangle, and of all
 * that lives in none. Blocks of a kind may get different addresses. One stream only, no pins within
 * blocks. */
int mip_bilevel(const pst_plan_problem *problem, const mip_options *options, uint64_t *offsets,
                mip_result *result_out);

/* Writes the model of mip_solve to a file, or to stdout if path is "-". Needs no CBC. */
int mip_write(const char *path, const pst_plan_problem *problem, const mip_options *options);

const char *mip_status_name(mip_status status);

#endif
