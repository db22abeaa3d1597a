/* A tool as NVTX loads it (NVTX_INJECTION64_PATH): writes what it is told to the file NVTX_RECORD, a line each.
 *   category ID NAME | push NAME CATEGORY [OPERATION BYTES TICKET] | pop | counter ID NAME | sample ID VALUE */
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 7, DOMAIN = 16 };

static FILE *record;
static nvtxPayloadSchemaEntry_t entries[8]; /* of the schema */
static size_t num_entries;
static uint64_t num_counters;

#define OURS(handle) ((handle) == (nvtxDomainHandle_t)(uintptr_t)DOMAIN)

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    fprintf(record, "domain %s\n", name);
    return (nvtxDomainHandle_t)(uintptr_t)DOMAIN;
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name)
{
    if (OURS(domain))
        fprintf(record, "category %u %s\n", category, name);
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *text)
{
    fprintf(record, "string %s\n", text);
    return OURS(domain) ? (nvtxStringHandle_t)(void *)strdup(text) : NULL;
}

static uint64_t NVTX_API register_schema(nvtxDomainHandle_t domain,
                                         const nvtxPayloadSchemaAttr_t *attributes)
{
    num_entries = OURS(domain) ? attributes->numEntries : 0;
    memcpy(entries, attributes->entries, num_entries * sizeof(entries[0]));
    return SCHEMA;
}

/* By the schema alone, as a tool has it. */
static void put_payload(const nvtxPayloadData_t *data)
{
    for (size_t i = 0; i < num_entries && data->schemaId == SCHEMA; i++) {
        const char *at = (const char *)data->payload + entries[i].offset;
        const void *handle = NULL;
        uint64_t whole = 0;
        fprintf(record, "; %s: ", entries[i].name);
        if (entries[i].type == NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE) {
            memcpy(&handle, at, sizeof(handle));
            fprintf(record, "%s", (const char *)handle);
        } else {
            memcpy(&whole, at, entries[i].type == NVTX_PAYLOAD_ENTRY_TYPE_UINT32 ? 4 : 8);
            fprintf(record, "%" PRIu64, whole);
        }
    }
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    if (!OURS(domain) || event->messageType != NVTX_MESSAGE_TYPE_REGISTERED)
        return fprintf(record, "unexpected push\n");
    fprintf(record, "push %s; category: %u", (const char *)event->message.registered,
            event->category);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_EXT)
        for (int32_t i = 0; i < event->reserved0; i++)
            put_payload((const nvtxPayloadData_t *)(uintptr_t)event->payload.ullValue + i);
    return fprintf(record, "\n");
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    return fprintf(record, OURS(domain) ? "pop\n" : "unexpected pop\n");
}

static uint64_t NVTX_API register_counter(nvtxDomainHandle_t domain,
                                          const nvtxCounterAttr_t *attributes)
{
    const uint64_t id = NVTX_COUNTER_ID_DYNAMIC_START + num_counters++;
    fprintf(record, "counter %" PRIu64 " %s%s\n", id, attributes->name,
            OURS(domain) && attributes->schemaId == NVTX_PAYLOAD_ENTRY_TYPE_INT64 ? ""
                                                                                  : ": unexpected");
    return id;
}

static void NVTX_API sample(nvtxDomainHandle_t domain, uint64_t id, int64_t value)
{
    fprintf(record, "sample %" PRIu64 " %" PRId64 "%s\n", id, value,
            OURS(domain) ? "" : ": unexpected");
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    const char *path = getenv("NVTX_RECORD");
    record = path ? fopen(path, "w") : NULL;
    if (!record || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
        return 0;
    setlinebuf(record);
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

int NVTX_API InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    intptr_t *slots = module->segments->functionSlots;
    if (!record)
        return 0;
    if (module->moduleId == NVTX_EXT_PAYLOAD_MODULEID)
        slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)register_schema;
    if (module->moduleId == NVTX_EXT_COUNTERS_MODULEID) {
        slots[NVTX3EXT_CBID_nvtxCounterRegister] = (intptr_t)register_counter;
        slots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = (intptr_t)sample;
    }
    return 1;
}
