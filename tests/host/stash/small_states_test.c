/* Exhaustive at small sizes: every operation from every distinct abstract state that is reachable in a few
 * operations over 2 tickets, 3 pages and 2 tiers, beside the oracle. After each operation lockstep
 * compares all words of the pool and of its tickets, and every byte.
 *
 * A state is reached again by the operations that first led to it, in a pool made anew. Two are the same where
 * the oracle has the same tickets, page ids and free lists in order, the same first fault, and the same
 * validity of the step; counters that only grow, marks and epochs do not make states. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/core/mix.h"
#include "tests/harness.h"
#include "tests/oracle/lockstep.h"

enum {
    TICKETS = 2,
    PAGES = 2,
    HOST_PAGES = 1,
    MOST_ROWS = PAGES + HOST_PAGES + 1, /* of a page each: one more than there are */
    MOST_DEPTH = 6,                     /* operations that lead to a state: of the long tests */
    SHORT_DEPTH = 2,                    /* and else */
    SLOTS = 1 << 16 /* of the table of states: more than twice as many as there are */
};

typedef struct scene {
    lockstep ls;
    ls_group source, destination;
    uint32_t tickets[TICKETS];
} scene;

/* ---- the alphabet ---- */

static void stash(scene *self, uint32_t ticket, int64_t rows)
{
    ls_group_set_counts(&self->ls, &self->source, &rows);
    ls_stash(&self->ls, ticket, &self->source);
}

static void stash_to_host(scene *self, uint32_t ticket, int64_t rows)
{
    ls_set_offload(&self->ls, ticket, 1, 1);
    stash(self, ticket, rows);
    ls_set_offload(&self->ls, ticket, 0, 1);
}

static void restore(scene *self, uint32_t ticket, int64_t keeps)
{
    ls_restore(&self->ls, ticket, &self->destination,
               keeps ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME, PST_TAIL_ZERO);
}

static void release(scene *self, uint32_t ticket, int64_t unused)
{
    (void)unused;
    ls_release(&self->ls, ticket);
}

static void demote(scene *self, uint32_t ticket, int64_t most)
{
    ls_demote(&self->ls, ticket, (uint64_t)most);
}

static void promote(scene *self, uint32_t ticket, int64_t most)
{
    ls_promote(&self->ls, ticket, (uint64_t)most);
}

static void reset(scene *self, uint32_t unused, int64_t what)
{
    (void)unused;
    ls_reset(&self->ls, (uint32_t)what);
}

static void step(scene *self, uint32_t unused_ticket, int64_t unused)
{
    (void)unused_ticket;
    (void)unused;
    ls_step(&self->ls);
}

static const struct letter {
    const char *name;
    void (*run)(scene *self, uint32_t ticket, int64_t arg);
    int64_t arg;
    bool is_pools; /* not of a ticket */
} letters[] = {
    {"stash of no page", stash, 0, false},
    {"stash of 1", stash, 1, false},
    {"stash of 2", stash, 2, false},
    {"stash of 3", stash, 3, false},
    {"stash of 4", stash, 4, false},
    {"stash of a negative count", stash, -1, false},
    {"stash of 1 to the host", stash_to_host, 1, false},
    {"restore that keeps", restore, 1, false},
    {"restore", restore, 0, false},
    {"release", release, 0, false},
    {"demote", demote, 0, false},
    {"demote of up to 1", demote, 1, false},
    {"promote", promote, 0, false},
    {"promote of up to 1", promote, 1, false},
    {"reset of pages", reset, PST_RESET_PAGES, true},
    {"reset of faults", reset, PST_RESET_FAULTS, true},
    {"step", step, 0, true},
};
enum { LETTERS = sizeof(letters) / sizeof(letters[0]), OPERATIONS = LETTERS * TICKETS };

/* Operation number i: a letter with a ticket; of the pool's there is one only. */
static bool is_operation(uint32_t i)
{
    return !letters[i % LETTERS].is_pools || i < LETTERS;
}

static void operate(scene *self, uint32_t i)
{
    const struct letter *letter = &letters[i % LETTERS];
    letter->run(self, self->tickets[i / LETTERS], letter->arg);
}

/* ---- a pool and its path ---- */

static void report(const char *file, int line, const char *text)
{
    psti_test_fail(file, line, "%s", text);
}

static void open_scene(scene *self, pst_device *device, pst_pool_mode mode)
{
    const ls_options options = {.mode = mode,
                                .num_pages = PAGES,
                                .num_host_pages = HOST_PAGES,
                                .max_tickets = TICKETS,
                                .report = report};
    shape rows = {.group = {.num_spaces = 1, .num_tensors = 1},
                  .arena_bytes = MOST_ROWS * PST_PAGE_BYTES_MIN + 64};
    rows.group.spaces[0] = (pst_row_space){.capacity = MOST_ROWS};
    rows.group.tensors[0] = (pst_tensor){.row_bytes = PST_PAGE_BYTES_MIN};
    rows.group.at[0] = 32;
    oracle_random random = oracle_random_seeded(1);
    CHECK(ls_open(&self->ls, device, &options));
    CHECK(ls_group_make(&self->ls, &rows, &random, &self->source));
    CHECK(ls_group_make(&self->ls, &rows, &random, &self->destination));
    for (uint32_t t = 0; t < TICKETS; t++)
        self->tickets[t] = ls_ticket_make(&self->ls, &self->source);
}

static void close_scene(scene *self)
{
    ls_group_free(&self->ls, &self->source);
    ls_group_free(&self->ls, &self->destination);
    ls_close(&self->ls);
}

/* ---- states ---- */

typedef struct state {
    uint64_t words; /* mixed of what makes it; 0: an empty slot of the table */
    uint8_t path[MOST_DEPTH + 1];
    uint8_t depth;
} state;

static uint64_t mix(uint64_t mixed, uint64_t word)
{
    uint64_t next = mixed ^ word;
    return psti_mix_next(&next);
}

static uint64_t words_of(const oracle_pool *pool)
{
    uint64_t mixed = 1;
    for (uint32_t t = 0; t < TICKETS; t++) {
        const oracle_ticket *ticket = &pool->tickets[t];
        mixed = mix(mixed, ticket->state);
        mixed = mix(mixed, ticket->state == ORACLE_EMPTY ? 0 : ticket->num_pages);
        for (uint64_t i = 0; ticket->state == ORACLE_LIVE && i < ticket->num_pages; i++)
            mixed = mix(mixed, ticket->table[i]);
    }
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        for (uint64_t i = 0; i < pool->num_free[tier]; i++)
            mixed = mix(mixed, pool->free_ids[tier][i]);
    mixed = mix(mixed, pool->status.fault);
    return mix(mixed, (uint64_t)pool->status.step_valid) | 1;
}

typedef struct search {
    pst_device *device;
    pst_pool_mode mode;
    state *queue;   /* states in the order in which they were found */
    uint64_t *seen; /* SLOTS */
    uint32_t num_states, of_depth[MOST_DEPTH + 1];
    uint32_t depth; /* of the states that are looked for */
    uint64_t transitions, operations;
} search;

static bool is_new(search *self, uint64_t words)
{
    uint64_t slot = words % SLOTS;
    while (self->seen[slot] && self->seen[slot] != words)
        slot = (slot + 1) % SLOTS;
    const bool is_first = self->seen[slot] == 0;
    self->seen[slot] = words;
    return is_first;
}

static void add_state(search *self, state found)
{
    CHECK(self->num_states < SLOTS / 2);
    self->queue[self->num_states++] = found;
    self->of_depth[found.depth]++;
}

/* From the state the operation; where it leads to is a state, too. */
static void take(search *self, const state *from, uint32_t operation)
{
    static scene at;
    open_scene(&at, self->device, self->mode);
    for (uint32_t i = 0; i < from->depth; i++)
        operate(&at, from->path[i]);
    operate(&at, operation);
    self->operations += from->depth + 1u;
    self->transitions++;
    state next = *from;
    next.path[next.depth++] = (uint8_t)operation;
    next.words = words_of(at.ls.oracle);
    close_scene(&at);
    if (psti_test_failed()) {
        for (uint32_t i = 0; i < next.depth; i++)
            printf("%s, ticket %u\n", letters[next.path[i] % LETTERS].name, next.path[i] / LETTERS);
    } else if (next.depth <= self->depth && is_new(self, next.words)) {
        add_state(self, next);
    }
}

static void print_counts(const search *self)
{
    printf("%s pool, %d tickets, %d pages and %d of the host; alphabet:",
           self->mode == PST_POOL_ORDERED ? "ordered" : "concurrent", TICKETS, PAGES, HOST_PAGES);
    for (uint32_t i = 0; i < LETTERS; i++)
        printf(" %s%s", letters[i].name, i + 1 < LETTERS ? ";" : "\n");
    for (uint32_t d = 0; d <= self->depth; d++)
        printf("depth %u: %u states\n", d, self->of_depth[d]);
    printf("%u states, %" PRIu64 " transitions, %" PRIu64 " operations\n", self->num_states,
           self->transitions, self->operations);
}

static void run_search(pst_pool_mode mode)
{
    const char *all = getenv("PSTI_TEST_LONG");
    search self = {.mode = mode,
                   .depth = all && strcmp(all, "1") == 0 ? MOST_DEPTH : SHORT_DEPTH,
                   .queue = oracle_calloc(SLOTS / 2, sizeof(state)),
                   .seen = oracle_calloc(SLOTS, sizeof(uint64_t))};
    CHECK_OK(pst_device_open("host", 0, &self.device));
    scene first;
    open_scene(&first, self.device, mode);
    const state begin = {.words = words_of(first.ls.oracle)};
    close_scene(&first);
    is_new(&self, begin.words);
    add_state(&self, begin);
    for (uint32_t i = 0; i < self.num_states; i++)
        for (uint32_t o = 0; o < OPERATIONS && !psti_test_failed(); o++)
            if (is_operation(o))
                take(&self, &self.queue[i], o);
    if (!psti_test_failed())
        print_counts(&self);
    free(self.queue);
    free(self.seen);
    CHECK_OK(pst_device_close(psti_test_failed() ? NULL : self.device));
}

PST_TEST(SmallStates, OfAnOrderedPool)
{
    run_search(PST_POOL_ORDERED);
}

PST_TEST(SmallStates, OfAConcurrentPool)
{
    run_search(PST_POOL_CONCURRENT);
}
