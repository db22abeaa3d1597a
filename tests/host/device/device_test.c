/* Arguments, counts and memory of devices. */
#include "tests/harness.h"

#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/device/host_graph.h"

static void *const untouched = (void *)(uintptr_t)1;

/* ---- open and close ---- */

PST_TEST(Device, AnUnknownNameIsRefused)
{
    static const char *const names[] = {"", "tpu", "HOST", "host ", "hos", "cudaa", "auto0"};
    for (int i = 0; i < 7; i++) {
        char expected[96];
        pst_device *device = untouched;
        CHECK_STATUS(pst_device_open(names[i], 0, &device), PST_E_INVALID);
        CHECK(device == untouched);
        snprintf(expected, sizeof(expected), "device '%s': allowed are auto|host|cuda [", names[i]);
        CHECK_MSG(strncmp(pst_last_message(), expected, strlen(expected)) == 0, "%s",
                  pst_last_message());
    }
}

PST_TEST(Device, BadIndicesAreRefused)
{
    static const int indices[] = {1, 2, INT32_MAX, -1, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        pst_device *device = untouched;
        CHECK_STATUS(pst_device_open("host", indices[i], &device), PST_E_INVALID);
        CHECK(device == untouched);
    }
    pst_device *device = untouched;
    CHECK_STATUS(pst_device_open("auto", -1, &device), PST_E_INVALID);
    CHECK_STATUS(pst_device_open("cuda", -1, &device), PST_E_INVALID);
    CHECK(device == untouched);
}

PST_TEST(Device, NullArgumentsOfOpenAreRefused)
{
    pst_device *device = untouched;
    CHECK_STATUS(pst_device_open(NULL, 0, &device), PST_E_INVALID);
    CHECK(device == untouched);
    CHECK_STATUS(pst_device_open("host", 0, NULL), PST_E_INVALID);
    CHECK_OK(pst_device_close(NULL));
}

/* Fault rows 39. */
PST_TEST(Device, AbsentCudaIsOneClearError)
{
    pst_device *device = untouched;
    const pst_status status = pst_device_open("cuda", 0, &device);
    if (status == PST_OK) {
        CHECK_OK(pst_device_close(device));
        CHECK_STATUS(pst_device_open("cuda", 9999, &device), PST_E_NO_DEVICE);
        return;
    }
    CHECK(device == untouched);
    CHECK_MSG(status == PST_E_NO_DEVICE || status == PST_E_UNSUPPORTED, "%s",
              pst_status_name(status));
    CHECK(pst_last_message()[0] != '\0');
    CHECK_OK(pst_device_open("auto", 0, &device)); /* what needs no GPU still works */
    pst_device_info info;
    CHECK_OK(pst_device_get_info(device, &info));
    CHECK_EQ(info.kind, PST_DEVICE_HOST);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Device, HostSaysWhatItIs)
{
    pst_device *device = NULL;
    pst_device_info info;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_device_get_info(device, &info));
    CHECK_EQ(info.kind, PST_DEVICE_HOST);
    CHECK_STR(info.name, "host");
    CHECK_EQ(info.index, 0);
    CHECK_EQ(info.num_sms, 1);
    CHECK_EQ(info.compute_capability, 0);
    CHECK(info.total_bytes >= 64u << 20);
    CHECK(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
    CHECK_STATUS(pst_device_get_info(device, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_get_info(NULL, &info), PST_E_INVALID);
    CHECK_OK(pst_device_close(device));
}

static void check_busy(pst_device *device, const char *said)
{
    CHECK_STATUS(pst_device_close(device), PST_E_BUSY);
    CHECK_SAID(said);
}

PST_TEST(Device, CloseIsRefusedWhileObjectsExistAndSaysWhich)
{
    pst_device *device = NULL;
    pst_stream streams[2] = {NULL, NULL};
    pst_event event = NULL;
    pst_graph *graph = NULL;
    pst_arena *arena = NULL;
    pst_pool *pools[2] = {NULL, NULL};
    pst_pool_config pool_config = PST_POOL_CONFIG_INIT;
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    void *memory = NULL, *pinned = NULL;
    pool_config.num_pages = 1;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_stream_create(device, &streams[0]));
    check_busy(device, "1 stream of device host still exists [");
    CHECK_OK(pst_stream_create(device, &streams[1]));
    check_busy(device, "2 streams of device host still exist [");
    CHECK_OK(pst_event_create(device, &event));
    check_busy(device, "2 streams and 1 event of device host still exist [");
    CHECK_OK(pst_device_alloc(device, 1, &memory));
    CHECK_OK(pst_device_alloc_pinned(device, 1, &pinned));
    check_busy(device, "2 streams, 1 event and 2 allocations of device host still exist [");
    CHECK_OK(pst_graph_begin(device, streams[0]));
    CHECK_OK(pst_graph_end(device, streams[0], &graph));
    check_busy(device,
               "2 streams, 1 event, 1 graph and 2 allocations of device host still exist [");
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_device_free_pinned(device, pinned));
    CHECK_OK(pst_device_free(device, memory));
    CHECK_OK(pst_event_destroy(device, event));
    CHECK_OK(pst_stream_destroy(device, streams[0]));
    CHECK_OK(pst_stream_destroy(device, streams[1]));
    CHECK_OK(pst_arena_create(device, NULL, &config, &arena));
    CHECK_OK(pst_arena_malloc(arena, 100, &memory, NULL)); /* its memory is a part of it */
    check_busy(device, "1 arena of device host still exists [");
    CHECK_OK(pst_pool_create(device, &pool_config, &pools[0]));
    CHECK_OK(pst_pool_create(device, &pool_config, &pools[1]));
    CHECK_OK(pst_stream_create(device, &streams[0]));
    check_busy(device, "2 pools, 1 arena and 1 stream of device host still exist [");
    CHECK_OK(pst_stream_destroy(device, streams[0]));
    CHECK_OK(pst_pool_destroy(pools[0]));
    CHECK_OK(pst_pool_destroy(pools[1]));
    CHECK_OK(pst_arena_free(arena, memory, NULL));
    CHECK_OK(pst_arena_destroy(arena));
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Device, PoolsAndTicketsKeepTheDeviceAndGroupsDoNot)
{
    pst_device *device = NULL;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket ticket = {0};
    pst_pool_config pool_config = PST_POOL_CONFIG_INIT;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    const pst_row_space space = {.capacity = 1};
    const pst_tensor tensor = {.row_bytes = 16};
    pool_config.num_pages = 1;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_pool_create(device, &pool_config, &pool));
    CHECK_STATUS(pst_device_close(device), PST_E_BUSY);
    const uint32_t before = device->live;
    CHECK_OK(pst_group_create(&config, &group));
    CHECK_EQ(device->live, before);
    CHECK_OK(pst_ticket_create(pool, group, &ticket));
    CHECK(device->live > before);
    CHECK_OK(pst_ticket_destroy(ticket));
    CHECK_EQ(device->live, before);
    CHECK_OK(pst_pool_destroy(pool));
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
    CHECK_OK(pst_group_destroy(group));
}

/* ---- NULLs ---- */

static void check_nulls(pst_device *device, pst_stream stream, pst_event event)
{
    unsigned char bytes[2] = {0};
    double seconds = -1;
    void *address = untouched;
    pst_graph *graph = untouched;
    pst_graph_info info;
    CHECK_STATUS(pst_device_alloc(NULL, 1, &address), PST_E_INVALID);
    CHECK_STATUS(pst_device_alloc(device, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_alloc(device, 0, &address), PST_E_INVALID);
    CHECK_STATUS(pst_device_alloc_pinned(NULL, 1, &address), PST_E_INVALID);
    CHECK_STATUS(pst_device_alloc_pinned(device, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_alloc_pinned(device, 0, &address), PST_E_INVALID);
    CHECK(address == untouched);
    CHECK_STATUS(pst_device_free(NULL, bytes), PST_E_INVALID);
    CHECK_STATUS(pst_device_free_pinned(NULL, bytes), PST_E_INVALID);
    CHECK_STATUS(pst_device_copy(NULL, bytes, bytes + 1, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_copy(device, NULL, bytes, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_copy(device, bytes, NULL, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_fill(NULL, bytes, 1, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_fill(device, NULL, 1, 1, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_device_synchronize(NULL), PST_E_INVALID);
    CHECK_STATUS(pst_stream_create(NULL, &stream), PST_E_INVALID);
    CHECK_STATUS(pst_stream_create(device, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_stream_destroy(NULL, stream), PST_E_INVALID);
    CHECK_STATUS(pst_stream_synchronize(NULL, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_create(NULL, &event), PST_E_INVALID);
    CHECK_STATUS(pst_event_create(device, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_event_destroy(NULL, event), PST_E_INVALID);
    pst_status (*const uses[])(pst_device *, pst_event, pst_stream) = {
        pst_event_record, pst_event_wait, pst_event_record_external, pst_event_wait_external};
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(uses[i](NULL, event, stream), PST_E_INVALID);
        CHECK_STATUS(uses[i](device, NULL, stream), PST_E_INVALID);
    }
    CHECK_STATUS(pst_event_synchronize(NULL, event), PST_E_INVALID);
    CHECK_STATUS(pst_event_synchronize(device, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(NULL, event, event, &seconds), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(device, NULL, event, &seconds), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(device, event, NULL, &seconds), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(device, event, event, NULL), PST_E_INVALID);
    CHECK(seconds < 0);
    CHECK_STATUS(pst_graph_begin(NULL, stream), PST_E_INVALID);
    CHECK_STATUS(pst_graph_end(NULL, stream, &graph), PST_E_INVALID);
    CHECK_STATUS(pst_graph_end(device, NULL, &graph), PST_E_INVALID);
    CHECK_STATUS(pst_graph_end(device, stream, NULL), PST_E_INVALID);
    CHECK(graph == untouched);
    CHECK_STATUS(pst_graph_launch(NULL, stream), PST_E_INVALID);
    CHECK_STATUS(pst_graph_get_info(NULL, &info), PST_E_INVALID);
    CHECK_OK(pst_graph_destroy(NULL));
}

PST_TEST(Device, NullArgumentsAreRefused)
{
    pst_device *device = NULL;
    pst_stream stream = NULL;
    pst_event event = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_stream_create(device, &stream));
    CHECK_OK(pst_event_create(device, &event));
    const uint32_t live = device->live;
    check_nulls(device, stream, event);
    CHECK_EQ(device->live, live);
    CHECK_OK(pst_event_destroy(device, event));
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_device_free(device, NULL));
    CHECK_OK(pst_device_free_pinned(device, NULL));
    CHECK_OK(pst_stream_destroy(device, NULL));
    CHECK_OK(pst_event_destroy(device, NULL));
    CHECK_OK(pst_device_copy(device, NULL, NULL, 0, NULL));
    CHECK_OK(pst_device_fill(device, NULL, 0, 0, NULL));
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
}

/* ---- memory ---- */

PST_TEST(Device, MemoryIsAlignedAndPinnedMemoryIsZero)
{
    static const size_t sizes[] = {1, 255, 256, 257, 100000};
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int i = 0; i < 5; i++) {
        void *memory = NULL, *pinned = NULL;
        CHECK_OK(pst_device_alloc(device, sizes[i], &memory));
        CHECK_EQ((uintptr_t)memory % 256, 0);
        memset(memory, 0xff, sizes[i]);
        CHECK_OK(pst_device_free(device, memory));
        CHECK_OK(pst_device_alloc_pinned(device, sizes[i], &pinned));
        CHECK_EQ((uintptr_t)pinned % 256, 0);
        for (size_t at = 0; at < sizes[i]; at++)
            CHECK_EQ(((unsigned char *)pinned)[at], 0);
        CHECK_OK(pst_device_free_pinned(device, pinned));
    }
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Device, MoreThanThereIsIsRefusedWithBothFigures)
{
    static const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX - 1000, SIZE_MAX - 255, SIZE_MAX};
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int i = 0; i < 4; i++)
        for (int pinned = 0; pinned < 2; pinned++) {
            void *memory = untouched;
            size_t wanted = 0;
            unsigned long long available = 0;
            CHECK_STATUS(pinned ? pst_device_alloc_pinned(device, sizes[i], &memory)
                                : pst_device_alloc(device, sizes[i], &memory),
                         PST_E_DEVICE_NOMEM);
            CHECK(memory == untouched);
            CHECK_EQ(device->live, 0);
            CHECK_EQ(sscanf(pst_last_message(), "%zu bytes wanted, %llu bytes free", &wanted,
                            &available),
                     2);
            CHECK_EQ(wanted, sizes[i]);
            CHECK(available > 0 && available < (1ull << 50));
        }
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Device, CopyAndFillWriteWhatTheyShould)
{
    pst_device *device = NULL;
    pst_stream stream = NULL;
    unsigned char bytes[16] = "abcdefghijklmno";
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_stream_create(device, &stream));
    CHECK_OK(pst_device_fill(device, bytes + 1, 'x', 3, NULL));
    CHECK_OK(pst_device_copy(device, bytes + 8, bytes + 6, 5, stream)); /* they overlap */
    CHECK_OK(pst_device_copy(device, bytes, bytes, 0, stream));
    CHECK_OK(pst_device_synchronize(device));
    CHECK_STR((char *)bytes, "axxxefghghijkno");
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_device_close(device));
}

/* ---- events ---- */

PST_TEST(Device, EventsTellTheTimeBetweenThem)
{
    pst_device *device = NULL;
    pst_event begin = NULL, end = NULL;
    double seconds = -1;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_event_create(device, &begin));
    CHECK_OK(pst_event_create(device, &end));
    CHECK_OK(pst_event_wait(device, begin, NULL)); /* never recorded: does not wait */
    CHECK_OK(pst_event_synchronize(device, begin));
    CHECK_STATUS(pst_event_elapsed(device, begin, end, &seconds), PST_E_INVALID);
    CHECK_OK(pst_event_record(device, begin, NULL));
    CHECK_STATUS(pst_event_elapsed(device, begin, end, &seconds), PST_E_INVALID);
    CHECK(seconds < 0);
    CHECK_OK(pst_event_record_external(device, end, NULL));
    CHECK_OK(pst_event_elapsed(device, begin, end, &seconds));
    CHECK(seconds >= 0 && seconds < 100);
    begin->nanoseconds = 1000;
    end->nanoseconds = 1000 + 2500000000u;
    CHECK_OK(pst_event_elapsed(device, begin, end, &seconds));
    CHECK(seconds > 2.4999 && seconds < 2.5001);
    CHECK_OK(pst_event_elapsed(device, end, begin, &seconds));
    CHECK(seconds < -2.4999 && seconds > -2.5001);
    CHECK_OK(pst_event_destroy(device, begin));
    CHECK_OK(pst_event_destroy(device, end));
    CHECK_OK(pst_device_close(device));
}
