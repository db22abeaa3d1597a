/* Takes memory for the exact search and counts it against its budget. */
#include <string.h>

#include "host/plan/plan_exact.h"

psti_verdict psti_exact_take(psti_exact_instance *instance, uint64_t bytes, void **memory_out)
{
    uint64_t left = __atomic_load_n(&instance->memory_left, __ATOMIC_RELAXED);
    do {
        if (left < bytes)
            return PSTI_STOPPED;
    } while (!__atomic_compare_exchange_n(&instance->memory_left, &left, left - bytes, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    void *memory = psti_calloc(1, bytes);
    if (memory == NULL) {
        __atomic_add_fetch(&instance->memory_left, bytes, __ATOMIC_RELAXED);
        return PSTI_NO_MEMORY;
    }
    *memory_out = memory;
    return PSTI_FOUND;
}

void psti_exact_give(psti_exact_instance *instance, void *memory, uint64_t bytes)
{
    if (memory != NULL)
        __atomic_add_fetch(&instance->memory_left, bytes, __ATOMIC_RELAXED);
    psti_free(memory);
}

psti_verdict psti_exact_grow(psti_exact_instance *instance, void **memory, size_t *max,
                             size_t wanted, size_t bytes)
{
    if (wanted <= *max)
        return PSTI_FOUND;
    const size_t larger_max = wanted + wanted / 2 + 256;
    void *larger;
    const psti_verdict verdict = psti_exact_take(instance, larger_max * bytes, &larger);
    if (verdict != PSTI_FOUND)
        return verdict;
    if (*memory != NULL)
        memcpy(larger, *memory, *max * bytes);
    psti_exact_give(instance, *memory, *max * bytes);
    *memory = larger;
    *max = larger_max;
    return PSTI_FOUND;
}
