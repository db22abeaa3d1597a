/* What holds of every split: groups partition the ranks, rings carry what they must, modules and
 * passes add up. */
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

enum { RUNS = 2000, MOST_RANKS = 256, MOST_PASSES = 256 };

__extension__ typedef unsigned __int128 wide;

static uint64_t or_one(uint64_t value)
{
    return value ? value : 1;
}

/* ---- groups ---- */

static bool has_group(const pst_estimate_config *config, pst_parallel parallel, uint64_t rank)
{
    const uint64_t pipeline = or_one(config->pipeline_parallel);
    const uint64_t stage = rank / (config->world_size / pipeline);
    if (parallel == PST_PARALLEL_EMBEDDING)
        return (config->is_tied || config->mtp_layers) && pipeline > 1 &&
               (stage == 0 || stage == pipeline - 1);
    return config->num_experts != 0 ||
           (parallel != PST_PARALLEL_EXPERT && parallel != PST_PARALLEL_EXPERT_TENSOR &&
            parallel != PST_PARALLEL_EXPERT_REPLICA);
}

/* Every rank is in its group, and every member says the same of it: no rank is in two. */
static void expect_partition(const pst_estimate_config *config, pst_parallel parallel)
{
    for (uint64_t rank = 0; rank < config->world_size; rank++) {
        pst_estimate_process_group group, same;
        const pst_status status = pst_estimate_get_process_group(config, parallel, rank, &group);
        CHECK_EQ(status, has_group(config, parallel, rank) ? PST_OK : PST_E_INVALID);
        if (status != PST_OK)
            continue;
        bool is_member = false;
        for (uint64_t i = 0; i < group.size; i++) {
            const uint64_t member = group.first + i * group.stride;
            CHECK(member < config->world_size);
            CHECK_OK(pst_estimate_get_process_group(config, parallel, member, &same));
            CHECK(memcmp(&group, &same, sizeof(group)) == 0);
            is_member = is_member || member == rank;
        }
        CHECK(is_member);
    }
}

PST_TEST(EstimateSplit, GroupsPartitionTheRanks)
{
    psti_random_run run = {.state = 6};
    for (int i = 0; i < 300; i++) {
        psti_draw_run(&run);
        for (int kind = 0; kind < PST_NUM_PARALLELS; kind++)
            expect_partition(&run.config, (pst_parallel)kind);
    }
}

/* GPUs of one stage share what the split says: sizes multiply to the world. */
PST_TEST(EstimateSplit, SizesOfGroupsMultiply)
{
    psti_random_run run = {.state = 7};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        const pst_estimate_config *config = &run.config;
        pst_estimate_process_group groups[PST_NUM_PARALLELS] = {{.size = 0}};
        const uint64_t rank = psti_random_below(&run.state, config->world_size);
        for (int kind = 0; kind < PST_NUM_PARALLELS; kind++)
            if (has_group(config, (pst_parallel)kind, rank))
                CHECK_OK(pst_estimate_get_process_group(config, (pst_parallel)kind, rank,
                                                        &groups[kind]));
        const uint64_t stages = groups[PST_PARALLEL_PIPELINE].size;
        const uint64_t replicas = groups[PST_PARALLEL_REPLICA].size;
        CHECK_EQ(stages * groups[PST_PARALLEL_TENSOR].size * replicas, config->world_size);
        CHECK_EQ(replicas, groups[PST_PARALLEL_CONTEXT].size * groups[PST_PARALLEL_DATA].size);
        if (config->num_experts)
            CHECK_EQ(stages * groups[PST_PARALLEL_EXPERT_TENSOR].size *
                         groups[PST_PARALLEL_EXPERT].size *
                         groups[PST_PARALLEL_EXPERT_REPLICA].size,
                     config->world_size);
    }
}

/* ---- traffic ---- */

/* What a GPU sends in a ring of n for a tensor of m bytes: (n - 1) / n of it, twice to reduce and
 * hand out the sums. */
static uint64_t ring_bytes(const pst_estimate_op *op)
{
    const wide all = (wide)op->count * op->payload_bytes;
    const wide size = op->group_size;
    if (op->transfer == PST_TRANSFER_SEND || op->transfer == PST_TRANSFER_RECEIVE)
        return (uint64_t)all;
    const wide parts = (op->transfer == PST_TRANSFER_ALL_REDUCE ? 2 : 1) * (size - 1);
    return (uint64_t)((all * parts + size - 1) / size);
}

static void expect_ops(const pst_estimate_config *config, uint64_t stage)
{
    const uint64_t rank = stage * (config->world_size / or_one(config->pipeline_parallel));
    pst_estimate_traffic traffic;
    CHECK_OK(pst_estimate_get_traffic(config, stage, &traffic));
    for (uint32_t i = 0; i < traffic.num_ops; i++) {
        const pst_estimate_op *op = &traffic.ops[i];
        pst_estimate_process_group group;
        const bool is_wide =
            op->parallel == PST_PARALLEL_EXPERT && config->dispatcher == PST_DISPATCHER_FLEX;
        const uint64_t tensor = config->expert_tensor_parallel ? config->expert_tensor_parallel
                                                               : or_one(config->tensor_parallel);
        CHECK(op->group_size > 1 && op->count != 0);
        CHECK_MSG(op->wire_bytes == ring_bytes(op), "%s", op->name);
        CHECK_OK(pst_estimate_get_process_group(config, op->parallel, rank, &group));
        CHECK_EQ(op->group_size,
                 op->parallel == PST_PARALLEL_PIPELINE ? 2 : group.size * (is_wide ? tensor : 1));
        for (uint32_t j = 0; j < i; j++)
            CHECK_MSG(strcmp(traffic.ops[j].name, op->name) != 0, "%s: twice", op->name);
    }
}

PST_TEST(EstimateSplit, RingsCarryWhatTheyMust)
{
    psti_random_run run = {.state = 8};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        for (uint64_t stage = 0; stage < or_one(run.config.pipeline_parallel); stage++)
            expect_ops(&run.config, stage);
    }
}

/* Also where hardly any figure fits into 64 bits. */
PST_TEST(EstimateSplit, RingsDoNotWrap)
{
    psti_random_run run = {.state = 15};
    int num_refused = 0;
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        pst_estimate_traffic traffic;
        run.config.hidden_size <<= psti_random_below(&run.state, 50);
        if (pst_estimate_get_traffic(&run.config, 0, &traffic) == PST_OK)
            expect_ops(&run.config, 0);
        else
            num_refused++;
    }
    CHECK(num_refused > RUNS / 8 && num_refused < RUNS);
}

/* What one stage sends to the next, that one receives: over all, as much sent as received. */
PST_TEST(EstimateSplit, StagesReceiveWhatIsSent)
{
    psti_random_run run = {.state = 9};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        uint64_t sent = 0, received = 0;
        for (uint64_t stage = 0; stage < or_one(run.config.pipeline_parallel); stage++) {
            pst_estimate_traffic traffic;
            CHECK_OK(pst_estimate_get_traffic(&run.config, stage, &traffic));
            for (uint32_t j = 0; j < traffic.num_ops; j++) {
                const pst_estimate_op *op = &traffic.ops[j];
                if (op->parallel == PST_PARALLEL_PIPELINE)
                    *(op->transfer == PST_TRANSFER_SEND ? &sent : &received) += op->wire_bytes;
            }
        }
        CHECK_EQ(sent, received);
        CHECK((sent != 0) == (run.config.pipeline_parallel > 1));
    }
}

PST_TEST(EstimateSplit, TrafficThatIsRefused)
{
    pst_estimate_config config = psti_estimate_run(4);
    pst_estimate_traffic traffic = {.num_ops = 7};
    CHECK_STATUS(pst_estimate_get_traffic(NULL, 0, &traffic), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_traffic(&config, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_traffic(&config, 4, &traffic), PST_E_INVALID);
    config.sequence_size = UINT64_C(1) << 42; /* 2^56 bytes, 1920 times */
    CHECK_STATUS(pst_estimate_get_traffic(&config, 0, &traffic), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "tp.ag exceed 64 bits") != NULL);
    CHECK_EQ(traffic.num_ops, 7);
}

/* ---- the passes of a stage ---- */

typedef struct walk {
    uint64_t num_layers[8]; /* of each chunk */
    uint64_t num_chunks, num_micro_batches;
    bool done[2][MOST_PASSES]; /* forward, backward */
    uint64_t num_events, live_layers, most_saved, most_bytes, last_saved, last_bytes;
    bool is_wrong;
} walk;

static bool step(void *user, const pst_estimate_event *event)
{
    walk *self = user;
    const uint64_t pass = event->chunk * self->num_micro_batches + event->micro_batch;
    self->is_wrong = self->is_wrong || event->number != self->num_events++ ||
                     event->chunk >= self->num_chunks ||
                     event->micro_batch >= self->num_micro_batches || pass >= MOST_PASSES;
    if (self->is_wrong)
        return false;
    const uint64_t layers = self->num_layers[event->chunk];
    bool *done = &self->done[event->is_backward][pass];
    self->is_wrong = *done || (event->is_backward && !self->done[0][pass]);
    *done = true;
    self->live_layers += event->is_backward ? 0 - layers : layers;
    self->is_wrong = self->is_wrong || event->live_layers != self->live_layers ||
                     (event->live_layers != 0 && event->saved_bytes == 0);
    self->most_saved =
        event->saved_bytes > self->most_saved ? event->saved_bytes : self->most_saved;
    self->most_bytes = event->bytes > self->most_bytes ? event->bytes : self->most_bytes;
    self->last_saved = event->saved_bytes + event->head_bytes;
    self->last_bytes = event->bytes;
    return !self->is_wrong;
}

static void count_layers(const pst_estimate_config *config, uint64_t stage, walk *to)
{
    const uint64_t pipeline = or_one(config->pipeline_parallel);
    to->num_chunks = or_one(config->virtual_stages);
    for (uint64_t i = 0; i < to->num_chunks; i++)
        to->num_layers[i] = config->chunk_layers ? config->chunk_layers[i * pipeline + stage]
                                                 : config->num_layers / (pipeline * to->num_chunks);
    if (stage == pipeline - 1)
        to->num_layers[to->num_chunks - 1] += config->mtp_layers;
}

/* Every chunk once forward and then once backward for each micro-batch; the peak is that of
 * pst_estimate_get_memory. Where a head or a group that runs again is counted there, it need not be
 * alive at the same time. */
static void expect_passes(const pst_estimate_config *config, uint64_t stage)
{
    walk seen = {.num_events = 0};
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(config, stage, NULL, &memory));
    count_layers(config, stage, &seen);
    seen.num_micro_batches = memory.num_micro_batches;
    CHECK_OK(pst_estimate_get_timeline(config, stage, step, &seen));
    CHECK(!seen.is_wrong);
    CHECK_EQ(seen.num_events, 2 * seen.num_micro_batches * seen.num_chunks);
    const uint64_t always = memory.states.bytes + memory.empty_bytes + memory.cache_bytes +
                            memory.gathered_bytes + memory.workspace_bytes;
    const uint64_t passing = memory.recompute_bytes + memory.reload_bytes;
    CHECK(seen.last_saved == 0 && seen.last_bytes == always);
    CHECK_EQ(seen.live_layers, 0);
    if (config->moe_rows != PST_MOE_PAGED)
        CHECK_EQ(seen.most_saved, memory.saved_bytes);
    CHECK(seen.most_bytes <= memory.bytes - passing);
    CHECK(seen.most_bytes >= always + memory.saved_bytes + memory.paging_bytes);
    if (memory.head_bytes == 0)
        CHECK_EQ(seen.most_bytes, memory.bytes - passing);
}

PST_TEST(EstimateSplit, EveryPassOnce)
{
    psti_random_run run = {.state = 10};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        for (uint64_t stage = 0; stage < or_one(run.config.pipeline_parallel); stage++)
            expect_passes(&run.config, stage);
    }
}
