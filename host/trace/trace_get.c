/* What a finished trace says of itself. */
#include "host/trace/trace.h"

static bool is_trace(const pst_trace *trace)
{
    return psti_handle_is(trace, PSTI_KIND_TRACE);
}

uint64_t pst_trace_num_tensors(const pst_trace *trace)
{
    return is_trace(trace) ? trace->num_tensors : 0;
}

const pst_trace_tensor *pst_trace_tensors(const pst_trace *trace)
{
    return is_trace(trace) ? trace->tensors : NULL;
}

uint64_t pst_trace_num_passes(const pst_trace *trace)
{
    return is_trace(trace) ? trace->num_passes : 0;
}

const pst_trace_pass *pst_trace_passes(const pst_trace *trace)
{
    return is_trace(trace) ? trace->passes : NULL;
}

uint64_t pst_trace_num_requests(const pst_trace *trace)
{
    return is_trace(trace) ? trace->num_requests : 0;
}

uint32_t pst_trace_num_streams(const pst_trace *trace)
{
    return is_trace(trace) ? trace->streams.num : 0;
}

uint32_t pst_trace_stream_name(const pst_trace *trace, uint32_t stream)
{
    return is_trace(trace) && stream < trace->streams.num ? (uint32_t)trace->streams.names[stream]
                                                          : PST_TRACE_NONE;
}

uint64_t pst_trace_num_rows(const pst_trace *trace)
{
    return is_trace(trace) ? trace->rows.num : 0;
}

const uint64_t *pst_trace_releases(const pst_trace *trace)
{
    return is_trace(trace) ? trace->releases : NULL;
}
