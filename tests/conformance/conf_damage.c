/* Tickets and rings whose words were damaged: what is wrong is skipped, recorded and never freed
 * twice; what is right still works. */
#include "tests/conformance/conf.h"

enum { ROW_BYTES = 4096, PAGES = 6, ROWS = 4 * PAGES, POOL_PAGES = 20 };

static void stash_full(conf_pair *self, int ticket)
{
    conf_pair_stash(self, ticket, ROWS);
}

/* Both tickets are live. */
static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode)
{
    const ls_options options = conf_options(mode, POOL_PAGES, 5);
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    if (!conf_pair_open(self, conf, &options, &like, NULL, 2))
        return false;
    stash_full(self, 0);
    stash_full(self, 1);
    return !self->ls.failed;
}

static void in_both_modes(const conf_run *conf, void (*body)(conf_pair *self))
{
    static conf_pair self;
    CONF_EACH_MODE (mode) {
        if (!set_up(&self, conf, mode))
            return;
        body(&self);
        if (psti_test_failed())
            return;
        ls_reset(&self.ls, PST_RESET_ALL); /* lost pages stay lost until then */
        conf_pair_close(&self);
    }
}

#define DAMAGE_AS(name, CONFORMANCE_AS) \
    static void name(conf_pair *self);  \
    CONFORMANCE_AS(Damage, name)        \
    {                                   \
        in_both_modes(conf, name);      \
    }                                   \
    static void name(conf_pair *self)

#define DAMAGE(name) DAMAGE_AS(name, CONFORMANCE)

/* While words are damaged pst_pool_check would say so, which is not what is tested here. */
static void damage(conf_pair *self, bool damaged)
{
    self->ls.skip_checks = damaged;
    self->ls.check_is_loose = damaged;
    if (!damaged)
        ls_compare(&self->ls);
}

static void write_ticket(conf_pair *self)
{
    lockstep *ls = &self->ls;
    LS_TRY(ticket_words_write(ls->tickets[self->tickets[0]], &ls->words_of[self->tickets[0]],
                              ls->stream));
}

static void damage_id(conf_pair *self, uint32_t page, uint32_t id)
{
    damage(self, true);
    self->ls.words_of[self->tickets[0]].table[page] = id;
    self->ls.oracle->tickets[self->tickets[0]].table[page] = id;
    write_ticket(self);
}

enum { BAD_NONE, BAD_RANGE, BAD_LAST, BAD_HOST, BAD_FREE, BAD_OTHER, BAD_REPEATED, BAD_KINDS };

static uint32_t bad_id(const conf_pair *self, int kind, uint32_t page)
{
    const oracle_pool *oracle = self->ls.oracle;
    switch (kind) {
    case BAD_NONE:
        return UINT32_MAX;
    case BAD_RANGE:
        return POOL_PAGES;
    case BAD_LAST:
        return INT32_MAX;
    case BAD_HOST:
        return 0x80000000u;
    case BAD_FREE:
        return oracle->free_ids[0][0];
    case BAD_OTHER:
        return oracle->tickets[self->tickets[1]].ids[page];
    default:
        return oracle->tickets[self->tickets[0]].ids[(page + 1) % PAGES];
    }
}

/* Each kind of damage to each page, then one of the operations, then the other ticket as usual. */
static void try_damage(conf_pair *self, void (*operation)(conf_pair *self))
{
    const uint32_t step = psti_test_step(PAGES - 1); /* which page makes no difference to it */
    for (int kind = 0; kind < BAD_KINDS; kind++)
        for (uint32_t page = 0; page < PAGES && !self->ls.failed; page += step) {
            ls_group_poison(&self->ls, &self->destination, 0xdd);
            damage_id(self, page, bad_id(self, kind, page));
            operation(self);
            damage(self, false);
            CHECK_EQ(self->ls.oracle->status.fault, PST_FAULT_DAMAGED);
            CHECK_EQ(oracle_lost_pages(self->ls.oracle), 1);
            ls_restore(&self->ls, self->tickets[1], &self->destination, PST_RESTORE_CONSUME,
                       PST_TAIL_UNTOUCHED);
            ls_reset(&self->ls, PST_RESET_ALL);
            stash_full(self, 0);
            stash_full(self, 1);
        }
}

static void release(conf_pair *self)
{
    ls_release(&self->ls, self->tickets[0]);
}

static void consume(conf_pair *self)
{
    ls_restore(&self->ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
}

static void keep_and_release(conf_pair *self)
{
    ls_restore(&self->ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_ZERO);
    ls_release(&self->ls, self->tickets[0]);
}

DAMAGE(ReleaseSkipsADamagedId)
{
    try_damage(self, release);
}

/* Fault rows 48. */
DAMAGE(ConsumeSkipsADamagedId)
{
    try_damage(self, consume);
}

DAMAGE(KeepSkipsADamagedId)
{
    try_damage(self, keep_and_release);
}

/* Of several tiles, which several teams copy. */
CONFORMANCE(Damage, APageIsOneFault)
{
    static conf_pair self;
    const shape like = conf_prefix_shape(1, 4 * ROWS, ROW_BYTES);
    CONF_EACH_MODE (mode) {
        ls_options options = conf_options(mode, POOL_PAGES, 5);
        options.page_bytes = 4 * PST_PAGE_BYTES_MIN;
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        conf_pair_stash(&self, 0, 4 * ROWS);
        damage_id(&self, 1, UINT32_MAX);
        ls_restore(&self.ls, self.tickets[0], &self.destination, PST_RESTORE_KEEP,
                   PST_TAIL_UNTOUCHED);
        CHECK_EQ(self.ls.words.status.num_faults, 1);
        ls_release(&self.ls, self.tickets[0]);
        damage(&self, false);
        ls_reset(&self.ls, PST_RESET_ALL);
        conf_pair_close(&self);
    }
}

/* A restore that keeps the ticket frees nothing, so only the place that an id stands at tells that
 * the page is not the one that was stashed there. */
DAMAGE(KeepCopiesNoPageToAnotherPlace)
{
    static const uint32_t tables[][3] = {{1, 1, 2}, {0, 0, 2}, {0, 1, 0}, {1, 0, 2}, {2, 0, 1}};
    static const uint32_t wrong[] = {1, 1, 1, 2, 3};
    for (int i = 0; i < 5; i++) {
        lockstep *ls = &self->ls;
        const uint32_t *ids = ls->oracle->tickets[self->tickets[0]].ids;
        ls_group_poison(ls, &self->destination, 0xdd);
        for (uint32_t page = 0; page < 3; page++)
            damage_id(self, page, ids[tables[i][page]]);
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
        CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
        CHECK_EQ(ls->words.status.num_faults, wrong[i]);
        for (uint32_t page = 0; page < 3; page++)
            damage_id(self, page, ids[page]);
        ls_reset(ls, PST_RESET_FAULTS);
        damage(self, false);
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    }
}

/* A count that the destination cannot hold. */
DAMAGE(CountBeyondTheDestinationCopiesNothing)
{
    static const int64_t counts[] = {ROWS + 1, -1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        damage(self, true);
        self->ls.words_of[self->tickets[0]].counts[0] = counts[i];
        self->ls.oracle->tickets[self->tickets[0]].counts[0] = counts[i];
        write_ticket(self);
        ls_restore(&self->ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME,
                   PST_TAIL_ZERO);
        CHECK_EQ(self->ls.oracle->status.fault, PST_FAULT_DESTINATION);
        ls_release(&self->ls, self->tickets[0]); /* the ids are right */
        damage(self, false);
        ls_reset(&self->ls, PST_RESET_FAULTS);
        stash_full(self, 0);
    }
}

/* Counts or a number of pages that do not belong together: nothing is copied, nothing is freed. */
/* Fault rows 48. */
DAMAGE(CountsAndPagesThatDisagreeCopyNothing)
{
    for (int kind = 0; kind < 4; kind++) {
        lockstep *ls = &self->ls;
        ticket_words *words = &ls->words_of[self->tickets[0]];
        damage(self, true);
        if (kind < 2)
            words->counts[0] = kind ? 0 : ROWS - 5;
        else
            words->head.num_pages = kind == 2 ? UINT64_MAX : PAGES - 1;
        write_ticket(self);
        LS_TRY(ls_enqueue_restore(ls->tickets[self->tickets[0]], &self->destination, NULL,
                                  ls->stream));
        oracle_fault(ls->oracle, PST_FAULT_DAMAGED, self->tickets[0], 0);
        words->counts[0] = ROWS;
        words->head.num_pages = PAGES;
        LS_TRY(ticket_words_read(ls->tickets[self->tickets[0]], words, ls->stream));
        CHECK_EQ(words->head.state, PSTI_TICKET_LIVE);
        words->counts[0] = ROWS;
        words->head.num_pages = PAGES;
        write_ticket(self);
        ls_group_compare(ls, &self->destination);
        damage(self, false);
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    }
}

/* ---- a damaged ring ---- */

/* The next id that a stash would take is one that is wrong. */
static void damage_ring(conf_pair *self, uint32_t ahead, uint32_t id)
{
    lockstep *ls = &self->ls;
    damage(self, true);
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    const uint64_t slot =
        (ls->words.state.head[0] + ahead) & ls->pool->view.ring_mask[PSTI_TIER_DEVICE];
    ls->words.ring[0][slot] = id;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
}

/* Both live tickets are whole. */
static void restore_both(conf_pair *self)
{
    lockstep *ls = &self->ls;
    pst_restore_options keep = PST_RESTORE_OPTIONS_INIT;
    keep.pages = PST_RESTORE_KEEP;
    for (int i = 0; i < 2; i++) {
        const uint32_t ticket = self->tickets[i];
        LS_TRY(ls_enqueue_restore(ls->tickets[ticket], &self->destination, &keep, ls->stream));
        oracle_restore(ls->oracle, ticket, &self->destination.model, PST_RESTORE_KEEP,
                       PST_TAIL_UNTOUCHED);
        ls_group_compare(ls, &self->destination);
    }
}

/* Whether the stashed ticket's page has its bytes of the source. */
static void check_page(conf_pair *self, uint32_t id, uint32_t page)
{
    static unsigned char found[PST_PAGE_BYTES_MIN], wanted[PST_PAGE_BYTES_MIN];
    lockstep *ls = &self->ls;
    const psti_pool_view *view = &ls->pool->view;
    const unsigned char *rows = self->source.arena + self->source.model.at[0];
    LS_TRY(pst_device_copy(ls->device, found, view->pages[0] + ((size_t)id << view->page_shift),
                           sizeof(found), ls->stream));
    LS_TRY(pst_device_copy(ls->device, wanted, rows + (size_t)page * sizeof(wanted), sizeof(wanted),
                           ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    CHECK_MSG(memcmp(found, wanted, sizeof(found)) == 0, "page %u", page);
}

/* Stashes where the second id of the ring is wrong: it becomes a hole in the table. */
static void stash_from_damaged(conf_pair *self, uint32_t id)
{
    lockstep *ls = &self->ls;
    const uint32_t third = ls_ticket_make(ls, &self->source);
    ticket_words *words = &ls->words_of[third];
    damage_ring(self, 1, id);
    ls_group_fill(ls, &self->source, &self->random);
    LS_TRY(ls_enqueue_stash(ls->tickets[third], &self->source, ls->stream));
    LS_TRY(ticket_words_read(ls->tickets[third], words, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
    CHECK_EQ(ls->words.status.fault_ticket, third);
    CHECK_EQ(ls->words.status.fault_wanted, id);
    uint32_t holes = 0;
    for (uint32_t page = 0; page < PAGES; page++)
        holes += words->table[page] == PSTI_ID_NONE;
    CHECK_EQ(holes, 1);
    for (uint32_t page = 2; page < PAGES; page++) /* the first one may be the second's, too */
        check_page(self, words->table[page], page);
    restore_both(self);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    damage(self, false);
    ls_ticket_free(ls, third);
    stash_full(self, 0);
    stash_full(self, 1);
}

/* Pages that belong to somebody are not written, and nobody owns a page twice. */
/* Fault rows 47. */
DAMAGE(StashTakesNoIdThatIsWrong)
{
    const uint32_t ids[] = {UINT32_MAX, POOL_PAGES, 0x80000000u,
                            self->ls.oracle->tickets[self->tickets[1]].ids[2]};
    for (int kind = 0; kind < 4; kind++)
        stash_from_damaged(self, ids[kind]);
}

static void stash_from_repeated(conf_pair *self)
{
    self->ls.num_sms = 1;
    stash_from_damaged(self, self->ls.oracle->free_ids[0][0]);
}

/* Warps of one team may disagree whose the page is, so it has all tiles in most cases. Not for ThreadSanitizer: until
 * the owner word is taken both are written. */
CONFORMANCE_NO_TSAN(Damage, StashTakesNoIdTwice)
{
    const uint64_t seeds = conf->kind == CONF_SIMT  ? 48
                           : conf->kind == CONF_PTX ? 12 /* there warps go apart soonest */
                                                    : 1;
    for (uint64_t seed = 1; seed <= seeds && !psti_test_failed(); seed++) {
        conf_vary_threads(conf, seed, seed % 2 ? 64 : 128);
        in_both_modes(conf, stash_from_repeated);
    }
}

/* A page whose owner word says that somebody has it is not written though it is in the ring. */
DAMAGE(OwnedPageInTheRingIsNotWritten)
{
    lockstep *ls = &self->ls;
    const uint32_t third = ls_ticket_make(ls, &self->source);
    const uint32_t id = ls->oracle->free_ids[0][0];
    const psti_pool_view *view = &ls->pool->view;
    static unsigned char before[PST_PAGE_BYTES_MIN], after[PST_PAGE_BYTES_MIN];
    damage(self, true);
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.owner[0][id] = 77;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    const void *page = view->pages[0] + ((size_t)id << view->page_shift);
    LS_TRY(pst_device_copy(ls->device, before, page, sizeof(before), ls->stream));
    LS_TRY(ls_enqueue_stash(ls->tickets[third], &self->source, ls->stream));
    LS_TRY(pst_device_copy(ls->device, after, page, sizeof(after), ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    CHECK(memcmp(before, after, sizeof(before)) == 0);
    CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
    CHECK_EQ(ls->words.owner[0][id], 77);
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    damage(self, false);
}
