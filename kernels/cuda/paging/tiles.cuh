/* From tiles of a group's byte stream to bytes in memory.
 *
 * The stream of LIVE bytes is the one of pagestash/group.h: NEW where the caller's counts say what is
 * live, KEPT where the ticket's do. The stream of GAP bytes is built alike from rows [live, dirty) of
 * each segment: what a restore clears. */
#ifndef PSTI_CUDA_TILES_CUH
#define PSTI_CUDA_TILES_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/sums.cuh"

#include "kernels/core/stream.h"

enum stream_kind { NEW, KEPT, GAP };

struct tile_plan {
    uint64_t tile_start[PSTI_MAX_TENSORS + 1];
    uint64_t extent[PSTI_MAX_TENSORS];             /* bytes of tensors that have one segment */
    uint64_t segment_start[PSTI_MAX_SEGMENTS + 1]; /* of one tensor, bytes in its stream */
    count_sums sums;                               /* of the caller's counts */
};

/* counts: of the ticket; of GAP bytes NULL: nothing is live, and all up to the capacity is dirty. */
template <stream_kind kKind>
PSTI_DEVICE int64_t count_of(const tile_plan &plan, const psti_move_args &args, uint32_t space,
                             uint32_t segment, const int64_t *counts)
{
    if (kKind == NEW)
        return caller_count(plan.sums, args.spaces, space, segment);
    return counts[args.spaces[space].first_count + segment];
}

/* Rows of the tensor that are live. */
template <stream_kind kKind>
PSTI_DEVICE uint64_t live_rows(const tile_plan &plan, const psti_move_args &args,
                               const psti_tensor &tensor, uint32_t segment, const int64_t *counts)
{
    /* the counts were checked; should somebody change them meanwhile, this still stays in bounds */
    const uint64_t rows =
        psti_min_u64((uint64_t)count_of<kKind>(plan, args, tensor.space, segment, counts),
                     (uint64_t)args.spaces[tensor.space].capacity);
    return psti_tensor_rows(&tensor, rows);
}

PSTI_DEVICE uint64_t dirty_rows(const psti_move_args &args, const psti_tensor &tensor,
                                uint32_t segment, const int64_t *counts)
{
    const psti_space &space = args.spaces[tensor.space];
    uint64_t rows = (uint64_t)space.capacity;
    if (counts && args.dirty && !(args.flags & PSTI_MOVE_ZERO_ALL))
        rows = psti_dirty_rows(args.dirty[space.first_count + segment], space.capacity);
    return tensor.base ? psti_tensor_rows(&tensor, rows) : 0;
}

template <stream_kind kKind>
PSTI_DEVICE uint64_t extent_of(const tile_plan &plan, const psti_move_args &args,
                               const psti_tensor &tensor, uint32_t segment, const int64_t *counts)
{
    if (kKind != GAP)
        return live_rows<kKind>(plan, args, tensor, segment, counts) * tensor.row_bytes;
    const uint64_t live = counts ? live_rows<kKind>(plan, args, tensor, segment, counts) : 0;
    const uint64_t dirty = dirty_rows(args, tensor, segment, counts);
    return dirty > live ? (dirty - live) * tensor.row_bytes : 0;
}

template <stream_kind kKind>
PSTI_DEVICE unsigned char *bytes_of(const tile_plan &plan, const psti_move_args &args,
                                    const psti_tensor &tensor, uint32_t segment,
                                    const int64_t *counts)
{
    unsigned char *base = psti_segment_base(&tensor, segment);
    if (kKind != GAP || !counts)
        return base;
    return base + live_rows<kKind>(plan, args, tensor, segment, counts) * tensor.row_stride;
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
        plan.extent[t] = extent_of<kKind>(plan, args, tensor, 0, counts);
        plan.tile_start[t + 1] = psti_tiles_of(plan.extent[t]);
    }
    for (uint32_t t = warp; t < args.num_tensors; t += blockDim.x / PSTI_WARP) {
        const psti_tensor &tensor = args.tensors[t];
        const uint32_t num_segments = args.spaces[tensor.space].num_segments;
        uint64_t bytes = 0;
        if (num_segments == 1)
            continue;
        for (uint32_t s = lane_of(); s < num_segments; s += PSTI_WARP)
            bytes += psti_round_vector(extent_of<kKind>(plan, args, tensor, s, counts));
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
            bytes = psti_round_vector(extent_of<kKind>(plan, args, tensor, s, counts));
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

/* A mover that asks for asynchronous copies gets up to this many runs of one tile, and of rows
 * with gaps one more; more are copied vector by vector. */
#define PSTI_MAX_RUNS 8u

/* By one thread: at most 16 bytes, of one row or several. */
template <class Mover>
PSTI_DEVICE void move_vector(const Mover &move, const psti_tensor &tensor, unsigned char *rows,
                             uint64_t offset, uint32_t at, uint32_t bytes)
{
    if (psti_is_packed(&tensor)) {
        move.piece(rows + offset, at, bytes);
        return;
    }
    const bool is_narrow = (offset | tensor.row_bytes) >> 32 == 0; /* which is faster by far */
    const uint64_t row =
        is_narrow ? (uint32_t)offset / (uint32_t)tensor.row_bytes : offset / tensor.row_bytes;
    uint64_t skip = offset - row * tensor.row_bytes;
    rows += row * tensor.row_stride;
    while (bytes) {
        const uint32_t piece = (uint32_t)psti_min_u64(bytes, tensor.row_bytes - skip);
        move.piece(rows + skip, at, piece);
        at += piece;
        bytes -= piece;
        rows += tensor.row_stride;
        skip = 0;
    }
}

/* By the whole block: moves bytes from position `at` of the tensor's stream on, which are in the tile
 * that begins at `low`, as far as one call goes. Returns where to go on. */
template <stream_kind kKind, class Mover>
PSTI_DEVICE uint64_t move_some(const Mover &move, const tile_plan &plan, const psti_move_args &args,
                               const psti_tensor &tensor, uint64_t low, uint64_t at, uint64_t high,
                               const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint32_t s = num_segments > 1 ? segment_at(plan, num_segments, at) : 0;
    const uint64_t offset = num_segments > 1 ? at - plan.segment_start[s] : at;
    uint32_t bytes = (uint32_t)(high - at);
    if (num_segments > 1)
        bytes = (uint32_t)psti_min_u64(
            bytes, bytes_left(extent_of<kKind>(plan, args, tensor, s, counts), offset));
    /* should the counts change meanwhile, this still ends */
    const uint64_t next = bytes ? psti_round_vector(at + bytes) : high;
    unsigned char *rows = bytes_of<kKind>(plan, args, tensor, s, counts);
    if (!Mover::kHasRows || psti_is_packed(&tensor)) {
        move.run(rows + offset, (uint32_t)(at - low), bytes);
        return next;
    }
    const uint64_t row = offset / tensor.row_bytes;
    const uint64_t skip = offset - row * tensor.row_bytes;
    rows += row * tensor.row_stride;
    if (tensor.row_bytes < PSTI_TILE_BYTES / (Mover::kAsync ? PSTI_MAX_RUNS : 1)) {
        move.rows({rows, tensor.row_stride, (uint32_t)tensor.row_bytes, (uint32_t)skip},
                  (uint32_t)(at - low), bytes);
        return next;
    }
    const uint32_t run = (uint32_t)psti_min_u64(bytes, tensor.row_bytes - skip);
    move.run(rows + skip, (uint32_t)(at - low), run);
    return run < bytes ? at + run : next;
}

/* Whether the block moves the bytes [low, high) of the tensor's stream together. */
template <class Mover>
PSTI_DEVICE bool moves_together(const tile_plan &plan, const psti_tensor &tensor,
                                uint32_t num_segments, uint64_t low, uint64_t high)
{
    if (!Mover::kHasRows && !psti_is_packed(&tensor))
        return false;
    if (num_segments == 1)
        return true;
    const uint32_t first = segment_at(plan, num_segments, low);
    const uint32_t most = Mover::kAsync ? PSTI_MAX_RUNS : 1;
    return segment_at(plan, num_segments, high - 1) - first < most;
}

/* Hands one tile to the mover: run(rows, offset in the tile, bytes) by the whole block where the
 * tile is one run of memory, rows(span, offset, bytes) where it is rows of one segment with gaps and
 * the mover kHasRows, else piece(rows, offset in the tile, bytes <= 16) by single threads. */
template <stream_kind kKind, class Mover>
PSTI_DEVICE void move_tile(const Mover &move, const tile_plan &plan, const psti_move_args &args,
                           const psti_tensor &tensor, uint64_t low, const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint64_t all =
        num_segments > 1 ? plan.segment_start[num_segments] : plan.extent[&tensor - args.tensors];
    const uint64_t high = psti_min_u64(low + PSTI_TILE_BYTES, all);
    if (moves_together<Mover>(plan, tensor, num_segments, low, high)) {
#pragma unroll 1
        for (uint64_t at = low; at < high;)
            at = move_some<kKind>(move, plan, args, tensor, low, at, high, counts);
        return;
    }
#pragma unroll 1
    for (uint32_t in = threadIdx.x * PSTI_VECTOR_BYTES; low + in < high;
         in += blockDim.x * PSTI_VECTOR_BYTES) {
        const uint64_t at = low + in;
        uint32_t s = 0;
        uint64_t offset = at;
        uint64_t left = high - at;
        if (num_segments > 1) {
            s = segment_at(plan, num_segments, at);
            offset -= plan.segment_start[s];
            left = bytes_left(extent_of<kKind>(plan, args, tensor, s, counts), offset);
        }
        move_vector(move, tensor, bytes_of<kKind>(plan, args, tensor, s, counts), offset, in,
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
        if (tensor.base &&
            place) /* warps may disagree when operations overlap: no barrier hangs on it */
            move_tile<kKind>(source.mover(place), plan, args, tensor,
                             (tile - plan.tile_start[t]) << PSTI_TILE_SHIFT, counts);
    }
}

#endif
