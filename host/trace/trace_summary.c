/* The figures of a trace: how many bytes live at most, and what an online allocator reaches. */
#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"
#include "host/trace/trace.h"

#define MAX_ALIGN (UINT64_C(1) << 32)
#define MAX_LIVE_BYTES (UINT64_C(1) << 62)

/* Who begins or ends at every instant. */
static void order_instants(const pst_trace *trace, bool is_dynamic, uint64_t *order)
{
    for (uint64_t i = 0; i < trace->num_requests; i++)
        order[i] = PSTI_ORDER_NONE;
    for (uint64_t i = 0; i < trace->num_tensors; i++) {
        const pst_trace_tensor *tensor = &trace->tensors[i];
        if ((tensor->tag == PST_TAG_DYNAMIC) != is_dynamic)
            continue;
        order[tensor->begin] = i << 1 | 1;
        if (!tensor->never_freed)
            order[tensor->end] = i << 1;
    }
}

typedef struct peak {
    uint64_t bytes, instant, most_live;
} peak;

static pst_status find_peak(const pst_trace *trace, const uint64_t *order, uint64_t align,
                            peak *peak_out)
{
    peak most = {0, 0, 0};
    uint64_t bytes = 0;
    uint64_t live = 0;
    for (uint64_t i = 0; i < trace->num_requests; i++) {
        if (order[i] == PSTI_ORDER_NONE)
            continue;
        const uint64_t own = psti_round_up(trace->tensors[order[i] >> 1].bytes, align);
        const bool is_begin = (order[i] & 1) != 0;
        PSTI_CHECK(!is_begin || own <= MAX_LIVE_BYTES - bytes, PST_E_INVALID,
                   "more than 2^62 bytes live at line %" PRIu64 ": allowed are fewer",
                   trace->tensors[order[i] >> 1].line);
        bytes = is_begin ? bytes + own : bytes - own;
        live = is_begin ? live + 1 : live - 1;
        most.most_live = live > most.most_live ? live : most.most_live;
        if (bytes > most.bytes) {
            most.bytes = bytes;
            most.instant = i;
        }
    }
    *peak_out = most;
    return PST_OK;
}

static pst_status count(const pst_trace *trace, pst_trace_summary *summary)
{
    psti_map sizes = {NULL, 0, 0};
    pst_status status = PST_OK;
    for (uint64_t i = 0; i < trace->num_tensors && status == PST_OK; i++) {
        const pst_trace_tensor *tensor = &trace->tensors[i];
        const bool is_static = tensor->tag == PST_TAG_STATIC;
        summary->num_tensors += is_static;
        summary->num_dynamic += !is_static;
        summary->num_unfreed += is_static && tensor->never_freed;
        if (is_static)
            status = psti_map_set(&sizes, tensor->bytes, 0);
    }
    summary->num_sizes = sizes.num_keys;
    psti_map_free(&sizes);
    return status;
}

static pst_status measure(const pst_trace *trace, uint64_t *order, pst_trace_summary *summary)
{
    peak most = {0, 0, 0};
    order_instants(trace, true, order);
    PSTI_TRY(find_peak(trace, order, summary->align, &most));
    summary->most_live_dynamic_bytes = most.bytes;
    order_instants(trace, false, order);
    PSTI_TRY(find_peak(trace, order, summary->align, &most));
    summary->most_live_bytes = most.bytes;
    summary->most_live_instant = most.instant;
    summary->most_live_tensors = most.most_live;
    PSTI_TRY(
        psti_trace_online(trace, order, most.most_live, summary->align, &summary->online_peak));
    return count(trace, summary);
}

pst_status pst_trace_get_summary_sized(const pst_trace *trace, uint64_t align,
                                       pst_trace_summary *summary_out, size_t summary_bytes)
{
    PSTI_CHECK_HANDLE(trace, TRACE);
    PSTI_CHECK(summary_out != NULL, PST_E_INVALID, "summary_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_trace_summary, summary_bytes));
    PSTI_CHECK((align & (align - 1)) == 0 && align <= MAX_ALIGN, PST_E_INVALID,
               "align %" PRIu64 ": allowed is a power of two up to 2^32, or 0", align);
    pst_trace_summary summary = {.num_requests = trace->num_requests,
                                 .align = align != 0 ? align : PST_TRACE_ALIGN_DEFAULT};
    uint64_t *order = psti_calloc((size_t)trace->num_requests, sizeof(*order));
    PSTI_CHECK(order != NULL, PST_E_NOMEM, "out of memory for %" PRIu64 " requests",
               trace->num_requests);
    const pst_status status = measure(trace, order, &summary);
    psti_free(order);
    if (status == PST_OK)
        memcpy(summary_out, &summary, summary_bytes);
    return status;
}
