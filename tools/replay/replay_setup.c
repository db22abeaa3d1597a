/* What a replay needs on the device: memory, pool, tickets, events; and their end. */
#include "tools/replay/replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPY_TARGET_MAX ((uint64_t)1 << 30)

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

/* Device memory, written once so that no timed copy pays for first use. */
static int take_memory(replay_machine *machine, const char *what, uint8_t value, uint64_t bytes,
                       void **out)
{
    TOOL_TRY(check_memory(machine, what, bytes));
    TOOL_PST(pst_device_alloc(machine->device, bytes, out));
    TOOL_PST(pst_device_fill(machine->device, *out, value, bytes, machine->streams[0]));
    return tool_status(pst_stream_synchronize(machine->device, machine->streams[0]));
}

static int make_control(replay_machine *machine)
{
    const replay_trace *trace = machine->trace;
    const uint64_t num_counts = (uint64_t)machine->sizes->slots * trace->num_counts;
    void *mismatches = NULL;
    machine->control_bytes =
        machine->options->model.num_micro_batches * sizeof(uint64_t) + num_counts * sizeof(int32_t);
    TOOL_TRY(take_memory(machine, "control block", 0, machine->control_bytes, &machine->control));
    TOOL_TRY(take_memory(machine, "mismatch counter", 0, sizeof(uint64_t), &mismatches));
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
    for (uint32_t i = 0; i < machine->lanes; i++) {
        TOOL_TRY(take_memory(machine, "static buffer", REPLAY_POISON_STATIC, bytes,
                             &machine->static_set[i]));
        TOOL_TRY(take_memory(machine, "working buffer", REPLAY_POISON_WORKING, bytes,
                             &machine->working_set[i]));
    }
    return TOOL_OK;
}

static int make_group(replay_machine *machine)
{
    TOOL_TRY(replay_make_group(&machine->options->model, machine->trace, machine->sizes,
                               &machine->group));
    for (uint32_t i = 0; i < machine->lanes && machine->options->tail == PST_TAIL_ZERO; i++)
        TOOL_PST(pst_dirty_create(machine->device, machine->group, false, &machine->dirty[i]));
    return TOOL_OK;
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
                const replay_sizes *sizes)
{
    static const char *const device_names[] = {"auto", "host", "cuda"};
    memset(machine, 0, sizeof(*machine));
    machine->options = options;
    machine->trace = trace;
    machine->sizes = sizes;
    machine->lanes = options->streams;
    const char *device_name = device_names[options->device];
    const pst_status opened = pst_device_open(device_name, 0, &machine->device);
    if (opened == PST_E_NO_DEVICE || opened == PST_E_UNSUPPORTED)
        return tool_fail(TOOL_DEVICE, "--device %s: %s; allowed here are auto and host",
                         device_name, pst_last_message());
    TOOL_PST(opened);
    TOOL_PST(pst_device_get_info(machine->device, &machine->info));
    TOOL_TRY(check_launches(machine));
    for (uint32_t i = 0; i < machine->lanes; i++)
        TOOL_PST(pst_stream_create(machine->device, &machine->streams[i]));
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
    config.max_tickets = sizes->slots;
    config.scrub = options->scrub;
    memcpy(machine->num_pages, sizes->num_pages, sizeof(machine->num_pages));
    TOOL_PST(pst_pool_bytes(&config, &machine->pool_bytes));
    if (can_grow) {
        TOOL_TRY(check_memory(machine, "pool", machine->pool_bytes));
    } else {
        TOOL_TRY(take_memory(machine, "pool", 0, machine->pool_bytes, &machine->pool_memory));
        config.memory = machine->pool_memory;
        config.memory_bytes = machine->pool_bytes;
    }
    return tool_status(pst_pool_create(machine->device, &config, &machine->pool));
}

static int make_tickets(replay_machine *machine)
{
    const uint32_t slots = machine->sizes->slots;
    uint64_t bytes;
    TOOL_PST(pst_ticket_bytes(machine->pool, machine->group, &bytes));
    machine->ticket_bytes = bytes * slots;
    machine->tickets = calloc(slots, sizeof(pst_ticket));
    if (machine->tickets == NULL)
        return tool_fail(TOOL_NO, "out of memory for %u tickets", slots);
    const flag_fraction offload = machine->options->offload_fraction;
    for (uint32_t slot = 0; slot < slots; slot++) {
        TOOL_PST(pst_ticket_create(machine->pool, machine->group, &machine->tickets[slot]));
        TOOL_PST(pst_ticket_set_offload(machine->tickets[slot], offload.num, offload.den));
    }
    return TOOL_OK;
}

static int make_events(replay_machine *machine)
{
    const size_t num_events = (size_t)machine->sizes->slots * REPLAY_NUM_TIMES;
    machine->events = calloc(num_events, sizeof(pst_event));
    if (machine->events == NULL)
        return tool_fail(TOOL_NO, "out of memory for %zu events", num_events);
    for (size_t i = 0; i < num_events; i++)
        TOOL_PST(pst_event_create(machine->device, &machine->events[i]));
    TOOL_PST(pst_event_create(machine->device, &machine->lane_event));
    return tool_status(pst_event_create(machine->device, &machine->chain_event));
}

/* The targets of the plain copies. They spread over as much memory as the stashes do, within
 * reason: a target that stays in a cache would be no fair anchor. */
static int make_copy_targets(replay_machine *machine)
{
    const replay_sizes *sizes = machine->sizes;
    uint64_t bytes =
        sizes->live_bytes_max < COPY_TARGET_MAX ? sizes->live_bytes_max : COPY_TARGET_MAX;
    bytes = bytes > sizes->set_bytes ? bytes : sizes->set_bytes;
    TOOL_TRY(take_memory(machine, "copy target", 0, bytes, &machine->copy_target));
    machine->copy_target_bytes = bytes;
    if (sizes->max_pages[REPLAY_HOST] == 0)
        return TOOL_OK;
    TOOL_PST(pst_device_alloc_pinned(machine->device, bytes, &machine->link_target));
    memset(machine->link_target, REPLAY_POISON_STATIC, bytes); /* as in take_memory */
    machine->link_target_bytes = bytes;
    return TOOL_OK;
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
    TOOL_TRY(make_tickets(machine));
    TOOL_TRY(make_events(machine));
    TOOL_TRY(make_copy_targets(machine));
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
static pst_status dismantle(replay_machine *machine)
{
    pst_device *device = machine->device;
    const uint32_t slots = machine->sizes->slots;
    pst_status first = pst_device_synchronize(device);
    LET_GO(first, pst_graph_destroy(machine->graph));
    for (uint32_t i = 0; machine->tickets != NULL && i < slots; i++)
        LET_GO(first, pst_ticket_destroy(machine->tickets[i]));
    LET_GO(first, pst_pool_destroy(machine->pool));
    LET_GO(first, pst_group_destroy(machine->group));
    for (size_t i = 0; machine->events != NULL && i < (size_t)slots * REPLAY_NUM_TIMES; i++)
        LET_GO(first, pst_event_destroy(device, machine->events[i]));
    LET_GO(first, pst_event_destroy(device, machine->lane_event));
    LET_GO(first, pst_event_destroy(device, machine->chain_event));
    LET_GO(first, pst_device_free(device, machine->pool_memory));
    LET_GO(first, pst_device_free(device, machine->copy_target));
    LET_GO(first, pst_device_free_pinned(device, machine->link_target));
    LET_GO(first, pst_device_free(device, machine->control));
    LET_GO(first, pst_device_free(device, machine->mismatches));
    LET_GO(first, pst_device_free_pinned(device, machine->control_pinned));
    LET_GO(first, pst_device_free_pinned(device, machine->mismatches_pinned));
    for (uint32_t i = 0; i < machine->lanes; i++) {
        LET_GO(first, pst_dirty_destroy(machine->dirty[i]));
        LET_GO(first, pst_device_free(device, machine->static_set[i]));
        LET_GO(first, pst_device_free(device, machine->working_set[i]));
        LET_GO(first, pst_stream_destroy(device, machine->streams[i]));
    }
    LET_GO(first, pst_device_close(device));
    return first;
}

int replay_close(replay_machine *machine, int code)
{
    const pst_status status = machine->device != NULL ? dismantle(machine) : PST_OK;
    for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++)
        free(machine->rates[i]);
    free(machine->recover_seconds);
    free(machine->link);
    free(machine->events);
    free(machine->tickets);
    return code != TOOL_OK || status == PST_OK ? code : tool_status(status);
}
