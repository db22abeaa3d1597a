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

/* Tiles of all tensors that do not lie apart, for walk_runs. */
template <stream_kind kKind> struct plain_tiles {
    const move_shared &s;
    const psti_move_args &args;
    const int64_t *counts;
    tile_job jobs; /* of tile number lane_of() of 32 */

    template <class Source> PSTI_DEVICE_METHOD void plan(const Source &source, uint32_t tile)
    {
        jobs = plan_job<kKind, false>(source, s.share, s.plan, args, counts,
                                      tile + lane_of() * s.share.stride);
    }
    PSTI_DEVICE_METHOD bool is_end(uint32_t tile) const
    {
        return tile >= num_tiles_of(s.plan);
    }
    PSTI_DEVICE_METHOD uint32_t stride() const
    {
        return s.share.stride;
    }
    PSTI_DEVICE_METHOD tile_job job(uint32_t number) const
    {
        return shuffle_job(jobs, number);
    }
};

/* The tiles that plan_apart has looked up, for walk_runs. */
struct planned_tiles {
    const tile_batch &batch;
    const tile_runs &runs;

    template <class Source> PSTI_DEVICE_METHOD void plan(const Source &, uint32_t) const
    {
    }
    PSTI_DEVICE_METHOD bool is_end(uint32_t number) const
    {
        return number == PSTI_WARP || (batch.moved & batch.runs) >> number == 0;
    }
    PSTI_DEVICE_METHOD uint32_t stride() const
    {
        return 1;
    }
    PSTI_DEVICE_METHOD tile_job job(uint32_t number) const
    {
        const uint32_t bytes = batch.moved >> number & 1 ? runs.bytes[number] : 0;
        return {batch.found[number], runs.rows[number], bytes};
    }
};

/* What `tiles` has from number `tile` on, as far as it is runs: each is begun, and ended when the next one
 * is known: loads fly meanwhile. */
template <class Source, class Tiles>
PSTI_DEVICE void walk_runs(Source &source, Tiles &tiles, uint32_t tile)
{
    tile_job now = {0, 0, 0};
    for (uint32_t turn = 0;; turn++) {
        typename Source::held held = {};
        const tile_job job = now;
        if (job.bytes)
            source.begin(held, job.place, job.rows, job.bytes);
        if (turn % PSTI_WARP == 0)
            tiles.plan(source, tile);
        now = tiles.job(turn % PSTI_WARP);
        if (job.bytes)
            source.end(held, job.place, job.rows, job.bytes);
        if (tiles.is_end(tile))
            break;
        tile += tiles.stride();
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

/* The same by stages of shared memory: the first warp has them brought, a few tiles ahead, and the
 * others lift them. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_stages(Source &source, const move_shared &s, const psti_move_args &args,
                             const int64_t *counts)
{
    const tile_share &share = s.share;
    const uint32_t end = num_tiles_of(s.plan);
    tile_job jobs = {0, 0, 0}; /* of tile number lane_of() of 32 */
    uint32_t tile = share.first, turn = 0, brought = 0;
    source.copier.open_odd();
#pragma unroll 1
    for (uint32_t lifted = 0;; lifted++) {
        if (thread_of() < PSTI_WARP) {
#pragma unroll 1
            for (; tile < end && brought - lifted < source.copier.kMostBrought;
                 tile += share.stride, turn++) {
                if (turn % PSTI_WARP == 0)
                    jobs = plan_job<kKind, true>(source, share, s.plan, args, counts,
                                                 tile + lane_of() * share.stride);
                const tile_job job = shuffle_job(jobs, turn % PSTI_WARP);
                if (job.bytes && lane_of() == 0)
                    source.bring(brought, job.place, job.rows, job.bytes);
                brought += job.bytes ? 1 : 0;
            }
            if (lane_of() == 0 && brought == lifted)
                source.copier.stop(brought);
            if (lane_of() == 0)
                source.copier.await(lifted);
        }
        PSTI_SYNC_TEAM();
        if (source.copier.is_end(lifted))
            break;
        if (thread_of() >= PSTI_WARP || num_threads() == PSTI_WARP)
            source.copier.lift(lifted);
    }
}

/* Where the tile of tensor t begins in the tensor's stream. */
PSTI_DEVICE uint64_t low_of_tile(const tile_plan &plan, uint32_t t, uint32_t tile)
{
    return (uint64_t)(tile - plan.tile_start[t]) << PSTI_TILE_SHIFT;
}

/* By one warp, each lane for its tile of tensor t: where it is in memory, if that is one run. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_batch_runs(const Source &source, move_shared &s, const psti_move_args &args,
                                 const uint64_t *starts, const int64_t *counts, uint32_t t,
                                 uint32_t tile)
{
    memory_run run = {0, 0};
    if (tile < s.plan.tile_start[t + 1])
        run = run_of_tile<kKind>(starts, s.plan, args, args.tensors[t],
                                 low_of_tile(s.plan, t, tile), counts);
    if (!Source::kTakesAnyAddress && run.rows % PSTI_VECTOR_BYTES != 0)
        run.bytes = 0;
    source.runs()->rows[lane_of()] = run.rows;
    source.runs()->bytes[lane_of()] = run.bytes;
    const uint32_t runs = psti_ballot(run.bytes != 0);
    if (lane_of() == 0)
        s.plan.batch.runs = runs;
}

/* By the whole team: looks its next tiles of tensor t up, from `tile` on. Two warps wait for memory side
 * by side where there are two. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_apart(const Source &source, move_shared &s, const psti_move_args &args,
                            const uint64_t *starts, const int64_t *counts, uint32_t t,
                            uint32_t tile)
{
    tile_batch &batch = s.plan.batch;
    const uint32_t mine = tile + lane_of() * s.share.stride;
    PSTI_SYNC_TEAM(); /* nobody reads the tiles before these any more */
    if constexpr (Source::kHasApartRuns)
        if (is_helper())
            plan_batch_runs<kKind>(source, s, args, starts, counts, t, mine);
    if (thread_of() < PSTI_WARP) {
        uint64_t place = 0;
        if (mine < s.plan.tile_start[t + 1])
            place = source.find(mine, s.share.tiers);
        if (args.tensors[t].base == NULL)
            place = 0;
        const uint32_t moved = psti_ballot(place != 0);
        batch.found[lane_of()] = place;
        if (lane_of() == 0) {
            batch.tensor = t;
            batch.tile = tile;
            batch.moved = moved;
            if (!Source::kHasApartRuns)
                batch.runs = 0;
        }
    }
    PSTI_SYNC_TEAM();
}

/* Those that are not one run of memory. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_others(Source &source, const move_shared &s, const psti_move_args &args,
                             const uint64_t *starts, const int64_t *counts)
{
    const tile_batch &batch = s.plan.batch;
#pragma unroll 1
    for (uint32_t number = 0; number < PSTI_WARP; number++) {
        const uint32_t others = (batch.moved & ~batch.runs) >> number;
        if (others == 0)
            break;
        if (others % 2 == 0)
            continue;
        auto mover = source.mover(batch.found[number]);
        const uint32_t tile = batch.tile + number * s.share.stride;
        move_tile<kKind>(mover, starts, s.plan, args, args.tensors[batch.tensor],
                         low_of_tile(s.plan, batch.tensor, tile), counts);
    }
}

/* The team's first tile that is not below `tile`. */
PSTI_DEVICE uint32_t tile_from(const tile_share &share, uint32_t tile)
{
    if (tile <= share.first)
        return share.first;
    return share.first + ((tile - share.first - 1) / share.stride + 1) * share.stride;
}

/* The team's tiles of tensor t, from `tile` on, 32 at a time. What is known of those is in shared memory,
 * also where in the walk the team is: registers are short. Returns t. */
template <stream_kind kKind, class Source>
PSTI_DEVICE uint32_t walk_tensor(Source &source, move_shared &s, const psti_move_args &args,
                                 const uint64_t *starts, const int64_t *counts, uint32_t t,
                                 uint32_t tile)
{
#pragma unroll 1
    while (tile < s.plan.tile_start[t + 1]) {
        plan_apart<kKind>(source, s, args, starts, counts, t, tile);
        if constexpr (Source::kHasApartRuns) {
            planned_tiles tiles = {s.plan.batch, *source.runs()};
            if (!tiles.is_end(0))
                walk_runs(source, tiles, 0);
        }
        move_others<kKind>(source, s, args, starts, counts);
        t = s.plan.batch.tensor;
        tile = s.plan.batch.tile + PSTI_WARP * s.share.stride;
    }
    return t;
}

/* The other tiles, or all of them, one tensor after another: there is one table of segments. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_apart(Source &source, move_shared &s, const psti_move_args &args,
                            const int64_t *counts)
{
    uint64_t *starts = segment_table<Source::kRingBytes>(args);
#pragma unroll 1
    for (uint32_t t = 0; t < args.num_tensors; t++) {
        const bool is_odd = Source::kShifts && lies_odd(args, t);
        const bool is_other = lies_apart(args, t) && !is_odd && !source.skips(t);
        const uint32_t tile = tile_from(s.share, s.plan.tile_start[t]);
        if ((Source::kHasRuns && !is_other) || tile >= s.plan.tile_start[t + 1])
            continue;
        if (args.spaces[args.tensors[t].space].num_segments > 1)
            plan_segments<kKind>(starts, s.plan, s.scratch, args, args.tensors[t], counts);
        t = walk_tensor<kKind>(source, s, args, starts, counts, t, tile);
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
    if constexpr (Source::kLifts) /* first: while the ring is empty */
        if (args.odd)
            walk_stages<kKind>(source, s, args, counts);
    if constexpr (Source::kHasRuns) {
        plain_tiles<kKind> tiles = {s, args, counts, {0, 0, 0}};
        if (s.plan.num_apart < num_tiles_of(s.plan))
            walk_runs(source, tiles, s.share.first);
        if (s.plan.num_apart == 0)
            return;
    }
    if constexpr (Source::kShifts) {
        if (args.odd && !Source::kLifts)
            walk_odd<kKind>(source, s, args, counts);
        if (args.odd == args.apart)
            return;
    }
    walk_apart<kKind>(source, s, args, counts);
}

#endif
