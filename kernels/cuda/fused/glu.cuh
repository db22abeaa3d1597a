/* The gated activation, forward and backward. One launch each, which with a ticket also is the stash or
 * the restore of the ticket's other tensors.
 *
 * Bytes moved, in rows * features elements: forward reads 2 and writes 1, into pages 2 more; backward
 * reads 1 and 2, from memory or pages, and writes 2, with the output recomputed 1 more. */
#ifndef PSTI_CUDA_GLU_CUH
#define PSTI_CUDA_GLU_CUH

#include "kernels/cuda/fused/columns.cuh"
#include "kernels/cuda/paging/restore.cuh"
#include "kernels/cuda/paging/stash.cuh"

/* Vectors of a lane whose loads fly while one is worked on: as many as there are registers for. */
#define PSTI_FORWARD_AHEAD 2u
#define PSTI_BACKWARD_AHEAD 1u

PSTI_DEVICE float probability_of(const psti_glu &glu, const row_place &row)
{
    return glu.probability.base ? *(const float *)row_of(glu.probability, row) : 1.0f;
}

/* Of a row; far below 2^31, as features are. */
PSTI_DEVICE uint32_t num_vectors(const psti_glu &glu, uint32_t per)
{
    return ((uint32_t)glu.features + per - 1) / per;
}

PSTI_DEVICE bool is_half(const psti_glu &glu)
{
    return glu.dtype == PST_GLU_FP16;
}

/* What a lane has loaded of the input, at one vector of the output. */
struct glu_input {
    psti_vector first, second;
};

/* ---- forward ---- */

/* The kind is known where elements are gone through: one branch for a vector. */
template <uint32_t kKind> PSTI_DEVICE psti_activation activation_of(const psti_glu &glu)
{
    return {kKind, glu.how.limit, glu.how.alpha, glu.how.bias};
}

#define PSTI_EACH_GLU(X)   \
    X(PST_GLU_SWIGLU)      \
    X(PST_GLU_GEGLU)       \
    X(PST_GLU_GEGLU_TANH)  \
    X(PST_GLU_REGLU)       \
    X(PST_GLU_QUICK_GEGLU) \
    X(PST_GLU_CLAMPED)

/* gates becomes the results. */
template <uint32_t kKind, class Element>
PSTI_DEVICE void activate(const psti_glu &glu, numbers<Element> &gates, const numbers<Element> &ups,
                          float p)
{
    const psti_activation how = activation_of<kKind>(glu);
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++)
        gates.of[i] = psti_glu_value(&how, gates.of[i], ups.of[i]) * p;
}

template <class Element>
PSTI_DEVICE psti_vector activated(const psti_glu &glu, glu_input input, float p)
{
    if (glu.interleave == 1)
        part<Element>(input.first, input.second);
    numbers<Element> gates = numbers_of<Element>(input.first, is_half(glu));
    const numbers<Element> ups = numbers_of<Element>(input.second, is_half(glu));
    switch (glu.how.kind) {
#define PSTI_CASE(kind)                              \
    case kind:                                       \
        activate<kind, Element>(glu, gates, ups, p); \
        break;
        PSTI_EACH_GLU(PSTI_CASE)
#undef PSTI_CASE
    }
    return vector_of<Element>(gates, is_half(glu));
}

/* One row by its lanes; `me` is this one's number among them. */
template <class Element>
PSTI_DEVICE void forward_row(const psti_glu &glu, const psti_tensor &input,
                             const written_pages &pages, bool has_pages, const row_place &row,
                             uint32_t me, uint32_t lanes)
{
    const unsigned char *from = psti_row_address(&input, row.segment, row.row);
    unsigned char *to = row_of(glu.output, row);
    const uint32_t vectors = num_vectors(glu, Element::kPer);
    const uint64_t policy = psti_evict_first();
    const float p = probability_of(glu, row);
    const bool is_wide = glu.is_wide;
    row_window first = {0, 0}, second = {0, 0};
    glu_input flying[PSTI_FORWARD_AHEAD] = {};
    for (uint32_t v = me, n = 0; v < vectors + PSTI_FORWARD_AHEAD * lanes; v += lanes, n++) {
        const glu_input now = flying[0];
#pragma unroll
        for (uint32_t u = 0; u + 1 < PSTI_FORWARD_AHEAD; u++)
            flying[u] = flying[u + 1];
        if (v < vectors) {
            const glu_columns at = columns_of<Element>(glu, v);
            glu_input &next = flying[PSTI_FORWARD_AHEAD - 1];
            next.first = load_elements<Element>(from + at.first, at.num_first, is_wide, policy);
            next.second = load_elements<Element>(from + at.second, at.num_second, is_wide, policy);
        }
        if (n < PSTI_FORWARD_AHEAD)
            continue;
        const glu_columns at = columns_of<Element>(glu, v - PSTI_FORWARD_AHEAD * lanes);
        if (has_pages) {
            put<Element>(first, pages, row, at.first, now.first, at.num_first, is_wide);
            put<Element>(second, pages, row, at.second, now.second, at.num_second, is_wide);
        }
        store_elements<Element>(to + at.output, activated<Element>(glu, now, p), at.num, is_wide);
    }
}

template <class Element>
PSTI_DEVICE void forward_rows(move_shared &s, const psti_glu_args &args, const uint64_t *starts,
                              uint64_t bytes, bool has_pages)
{
    const psti_tensor &input = args.move.tensors[args.glu.tensor];
    const row_slots slots = slots_of(bytes, input.row_bytes, num_vectors(args.glu, Element::kPer));
    const uint64_t start = (uint64_t)s.plan.tile_start[args.glu.tensor] << PSTI_TILE_SHIFT;
    const written_pages pages = {s, args.move, start};
    const uint32_t me = lane_of() % slots.lanes;
    for (uint64_t slot = slots.first + lane_of() / slots.lanes; slot < slots.num;
         slot += slots.step) {
        const row_place row = row_in_slot(args.move, starts, input, slots, slot);
        if (row.is_there)
            forward_row<Element>(args.glu, input, pages, has_pages, row, me, slots.lanes);
    }
}

/* Which a stash has beside it. */
struct glu_forward {
    static const bool kIs = true;
    const psti_glu_args &args;

    PSTI_DEVICE_METHOD bool has(uint32_t tensor) const
    {
        return tensor == args.glu.tensor;
    }
    PSTI_DEVICE_METHOD void run(move_shared &s, bool pages) const
    {
        uint64_t *starts = segment_table<0>(args.move);
        const uint32_t tiles = num_tiles_of(s.plan); /* of all tensors; loaded beside `fits` */
        if ((s.plan.fits & (uint32_t)(tiles != 0)) == 0)
            return;
        const uint64_t bytes = plan_rows(s, args.move, starts, args.glu.tensor, NULL);
        if (bytes == 0)
            return; /* before rows are shared out, which takes divisions */
        if (args.glu.dtype == PST_GLU_FP32)
            forward_rows<element_32>(s, args, starts, bytes, pages);
        else
            forward_rows<element_16>(s, args, starts, bytes, pages);
    }
};

/* ---- backward ---- */

struct glu_results {
    psti_vector first, second; /* as the input lies */
    psti_vector output;
};

/* What differentiate reads and writes: results stand where the input was. */
template <class Element> struct glu_numbers {
    numbers<Element> gates, ups, gradients; /* the last become the output */
    float sum;                              /* of gradients times what p was multiplied with */
};

template <uint32_t kKind, class Element>
PSTI_DEVICE void differentiate(const psti_glu &glu, glu_numbers<Element> &n, float p)
{
    const psti_activation how = activation_of<kKind>(glu);
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++) {
        const psti_glu_slopes slopes = psti_glu_slopes_of(&how, n.gates.of[i], n.ups.of[i]);
        const float scaled = n.gradients.of[i] * p;
        n.sum = psti_fma(n.gradients.of[i], slopes.value, n.sum);
        n.gradients.of[i] = slopes.value * p;
        n.gates.of[i] = scaled * slopes.by_gate;
        n.ups.of[i] = scaled * slopes.by_up;
    }
}

template <class Element>
PSTI_DEVICE glu_results differentiated(const psti_glu &glu, glu_input input,
                                       const psti_vector &gradient, float p, float *sum)
{
    if (glu.interleave == 1)
        part<Element>(input.first, input.second);
    glu_numbers<Element> n = {numbers_of<Element>(input.first, is_half(glu)),
                              numbers_of<Element>(input.second, is_half(glu)),
                              numbers_of<Element>(gradient, is_half(glu)), *sum};
    switch (glu.how.kind) {
#define PSTI_CASE(kind)                          \
    case kind:                                   \
        differentiate<kind, Element>(glu, n, p); \
        break;
        PSTI_EACH_GLU(PSTI_CASE)
#undef PSTI_CASE
    }
    *sum = n.sum;
    glu_results results = {vector_of<Element>(n.gates, is_half(glu)),
                           vector_of<Element>(n.ups, is_half(glu)),
                           vector_of<Element>(n.gradients, is_half(glu))};
    if (glu.interleave == 1)
        join<Element>(results.first, results.second);
    return results;
}

/* One row by its lanes: this lane's part of the sum over it. */
template <class Element>
PSTI_DEVICE float backward_row(const psti_glu &glu, const psti_tensor &input,
                               const read_pages &pages, bool has_pages, const row_place &row,
                               uint32_t me, uint32_t lanes)
{
    const unsigned char *gradients = row_of(glu.gradient, row);
    unsigned char *to = row_of(glu.input_gradient, row);
    unsigned char *output = glu.output.base ? row_of(glu.output, row) : NULL;
    const uint32_t vectors = num_vectors(glu, Element::kPer);
    const uint64_t policy = psti_evict_first();
    const float p = probability_of(glu, row);
    const bool is_wide = glu.is_wide;
    row_window first = {0, 0};
    if (!has_pages)
        first = window_of_memory(psti_row_address(&input, row.segment, row.row));
    row_window second = first;
    float sum = 0;
    glu_input flying[PSTI_BACKWARD_AHEAD] = {};
    psti_vector flying_gradient[PSTI_BACKWARD_AHEAD] = {};
    for (uint32_t v = me, n = 0; v < vectors + PSTI_BACKWARD_AHEAD * lanes; v += lanes, n++) {
        const glu_input now = flying[0];
        const psti_vector gradient = flying_gradient[0];
#pragma unroll
        for (uint32_t u = 0; u + 1 < PSTI_BACKWARD_AHEAD; u++) {
            flying[u] = flying[u + 1];
            flying_gradient[u] = flying_gradient[u + 1];
        }
        if (v < vectors) {
            const glu_columns at = columns_of<Element>(glu, v);
            glu_input &next = flying[PSTI_BACKWARD_AHEAD - 1];
            flying_gradient[PSTI_BACKWARD_AHEAD - 1] =
                load_elements<Element>(gradients + at.output, at.num, is_wide, policy);
            next.first = fetch<Element>(first, pages, row, at.first, at.num_first, is_wide, policy);
            if (at.second >= second.end && at.second < first.end)
                second = first; /* of the same page, which so is looked up once */
            next.second =
                fetch<Element>(second, pages, row, at.second, at.num_second, is_wide, policy);
        }
        if (n < PSTI_BACKWARD_AHEAD)
            continue;
        const glu_columns at = columns_of<Element>(glu, v - PSTI_BACKWARD_AHEAD * lanes);
        const glu_results results = differentiated<Element>(glu, now, gradient, p, &sum);
        store_elements<Element>(to + at.first, results.first, at.num_first, is_wide);
        store_elements<Element>(to + at.second, results.second, at.num_second, is_wide);
        if (output)
            store_elements<Element>(output + at.output, results.output, at.num, is_wide);
    }
    return sum;
}

/* Over the lanes of a row. By a whole warp. */
PSTI_DEVICE float sum_of_row(float mine, uint32_t lanes)
{
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2)
        mine += psti_float_of(psti_shuffle_u32(psti_bits_of(mine), lane_of() ^ mask));
    return mine;
}

template <class Element>
PSTI_DEVICE void backward_rows(const psti_glu_args &args, const uint64_t *starts, uint64_t bytes,
                               bool has_pages, const psti_page_rows &in_pages)
{
    const psti_tensor &input = args.move.tensors[args.glu.tensor];
    const row_slots slots = slots_of(bytes, input.row_bytes, num_vectors(args.glu, Element::kPer));
    const read_pages pages = {args.move, in_pages};
    const uint32_t me = lane_of() % slots.lanes;
#pragma unroll 1
    for (uint64_t slot = slots.first; slot < slots.num; slot += slots.step) {
        const row_place row =
            row_in_slot(args.move, starts, input, slots, slot + lane_of() / slots.lanes);
        float sum = 0;
        if (row.is_there)
            sum = backward_row<Element>(args.glu, input, pages, has_pages, row, me, slots.lanes);
        if (args.glu.probability_gradient.base == NULL)
            continue;
        sum = sum_of_row(sum, slots.lanes);
        if (row.is_there && me == 0)
            *(float *)row_of(args.glu.probability_gradient, row) = sum;
    }
}

/* Rows of the segment that are cleared where the ticket holds none. */
PSTI_DEVICE uint64_t cleared_rows(const psti_glu_args &args, const psti_space &space,
                                  uint32_t segment)
{
    const int64_t count = args.glu.has_counts ? psti_space_count(&space, segment) : -1;
    return (uint64_t)(psti_count_fits(count, space.capacity) ? count : space.capacity);
}

/* By one warp. */
template <class Element>
PSTI_DEVICE void clear_row(const psti_matrix &matrix, const row_place &row, uint64_t elements,
                           bool is_wide)
{
    const psti_vector zero = {0, 0, 0, 0};
    if (matrix.base == NULL)
        return;
    for (uint64_t c = lane_of() * Element::kPer; c < elements; c += PSTI_WARP * Element::kPer)
        store_elements<Element>(row_of(matrix, row) + c * sizeof(typename Element::type), zero,
                                (uint32_t)psti_min_u64(elements - c, Element::kPer), is_wide);
}

template <class Element> PSTI_DEVICE void clear_results(const psti_glu_args &args)
{
    const psti_glu &glu = args.glu;
    const psti_space &space = args.move.spaces[args.move.tensors[glu.tensor].space];
    const uint64_t warp = (uint64_t)(thread_of() / PSTI_WARP) * num_teams() + team_of();
    const uint64_t warps = (uint64_t)num_teams() * (num_threads() / PSTI_WARP);
    for (uint32_t segment = 0; segment < space.num_segments; segment++) {
        const uint64_t rows = cleared_rows(args, space, segment);
        for (uint64_t r = warp; r < rows; r += warps) {
            const row_place row = {r, 0, segment, true};
            clear_row<Element>(glu.input_gradient, row, 2 * glu.features, glu.is_wide);
            clear_row<Element>(glu.output, row, glu.features, glu.is_wide);
            if (lane_of() == 0 && glu.probability_gradient.base)
                *(float *)row_of(glu.probability_gradient, row) = 0;
        }
    }
}

/* Which a restore has beside it. */
struct glu_backward {
    static const bool kIs = true;
    const psti_glu_args &args;
    psti_page_rows &in_pages; /* in shared memory */

    PSTI_DEVICE_METHOD bool has(uint32_t tensor) const
    {
        return tensor == args.glu.tensor;
    }
    PSTI_DEVICE_METHOD void run(move_shared &s, bool pages) const
    {
        uint64_t *starts = segment_table<0>(args.move);
        const int64_t *counts = pages ? psti_ticket_counts(args.move.ticket) : NULL;
        if (!s.plan.fits)
            return;
        if (pages && thread_of() == 0)
            in_pages = rows_in_pages(s, args.move, args.glu.tensor);
        const uint64_t bytes = plan_rows(s, args.move, starts, args.glu.tensor, counts);
        PSTI_SYNC_TEAM();
        if (bytes == 0)
            return;
        if (args.glu.dtype == PST_GLU_FP32)
            backward_rows<element_32>(args, starts, bytes, pages, in_pages);
        else
            backward_rows<element_16>(args, starts, bytes, pages, in_pages);
    }
    PSTI_DEVICE_METHOD void clear(move_shared &s) const
    {
        (void)s;
        if (args.glu.dtype == PST_GLU_FP32)
            clear_results<element_32>(args);
        else
            clear_results<element_16>(args);
    }
};

/* ---- kernels ---- */

/* Without a ticket: the caller's counts, and what they mean. By the whole team. */
PSTI_DEVICE void plan_alone(move_shared &s, const psti_move_args &args)
{
    psti_wait_for_predecessor();
    if (thread_of() < PSTI_WARP) {
        const own_count own = load_count(args.spaces, args.num_spaces, lane_of(), args.is_plain);
        const bool fits = keep_count(s.plan.sums, lane_of(), own);
        if (args.is_plain)
            plan_plain<NEW>(s.plan, args, NULL, fits);
    }
    if (!args.is_plain) {
        if (thread_of() == 0)
            hold_none(s.plan);
        add_up(s.plan.sums, args.spaces, args.num_spaces);
        PSTI_SYNC_TEAM();
        plan_tiles<NEW>(s.plan, args, NULL, segment_table<0>(args));
    }
    PSTI_SYNC_TEAM();
}

PSTI_FUSED_KERNEL(glu_forward_ldg_kernel, psti_glu_args, args)
{
    PSTI_ASSUME_TEAMS();
    PSTI_SHARED_OF_TEAM(move_with_runs, room);
    move_shared &s = room.move;
    const glu_forward fused = {args};
    direct_copier<true> copier = {&room.runs, 0};
    if (args.glu.has_ticket) {
        run_stash(s, copier, args.move, fused);
        return;
    }
    plan_alone(s, args.move);
    fused.run(s, false);
}

PSTI_FUSED_KERNEL(glu_backward_ldg_kernel, psti_glu_args, args)
{
    PSTI_ASSUME_TEAMS();
    PSTI_SHARED_OF_TEAM(move_with_runs, room);
    PSTI_SHARED_OF_TEAM(psti_page_rows, in_pages);
    move_shared &s = room.move;
    const glu_backward fused = {args, in_pages};
    direct_copier<false> copier = {&room.runs, 0};
    if (args.glu.has_ticket) {
        run_restore(s, copier, args.move, fused);
        return;
    }
    plan_alone(s, args.move);
    fused.run(s, false);
}

#endif
