/* NVTX of host calls, in the domain "pagestash": a range for each call that enqueues, with a registered name and
 * the room as its category, and counters. Empty in a build without the toolkit.
 * PSTI_RANGE(name); spans the rest of the enclosing block, PSTI_RANGE_OF(name, operation, ticket, bytes); says
 * what it enqueues, too: a string literal, the ticket's number in its pool, and the bytes at capacity. */
#ifndef PSTI_HOST_NVTX_H
#define PSTI_HOST_NVTX_H

#include <stdbool.h>
#include <stdint.h>

enum { PSTI_NUM_COUNTERS = 2 }; /* of a pool: device pages in use, host pages in use */

#if PSTI_HAVE_NVTX
/* A place in the source with a range; its strings are registered once. */
typedef struct psti_range_site {
    const char *name, *operation, *file;
    void *name_handle, *operation_handle; /* atomic; NULL: not registered yet */
} psti_range_site;

bool psti_range_begin(psti_range_site *site, uint32_t ticket, uint64_t capacity_bytes);
void psti_range_end(const bool *began);
/* Registers a pool's counters; ids stay 0 where no tool listens. */
void psti_counters_open(uint64_t ids[PSTI_NUM_COUNTERS]);
void psti_counters_write(const uint64_t ids[PSTI_NUM_COUNTERS],
                         const uint64_t values[PSTI_NUM_COUNTERS]);
#define PSTI_RANGE_AT(name, operation, ticket, bytes)                        \
    static psti_range_site psti_site = {name, operation, __FILE__, 0, 0};    \
    __attribute__((cleanup(psti_range_end), unused)) const bool psti_range = \
        psti_range_begin(&psti_site, ticket, bytes)
#define PSTI_RANGE(name) PSTI_RANGE_AT(name, 0, 0, 0)
#define PSTI_RANGE_OF(name, operation, ticket, bytes) PSTI_RANGE_AT(name, operation, ticket, bytes)
#else
#define PSTI_RANGE(name) (void)0
#define PSTI_RANGE_OF(name, operation, ticket, bytes) ((void)(ticket), (void)(bytes))
#define psti_counters_open(ids) (void)(ids)
#define psti_counters_write(ids, values) ((void)(ids), (void)(values))
#endif

#endif
