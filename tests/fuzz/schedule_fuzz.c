/* Lists of passes over arbitrary bytes, as rows or as integers by the first byte, given whole and in
 * pieces: both must say the same. What is accepted is written and read again; each rank's list that is
 * a schedule has slots that nobody shares, and a kind that is recognised has exactly its list. */
#include <stdio.h>

#include "host/schedule/schedule_file.h"
#include "tests/fuzz/pieces.h"

enum { MAX_RANKS = 8, MAX_PASSES = 512, MAX_STAGES = 64, ROOM = 1 << 16 };

typedef pst_status (*read_fn)(const char *name, pst_trace_read_fn read, void *source,
                              psti_schedule_lists *lists_out);

static pst_status read_all(read_fn read, const uint8_t *data, size_t size, size_t piece,
                           psti_schedule_lists *lists, char message[1024])
{
    byte_source source = {.data = (const char *)data, .left = size, .piece = piece};
    const pst_status status = read("fuzz", read_bytes, &source, lists);
    message[0] = '\0';
    if (status != PST_OK) {
        require(status == PST_E_INVALID && strncmp(pst_last_message(), "fuzz:", 5) == 0);
        require(strchr(pst_last_message(), '\n') == NULL && lists->passes == NULL);
        snprintf(message, 1024, "%s", pst_last_message());
    }
    return status;
}

static void require_equal(const psti_schedule_lists *a, const psti_schedule_lists *b)
{
    require(a->num_ranks == b->num_ranks && a->num_passes == b->num_passes);
    for (uint64_t r = 0; r < a->num_ranks; r++)
        require(a->ranks[r].first == b->ranks[r].first &&
                a->ranks[r].num_passes == b->ranks[r].num_passes && a->ranks[r].num_passes > 0);
    require(memcmp(a->passes, b->passes, a->num_passes * sizeof(*a->passes)) == 0);
}

typedef struct sink {
    char text[ROOM];
    size_t used;
} sink;

static int put(void *to, const void *text, size_t bytes)
{
    sink *self = to;
    if (bytes > sizeof(self->text) - self->used)
        return -28;
    memcpy(self->text + self->used, text, bytes);
    self->used += bytes;
    return 0;
}

/* Whatever was read can be written as rows, and reads as it was. */
static void write_again(const psti_schedule_lists *lists)
{
    static sink text;
    psti_schedule_lists again;
    text.used = 0;
    if (psti_schedule_write_list(lists, put, &text) != PST_OK)
        return; /* no room */
    byte_source source = {.data = text.text, .left = text.used};
    require(psti_schedule_read_list("again", read_bytes, &source, &again) == PST_OK);
    require_equal(lists, &again);
    psti_schedule_lists_free(&again);
}

/* No two that live at once share a slot. */
static void check_slots(const pst_schedule *schedule)
{
    static bool is_taken[MAX_PASSES]; /* by slot, of one chunk after the other */
    for (uint32_t c = 0; c < schedule->num_chunks; c++) {
        memset(is_taken, 0, sizeof(is_taken));
        for (uint64_t n = 0; n < schedule->num_passes; n++) {
            const pst_pass *pass = &schedule->passes[n];
            const psti_life *life = psti_schedule_life(schedule, pass->chunk, pass->micro_batch);
            if (pass->chunk != c || schedule->is_forward_only)
                continue;
            require(life->slot < schedule->chunks[c].num_slots);
            require(is_taken[life->slot] == (n != life->forward));
            is_taken[life->slot] = n < life->last_backward;
        }
    }
}

static void recognise(const pst_schedule *schedule)
{
    pst_schedule_config found;
    pst_schedule *again = NULL;
    const pst_status status =
        pst_schedule_recognise(schedule->passes, schedule->num_passes, schedule->config.num_stages,
                               schedule->config.stage, &found);
    require(status == PST_OK || status == PST_E_AGAIN);
    if (status != PST_OK)
        return;
    require(pst_schedule_create(&found, &again) == PST_OK);
    require(again->num_passes == schedule->num_passes);
    require(memcmp(again->passes, schedule->passes, again->num_passes * sizeof(pst_pass)) == 0);
    require(again->info.peak == schedule->info.peak);
    require(again->info.peak_at == schedule->info.peak_at);
    pst_schedule_destroy(again);
}

static void check_rank(const psti_schedule_lists *lists, uint32_t rank)
{
    pst_schedule *schedule = NULL;
    if (lists->ranks[rank].num_passes > MAX_PASSES)
        return;
    if (psti_schedule_of_rank(lists, "fuzz", rank, &schedule) != PST_OK) {
        require(strncmp(pst_last_message(), "fuzz:", 5) == 0 && schedule == NULL);
        return;
    }
    check_slots(schedule);
    if (lists->num_ranks <= MAX_STAGES)
        recognise(schedule);
    pst_schedule_destroy(schedule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char whole_said[1024], pieces_said[1024];
    psti_schedule_lists whole, pieces;
    if (size == 0)
        return 0;
    const read_fn read = *data == 'M' ? psti_schedule_read_megatron : psti_schedule_read_list;
    const size_t skip = *data == 'M'; /* rows begin with the header's r */
    const pst_status status = read_all(read, data + skip, size - skip, 0, &whole, whole_said);
    require(status ==
            read_all(read, data + skip, size - skip, 1 + size % MAX_PIECE, &pieces, pieces_said));
    require(strcmp(whole_said, pieces_said) == 0);
    if (status == PST_OK) {
        require_equal(&whole, &pieces);
        write_again(&whole);
        for (uint32_t r = 0; r < whole.num_ranks && r < MAX_RANKS; r++)
            check_rank(&whole, r);
    }
    psti_schedule_lists_free(&whole);
    psti_schedule_lists_free(&pieces);
    return 0;
}
