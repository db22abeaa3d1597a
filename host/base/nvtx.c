/* NVTX ranges and counters in the domain "pagestash". */
#include "host/base/nvtx.h"

#if PSTI_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
/* CUDA 13 has both, 12.4 neither. An older nvToolsExt.h may stand in front of another NVTX's extensions: it does
 * not define what these use. */
#if defined(NVTX_STATIC_CAST) && __has_include(<nvtx3/nvToolsExtPayload.h>)
#include <nvtx3/nvToolsExtPayload.h>
#define HAVE_PAYLOADS 1
#else
#define HAVE_PAYLOADS 0
#endif
#if HAVE_PAYLOADS && __has_include(<nvtx3/nvToolsExtCounters.h>)
#include <nvtx3/nvToolsExtCounters.h>
#define HAVE_COUNTERS 1
#else
#define HAVE_COUNTERS 0
#endif
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "host/base/base.h"

/* The rooms whose calls have ranges; the category is the place, from 1. */
static const char *const rooms[] = {"stash", "scheduler", "comm", "linear"};
enum { NUM_ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; /* NULL: switched off, or no tool */

#if HAVE_PAYLOADS
/* The payload of a range that names its operation. */
typedef struct payload {
    void *operation; /* a registered string */
    uint64_t capacity_bytes;
    uint32_t ticket;
} payload;

static uint64_t schema;

static void register_schema(void)
{
    static const nvtxPayloadSchemaEntry_t entries[] = {
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE,
         .name = "operation",
         .offset = offsetof(payload, operation)},
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
         .name = "bytes at capacity",
         .offset = offsetof(payload, capacity_bytes)},
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT32,
         .name = "ticket",
         .offset = offsetof(payload, ticket)}};
    const nvtxPayloadSchemaAttr_t attributes = {
        .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
        .name = "pagestash operation",
        .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
        .entries = entries,
        .numEntries = sizeof(entries) / sizeof(entries[0]),
        .payloadStaticSize = sizeof(payload)};
    schema = nvtxPayloadSchemaRegister(domain, &attributes);
}
#endif

static void create_domain(void)
{
    if (psti_env_nvtx())
        domain = nvtxDomainCreateA("pagestash");
    if (!domain)
        return;
    for (uint32_t i = 0; i < NUM_ROOMS; i++)
        nvtxDomainNameCategoryA(domain, i + 1, rooms[i]);
#if HAVE_PAYLOADS
    register_schema();
#endif
}

/* 0: none of the rooms. */
static uint32_t category_of(const char *file)
{
    const char *end = strrchr(file, '/');
    for (uint32_t i = 0; end && i < NUM_ROOMS; i++) {
        const size_t length = strlen(rooms[i]);
        if ((size_t)(end - file) > length && strncmp(end - length, rooms[i], length) == 0 &&
            end[-(ptrdiff_t)length - 1] == '/')
            return i + 1;
    }
    return 0;
}

/* Two threads may both register: the tool answers the same string twice. */
static void *registered(void **handle, const char *text)
{
    void *found = __atomic_load_n(handle, __ATOMIC_RELAXED);
    if (!found) {
        found = nvtxDomainRegisterStringA(domain, text);
        __atomic_store_n(handle, found, __ATOMIC_RELAXED);
    }
    return found;
}

bool psti_range_begin(psti_range_site *site, uint32_t ticket, uint64_t capacity_bytes)
{
    pthread_once(&once, create_domain);
    if (!domain)
        return false;
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                        .category = category_of(site->file),
                                        .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
    attributes.message.registered = registered(&site->name_handle, site->name);
#if HAVE_PAYLOADS
    payload values = {.capacity_bytes = capacity_bytes, .ticket = ticket};
    nvtxPayloadData_t data = {.schemaId = schema, .size = sizeof(values), .payload = &values};
    if (site->operation) {
        values.operation = registered(&site->operation_handle, site->operation);
        attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
        attributes.reserved0 = 1; /* so many payloads */
        attributes.payload.ullValue = (uint64_t)(uintptr_t)&data;
    }
#else
    (void)ticket, (void)capacity_bytes;
#endif
    nvtxDomainRangePushEx(domain, &attributes);
    return true;
}

void psti_range_end(const bool *began)
{
    if (*began)
        nvtxDomainRangePop(domain);
}

void psti_counters_open(uint64_t ids[PSTI_NUM_COUNTERS])
{
    pthread_once(&once, create_domain);
#if HAVE_COUNTERS
    static uint64_t num_pools; /* atomic */
    static const char *const tiers[PSTI_NUM_COUNTERS] = {"device", "host"};
    if (!domain)
        return;
    const uint64_t pool = __atomic_fetch_add(&num_pools, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < PSTI_NUM_COUNTERS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "pool %" PRIu64 ": %s pages in use", pool, tiers[i]);
        const nvtxCounterAttr_t attributes = {.structSize = sizeof(attributes),
                                              .schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
                                              .name = name,
                                              .description = "as the last pst_pool_poll read it",
                                              .counterId = NVTX_COUNTER_ID_NONE};
        ids[i] = nvtxCounterRegister(domain, &attributes);
    }
#else
    (void)ids;
#endif
}

void psti_counters_write(const uint64_t ids[PSTI_NUM_COUNTERS],
                         const uint64_t values[PSTI_NUM_COUNTERS])
{
    for (int i = 0; i < PSTI_NUM_COUNTERS; i++) {
#if HAVE_COUNTERS
        if (ids[i])
            nvtxCounterSampleInt64(domain, ids[i], (int64_t)values[i]);
#else
        (void)ids, (void)values;
#endif
    }
}
#else
typedef int psti_nvtx_is_off;
#endif
