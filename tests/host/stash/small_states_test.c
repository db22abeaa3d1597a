/* Exhaustive at small sizes: every operation from every distinct abstract state that is reachable in a few
 * operations over 2 tickets, 3 pages and 2 tiers, beside the oracle. After each operation lockstep compares
 * all words of the pool and of its tickets, and every byte. The alphabet is that of small_letters.c.
 *
 * An abstract state is what decides what an operation does to tickets and pages, which fault it is and what it
 * adds to each statistic, as pagestash/pool.h and ticket.h say it:
 *   - of each ticket whether there is one, what it holds and in which pages, or wanted, and where its stashes
 *     want pages; which of two is which does not matter, they are of one size
 *   - the pages of each tier, and the free ones in their order
 *   - whether a fault stands in the status block (then later ones are only counted), whether the step is valid,
 *     and whether a graph of another schedule ran in it
 * No operation looks at the rest: a count or a mark gets what an operation adds, or the larger of both, whatever
 * it was; the first fault's details stay as they are; epochs and launches are numbers; bytes are of any value,
 * those of each stash its own; and a restore begins with buffers of which nothing is known. That whatever it was
 * is compared in each transition with what the path there has left, and a search of its own over a part of the
 * alphabet (marks) has all marks in the state. The quantiles of step_demand are of all steps: conf_demand.c.
 *
 * A state is reached again by the operations that first led to it, in a pool made anew. Where an operation leaves
 * it exactly as it was, or a reset and the same operations lead back exactly, the pool serves for more of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/stash/stash.h"
#include "kernels/core/mix.h"
#include "tests/harness.h"
#include "tests/host/stash/small_pool.h"

enum {
    MOST_DEPTH = 6,  /* operations that lead to a state: of the long tests */
    SHORT_DEPTH = 2, /* and else; with marks, whose alphabet is shorter, one more */
    MOST_DONE = 200, /* operations in one pool, about: what a failure prints */
    SLOTS = 1 << 16  /* of the table of states: more than twice as many as there are */
};

typedef struct step {
    uint8_t letter, place;
} step;

enum { REWOUND = SMALL_TICKETS }; /* as a place: back to the beginning */

typedef struct state {
    step path[MOST_DEPTH + 1];
    uint8_t depth;
    uint8_t present; /* small_present */
    uint64_t words;  /* state_words */
    uint64_t exact;  /* exact_words_of, in the pool that served last */
} state;

/* ---- what makes a state ---- */

static uint64_t mix(uint64_t mixed, uint64_t word)
{
    uint64_t next = mixed ^ word;
    return psti_mix_next(&next);
}

static uint64_t words_of_ticket(const small_pool *self, uint32_t place)
{
    const uint32_t index = self->tickets[place];
    if (index == UINT32_MAX)
        return 1;
    const oracle_ticket *ticket = &self->ls.oracle->tickets[index];
    uint64_t mixed = mix(2, ticket->state);
    mixed = mix(mixed, ticket->state == ORACLE_EMPTY ? 0 : ticket->num_pages);
    for (uint64_t i = 0; ticket->state == ORACLE_LIVE && i < ticket->num_pages; i++)
        mixed = mix(mixed, ticket->table[i]);
    return mix(mixed, ticket->host_num);
}

static uint64_t words_of(const small_pool *self)
{
    const oracle_pool *pool = self->ls.oracle;
    const uint64_t first = words_of_ticket(self, 0), second = words_of_ticket(self, 1);
    uint64_t mixed = mix(first < second ? first : second, first < second ? second : first);
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        mixed = mix(mixed, pool->num_pages[tier]);
        for (uint64_t i = 0; i < pool->num_free[tier]; i++)
            mixed = mix(mixed, pool->free_ids[tier][i]);
    }
    mixed = mix(mixed, pool->status.fault_state);
    mixed = mix(mixed, (uint64_t)pool->status.step_valid);
    return mix(mixed, pool->is_stale) | 1;
}

static uint64_t words_of_marks(const oracle_pool *pool)
{
    uint64_t mixed = mix(pool->step_demand, pool->status.demand_high_water);
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        mixed = mix(mixed, pool->step_high[tier]);
        mixed = mix(mixed, pool->status.high_water[tier]);
    }
    return mixed;
}

/* With all that the library has beside: whether it can serve instead of a pool made anew. */
static uint64_t exact_words_of(const small_pool *self)
{
    uint64_t mixed = mix(words_of(self), words_of_marks(self->ls.oracle));
    for (uint32_t place = 0; place < SMALL_TICKETS; place++) {
        const psti_ticket *ticket = psti_ticket_find(self->last[place]);
        mixed = mix(mixed, words_of_ticket(self, place));
        mixed = mix(mixed, self->tickets[place]);
        mixed = mix(mixed, ticket && ticket->may_hold);
    }
    mixed = mix(mixed, self->given_last);
    mixed = mix(mixed, self->ls.oracle->status.steps > 0);
    return mix(mixed, self->ls.pool->expects);
}

/* ---- the search ---- */

typedef struct search {
    pst_device *device;
    small_kind kind;
    bool has_marks; /* in a state; then of the alphabet only what moves pages and marks */
    state *queue;   /* states in the order in which they were found */
    uint64_t *seen; /* SLOTS; words of a state, 0: empty */
    uint32_t num_states, of_depth[MOST_DEPTH + 1];
    uint32_t depth; /* of the states that are looked for */
    uint64_t transitions, pools;
    small_pool at;
    bool is_open;
    step done[2 * MOST_DONE]; /* in the pool that is open */
    uint32_t num_done;
} search;

static uint64_t state_words(const search *self)
{
    const uint64_t words = words_of(&self->at);
    return self->has_marks ? mix(words, words_of_marks(self->at.ls.oracle)) | 1 : words;
}

static bool is_new(search *self, uint64_t words)
{
    uint64_t slot = words % SLOTS;
    while (self->seen[slot] && self->seen[slot] != words)
        slot = (slot + 1) % SLOTS;
    const bool is_first = self->seen[slot] == 0;
    self->seen[slot] = words;
    return is_first;
}

static void add_state(search *self, const state *found)
{
    CHECK(self->num_states < SLOTS / 2);
    self->queue[self->num_states++] = *found;
    self->of_depth[found->depth]++;
}

static void operate(search *self, step what)
{
    if (psti_test_failed())
        return;
    self->done[self->num_done++] = what;
    small_operate(&self->at, &small_letters[what.letter], what.place);
}

static void end_pool(search *self)
{
    if (self->is_open)
        small_close(&self->at);
    self->is_open = false;
}

/* From the beginning to the state, of which nothing is compared: it was when the state was found. */
static void repeat(search *self, const state *from)
{
    self->at.ls.replays = true;
    for (uint32_t i = 0; i < from->depth; i++)
        operate(self, from->path[i]);
    self->at.ls.replays = false;
}

static void open_pool(search *self, state *from)
{
    end_pool(self);
    small_open(&self->at, self->device, &self->kind);
    CHECK(!psti_test_failed());
    self->is_open = true;
    self->num_done = 0;
    self->pools++;
    repeat(self, from);
    from->exact = exact_words_of(&self->at);
    CHECK(state_words(self) == from->words);
}

/* The pool is in exactly this state. */
static void enter(search *self, state *from)
{
    if (self->is_open && exact_words_of(&self->at) == from->exact)
        return;
    if (self->is_open && self->num_done < MOST_DONE) {
        self->at.ls.replays = true;
        small_rewind(&self->at);
        self->done[self->num_done++] = (step){.place = REWOUND};
        repeat(self, from);
        if (exact_words_of(&self->at) == from->exact)
            return;
    }
    open_pool(self, from);
}

static void print_done(const search *self)
{
    for (uint32_t i = 0; i < self->num_done; i++)
        if (self->done[i].place == REWOUND)
            printf("all from the beginning\n");
        else
            printf("%s, ticket %u\n", small_letters[self->done[i].letter].name,
                   self->done[i].place);
}

/* From the state the operation; where it leads to is a state, too. */
static void take(search *self, state *from, step what)
{
    enter(self, from);
    operate(self, what);
    self->transitions++;
    state next = *from;
    next.path[next.depth++] = what;
    next.present = (uint8_t)small_present(&self->at);
    next.words = state_words(self);
    next.exact = exact_words_of(&self->at);
    if (psti_test_failed())
        print_done(self);
    else if (next.depth <= self->depth && is_new(self, next.words))
        add_state(self, &next);
}

static bool applies(const search *self, const state *from, uint32_t letter, uint32_t place)
{
    return small_applies(from->present, &small_letters[letter], place) &&
           (!self->has_marks || small_letters[letter].moves_marks);
}

static void take_all(search *self, state from)
{
    for (uint32_t place = 0; place < SMALL_TICKETS; place++)
        for (uint32_t i = 0; i < small_num_letters && !psti_test_failed(); i++)
            if (applies(self, &from, i, place))
                take(self, &from, (step){(uint8_t)i, (uint8_t)place});
}

static void print_counts(const search *self)
{
    uint32_t letters = 0;
    printf("%s, %d tickets, %d pages and %d of the host; alphabet:", self->kind.name, SMALL_TICKETS,
           SMALL_PAGES, SMALL_HOST_PAGES);
    for (uint32_t i = 0; i < small_num_letters; i++)
        if (!self->has_marks || small_letters[i].moves_marks)
            printf("%s %s", letters++ ? ";" : "", small_letters[i].name);
    printf("\n");
    for (uint32_t d = 0; d <= self->depth; d++)
        printf("depth %u: %u states\n", d, self->of_depth[d]);
    printf("%u letters, %u states, %" PRIu64 " transitions, %" PRIu64 " pools\n", letters,
           self->num_states, self->transitions, self->pools);
}

static void run_search(small_kind kind, bool has_marks)
{
    static search self;
    const char *all = getenv("PSTI_TEST_LONG");
    state start = {.present = (1u << SMALL_TICKETS) - 1};
    self = (search){.kind = kind,
                    .has_marks = has_marks,
                    .depth = all && strcmp(all, "1") == 0 ? MOST_DEPTH : SHORT_DEPTH + has_marks,
                    .queue = oracle_calloc(SLOTS / 2, sizeof(state)),
                    .seen = oracle_calloc(SLOTS, sizeof(uint64_t))};
    CHECK_OK(pst_device_open("host", 0, &self.device));
    small_open(&self.at, self.device, &self.kind);
    CHECK(!psti_test_failed());
    self.is_open = true;
    start.words = state_words(&self);
    is_new(&self, start.words);
    add_state(&self, &start);
    for (uint32_t i = 0; i < self.num_states && !psti_test_failed(); i++)
        take_all(&self, self.queue[i]);
    end_pool(&self);
    if (!psti_test_failed())
        print_counts(&self);
    free(self.queue);
    free(self.seen);
    CHECK_OK(pst_device_close(psti_test_failed() ? NULL : self.device));
}

PST_TEST(SmallStates, OfAnOrderedPool)
{
    run_search((small_kind){.name = "ordered pool", .mode = PST_POOL_ORDERED}, false);
}

PST_TEST(SmallStates, OfAConcurrentPoolThatLends)
{
    run_search((small_kind){.name = "concurrent pool that lends, scrubs and fails fast",
                            .mode = PST_POOL_CONCURRENT,
                            .lends = true,
                            .scrub = true,
                            .fails_fast = true},
               false);
}

PST_TEST(SmallStates, OfMarks)
{
    run_search((small_kind){.name = "ordered pool, with marks", .mode = PST_POOL_ORDERED}, true);
}
