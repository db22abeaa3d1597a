/* What recorder.h says. */
#include "tests/host/device/recorder.h"

static recorder *self; /* in front of the device */

static void note(const char *name, uint64_t bytes, pst_stream stream)
{
    if (self->num_calls < RECORDER_CALLS)
        self->calls[self->num_calls] = (recorder_call){name, bytes, stream};
    self->num_calls++;
}

/* Answers whether this call is the one to fail. */
static bool fails(const char *name, uint64_t bytes, pst_stream stream, pst_status passing)
{
    note(name, bytes, stream);
    if (self->fails_at == 0 || (self->failure == RECORDER_PASSES && passing == PST_OK))
        return false;
    if (--self->fails_at > 0)
        return false;
    self->failed = name;
    self->failed_for = self->failure == RECORDER_CUDA ? PST_E_CUDA : passing;
    return true;
}

static pst_status say(void)
{
    return PSTI_FAIL(self->failed_for, "device call %s was to fail", self->failed);
}

/* passing: what it answers while the device works on; PST_OK: then it does not fail. */
#define TRY(name, bytes, stream, passing)         \
    do {                                          \
        if (fails(#name, bytes, stream, passing)) \
            return say();                         \
    } while (0)

/* What gives something back has done so. */
#define GIVE_BACK(name, stream, call)                         \
    do {                                                      \
        const bool failed_ = fails(#name, 0, stream, PST_OK); \
        self->gave_back |= failed_;                           \
        const pst_status status_ = (call);                    \
        return failed_ ? say() : status_;                     \
    } while (0)

/* What a wait answers while the device works on. */
static pst_status wait_fails(void)
{
    const bool has_waited = self->has_waited;
    self->has_waited = true;
    return has_waited ? PST_OK : PST_E_CAPTURE;
}

static void record_close(pst_device *device)
{
    note("close", 0, NULL);
    self->real->close(device);
}

static pst_status record_get_info(pst_device *device, pst_device_info *info)
{
    TRY(get_info, sizeof(*info), NULL, PST_E_CAPTURE);
    return self->real->get_info(device, info);
}

static pst_status record_alloc(pst_device *device, size_t bytes, void **address_out)
{
    TRY(alloc, bytes, NULL, PST_E_DEVICE_NOMEM);
    return self->real->alloc(device, bytes, address_out);
}

static pst_status record_free(pst_device *device, void *address)
{
    GIVE_BACK(free, NULL, self->real->free(device, address));
}

static pst_status record_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    TRY(alloc_pinned, bytes, NULL, PST_E_NOMEM);
    return self->real->alloc_pinned(device, bytes, address_out);
}

static pst_status record_free_pinned(pst_device *device, void *address)
{
    GIVE_BACK(free_pinned, NULL, self->real->free_pinned(device, address));
}

static pst_status record_copy(pst_device *device, void *to, const void *from, size_t bytes,
                              pst_stream stream)
{
    TRY(copy, bytes, stream, PST_E_CAPTURE);
    return self->real->copy(device, to, from, bytes, stream);
}

static pst_status record_fill(pst_device *device, void *to, uint8_t value, size_t bytes,
                              pst_stream stream)
{
    TRY(fill, bytes, stream, PST_E_CAPTURE);
    return self->real->fill(device, to, value, bytes, stream);
}

static pst_status record_synchronize(pst_device *device)
{
    TRY(synchronize, 0, NULL, wait_fails());
    return self->real->synchronize(device);
}

static pst_status record_stream_create(pst_device *device, pst_stream *stream_out)
{
    TRY(stream_create, 0, NULL, PST_E_NOMEM);
    return self->real->stream_create(device, stream_out);
}

static pst_status record_stream_destroy(pst_device *device, pst_stream stream)
{
    GIVE_BACK(stream_destroy, stream, self->real->stream_destroy(device, stream));
}

static pst_status record_stream_synchronize(pst_device *device, pst_stream stream)
{
    TRY(stream_synchronize, 0, stream, wait_fails());
    return self->real->stream_synchronize(device, stream);
}

static pst_status record_stream_query(pst_device *device, pst_stream stream, bool *idle_out)
{
    TRY(stream_query, 0, stream, wait_fails());
    return self->real->stream_query(device, stream, idle_out);
}

static pst_status record_event_create(pst_device *device, pst_event *event_out)
{
    TRY(event_create, 0, NULL, PST_E_NOMEM);
    return self->real->event_create(device, event_out);
}

static pst_status record_event_destroy(pst_device *device, pst_event event)
{
    GIVE_BACK(event_destroy, NULL, self->real->event_destroy(device, event));
}

static pst_status record_event_record(pst_device *device, pst_event event, pst_stream stream,
                                      bool external)
{
    TRY(event_record, 0, stream, PST_E_CAPTURE);
    return self->real->event_record(device, event, stream, external);
}

static pst_status record_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                    bool external)
{
    TRY(event_wait, 0, stream, PST_E_CAPTURE);
    return self->real->event_wait(device, event, stream, external);
}

static pst_status record_event_synchronize(pst_device *device, pst_event event)
{
    TRY(event_synchronize, 0, NULL, wait_fails());
    return self->real->event_synchronize(device, event);
}

static pst_status record_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                       double *seconds_out)
{
    TRY(event_elapsed, 0, NULL, PST_E_CAPTURE);
    PSTI_TRY(self->real->event_elapsed(device, begin, end, seconds_out));
    *seconds_out = 1e-6 * ++self->num_times;
    return PST_OK;
}

static pst_status record_graph_begin(pst_device *device, pst_stream stream)
{
    TRY(graph_begin, 0, stream, PST_E_CAPTURE);
    return self->real->graph_begin(device, stream);
}

/* The capture ends whether or not there is a graph of it. */
static pst_status record_graph_end(pst_device *device, pst_stream stream, pst_graph *graph)
{
    const bool failed = fails("graph_end", 0, stream, PST_E_CAPTURE);
    const pst_status status = self->real->graph_end(device, stream, graph);
    if (failed && status == PST_OK)
        self->real->graph_destroy(graph);
    return failed ? say() : status;
}

static pst_status record_graph_launch(pst_graph *graph, pst_stream stream)
{
    TRY(graph_launch, 0, stream, PST_E_CAPTURE);
    return self->real->graph_launch(graph, stream);
}

static void record_graph_destroy(pst_graph *graph)
{
    note("graph_destroy", 0, NULL);
    self->real->graph_destroy(graph);
}

static pst_status record_capture_of(pst_device *device, pst_stream stream,
                                    psti_capture_of *capture_out)
{
    TRY(capture_of, 0, stream, PST_E_CAPTURE);
    return self->real->capture_of(device, stream, capture_out);
}

static pst_status record_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    TRY(hold, 0, NULL, PST_E_NOMEM);
    return self->real->hold(device, capture, hold);
}

static pst_status record_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    TRY(launch, psti_op_args_bytes(op), stream, PST_E_CAPTURE);
    return self->real->launch(device, op, args, stream);
}

static pst_status record_call(pst_device *device, psti_function *function, const void *args,
                              size_t bytes, pst_stream stream)
{
    TRY(call, bytes, stream, PST_E_CAPTURE);
    return self->real->call(device, function, args, bytes, stream);
}

static pst_status record_within(pst_device *device, psti_function *function, const void *args)
{
    TRY(within, 0, NULL, PST_E_CAPTURE);
    return self->real->within(device, function, args);
}

static pst_status record_check_address(pst_device *device, const void *address, uint64_t bytes)
{
    TRY(check_address, bytes, NULL, PST_E_INVALID);
    return self->real->check_address(device, address, bytes);
}

static pst_status record_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                                   psti_span *span)
{
    TRY(span_open, reserved, NULL, PST_E_NOMEM);
    return self->real->span_open(device, tier, reserved, span);
}

/* No more bytes than before: it gives back. */
static pst_status record_span_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    const bool grows = bytes > span->mapped;
    const bool failed = fails("span_resize", bytes, NULL, grows ? PST_E_DEVICE_NOMEM : PST_OK);
    self->gave_back |= failed && !grows;
    const pst_status status =
        failed && grows ? say() : self->real->span_resize(device, span, bytes);
    return failed ? say() : status;
}

static void record_span_close(pst_device *device, psti_span *span)
{
    note("span_close", 0, NULL);
    self->real->span_close(device, span);
}

void recorder_make(recorder *made, pst_device *device)
{
    *made = (recorder){.real = device->ops};
    made->ops = (psti_device_ops){
        .close = record_close,
        .in_child = device->ops->in_child,
        .get_info = record_get_info,
        .alloc = record_alloc,
        .free = record_free,
        .alloc_pinned = record_alloc_pinned,
        .free_pinned = record_free_pinned,
        .copy = record_copy,
        .fill = record_fill,
        .synchronize = record_synchronize,
        .stream_create = record_stream_create,
        .stream_destroy = record_stream_destroy,
        .stream_synchronize = record_stream_synchronize,
        .stream_query = record_stream_query,
        .event_create = record_event_create,
        .event_destroy = record_event_destroy,
        .event_record = record_event_record,
        .event_wait = record_event_wait,
        .event_synchronize = record_event_synchronize,
        .event_elapsed = record_event_elapsed,
        .graph_begin = record_graph_begin,
        .graph_end = record_graph_end,
        .graph_launch = record_graph_launch,
        .graph_destroy = record_graph_destroy,
        .capture_of = record_capture_of,
        .hold = record_hold,
        .launch = record_launch,
        .call = record_call,
        .within = record_within,
        .check_address = record_check_address,
        .span_open = record_span_open,
        .span_resize = record_span_resize,
        .span_close = record_span_close,
    };
    device->ops = &made->ops;
    self = made;
}

void recorder_arm(recorder *recording, recorder_failure failure, uint32_t n)
{
    recording->num_calls = 0;
    recording->failure = failure;
    recording->fails_at = n;
    recording->has_waited = recording->gave_back = false;
    recording->failed = NULL;
    recording->failed_for = PST_OK;
}
