/* Random stashes and restores, replayed from a graph: no page may be lost, and the same history
 * must give the same pages again. Which page holds what is found by looking for the bytes in the
 * memory that the pool was given. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <stdlib.h>
#include <string.h>

enum {
    TICKETS = 8,
    PAGES_EACH = 8,
    PAGE = 16 << 10,
    ROW = 1024,
    CAPACITY = PAGES_EACH * PAGE / ROW
};
enum { ARENA = CAPACITY * ROW, PAIRS = 500, RUNS = 2, MARKER = 16, STEP = 256 };

typedef struct pairs_rig {
    bench_timer timer;
    void *memory; /* the pool's */
    uint64_t memory_bytes;
    unsigned char *arenas;
    int64_t *counts;  /* one for each ticket */
    int64_t *choices; /* PAIRS random counts, then TICKETS more */
    pst_pool *pool;
    pst_group *group;
    pst_ticket tickets[TICKETS];
    int64_t host_choices[PAIRS + TICKETS];
    pst_graph *graph;
    uint64_t places[RUNS][TICKETS][PAGES_EACH]; /* offset of the page in memory, or UINT64_MAX */
} pairs_rig;

static int make_memory(pairs_rig *self, uint64_t *seed)
{
    pst_device *device = self->timer.device;
    void *memory = NULL;
    TOOL_PST(pst_device_alloc(device, TICKETS * ARENA, &memory));
    self->arenas = memory;
    TOOL_PST(pst_device_alloc(device, TICKETS * sizeof(int64_t), &memory));
    self->counts = memory;
    TOOL_PST(pst_device_alloc(device, sizeof(self->host_choices), &memory));
    self->choices = memory;
    for (int i = 0; i < PAIRS + TICKETS; i++)
        self->host_choices[i] = (int64_t)(bench_draw(seed) % (CAPACITY + 1));
    TOOL_PST(pst_device_copy(device, self->choices, self->host_choices, sizeof(self->host_choices),
                             NULL));
    return tool_status(pst_device_synchronize(device));
}

static int make_pool(pairs_rig *self)
{
    pst_device *device = self->timer.device;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PAGE;
    config.num_pages = TICKETS * PAGES_EACH;
    config.max_tickets = TICKETS;
    TOOL_PST(pst_pool_bytes(&config, &self->memory_bytes));
    TOOL_PST(pst_device_alloc(device, self->memory_bytes, &self->memory));
    config.memory = self->memory;
    config.memory_bytes = self->memory_bytes;
    TOOL_PST(pst_pool_create(device, &config, &self->pool));
    const pst_row_space space = {.count_type = PST_COUNT_INT64, .capacity = CAPACITY};
    const pst_tensor tensor = {.row_bytes = ROW};
    TOOL_TRY(bench_make_group(&space, &tensor, 1, &self->group));
    for (int t = 0; t < TICKETS; t++)
        TOOL_PST(pst_ticket_create(self->pool, self->group, &self->tickets[t]));
    return TOOL_OK;
}

/* A ticket's arena and count. */
typedef struct place {
    void *base;
    const void *count;
} place;

static place place_of(const pairs_rig *self, int ticket)
{
    return (place){self->arenas + ticket * ARENA, self->counts + ticket};
}

static pst_buffers at(const place *where)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = &where->base;
    buffers.counts = &where->count;
    return buffers;
}

/* ---- history ---- */

static int stash(const pairs_rig *self, int ticket, int choice)
{
    pst_stream stream = self->timer.stream;
    const place where = place_of(self, ticket);
    const pst_buffers source = at(&where);
    TOOL_PST(pst_device_copy(self->timer.device, self->counts + ticket, self->choices + choice,
                             sizeof(int64_t), stream));
    return tool_status(pst_ticket_stash(self->tickets[ticket], self->group, &source, NULL, stream));
}

static int give_back(const pairs_rig *self, int ticket, bool release)
{
    pst_stream stream = self->timer.stream;
    const place where = place_of(self, ticket);
    const pst_buffers destination = at(&where);
    if (release)
        return tool_status(pst_ticket_release(self->tickets[ticket], stream));
    return tool_status(
        pst_ticket_restore(self->tickets[ticket], self->group, &destination, NULL, stream));
}

/* Begins and ends with all tickets empty. */
static int enqueue_pairs(const pairs_rig *self, uint64_t seed)
{
    bool live[TICKETS] = {false};
    for (int begun = 0; begun < PAIRS;) {
        const int t = (int)(bench_draw(&seed) % TICKETS);
        if (live[t])
            TOOL_TRY(give_back(self, t, bench_draw(&seed) % 4 == 0));
        else
            TOOL_TRY(stash(self, t, begun++));
        live[t] = !live[t];
    }
    for (int t = 0; t < TICKETS; t++)
        if (live[t])
            TOOL_TRY(give_back(self, t, false));
    return TOOL_OK;
}

static int check_pool(const pairs_rig *self, bench_pairs *result)
{
    pst_pool_status status;
    TOOL_PST(pst_pool_check(self->pool, self->timer.stream));
    TOOL_PST(pst_pool_step(self->pool, self->timer.stream));
    TOOL_PST(pst_stream_synchronize(self->timer.device, self->timer.stream));
    TOOL_PST(pst_pool_poll(self->pool, &status));
    result->check_errors += status.check_errors;
    result->faults += status.num_faults;
    return TOOL_OK;
}

/* ---- where the pages are ---- */

static uint64_t find_page(const unsigned char *memory, uint64_t bytes, const unsigned char *marker)
{
    for (uint64_t at = 0; at + PAGE <= bytes; at += STEP)
        if (memcmp(memory + at, marker, MARKER) == 0)
            return at;
    return UINT64_MAX;
}

static int find_pages(pairs_rig *self, unsigned char *memory, unsigned char *rows, int run)
{
    pst_device *device = self->timer.device;
    TOOL_PST(pst_device_copy(device, memory, self->memory, self->memory_bytes, NULL));
    TOOL_PST(pst_device_copy(device, rows, self->arenas, TICKETS * ARENA, NULL));
    TOOL_PST(pst_device_synchronize(device));
    for (int t = 0; t < TICKETS; t++)
        for (int p = 0; p < PAGES_EACH; p++)
            if (self->host_choices[PAIRS + t] * ROW > p * PAGE)
                self->places[run][t][p] =
                    find_page(memory, self->memory_bytes, rows + t * ARENA + p * PAGE);
    return TOOL_OK;
}

/* Bytes of this run alone, so that what earlier stashes left in the pages is not taken for them. */
static pst_pattern pattern_of(int run, int ticket)
{
    return (pst_pattern){.seed = BENCH_SEED, .key = (uint64_t)(run * TICKETS + ticket)};
}

static int stash_all(const pairs_rig *self, int run)
{
    for (int t = 0; t < TICKETS; t++) {
        const pst_pattern pattern = pattern_of(run, t);
        const place where = place_of(self, t);
        const pst_buffers source = at(&where);
        TOOL_PST(pst_device_copy(self->timer.device, self->counts + t, self->choices + PAIRS + t,
                                 sizeof(int64_t), self->timer.stream));
        TOOL_PST(
            pst_group_fill(self->timer.device, self->group, &source, &pattern, self->timer.stream));
        TOOL_TRY(stash(self, t, PAIRS + t));
    }
    return TOOL_OK;
}

static int restore_all(const pairs_rig *self, int run, bench_pairs *result)
{
    pst_stream stream = self->timer.stream;
    *self->timer.mismatches = 0;
    TOOL_PST(
        pst_device_fill(self->timer.device, self->arenas, BENCH_POISON, TICKETS * ARENA, stream));
    for (int t = 0; t < TICKETS; t++) {
        const pst_pattern pattern = pattern_of(run, t);
        const place where = place_of(self, t);
        const pst_buffers restored = at(&where);
        TOOL_TRY(give_back(self, t, false));
        TOOL_PST(pst_group_verify(self->timer.device, self->group, &restored, &pattern,
                                  BENCH_POISON, self->timer.mismatches, stream));
    }
    TOOL_PST(pst_stream_synchronize(self->timer.device, stream));
    result->mismatched_bytes += *self->timer.mismatches;
    return TOOL_OK;
}

static int run_once(pairs_rig *self, uint64_t pairs, int run, bench_pairs *result)
{
    pst_stream stream = self->timer.stream;
    TOOL_PST(pst_pool_reset(self->pool, PST_RESET_ALL, stream));
    for (uint64_t done = 0; done < pairs; done += PAIRS) {
        TOOL_PST(pst_graph_launch(self->graph, stream));
        result->pairs += run == 0 ? PAIRS : 0;
    }
    TOOL_TRY(stash_all(self, run));
    TOOL_TRY(check_pool(self, result));
    unsigned char *memory = malloc(self->memory_bytes), *rows = malloc(TICKETS * ARENA);
    int code = TOOL_NO;
    if (memory && rows)
        code = find_pages(self, memory, rows, run);
    else
        tool_fail(code, "out of memory");
    free(memory);
    free(rows);
    TOOL_TRY(code);
    TOOL_TRY(restore_all(self, run, result));
    return check_pool(self, result);
}

static void compare_places(const pairs_rig *self, bench_pairs *result)
{
    for (int t = 0; t < TICKETS; t++)
        for (int p = 0; p < PAGES_EACH; p++)
            if (self->host_choices[PAIRS + t] * ROW > p * PAGE)
                result->moved_pages += self->places[0][t][p] == UINT64_MAX ||
                                       self->places[0][t][p] != self->places[1][t][p];
}

static int close_pairs(pairs_rig *self)
{
    pst_device *device = self->timer.device;
    TOOL_PST(pst_graph_destroy(self->graph));
    for (int t = 0; t < TICKETS; t++)
        TOOL_PST(pst_ticket_destroy(self->tickets[t]));
    TOOL_PST(pst_group_destroy(self->group));
    TOOL_PST(pst_pool_destroy(self->pool));
    TOOL_PST(pst_device_free(device, self->memory));
    TOOL_PST(pst_device_free(device, self->choices));
    TOOL_PST(pst_device_free(device, self->counts));
    TOOL_PST(pst_device_free(device, self->arenas));
    return bench_timer_close(&self->timer);
}

int bench_measure_pairs(pst_device *device, uint64_t pairs, bench_report *report)
{
    static pairs_rig self;
    uint64_t seed = BENCH_FIRST_DRAW;
    TOOL_TRY(bench_timer_open(&self.timer, device));
    TOOL_TRY(make_memory(&self, &seed));
    TOOL_TRY(make_pool(&self));
    BENCH_RECORD(&self.timer, enqueue_pairs(&self, seed), &self.graph);
    for (int run = 0; run < RUNS; run++)
        TOOL_TRY(run_once(&self, pairs, run, &report->pairs));
    compare_places(&self, &report->pairs);
    report->has_pairs = true;
    return close_pairs(&self);
}
