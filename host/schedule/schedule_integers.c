/* Lists of passes as Megatron-LM records them: one line of signed integers for each rank, +c is a
 * forward of chunk c - 1, -c its backward. Micro-batches are numbered as they come, for each chunk and
 * sign by itself. */
#include <inttypes.h>
#include <stdio.h>

#include "host/base/table.h"
#include "host/schedule/schedule_file.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip(psti_field *line, size_t length)
{
    line->text += length;
    line->length -= length;
}

static void skip_blanks(psti_field *line)
{
    while (line->length > 0 && is_blank(*line->text))
        skip(line, 1);
}

/* Up to the next blank or comma. */
static psti_field cut_word(psti_field *line)
{
    psti_field word = {line->text, 0};
    while (word.length < line->length && !is_blank(word.text[word.length]) &&
           word.text[word.length] != ',')
        word.length++;
    skip(line, word.length);
    return word;
}

static pst_status read_integer(const psti_lines *lines, psti_field word, pst_pass *pass_out)
{
    psti_field digits = word;
    uint64_t number = 0;
    if (digits.length > 0 && (*digits.text == '+' || *digits.text == '-'))
        skip(&digits, 1);
    if (!psti_field_u64(digits, PSTI_SCHEDULE_MAX_CHUNKS, &number) || number == 0)
        return psti_field_bad(lines, "pass", word, "an integer 1..2^20, or with - before it");
    *pass_out = (pst_pass){.chunk = (uint32_t)number - 1,
                           .kind = *word.text == '-' ? PST_PASS_BACKWARD : PST_PASS_FORWARD};
    return PST_OK;
}

/* How many came of each chunk and kind. */
static uint64_t key_of(const pst_pass *pass)
{
    return (uint64_t)pass->chunk << 1 | (pass->kind != PST_PASS_FORWARD);
}

static pst_status number(psti_map *counts, pst_pass *pass)
{
    const uint64_t before = psti_map_get(counts, key_of(pass));
    const uint64_t micro_batch = before == PSTI_MAP_NONE ? 0 : before;
    pass->micro_batch = (uint32_t)micro_batch; /* a line is too short for more than 2^20 */
    return psti_map_set(counts, key_of(pass), micro_batch + 1);
}

static pst_status read_line(const psti_lines *lines, psti_field line, psti_map *counts,
                            psti_schedule_lists *lists)
{
    PSTI_TRY(psti_schedule_add_rank(lists, lines->line));
    bool is_more = true;
    for (skip_blanks(&line); is_more; skip_blanks(&line)) {
        pst_pass pass = {0};
        PSTI_TRY(read_integer(lines, cut_word(&line), &pass));
        PSTI_TRY(number(counts, &pass));
        PSTI_TRY(psti_schedule_add_pass(lists, &pass));
        skip_blanks(&line);
        is_more = line.length > 0;
        if (is_more && *line.text == ',')
            skip(&line, 1);
    }
    return PST_OK;
}

pst_status psti_schedule_read_integers(psti_lines *lines, psti_schedule_lists *lists)
{
    for (;;) {
        psti_field line = {NULL, 0};
        psti_map counts = {0};
        const pst_status status = psti_lines_next(lines, &line);
        if (status == PST_E_AGAIN && lists->num_ranks == 0)
            return psti_lines_bad(lines, "empty file: allowed is a line of integers for each rank");
        if (status == PST_E_AGAIN)
            return PST_OK;
        PSTI_TRY(status);
        if (lists->num_ranks == PSTI_SCHEDULE_MAX_STAGES)
            return psti_lines_bad(lines, "allowed are 2^20 lines, one for each rank");
        const pst_status read = read_line(lines, line, &counts, lists);
        psti_map_free(&counts);
        PSTI_TRY(read);
    }
}

/* ---- writing ---- */

/* What integers cannot say. */
static pst_status check_pass(uint64_t rank, uint64_t n, const pst_pass *pass, uint32_t in_order)
{
    char text[PSTI_PASS_TEXT_BYTES];
    const bool is_split = pass->kind > PST_PASS_BACKWARD;
    PSTI_CHECK(!is_split && !pass->pairs && pass->micro_batch == in_order, PST_E_INVALID,
               "rank %" PRIu64 ", pass %" PRIu64 ", %s: integers cannot say %s", rank, n,
               psti_pass_text(pass, text),
               is_split      ? "that a backward is split"
               : pass->pairs ? "that two passes are a pair"
                             : "that micro-batches of a chunk come out of order");
    return PST_OK;
}

static pst_status put_rank(const psti_schedule_lists *lists, uint64_t rank, psti_map *counts,
                           pst_plan_write_fn write, void *sink)
{
    for (uint64_t n = 0; n < lists->ranks[rank].num_passes; n++) {
        const pst_pass *pass = &lists->passes[lists->ranks[rank].first + n];
        pst_pass in_order = *pass;
        char text[32];
        PSTI_TRY(number(counts, &in_order));
        PSTI_TRY(check_pass(rank, n, pass, in_order.micro_batch));
        snprintf(text, sizeof(text), "%s%s%" PRIu64, n > 0 ? " " : "",
                 pass->kind == PST_PASS_FORWARD ? "" : "-", (uint64_t)pass->chunk + 1);
        PSTI_TRY(psti_schedule_put(write, sink, text));
    }
    return psti_schedule_put(write, sink, "\n");
}

pst_status psti_schedule_write_megatron(const psti_schedule_lists *lists, pst_plan_write_fn write,
                                        void *sink)
{
    for (uint64_t rank = 0; rank < lists->num_ranks; rank++) {
        psti_map counts = {0};
        const pst_status status = put_rank(lists, rank, &counts, write, sink);
        psti_map_free(&counts);
        PSTI_TRY(status);
    }
    return PST_OK;
}
