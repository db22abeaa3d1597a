/* One budget for all of a GPU's memory: how many pages on the device, how many on the host, and how
 * many tokens to swap, so that everything fits and the least crosses the link.
 *
 *   |static arena|rounding buffers|pool|reserve|spare...
 *   0                                          end_bytes   gpu_bytes
 *
 * Two things can give way. A pool with D device pages and H host pages spills what an iteration
 * needs above D; and swapping k of N tokens of the dense layers shortens the static arena. With the
 * demand d_i of iteration i, all at most total_pages = D + H:
 *
 *   fixed(k)  = k > 0 ? swap_fixed_bytes : 0                    what goes whole if anything goes
 *   arena(k)  = static_bytes - fixed(k) - floor(swap_frees_bytes * k / N)
 *   swap(k)   = fixed(k) + ceil(swap_bytes * k / N)            per iteration, out and in again
 *   spill(D)  = page_bytes * sum over i of max(0, d_i - D)     over all iterations, likewise
 *   GPU:        arena(k) + (k > 0 ? 2 * swap_buffer_bytes : 0) + pst_pool_bytes(D, H)
 *               + reserve_bytes, each aligned, <= gpu_bytes
 *   host:       swap(k) + H * page_bytes <= host_bytes
 *   minimise    2 * (spill(D) + num_demands * swap(k))
 *
 * over k = whole token blocks within [min_tokens, max_tokens] and D = 1..total_pages; fewer tokens
 * first among equals, then more device pages. The answer is exact.
 *
 * Pure arithmetic. Threads: any.
 */
#ifndef PAGESTASH_MEMORY_MAP_H
#define PAGESTASH_MEMORY_MAP_H

#include <pagestash/pool.h>

#define PST_MEMORY_MAP_MAX_BLOCKS 65536 /* token blocks */
#define PST_MEMORY_MAP_NEVER UINT64_MAX /* in missing_ fields */

/* What a region of the GPU's memory is for, in the order of addresses. */
typedef enum pst_region_kind {
    PST_REGION_STATIC = 0,    /* the arena of the static plan */
    PST_REGION_SWAP_BUFFER_0, /* the first rounding buffer */
    PST_REGION_SWAP_BUFFER_1, /* the second rounding buffer */
    PST_REGION_POOL,          /* pages and what describes them */
    PST_REGION_RESERVE,       /* what is left to others */
    PST_NUM_REGIONS           /* how many kinds there are */
} pst_region_kind;

#define PST_MAX_REGIONS 8 /* never changes */

/* Frozen. */
typedef struct pst_region {
    uint64_t offset, bytes; /* bytes 0: there is none */
} pst_region;

/* What there is of memory, and what wants it. */
typedef struct pst_memory_map_config {
    size_t struct_size;
    uint64_t gpu_bytes;           /* all that may be used, reserve included */
    uint64_t host_bytes;          /* 0: none; all byte fields are at most 2^61 */
    uint64_t static_bytes;        /* the static plan's peak, nothing swapped */
    uint64_t reserve_bytes;       /* left to others: the framework, NCCL, tickets, ... */
    uint64_t align;               /* of regions, a power of two, 256 to 2^30; 0: 512 */
    const pst_pool_config *pool;  /* page_bytes, mode, max_tickets; its numbers of pages are not
                                  * looked at. NULL: no pool */
    const uint64_t *demand_pages; /* the high-water mark of each iteration of a trace, both tiers
                                   * together; or just one, such as a quantile of them */
    uint32_t num_demands;         /* at least 1 with a pool, 0 without */
    uint64_t total_pages; /* that both tiers hold together, 1 to 2^31 - 1. 0: the largest demand */
    uint64_t swap_fixed_bytes; /* of the static arena, swapped whole if any token is */
    uint64_t swap_bytes;       /* that leave and come back per iteration if all tokens are swapped;
                           * 0: nothing can be */
    uint64_t
        swap_frees_bytes; /* of the static arena, if all tokens are; with the fixed ones at most
                                * static_bytes */
    uint64_t swap_buffer_bytes; /* of each of the two rounding buffers */
    uint64_t num_tokens;   /* 0 if and only if swap_bytes is: nothing is swapped; at most 2^61 */
    uint64_t block_tokens; /* at most 65536 blocks; 0: 1 */
    uint64_t min_tokens, max_tokens; /* of pst_swap_choose; a max_tokens of 0: num_tokens */
} pst_memory_map_config;

#define PST_MEMORY_MAP_CONFIG_INIT PST_INIT(pst_memory_map_config)

/* Where everything lies, and what it costs. */
typedef struct pst_memory_map {
    bool fits;                           /* if not, only the missing_ fields are set */
    pst_region regions[PST_MAX_REGIONS]; /* PST_NUM_REGIONS are used */
    uint64_t end_bytes, spare_bytes;     /* together gpu_bytes */
    uint64_t num_pages, num_host_pages;  /* of the pool, on the device and on the host */
    uint64_t num_tokens;                 /* swapped */
    uint64_t swap_bytes;                 /* out per iteration, and in */
    uint64_t spill_pages;                /* of all iterations given */
    uint32_t spilling_iterations;        /* that spill at all */
    uint64_t host_bytes;                 /* taken */
    uint64_t traffic_bytes;              /* both ways, mean of an iteration, rounded up */
    /* More of this memory alone that would do, the least; PST_MEMORY_MAP_NEVER: no amount does. */
    uint64_t missing_gpu_bytes, missing_host_bytes;
} pst_memory_map;

PST_BEGIN_DECLS

/* "Does not fit" is an answer, not a failure. Fails: INVALID (a field), NOMEM. */
PST_API pst_status pst_memory_map_make_sized(const pst_memory_map_config *config,
                                             pst_memory_map *map_out, size_t map_bytes);
static inline pst_status pst_memory_map_make(const pst_memory_map_config *config,
                                             pst_memory_map *map_out)
{
    return pst_memory_map_make_sized(config, map_out, sizeof(pst_memory_map));
}

/* "static", "swap buffer 0", ...; static text. */
PST_API const char *pst_memory_map_region_name(pst_region_kind kind);

PST_END_DECLS

#endif
