/* Pages: high-water marks of one rank, and what the pool counts where tiers are too small. */
#include "tests/host/simulate/simulate_scene.h"

typedef struct column {
    uint32_t sources, destinations;
    bool by_slot, keeps_nothing;
    pst_restore_rule rule;
} column;

static const column columns[] = {
    {1, 1, false, false, PST_RESTORE_NEXT}, {1, 1, false, false, PST_RESTORE_ASAP},
    {2, 2, false, false, PST_RESTORE_ASAP}, {2, 3, false, false, PST_RESTORE_ASAP},
    {2, 2, true, false, PST_RESTORE_ASAP},  {2, 2, false, true, PST_RESTORE_ASAP}};

enum { NUM_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* figures: high water with pages3 and with group; stashes, restores, kept; conflicts of sources and of
 * destinations. All zero: the rule NEXT does not know the schedule. */
static const struct {
    const char *name;
    sim_shape shape;
    uint32_t stage;
    uint64_t figures[NUM_COLUMNS][7];
} rows[] = {
    {"P1",
     {PST_SCHEDULE_1F1B, 1, 1, 1, 0, 6, false},
     0,
     {{5, 36, 5, 5, 1, 0, 0},
      {5, 36, 5, 5, 1, 0, 0},
      {4, 29, 4, 4, 2, 0, 0},
      {4, 29, 4, 4, 2, 0, 0},
      {4, 29, 4, 4, 2, 0, 0},
      {6, 45, 6, 6, 0, 0, 0}}},
    {"P2",
     {PST_SCHEDULE_1F1B, 1, 4, 1, 0, 4, false},
     0,
     {{9, 26, 12, 12, 4, 0, 0},
      {9, 26, 12, 12, 4, 0, 0},
      {6, 18, 8, 8, 8, 0, 0},
      {6, 18, 8, 8, 8, 0, 0},
      {6, 18, 8, 8, 8, 0, 0},
      {12, 34, 16, 16, 0, 0, 0}}},
    {"P3",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     0,
     {{36, 128, 32, 32, 0, 0, 0},
      {33, 121, 31, 31, 1, 0, 0},
      {30, 113, 30, 30, 2, 0, 0},
      {27, 104, 30, 30, 2, 0, 0},
      {30, 113, 32, 32, 0, 0, 0},
      {30, 113, 32, 32, 0, 0, 0}}},
    {"P4",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     2,
     {{20, 67, 32, 32, 0, 0, 0},
      {17, 60, 31, 31, 1, 0, 0},
      {14, 53, 30, 30, 2, 0, 0},
      {13, 45, 30, 30, 2, 0, 0},
      {14, 53, 32, 32, 0, 0, 0},
      {14, 53, 32, 32, 0, 0, 0}}},
    {"P5",
     {PST_SCHEDULE_1F1B, 4, 8, 1, 0, 4, false},
     3,
     {{9, 26, 24, 24, 8, 0, 0},
      {9, 26, 24, 24, 8, 0, 0},
      {6, 18, 16, 16, 16, 0, 0},
      {6, 18, 16, 16, 16, 0, 0},
      {6, 18, 16, 16, 16, 0, 0},
      {12, 35, 32, 32, 0, 0, 0}}},
    {"P6",
     {PST_SCHEDULE_GPIPE, 2, 4, 1, 0, 3, false},
     0,
     {{21, 95, 12, 12, 0, 0, 0},
      {19, 82, 11, 11, 1, 0, 0},
      {17, 65, 10, 10, 2, 0, 0},
      {16, 59, 10, 10, 2, 0, 0},
      {17, 65, 10, 10, 2, 0, 0},
      {19, 81, 12, 12, 0, 0, 0}}},
    {"P7",
     {PST_SCHEDULE_INTERLEAVED, 4, 8, 2, 4, 2, false},
     0,
     {{44, 180, 32, 32, 0, 0, 0},
      {43, 172, 31, 31, 1, 0, 0},
      {42, 164, 30, 30, 2, 0, 0},
      {39, 156, 30, 30, 2, 0, 0},
      {42, 164, 32, 32, 0, 0, 0},
      {42, 164, 32, 32, 0, 0, 0}}},
    {"P8",
     {PST_SCHEDULE_INTERLEAVED, 2, 5, 2, 3, 3, false},
     1,
     {{27, 99, 27, 27, 3, 0, 0},
      {24, 89, 26, 26, 4, 0, 0},
      {21, 82, 22, 22, 8, 0, 0},
      {21, 81, 22, 22, 8, 0, 0},
      {27, 98, 28, 28, 2, 3, 2},
      {27, 98, 30, 30, 0, 0, 0}}},
    {"P9",
     {PST_SCHEDULE_ZB_H1, 4, 8, 1, 0, 3, false},
     0,
     {{0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 8},
      {27, 97, 24, 48, 0, 0, 0}}},
    {"P10",
     {PST_SCHEDULE_ZB_H1, 4, 8, 1, 0, 3, false},
     3,
     {{0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 0},
      {27, 97, 24, 48, 0, 0, 4},
      {27, 97, 24, 48, 0, 0, 0}}},
    {"P11",
     {PST_SCHEDULE_ZB_V, 4, 8, 2, 0, 2, false},
     0,
     {{0},
      {32, 130, 32, 64, 0, 0, 0},
      {32, 130, 32, 64, 0, 0, 0},
      {32, 130, 32, 64, 0, 0, 0},
      {32, 130, 32, 64, 0, 0, 0},
      {32, 130, 32, 64, 0, 0, 0}}},
    {"P12",
     {PST_SCHEDULE_DUALPIPE, 4, 8, 2, 0, 2, false},
     1,
     {{0},
      {19, 72, 16, 20, 0, 0, 0},
      {18, 64, 16, 20, 0, 0, 0},
      {17, 58, 16, 20, 0, 0, 0},
      {18, 64, 16, 20, 0, 0, 0},
      {18, 64, 16, 20, 0, 0, 0}}},
};

static void check_row(const char *name, uint32_t i, const pst_stage_result *result,
                      const uint64_t figures[7], uint64_t high_water)
{
    CHECK_MSG(result->high_water[0] == high_water, "%s, column %u: %llu pages, not %llu", name, i,
              (unsigned long long)result->high_water[0], (unsigned long long)high_water);
    CHECK_MSG(result->stashed == figures[2] && result->restored == figures[3] &&
                  result->kept_in_place == figures[4],
              "%s, column %u: %llu, %llu, %llu", name, i, (unsigned long long)result->stashed,
              (unsigned long long)result->restored, (unsigned long long)result->kept_in_place);
    CHECK_EQ(result->conflicts[0], figures[5]);
    CHECK_EQ(result->conflicts[1], figures[6]);
    CHECK_EQ(result->demand_high_water, high_water);
    CHECK_EQ(result->high_water_bounds[0], high_water);
    CHECK_EQ(result->high_water_bounds[1], high_water);
    CHECK(!result->order_is_simulated);
    CHECK_EQ(result->in_use[0], 0);
    CHECK_EQ(result->num_faults, 0);
}

PST_TEST(SimulatePages, HighWaterIsThatOfTheTable)
{
    static sim_scene scene;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
        for (uint32_t i = 0; i < NUM_COLUMNS; i++) {
            const uint64_t *figures = rows[row].figures[i];
            if (figures[0] == 0)
                continue;
            sim_open_alone(&scene, &rows[row].shape, rows[row].stage);
            scene.config.num_sources = columns[i].sources;
            scene.config.num_destinations = columns[i].destinations;
            scene.config.by_slot = columns[i].by_slot;
            scene.config.keeps_nothing = columns[i].keeps_nothing;
            scene.config.rule = columns[i].rule;
            if (columns[i].by_slot) /* the table's slots are the least free ones, also of P8 */
                sim_make_list(&scene);
            sim_set_pages(&scene, sim_pages3);
            sim_run(&scene);
            check_row(rows[row].name, i, &scene.stages[0], figures, figures[0]);
            sim_set_pages(&scene, sim_group);
            sim_run(&scene);
            check_row(rows[row].name, i, &scene.stages[0], figures, figures[1]);
            sim_close(&scene);
        }
}

/* ---- tiers (program of P3 with 2+2, pages3) ---- */

static const struct {
    const char *name;
    uint64_t pages[2];
    uint32_t offload[4][2]; /* of each layer */
    uint64_t high_water[2], demand, spilled, offloaded, displaced, faults;
    pst_visit_key first;
    uint64_t wanted, free[2];
} tiers[] = {
    {"H1", {30, 0}, {{0}}, {30, 0}, 30, 0, 0, 0, 0, {0}, 0, {0, 0}},
    {"H2", {22, 0}, {{0}}, {22, 0}, 30, 0, 0, 0, 14, {0, 0, 0, 3}, 1, {0, 0}},
    {"H3", {21, 0}, {{0}}, {21, 0}, 30, 0, 0, 0, 14, {0, 0, 3, 2}, 2, {1, 0}},
    {"H4", {20, 12}, {{0}}, {20, 10}, 30, 14, 0, 0, 0, {0}, 0, {0, 0}},
    {"H5", {20, 12}, {{1, 2}, {1, 2}, {1, 2}, {1, 2}}, {20, 10}, 30, 0, 18, 0, 0, {0}, 0, {0, 0}},
    {"H6",
     {20, 6},
     {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
     {20, 6},
     30,
     0,
     14,
     38,
     4,
     {0, 0, 2, 4},
     3,
     {2, 0}},
    {"H7", {12, 8}, {{0}}, {12, 8}, 30, 14, 0, 0, 18, {0, 0, 3, 2}, 2, {0, 0}},
    {"H8", {16, 12}, {{1, 1}}, {16, 12}, 30, 3, 16, 0, 2, {0, 0, 3, 4}, 3, {1, 0}},
};

PST_TEST(SimulatePages, SmallTiersCountAsTheTableSays)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = 4, .m = 8, .num_layers = 4};
    for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++) {
        sim_open_alone(&scene, &shape, 0);
        sim_set_pages(&scene, sim_pages3);
        for (uint32_t tier = 0; tier < 2; tier++)
            scene.config.num_pages[tier] = tiers[i].pages[tier];
        for (uint32_t l = 0; l < 4; l++) {
            scene.layers[l].policy.host_num = tiers[i].offload[l][0];
            scene.layers[l].policy.host_den = tiers[i].offload[l][1];
        }
        sim_run(&scene);
        const pst_stage_result *result = &scene.stages[0];
        CHECK_MSG(
            result->high_water[0] == tiers[i].high_water[0] &&
                result->high_water[1] == tiers[i].high_water[1] &&
                result->demand_high_water == tiers[i].demand &&
                result->spilled_pages == tiers[i].spilled &&
                result->offloaded_pages == tiers[i].offloaded &&
                result->displaced_pages == tiers[i].displaced &&
                result->num_faults == tiers[i].faults,
            "%s: high water %llu, %llu; demand %llu, spilled %llu, offloaded %llu, displaced "
            "%llu, faults %llu",
            tiers[i].name, (unsigned long long)result->high_water[0],
            (unsigned long long)result->high_water[1],
            (unsigned long long)result->demand_high_water,
            (unsigned long long)result->spilled_pages, (unsigned long long)result->offloaded_pages,
            (unsigned long long)result->displaced_pages, (unsigned long long)result->num_faults);
        CHECK_EQ(result->fault, tiers[i].faults ? PST_FAULT_EXHAUSTED : PST_FAULT_NONE);
        CHECK_EQ(memcmp(&result->fault_visit, &tiers[i].first, sizeof(pst_visit_key)), 0);
        CHECK_EQ(result->fault_wanted, tiers[i].wanted);
        CHECK_EQ(result->fault_free[0], tiers[i].free[0]);
        CHECK_EQ(result->fault_free[1], tiers[i].free[1]);
        CHECK_EQ(result->in_use[0] + result->in_use[1], 0);
        sim_close(&scene);
    }
}

/* ---- closed forms: every layer keeps P pages. Of ranks before the last while there are more visits in
 * flight than sources: else whole micro-batches stay in place. ---- */

enum { P = 3 };

static uint64_t pages_p(uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    return chunk + layer + micro_batch < UINT32_MAX ? P : 0;
}

/* Of 1F1B on one rank. */
static uint64_t high_water(uint32_t p, uint32_t rank, uint32_t m, uint32_t layers,
                           const column *sets)
{
    static sim_scene scene;
    const sim_shape shape = {.kind = PST_SCHEDULE_1F1B, .p = p, .m = m, .num_layers = layers};
    sim_open_alone(&scene, &shape, rank);
    scene.config.num_sources = sets->sources;
    scene.config.num_destinations = sets->destinations;
    scene.config.rule = sets->rule;
    sim_set_pages(&scene, pages_p);
    sim_run(&scene);
    sim_close(&scene);
    return scene.stages[0].high_water[0];
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

PST_TEST(SimulatePages, HighWaterInClosedForm)
{
    static const column sets[] = {{1, 1, false, false, PST_RESTORE_ASAP},
                                  {2, 2, false, false, PST_RESTORE_ASAP},
                                  {2, 3, false, false, PST_RESTORE_ASAP},
                                  {3, 4, false, false, PST_RESTORE_ASAP}};
    static const column next = {1, 1, false, false, PST_RESTORE_NEXT};
    for (uint32_t p = 1; p <= 8; p *= 2)
        for (uint32_t m = 2 * p; m <= 33; m += 7)
            for (uint32_t layers = 1; layers <= 6; layers++)
                for (uint32_t r = 0; r < p; r++)
                    for (int i = 0; i < 4; i++) {
                        const uint32_t later = (p - 1 - r) * layers; /* that come ahead */
                        const uint32_t d = sets[i].destinations;
                        if (r + 1 < p && later < sets[i].sources)
                            continue;
                        const uint64_t ours = r + 1 < p ? (p - r) * layers - (d < later ? d : later)
                                                        : less(layers, sets[i].sources);
                        const uint64_t others = r + 1 < p ? (p - r) * layers : layers - 1;
                        CHECK_EQ(high_water(p, r, m, layers, &sets[i]), P * ours);
                        CHECK_EQ(high_water(p, r, m, layers, &next), P * others);
                    }
}
