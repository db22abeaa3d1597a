/* From flags to what is simulated, with the files that they name. */
#include "tools/simulate/simulate_command.h"

#include "tools/common/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the config ---- */

static void take(uint32_t *option, uint64_t value)
{
    if (*option == UINT32_MAX && value <= UINT32_MAX)
        *option = (uint32_t)value;
}

/* Sizes of the schedule. Lists have theirs; chunks are those of the kinds that leave it open. */
static int take_sizes(simulate_options *options, const simulate_config *config)
{
    const pst_estimate_config *run = &config->estimate.config;
    pst_schedule_kind kind = PST_SCHEDULE_LIST;
    const char *path;
    bool is_megatron;
    if (options->schedule == NULL)
        options->schedule = run->virtual_stages > 1 ? "interleaved" : "1f1b";
    TOOL_TRY(simulate_read_schedule_flag(options->schedule, &kind, &path, &is_megatron));
    if (kind == PST_SCHEDULE_LIST)
        return TOOL_OK;
    if (config->num_micro_batches > PST_SCHEDULE_MAX_MICRO_BATCHES)
        return tool_fail(TOOL_USAGE,
                         "--config %s: %" PRIu64 " micro-batches: allowed are at most "
                         "%u",
                         config->path, config->num_micro_batches, PST_SCHEDULE_MAX_MICRO_BATCHES);
    take(&options->stages, run->pipeline_parallel);
    take(&options->micro_batches, config->num_micro_batches);
    if (kind != PST_SCHEDULE_INTERLEAVED)
        return TOOL_OK;
    take(&options->chunks, run->virtual_stages);
    if (run->virtual_stages > 1 && options->stages == run->pipeline_parallel)
        take(&options->group, run->micro_batch_group_size);
    options->overlaps_exchange = options->overlaps_exchange || run->overlaps_exchange;
    return TOOL_OK;
}

/* Layers, and which have experts. */
static void take_layers(simulate_job *job)
{
    const simulate_options *options = job->options;
    const pst_estimate_config *run = &job->config.estimate.config;
    simulate_input *input = &job->input;
    if (options->layers == NULL && options->model_layers == UINT32_MAX) {
        input->model_layers = (uint32_t)run->num_layers;
        input->virtual_layers = run->chunk_layers;
        input->num_virtual_layers = run->pipeline_parallel * run->virtual_stages;
    }
    input->has_no_moe = run->num_experts == 0;
    if (options->moe_layers.end != 0 || run->num_experts == 0 || run->is_moe == NULL)
        return;
    input->moe_before = job->config.moe_before;
    input->num_moe_before = run->num_layers;
}

static int open_config(simulate_options *options, simulate_job *job)
{
    const simulate_config *config = &job->config;
    const pst_estimate_config *run = &config->estimate.config;
    if (options->config == NULL)
        return TOOL_OK;
    TOOL_TRY(simulate_read_config(options->config, &job->config));
    if (run->expert_parallel <= REPLAY_MAX_PARTS &&
        options->routing.expert_model_parallel_size == 0)
        options->routing.expert_model_parallel_size = (uint32_t)run->expert_parallel;
    if (options->routing.capacity_factor <= 0.0 && config->estimate.has_capacity)
        options->routing.capacity_factor = (double)run->capacity_num / (double)run->capacity_den;
    if (run->num_experts == 0 && (options->balanced || options->routing.routing != NULL))
        return tool_fail(TOOL_USAGE,
                         "--config %s: no layer has experts: allowed is it without "
                         "--routing and --balanced",
                         config->path);
    if (run->num_experts != 0 && !options->balanced && options->routing.routing == NULL &&
        options->visit_pages == NULL)
        return tool_fail(TOOL_USAGE,
                         "--routing: missing: allowed is it, --balanced or --visit-pages, since "
                         "%s has experts",
                         config->path);
    if (options->moe_layers.end != 0 && (run->num_experts == 0 || run->ffn_size == 0))
        return tool_fail(TOOL_USAGE,
                         "--moe-layers: allowed without --config only where that has one kind of "
                         "layers: %s has no width of the other",
                         config->path);
    return take_sizes(options, config);
}

/* ---- the schedule ---- */

static int read_lists(simulate_job *job, const char *path, bool is_megatron)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return tool_fail(TOOL_INPUT, "--schedule %s: %s", job->options->schedule, strerror(errno));
    job->input.lists = &job->lists;
    job->input.lists_name = is_stdin ? "standard input" : path;
    const pst_status status =
        is_megatron
            ? psti_schedule_read_megatron(job->input.lists_name, tool_read, &descriptor,
                                          &job->lists)
            : psti_schedule_read_list(job->input.lists_name, tool_read, &descriptor, &job->lists);
    if (!is_stdin)
        close(descriptor);
    return tool_file_status(status);
}

/* Lists say themselves how many stages and micro-batches there are. */
static int check_lists(const simulate_job *job)
{
    const simulate_options *options = job->options;
    static const char *const names[] = {"chunks", "micro-batches", "group", "limit"};
    const uint32_t values[] = {options->chunks, options->micro_batches, options->group,
                               options->limit};
    const uint64_t num_ranks = job->lists.num_ranks;
    for (int i = 0; i < 4; i++)
        if (values[i] != UINT32_MAX)
            return tool_fail(TOOL_USAGE, "--%s %" PRIu32 ": allowed without lists only: %s has it",
                             names[i], values[i], job->input.lists_name);
    if (options->overlaps_exchange)
        return tool_fail(TOOL_USAGE,
                         "--overlaps-exchange: allowed with --schedule interleaved only");
    if (num_ranks > SIMULATE_MAX_STAGES)
        return tool_fail(TOOL_USAGE, "%s: %" PRIu64 " ranks: allowed are at most %d",
                         job->input.lists_name, num_ranks, SIMULATE_MAX_STAGES);
    if (options->stages != UINT32_MAX && options->stages != num_ranks)
        return tool_fail(TOOL_USAGE,
                         "--stages %" PRIu32 ": allowed is %" PRIu64 ", the ranks of %s",
                         options->stages, num_ranks, job->input.lists_name);
    return TOOL_OK;
}

static int check_kind(const simulate_options *options, pst_schedule_kind kind)
{
    if (options->micro_batches == UINT32_MAX)
        return tool_fail(TOOL_USAGE, "--micro-batches: missing: allowed is an integer 1..%u",
                         PST_SCHEDULE_MAX_MICRO_BATCHES);
    if (kind != PST_SCHEDULE_INTERLEAVED &&
        (options->group != UINT32_MAX || options->overlaps_exchange))
        return tool_fail(TOOL_USAGE, "--%s: allowed with --schedule interleaved only",
                         options->overlaps_exchange ? "overlaps-exchange" : "group");
    if (kind != PST_SCHEDULE_ZB_V && options->limit != UINT32_MAX)
        return tool_fail(TOOL_USAGE, "--limit %" PRIu32 ": allowed with --schedule zb-v only",
                         options->limit);
    return TOOL_OK;
}

static uint32_t or_zero(uint32_t value)
{
    return value == UINT32_MAX ? 0 : value;
}

/* Of all ranks that are simulated, before there is memory for them: at least these. */
static int check_passes(const simulate_options *options, const pst_schedule_config *config)
{
    const uint64_t num_ranks = strcmp(options->rank, "all") == 0 ? config->num_stages : 1;
    const uint64_t num_chunks = config->num_chunks == 0 ? 1 : config->num_chunks;
    const uint64_t of_rank = 2 * num_chunks * config->num_micro_batches;
    if (of_rank <= SIMULATE_MOST_VISITS / num_ranks)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--micro-batches %" PRIu32 ": %" PRIu64 " chunks on %" PRIu64
                     " ranks: allowed are at most %u passes in all",
                     config->num_micro_batches, num_chunks, num_ranks, SIMULATE_MOST_VISITS);
}

static int open_schedule(simulate_job *job)
{
    const simulate_options *options = job->options;
    pst_schedule_config *config = &job->input.schedule;
    const char *path = NULL;
    bool is_megatron = false;
    *config = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
    TOOL_TRY(simulate_read_schedule_flag(options->schedule, &config->kind, &path, &is_megatron));
    if (config->kind == PST_SCHEDULE_LIST) {
        TOOL_TRY(read_lists(job, path, is_megatron));
        TOOL_TRY(check_lists(job));
        config->num_stages = (uint32_t)job->lists.num_ranks;
        job->input.config.chunk_order =
            options->chunk_order < 0 ? PST_CHUNKS_LOOPED
                                     : (pst_chunk_order)(PST_CHUNKS_LOOPED + options->chunk_order);
        return TOOL_OK;
    }
    if (options->chunk_order >= 0)
        return tool_fail(TOOL_USAGE,
                         "--chunk-order: allowed with lists only: --schedule %s has one",
                         options->schedule);
    TOOL_TRY(check_kind(options, config->kind));
    config->num_stages = options->stages == UINT32_MAX ? 1 : options->stages;
    config->num_chunks = or_zero(options->chunks);
    config->num_micro_batches = options->micro_batches;
    config->group = or_zero(options->group);
    config->overlaps_exchange = options->overlaps_exchange;
    config->limit = or_zero(options->limit);
    return check_passes(options, config);
}

static int open_rank(simulate_job *job)
{
    const char *text = job->options->rank;
    const uint32_t num = job->input.schedule.num_stages;
    uint64_t rank = 0;
    job->input.rank = SIMULATE_ALL;
    if (strcmp(text, "all") == 0)
        return TOOL_OK;
    if (!parse_u64(text, 0, num - 1, &rank))
        return tool_fail(TOOL_USAGE, "--rank %.80s: allowed is an integer 0..%" PRIu32 ", or all",
                         text, num - 1);
    job->input.rank = (uint32_t)rank;
    return TOOL_OK;
}

/* ---- layers, times, rates ---- */

static int open_layers(simulate_job *job)
{
    const simulate_options *options = job->options;
    simulate_input *input = &job->input;
    input->model_layers = or_zero(options->model_layers);
    input->moe_layers = options->moe_layers;
    if (options->config != NULL)
        take_layers(job);
    if (options->layers != NULL)
        TOOL_TRY(simulate_read_layers_flag(options->layers, &job->chunk_layers,
                                           &input->num_chunk_layers));
    input->chunk_layers = job->chunk_layers;
    if (options->offload != NULL)
        TOOL_TRY(
            simulate_read_offload_flag(options->offload, &job->offloads, &input->num_offloads));
    input->offloads = job->offloads;
    input->move = (pst_move)options->move;
    return TOOL_OK;
}

static int open_gpu(simulate_job *job)
{
    const simulate_options *options = job->options;
    if (options->config == NULL || options->times != NULL)
        return tool_fail(TOOL_USAGE, "--gpu %.80s: allowed with --config and without --times",
                         options->gpu);
    if (options->layers != NULL || options->model_layers != UINT32_MAX ||
        options->moe_layers.end != 0)
        return tool_fail(TOOL_USAGE,
                         "--gpu %.80s: allowed with the layers of --config: without --layers, "
                         "--model-layers and --moe-layers",
                         options->gpu);
    job->input.get_times = simulate_times_of_gpu;
    job->input.times_user = &job->gpu;
    return simulate_read_gpu(options->gpu, &job->config, &job->gpu);
}

static int open_times(simulate_job *job)
{
    const simulate_options *options = job->options;
    simulate_times *times = &job->input.times;
    TOOL_TRY(simulate_read_times_flag("forward-ns", options->forward_ns, &times->forward));
    TOOL_TRY(simulate_read_times_flag("backward-ns", options->backward_ns, &times->backward));
    TOOL_TRY(simulate_read_times_flag("weight-ns", options->weight_ns, &times->weight));
    if (options->gpu != NULL)
        return open_gpu(job);
    if (options->times == NULL)
        return TOOL_OK;
    job->input.get_times = simulate_times_of_rows;
    job->input.times_user = &job->times;
    return simulate_read_times(options->times, &job->times);
}

static int open_rates(simulate_job *job)
{
    const simulate_options *options = job->options;
    pst_simulated_rates *rates = &job->input.config.rates;
    if (options->gpu != NULL)
        simulate_rates_of_gpu(&job->gpu, rates);
    if (options->rates != NULL)
        TOOL_TRY(simulate_read_rates(options->rates, rates));
    if (options->copy_gb_per_s > 0.0)
        rates->stash_rate = rates->restore_rate = (uint64_t)llround(options->copy_gb_per_s * 1e9);
    if (options->stash_ns != UINT64_MAX)
        rates->stash_fixed_ns = options->stash_ns;
    if (options->restore_ns != UINT64_MAX)
        rates->restore_fixed_ns = options->restore_ns;
    if (options->link_gb_per_s == NULL)
        return TOOL_OK;
    return simulate_read_link_flag(options->link_gb_per_s, &rates->out_rate, &rates->in_rate);
}

/* ---- the pool ---- */

static int open_pool(simulate_job *job)
{
    static const uint32_t streams[] = {1, 2, 4};
    const simulate_options *options = job->options;
    pst_simulation_config *config = &job->input.config;
    TOOL_TRY(simulate_read_pages_flag("pages", options->pages, &config->num_pages[0]));
    TOOL_TRY(simulate_read_pages_flag("host-pages", options->host_pages, &config->num_pages[1]));
    if (options->offload != NULL && config->num_pages[1] == 0)
        return tool_fail(TOOL_USAGE,
                         "--offload %.80s: the pool has no host pages: allowed with "
                         "--host-pages above 0 only",
                         options->offload);
    config->one_ring = options->one_ring;
    config->keeps_nothing = options->keeps_nothing;
    config->by_slot = options->by_slot;
    config->num_sources = options->sources;
    config->num_destinations = options->destinations;
    config->ahead = options->ahead;
    config->num_streams = streams[options->streams];
    config->rule = (pst_restore_rule)options->rule;
    config->mode = config->num_streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->steps = options->num_steps;
    config->p2p_ns = options->p2p_ns != UINT64_MAX ? options->p2p_ns : job->gpu.p2p_ns;
    config->page_bytes = options->routing.page_size;
    config->interference_per_mille = options->interference;
    if (config->rule == PST_RESTORE_NEXT && config->num_streams != 1)
        return tool_fail(TOOL_USAGE, "--streams %" PRIu32 ": allowed with --rule next is 1",
                         config->num_streams);
    if (options->move == PST_MOVE_DEMOTE && config->num_streams == 1)
        return tool_fail(TOOL_USAGE, "--move demote: allowed with --streams 2 or 4 only");
    return TOOL_OK;
}

/* ---- pages ---- */

/* Of a step: the most that a chunk has; where chunks are pipelines of their own, what they have
 * together, which is one forward each on the first rank. */
static uint32_t count_micro_batches(const simulate_job *job)
{
    const bool are_apart = simulate_chunk_order(&job->input) == PST_CHUNKS_DIRECTIONS;
    const psti_schedule_lists *lists = &job->lists;
    uint32_t sum = 0;
    uint32_t most = 0;
    if (job->input.lists == NULL)
        return job->input.schedule.num_micro_batches;
    for (uint64_t i = 0; i < lists->num_passes; i++) {
        const pst_pass *pass = &lists->passes[i];
        sum += i < lists->ranks[0].num_passes && pass->kind == PST_PASS_FORWARD;
        most = pass->micro_batch >= most ? pass->micro_batch + 1 : most;
    }
    return are_apart ? sum : most;
}

static int open_pages(simulate_job *job)
{
    const simulate_options *options = job->options;
    simulate_input *input = &job->input;
    job->num_iterations = 1;
    if (options->visit_pages != NULL) {
        job->pages.page_bytes = options->routing.page_size;
        input->get_usage = simulate_usage_of_rows;
        input->usage_user = &job->pages;
        return simulate_read_pages(options->visit_pages, &job->pages.rows);
    }
    if (options->routing.routing == NULL && !options->balanced) {
        input->is_uniform = true;
        return TOOL_OK;
    }
    job->has_routing = true;
    job->routing.model = options->routing;
    job->routing.config = options->config != NULL ? &job->config : NULL;
    job->routing.is_balanced = options->balanced;
    job->routing.num_micro_batches = count_micro_batches(job);
    TOOL_TRY(simulate_read_routing(&job->routing));
    input->get_usage = simulate_usage_of_routing;
    input->usage_user = &job->routing;
    input->is_uniform = options->balanced;
    job->num_iterations = job->routing.num_iterations;
    return TOOL_OK;
}

int simulate_open(simulate_options *options, simulate_job *job_out)
{
    *job_out = (simulate_job){.options = options};
    job_out->input.config = (pst_simulation_config)PST_SIMULATION_CONFIG_INIT;
    TOOL_TRY(open_config(options, job_out));
    if (options->routing.expert_model_parallel_size == 0)
        options->routing.expert_model_parallel_size = 1;
    TOOL_TRY(replay_check_model(&options->routing));
    TOOL_TRY(open_schedule(job_out));
    TOOL_TRY(open_rank(job_out));
    TOOL_TRY(open_layers(job_out));
    TOOL_TRY(open_times(job_out));
    TOOL_TRY(open_rates(job_out));
    TOOL_TRY(open_pool(job_out));
    return open_pages(job_out);
}

void simulate_close(simulate_job *job)
{
    simulate_free_config(&job->config);
    psti_schedule_lists_free(&job->lists);
    free(job->chunk_layers);
    free(job->offloads);
    simulate_free_rows(&job->times);
    simulate_free_rows(&job->pages.rows);
    simulate_free_routing(&job->routing);
}
