/* Sizes of pages and pools: pure arithmetic. Of room stash only this header is open to the rooms that
 * compute (plan, estimate). */
#ifndef PSTI_HOST_POOL_LAYOUT_H
#define PSTI_HOST_POOL_LAYOUT_H

#include <pagestash/pool.h>

#include "host/base/base.h"
#include "kernels/core/layout.h"

/* log2 of a checked page size; 0 means the default. */
pst_status psti_page_shift(uint64_t page_bytes, uint32_t *shift_out);
/* Whether the device pages have memory of their own, so that they can grow. */
bool psti_pool_has_own_pages(const pst_pool_config *config);
/* Checks the config, and fills in what the view of such a pool has beside its addresses. */
/* config: a whole one. */
pst_status psti_pool_view_of(const pst_pool_config *config, psti_pool_view *view,
                             uint64_t *bytes_out);
/* One walk counts (base NULL) or carves. The device pages lie in front, unless they have memory of
 * their own. */
uint64_t psti_pool_layout(psti_pool_view *view, unsigned char *base, bool own_pages,
                          bool *overflow);

#endif
