/* A whole trace, made from its requests one after another. */
#include "host/trace/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOT_YET UINT64_MAX       /* the end of a tensor that lives */
#define OUTSIDE (UINT64_MAX - 1) /* in the hash: lives since before the iteration taken */
#define GONE (UINT64_MAX - 2)    /* in the hash: lived and died before the iteration taken */
#define MAX_TENSORS ((uint64_t)UINT32_MAX - 1)

typedef struct builder {
    const pst_trace_config *config;
    pst_trace *trace;
    psti_map ids;
    uint64_t num_iterations; /* marks seen */
    pst_trace_request first; /* row that is kept */
    bool is_over;            /* behind the iteration to take */
} builder;

static const char *trace_where(const pst_trace_config *config, uint64_t line,
                               char out[PSTI_WHERE_BYTES])
{
    snprintf(out, PSTI_WHERE_BYTES, "%.200s:%s%" PRIu64, psti_trace_name(config),
             psti_trace_kinds[config->format]->has_lines ? "" : " event ", line);
    return out;
}

pst_status psti_trace_bad(const char *file, int source_line, const pst_trace_config *config,
                          uint64_t line, const char *field, const char *format, ...)
{
    char where[PSTI_WHERE_BYTES];
    char text[320];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    return psti_fail(PST_E_INVALID, file, source_line, "%s: field %s: %s",
                     trace_where(config, line, where), field, text);
}

#define BAD(build, row, field, ...) PSTI_TRACE_BAD((build)->config, (row)->line, field, __VA_ARGS__)

/* What a reader never gives, but a caller of pst_trace_make may. */
static pst_status check_row(const builder *build, const pst_trace_request *row)
{
    const bool is_mark = row->op == PST_TRACE_MARK;
    if (row->op > PST_TRACE_MARK)
        return BAD(build, row, "op", "%u: allowed is 0..%u", row->op, PST_TRACE_MARK);
    if (row->phase >= PST_NUM_PHASES)
        return BAD(build, row, "phase", "%u: allowed is 0..%u", row->phase, PST_NUM_PHASES - 1);
    if (row->tag >= PST_NUM_TAGS || (row->tag >= PST_TAG_ITERATION) != is_mark)
        return BAD(build, row, "tag", "%u: allowed is %u..%u for op %u", row->tag,
                   is_mark ? PST_TAG_ITERATION : PST_TAG_STATIC,
                   is_mark ? PST_NUM_TAGS - 1 : PST_TAG_DYNAMIC, row->op);
    const bool grows = is_mark && row->tag == PST_TAG_GROW;
    const bool is_sized = row->op == PST_TRACE_MALLOC || grows;
    const uint64_t max = is_mark && !grows ? 0 : PST_TRACE_MAX_BYTES;
    if (row->bytes > max || (row->bytes == 0 && is_sized))
        return BAD(build, row, "size", "%" PRIu64 ": allowed is %d..%" PRIu64, row->bytes, is_sized,
                   max);
    return PST_OK;
}

static pst_status number_stream(const builder *build, const pst_trace_request *row,
                                uint32_t *stream_out)
{
    const uint32_t stream = psti_stream_number(&build->trace->streams, row->stream);
    if (stream == PST_TRACE_MAX_STREAMS)
        return BAD(build, row, "stream", "%u: allowed are at most %d streams", row->stream,
                   PST_TRACE_MAX_STREAMS);
    *stream_out = stream;
    return PST_OK;
}

/* The pass of the request that is about to be added. */
static pst_status find_pass(pst_trace *trace, const pst_trace_request *row, uint32_t *pass_out)
{
    pst_trace_pass *last = trace->num_passes > 0 ? &trace->passes[trace->num_passes - 1] : NULL;
    if (last == NULL || last->phase != row->phase || last->layer != row->layer ||
        last->micro_batch != row->micro_batch) {
        PSTI_CHECK(trace->num_passes < PST_TRACE_NONE, PST_E_INVALID,
                   "%u passes: allowed are fewer", PST_TRACE_NONE);
        PSTI_TRY(psti_grow((void **)&trace->passes, &trace->pass_capacity, trace->num_passes + 1,
                           sizeof(*trace->passes)));
        last = &trace->passes[trace->num_passes++];
        *last = (pst_trace_pass){.begin = trace->num_requests,
                                 .layer = row->layer,
                                 .micro_batch = row->micro_batch,
                                 .phase = row->phase};
    }
    last->end = trace->num_requests + 1;
    *pass_out = (uint32_t)(trace->num_passes - 1);
    return PST_OK;
}

static pst_status add_malloc(builder *build, const pst_trace_request *row)
{
    pst_trace *trace = build->trace;
    const uint64_t index = trace->num_tensors;
    const uint64_t other = psti_map_get(&build->ids, row->id);
    uint32_t stream = 0;
    uint32_t pass = 0;
    if (other == OUTSIDE)
        return BAD(build, row, "id",
                   "%" PRIu64 ": used twice: a tensor from before the iteration "
                   "lives",
                   row->id);
    if (other != PSTI_MAP_NONE && other != GONE)
        return BAD(build, row, "id", "%" PRIu64 ": used twice: the other malloc is at %" PRIu64,
                   row->id, trace->tensors[other].line);
    if (index >= MAX_TENSORS)
        return BAD(build, row, "id", "more tensors than %" PRIu64, MAX_TENSORS);
    PSTI_TRY(number_stream(build, row, &stream));
    PSTI_TRY(find_pass(trace, row, &pass));
    PSTI_TRY(psti_map_set(&build->ids, row->id, index));
    PSTI_TRY(psti_grow((void **)&trace->tensors, &trace->tensor_capacity, index + 1,
                       sizeof(*trace->tensors)));
    trace->tensors[index] = (pst_trace_tensor){.id = row->id,
                                               .bytes = row->bytes,
                                               .begin = trace->num_requests++,
                                               .end = NOT_YET,
                                               .line = row->line,
                                               .stream = stream,
                                               .layer = row->layer,
                                               .micro_batch = row->micro_batch,
                                               .rank = row->rank,
                                               .first_pass = pass,
                                               .last_pass = PST_TRACE_NONE,
                                               .phase = row->phase,
                                               .tag = row->tag,
                                               .begin_time = row->time};
    trace->num_tensors++;
    return PST_OK;
}

/* Where the tensor was freed: only messages ask. */
static uint64_t line_of_free(const pst_trace *trace, uint64_t id)
{
    psti_rows_reader reader = {.of = &trace->rows};
    while (psti_rows_next(&reader))
        if (reader.row.op == PST_TRACE_FREE && reader.row.id == id)
            return reader.row.line;
    return 0;
}

/* The tensor of the id, which must live; NULL without failure for one from before the iteration. */
static pst_status find_live(const builder *build, const pst_trace_request *row,
                            pst_trace_tensor **tensor_out)
{
    const bool is_free = row->op == PST_TRACE_FREE;
    const uint64_t index = psti_map_get(&build->ids, row->id);
    *tensor_out = NULL;
    if (index == OUTSIDE)
        return PST_OK;
    if (index == PSTI_MAP_NONE)
        return BAD(build, row, "id",
                   "%" PRIu64 ": %s before malloc: allowed is the id of a live "
                   "tensor",
                   row->id, is_free ? "free" : "use");
    if (index == GONE)
        return BAD(build, row, "id", "%" PRIu64 ": %s: freed before the iteration already", row->id,
                   is_free ? "double free" : "use after free");
    pst_trace_tensor *tensor = &build->trace->tensors[index];
    if (tensor->end != NOT_YET)
        return BAD(build, row, "id", "%" PRIu64 ": %s: freed at %" PRIu64 ", malloc'ed at %" PRIu64,
                   row->id, is_free ? "double free" : "use after free",
                   line_of_free(build->trace, row->id), tensor->line);
    *tensor_out = tensor;
    return PST_OK;
}

static pst_status add_free(builder *build, const pst_trace_request *row, bool *is_kept_out)
{
    pst_trace *trace = build->trace;
    pst_trace_tensor *tensor = NULL;
    uint32_t stream = 0;
    PSTI_TRY(find_live(build, row, &tensor));
    *is_kept_out = tensor != NULL;
    if (tensor == NULL)
        return psti_map_set(&build->ids, row->id, GONE);
    if (row->bytes != 0 && row->bytes != tensor->bytes)
        return BAD(build, row, "size",
                   "%" PRIu64 ": allowed is nothing or %" PRIu64 ", as in the malloc at %" PRIu64,
                   row->bytes, tensor->bytes, tensor->line);
    PSTI_TRY(number_stream(build, row, &stream));
    PSTI_TRY(find_pass(trace, row, &tensor->last_pass));
    tensor->end = trace->num_requests++;
    tensor->end_time = row->time;
    return PST_OK;
}

static pst_status add_mark(builder *build, const pst_trace_request *row, bool *is_kept_out)
{
    pst_trace_tensor *tensor = NULL;
    uint32_t stream = 0;
    *is_kept_out = true;
    if (row->tag == PST_TAG_USE || row->tag == PST_TAG_GROW) {
        PSTI_TRY(find_live(build, row, &tensor));
        *is_kept_out = tensor != NULL;
    }
    const bool has_stream =
        row->tag != PST_TAG_ITERATION && row->tag != PST_TAG_SYNC && row->tag != PST_TAG_GROW;
    if (*is_kept_out && has_stream)
        PSTI_TRY(number_stream(build, row, &stream));
    return PST_OK;
}

/* Before the iteration that is taken, only who lives counts. */
static pst_status skip(builder *build, const pst_trace_request *row)
{
    if (row->op == PST_TRACE_MARK)
        return PST_OK;
    return psti_map_set(&build->ids, row->id, row->op == PST_TRACE_MALLOC ? OUTSIDE : GONE);
}

static bool is_taken(builder *build, const pst_trace_request *row)
{
    const uint64_t wanted = build->config->iteration;
    if (row->op == PST_TRACE_MARK && row->tag == PST_TAG_ITERATION)
        build->num_iterations++;
    if (!build->config->has_iteration)
        return true;
    build->is_over = build->num_iterations > wanted + 1;
    return build->num_iterations == wanted + 1;
}

static pst_status add(builder *build, const pst_trace_request *row)
{
    pst_trace *trace = build->trace;
    const pst_trace_config *config = build->config;
    bool is_kept = true;
    PSTI_TRY(check_row(build, row));
    if (config->has_rank && row->rank != config->rank)
        return PST_OK;
    if (!is_taken(build, row))
        return build->is_over ? PST_OK : skip(build, row);
    if (trace->rows.num == 0)
        build->first = *row;
    if (row->rank != build->first.rank)
        return BAD(build, row, "rank", "%u: allowed is %u as at %" PRIu64 ", or choose one rank",
                   row->rank, build->first.rank, build->first.line);
    switch (row->op) {
    case PST_TRACE_MALLOC:
        PSTI_TRY(add_malloc(build, row));
        break;
    case PST_TRACE_FREE:
        PSTI_TRY(add_free(build, row, &is_kept));
        break;
    default:
        PSTI_TRY(add_mark(build, row, &is_kept));
    }
    return is_kept ? psti_rows_add(&trace->rows, row) : PST_OK;
}

static pst_status check_taken(const builder *build)
{
    const pst_trace_config *config = build->config;
    const char *name = psti_trace_name(config);
    PSTI_CHECK(!config->has_iteration || build->num_iterations > config->iteration, PST_E_INVALID,
               "%.200s: iteration %u: the trace has %" PRIu64 " iteration marks", name,
               config->iteration, build->num_iterations);
    PSTI_CHECK(!config->has_rank || build->trace->num_tensors > 0, PST_E_INVALID,
               "%.200s: rank %u: the trace has no malloc of it", name, config->rank);
    PSTI_CHECK(build->trace->num_tensors > 0, PST_E_INVALID,
               "%.200s: no malloc: allowed is at least one", name);
    return PST_OK;
}

/* What was never freed lives to the end, or is an error. */
static pst_status end_lives(builder *build)
{
    pst_trace *trace = build->trace;
    const pst_trace_config *config = build->config;
    const bool is_allowed = config->keep_unfreed || psti_trace_kinds[config->format]->keeps_unfreed;
    const pst_trace_tensor *first = NULL;
    uint64_t num_unfreed = 0;
    for (uint64_t i = 0; i < trace->num_tensors; i++) {
        pst_trace_tensor *tensor = &trace->tensors[i];
        if (tensor->end != NOT_YET)
            continue;
        first = first != NULL ? first : tensor;
        num_unfreed++;
        tensor->end = trace->num_requests;
        tensor->never_freed = true;
    }
    if (num_unfreed == 0 || is_allowed)
        return PST_OK;
    return BAD(build, first, "id",
               "%" PRIu64 ": never freed, like %" PRIu64
               " others: allowed is a free of each, or keep_unfreed (--keep-unfreed)",
               first->id, num_unfreed - 1);
}

static pst_status finish(builder *build)
{
    PSTI_TRY(check_taken(build));
    PSTI_TRY(end_lives(build));
    return psti_trace_clocks(build->trace, build->config, &build->ids);
}

static pst_status read_rows(builder *build, pst_trace_reader *reader)
{
    pst_trace_request row;
    while (!build->is_over) {
        const pst_status status = pst_trace_reader_next(reader, &row);
        if (status == PST_E_AGAIN)
            break;
        PSTI_TRY(status);
        PSTI_TRY(add(build, &row));
    }
    return finish(build);
}

static pst_status add_rows(builder *build, const pst_trace_request *rows, uint64_t num_rows)
{
    for (uint64_t i = 0; i < num_rows && !build->is_over; i++)
        PSTI_TRY(add(build, &rows[i]));
    return finish(build);
}

static pst_status open_builder(builder *build, const pst_trace_config *config)
{
    *build = (builder){.config = config,
                       .trace = psti_handle_new(sizeof(*build->trace), PSTI_KIND_TRACE)};
    PSTI_CHECK(build->trace != NULL, PST_E_NOMEM, "out of memory for a trace");
    return PST_OK;
}

static pst_status close_builder(builder *build, pst_status status, pst_trace **trace_out)
{
    psti_map_free(&build->ids);
    if (status == PST_OK)
        *trace_out = build->trace;
    else
        pst_trace_destroy(build->trace);
    return status;
}

pst_status pst_trace_read(const pst_trace_config *config, pst_trace_read_fn read, void *source,
                          pst_trace **trace_out)
{
    pst_trace_reader *reader = NULL;
    builder build;
    PSTI_CHECK(trace_out != NULL, PST_E_INVALID, "trace_out is NULL");
    PSTI_TRY(pst_trace_reader_open(config, read, source, &reader));
    pst_status status = open_builder(&build, &reader->config);
    if (status == PST_OK)
        status = close_builder(&build, read_rows(&build, reader), trace_out);
    pst_trace_reader_close(reader);
    return status;
}

pst_status pst_trace_make(const pst_trace_config *config, const pst_trace_request *requests,
                          uint64_t num_requests, pst_trace **trace_out)
{
    builder build;
    pst_trace_config own;
    PSTI_TRY(psti_trace_take_config(config, &own));
    PSTI_CHECK(trace_out != NULL && (requests != NULL || num_requests == 0), PST_E_INVALID,
               "requests or trace_out is NULL");
    PSTI_TRY(open_builder(&build, &own));
    return close_builder(&build, add_rows(&build, requests, num_requests), trace_out);
}

void pst_trace_destroy(pst_trace *trace)
{
    if (!psti_handle_is(trace, PSTI_KIND_TRACE))
        return;
    psti_free(trace->tensors);
    psti_free(trace->passes);
    psti_rows_free(&trace->rows);
    psti_free(trace->unpacked);
    psti_free(trace->releases);
    psti_handle_free(trace);
}
