/* Gated activations that page as they compute.
 *
 * The output of an MoE layer's first product, (rows, 2F), is read by one kernel of the forward, that of
 * the gated activation, and by one of the backward. If these two write and read the pages, nobody has
 * to copy that tensor:
 *
 *   pst_glu_forward   reads (rows, 2F), writes (rows, F); with a ticket the same launch also stashes:
 *                     what it has read into pages, the other tensors of the group as pst_ticket_stash
 *   pst_glu_backward  reads the gradient (rows, F) and the ticket's pages, writes the input's gradient
 *                     (rows, 2F); the same launch restores the ticket's other tensors and frees it
 *
 * Each element of the output is p * act(g) * u, computed in float32 and rounded once, with g of the
 * gate, u of the other half ("up"), and p of the row's probability, 1 without one:
 *
 *   PST_GLU_SWIGLU      g * sigmoid(g) * u                                (arXiv:2002.05202)
 *   PST_GLU_GEGLU       g * (1 + erf(g / sqrt(2))) / 2 * u
 *   PST_GLU_GEGLU_TANH  g * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) / 2 * u
 *   PST_GLU_REGLU       max(g, 0) * u
 *   PST_GLU_QUICK_GEGLU g * sigmoid(1.702 g) * u
 *   PST_GLU_CLAMPED     g' * sigmoid(alpha * g') * (u' + bias) with g' = min(g, limit) and
 *                       u' = min(max(u, -limit), limit): gpt-oss has 1.702, 1 and 7
 *
 * docs/fused.md has the bounds of errors, the traffic, and where it gains nothing.
 */
#ifndef PAGESTASH_GLU_H
#define PAGESTASH_GLU_H

#include <pagestash/ticket.h>

typedef enum pst_glu_kind {
    PST_GLU_SWIGLU = 0,
    PST_GLU_GEGLU = 1,
    PST_GLU_GEGLU_TANH = 2,
    PST_GLU_REGLU = 3,
    PST_GLU_QUICK_GEGLU = 4,
    PST_GLU_CLAMPED = 5
} pst_glu_kind;

/* Of input, output and their gradients. Probabilities are float32. */
typedef enum pst_glu_dtype {
    PST_GLU_BF16 = 0,
    PST_GLU_FP16 = 1,
    PST_GLU_FP32 = 2
} pst_glu_dtype;

#endif
