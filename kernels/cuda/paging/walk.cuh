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

/* Of a run in one word: its bytes, at most a tile, where in the tile it begins, a multiple of 16, and the number of
 * the tile. */
PSTI_DEVICE uint32_t run_place(const memory_run &run, uint32_t number)
{
    return number << 26 | run.in / PSTI_VECTOR_BYTES << 16 | run.bytes;
}
#define PSTI_NO_RUN (1u << 15) /* a place without one */
static_assert(PSTI_TILE_BYTES < PSTI_NO_RUN && PSTI_TILE_BYTES / PSTI_VECTOR_BYTES <= 1u << 10,
              "bits of run_place");

/* The runs that plan_batch_runs has looked up, for walk_runs. */
struct planned_runs {
    const tile_batch &batch;
    const tile_runs &runs;
    uint32_t next; /* place of the next one, loaded one ahead: where its tile is follows from it */
    bool at_end;

    template <class Source> PSTI_DEVICE_METHOD void plan(const Source &, uint32_t) const
    {
    }
    PSTI_DEVICE_METHOD bool is_end(uint32_t) const
    {
        return at_end;
    }
    PSTI_DEVICE_METHOD uint32_t stride() const
    {
        return 1;
    }
    PSTI_DEVICE_METHOD tile_job job(uint32_t number)
    {
        const uint32_t place = next;
        at_end = place == 0;
        if (at_end)
            return {0, 0, 0};
        next = runs.places[number + 1];
        const uint64_t found = batch.found[place >> 26];
        return {found + (place >> 16) % 1024 * PSTI_VECTOR_BYTES, runs.rows[number],
                found ? place % PSTI_NO_RUN : 0};
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
}

/* Where the tile of tensor t begins in the tensor's stream. */
PSTI_DEVICE uint64_t low_of_tile(const tile_plan &plan, uint32_t t, uint32_t tile)
{
    return (uint64_t)(tile - plan.tile_start[t]) << PSTI_TILE_SHIFT;
}

/* By one warp, each lane for one of the batch's tiles from number `first` on: where the runs of memory are that
 * make them up, of as many tiles as there is room for. Tiles that are not made of aligned runs have none. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_batch_runs(const Source &source, move_shared &s, const psti_move_args &args,
                                 const uint64_t *starts, const int64_t *counts, uint32_t t,
                                 uint32_t batch_tile, uint32_t first)
{
    const psti_tensor &tensor = args.tensors[t];
    const uint32_t number = first + lane_of();
    const uint32_t tile = batch_tile + number * s.share.stride;
    tile_runs &runs = *source.runs();
    tile_rest rest = {0, 0, 0};
    memory_run run = {0, 0, 0};
    uint32_t num = 0;
    if (number < PSTI_WARP && tile < s.plan.tile_start[t + 1]) {
        rest = rest_of_tile(starts, s.plan, args, tensor, low_of_tile(s.plan, t, tile));
        run = next_run<kKind>(rest, starts, s.plan, args, tensor, counts);
        const uint32_t segment = rest.segment;
        uint32_t odd = 0;
#pragma unroll 1
        for (memory_run next = run; next.bytes && num <= PSTI_WARP; num++) {
            odd |= (uint32_t)next.rows;
            next = next_run<kKind>(rest, starts, s.plan, args, tensor, counts);
        }
        rest.segment = segment;
        if (num > PSTI_WARP || (!Source::kTakesAnyAddress && odd % PSTI_VECTOR_BYTES != 0))
            num = 0;
    }
    const bool one_each = !psti_any(num > 1);
    const uint32_t end =
        one_each ? lane_of() + 1 : (uint32_t)warp_inclusive_scan(num); /* of their places */
    const bool has_room = number < PSTI_WARP && end <= PSTI_WARP;
    const uint32_t with_room = psti_ballot(has_room);
    const uint32_t in_runs = psti_ballot(num && has_room);
#pragma unroll 1
    for (uint32_t at = end - num; has_room && at < end; at++) {
        runs.rows[at] = run.rows;
        runs.places[at] = run_place(run, number);
        if (at + 1 < end)
            run = next_run<kKind>(rest, starts, s.plan, args, tensor, counts);
    }
    if (one_each && num == 0)
        runs.places[lane_of()] = in_runs >> lane_of() ? PSTI_NO_RUN : 0;
    if (in_runs >> lane_of() == 1 && (!one_each || end == PSTI_WARP)) /* else the next lane did */
        runs.places[end] = 0;
    if (with_room >> lane_of() == 1) {
        s.plan.batch.first = first;
        s.plan.batch.end = number + 1;
        s.plan.batch.in_runs = in_runs << first;
    }
}

/* By the whole team: looks 32 of its tiles of tensor t up, those from `tile` on, and where the runs are of some of
 * them, from number `first` on; where that is not 0 the tiles are known. Two warps wait for memory side by side where
 * there are two. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_apart(const Source &source, move_shared &s, const psti_move_args &args,
                            const uint64_t *starts, const int64_t *counts, uint32_t t,
                            uint32_t tile, uint32_t first)
{
    tile_batch &batch = s.plan.batch;
    const uint32_t mine = tile + lane_of() * s.share.stride;
    PSTI_SYNC_TEAM(); /* nobody reads those before these any more */
    if constexpr (Source::kHasApartRuns)
        if (is_helper())
            plan_batch_runs<kKind>(source, s, args, starts, counts, t, tile, first);
    if (first == 0 && thread_of() < PSTI_WARP) {
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
        }
    }
    PSTI_SYNC_TEAM();
}

/* Those that are not made of runs. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_others(Source &source, const move_shared &s, const psti_move_args &args,
                             const uint64_t *starts, const int64_t *counts)
{
    const tile_batch &batch = s.plan.batch;
#pragma unroll 1
    for (uint32_t number = Source::kHasApartRuns ? batch.first : 0;
         number < (Source::kHasApartRuns ? batch.end : PSTI_WARP); number++) {
        const uint32_t others =
            (Source::kHasApartRuns ? batch.moved & ~batch.in_runs : batch.moved) >> number;
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
    for (uint32_t first = 0; tile < s.plan.tile_start[t + 1];) {
        plan_apart<kKind>(source, s, args, starts, counts, t, tile, first);
        if constexpr (Source::kHasApartRuns) {
            planned_runs runs = {s.plan.batch, *source.runs(), source.runs()->places[0], false};
            if (runs.next)
                walk_runs(source, runs, 0);
        }
        move_others<kKind>(source, s, args, starts, counts);
        t = s.plan.batch.tensor;
        tile = s.plan.batch.tile;
        first = Source::kHasApartRuns ? s.plan.batch.end : PSTI_WARP;
        if (first == PSTI_WARP) {
            tile += PSTI_WARP * s.share.stride;
            first = 0;
        }
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
