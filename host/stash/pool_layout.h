/* Sizes of pages and pools: pure arithmetic. Of room stash only this header is open to the rooms that
 * compute (plan, estimate). */
#ifndef PSTI_HOST_POOL_LAYOUT_H
#define PSTI_HOST_POOL_LAYOUT_H

#include <pagestash/group.h>
#include <pagestash/pool.h>

#include "host/base/base.h"
#include "kernels/core/layout.h"

/* The records of the tickets that a pool lends: record i lies at first + i * record_bytes. */
typedef struct psti_slab_layout {
    unsigned char *first; /* NULL while a walk only counts, and where there are none */
    uint64_t record_bytes;
    uint32_t num, count_room; /* of each record, as in psti_ticket_record */
    uint64_t table_pages;
} psti_slab_layout;

/* X(name, what): the parts of a pool's memory, in their order. With PAGESTASH_CHECK=1 a canary lies behind
 * each. */
#define PSTI_CANARY_LIST(X)                    \
    X(PAGES, "pages")                          \
    X(RING, "freelist")                        \
    X(OWNER, "owner words")                    \
    X(HOST_RING, "freelist of host pages")     \
    X(HOST_OWNER, "owner words of host pages") \
    X(SEEN, "marks of a check")                \
    X(SKETCH, "sketch of demands")             \
    X(TICKETS, "directory of tickets")         \
    X(SLAB, "slab of tickets")                 \
    X(STATE, "state and launch words")         \
    X(STATUS, "status block")

typedef enum psti_part {
#define PSTI_CANARY_ENUM(name, what) PSTI_PART_##name,
    PSTI_CANARY_LIST(PSTI_CANARY_ENUM)
#undef PSTI_CANARY_ENUM
        PSTI_NUM_PARTS
} psti_part;

/* From the part's last byte to the next part, so that also what alignment leaves free is watched. */
typedef struct psti_canary {
    unsigned char *at; /* NULL: none */
    uint64_t bytes;
} psti_canary;

#define PSTI_CANARY_BYTES 256u /* at least so many, and less than twice that */

/* PSTI_CANARY_BYTES with PAGESTASH_CHECK=1, else 0. */
uint64_t psti_canary_room(void);

/* log2 of a checked page size; 0 means the default. */
pst_status psti_page_shift(uint64_t page_bytes, uint32_t *shift_out);
/* Bytes of a ticket's record with its counts, page table and, in a pool with a host tier, where its
 * pages are going. */
uint64_t psti_record_bytes(const psti_pool_view *view, uint32_t count_room, uint64_t table_pages);
/* Whether the device pages have memory of their own, so that they can grow. */
bool psti_pool_has_own_pages(const pst_pool_config *config);
/* Checks the config, a whole one, and fills in what view and slab of such a pool have beside their
 * addresses. */
pst_status psti_pool_view_of(const pst_pool_config *config, psti_pool_view *view,
                             psti_slab_layout *slab, uint64_t *bytes_out);
/* One walk counts (base NULL) or carves. The device pages lie in front, unless they have memory of
 * their own; the slab's records among the metadata. canaries: PSTI_NUM_PARTS of zeros, where base is
 * not NULL. */
uint64_t psti_pool_layout(psti_pool_view *view, psti_slab_layout *slab, unsigned char *base,
                          bool own_pages, psti_canary *canaries, bool *overflow);

#endif
