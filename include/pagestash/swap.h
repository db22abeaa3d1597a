/* How much of what a layer keeps goes to the host: MEMO's token-wise fraction, exactly.
 *
 * What a transformer layer keeps for its backward pass (its skeletal tensors) leaves for the host
 * while the next layer computes. The layer's input and the output of attention always go whole; of
 * every other tensor go the first tokens, and the rest of it is dropped and computed again.
 * With m = input + attention bytes, o = other bytes, N tokens, k of them swapped:
 *
 *   bytes(k) = m + ceil(o * k / N)
 *   bytes(k)           <= link bytes per second * forward time      it hides behind one layer
 *   bytes(k) * (n - 2) <= host bytes                                the last two layers stay
 *
 * pst_swap_choose answers the largest k, a whole number of token blocks, that both allow (MEMO,
 * SIGMOD 2025, doi 10.1145/3709703, section 4.1, where k/N is alpha). Integers throughout.
 *
 *   pst_swap_config config = PST_SWAP_CONFIG_INIT;
 *   pst_swap_model(&model, &config);      or fill in bytes and tokens yourself
 *   pst_swap_choose(&config, &choice);
 *   pst_swap_fill(...)                    instead of one fraction: by what recomputing costs
 *
 * Pure arithmetic. Threads: any.
 */
#ifndef PAGESTASH_SWAP_H
#define PAGESTASH_SWAP_H

#include <pagestash/status.h>

#define PST_SWAP_MAX_BYTES (UINT64_C(1) << 62) /* of one layer */

/* A GPT layer without dropout, on tensor_parallel * context_parallel GPUs with sequence
 * parallelism. Frozen. */
typedef struct pst_swap_shape {
    /* sequences; tokens of each; elements of a token */
    uint64_t micro_batch, sequence_size, hidden_size;
    uint64_t ffn_size;                          /* 0: 4 * hidden_size */
    uint32_t tensor_parallel, context_parallel; /* 0: 1; their product divides sequence_size */
    uint32_t element_bytes;                     /* 0: 2 */
} pst_swap_shape;

/* What a layer keeps, and what link, time and host memory allow. */
typedef struct pst_swap_config {
    size_t struct_size;
    uint64_t input_bytes, attention_bytes; /* of a layer on this GPU; go whole */
    uint64_t other_bytes;                  /* all that it keeps besides; together at most 2^62 */
    uint64_t num_tokens;            /* that the tensors of a layer are cut into; at least 1 */
    uint64_t block_tokens;          /* 0: 1 */
    uint64_t link_bytes_per_second; /* to the host, at least 1 */
    uint64_t forward_nanoseconds;   /* of one layer */
    uint64_t host_bytes;            /* for this GPU */
    uint32_t num_layers;            /* of this GPU */
    uint32_t padding;               /* 0 */
} pst_swap_config;

#define PST_SWAP_CONFIG_INIT PST_INIT(pst_swap_config)

/* Why not more tokens are swapped. */
typedef enum pst_swap_limit {
    PST_SWAP_UNLIMITED = 0,  /* all tokens are swapped, or no layer needs it */
    PST_SWAP_BY_TIME = 1,    /* of the link; also where host memory allows just as much */
    PST_SWAP_BY_MEMORY = 2,  /* of the host */
    PST_SWAP_IMPOSSIBLE = 3, /* not even what goes whole: see the missing_ fields */
} pst_swap_limit;

/* How much of every layer is swapped. */
typedef struct pst_swap_choice {
    pst_swap_limit limit; /* why not more */
    uint32_t num_layers;  /* that are swapped: all but two. If 0, nothing is recomputed either */
    uint64_t num, den; /* tokens swapped, of how many. 0 where impossible or no layer is swapped */
    uint64_t layer_bytes;  /* that leave per swapped layer */
    uint64_t host_bytes;   /* num_layers * layer_bytes */
    uint64_t room_bytes;   /* what both limits leave per layer beside what goes whole, at most
                            * other_bytes: a budget for pst_swap_fill */
    uint64_t buffer_bytes; /* all that one layer keeps: of each of the two rounding buffers */
    /* 0 unless impossible: by how much what goes whole exceeds the link's bytes in a forward, the
     * forward's time, and host memory. 2^64 - 1 also stands for more. */
    uint64_t missing_link_bytes, missing_nanoseconds, missing_host_bytes;
} pst_swap_choice;

/* One tensor that could be swapped in part instead of being computed again. Frozen, as what
 * pst_swap_fill answers. */
typedef struct pst_swap_tensor {
    uint64_t bytes;                 /* at least 1 */
    uint64_t recompute_nanoseconds; /* of all its tokens; both sums are at most 2^62 */
} pst_swap_tensor;

/* What pst_swap_fill chose, and what it saves. */
typedef struct pst_swap_filled {
    uint64_t bytes;             /* swapped, at most the budget */
    uint64_t saved_nanoseconds; /* of recomputation, rounded down */
    uint64_t bound_nanoseconds; /* no choice of any parts within the budget saves more: the optimum
                                 * of the fractional knapsack (Dantzig 1957), rounded up */
    uint32_t num_whole;         /* tensors swapped whole */
    uint32_t fractional;        /* the one swapped in part, or UINT32_MAX */
} pst_swap_filled;

PST_BEGIN_DECLS

/* Fills in bytes and tokens. A layer keeps, in elements: its input, the norm's output, q, k, v,
 * attention's output, the residual and the second norm's output, micro_batch * sequence_size *
 * hidden_size each (8 in all), and both sides of the activation, micro_batch * sequence_size *
 * ffn_size each. This GPU has 1 / (tensor_parallel * context_parallel) of that, also of the
 * micro_batch * sequence_size tokens.
 * Fails: INVALID (a field; sequence not divisible; more than 2^62 bytes). */
PST_API pst_status pst_swap_model(const pst_swap_shape *shape, pst_swap_config *config);

/* "Impossible" is an answer, not a failure. Fails: INVALID (a field). */
PST_API pst_status pst_swap_choose_sized(const pst_swap_config *config, pst_swap_choice *choice_out,
                                         size_t choice_bytes);
static inline pst_status pst_swap_choose(const pst_swap_config *config, pst_swap_choice *choice_out)
{
    return pst_swap_choose_sized(config, choice_out, sizeof(pst_swap_choice));
}

/* Orders the tensors by recomputing time per byte, the earlier first among equals, and swaps whole
 * ones until one does not fit in what is left of the budget. Of that one goes the largest whole
 * number of token blocks that fits, and that ends it, so at most one tensor is cut. What costs no
 * time to recompute is not swapped.
 * tokens: num_tensors words, written: how many of its num_tokens tokens each tensor swaps.
 * Fails: INVALID, NOMEM. */
PST_API pst_status pst_swap_fill(const pst_swap_tensor *tensors, uint32_t num_tensors,
                                 uint64_t budget_bytes, uint64_t num_tokens, uint64_t block_tokens,
                                 uint64_t *tokens, pst_swap_filled *filled_out);

PST_END_DECLS

#endif
