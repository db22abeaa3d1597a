/* Shared by the files of blocks. */
#ifndef PSTI_HOST_LINEAR_MLP_H
#define PSTI_HOST_LINEAR_MLP_H

#include "host/linear/linear.h"
#include "host/stash/stash.h"

struct pst_mlp {
    psti_handle handle;
    pst_linear *up, *down;
    pst_glu glu;
    uint32_t num_experts;
    pst_count_type count_type;
    pst_group *group; /* of calls without a ticket */
    uint64_t hidden_bytes, activation_bytes;
    pst_linear_bytes bytes;
};

/* ---- mlp.c ---- */

pst_status psti_mlp_check(const pst_mlp *mlp, const pst_mlp_operands *operands, bool is_backward);

#endif
