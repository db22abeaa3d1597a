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

/* Which activation; the table above has the formulas. */
typedef enum pst_glu_kind {
    PST_GLU_SWIGLU = 0,      /* sigmoid linear unit */
    PST_GLU_GEGLU = 1,       /* Gaussian error linear unit, by erf */
    PST_GLU_GEGLU_TANH = 2,  /* the same, by tanh */
    PST_GLU_REGLU = 3,       /* rectified linear unit */
    PST_GLU_QUICK_GEGLU = 4, /* g * sigmoid(1.702 g) */
    PST_GLU_CLAMPED = 5      /* sigmoid with alpha, bias and limits */
} pst_glu_kind;

/* Of input, output and their gradients. Probabilities are float32. */
typedef enum pst_glu_dtype {
    PST_GLU_BF16 = 0, /* 2 bytes */
    PST_GLU_FP16 = 1, /* 2 bytes */
    PST_GLU_FP32 = 2  /* 4 bytes */
} pst_glu_dtype;

/* How a GLU computes, and how its input lies: F gates, then F ups; or in blocks of 1 or 32 elements of
 * which one has gates and the next ups. */
typedef struct pst_glu {
    size_t struct_size;
    pst_glu_kind kind;   /* which activation */
    pst_glu_dtype dtype; /* of input, output and their gradients */
    uint32_t interleave; /* 0: halves; 1 or 32: elements of a block, of which F is a multiple */
    float limit;         /* of PST_GLU_CLAMPED: above 0, infinite for none; else 0 */
    float alpha;         /* of PST_GLU_CLAMPED: finite; else 0 */
    float bias;          /* of PST_GLU_CLAMPED: finite; else 0 */
} pst_glu;

#define PST_GLU_INIT PST_INIT(pst_glu)

/* Rows in the row space of the GLU's input, for one launch. Frozen. */
typedef struct pst_glu_rows {
    void *base;              /* device address, aligned to an element; NULL: there are none */
    uint64_t row_stride;     /* bytes from one row to the next; 0: packed */
    uint64_t segment_stride; /* bytes from one segment's first row to the next's; 0: packed, that is
                              * the rows at capacity times the row stride */
} pst_glu_rows;

/* What a launch reads and writes beside the GLU's input. */
typedef struct pst_glu_operands {
    size_t struct_size;
    pst_glu_rows output;         /* (rows, F). Backward: what forward wrote, once more; optional */
    pst_glu_rows probability;    /* (rows), float32; optional */
    pst_glu_rows gradient;       /* backward: of the output, (rows, F); else none */
    pst_glu_rows input_gradient; /* backward: (rows, 2F), as the input; else none */
    pst_glu_rows probability_gradient; /* backward: (rows), float32; optional; else none */
} pst_glu_operands;

#define PST_GLU_OPERANDS_INIT PST_INIT(pst_glu_operands)

PST_BEGIN_DECLS

/* Reads the live rows of the GLU's input and writes as many of the output; rows behind them stay.
 * glu:      F is half of what a row of the input has: row_bytes / (2 * bytes of an element).
 * ticket:   what is stashed into, as by pst_ticket_stash: the GLU's input and the group's other tensors.
 *           The input's bytes are those of the group's byte stream, so that a plain restore, demote or
 *           promote of the ticket works. id 0: nothing is stashed, and the group's other tensors are
 *           nobody's.
 * group:    has one tensor that is written by a GLU (pst_tensor.written_by): the input.
 * source:   where the group's tensors lie, and the counts of all its row spaces. Without a ticket bases
 *           other than the input's may be NULL.
 * options:  NULL for the defaults. Backends: auto and ldg.
 * pre:      as for pst_ticket_stash; the output overlaps nothing that is read. Overlap is refused: what
 *           counts is all from an operand's first row to its last, with what may lie between rows.
 * Faults:   a stash that fails (EXHAUSTED, LOST), finds the ticket LIVE, or is refused writes no page;
 *           the output is as without a ticket. With COUNT nothing is read and the output stays as it
 *           is; without a ticket nobody records that.
 * Stream:   one launch, no allocation, no synchronisation; can be captured.
 * Moves:    per live row and F elements: 2 read, 1 written, with a ticket 2 more written.
 * Fails:    INVALID (a field of glu; the input's row bytes, ratio or address; operands; else as
 *           pst_ticket_stash), UNSUPPORTED (backend), CUDA. */
PST_API pst_status pst_glu_forward(pst_device *device, const pst_glu *glu, pst_ticket ticket,
                                   const pst_group *group, const pst_buffers *source,
                                   const pst_glu_operands *operands,
                                   const pst_stash_options *options, pst_stream stream);

/* From the gradient of the output that of the input, of as many rows as the ticket has; of the row's
 * probability p its gradient, the sum of gradient * act(g) * u over the row, in one order whatever the
 * grid and wherever the input lies.
 * ticket:   what pst_glu_forward or a stash of a group of this form has filled: the input is read in
 *           its pages. id 0: the input is read in memory, at its base in `buffers`, as counts say.
 * buffers:  with a ticket where the group's other tensors are restored to; the input's base is NULL.
 *           With PST_RESTORE_CONSUME every other tensor needs a base, with PST_RESTORE_KEEP none.
 *           Counts may be NULL then; they are used where the ticket holds nothing, see Faults. A count
 *           of host memory that does not fit is INVALID all the same.
 * options:  pages, failed (of the other tensors) and launch; no tail, no dirty words. Without a ticket
 *           launch alone. NULL: the defaults.
 * pre:      as for pst_ticket_restore; nothing that is written overlaps what is read or else is written:
 *           so neither the probability nor the gradient may be a tensor that this launch restores, and
 *           the input's gradient is not the input.
 * Faults:   as of pst_ticket_restore. Where that copies nothing, the input's gradient, the output and
 *           the probability's gradient are cleared: as many rows as the counts say if they are given
 *           and fit, else up to the capacity. Bytes of a damaged page are taken for 0.
 * Stream:   one launch, in a pool that scrubs with PST_RESTORE_CONSUME two; can be captured.
 * Moves:    per live row and F elements: 3 read, 2 written, with the output 1 more.
 * Fails:    INVALID (as above; a base of the input with a ticket, or none without), UNSUPPORTED
 *           (backend), CUDA. */
PST_API pst_status pst_glu_backward(pst_device *device, const pst_glu *glu, pst_ticket ticket,
                                    const pst_group *group, const pst_buffers *buffers,
                                    const pst_glu_operands *operands,
                                    const pst_restore_options *options, pst_stream stream);

PST_END_DECLS

#endif
