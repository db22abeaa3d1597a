/* Simulations of arbitrary configurations: each byte is a field, most of them small, some of them the
 * largest there is. What is refused says why in one line; what is accepted adds up, is the same when it
 * is run again, and holds no more pages than there are. */
#include <pagestash/pagestash.h>

#include "host/base/arith.h"
#include "tests/fuzz/pieces.h"

enum { MAX_STAGES = 4, MAX_LAYERS = 8, MAX_USAGES = 16 };

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

/* 0 where there are no more. */
static uint32_t take(bytes *from, uint32_t below)
{
    if (from->left == 0)
        return 0;
    from->left--;
    return *from->data++ % below;
}

/* Of times, rates and counts. */
static uint64_t take_wide(bytes *from)
{
    static const uint64_t far[] = {UINT64_MAX,          UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1,
                                   UINT64_C(1) << 62,   UINT64_C(1) << 61, UINT64_C(1) << 40,
                                   UINT64_C(1) << 32,   UINT32_MAX,        1000000000,
                                   UINT64_C(1000000007)};
    const uint32_t byte = take(from, 256);
    return byte < 246 ? byte : far[byte - 246];
}

static pst_times take_times(bytes *from)
{
    pst_times times;
    times.before = take(from, 8);
    times.core = take_wide(from);
    times.after = take(from, 8);
    return times;
}

static void take_layer(bytes *from, pst_simulated_layer *layer, pst_group_usage *usages,
                       uint64_t page)
{
    layer->keep = (pst_keep)take(from, 5);
    layer->num_parts = take(from, 6);
    layer->forward = take_times(from);
    layer->backward = take_times(from);
    layer->backward_input = take_times(from);
    layer->backward_weight = take_times(from);
    layer->recompute_ns = take_wide(from);
    layer->swap_bytes = take_wide(from);
    layer->max_demote_pages = take(from, 4);
    layer->policy.host_num = take(from, 3);
    layer->policy.host_den = take(from, 4);
    layer->policy.move = (pst_move)take(from, 3);
    layer->policy.promote_ahead = take(from, 4);
    layer->policy.holds = take(from, 2);
    for (uint32_t part = 0; part < PST_MAX_PARTS; part++) {
        layer->uses[part] = take(from, 5);
        layer->part_ns[part] = take(from, 2) ? take_wide(from) : 0;
    }
    layer->num_usages = take(from, 8) ? 1 : MAX_USAGES / PST_MAX_PARTS;
    layer->usages = usages;
    for (uint32_t i = 0; i < MAX_USAGES; i++) {
        const uint64_t pages = i % 3 ? take(from, 5) : take_wide(from);
        const uint64_t stream = take(from, 8) ? psti_times(pages, page) : take_wide(from);
        usages[i] = (pst_group_usage){take(from, 2) ? stream : stream / 3, stream, pages};
    }
}

static uint32_t make_schedules(bytes *from, pst_schedule **schedules)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    const uint32_t num = 1 + take(from, MAX_STAGES);
    config.kind = (pst_schedule_kind)take(from, PST_SCHEDULE_LIST);
    config.num_stages = num;
    config.num_micro_batches = 1 + take(from, 12);
    for (uint32_t i = 0; i < num; i++) {
        config.stage = take(from, 32) ? i : take(from, 4) % num;
        if (pst_schedule_create(&config, &schedules[i]))
            return i;
    }
    return num;
}

static void take_config(bytes *from, pst_simulation_config *config)
{
    config->alone = take(from, 3) == 0;
    config->one_ring = take(from, 4) == 0;
    config->keeps_nothing = take(from, 4) == 0;
    config->by_slot = take(from, 4) == 0;
    config->num_sources = take(from, 10);
    config->num_destinations = config->one_ring ? take(from, 16) == 1 : take(from, 10);
    config->ahead = take(from, 5);
    config->num_streams = take(from, 6);
    config->rule = (pst_restore_rule)(take(from, 8) == 0);
    config->mode = take(from, 8) ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->steps = take(from, 4);
    config->p2p_ns = take_wide(from);
    config->num_pages[0] = take_wide(from);
    config->num_pages[1] = take_wide(from);
    config->page_bytes = take(from, 4) ? 0 : PST_PAGE_BYTES_MIN;
    config->rates.stash_fixed_ns = take_wide(from);
    config->rates.restore_fixed_ns = take_wide(from);
    config->rates.demote_fixed_ns = take_wide(from);
    config->rates.promote_fixed_ns = take_wide(from);
    config->rates.stash_rate = take_wide(from);
    config->rates.restore_rate = take_wide(from);
    config->rates.out_rate = take_wide(from);
    config->rates.in_rate = take_wide(from);
    config->interference_per_mille = take(from, 4) ? 0 : (uint32_t)take_wide(from);
    config->chunk_order = (pst_chunk_order)(take(from, 8) ? 0 : take(from, 5));
    config->in_call_order = take(from, 3) == 0;
}

static void check(const pst_simulation_config *config, const pst_simulation *simulation,
                  const pst_stage_result *stages)
{
    require(simulation->deadlocked == (simulation->deadlock[0] != '\0'));
    for (uint32_t i = 0; i < config->num_stages; i++) {
        const pst_stage_result *result = &stages[i];
        const uint64_t exposed = result->exposed_forward_ns + result->exposed_backward_ns;
        require(result->worst_ns <= exposed && result->recompute_ns <= result->busy_ns);
        for (uint32_t tier = 0; tier < 2; tier++)
            require(result->high_water[tier] <= config->num_pages[tier]);
        require((result->fault == PST_FAULT_NONE) == (result->num_faults == 0));
        if (simulation->deadlocked)
            continue;
        require(result->in_use[0] + result->in_use[1] == 0);
        require(result->high_water_bounds[0] <= result->demand_high_water);
        require(result->high_water_bounds[1] >= result->demand_high_water);
        if (!config->alone && config->steps < 2)
            require(result->busy_ns + exposed + result->bubble_ns == simulation->makespan_ns);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pst_simulated_layer layers[MAX_LAYERS];
    static pst_group_usage usages[MAX_LAYERS][MAX_USAGES];
    static pst_stage_result stages[MAX_STAGES], again[MAX_STAGES];
    static pst_simulation simulation, second;
    bytes from = {data, size};
    pst_schedule *schedules[MAX_STAGES] = {NULL};
    const pst_simulated_layer *stage_layers[MAX_STAGES] = {layers, layers, layers, layers};
    uint32_t num_layers[MAX_STAGES];
    pst_simulation_config config = PST_SIMULATION_CONFIG_INIT;
    config.num_stages = make_schedules(&from, schedules);
    take_config(&from, &config);
    const uint32_t per_chunk = 1 + take(&from, 4), num_chunks = 1 + take(&from, 2);
    for (uint32_t n = 0; n < per_chunk * num_chunks; n++) {
        layers[n] = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
        layers[n].chunk = n / per_chunk;
        layers[n].layer = n % per_chunk;
        take_layer(&from, &layers[n], usages[n],
                   config.page_bytes ? config.page_bytes : PST_PAGE_BYTES_DEFAULT);
    }
    for (uint32_t i = 0; i < MAX_STAGES; i++)
        num_layers[i] = per_chunk * num_chunks;
    config.schedules = (const pst_schedule *const *)schedules;
    config.layers = stage_layers;
    config.num_layers = num_layers;
    const pst_status status = pst_simulate(&config, &simulation, stages);
    if (status == PST_OK) {
        check(&config, &simulation, stages);
        require(pst_simulate(&config, &second, again) == PST_OK);
        require(memcmp(&simulation, &second, sizeof(second)) == 0);
        require(memcmp(stages, again, config.num_stages * sizeof(*stages)) == 0);
    } else {
        require(status == PST_E_INVALID && strchr(pst_last_message(), '\n') == NULL);
    }
    for (uint32_t i = 0; i < config.num_stages; i++)
        pst_schedule_destroy(schedules[i]);
    return 0;
}
