/* What holds of every configuration: sums of parts, more GPUs, more recomputation, defaults. */
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

enum { RUNS = 3000 };

static uint64_t or_one(uint64_t value)
{
    return value ? value : 1;
}

static uint64_t ceiling(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* ---- totals are sums of parts ---- */

static void expect_memory_sums(const pst_estimate_config *config, uint64_t stage)
{
    uint64_t live[PSTI_RANDOM_LAYERS], micro_batches = 0;
    pst_estimate_memory memory;
    CHECK_OK(pst_estimate_get_memory(config, stage, live, &memory));
    const pst_estimate_states *states = &memory.states;
    CHECK_EQ(states->bytes,
             states->weight_bytes + states->gradient_bytes + states->optimizer_bytes);
    CHECK_EQ(memory.bytes, states->bytes + memory.saved_bytes + memory.head_bytes +
                               memory.recompute_bytes + memory.paging_bytes + memory.empty_bytes +
                               memory.cache_bytes + memory.gathered_bytes + memory.reload_bytes +
                               memory.workspace_bytes);
    CHECK_EQ(memory.peak_bytes, memory.bytes + memory.transient_bytes);
    CHECK((memory.transient_bytes == 0) == (strcmp(memory.transient, "none") == 0));
    CHECK(states->expert_params <= states->params);
    CHECK((memory.head_bytes != 0) == (stage == or_one(config->pipeline_parallel) - 1));
    CHECK(memory.paging_bytes == 0 || config->moe_rows == PST_MOE_PAGED);
    for (uint64_t i = 0; i < or_one(config->virtual_stages); i++) {
        CHECK(live[i] <= memory.num_micro_batches);
        micro_batches += live[i];
    }
    if (config->virtual_stages > 1)
        return;
    const uint64_t after = or_one(config->pipeline_parallel) - stage;
    CHECK_EQ(micro_batches, after < memory.num_micro_batches ? after : memory.num_micro_batches);
    CHECK_EQ(memory.live_layers, micro_batches * states->num_layers);
    CHECK_EQ(memory.live_moe_layers, micro_batches * states->num_moe_layers);
}

static void expect_ledger_sums(const pst_estimate_config *config, bool is_moe)
{
    pst_estimate_ledger ledger;
    uint64_t whole = 0, own = 0;
    CHECK_OK(pst_estimate_get_ledger(config, is_moe, &ledger));
    for (uint32_t i = 0; i < ledger.num_entries; i++) {
        whole += ledger.entries[i].whole_bytes;
        own += ledger.entries[i].bytes;
        CHECK(ledger.entries[i].whole_bytes != 0 || ledger.entries[i].bytes != 0);
    }
    CHECK(ledger.whole_bytes == whole && ledger.bytes == own);
}

PST_TEST(EstimateProperty, TotalsAreSumsOfParts)
{
    psti_random_run run = {.state = 1};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        const pst_estimate_config *config = &run.config;
        uint64_t num_layers = 0;
        for (uint64_t stage = 0; stage < or_one(config->pipeline_parallel); stage++) {
            pst_estimate_states states;
            expect_memory_sums(config, stage);
            CHECK_OK(pst_estimate_get_states(config, stage, &states));
            num_layers += states.num_layers;
        }
        CHECK_EQ(num_layers, config->num_layers + config->mtp_layers);
        if (config->ffn_size)
            expect_ledger_sums(config, false);
        if (config->num_experts)
            expect_ledger_sums(config, true);
    }
}

/* Undivided, a stage's parameters are the model's. */
PST_TEST(EstimateProperty, OneGpuHasTheWholeModel)
{
    psti_random_run run = {.state = 2};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        pst_estimate_config config = run.config;
        pst_estimate_params params;
        pst_estimate_states states;
        config.tensor_parallel = config.pipeline_parallel = config.virtual_stages = 1;
        config.context_parallel = config.expert_parallel = config.expert_tensor_parallel = 1;
        config.world_size = config.global_batch = 0;
        config.chunk_layers = NULL;
        CHECK_OK(pst_estimate_get_params(&config, &params));
        CHECK_OK(pst_estimate_get_states(&config, 0, &states));
        CHECK_EQ(states.params, params.padded + config.mtp_layers * params.mtp);
        CHECK(states.expert_params == params.experts || config.mtp_layers != 0);
        CHECK_EQ(params.padded - params.total, (params.padded_vocab - config.vocab_size) *
                                                   config.hidden_size * (config.is_tied ? 1 : 2));
    }
}

/* ---- tensor parallelism ---- */

/* Twice as many tensor parallel GPUs, and so twice as many in all; every other size as it was. */
static bool double_tensor(const pst_estimate_config *from, pst_estimate_config *to)
{
    *to = *from;
    to->tensor_parallel = 2 * or_one(from->tensor_parallel);
    to->world_size = 2 * from->world_size;
    to->expert_tensor_parallel =
        from->expert_tensor_parallel ? from->expert_tensor_parallel : or_one(from->tensor_parallel);
    return pst_estimate_check(to) == PST_OK;
}

/* Of what one GPU holds nothing grows: shards halve, copies stay, a vocabulary padded to more has
 * no larger shard. Pages are rounded up together with what is saved, so paging counts with it. The
 * peak is compared from two GPUs on with sequence parallelism: the loss gathers what one had. Gradients
 * that wait to be reduced do so beside fewer saved bytes. */
static void expect_no_growth(const pst_estimate_config *narrow, const pst_estimate_config *wide,
                             uint64_t stage)
{
    pst_estimate_memory a, b;
    if (narrow->offload_modules != 0)
        return; /* tensors that are too small stay */
    CHECK_OK(pst_estimate_get_memory(narrow, stage, NULL, &a));
    CHECK_OK(pst_estimate_get_memory(wide, stage, NULL, &b));
    CHECK_EQ(a.num_micro_batches, b.num_micro_batches);
    CHECK(b.states.params <= a.states.params);
    CHECK(b.states.weight_bytes <= a.states.weight_bytes);
    CHECK(b.states.gradient_bytes <= a.states.gradient_bytes);
    CHECK(b.states.optimizer_bytes <= a.states.optimizer_bytes);
    CHECK(b.saved_bytes + b.paging_bytes <= a.saved_bytes + a.paging_bytes);
    CHECK(b.head_bytes <= a.head_bytes);
    CHECK(b.recompute_bytes <= a.recompute_bytes);
    CHECK(b.bytes <= a.bytes);
    const bool queues = narrow->sharding != PST_SHARDING_NONE;
    if (!queues && (narrow->tensor_parallel > 1 || !narrow->sequence_parallel))
        CHECK(b.peak_bytes <= a.peak_bytes);
}

PST_TEST(EstimateProperty, BytesDoNotGrowWithTensorParallelism)
{
    psti_random_run run = {.state = 3};
    pst_estimate_config wide;
    for (int num = 0; num < RUNS;) {
        psti_draw_run(&run);
        if (!double_tensor(&run.config, &wide))
            continue;
        num++;
        for (uint64_t stage = 0; stage < or_one(wide.pipeline_parallel); stage++)
            expect_no_growth(&run.config, &wide, stage);
    }
}

/* ---- recomputation ---- */

PST_TEST(EstimateProperty, RecomputationSavesLess)
{
    psti_random_run run = {.state = 4};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        pst_estimate_config more = run.config;
        pst_estimate_memory a, b;
        const uint64_t stage = psti_random_below(&run.state, or_one(more.pipeline_parallel));
        CHECK_OK(pst_estimate_get_memory(&run.config, stage, NULL, &a));
        more.recompute |= 1u << psti_random_below(&run.state, 9);
        if (pst_estimate_check(&more) != PST_OK)
            continue; /* pages without rows */
        CHECK_OK(pst_estimate_get_memory(&more, stage, NULL, &b));
        CHECK(b.bytes <= a.bytes && b.recompute_bytes <= a.recompute_bytes);
        CHECK(b.saved_bytes <= a.saved_bytes || more.moe_rows == PST_MOE_PAGED);
        if (more.num_experts && more.moe_rows == PST_MOE_PAGED)
            continue;
        more = run.config;
        more.recompute_layers = 2 * more.recompute_layers + 1;
        CHECK_OK(pst_estimate_get_memory(&more, stage, NULL, &b));
        CHECK(b.saved_bytes <= a.saved_bytes && b.head_bytes == a.head_bytes);
    }
}

/* ---- defaults ---- */

/* What a zero stands for, where that is a number. */
static const char *const defaults[] = {
    "vocab_multiple=128", "tensor_parallel=1", "pipeline_parallel=1", "virtual_stages=1",
    "context_parallel=1", "expert_parallel=1", "micro_batch=1",       "capacity_num=1",
    "capacity_den=1",     "row_multiple=1",    "page_rows=64",        "page_bytes=262144",
    "headroom_num=11",    "headroom_den=10",   "offload_den=1",
};

static uint64_t or_else(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void write_defaults(pst_estimate_config *config)
{
    static const uint64_t widths[][2] = {{4, 12}, {2, 16}, {4, 8}};
    const uint64_t *own = widths[config->type];
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        if (psti_field_is_zero(config, defaults[i]))
            CHECK(psti_change_field(config, defaults[i]));
    config->num_kv_heads = or_else(config->num_kv_heads, config->num_heads);
    config->head_size = or_else(config->head_size, config->hidden_size / config->num_heads);
    config->expert_tensor_parallel =
        or_else(config->expert_tensor_parallel, config->tensor_parallel);
    config->micro_batch_group_size =
        or_else(config->micro_batch_group_size, config->pipeline_parallel);
    config->gradient_width = or_else(config->gradient_width, own[0]);
    config->optimizer_width = or_else(config->optimizer_width, own[1]);
    const uint64_t unit = config->vocab_multiple * config->tensor_parallel;
    config->padded_vocab_size =
        or_else(config->padded_vocab_size, ceiling(config->vocab_size, unit) * unit);
}

PST_TEST(EstimateProperty, DefaultsCanBeWritten)
{
    psti_random_run run = {.state = 5};
    for (int i = 0; i < RUNS; i++) {
        psti_draw_run(&run);
        pst_estimate_config full = run.config;
        pst_estimate_params params[2];
        pst_estimate_memory memory[2];
        pst_estimate_traffic traffic[2];
        pst_estimate_moe moe[2];
        write_defaults(&full);
        const uint64_t stage = psti_random_below(&run.state, full.pipeline_parallel);
        const pst_estimate_config *both[] = {&run.config, &full};
        for (int j = 0; j < 2; j++) {
            CHECK_OK(pst_estimate_get_params(both[j], &params[j]));
            CHECK_OK(pst_estimate_get_memory(both[j], stage, NULL, &memory[j]));
            CHECK_OK(pst_estimate_get_traffic(both[j], stage, &traffic[j]));
            if (full.num_experts)
                CHECK_OK(pst_estimate_get_moe(both[j], 3, &moe[j]));
        }
        CHECK(memcmp(&params[0], &params[1], sizeof(params[0])) == 0);
        CHECK(memcmp(&memory[0], &memory[1], sizeof(memory[0])) == 0);
        CHECK(full.num_experts == 0 || memcmp(&moe[0], &moe[1], sizeof(moe[0])) == 0);
        CHECK_EQ(traffic[0].num_ops, traffic[1].num_ops);
        for (uint32_t j = 0; j < traffic[0].num_ops; j++)
            CHECK_EQ(traffic[0].ops[j].wire_bytes, traffic[1].ops[j].wire_bytes);
    }
}
