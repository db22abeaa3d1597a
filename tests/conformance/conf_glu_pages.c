/* Pages that a GLU has written: they move between tiers, are scrubbed, are damaged, and are written and
 * read by graphs. */
#include "tests/conformance/glu_rig.h"

static glu_case paged_case(pst_glu_dtype dtype, uint32_t interleave)
{
    return (glu_case){.kind = PST_GLU_CLAMPED,
                      .dtype = dtype,
                      .interleave = interleave,
                      .features = 1504,
                      .space = {.kind = PST_ROWS_SEGMENTS,
                                .count_type = PST_COUNT_INT32,
                                .capacity = 5,
                                .num_segments = 4},
                      .has_probability = true,
                      .num_pages = 16,
                      .num_host_pages = 16};
}

static void restore(glu_rig *rig, pst_restore_pages pages)
{
    glu_poison(rig);
    ls_group_poison(&rig->pair.ls, &rig->pair.destination, 0xcc);
    ls_restore(&rig->pair.ls, rig->pair.tickets[0], &rig->pair.destination, pages,
               PST_TAIL_UNTOUCHED);
    glu_check_backward(rig);
}

/* In each mode a ticket, some pages of which are on the host from the beginning. */
static void with_ticket(const conf_run *conf, const glu_case *how, bool by_graph,
                        void (*body)(glu_rig *rig))
{
    static glu_rig rig;
    CONF_EACH_MODE (mode) {
        if (!glu_open(&rig, conf, mode, how, (uint64_t)mode + 1))
            return;
        lockstep *ls = &rig.pair.ls;
        ls->by_graph = by_graph;
        ls_group_random_counts(ls, &rig.pair.source, COUNTS_FULL, &rig.pair.random);
        ls_set_offload(ls, rig.pair.tickets[0], 1, 3);
        glu_take_over(&rig, true);
        ls_stash(ls, rig.pair.tickets[0], &rig.pair.source);
        glu_check_output(&rig);
        body(&rig);
        if (psti_test_failed())
            return;
        ls->by_graph = false;
        glu_close(&rig);
    }
}

static void move(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    const uint32_t ticket = rig->pair.tickets[0];
    restore(rig, PST_RESTORE_KEEP);
    ls_demote(ls, ticket, 3);
    restore(rig, PST_RESTORE_KEEP);
    ls_promote(ls, ticket, 0);
    restore(rig, PST_RESTORE_KEEP);
    ls_demote(ls, ticket, 0);
    restore(rig, PST_RESTORE_CONSUME);
    CHECK_EQ(ls->oracle->status.flags, 0);
}

CONFORMANCE(GluPages, MoveBetweenTiers)
{
    for (uint32_t i = 0; i < 3; i++) {
        const glu_case how = paged_case((pst_glu_dtype)i, i == 2 ? 32 : i);
        with_ticket(conf, &how, false, move);
    }
}

CONFORMANCE(GluPages, AreWrittenAndReadByGraphs)
{
    const glu_case how = paged_case(PST_GLU_BF16, 0);
    with_ticket(conf, &how, true, move);
}

static void consume(glu_rig *rig)
{
    restore(rig, PST_RESTORE_KEEP);
    restore(rig, PST_RESTORE_CONSUME); /* the lockstep looks whether what is free is clear */
    ls_stash(&rig->pair.ls, rig->pair.tickets[0], &rig->pair.source);
    ls_release(&rig->pair.ls, rig->pair.tickets[0]);
    CHECK_EQ(rig->pair.ls.oracle->status.flags, 0);
}

CONFORMANCE(GluPages, AreScrubbed)
{
    for (uint32_t i = 0; i < 2; i++) {
        glu_case how = paged_case(PST_GLU_FP16, i);
        how.scrub = true;
        with_ticket(conf, &how, false, consume);
    }
}

/* ---- damage ---- */

static uint32_t damaged_page;

static bool is_damaged(uint64_t position)
{
    return position / PST_PAGE_BYTES_MIN == damaged_page;
}

static void damage(glu_rig *rig, uint32_t id)
{
    lockstep *ls = &rig->pair.ls;
    const uint32_t ticket = rig->pair.tickets[0];
    ls->skip_checks = ls->check_is_loose = true;
    ls->words_of[ticket].table[damaged_page] = id;
    ls->oracle->tickets[ticket].table[damaged_page] = id;
    LS_TRY(ticket_words_write(ls->tickets[ticket], &ls->words_of[ticket], ls->stream));
}

/* The page is skipped and recorded once, whether the ticket is kept or not. */
static void read_damaged(glu_rig *rig)
{
    lockstep *ls = &rig->pair.ls;
    const uint32_t wrong[] = {UINT32_MAX, 0x80000000u | 16, 16,
                              ls->oracle->tickets[rig->pair.tickets[0]].ids[1]};
    for (uint32_t i = 0; i < 4 && !psti_test_failed(); i++) {
        damaged_page = i == 3 ? 4 : 2 * i;
        for (int pages = PST_RESTORE_KEEP; pages >= PST_RESTORE_CONSUME; pages--) {
            damage(rig, wrong[i]);
            glu_poison(rig);
            ls_restore(ls, rig->pair.tickets[0], &rig->pair.destination, (pst_restore_pages)pages,
                       PST_TAIL_UNTOUCHED);
            glu_check_backward_without(rig, is_damaged);
            CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
            CHECK_EQ(ls->words.status.num_faults, ls->oracle->status.num_faults);
            if (pages == PST_RESTORE_KEEP)
                ls_reset(ls, PST_RESET_FAULTS);
        }
        ls->skip_checks = ls->check_is_loose = false;
        ls_reset(ls, PST_RESET_ALL);
        ls_stash(ls, rig->pair.tickets[0], &rig->pair.source);
    }
}

CONFORMANCE(GluPages, ADamagedPageIsReadAsZeros)
{
    for (uint32_t i = 0; i < 3; i++) {
        glu_case how = paged_case(i == 1 ? PST_GLU_FP32 : PST_GLU_BF16, i == 2 ? 1 : 0);
        how.space = (pst_row_space){.kind = PST_ROWS_PREFIX, .capacity = i == 1 ? 9 : 18};
        how.features = i == 0 ? 1503 : 1504; /* elements one by one */
        how.is_alone = true;
        with_ticket(conf, &how, false, read_damaged);
    }
}
