/* Checks arguments and calls the device's table. */
#include "host/device/device.h"
#include "host/base/structs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEED(pointer) PSTI_CHECK((pointer) != NULL, PST_E_INVALID, #pointer " is NULL")

/* ---- what keeps a device open ---- */

void psti_device_retain(pst_device *device, psti_live kind)
{
    __atomic_fetch_add(&device->num_of[kind], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->live, 1, __ATOMIC_RELAXED);
}

void psti_device_release(pst_device *device, psti_live kind)
{
    __atomic_fetch_sub(&device->num_of[kind], 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&device->live, 1, __ATOMIC_RELEASE);
}

/* BUSY: "2 pools and 1 stream of device host still exist". */
static pst_status say_what_lives(const pst_device *device)
{
    static const char *const names[PSTI_LIVE_PART][2] = {
#define LIVE_NAMES(kind, one, several) {one, several},
        PSTI_LIVE_LIST(LIVE_NAMES)
#undef LIVE_NAMES
    };
    char text[256] = "";
    uint32_t left = 0;
    uint32_t num = 0;
    for (int i = 0; i < PSTI_LIVE_PART; i++)
        left += __atomic_load_n(&device->num_of[i], __ATOMIC_RELAXED) > 0;
    for (int i = 0; i < PSTI_LIVE_PART; i++) {
        const uint32_t count = __atomic_load_n(&device->num_of[i], __ATOMIC_RELAXED);
        const size_t length = strlen(text);
        if (count == 0)
            continue;
        left--;
        num += count;
        snprintf(text + length, sizeof(text) - length, "%u %s%s", count, names[i][count > 1],
                 left > 1    ? ", "
                 : left == 1 ? " and "
                             : "");
    }
    return PSTI_FAIL(PST_E_BUSY, "%s of device %s still exist%s", text, device->info.name,
                     num == 1 ? "s" : "");
}

/* ---- open and close ---- */

#if !PSTI_HAVE_CUDA
pst_status psti_cuda_device_open(int index, pst_device **device_out)
{
    (void)index;
    (void)device_out;
    return PSTI_FAIL(PST_E_UNSUPPORTED, "this library was built without CUDA");
}

bool psti_cuda_is_present(void)
{
    return false;
}
#endif

static const struct {
    const char *name;
    bool (*is_present)(void);
    pst_status (*open)(int index, pst_device **device_out);
} kinds[] = {
#define PSTI_DEVICE_ROW(name) {#name, psti_##name##_is_present, psti_##name##_device_open},
    PSTI_DEVICE_LIST(PSTI_DEVICE_ROW)
#undef PSTI_DEVICE_ROW
};

static pst_status opened(pst_status status, pst_device *const *device_out)
{
    if (status == PST_OK) {
        const pst_device_info *info = &(*device_out)->info;
        psti_log(PST_LOG_INFO, "device %d is %s, %d SMs, %" PRIu64 " bytes", info->index,
                 info->name, info->num_sms, info->total_bytes);
    }
    return status;
}

pst_status pst_device_open(const char *name, int index, pst_device **device_out)
{
    NEED(name);
    NEED(device_out);
    PSTI_TRY(pst_env_check());
    PSTI_CHECK(index >= 0, PST_E_INVALID, "index %d: must not be negative", index);
    const bool is_auto = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is_auto ? kinds[i].is_present() : strcmp(name, kinds[i].name) == 0)
            return opened(kinds[i].open(index, device_out), device_out);
    return PSTI_FAIL(PST_E_INVALID, "device '%.32s': allowed are " PST_DEVICE_NAMES, name);
}

pst_status pst_device_close(pst_device *device)
{
    if (!device)
        return PST_OK;
    PSTI_CHECK_HANDLE(device, DEVICE);
    if (__atomic_load_n(&device->live, __ATOMIC_ACQUIRE) > 0)
        return say_what_lives(device);
    if (device->products)
        device->close_products(device);
    device->ops->close(device);
    return PST_OK;
}

pst_status pst_device_get_info_sized(pst_device *device, pst_device_info *info_out,
                                     size_t info_bytes)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(info_out);
    PSTI_TRY(PSTI_CHECK_SIZE(pst_device_info, info_bytes));
    pst_device_info info;
    PSTI_TRY(device->ops->get_info(device, &info));
    memcpy(info_out, &info, info_bytes);
    return PST_OK;
}

/* Makes one object of the device: counts it when the call succeeded. */
#define CREATE(kind, call)                \
    do {                                  \
        PSTI_TRY(call);                   \
        psti_device_retain(device, kind); \
        return PST_OK;                    \
    } while (0)

/* After a CUDA error an object counts as gone even though CUDA could not free it. */
#define DESTROY(kind, object, call)                     \
    do {                                                \
        PSTI_CHECK_HANDLE(device, DEVICE);              \
        if (!(object))                                  \
            return PST_OK;                              \
        const pst_status status_ = (call);              \
        if (status_ == PST_OK || status_ == PST_E_CUDA) \
            psti_device_release(device, kind);          \
        return status_;                                 \
    } while (0)

static pst_status alloc(pst_device *device, size_t bytes, bool is_pinned, psti_live kind,
                        void **address_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(address_out);
    PSTI_CHECK(bytes > 0, PST_E_INVALID, "0 bytes asked");
    CREATE(kind, is_pinned ? device->ops->alloc_pinned(device, bytes, address_out)
                           : device->ops->alloc(device, bytes, address_out));
}

pst_status pst_device_alloc(pst_device *device, size_t bytes, void **address_out)
{
    return alloc(device, bytes, false, PSTI_LIVE_ALLOCATION, address_out);
}

pst_status psti_part_alloc(pst_device *device, size_t bytes, void **address_out)
{
    return alloc(device, bytes, false, PSTI_LIVE_PART, address_out);
}

pst_status pst_device_free(pst_device *device, void *address)
{
    DESTROY(PSTI_LIVE_ALLOCATION, address, device->ops->free(device, address));
}

pst_status psti_part_free(pst_device *device, void *address)
{
    DESTROY(PSTI_LIVE_PART, address, device->ops->free(device, address));
}

pst_status pst_device_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    return alloc(device, bytes, true, PSTI_LIVE_ALLOCATION, address_out);
}

pst_status psti_part_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    return alloc(device, bytes, true, PSTI_LIVE_PART, address_out);
}

pst_status pst_device_free_pinned(pst_device *device, void *address)
{
    DESTROY(PSTI_LIVE_ALLOCATION, address, device->ops->free_pinned(device, address));
}

pst_status psti_part_free_pinned(pst_device *device, void *address)
{
    DESTROY(PSTI_LIVE_PART, address, device->ops->free_pinned(device, address));
}

pst_status pst_device_copy(pst_device *device, void *destination, const void *source, size_t bytes,
                           pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    if (bytes == 0)
        return PST_OK;
    NEED(destination);
    NEED(source);
    return device->ops->copy(device, destination, source, bytes, stream);
}

pst_status pst_device_fill(pst_device *device, void *destination, uint8_t value, size_t bytes,
                           pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    if (bytes == 0)
        return PST_OK;
    NEED(destination);
    return device->ops->fill(device, destination, value, bytes, stream);
}

pst_status pst_device_synchronize(pst_device *device)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    return device->ops->synchronize(device);
}

pst_status pst_stream_create(pst_device *device, pst_stream *stream_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(stream_out);
    CREATE(PSTI_LIVE_STREAM, device->ops->stream_create(device, stream_out));
}

pst_status psti_part_stream_create(pst_device *device, pst_stream *stream_out)
{
    CREATE(PSTI_LIVE_PART, device->ops->stream_create(device, stream_out));
}

pst_status pst_stream_destroy(pst_device *device, pst_stream stream)
{
    DESTROY(PSTI_LIVE_STREAM, stream, device->ops->stream_destroy(device, stream));
}

pst_status psti_part_stream_destroy(pst_device *device, pst_stream stream)
{
    DESTROY(PSTI_LIVE_PART, stream, device->ops->stream_destroy(device, stream));
}

pst_status pst_stream_synchronize(pst_device *device, pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    return device->ops->stream_synchronize(device, stream);
}

pst_status pst_event_create(pst_device *device, pst_event *event_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(event_out);
    CREATE(PSTI_LIVE_EVENT, device->ops->event_create(device, event_out));
}

pst_status pst_event_destroy(pst_device *device, pst_event event)
{
    DESTROY(PSTI_LIVE_EVENT, event, device->ops->event_destroy(device, event));
}

pst_status psti_part_event_create(pst_device *device, pst_event *event_out)
{
    CREATE(PSTI_LIVE_PART, device->ops->event_create(device, event_out));
}

pst_status psti_part_event_destroy(pst_device *device, pst_event event)
{
    DESTROY(PSTI_LIVE_PART, event, device->ops->event_destroy(device, event));
}

static pst_status enqueue_event(pst_device *device, pst_event event, pst_stream stream,
                                bool records, bool external)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(event);
    return records ? device->ops->event_record(device, event, stream, external)
                   : device->ops->event_wait(device, event, stream, external);
}

pst_status pst_event_record(pst_device *device, pst_event event, pst_stream stream)
{
    return enqueue_event(device, event, stream, true, false);
}

pst_status pst_event_wait(pst_device *device, pst_event event, pst_stream stream)
{
    return enqueue_event(device, event, stream, false, false);
}

pst_status pst_event_record_external(pst_device *device, pst_event event, pst_stream stream)
{
    return enqueue_event(device, event, stream, true, true);
}

pst_status pst_event_wait_external(pst_device *device, pst_event event, pst_stream stream)
{
    return enqueue_event(device, event, stream, false, true);
}

pst_status pst_event_synchronize(pst_device *device, pst_event event)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(event);
    return device->ops->event_synchronize(device, event);
}

pst_status pst_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                             double *seconds_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(begin);
    NEED(end);
    NEED(seconds_out);
    return device->ops->event_elapsed(device, begin, end, seconds_out);
}

pst_status pst_graph_begin(pst_device *device, pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(stream, PST_E_CAPTURE, "the default stream (NULL) cannot be captured");
    return device->ops->graph_begin(device, stream);
}

pst_status pst_graph_end(pst_device *device, pst_stream stream, pst_graph **graph_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    NEED(stream);
    NEED(graph_out);
    pst_graph made = {.device = device};
    pst_graph *graph = psti_handle_new(sizeof(*graph), PSTI_KIND_GRAPH);
    /* the capture ends whether or not there is memory for the graph */
    const pst_status status = device->ops->graph_end(device, stream, &made);
    if (status == PST_OK && graph) {
        made.handle = graph->handle;
        *graph = made;
        psti_device_retain(device, PSTI_LIVE_GRAPH);
        *graph_out = graph;
        return PST_OK;
    }
    psti_handle_free(graph);
    if (status != PST_OK)
        return status;
    device->ops->graph_destroy(&made);
    return PSTI_FAIL(PST_E_NOMEM, "no memory for a graph");
}

pst_status pst_graph_launch(pst_graph *graph, pst_stream stream)
{
    PSTI_CHECK_HANDLE(graph, GRAPH);
    return graph->device->ops->graph_launch(graph, stream);
}

pst_status pst_graph_get_info(const pst_graph *graph, pst_graph_info *info_out)
{
    PSTI_CHECK_HANDLE(graph, GRAPH);
    NEED(info_out);
    *info_out = graph->info;
    return PST_OK;
}

pst_status pst_graph_destroy(pst_graph *graph)
{
    if (!graph)
        return PST_OK;
    PSTI_CHECK_HANDLE(graph, GRAPH);
    graph->device->ops->graph_destroy(graph);
    psti_device_release(graph->device, PSTI_LIVE_GRAPH);
    psti_handle_free(graph);
    return PST_OK;
}
