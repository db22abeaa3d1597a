/* Traces of all formats over arbitrary bytes, given whole and in pieces whose size depends on the
 * input: both must say the same. The first byte chooses the format and what is asked for. What is
 * accepted must be a trace: it is summed up, made again from its own rows, and expanded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/fuzz/pieces.h"

enum { MAX_ROWS = 4096 };

static uint64_t fold_row(uint64_t hash, const pst_trace_request *row)
{
    hash = fold(fold(fold(hash, row->line), row->id), row->bytes);
    hash = fold(fold(fold(hash, row->stream), row->layer), row->micro_batch);
    return fold(fold(fold(fold(hash, row->rank), row->op), row->phase), row->tag);
}

/* What a reader or a trace said, in a form that can be compared. */
typedef struct summary {
    pst_status status;
    uint64_t rows, hash;
    char message[1024];
} summary;

static void check_row(const pst_trace_request *row)
{
    require(row->op <= PST_TRACE_MARK && row->phase < PST_NUM_PHASES && row->tag < PST_NUM_TAGS);
    require((row->op == PST_TRACE_MARK) == (row->tag >= PST_TAG_ITERATION));
    require(row->bytes <= PST_TRACE_MAX_BYTES && row->id <= PST_TRACE_MAX_BYTES && row->line > 0);
    require(row->op != PST_TRACE_MALLOC || row->bytes > 0);
}

static void note_failure(summary *out)
{
    snprintf(out->message, sizeof(out->message), "%s", pst_last_message());
    require(strncmp(out->message, "fuzz:", 5) == 0 && strchr(out->message, '\n') == NULL);
}

static summary stream(const pst_trace_config *config, byte_source source)
{
    summary out = {.status = PST_OK};
    pst_trace_reader *reader = NULL;
    pst_trace_request row;
    require(pst_trace_reader_open(config, read_bytes, &source, &reader) == PST_OK);
    while ((out.status = pst_trace_reader_next(reader, &row)) == PST_OK) {
        check_row(&row);
        out.rows++;
        out.hash = fold_row(out.hash, &row);
    }
    pst_trace_reader_close(reader);
    require(out.status == PST_E_AGAIN || out.status == PST_E_INVALID);
    if (out.status == PST_E_INVALID)
        note_failure(&out);
    return out;
}

/* The most live bytes two ways: by the summary, and by going over the tensors. */
static void check_lives(const pst_trace *trace)
{
    const uint64_t num_tensors = pst_trace_num_tensors(trace);
    const uint64_t num_requests = pst_trace_num_requests(trace);
    const uint64_t *releases = pst_trace_releases(trace);
    const uint32_t num_streams = pst_trace_num_streams(trace);
    pst_trace_summary figures;
    uint64_t ends = 0;
    require(num_streams >= 1 && num_streams <= PST_TRACE_MAX_STREAMS);
    require((releases != NULL) == (num_streams > 1));
    for (uint64_t i = 0; i < num_tensors; i++) {
        const pst_trace_tensor *tensor = &pst_trace_tensors(trace)[i];
        require(tensor->begin < tensor->end && tensor->end <= num_requests);
        require(tensor->never_freed == (tensor->end == num_requests));
        require(tensor->stream < num_streams && tensor->first_pass < pst_trace_num_passes(trace));
        require(i == 0 || tensor[-1].begin < tensor->begin);
        ends += !tensor->never_freed;
        for (uint32_t r = 0; releases != NULL && r < num_streams; r++)
            require(releases[i * num_streams + r] >= tensor->end &&
                    releases[i * num_streams + r] <= num_requests);
    }
    require(num_tensors + ends == num_requests);
    const pst_status status = pst_trace_get_summary(trace, 1, &figures);
    require(status == PST_OK || status == PST_E_INVALID);
    require(status != PST_OK || figures.online_peak >= figures.most_live_bytes);
}

static uint64_t fold_trace(const pst_trace *trace)
{
    uint64_t hash = 0;
    for (uint64_t i = 0; i < pst_trace_num_rows(trace); i++)
        hash = fold_row(hash, &pst_trace_rows(trace)[i]);
    return hash;
}

static void expand(const pst_trace *trace, uint8_t choice)
{
    pst_trace_expansion how = PST_TRACE_EXPANSION_INIT;
    pst_trace *longer = NULL;
    how.num_layers = 1 + choice % 3;
    how.num_micro_batches = 1 + choice / 3 % 3;
    how.order = choice % 2 == 0 ? PST_ORDER_SEQUENTIAL : PST_ORDER_1F1B;
    how.num_stages = 3;
    const pst_status status = pst_trace_expand(trace, &how, &longer);
    require(status == PST_OK || status == PST_E_INVALID);
    if (status != PST_OK)
        return;
    check_lives(longer);
    require(how.num_layers > 1 || how.num_micro_batches > 1 ||
            pst_trace_num_requests(longer) <= pst_trace_num_requests(trace));
    pst_trace_destroy(longer);
}

static summary whole(const pst_trace_config *config, byte_source source, uint8_t choice)
{
    summary out = {.status = PST_OK};
    pst_trace_config again = PST_TRACE_CONFIG_INIT;
    pst_trace *trace = NULL;
    pst_trace *copy = NULL;
    out.status = pst_trace_read(config, read_bytes, &source, &trace);
    require(out.status == PST_OK || out.status == PST_E_INVALID);
    if (out.status != PST_OK) {
        note_failure(&out);
        return out;
    }
    check_lives(trace);
    out.rows = pst_trace_num_rows(trace);
    out.hash = fold_trace(trace);
    again.keep_unfreed = true;
    again.has_iteration = config->has_iteration; /* waits for events from before it */
    if (!config->has_iteration) {
        require(pst_trace_make(&again, pst_trace_rows(trace), out.rows, &copy) == PST_OK);
        require(pst_trace_num_tensors(copy) == pst_trace_num_tensors(trace));
        require(fold_trace(copy) == out.hash);
        pst_trace_destroy(copy);
    }
    if (out.rows <= MAX_ROWS)
        expand(trace, choice);
    pst_trace_destroy(trace);
    return out;
}

static void require_same(const summary *a, const summary *b)
{
    require(a->status == b->status && a->rows == b->rows && a->hash == b->hash);
    require(strcmp(a->message, b->message) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const uint8_t choice = data[0];
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    config.name = "fuzz";
    config.format = (pst_trace_format)(choice % PST_TRACE_NUM_FORMATS);
    config.keep_unfreed = choice / PST_TRACE_NUM_FORMATS % 2 != 0;
    config.has_rank = choice / 10 % 3 == 1;
    config.rank = 1;
    config.has_iteration = choice / 10 % 3 == 2;
    const byte_source at_once = {(const char *)data + 1, size - 1, 0, 0};
    const byte_source in_pieces = {(const char *)data + 1, size - 1, 1 + size % MAX_PIECE, 0};
    const summary streams[] = {stream(&config, at_once), stream(&config, in_pieces)};
    require_same(&streams[0], &streams[1]);
    const summary wholes[] = {whole(&config, at_once, choice), whole(&config, in_pieces, choice)};
    require_same(&wholes[0], &wholes[1]);
    /* what the reader refuses, the trace refuses with the same words or, before that, others */
    require(wholes[0].status != PST_OK || streams[0].status == PST_E_AGAIN || config.has_iteration);
    return 0;
}
