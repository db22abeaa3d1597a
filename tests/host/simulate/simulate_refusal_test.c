/* What is no simulation is refused with stage, layer and field; without memory nothing is written. */
#include "tests/host/simulate/simulate_scene.h"

#include "host/base/base.h"

static sim_scene scene;

static void reopen(void)
{
    const sim_shape shape = {PST_SCHEDULE_INTERLEAVED, 2, 4, 2, 0, 2, false};
    sim_open(&scene, &shape);
}

#define CASE(name, statement)      \
    static void break_##name(void) \
    {                              \
        statement;                 \
    }

/* X(name, what breaks the scene, what the message has) */
#define REFUSALS(X)                                                                               \
    X(no_stages, scene.config.num_stages = 0, "num_stages is 0")                                  \
    X(no_schedules, scene.config.schedules = NULL, "schedules, layers or num_layers is NULL")     \
    X(no_layers, scene.config.layers = NULL, "schedules, layers or num_layers is NULL")           \
    X(no_numbers, scene.config.num_layers = NULL, "schedules, layers or num_layers is NULL")      \
    X(null_layers, scene.stage_layers[1] = NULL, "layers[1] is NULL, num_layers[1] is 4")         \
    X(stage_twice, scene.config.num_stages = 1, "schedules[0] is of stage 0 of 2, not of 0 of 1") \
    X(swapped, swap_stages(), "schedules[0] is of stage 1 of 2, not of 0 of 2")                   \
    X(other_count, other_schedule(PST_SCHEDULE_INTERLEAVED, 6),                                   \
      "schedules[1] has other micro-batches, chunks or groups than schedules[0]")                 \
    X(other_kind, other_schedule(PST_SCHEDULE_ZB_V, 4), "schedules[1] is of another kind")        \
    X(layer_bytes, scene.config.layer_bytes = 8, "layer_bytes 8: pst_simulated_layer has")        \
    X(sources, scene.config.num_sources = 9, "num_sources 9: at most 8")                          \
    X(destinations, scene.config.num_destinations = 9, "num_destinations 9: at most 8")           \
    X(ring, ring_of(5, 4), "num_destinations 4 with one_ring: restores go into the 5 sources")    \
    X(streams, scene.config.num_streams = 3, "num_streams 3: allowed are 1, 2, 4")                \
    X(ordered, scene.config.num_streams = 2, "num_streams 2 with mode ORDERED")                   \
    X(rule, scene.config.rule = 7, "rule 7: allowed are 0 and 1")                                 \
    X(mode, scene.config.mode = 7, "mode 7: allowed are 0 and 1")                                 \
    X(order, scene.config.chunk_order = 4, "chunk_order 4: allowed are 0 to 3")                   \
    X(pages, scene.config.num_pages[1] = UINT64_C(1) << 31, "num_pages[1] 2147483648: at most")   \
    X(page_bytes, scene.config.page_bytes = 100000, "page_bytes 100000: allowed are powers")      \
    X(chunk, scene.layers[3].chunk = 2, "stage 0, layers[3].chunk 2: the schedule has 2")         \
    X(layer, scene.layers[3].layer = 2,                                                           \
      "stage 0, chunk 1, layer 2: the chunk has 2 layers, one of which is missing")               \
    X(twice, scene.layers[3].layer = 0, "stage 0, chunk 1, layer 0: layers[3] is the second")     \
    X(keep, scene.layers[1].keep = 4, "stage 0, chunk 0, layer 1: keep 4: allowed are 0 to 3")    \
    X(parts, scene.layers[1].num_parts = 5, "chunk 0, layer 1: num_parts 5: at most 4")           \
    X(uses, scene.layers[1].uses[0] = 4, "chunk 0, layer 1: uses[0] 4: at most 3")                \
    X(part_ns, scene.layers[1].part_ns[0] = 1, "layer 1: part_ns[0] 1: at most forward.core, 0")  \
    X(no_usages, scene.layers[1].usages = NULL, "chunk 0, layer 1: paged, and has no usages")     \
    X(few_usages, scene.layers[1].num_usages = 3, "layer 1: num_usages 3: 1, or of all 4 micro")  \
    X(stream_bytes, scene.usages[1][0].stream_bytes = SIM_PAGE + 1,                               \
      "layer 1: usages, part 0, micro-batch 0: 65537 stream_bytes in 1 pages of 65536")           \
    X(payload, scene.usages[1][0].payload_bytes = SIM_PAGE + 1,                                   \
      "micro-batch 0: 65537 payload_bytes of 65536 stream_bytes")                                 \
    X(usage_pages, scene.usages[1][0].pages = UINT64_C(1) << 32, "4294967296 pages: at most")     \
    X(share, share_of(2, 1), "layer 1: policy.host_num 2: at most policy.host_den, 1")            \
    X(no_host, share_of(1, 2), "layer 1: policy.host_num 1: there are no host pages")             \
    X(move, scene.layers[1].policy.move = 2, "layer 1: policy.move 2: allowed are 0 and 1")       \
    X(demote, scene.layers[1].policy.move = PST_MOVE_DEMOTE,                                      \
      "layer 1: policy.move is DEMOTE with num_streams 1: it takes 2 or 4")                       \
    X(demote_ordered, demote_in_ordered(),                                                        \
      "layer 1: policy.move is DEMOTE with mode ORDERED: it takes CONCURRENT")                    \
    X(next, next_with_two_streams(), "stage 0: the rule NEXT knows one side stream")              \
    X(late, scene.layers[1].forward.core = UINT64_C(1) << 63, "its times add up to 2^63 ns")      \
    X(too_late, scene.config.p2p_ns = UINT64_MAX, "its times add up to 2^63 ns or more")          \
    X(later, scene.config.rates.stash_fixed_ns = UINT64_MAX, "its times add up to 2^63 ns")

static void swap_stages(void)
{
    pst_schedule *first = scene.schedules[0];
    scene.schedules[0] = scene.schedules[1];
    scene.schedules[1] = first;
}

static void other_schedule(pst_schedule_kind kind, uint32_t m)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = kind;
    config.num_stages = 2;
    config.stage = 1;
    config.num_micro_batches = m;
    pst_schedule_destroy(scene.schedules[1]);
    CHECK_OK(pst_schedule_create(&config, &scene.schedules[1]));
}

static void ring_of(uint32_t sources, uint32_t destinations)
{
    scene.config.one_ring = true;
    scene.config.num_sources = sources;
    scene.config.num_destinations = destinations;
}

static void share_of(uint32_t num, uint32_t den)
{
    scene.layers[1].policy.host_num = num;
    scene.layers[1].policy.host_den = den;
}

static void next_with_two_streams(void)
{
    scene.config.rule = PST_RESTORE_NEXT;
    scene.config.num_streams = 2;
    scene.config.mode = PST_POOL_CONCURRENT;
}

static void demote_in_ordered(void)
{
    scene.layers[1].policy.move = PST_MOVE_DEMOTE;
    scene.config.num_streams = 2;
    scene.config.in_call_order = true;
}

#define BREAKER(name, statement, said) CASE(name, statement)
REFUSALS(BREAKER)

#define ROW(name, statement, said) {#name, break_##name, said},
static const struct {
    const char *name;
    void (*breaks)(void);
    const char *said;
} refusals[] = {REFUSALS(ROW)};

PST_TEST(SimulateRefusal, NamesStageLayerAndField)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        pst_simulation simulation = {.makespan_ns = 7};
        pst_stage_result stages[2] = {{.num_passes = 7}};
        reopen();
        CHECK_OK(pst_simulate(&scene.config, &simulation, stages));
        simulation.makespan_ns = stages[0].num_passes = 7;
        refusals[i].breaks();
        const pst_status status = pst_simulate(&scene.config, &simulation, stages);
        CHECK_MSG(status == PST_E_INVALID && strstr(pst_last_message(), refusals[i].said),
                  "%s: %s, \"%s\"", refusals[i].name, pst_status_name(status), pst_last_message());
        CHECK_EQ(simulation.makespan_ns, 7);
        CHECK_EQ(stages[0].num_passes, 7);
        scene.config.num_stages = 2;
        sim_close(&scene);
    }
}

PST_TEST(SimulateRefusal, WantsSomewhereToWrite)
{
    pst_simulation simulation;
    pst_stage_result stages[2];
    reopen();
    CHECK_STATUS(pst_simulate(NULL, &simulation, stages), PST_E_INVALID);
    CHECK_STATUS(pst_simulate(&scene.config, NULL, stages), PST_E_INVALID);
    CHECK_STATUS(pst_simulate(&scene.config, &simulation, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_simulate_sized(&scene.config, &simulation, 8, stages, sizeof(*stages)),
                 PST_E_INVALID);
    CHECK_STATUS(pst_simulate_sized(&scene.config, &simulation, sizeof(simulation), stages, 8),
                 PST_E_INVALID);
    sim_close(&scene);
}

PST_TEST(SimulateRefusal, WithoutMemoryNothingIsWritten)
{
    pst_simulation simulation = {.makespan_ns = 7};
    pst_stage_result stages[2];
    pst_status status = PST_E_NOMEM;
    long n = 0;
    reopen();
    scene.config.num_streams = 2;
    scene.config.mode = PST_POOL_CONCURRENT;
    for (; status == PST_E_NOMEM; n++) {
        CHECK_EQ(simulation.makespan_ns, 7);
        psti_fail_allocation_after(n);
        status = pst_simulate(&scene.config, &simulation, stages);
        psti_fail_allocation_after(-1);
    }
    CHECK_OK(status);
    CHECK_MSG(n > 20, "only %ld allocations", n);
    sim_close(&scene);
}

/* A chunk without layers passes on what comes. */
PST_TEST(SimulateRefusal, ChunksMayBeEmpty)
{
    reopen();
    for (uint32_t n = 0; n < 4; n++)
        scene.layers[n].forward.core = scene.layers[n].backward.core = 5;
    scene.num_layers[0] = 2; /* chunk 1 of stage 0 is empty */
    sim_run(&scene);
    CHECK(!scene.simulation.deadlocked);
    CHECK_EQ(scene.stages[0].busy_ns, 4 * 2 * 2 * 5);
    CHECK_EQ(scene.stages[1].busy_ns, 2 * 4 * 2 * 2 * 5);
    scene.num_layers[0] = 0;
    sim_run(&scene);
    CHECK(!scene.simulation.deadlocked);
    CHECK_EQ(scene.stages[0].busy_ns, 0);
    CHECK_EQ(scene.stages[0].num_tickets, 0);
    sim_close(&scene);
}
