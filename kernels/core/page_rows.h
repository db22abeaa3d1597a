/* Where the rows of one tensor lie in a ticket's pages: for kernels that read them in place. Plain C for
 * gcc, g++ and nvcc over a struct that is passed by value; it needs no other header of the library. */
#ifndef PSTI_CORE_PAGE_ROWS_H
#define PSTI_CORE_PAGE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define PSTI_PAGE_ROWS_FN static __device__ __forceinline__
#define PSTI_PAGE_ROWS_LOAD(at) (*(const volatile uint64_t *)(at))
#else
#define PSTI_PAGE_ROWS_FN static inline
#define PSTI_PAGE_ROWS_LOAD(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#endif

/* Of one tensor, of several segments one of them. Index 0 of the pairs is device pages, 1 host pages. */
typedef struct psti_page_rows {
    const uint32_t *ids; /* of the ticket's pages, in order: index, top bit set for host pages */
    const uint64_t *owner[2]; /* by index: whose the page is */
    unsigned char *pages[2];
    uint32_t max_pages[2]; /* indices are below */
    uint64_t
        first_owner; /* the owner word of the ticket's first page; that of page n has n more in its
                            * high half */
    uint64_t start;  /* of the rows in the ticket's byte stream */
    uint64_t row_bytes;  /* at least 1; rows follow one another */
    uint32_t page_shift; /* a page has 1 << page_shift bytes */
    uint32_t padding;
} psti_page_rows;

/* A range of columns of rows that follow one another, as far as it lies in one page. */
typedef struct psti_page_run {
    unsigned char *at; /* of the first row's range; NULL: its page is not the ticket's */
    uint64_t bytes;    /* of that range in this page, at least 1 */
    uint64_t rows;     /* whose ranges lie wholly in this page; 0: not even the first one's */
    uint64_t page;     /* of the ticket */
    uint32_t tier;     /* 0: device */
    uint32_t id;       /* of the page, as it stands there */
} psti_page_run;

/* Columns [column, column + width) of `row` and what follows it: bytes, width at least 1, within a row.
 * Of a run `rows` costs a division where it is used. */
PSTI_PAGE_ROWS_FN psti_page_run psti_find_page_run(psti_page_rows from, uint64_t row,
                                                   uint64_t column, uint64_t width)
{
    const uint64_t at = from.start + row * from.row_bytes + column;
    const uint64_t page = at >> from.page_shift;
    const uint64_t left = ((page + 1) << from.page_shift) - at;
    const uint32_t id = from.ids[page];
    const uint32_t tier = id >> 31;
    const uint32_t index = id & 0x7fffffffu;
    const uint64_t mine = from.first_owner + (page << 32);
    /* no indices: the struct may be in registers */
    const uint64_t *owner = tier ? from.owner[1] : from.owner[0];
    unsigned char *pages = tier ? from.pages[1] : from.pages[0];
    const uint32_t max_pages = tier ? from.max_pages[1] : from.max_pages[0];
    psti_page_run run = {NULL, left < width ? left : width, 0, page, tier, id};
    run.rows = left < width ? 0 : (left - width) / from.row_bytes + 1;
    if (index < max_pages && PSTI_PAGE_ROWS_LOAD(&owner[index]) == mine)
        run.at = pages + ((uint64_t)index << from.page_shift) + (at - (page << from.page_shift));
    return run;
}

#endif
