/* Products that the device counts: a block takes one tile of D after the other, and skips those without
 * live rows. Its threads have 4 x 4 sums each, whose terms come through shared memory as float32: from the
 * first to the last, so that the bits are those of kernels/host/product.c. */
#ifndef PSTI_CUDA_PRODUCT_CUH
#define PSTI_CUDA_PRODUCT_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/product.h"

enum : uint32_t {
    kProductTile = 64,  /* rows and columns of a tile */
    kProductDepth = 16, /* terms at once */
    kProductSums = 4,   /* a thread has as many by as many */
    kProductRow = kProductTile / kProductSums,
    kProductParts = kProductRow * kProductRow, /* as many as a block has threads */
};

/* Rows of A, or columns of B, by terms. 4 more: not all in the same banks. */
struct product_terms {
    float at[kProductDepth][kProductTile + 4];
};

struct product_shared {
    product_terms a, b;
};

/* A factor: its lines are rows of A or columns of B. */
struct product_factor {
    const unsigned char *base;
    uint64_t line_stride, term_stride; /* bytes */
    uint32_t num_lines, num_terms;
};

/* One tile of D, of one expert. */
struct product_place {
    uint32_t expert, row, column;
    uint32_t num_rows, num_terms; /* live, of the expert */
};

/* Beyond the live lines and terms there is 0. Neighbouring threads take what lies side by side. */
template <uint32_t kDtype>
PSTI_DEVICE void take_terms(product_terms &to, const product_factor &from, uint32_t line,
                            uint32_t term)
{
    const bool by_line = from.line_stride < from.term_stride;
    for (uint32_t n = thread_of(); n < kProductTile * kProductDepth; n += num_threads()) {
        const uint32_t i = by_line ? n % kProductTile : n / kProductDepth;
        const uint32_t q = by_line ? n / kProductTile : n % kProductDepth;
        const bool is_live = line + i < from.num_lines && term + q < from.num_terms;
        const unsigned char *at =
            from.base + (line + i) * from.line_stride + (term + q) * from.term_stride;
        to.at[q][i] = is_live ? psti_product_get(at, kDtype) : 0.0f;
    }
}

PSTI_DEVICE void add_terms(const product_shared &shared, uint32_t row, uint32_t column,
                           float (&sums)[kProductSums][kProductSums])
{
#pragma unroll
    for (uint32_t q = 0; q < kProductDepth; q++) {
        float a[kProductSums], b[kProductSums];
#pragma unroll
        for (uint32_t i = 0; i < kProductSums; i++) {
            a[i] = shared.a.at[q][row + i];
            b[i] = shared.b.at[q][column + i];
        }
#pragma unroll
        for (uint32_t i = 0; i < kProductSums; i++)
#pragma unroll
            for (uint32_t j = 0; j < kProductSums; j++)
                sums[i][j] = psti_fma(a[i], b[j], sums[i][j]);
    }
}

PSTI_DEVICE void store_sums(const psti_product_args &args, const product_place &place, uint32_t row,
                            uint32_t column, const float (&sums)[kProductSums][kProductSums])
{
#pragma unroll
    for (uint32_t i = 0; i < kProductSums; i++)
#pragma unroll
        for (uint32_t j = 0; j < kProductSums; j++)
            if (place.row + row + i < place.num_rows && place.column + column + j < args.n)
                psti_product_store(&args, place.expert, place.row + row + i,
                                   place.column + column + j, sums[i][j]);
}

/* A block of fewer threads than parts goes through all terms several times. */
template <uint32_t kDtype>
PSTI_DEVICE void multiply_tile(const psti_product_args &args, const product_place &place,
                               product_shared &shared)
{
    const product_factor a = {psti_product_base(&args.a, place.expert), args.a.row_stride,
                              args.a.column_stride, place.num_rows, place.num_terms};
    const product_factor b = {psti_product_base(&args.b, place.expert), args.b.column_stride,
                              args.b.row_stride, args.n, place.num_terms};
    for (uint32_t first = 0; first < kProductParts; first += num_threads()) {
        const uint32_t part = first + thread_of();
        const uint32_t row = part / kProductRow * kProductSums;
        const uint32_t column = part % kProductRow * kProductSums;
        float sums[kProductSums][kProductSums] = {};
        for (uint32_t term = 0; term < place.num_terms; term += kProductDepth) {
            take_terms<kDtype>(shared.a, a, place.row, term);
            take_terms<kDtype>(shared.b, b, place.column, term);
            PSTI_SYNC_TEAM();
            if (part < kProductParts)
                add_terms(shared, row, column, sums);
            PSTI_SYNC_TEAM(); /* the shared memory is free again */
        }
        if (part < kProductParts)
            store_sums(args, place, row, column, sums);
    }
}

PSTI_FN_OF_LAUNCH uint64_t product_tiles(uint64_t size)
{
    return (size + kProductTile - 1) / kProductTile;
}

static inline uint64_t product_work(const psti_product_args *args)
{
    return args->num_experts * product_tiles(args->m) * product_tiles(args->n);
}

/* False where the tile has no live row. */
PSTI_DEVICE bool find_tile(const psti_product_args &args, uint64_t tile, product_place *place)
{
    const uint64_t columns = product_tiles(args.n), of_expert = columns * product_tiles(args.m);
    place->expert = (uint32_t)(tile / of_expert);
    place->row = (uint32_t)(tile % of_expert / columns) * kProductTile;
    place->column = (uint32_t)(tile % columns) * kProductTile;
    place->num_rows = psti_product_live(&args, place->expert, PST_LIVE_M, args.m);
    place->num_terms = psti_product_live(&args, place->expert, PST_LIVE_K, args.k);
    return place->row < place->num_rows;
}

PSTI_KERNEL(product_kernel, psti_product_args, args)
{
    PSTI_ASSUME_ONE_TEAM();
    PSTI_SHARED(product_shared, shared);
    product_place place;
    const uint64_t num_tiles = args.num_experts * product_tiles(args.m) * product_tiles(args.n);
    for (uint64_t tile = team_of(); tile < num_tiles; tile += num_teams()) {
        if (!find_tile(args, tile, &place))
            continue;
        if (args.dtype == PST_DTYPE_BF16)
            multiply_tile<PST_DTYPE_BF16>(args, place, shared);
        else if (args.dtype == PST_DTYPE_FP16)
            multiply_tile<PST_DTYPE_FP16>(args, place, shared);
        else
            multiply_tile<PST_DTYPE_FP32>(args, place, shared);
    }
}

#endif
