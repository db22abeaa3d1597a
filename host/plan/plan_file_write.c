/* Writes a plan file, row by row of the trace that was planned. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/plan/plan_file.h"

typedef struct writer {
    const pst_trace_request *requests;
    uint64_t num_requests;
    const uint64_t *offsets;
    pst_plan_write_fn write;
    void *sink;
    psti_map left_out; /* ids of tensors that are not planned */
} writer;

__attribute__((format(printf, 2, 3))) static pst_status put(const writer *self, const char *format,
                                                            ...)
{
    char line[160];
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    const int error = self->write(self->sink, line, (size_t)length);
    PSTI_CHECK(error == 0, PST_E_INVALID, "the plan cannot be written: %s", strerror(-error));
    return PST_OK;
}

/* Checks the offsets, and finds what is not planned. */
static pst_status prepare(writer *self)
{
    uint64_t num_mallocs = 0;
    for (uint64_t i = 0; i < self->num_requests; i++) {
        const pst_trace_request *request = &self->requests[i];
        if (request->op != PST_TRACE_MALLOC)
            continue;
        const uint64_t offset = self->offsets[num_mallocs++];
        if (offset == PST_PLAN_FREE)
            PSTI_TRY(psti_map_set(&self->left_out, request->id, 0));
        PSTI_CHECK(offset == PST_PLAN_FREE || (request->bytes <= PST_PLAN_MAX_BYTES &&
                                               offset <= PST_PLAN_MAX_BYTES - request->bytes),
                   PST_E_INVALID,
                   "tensor %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " end above %" PRIu64,
                   request->id, request->bytes, offset, PST_PLAN_MAX_BYTES);
    }
    return PST_OK;
}

static pst_status put_request(const writer *self, const pst_trace_request *request, uint64_t offset)
{
    if (request->op == PST_TRACE_MARK && request->tag == PST_TAG_ITERATION)
        return put(self, "mark,%" PRIu64 ",,,\n", request->id);
    if ((request->op == PST_TRACE_MARK && request->tag != PST_TAG_USE) ||
        psti_map_get(&self->left_out, request->id) != PSTI_MAP_NONE)
        return PST_OK;
    if (request->op == PST_TRACE_MARK)
        return put(self, "use,%" PRIu64 ",,%u,\n", request->id, request->stream);
    if (request->op == PST_TRACE_FREE)
        return put(self, "free,%" PRIu64 ",,,\n", request->id);
    return put(self, "malloc,%" PRIu64 ",%" PRIu64 ",%u,%" PRIu64 "\n", request->id, request->bytes,
               request->stream, offset);
}

static pst_status put_all(writer *self)
{
    uint64_t num_mallocs = 0;
    PSTI_TRY(prepare(self));
    PSTI_TRY(put(self, "op,id,size,stream,offset\n"));
    for (uint64_t i = 0; i < self->num_requests; i++) {
        const pst_trace_request *request = &self->requests[i];
        const bool is_malloc = request->op == PST_TRACE_MALLOC;
        PSTI_TRY(put_request(self, request, is_malloc ? self->offsets[num_mallocs++] : 0));
    }
    return PST_OK;
}

pst_status pst_plan_file_write(const pst_trace_request *requests, uint64_t num_requests,
                               const uint64_t *offsets, pst_plan_write_fn write, void *sink)
{
    PSTI_CHECK((requests && offsets) || num_requests == 0, PST_E_INVALID,
               "requests or offsets is NULL");
    PSTI_CHECK(write, PST_E_INVALID, "write is NULL");
    writer self = {.requests = requests,
                   .num_requests = num_requests,
                   .offsets = offsets,
                   .write = write,
                   .sink = sink};
    const pst_status status = put_all(&self);
    psti_map_free(&self.left_out);
    return status;
}
