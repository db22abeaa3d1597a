/* Pages of programs, page by page: the table of the design, closed forms, ids. */
#include <stdio.h>

#include <pagestash/group.h>

#include "tests/host/program/page_vectors.h"
#include "tests/host/program/program_scene.h"

/* ---- pages of a visit ---- */

typedef uint32_t (*pages_fn)(uint32_t chunk, uint32_t layer, uint32_t micro_batch);

static uint32_t four(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    (void)chunk, (void)layer, (void)micro_batch;
    return 4;
}

/* Of a group of four tensors, by the library's own arithmetic. */
static uint32_t group_of_four(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    static uint32_t known[197];
    const int64_t rows = 100 + (37 * micro_batch + 53 * layer + 71 * chunk) % 97;
    if (known[rows] == 0) {
        const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = 256};
        const pst_tensor tensors[] = {{.row_bytes = 2048},
                                      {.row_bytes = 1024},
                                      {.row_bytes = 64, .num = 1, .den = 32},
                                      {.row_bytes = 4}};
        pst_group_config config = PST_GROUP_CONFIG_INIT;
        config.spaces = &space;
        config.num_spaces = 1;
        config.tensors = tensors;
        config.num_tensors = 4;
        pst_group *group = NULL;
        pst_group_usage usage;
        if (pst_group_create(&config, &group) != PST_OK ||
            pst_group_measure(group, &rows, 65536, &usage) != PST_OK)
            return 0;
        pst_group_destroy(group);
        known[rows] = (uint32_t)usage.pages;
    }
    return known[rows];
}

/* ---- a pool: a ring of ids, and what each ticket holds ---- */

enum { RING_PAGES = 4096, RING_TICKETS = SCENE_SEATS, TICKET_PAGES = 16 };

typedef struct ring {
    uint32_t ids[RING_PAGES], num_ids, head, num_free;
    bool is_out[RING_PAGES];
    uint32_t tables[RING_TICKETS][TICKET_PAGES], lengths[RING_TICKETS];
    uint32_t high_water, stashes, restores;
    const char *fault;
} ring;

static void ring_open(ring *pool, uint32_t num_pages)
{
    *pool = (ring){.num_ids = num_pages, .num_free = num_pages};
    for (uint32_t i = 0; i < num_pages; i++)
        pool->ids[i] = i;
}

static void ring_stash(ring *pool, uint32_t ticket, uint32_t pages)
{
    pool->stashes++;
    if (pool->lengths[ticket] != 0 || pages == 0 || pages > pool->num_free ||
        pages > TICKET_PAGES) {
        pool->fault = "a stash without room, or into a live ticket";
        return;
    }
    for (uint32_t i = 0; i < pages; i++) {
        const uint32_t id = pool->ids[(pool->head + i) % pool->num_ids];
        if (pool->is_out[id])
            pool->fault = "a page with two owners";
        pool->is_out[id] = true;
        pool->tables[ticket][i] = id;
    }
    pool->head = (pool->head + pages) % pool->num_ids;
    pool->num_free -= pages;
    pool->lengths[ticket] = pages;
    if (pool->num_ids - pool->num_free > pool->high_water)
        pool->high_water = pool->num_ids - pool->num_free;
}

static void ring_restore(ring *pool, uint32_t ticket, bool keeps)
{
    pool->restores++;
    if (pool->lengths[ticket] == 0)
        pool->fault = "a restore of an empty ticket";
    if (keeps)
        return;
    for (uint32_t i = 0; i < pool->lengths[ticket]; i++) {
        const uint32_t id = pool->tables[ticket][i];
        pool->ids[(pool->head + pool->num_free++) % pool->num_ids] = id;
        pool->is_out[id] = false;
    }
    pool->lengths[ticket] = 0;
}

/* Each ticket is one part: programs of one part alone. */
static void ring_play(ring *pool, const scene *s, pages_fn pages)
{
    const psti_program *program = s->program;
    if (!program)
        pool->fault = "no program";
    for (uint32_t n = 0; program && n < program->num_operations; n++) {
        const psti_operation *operation = &program->operations[n];
        const psti_visit *visit = &program->visits[operation->visit];
        const pst_pass *pass = &s->schedule->passes[visit->pass];
        if (operation->act == PSTI_ACT_STASH)
            ring_stash(pool, operation->seat, pages(pass->chunk, visit->layer, pass->micro_batch));
        else if (operation->act == PSTI_ACT_RESTORE)
            ring_restore(pool, operation->seat, operation->keeps);
    }
    if (!pool->fault && pool->num_free != pool->num_ids)
        pool->fault = "pages that nobody gave back";
}

PST_TEST(ProgramPages, Ids)
{
    static ring pool;
    static const uint32_t last[] = {2, 3, 0, 1};
    ring_open(&pool, 4);
    ring_stash(&pool, 0, 2);
    CHECK(pool.tables[0][0] == 0 && pool.tables[0][1] == 1);
    ring_stash(&pool, 1, 1);
    CHECK_EQ(pool.tables[1][0], 2);
    ring_restore(&pool, 0, false);
    ring_stash(&pool, 2, 3);
    CHECK(pool.tables[2][0] == 3 && pool.tables[2][1] == 0 && pool.tables[2][2] == 1);
    ring_restore(&pool, 1, false);
    ring_restore(&pool, 2, false);
    CHECK(!pool.fault && pool.num_free == 4);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(pool.ids[(pool.head + i) % 4], last[i]);
    ring_restore(&pool, 2, false);
    CHECK_STR(pool.fault, "a restore of an empty ticket");
}

/* ---- the table ---- */

static void set_way(scene *s, way which)
{
    psti_program_config *config = &s->config;
    config->num_sources = which == WAY_NEXT || which == WAY_1_1 ? 1 : 2;
    config->num_destinations = which == WAY_2_3 ? 3 : config->num_sources;
    config->rule = which == WAY_NEXT ? PST_RESTORE_NEXT : PST_RESTORE_ASAP;
    config->by_slot = which == WAY_BY_SLOT;
    config->keeps_nothing = which == WAY_NO_KEEP;
}

/* "high water with pages3 / with the group; stashes, restores, kept cF,D"; "-": refused. */
static void measure(scene *s, way which, char *text, size_t room)
{
    static ring pools[3];
    set_way(s, which);
    if (psti_program_make(&s->config, &s->program) != PST_OK) {
        snprintf(text, room, "-");
        return;
    }
    const psti_program *program = s->program;
    ring_open(&pools[0], RING_PAGES);
    ring_play(&pools[0], s, pages3);
    ring_open(&pools[1], RING_PAGES);
    ring_play(&pools[1], s, group_of_four);
    ring_open(&pools[2], pools[0].high_water); /* so many suffice */
    ring_play(&pools[2], s, pages3);
    const size_t end = (size_t)snprintf(text, room, "%u / %u; %u, %u, %u", pools[0].high_water,
                                        pools[1].high_water, pools[0].stashes, pools[0].restores,
                                        program->num_kept);
    if (program->conflicts[0] + program->conflicts[1] > 0)
        snprintf(text + end, room - end, " c%u,%u", program->conflicts[0], program->conflicts[1]);
    for (uint32_t i = 0; i < 3; i++)
        if (pools[i].fault)
            snprintf(text, room, "%s", pools[i].fault);
    if (psti_program_check(&s->config, program) != PST_OK)
        snprintf(text, room, "%s", pst_last_message());
    psti_program_free(s->program);
    s->program = NULL;
}

/* The same passes as a list: there a slot is the least that is free, as the table has it, not the
 * micro-batch modulo their number. */
static pst_status reopen_as_list(scene *s, uint32_t layers)
{
    pst_schedule *kind = s->schedule;
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    list.kind = PST_SCHEDULE_LIST;
    list.passes = kind->passes;
    list.num_passes = kind->num_passes;
    const pst_status status = scene_open(s, &list, layers, 1, 1);
    pst_schedule_destroy(kind);
    return status;
}

static void expect_cell(scene *s, const row *at, way which, const char *wanted)
{
    char text[160];
    measure(s, which, text, sizeof(text));
    CHECK_MSG(strcmp(text, wanted) == 0, "%s, column %u: \"%s\", not \"%s\"", at->name,
              (unsigned)which, text, wanted);
}

PST_TEST(ProgramPages, Table)
{
    static scene s;
    static const uint32_t of_group[] = {6, 8, 9, 8, 10, 7};
    for (uint32_t i = 0; i < 6; i++)
        CHECK_EQ(group_of_four(0, i / 3, i % 3), of_group[i]);
    for (size_t r = 0; r < sizeof(page_rows) / sizeof(*page_rows); r++) {
        const row *at = &page_rows[r];
        pst_schedule_config kind = scene_kind(at->kind, at->p, at->rank, at->m);
        kind.num_chunks = at->v;
        kind.group = at->group;
        CHECK_OK(scene_open(&s, &kind, at->layers, 1, 1));
        const bool has_own_slots = strcmp(at->name, "P8") == 0; /* chunk 1 has two, and uses one */
        expect_cell(&s, at, WAY_BY_SLOT,
                    has_own_slots ? "21 / 94; 24, 24, 6 c2,2" : at->cells[WAY_BY_SLOT]);
        CHECK_OK(reopen_as_list(&s, at->layers));
        for (uint32_t which = 0; which < NUM_WAYS; which++)
            expect_cell(&s, at, (way)which, at->cells[which]);
        scene_close(&s);
    }
}

/* ---- closed forms: all layers alike, P pages each ---- */

static uint32_t high_water(scene *s, bool next)
{
    static ring pool;
    s->config.rule = next ? PST_RESTORE_NEXT : PST_RESTORE_ASAP;
    if (psti_program_make(&s->config, &s->program) != PST_OK)
        return UINT32_MAX;
    ring_open(&pool, RING_PAGES);
    ring_play(&pool, s, four);
    psti_program_free(s->program);
    s->program = NULL;
    return pool.fault ? UINT32_MAX : pool.high_water;
}

static void expect_forms(uint32_t p, uint32_t r, uint32_t layers, uint32_t sources,
                         uint32_t destinations)
{
    enum { P = 4 };
    static scene s;
    const pst_schedule_config kind = scene_kind(PST_SCHEDULE_1F1B, p, r, 2 * p + 1);
    CHECK_OK(scene_open(&s, &kind, layers, sources, destinations));
    /* Ahead come restores of what other micro-batches keep; few of them stay in their sources. */
    const uint32_t others = (p - r - 1) * layers;
    const uint32_t few = destinations < others ? destinations : others;
    const uint32_t ours =
        others == 0 ? (layers > sources ? layers - sources : 0) : (p - r) * layers - few;
    const uint32_t next = others == 0 ? layers - 1 : (p - r) * layers;
    if (others == 0 || others >= sources)
        CHECK_MSG(high_water(&s, false) == P * ours,
                  "rank %u of %u, %u layers, %u + %u: %u, not %u", r, p, layers, sources,
                  destinations, high_water(&s, false), P * ours);
    s.config.num_sources = s.config.num_destinations = 1;
    CHECK_MSG(high_water(&s, true) == P * next, "next: rank %u of %u, %u layers: %u, not %u", r, p,
              layers, high_water(&s, true), P * next);
    scene_close(&s);
}

PST_TEST(ProgramPages, ClosedForms)
{
    static const uint32_t sets[][2] = {{1, 1}, {2, 2}, {2, 3}, {3, 4}}, stages[] = {1, 2, 3, 4, 8};
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t r = 0; r < stages[i]; r++)
            for (uint32_t layers = 1; layers <= 6; layers++)
                for (uint32_t k = 0; k < 4; k++)
                    expect_forms(stages[i], r, layers, sets[k][0], sets[k][1]);
}
