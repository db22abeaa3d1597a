/* Times stash and restore alone, beside plain copies of the same bytes: between the iterations, with a
 * pool and a ticket of its own, since within an iteration other work is under way. */
#include "tools/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#define COPY_TARGET_MAX ((uint64_t)1 << 30)

/* The targets of the plain copies. They spread over as much memory as an iteration's live bytes do,
 * within reason: a target that stays in a cache would be no fair anchor. */
static int make_copy_targets(replay_machine *machine)
{
    const replay_sizes *sizes = machine->sizes;
    uint64_t bytes =
        sizes->live_bytes_max < COPY_TARGET_MAX ? sizes->live_bytes_max : COPY_TARGET_MAX;
    bytes = bytes > sizes->set_bytes ? bytes : sizes->set_bytes;
    TOOL_TRY(replay_take_memory(machine, "copy target", 0, bytes, &machine->copy_target));
    machine->copy_target_bytes = bytes;
    if (sizes->max_pages[REPLAY_HOST] == 0)
        return TOOL_OK;
    TOOL_PST(pst_device_alloc_pinned(machine->device, bytes, &machine->link_target));
    memset(machine->link_target, REPLAY_POISON_SOURCE, bytes); /* as in replay_take_memory */
    machine->link_target_bytes = bytes;
    return TOOL_OK;
}

/* As many pages as the copies have memory, which stashes go round. */
static int make_pool(replay_machine *machine)
{
    const replay_options *options = machine->options;
    const uint64_t page_bytes = options->model.page_size;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_group_usage full;
    TOOL_PST(pst_group_measure(machine->group, NULL, page_bytes, &full));
    const uint64_t spread = machine->copy_target_bytes / page_bytes + 1;
    config.page_bytes = page_bytes;
    config.num_pages = spread > full.pages ? spread : full.pages;
    config.num_host_pages = machine->link_target != NULL ? config.num_pages : 0;
    config.mode = (pst_pool_mode)options->mode;
    config.max_tickets = 1;
    config.scrub = options->scrub;
    TOOL_PST(pst_pool_create(machine->device, &config, &machine->timer_pool));
    return tool_status(
        pst_ticket_create(machine->timer_pool, machine->group, &machine->timer_ticket));
}

int replay_timer_make(replay_machine *machine)
{
    const size_t num_events = (size_t)machine->sizes->slots * REPLAY_NUM_TIMES;
    TOOL_TRY(make_copy_targets(machine));
    TOOL_TRY(make_pool(machine));
    machine->events = calloc(num_events, sizeof(pst_event));
    if (machine->events == NULL)
        return tool_fail(TOOL_NO, "out of memory for %zu events", num_events);
    for (size_t i = 0; i < num_events; i++)
        TOOL_PST(pst_event_create(machine->device, &machine->events[i]));
    return TOOL_OK;
}

static pst_status first_of(pst_status first, pst_status second)
{
    return first != PST_OK ? first : second;
}

pst_status replay_timer_free(replay_machine *machine)
{
    pst_device *device = machine->device;
    const size_t num_events = (size_t)machine->sizes->slots * REPLAY_NUM_TIMES;
    pst_status first = PST_OK;
    for (size_t i = 0; machine->events != NULL && i < num_events; i++) {
        first = first_of(first, pst_event_destroy(device, machine->events[i]));
        machine->events[i] = NULL;
    }
    const pst_status ticket = pst_ticket_destroy(machine->timer_ticket);
    if (ticket == PST_OK)
        machine->timer_ticket.id = 0;
    first = first_of(first, ticket);
    const pst_status pool = pst_pool_destroy(machine->timer_pool);
    if (pool == PST_OK)
        machine->timer_pool = NULL;
    first = first_of(first, pool);
    first = first_of(first, pst_device_free(device, machine->copy_target));
    machine->copy_target = NULL;
    first = first_of(first, pst_device_free_pinned(device, machine->link_target));
    machine->link_target = NULL;
    return first;
}

static pst_event event_of(const replay_machine *machine, uint32_t place, enum replay_time time)
{
    return machine->events[(size_t)place * REPLAY_NUM_TIMES + time];
}

int replay_mark(const replay_machine *machine, uint32_t place, enum replay_time time,
                pst_stream stream)
{
    return tool_status(pst_event_record(machine->device, event_of(machine, place, time), stream));
}

int replay_add_time(const replay_machine *machine, uint32_t place, enum replay_time begin,
                    double *sum)
{
    double seconds;
    TOOL_PST(pst_event_elapsed(machine->device, event_of(machine, place, begin),
                               event_of(machine, place, begin + 1), &seconds));
    *sum += seconds;
    return TOOL_OK;
}

static int enqueue_stash(const replay_machine *machine, uint32_t place)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch = replay_launch(machine->options);
    const replay_bases bases = replay_bases_in(machine->sizes, machine->sources[0]);
    const void *counts = replay_counts_of(machine, place);
    pst_buffers source = PST_BUFFERS_INIT;
    source.bases = bases.at;
    source.counts = &counts;
    return tool_status(pst_ticket_stash(machine->timer_ticket, machine->group, &source, &options,
                                        machine->stream));
}

static int enqueue_restore(const replay_machine *machine)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch = replay_launch(machine->options);
    options.tail = machine->options->tail == PST_TAIL_ZERO ? PST_TAIL_ZERO_ALL : PST_TAIL_UNTOUCHED;
    const replay_bases bases = replay_bases_in(machine->sizes, machine->copy_target);
    pst_buffers destination = PST_BUFFERS_INIT;
    destination.bases = bases.at;
    return tool_status(pst_ticket_restore(machine->timer_ticket, machine->group, &destination,
                                          &options, machine->stream));
}

static int enqueue_first(const replay_machine *machine)
{
    TOOL_TRY(enqueue_stash(machine, 0));
    return enqueue_restore(machine);
}

int replay_timer_count_launches(const replay_machine *machine, uint64_t *launches_out)
{
    pst_graph *graph;
    TOOL_TRY(replay_capture(machine, enqueue_first, &graph));
    pst_graph_info info;
    const int code = tool_status(pst_graph_get_info(graph, &info));
    const int destroyed = tool_status(pst_graph_destroy(graph));
    if (code == TOOL_OK && destroyed == TOOL_OK)
        *launches_out = info.num_kernels;
    return code != TOOL_OK ? code : destroyed;
}

static int time_copy(const replay_machine *machine, uint32_t place, uint64_t bytes,
                     uint64_t *offset)
{
    if (bytes == 0)
        return TOOL_OK;
    if (*offset + bytes > machine->copy_target_bytes)
        *offset = 0;
    TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_COPY_BEGIN, machine->stream));
    TOOL_PST(pst_device_copy(machine->device, (char *)machine->copy_target + *offset,
                             machine->sources[0], bytes, machine->stream));
    *offset += bytes;
    return replay_mark(machine, place, REPLAY_TIME_COPY_END, machine->stream);
}

/* As many pages on the host as the iteration's own stash had, which come first here. */
static int time_stash(const replay_machine *machine, uint32_t place, uint64_t num_pages)
{
    const uint64_t host_pages = machine->link[place].host_pages;
    if (machine->link_target != NULL)
        TOOL_PST(pst_ticket_set_offload(machine->timer_ticket, (uint32_t)host_pages,
                                        num_pages != 0 ? (uint32_t)num_pages : 1));
    TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_STASH_BEGIN, machine->stream));
    TOOL_TRY(enqueue_stash(machine, place));
    TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_STASH_END, machine->stream));
    TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_RESTORE_BEGIN, machine->stream));
    TOOL_TRY(enqueue_restore(machine));
    return replay_mark(machine, place, REPLAY_TIME_RESTORE_END, machine->stream);
}

int replay_timer_run(replay_machine *machine, uint64_t iteration)
{
    const replay_sizes *sizes = machine->sizes;
    uint64_t offset = 0;
    for (uint32_t place = 0; place < sizes->slots; place++) {
        const uint64_t idx = iteration * sizes->slots + place;
        if (!machine->order->is_used[place])
            continue;
        TOOL_TRY(time_copy(machine, place, sizes->payload[idx], &offset));
        TOOL_TRY(time_stash(machine, place, sizes->pages[idx]));
    }
    return replay_link_copies(machine);
}

int replay_timer_add(const replay_machine *machine, uint64_t iteration, replay_result *result)
{
    const uint64_t *payload = machine->sizes->payload + iteration * machine->sizes->slots;
    for (uint32_t place = 0; place < machine->sizes->slots; place++) {
        if (!machine->order->is_used[place])
            continue;
        TOOL_TRY(replay_add_time(machine, place, REPLAY_TIME_STASH_BEGIN, &result->stash_seconds));
        TOOL_TRY(
            replay_add_time(machine, place, REPLAY_TIME_RESTORE_BEGIN, &result->restore_seconds));
        if (payload[place] != 0)
            TOOL_TRY(
                replay_add_time(machine, place, REPLAY_TIME_COPY_BEGIN, &result->copy_seconds));
    }
    return TOOL_OK;
}
