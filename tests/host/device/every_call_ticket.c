/* Cases of every_call.h: tickets. */
#include "tests/host/device/every_call_pages.h"

/* ---- tickets ---- */

static pst_status ticket_bytes(void)
{
    uint64_t bytes = 0;
    return pst_ticket_bytes(pages.ls.pool, pages.source.group, &bytes);
}

static pst_ticket made_ticket;

static pst_status ticket_create(void)
{
    made_ticket = (pst_ticket){77};
    const pst_status status = pst_ticket_create(pages.ls.pool, pages.source.group, &made_ticket);
    if (status != PST_OK && made_ticket.id != 77)
        psti_test_fail(__FILE__, __LINE__, "out parameter was written");
    return status;
}

static void destroy_ticket(void)
{
    CHECK_EQ(pst_ticket_index(made_ticket),
             4); /* behind the slab's and the two: no index was lost */
    CHECK_OK(pst_ticket_destroy(made_ticket));
    ls_compare(&pages.ls);
}

static void prepare_ticket(void)
{
    CHECK_OK(ticket_create());
}

static pst_status ticket_destroy(void)
{
    return pst_ticket_destroy(made_ticket);
}

/* The directory leads to no record that was freed: at the latest when the pool works again. */
static void check_gone(void)
{
    CHECK_EQ(pst_ticket_index(made_ticket), UINT32_MAX);
    if (pages.ls.pool->failed)
        pages_revive();
    CHECK_EQ(pages.ls.pool->view.tickets[4], 0);
    CHECK_EQ(pages.ls.pool->num_tickets, 2);
    ls_compare(&pages.ls);
}

static pst_status ticket_take(void)
{
    return pst_ticket_take(pages.ls.pool, pages.ls.stream, &made_ticket);
}

static void give_ticket(void)
{
    CHECK_OK(pst_ticket_give(made_ticket, pages.ls.stream));
    ls_compare(&pages.ls);
}

static uint32_t lent;
static bool is_gone; /* a give that failed has taken the handle all the same */

/* One that holds  */
static void prepare_lent(void)
{
    is_gone = false;
    lent = ls_ticket_take(&pages.ls, false);
    ls_stash(&pages.ls, lent, &pages.source);
}

static pst_status ticket_give(void)
{
    const pst_ticket ticket = pages.ls.tickets[lent];
    const pst_status status = is_gone ? PST_OK : pst_ticket_give(ticket, pages.ls.stream);
    is_gone |= status != PST_OK && pst_ticket_index(ticket) == UINT32_MAX;
    return status;
}

static void drop_lent(void)
{
    ticket_words_free(&pages.ls.words_of[lent]);
    pages.ls.words_of[lent] = (ticket_words){.num_counts = 0};
    pages.ls.tickets[lent].id = 0;
    oracle_give(pages.ls.oracle, lent);
}

/* What is left in it goes before the next owner's first operation. */
static void done_give(void)
{
    pst_ticket next = {0};
    drop_lent();
    CHECK_OK(pst_ticket_take(pages.ls.pool, pages.ls.stream, &next));
    CHECK_EQ(pst_ticket_index(next), lent);
    CHECK_OK(ls_enqueue_stash(next, &pages.source, pages.ls.stream));
    CHECK_OK(pst_ticket_release(next, pages.ls.stream));
    CHECK_OK(pst_ticket_give(next, pages.ls.stream));
    oracle_stash(pages.ls.oracle, lent, &pages.source.model, pages.source.values);
    oracle_release(pages.ls.oracle, lent);
    ls_compare(&pages.ls);
}

/* Whatever failed for CUDA. */
static void revive_given(void)
{
    CHECK(is_gone);
    drop_lent();
    pages_revive();
}

static const call_room given_room = {pages_open, NULL, revive_given, pages_close};

static pst_status ticket_index(void)
{
    return pst_ticket_index(pages.ls.tickets[pages.live]) == pages.live ? PST_OK : PST_E_INVALID;
}

static pst_status ticket_set_offload(void)
{
    return pst_ticket_set_offload(pages.ls.tickets[pages.empty], 1, 2);
}

static pst_status ticket_stash(void)
{
    return ls_enqueue_stash(pages.ls.tickets[pages.empty], &pages.source, pages.ls.stream);
}

static void done_stash(void)
{
    oracle_stash(pages.ls.oracle, pages.empty, &pages.source.model, pages.source.values);
    ls_compare(&pages.ls);
    ls_compare_pages(&pages.ls, pages.empty);
}

static void begin_capture(void)
{
    CHECK_OK(pst_graph_begin(call_has.device, pages.side));
}

static pst_status captured_stash(void)
{
    return ls_enqueue_stash(pages.ls.tickets[pages.empty], &pages.source, pages.side);
}

static void launch_stash(void)
{
    pst_graph *graph = NULL;
    CHECK_OK(pst_graph_end(call_has.device, pages.side, &graph));
    CHECK_OK(pst_graph_launch(graph, pages.ls.stream));
    CHECK_OK(pst_stream_synchronize(call_has.device, pages.ls.stream));
    CHECK_OK(pst_graph_destroy(graph));
    done_stash();
}

static pst_status ticket_restore(void)
{
    const pst_restore_options options =
        ls_restore_options(&pages.destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
    return ls_enqueue_restore(pages.ls.tickets[pages.live], &pages.destination, &options,
                              pages.ls.stream);
}

static void done_restore(void)
{
    oracle_restore(pages.ls.oracle, pages.live, &pages.destination.model, PST_RESTORE_CONSUME,
                   PST_TAIL_ZERO);
    ls_compare(&pages.ls);
    ls_group_compare(&pages.ls, &pages.destination);
}

static pst_status ticket_demote(void)
{
    return pst_ticket_demote(pages.ls.tickets[pages.live], NULL, pages.ls.stream);
}

static void done_demote(void)
{
    oracle_migrate(pages.ls.oracle, pages.live, false, 0);
    pages_same();
}

static void prepare_demoted(void)
{
    ls_demote(&pages.ls, pages.live, 0);
}

static pst_status ticket_promote(void)
{
    return pst_ticket_promote(pages.ls.tickets[pages.live], NULL, pages.ls.stream);
}

static void done_promote(void)
{
    oracle_migrate(pages.ls.oracle, pages.live, true, 0);
    pages_same();
}

static pst_status ticket_release(void)
{
    return pst_ticket_release(pages.ls.tickets[pages.live], pages.ls.stream);
}

static void done_release(void)
{
    oracle_release(pages.ls.oracle, pages.live);
    ls_compare(&pages.ls);
}

static const call_case cases[] = {
    {"pst_ticket_bytes", &pages_room, NULL, ticket_bytes, NULL, CALL_NONE},
    {"pst_ticket_create", &pages_room, NULL, ticket_create, destroy_ticket, CALL_FAILS},
    {"pst_ticket_destroy", &pages_room, prepare_ticket, ticket_destroy, check_gone, CALL_GIVES},
    {"pst_ticket_take", &pages_room, NULL, ticket_take, give_ticket, CALL_FAILS},
    {"pst_ticket_give", &given_room, prepare_lent, ticket_give, done_give, CALL_FAILS},
    {"pst_ticket_index", &pages_room, NULL, ticket_index, NULL, CALL_NONE},
    {"pst_ticket_set_offload", &pages_room, NULL, ticket_set_offload, NULL, CALL_NONE},
    {"pst_ticket_stash", &pages_room, NULL, ticket_stash, done_stash, CALL_FAILS},
    {"pst_ticket_stash", &pages_captured, begin_capture, captured_stash, launch_stash, CALL_FAILS},
    {"pst_ticket_restore", &pages_room, NULL, ticket_restore, done_restore, CALL_FAILS},
    {"pst_ticket_demote", &pages_room, NULL, ticket_demote, done_demote, CALL_FAILS},
    {"pst_ticket_promote", &pages_room, prepare_demoted, ticket_promote, done_promote, CALL_FAILS},
    {"pst_ticket_release", &pages_room, NULL, ticket_release, done_release, CALL_FAILS},
};

const call_table ticket_calls = {cases, sizeof(cases) / sizeof(cases[0])};
