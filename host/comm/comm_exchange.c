/* What an exchange of threads moves and sums. Each rank writes its own memory alone. */
#include "host/comm/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/core/float.h"

enum { BLOCK = 1024 }; /* elements that are summed at once */

/* ---- do they fit together ---- */

static const char *kind_name(pst_exchange_kind kind)
{
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce",
                                        "all-to-all-v", "shift"};
    return names[kind];
}

static const char *dtype_name(pst_dtype dtype)
{
    static const char *const names[] = {"bf16", "fp16", "fp32", "int32", "byte"};
    return names[dtype];
}

static bool differ(const pst_exchange *a, const pst_exchange *b)
{
    return a->kind != b->kind || a->dtype != b->dtype || a->reduction != b->reduction ||
           a->count != b->count;
}

bool psti_exchanges_differ(const pst_exchange *const *all, int num_ranks, char *why, size_t bytes)
{
    const pst_exchange *first = all[0];
    for (int r = 1; r < num_ranks; r++)
        if (differ(first, all[r])) {
            snprintf(why, bytes,
                     "rank 0 has %s of %" PRIu64 " %s, reduction %d, rank %d has %s of %" PRIu64
                     " %s, reduction %d",
                     kind_name(first->kind), first->count, dtype_name(first->dtype),
                     (int)first->reduction, r, kind_name(all[r]->kind), all[r]->count,
                     dtype_name(all[r]->dtype), (int)all[r]->reduction);
            return true;
        }
    for (int from = 0; first->kind == PST_EXCHANGE_ALL_TO_ALL_V && from < num_ranks; from++)
        for (int to = 0; to < num_ranks; to++)
            if (all[from]->send_counts[to] != all[to]->receive_counts[from]) {
                snprintf(why, bytes,
                         "rank %d sends %" PRIu64 " elements to rank %d, which receives %" PRIu64,
                         from, all[from]->send_counts[to], to, all[to]->receive_counts[from]);
                return true;
            }
    return false;
}

/* ---- sums ---- */

static void load(float *to, const unsigned char *from, uint64_t num, pst_dtype dtype)
{
    if (dtype == PST_DTYPE_FP32) {
        memcpy(to, from, num * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < num; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof(bits));
        to[i] = dtype == PST_DTYPE_BF16 ? psti_bf16_to_float(bits) : psti_half_to_float(bits);
    }
}

static void store(unsigned char *to, const float *from, uint64_t num, pst_dtype dtype)
{
    if (dtype == PST_DTYPE_FP32) {
        memcpy(to, from, num * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < num; i++) {
        const uint16_t bits =
            dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(from[i]) : psti_float_to_half(from[i]);
        memcpy(to + 2 * i, &bits, sizeof(bits));
    }
}

static void add_floats(float *to, const float *with, uint64_t num, pst_reduction reduction)
{
    for (uint64_t i = 0; i < num; i++) {
        const float a = to[i], b = with[i];
        to[i] = reduction == PST_REDUCE_SUM   ? a + b
                : reduction == PST_REDUCE_MIN ? (b < a ? b : a)
                                              : (b > a ? b : a);
    }
}

static void add_integers(int32_t *to, const int32_t *with, uint64_t num, pst_reduction reduction)
{
    for (uint64_t i = 0; i < num; i++) {
        const int32_t a = to[i], b = with[i];
        to[i] = reduction == PST_REDUCE_SUM   ? (int32_t)((uint32_t)a + (uint32_t)b)
                : reduction == PST_REDUCE_MIN ? (b < a ? b : a)
                                              : (b > a ? b : a);
    }
}

static const unsigned char *element(const pst_exchange *of, uint64_t i)
{
    return (const unsigned char *)of->from + i * psti_dtype_bytes(of->dtype);
}

static void reduce_floats(const pst_exchange *const *all, int num_ranks, uint64_t first,
                          uint64_t num, unsigned char *to)
{
    float sum[BLOCK], term[BLOCK];
    load(sum, element(all[0], first), num, all[0]->dtype);
    for (int r = 1; r < num_ranks; r++) {
        load(term, element(all[r], first), num, all[0]->dtype);
        add_floats(sum, term, num, all[0]->reduction);
    }
    store(to, sum, num, all[0]->dtype);
}

static void reduce_integers(const pst_exchange *const *all, int num_ranks, uint64_t first,
                            uint64_t num, unsigned char *to)
{
    int32_t sum[BLOCK], term[BLOCK];
    memcpy(sum, element(all[0], first), num * sizeof(sum[0]));
    for (int r = 1; r < num_ranks; r++) {
        memcpy(term, element(all[r], first), num * sizeof(term[0]));
        add_integers(sum, term, num, all[0]->reduction);
    }
    memcpy(to, sum, num * sizeof(sum[0]));
}

/* Elements [first, first + num) of all ranks' `from`, in the order of the ranks, rounded once. */
static void reduce(const pst_exchange *const *all, int num_ranks, uint64_t first, uint64_t num,
                   unsigned char *to)
{
    const bool is_whole = all[0]->dtype == PST_DTYPE_INT32;
    for (uint64_t done = 0; done < num; done += BLOCK) {
        const uint64_t n = num - done < BLOCK ? num - done : BLOCK;
        unsigned char *at = to + done * psti_dtype_bytes(all[0]->dtype);
        (is_whole ? reduce_integers : reduce_floats)(all, num_ranks, first + done, n, at);
    }
}

/* ---- the kinds ---- */

static void copy(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

/* The part of an all-reduce that a rank sums. */
static uint64_t part_begin(uint64_t count, int num_ranks, int rank)
{
    return count / (uint64_t)num_ranks * (uint64_t)rank +
           count % (uint64_t)num_ranks * (uint64_t)rank / (uint64_t)num_ranks;
}

static void all_to_all(const pst_exchange *const *all, int num_ranks, int rank)
{
    const pst_exchange *mine = all[rank];
    const uint64_t size = psti_dtype_bytes(mine->dtype);
    for (int r = 0; r < num_ranks; r++)
        copy((unsigned char *)mine->to + mine->receive_offsets[r] * size,
             (const unsigned char *)all[r]->from + all[r]->send_offsets[rank] * size,
             mine->receive_counts[r] * size);
}

void psti_exchange_first(const pst_exchange *const *all, int num_ranks, int rank)
{
    const pst_exchange *mine = all[rank];
    const uint64_t size = psti_dtype_bytes(mine->dtype), bytes = mine->count * size;
    unsigned char *to = mine->to;
    switch (mine->kind) {
    case PST_EXCHANGE_ALL_GATHER:
        for (int r = 0; r < num_ranks; r++)
            copy(to + (uint64_t)r * bytes, all[r]->from, bytes);
        break;
    case PST_EXCHANGE_REDUCE_SCATTER:
        reduce(all, num_ranks, (uint64_t)rank * mine->count, mine->count, to);
        break;
    case PST_EXCHANGE_ALL_REDUCE: { /* each its part: nobody else reads that of this rank */
        const uint64_t begin = part_begin(mine->count, num_ranks, rank);
        const uint64_t end = part_begin(mine->count, num_ranks, rank + 1);
        reduce(all, num_ranks, begin, end - begin, to + begin * size);
        break;
    }
    case PST_EXCHANGE_ALL_TO_ALL_V:
        all_to_all(all, num_ranks, rank);
        break;
    case PST_EXCHANGE_SHIFT:
        copy(to, all[(rank + num_ranks - 1) % num_ranks]->from, bytes);
        break;
    }
}

void psti_exchange_second(const pst_exchange *const *all, int num_ranks, int rank)
{
    const pst_exchange *mine = all[rank];
    const uint64_t size = psti_dtype_bytes(mine->dtype);
    for (int r = 0; mine->kind == PST_EXCHANGE_ALL_REDUCE && r < num_ranks; r++) {
        const uint64_t begin = part_begin(mine->count, num_ranks, r);
        const uint64_t end = part_begin(mine->count, num_ranks, r + 1);
        if (r != rank)
            copy((unsigned char *)mine->to + begin * size,
                 (const unsigned char *)all[r]->to + begin * size, (end - begin) * size);
    }
}
