/* Tiles of several runs of memory that begin at odd addresses: of segments, and of long rows with gaps between them. What
 * there is to do for a run beside its bytes takes a warp as long as some KiB, so each warp has tiles of its own; those
 * that are left over are all warps'. */
#ifndef PSTI_CUDA_ODD_CUH
#define PSTI_CUDA_ODD_CUH

#include "kernels/cuda/paging/protocol.cuh"
#include "kernels/cuda/paging/runs.cuh"

#define PSTI_TILE_PARTS 2u /* so that a team with a few tiles has one for each warp */

/* Whether the tensor is made of such runs, and the source can copy them. */
template <class Source> PSTI_DEVICE bool has_odd_runs(const psti_move_args &args, uint32_t t)
{
    return Source::kHasApartRuns && Source::kShifts && (args.odd_runs >> t & 1);
}

/* By one warp, each lane for tile `tile` of tensor t: a bit for those that have more segments than are copied run by
 * run. */
PSTI_DEVICE uint32_t crowded_tiles(const uint64_t *starts, const move_shared &s,
                                   const psti_move_args &args, uint32_t t, uint32_t tile)
{
    const psti_tensor &tensor = args.tensors[t];
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    uint32_t num = 0;
    if (num_segments > 1 && tile < s.plan.tile_start[t + 1]) {
        const uint64_t low = low_of_tile(s.plan, t, tile);
        const uint32_t size = tile_size(starts, s.plan, args, tensor, low);
        num = segment_at(starts, num_segments, low + size - 1) -
              segment_at(starts, num_segments, low);
    }
    return psti_ballot(num >= PSTI_MOST_RUNS);
}

/* Of the bytes of the tile at position `low` of the tensor's stream from `in` up to `end` those that are one run, behind
 * which `in` then is. */
template <stream_kind kKind>
PSTI_DEVICE memory_run next_odd_run(uint32_t &in, uint32_t end, uint64_t low,
                                    const uint64_t *starts, const tile_plan &plan,
                                    const psti_move_args &args, const psti_tensor &tensor,
                                    const int64_t *counts)
{
    const segment_rest rest =
        rest_of_segment<kKind>(starts, plan, args, tensor, low, in, end, counts);
    memory_run run = {(uint64_t)rest.rows + rest.offset, rest.bytes, in};
    in = rest.next;
    if (psti_is_packed(&tensor))
        return run;
    const row_offset at = row_at(tensor, rest.offset);
    run.rows = (uint64_t)rest.rows + at.row * tensor.row_stride + at.skip;
    if (tensor.row_bytes - at.skip < rest.bytes) {
        run.bytes = (uint32_t)(tensor.row_bytes - at.skip);
        in = run.in + run.bytes;
    }
    return run;
}

/* Parts of the batch's tiles from number `part` on, `num` of one tile. By one warp alone, or by the whole team. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void shift_parts(const tile_batch &batch, Source &source, const move_shared &s,
                             const psti_move_args &args, const uint64_t *starts,
                             const int64_t *counts, uint32_t part, uint32_t num, bool alone)
{
    const uint32_t number = part / PSTI_TILE_PARTS, kBytes = PSTI_TILE_BYTES / PSTI_TILE_PARTS;
    const uint64_t low = low_of_tile(s.plan, batch.tensor, batch.tile + number * s.share.stride);
    uint32_t in = part % PSTI_TILE_PARTS * kBytes;
    if (!((batch.moved & ~batch.others) >> number & 1))
        return;
    const uint32_t end = (uint32_t)psti_min_u64(
        tile_size(starts, s.plan, args, args.tensors[batch.tensor], low), in + num * kBytes);
#pragma unroll 1
    while (in < end) {
        const psti_tensor &tensor = args.tensors[batch.tensor];
        const memory_run run =
            next_odd_run<kKind>(in, end, low, starts, s.plan, args, tensor, counts);
        /* where it is is read again each time: registers are short */
        source.shift_part(batch.found[number] + run.in, run.rows, run.bytes, alone);
    }
}

/* Of a batch without runs, those tiles that are found and not among the others: one a warp, then a part a warp, then
 * the rest by the whole team. Of a tensor without odd runs there are none: from the batch's first on all are others. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_odd(const tile_batch &batch, Source &source, const move_shared &s,
                          const psti_move_args &args, const uint64_t *starts, const int64_t *counts)
{
    if constexpr (Source::kHasApartRuns && Source::kShifts) {
#pragma unroll 1
        for (uint32_t part = batch.first * PSTI_TILE_PARTS;;) {
            const uint64_t moved =
                batch.moved & ~batch.others; /* again each time: registers are short */
            const uint32_t num_warps = num_threads() / PSTI_WARP, warp = thread_of() / PSTI_WARP;
            if (moved >> part / PSTI_TILE_PARTS == 0)
                return;
            uint32_t num = PSTI_TILE_PARTS;
            if (part % PSTI_TILE_PARTS || moved >> (part / PSTI_TILE_PARTS + num_warps - 1) == 0)
                num = 1;
            const bool alone = moved >> (part + num_warps - 1) / PSTI_TILE_PARTS != 0;
            if (!alone)
                num = PSTI_TILE_PARTS - part % PSTI_TILE_PARTS;
            shift_parts<kKind>(batch, source, s, args, starts, counts,
                               alone ? part + num * warp : part, num, alone);
            part += alone ? num * num_warps : num;
        }
    }
}

#endif
