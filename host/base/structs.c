/* Structs of callers that were compiled with older headers. */
#include "host/base/structs.h"

#include <stdio.h>
#include <string.h>

#define KEEPS_ITS_START(type, bytes) \
    _Static_assert(sizeof(type) >= (bytes), #type " had more fields in version 0.1");
PSTI_GROWING_STRUCTS(KEEPS_ITS_START)

pst_status psti_check_size(const char *what, uint64_t bytes, const char *type, size_t first,
                           size_t known)
{
    if (bytes >= first && bytes <= known)
        return PST_OK;
    char sizes[48];
    if (first == known)
        snprintf(sizes, sizeof(sizes), "%zu", known);
    else
        snprintf(sizes, sizeof(sizes), "%zu to %zu", first, known);
    return PSTI_FAIL(PST_E_INVALID, "%s %llu: %s has %s bytes in pagestash %d.%d.%d, %s", what,
                     (unsigned long long)bytes, type, sizes, PST_VERSION_MAJOR, PST_VERSION_MINOR,
                     PST_VERSION_PATCH,
                     bytes > known ? "which is older than the caller's headers"
                                   : "pass its sizeof");
}

pst_status psti_take_struct(void *to, const void *from, const char *type, size_t first,
                            size_t known)
{
    size_t bytes = 0;
    PSTI_CHECK(from, PST_E_INVALID, "%s is NULL", type);
    memcpy(&bytes, from, sizeof(bytes));
    PSTI_TRY(psti_check_size("struct_size", bytes, type, first, known));
    memcpy(to, from, bytes);
    memcpy(to, &known, sizeof(known));
    return PST_OK;
}

void psti_take_element(void *to, const void *array, uint64_t i, size_t bytes)
{
    memcpy(to, (const unsigned char *)array + i * bytes, bytes);
}
