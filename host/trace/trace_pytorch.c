/* Snapshots of PyTorch's allocator: pickles of torch.cuda.memory._snapshot(). Of
 * device_traces[device], a list of events, those count that give memory out (alloc) and that make
 * it free for good (free_completed). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/trace/trace.h"

enum { PICKLE_BEGIN = 0x80 };
enum { MAX_KEYS = 64 }; /* of an event, which may be shared: bounds the time as well */

typedef struct pytorch_state {
    unsigned char *bytes;
    uint64_t num_bytes, capacity;
    psti_pickle pickle;
    psti_cursor cursor; /* over the events */
    uint64_t event;     /* from 1 */
    psti_addresses addresses;
    psti_stream_names streams;
    bool is_read;
} pytorch_state;

#define BAD(reader, field, ...) \
    PSTI_TRACE_BAD(&(reader)->config, ((pytorch_state *)(reader)->state)->event, field, __VA_ARGS__)

static pst_status read_file(pst_trace_reader *reader, pytorch_state *state)
{
    enum { PIECE = 1 << 16 };
    for (;;) {
        PSTI_TRY(psti_grow((void **)&state->bytes, &state->capacity, state->num_bytes + PIECE, 1));
        const size_t room = (size_t)(state->capacity - state->num_bytes);
        const ptrdiff_t got = reader->read(reader->source, state->bytes + state->num_bytes, room);
        PSTI_CHECK(got >= 0, PST_E_INVALID, "%.200s: byte %" PRIu64 ": cannot be read: %s",
                   reader->name, state->num_bytes, strerror((int)-got));
        PSTI_CHECK((size_t)got <= room, PST_E_INVALID,
                   "%.200s: byte %" PRIu64 ": read gave %td bytes: allowed are at most %zu",
                   reader->name, state->num_bytes, got, room);
        if (got == 0)
            return PST_OK;
        state->num_bytes += (uint64_t)got;
        PSTI_CHECK(
            state->bytes[0] == PICKLE_BEGIN, PST_E_INVALID,
            "%.200s: byte 0: 0x%02x: allowed is 0x80, with which pickles of protocols 2 to 5 begin",
            reader->name, state->bytes[0]);
        PSTI_CHECK(state->num_bytes <= PSTI_PICKLE_BYTES, PST_E_INVALID,
                   "%.200s: byte %" PRIu64 ": more than 4 GiB: allowed is less", reader->name,
                   PSTI_PICKLE_BYTES);
    }
}

static bool is_array(psti_value value)
{
    return psti_pickle_type_of(value) == PSTI_PICKLE_LIST ||
           psti_pickle_type_of(value) == PSTI_PICKLE_TUPLE;
}

/* device_traces[device] */
static pst_status find_events(pst_trace_reader *reader, pytorch_state *state)
{
    const psti_pickle *pickle = &state->pickle;
    const psti_pickle_type root_type = psti_pickle_type_of(pickle->root);
    psti_value events = 0;
    uint32_t num_devices = 0;
    PSTI_CHECK(root_type == PSTI_PICKLE_DICT, PST_E_INVALID,
               "%.200s: the snapshot is %s: allowed is a dict with device_traces", reader->name,
               psti_pickle_type_name(root_type));
    const psti_value devices = psti_pickle_find(pickle, pickle->root, "device_traces");
    PSTI_CHECK(is_array(devices), PST_E_INVALID,
               "%.200s: field device_traces: %s: allowed is a list", reader->name,
               psti_pickle_type_name(psti_pickle_type_of(devices)));
    psti_cursor cursor = psti_pickle_first(pickle, devices);
    for (psti_value value = 0; psti_pickle_next(pickle, &cursor, &value); num_devices++)
        if (num_devices == reader->config.device)
            events = value;
    PSTI_CHECK(reader->config.device < num_devices, PST_E_INVALID,
               "%.200s: device %u: the snapshot has %u devices", reader->name,
               reader->config.device, num_devices);
    PSTI_CHECK(is_array(events), PST_E_INVALID,
               "%.200s: field device_traces[%u]: %s: allowed is a list", reader->name,
               reader->config.device, psti_pickle_type_name(psti_pickle_type_of(events)));
    state->cursor = psti_pickle_first(pickle, events);
    return PST_OK;
}

static pst_status take_number(const pst_trace_reader *reader, psti_value event, const char *name,
                              uint64_t min, uint64_t max, uint64_t *out)
{
    const psti_pickle *pickle = &((pytorch_state *)reader->state)->pickle;
    const psti_value value = psti_pickle_find(pickle, event, name);
    const psti_pickle_type type = psti_pickle_type_of(value);
    uint64_t number = 0;
    if (type != PSTI_PICKLE_INT)
        return BAD(reader, name, "%s: allowed is an int", psti_pickle_type_name(type));
    if (!psti_pickle_u64(pickle, value, &number))
        return BAD(reader, name, "an int out of range: allowed is %" PRIu64 "..%" PRIu64, min, max);
    if (number < min || number > max)
        return BAD(reader, name, "%" PRIu64 ": allowed is %" PRIu64 "..%" PRIu64, number, min, max);
    *out = number;
    return PST_OK;
}

/* Fills the row of an event that counts. A free of what was given out before the window leaves its
 * line 0. */
static pst_status take_event(const pst_trace_reader *reader, psti_value event, pst_trace_op op,
                             pst_trace_request *row)
{
    pytorch_state *state = reader->state;
    const bool is_malloc = op == PST_TRACE_MALLOC;
    uint64_t address = 0;
    uint64_t stream = 0;
    bool is_live = false;
    *row = psti_trace_row(0, op);
    PSTI_TRY(take_number(reader, event, "addr", 0, UINT64_MAX, &address));
    PSTI_TRY(take_number(reader, event, "size", 1, PST_TRACE_MAX_BYTES, &row->bytes));
    PSTI_TRY(take_number(reader, event, "stream", 0, UINT64_MAX, &stream));
    const uint64_t other = psti_address_line(&state->addresses, address, &is_live);
    if (!is_malloc && other == 0)
        return PST_OK;
    if (is_live == is_malloc)
        return BAD(reader, "addr", "0x%" PRIx64 ": %s: %s at event %" PRIu64, address,
                   is_malloc ? "alloc of what is live" : "double free",
                   is_malloc ? "alloc" : "free_completed", other);
    row->stream = psti_stream_number(&state->streams, stream);
    if (row->stream == PST_TRACE_MAX_STREAMS)
        return BAD(reader, "stream", "0x%" PRIx64 ": allowed are at most 64 streams", stream);
    row->line = state->event;
    row->id = is_malloc ? state->event : other;
    return psti_address_set(&state->addresses, address, state->event, is_malloc);
}

static bool is_large(const psti_pickle *pickle, psti_value event)
{
    psti_cursor cursor = psti_pickle_first(pickle, event);
    psti_value value;
    uint32_t num_values = 0;
    while (num_values <= 2 * MAX_KEYS && psti_pickle_next(pickle, &cursor, &value))
        num_values++;
    return num_values > 2 * MAX_KEYS;
}

static pst_status next_event(const pst_trace_reader *reader, pst_trace_request *row)
{
    pytorch_state *state = reader->state;
    const psti_pickle *pickle = &state->pickle;
    psti_value event = 0;
    while (psti_pickle_next(pickle, &state->cursor, &event)) {
        const psti_pickle_type type = psti_pickle_type_of(event);
        state->event++;
        if (type != PSTI_PICKLE_DICT)
            return BAD(reader, "event", "%s: allowed is a dict", psti_pickle_type_name(type));
        if (is_large(pickle, event))
            return BAD(reader, "event", "more than %d keys: allowed are fewer", MAX_KEYS);
        const psti_value action = psti_pickle_find(pickle, event, "action");
        if (psti_pickle_type_of(action) != PSTI_PICKLE_TEXT)
            return BAD(reader, "action", "%s: allowed is a str",
                       psti_pickle_type_name(psti_pickle_type_of(action)));
        const psti_field name = psti_pickle_text(pickle, action);
        const bool is_malloc = psti_field_is(name, "alloc");
        if (!is_malloc && !psti_field_is(name, "free_completed"))
            continue; /* of segments, or says nothing about lives */
        PSTI_TRY(take_event(reader, event, is_malloc ? PST_TRACE_MALLOC : PST_TRACE_FREE, row));
        if (row->line != 0)
            return PST_OK;
    }
    return PST_E_AGAIN;
}

static pst_status next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    pytorch_state *state = reader->state;
    if (!state->is_read) {
        PSTI_TRY(read_file(reader, state));
        state->pickle.name = reader->name;
        state->pickle.bytes = state->bytes;
        state->pickle.num_bytes = state->num_bytes;
        PSTI_TRY(psti_pickle_parse(&state->pickle));
        PSTI_TRY(find_events(reader, state));
        state->is_read = true;
    }
    return next_event(reader, request_out);
}

static void close_state(pst_trace_reader *reader)
{
    pytorch_state *state = reader->state;
    psti_pickle_close(&state->pickle);
    psti_map_free(&state->addresses.map);
    psti_free(state->bytes);
}

const psti_trace_kind psti_trace_by_pytorch = {.next = next,
                                               .close = close_state,
                                               .state_bytes = sizeof(pytorch_state),
                                               .keeps_unfreed = true};
