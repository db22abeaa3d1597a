/* What a replay needs on the device: memory, pool, scheduler; and their end. */
#include "tools/replay/replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int check_memory(const replay_machine *machine, const char *what, uint64_t bytes)
{
    pst_device_info info;
    TOOL_PST(pst_device_get_info(machine->device, &info));
    if (bytes > info.free_bytes)
        return tool_fail(TOOL_NO, "device %s: the %s needs %llu bytes, %llu are free",
                         info.kind == PST_DEVICE_CUDA ? "cuda" : "host", what,
                         (unsigned long long)bytes, (unsigned long long)info.free_bytes);
    return TOOL_OK;
}

int replay_take_memory(replay_machine *machine, const char *what, uint8_t value, uint64_t bytes,
                       void **out)
{
    TOOL_TRY(check_memory(machine, what, bytes));
    TOOL_PST(pst_device_alloc(machine->device, bytes, out));
    TOOL_PST(pst_device_fill(machine->device, *out, value, bytes, machine->stream));
    return tool_status(pst_stream_synchronize(machine->device, machine->stream));
}

static int make_control(replay_machine *machine)
{
    const replay_trace *trace = machine->trace;
    const uint64_t num_counts = (uint64_t)machine->sizes->slots * trace->num_counts;
    void *mismatches = NULL;
    machine->control_bytes =
        machine->options->model.num_micro_batches * sizeof(uint64_t) + num_counts * sizeof(int32_t);
    TOOL_TRY(
        replay_take_memory(machine, "control block", 0, machine->control_bytes, &machine->control));
    TOOL_TRY(replay_take_memory(machine, "mismatch counter", 0, sizeof(uint64_t), &mismatches));
    machine->mismatches = mismatches;
    TOOL_PST(
        pst_device_alloc_pinned(machine->device, machine->control_bytes, &machine->control_pinned));
    TOOL_PST(pst_device_alloc_pinned(machine->device, sizeof(uint64_t), &mismatches));
    machine->mismatches_pinned = mismatches;
    return TOOL_OK;
}

static int make_buffers(replay_machine *machine)
{
    const uint64_t bytes = machine->sizes->set_bytes;
    const uint64_t count_bytes = machine->trace->num_counts * sizeof(int32_t);
    for (uint32_t i = 0; i < machine->num_sources; i++) {
        TOOL_TRY(replay_take_memory(machine, "source", REPLAY_POISON_SOURCE, bytes,
                                    &machine->sources[i]));
        TOOL_TRY(replay_take_memory(machine, "counts of a source", 0, count_bytes,
                                    &machine->source_counts[i]));
    }
    for (uint32_t i = 0; i < machine->num_destinations; i++)
        TOOL_TRY(replay_take_memory(machine, "destination", REPLAY_POISON_DESTINATION, bytes,
                                    &machine->destinations[i]));
    return TOOL_OK;
}

static int make_group(replay_machine *machine)
{
    TOOL_TRY(replay_make_group(&machine->options->model, machine->trace, machine->sizes,
                               &machine->group));
    if (machine->options->tail != PST_TAIL_ZERO)
        return TOOL_OK;
    for (uint32_t i = 0; i < machine->num_destinations; i++)
        TOOL_PST(pst_dirty_create(machine->device, machine->group, false, &machine->dirty[i]));
    return TOOL_OK;
}

replay_bases replay_bases_in(const replay_sizes *sizes, void *base)
{
    replay_bases bases = {{NULL}};
    for (uint32_t t = 0; t < sizes->num_tensors; t++)
        bases.at[t] = (char *)base + sizes->tensors[t].offset;
    return bases;
}

pst_launch_options replay_launch(const replay_options *options)
{
    return (pst_launch_options){
        .num_sms = (int)options->num_sms,
        .backend = (pst_backend)options->backend,
    };
}

/* What the device at hand can do of what was asked. */
static int check_launches(const replay_machine *machine)
{
    const replay_options *options = machine->options;
    static const char *const names[] = {"auto", "ldg", "bulk", "squeeze"};
    const pst_device_info *info = &machine->info;
    if (options->num_sms > (uint32_t)info->num_sms)
        return tool_fail(TOOL_USAGE, "--num-sms %u: allowed is 0..%d on this device",
                         options->num_sms, info->num_sms);
    if (options->backend == PST_BACKEND_AUTO || (info->backends & 1u << options->backend) != 0)
        return TOOL_OK;
    char allowed[32] = "auto";
    for (int i = PST_BACKEND_LDG; i <= PST_BACKEND_SQUEEZE; i++)
        if ((info->backends & 1u << i) != 0) {
            strcat(allowed, ", ");
            strcat(allowed, names[i]);
        }
    return tool_fail(TOOL_DEVICE, "--backend %s: %s has none: allowed here: %s",
                     names[options->backend], info->name, allowed);
}

int replay_open(replay_machine *machine, const replay_options *options, const replay_trace *trace,
                const replay_sizes *sizes, replay_order *order)
{
    static const char *const device_names[] = {"auto", "host", "cuda"};
    memset(machine, 0, sizeof(*machine));
    machine->options = options;
    machine->trace = trace;
    machine->sizes = sizes;
    machine->order = order;
    machine->num_sources = options->sources;
    machine->num_destinations = options->destinations;
    const char *device_name = device_names[options->device];
    const pst_status opened = pst_device_open(device_name, 0, &machine->device);
    if (opened == PST_E_NO_DEVICE || opened == PST_E_UNSUPPORTED)
        return tool_fail(TOOL_DEVICE, "--device %s: %s; allowed here are auto and host",
                         device_name, tool_last_message());
    TOOL_PST(opened);
    TOOL_PST(pst_device_get_info(machine->device, &machine->info));
    TOOL_TRY(check_launches(machine));
    TOOL_PST(pst_stream_create(machine->device, &machine->stream));
    for (uint32_t i = 0; i < options->streams; i++)
        TOOL_PST(pst_stream_create(machine->device, &machine->sides[i]));
    TOOL_PST(pst_event_create(machine->device, &machine->edge));
    TOOL_TRY(make_buffers(machine));
    TOOL_TRY(make_group(machine));
    return make_control(machine);
}

static int make_pool(replay_machine *machine)
{
    const replay_options *options = machine->options;
    const replay_sizes *sizes = machine->sizes;
    const bool can_grow = sizes->max_pages[REPLAY_DEVICE] > sizes->num_pages[REPLAY_DEVICE];
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = options->model.page_size;
    config.num_pages = sizes->num_pages[REPLAY_DEVICE];
    config.max_pages = can_grow ? sizes->max_pages[REPLAY_DEVICE] : 0;
    config.num_host_pages = sizes->num_pages[REPLAY_HOST];
    config.max_host_pages = sizes->max_pages[REPLAY_HOST];
    config.mode = (pst_pool_mode)options->mode;
    config.max_tickets = (uint32_t)machine->order->num_tickets;
    config.scrub = options->scrub;
    memcpy(machine->num_pages, sizes->num_pages, sizeof(machine->num_pages));
    TOOL_PST(pst_pool_bytes(&config, &machine->pool_bytes));
    if (can_grow) {
        TOOL_TRY(check_memory(machine, "pool", machine->pool_bytes));
    } else {
        TOOL_TRY(
            replay_take_memory(machine, "pool", 0, machine->pool_bytes, &machine->pool_memory));
        config.memory = machine->pool_memory;
        config.memory_bytes = machine->pool_bytes;
    }
    return tool_status(pst_pool_create(machine->device, &config, &machine->pool));
}

/* What the layers have in common: all use the same sets. */
typedef struct layer_parts {
    replay_bases bases[3 * PST_MAX_SETS];
    const void *counts[2 * PST_MAX_SETS];
    pst_buffers buffers[3 * PST_MAX_SETS];
    const pst_buffers *sources[2 * PST_MAX_SETS], *destinations[PST_MAX_SETS];
    pst_part part;
} layer_parts;

static void describe_parts(const replay_machine *machine, layer_parts *out)
{
    const uint32_t num_sources = machine->num_sources;
    for (uint32_t i = 0; i < num_sources + machine->num_destinations; i++) {
        const bool is_source = i < num_sources;
        void *base = is_source ? machine->sources[i] : machine->destinations[i - num_sources];
        out->bases[i] = replay_bases_in(machine->sizes, base);
        out->buffers[i] = (pst_buffers)PST_BUFFERS_INIT;
        out->buffers[i].bases = out->bases[i].at;
        if (is_source) {
            out->counts[i] = machine->source_counts[i];
            out->buffers[i].counts = &out->counts[i];
            out->sources[i] = &out->buffers[i];
        } else {
            out->destinations[i - num_sources] = &out->buffers[i];
        }
    }
    out->part = (pst_part){.group = machine->group};
    out->part.sources = out->sources;
    if (machine->num_destinations != 0)
        out->part.destinations = out->destinations;
    if (machine->dirty[0] != NULL)
        out->part.dirty = machine->dirty;
}

static void configure(const replay_machine *machine, pst_scheduler_config *config)
{
    const replay_options *options = machine->options;
    config->pool = machine->pool;
    config->schedule = machine->order->schedule;
    config->num_layers = machine->trace->layers;
    config->num_sources = machine->num_sources;
    config->num_destinations = machine->num_destinations;
    config->one_ring = options->one_ring;
    config->ahead = options->ahead;
    config->rule = (pst_restore_rule)options->rule;
    config->keeps_nothing = options->keeps_nothing;
    config->measures = options->no_graph;
    config->num_streams = options->streams;
    for (uint32_t i = 0; i < options->streams; i++)
        config->streams[i] = machine->sides[i];
    config->launch[0] = config->launch[1] = replay_launch(options);
    config->tail = (pst_restore_tail)options->tail;
    if (options->one_ring) /* where a forward wrote, dirty words know nothing of its rows */
        config->tail = PST_TAIL_ZERO_ALL;
}

static int make_scheduler(replay_machine *machine)
{
    const replay_order *order = machine->order;
    const flag_fraction offload = machine->options->offload_fraction;
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    layer_parts parts;
    uint64_t bytes;
    TOOL_PST(pst_ticket_bytes(machine->pool, machine->group, &bytes));
    machine->ticket_bytes = bytes * order->num_tickets;
    pst_layer *layers = calloc(machine->trace->layers, sizeof(*layers));
    if (layers == NULL)
        return tool_fail(TOOL_NO, "out of memory for %u layers", machine->trace->layers);
    describe_parts(machine, &parts);
    for (uint32_t c = 0; c < order->num_chunks; c++)
        for (uint32_t i = 0; i < order->chunks[c].num_layers; i++) {
            pst_layer *layer = &layers[order->chunks[c].first_layer + i];
            layer->chunk = c;
            layer->layer = i;
            layer->num_parts = 1;
            layer->parts = &parts.part;
            layer->policy.host_num = offload.num;
            layer->policy.host_den = offload.num != 0 ? offload.den : 0;
        }
    configure(machine, &config);
    config.layers = layers;
    const pst_status status = pst_scheduler_create(&config, &machine->scheduler);
    free(layers);
    return tool_status(status);
}

/* What the iterations note down. */
static int make_notes(replay_machine *machine)
{
    const replay_sizes *sizes = machine->sizes;
    bool has_all = true;
    machine->link = calloc(sizes->slots, sizeof(*machine->link));
    machine->recover_seconds = calloc(sizes->iterations, sizeof(double));
    for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++) {
        machine->rates[i] = calloc(sizes->iterations, sizeof(double));
        has_all = has_all && machine->rates[i] != NULL;
    }
    if (machine->link == NULL || machine->recover_seconds == NULL || !has_all)
        return tool_fail(TOOL_NO, "out of memory for the times of %llu iterations",
                         (unsigned long long)sizes->iterations);
    return TOOL_OK;
}

int replay_equip(replay_machine *machine)
{
    TOOL_TRY(make_pool(machine));
    TOOL_TRY(make_scheduler(machine));
    TOOL_TRY(replay_timer_make(machine));
    return make_notes(machine);
}

/* On cuda a destroyed graph lets its pools go a moment later, from a thread of the driver. */
static bool is_busy_for_now(pst_status status)
{
    static int patience_ms = 5000;
    if (status != PST_E_BUSY || patience_ms == 0)
        return false;
    patience_ms--;
    const struct timespec moment = {.tv_nsec = 1000000};
    nanosleep(&moment, NULL);
    return true;
}

#define LET_GO(first, call)                      \
    do {                                         \
        pst_status let_go_status_;               \
        do                                       \
            let_go_status_ = (call);             \
        while (is_busy_for_now(let_go_status_)); \
        if ((first) == PST_OK)                   \
            (first) = let_go_status_;            \
    } while (0)

/* Frees in the reverse order of making; returns the first failure. */
static pst_status dismantle(replay_machine *machine, bool has_failed)
{
    pst_device *device = machine->device;
    pst_status first = pst_device_synchronize(device);
    if (has_failed && machine->scheduler != NULL) /* perhaps within a step, which keeps it busy */
        LET_GO(first, pst_scheduler_abort(machine->scheduler, machine->stream));
    LET_GO(first, pst_graph_destroy(machine->graph));
    LET_GO(first, replay_timer_free(machine));
    LET_GO(first, pst_scheduler_destroy(machine->scheduler));
    LET_GO(first, pst_pool_destroy(machine->pool));
    LET_GO(first, pst_group_destroy(machine->group));
    LET_GO(first, pst_device_free(device, machine->pool_memory));
    LET_GO(first, pst_device_free(device, machine->control));
    LET_GO(first, pst_device_free(device, machine->mismatches));
    LET_GO(first, pst_device_free_pinned(device, machine->control_pinned));
    LET_GO(first, pst_device_free_pinned(device, machine->mismatches_pinned));
    for (uint32_t i = 0; i < machine->num_sources; i++) {
        LET_GO(first, pst_device_free(device, machine->sources[i]));
        LET_GO(first, pst_device_free(device, machine->source_counts[i]));
    }
    for (uint32_t i = 0; i < machine->num_destinations; i++) {
        LET_GO(first, pst_dirty_destroy(machine->dirty[i]));
        LET_GO(first, pst_device_free(device, machine->destinations[i]));
    }
    LET_GO(first, pst_event_destroy(device, machine->edge));
    for (uint32_t i = 0; i < machine->options->streams; i++)
        LET_GO(first, pst_stream_destroy(device, machine->sides[i]));
    LET_GO(first, pst_stream_destroy(device, machine->stream));
    LET_GO(first, pst_device_close(device));
    return first;
}

int replay_close(replay_machine *machine, int code)
{
    const pst_status status =
        machine->device != NULL ? dismantle(machine, code != TOOL_OK) : PST_OK;
    for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++)
        free(machine->rates[i]);
    free(machine->recover_seconds);
    free(machine->link);
    free(machine->events);
    return code != TOOL_OK || status == PST_OK ? code : tool_status(status);
}
