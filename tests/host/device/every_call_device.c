/* Cases of every_call.h: devices, memory, streams, events and graphs. */
#include "tests/host/device/every_call.h"

enum { BYTES = 256 };

static pst_device *device, *second;
static void *memory, *pinned, *made;
static pst_stream stream, other;
static pst_event event, later;
static pst_graph *graph;
static unsigned char bytes[BYTES];

static void open_objects(pst_device *opened)
{
    device = opened;
    graph = NULL;
    CHECK_OK(pst_device_alloc(device, BYTES, &memory));
    CHECK_OK(pst_device_alloc_pinned(device, BYTES, &pinned));
    CHECK_OK(pst_stream_create(device, &stream));
    CHECK_OK(pst_event_create(device, &event));
    CHECK_OK(pst_event_create(device, &later));
    CHECK_OK(pst_device_fill(device, memory, 7, BYTES, stream));
    CHECK_OK(pst_stream_synchronize(device, stream));
    made = call_untouched();
    other = (pst_stream)call_untouched();
}

static void check_untouched(void)
{
    CHECK(made == call_untouched() && other == (pst_stream)call_untouched());
    for (int i = 0; i < BYTES; i++)
        CHECK_EQ(((unsigned char *)memory)[i], 7);
}

/* A capture that is open ends. */
static void close_objects(void)
{
    pst_graph *ended = NULL;
    if (pst_graph_end(device, stream, &ended) == PST_OK)
        CHECK_OK(pst_graph_destroy(ended));
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_device_free(device, memory));
    CHECK_OK(pst_device_free_pinned(device, pinned));
    CHECK_OK(pst_event_destroy(device, event));
    CHECK_OK(pst_event_destroy(device, later));
    CHECK_OK(pst_stream_destroy(device, stream));
    call_close(device);
}

static const call_room objects = {open_objects, check_untouched, NULL, close_objects};
/* What it changes is not what check_untouched looks at. */
static const call_room captured = {open_objects, NULL, NULL, close_objects};

/* ---- devices and memory ---- */

static pst_status device_open(void)
{
    return pst_device_open("host", 0, &second);
}

static void close_second(void)
{
    CHECK_OK(pst_device_close(second));
}

static void prepare_second(void)
{
    CHECK_OK(pst_device_open("host", 0, &second));
    second->ops = device->ops;
}

static pst_status device_close(void)
{
    return pst_device_close(second);
}

static pst_status device_get_info(void)
{
    pst_device_info info;
    return pst_device_get_info(device, &info);
}

static pst_status device_alloc(void)
{
    return pst_device_alloc(device, BYTES, &made);
}

static pst_status device_alloc_pinned(void)
{
    return pst_device_alloc_pinned(device, BYTES, &made);
}

static void free_made(void)
{
    memset(made, 1, BYTES);
    CHECK_OK(pst_device_free(device, made));
}

static pst_status device_free(void)
{
    void *given = memory;
    memory = NULL;
    return pst_device_free(device, given);
}

static pst_status device_free_pinned(void)
{
    void *given = pinned;
    pinned = NULL;
    return pst_device_free_pinned(device, given);
}

static pst_status device_copy(void)
{
    memset(bytes, 9, BYTES);
    return pst_device_copy(device, memory, bytes, BYTES, stream);
}

static pst_status device_fill(void)
{
    return pst_device_fill(device, memory, 9, BYTES, stream);
}

static void check_nines(void)
{
    for (int i = 0; i < BYTES; i++)
        CHECK_EQ(((unsigned char *)memory)[i], 9);
}

static pst_status device_synchronize(void)
{
    return pst_device_synchronize(device);
}

/* ---- streams and events ---- */

static pst_status stream_create(void)
{
    return pst_stream_create(device, &other);
}

static void destroy_other(void)
{
    CHECK_OK(pst_stream_destroy(device, other));
}

static pst_status stream_destroy(void)
{
    const pst_stream given = stream;
    stream = NULL;
    return pst_stream_destroy(device, given);
}

static pst_status stream_synchronize(void)
{
    return pst_stream_synchronize(device, stream);
}

static pst_status event_create(void)
{
    return pst_event_create(device, (pst_event *)&made);
}

static void destroy_made(void)
{
    CHECK_OK(pst_event_destroy(device, (pst_event)made));
}

static pst_status event_destroy(void)
{
    const pst_event given = event;
    event = NULL;
    return pst_event_destroy(device, given);
}

static void record_both(void)
{
    CHECK_OK(pst_event_record(device, event, stream));
    CHECK_OK(pst_event_record(device, later, stream));
}

static pst_status event_record(void)
{
    return pst_event_record(device, event, stream);
}

static pst_status event_wait(void)
{
    return pst_event_wait(device, event, stream);
}

static pst_status event_record_external(void)
{
    return pst_event_record_external(device, event, stream);
}

static pst_status event_wait_external(void)
{
    return pst_event_wait_external(device, event, stream);
}

static pst_status event_synchronize(void)
{
    return pst_event_synchronize(device, event);
}

static pst_status event_elapsed(void)
{
    double seconds = -1;
    return pst_event_elapsed(device, event, later, &seconds);
}

/* ---- graphs ---- */

static pst_status graph_begin(void)
{
    return pst_graph_begin(device, stream);
}

static void prepare_capture(void)
{
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_OK(pst_device_fill(device, memory, 9, BYTES, stream));
}

/* One that failed has ended the capture: again it is begun anew. */
static pst_status graph_end(void)
{
    static bool is_again;
    const pst_status begun = is_again ? pst_graph_begin(device, stream) : PST_OK;
    const pst_status status = begun == PST_OK ? pst_graph_end(device, stream, &graph) : begun;
    is_again = status == PST_E_CAPTURE;
    return status;
}

static void prepare_graph(void)
{
    prepare_capture();
    CHECK_OK(pst_graph_end(device, stream, &graph));
}

static pst_status graph_launch(void)
{
    return pst_graph_launch(graph, stream);
}

static pst_status graph_get_info(void)
{
    pst_graph_info info;
    return pst_graph_get_info(graph, &info);
}

static pst_status graph_destroy(void)
{
    pst_graph *given = graph;
    graph = NULL;
    return pst_graph_destroy(given);
}

static const call_case cases[] = {
    {"pst_device_open", &objects, NULL, device_open, close_second, CALL_NONE},
    {"pst_device_close", &objects, prepare_second, device_close, NULL, CALL_GIVES},
    {"pst_device_get_info_sized", &objects, NULL, device_get_info, NULL, CALL_FAILS},
    {"pst_device_alloc", &objects, NULL, device_alloc, free_made, CALL_FAILS},
    {"pst_device_alloc_pinned", &objects, NULL, device_alloc_pinned, free_made, CALL_FAILS},
    {"pst_device_free", &captured, NULL, device_free, NULL, CALL_GIVES},
    {"pst_device_free_pinned", &objects, NULL, device_free_pinned, NULL, CALL_GIVES},
    {"pst_device_copy", &objects, NULL, device_copy, check_nines, CALL_FAILS},
    {"pst_device_fill", &objects, NULL, device_fill, check_nines, CALL_FAILS},
    {"pst_device_synchronize", &objects, NULL, device_synchronize, NULL, CALL_FAILS},
    {"pst_stream_create", &objects, NULL, stream_create, destroy_other, CALL_FAILS},
    {"pst_stream_destroy", &objects, NULL, stream_destroy, NULL, CALL_GIVES},
    {"pst_stream_synchronize", &objects, NULL, stream_synchronize, NULL, CALL_FAILS},
    {"pst_event_create", &objects, NULL, event_create, destroy_made, CALL_FAILS},
    {"pst_event_destroy", &objects, NULL, event_destroy, NULL, CALL_GIVES},
    {"pst_event_record", &objects, NULL, event_record, NULL, CALL_FAILS},
    {"pst_event_wait", &objects, record_both, event_wait, NULL, CALL_FAILS},
    {"pst_event_record_external", &objects, prepare_capture, event_record_external, NULL,
     CALL_FAILS},
    {"pst_event_wait_external", &objects, prepare_capture, event_wait_external, NULL, CALL_FAILS},
    {"pst_event_synchronize", &objects, record_both, event_synchronize, NULL, CALL_FAILS},
    {"pst_event_elapsed", &objects, record_both, event_elapsed, NULL, CALL_FAILS},
    {"pst_graph_begin", &objects, NULL, graph_begin, NULL, CALL_FAILS},
    {"pst_graph_end", &objects, prepare_capture, graph_end, NULL, CALL_FAILS},
    {"pst_graph_launch", &objects, prepare_graph, graph_launch, check_nines, CALL_FAILS},
    {"pst_graph_get_info", &objects, prepare_graph, graph_get_info, NULL, CALL_NONE},
    {"pst_graph_destroy", &objects, prepare_graph, graph_destroy, NULL, CALL_GIVES},
};

const call_table device_calls = {cases, sizeof(cases) / sizeof(cases[0])};
