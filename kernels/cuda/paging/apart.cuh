/* Runs of memory, one after the other: begun and ended by the whole team, or asked for by some of its warps. And the
 * tiles that are not one run each, one tensor after another: the runs of some are looked up before, 32 at a time. */
#ifndef PSTI_CUDA_APART_CUH
#define PSTI_CUDA_APART_CUH

#include "kernels/cuda/paging/odd.cuh"

/* What there is to do for one tile that is one run of memory. */
struct tile_job {
    uint64_t place; /* in the pool */
    uint64_t rows;  /* where it lies */
    uint32_t bytes; /* 0: nothing to do */
};

PSTI_DEVICE tile_job shuffle_job(const tile_job &job, uint32_t lane)
{
    return {psti_shuffle_u64(job.place, lane), psti_shuffle_u64(job.rows, lane),
            psti_shuffle_u32(job.bytes, lane)};
}

/* What `tiles` has from number `tile` on, as far as it is runs: each is begun, and ended when the next one
 * is known: loads fly meanwhile. */
template <class Source, class Tiles>
PSTI_DEVICE void walk_runs(Source &source, Tiles &tiles, uint32_t tile)
{
    tile_job now = {0, 0, 0};
    for (uint32_t turn = 0;; turn++) {
        typename Source::held held;
        const tile_job job = now;
        held.clear();
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

/* Of a run in one word: its bytes, at most a tile, where in the tile it begins, a multiple of 16, and the number of
 * the tile. */
PSTI_DEVICE uint32_t run_place(const memory_run &run, uint32_t number)
{
    return number << 26 | run.in / PSTI_VECTOR_BYTES << 16 | run.bytes;
}
#define PSTI_NO_RUN (1u << 15) /* a place without one */
static_assert(PSTI_TILE_BYTES < PSTI_NO_RUN && PSTI_TILE_BYTES / PSTI_VECTOR_BYTES <= 1u << 10,
              "bits of run_place");

/* What there is to do for it, where its tile is found. */
PSTI_DEVICE tile_job run_job(const tile_batch &batch, uint32_t place, uint64_t rows)
{
    const uint64_t found = batch.found[place >> 26];
    return {found + (place >> 16) % 1024 * PSTI_VECTOR_BYTES, rows,
            found ? place % PSTI_NO_RUN : 0};
}

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
        return run_job(batch, place, runs.rows[number]);
    }
};

/* By one warp, each lane for one of the batch's tiles from number `first` on: where the runs of memory are that
 * make them up, of as many tiles as there is room for. Tiles that are not made of aligned runs have none; those of
 * odd ones, where they are few, are not among the others. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_batch_runs(tile_batch &batch, tile_runs &runs, const move_shared &s,
                                 const psti_move_args &args, const uint64_t *starts,
                                 const int64_t *counts, uint32_t t, uint32_t batch_tile,
                                 uint32_t first)
{
    const psti_tensor &tensor = args.tensors[t];
    const uint32_t number = first + lane_of();
    const uint32_t tile = batch_tile + number * s.share.stride;
    tile_rest rest = {0, 0, 0};
    memory_run run = {0, 0, 0};
    uint32_t num = 0;
    const bool is_odd = has_odd_runs<Source>(args, t);
    const uint32_t crowded = is_odd ? crowded_tiles(starts, s, args, t, tile) : 0;
    if (!is_odd && number < PSTI_WARP && tile < s.plan.tile_start[t + 1]) {
        rest = rest_of_tile(starts, s.plan, args, tensor, low_of_tile(s.plan, t, tile));
        run = next_run<kKind>(rest, starts, s.plan, args, tensor, counts);
        const uint32_t segment = rest.segment;
#pragma unroll 1
        for (memory_run next = run; next.bytes && num <= PSTI_MOST_RUNS; num++)
            next = next_run<kKind>(rest, starts, s.plan, args, tensor, counts);
        rest.segment = segment;
        num = num > PSTI_MOST_RUNS ? 0 : num;
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
    if (Source::kAsks && in_runs >> lane_of() == 1)
        batch.num_runs = end;
    if (with_room >> lane_of() == 1) {
        batch.first = first;
        batch.end = number + 1;
        batch.others = is_odd ? crowded : (with_room & ~in_runs) << first;
        if (Source::kAsks && in_runs == 0)
            batch.num_runs = 0;
    }
}

/* By the first warp, each lane for one of the team's 32 tiles of tensor t from `tile` on: where in the pool they
 * are. Of the first `known` ones that has been found: they are the last ones of `before`. */
template <class Source>
PSTI_DEVICE void find_batch(tile_batch &batch, const tile_batch &before, uint32_t known,
                            const Source &source, const move_shared &s, const psti_move_args &args,
                            uint32_t t, uint32_t tile)
{
    const uint32_t mine = tile + lane_of() * s.share.stride;
    uint64_t place = 0;
    if (lane_of() < known)
        place = before.found[PSTI_WARP - known + lane_of()];
    else if (mine < s.plan.tile_start[t + 1])
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

/* By the whole team: looks 32 of its tiles of tensor t up, those from `tile` on, and where the runs are of some of
 * them, from number `first` on; where that is not 0 the tiles are known. Two warps wait for memory side by side where
 * there are two. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_apart(const Source &source, move_shared &s, const psti_move_args &args,
                            const uint64_t *starts, const int64_t *counts, uint32_t t,
                            uint32_t tile, uint32_t first)
{
    PSTI_SYNC_TEAM(); /* nobody reads those before these any more */
    if (first == 0 && thread_of() < PSTI_WARP)
        find_batch(s.plan.batch, s.plan.batch, 0, source, s, args, t, tile);
    if constexpr (Source::kHasApartRuns)
        if (is_helper_anew())
            plan_batch_runs<kKind, Source>(s.plan.batch, *source.runs(), s, args, starts, counts, t,
                                           tile, first);
    PSTI_SYNC_TEAM();
}

/* Those that are not made of runs. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_others(const tile_batch &batch, Source &source, const move_shared &s,
                             const psti_move_args &args, const uint64_t *starts,
                             const int64_t *counts)
{
#pragma unroll 1
    for (uint32_t number = Source::kHasApartRuns ? batch.first : 0;
         number < (Source::kHasApartRuns ? batch.end : PSTI_WARP); number++) {
        const uint32_t others =
            (Source::kHasApartRuns ? batch.moved & batch.others : batch.moved) >> number;
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
            else
                move_odd<kKind>(s.plan.batch, source, s, args, starts, counts);
        }
        move_others<kKind>(s.plan.batch, source, s, args, starts, counts);
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

/* The runs of `now` that this warp asks for, if it is one of those that ask. */
template <class Source> PSTI_DEVICE void ask_runs(Source &source, const planned_tiles &now)
{
    const asking_warp &me = source.copier.asker;
    if (!me.asks)
        return;
    const uint32_t num = now.batch.num_runs;
    tile_job jobs = {0, 0, 0}; /* of run number lane_of() */
    if (lane_of() < num)
        jobs = run_job(now.batch, now.runs.places[lane_of()], now.runs.rows[lane_of()]);
#pragma unroll 1
    for (uint32_t number = me.number; number < num; number += me.num) {
        const tile_job job = shuffle_job(jobs, number);
        if (job.bytes)
            source.ask(job.place, job.rows, job.bytes);
    }
}

/* The team's 32 tiles of tensor t from `tile` on, without meeting: the runs by the helper, where they are in the pool
 * by the first warp, which has that of the first `known` ones from `before`. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void plan_ahead(planned_tiles &next, const planned_tiles &before, const Source &source,
                            const move_shared &s, const psti_move_args &args,
                            const uint64_t *starts, const int64_t *counts, uint32_t t,
                            uint32_t tile, uint32_t known)
{
    if (is_helper())
        plan_batch_runs<kKind, Source>(next.batch, next.runs, s, args, starts, counts, t, tile, 0);
    if (thread_of() < PSTI_WARP)
        find_batch(next.batch, before.batch, known, source, s, args, t, tile);
}

/* The same as walk_tensor where some warps ask for copies: others plan what is next meanwhile. */
template <stream_kind kKind, class Source>
PSTI_DEVICE uint32_t walk_ahead(Source &source, const move_shared &s, const psti_move_args &args,
                                const uint64_t *starts, const int64_t *counts, uint32_t t,
                                uint32_t tile)
{
    planned_tiles *tables = source.copier.planned();
    PSTI_SYNC_TEAM(); /* nobody reads those of the tensor before any more */
    plan_ahead<kKind>(tables[0], tables[1], source, s, args, starts, counts, t, tile, 0);
#pragma unroll 1
    for (uint32_t turn = 0; tile < s.plan.tile_start[t + 1]; turn++) {
        PSTI_SYNC_TEAM();
        const planned_tiles &now = tables[turn % 2];
        if (now.batch.num_runs == 0)
            move_odd<kKind>(now.batch, source, s, args, starts, counts);
        t = now.batch.tensor; /* again: registers are short */
        tile = now.batch.tile + now.batch.end * s.share.stride;
        if (tile < s.plan.tile_start[t + 1])
            plan_ahead<kKind>(tables[(turn + 1) % 2], now, source, s, args, starts, counts, t, tile,
                              PSTI_WARP - now.batch.end);
        ask_runs(source, now);
        move_others<kKind>(now.batch, source, s, args, starts, counts);
        t = now.batch.tensor;
        tile = now.batch.tile + now.batch.end * s.share.stride;
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
        if constexpr (Source::kAsks)
            t = walk_ahead<kKind>(source, s, args, starts, counts, t, tile);
        else
            t = walk_tensor<kKind>(source, s, args, starts, counts, t, tile);
    }
}

#endif
