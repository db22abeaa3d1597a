/* What compiling a program and solving for a policy take: no device. */
#include "bench/schedule/schedule_bench.h"
#include "host/program/program.h"

enum { STAGES = 16, LAYERS = 61, COMPILED_MICRO_BATCHES = 512, SOLVED_MICRO_BATCHES = 64 };

static pst_schedule *make_schedule(uint32_t stage, uint32_t num_micro_batches)
{
    pst_schedule *schedule;
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.num_stages = STAGES;
    config.stage = stage;
    config.num_micro_batches = num_micro_batches;
    bench_check_status(pst_schedule_create(&config, &schedule));
    return schedule;
}

static void time_compile(const bench_options *options, bench_pure_cost *out)
{
    static bench_series series;
    static psti_program_layer layers[LAYERS];
    const uint32_t num_layers = LAYERS;
    pst_schedule *schedule = make_schedule(0, COMPILED_MICRO_BATCHES);
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (psti_program_layer){
            .keep = PST_KEEP_PAGED, .num_parts = 1, .uses = {PST_USE_BACKWARD | PST_USE_WEIGHT}};
    const psti_program_config config = {.schedule = schedule,
                                        .num_layers = &num_layers,
                                        .layers = layers,
                                        .num_sources = 2,
                                        .num_destinations = 2,
                                        .num_streams = 1};
    for (uint32_t i = 0; i <= options->samples; i++) {
        psti_program *program;
        const double begin = bench_now();
        bench_check_status(psti_program_make(&config, &program));
        const double seconds = bench_now() - begin;
        out->visits = program->num_visits;
        psti_program_free(program);
        if (i > 0)
            bench_series_add(&series, seconds * 1e9 / (double)out->visits);
    }
    out->compile_ns = bench_summary(&series);
    pst_schedule_destroy(schedule);
}

typedef struct model {
    pst_schedule *schedules[STAGES];
    pst_simulated_layer layers[STAGES][LAYERS];
    const pst_schedule *stage_schedules[STAGES];
    const pst_simulated_layer *stage_layers[STAGES];
    uint32_t num_layers[STAGES];
    pst_group_usage usages[LAYERS][SOLVED_MICRO_BATCHES];
    pst_simulation_config config;
} model;

/* 61 layers on 16 stages, visits of different sizes. */
static void make_model(model *self)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < LAYERS; i++)
        for (uint32_t m = 0; m < SOLVED_MICRO_BATCHES; m++) {
            const uint64_t pages = 40 + (5 * m + 3 * i) % 23;
            self->usages[i][m] = (pst_group_usage){pages * 260000, pages << 18, pages};
        }
    for (uint32_t s = 0; s < STAGES; s++) {
        self->num_layers[s] = LAYERS / STAGES + (s < LAYERS % STAGES);
        self->schedules[s] = make_schedule(s, SOLVED_MICRO_BATCHES);
        self->stage_schedules[s] = self->schedules[s];
        self->stage_layers[s] = self->layers[s];
        for (uint32_t i = 0; i < self->num_layers[s]; i++) {
            pst_simulated_layer *layer = &self->layers[s][i];
            *layer = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            layer->layer = i;
            layer->forward = (pst_times){100000, 400000, 100000};
            layer->backward = (pst_times){200000, 800000, 200000};
            layer->usages = self->usages[first + i];
            layer->num_usages = SOLVED_MICRO_BATCHES;
        }
        first += self->num_layers[s];
    }
    self->config = (pst_simulation_config)PST_SIMULATION_CONFIG_INIT;
    self->config.num_stages = STAGES;
    self->config.schedules = self->stage_schedules;
    self->config.layers = self->stage_layers;
    self->config.num_layers = self->num_layers;
    self->config.num_pages[0] = self->config.num_pages[1] = UINT64_MAX;
    self->config.rates = (pst_simulated_rates){.stash_fixed_ns = 5000,
                                               .restore_fixed_ns = 5000,
                                               .stash_rate = UINT64_C(1000000000000),
                                               .restore_rate = UINT64_C(1000000000000),
                                               .out_rate = UINT64_C(50000000000),
                                               .in_rate = UINT64_C(50000000000)};
}

static bench_times time_policy(const bench_options *options, const model *of, uint64_t gpu_bytes,
                               uint64_t *needed_out, uint64_t *evaluations_out, bool *fits_out)
{
    static bench_series series;
    static pst_layer_choice choices[LAYERS];
    pst_policy policy = {.fits = false};
    pst_policy_config config = PST_POLICY_CONFIG_INIT;
    series.num = 0;
    config.simulation = &of->config;
    config.gpu_bytes = gpu_bytes;
    config.host_bytes = PST_POLICY_UNLIMITED;
    config.set_bytes = UINT64_C(40) << 20;
    for (uint32_t i = 0; i < (options->samples + 4) / 5; i++) {
        const double begin = bench_now();
        bench_check_status(pst_policy_solve(&config, &policy, choices, NULL));
        bench_series_add(&series, bench_now() - begin);
    }
    *needed_out = policy.gpu_bytes;
    *evaluations_out = policy.evaluations;
    *fits_out = policy.fits;
    return bench_summary(&series);
}

int bench_measure_pure(const bench_options *options, bench_pure_cost *out)
{
    static model solved;
    uint64_t needed, scarce;
    *out = (bench_pure_cost){.visits = 0};
    time_compile(options, out);
    make_model(&solved);
    out->policy_seconds = time_policy(options, &solved, PST_POLICY_UNLIMITED, &needed,
                                      &out->evaluations[0], &out->fits[0]);
    out->scarce_seconds =
        time_policy(options, &solved, needed / 4 * 3, &scarce, &out->evaluations[1], &out->fits[1]);
    for (uint32_t s = 0; s < STAGES; s++)
        pst_schedule_destroy(solved.schedules[s]);
    return TOOL_OK;
}
