/* pagestash plan: an address for every tensor of a trace, with a proof. */
#include "tools/common/flags.h"
#include "tools/plan/mip.h"
#include "tools/plan/plan.h"
#include "tools/replay/replay_flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AT(member) offsetof(plan_options, member)
#define MAX_BYTES (UINT64_C(1) << 61)
#define MAX_SEED INT64_MAX /* JSON integers are signed */
#define MAX_PARTS (1u << 20)

static const flag flags[] = {
    {"trace", "FILE", FLAG_TEXT, 0, 0, AT(inputs[PST_TRACE_CSV]),
     "the trace: CSV with columns op,id,size,stream,phase,layer,micro_batch,rank,tag; - is stdin"},
    {"memo", "FILE", FLAG_TEXT, 0, 0, AT(inputs[PST_TRACE_MEMO]),
     "or lines \"malloc ID SIZE\", \"free ID\""},
    {"minimalloc", "FILE", FLAG_TEXT, 0, 0, AT(inputs[PST_TRACE_MINIMALLOC]),
     "or CSV with columns id,lower,upper,size"},
    {"stalloc", "FILE", FLAG_TEXT, 0, 0, AT(inputs[PST_TRACE_STALLOC]), "or STAlloc's text trace"},
    {"pytorch", "FILE", FLAG_TEXT, 0, 0, AT(inputs[PST_TRACE_PYTORCH]),
     "or a pickle of torch.cuda.memory._snapshot()"},
    {"trace-rank", "R", FLAG_U32, 0, UINT32_MAX - 1, AT(trace_rank),
     "requests of rank R (a trace of several ranks needs it)"},
    {"iteration", "K", FLAG_U32, 0, UINT32_MAX - 1, AT(iteration), "the K-th iteration only (all)"},
    {"trace-device", "D", FLAG_U32, 0, UINT32_MAX - 1, AT(device), "device D of a snapshot (0)"},
    {"keep-unfreed", NULL, FLAG_SWITCH, 0, 0, AT(keep_unfreed),
     "tensors never freed live to the end (refused)"},

    {"mode", "flat|bilevel", FLAG_CHOICE, 0, 0, AT(mode),
     "bilevel: the same addresses in every layer; reports what that costs (flat)"},
    {"method", "search|mip", FLAG_CHOICE, 0, 0, AT(method),
     "mip: MEMO's mixed-integer program through CBC, for small traces (search)"},
    {"align", "BYTES", FLAG_POWER_OF_2, 1, UINT64_C(1) << 30, AT(align),
     "of addresses and sizes (512; with --memo and --minimalloc 1)"},
    {"capacity", "BYTES", FLAG_SIZE, 1, MAX_BYTES, AT(capacity), "addresses there are (no limit)"},
    {"pin", "ID@OFFSET,...", FLAG_TEXT, 0, 0, AT(pins), "tensors that must have an address"},
    {"reserve", "A:B,...", FLAG_TEXT, 0, 0, AT(reserved), "addresses that no tensor may touch"},
    {"deadline", "SECONDS", FLAG_FACTOR, 0, 1000000, AT(deadline),
     "ends the search with the best plan so far (60)"},
    {"max-steps", "N", FLAG_U64, 1, MAX_SEED, AT(max_steps),
     "the same by steps, which are the same on every machine (2^40)"},
    {"search-memory", "BYTES", FLAG_SIZE, 1 << 20, MAX_BYTES, AT(search_memory),
     "most memory of the exact search (1GiB)"},
    {"threads", "N", FLAG_U32, 1, 64, AT(threads),
     "threads; only 1 gives the same plan always (1)"},
    {"seed", "N", FLAG_U64, 0, MAX_SEED, AT(seed), "of random choices (0)"},
    {"mip-model", "FILE", FLAG_TEXT, 0, 0, AT(mip_model),
     "write MEMO's program as a CPLEX LP file, and no plan"},
    {"mip-no-cut", NULL, FLAG_SWITCH, 0, 0, AT(no_cut),
     "the program as printed, without the bound by the load"},

    {"gpu-memory", "BYTES", FLAG_SIZE, 1, MAX_BYTES, AT(gpu_memory),
     "lay plan, pages, rounding buffers and reserve out in so much memory"},
    {"host-memory", "BYTES", FLAG_SIZE, 1, MAX_BYTES, AT(host_memory),
     "pinned memory for spilled pages and swapped tensors (0)"},
    {"reserve-memory", "BYTES", FLAG_SIZE, 1, MAX_BYTES, AT(reserve_memory),
     "left to others on the GPU (0)"},
    {"quantile", "X", FLAG_FACTOR, 0, 1, AT(quantile),
     "of the routing trace's iterations that must fit in both tiers together (1)"},
    {"headroom", "X", FLAG_FACTOR, 0, 1000000, AT(headroom), "times those pages (1.0)"},

    {"swap-layers", "N", FLAG_U64, 1, MAX_PARTS, AT(swap_layers),
     "layers whose kept tensors may be swapped by tokens; with all of:"},
    {"swap-input", "BYTES", FLAG_SIZE, 0, MAX_BYTES, AT(swap_input), "a layer's input"},
    {"swap-attention", "BYTES", FLAG_SIZE, 0, MAX_BYTES, AT(swap_attention),
     "its attention's output"},
    {"swap-other", "BYTES", FLAG_SIZE, 0, MAX_BYTES, AT(swap_other), "all else that it keeps"},
    {"swap-tokens", "N", FLAG_U64, 1, MAX_BYTES, AT(swap_tokens), "tokens of a layer"},
    {"swap-block", "N", FLAG_U64, 1, MAX_BYTES, AT(swap_block), "tokens of a block (1)"},
    {"link-rate", "BYTES", FLAG_SIZE, 1, MAX_BYTES, AT(link_rate), "bytes/s to the host"},
    {"layer-seconds", "X", FLAG_FACTOR, 0, 1000000, AT(layer_seconds), "time of a layer's forward"},

    {"idle", "PASSES", FLAG_TEXT, 0, 0, AT(idle),
     "list addresses idle from pass to pass, as f3:b3,f0.1:b2.1 (phase f, b or w, layer, "
     "micro-batch), or layers: each layer's forward to its backward"},
    {"json", NULL, FLAG_SWITCH, 0, 0, AT(json), "print JSON instead of text"},
    {"out", "FILE", FLAG_TEXT, 0, 0, AT(out), "write the plan file that an arena replays"},
    {"html", "FILE", FLAG_TEXT, 0, 0, AT(html), "write a picture of the plan, a web page"},
    {"perfetto", "FILE", FLAG_TEXT, 0, 0, AT(perfetto), "write a timeline for Perfetto"},
};

static int check_input(const plan_options *options)
{
    int given = 0;
    for (int format = 0; format < PST_TRACE_NUM_FORMATS; format++)
        given += options->inputs[format] != NULL;
    if (given == 1)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "plan: %d traces: allowed is exactly one of --trace, --memo, --minimalloc, "
                     "--stalloc, --pytorch",
                     given);
}

static int check_options(const plan_options *options)
{
    TOOL_TRY(check_input(options));
    if (options->gpu_memory == 0 && (options->replay.routing != NULL || options->swap_layers != 0 ||
                                     options->host_memory != 0 || options->reserve_memory != 0))
        return tool_fail(TOOL_USAGE, "--gpu-memory: missing: allowed is a size, which --routing, "
                                     "--host-memory, --reserve-memory and --swap-layers need");
    if (options->swap_layers != 0 &&
        (options->swap_tokens == 0 || options->link_rate == 0 || options->layer_seconds <= 0.0 ||
         options->swap_input + options->swap_attention + options->swap_other == 0))
        return tool_fail(TOOL_USAGE,
                         "--swap-layers %llu: needs --swap-input, --swap-attention, --swap-other, "
                         "--swap-tokens, --link-rate and --layer-seconds",
                         (unsigned long long)options->swap_layers);
    if (options->replay.rank >= options->replay.ep)
        return tool_fail(TOOL_USAGE, "--rank %u: allowed is 0..%u, below --ep",
                         options->replay.rank, options->replay.ep - 1);
    return plan_check_outputs(options);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_over(void *deadline)
{
    return now() > *(const double *)deadline;
}

static int solve_by_search(plan_job *job)
{
    const plan_options *options = job->options;
    double deadline = now() + options->deadline;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.mode = (pst_plan_mode)options->mode;
    config.seed = options->seed;
    config.max_steps = options->max_steps;
    config.max_memory_bytes = options->search_memory;
    config.num_threads = options->threads;
    config.is_over = is_over;
    config.user = &deadline;
    const double begin = now();
    TOOL_PST(pst_plan_run(&job->problem, &config, job->offsets, &job->plan));
    job->seconds = now() - begin;
    if (config.mode == PST_PLAN_FLAT || job->plan.status == PST_PLAN_IMPOSSIBLE)
        return TOOL_OK;
    uint64_t *offsets = calloc(job->problem.num_tensors + 1, sizeof(*offsets));
    if (offsets == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu addresses",
                         (unsigned long long)job->problem.num_tensors);
    config.mode = PST_PLAN_FLAT;
    deadline = now() + options->deadline;
    const pst_status status = pst_plan_run(&job->problem, &config, offsets, &job->flat);
    job->has_flat = status == PST_OK;
    free(offsets);
    return tool_status(status);
}

/* The load's bound and instant come from the planner, whose plan is not used. */
static int solve_by_mip(plan_job *job)
{
    const plan_options *options = job->options;
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.max_steps = 1;
    TOOL_PST(pst_plan_run(&job->problem, &config, job->offsets, &job->plan));
    const mip_options mip = {.seconds = options->deadline, .without_cut = options->no_cut};
    mip_result result;
    const double begin = now();
    TOOL_TRY(options->mode == PST_PLAN_BILEVEL
                 ? mip_bilevel(&job->problem, &mip, job->offsets, &result)
                 : mip_solve(&job->problem, &mip, job->offsets, &result));
    job->seconds = now() - begin;
    if (result.status == MIP_TIMEOUT)
        return tool_fail(TOOL_NO, "--deadline %g: no plan found in so many seconds",
                         options->deadline);
    job->plan.peak = result.peak;
    job->plan.mode_bound =
        result.bound > job->plan.lower_bound ? result.bound : job->plan.lower_bound;
    if (options->mode == PST_PLAN_FLAT)
        job->plan.lower_bound = job->plan.mode_bound;
    job->plan.status = result.status == MIP_IMPOSSIBLE ? PST_PLAN_IMPOSSIBLE
                       : result.status == MIP_OPTIMAL  ? PST_PLAN_OPTIMAL
                                                       : PST_PLAN_FEASIBLE;
    return TOOL_OK;
}

/* No plan leaves the tool unchecked. */
static int check_plan(const plan_job *job)
{
    pst_plan_fault fault;
    uint64_t peak;
    pst_plan_problem problem = job->problem;
    if (job->plan.status == PST_PLAN_IMPOSSIBLE)
        return TOOL_OK;
    if (problem.capacity != 0 && job->plan.peak > problem.capacity)
        problem.capacity = 0; /* too high, which the report says */
    TOOL_PST(pst_plan_check(&problem, job->offsets, &fault, &peak));
    if (fault.kind == PST_PLAN_RIGHT && peak == job->plan.peak)
        return TOOL_OK;
    return tool_fail(
        TOOL_NO, "the plan is wrong: fault %d at tensors %llu and %llu, peak %llu, not %llu",
        (int)fault.kind, (unsigned long long)fault.tensor, (unsigned long long)fault.other,
        (unsigned long long)peak, (unsigned long long)job->plan.peak);
}

static int run(plan_job *job)
{
    const plan_options *options = job->options;
    if (options->mip_model != NULL) {
        const mip_options mip = {.without_cut = options->no_cut};
        return mip_write(options->mip_model, &job->problem, &mip);
    }
    TOOL_TRY(options->method == PLAN_MIP ? solve_by_mip(job) : solve_by_search(job));
    TOOL_TRY(check_plan(job));
    plan_idle *idle = NULL;
    uint64_t num_idle = 0;
    plan_budget budget = {.gpu_bytes = 0};
    const bool has_plan = job->plan.status != PST_PLAN_IMPOSSIBLE;
    int code = TOOL_OK;
    if (has_plan && options->idle != NULL)
        code = plan_find_idle(job, &idle, &num_idle);
    if (code == TOOL_OK && has_plan && options->gpu_memory != 0)
        code = plan_make_budget(job, &budget);
    const bool is_too_high = job->problem.capacity != 0 && job->plan.peak > job->problem.capacity;
    if (code == TOOL_OK && has_plan && !is_too_high)
        code = plan_write_outputs(job);
    if (code == TOOL_OK)
        code = plan_report(job, idle, num_idle, options->gpu_memory != 0 ? &budget : NULL);
    plan_free_idle(idle, num_idle);
    return code;
}

int cmd_plan(int argc, char **argv)
{
    const flag_table table = {
        .command = "plan",
        .doc =
            "Compute an address for every tensor of an allocation trace, and prove how good that "
            "is.\vSizes take the suffixes KiB, MiB, GiB. Exit codes: 0 done; 1 impossible, or "
            "nothing found within the capacity; 2 usage; 3 bad trace.",
        .groups = {{flags, sizeof(flags) / sizeof(flags[0]), 0}, replay_model_flags(AT(replay))},
    };
    plan_options options = {
        .trace_rank = PST_TRACE_NONE,
        .iteration = PST_TRACE_NONE,
        .deadline = 60.0,
        .threads = 1,
        .quantile = 1.0,
        .headroom = 1.0,
        .swap_block = 1,
        .replay = {.hidden = 1024,
                   .ffn = 512,
                   .ep = 1,
                   .num_micro_batches = 1,
                   .page_bytes = PST_PAGE_BYTES_DEFAULT,
                   .step_end = UINT64_MAX},
    };
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    TOOL_TRY(check_options(&options));
    plan_job job;
    int code = plan_read(&options, &job);
    if (code == TOOL_OK)
        code = run(&job);
    plan_unload(&job);
    return code;
}
