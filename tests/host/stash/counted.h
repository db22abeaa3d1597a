/* The host device with every call of its table counted. */
#ifndef PAGESTASH_TESTS_COUNTED_H
#define PAGESTASH_TESTS_COUNTED_H

#include "tests/harness.h"

#include "host/device/device.h"

typedef struct device_calls {
    uint32_t launches[PSTI_NUM_OPS];
    uint32_t queries; /* whether a stream is captured */
    uint32_t holds;
    uint32_t checks; /* of addresses: with PAGESTASH_CHECK=1 alone */
    uint32_t others;
} device_calls;

static device_calls counted;
static const psti_device_ops *counted_real;

#define COUNTED(name, parameters, arguments)    \
    static pst_status counted_##name parameters \
    {                                           \
        counted.others++;                       \
        return counted_real->name arguments;    \
    }
COUNTED(get_info, (pst_device * device, pst_device_info *info), (device, info))
COUNTED(alloc, (pst_device * device, size_t bytes, void **out), (device, bytes, out))
COUNTED(free, (pst_device * device, void *address), (device, address))
COUNTED(alloc_pinned, (pst_device * device, size_t bytes, void **out), (device, bytes, out))
COUNTED(free_pinned, (pst_device * device, void *address), (device, address))
COUNTED(copy, (pst_device * device, void *to, const void *from, size_t bytes, pst_stream stream),
        (device, to, from, bytes, stream))
COUNTED(fill, (pst_device * device, void *to, uint8_t value, size_t bytes, pst_stream stream),
        (device, to, value, bytes, stream))
COUNTED(synchronize, (pst_device * device), (device))
COUNTED(stream_create, (pst_device * device, pst_stream *out), (device, out))
COUNTED(stream_destroy, (pst_device * device, pst_stream stream), (device, stream))
COUNTED(stream_synchronize, (pst_device * device, pst_stream stream), (device, stream))
COUNTED(stream_query, (pst_device * device, pst_stream stream, bool *out), (device, stream, out))
COUNTED(event_create, (pst_device * device, pst_event *out), (device, out))
COUNTED(event_destroy, (pst_device * device, pst_event event), (device, event))
COUNTED(event_record, (pst_device * device, pst_event event, pst_stream stream, bool external),
        (device, event, stream, external))
COUNTED(event_wait, (pst_device * device, pst_event event, pst_stream stream, bool external),
        (device, event, stream, external))
COUNTED(event_synchronize, (pst_device * device, pst_event event), (device, event))
COUNTED(event_elapsed, (pst_device * device, pst_event begin, pst_event end, double *out),
        (device, begin, end, out))
COUNTED(graph_begin, (pst_device * device, pst_stream stream), (device, stream))
COUNTED(graph_end, (pst_device * device, pst_stream stream, pst_graph *graph),
        (device, stream, graph))
COUNTED(graph_launch, (pst_graph * graph, pst_stream stream), (graph, stream))
COUNTED(call,
        (pst_device * device, psti_function *function, const void *args, size_t bytes,
         pst_stream stream),
        (device, function, args, bytes, stream))
COUNTED(within, (pst_device * device, psti_function *function, const void *args),
        (device, function, args))
COUNTED(span_open, (pst_device * device, uint32_t tier, uint64_t reserved, psti_span *span),
        (device, tier, reserved, span))
COUNTED(span_resize, (pst_device * device, psti_span *span, uint64_t bytes), (device, span, bytes))
#undef COUNTED

static void counted_graph_destroy(pst_graph *graph)
{
    counted.others++;
    counted_real->graph_destroy(graph);
}

static void counted_span_close(pst_device *device, psti_span *span)
{
    counted.others++;
    counted_real->span_close(device, span);
}

static pst_status counted_capture_of(pst_device *device, pst_stream stream, psti_capture_of *out)
{
    counted.queries++;
    return counted_real->capture_of(device, stream, out);
}

static pst_status counted_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    counted.holds++;
    return counted_real->hold(device, capture, hold);
}

static pst_status counted_check_address(pst_device *device, const void *address, uint64_t bytes)
{
    counted.checks++;
    return counted_real->check_address(device, address, bytes);
}

static pst_status counted_launch(pst_device *device, psti_op op, const void *args,
                                 pst_stream stream)
{
    counted.launches[op]++;
    return counted_real->launch(device, op, args, stream);
}

/* From here on the device's calls count. */
static void count_calls(pst_device *device)
{
    static psti_device_ops ops;
    _Static_assert(sizeof(ops) == 33 * sizeof(ops.close), "a new call is counted, too");
    counted_real = device->ops;
    ops = (psti_device_ops){.close = device->ops->close,
                            .in_child = device->ops->in_child,
                            .get_info = counted_get_info,
                            .alloc = counted_alloc,
                            .free = counted_free,
                            .alloc_pinned = counted_alloc_pinned,
                            .free_pinned = counted_free_pinned,
                            .copy = counted_copy,
                            .fill = counted_fill,
                            .synchronize = counted_synchronize,
                            .stream_create = counted_stream_create,
                            .stream_destroy = counted_stream_destroy,
                            .stream_synchronize = counted_stream_synchronize,
                            .stream_query = counted_stream_query,
                            .event_create = counted_event_create,
                            .event_destroy = counted_event_destroy,
                            .event_record = counted_event_record,
                            .event_wait = counted_event_wait,
                            .event_synchronize = counted_event_synchronize,
                            .event_elapsed = counted_event_elapsed,
                            .graph_begin = counted_graph_begin,
                            .graph_end = counted_graph_end,
                            .graph_launch = counted_graph_launch,
                            .graph_destroy = counted_graph_destroy,
                            .capture_of = counted_capture_of,
                            .hold = counted_hold,
                            .launch = counted_launch,
                            .call = counted_call,
                            .within = counted_within,
                            .check_address = counted_check_address,
                            .span_open = counted_span_open,
                            .span_resize = counted_span_resize,
                            .span_close = counted_span_close};
    device->ops = &ops;
}

/* What was called since the last call of this. */
static device_calls calls_since(void)
{
    const device_calls calls = counted;
    memset(&counted, 0, sizeof(counted));
    return calls;
}

#endif
