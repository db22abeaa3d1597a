/* Random damage to the words of a pool and of its tickets, then random operations: nothing outside
 * the tensors is written, a source is never written, nothing hangs, and a reset mends all. */
#include "tests/conformance/conf.h"

enum { TICKETS = 4, DAMAGES = 6, OPERATIONS = 12, POOL_PAGES = 24 };

static bool set_up(conf_pair *self, const conf_run *conf, uint64_t seed)
{
    oracle_random *random = &self->random;
    shape like, other;
    *random = oracle_random_seeded(seed);
    const pst_pool_mode mode = (pst_pool_mode)oracle_random_below(random, 2);
    ls_options options = conf_options(mode, POOL_PAGES, seed);
    options.num_host_pages = oracle_random_below(random, 4);
    shape_make(random, (shape_theme)oracle_random_below(random, SHAPE_THEMES), 30000, &like);
    shape_like(random, &like, true, &other);
    if (!conf_pair_open(self, conf, &options, &like, &other, TICKETS))
        return false;
    for (int i = 0; i < TICKETS; i++) {
        ls_group_random_counts(&self->ls, &self->source, COUNTS_RANDOM, random);
        ls_stash(&self->ls, self->tickets[i], &self->source);
    }
    ls_release(&self->ls, self->tickets[oracle_random_below(random, TICKETS)]);
    return !self->ls.failed;
}

/* Often near what is right, sometimes anything. */
static uint64_t wild(oracle_random *random, uint64_t near)
{
    static const uint64_t edges[] = {0,          1,         INT32_MAX, 0x80000000u,
                                     UINT32_MAX, INT64_MAX, UINT64_MAX};
    if (oracle_random_one_in(random, 2))
        return near + oracle_random_below(random, 5) - 2;
    if (oracle_random_one_in(random, 2))
        return edges[oracle_random_below(random, 7)];
    return oracle_random_bits(random);
}

static void damage_ticket(oracle_random *random, ticket_words *words)
{
    const uint64_t page = oracle_random_below(random, words->table_pages);
    const uint64_t count = oracle_random_below(random, words->num_counts);
    switch (oracle_random_below(random, 6)) {
    case 5:
        words->head.num_host = wild(random, words->head.num_host);
        break;
    case 0:
        words->head.state = (uint32_t)oracle_random_below(random, 4);
        break;
    case 1:
        words->head.epoch -= (uint32_t)oracle_random_in(random, 1, 3); /* never one to come */
        break;
    case 2:
        words->head.num_pages = wild(random, words->head.num_pages);
        break;
    case 3:
        words->counts[count] = (int64_t)wild(random, (uint64_t)words->counts[count]);
        break;
    default:
        if (words->table_pages)
            words->table[page] = (uint32_t)wild(random, words->table[page]);
    }
}

static void damage_pool(oracle_random *random, const pst_pool *pool, pool_words *words)
{
    const uint32_t tier = pool->num_pages[1] ? (uint32_t)oracle_random_below(random, 2) : 0;
    const uint64_t slot = oracle_random_below(random, pool->view.ring_mask[tier] + 1ull);
    const uint64_t page = oracle_random_below(random, pool->num_pages[tier]);
    switch (oracle_random_below(random, 4)) {
    case 0:
        words->state.head[tier] = wild(random, words->state.head[tier]);
        break;
    case 1:
        words->state.tail[tier] = wild(random, words->state.tail[tier]);
        break;
    case 2:
        words->ring[tier][slot] = (uint32_t)wild(random, words->ring[tier][slot]);
        break;
    default:
        words->owner[tier][page] = wild(random, words->owner[tier][page]);
    }
}

static void damage_something(conf_pair *self)
{
    lockstep *ls = &self->ls;
    oracle_random *random = &self->random;
    const uint32_t ticket = self->tickets[oracle_random_below(random, TICKETS)];
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_read(ls->tickets[ticket], &ls->words_of[ticket], ls->stream));
    if (oracle_random_one_in(random, 2))
        damage_pool(random, ls->pool, &ls->words);
    else
        damage_ticket(random, &ls->words_of[ticket]);
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    LS_TRY(ticket_words_write(ls->tickets[ticket], &ls->words_of[ticket], ls->stream));
}

static void operate(conf_pair *self)
{
    lockstep *ls = &self->ls;
    oracle_random *random = &self->random;
    pst_ticket ticket = ls->tickets[self->tickets[oracle_random_below(random, TICKETS)]];
    pst_restore_options options =
        ls_restore_options(&self->destination, (pst_restore_pages)oracle_random_below(random, 2),
                           (pst_restore_tail)oracle_random_below(random, 3));
    options.failed = (pst_restore_failed)oracle_random_below(random, 2);
    pst_migrate_options share = PST_MIGRATE_OPTIONS_INIT;
    share.max_pages = oracle_random_below(random, 4);
    share.share = share.max_pages > 0 ? PST_MIGRATE_UP_TO : PST_MIGRATE_ALL;
    const bool has_host_pages = ls->options.num_host_pages > 0;
    switch (oracle_random_below(random, has_host_pages ? 10 : 8)) {
    case 8:
        LS_TRY(pst_ticket_demote(ticket, &share, ls->stream));
        break;
    case 9:
        LS_TRY(pst_ticket_promote(ticket, &share, ls->stream));
        break;
    case 0:
        LS_TRY(pst_ticket_release(ticket, ls->stream));
        break;
    case 1:
        LS_TRY(pst_pool_check(ls->pool, ls->stream));
        break;
    case 2:
        LS_TRY(pst_pool_step(ls->pool, ls->stream));
        break;
    case 3:
    case 4:
    case 5:
        LS_TRY(ls_enqueue_stash(ticket, &self->source, ls->stream));
        break;
    default:
        LS_TRY(ls_enqueue_restore(ticket, &self->destination, &options, ls->stream));
    }
}

/* Takes over what lies in the destination's segments, up to their capacities: bytes in between stay
 * those of the image. */
static void adopt_segments(conf_pair *self)
{
    lockstep *ls = &self->ls;
    oracle_group *model = &self->destination.model;
    unsigned char *found = ls_scratch(ls, self->destination.arena_bytes);
    LS_TRY(pst_device_copy(ls->device, found, self->destination.arena,
                           self->destination.arena_bytes, ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    for (uint32_t t = 0; t < model->num_tensors; t++) {
        const uint32_t segments = oracle_num_segments(&model->spaces[model->tensors[t].space]);
        for (uint32_t s = 0; s < segments; s++) {
            for (uint64_t i = 0; i < oracle_segment_bytes(model, t); i++) {
                const uint64_t at = oracle_byte_at(model, t, s, i);
                model->image[at] = found[at];
            }
        }
    }
}

/* As if nothing had happened. */
static void mend(conf_pair *self)
{
    lockstep *ls = &self->ls;
    LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
    oracle_reset(ls->oracle, PST_RESET_ALL);
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    const pst_pool_status *status = &ls->words.status;
    ls->oracle->status.checks = status->checks;
    ls->oracle->status.steps = status->steps;
    ls->oracle->status.in_use[0] = status->in_use[0];
    ls->oracle->status.in_use[1] = status->in_use[1];
    ls->oracle->status.epoch = status->epoch;
    ls_group_mark_dirty(ls, &self->destination);
    ls_compare(ls);
}

/* Not for ThreadSanitizer: an id that stands twice in the ring makes two blocks write one page. */
/* Fault rows 48. */
CONFORMANCE_NO_TSAN(Chaos, DamagedWordsLeadNobodyAstray)
{
    for (uint32_t i = 0; i < conf_cases(conf, 600) && !psti_test_failed(); i++) {
        static conf_pair self;
        conf_vary(conf, conf_seed(i));
        if (!set_up(&self, conf, conf_seed(i)))
            return;
        for (int op = 0; op < OPERATIONS && !self.ls.failed; op++) {
            if (op < DAMAGES)
                damage_something(&self);
            operate(&self);
        }
        adopt_segments(&self);
        ls_group_compare(&self.ls, &self.source);
        ls_group_compare(&self.ls, &self.destination);
        mend(&self);
        for (int again = 0; again < 3; again++) {
            ls_group_random_counts(&self.ls, &self.source, COUNTS_RANDOM, &self.random);
            ls_stash(&self.ls, self.tickets[again], &self.source);
            ls_restore(&self.ls, self.tickets[again], &self.destination, PST_RESTORE_CONSUME,
                       PST_TAIL_ZERO);
        }
        conf_pair_close(&self);
    }
}
