/* What restores leave alone: tensors without a destination, and what PST_FAILED_ZERO clears where
 * nothing is copied. */
#include "tests/conformance/conf.h"

enum { TENSORS = 4, ROWS = 20 };

/* Prefix, segments, a sum, and a tensor that shares the first space; rows that lie apart. */
static shape make_shape(void)
{
    shape made = {.group = {.num_spaces = 3, .num_tensors = TENSORS}};
    oracle_group *group = &made.group;
    uint64_t at = 64;
    group->spaces[0] = (pst_row_space){.capacity = ROWS};
    group->spaces[1] =
        (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = ROWS, .num_segments = 3};
    group->spaces[2] = (pst_row_space){
        .kind = PST_ROWS_SUM, .count_type = PST_COUNT_INT64, .capacity = ROWS, .num_segments = 5};
    group->tensors[0] = (pst_tensor){.row_bytes = 1000, .row_stride = 1024};
    group->tensors[1] = (pst_tensor){.row_bytes = 333, .space = 1};
    group->tensors[2] = (pst_tensor){.row_bytes = 2048, .space = 2};
    group->tensors[3] = (pst_tensor){.row_bytes = 48, .row_stride = 49, .num = 1, .den = 3};
    for (uint32_t t = 0; t < TENSORS; t++) {
        group->at[t] = at;
        at += 3 * oracle_stride(group, t) + 17 + t;
    }
    made.arena_bytes = (size_t)at;
    return made;
}

static bool set_up(conf_pair *self, const conf_run *conf, pst_pool_mode mode, uint64_t num_pages)
{
    const shape like = make_shape();
    ls_options options = conf_options(mode, num_pages, 1);
    options.num_host_pages = 3;
    if (!conf_pair_open(self, conf, &options, &like, NULL, 2))
        return false;
    ls_group_random_counts(&self->ls, &self->source, COUNTS_RANDOM, &self->random);
    return !self->ls.failed;
}

#define FAILED(name, num_pages) CONF_BOTH_MODES(CONFORMANCE, Failed, name, set_up, num_pages)

/* The tensors of the mask have no base. */
static void skip(oracle_group *model, const uint64_t *at, uint32_t mask)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        model->at[t] = mask >> t & 1 ? ORACLE_NOWHERE : at[t];
}

FAILED(TensorsWithoutABaseStayInThePages, 20)
{
    lockstep *ls = &self->ls;
    oracle_group *model = &self->destination.model;
    uint64_t at[PST_MAX_TENSORS];
    memcpy(at, model->at, sizeof(at));
    ls_stash(ls, self->tickets[0], &self->source);
    for (uint32_t mask = 0; mask < 1u << TENSORS; mask++) {
        ls_group_poison(ls, &self->destination, 0xcc);
        skip(model, at, mask);
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP,
                   mask % 2 ? PST_TAIL_ZERO_ALL : PST_TAIL_UNTOUCHED);
        skip(model, at, ~mask); /* the others later: all is there now, unless it was cleared */
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_KEEP, PST_TAIL_UNTOUCHED);
    }
    CHECK_EQ(ls->oracle->status.flags, 0);
    skip(model, at, 0);
}

/* Fault rows 13. */
FAILED(ABaseIsNullWithKeepOnly, 20)
{
    lockstep *ls = &self->ls;
    const pst_ticket ticket = ls->tickets[self->tickets[0]];
    const uint64_t at = self->source.model.at[2];
    ls_stash(ls, self->tickets[0], &self->source);
    pst_restore_options options =
        ls_restore_options(&self->source, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    self->source.model.at[2] = ORACLE_NOWHERE;
    CHECK_STATUS(ls_enqueue_restore(ticket, &self->source, &options, ls->stream), PST_E_INVALID);
    options.pages = PST_RESTORE_KEEP;
    options.dirty = self->source.dirty;
    for (int tail = PST_TAIL_UNTOUCHED; tail <= PST_TAIL_ZERO_ALL; tail++) {
        options.tail = (pst_restore_tail)tail;
        CHECK_STATUS(ls_enqueue_restore(ticket, &self->source, &options, ls->stream),
                     PST_E_INVALID);
    }
    CHECK_STATUS(ls_enqueue_stash(ls->tickets[self->tickets[1]], &self->source, ls->stream),
                 PST_E_INVALID);
    self->source.model.at[2] = at;
    options.dirty = NULL;
    options.tail = PST_TAIL_ZERO;
    CHECK_STATUS(ls_enqueue_restore(ticket, &self->source, &options, ls->stream), PST_E_INVALID);
    ls_compare(ls);
}

/* ---- nothing is copied ---- */

static void refuse(conf_pair *self)
{
    lockstep *ls = &self->ls;
    ls_stash(ls, self->tickets[0], &self->source);
    ls->skip_checks = true;
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.state.refuse = 1;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    ls->oracle->refuses = true;
}

static void hold_nothing(conf_pair *self)
{
    ls_reset(&self->ls, PST_RESET_ALL);
}

static void fail(conf_pair *self)
{
    self->source.values[1] = ROWS + 1;
    ls_group_set_counts(&self->ls, &self->source, self->source.values);
    ls_stash(&self->ls, self->tickets[0], &self->source);
    self->source.values[1] = 3;
    ls_group_set_counts(&self->ls, &self->source, self->source.values);
}

/* From the source's memory, but rows of one tensor are shorter. */
static void change_form(conf_pair *self)
{
    lockstep *ls = &self->ls;
    shape other = make_shape();
    ls_group stranger;
    other.group.tensors[3].row_bytes--;
    ls_group_make(ls, &other, &self->random, &stranger);
    ls_group_random_counts(ls, &stranger, COUNTS_RANDOM, &self->random);
    ls_stash(ls, self->tickets[0], &stranger);
    ls_group_free(ls, &stranger);
}

static void exceed_destination(conf_pair *self)
{
    ls_group_random_counts(&self->ls, &self->source, COUNTS_FULL, &self->random);
    ls_stash(&self->ls, self->tickets[0], &self->source);
    for (uint32_t i = 0; i < self->destination.model.num_spaces; i++)
        self->destination.model.capacities[i] = ROWS - 1;
}

typedef struct reason {
    void (*arrange)(conf_pair *self);
    pst_fault fault;
} reason;

static const reason reasons[] = {{refuse, PST_FAULT_ORDER},
                                 {hold_nothing, PST_FAULT_EMPTY},
                                 {fail, PST_FAULT_FAILED},
                                 {change_form, PST_FAULT_FORM},
                                 {exceed_destination, PST_FAULT_DESTINATION}};

/* With and without dirty words, with and without all bases; the second time nothing is cleared. */
static void try_reason(conf_pair *self, const reason *why)
{
    lockstep *ls = &self->ls;
    oracle_group *model = &self->destination.model;
    uint64_t at[PST_MAX_TENSORS];
    memcpy(at, model->at, sizeof(at));
    const uint32_t step = psti_test_step(3);
    for (uint32_t variant = 0; variant < 8 && !ls->failed; variant += step) {
        const pst_restore_failed failed = variant < 6 ? PST_FAILED_ZERO : PST_FAILED_UNTOUCHED;
        const pst_restore_pages pages = variant % 2 ? PST_RESTORE_CONSUME : PST_RESTORE_KEEP;
        why->arrange(self);
        ls_group_poison(ls, &self->destination, 0xcc);
        ls_group_mark_dirty(ls, &self->destination);
        const bool is_smaller = model->capacities[0] != 0; /* than dirty words are for */
        const pst_restore_tail zero = is_smaller ? PST_TAIL_ZERO_ALL : PST_TAIL_ZERO;
        model->names_dirty = variant == 3 && !is_smaller;
        skip(model, at, variant == 4 ? 5 : 0);
        ls_restore_as(ls, self->tickets[0], &self->destination, pages,
                      variant == 5 || variant == 2 ? zero : PST_TAIL_UNTOUCHED, failed);
        CHECK(ls->words.status.flags & 1u << why->fault);
        const unsigned char first = model->image[at[1]]; /* compared with the device's */
        CHECK_EQ(first, failed == PST_FAILED_ZERO ? 0 : 0xcc);
        memset(model->capacities, 0, sizeof(model->capacities));
        LS_TRY(pst_pool_reset(ls->pool, PST_RESET_ALL, ls->stream));
        oracle_reset(ls->oracle, PST_RESET_ALL);
        ls->skip_checks = false;
        skip(model, at, 0);
        /* dirty words are what the oracle has: what is cleared next says so */
        ls_group_poison(ls, &self->destination, 0xee);
        ls_group_random_counts(ls, &self->source, COUNTS_ZERO, &self->random);
        ls_stash(ls, self->tickets[0], &self->source);
        ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
        ls_group_random_counts(ls, &self->source, COUNTS_RANDOM, &self->random);
    }
}

/* Fault rows 16. */
FAILED(DestinationOfWhatIsNotCopiedIsCleared, 20)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        try_reason(self, &reasons[i]);
        CHECK_MSG(!psti_test_failed(), "reason %zu", i);
    }
}

/* A record whose counts and pages do not belong together. */
FAILED(DestinationOfADamagedRecordIsCleared, 20)
{
    lockstep *ls = &self->ls;
    const uint32_t ticket = self->tickets[0];
    ticket_words *words = &ls->words_of[ticket];
    pst_restore_options options =
        ls_restore_options(&self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
    ls_group_random_counts(ls, &self->source, COUNTS_FULL, &self->random);
    ls_stash(ls, ticket, &self->source);
    ls_group_poison(ls, &self->destination, 0xcc);
    const psti_ticket_record good = words->head;
    words->head.num_pages--;
    LS_TRY(ticket_words_write(ls->tickets[ticket], words, ls->stream));
    options.failed = PST_FAILED_ZERO;
    LS_TRY(ls_enqueue_restore(ls->tickets[ticket], &self->destination, &options, ls->stream));
    oracle_fault(ls->oracle, PST_FAULT_DAMAGED, ticket, 0);
    oracle_clear(&self->destination.model, PST_TAIL_ZERO);
    ls_group_compare(ls, &self->destination);
    LS_TRY(ticket_words_read(ls->tickets[ticket], words, ls->stream));
    words->head.num_pages = good.num_pages;
    LS_TRY(ticket_words_write(ls->tickets[ticket], words, ls->stream));
    ls_restore(ls, ticket, &self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO);
}

/* The group is copied after all: the option changes nothing, and failed steps carry no NaN. */
FAILED(WhatIsCopiedIsNotCleared, 20)
{
    lockstep *ls = &self->ls;
    for (int tail = PST_TAIL_UNTOUCHED; tail <= PST_TAIL_ZERO_ALL; tail++) {
        ls_stash(ls, self->tickets[0], &self->source);
        ls_group_poison(ls, &self->destination, 0xff);
        ls_restore_as(ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME,
                      (pst_restore_tail)tail, PST_FAILED_ZERO);
    }
    CHECK_EQ(ls->oracle->status.flags, 0);
}

/* In a graph the same launch clears or copies, as the counts of the replay have it. */
FAILED(ReplaysClearOrCopy, 20)
{
    lockstep *ls = &self->ls;
    const pst_ticket ticket = ls->tickets[self->tickets[0]];
    pst_restore_options options =
        ls_restore_options(&self->destination, PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL);
    options.failed = PST_FAILED_ZERO;
    conf_graph_begin(ls);
    LS_TRY(ls_enqueue_stash(ticket, &self->source, ls->stream));
    LS_TRY(ls_enqueue_restore(ticket, &self->destination, &options, ls->stream));
    pst_graph *graph = conf_graph_end(ls);
    for (int kind = 0; kind < COUNTS_KINDS && !ls->failed; kind++) {
        ls_group_random_counts(ls, &self->source, (counts_kind)kind, &self->random);
        ls_group_poison(ls, &self->destination, 0xff);
        LS_TRY(pst_graph_launch(graph, ls->stream));
        oracle_stash(ls->oracle, self->tickets[0], &self->source.model, self->source.values);
        oracle_restore_as(ls->oracle, self->tickets[0], &self->destination.model,
                          PST_RESTORE_CONSUME, PST_TAIL_ZERO_ALL, PST_FAILED_ZERO);
        ls_compare(ls);
        ls_group_compare(ls, &self->destination);
    }
    conf_graph_destroy(ls, graph);
}
