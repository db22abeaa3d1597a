/* Dense and paged layers together, under a schedule: what stays in the plan, what is swapped or
 * recomputed, how many pages on the device and on the host, and what it costs.
 *
 * A layer of the model is a dense layer, as --swap-... describe it, and behind it a paged one, whose
 * rows the routing trace has; where there are more of one than of the other, the rest stand alone. */
#include "tools/plan/plan.h"

#include "host/base/arith.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 64u

typedef struct layers {
    const plan_options *options;
    replay_trace trace;
    replay_sizes sizes;
    bool has_routing;
    pst_schedule *schedule;
    pst_schedule_info info;
    uint32_t num, num_routings;
    pst_simulated_layer *simulated; /* [num_routings][num] */
    pst_group_usage *usages;        /* [num_routings][num][micro-batches] */
    const pst_simulated_layer **stages;
    const pst_simulated_layer *const **routings;
    pst_policy_layer *allowed; /* [num] */
    bool *is_dense;            /* [num] */
} layers;

static int no_memory(uint64_t num)
{
    return tool_fail(TOOL_NO, "out of memory for %llu layers", (unsigned long long)num);
}

static uint64_t to_ns(double seconds)
{
    return (uint64_t)llround(seconds * 1e9);
}

/* ---- flags */

static int check_options(const plan_options *options)
{
    if (options->headroom != 1.0)
        return tool_fail(TOOL_USAGE, "--headroom %g: allowed without --schedule only",
                         options->headroom);
    if (options->stage >= options->stages)
        return tool_fail(TOOL_USAGE, "--stage %u: allowed is an integer 0..%u", options->stage,
                         options->stages - 1);
    if (options->layer_seconds <= 0.0)
        return tool_fail(TOOL_USAGE,
                         "--schedule: needs --layer-seconds, the time of a layer's forward");
    if (options->model.routing == NULL && options->swap_layers == 0)
        return tool_fail(TOOL_USAGE, "--schedule: needs --routing, --swap-layers or both");
    return TOOL_OK;
}

static int open_schedule(layers *self)
{
    static const pst_schedule_kind kinds[] = {PST_SCHEDULE_1F1B, PST_SCHEDULE_GPIPE,
                                              PST_SCHEDULE_GPIPE_REVERSED};
    const plan_options *options = self->options;
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = kinds[options->schedule];
    config.num_stages = options->stages;
    config.stage = options->stage;
    config.num_micro_batches = options->model.num_micro_batches;
    TOOL_PST(pst_schedule_create(&config, &self->schedule));
    return tool_status(pst_schedule_get_info(self->schedule, &self->info));
}

/* The byte streams are whole tiles of the smallest page, so that counting those measures them. */
static int open_routing(layers *self)
{
    replay_model model = self->options->model;
    pst_group *group = NULL;
    if (model.routing == NULL)
        return TOOL_OK;
    model.page_size = PST_PAGE_BYTES_MIN;
    self->has_routing = true;
    TOOL_TRY(replay_trace_read(&model, &self->trace));
    TOOL_TRY(replay_sizes_make(&model, &self->trace, NULL, 0, &self->sizes));
    TOOL_TRY(replay_make_group(&model, &self->trace, &self->sizes, &group));
    const int code = replay_sizes_count_pages(&model, &self->trace, group, &self->sizes);
    pst_group_destroy(group);
    return code;
}

/* ---- layers */

static int take(layers *self)
{
    const uint32_t micro = self->options->model.num_micro_batches;
    const uint32_t paged = self->has_routing ? self->trace.layers : 0;
    self->num = (uint32_t)self->options->swap_layers + paged;
    self->num_routings = self->has_routing ? (uint32_t)self->sizes.iterations : 1;
    const uint64_t all = (uint64_t)self->num * self->num_routings;
    self->simulated = calloc(all + 1, sizeof(*self->simulated));
    self->usages = calloc(all * micro + 1, sizeof(*self->usages));
    self->stages = calloc((size_t)self->num_routings + 1, sizeof(*self->stages));
    self->routings = calloc((size_t)self->num_routings + 1, sizeof(*self->routings));
    self->allowed = calloc((size_t)self->num + 1, sizeof(*self->allowed));
    self->is_dense = calloc((size_t)self->num + 1, sizeof(*self->is_dense));
    if (self->simulated == NULL || self->usages == NULL || self->stages == NULL ||
        self->routings == NULL || self->allowed == NULL || self->is_dense == NULL)
        return no_memory(all);
    return TOOL_OK;
}

/* A dense and a paged layer behind it share a layer's time. */
static pst_times times_of(double seconds, uint32_t parts)
{
    return (pst_times){.core = to_ns(seconds / parts)};
}

static void set_dense(layers *self, uint32_t i, uint64_t in_flight)
{
    const plan_options *options = self->options;
    pst_policy_layer *allowed = &self->allowed[i];
    const uint64_t tokens = options->swap_tokens;
    const uint64_t blocks = psti_div_up(tokens, options->swap_block);
    const uint64_t each = psti_div_up(blocks, MAX_BLOCKS) * options->swap_block;
    const uint64_t fixed = options->swap_input + options->swap_attention;
    allowed->treatments = 1u << PST_KEEP_PLANNED | 1u << PST_KEEP_SWAPPED;
    allowed->planned_bytes = psti_times(in_flight, fixed + options->swap_other);
    allowed->whole_bytes = fixed;
    allowed->token_bytes = psti_div_up(options->swap_other, tokens);
    allowed->num_tokens = tokens;
    allowed->block_tokens = each < tokens ? each : tokens;
    if (options->recompute_seconds > 0.0) {
        allowed->treatments |= 1u << PST_KEEP_RECOMPUTED;
        allowed->recompute_ns = to_ns(options->recompute_seconds);
    } else {
        allowed->whole_bytes += allowed->token_bytes * tokens;
        allowed->token_bytes = allowed->num_tokens = allowed->block_tokens = 0;
    }
}

static void set_usages(layers *self, uint32_t routing, uint32_t layer, pst_group_usage *usages)
{
    const uint32_t micro = self->options->model.num_micro_batches;
    for (uint32_t m = 0; m < micro; m++) {
        const uint64_t at =
            (uint64_t)routing * self->sizes.slots + (uint64_t)m * self->trace.layers + layer;
        usages[m] = (pst_group_usage){
            .payload_bytes = self->sizes.payload[at],
            .stream_bytes = (uint64_t)self->sizes.pages[at] * PST_PAGE_BYTES_MIN,
            .pages = self->sizes.pages[at],
        };
    }
}

static void add_layer(layers *self, uint32_t i, bool is_dense, uint32_t of_kind, uint32_t parts)
{
    const plan_options *options = self->options;
    const uint32_t micro = options->model.num_micro_batches;
    const double backward =
        options->backward_seconds > 0.0 ? options->backward_seconds : 2.0 * options->layer_seconds;
    self->is_dense[i] = is_dense;
    self->allowed[i] = (pst_policy_layer)PST_POLICY_LAYER_INIT;
    if (is_dense)
        set_dense(self, i, self->info.peak);
    for (uint32_t r = 0; r < self->num_routings; r++) {
        pst_simulated_layer *layer = &self->simulated[(size_t)r * self->num + i];
        *layer = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layer->layer = i;
        layer->keep = is_dense ? PST_KEEP_PLANNED : PST_KEEP_PAGED;
        layer->forward = times_of(options->layer_seconds, parts);
        layer->backward = times_of(backward, parts);
        if (is_dense)
            continue;
        pst_group_usage *usages = self->usages + ((size_t)r * self->num + i) * micro;
        set_usages(self, r, of_kind, usages);
        layer->usages = usages;
        layer->num_usages = micro;
    }
}

static void add_layers(layers *self)
{
    const uint32_t dense = (uint32_t)self->options->swap_layers;
    const uint32_t paged = self->num - dense;
    uint32_t i = 0;
    for (uint32_t l = 0; l < dense || l < paged; l++) {
        const uint32_t parts = l < dense && l < paged ? 2 : 1;
        if (l < dense)
            add_layer(self, i++, true, l, parts);
        if (l < paged)
            add_layer(self, i++, false, l, parts);
    }
    for (uint32_t r = 0; r < self->num_routings; r++) {
        self->stages[r] = self->simulated + (size_t)r * self->num;
        self->routings[r] = &self->stages[r];
    }
}

static int make_layers(const plan_options *options, layers *self)
{
    *self = (layers){.options = options};
    TOOL_TRY(check_options(options));
    TOOL_TRY(open_schedule(self));
    TOOL_TRY(open_routing(self));
    TOOL_TRY(take(self));
    add_layers(self);
    return TOOL_OK;
}

static void free_layers(layers *self)
{
    pst_schedule_destroy(self->schedule);
    if (self->has_routing) {
        replay_sizes_free(&self->sizes);
        replay_trace_free(&self->trace);
    }
    free(self->simulated);
    free(self->usages);
    free(self->stages);
    free((void *)self->routings);
    free(self->allowed);
    free(self->is_dense);
}

/* ---- the answer */

static int check_planned(const layers *self, uint64_t static_bytes)
{
    uint64_t planned = 0;
    for (uint32_t i = 0; i < self->num; i++)
        planned = psti_plus(planned, self->allowed[i].planned_bytes);
    if (planned <= static_bytes)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--swap-layers %llu: %llu bytes are kept for %u micro-batches at once, the "
                     "static plan has %llu: allowed is what the trace holds",
                     (unsigned long long)self->options->swap_layers, (unsigned long long)planned,
                     self->info.peak, (unsigned long long)static_bytes);
}

static int solve(const layers *self, uint64_t static_bytes, plan_policy *policy)
{
    const plan_options *options = self->options;
    const pst_schedule *schedule = self->schedule;
    const pst_policy_layer *allowed = self->allowed;
    pst_simulation_config simulation = PST_SIMULATION_CONFIG_INIT;
    simulation.num_stages = 1;
    simulation.alone = true;
    simulation.schedules = &schedule;
    simulation.layers = self->stages;
    simulation.num_layers = &self->num;
    simulation.num_pages[0] = simulation.num_pages[1] = UINT64_MAX;
    simulation.page_bytes = PST_PAGE_BYTES_MIN;
    simulation.rates.stash_rate = simulation.rates.restore_rate = options->copy_rate;
    simulation.rates.out_rate = simulation.rates.in_rate = options->link_rate;
    pst_policy_config config = PST_POLICY_CONFIG_INIT;
    config.simulation = &simulation;
    config.layers = &allowed;
    config.objective = (pst_policy_objective)options->objective;
    config.sets = (pst_policy_sets)options->sets;
    config.gpu_bytes = options->gpu_memory;
    config.host_bytes = options->host_memory;
    config.static_bytes = &static_bytes;
    config.reserve_bytes = options->reserve_memory;
    config.set_bytes = self->has_routing ? self->sizes.set_bytes : 0;
    config.routings = self->routings + 1;
    config.num_routings = self->num_routings - 1;
    config.quantile_per_mille = (uint32_t)ceil(options->quantile * 1000.0);
    tool_clock_begin("solving");
    const pst_status status = pst_policy_solve(&config, &policy->answer, policy->choices, NULL);
    tool_clock_end();
    return tool_status(status);
}

int plan_solve_policy(const plan_job *job, plan_policy *policy_out)
{
    layers all;
    *policy_out = (plan_policy){.num_layers = 0};
    int code = make_layers(job->options, &all);
    if (code == TOOL_OK)
        code = check_planned(&all, job->plan.peak);
    if (code == TOOL_OK) {
        policy_out->num_layers = all.num;
        policy_out->choices = calloc((size_t)all.num + 1, sizeof(*policy_out->choices));
        code = policy_out->choices != NULL ? solve(&all, job->plan.peak, policy_out)
                                           : no_memory(all.num);
        policy_out->is_dense = all.is_dense;
        all.is_dense = NULL;
    }
    free_layers(&all);
    return code;
}

void plan_free_policy(plan_policy *policy)
{
    free(policy->choices);
    free(policy->is_dense);
    *policy = (plan_policy){.num_layers = 0};
}

/* ---- what is said of it */

static uint32_t count_keep(const plan_policy *policy, pst_keep keep)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < policy->num_layers; i++)
        num += policy->choices[i].keep == keep;
    return num;
}

void plan_collect_policy(const plan_policy *policy, metric_list *list)
{
    const pst_policy *answer = &policy->answer;
    metrics_add_bool(list, "scarce", answer->is_scarce);
    metrics_add_bool(list, "optimal", answer->is_optimal);
    metrics_add_text(list, "rule", answer->rule == PST_RESTORE_NEXT ? "next" : "asap");
    metrics_add_bool(list, "one_ring", answer->one_ring);
    metrics_add_count(list, "sources", answer->num_sources);
    metrics_add_count(list, "destinations", answer->num_destinations);
    metrics_add_count(list, "ahead", answer->ahead);
    metrics_add_count(list, "streams", answer->num_streams);
    metrics_add_count(list, "num_sets", answer->num_sets);
    metrics_add_count(list, "num_pages", answer->num_pages);
    metrics_add_count(list, "num_host_pages", answer->num_host_pages);
    metrics_add_bytes(list, "sets_bytes", answer->sets_bytes);
    metrics_add_bytes(list, "pool_bytes", answer->pool_bytes);
    metrics_add_bytes(list, "planned_bytes", answer->static_bytes);
    metrics_add_bytes(list, "swap_buffer_bytes", answer->swap_buffer_bytes);
    metrics_add_bytes(list, "swapped_bytes", answer->swapped_bytes);
    metrics_add_bytes(list, "needed_gpu_bytes", answer->gpu_bytes);
    metrics_add_bytes(list, "needed_host_bytes", answer->host_bytes);
    metrics_add_bytes(list, "total_bytes", answer->total_bytes);
    metrics_add_bytes(list, "missing_gpu_bytes", answer->missing_gpu_bytes);
    metrics_add_bytes(list, "missing_host_bytes", answer->missing_host_bytes);
    metrics_add_bytes(list, "link_out_bytes", answer->link_bytes[0]);
    metrics_add_bytes(list, "link_in_bytes", answer->link_bytes[1]);
    metrics_add_count(list, "exposed_ns", answer->exposed_ns);
    metrics_add_count(list, "exposed_bound_ns", answer->exposed_bound_ns);
    metrics_add_count(list, "recompute_ns", answer->recompute_ns);
    metrics_add_count(list, "makespan_ns", answer->makespan_ns);
    metrics_add_count(list, "layers_planned", count_keep(policy, PST_KEEP_PLANNED));
    metrics_add_count(list, "layers_swapped", count_keep(policy, PST_KEEP_SWAPPED));
    metrics_add_count(list, "layers_recomputed", count_keep(policy, PST_KEEP_RECOMPUTED));
    metrics_add_count(list, "layers_paged", count_keep(policy, PST_KEEP_PAGED));
}

static const char *keep_name(pst_keep keep)
{
    static const char *const names[] = {"paged", "swapped", "planned", "recomputed"};
    return names[keep];
}

json_t *plan_policy_layers(const plan_policy *policy)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < policy->num_layers; i++) {
        const pst_layer_choice *choice = &policy->choices[i];
        json_t *entry = json_object();
        json_put_text(&entry, "kind", policy->is_dense[i] ? "dense" : "moe");
        json_put_text(&entry, "keep", keep_name(choice->keep));
        json_put_whole(&entry, "host_num", choice->policy.host_num);
        json_put_whole(&entry, "host_den", choice->policy.host_den);
        json_put_whole(&entry, "swap_bytes", choice->swap_bytes);
        json_put_whole(&entry, "recompute_ns", choice->recompute_ns);
        json_add(&list, entry);
    }
    return list;
}

void plan_print_policy_layers(const plan_policy *policy)
{
    for (uint32_t i = 0; i < policy->num_layers; i++) {
        const pst_layer_choice *choice = &policy->choices[i];
        printf("layer %u: %s, %s", i, policy->is_dense[i] ? "dense" : "moe",
               keep_name(choice->keep));
        if (choice->policy.host_num > 0)
            printf(", %u/%u of its pages on the host", choice->policy.host_num,
                   choice->policy.host_den);
        if (choice->swap_bytes > 0)
            printf(", %llu bytes", (unsigned long long)choice->swap_bytes);
        if (choice->recompute_ns > 0)
            printf(", %llu ns of recomputation", (unsigned long long)choice->recompute_ns);
        putchar('\n');
    }
}

int plan_explain_policy(const plan_job *job, const plan_policy *policy)
{
    if (policy->answer.fits)
        return TOOL_OK;
    return tool_fail(TOOL_NO,
                     "--gpu-memory %llu: nothing fits: the best choice lacks %llu bytes of it and "
                     "%llu of --host-memory (%llu)",
                     (unsigned long long)job->options->gpu_memory,
                     (unsigned long long)policy->answer.missing_gpu_bytes,
                     (unsigned long long)policy->answer.missing_host_bytes,
                     (unsigned long long)job->options->host_memory);
}
