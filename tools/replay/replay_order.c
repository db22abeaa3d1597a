/* The order of a replay: its schedule, and what the simulator says of an iteration's pages. */
#include "tools/replay/replay.h"

#include <stdlib.h>
#include <string.h>

/* Flags that were not given are 0: the kind's own. */
static uint32_t given(uint32_t value)
{
    return value == UINT32_MAX ? 0 : value;
}

static int make_schedule(const replay_options *options, replay_order *order)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = (pst_schedule_kind)options->schedule;
    config.num_stages = options->stages;
    config.stage = options->stage;
    config.num_chunks = given(options->chunks);
    config.num_micro_batches = options->model.num_micro_batches;
    config.group = given(options->group);
    config.overlaps_exchange = options->overlaps_exchange;
    config.limit = given(options->limit);
    TOOL_PST(pst_schedule_create(&config, &order->schedule));
    return tool_status(pst_schedule_get_info(order->schedule, &order->info));
}

/* The layers of the trace go to the chunks in turn, earlier chunks have one more. */
static int make_chunks(replay_order *order)
{
    const uint32_t num_layers = order->trace->layers;
    const uint32_t num_micro_batches = order->options->model.num_micro_batches;
    const bool is_halved = order->options->schedule == PST_SCHEDULE_DUALPIPE;
    uint32_t first = 0;
    for (uint32_t c = 0; c < order->num_chunks; c++) {
        replay_chunk *chunk = &order->chunks[c];
        uint32_t num_slots;
        TOOL_PST(pst_schedule_get_slots(order->schedule, c, &num_slots));
        chunk->first_layer = first;
        chunk->num_layers = num_layers / order->num_chunks + (c < num_layers % order->num_chunks);
        chunk->num_micro_batches = is_halved ? num_micro_batches / 2 : num_micro_batches;
        chunk->first_micro_batch = is_halved ? c * chunk->num_micro_batches : 0;
        first += chunk->num_layers;
        order->num_tickets += (uint64_t)chunk->num_layers * num_slots;
        order->visits += (uint64_t)chunk->num_layers * chunk->num_micro_batches;
    }
    return TOOL_OK;
}

uint32_t replay_order_place(const replay_order *order, const pst_visit_key *visit)
{
    const replay_chunk *chunk = &order->chunks[visit->chunk];
    return (chunk->first_micro_batch + visit->micro_batch) * order->trace->layers +
           chunk->first_layer + visit->layer;
}

static void make_layers(replay_order *order)
{
    const uint32_t num_usages = order->options->model.num_micro_batches;
    for (uint32_t c = 0; c < order->num_chunks; c++) {
        const replay_chunk *chunk = &order->chunks[c];
        for (uint32_t i = 0; i < chunk->num_layers; i++) {
            pst_simulated_layer *layer = &order->layers[chunk->first_layer + i];
            *layer = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
            layer->chunk = c;
            layer->layer = i;
            layer->usages = order->usages + (size_t)(chunk->first_layer + i) * num_usages;
            layer->num_usages = num_usages;
            for (uint32_t m = 0; m < chunk->num_micro_batches; m++) {
                const pst_visit_key visit = {.chunk = c, .layer = i, .micro_batch = m};
                order->is_used[replay_order_place(order, &visit)] = true;
            }
        }
    }
}

int replay_order_make(const replay_options *options, const replay_trace *trace,
                      const replay_sizes *sizes, replay_order *order_out)
{
    replay_order *order = order_out;
    order->options = options;
    order->trace = trace;
    TOOL_TRY(make_schedule(options, order));
    order->num_chunks = order->info.config.num_chunks;
    order->chunks = calloc(order->num_chunks, sizeof(*order->chunks));
    order->layers = calloc(trace->layers, sizeof(*order->layers));
    order->usages = calloc(sizes->slots, sizeof(*order->usages));
    order->is_used = calloc(sizes->slots, sizeof(*order->is_used));
    if (order->chunks == NULL || order->layers == NULL || order->usages == NULL ||
        order->is_used == NULL)
        return tool_fail(TOOL_NO, "out of memory for %u visits", sizes->slots);
    TOOL_TRY(make_chunks(order));
    make_layers(order);
    return TOOL_OK;
}

void replay_order_free(replay_order *order)
{
    pst_schedule_destroy(order->schedule);
    free(order->chunks);
    free(order->layers);
    free(order->usages);
    free(order->is_used);
}

static void on_event(void *user, const pst_simulated_event *event)
{
    replay_order *order = user;
    const uint64_t moved = event->pages[REPLAY_DEVICE] + event->pages[REPLAY_HOST];
    const uint64_t in_use = event->in_use[REPLAY_DEVICE] + event->in_use[REPLAY_HOST];
    if (event->fault != PST_FAULT_NONE)
        return;
    const uint32_t place = replay_order_place(order, &event->visit);
    if (event->kind == PST_SIMULATED_DO_RESTORE && moved != 0) /* it was the last one */
        order->live_bytes -= order->payload[place];
    if (event->kind != PST_SIMULATED_DO_STASH)
        return;
    order->live_bytes += order->payload[place];
    if (order->link != NULL)
        order->link[place].host_pages = event->pages[REPLAY_HOST];
    if (in_use > order->high_water) {
        order->high_water = in_use;
        order->high_water_live_bytes = order->live_bytes;
    }
}

/* What every visit of the iteration stashes, and where its pages would like to be. */
static void fill_layers(replay_order *order, const replay_sizes *sizes, uint64_t iteration,
                        bool has_host_pages)
{
    const replay_options *options = order->options;
    const uint32_t num_usages = options->model.num_micro_batches;
    const flag_fraction offload = options->offload_fraction;
    for (uint32_t i = 0; i < order->trace->layers; i++) {
        pst_simulated_layer *layer = &order->layers[i];
        const replay_chunk *chunk = &order->chunks[layer->chunk];
        layer->policy.host_num = has_host_pages ? offload.num : 0;
        layer->policy.host_den = layer->policy.host_num != 0 ? offload.den : 0;
        for (uint32_t m = 0; m < chunk->num_micro_batches; m++) {
            const pst_visit_key visit = {
                .chunk = layer->chunk, .layer = layer->layer, .micro_batch = m};
            const uint64_t idx = iteration * sizes->slots + replay_order_place(order, &visit);
            order->usages[(size_t)i * num_usages + m] = (pst_group_usage){
                .payload_bytes = sizes->payload[idx],
                .stream_bytes = sizes->pages[idx] * options->model.page_size,
                .pages = sizes->pages[idx],
            };
        }
    }
}

static void configure(replay_order *order, pst_simulation_config *config)
{
    const replay_options *options = order->options;
    config->num_stages = 1;
    config->alone = true;
    config->one_ring = options->one_ring;
    config->num_sources = options->sources;
    config->num_destinations = options->destinations;
    config->ahead = options->ahead;
    config->num_streams = options->streams;
    config->rule = (pst_restore_rule)options->rule;
    config->keeps_nothing = options->keeps_nothing;
    config->mode = (pst_pool_mode)options->mode;
    config->page_bytes = options->model.page_size;
    config->in_call_order = true;
    config->on_event = on_event;
    config->user = order;
}

int replay_order_predict(replay_order *order, const replay_sizes *sizes, uint64_t iteration,
                         const uint64_t num_pages[REPLAY_TIERS], replay_link *link)
{
    const uint32_t num_layers = order->trace->layers;
    const pst_schedule *schedule = order->schedule;
    const pst_simulated_layer *layers = order->layers;
    pst_simulation simulation;
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    configure(order, &config);
    config.schedules = &schedule;
    config.layers = &layers;
    config.num_layers = &num_layers;
    config.num_pages[REPLAY_DEVICE] = num_pages[REPLAY_DEVICE];
    config.num_pages[REPLAY_HOST] = num_pages[REPLAY_HOST];
    fill_layers(order, sizes, iteration, num_pages[REPLAY_HOST] != 0);
    order->payload = sizes->payload + iteration * sizes->slots;
    order->link = link;
    order->live_bytes = 0;
    order->high_water = 0;
    order->high_water_live_bytes = 0;
    if (link != NULL)
        memset(link, 0, sizes->slots * sizeof(*link));
    return tool_status(pst_simulate(&config, &simulation, &order->result));
}

/* Most live bytes that wait for their backward at once. */
static int find_most_live(const replay_order *order, const uint64_t *payload, uint64_t *bytes_out)
{
    uint64_t live = 0;
    *bytes_out = 0;
    for (uint64_t n = 0; n < order->info.num_passes; n++) {
        pst_pass pass;
        TOOL_PST(pst_schedule_get_pass(order->schedule, n, &pass));
        for (uint32_t i = 0; i < order->chunks[pass.chunk].num_layers; i++) {
            const pst_visit_key visit = {
                .chunk = pass.chunk, .layer = i, .micro_batch = pass.micro_batch};
            const uint64_t bytes = payload[replay_order_place(order, &visit)];
            if (pass.kind == PST_PASS_FORWARD)
                live += bytes;
            else if (pass.kind != PST_PASS_BACKWARD_INPUT)
                live -= bytes;
        }
        *bytes_out = live > *bytes_out ? live : *bytes_out;
    }
    return TOOL_OK;
}

static int predict_iteration(replay_order *order, replay_sizes *sizes, uint64_t iteration)
{
    const uint64_t unlimited[REPLAY_TIERS] = {UINT64_MAX, 0};
    const uint64_t *payload = sizes->payload + iteration * sizes->slots;
    const pst_stage_result *result = &order->result;
    uint64_t live;
    TOOL_TRY(replay_order_predict(order, sizes, iteration, unlimited, NULL));
    TOOL_TRY(find_most_live(order, payload, &live));
    for (uint32_t place = 0; place < sizes->slots; place++)
        sizes->live_bytes_total += order->is_used[place] ? payload[place] : 0;
    sizes->live_bytes_sum += live;
    if (live > sizes->live_bytes_max)
        sizes->live_bytes_max = live;
    if (result->high_water_bounds[0] > sizes->least_high_water)
        sizes->least_high_water = result->high_water_bounds[0];
    if (result->demand_high_water > sizes->high_water_pages) {
        sizes->high_water_pages = result->demand_high_water;
        sizes->high_water_live_bytes = order->high_water_live_bytes;
    }
    return TOOL_OK;
}

int replay_order_predict_all(replay_order *order, replay_sizes *sizes)
{
    sizes->static_bytes = sizes->full_bytes * order->num_tickets;
    for (uint64_t i = 0; i < sizes->iterations; i++)
        TOOL_TRY(predict_iteration(order, sizes, i));
    return TOOL_OK;
}
