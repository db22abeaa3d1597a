/* What crosses the link to host pages. The simulator says how many pages of each stash did; how many
 * live bytes that were follows from the rules of ticket.h and group.h. */
#include "tools/replay/replay.h"

#include <math.h>
#include <stdlib.h>

#include "host/base/arith.h"

enum { TILE_BYTES = 16 * 1024, SEGMENT_ALIGNMENT = 16 };

/* Bytes that [at, at + length) and [begin, end) have in common. */
static uint64_t overlap(uint64_t at, uint64_t length, uint64_t begin, uint64_t end)
{
    const uint64_t from = at > begin ? at : begin;
    const uint64_t to = psti_min(at + length, end);
    return to > from ? to - from : 0;
}

/* Live bytes of a stash within [begin, end) of its byte stream. */
static uint64_t live_bytes(const replay_machine *machine, const int32_t *counts, uint64_t begin,
                           uint64_t end)
{
    const replay_sizes *sizes = machine->sizes;
    uint64_t at = 0;
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < sizes->num_tensors; t++) {
        const replay_tensor *tensor = &sizes->tensors[t];
        for (uint32_t c = 0; c < machine->trace->num_counts; c++) {
            const uint64_t rows =
                ((uint64_t)counts[c] * tensor->num + tensor->den - 1) / tensor->den;
            const uint64_t length = rows * tensor->row_bytes;
            bytes += overlap(at, length, begin, end);
            at += psti_round_up(length, SEGMENT_ALIGNMENT);
        }
        at = psti_round_up(at, TILE_BYTES);
    }
    return bytes;
}

/* Host pages of a stash lead its byte stream as far as they were wished for, the others end it. */
static uint64_t link_bytes_of(const replay_machine *machine, const int32_t *counts,
                              uint64_t num_pages, uint64_t host_pages)
{
    const uint64_t page_bytes = machine->options->model.page_size;
    const flag_fraction offload = machine->options->offload_fraction;
    const uint64_t lead = psti_min(num_pages * offload.num / offload.den, host_pages);
    if (host_pages == 0)
        return 0;
    return live_bytes(machine, counts, 0, lead * page_bytes) +
           live_bytes(machine, counts, (num_pages - (host_pages - lead)) * page_bytes, UINT64_MAX);
}

void replay_link_predict(replay_machine *machine, uint64_t iteration)
{
    const replay_sizes *sizes = machine->sizes;
    const uint64_t page_bytes = machine->options->model.page_size;
    uint64_t offset = 0;
    machine->link_bytes = 0;
    for (uint32_t place = 0; place < sizes->slots; place++) {
        const uint64_t idx = iteration * sizes->slots + place;
        const int32_t *counts = machine->trace->counts + idx * machine->trace->num_counts;
        replay_link *link = &machine->link[place];
        machine->link_bytes += link_bytes_of(machine, counts, sizes->pages[idx], link->host_pages);
        link->bytes = live_bytes(machine, counts, 0, link->host_pages * page_bytes);
        if (offset + link->bytes > machine->link_target_bytes)
            offset = 0;
        link->offset = offset;
        offset += link->bytes;
    }
}

bool replay_order_is_known(const replay_options *options, const pst_device_info *device)
{
    return options->streams == 1 || device->kind == PST_DEVICE_HOST;
}

/* First all of them to the host, then all back in reverse, as the stashes and restores go. */
int replay_link_copies(const replay_machine *machine)
{
    const pst_stream stream = machine->stream;
    const uint32_t places = machine->sizes->slots;
    for (uint32_t place = 0; place < places; place++) {
        const replay_link *link = &machine->link[place];
        if (link->bytes == 0)
            continue;
        TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_TO_HOST_BEGIN, stream));
        TOOL_PST(pst_device_copy(machine->device, (char *)machine->link_target + link->offset,
                                 machine->sources[0], link->bytes, stream));
        TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_TO_HOST_END, stream));
    }
    for (uint32_t place = places; place-- > 0;) {
        const replay_link *link = &machine->link[place];
        if (link->bytes == 0)
            continue;
        TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_FROM_HOST_BEGIN, stream));
        TOOL_PST(pst_device_copy(machine->device, (char *)machine->copy_target + link->offset,
                                 (char *)machine->link_target + link->offset, link->bytes, stream));
        TOOL_TRY(replay_mark(machine, place, REPLAY_TIME_FROM_HOST_END, stream));
    }
    return TOOL_OK;
}

int replay_link_sample(replay_machine *machine, replay_result *result)
{
    static const enum replay_time begins[REPLAY_NUM_RATES] = {
        REPLAY_TIME_STASH_BEGIN, REPLAY_TIME_RESTORE_BEGIN, REPLAY_TIME_TO_HOST_BEGIN,
        REPLAY_TIME_FROM_HOST_BEGIN};
    double seconds[REPLAY_NUM_RATES] = {0};
    uint64_t bytes = 0;
    bool is_timed = true;
    for (uint32_t place = 0; place < machine->sizes->slots; place++) {
        if (machine->link[place].bytes == 0)
            continue;
        bytes += machine->link[place].bytes;
        for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++)
            TOOL_TRY(replay_add_time(machine, place, begins[i], &seconds[i]));
    }
    result->link_bytes += machine->link_bytes;
    for (uint32_t i = 0; i < REPLAY_NUM_RATES; i++) {
        machine->rates[i][machine->num_rates] = (double)bytes / seconds[i];
        is_timed = is_timed && seconds[i] > 0.0; /* not shorter than the clock can tell */
    }
    machine->num_rates += bytes > 0 && is_timed;
    return TOOL_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double replay_median(double *values, uint64_t num)
{
    if (num == 0)
        return NAN;
    qsort(values, num, sizeof(*values), compare);
    return (values[(num - 1) / 2] + values[num / 2]) / 2.0;
}
