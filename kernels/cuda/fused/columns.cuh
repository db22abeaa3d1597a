/* The columns of a GLU's input row: which bytes a lane has, and where they are, in memory or in pages. */
#ifndef PSTI_CUDA_COLUMNS_CUH
#define PSTI_CUDA_COLUMNS_CUH

#include "kernels/core/page_rows.h"
#include "kernels/cuda/fused/element.cuh"
#include "kernels/cuda/fused/rows.cuh"
#include "kernels/cuda/paging/stash.cuh"

/* Two vectors of an input row: byte offsets and elements. With interleave 1 gates and ups alternate in
 * both; else the first has the gates. */
struct glu_columns {
    uint64_t first, second;
    uint32_t num_first, num_second;
    uint64_t output; /* of the row of results: byte offset */
    uint32_t num;    /* results */
};

template <class Element> PSTI_DEVICE glu_columns columns_of(const psti_glu &glu, uint32_t vector)
{
    const uint64_t size = sizeof(typename Element::type);
    const uint64_t c = (uint64_t)vector * Element::kPer;
    const uint32_t num = (uint32_t)psti_min_u64(glu.features - c, Element::kPer);
    if (glu.interleave == 1) {
        const uint32_t first = 2 * num < Element::kPer ? 2 * num : Element::kPer;
        return {2 * c * size, 2 * c * size + PSTI_VECTOR_BYTES, first, 2 * num - first, c * size,
                num};
    }
    if (glu.interleave) {
        const uint64_t in_block = c % PSTI_GLU_BLOCK;
        const uint64_t at = (2 * (c - in_block) + in_block) * size;
        return {at, at + PSTI_GLU_BLOCK * size, num, num, c * size, num};
    }
    return {c * size, (glu.features + c) * size, num, num, c * size, num};
}

/* Gates and ups apart, where they alternate; and together again. */
template <class Element> PSTI_DEVICE void part(psti_vector &first, psti_vector &second)
{
    psti_vector gates = {0, 0, 0, 0}, ups = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++) {
        const psti_vector &from = 2 * i < Element::kPer ? first : second;
        add_bits<Element>(gates, i, bits_at<Element>(from, 2 * i % Element::kPer));
        add_bits<Element>(ups, i, bits_at<Element>(from, (2 * i + 1) % Element::kPer));
    }
    first = gates;
    second = ups;
}

template <class Element> PSTI_DEVICE void join(psti_vector &gates, psti_vector &ups)
{
    psti_vector first = {0, 0, 0, 0}, second = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++) {
        psti_vector &to = 2 * i < Element::kPer ? first : second;
        add_bits<Element>(to, 2 * i % Element::kPer, bits_at<Element>(gates, i));
        add_bits<Element>(to, (2 * i + 1) % Element::kPer, bits_at<Element>(ups, i));
    }
    gates = first;
    ups = second;
}

/* Bytes of a row from some column on: those below `end` lie at base + column. Two for each row, since
 * gates and ups may be in two pages. */
struct row_window {
    uint64_t base, end;
};
#define PSTI_NOWHERE UINT64_MAX /* a page that is not the ticket's */

PSTI_DEVICE row_window window_of_memory(const unsigned char *row)
{
    return {(uint64_t)row, UINT64_MAX};
}

/* Pages that a stash writes. The lane that has a page's first byte takes it. */
struct written_pages {
    const move_shared &s;
    const psti_move_args &args;
    uint64_t start; /* of the tensor in the ticket's byte stream */

    PSTI_DEVICE_METHOD row_window find(const row_place &row, uint64_t column) const
    {
        const psti_pool_view &pool = args.pool;
        const uint64_t at = start + row.in + column;
        const uint64_t page = at >> pool.page_shift;
        const uint64_t first = page << pool.page_shift;
        const uint32_t id = stashed_id(s, args, page);
        const bool is_there = pool.concurrent ? psti_id_in_range(&pool, id)
                                              : take_page(s, args, id, page, at == first);
        const uint64_t end = first + ((uint64_t)1 << pool.page_shift) - (start + row.in);
        if (!is_there)
            return {PSTI_NOWHERE, end};
        return {(uint64_t)psti_page_address(&pool, id) + (at - first) - column, end};
    }
};

/* Pages that a restore reads. */
struct read_pages {
    const psti_move_args &args;
    const psti_page_rows &rows; /* of the tensor, as if it had one segment */

    PSTI_DEVICE_METHOD row_window find(const row_place &row, uint64_t column) const
    {
        psti_page_rows from = rows;
        from.start += row.in - row.row * rows.row_bytes;
        const psti_page_run run =
            psti_find_page_run(from, row.row, column, rows.row_bytes - column);
        const uint64_t at = from.start + row.row * rows.row_bytes + column;
        if (run.at)
            return {(uint64_t)run.at - column, column + run.bytes};
        if (at == run.page << rows.page_shift) /* once per page */
            psti_record_fault(&args.pool, PST_FAULT_DAMAGED, args.ticket_index, run.id);
        return {PSTI_NOWHERE, column + run.bytes};
    }
};

/* Of a ticket that is restored. */
PSTI_DEVICE psti_page_rows rows_in_pages(const move_shared &s, const psti_move_args &args,
                                         uint32_t tensor)
{
    const psti_pool_view &pool = args.pool;
    psti_page_rows rows;
    rows.ids = psti_ticket_table(args.ticket, args.count_room);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        rows.owner[tier] = pool.owner[tier];
        rows.pages[tier] = pool.pages[tier];
        rows.max_pages[tier] = pool.max_pages[tier];
    }
    rows.first_owner = psti_owner_word(args.ticket_index, epoch_of(s), 0);
    rows.start = (uint64_t)s.plan.tile_start[tensor] << PSTI_TILE_SHIFT;
    rows.row_bytes = args.tensors[tensor].row_bytes;
    rows.page_shift = pool.page_shift;
    rows.padding = 0;
    return rows;
}

/* Elements of a row at a column, which may lie in several pages where they are taken one by one. What
 * is nowhere is 0. */
template <class Element, class Pages>
PSTI_DEVICE psti_vector fetch(row_window &window, const Pages &pages, const row_place &row,
                              uint64_t column, uint32_t num, bool is_wide, uint64_t policy)
{
    psti_vector v = {0, 0, 0, 0};
    if (is_wide) {
        if (column >= window.end)
            window = pages.find(row, column);
        if (window.base != PSTI_NOWHERE)
            v = psti_load_vector((const unsigned char *)(window.base + column), policy);
        return v;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < num; i++) {
        typedef typename Element::type type;
        const uint64_t at = column + i * sizeof(type);
        if (at >= window.end)
            window = pages.find(row, at);
        if (window.base != PSTI_NOWHERE)
            add_bits<Element>(v, i, *(const type *)(window.base + at));
    }
    return v;
}

template <class Element, class Pages>
PSTI_DEVICE void put(row_window &window, const Pages &pages, const row_place &row, uint64_t column,
                     const psti_vector &v, uint32_t num, bool is_wide)
{
    if (is_wide) {
        if (column >= window.end)
            window = pages.find(row, column);
        if (window.base != PSTI_NOWHERE)
            psti_store_vector_streaming((unsigned char *)(window.base + column), v);
        return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < num; i++) {
        typedef typename Element::type type;
        const uint64_t at = column + i * sizeof(type);
        if (at >= window.end)
            window = pages.find(row, at);
        if (window.base != PSTI_NOWHERE)
            *(type *)(window.base + at) = (type)bits_at<Element>(v, i);
    }
}

#endif
