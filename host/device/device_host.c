/* The host device: memory of this process, work done in the calling thread. */
#include "host/device/host_device.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT 256u

/* ---- memory ---- */

static pst_status alloc(size_t bytes, void **address_out)
{
    /* without this check overcommit would let the system kill us later */
    const uint64_t available = bytes > (64u << 20) ? psti_available_bytes() : UINT64_MAX;
    void *address = NULL;
    if (!psti_allocation_fails() && bytes <= available && bytes <= SIZE_MAX - ALIGNMENT)
        address = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    PSTI_CHECK(address, PST_E_DEVICE_NOMEM, "%zu bytes wanted, %llu bytes free", bytes,
               (unsigned long long)psti_available_bytes());
    *address_out = address;
    return PST_OK;
}

static pst_status host_alloc(pst_device *device, size_t bytes, void **address_out)
{
    (void)device;
    PSTI_TRY(psti_capture_forbids("pst_device_alloc"));
    return alloc(bytes, address_out);
}

static pst_status host_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    (void)device;
    PSTI_TRY(psti_capture_forbids("pst_device_alloc_pinned"));
    PSTI_TRY(alloc(bytes, address_out));
    memset(*address_out, 0, bytes);
    return PST_OK;
}

static pst_status host_free(pst_device *device, void *address)
{
    (void)device;
    PSTI_TRY(psti_capture_forbids("pst_device_free"));
    free(address);
    return PST_OK;
}

static pst_status host_free_pinned(pst_device *device, void *address)
{
    (void)device;
    PSTI_TRY(psti_capture_forbids("pst_device_free_pinned"));
    free(address);
    return PST_OK;
}

static pst_status host_get_info(pst_device *device, pst_device_info *info)
{
    *info = device->info;
    info->free_bytes = psti_available_bytes();
    return PST_OK;
}

static pst_status host_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                                 psti_span *span)
{
    (void)device;
    (void)tier;
    return psti_host_span_open(span, reserved);
}

static pst_status host_span_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    (void)device;
    return psti_host_span_resize(span, bytes);
}

static void host_span_close(pst_device *device, psti_span *span)
{
    (void)device;
    psti_host_span_close(span);
}

/* ---- running and recording ---- */

static uint64_t now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

pst_status psti_host_run(const pst_device *device, const psti_node *what)
{
    switch (what->kind) {
    case PSTI_NODE_LAUNCH:
        psti_host_state_of(device)->runners->run[what->op](what->args);
        break;
    case PSTI_NODE_COPY:
        memmove(what->to, what->from, what->bytes);
        break;
    case PSTI_NODE_FILL:
        memset(what->to, what->value, what->bytes);
        break;
    case PSTI_NODE_CALL:
        return what->function(what->args);
    case PSTI_NODE_RECORD:
        __atomic_store_n(&what->event->nanoseconds, now_nanoseconds(), __ATOMIC_RELEASE);
        break;
    case PSTI_NODE_WAIT: /* what was recorded before is done; take part in its happens-before */
        (void)__atomic_load_n(&what->event->nanoseconds, __ATOMIC_ACQUIRE);
        break;
    }
    return PST_OK;
}

pst_status psti_host_enqueue(pst_device *device, const psti_node *what, pst_stream stream)
{
    psti_host_state *state = psti_host_state_of(device);
    PSTI_TRY(psti_host_check_stream(device, stream));
    if (!stream || !stream->captured)
        return psti_host_run(device, what);
    psti_lock_take(&state->lock);
    const pst_status status = psti_capture_append(stream, what);
    psti_lock_give(&state->lock);
    return status;
}

static pst_status host_copy(pst_device *device, void *to, const void *from, size_t bytes,
                            pst_stream stream)
{
    const psti_node what = {.kind = PSTI_NODE_COPY, .to = to, .from = from, .bytes = bytes};
    return psti_host_enqueue(device, &what, stream);
}

static pst_status host_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                            pst_stream stream)
{
    const psti_node what = {.kind = PSTI_NODE_FILL, .to = to, .value = value, .bytes = bytes};
    return psti_host_enqueue(device, &what, stream);
}

/* A node with `bytes` of args; where it is recorded, it gets a copy of them. */
static pst_status enqueue_with(pst_device *device, psti_node *what, const void *args, size_t bytes,
                               pst_stream stream)
{
    PSTI_TRY(psti_host_check_stream(device, stream));
    if (!stream || !stream->captured) {
        what->args = (void *)(uintptr_t)args; /* whoever runs it leaves them as they are */
        return psti_host_run(device, what);
    }
    what->args = psti_calloc(1, bytes);
    if (!what->args) {
        __atomic_store_n(&stream->captured->failed, true, __ATOMIC_RELAXED);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a node of the graph");
    }
    memcpy(what->args, args, bytes);
    const pst_status status = psti_host_enqueue(device, what, stream);
    if (status != PST_OK)
        psti_free(what->args);
    return status;
}

static pst_status host_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    psti_node what = {.kind = PSTI_NODE_LAUNCH, .op = op};
    return enqueue_with(device, &what, args, psti_op_args_bytes(op), stream);
}

static pst_status host_call(pst_device *device, psti_function *function, const void *args,
                            size_t bytes, pst_stream stream)
{
    psti_node what = {.kind = PSTI_NODE_CALL, .function = function};
    return enqueue_with(device, &what, args, bytes, stream);
}

static pst_status host_within(pst_device *device, psti_function *function, const void *args)
{
    (void)device;
    return function(args);
}

/* Whether the system lets 8 bytes be read: it looks at them before it refuses the call. */
static bool is_readable(uintptr_t address)
{
    errno = 0;
    syscall(SYS_rt_sigprocmask, ~0, address & ~(uintptr_t)7, NULL, 8);
    return errno != EFAULT;
}

static pst_status host_check_address(pst_device *device, const void *address, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)address;
    (void)device;
    PSTI_CHECK(bytes - 1 <= UINTPTR_MAX - first && is_readable(first) &&
                   is_readable(first + (uintptr_t)(bytes - 1)),
               PST_E_INVALID, "address %p: no memory of this process has %" PRIu64 " bytes there",
               address, bytes);
    return PST_OK;
}

static pst_status host_synchronize(pst_device *device)
{
    psti_host_state *state = psti_host_state_of(device);
    psti_lock_take(&state->lock);
    const bool captures = psti_captures_break(&state->captures, "pst_device_synchronize");
    psti_lock_give(&state->lock);
    PSTI_CHECK(!captures, PST_E_CAPTURE,
               "pst_device_synchronize of a device of which a stream is being captured");
    return psti_capture_forbids("pst_device_synchronize");
}

/* ---- open and close ---- */

static void host_close(pst_device *device)
{
    psti_host_state *state = psti_host_state_of(device);
    psti_device_remove(device);
    psti_lock_close(&state->lock, PSTI_RANK_DEVICE);
    psti_slots_close(&state->streams);
    psti_slots_close(&state->events);
    psti_free(state);
    psti_handle_free(device);
}

static const psti_device_ops host_ops = {
    .close = host_close,
    .get_info = host_get_info,
    .alloc = host_alloc,
    .free = host_free,
    .alloc_pinned = host_alloc_pinned,
    .free_pinned = host_free_pinned,
    .copy = host_copy,
    .fill = host_fill,
    .synchronize = host_synchronize,
    .stream_create = psti_host_stream_create,
    .stream_destroy = psti_host_stream_destroy,
    .stream_synchronize = psti_host_stream_synchronize,
    .stream_query = psti_host_stream_query,
    .event_create = psti_host_event_create,
    .event_destroy = psti_host_event_destroy,
    .event_record = psti_host_event_record,
    .event_wait = psti_host_event_wait,
    .event_synchronize = psti_host_event_synchronize,
    .event_elapsed = psti_host_event_elapsed,
    .graph_begin = psti_host_graph_begin,
    .graph_end = psti_host_graph_end,
    .graph_launch = psti_host_graph_launch,
    .graph_destroy = psti_host_graph_destroy,
    .capture_of = psti_host_capture_of,
    .hold = psti_host_hold,
    .launch = host_launch,
    .call = host_call,
    .within = host_within,
    .check_address = host_check_address,
    .span_open = host_span_open,
    .span_resize = host_span_resize,
    .span_close = host_span_close,
};

pst_status psti_host_device_make(const char *name, int num_sms, const psti_runners *runners,
                                 pst_device **device_out)
{
    pst_device *device = psti_handle_new(sizeof(*device), PSTI_KIND_DEVICE);
    psti_host_state *state = psti_calloc(1, sizeof(*state));
    if (!device || !state) {
        psti_handle_free(device);
        psti_free(state);
        return PSTI_FAIL(PST_E_NOMEM, "no memory for a device");
    }
    psti_lock_open(&state->lock, PSTI_RANK_DEVICE);
    psti_slots_open(&state->streams);
    psti_slots_open(&state->events);
    state->runners = runners;
    device->ops = &host_ops;
    device->state = state;
    device->info.kind = PST_DEVICE_HOST;
    snprintf(device->info.name, sizeof(device->info.name), "%s", name);
    device->info.num_sms = num_sms;
    device->info.total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    device->info.free_bytes = psti_available_bytes();
    psti_device_add(device);
    *device_out = device;
    return PST_OK;
}

bool psti_host_is_present(void)
{
    return true;
}

pst_status psti_host_device_open(int index, pst_device **device_out)
{
    PSTI_CHECK(index == 0, PST_E_INVALID, "index %d: host has only device 0", index);
    return psti_host_device_make("host", 1, &psti_host_runners, device_out);
}
