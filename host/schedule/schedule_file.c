/* Lists of passes as rows of text, and what both formats share. */
#include "host/schedule/schedule_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/lines.h"
#include "host/base/table.h"

/* ---- lists ---- */

void psti_schedule_lists_free(psti_schedule_lists *lists)
{
    psti_free(lists->passes);
    psti_free(lists->ranks);
    *lists = (psti_schedule_lists){0};
}

pst_status psti_schedule_add_rank(psti_schedule_lists *lists, uint64_t line)
{
    PSTI_TRY(psti_grow((void **)&lists->ranks, &lists->ranks_room, lists->num_ranks + 1,
                       sizeof(*lists->ranks)));
    lists->ranks[lists->num_ranks++] = (psti_rank_list){.first = lists->num_passes, .line = line};
    return PST_OK;
}

pst_status psti_schedule_add_pass(psti_schedule_lists *lists, const pst_pass *pass)
{
    PSTI_TRY(psti_grow((void **)&lists->passes, &lists->room, lists->num_passes + 1,
                       sizeof(*lists->passes)));
    lists->passes[lists->num_passes++] = *pass;
    lists->ranks[lists->num_ranks - 1].num_passes++;
    return PST_OK;
}

pst_status psti_schedule_lists_add(psti_schedule_lists *lists, const pst_schedule *schedule)
{
    PSTI_TRY(psti_grow((void **)&lists->passes, &lists->room,
                       lists->num_passes + schedule->num_passes, sizeof(*lists->passes)));
    PSTI_TRY(psti_schedule_add_rank(lists, 0));
    memcpy(lists->passes + lists->num_passes, schedule->passes,
           schedule->num_passes * sizeof(*lists->passes));
    lists->num_passes += schedule->num_passes;
    lists->ranks[lists->num_ranks - 1].num_passes = schedule->num_passes;
    return PST_OK;
}

/* The message that is there, without the place in the source, behind file, line and rank. */
static pst_status say_rank(pst_status status, const char *name, const psti_rank_list *list,
                           uint32_t rank)
{
    char text[PSTI_MESSAGE_BYTES];
    snprintf(text, sizeof(text), "%s", pst_last_message());
    char *place = strrchr(text, '[');
    if (place && place > text)
        place[-1] = '\0';
    return PSTI_FAIL(status, "%.200s:%" PRIu64 ": rank %" PRIu32 ", which begins here: %s", name,
                     list->line, rank, text);
}

pst_status psti_schedule_of_rank(const psti_schedule_lists *lists, const char *name, uint32_t rank,
                                 pst_schedule **schedule_out)
{
    PSTI_CHECK(rank < lists->num_ranks, PST_E_INVALID,
               "rank %" PRIu32 ": %.200s has ranks 0 to %" PRIu64, rank, name,
               lists->num_ranks - 1);
    const psti_rank_list *list = &lists->ranks[rank];
    const pst_schedule_config config = {.struct_size = sizeof(config),
                                        .kind = PST_SCHEDULE_LIST,
                                        .num_stages = (uint32_t)lists->num_ranks,
                                        .stage = rank,
                                        .passes = lists->passes + list->first,
                                        .num_passes = list->num_passes};
    const pst_status status = pst_schedule_create(&config, schedule_out);
    return status == PST_E_INVALID ? say_rank(status, name, list, rank) : status;
}

/* ---- rows with commas ---- */

enum { RANK, KIND, CHUNK, MICRO_BATCH, PAIR, NUM_FIELDS };
static const char *const fields[NUM_FIELDS] = {"rank", "kind", "chunk", "micro_batch", "pair"};
static const char *const kinds[] = {"F", "B", "I", "W"}; /* in the order of pst_pass_kind */
static const char *const headers[] = {"rank,kind,chunk,micro_batch",
                                      "rank,kind,chunk,micro_batch,pair"};

static pst_status read_header(psti_lines *lines, int *num_fields_out)
{
    psti_field line = {NULL, 0};
    const pst_status status = psti_lines_next(lines, &line);
    if (status == PST_E_AGAIN)
        return psti_lines_bad(lines, "empty file: allowed is the header %s, or %s", headers[0],
                              headers[1]);
    PSTI_TRY(status);
    for (int i = 0; i < 2; i++)
        if (psti_field_is(line, headers[i])) {
            *num_fields_out = PAIR + i;
            return PST_OK;
        }
    char allowed[96];
    snprintf(allowed, sizeof(allowed), "%s, or %s", headers[0], headers[1]);
    return psti_field_bad(lines, "header", line, allowed);
}

static pst_status read_row(const psti_lines *lines, psti_field line, int num_fields,
                           pst_pass *pass_out, uint64_t *rank_out)
{
    psti_field row[NUM_FIELDS];
    uint64_t chunk = 0, micro_batch = 0, pairs = 0;
    uint8_t kind = 0;
    PSTI_TRY(psti_fields_cut(lines, line, fields, num_fields, row));
    PSTI_TRY(psti_field_number(lines, fields[RANK], row[RANK], 0, PSTI_SCHEDULE_MAX_STAGES - 1,
                               rank_out));
    if (!psti_field_word(row[KIND], kinds, 0, 4, &kind))
        return psti_field_bad(lines, fields[KIND], row[KIND], "F, B, I or W");
    PSTI_TRY(psti_field_number(lines, fields[CHUNK], row[CHUNK], 0, UINT32_MAX, &chunk));
    PSTI_TRY(psti_field_number(lines, fields[MICRO_BATCH], row[MICRO_BATCH], 0,
                               PST_SCHEDULE_MAX_MICRO_BATCHES - 1, &micro_batch));
    if (num_fields > PAIR)
        PSTI_TRY(psti_field_number(lines, fields[PAIR], row[PAIR], 0, 1, &pairs));
    *pass_out = (pst_pass){.micro_batch = (uint32_t)micro_batch,
                           .chunk = (uint32_t)chunk,
                           .kind = (pst_pass_kind)kind,
                           .pairs = pairs != 0};
    return PST_OK;
}

/* The row belongs to the last rank or begins the next one. */
static pst_status add_row(const psti_lines *lines, psti_schedule_lists *lists, uint64_t rank,
                          const pst_pass *pass)
{
    if (rank == lists->num_ranks)
        PSTI_TRY(psti_schedule_add_rank(lists, lines->line));
    if (rank + 1 == lists->num_ranks)
        return psti_schedule_add_pass(lists, pass);
    char last[40] = "";
    if (lists->num_ranks > 0)
        snprintf(last, sizeof(last), "%" PRIu64 " or ", lists->num_ranks - 1);
    return psti_lines_bad(lines,
                          "field rank: %" PRIu64 ": allowed is %s%" PRIu64
                          ", ranks come in order and without a gap",
                          rank, last, lists->num_ranks);
}

static pst_status read_rows(psti_lines *lines, psti_schedule_lists *lists)
{
    psti_field line = {NULL, 0};
    pst_pass pass;
    uint64_t rank = 0;
    int num_fields = 0;
    PSTI_TRY(read_header(lines, &num_fields));
    for (;;) {
        const pst_status status = psti_lines_next(lines, &line);
        if (status == PST_E_AGAIN)
            break;
        PSTI_TRY(status);
        PSTI_TRY(read_row(lines, line, num_fields, &pass, &rank));
        PSTI_TRY(add_row(lines, lists, rank, &pass));
    }
    if (lists->num_ranks == 0)
        return psti_lines_bad(lines, "no rows: allowed is at least one");
    return PST_OK;
}

typedef pst_status (*read_fn)(psti_lines *lines, psti_schedule_lists *lists);

static pst_status read_with(read_fn read_all, const char *name, pst_trace_read_fn read,
                            void *source, psti_schedule_lists *lists_out)
{
    *lists_out = (psti_schedule_lists){0};
    psti_lines *lines = psti_lines_open(name, read, source);
    const pst_status status = lines ? read_all(lines, lists_out) : PST_E_NOMEM;
    psti_free(lines);
    if (status != PST_OK)
        psti_schedule_lists_free(lists_out);
    return status;
}

pst_status psti_schedule_read_list(const char *name, pst_trace_read_fn read, void *source,
                                   psti_schedule_lists *lists_out)
{
    return read_with(read_rows, name, read, source, lists_out);
}

pst_status psti_schedule_read_megatron(const char *name, pst_trace_read_fn read, void *source,
                                       psti_schedule_lists *lists_out)
{
    return read_with(psti_schedule_read_integers, name, read, source, lists_out);
}

/* ---- writing ---- */

pst_status psti_schedule_put(pst_plan_write_fn write, void *sink, const char *text)
{
    const int error = write(sink, text, strlen(text));
    PSTI_CHECK(error == 0, PST_E_INVALID, "the list cannot be written: %s", strerror(-error));
    return PST_OK;
}

pst_status psti_schedule_write_list(const psti_schedule_lists *lists, pst_plan_write_fn write,
                                    void *sink)
{
    char line[80];
    bool has_pairs = false;
    for (uint64_t n = 0; n < lists->num_passes; n++)
        has_pairs |= lists->passes[n].pairs;
    snprintf(line, sizeof(line), "%s\n", headers[has_pairs]);
    PSTI_TRY(psti_schedule_put(write, sink, line));
    for (uint64_t rank = 0; rank < lists->num_ranks; rank++)
        for (uint64_t n = 0; n < lists->ranks[rank].num_passes; n++) {
            const pst_pass *pass = &lists->passes[lists->ranks[rank].first + n];
            const char *pair = !has_pairs ? "" : pass->pairs ? ",1" : ",0";
            snprintf(line, sizeof(line), "%" PRIu64 ",%s,%" PRIu32 ",%" PRIu32 "%s\n", rank,
                     kinds[pass->kind], pass->chunk, pass->micro_batch, pair);
            PSTI_TRY(psti_schedule_put(write, sink, line));
        }
    return PST_OK;
}
