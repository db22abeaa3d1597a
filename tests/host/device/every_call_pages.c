/* What every_call_pages.h says. */
#include "tests/host/device/every_call_pages.h"

enum { ROWS = 8, ROW_BYTES = 4096, LIVE_ROWS = 5 /* of 2 pages */ };

call_pages pages;
static oracle_random randoms;

static void report(const char *file, int line, const char *text)
{
    psti_test_fail(file, line, "%s", text);
}

static shape rows_shape(void)
{
    shape made_shape = {.group = {.num_spaces = 1, .num_tensors = 1},
                        .arena_bytes = ROWS * ROW_BYTES + 128};
    made_shape.group.spaces[0] = (pst_row_space){.capacity = ROWS};
    made_shape.group.tensors[0] = (pst_tensor){.row_bytes = ROW_BYTES};
    made_shape.group.at[0] = 64;
    return made_shape;
}

void pages_open(pst_device *opened)
{
    const ls_options options = {.num_pages = 6,
                                .num_host_pages = 4,
                                .max_pages = 8,
                                .max_host_pages = 8,
                                .slab_tickets = 2,
                                .slab_counts = 4,
                                .max_tickets = 8,
                                .report = report};
    const shape like = rows_shape();
    const int64_t count = LIVE_ROWS;
    call_has = (call_objects){.device = opened, .made = call_untouched()};
    randoms = oracle_random_seeded(1);
    CHECK(ls_open(&pages.ls, call_has.device, &options));
    CHECK(ls_group_make(&pages.ls, &like, &randoms, &pages.source));
    CHECK(ls_group_make(&pages.ls, &like, &randoms, &pages.destination));
    ls_group_set_counts(&pages.ls, &pages.source, &count);
    CHECK_OK(pst_stream_create(call_has.device, &pages.side));
    pages.live = ls_ticket_make(&pages.ls, &pages.source);
    pages.empty = ls_ticket_make(&pages.ls, &pages.source);
    ls_stash(&pages.ls, pages.live, &pages.source);
}

void pages_same(void)
{
    ls_compare(&pages.ls);
    ls_compare_pages(&pages.ls, pages.live);
    ls_group_compare(&pages.ls, &pages.source);
    ls_group_compare(&pages.ls, &pages.destination);
}

/* The epoch is raised once more where a resize that failed is taken back. */
void pages_revive(void)
{
    CHECK_OK(pst_pool_reset(pages.ls.pool, PST_RESET_ALL, pages.ls.stream));
    oracle_reset(pages.ls.oracle, PST_RESET_ALL);
    CHECK_OK(pool_words_read(pages.ls.pool, &pages.ls.words, pages.ls.stream));
    CHECK(pages.ls.words.state.epoch - pages.ls.oracle->epoch <= 1);
    pages.ls.oracle->epoch = pages.ls.words.state.epoch;
    ls_compare(&pages.ls);
}

/* A capture that is open ends. */
static void end_capture(void)
{
    pst_graph *graph = NULL;
    if (pst_graph_end(call_has.device, pages.side, &graph) == PST_OK)
        CHECK_OK(pst_graph_destroy(graph));
}

static void revive_captured(void)
{
    end_capture();
    pages_revive();
}

void pages_close(void)
{
    end_capture();
    CHECK_OK(pst_stream_destroy(call_has.device, pages.side));
    ls_group_free(&pages.ls, &pages.source);
    ls_group_free(&pages.ls, &pages.destination);
    ls_close(&pages.ls);
    CHECK(!pages.ls.failed);
    call_close(call_has.device);
}

const call_room pages_room = {pages_open, pages_same, pages_revive, pages_close};
/* Looking would be captured. */
const call_room pages_captured = {pages_open, NULL, revive_captured, pages_close};
