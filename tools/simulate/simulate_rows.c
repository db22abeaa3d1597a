/* Files with the pages of visits and the times of layers: rows of numbers with keys. */
#include "host/base/lines.h"
#include "tools/simulate/simulate_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NUMBER UINT32_C(0xfffffffe)
#define MAX_PAGES ((UINT64_C(1) << 31) - 1)
#define MAX_NS (UINT64_C(1) << 53)

enum { MAX_FIELDS = SIMULATE_MAX_KEYS + SIMULATE_MAX_VALUES };

typedef struct format {
    const char *flag;
    int num_keys, num_values;
    const char *names[MAX_FIELDS];
    uint64_t most; /* of a value */
    int any;       /* the key that may be *; -1: none */
    int pass;      /* the key that is a letter of passes; -1: none */
} format;

static const format of_pages = {"visit-pages", 3,  1, {"chunk", "layer", "micro_batch", "pages"},
                                MAX_PAGES,     -1, -1};
static const format of_times = {
    "times", 4, 3, {"rank", "chunk", "layer", "pass", "before_ns", "core_ns", "after_ns"},
    MAX_NS,  0, 3};

static const char *const passes[] = {"F", "B", "W"};

static int compare(const void *left, const void *right)
{
    const simulate_row *a = left;
    const simulate_row *b = right;
    for (int i = 0; i < SIMULATE_MAX_KEYS; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] < b->keys[i] ? -1 : 1;
    return 0;
}

static pst_status read_key(const psti_lines *lines, const format *self, int key, psti_field field,
                           uint32_t *out)
{
    uint64_t number = 0;
    uint8_t pass = 0;
    if (key == self->any && psti_field_is(field, "*")) {
        *out = SIMULATE_ANY;
        return PST_OK;
    }
    if (key == self->pass) {
        if (!psti_field_word(field, passes, 0, 3, &pass))
            return psti_field_bad(lines, self->names[key], field, "F, B or W");
        *out = pass;
        return PST_OK;
    }
    PSTI_TRY(psti_field_number(lines, self->names[key], field, 0, MAX_NUMBER, &number));
    *out = (uint32_t)number;
    return PST_OK;
}

static pst_status read_row(const psti_lines *lines, const format *self, psti_field line,
                           simulate_row *row)
{
    psti_field fields[MAX_FIELDS];
    PSTI_TRY(psti_fields_cut(lines, line, self->names, self->num_keys + self->num_values, fields));
    *row = (simulate_row){.line = lines->line};
    for (int i = 0; i < self->num_keys; i++)
        PSTI_TRY(read_key(lines, self, i, fields[i], &row->keys[i]));
    for (int i = 0; i < self->num_values; i++)
        PSTI_TRY(psti_field_number(lines, self->names[self->num_keys + i],
                                   fields[self->num_keys + i], 0, self->most, &row->values[i]));
    return PST_OK;
}

static pst_status add_row(simulate_rows *self, const simulate_row *row)
{
    if (self->num_rows == self->room) {
        const uint64_t room = self->room == 0 ? 64 : 2 * self->room;
        simulate_row *rows = reallocarray(self->rows, room, sizeof(*rows));
        if (rows == NULL)
            return PSTI_FAIL(PST_E_NOMEM, "out of memory for %" PRIu64 " rows", room);
        self->rows = rows;
        self->room = room;
    }
    self->rows[self->num_rows++] = *row;
    return PST_OK;
}

static pst_status read_all(psti_lines *lines, const format *self, simulate_rows *rows)
{
    psti_field line;
    simulate_row row;
    pst_status status = psti_lines_header(lines, self->names, self->num_keys + self->num_values);
    while (status == PST_OK) {
        status = psti_lines_next(lines, &line);
        if (status == PST_OK)
            status = read_row(lines, self, line, &row);
        if (status == PST_OK)
            status = add_row(rows, &row);
    }
    return status == PST_E_AGAIN ? PST_OK : status;
}

/* Sorts the rows; two of one visit are one too many. */
static int check_rows(const format *self, simulate_rows *rows)
{
    if (rows->num_rows == 0)
        return tool_fail(TOOL_INPUT, "%s: no rows: allowed is at least one", rows->path);
    qsort(rows->rows, rows->num_rows, sizeof(*rows->rows), compare);
    for (uint64_t i = 1; i < rows->num_rows; i++) {
        const uint64_t a = rows->rows[i - 1].line;
        const uint64_t b = rows->rows[i].line;
        if (compare(&rows->rows[i - 1], &rows->rows[i]) == 0)
            return tool_fail(TOOL_INPUT,
                             "%s:%" PRIu64 ": fields %s to %s: as in line %" PRIu64
                             ": allowed is one row of each",
                             rows->path, a > b ? a : b, self->names[0],
                             self->names[self->num_keys - 1], a > b ? b : a);
    }
    return TOOL_OK;
}

static int read_file(const format *self, const char *path, simulate_rows *rows_out)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    *rows_out = (simulate_rows){.path = is_stdin ? "standard input" : path};
    if (descriptor < 0)
        return tool_fail(TOOL_INPUT, "--%s %s: %s", self->flag, path, strerror(errno));
    psti_lines *lines = psti_lines_open(rows_out->path, tool_read, &descriptor);
    const pst_status status = lines != NULL ? read_all(lines, self, rows_out) : PST_E_NOMEM;
    psti_free(lines);
    if (!is_stdin)
        close(descriptor);
    TOOL_TRY(tool_file_status(status));
    return check_rows(self, rows_out);
}

int simulate_read_pages(const char *path, simulate_rows *rows_out)
{
    return read_file(&of_pages, path, rows_out);
}

int simulate_read_times(const char *path, simulate_rows *rows_out)
{
    return read_file(&of_times, path, rows_out);
}

const simulate_row *simulate_find_row(const simulate_rows *rows, const uint32_t *keys)
{
    simulate_row wanted = {.line = 0};
    memcpy(wanted.keys, keys, sizeof(wanted.keys));
    if (rows->num_rows == 0)
        return NULL;
    return bsearch(&wanted, rows->rows, rows->num_rows, sizeof(*rows->rows), compare);
}

void simulate_free_rows(simulate_rows *rows)
{
    free(rows->rows);
    *rows = (simulate_rows){.rows = NULL};
}

/* ---- looked up ---- */

int simulate_usage_of_rows(const void *user, uint64_t iteration, const simulate_visit *visit,
                           pst_group_usage *usage_out)
{
    const simulate_pages *pages = user;
    const uint32_t keys[SIMULATE_MAX_KEYS] = {visit->chunk, visit->layer, visit->micro_batch, 0};
    const simulate_row *row = simulate_find_row(&pages->rows, keys);
    (void)iteration;
    if (row == NULL)
        return tool_fail(TOOL_INPUT,
                         "%s: no row for chunk %" PRIu32 ", layer %" PRIu32 ", micro-batch %" PRIu32
                         ": allowed is a row for every visit that is stashed",
                         pages->rows.path, visit->chunk, visit->layer, visit->micro_batch);
    const uint64_t bytes = row->values[0] * pages->page_bytes;
    *usage_out = (pst_group_usage){bytes, bytes, row->values[0]};
    return TOOL_OK;
}

/* The row of this rank, else that of all. */
static bool find_times(const simulate_rows *rows, const simulate_visit *layer, uint32_t pass,
                       pst_times *out)
{
    uint32_t keys[SIMULATE_MAX_KEYS] = {layer->rank, layer->chunk, layer->layer, pass};
    const simulate_row *row = simulate_find_row(rows, keys);
    keys[0] = SIMULATE_ANY;
    if (row == NULL)
        row = simulate_find_row(rows, keys);
    if (row != NULL)
        *out = (pst_times){row->values[0], row->values[1], row->values[2]};
    return row != NULL;
}

int simulate_times_of_rows(const void *user, const simulate_visit *layer, simulate_times *times_out)
{
    const simulate_rows *rows = user;
    pst_times *const places[] = {&times_out->forward, &times_out->backward, &times_out->weight};
    times_out->weight = (pst_times){0, 0, 0}; /* W may be missing: part of B then */
    for (uint32_t pass = 0; pass < 3; pass++)
        if (!find_times(rows, layer, pass, places[pass]) && pass < 2)
            return tool_fail(TOOL_INPUT,
                             "%s: no row for rank %" PRIu32 ", chunk %" PRIu32 ", layer %" PRIu32
                             ", pass %s: allowed are F and B of every layer",
                             rows->path, layer->rank, layer->chunk, layer->layer, passes[pass]);
    return TOOL_OK;
}
