/* Page tables of a pool with two tiers that were damaged before a migration, a restore or a scrub: the
 * place is skipped, its page neither moves nor is cleared, nothing is freed twice, and whose page the
 * wrong id names keeps it. */
#include "tests/conformance/conf.h"

enum { ROW_BYTES = 4096, PAGES = 6, ROWS = 4 * PAGES, DEVICE_PAGES = 20, HOST_PAGES = 14 };

static void stash_both(conf_pair *self)
{
    for (int ticket = 0; ticket < 2; ticket++) {
        ls_set_offload(&self->ls, self->tickets[ticket], 1, 2);
        conf_pair_stash(self, ticket, ROWS);
    }
}

/* Both tickets are live, half of each on the host. */
static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, bool scrub)
{
    ls_options options = conf_options(mode, DEVICE_PAGES, 6);
    const shape like = conf_prefix_shape(1, ROWS, ROW_BYTES);
    options.num_host_pages = HOST_PAGES;
    options.scrub = scrub;
    if (!conf_pair_open(self, conf, &options, &like, NULL, 2))
        return false;
    stash_both(self);
    return !self->ls.failed;
}

/* While words are damaged pst_pool_check would say so, which is not what is tested here. */
static void damage(conf_pair *self, bool damaged)
{
    self->ls.skip_checks = damaged;
    self->ls.check_is_loose = damaged;
    if (!damaged)
        ls_compare(&self->ls);
}

enum {
    BAD_NONE,
    BAD_RANGE,
    BAD_HOST_RANGE,
    BAD_FREE,
    BAD_HOST_FREE,
    BAD_OTHER,      /* of the same tier: the other ticket has it at this place */
    BAD_OTHER_TIER, /* at another place */
    BAD_REPEATED,
    BAD_KINDS
};

static uint32_t bad_id(const conf_pair *self, int kind, uint32_t page)
{
    const oracle_pool *oracle = self->ls.oracle;
    switch (kind) {
    case BAD_NONE:
        return UINT32_MAX;
    case BAD_RANGE:
        return DEVICE_PAGES;
    case BAD_HOST_RANGE:
        return oracle_id(1, HOST_PAGES);
    case BAD_FREE:
        return oracle->free_ids[0][0];
    case BAD_HOST_FREE:
        return oracle->free_ids[1][0];
    case BAD_OTHER:
        return oracle->tickets[self->tickets[1]].ids[page];
    case BAD_OTHER_TIER:
        return oracle->tickets[self->tickets[1]].ids[(page + PAGES / 2) % PAGES];
    default:
        return oracle->tickets[self->tickets[0]].ids[(page + 1) % PAGES];
    }
}

static void damage_id(conf_pair *self, uint32_t page, uint32_t id)
{
    lockstep *ls = &self->ls;
    const uint32_t ticket = self->tickets[0];
    damage(self, true);
    ls->words_of[ticket].table[page] = id;
    ls->oracle->tickets[ticket].table[page] = id;
    LS_TRY(ticket_words_write(ls->tickets[ticket], &ls->words_of[ticket], ls->stream));
}

static void restore(conf_pair *self, int ticket, pst_restore_pages pages)
{
    conf_pair_restore(self, ticket, pages, PST_TAIL_UNTOUCHED);
}

static void demote(conf_pair *self)
{
    ls_demote(&self->ls, self->tickets[0], 0);
}

static void promote(conf_pair *self)
{
    ls_promote(&self->ls, self->tickets[0], 0);
}

static void there_and_back(conf_pair *self)
{
    ls_demote(&self->ls, self->tickets[0], 2);
    ls_promote(&self->ls, self->tickets[0], 3);
    ls_demote(&self->ls, self->tickets[0], 1);
}

static void keep(conf_pair *self)
{
    restore(self, 0, PST_RESTORE_KEEP);
}

/* Each kind of damage, then the operation, then an end of the ticket, then the other one as usual. */
static void try_damage(conf_pair *self, void (*operation)(conf_pair *self))
{
    const uint32_t step = psti_test_cases(PAGES) == PAGES ? 1 : PAGES - 1;
    for (int kind = 0; kind < BAD_KINDS; kind++)
        for (uint32_t page = (uint32_t)kind % step; page < PAGES && !self->ls.failed;
             page += step) {
            damage_id(self, page, bad_id(self, kind, page));
            operation(self);
            if (kind % 2)
                restore(self, 0, PST_RESTORE_CONSUME);
            else
                ls_release(&self->ls, self->tickets[0]);
            damage(self, false);
            CHECK_EQ(self->ls.oracle->status.fault, PST_FAULT_DAMAGED);
            CHECK_EQ(oracle_lost_pages(self->ls.oracle), 1);
            restore(self, 1, PST_RESTORE_KEEP);
            ls_demote(&self->ls, self->tickets[1], 0);
            restore(self, 1, PST_RESTORE_CONSUME);
            ls_reset(&self->ls, PST_RESET_ALL);
            stash_both(self);
        }
}

static void in_all_pools(const conf_run *conf, void (*operation)(conf_pair *self))
{
    static conf_pair self;
    const int first = psti_test_cases(2) == 2 ? 0 : 1; /* the long test has both for each mode */
    CONF_EACH_MODE (mode)
        for (int i = first; i < 2; i++) {
            if (!set_up(&self, conf, mode, i == (mode == PST_POOL_ORDERED)))
                return;
            try_damage(&self, operation);
            if (psti_test_failed())
                return;
            conf_pair_close(&self);
        }
}

/* What is late makes no difference here; a damaged word is no race. */
#define DAMAGED_TIERS(name) \
    CONF_DEFINE(DamagedTiers, name, PSTI_UNDER_TSAN ? 0 : CONF_ALL & ~(1u << CONF_LAZY))

DAMAGED_TIERS(DemoteSkipsADamagedId)
{
    in_all_pools(conf, demote);
}

DAMAGED_TIERS(PromoteSkipsADamagedId)
{
    in_all_pools(conf, promote);
}

DAMAGED_TIERS(SharesOfATicketSkipADamagedId)
{
    in_all_pools(conf, there_and_back);
}

DAMAGED_TIERS(RestoreSkipsADamagedId)
{
    in_all_pools(conf, keep);
}

/* Two places have changed: as many pages as before, but none where it belongs. */
DAMAGED_TIERS(MigrationLeavesExchangedPlaces)
{
    static conf_pair self;
    CONF_EACH_MODE (mode)
        for (int promotes = 0; promotes < 2; promotes++) {
            if (!set_up(&self, conf, mode, true))
                return;
            const uint32_t first = promotes ? 0 : PAGES / 2; /* the host's come first */
            const uint32_t *ids = self.ls.oracle->tickets[self.tickets[0]].ids;
            const uint32_t exchanged[] = {ids[first + 1], ids[first]};
            damage_id(&self, first, exchanged[0]);
            damage_id(&self, first + 1, exchanged[1]);
            (promotes ? promote : demote)(&self);
            damage_id(&self, first, exchanged[1]);
            damage_id(&self, first + 1, exchanged[0]);
            damage(&self, false);
            CHECK_EQ(self.ls.oracle->status.flags, 0);
            CHECK_EQ(self.ls.oracle->status.demoted_pages + self.ls.oracle->status.promoted_pages,
                     1);
            restore(&self, 0, PST_RESTORE_CONSUME);
            restore(&self, 1, PST_RESTORE_CONSUME);
            conf_pair_close(&self);
        }
}

/* ---- a damaged ring ---- */

static void stash_third(conf_pair *self, uint32_t third)
{
    lockstep *ls = &self->ls;
    LS_TRY(ls_enqueue_stash(ls->tickets[third], &self->source, ls->stream));
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
}

static void damage_two_of_ring(conf_pair *self)
{
    lockstep *ls = &self->ls;
    const uint64_t mask = ls->pool->view.ring_mask[PSTI_TIER_DEVICE];
    damage(self, true);
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    for (uint64_t ahead = 1; ahead <= PAGES; ahead += PAGES - 2)
        ls->words.ring[0][(ls->words.state.head[0] + ahead) & mask] = DEVICE_PAGES;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
}

/* Each id of the ring that is wrong is a fault of the stash that meets it, and of no later one. */
DAMAGED_TIERS(EachWrongIdOfARingIsAFaultOnce)
{
    static conf_pair self;
    lockstep *ls = &self.ls;
    CONF_EACH_MODE (mode) {
        if (!set_up(&self, conf, mode, false))
            return;
        const uint32_t third = ls_ticket_make(ls, &self.source);
        damage_two_of_ring(&self);
        stash_third(&self, third);
        CHECK_EQ(ls->words.status.fault, PST_FAULT_DAMAGED);
        CHECK_EQ(ls->words.status.fault_ticket, third);
        CHECK_EQ(ls->words.status.fault_wanted, DEVICE_PAGES);
        CHECK_EQ(ls->words.status.num_faults, 2);
        LS_TRY(pst_ticket_release(ls->tickets[third], ls->stream));
        LS_TRY(pst_pool_reset(ls->pool, PST_RESET_FAULTS, ls->stream));
        stash_third(&self, third);
        CHECK_EQ(ls->words.status.flags, 0);
        LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
        oracle_reset(ls->oracle, PST_RESET_ALL);
        damage(&self, false);
        ls_ticket_free(ls, third);
        conf_pair_close(&self);
    }
}
