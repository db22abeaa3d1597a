/* Options of stash and restore: what is refused, tails and dirty words, restores that copy nothing or
 * only some tensors. */
#include <stdio.h>

#include "tests/host/stash/scene.h"

/* ---- options ---- */

PST_TEST(Restore, LaunchOptionsAreChecked)
{
    static const int sms[] = {-1, INT32_MIN, 2, INT32_MAX};
    small_scene self;
    small_open(&self);
    for (int i = 0; i < 4; i++) {
        char message[64];
        pst_stash_options stash = PST_STASH_OPTIONS_INIT;
        pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
        stash.launch.num_sms = restore.launch.num_sms = sms[i];
        snprintf(message, sizeof(message), "num_sms %d: allowed are 0 to 1 on this device", sms[i]);
        CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, &self.buffers, &stash, NULL),
                     PST_E_INVALID);
        CHECK_SAID(message);
        CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &self.buffers, &restore, NULL),
                     PST_E_INVALID);
        CHECK_SAID(message);
    }
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    stash.struct_size = 8;
    CHECK_STATUS(pst_ticket_stash(self.ticket, self.group, &self.buffers, &stash, NULL),
                 PST_E_INVALID);
    CHECK_SAID("struct_size 8: pst_stash_options has ");
    pst_migrate_options share = PST_MIGRATE_OPTIONS_INIT;
    share.max_pages = 1;
    CHECK_STATUS(pst_ticket_demote(self.ticket, &share, NULL), PST_E_INVALID);
    CHECK_SAID("max_pages 1: at least 1 with PST_MIGRATE_UP_TO, else 0");
    share.share = (pst_migrate_share)3;
    CHECK_STATUS(pst_ticket_promote(self.ticket, &share, NULL), PST_E_INVALID);
    CHECK_SAID("share 3: allowed are all, up to and rest");
    CHECK_EQ(small_status(self.pool).num_faults, 0); /* nothing was enqueued */
    small_close(&self);
}

static void check_restore_refused(const small_scene *self, const pst_restore_options *options,
                                  const char *message)
{
    CHECK_STATUS(pst_ticket_restore(self->ticket, self->group, &self->buffers, options, NULL),
                 PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_EQ(small_status(self->pool).num_faults, 0); /* nothing was enqueued */
}

PST_TEST(Restore, RestoreOptionsAreChecked)
{
    static const pst_restore_options good = PST_RESTORE_OPTIONS_INIT;
    small_scene self;
    pst_restore_options options = good;
    small_open(&self);
    options.struct_size = 0;
    check_restore_refused(&self, &options, "struct_size 0: pst_restore_options has ");
    options = good;
    options.pages = (pst_restore_pages)2;
    check_restore_refused(&self, &options, "pages 2: allowed are consume and keep");
    options = good;
    options.tail = (pst_restore_tail)3;
    check_restore_refused(&self, &options, "tail 3: allowed are untouched, zero and zero all");
    options.tail = (pst_restore_tail)-1;
    check_restore_refused(&self, &options, "tail -1: allowed are untouched, zero and zero all");
    options = good;
    options.failed = (pst_restore_failed)2;
    check_restore_refused(&self, &options, "failed 2: allowed are untouched and zero");
    options.failed = (pst_restore_failed)-1;
    check_restore_refused(&self, &options, "failed -1: allowed are untouched and zero");
    options = good;
    options.padding = 5;
    check_restore_refused(&self, &options, "padding 5: must be 0");
    options = good;
    options.tail = PST_TAIL_ZERO;
    check_restore_refused(&self, &options, "PST_TAIL_ZERO needs dirty words");
    small_close(&self);
}

PST_TEST(Restore, DirtyWordsAreChecked)
{
    small_scene self, other;
    pst_dirty *dirty = NULL, *other_dirty = NULL, *form = NULL;
    pst_group *half = NULL;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    small_open(&self);
    small_open(&other);
    self.tensor.num = 1;
    self.tensor.den = 2;
    CHECK_OK(pst_group_create(&self.group_config, &half));
    CHECK_OK(pst_dirty_create(self.device, self.group, false, &dirty));
    CHECK_OK(pst_dirty_create(self.device, half, false, &form));
    CHECK_OK(pst_dirty_create(other.device, self.group, false, &other_dirty));
    for (int tail = PST_TAIL_UNTOUCHED; tail <= PST_TAIL_ZERO_ALL; tail++) {
        options.tail = (pst_restore_tail)tail;
        options.pages = PST_RESTORE_CONSUME;
        options.dirty = form;
        check_restore_refused(&self, &options, "dirty was made for a group of another form");
        options.dirty = other_dirty;
        check_restore_refused(&self, &options, "ticket and dirty of two devices");
        options.dirty = dirty;
        options.pages = PST_RESTORE_KEEP;
        self.bases[0] = NULL;
        check_restore_refused(&self, &options, "a base of destination is NULL");
        self.bases[0] = self.rows;
    }
    CHECK_OK(pst_dirty_destroy(form));
    CHECK_OK(pst_dirty_destroy(dirty));
    CHECK_OK(pst_dirty_destroy(other_dirty));
    CHECK_OK(pst_group_destroy(half));
    small_close(&other);
    small_close(&self);
}

PST_TEST(Restore, OptionsInsideTheBoundsAreTaken)
{
    small_scene self;
    pst_dirty *dirty = NULL;
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    small_open(&self);
    CHECK_OK(pst_dirty_create(self.device, self.group, false, &dirty));
    self.count = 2;
    stash.launch.num_sms = restore.launch.num_sms = 1;
    restore.pages = PST_RESTORE_KEEP;
    restore.tail = PST_TAIL_ZERO;
    restore.dirty = dirty;
    memset(self.rows, 9, SMALL_BYTES);
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, &self.buffers, &stash, NULL));
    memset(self.rows, 8, SMALL_BYTES);
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &restore, NULL));
    CHECK_EQ(self.rows[2 * SMALL_ROW - 1], 9);
    CHECK_EQ(self.rows[2 * SMALL_ROW], 0); /* to the capacity, the tail was not known to be zero */
    CHECK_EQ(self.rows[SMALL_BYTES - 1], 0);
    pst_pool_status status = small_status(self.pool);
    CHECK_EQ(status.in_use[0], 1); /* kept */
    self.rows[3 * SMALL_ROW] = 1;
    restore.pages = PST_RESTORE_CONSUME;
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &restore, NULL));
    CHECK_EQ(self.rows[3 * SMALL_ROW], 1); /* behind [live, dirty) nothing is touched */
    status = small_status(self.pool);
    CHECK_EQ(status.in_use[0], 0);
    CHECK_EQ(status.num_faults, 0);
    CHECK_OK(pst_dirty_destroy(dirty));
    small_close(&self);
}

/* ---- tails ---- */

static void stash_rows(small_scene *self, int32_t count)
{
    self->count = count;
    memset(self->rows, 9, SMALL_BYTES);
    CHECK_OK(small_stash(self, self->ticket, NULL));
    memset(self->rows, 8, SMALL_BYTES);
}

/* Rows of nines, then of zeros, then as they were. */
static void check_rows(const small_scene *self, int nines, int zeros)
{
    for (int at = 0; at < SMALL_BYTES; at++)
        CHECK_EQ(self->rows[at], at < nines * SMALL_ROW             ? 9
                                 : at < (nines + zeros) * SMALL_ROW ? 0
                                                                    : 8);
}

PST_TEST(Restore, ZeroAllNeedsNoDirtyWordsAndClearsToTheCapacity)
{
    small_scene self;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    const int64_t capacity = 6;
    small_open(&self);
    options.tail = PST_TAIL_ZERO_ALL;
    stash_rows(&self, 3);
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 3, 5);
    stash_rows(&self, 3);
    self.buffers.capacities = &capacity; /* of this launch */
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 3, 3);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* UNTOUCHED: the larger of old and live; ZERO and ZERO_ALL: live. */
PST_TEST(Restore, EveryTailKeepsDirtyWordsUpToDate)
{
    static const struct {
        pst_restore_tail tail;
        int32_t count;
        uint64_t dirty; /* afterwards */
        int zeros;
    } steps[] = {{PST_TAIL_UNTOUCHED, 5, 5, 0}, {PST_TAIL_UNTOUCHED, 2, 5, 0},
                 {PST_TAIL_ZERO, 3, 3, 2},      {PST_TAIL_UNTOUCHED, 6, 6, 0},
                 {PST_TAIL_ZERO_ALL, 1, 1, 7},  {PST_TAIL_ZERO, 0, 0, 1},
                 {PST_TAIL_ZERO, 4, 4, 0}};
    small_scene self;
    pst_dirty *dirty = NULL;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    small_open(&self);
    CHECK_OK(pst_dirty_create(self.device, self.group, true, &dirty));
    options.dirty = dirty;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        stash_rows(&self, steps[i].count);
        options.tail = steps[i].tail;
        CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
        CHECK_EQ(dirty->words[0], steps[i].dirty);
        check_rows(&self, steps[i].count, steps[i].zeros);
    }
    CHECK_OK(pst_dirty_destroy(dirty));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

PST_TEST(Restore, ARestoreThatCopiesNothingCanClear)
{
    small_scene self;
    pst_dirty *dirty = NULL;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    const int64_t capacity = 6;
    small_open(&self);
    CHECK_OK(pst_dirty_create(self.device, self.group, false, &dirty));
    memset(self.rows, 8, SMALL_BYTES);
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 0, 0); /* an EMPTY ticket */
    options.failed = PST_FAILED_ZERO;
    self.buffers.capacities = &capacity;
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 0, 6);
    CHECK_EQ(small_status(self.pool).flags, 1u << PST_FAULT_EMPTY);
    self.buffers.capacities = NULL;
    options.dirty = dirty;
    stash_rows(&self, SMALL_CAPACITY + 1); /* fails */
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 0, 8);
    CHECK_EQ(dirty->words[0], 0);
    stash_rows(&self, 3); /* and one that copies clears nothing */
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    check_rows(&self, 3, 0);
    CHECK_OK(pst_dirty_destroy(dirty));
    small_close(&self);
}

/* ---- tensors that stay in the pages ---- */

/* Frameworks give NULL for what is empty. */
PST_TEST(Restore, ATensorThatNeverHasRowsNeedsNoBase)
{
    small_scene self;
    const pst_tensor tensors[2] = {
        {.row_bytes = SMALL_ROW},
        {.row_bytes = 32, .num = 1, .den = SMALL_CAPACITY + 1, .rounding = PST_ROUND_DOWN}};
    void *bases[2] = {NULL, NULL};
    small_configs(&self);
    self.group_config.tensors = tensors;
    self.group_config.num_tensors = 2;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    self.buffers.bases = bases;
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("source: bases[0] is NULL");
    bases[0] = self.rows;
    stash_rows(&self, 3);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    check_rows(&self, 3, 0);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

PST_TEST(Restore, WithKeepABaseMayBeNull)
{
    small_scene self;
    unsigned char second[SMALL_CAPACITY * 32];
    const pst_tensor tensors[2] = {{.row_bytes = SMALL_ROW}, {.row_bytes = 32}};
    void *bases[2] = {NULL, second};
    pst_restore_options keep = PST_RESTORE_OPTIONS_INIT;
    small_configs(&self);
    self.group_config.tensors = tensors;
    self.group_config.num_tensors = 2;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    self.buffers.bases = bases;
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("source: bases[0] is NULL");
    bases[0] = self.rows;
    memset(second, 5, sizeof(second));
    stash_rows(&self, 3);
    memset(second, 6, sizeof(second));
    bases[0] = NULL;
    CHECK_STATUS(small_restore(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("destination: bases[0] is NULL");
    keep.pages = PST_RESTORE_KEEP;
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &keep, NULL));
    check_rows(&self, 0, 0);
    for (int at = 0; at < SMALL_CAPACITY * 32; at++)
        CHECK_EQ(second[at], at < 3 * 32 ? 5 : 6);
    bases[0] = self.rows;
    bases[1] = NULL;
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &keep, NULL));
    check_rows(&self, 3, 0);
    bases[0] = NULL; /* nothing at all */
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &keep, NULL));
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}
