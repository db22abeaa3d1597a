/* Streams and events of host devices: each device knows its own, and those that were destroyed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/device/device.h"
#include "host/device/host_slots.h"
#include "tests/harness.h"
#include "tests/host/base/child.h"

typedef struct scene {
    pst_device *device, *foreign;
    pst_stream stream, other; /* one of each */
    pst_event event, strange;
    unsigned char bytes[8];
} scene;

static void open_scene(scene *self)
{
    *self = (scene){.device = NULL};
    CHECK_OK(pst_device_open("host", 0, &self->device));
    CHECK_OK(pst_device_open("host", 0, &self->foreign));
    CHECK_OK(pst_stream_create(self->device, &self->stream));
    CHECK_OK(pst_stream_create(self->foreign, &self->other));
    CHECK_OK(pst_event_create(self->device, &self->event));
    CHECK_OK(pst_event_create(self->foreign, &self->strange));
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    CHECK_OK(pst_stream_destroy(self->foreign, self->other));
    CHECK_OK(pst_event_destroy(self->device, self->event));
    CHECK_OK(pst_event_destroy(self->foreign, self->strange));
    CHECK_OK(pst_device_close(self->device));
    CHECK_OK(pst_device_close(self->foreign));
}

static void refuse_stream(scene *self, pst_graph *graph, pst_stream stream)
{
    pst_device *device = self->device;
    pst_graph *made = NULL;
    psti_capture_of capture;
    char said[96];
    snprintf(said, sizeof(said), "stream %p is no stream of this device host, or was destroyed [",
             (void *)stream);
    CHECK_STATUS(pst_device_fill(device, self->bytes, 1, 8, stream), PST_E_INVALID);
    CHECK_SAID(said);
    CHECK_STATUS(pst_device_copy(device, self->bytes, self->bytes + 4, 4, stream), PST_E_INVALID);
    CHECK_STATUS(pst_stream_synchronize(device, stream), PST_E_INVALID);
    CHECK_STATUS(pst_stream_destroy(device, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_record(device, self->event, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_record_external(device, self->event, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_wait(device, self->event, stream), PST_E_INVALID);
    CHECK_STATUS(pst_event_wait_external(device, self->event, stream), PST_E_INVALID);
    CHECK_STATUS(pst_graph_begin(device, stream), PST_E_INVALID);
    CHECK_STATUS(pst_graph_end(device, stream, &made), PST_E_INVALID);
    CHECK_STATUS(pst_graph_launch(graph, stream), PST_E_INVALID);
    CHECK_STATUS(device->ops->capture_of(device, stream, &capture), PST_E_INVALID);
    CHECK_STATUS(device->ops->launch(device, PSTI_OP_STEP, NULL, stream), PST_E_INVALID);
    CHECK_EQ(self->bytes[0], 0);
}

static void refuse_event(scene *self, pst_event event)
{
    pst_device *device = self->device;
    double seconds = 0;
    char said[96];
    snprintf(said, sizeof(said), "event %p is no event of this device host, or was destroyed [",
             (void *)event);
    CHECK_STATUS(pst_event_record(device, event, self->stream), PST_E_INVALID);
    CHECK_SAID(said);
    CHECK_STATUS(pst_event_record_external(device, event, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_event_wait(device, event, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_event_wait_external(device, event, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_event_synchronize(device, event), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(device, event, self->event, &seconds), PST_E_INVALID);
    CHECK_STATUS(pst_event_elapsed(device, self->event, event, &seconds), PST_E_INVALID);
    CHECK_STATUS(pst_event_destroy(device, event), PST_E_INVALID);
}

/* Fault rows 32. */
PST_TEST(Stream, AnotherDevicesAndDestroyedOnesAreRefused)
{
    scene self;
    pst_graph *graph = NULL;
    unsigned char bytes[128] = {0};
    pst_stream gone = NULL;
    pst_event past = NULL;
    open_scene(&self);
    CHECK_OK(pst_event_record(self.device, self.event, NULL));
    CHECK_OK(pst_stream_create(self.device, &gone));
    CHECK_OK(pst_event_create(self.device, &past));
    CHECK_OK(pst_stream_destroy(self.device, gone));
    CHECK_OK(pst_event_destroy(self.device, past));
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    refuse_stream(&self, graph, self.other);
    refuse_stream(&self, graph, gone);
    refuse_stream(&self, graph, (pst_stream)(void *)bytes);
    refuse_stream(&self, graph, (pst_stream)((uintptr_t)self.stream + 8));
    refuse_stream(&self, graph, (pst_stream)(uintptr_t)1); /* no memory at all */
    refuse_stream(&self, graph, (pst_stream)(void *)self.event);
    refuse_event(&self, self.strange);
    refuse_event(&self, past);
    refuse_event(&self, (pst_event)(void *)bytes);
    refuse_event(&self, (pst_event)UINTPTR_MAX);
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

/* ---- slots ---- */

PST_TEST(Stream, ManyAreKnownAndDestroyedOnesComeBackLate)
{
    enum { MANY = 1000 };
    static void *objects[MANY];
    psti_slots slots;
    psti_slots_open(&slots);
    slots.never_again = false;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            objects[i] = psti_slots_take(&slots);
            CHECK(objects[i]);
            for (int at = 0; at < PSTI_SLOT_BYTES; at++)
                CHECK_EQ(((unsigned char *)objects[i])[at], 0);
            memset(objects[i], 0xff, PSTI_SLOT_BYTES - sizeof(void *));
        }
        for (int i = 0; i < MANY; i++)
            CHECK(psti_slots_has(&slots, objects[i]));
        CHECK(!psti_slots_has(&slots, (char *)objects[3] + 1));
        CHECK(!psti_slots_has(&slots, NULL));
        for (int i = 0; i < MANY; i++) {
            psti_slots_give(&slots, objects[i]);
            CHECK(!psti_slots_has(&slots, objects[i]));
        }
    }
    CHECK_EQ(slots.num_blocks, 5); /* 64 + ... + 1024: as many as at once, and not once per round */
    void *next = psti_slots_take(&slots);
    CHECK(next != objects[MANY - 1]); /* not the one given last */
    psti_slots_close(&slots);
}

static void create_and_destroy(const scene *self)
{
    for (int i = 0; i < 300; i++) {
        pst_stream stream = NULL;
        pst_event event = NULL;
        CHECK_OK(pst_stream_create(self->device, &stream));
        CHECK_OK(pst_event_create(self->device, &event));
        CHECK_OK(pst_event_record(self->device, event, stream));
        CHECK_STATUS(pst_event_wait(self->foreign, event, NULL), PST_E_INVALID);
        CHECK_OK(pst_event_destroy(self->device, event));
        CHECK_OK(pst_stream_destroy(self->device, stream));
    }
}

static void *in_a_thread(void *arg)
{
    create_and_destroy(arg);
    return NULL;
}

PST_TEST(Stream, ThreadsCreateUseAndDestroyAtOnce)
{
    scene self;
    pthread_t threads[3];
    open_scene(&self);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, in_a_thread, &self), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    close_scene(&self);
}

PST_CHILD(stream_check_mode)
{
    pst_device *device = NULL;
    pst_stream first = NULL;
    int wrong = pst_device_open("host", 0, &device) != PST_OK;
    wrong += pst_stream_create(device, &first) != PST_OK;
    wrong += pst_stream_destroy(device, first) != PST_OK;
    for (int i = 0; i < 500; i++) {
        pst_stream stream = NULL;
        wrong += pst_stream_create(device, &stream) != PST_OK;
        wrong += pst_stream_destroy(device, stream) != PST_OK;
        wrong += stream == first;
    }
    wrong += pst_stream_synchronize(device, first) != PST_E_INVALID;
    wrong += pst_device_close(device) != PST_OK;
    printf("%d wrong\n", wrong);
}

PST_TEST(Stream, CheckModeNeverUsesAnAddressAgain)
{
    static const char *const check[] = {"PAGESTASH_CHECK=1", NULL};
    child_result child;
    CHECK(child_run("stream_check_mode", check, &child) && child.exited);
    CHECK_STR(child.out, "0 wrong\n");
}

/* ---- addresses ---- */

PST_TEST(Stream, CheckAddressNoticesWhatIsNotThere)
{
    pst_device *device = NULL;
    psti_span span;
    static const unsigned char constant[3] = {1, 2, 3};
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(psti_host_span_open(&span, 1 << 22));
    CHECK_OK(psti_host_span_resize(&span, 1 << 12));
    const psti_device_ops *ops = device->ops;
    CHECK_OK(ops->check_address(device, constant, 3));
    CHECK_OK(ops->check_address(device, span.address, 1 << 12));
    CHECK_STATUS(ops->check_address(device, span.address, (1 << 12) + 1), PST_E_INVALID);
    CHECK_STATUS(ops->check_address(device, span.address + (1 << 20), 1), PST_E_INVALID);
    CHECK_STATUS(ops->check_address(device, (void *)(uintptr_t)8, 1), PST_E_INVALID);
    CHECK_SAID("address 0x8: no memory of this process has 1 bytes there [");
    CHECK_STATUS(ops->check_address(device, constant, UINT64_MAX), PST_E_INVALID);
    psti_host_span_close(&span);
    CHECK_OK(pst_device_close(device));
}
