/* What a simulation says as text, and whether it fits. */
#include "tools/common/json_out.h"
#include "tools/common/metrics.h"
#include "tools/simulate/simulate_command.h"
#include "tools/simulate/simulate_figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *simulate_visit_text(const pst_visit_key *visit, char out[96])
{
    static const char *const names[] = {"forward", "backward", "input backward", "weight backward"};
    const uint32_t kind = (uint32_t)visit->kind < 4 ? (uint32_t)visit->kind : 0;
    snprintf(out, 96, "%s of chunk %" PRIu32 ", layer %" PRIu32 ", micro-batch %" PRIu32,
             names[kind], visit->chunk, visit->layer, visit->micro_batch);
    return out;
}

/* ---- figures of all stages ---- */

uint64_t simulate_sum(const simulate_model *model, const pst_stage_result *stages,
                      simulate_figure_fn figure)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < model->num_stages; s++)
        sum += figure(&stages[s]);
    return sum;
}

uint64_t simulate_most(const simulate_model *model, const pst_stage_result *stages,
                       simulate_figure_fn figure)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < model->num_stages; s++)
        most = figure(&stages[s]) > most ? figure(&stages[s]) : most;
    return most;
}

#define SIMULATE_FIGURE(name, value)                         \
    uint64_t simulate_##name(const pst_stage_result *result) \
    {                                                        \
        return value;                                        \
    }
SIMULATE_FIGURES(SIMULATE_FIGURE)

double simulate_bubble_share(const simulate_model *model, const simulate_result *result)
{
    const double all = (double)result->simulation.makespan_ns * model->num_stages;
    return all > 0.0 ? (double)simulate_sum(model, result->stages, simulate_bubble) / all : 0.0;
}

double simulate_link_share(const simulate_model *model, const simulate_result *result)
{
    const double all = (double)result->simulation.makespan_ns;
    return all > 0.0 ? (double)simulate_most(model, result->stages, simulate_link_busy) / all : 0.0;
}

const pst_stage_result *simulate_worst(const simulate_model *model, const simulate_result *result,
                                       uint32_t *rank_out)
{
    const pst_stage_result *worst = NULL;
    for (uint32_t s = 0; s < model->num_stages; s++)
        if (result->stages[s].worst_ns > (worst != NULL ? worst->worst_ns : 0)) {
            worst = &result->stages[s];
            *rank_out = model->stages[s].rank;
        }
    return worst;
}

/* ---- text ---- */

static void print_pages(const char *what, uint64_t used, uint64_t pages)
{
    if (pages == SIMULATE_AUTO)
        printf("%s: %" PRIu64 " (as many as it takes)\n", what, used);
    else
        printf("%s: %" PRIu64 " of %" PRIu64 "\n", what, used, pages);
}

static void print_head(const simulate_job *job, const simulate_model *model,
                       const simulate_result *result)
{
    const pst_schedule_info *info = &model->stages[0].info;
    printf("schedule: %s, %" PRIu32 " stages, %" PRIu32 " chunks, %" PRIu32 " micro-batches, ",
           job->options->schedule, info->config.num_stages, info->config.num_chunks,
           info->config.num_micro_batches);
    printf("%" PRIu64 " layers\n", model->num_model_layers);
    if (model->config.alone)
        printf("rank: %" PRIu32 " alone\n", model->stages[0].rank);
    if (job->has_routing && job->routing.model.routing == NULL)
        printf("rows of each visit: %" PRIu64 ", evenly routed\n", job->config.moe.balanced_rows);
    else if (job->has_routing) {
        const replay_trace *trace = &job->routing.trace;
        const uint64_t used = result->num_iterations * job->routing.num_micro_batches;
        fputs("trace: ", stdout);
        tool_put(job->routing.model.routing);
        printf(": steps %" PRIu64 ":%" PRIu64 " of %" PRIu64 ":%" PRIu64 ", layers 0:%" PRIu32 "\n",
               trace->step_begin,
               trace->step_begin + (job->routing.is_balanced ? trace->steps : used),
               trace->step_begin, trace->step_begin + trace->steps, trace->layers);
        printf("iteration: %" PRIu64 " of %" PRIu64 ", the one with most pages\n",
               result->iteration, result->num_iterations);
    }
}

static void print_time(const simulate_model *model, const simulate_result *result)
{
    const pst_stage_result *stages = result->stages;
    uint32_t rank = 0;
    char text[96];
    printf("makespan ns: %" PRIu64 "\n", result->simulation.makespan_ns);
    printf("bubble share: %.4f\n", simulate_bubble_share(model, result));
    printf("exposed ns, forward: %" PRIu64 "\n",
           simulate_sum(model, stages, simulate_exposed_forward));
    printf("exposed ns, backward: %" PRIu64 "\n",
           simulate_sum(model, stages, simulate_exposed_backward));
    if (simulate_most(model, stages, simulate_link_busy) > 0)
        printf("link share: %.4f\n", simulate_link_share(model, result));
    const pst_stage_result *worst = simulate_worst(model, result, &rank);
    if (worst != NULL)
        printf("worst layer: %s on rank %" PRIu32 " waits %" PRIu64 " ns\n",
               simulate_visit_text(&worst->worst, text), rank, worst->worst_ns);
}

static void print_summary(const simulate_model *model, const simulate_result *result)
{
    const pst_stage_result *stages = result->stages;
    const uint64_t num = result->num_iterations;
    const uint64_t *demands = result->demands + model->num_stages * num;
    print_time(model, result);
    print_pages("high water pages", simulate_most(model, stages, simulate_high_water),
                model->config.num_pages[0]);
    if (model->config.num_pages[1] > 0)
        print_pages("high water host pages", simulate_most(model, stages, simulate_high_water_host),
                    model->config.num_pages[1]);
    printf("tickets: %" PRIu64 "\n", simulate_most(model, stages, simulate_tickets));
    printf("recommended pages p50: %" PRIu64 "\n", simulate_quantile(demands, num, 500));
    printf("recommended pages p99: %" PRIu64 "\n", simulate_quantile(demands, num, 990));
    printf("recommended pages all: %" PRIu64 "\n", simulate_quantile(demands, num, 1000));
}

/* ---- the table: a row for each rank, as wide as its figures, of what applies ---- */

enum { MOST_COLUMNS = 16, TABLE_WIDTH = 100 };

typedef struct table_column {
    char name[24];
    simulate_figure_fn figure; /* NULL: the rank */
    uint64_t unit;
    int width;
} table_column;

typedef struct rank_table {
    table_column columns[MOST_COLUMNS];
    size_t num;
    int width; /* of a line */
} rank_table;

static uint64_t table_figure(const table_column *column, const simulate_model *model,
                             const pst_stage_result *stages, uint32_t s)
{
    return column->figure == NULL ? model->stages[s].rank
                                  : column->figure(&stages[s]) / column->unit;
}

static void add_column(rank_table *table, const simulate_model *model,
                       const pst_stage_result *stages, table_column column)
{
    column.width = (int)strlen(column.name);
    for (uint32_t s = 0; s < model->num_stages; s++) {
        const uint64_t figure = table_figure(&column, model, stages, s);
        const int digits = snprintf(NULL, 0, "%" PRIu64, figure);
        column.width = digits > column.width ? digits : column.width;
    }
    column.width += table->num > 0 ? 2 : 0;
    table->width += column.width;
    table->columns[table->num++] = column;
}

static void make_table(rank_table *table, const simulate_model *model,
                       const pst_stage_result *stages, uint64_t unit, const char *unit_name)
{
    const struct {
        const char *name;
        simulate_figure_fn figure;
        bool is_time, is_shown;
    } rows[] = {
        {"rank", NULL, false, true},
        {"passes", simulate_passes, false, true},
        {"end", simulate_end, true, true},
        {"bubble", simulate_bubble, true, true},
        {"exp fwd", simulate_exposed_forward, true, true},
        {"exp bwd", simulate_exposed_backward, true, true},
        {"high water", simulate_high_water, false, true},
        {"host", simulate_high_water_host, false, model->config.num_pages[1] > 0},
        {"demand", simulate_demand, false, true},
        {"tickets", simulate_tickets, false, true},
        {"faults", simulate_faults, false, simulate_sum(model, stages, simulate_faults) > 0},
    };
    *table = (rank_table){.num = 0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        table_column column = {.figure = rows[i].figure, .unit = rows[i].is_time ? unit : 1};
        snprintf(column.name, sizeof(column.name), "%s%s%s", rows[i].name,
                 rows[i].is_time ? " " : "", rows[i].is_time ? unit_name : "");
        if (rows[i].is_shown)
            add_column(table, model, stages, column);
    }
}

/* Times in nanoseconds where these leave room, else in the next larger unit that does, whole ones. */
static void print_table(const simulate_model *model, const pst_stage_result *stages)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    uint64_t unit = 1;
    rank_table table;
    for (size_t i = 0; i < 4; i++, unit *= 1000) {
        make_table(&table, model, stages, unit, units[i]);
        if (table.width <= TABLE_WIDTH)
            break;
    }
    for (size_t i = 0; i < table.num; i++)
        printf("%*s", table.columns[i].width, table.columns[i].name);
    putchar('\n');
    for (uint32_t s = 0; s < model->num_stages; s++) {
        for (size_t i = 0; i < table.num; i++)
            printf("%*" PRIu64, table.columns[i].width,
                   table_figure(&table.columns[i], model, stages, s));
        putchar('\n');
    }
}

/* ---- text ---- */

static void print_policy(const simulate_solution *solution)
{
    const pst_policy *policy = &solution->policy;
    char gpu[32];
    char host[32];
    char total[32];
    uint64_t recomputed = 0;
    uint64_t moved = 0;
    for (uint64_t i = 0; i < solution->num_choices; i++) {
        recomputed += solution->choices[i].keep == PST_KEEP_RECOMPUTED;
        moved += solution->choices[i].policy.host_num > 0;
    }
    printf("policy: rule %s, %" PRIu32 " + %" PRIu32 " sets%s, ahead %" PRIu32 ", %" PRIu32
           " streams, %" PRIu64 " layers with host pages, %" PRIu64 " recomputed%s\n",
           policy->rule == PST_RESTORE_NEXT ? "next" : "asap", policy->num_sources,
           policy->num_destinations, policy->one_ring ? " in one ring" : "", policy->ahead,
           policy->num_streams, moved, recomputed, policy->is_optimal ? ", optimal" : "");
    printf("policy pages: %" PRIu64 " and %" PRIu64 " on the host, of %" PRIu64 " bytes\n",
           policy->num_pages, policy->num_host_pages, policy->page_bytes);
    printf("policy memory: GPU %s, host %s, in all %s\n", metrics_human(policy->gpu_bytes, gpu),
           metrics_human(policy->host_bytes, host), metrics_human(policy->total_bytes, total));
    printf("policy exposed ns: %" PRIu64 ", at least %" PRIu64 "\n", policy->exposed_ns,
           policy->exposed_bound_ns);
}

static void print_text(const simulate_job *job, const simulate_model *model,
                       const simulate_result *result)
{
    print_head(job, model, result);
    if (result->solution.is_asked)
        print_policy(&result->solution);
    print_summary(model, result);
    print_table(model, result->stages);
    if (result->has_next) {
        printf("with --rule next: makespan ns %" PRIu64 "\n", result->next.makespan_ns);
        print_table(model, result->next_stages);
    }
    if (result->stages[0].order_is_simulated)
        puts("pages of several streams: in the order of simulated time, which a GPU need not "
             "follow");
    if (job->options->check >= 0)
        printf("check: %" PRIu64 " operations, %" PRIu64 " differences\n",
               result->checked_operations, result->num_differences);
}

/* ---- the verdict ---- */

static int judge_policy(const pst_policy *policy)
{
    return tool_fail(TOOL_NO,
                     "--solve: nothing fits: the best choice lacks %" PRIu64
                     " bytes of GPU memory and %" PRIu64 " bytes of host memory",
                     policy->missing_gpu_bytes, policy->missing_host_bytes);
}

static int judge_pages(const simulate_model *model, const simulate_result *result)
{
    const uint64_t host =
        model->config.num_pages[1] == SIMULATE_AUTO ? 0 : model->config.num_pages[1];
    char text[96];
    for (uint32_t s = 0; s < model->num_stages; s++) {
        const pst_stage_result *stage = &result->stages[s];
        if (stage->num_faults > 0)
            return tool_fail(
                TOOL_NO,
                "rank %" PRIu32 ": %" PRIu64 " faults in iteration %" PRIu64 " (%" PRIu64
                " of %" PRIu64 " do not fit), the first at the %s: %s: "
                "wanted %" PRIu64 ", free %" PRIu64 " + %" PRIu64 ": --pages %" PRIu64 " would do",
                model->stages[s].rank, stage->num_faults, result->iteration, result->num_unfit,
                result->num_iterations, simulate_visit_text(&stage->fault_visit, text),
                pst_fault_text(stage->fault), stage->fault_wanted, stage->fault_free[0],
                stage->fault_free[1], result->most_demand > host ? result->most_demand - host : 1);
    }
    if (result->num_unfit > 0)
        return tool_fail(TOOL_NO, "%" PRIu64 " of %" PRIu64 " iterations do not fit",
                         result->num_unfit, result->num_iterations);
    return TOOL_OK;
}

int simulate_report(const simulate_job *job, const simulate_model *model,
                    const simulate_result *result)
{
    int code = TOOL_OK;
    if (job->options->json != NULL)
        code = simulate_write_json(job, model, result);
    if (!json_is_stdout(job->options->json))
        print_text(job, model, result);
    int verdict = result->num_differences > 0 ? TOOL_NO : TOOL_OK; /* each was said */
    if (result->simulation.deadlocked)
        verdict = tool_fail(TOOL_NO, "deadlock: %s", result->simulation.deadlock);
    else if (result->solution.is_asked && !result->solution.policy.fits)
        verdict = judge_policy(&result->solution.policy);
    else if (verdict == TOOL_OK)
        verdict = judge_pages(model, result);
    return tool_flush(code != TOOL_OK ? code : verdict);
}
