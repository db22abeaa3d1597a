/* The report of a plan as text, and what is wrong with it in one line. */
#include "tools/common/json_out.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROOF_SHOWN = 3 };

typedef unsigned long long wide;

double plan_gap(uint64_t peak, uint64_t bound)
{
    return bound == 0 ? 0.0 : (double)(peak - bound) / (double)bound;
}

static bool is_too_high(const plan_job *job)
{
    return job->problem.capacity != 0 && job->plan.status != PST_PLAN_IMPOSSIBLE &&
           job->plan.peak > job->problem.capacity;
}

const char *plan_ended_by(const pst_plan *plan)
{
    return plan->is_over         ? "deadline"
           : plan->out_of_steps  ? "steps"
           : plan->out_of_memory ? "memory"
                                 : "";
}

bool plan_is_live(const plan_job *job, uint64_t k, uint64_t instant)
{
    return job->tensors[k].begin <= instant && instant < job->tensors[k].end;
}

/* ---- text */

static void print_bytes(const char *name, uint64_t bytes)
{
    if (bytes < 1 << 20)
        printf("%s: %llu\n", name, (wide)bytes);
    else
        printf("%s: %llu (%.1f MiB)\n", name, (wide)bytes, (double)bytes / (1 << 20));
}

static void print_idle(const plan_idle *idle, uint64_t num)
{
    for (uint64_t k = 0; k < num; k++) {
        printf("idle %s:%s: %llu bytes:", idle[k].from, idle[k].to, (wide)idle[k].bytes);
        for (uint64_t r = 0; r < idle[k].num_ranges; r++)
            printf(" %llu:%llu", (wide)idle[k].ranges[r].begin, (wide)idle[k].ranges[r].end);
        putchar('\n');
    }
}

static void print_swap(const pst_swap_choice *swap)
{
    static const char *const limits[] = {"all may go", "by the link", "by host memory",
                                         "cannot hide"};
    if (swap->limit == PST_SWAP_IMPOSSIBLE)
        printf(
            "swap: not even input and attention output hide behind a layer's forward: %llu bytes "
            "(%.3f ms) too many for the link, %llu bytes of host memory missing\n",
            (wide)swap->missing_link_bytes, (double)swap->missing_nanoseconds / 1e6,
            (wide)swap->missing_host_bytes);
    else
        printf("swap: at most %llu of %llu tokens (%s)\n", (wide)swap->num, (wide)swap->den,
               limits[swap->limit]);
}

static void print_budget(const plan_budget *budget)
{
    const pst_memory_map *map = &budget->map;
    if (budget->has_swap)
        print_swap(&budget->swap);
    if (budget->iterations > 0)
        printf("demand: %llu pages at the quantile, %llu at most, of %llu bytes, %llu iterations\n",
               (wide)budget->demand_quantile, (wide)budget->demand_max, (wide)budget->page_bytes,
               (wide)budget->iterations);
    if (!map->fits) {
        printf("fits: no\n");
        return;
    }
    printf("fits: yes\n");
    for (int region = 0; region < PST_NUM_REGIONS; region++)
        if (map->regions[region].bytes > 0)
            printf("%s: at %llu, %llu bytes\n", pst_memory_map_region_name((pst_region_kind)region),
                   (wide)map->regions[region].offset, (wide)map->regions[region].bytes);
    print_bytes("spare", map->spare_bytes);
    printf("device pages: %llu\nhost pages: %llu\ntokens swapped: %llu\n", (wide)map->num_pages,
           (wide)map->num_host_pages, (wide)map->num_tokens);
    print_bytes("traffic per iteration", map->traffic_bytes);
}

static void print_text(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                       const plan_budget *budget)
{
    const pst_plan *plan = &job->plan;
    printf("trace: %s: %llu tensors, alignment %llu\n", job->path, (wide)job->problem.num_tensors,
           (wide)job->problem.align);
    printf("status: %s\n", pst_plan_status_name(plan->status));
    if (plan->status != PST_PLAN_IMPOSSIBLE)
        print_bytes("peak", plan->peak);
    print_bytes("lower bound", plan->lower_bound);
    if (plan->status != PST_PLAN_IMPOSSIBLE)
        printf("gap: %.4f %%\n", 100.0 * plan_gap(plan->peak, plan->lower_bound));
    if (job->has_flat)
        printf("cost of two levels: %.2f %% (flat: %llu, %s)\n",
               100.0 * plan_gap(plan->peak, job->flat.peak), (wide)job->flat.peak,
               pst_plan_status_name(job->flat.status));
    printf("stage: %s\nseed: %llu\nsteps: %llu\nseconds: %.6f\n",
           job->options->method == PLAN_MIP ? "mip" : pst_plan_stage_name(plan->stage),
           (wide)plan->seed, (wide)plan->steps, job->seconds);
    if (*plan_ended_by(plan) != '\0' && job->options->method == PLAN_SEARCH)
        printf("ended by: %s\n", plan_ended_by(plan));
    if (plan->status != PST_PLAN_IMPOSSIBLE)
        printf("checked: yes\n");
    print_idle(idle, num_idle);
    if (budget != NULL)
        print_budget(budget);
}

/* ---- what is wrong, in one line */

/* The largest of the tensors that are live at the instant. */
static void name_largest(const plan_job *job, char *out, size_t bytes)
{
    uint64_t below = UINT64_MAX;
    uint64_t last = UINT64_MAX;
    size_t used = 0;
    for (int shown = 0; shown < PROOF_SHOWN; shown++) {
        uint64_t best = UINT64_MAX;
        for (uint64_t k = 0; k < job->problem.num_tensors; k++) {
            const uint64_t size = job->tensors[k].bytes;
            const bool is_next = size < below || (size == below && k > last);
            if (plan_is_live(job, k, job->plan.bound_instant) && is_next && last != k &&
                (best == UINT64_MAX || size > job->tensors[best].bytes))
                best = k;
        }
        if (best == UINT64_MAX)
            return;
        below = job->tensors[best].bytes;
        last = best;
        used += (size_t)snprintf(out + used, bytes - used, "%s%llu (line %llu, %llu bytes)",
                                 shown > 0 ? ", " : "", (wide)job->all[job->which[best]].id,
                                 (wide)job->all[job->which[best]].line, (wide)below);
    }
}

static int explain(const plan_job *job, const plan_budget *budget)
{
    const pst_plan *plan = &job->plan;
    char largest[256] = "";
    char gpu[48] = "no amount would do";
    if (plan->status == PST_PLAN_IMPOSSIBLE && plan->stage == PST_STAGE_BOUND) {
        name_largest(job, largest, sizeof(largest));
        return tool_fail(TOOL_NO,
                         "--capacity %llu: impossible: %llu bytes are live at instant %llu, the "
                         "largest are tensors %s; at least %llu are needed",
                         (wide)job->problem.capacity, (wide)plan->most_live_bytes,
                         (wide)plan->bound_instant, largest, (wide)plan->lower_bound);
    }
    if (plan->status == PST_PLAN_IMPOSSIBLE)
        return tool_fail(
            TOOL_NO,
            "--capacity %llu: impossible: the search proves that at least %llu bytes are "
            "needed",
            (wide)job->problem.capacity,
            (wide)(plan->mode_bound > plan->lower_bound ? plan->mode_bound : plan->lower_bound));
    if (is_too_high(job))
        return tool_fail(TOOL_NO,
                         "--capacity %llu: no plan found; the best has %llu bytes, %llu are proved "
                         "to be needed",
                         (wide)job->problem.capacity, (wide)plan->peak, (wide)plan->lower_bound);
    if (budget == NULL || budget->map.fits)
        return TOOL_OK;
    if (budget->map.missing_gpu_bytes != PST_MEMORY_MAP_NEVER)
        snprintf(gpu, sizeof(gpu), "%llu bytes more would do", (wide)budget->map.missing_gpu_bytes);
    char host[48] = "no amount would do";
    if (budget->map.missing_host_bytes != PST_MEMORY_MAP_NEVER)
        snprintf(host, sizeof(host), "%llu bytes more would do",
                 (wide)budget->map.missing_host_bytes);
    return tool_fail(
        TOOL_NO,
        "--gpu-memory %llu: does not fit: of it alone %s; of --host-memory (%llu) alone "
        "%s",
        (wide)budget->gpu_bytes, gpu, (wide)budget->host_bytes, host);
}

int plan_report(const plan_job *job, const plan_idle *idle, uint64_t num_idle,
                const plan_budget *budget)
{
    int code = TOOL_OK;
    const char *json = job->options->json;
    if (json != NULL)
        code = plan_write_json(job, idle, num_idle, budget);
    if (!json_is_stdout(json))
        print_text(job, idle, num_idle, budget);
    if (code == TOOL_OK)
        code = explain(job, budget);
    return tool_flush(code);
}
