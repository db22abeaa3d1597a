/* How many pages steps wanted: a histogram in the pool's memory, 16 buckets per power of two, exact
 * below 32, and the quantiles that the status block shows. */
#ifndef PSTI_CORE_SKETCH_H
#define PSTI_CORE_SKETCH_H

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

#define PSTI_SKETCH_LAST (PSTI_SKETCH_BUCKETS - 1u)

/* Values that share their five leading binary digits share a bucket. Values of 2^32 and more are
 * in the last one; those of 2^32 - 1 and less end far below it. */
PSTI_FN uint32_t psti_sketch_bucket(uint64_t value)
{
    uint32_t shift = 0;
    if (value > UINT32_MAX)
        return PSTI_SKETCH_LAST;
    while (value >> shift >= 32)
        shift++;
    return shift * 16 + (uint32_t)(value >> shift);
}

/* The largest value of a bucket: at most 1/16 above the smallest. */
PSTI_FN uint64_t psti_sketch_upper(uint32_t bucket)
{
    if (bucket == PSTI_SKETCH_LAST)
        return UINT64_MAX;
    if (bucket < 32)
        return bucket;
    return ((uint64_t)(bucket % 16 + 17) << (bucket / 16 - 1)) - 1;
}

/* Stops counting a bucket rather than begin again at 0. */
PSTI_FN void psti_sketch_add(uint32_t *sketch, uint64_t value)
{
    uint32_t *counter = &sketch[psti_sketch_bucket(value)];
    *counter += *counter != UINT32_MAX;
}

/* The quantiles of the status block. */
PSTI_FN uint32_t psti_quantile_per_mille(uint32_t quantile)
{
    switch (quantile) {
    case 0:
        return 500;
    case 1:
        return 900;
    case 2:
        return 990;
    default:
        return 999;
    }
}

/* Of the quantiles of all `total` values writes those that lie in the buckets [first, end), before
 * which there are `below` values. demand_high_water must be that of the same values. */
PSTI_FN void psti_sketch_quantiles(const uint32_t *sketch, uint32_t first, uint32_t end,
                                   uint64_t below, uint64_t total, pst_pool_status *status)
{
    for (uint32_t bucket = first; bucket < end; bucket++) {
        const uint64_t upto = below + sketch[bucket];
        for (uint32_t i = 0; i < PSTI_QUANTILES && upto > below; i++) {
            const uint64_t rank = (total * psti_quantile_per_mille(i) + 999) / 1000;
            if (below < rank && rank <= upto)
                status->demand_quantiles[i] =
                    psti_min_u64(psti_sketch_upper(bucket), status->demand_high_water);
        }
        below = upto;
    }
}

#endif
