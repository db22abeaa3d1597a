/* The rows of a plan file: what they may say together. */
#include "host/plan/plan_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROUND_BYTES 512u /* of the plan's total */

struct pst_plan_file {
    psti_handle handle;
    pst_plan_row *rows;
    uint64_t num_rows;
    uint64_t num_tensors;
    uint64_t end; /* of the highest tensor */
};

/* A tensor, in the order of the mallocs. */
typedef struct psti_plan_id {
    uint64_t id;
    uint64_t row; /* of its malloc */
    bool is_live;
} psti_plan_id;

const char *const psti_row_fields[PSTI_ROW_FIELDS] = {"op", "id", "size", "stream", "offset"};
const char *const psti_plan_ops[PST_PLAN_OP_USE + 1] = {"malloc", "free", "mark", "use"};

/* ---- rows ---- */

#define BAD(builder, row, ...)                                                                   \
    do {                                                                                         \
        char text_[240];                                                                         \
        snprintf(text_, sizeof(text_), __VA_ARGS__);                                             \
        PSTI_FAIL(PST_E_INVALID, "%.200s:%" PRIu64 ": %s", (builder)->name, (row)->line, text_); \
        return PST_E_INVALID;                                                                    \
    } while (0)

static pst_status add_malloc(psti_plan_builder *builder, const pst_plan_row *row)
{
    pst_plan_file *file = builder->file;
    if (row->bytes == 0 || row->bytes > PST_TRACE_MAX_BYTES)
        BAD(builder, row, "field size: %" PRIu64 ": allowed is 1..%" PRIu64, row->bytes,
            (uint64_t)PST_TRACE_MAX_BYTES);
    if (row->bytes > PST_PLAN_MAX_BYTES || row->offset > PST_PLAN_MAX_BYTES - row->bytes)
        BAD(builder, row,
            "field offset: %" PRIu64 ": a tensor of %" PRIu64 " bytes ends above %" PRIu64,
            row->offset, row->bytes, PST_PLAN_MAX_BYTES);
    if (file->num_tensors == PST_PLAN_MAX_TENSORS)
        BAD(builder, row, "field op: malloc: allowed are %u tensors", PST_PLAN_MAX_TENSORS);
    const uint64_t before = psti_map_get(&builder->indices, row->id);
    if (before != PSTI_MAP_NONE)
        BAD(builder, row, "field id: %" PRIu64 ": line %" PRIu64 " uses it for another tensor",
            row->id, file->rows[builder->ids[before].row].line);
    const uint64_t index = file->num_tensors;
    PSTI_TRY(
        psti_grow((void **)&builder->ids, &builder->room_ids, index + 1, sizeof(*builder->ids)));
    PSTI_TRY(psti_map_set(&builder->indices, row->id, index));
    file->num_tensors++;
    builder->ids[index] = (psti_plan_id){.id = row->id, .row = file->num_rows, .is_live = true};
    if (row->offset + row->bytes > file->end)
        file->end = row->offset + row->bytes;
    return PST_OK;
}

/* A free says again what the malloc said, or nothing. */
static pst_status check_free(const psti_plan_builder *builder, const pst_plan_row *row,
                             unsigned given, const pst_plan_row *tensor)
{
    const uint64_t values[PSTI_ROW_FIELDS][2] = {[PSTI_ROW_SIZE] = {row->bytes, tensor->bytes},
                                                 [PSTI_ROW_STREAM] = {row->stream, tensor->stream},
                                                 [PSTI_ROW_OFFSET] = {row->offset, tensor->offset}};
    for (int i = PSTI_ROW_SIZE; i < PSTI_ROW_FIELDS; i++)
        if (given & 1u << i && values[i][0] != values[i][1])
            BAD(builder, row,
                "field %s: %" PRIu64 ": allowed is nothing, or %" PRIu64 " as in line %" PRIu64,
                psti_row_fields[i], values[i][0], values[i][1], tensor->line);
    return PST_OK;
}

pst_status psti_plan_add(psti_plan_builder *builder, const pst_plan_row *row, unsigned given)
{
    pst_plan_file *file = builder->file;
    PSTI_TRY(psti_grow((void **)&file->rows, &builder->room_rows, file->num_rows + 1,
                       sizeof(*file->rows)));
    if (row->op == PST_PLAN_OP_MALLOC) {
        PSTI_TRY(add_malloc(builder, row));
    } else if (row->op != PST_PLAN_OP_MARK) {
        const uint64_t found = psti_map_get(&builder->indices, row->id);
        psti_plan_id *tensor = found != PSTI_MAP_NONE ? &builder->ids[found] : NULL;
        if (!tensor || !tensor->is_live)
            BAD(builder, row, "field id: %" PRIu64 ": %s of a tensor that %s", row->id,
                psti_plan_ops[row->op], tensor ? "was freed before" : "has no malloc before");
        if (row->op == PST_PLAN_OP_FREE) {
            PSTI_TRY(check_free(builder, row, given, &file->rows[tensor->row]));
            tensor->is_live = false;
        }
    }
    file->rows[file->num_rows++] = *row;
    return PST_OK;
}

/* ---- begin and end ---- */

pst_status psti_plan_begin(psti_plan_builder *builder, const char *name)
{
    *builder = (psti_plan_builder){.name = name,
                                   .file = psti_handle_new(sizeof(pst_plan_file), PSTI_KIND_PLAN)};
    PSTI_CHECK(builder->file, PST_E_NOMEM, "no memory for a plan");
    return PST_OK;
}

void psti_plan_end(psti_plan_builder *builder, pst_plan_file **file_out)
{
    psti_free(builder->ids);
    psti_map_free(&builder->indices);
    if (file_out)
        *file_out = builder->file;
    else
        pst_plan_file_destroy(builder->file);
    *builder = (psti_plan_builder){0};
}

static bool is_file(const pst_plan_file *file)
{
    return psti_handle_is(file, PSTI_KIND_PLAN);
}

void pst_plan_file_destroy(pst_plan_file *file)
{
    if (!is_file(file))
        return;
    psti_free(file->rows);
    psti_handle_free(file);
}

pst_status pst_plan_file_make(const pst_plan_row *rows, uint64_t num_rows, pst_plan_file **file_out)
{
    psti_plan_builder builder;
    PSTI_CHECK(file_out && (rows || num_rows == 0), PST_E_INVALID, "rows or file_out is NULL");
    PSTI_TRY(psti_plan_begin(&builder, "plan"));
    pst_status status = PST_OK;
    for (uint64_t i = 0; i < num_rows && status == PST_OK; i++) {
        const pst_plan_row *row = &rows[i];
        if (row->op > PST_PLAN_OP_USE)
            status = PSTI_FAIL(PST_E_INVALID, "plan:%" PRIu64 ": field op: %u: allowed are 0 to %d",
                               row->line, row->op, PST_PLAN_OP_USE);
        else
            status = psti_plan_add(&builder, row, row->bytes ? 1u << PSTI_ROW_SIZE : 0);
    }
    psti_plan_end(&builder, status == PST_OK ? file_out : NULL);
    return status;
}

uint64_t pst_plan_file_num_rows(const pst_plan_file *file)
{
    return is_file(file) ? file->num_rows : 0;
}

const pst_plan_row *pst_plan_file_rows(const pst_plan_file *file)
{
    return is_file(file) ? file->rows : NULL;
}

uint64_t pst_plan_file_num_tensors(const pst_plan_file *file)
{
    return is_file(file) ? file->num_tensors : 0;
}

uint64_t pst_plan_file_bytes(const pst_plan_file *file)
{
    return is_file(file) ? (file->end + ROUND_BYTES - 1) & ~(uint64_t)(ROUND_BYTES - 1) : 0;
}
