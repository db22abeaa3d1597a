/* How the rows of one tensor are shared out to warps, and where each is in memory and in the ticket's
 * byte stream.
 *
 * A row has as many lanes of a warp as it has work for, a power of two, so that sums over a row come in
 * one order, whatever the grid. The stream of a tensor is cut into slots of the length of a row: at most
 * one row begins in each, also where segments start at multiples of 16. */
#ifndef PSTI_CUDA_ROWS_CUH
#define PSTI_CUDA_ROWS_CUH

#include "kernels/cuda/paging/protocol.cuh"
#include "kernels/cuda/paging/runs.cuh"

struct row_place {
    uint64_t row; /* of the segment */
    uint64_t in;  /* byte of the tensor's stream where the row begins */
    uint32_t segment;
    bool is_there;
};

/* What a warp goes through: slots first, first + step, ... below num. */
struct row_slots {
    uint64_t first, step, num;
    uint32_t lanes; /* of a row */
};

/* vectors: of a row, that its lanes take in turn. */
PSTI_DEVICE row_slots slots_of(uint64_t bytes, uint64_t row_bytes, uint32_t vectors)
{
    row_slots slots = {0, 0, (bytes + row_bytes - 1) / row_bytes, 1};
    while (slots.lanes < PSTI_WARP && slots.lanes < vectors)
        slots.lanes *= 2;
    const uint32_t rows = PSTI_WARP / slots.lanes; /* of a warp at once */
    const uint64_t warp = (uint64_t)(thread_of() / PSTI_WARP) * num_teams() + team_of();
    slots.first = warp * rows;
    slots.step = (uint64_t)num_teams() * (num_threads() / PSTI_WARP) * rows;
    return slots;
}

/* Where the segments of one tensor start, for row_in_slot; bytes of its stream. counts: of the ticket where it
 * has them, else the caller's are meant. By the whole team. */
PSTI_DEVICE uint64_t plan_rows(move_shared &s, const psti_move_args &args, uint64_t *starts,
                               uint32_t tensor, const int64_t *counts)
{
    const psti_tensor &of = args.tensors[tensor];
    const uint32_t num_segments = args.spaces[of.space].num_segments;
    if (num_segments == 1)
        return s.plan.extent[tensor];
    if (counts)
        plan_segments<KEPT>(starts, s.plan, s.scratch, args, of, counts);
    else
        plan_segments<NEW>(starts, s.plan, s.scratch, args, of, NULL);
    return starts[num_segments];
}

/* The row that begins in the slot, if one does. */
PSTI_DEVICE row_place row_in_slot(const psti_move_args &args, const uint64_t *starts,
                                  const psti_tensor &tensor, const row_slots &slots, uint64_t slot)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint64_t low = slot * tensor.row_bytes;
    if (num_segments == 1)
        return {slot, low, 0, slot < slots.num};
    if (slot >= slots.num)
        return {0, 0, 0, false};
    const uint64_t last = psti_min_u64(low + tensor.row_bytes, starts[num_segments]) - 1;
    const uint32_t segment = segment_at(starts, num_segments, last);
    const uint64_t start = start_of(starts, segment);
    const uint64_t row = (last - start) / tensor.row_bytes;
    const uint64_t in = row * tensor.row_bytes;
    const bool is_live = in < planned_bytes(starts, segment);
    return {row, start + in, segment, is_live && start + in >= low};
}

PSTI_DEVICE unsigned char *row_of(const psti_matrix &matrix, const row_place &at)
{
    return matrix.base + at.segment * matrix.segment_stride + at.row * matrix.row_stride;
}

#endif
