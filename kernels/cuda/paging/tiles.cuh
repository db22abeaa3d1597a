/* From tiles of a group's byte stream to bytes in memory.
 *
 * The stream of LIVE bytes is the one of pagestash/group.h: NEW where the caller's counts say what
 * is live, KEPT where the ticket's do. The stream of GAP bytes is built alike from rows [live,
 * dirty) of each segment: what a restore clears. */
#ifndef PSTI_CUDA_TILES_CUH
#define PSTI_CUDA_TILES_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/sums.cuh"

#include "kernels/core/pool.h"
#include "kernels/core/stream.h"

enum stream_kind { NEW, KEPT, GAP };

/* Up to 32 tiles of one tensor that are looked up at once: `tile` and those that the team has next. */
struct tile_batch {
    uint64_t found[PSTI_WARP]; /* in the pool */
    uint32_t tensor, tile;
    uint32_t moved;      /* a bit for each that is to be moved */
    uint32_t first, end; /* numbers of those that are next */
    uint32_t others;     /* of these a bit for each whose runs of memory are not known */
    uint32_t num_runs;   /* where some warps ask for them */
};

/* Of a team's warps one that asks for copies, or not. */
struct asking_warp {
    bool asks;
    uint32_t number, num; /* of those that do */
};

/* With their runs. */
struct planned_tiles {
    tile_batch batch;
    tile_runs runs;
};

struct tile_plan {
    uint64_t extent[PSTI_MAX_TENSORS];         /* bytes of tensors that have one segment */
    count_sums sums;                           /* of the caller's counts, or of the ticket's */
    uint32_t misfits[PSTI_MAX_WARPS];          /* whether a warp found counts that do not fit */
    uint32_t fits;                             /* nobody did */
    uint32_t tile_start[PSTI_MAX_TENSORS + 1]; /* groups have at most 2^31 tiles */
    uint32_t num_apart;                        /* tiles that may be other than one run of memory */
    uint32_t held; /* with segments or sums: the space whose counts the table has */
    tile_batch batch;
};

#define PSTI_NONE_HELD ((uint32_t)PSTI_MAX_SPACES) /* no space's */

/* Dynamic shared memory: the ring of the backend, then a table for each team: first the counts of one space,
 * see hold_counts, and then where the segments of one tensor start, see plan_segments. */
template <uint32_t kRingBytes> PSTI_DEVICE unsigned char *dynamic_shared(const psti_move_args &args)
{
    return psti_dynamic_shared(kRingBytes + teams_per_block() * psti_segment_room(&args));
}

template <uint32_t kRingBytes> PSTI_DEVICE uint64_t *segment_table(const psti_move_args &args)
{
    return (uint64_t *)(dynamic_shared<kRingBytes>(args) + kRingBytes +
                        team_in_block() * psti_segment_room(&args));
}

/* counts: of the ticket; of GAP bytes NULL: nothing is live, and all up to the capacity is dirty. */
template <stream_kind kKind>
PSTI_DEVICE int64_t count_of(const tile_plan &plan, const psti_move_args &args, uint32_t space,
                             uint32_t segment, const int64_t *counts)
{
    if (kKind == NEW || args.spaces[space].num_segments == 1)
        return caller_count(plan.sums, args.spaces, space, segment);
    return counts[args.spaces[space].first_count + segment];
}

PSTI_DEVICE bool has_segments(const psti_move_args &args)
{
    return args.max_segments > 1;
}

/* Of a team, those threads read counts that have nothing else to do meanwhile: not the first two warps, as far as
 * there are others. */
PSTI_DEVICE uint32_t first_reader()
{
    const uint32_t others = num_threads() - PSTI_WARP;
    return others < 2 * PSTI_WARP ? others : 2 * PSTI_WARP;
}

PSTI_DEVICE uint32_t num_readers()
{
    return num_threads() - first_reader();
}

struct two_counts {
    int64_t first, second;
};

/* Of segments `segment` and, a round of readers on, of another, as far as there are such: NEW of the caller,
 * KEPT of the ticket. */
template <stream_kind kKind>
PSTI_DEVICE two_counts read_counts(const psti_move_args &args, uint32_t segment)
{
    const psti_space &space = args.spaces[args.held_space];
    const uint32_t other = segment + num_readers();
    const int64_t *kept = psti_ticket_counts(args.ticket) + space.first_count;
    two_counts read = {0, 0};
    if (segment < space.num_segments)
        read.first = kKind == NEW ? psti_user_count(&space, segment) : kept[segment];
    if (other < space.num_segments)
        read.second = kKind == NEW ? psti_user_count(&space, other) : kept[other];
    return read;
}

/* The first ones, for hold_counts, in a call of its own for loads that nobody waits for in between. */
template <stream_kind kKind> PSTI_DEVICE two_counts first_counts(const psti_move_args &args)
{
    return read_counts<kKind>(args, thread_of() - first_reader());
}

/* The counts of the first space with segments go into the team's table, in one trip to memory where each reader has at
 * most two. By the readers, of a group that has segments; the team then meets. Those of other spaces are read when they
 * are needed. */
template <stream_kind kKind, class Copier>
PSTI_DEVICE void hold_counts(tile_plan &plan, const psti_move_args &args, two_counts read)
{
    const uint32_t num_segments = args.spaces[args.held_space].num_segments;
    const uint32_t step = num_readers();
    uint64_t *table = segment_table<Copier::kRingBytes>(args);
    uint32_t segment = thread_of() - first_reader();
    if (segment == 0)
        plan.held = args.held_space;
#pragma unroll 1
    while (segment < num_segments) {
        table[segment] = (uint64_t)read.first;
        if (segment + step < num_segments)
            table[segment + step] = (uint64_t)read.second;
        segment += 2 * step;
        read = read_counts<kKind>(args, segment);
    }
}

/* By one thread, where counts are to be read when they are needed. */
PSTI_DEVICE void hold_none(tile_plan &plan)
{
    plan.held = PSTI_NONE_HELD;
}

/* count_of, before plan_segments has filled the table for the first tensor. */
template <stream_kind kKind>
PSTI_DEVICE int64_t early_count(const tile_plan &plan, const psti_move_args &args, uint32_t space,
                                uint32_t segment, const int64_t *counts, const uint64_t *table)
{
    const bool is_held = args.spaces[space].num_segments > 1 && space == plan.held;
    return is_held ? (int64_t)table[segment] : count_of<kKind>(plan, args, space, segment, counts);
}

/* Whether each count that this thread looks at is in [0, capacity]. */
template <stream_kind kKind>
PSTI_DEVICE bool counts_fit(const tile_plan &plan, const psti_move_args &args,
                            const int64_t *counts, const uint64_t *table)
{
    const uint32_t me = thread_of();
    bool fits = true;
    for (uint32_t i = 0; i < args.num_spaces; i++) {
        const psti_space &space = args.spaces[i];
        for (uint32_t e = me; e < space.num_segments; e += num_threads())
            fits = fits && psti_count_fits(early_count<kKind>(plan, args, i, e, counts, table),
                                           space.capacity);
    }
    return fits;
}

/* Rows of the tensor that are live, of a segment with this count. */
PSTI_DEVICE uint64_t live_rows(const psti_move_args &args, const psti_tensor &tensor, int64_t count)
{
    /* the counts were checked; should somebody change them meanwhile, this still stays in bounds */
    const uint64_t rows =
        psti_min_u64((uint64_t)count, (uint64_t)args.spaces[tensor.space].capacity);
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
                               const psti_tensor &tensor, uint32_t segment, const int64_t *counts,
                               const uint64_t *table)
{
    uint64_t live = 0;
    if (kKind != GAP || counts)
        live = live_rows(args, tensor,
                         early_count<kKind>(plan, args, tensor.space, segment, counts, table));
    if (kKind != GAP)
        return live * tensor.row_bytes;
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
    const int64_t count = count_of<kKind>(plan, args, tensor.space, segment, counts);
    return base + live_rows(args, tensor, count) * tensor.row_stride;
}

/* See psti_lies_apart. */
PSTI_DEVICE bool lies_apart(const psti_move_args &args, uint32_t t)
{
    return args.apart >> t & 1;
}

/* See psti_lies_odd. */
PSTI_DEVICE bool lies_odd(const psti_move_args &args, uint32_t t)
{
    return args.odd >> t & 1;
}

/* Where each tensor ends if it were alone: a thread per tensor of one segment, a warp per tensor of
 * several, which sums them. */
template <stream_kind kKind>
PSTI_DEVICE void plan_extents(tile_plan &plan, const psti_move_args &args, const int64_t *counts,
                              const uint64_t *table)
{
    for (uint32_t t = thread_of(); t < args.num_tensors; t += num_threads()) {
        const psti_tensor &tensor = args.tensors[t];
        if (args.spaces[tensor.space].num_segments > 1)
            continue;
        plan.extent[t] = extent_of<kKind>(plan, args, tensor, 0, counts, table);
        plan.tile_start[t + 1] = (uint32_t)psti_tiles_of(plan.extent[t]);
    }
    for (uint32_t t = thread_of() / PSTI_WARP; t < args.num_tensors;
         t += num_threads() / PSTI_WARP) {
        const psti_tensor &tensor = args.tensors[t];
        const uint32_t num_segments = args.spaces[tensor.space].num_segments;
        uint64_t bytes = 0;
        if (num_segments == 1)
            continue;
        for (uint32_t s = lane_of(); s < num_segments; s += PSTI_WARP)
            bytes += psti_round_vector(extent_of<kKind>(plan, args, tensor, s, counts, table));
        bytes = warp_sum(bytes);
        if (lane_of() == 0)
            plan.tile_start[t + 1] = (uint32_t)psti_tiles_of(bytes);
    }
}

/* By one warp: where tensors 2 n and 2 n + 1 start, n the lane. first, second: their tiles; apart:
 * those of both that lie apart. */
PSTI_DEVICE void scan_tiles(tile_plan &plan, const psti_move_args &args, uint32_t first,
                            uint32_t second, uint32_t apart)
{
    const uint32_t t = 2 * lane_of();
    const uint32_t last = (args.num_tensors - 1) / 2; /* lane that has tiles */
    uint64_t sums = (uint64_t)apart << 32 | (first + second);
    for (uint32_t distance = 1; distance <= last; distance *= 2) {
        const uint64_t below = psti_shuffle_up_u64(sums, distance);
        sums += lane_of() >= distance ? below : 0;
    }
    const uint64_t all = psti_shuffle_u64(sums, last);
    sums = lane_of() > last ? all : sums;
    const uint32_t end = (uint32_t)sums;
    plan.tile_start[t + 1] = end - second;
    plan.tile_start[t + 2] = end;
    if (t == 0)
        plan.tile_start[0] = 0;
    if (t == 0)
        plan.num_apart = (uint32_t)(all >> 32);
}

/* By the first warp, of what all have written. */
PSTI_DEVICE void scan_extents(tile_plan &plan, const psti_move_args &args)
{
    const uint32_t t = 2 * lane_of();
    const uint32_t first = t < args.num_tensors ? plan.tile_start[t + 1] : 0;
    const uint32_t second = t + 1 < args.num_tensors ? plan.tile_start[t + 2] : 0;
    const uint32_t apart = (first && lies_apart(args, t) ? first : 0) +
                           (second && lies_apart(args, t + 1) ? second : 0);
    scan_tiles(plan, args, first, second, apart);
}

/* Of a tensor whose space has one count, which is in shared memory. */
template <stream_kind kKind>
PSTI_DEVICE uint64_t plain_extent(const tile_plan &plan, const psti_move_args &args,
                                  const psti_tensor &tensor, const int64_t *counts)
{
    const uint64_t rows = plan.sums.rows[tensor.space];
    if (kKind != GAP)
        return psti_tensor_bytes(&tensor, rows);
    const uint64_t live = counts ? psti_tensor_rows(&tensor, rows) : 0;
    const uint64_t dirty = dirty_rows(args, tensor, 0, counts);
    return dirty > live ? (dirty - live) * tensor.row_bytes : 0;
}

/* By one warp, which has the counts of a plain group in shared memory. fits: this lane's count
 * does. */
template <stream_kind kKind>
PSTI_DEVICE void plan_plain(tile_plan &plan, const psti_move_args &args, const int64_t *counts,
                            bool fits)
{
    uint32_t tiles[2] = {0, 0}, apart = 0;
    const bool any = psti_any(!fits); /* first: what follows waits for arguments */
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t t = 2 * lane_of() + k;
        if (t >= args.num_tensors)
            continue;
        plan.extent[t] = plain_extent<kKind>(plan, args, args.tensors[t], counts);
        tiles[k] = (uint32_t)psti_tiles_of(plan.extent[t]);
        apart += lies_apart(args, t) ? tiles[k] : 0;
    }
    scan_tiles(plan, args, tiles[0], tiles[1], apart);
    if (lane_of() == 0)
        plan.fits = !any;
    __syncwarp();
}

/* Fills the plan of a group that is not plain. The first warp alone may read the result before the
 * team meets. Of counts that do not fit no plan is used. */
template <stream_kind kKind>
PSTI_DEVICE void plan_tiles(tile_plan &plan, const psti_move_args &args, const int64_t *counts,
                            const uint64_t *table)
{
    const uint32_t warp = thread_of() / PSTI_WARP;
    plan_extents<kKind>(plan, args, counts, table);
    if (kKind != GAP) {
        const bool any = psti_any(!counts_fit<kKind>(plan, args, counts, table));
        if (lane_of() == 0)
            plan.misfits[warp] = any;
    }
    PSTI_SYNC_TEAM();
    if (warp != 0)
        return;
    scan_extents(plan, args);
    const uint32_t num_warps = num_threads() / PSTI_WARP;
    const bool any = psti_any(kKind != GAP && lane_of() < num_warps && plan.misfits[lane_of()]);
    if (lane_of() == 0)
        plan.fits = !any;
    __syncwarp();
}

PSTI_DEVICE uint32_t num_tiles_of(const tile_plan &plan)
{
    return plan.tile_start[PSTI_MAX_TENSORS];
}

/* The tensor that has the tile, which is in the plan. */
PSTI_DEVICE uint32_t tensor_of_tile(const tile_plan &plan, uint32_t tile)
{
    uint32_t t = 0;
    for (uint32_t step = PSTI_MAX_TENSORS / 2; step > 0; step /= 2)
        t += plan.tile_start[t + step] <= tile ? step : 0;
    return t;
}

#endif
