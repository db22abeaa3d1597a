/* Sequences of operations on the host device, against the oracle: pools of one or two tiers, groups
 * whose buffers move, tickets that are created and such that are lent. Every word of the pool,
 * every page and all memory of the groups are compared after each. A page id that was damaged must
 * cost that page and no other.
 *
 * The first three bytes choose the pool and the form of the groups; then come operations, each with
 * a byte of arguments. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/core/pool.h"
#include "tests/fuzz/pieces.h"
#include "tests/oracle/lockstep.h"

enum { MAX_OPS = 200, GROUPS = 2, MOST_TICKETS = 4, LENT = 2 };

static struct {
    const uint8_t *data;
    size_t left;
    pst_device *device;
    lockstep ls;
    oracle_random random; /* of bytes and places; seeded by the input */
    ls_group groups[GROUPS];
    uint32_t tickets[MOST_TICKETS];
    uint32_t num_tickets;
    bool steps_always;
} self;

static uint8_t next_byte(void)
{
    if (self.left == 0)
        return 0;
    self.left--;
    return *self.data++;
}

static void report(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    abort();
}

/* ---- groups ---- */

static void set_counts(ls_group *group, bool wild)
{
    const oracle_group *model = &group->model;
    int64_t *value = group->values;
    if (!group->counts)
        return;
    for (uint32_t i = 0; i < model->num_spaces; i++)
        for (uint32_t s = 0; s < oracle_num_inputs(&model->spaces[i]); s++) {
            const uint8_t byte = next_byte();
            int64_t any = (int64_t)((uint64_t)byte << (byte % 64));
            if (model->spaces[i].count_type == PST_COUNT_INT32)
                any = (int8_t)byte * 16777216;
            *value++ = wild ? any : byte % (oracle_capacity(model, i) + 1);
        }
    ls_group_set_counts(&self.ls, group, group->values);
}

static void fill_memory(ls_group *group, uint64_t seed)
{
    self.random = oracle_random_seeded(seed);
    ls_group_fill(&self.ls, group, &self.random);
}

static void place(ls_group *group, uint64_t seed)
{
    self.random = oracle_random_seeded(seed);
    const shape_theme theme = (shape_theme)oracle_random_below(&self.random, SHAPE_THEMES);
    const shape_room room = (shape_room)oracle_random_below(&self.random, 3);
    const size_t arena_bytes = shape_place(&self.random, theme, room, &group->model);
    ls_group_move(&self.ls, group, arena_bytes, &self.random);
}

/* ---- damage ---- */

static uint64_t num_damaged(uint32_t ticket)
{
    const oracle_ticket *expected = &self.ls.oracle->tickets[ticket];
    uint64_t damaged = 0;
    for (uint64_t page = 0; expected->state == ORACLE_LIVE && page < expected->num_pages; page++)
        damaged += expected->table[page] != expected->ids[page];
    return damaged;
}

/* Another id in a live ticket's table: out of range, free, of another ticket, or a second time. */
static void damage(uint32_t ticket, uint8_t where, uint8_t what)
{
    const uint32_t outside[4] = {PSTI_ID_NONE, PSTI_ID_INDEX_MASK - 1, self.ls.pool->num_pages[0],
                                 INT32_MAX};
    oracle_ticket *expected = &self.ls.oracle->tickets[ticket];
    if (expected->state != ORACLE_LIVE || expected->num_pages == 0 || num_damaged(ticket))
        return;
    const psti_pool_view *view = &self.ls.pool->view;
    const uint64_t page = where % expected->num_pages;
    const uint32_t tier = self.ls.pool->num_pages[1] && what & 64;
    const bool inside = what % 2 == 0;
    const uint32_t id =
        inside ? oracle_id(tier, what / 2 % self.ls.pool->num_pages[tier]) : outside[what / 2 % 4];
    const uint64_t mine = psti_owner_word(ticket, view->state->epoch, page);
    if (id == expected->table[page] || (inside && *psti_owner_of(view, id) == mine))
        return; /* perhaps one that this ticket lost before */
    expected->table[page] = id;
    self.ls.words_of[ticket].table[page] = id;
    self.ls.check_is_loose = self.ls.skip_checks = true; /* until the pages are reset */
    require(ticket_words_write(self.ls.tickets[ticket], &self.ls.words_of[ticket],
                               self.ls.stream) == PST_OK);
}

/* Each damaged entry is one wrong page, or two where another ticket has it, too. */
static void check(void)
{
    uint64_t damaged = 0;
    if (!self.ls.skip_checks)
        return; /* every operation does it */
    for (uint32_t i = 0; i < self.num_tickets; i++)
        damaged += num_damaged(self.tickets[i]);
    require(pst_pool_check(self.ls.pool, self.ls.stream) == PST_OK);
    const uint64_t lost = oracle_lost_pages(self.ls.oracle);
    const uint64_t errors = self.ls.pool->view.status->check_errors;
    require(errors >= damaged + lost && errors <= 2 * damaged + lost);
    self.ls.oracle->status.checks++;
    self.ls.oracle->status.check_errors = (uint32_t)errors;
    if (errors)
        oracle_fault(self.ls.oracle, PST_FAULT_CHECK, UINT32_MAX, errors);
}

/* ---- operations ---- */

static void renew(uint32_t i)
{
    const uint32_t ticket = self.tickets[i];
    const oracle_ticket *expected = &self.ls.oracle->tickets[ticket];
    if (self.ls.is_lent[ticket]) {
        ls_ticket_give(&self.ls, ticket);
        self.tickets[i] = ls_ticket_take(&self.ls, false);
    } else if (expected->state == ORACLE_LIVE && expected->num_pages > 0) {
        require(pst_ticket_destroy(self.ls.tickets[ticket]) == PST_E_BUSY);
    } else {
        ls_ticket_free(&self.ls, ticket);
        self.tickets[i] = ls_ticket_make(&self.ls, &self.groups[0]);
    }
}

static void reset(uint32_t what)
{
    if (what & PST_RESET_PAGES)
        self.ls.skip_checks = false;
    if (what == PST_RESET_ALL)
        self.ls.check_is_loose = false;
    ls_reset(&self.ls, what);
}

static void restore(uint32_t ticket, ls_group *group, uint8_t argument)
{
    const pst_restore_tail tail = argument & 2    ? PST_TAIL_ZERO
                                  : argument & 64 ? PST_TAIL_ZERO_ALL
                                                  : PST_TAIL_UNTOUCHED;
    group->model.names_dirty = !(argument & 8);
    ls_restore_as(&self.ls, ticket, group, argument & 1 ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME,
                  tail, argument & 32 ? PST_FAILED_ZERO : PST_FAILED_UNTOUCHED);
}

/* The tensors that the bits of a byte name stay in the pages. */
static void restore_some(uint32_t ticket, ls_group *group, uint8_t argument)
{
    const uint8_t bits = next_byte();
    uint64_t at[PST_MAX_TENSORS];
    memcpy(at, group->model.at, sizeof(at));
    for (uint32_t t = 0; t < group->model.num_tensors; t++)
        if (bits >> t % 8 & 1)
            group->model.at[t] = ORACLE_NOWHERE;
    group->model.names_dirty = false;
    ls_restore_as(&self.ls, ticket, group, PST_RESTORE_KEEP,
                  argument & 64 ? PST_TAIL_ZERO_ALL : PST_TAIL_UNTOUCHED,
                  argument & 32 ? PST_FAILED_ZERO : PST_FAILED_UNTOUCHED);
    memcpy(group->model.at, at, sizeof(at));
}

static void migrate(uint32_t ticket, bool promotes, uint8_t argument)
{
    if (self.ls.options.max_host_pages == 0)
        return;
    if (promotes)
        ls_promote(&self.ls, ticket, argument % 4);
    else
        ls_demote(&self.ls, ticket, argument % 4);
}

static void offload(uint32_t ticket, uint8_t argument)
{
    const uint32_t den = 1 + argument / 16u;
    if (self.ls.options.max_host_pages > 0)
        ls_set_offload(&self.ls, ticket, argument % (den + 1), den);
}

static void grow(uint8_t argument)
{
    const uint64_t pages = self.ls.pool->num_pages[0] + argument % 2;
    const uint64_t host_pages = self.ls.pool->num_pages[1] + argument / 2 % 2;
    if (pages <= self.ls.options.max_pages && host_pages <= self.ls.options.max_host_pages)
        ls_resize(&self.ls, pages, host_pages);
}

/* New ones at the end: the corpus knows them by number. */
enum {
    COUNTS_OP,
    WILD_OP,
    FILL_OP,
    STASH_OP,
    RESTORE_OP,
    RELEASE_OP,
    RESET_OP,
    STEP_OP,
    CHECK_OP,
    DAMAGE_OP,
    RENEW_OP,
    DIRTY_OP,
    PLACE_OP,
    RESTORE_SOME_OP,
    DEMOTE_OP,
    PROMOTE_OP,
    OFFLOAD_OP,
    GROW_OP,
    OPS
};

static void run_one(uint8_t byte)
{
    const uint8_t argument = next_byte();
    const uint32_t i = argument / 4 % self.num_tickets;
    const uint32_t ticket = self.tickets[i];
    ls_group *group = &self.groups[argument / 16 % GROUPS];
    self.ls.by_graph = argument & 0x80;
    switch (byte % OPS) {
    case COUNTS_OP:
    case WILD_OP:
        set_counts(group, byte % OPS == WILD_OP);
        break;
    case FILL_OP:
        fill_memory(group, argument);
        break;
    case STASH_OP:
        ls_stash(&self.ls, ticket, group);
        break;
    case RESTORE_OP:
        restore(ticket, group, argument);
        break;
    case RELEASE_OP:
        ls_release(&self.ls, ticket);
        break;
    case RESET_OP:
        reset(1 + argument % PST_RESET_ALL);
        break;
    case STEP_OP:
        if (argument & 0x40)
            ls_expect(&self.ls, argument, argument & 0x4f);
        else
            ls_step(&self.ls);
        break;
    case DAMAGE_OP:
        damage(ticket, argument, next_byte());
        break;
    case RENEW_OP:
        renew(i);
        break;
    case DIRTY_OP:
        ls_group_mark_dirty(&self.ls, group);
        break;
    case PLACE_OP:
        place(group, argument * 256u + next_byte());
        break;
    case RESTORE_SOME_OP:
        restore_some(ticket, group, argument);
        break;
    case DEMOTE_OP:
    case PROMOTE_OP:
        migrate(ticket, byte % OPS == PROMOTE_OP, argument);
        break;
    case OFFLOAD_OP:
        offload(ticket, argument);
        break;
    case GROW_OP:
        grow(argument);
        break;
    default:
        ls_compare(&self.ls);
    }
    check();
    if (self.steps_always)
        ls_step(&self.ls);
    require(!self.ls.failed);
    for (int g = 0; g < GROUPS; g++)
        ls_group_compare(&self.ls, &self.groups[g]);
}

/* ---- setting up ---- */

/* A prefix of which one tensor has a third, and segments; or whatever the seed makes. */
static void make_shape(uint8_t seed, int64_t rows, int64_t segment_rows, shape *made)
{
    if (seed) {
        self.random = oracle_random_seeded(seed);
        shape_make(&self.random, (shape_theme)(seed % SHAPE_THEMES), 24000, made);
        return;
    }
    *made = (shape){.group = {.num_spaces = 2, .num_tensors = 3}};
    oracle_group *group = &made->group;
    group->spaces[0] = (pst_row_space){.capacity = rows};
    group->spaces[1] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                       .count_type = PST_COUNT_INT64,
                                       .capacity = segment_rows,
                                       .num_segments = 3};
    group->tensors[0] = (pst_tensor){.row_bytes = 5000};
    group->tensors[1] = (pst_tensor){
        .row_bytes = 4099, .segment_stride = (uint64_t)segment_rows * 4099 + 7, .space = 1};
    group->tensors[2] = (pst_tensor){.row_bytes = 100, .space = 1, .num = 1, .den = 3};
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        group->at[t] = made->arena_bytes + 1; /* not aligned */
        made->arena_bytes += 1 + 3 * oracle_stride(group, t);
    }
    made->arena_bytes++;
}

static void make_groups(uint8_t seed, uint8_t byte)
{
    for (int i = 0; i < GROUPS; i++) {
        shape made;
        make_shape(seed, i ? 4 : 6, i ? 3 : 4, &made);
        if (seed && i)
            shape_like(&self.random, &made, true, &made);
        made.without_counts = false;
        made.tail_is_zero = byte % (i ? 5 : 3) == 0;
        ls_group_make(&self.ls, &made, &self.random, &self.groups[i]);
        ls_group_poison(&self.ls, &self.groups[i], 0);
    }
}

static void set_up(const uint8_t *data, size_t size)
{
    memset(&self, 0, sizeof(self));
    self.data = data;
    self.left = size;
    self.random = oracle_random_seeded(1);
    const uint8_t byte = next_byte(), more = next_byte(), seed = next_byte();
    const bool lends = more & 8;
    const ls_options options = {.mode = byte & 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED,
                                .page_bytes = byte & 2 ? 32768 : 16384,
                                .num_pages = 1 + byte / 16,
                                .num_host_pages = more % 8,
                                .max_pages = 4 + byte / 16,
                                .max_host_pages = more % 8 ? 3 + more % 8 : 0,
                                .scrub = more & 16,
                                .fails_fast = more & 32,
                                .slab_tickets = lends ? LENT : 0,
                                .slab_counts = PST_MAX_SEGMENTS,
                                .max_tickets = 2 + byte / 4 % 3,
                                .report = report};
    self.num_tickets = options.max_tickets;
    self.steps_always = !(more & 64);
    require(pst_device_open("host", 0, &self.device) == PST_OK);
    require(ls_open(&self.ls, self.device, &options));
    make_groups(seed, byte);
    for (uint32_t i = 0; i < self.num_tickets; i++)
        self.tickets[i] = lends && i < LENT ? ls_ticket_take(&self.ls, false)
                                            : ls_ticket_make(&self.ls, &self.groups[0]);
}

static void tear_down(void)
{
    self.ls.by_graph = false;
    reset(PST_RESET_ALL);
    for (int g = 0; g < GROUPS; g++)
        ls_group_free(&self.ls, &self.groups[g]);
    ls_close(&self.ls);
    require(pst_device_close(self.device) == PST_OK); /* BUSY if anything were left */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    set_up(data, size);
    for (int i = 0; i < MAX_OPS && self.left > 0; i++)
        run_one(next_byte());
    tear_down();
    return 0;
}
