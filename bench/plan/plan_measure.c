/* One instance over seeds and threads, and its rows. */
#include "bench/plan/plan_bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define SHORT_SECONDS 2.0 /* of the processor: a run that is repeated with other seeds */

options chosen;
json_t *rows;
FILE *table;

static bool is_over(void *deadline)
{
    return bench_now() > *(const double *)deadline;
}

void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (table != NULL) {
        tool_progress("part", 1, 1); /* the line is free again */
        vfprintf(table, format, arguments);
        fflush(table);
    }
    va_end(arguments);
}

static pst_plan_problem problem_of(const instance *of)
{
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    problem.tensors = of->tensors;
    problem.num_tensors = of->num_tensors;
    problem.align = of->align;
    problem.capacity = of->capacity;
    problem.blocks = of->blocks;
    problem.num_blocks = of->num_blocks;
    return problem;
}

effort run_with(const instance *of, const pst_plan_config *config, uint64_t *offsets,
                pst_plan *plan)
{
    const pst_plan_problem problem = problem_of(of);
    const effort begin = {bench_now(), bench_cpu()};
    bench_check_status(pst_plan_run(&problem, config, offsets, plan));
    return (effort){bench_now() - begin.wall, bench_cpu() - begin.cpu};
}

void check_plan(const instance *of, const uint64_t *offsets, const pst_plan *plan)
{
    pst_plan_problem problem = problem_of(of);
    pst_plan_fault fault;
    uint64_t peak;
    problem.capacity = 0;
    bench_check_status(pst_plan_check(&problem, offsets, &fault, &peak));
    if (fault.kind != PST_PLAN_RIGHT || peak != plan->peak)
        exit(tool_fail(TOOL_NO, "a plan is wrong"));
}

effort run_once(const instance *of, uint64_t seed, uint32_t threads, uint64_t *offsets,
                pst_plan *plan)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    double deadline = bench_now() + chosen.deadline;
    config.seed = seed;
    config.num_threads = threads;
    config.is_over = is_over;
    config.user = &deadline;
    const effort taken = run_with(of, &config, offsets, plan);
    check_plan(of, offsets, plan);
    return taken;
}

/* A plan that is what was asked for. */
static bool is_done(const instance *of, const pst_plan *plan)
{
    return plan->status == PST_PLAN_OPTIMAL || (of->capacity != 0 && plan->peak <= of->capacity);
}

double gap_percent(const pst_plan *plan)
{
    return 100.0 * (double)(plan->peak - plan->lower_bound) / (double)plan->lower_bound;
}

typedef struct sweep {
    bench_series wall, cpu;
    uint32_t num_done;
    pst_plan plan; /* the last */
} sweep;

static void add_row(const instance *of, uint32_t threads, const sweep *all)
{
    const bench_times wall = bench_summary(&all->wall);
    const bench_times cpu = bench_summary(&all->cpu);
    const pst_plan *plan = &all->plan;
    const bool is_met = all->num_done == all->wall.num && wall.median <= of->target;
    const char *verdict = of->target <= 0.0 ? "-" : is_met ? "met" : "missed";
    const char *tail = !of->has_tail ? "-" : cpu.p90 <= 2 * cpu.median ? "met" : "missed";
    say("%-26s %7llu  %2u thread%s %2u of %-2u %-9s", of->name, (unsigned long long)of->num_tensors,
        threads, threads > 1 ? "s" : " ", all->num_done, all->wall.num,
        pst_plan_stage_name(plan->stage));
    if (of->target > 0.0)
        say("  target %.4g s %s", of->target, verdict);
    say("\n    %.6f s, p90 %.6f; processor %.6f, p90 %.6f, longest %.6f", wall.median, wall.p90,
        cpu.median, cpu.p90, cpu.max);
    if (plan->status == PST_PLAN_FEASIBLE)
        say("  +%.4f %%", gap_percent(plan));
    if (of->minimalloc > 0.0)
        say("\n    MiniMalloc %.2f, SuperMalloc %.2f", of->minimalloc, of->supermalloc);
    if (of->has_tail)
        say("\n    p90 target %.6f s %s", 2 * cpu.median, tail);
    say("\n");
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "tensors", of->num_tensors);
    json_put_whole(&row, "threads", threads);
    json_put_whole(&row, "runs", all->wall.num);
    json_put_whole(&row, "done", all->num_done);
    json_put_text(&row, "status", pst_plan_status_name(plan->status));
    json_put_text(&row, "stage", pst_plan_stage_name(plan->stage));
    json_put_whole(&row, "parts", plan->num_parts);
    json_put_whole(&row, "different_parts", plan->num_kinds);
    json_put_whole(&row, "periods", plan->num_periods);
    json_put_whole(&row, "peak", plan->peak);
    json_put_whole(&row, "lower_bound", plan->lower_bound);
    json_put(&row, "seconds", json_number(wall.median));
    json_put(&row, "p90_seconds", json_number(wall.p90));
    json_put(&row, "cpu_seconds", json_number(cpu.median));
    json_put(&row, "p90_cpu_seconds", json_number(cpu.p90));
    json_put(&row, "longest_cpu_seconds", json_number(cpu.max));
    json_put_text(&row, "tail_verdict", tail);
    json_put(&row, "target_seconds", json_number(of->target));
    json_put_text(&row, "verdict", verdict);
    json_add(&rows, row);
}

/* Over the seeds; a long run is not repeated. Returns the median of the processor's seconds. */
static double run_seeds(const instance *of, uint32_t threads)
{
    uint64_t *offsets = bench_need(calloc(of->num_tensors + 1, sizeof(*offsets)));
    sweep all = {.num_done = 0};
    effort taken = {0.0, 0.0};
    for (uint64_t seed = 0; seed < chosen.seeds && taken.cpu < SHORT_SECONDS; seed++) {
        taken = run_once(of, seed, threads, offsets, &all.plan);
        bench_series_add(&all.wall, taken.wall);
        bench_series_add(&all.cpu, taken.cpu);
        all.num_done += is_done(of, &all.plan);
    }
    add_row(of, threads, &all);
    free(offsets);
    return bench_summary(&all.cpu).median;
}

double run(const instance *of)
{
    const double alone = run_seeds(of, 1);
    if (chosen.threads > 1)
        (void)run_seeds(of, chosen.threads);
    return alone;
}

static bool is_spent(void *deadline)
{
    return bench_cpu() > *(const double *)deadline;
}

void run_deadline(const instance *of, double seconds)
{
    uint64_t *offsets = bench_need(calloc(of->num_tensors + 1, sizeof(*offsets)));
    bench_series late = {.num = 0};
    const double kept = 1e-9 * PST_PLAN_FINISH_NS * (double)of->num_tensors;
    pst_plan plan;
    for (int i = 0; i < PLAN_BENCH_SAMPLES; i++) {
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        double deadline = bench_cpu() + seconds - fmin(kept, seconds / 10);
        config.is_over = is_spent;
        config.user = &deadline;
        config.mode = of->blocks != NULL ? PST_PLAN_BILEVEL : PST_PLAN_FLAT;
        bench_series_add(&late, run_with(of, &config, offsets, &plan).cpu / seconds);
        if (i == 0) /* of a plan that was cut short the judge has much to look at */
            check_plan(of, offsets, &plan);
    }
    const bench_times times = bench_summary(&late);
    say("%-26s %7llu  deadline %.1f s: takes %.3f of it, p90 %.3f, target 1.1 %s; %s\n", of->name,
        (unsigned long long)of->num_tensors, seconds, times.median, times.p90,
        times.p90 <= 1.1 ? "met" : "missed", pst_plan_end_name(plan.end));
    json_t *row = json_object();
    json_put_text(&row, "name", of->name);
    json_put_whole(&row, "tensors", of->num_tensors);
    json_put(&row, "deadline_seconds", json_number(seconds));
    json_put(&row, "ends_after", json_number(times.median));
    json_put(&row, "p90_ends_after", json_number(times.p90));
    json_put_text(&row, "ended_by", pst_plan_end_name(plan.end));
    json_add(&rows, row);
    free(offsets);
}
