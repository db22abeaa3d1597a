/* The walk over a team's tiles. */
#ifndef PSTI_CUDA_WALK_CUH
#define PSTI_CUDA_WALK_CUH

#include "kernels/cuda/paging/protocol.cuh"
#include "kernels/cuda/paging/runs.cuh"

/* What there is to do for one tile that is one run of memory. */
struct tile_job {
    uint64_t place; /* in the pool */
    uint64_t rows;  /* where it lies */
    uint32_t bytes; /* 0: nothing to do */
};

/* Lookups depend on each other and take long, so the lanes of each warp make those of the team's
 * next 32 tiles at once. */
template <stream_kind kKind, bool kIsOdd, class Source>
PSTI_DEVICE tile_job plan_job(const Source &source, const tile_share &share, const tile_plan &plan,
                              const psti_move_args &args, const int64_t *counts, uint32_t tile)
{
    tile_job job = {0, 0, 0};
    if (tile >= num_tiles_of(plan))
        return job;
    const uint32_t t = tensor_of_tile(plan, tile);
    const psti_tensor &tensor = args.tensors[t];
    if (source.skips(t) || (kIsOdd ? !lies_odd(args, t) : lies_apart(args, t)))
        return job;
    job.place = source.find(tile, share.tiers);
    if (job.place == 0 || tensor.base == NULL)
        return job;
    const uint64_t low = (uint64_t)(tile - plan.tile_start[t]) << PSTI_TILE_SHIFT;
    job.rows = (uint64_t)(bytes_of<kKind>(plan, args, tensor, 0, counts) + low);
    job.bytes = (uint32_t)psti_min_u64(plan.extent[t] - low, PSTI_TILE_BYTES);
    return job;
}

PSTI_DEVICE tile_job shuffle_job(const tile_job &job, uint32_t lane)
{
    return {psti_shuffle_u64(job.place, lane), psti_shuffle_u64(job.rows, lane),
            psti_shuffle_u32(job.bytes, lane)};
}

/* Tiles that are one run: each is begun, and ended when the next one is known: loads fly meanwhile. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_runs(Source &source, const move_shared &s, const psti_move_args &args,
                           const int64_t *counts)
{
    const tile_share &share = s.share;
    const tile_plan &plan = s.plan;
    tile_job jobs = {0, 0, 0}; /* of tile number lane_of() of 32 */
    tile_job now = {0, 0, 0};
    uint32_t tile = share.first;
    for (uint32_t turn = 0;; turn++) {
        typename Source::held held = {};
        const tile_job job = now;
        if (job.bytes)
            source.begin(held, job.place, job.rows, job.bytes);
        if (turn % PSTI_WARP == 0)
            jobs = plan_job<kKind, false>(source, share, plan, args, counts,
                                          tile + lane_of() * share.stride);
        now = shuffle_job(jobs, turn % PSTI_WARP);
        if (job.bytes)
            source.end(held, job.place, job.rows, job.bytes);
        if (tile >= num_tiles_of(plan))
            break;
        tile += share.stride;
    }
}

/* Tiles that are one run each, at any address. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_odd(Source &source, const move_shared &s, const psti_move_args &args,
                          const int64_t *counts)
{
    const tile_share &share = s.share;
    const tile_plan &plan = s.plan;
    tile_job jobs = {0, 0, 0}; /* of tile number lane_of() of 32 */
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t tile = share.first; tile < num_tiles_of(plan); tile += share.stride, turn++) {
        if (turn % PSTI_WARP == 0)
            jobs = plan_job<kKind, true>(source, share, plan, args, counts,
                                         tile + lane_of() * share.stride);
        const tile_job job = shuffle_job(jobs, turn % PSTI_WARP);
        if (job.bytes)
            source.shift(job.place, job.rows, job.bytes);
    }
}

/* By one warp: looks the team's next 32 tiles up. */
template <class Source>
PSTI_DEVICE void find_apart(const Source &source, move_shared &s, const psti_move_args &args,
                            uint32_t tile)
{
    tile_plan &plan = s.plan;
    const uint32_t mine = tile + lane_of() * s.share.stride;
    if (mine >= num_tiles_of(plan))
        return;
    const uint32_t t = tensor_of_tile(plan, mine);
    plan.tensor_of[lane_of()] = t;
    const bool is_odd = Source::kShifts && lies_odd(args, t);
    const bool is_other = lies_apart(args, t) && !is_odd && !source.skips(t);
    plan.found[lane_of()] = !Source::kHasRuns || is_other ? source.find(mine, s.share.tiers) : 0;
}

/* The other tiles, or all of them. What is known of the next 32 is in shared memory: registers are
 * short. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_apart(Source &source, move_shared &s, const psti_move_args &args,
                            const int64_t *counts)
{
    tile_plan &plan = s.plan;
    uint64_t *starts = segment_table<Source::kRingBytes>(args);
    uint32_t planned = PSTI_MAX_TENSORS;
    uint32_t turn = 0;
    for (uint32_t tile = s.share.first; tile < num_tiles_of(plan); tile += s.share.stride, turn++) {
        const uint32_t lane = turn % PSTI_WARP;
        if (lane == 0) {
            PSTI_SYNC_TEAM();
            if (thread_of() < PSTI_WARP)
                find_apart(source, s, args, tile);
            PSTI_SYNC_TEAM();
        }
        const uint32_t t = plan.tensor_of[lane];
        const psti_tensor &tensor = args.tensors[t];
        if (args.spaces[tensor.space].num_segments > 1 && planned != t) {
            plan_segments<kKind>(starts, plan, s.scratch, args, tensor, counts);
            planned = t;
        }
        if (tensor.base && plan.found[lane]) {
            auto mover = source.mover(plan.found[lane]);
            move_tile<kKind>(mover, starts, plan, args, tensor,
                             (uint64_t)(tile - plan.tile_start[t]) << PSTI_TILE_SHIFT, counts);
        }
    }
}

/* Every tile of the plan that is this team's. source.find says where in the pool a tile lies, 0
 * for nowhere or in another tier. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_tiles(Source &source, move_shared &s, const psti_move_args &args,
                            const int64_t *counts)
{
    if (s.share.tiers == 0)
        return;
    if constexpr (Source::kHasRuns) {
        if (s.plan.num_apart < num_tiles_of(s.plan))
            walk_runs<kKind>(source, s, args, counts);
        if (s.plan.num_apart == 0)
            return;
    }
    if constexpr (Source::kShifts) {
        if (args.odd)
            walk_odd<kKind>(source, s, args, counts);
        if (args.odd == args.apart)
            return;
    }
    walk_apart<kKind>(source, s, args, counts);
}

#endif
