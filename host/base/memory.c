/* The library's own host allocations, of which tests make the n-th one fail. */
#include "host/base/base.h"

#include <stdlib.h>
#include <string.h>

static long successes_left = -1;

void psti_fail_allocation_after(long successes)
{
    __atomic_store_n(&successes_left, successes, __ATOMIC_RELAXED);
}

bool psti_allocation_fails(void)
{
    long left = __atomic_load_n(&successes_left, __ATOMIC_RELAXED);
    do {
        if (left < 0)
            return false;
        if (left == 0)
            return true;
    } while (!__atomic_compare_exchange_n(&successes_left, &left, left - 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return false;
}

void *psti_calloc(size_t count, size_t size)
{
    return psti_allocation_fails() ? NULL : calloc(count, size);
}

void *psti_enlarge(void *memory, size_t old_bytes, size_t bytes)
{
    char *larger = psti_allocation_fails() ? NULL : realloc(memory, bytes);
    if (larger != NULL)
        memset(larger + old_bytes, 0, bytes - old_bytes);
    return larger;
}

void psti_free(void *memory)
{
    free(memory);
}
