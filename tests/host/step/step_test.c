/* Whole steps: the schedule's closed forms, sums, what grows with what, and what is refused. */
#include "host/step/step.h"
#include "tests/host/estimate/estimate_models.h"
#include "tests/host/estimate/estimate_random.h"

#include <string.h>

/* In functions that return something. */
static void expect_ok(pst_status status)
{
    CHECK_MSG(status == PST_OK, "%s", pst_last_message());
}

static pst_gpu gpu_of(const char *name)
{
    pst_gpu gpu = PST_GPU_INIT;
    expect_ok(pst_gpu_find(name, &gpu));
    return gpu;
}

static pst_estimate_config llama(uint64_t stages, uint64_t micro_batches)
{
    pst_estimate_config run = psti_model("llama2_7b");
    run.sequence_size = 2048;
    run.pipeline_parallel = stages;
    run.global_batch = micro_batches;
    return run;
}

static pst_step_prediction predict(const pst_step_config *config, pst_step_stage *stages)
{
    pst_step_prediction prediction = {.step_ns = 0};
    expect_ok(pst_step_predict(config, &prediction, stages));
    return prediction;
}

static uint64_t passes_ns(const pst_step_config *config, uint64_t num_layers, bool first, bool last)
{
    pst_step_times layer, before, behind;
    expect_ok(pst_step_get_times(config, PST_STEP_DENSE, &layer));
    expect_ok(pst_step_get_times(config, PST_STEP_FIRST, &before));
    expect_ok(pst_step_get_times(config, PST_STEP_LAST, &behind));
    return num_layers *
               (layer.visit_forward.core + layer.visit_input.core + layer.visit_weight.core) +
           (first ? before.visit_forward.core + before.visit_weight.core : 0) +
           (last ? behind.visit_forward.core + behind.visit_input.core + behind.visit_weight.core
                 : 0);
}

/* Of one stage every micro-batch comes after the other; of several the last one, which works longest,
 * waits for the first forward of the others, and they for its last backward: (m - 1) of its passes and
 * all stages' once, with what goes between them. */
PST_TEST(Step, ClosedFormOf1F1B)
{
    const pst_gpu gpu = gpu_of("h100");
    pst_step_config config = PST_STEP_CONFIG_INIT;
    config.gpu = &gpu;
    for (uint64_t stages = 1; stages <= 8; stages *= 2) {
        const pst_estimate_config run = llama(stages, 64);
        uint64_t p2p_ns = 0;
        config.run = &run;
        CHECK_OK(pst_step_get_p2p(&config, &p2p_ns));
        const pst_step_prediction whole = predict(&config, NULL);
        const uint64_t last = passes_ns(&config, 32 / stages, stages == 1, true);
        const uint64_t all = passes_ns(&config, 32, true, true) + 2 * (stages - 1) * p2p_ns;
        CHECK_EQ(whole.busiest, stages - 1);
        CHECK_EQ(whole.span_ns, 63 * last + all);
        CHECK_EQ(whole.of_busiest.bubble_ns, all - last);
    }
}

/* Of all stages together: that of every part as often as the model has it. */
static uint64_t whole_work(const psti_step *step)
{
    const pst_estimate_config *run = &step->run;
    uint64_t num[PST_NUM_STEP_PARTS] = {[PST_STEP_FIRST] = 1, [PST_STEP_LAST] = 1}, sum = 0;
    uint64_t again[PST_NUM_STEP_PARTS] = {[PST_STEP_LAST] = run->recomputes_block ? 0 : 1};
    for (uint64_t i = 0; i < run->num_layers; i++)
        num[psti_estimate_has_moe(run, i) ? PST_STEP_MOE : PST_STEP_DENSE]++;
    num[psti_ends_with_moe(run) ? PST_STEP_MOE : PST_STEP_DENSE] += run->mtp_layers;
    again[PST_STEP_DENSE] = run->recompute_layers ? 0 : num[PST_STEP_DENSE];
    again[PST_STEP_MOE] = run->recompute_layers ? 0 : num[PST_STEP_MOE];
    for (uint64_t i = 0; i < run->pipeline_parallel * run->virtual_stages; i++) {
        const psti_again of =
            psti_again_of(run, i % run->pipeline_parallel, i / run->pipeline_parallel);
        again[PST_STEP_DENSE] += run->recompute_layers ? of.num_layers - of.num_moe : 0;
        again[PST_STEP_MOE] += run->recompute_layers ? of.num_moe : 0;
    }
    for (int part = 0; part < PST_NUM_STEP_PARTS; part++) {
        pst_step_times of;
        pst_step_pass all = {.products_ns = 0};
        if (num[part] == 0)
            continue;
        expect_ok(psti_step_times_of(step, (pst_step_part)part, &of));
        sum += psti_step_add_pass(&all, &of.forward, num[part]);
        sum += psti_step_add_pass(&all, &of.input, num[part]);
        sum += psti_step_add_pass(&all, &of.weight, num[part]);
        sum += psti_step_add_pass(&all, &of.again, again[part]);
    }
    return sum * psti_num_micro_batches(run);
}

/* Work and waits of a stage fill the span, which nobody exceeds. */
static void expect_sums(const psti_step *step, const pst_step_prediction *of,
                        const pst_step_stage *stages)
{
    uint64_t met = 0, rest = 0, most = 0, all = 0;
    for (uint64_t s = 0; s < step->run.pipeline_parallel; s++) {
        const pst_step_stage *one = &stages[s];
        const uint64_t work = one->products_ns + one->memory_ns + one->exposed_ns;
        CHECK_EQ(work + one->bubble_ns, of->span_ns);
        CHECK(one->end_ns <= of->span_ns && one->end_ns >= work);
        met = one->end_ns + one->gradients_ns > met ? one->end_ns + one->gradients_ns : met;
        rest =
            one->params_ns + one->optimizer_ns > rest ? one->params_ns + one->optimizer_ns : rest;
        most = work > most ? work : most;
        all += work;
    }
    CHECK_EQ(all, whole_work(step));
    CHECK_EQ(of->step_ns, met + rest);
    CHECK_EQ(of->of_busiest.products_ns + of->of_busiest.memory_ns + of->of_busiest.exposed_ns,
             most);
}

/* Draws a run, and what of it runs beside other work. False: it cannot be simulated. */
static bool draw(psti_random_run *run, const pst_gpu *gpu, psti_step *step)
{
    pst_step_config config = PST_STEP_CONFIG_INIT;
    psti_draw_run(run);
    config.run = &run->config;
    config.gpu = gpu;
    config.overlaps = (uint32_t)psti_random_below(&run->state, PST_OVERLAP_ALL + 1);
    return psti_step_open(&config, true, step) == PST_OK && psti_num_micro_batches(&step->run) *
                                                                    step->run.pipeline_parallel *
                                                                    step->run.virtual_stages <
                                                                20000;
}

static bool predict_whole(const psti_step *step, pst_step_prediction *of, pst_step_stage *stages)
{
    const pst_status status = psti_step_predict(step, true, of, stages);
    return status == PST_OK;
}

PST_TEST(Step, SumsAreWhole)
{
    const pst_gpu gpu = gpu_of("b200");
    psti_random_run run = {.state = 42};
    pst_step_stage stages[256];
    pst_step_prediction of;
    psti_step step;
    uint32_t tried = 0;
    for (uint32_t i = 0; i < psti_test_cases(400); i++)
        if (draw(&run, &gpu, &step) && step.run.pipeline_parallel <= 256 &&
            predict_whole(&step, &of, stages)) {
            expect_sums(&step, &of, stages);
            tried++;
        }
    CHECK(tried > psti_test_cases(400) / 2);
}

/* Long steps are those of all their micro-batches, exactly; also where what goes between stages takes
 * as long as they do. */
PST_TEST(Step, LongStepsAreExtended)
{
    pst_gpu gpu = gpu_of("gb200");
    psti_random_run run = {.state = 43};
    pst_step_stage all[64], some[64];
    for (uint32_t i = 0; i < psti_test_cases(100); i++) {
        pst_step_prediction whole, extended;
        psti_step step;
        gpu.node_gpus = 1 + (uint32_t)psti_random_below(&run.state, 8);
        gpu.network_rate = UINT64_C(1) << (10 + psti_random_below(&run.state, 26));
        if (!draw(&run, &gpu, &step) || step.run.pipeline_parallel > 16)
            continue;
        const uint64_t num = psti_num_micro_batches(&step.run);
        step.run.global_batch *= 1 + 200 / num;
        if (!predict_whole(&step, &whole, all))
            continue;
        CHECK_OK(psti_step_predict(&step, false, &extended, some));
        CHECK(memcmp(&whole, &extended, sizeof(whole)) == 0);
        CHECK(memcmp(all, some, step.run.pipeline_parallel * sizeof(all[0])) == 0);
    }
}

/* ---- what grows with what ---- */

/* Nothing is slower on a faster GPU, but for what single times are rounded up by. */
PST_TEST(Step, FasterGpusAreNotSlower)
{
    static const size_t rates[] = {offsetof(pst_gpu, flops), offsetof(pst_gpu, fp8_flops),
                                   offsetof(pst_gpu, memory_rate), offsetof(pst_gpu, link_rate),
                                   offsetof(pst_gpu, network_rate)};
    psti_random_run run = {.state = 44};
    for (uint32_t i = 0; i < psti_test_cases(400); i++) {
        pst_gpu gpu = gpu_of("h100");
        pst_step_prediction slow, fast;
        psti_step step;
        if (!draw(&run, &gpu, &step) || !predict_whole(&step, &slow, NULL))
            continue;
        const size_t which = psti_random_below(&run.state, sizeof(rates) / sizeof(rates[0]));
        uint64_t *rate = (uint64_t *)(void *)((unsigned char *)&step.gpu + rates[which]);
        *rate += *rate / (1 + psti_random_below(&run.state, 10));
        CHECK(predict_whole(&step, &fast, NULL));
        CHECK_MSG(fast.step_ns <= slow.step_ns + slow.step_ns / 1000000 + 1000,
                  "rate %zu: %llu from %llu", which, (unsigned long long)fast.step_ns,
                  (unsigned long long)slow.step_ns);
    }
}

PST_TEST(Step, OverlapsDoNotSlow)
{
    const pst_gpu gpu = gpu_of("a100");
    psti_random_run run = {.state = 45};
    for (uint32_t i = 0; i < psti_test_cases(400); i++) {
        pst_step_prediction apart, beside;
        psti_step step;
        if (!draw(&run, &gpu, &step) || !predict_whole(&step, &apart, NULL))
            continue;
        step.config.overlaps |= 1u << psti_random_below(&run.state, 4);
        CHECK(predict_whole(&step, &beside, NULL));
        CHECK(beside.step_ns <= apart.step_ns);
    }
}

/* The more micro-batches, the smaller the share of waits, in each schedule; of those split backwards
 * they are shorter. */
PST_TEST(Step, BubblesShrink)
{
    static const pst_schedule_kind kinds[] = {PST_SCHEDULE_1F1B, PST_SCHEDULE_GPIPE,
                                              PST_SCHEDULE_GPIPE_REVERSED, PST_SCHEDULE_ZB_H1,
                                              PST_SCHEDULE_ZB_H2};
    const pst_gpu gpu = gpu_of("h100");
    pst_step_config config = PST_STEP_CONFIG_INIT;
    config.gpu = &gpu;
    uint64_t of_1f1b = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        uint64_t share = UINT64_MAX;
        config.schedule = kinds[k];
        for (uint64_t num = 8; num <= 128; num *= 2) {
            const pst_estimate_config run = llama(4, num);
            config.run = &run;
            const pst_step_prediction of = predict(&config, NULL);
            const uint64_t now = of.of_busiest.bubble_ns * 1000000 / of.span_ns;
            CHECK(now < share);
            share = now;
        }
        const pst_estimate_config run = llama(4, 16);
        config.run = &run;
        const uint64_t bubble = predict(&config, NULL).of_busiest.bubble_ns;
        of_1f1b = k == 0 ? bubble : of_1f1b;
        if (kinds[k] == PST_SCHEDULE_ZB_H1 || kinds[k] == PST_SCHEDULE_ZB_H2)
            CHECK(bubble < of_1f1b);
    }
    pst_estimate_config run = llama(4, 16);
    run.virtual_stages = 2;
    config.schedule = PST_SCHEDULE_1F1B;
    config.run = &run;
    CHECK(predict(&config, NULL).of_busiest.bubble_ns < of_1f1b);
}

static const pst_estimate_op *op_of(const pst_estimate_traffic *traffic, const char *name)
{
    const pst_estimate_op *found = NULL;
    for (uint32_t i = 0; i < traffic->num_ops; i++)
        found = strcmp(traffic->ops[i].name, name) == 0 ? &traffic->ops[i] : found;
    return found;
}

/* 8 GPUs on as many nodes, whose network takes longer for gradients than the last backward, which makes
 * them in 169 parts: the first one is reduced when it is there, and all others right after it.
 * Parameters are gathered before the first forward reads them, all but the first part beside it. */
PST_TEST(Step, GradientsBesideTheBackward)
{
    const uint64_t params = UINT64_C(6738415616), parts = 169;
    pst_gpu gpu = gpu_of("h100");
    pst_estimate_config run = llama(1, 8);
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_estimate_traffic traffic;
    psti_step_ends ends;
    psti_step step;
    gpu.node_gpus = 1;
    run.world_size = 8;
    run.distributed_optimizer = true;
    config.run = &run;
    config.gpu = &gpu;
    CHECK_OK(psti_step_open(&config, true, &step));
    CHECK_OK(psti_step_ends_of(&step, 0, &ends));
    CHECK_OK(pst_estimate_get_traffic(&run, 0, &traffic));
    CHECK_EQ(ends.num_buckets, parts);
    CHECK_EQ(ends.reduce_ns, psti_step_transfer_ns(&step, op_of(&traffic, "dp.rs")));
    CHECK_EQ(ends.gather_ns, psti_step_transfer_ns(&step, op_of(&traffic, "dp.ag")));
    const uint64_t own = params / 8;
    CHECK_EQ(ends.optimizer_ns,
             psti_step_ns(2 * 4 * params + (2 * 12 + 4 + 2) * own, gpu.memory_rate, 910) + 4000);
    const pst_step_prediction apart = predict(&config, NULL);
    CHECK_EQ(apart.of_busiest.gradients_ns, ends.reduce_ns);
    CHECK_EQ(apart.of_busiest.params_ns, ends.gather_ns);
    config.overlaps = PST_OVERLAP_GRADIENTS | PST_OVERLAP_PARAMS;
    const pst_step_stage beside = predict(&config, NULL).of_busiest;
    pst_step_times layer, before, behind;
    CHECK_OK(pst_step_get_times(&config, PST_STEP_DENSE, &layer));
    CHECK_OK(pst_step_get_times(&config, PST_STEP_FIRST, &before));
    CHECK_OK(pst_step_get_times(&config, PST_STEP_LAST, &behind));
    const uint64_t forward =
        before.visit_forward.core + 32 * layer.visit_forward.core + behind.visit_forward.core;
    const uint64_t backward = passes_ns(&config, 32, true, true) - forward;
    const uint64_t reduced = (ends.reduce_ns + parts - 1) / parts;
    const uint64_t gathered = (ends.gather_ns + parts - 1) / parts;
    CHECK(reduced > backward / parts && gathered > forward / parts);
    CHECK_EQ(beside.gradients_ns, parts * reduced - (backward * (parts - 1) + parts - 1) / parts);
    CHECK_EQ(beside.params_ns, parts * gathered - (forward * (parts - 1) + parts - 1) / parts);
    CHECK_EQ(beside.gradients_ns + beside.params_ns + beside.hidden_ends_ns,
             ends.reduce_ns + ends.gather_ns);
}

/* Weights that are gathered for each pass of each micro-batch: of each call what is longer than that. */
PST_TEST(Step, ShardedWeights)
{
    pst_gpu gpu = gpu_of("h100");
    pst_estimate_config run = llama(1, 32);
    pst_step_config config = PST_STEP_CONFIG_INIT;
    psti_step_ends ends;
    psti_step step;
    gpu.node_gpus = 1;
    run.world_size = 8;
    run.distributed_optimizer = true;
    run.sharding = PST_SHARDING_WEIGHTS;
    config.run = &run;
    config.gpu = &gpu;
    CHECK_OK(psti_step_open(&config, true, &step));
    CHECK_OK(psti_step_ends_of(&step, 0, &ends));
    const psti_collectives num = psti_collectives_of(&step.run);
    CHECK(num.gathers > 1);
    pst_step_times layer, before, behind;
    CHECK_OK(pst_step_get_times(&config, PST_STEP_DENSE, &layer));
    CHECK_OK(pst_step_get_times(&config, PST_STEP_FIRST, &before));
    CHECK_OK(pst_step_get_times(&config, PST_STEP_LAST, &behind));
    const uint64_t forward =
        before.visit_forward.core + 32 * layer.visit_forward.core + behind.visit_forward.core;
    const uint64_t one = (ends.gather_ns + num.gathers - 1) / num.gathers;
    CHECK(one > forward);
    const pst_step_stage of = predict(&config, NULL).of_busiest;
    CHECK_EQ(of.params_ns, num.gathers * (one - forward));
    const uint64_t backward = before.visit_input.core + before.visit_weight.core +
                              32 * (layer.visit_input.core + layer.visit_weight.core) +
                              behind.visit_input.core + behind.visit_weight.core;
    const uint64_t reduction = (ends.reduce_ns + num.reductions - 1) / num.reductions;
    CHECK_EQ(of.gradients_ns, reduction > backward ? num.reductions * (reduction - backward) : 0);
}

/* 6 N D and attention, over the peak. */
PST_TEST(Step, Utilization)
{
    const pst_gpu gpu = gpu_of("a100");
    pst_estimate_config run = llama(1, 4);
    pst_step_config config = PST_STEP_CONFIG_INIT;
    run.padded_vocab_size = run.vocab_size;
    config.run = &run;
    config.gpu = &gpu;
    const pst_step_prediction of = predict(&config, NULL);
    const uint64_t tokens = 4 * 2048, vectors = 65 * 4096;
    const uint64_t met = UINT64_C(6738415616) - 32000 * UINT64_C(4096) - vectors;
    CHECK_EQ(of.tokens, tokens);
    CHECK_EQ(of.model_flops, 6 * met * tokens + 6 * 32 * tokens * 2048 * 4096);
    const uint64_t ideal_ns = of.model_flops / 312000 + 1;
    CHECK_EQ(of.mfu_per_mille, (1000 * ideal_ns + of.step_ns - 1) / of.step_ns);
    run.recompute_layers = 1;
    CHECK_EQ(predict(&config, NULL).model_flops, of.model_flops);
    run.has_flash_attention = false;
    CHECK_EQ(predict(&config, NULL).model_flops, of.model_flops);
}

/* ---- what is refused ---- */

static void expect_refused(const pst_step_config *config, pst_status status, const char *said)
{
    pst_step_prediction of;
    CHECK_STATUS(pst_step_predict(config, &of, NULL), status);
    CHECK_SAID(said);
}

PST_TEST(Step, RefusesGpus)
{
    pst_estimate_config run = llama(1, 1);
    pst_gpu gpu = gpu_of("a100");
    pst_step_config config = PST_STEP_CONFIG_INIT;
    config.run = &run;
    expect_refused(&config, PST_E_INVALID, "gpu is NULL");
    config.gpu = &gpu;
    run.fp8 = PST_FP8_TENSORWISE;
    expect_refused(&config, PST_E_INVALID, "gpu.fp8_flops 0: the run has products in fp8");
    run.fp8 = PST_FP8_NONE;
    gpu.product_per_mille = 1001;
    expect_refused(&config, PST_E_INVALID, "gpu.product_per_mille 1001: allowed are 1 to 1000");
    gpu = gpu_of("a100");
    gpu.memory_per_mille = 0;
    expect_refused(&config, PST_E_INVALID, "gpu.memory_per_mille 0: allowed are 1 to 1000");
    gpu = gpu_of("a100");
    gpu.link_rate = 0;
    expect_refused(&config, PST_E_INVALID, "gpu.link_rate 0: allowed are 1 to 1152921504606846976");
    gpu = gpu_of("a100");
    gpu.kernel_ns = UINT64_MAX;
    expect_refused(&config, PST_E_INVALID,
                   "gpu.kernel_ns 18446744073709551615: at most 1000000000");
    gpu = gpu_of("a100");
    gpu.node_gpus = 0;
    expect_refused(&config, PST_E_INVALID, "gpu.node_gpus 0: at least 1");
    gpu = gpu_of("a100");
    gpu.struct_size = 8;
    expect_refused(&config, PST_E_INVALID, "struct_size");
    CHECK_STATUS(pst_gpu_find("v100", &gpu), PST_E_INVALID);
    CHECK_SAID("name v100: allowed are a100, h100, h200, b200, b300, gb200");
    CHECK_STR(pst_gpu_name(0), "a100");
    CHECK_EQ(gpu_of("a100").memory_bytes, UINT64_C(80) << 30);
    CHECK_EQ(gpu_of("gb200").memory_bytes, UINT64_C(189471) << 20);
    CHECK(pst_gpu_name(6) == NULL && pst_gpu_name(UINT32_MAX) == NULL);
}

PST_TEST(Step, RefusesRuns)
{
    const pst_gpu gpu = gpu_of("a100");
    pst_estimate_config run = llama(2, 4);
    pst_step_config config = PST_STEP_CONFIG_INIT;
    pst_step_times times;
    config.gpu = &gpu;
    expect_refused(&config, PST_E_INVALID, "run is NULL");
    config.run = &run;
    config.overlaps = 64;
    expect_refused(&config, PST_E_INVALID, "overlaps 0x40: allowed are bits of 0xf");
    config.overlaps = 0;
    config.schedule = PST_SCHEDULE_DUALPIPE;
    expect_refused(&config, PST_E_UNSUPPORTED, "schedule 7: allowed are 1F1B");
    config.schedule = PST_SCHEDULE_ZB_H1;
    run.virtual_stages = 2;
    expect_refused(&config, PST_E_UNSUPPORTED, "schedule 4: virtual_stages is 2");
    config.schedule = PST_SCHEDULE_1F1B;
    run.virtual_stages = 0;
    run.global_batch = UINT64_C(1) << 21;
    expect_refused(&config, PST_E_INVALID,
                   "global_batch: 2097152 micro-batches: at most 1048576 can be simulated");
    run.global_batch = 4;
    CHECK_STATUS(pst_step_get_times(&config, PST_NUM_STEP_PARTS, &times), PST_E_INVALID);
    CHECK_SAID("part 4: allowed are 0 to 3");
    CHECK_STATUS(pst_step_get_times(&config, PST_STEP_MOE, &times), PST_E_INVALID);
    CHECK_SAID("num_experts 0");
    run.sequence_size = UINT64_C(1) << 40;
    expect_refused(&config, PST_E_INVALID, "config: saved activations exceed 64 bits");
}

/* Whatever sizes there are: an answer that is not wrapped, or one line. */
PST_TEST(Step, HostileSizes)
{
    psti_random_run run = {.state = 46};
    for (uint32_t i = 0; i < psti_test_cases(2000); i++) {
        pst_gpu gpu = gpu_of("h100");
        pst_step_config config = PST_STEP_CONFIG_INIT;
        pst_step_prediction of;
        psti_draw_run(&run);
        const size_t field = psti_random_below(&run.state, psti_num_fields);
        if (psti_fields[field].is_whole)
            *psti_field_of(&run.config, field) = UINT64_C(1) << psti_random_below(&run.state, 64);
        gpu.flops = UINT64_C(1) << psti_random_below(&run.state, 61);
        config.run = &run.config;
        config.gpu = &gpu;
        pst_step_times times;
        pst_status status = pst_step_get_times(&config, PST_STEP_DENSE, &times);
        CHECK(status == PST_OK ||
              (pst_last_message()[0] != 0 && strchr(pst_last_message(), '\n') == NULL));
        if (psti_fields[field].offset == offsetof(pst_estimate_config, global_batch) ||
            psti_fields[field].offset == offsetof(pst_estimate_config, world_size))
            continue; /* of very many micro-batches, which take their time */
        status = pst_step_predict(&config, &of, NULL);
        if (status == PST_OK)
            CHECK(of.step_ns < UINT64_C(1) << 62 && of.span_ns <= of.step_ns);
        else
            CHECK(pst_last_message()[0] != 0 && strchr(pst_last_message(), '\n') == NULL);
    }
}
