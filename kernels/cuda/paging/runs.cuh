/* Tiles that are not one run of memory: segments, and rows with gaps between them. */
#ifndef PSTI_CUDA_RUNS_CUH
#define PSTI_CUDA_RUNS_CUH

#include "kernels/cuda/paging/tiles.cuh"

/* Fills the team's table for one tensor: where each segment starts in its stream, a multiple of 16, plus by how
 * many bytes its rows end before the next one starts; and where the last one ends. Each thread writes where it
 * alone has read a count that is held there. */
template <stream_kind kKind>
PSTI_DEVICE void plan_segments(uint64_t *starts, tile_plan &plan, block_scratch &scratch,
                               const psti_move_args &args, const psti_tensor &tensor,
                               const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    uint64_t done = 0;
    PSTI_SYNC_TEAM(); /* nobody reads the tensor before this one any more */
    for (uint32_t first = 0; first < num_segments; first += num_threads()) {
        const uint32_t s = first + thread_of();
        uint64_t bytes = 0;
        uint64_t all;
        if (s < num_segments)
            bytes = extent_of<kKind>(plan, args, tensor, s, counts, starts);
        const uint64_t rounded = psti_round_vector(bytes);
        const uint64_t before = block_exclusive_scan(scratch, rounded, &all);
        if (s < num_segments)
            starts[s] = done + before + (rounded - bytes);
        done += all;
    }
    if (thread_of() == 0) {
        starts[num_segments] = done;
        hold_none(plan);
    }
    PSTI_SYNC_TEAM();
}

PSTI_DEVICE uint64_t start_of(const uint64_t *starts, uint32_t segment)
{
    return starts[segment] & ~(uint64_t)(PSTI_VECTOR_BYTES - 1);
}

/* Of a tensor that has several segments. */
PSTI_DEVICE uint64_t planned_bytes(const uint64_t *starts, uint32_t segment)
{
    return start_of(starts, segment + 1) - starts[segment];
}

/* The segment that holds byte `position` of the tensor's stream, which is inside it. */
PSTI_DEVICE uint32_t segment_at(const uint64_t *starts, uint32_t num_segments, uint64_t position)
{
    uint32_t low = 0;
    uint32_t high = num_segments; /* start_of(low) <= position < start_of(high) */
    /* so that it is not below an entry whose segment starts there */
    position |= PSTI_VECTOR_BYTES - 1;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (starts[middle] <= position)
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

struct segment_bytes {
    unsigned char *rows;
    uint64_t num;
};

/* The bytes of a segment of the tensor, whose table `starts` is where it has several. Should counts change behind
 * the plan, those of GAP are at most as many as planned, and none behind the capacity. */
template <stream_kind kKind>
PSTI_DEVICE segment_bytes bytes_of_segment(const uint64_t *starts, const tile_plan &plan,
                                           const psti_move_args &args, const psti_tensor &tensor,
                                           uint32_t segment, const int64_t *counts)
{
    const psti_space &space = args.spaces[tensor.space];
    segment_bytes bytes = {psti_segment_base(&tensor, segment),
                           plan.extent[&tensor - args.tensors]};
    if (space.num_segments > 1)
        bytes.num = planned_bytes(starts, segment);
    if (kKind != GAP || !counts)
        return bytes;
    const uint64_t live =
        live_rows(args, tensor, count_of<kKind>(plan, args, tensor.space, segment, counts));
    const uint64_t rows = psti_tensor_rows(&tensor, (uint64_t)space.capacity) - live;
    bytes.rows += live * tensor.row_stride;
    bytes.num = psti_min_u64(bytes.num, rows * tensor.row_bytes);
    return bytes;
}

struct memory_run {
    uint64_t rows;
    uint32_t bytes; /* 0: there is none */
    uint32_t in;    /* where in the tile it begins */
};

/* Of a tile that is begun run by run, those of segments of an eighth of a tile at least; of more it is copied vector by
 * vector, which is faster then. */
#define PSTI_MOST_RUNS 9u

/* A tile of a tensor's stream, and its first segment that is not yet looked at. */
struct tile_rest {
    uint64_t low;
    uint32_t bytes, segment;
};

/* The tile at position `low`; of a tensor with gaps between its rows nothing. */
PSTI_DEVICE tile_rest rest_of_tile(const uint64_t *starts, const tile_plan &plan,
                                   const psti_move_args &args, const psti_tensor &tensor,
                                   uint64_t low)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint64_t end =
        num_segments > 1 ? starts[num_segments] : plan.extent[&tensor - args.tensors];
    if (!psti_is_packed(&tensor))
        return {low, 0, 0};
    return {low, (uint32_t)psti_min_u64(bytes_left(end, low), PSTI_TILE_BYTES),
            num_segments > 1 ? segment_at(starts, num_segments, low) : 0};
}

/* By one thread: the next run of memory of the tile's live bytes. Empty segments are passed over by a search, since
 * there may be a thousand. */
template <stream_kind kKind>
PSTI_DEVICE memory_run next_run(tile_rest &rest, const uint64_t *starts, const tile_plan &plan,
                                const psti_move_args &args, const psti_tensor &tensor,
                                const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
#pragma unroll 1
    while (rest.segment < num_segments) {
        const uint32_t s = rest.segment;
        const uint64_t start = num_segments > 1 ? start_of(starts, s) : 0;
        const uint64_t in = bytes_left(start, rest.low); /* of the tile, if it begins there */
        if (in >= rest.bytes)
            break;
        if (num_segments > 1 && planned_bytes(starts, s) == 0) {
            rest.segment = segment_at(starts, num_segments, start);
            continue;
        }
        const uint64_t offset = bytes_left(rest.low, start);
        const segment_bytes part = bytes_of_segment<kKind>(starts, plan, args, tensor, s, counts);
        const uint64_t bytes = psti_min_u64(bytes_left(part.num, offset), rest.bytes - in);
        rest.segment++;
        if (bytes)
            return {(uint64_t)(part.rows + offset), (uint32_t)bytes, (uint32_t)in};
    }
    return {0, 0, 0};
}

/* Where in the tensor's rows byte `offset` of them is. */
struct row_offset {
    uint64_t row, skip; /* bytes of it */
};

PSTI_DEVICE row_offset row_at(const psti_tensor &tensor, uint64_t offset)
{
    const bool is_narrow = (offset | tensor.row_bytes) >> 32 == 0; /* which is faster by far */
    const uint64_t row =
        is_narrow ? (uint32_t)offset / (uint32_t)tensor.row_bytes : offset / tensor.row_bytes;
    return {row, offset - row * tensor.row_bytes};
}

/* Where the tile of tensor t begins in the tensor's stream. */
PSTI_DEVICE uint64_t low_of_tile(const tile_plan &plan, uint32_t t, uint32_t tile)
{
    return (uint64_t)(tile - plan.tile_start[t]) << PSTI_TILE_SHIFT;
}

/* Of the tile at position `low` of the tensor's stream; 0 if the counts have changed meanwhile. */
PSTI_DEVICE uint32_t tile_size(const uint64_t *starts, const tile_plan &plan,
                               const psti_move_args &args, const psti_tensor &tensor, uint64_t low)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint64_t end =
        num_segments > 1 ? starts[num_segments] : plan.extent[&tensor - args.tensors];
    return (uint32_t)psti_min_u64(bytes_left(end, low), PSTI_TILE_BYTES);
}

/* A mover that asks for asynchronous copies gets up to this many runs of one tile, and of rows
 * with gaps one more; more are copied vector by vector. */
#define PSTI_MAX_RUNS 8u
static_assert(PSTI_MAX_RUNS <= PSTI_MOST_RUNS && PSTI_LEAST_RUN <= PSTI_TILE_BYTES / PSTI_MAX_RUNS,
              "of what has odd runs nothing is moved together, see move_some");

/* By one thread: at most 16 bytes, of one row or several. */
template <class Mover>
PSTI_DEVICE void move_vector(Mover &move, const psti_tensor &tensor, unsigned char *rows,
                             uint64_t offset, uint32_t at, uint32_t bytes)
{
    if (psti_is_packed(&tensor)) {
        move.piece(rows + offset, at, bytes);
        return;
    }
    const row_offset place = row_at(tensor, offset);
    uint64_t skip = place.skip;
    rows += place.row * tensor.row_stride;
    while (bytes) {
        const uint32_t piece = (uint32_t)psti_min_u64(bytes, tensor.row_bytes - skip);
        move.piece(rows + skip, at, piece);
        at += piece;
        bytes -= piece;
        rows += tensor.row_stride;
        skip = 0;
    }
}

/* Rows of fewer bytes are moved as words of a span, others one after the other, by vectors whatever their address. */
template <class Mover>
PSTI_DEVICE uint32_t most_of_span(const unsigned char *rows, const psti_tensor &tensor)
{
    const uint64_t alignment = (uint64_t)rows | tensor.row_bytes | tensor.row_stride;
    if (Mover::kAsync)
        return PSTI_TILE_BYTES / PSTI_MAX_RUNS;
    return alignment % PSTI_VECTOR_BYTES ? PSTI_LEAST_RUN : PSTI_TILE_BYTES;
}

/* Of a tile's bytes from `in` on those that are one segment's, from byte `offset` of its rows on. */
struct segment_rest {
    unsigned char *rows; /* of the segment */
    uint64_t offset;
    uint32_t bytes, next; /* next: behind them in the tile */
};

/* Of the tile of `size` bytes at position `low` of the tensor's stream. */
template <stream_kind kKind>
PSTI_DEVICE segment_rest rest_of_segment(const uint64_t *starts, const tile_plan &plan,
                                         const psti_move_args &args, const psti_tensor &tensor,
                                         uint64_t low, uint32_t in, uint32_t size,
                                         const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    uint32_t s = 0;
    uint64_t offset = low + in;
    if (num_segments > 1) {
        s = segment_at(starts, num_segments, offset);
        offset -= start_of(starts, s);
    }
    const segment_bytes part = bytes_of_segment<kKind>(starts, plan, args, tensor, s, counts);
    const uint32_t bytes = (uint32_t)psti_min_u64(size - in, bytes_left(part.num, offset));
    /* should the counts change meanwhile, this still ends */
    return {part.rows, offset, bytes, bytes ? (uint32_t)psti_round_vector(in + bytes) : size};
}

/* By the whole team: moves bytes of the tile that begins at position `low` of the tensor's stream,
 * from `in` on in the tile, which has `size` bytes, as far as one call goes. Returns where to go
 * on. */
template <stream_kind kKind, class Mover>
PSTI_DEVICE uint32_t move_some(Mover &move, const uint64_t *starts, const tile_plan &plan,
                               const psti_move_args &args, const psti_tensor &tensor, uint64_t low,
                               uint32_t in, uint32_t size, const int64_t *counts)
{
    const segment_rest rest =
        rest_of_segment<kKind>(starts, plan, args, tensor, low, in, size, counts);
    const uint64_t offset = rest.offset;
    const uint32_t bytes = rest.bytes, next = rest.next;
    unsigned char *rows = rest.rows;
    if (!Mover::kHasRows || psti_is_packed(&tensor)) {
        move.run(rows + offset, in, bytes);
        return next;
    }
    const uint64_t row = offset / tensor.row_bytes;
    const uint64_t skip = offset - row * tensor.row_bytes;
    rows += row * tensor.row_stride;
    if (tensor.row_bytes < most_of_span<Mover>(rows, tensor)) {
        move.rows({rows, tensor.row_stride, (uint32_t)tensor.row_bytes, (uint32_t)skip}, in, bytes);
        return next;
    }
    const uint32_t run = (uint32_t)psti_min_u64(bytes, tensor.row_bytes - skip);
    move.run(rows + skip, in, run);
    return run < bytes ? in + run : next;
}

/* Whether the team moves the tile of `size` bytes at `low` together. */
template <class Mover>
PSTI_DEVICE bool moves_together(const uint64_t *starts, const psti_tensor &tensor,
                                uint32_t num_segments, uint64_t low, uint32_t size)
{
    if (!Mover::kHasTogether || (!Mover::kHasRows && !psti_is_packed(&tensor)))
        return false;
    if (num_segments == 1)
        return true;
    const uint32_t first = segment_at(starts, num_segments, low);
    const uint32_t most = Mover::kAsync || psti_is_packed(&tensor) ? PSTI_MAX_RUNS : 1;
    return segment_at(starts, num_segments, low + size - 1) - first < most;
}

/* Hands one tile to the mover: run(rows, offset in the tile, bytes) by the whole team where the
 * tile is one run of memory, rows(span, offset, bytes) where it is rows of one segment with gaps
 * and the mover kHasRows, else piece(rows, offset in the tile, bytes <= 16) by single threads. */
template <stream_kind kKind, class Mover>
PSTI_DEVICE void move_tile(Mover &move, const uint64_t *starts, const tile_plan &plan,
                           const psti_move_args &args, const psti_tensor &tensor, uint64_t low,
                           const int64_t *counts)
{
    const uint32_t num_segments = args.spaces[tensor.space].num_segments;
    const uint32_t size = tile_size(starts, plan, args, tensor, low);
    if (size == 0) /* the counts have changed meanwhile */
        return;
    if (moves_together<Mover>(starts, tensor, num_segments, low, size)) {
#pragma unroll 1
        for (uint32_t in = 0; in < size;)
            in = move_some<kKind>(move, starts, plan, args, tensor, low, in, size, counts);
        return;
    }
#pragma unroll 1
    for (uint32_t in = thread_of() * PSTI_VECTOR_BYTES; in < size;
         in += num_threads() * PSTI_VECTOR_BYTES) {
        uint32_t s = 0;
        uint64_t offset = low + in;
        if (num_segments > 1) {
            s = segment_at(starts, num_segments, offset);
            offset -= start_of(starts, s);
        }
        const segment_bytes part = bytes_of_segment<kKind>(starts, plan, args, tensor, s, counts);
        const uint64_t left = psti_min_u64(size - in, bytes_left(part.num, offset));
        move_vector(move, tensor, part.rows, offset, in,
                    (uint32_t)psti_min_u64(left, PSTI_VECTOR_BYTES));
    }
}

#endif
