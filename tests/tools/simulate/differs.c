/* Linked into a second `pagestash`: every status that is polled has a page more than the pool said
 * in one figure, which PSTI_TEST_DIFFERS names. */
#include <pagestash/pool.h>

#include <stdlib.h>
#include <string.h>

pst_status __real_pst_pool_poll(pst_pool *pool, pst_pool_status *status_out);
pst_status __wrap_pst_pool_poll(pst_pool *pool, pst_pool_status *status_out);

pst_status __wrap_pst_pool_poll(pst_pool *pool, pst_pool_status *status_out)
{
    const char *figure = getenv("PSTI_TEST_DIFFERS");
    const pst_status status = __real_pst_pool_poll(pool, status_out);
    if (status != PST_OK || figure == NULL)
        return status;
    status_out->in_use[0] += strcmp(figure, "in_use") == 0;
    status_out->in_use[1] += strcmp(figure, "host_in_use") == 0;
    status_out->spilled_pages += strcmp(figure, "spilled") == 0;
    return status;
}
