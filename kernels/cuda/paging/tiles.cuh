/* From tiles of a group's byte stream to bytes in memory.
 *
 * The stream of LIVE bytes is the one of pagestash/group.h. The stream of GAP bytes is built alike
 * from [live, dirty) of each segment: what a restore with zero-fill clears. */
#ifndef PSTI_CUDA_TILES_CUH
#define PSTI_CUDA_TILES_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/stream.h"

enum stream_kind { LIVE, GAP };

struct tile_plan {
    uint64_t tile_start[PSTI_MAX_TENSORS + 1];
    uint64_t extent[PSTI_MAX_TENSORS];             /* bytes of tensors that have one segment */
    uint64_t segment_start[PSTI_MAX_SEGMENTS + 1]; /* of one tensor, bytes in its stream */
};

/* counts: of the ticket, or NULL for the caller's own. */
PSTI_DEVICE int64_t count_of(const psti_space &space, uint32_t segment, const int64_t *counts)
{
    return counts ? counts[space.first_count + segment] : psti_user_count(&space, segment);
}

template <stream_kind kKind>
PSTI_DEVICE uint64_t extent_of(const psti_move_args &args, const psti_tensor &tensor,
                               uint32_t segment, const int64_t *counts)
{
    const psti_space &space = args.spaces[tensor.space];
    /* the counts were checked; should somebody change them meanwhile, this still stays in bounds */
    const uint64_t rows =
        psti_min_u64((uint64_t)count_of(space, segment, counts), (uint64_t)space.capacity);
    const uint64_t live = psti_tensor_bytes(&tensor, rows);
    if (kKind == LIVE)
        return live;
    const uint64_t dirty = psti_tensor_bytes(
        &tensor, psti_dirty_rows(args.dirty[space.first_count + segment], space.capacity));
    return dirty > live ? dirty - live : 0;
}

template <stream_kind kKind>
PSTI_DEVICE unsigned char *bytes_of(const psti_move_args &args, const psti_tensor &tensor,
                                    uint32_t segment, const int64_t *counts)
{
    unsigned char *base = psti_segment_base(&tensor, segment);
    return kKind == LIVE ? base : base + extent_of<LIVE>(args, tensor, segment, counts);
}

/* Fills plan.tile_start and plan.extent: a thread per tensor of one segment, a warp per tensor of
 * several, which sums them; then one warp scans. */
template <stream_kind kKind>
PSTI_DEVICE void plan_tiles(tile_plan &plan, const psti_move_args &args, const int64_t *counts)
{
    const uint32_t warp = threadIdx.x / PSTI_WARP;
    __syncthreads(); /* nobody reads the plan before this one any more */
    for (uint32_t t = threadIdx.x; t < args.num_tensors; t += blockDim.x) {
        const psti_tensor &tensor = args.tensors[t];
        if (args.spaces[tensor.space].num_segments > 1)
            continue;
        plan.extent[t] = extent_of<kKind>(args, tensor, 0, counts);
        plan.tile_start[t + 1] = psti_tiles_of(plan.extent[t]);
    }
    for (uint32_t t = warp; t < args.num_tensors; t += blockDim.x / PSTI_WARP) {
        const psti_tensor &tensor = args.tensors[t];
        const uint32_t num_segments = args.spaces[tensor.space].num_segments;
        uint64_t bytes = 0;
        if (num_segments == 1)
            continue;
        for (uint32_t s = lane_of(); s < num_segments; s += PSTI_WARP)
            bytes += psti_round_vector(extent_of<kKind>(args, tensor, s, counts));
        bytes = warp_sum(bytes);
        if (lane_of() == 0)
            plan.tile_start[t + 1] = psti_tiles_of(bytes);
    }
    __syncthreads();
    if (warp == 0) {
        const uint32_t t = 2 * lane_of();
        const uint64_t first = t < args.num_tensors ? plan.tile_start[t + 1] : 0;
        const uint64_t second = t + 1 < args.num_tensors ? plan.tile_start[t + 2] : 0;
        const uint64_t end = warp_inclusive_scan(first + second);
        plan.tile_start[t + 1] = end - second;
        plan.tile_start[t + 2] = end;
        if (t == 0)
            plan.tile_start[0] = 0;
    }
    __syncthreads();
}

PSTI_DEVICE uint64_t num_tiles_of(const tile_plan &plan)
{
    return plan.tile_start[PSTI_MAX_TENSORS];
}

template <stream_kind kKind>
PSTI_DEVICE void plan_segments(tile_plan &plan, block_scratch &scratch, const psti_move_args &args,
                               const psti_tensor &tensor, const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    uint64_t done = 0;
    __syncthreads(); /* nobody reads the tensor before this one any more */
    for (uint32_t first = 0; first < num_segments; first += blockDim.x) {
        const uint32_t s = first + threadIdx.x;
        uint64_t bytes = 0;
        uint64_t all;
        if (s < num_segments)
            bytes = psti_round_vector(extent_of<kKind>(args, tensor, s, counts));
        const uint64_t before = block_exclusive_scan(scratch, bytes, &all);
        if (s < num_segments)
            plan.segment_start[s] = done + before;
        done += all;
    }
    if (threadIdx.x == 0)
        plan.segment_start[num_segments] = done;
    __syncthreads();
}

/* The segment that holds byte `position` of the tensor's stream, which is inside it. */
PSTI_DEVICE uint32_t segment_at(const tile_plan &plan, uint32_t num_segments, uint64_t position)
{
    uint32_t low = 0;
    uint32_t high = num_segments; /* start[low] <= position < start[high] */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (plan.segment_start[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

PSTI_DEVICE uint64_t bytes_left(uint64_t extent, uint64_t offset)
{
    return extent > offset ? extent - offset : 0;
}

/* A mover that asks for asynchronous copies gets up to this many runs of one tile; more are copied
 * vector by vector. */
#define PSTI_MAX_RUNS 8u

template <stream_kind kKind, class Mover>
PSTI_DEVICE void move_runs(const Mover &move, const tile_plan &plan, const psti_move_args &args,
                           const psti_tensor &tensor, uint64_t low, uint32_t first, uint32_t last,
                           const int64_t *counts)
{
    for (uint32_t s = first; s <= last; s++) {
        const uint64_t from = psti_max_u64(plan.segment_start[s], low);
        const uint64_t to = psti_min_u64(plan.segment_start[s + 1], low + PSTI_TILE_BYTES);
        const uint64_t offset = from - plan.segment_start[s];
        const uint64_t left = bytes_left(extent_of<kKind>(args, tensor, s, counts), offset);
        if (to > from)
            move.run(bytes_of<kKind>(args, tensor, s, counts) + offset, (uint32_t)(from - low),
                     (uint32_t)psti_min_u64(left, to - from));
    }
}

/* Hands one tile to the mover: run(rows, offset in the tile, bytes) by the whole block where the
 * tile is one run of memory, else piece(rows, offset in the tile, bytes <= 16) by single threads. */
template <stream_kind kKind, class Mover>
PSTI_DEVICE void move_tile(const Mover &move, const tile_plan &plan, const psti_move_args &args,
                           const psti_tensor &tensor, uint64_t low, const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    if (num_segments == 1) {
        const uint64_t left = bytes_left(plan.extent[&tensor - args.tensors], low);
        move.run(bytes_of<kKind>(args, tensor, 0, counts) + low, 0,
                 (uint32_t)psti_min_u64(left, PSTI_TILE_BYTES));
        return;
    }
    uint32_t segment = segment_at(plan, num_segments, low);
    const uint64_t start = plan.segment_start[segment];
    const uint64_t end = plan.segment_start[segment + 1];
    if (end >= low + PSTI_TILE_BYTES || end >= plan.segment_start[num_segments]) {
        const uint64_t left =
            bytes_left(extent_of<kKind>(args, tensor, segment, counts), low - start);
        move.run(bytes_of<kKind>(args, tensor, segment, counts) + (low - start), 0,
                 (uint32_t)psti_min_u64(left, PSTI_TILE_BYTES));
        return;
    }
    const uint64_t all = plan.segment_start[num_segments];
    if (Mover::kAsync) {
        const uint32_t last =
            segment_at(plan, num_segments, psti_min_u64(low + PSTI_TILE_BYTES, all) - 1);
        if (last - segment < PSTI_MAX_RUNS) {
            move_runs<kKind>(move, plan, args, tensor, low, segment, last, counts);
            return;
        }
    }
#pragma unroll 1
    for (uint32_t at = threadIdx.x * PSTI_VECTOR_BYTES; at < PSTI_TILE_BYTES;
         at += blockDim.x * PSTI_VECTOR_BYTES) {
        if (low + at >= all)
            break;
        segment = segment_at(plan, num_segments, low + at);
        const uint64_t offset = low + at - plan.segment_start[segment];
        const uint64_t left = bytes_left(extent_of<kKind>(args, tensor, segment, counts), offset);
        move.piece(bytes_of<kKind>(args, tensor, segment, counts) + offset, at,
                   (uint32_t)psti_min_u64(left, PSTI_VECTOR_BYTES));
    }
}

#define PSTI_BOTH_TIERS ((1u << PSTI_TIER_DEVICE) | (1u << PSTI_TIER_HOST))
#define PSTI_HOST_SMS 8u /* more do not make the link faster */

/* The tiles that are a block's: first, first + stride, ..., as far as they lie in these tiers
 * (bits). */
struct tile_share {
    uint32_t first, stride, tiers;
};

PSTI_DEVICE tile_share share_of_all()
{
    return {blockIdx.x, gridDim.x, PSTI_BOTH_TIERS};
}

/* Of a ticket with so many pages, of which so many on the host. The link is slower than memory
 * by far: the first blocks, on a few SMs, take all host pages, and the others all device pages. */
PSTI_DEVICE tile_share share_of(const psti_move_args &args, uint64_t pages, uint64_t host_pages)
{
    if (host_pages == 0)
        return share_of_all();
    const uint32_t sms = args.num_sms ? args.num_sms : args.all_sms;
    const bool mixed = host_pages < pages;
    const uint64_t few = psti_max_u64((uint64_t)gridDim.x * PSTI_HOST_SMS / sms, PSTI_HOST_SMS);
    const uint32_t linked = (uint32_t)psti_min_u64(few, mixed ? gridDim.x / 2 : gridDim.x);
    if (linked == 0)
        return share_of_all();
    if (blockIdx.x < linked)
        return {blockIdx.x, linked, mixed ? 1u << PSTI_TIER_HOST : PSTI_BOTH_TIERS};
    return {blockIdx.x - linked, gridDim.x - linked, mixed ? 1u << PSTI_TIER_DEVICE : 0};
}

/* Every tile of the plan that is this block's. source.find says where in the pool a tile lies, 0
 * for nowhere or in another tier: lookups depend on each other and take long, so the lanes of
 * each warp make them for the block's next 32 tiles at once. source.mover makes the mover of
 * what was found. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_tiles(const Source &source, const tile_share &share, tile_plan &plan,
                            block_scratch &scratch, const psti_move_args &args,
                            const int64_t *counts)
{
    const uint32_t num_tiles = (uint32_t)num_tiles_of(plan); /* groups have at most 2^31 */
    uint32_t t = 0;
    uint32_t planned = PSTI_MAX_TENSORS;
    uint32_t turn = 0;
    uint64_t found = 0; /* of tile number lane_of() of 32 */
    for (uint32_t tile = share.first; tile < num_tiles && share.tiers;
         tile += share.stride, turn++) {
        if (turn % PSTI_WARP == 0) {
            const uint32_t mine = tile + lane_of() * share.stride;
            found = mine < num_tiles ? source.find(mine, share.tiers) : 0;
        }
        const uint64_t place = psti_shuffle_u64(found, turn % PSTI_WARP);
        while (tile >= plan.tile_start[t + 1])
            t++;
        const psti_tensor &tensor = args.tensors[t];
        if (args.spaces[tensor.space].num_segments > 1 && planned != t) {
            plan_segments<kKind>(plan, scratch, args, tensor, counts);
            planned = t;
        }
        if (place) /* warps may disagree when operations overlap: no barrier hangs on it */
            move_tile<kKind>(source.mover(place), plan, args, tensor,
                             (tile - plan.tile_start[t]) << PSTI_TILE_SHIFT, counts);
    }
}

#endif
