/* The walk over a team's tiles. */
#ifndef PSTI_CUDA_WALK_CUH
#define PSTI_CUDA_WALK_CUH

#include "kernels/cuda/paging/apart.cuh"

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

/* The same where some warps ask for copies: the first one plans the next 32 tiles meanwhile. It alone has the say
 * whose a page is that stands twice in a damaged ring. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void ask_plain(Source &source, const move_shared &s, const psti_move_args &args,
                           const int64_t *counts)
{
    planned_tiles *tables = source.copier.planned();
    const uint32_t end = num_tiles_of(s.plan), step = PSTI_WARP * s.share.stride;
#pragma unroll 1
    for (uint32_t turn = 0, tile = s.share.first;; turn++, tile += step) {
        planned_tiles &next = tables[turn % 2];
        if (tile < end && thread_of() < PSTI_WARP) {
            const uint32_t lane = lane_of();
            const tile_job job = plan_job<kKind, false>(source, s.share, s.plan, args, counts,
                                                        tile + lane * s.share.stride);
            next.batch.found[lane] = job.place;
            next.runs.rows[lane] = job.rows;
            next.runs.places[lane] = run_place({job.rows, job.bytes, 0}, lane);
            if (lane == 0)
                next.batch.num_runs = PSTI_WARP;
        }
        if (turn)
            ask_runs(source, tables[(turn + 1) % 2]);
        if (tile >= end)
            break;
        PSTI_SYNC_TEAM();
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

/* By the helper: the single bytes of runs n and n + 1, if they are runs: what is loaded of them now is stored when
 * they are lifted. */
struct edges_ahead {
    run_edges edges[2];

    template <class Copier>
    PSTI_DEVICE_METHOD void load(const Copier &copier, uint32_t n, uint32_t num)
    {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const odd_run odd = copier.odd_at(n + i);
            if (i < num && odd.bytes)
                edges[i].load(odd.run, odd.from, odd.bytes);
        }
    }
    template <class Copier>
    PSTI_DEVICE_METHOD void store(const Copier &copier, uint32_t n, uint32_t num) const
    {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const odd_run odd = copier.odd_at(n + i);
            if (i < num && odd.bytes)
                edges[i].store(odd.run, odd.to, odd.bytes);
        }
    }
};

/* By the first warp, for walk_stages: has runs brought to stages, each lane those of its tiles. */
template <stream_kind kKind, class Source> struct run_bringer {
    Source &source;
    const move_shared &s;
    const psti_move_args &args;
    const int64_t *counts;
    tile_job job;  /* of one of 32 tiles */
    uint32_t left; /* lanes whose job is to be brought */
    uint32_t tile; /* first of the next 32 */
    uint32_t brought;

    /* Up to run number `end`; where there are no more tiles these are none. */
    PSTI_DEVICE_METHOD void bring(uint32_t end)
    {
        const uint32_t lane = lane_of(), stride = s.share.stride;
#pragma unroll 1
        while (brought < end) {
            const bool is_last = left == 0 && tile >= num_tiles_of(s.plan);
            if (left == 0 && !is_last) {
                job = plan_job<kKind, true>(source, s.share, s.plan, args, counts,
                                            tile + lane * stride);
                left = psti_ballot(job.bytes != 0);
                tile += PSTI_WARP * stride;
                continue;
            }
            const uint32_t lanes = is_last ? ~0u : left;
            const uint32_t n = brought + psti_popcount(lanes & ((1u << lane) - 1));
            const bool is_mine = lanes >> lane & 1;
            if (is_mine && n < end) {
                if (is_last)
                    source.copier.bring_none(n);
                else
                    source.bring(n, job.place, job.rows, job.bytes);
            }
            brought = (uint32_t)psti_min_u64(end, brought + psti_popcount(lanes));
            left = is_last ? 0 : psti_ballot(is_mine && n >= end);
        }
    }
};

/* The same by stages of shared memory: the first warp has them brought, a few tiles ahead, and the others lift
 * them, each group one. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void walk_stages(Source &source, const move_shared &s, const psti_move_args &args,
                             const int64_t *counts)
{
    const lifting_warp me = lifting_warp_of();
    run_bringer<kKind, Source> bringer = {source, s, args, counts, {0, 0, 0}, 0, s.share.first, 0};
    edges_ahead edges = {{{0, 0}, {0, 0}}};
    source.copier.open_odd();
#pragma unroll 1
    for (uint32_t lifted = 0;; lifted += me.groups) {
        if (thread_of() < PSTI_WARP)
            bringer.bring(lifted + source.copier.kMostBrought);
        if (lifted == 0) {
            PSTI_SYNC_TEAM();
            if (is_helper())
                edges.load(source.copier, 0, me.groups);
        }
        if (thread_of() < me.groups)
            source.copier.await(lifted + thread_of());
        PSTI_SYNC_TEAM();
        const odd_run mine = source.copier.odd_at(lifted + me.group);
        if (source.copier.odd_at(lifted).bytes == 0)
            break;
        if (is_helper()) {
            edges.store(source.copier, lifted, me.groups);
            edges.load(source.copier, lifted + me.groups, me.groups);
        }
        if (me.number < me.warps && mine.bytes)
            source.copier.lift(me, lifted + me.group, mine);
    }
    if (s.plan.num_apart < num_tiles_of(s.plan) || args.odd != args.apart)
        source.copier.close_odd();
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
        if (s.plan.num_apart < num_tiles_of(s.plan)) {
            plain_tiles<kKind> tiles = {s, args, counts, {0, 0, 0}};
            if constexpr (Source::kAsks)
                ask_plain<kKind>(source, s, args, counts);
            else
                walk_runs(source, tiles, s.share.first);
        }
        if (s.plan.num_apart == 0)
            return;
    }
    if constexpr (Source::kShifts) {
        if constexpr (!Source::kLifts)
            if (args.odd)
                walk_odd<kKind>(source, s, args, counts);
        if (args.odd == args.apart)
            return;
    }
    walk_apart<kKind>(source, s, args, counts);
}

#endif
