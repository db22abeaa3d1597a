/* Plan files from text: what each line may say on its own. */
#include "host/base/lines.h"
#include "host/plan/plan_file.h"

#include <stdio.h>

/* Per op the fields that must be there, and those that may be. */
static const struct {
    unsigned must, may;
} shapes[] = {
    [PST_PLAN_OP_MALLOC] = {1u << PSTI_ROW_ID | 1u << PSTI_ROW_SIZE | 1u << PSTI_ROW_STREAM |
                                1u << PSTI_ROW_OFFSET,
                            0},
    [PST_PLAN_OP_FREE] = {1u << PSTI_ROW_ID,
                          1u << PSTI_ROW_SIZE | 1u << PSTI_ROW_STREAM | 1u << PSTI_ROW_OFFSET},
    [PST_PLAN_OP_MARK] = {1u << PSTI_ROW_ID, 0},
    [PST_PLAN_OP_USE] = {1u << PSTI_ROW_ID | 1u << PSTI_ROW_STREAM, 0},
};

static pst_status read_row(const psti_lines *lines, psti_field line, pst_plan_row *row,
                           unsigned *given_out)
{
    static const uint64_t low[PSTI_ROW_FIELDS] = {[PSTI_ROW_SIZE] = 1};
    static const uint64_t high[PSTI_ROW_FIELDS] = {[PSTI_ROW_ID] = UINT64_MAX,
                                                   [PSTI_ROW_SIZE] = PST_TRACE_MAX_BYTES,
                                                   [PSTI_ROW_STREAM] = UINT32_MAX,
                                                   [PSTI_ROW_OFFSET] = PST_PLAN_MAX_BYTES};
    psti_field fields[PSTI_ROW_FIELDS] = {{NULL, 0}};
    uint64_t values[PSTI_ROW_FIELDS] = {0};
    unsigned given = 0;
    PSTI_TRY(psti_fields_cut(lines, line, psti_row_fields, PSTI_ROW_FIELDS, fields));
    *row = (pst_plan_row){.line = lines->line};
    if (!psti_field_word(fields[PSTI_ROW_OP], psti_plan_ops, 0, PST_PLAN_OP_USE + 1, &row->op))
        return psti_field_bad(lines, "op", fields[PSTI_ROW_OP], "malloc, free, mark or use");
    for (int i = PSTI_ROW_ID; i < PSTI_ROW_FIELDS; i++) {
        const unsigned bit = 1u << i;
        if (fields[i].length == 0 && !(shapes[row->op].must & bit))
            continue;
        if (!((shapes[row->op].must | shapes[row->op].may) & bit)) {
            char allowed[40];
            snprintf(allowed, sizeof(allowed), "nothing in a row of op %s", psti_plan_ops[row->op]);
            return psti_field_bad(lines, psti_row_fields[i], fields[i], allowed);
        }
        PSTI_TRY(
            psti_field_number(lines, psti_row_fields[i], fields[i], low[i], high[i], &values[i]));
        given |= bit;
    }
    row->id = values[PSTI_ROW_ID];
    row->bytes = values[PSTI_ROW_SIZE];
    row->stream = (uint32_t)values[PSTI_ROW_STREAM];
    row->offset = values[PSTI_ROW_OFFSET];
    *given_out = given;
    return PST_OK;
}

static pst_status read_all(psti_lines *lines, psti_plan_builder *builder)
{
    psti_field line = {NULL, 0};
    pst_plan_row row;
    unsigned given = 0;
    PSTI_TRY(psti_lines_header(lines, psti_row_fields, PSTI_ROW_FIELDS));
    for (;;) {
        const pst_status status = psti_lines_next(lines, &line);
        if (status == PST_E_AGAIN)
            return PST_OK;
        PSTI_TRY(status);
        PSTI_TRY(read_row(lines, line, &row, &given));
        PSTI_TRY(psti_plan_add(builder, &row, given));
    }
}

pst_status pst_plan_file_read(const char *name, pst_trace_read_fn read, void *source,
                              pst_plan_file **file_out)
{
    psti_plan_builder builder;
    PSTI_CHECK(read && file_out, PST_E_INVALID, "read or file_out is NULL");
    PSTI_TRY(psti_plan_begin(&builder, name ? name : "plan"));
    psti_lines *lines = psti_lines_open(builder.name, read, source);
    const pst_status status = lines ? read_all(lines, &builder) : PST_E_NOMEM;
    psti_free(lines);
    psti_plan_end(&builder, status == PST_OK ? file_out : NULL);
    return status;
}
