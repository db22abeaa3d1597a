/* Our own CSV: one request a line. */
#include "host/trace/trace.h"

enum { OP, ID, SIZE, STREAM, PHASE, LAYER, MICRO_BATCH, RANK, TAG, NUM_FIELDS };

static const char *const names[NUM_FIELDS] = {"op",    "id",          "size", "stream", "phase",
                                              "layer", "micro_batch", "rank", "tag"};
static const char *const ops[] = {"malloc", "free", "mark"};
static const char *const phases[PST_NUM_PHASES] = {"", "forward", "backward", "weight", "other"};
static const char *const tags[PST_NUM_TAGS] = {"static", "dynamic", "iteration", "record",
                                               "wait",   "use",     "sync",      "grow"};

typedef struct csv_state {
    bool has_header;
} csv_state;

/* An empty field means `empty`. */
static pst_status take_u32(const psti_lines *lines, const psti_field *fields, int at,
                           uint32_t empty, uint32_t max, uint32_t *out)
{
    uint64_t number = empty;
    if (fields[at].length > 0)
        PSTI_TRY(psti_field_number(lines, names[at], fields[at], 0, max, &number));
    *out = (uint32_t)number;
    return PST_OK;
}

static pst_status take_tag(const psti_lines *lines, psti_field value, pst_trace_request *row)
{
    if (row->op == PST_TRACE_MARK) {
        if (!psti_field_word(value, tags, PST_TAG_ITERATION, PST_NUM_TAGS, &row->tag))
            return psti_field_bad(lines, "tag", value,
                                  "iteration, record, wait, use, sync or grow for a mark");
        return PST_OK;
    }
    if (value.length > 0 &&
        !psti_field_word(value, tags, PST_TAG_STATIC, PST_TAG_ITERATION, &row->tag))
        return psti_field_bad(lines, "tag", value, "static, dynamic or nothing");
    return PST_OK;
}

static pst_status take_id_and_size(const psti_lines *lines, const psti_field *fields,
                                   pst_trace_request *row)
{
    const bool needs_id = row->op != PST_TRACE_MARK || row->tag != PST_TAG_SYNC;
    if (needs_id || fields[ID].length > 0)
        PSTI_TRY(psti_field_number(lines, names[ID], fields[ID], 0, PST_TRACE_MAX_BYTES, &row->id));
    const bool is_mark = row->op == PST_TRACE_MARK;
    const bool grows = is_mark && row->tag == PST_TAG_GROW;
    const bool is_malloc = row->op == PST_TRACE_MALLOC || grows;
    const uint64_t max = is_mark && !grows ? 0 : PST_TRACE_MAX_BYTES;
    if (is_malloc || fields[SIZE].length > 0)
        PSTI_TRY(psti_field_number(lines, names[SIZE], fields[SIZE], is_malloc, max, &row->bytes));
    return PST_OK;
}

static pst_status take_row(const psti_lines *lines, const psti_field *fields,
                           pst_trace_request *row)
{
    if (!psti_field_word(fields[OP], ops, 0, 3, &row->op))
        return psti_field_bad(lines, names[OP], fields[OP], "malloc, free or mark");
    PSTI_TRY(take_tag(lines, fields[TAG], row));
    PSTI_TRY(take_id_and_size(lines, fields, row));
    PSTI_TRY(take_u32(lines, fields, STREAM, 0, UINT32_MAX, &row->stream));
    if (!psti_field_word(fields[PHASE], phases, 0, PST_NUM_PHASES, &row->phase))
        return psti_field_bad(lines, names[PHASE], fields[PHASE],
                              "forward, backward, weight, other or nothing");
    PSTI_TRY(take_u32(lines, fields, LAYER, PST_TRACE_NONE, PST_TRACE_NONE - 1, &row->layer));
    PSTI_TRY(take_u32(lines, fields, MICRO_BATCH, PST_TRACE_NONE, PST_TRACE_NONE - 1,
                      &row->micro_batch));
    return take_u32(lines, fields, RANK, 0, PST_TRACE_NONE - 1, &row->rank);
}

static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    csv_state *state = reader->state;
    psti_lines *lines = reader->lines;
    psti_field line = {NULL, 0};
    psti_field fields[NUM_FIELDS] = {{NULL, 0}};
    if (!state->has_header)
        PSTI_TRY(psti_lines_header(lines, names, NUM_FIELDS));
    state->has_header = true;
    PSTI_TRY(psti_lines_next(lines, &line));
    PSTI_TRY(psti_fields_cut(lines, line, names, NUM_FIELDS, fields));
    *request_out = psti_trace_row(lines->line, PST_TRACE_MALLOC);
    return take_row(lines, fields, request_out);
}

const psti_trace_kind psti_trace_by_trace = {
    .next = next, .state_bytes = sizeof(csv_state), .has_lines = true};
