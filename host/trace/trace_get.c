/* What a finished trace says of itself. */
#include "host/trace/trace.h"

uint64_t pst_trace_num_tensors(const pst_trace *trace)
{
    return trace->num_tensors;
}

const pst_trace_tensor *pst_trace_tensors(const pst_trace *trace)
{
    return trace->tensors;
}

uint64_t pst_trace_num_passes(const pst_trace *trace)
{
    return trace->num_passes;
}

const pst_trace_pass *pst_trace_passes(const pst_trace *trace)
{
    return trace->passes;
}

uint64_t pst_trace_num_requests(const pst_trace *trace)
{
    return trace->num_requests;
}

uint32_t pst_trace_num_streams(const pst_trace *trace)
{
    return trace->streams.num;
}

uint32_t pst_trace_stream_name(const pst_trace *trace, uint32_t stream)
{
    return stream < trace->streams.num ? (uint32_t)trace->streams.names[stream] : PST_TRACE_NONE;
}

uint64_t pst_trace_num_rows(const pst_trace *trace)
{
    return trace->num_rows;
}

const pst_trace_request *pst_trace_rows(const pst_trace *trace)
{
    return trace->rows;
}

const uint64_t *pst_trace_releases(const pst_trace *trace)
{
    return trace->releases;
}
