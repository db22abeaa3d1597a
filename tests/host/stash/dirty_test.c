/* Dirty words: an object of their own, for buffers that stay. */
#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

PST_TEST(Dirty, ArgumentsAreChecked)
{
    small_scene self;
    pst_dirty *dirty = untouched;
    small_open(&self);
    CHECK_STATUS(pst_dirty_create(NULL, self.group, true, &dirty), PST_E_INVALID);
    CHECK_SAID("device is NULL");
    CHECK_STATUS(pst_dirty_create(self.device, NULL, true, &dirty), PST_E_INVALID);
    CHECK_SAID("group is NULL");
    CHECK_STATUS(pst_dirty_create(self.device, self.group, true, NULL), PST_E_INVALID);
    CHECK_SAID("dirty_out is NULL");
    CHECK_STATUS(pst_dirty_mark(NULL, NULL), PST_E_INVALID);
    CHECK_SAID("dirty is NULL");
    CHECK_OK(pst_dirty_destroy(NULL));
    CHECK(dirty == untouched);
    small_close(&self);
}

/* One word per count: 0 where the tail is zero, else more than any capacity. */
PST_TEST(Dirty, WordsBeginAsTheCallerSays)
{
    small_scene self;
    pst_group *group = NULL;
    small_configs(&self);
    self.space.kind = PST_ROWS_SEGMENTS;
    self.space.num_segments = 5;
    CHECK_OK(pst_group_create(&self.group_config, &group));
    for (int zero = 0; zero < 2; zero++) {
        pst_dirty *dirty = NULL;
        CHECK_OK(pst_dirty_create(self.device, group, zero, &dirty));
        CHECK_EQ(dirty->num_counts, 5);
        for (int i = 0; i < 5; i++)
            CHECK(dirty->words[i] == (zero ? 0 : UINT64_MAX));
        CHECK_OK(pst_dirty_mark(dirty, NULL));
        for (int i = 0; i < 5; i++)
            CHECK(dirty->words[i] == UINT64_MAX);
        CHECK_STATUS(pst_device_close(self.device), PST_E_BUSY);
        CHECK_OK(pst_dirty_destroy(dirty));
        CHECK_EQ(self.device->live, 0);
    }
    CHECK_OK(pst_group_destroy(group));
    CHECK_OK(pst_device_close(self.device));
}

/* It allocates and waits; marking is enqueued and captured. */
PST_TEST(Dirty, DuringCaptureItIsMarkedAndNotMade)
{
    small_scene self;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    pst_dirty *dirty = NULL, *late = untouched;
    small_open(&self);
    CHECK_OK(pst_stream_create(self.device, &stream));
    CHECK_OK(pst_dirty_create(self.device, self.group, true, &dirty));
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_STATUS(pst_dirty_create(self.device, self.group, true, &late), PST_E_CAPTURE);
    CHECK(late == untouched);
    CHECK_STATUS(pst_graph_end(self.device, stream, &graph), PST_E_CAPTURE); /* that broke it */
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(pst_dirty_mark(dirty, stream));
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    CHECK_EQ(dirty->words[0], 0);
    CHECK_OK(pst_graph_launch(graph, stream));
    CHECK(dirty->words[0] == UINT64_MAX);
    CHECK_STATUS(pst_dirty_destroy(dirty), PST_E_BUSY);
    CHECK_SAID("1 captured graphs use these dirty words");
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_dirty_destroy(dirty));
    CHECK_OK(pst_stream_destroy(self.device, stream));
    small_close(&self);
}

/* Of a group that is gone, with another of the same form and larger capacity. */
PST_TEST(Dirty, AGroupOfTheSameFormWillDo)
{
    small_scene self;
    pst_dirty *dirty = NULL;
    pst_group *other = NULL;
    const int64_t fewer = SMALL_CAPACITY - 1;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    small_open(&self);
    self.space.count_type = PST_COUNT_INT64;
    CHECK_OK(pst_group_create(&self.group_config, &other));
    CHECK_OK(pst_dirty_create(self.device, other, false, &dirty));
    CHECK_OK(pst_group_destroy(other));
    options.tail = PST_TAIL_ZERO;
    options.dirty = dirty;
    self.count = 2;
    memset(self.rows, 5, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL));
    for (int at = 0; at < SMALL_BYTES; at++)
        CHECK_EQ(self.rows[at], at < 2 * SMALL_ROW ? 5 : 0);
    CHECK_EQ(dirty->words[0], 2);
    self.buffers.capacities = &fewer; /* behind which rows would be forgotten */
    CHECK_STATUS(pst_ticket_restore(self.ticket, self.group, &self.buffers, &options, NULL),
                 PST_E_INVALID);
    CHECK_SAID("destination has capacity 7 in space 0, dirty was made for 8");
    CHECK_OK(pst_dirty_destroy(dirty));
    small_close(&self);
}
