/* Structs of callers that were compiled with older headers, and the sizes of all by name. */
#include "host/base/structs.h"

#include <stdio.h>
#include <string.h>

#define KEEPS_ITS_START(type, bytes) \
    _Static_assert(sizeof(type) >= (bytes), #type " had more fields in version 0.1");
PSTI_GROWING_STRUCTS(KEEPS_ITS_START)

#define ROW_THAT_GROWS(type, first) {#type, sizeof(type), first, PST_VERSION, true, {0}},
#define ROW(type) {#type, sizeof(type), sizeof(type), PST_VERSION, false, {0}},
static const pst_struct_info table[] = {PSTI_GROWING_STRUCTS(ROW_THAT_GROWS)
                                            PSTI_FROZEN_STRUCTS(ROW)};

enum { NUM_STRUCTS = sizeof(table) / sizeof(table[0]) };

int pst_struct_count(void)
{
    return NUM_STRUCTS;
}

pst_status pst_struct_get(int index, pst_struct_info *info_out)
{
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_CHECK(index >= 0 && index < NUM_STRUCTS, PST_E_INVALID, "index %d: allowed are 0 to %d",
               index, NUM_STRUCTS - 1);
    *info_out = table[index];
    return PST_OK;
}

pst_status pst_struct_find(const char *name, pst_struct_info *info_out)
{
    PSTI_CHECK(name && info_out, PST_E_INVALID, "name or info_out is NULL");
    for (int i = 0; i < NUM_STRUCTS; i++)
        if (strcmp(table[i].name, name) == 0) {
            *info_out = table[i];
            return PST_OK;
        }
    return PSTI_FAIL(PST_E_INVALID, "no public struct is called '%s' in pagestash %d.%d.%d", name,
                     PST_VERSION_MAJOR, PST_VERSION_MINOR, PST_VERSION_PATCH);
}

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
