/* Scratch on every device: who leases a buffer finds nobody else's bytes in it, whatever the streams and
 * graphs of its users. */
#include <pagestash/scratch.h>

#include "tests/conformance/conf.h"
#include "tests/random.h"

enum { STREAMS = 3, BYTES = 3000, SLOTS = 64, GRAPHS = 4 };

typedef struct rig {
    pst_device *device;
    pst_scratch *scratch;
    pst_stream streams[STREAMS];
    pst_event events[2];
    unsigned char *slots; /* what each piece has found in the buffer */
    unsigned char values[SLOTS];
    uint64_t random;
} rig;

static void open_rig(rig *self, const conf_run *conf, uint64_t seed)
{
    *self = (rig){.device = conf->device, .random = seed};
    void *slots = NULL;
    CHECK_OK(pst_scratch_create(conf->device, NULL, &self->scratch));
    CHECK_OK(pst_scratch_reserve(self->scratch, "gathered", BYTES));
    CHECK_OK(pst_device_alloc(conf->device, SLOTS * BYTES, &slots));
    self->slots = slots;
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(pst_stream_create(conf->device, &self->streams[i]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_event_create(conf->device, &self->events[i]));
}

static void close_rig(rig *self)
{
    CHECK_OK(pst_scratch_destroy(self->scratch));
    CHECK_OK(pst_device_free(self->device, self->slots));
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(pst_stream_destroy(self->device, self->streams[i]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(pst_event_destroy(self->device, self->events[i]));
}

/* Writes the buffer, and keeps what it reads there afterwards. */
static void piece(rig *self, uint32_t slot, uint8_t value, pst_stream stream)
{
    pst_lease lease;
    CHECK_OK(pst_scratch_lease(self->scratch, "gathered", BYTES, "piece", stream, &lease));
    CHECK_OK(pst_device_fill(self->device, lease.address, value, BYTES, stream));
    CHECK_OK(pst_device_copy(self->device, self->slots + (size_t)slot * BYTES, lease.address, BYTES,
                             stream));
    CHECK_OK(pst_scratch_release(self->scratch, &lease, "piece", stream));
    self->values[slot] = value;
}

static void check_slots(rig *self, uint32_t num)
{
    static unsigned char found[SLOTS * BYTES];
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_device_copy(self->device, found, self->slots, (size_t)num * BYTES, NULL));
    CHECK_OK(pst_stream_synchronize(self->device, NULL));
    for (uint32_t i = 0; i < num * BYTES && !psti_test_failed(); i++)
        CHECK_MSG(found[i] == self->values[i / BYTES], "byte %u of piece %u is %u, not %u",
                  i % BYTES, i / BYTES, found[i], self->values[i / BYTES]);
}

static pst_stream any_stream(rig *self)
{
    const uint64_t i = random_below(&self->random, STREAMS + 1);
    return i < STREAMS ? self->streams[i] : NULL;
}

CONFORMANCE(Scratch, EveryUserHasTheBufferAlone)
{
    for (uint64_t seed = 0; seed < 4 && !psti_test_failed(); seed++) {
        rig self;
        pst_scratch_info info;
        open_rig(&self, conf, seed);
        for (uint32_t i = 0; i < SLOTS; i++)
            piece(&self, i, (uint8_t)(i + 1), any_stream(&self));
        check_slots(&self, SLOTS);
        CHECK_OK(pst_scratch_get_info(self.scratch, &info));
        CHECK_EQ(info.num_leases, SLOTS);
        CHECK_EQ(info.peak_leased_bytes, BYTES);
        CHECK(info.num_waits > SLOTS / 3);
        close_rig(&self);
    }
}

/* Two pieces on two streams of one capture. */
static void capture_pair(rig *self, uint32_t slot, pst_graph **graph_out)
{
    pst_stream first = self->streams[0], second = self->streams[1];
    CHECK_OK(pst_graph_begin(self->device, first));
    CHECK_OK(pst_event_record(self->device, self->events[0], first));
    CHECK_OK(pst_event_wait(self->device, self->events[0], second));
    piece(self, slot, (uint8_t)(slot + 1), first);
    piece(self, slot + 1, (uint8_t)(slot + 2), second);
    piece(self, slot + 2, (uint8_t)(slot + 3), second);
    piece(self, slot + 3, (uint8_t)(slot + 4), first);
    CHECK_OK(pst_event_record(self->device, self->events[1], second));
    CHECK_OK(pst_event_wait(self->device, self->events[1], first));
    CHECK_OK(pst_graph_end(self->device, first, graph_out));
}

/* Graphs in one stream, and pieces of their own in others, in any turn. */
CONFORMANCE(Scratch, GraphsAndWhatIsBesideThem)
{
    for (uint64_t seed = 0; seed < 4 && !psti_test_failed(); seed++) {
        rig self;
        pst_graph *graphs[GRAPHS];
        open_rig(&self, conf, seed);
        for (uint32_t g = 0; g < GRAPHS; g++) {
            if (g == 2)
                piece(&self, 4 * GRAPHS, 77, self.streams[1]);
            capture_pair(&self, 4 * g, &graphs[g]);
        }
        for (uint32_t round = 0; round < 3 && !psti_test_failed(); round++) {
            CHECK_OK(pst_device_fill(conf->device, self.slots, 0, 4 * GRAPHS * BYTES, NULL));
            CHECK_OK(pst_device_synchronize(conf->device));
            uint32_t slot = 4 * GRAPHS;
            for (uint32_t g = 0; g < GRAPHS; g++) {
                for (uint64_t n = random_below(&self.random, 4); n > 0; n--, slot++)
                    piece(&self, slot, (uint8_t)(100 + slot + round), any_stream(&self));
                CHECK_OK(pst_graph_launch(graphs[g], any_stream(&self)));
            }
            piece(&self, slot, 200, self.streams[1]);
            check_slots(&self, slot + 1);
        }
        CHECK_STATUS(pst_scratch_destroy(self.scratch), PST_E_BUSY);
        for (uint32_t g = 0; g < GRAPHS; g++)
            CHECK_OK(pst_graph_destroy(graphs[g]));
        close_rig(&self);
    }
}

/* A graph's buffer may grow: its addresses stay. */
CONFORMANCE(Scratch, GrowsUnderAGraph)
{
    rig self;
    pst_lease lease;
    open_rig(&self, conf, 1);
    pst_graph *graph = NULL;
    capture_pair(&self, 0, &graph);
    CHECK_OK(pst_scratch_lease(self.scratch, "gathered", 1 << 20, "larger", NULL, &lease));
    CHECK_OK(pst_device_fill(conf->device, lease.address, 9, 1 << 20, NULL));
    CHECK_OK(pst_scratch_release(self.scratch, &lease, "larger", NULL));
    CHECK_OK(pst_graph_launch(graph, self.streams[2]));
    CHECK_OK(pst_scratch_trim(self.scratch)); /* leaves what a graph has */
    CHECK_OK(pst_graph_launch(graph, self.streams[2]));
    check_slots(&self, 4);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_scratch_trim(self.scratch));
    pst_scratch_info info;
    CHECK_OK(pst_scratch_get_info(self.scratch, &info));
    CHECK_EQ(info.mapped_bytes, 0);
    CHECK(info.peak_mapped_bytes >= 1 << 20);
    close_rig(&self);
}

/* Leases for `stream`, writes 1, and keeps what is read there afterwards in the first slot. */
static void begin_piece(rig *self, const char *place, pst_stream stream, pst_lease *lease)
{
    CHECK_OK(pst_scratch_lease(self->scratch, "gathered", BYTES, place, stream, lease));
    CHECK_OK(pst_device_fill(self->device, lease->address, 1, BYTES, stream));
    CHECK_OK(pst_device_copy(self->device, self->slots, lease->address, BYTES, stream));
    self->values[0] = 1;
}

/* No event would stand for its work there: the next user of another stream would not wait. */
CONFORMANCE(Scratch, WhatIsLeasedOutsideIsNotReleasedInACapture)
{
    for (uint64_t seed = 0; seed < 16 && !psti_test_failed(); seed++) {
        rig self;
        pst_graph *graph = NULL;
        open_rig(&self, conf, seed);
        pst_stream stream = self.streams[0];
        pst_lease lease;
        begin_piece(&self, "layer 3", stream, &lease);
        const pst_lease before = lease;
        CHECK_OK(pst_graph_begin(conf->device, stream));
        CHECK_STATUS(pst_scratch_release(self.scratch, &lease, "layer 4", stream), PST_E_ORDER);
        CHECK_SAID(
            "'gathered' is released in a capture by 'layer 4', but 'layer 3' has leased it outside "
            "of that: release it before the capture or behind it");
        CHECK_OK(pst_graph_end(conf->device, stream, &graph)); /* the capture is whole */
        CHECK_EQ(graph->info.num_nodes, 0);
        CHECK(lease.id == before.id && lease.address == before.address);
        CHECK_OK(pst_graph_destroy(graph));
        CHECK_OK(pst_scratch_release(self.scratch, &lease, "layer 4", stream));
        piece(&self, 1, 2, self.streams[1]);
        check_slots(&self, 2);
        close_rig(&self);
    }
}

/* Also where that capture is broken: what was enqueued before it runs all the same. */
CONFORMANCE(Scratch, WhatIsLeasedOutsideLivesThroughABrokenCapture)
{
    rig self;
    pst_graph *graph = NULL;
    open_rig(&self, conf, 1);
    pst_stream stream = self.streams[0];
    pst_lease lease;
    begin_piece(&self, "layer 3", stream, &lease);
    CHECK_OK(pst_graph_begin(conf->device, stream));
    CHECK_STATUS(pst_stream_synchronize(conf->device, stream), PST_E_CAPTURE);
    const pst_status status = pst_scratch_release(self.scratch, &lease, "layer 4", stream);
    CHECK(status == PST_E_CAPTURE || status == PST_E_ORDER);
    CHECK_STATUS(pst_graph_end(conf->device, stream, &graph), PST_E_CAPTURE);
    CHECK(lease.id);
    CHECK_OK(pst_scratch_release(self.scratch, &lease, "layer 4", stream));
    piece(&self, 1, 2, self.streams[1]);
    check_slots(&self, 2);
    close_rig(&self);
}

CONFORMANCE(Scratch, WhatACaptureLeasesIsReleasedInIt)
{
    rig self;
    pst_graph *graph = NULL;
    pst_scratch_info info;
    open_rig(&self, conf, 1);
    pst_stream stream = self.streams[0];
    CHECK_OK(pst_scratch_scope_begin(self.scratch, "step"));
    CHECK_OK(pst_graph_begin(conf->device, stream));
    pst_lease lease;
    begin_piece(&self, "layer 3", stream, &lease);
    CHECK_OK(pst_graph_end(conf->device, stream, &graph));
    const pst_lease copy = lease;
    CHECK_STATUS(pst_scratch_release(self.scratch, &lease, "layer 4", stream), PST_E_ORDER);
    CHECK_SAID(
        "'gathered' is released by 'layer 4' outside the capture in which 'layer 3' has leased it: "
        "a graph of that capture must not be launched, since no other lease waits for it");
    CHECK_EQ(lease.id, 0); /* it has ended: the name is of use still */
    CHECK_OK(pst_scratch_scope_end(self.scratch));
    lease = copy;
    CHECK_STATUS(pst_scratch_release(self.scratch, &lease, "layer 5", stream), PST_E_INVALID);
    CHECK_SAID("lease of 'gathered': 'layer 4' has released it before");
    CHECK_OK(pst_scratch_get_info(self.scratch, &info));
    CHECK(info.num_live == 0 && info.leased_bytes == 0);
    CHECK_OK(pst_graph_destroy(graph));
    piece(&self, 0, 3, self.streams[1]);
    check_slots(&self, 1);
    close_rig(&self);
}

/* Nothing that was enqueued with these leases runs any more. */
CONFORMANCE(Scratch, ALeaseOfACaptureThatFailedEndsAsAnyOther)
{
    for (int is_destroyed = 0; is_destroyed < 2; is_destroyed++) {
        rig self;
        pst_graph *graph = NULL;
        open_rig(&self, conf, 1);
        pst_stream stream = self.streams[0];
        CHECK_OK(pst_graph_begin(conf->device, stream));
        pst_lease lease;
        begin_piece(&self, "layer 3", stream, &lease);
        if (!is_destroyed)
            CHECK_STATUS(pst_stream_synchronize(conf->device, stream), PST_E_CAPTURE);
        CHECK_STATUS(pst_graph_end(conf->device, stream, &graph),
                     is_destroyed ? PST_OK : PST_E_CAPTURE);
        CHECK_OK(pst_graph_destroy(graph));
        CHECK_OK(pst_scratch_release(self.scratch, &lease, "layer 4", stream));
        piece(&self, 0, 2, self.streams[1]);
        check_slots(&self, 1);
        close_rig(&self);
    }
}
