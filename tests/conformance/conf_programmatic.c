/* Programmatic dependent launches behind every kind of predecessor, enqueued and captured. What the
 * stream orders stays in order; bytes say so. */
#include "tests/conformance/conf.h"

enum { ROWS = 64, ROW_BYTES = 8192 };

typedef enum before {
    NOTHING,
    FILL,  /* a memset */
    COPY,  /* a memcpy */
    EVENT, /* a wait for another stream */
    SPLIT, /* to another stream and back */
    STEP,  /* an ordinary kernel of the library */
    STASH, /* a programmatic one */
    BEFORES
} before;

typedef struct scene {
    lockstep ls;
    oracle_random random;
    ls_group source, destination;
    uint32_t tickets[2];
    pst_stream other;
    pst_event begun, done;
    unsigned char *scratch; /* 64 bytes, on the device */
} scene;

static void open_streams(scene *self, pst_device *device)
{
    CHECK_OK(pst_stream_create(device, &self->other));
    CHECK_OK(pst_event_create(device, &self->begun));
    CHECK_OK(pst_event_create(device, &self->done));
    CHECK_OK(pst_device_alloc(device, 64, (void **)&self->scratch));
}

static bool set_up(scene *self, const conf_run *conf, pst_pool_mode mode)
{
    const int64_t rows = ROWS - 3;
    const shape like = conf_prefix_shape(2, ROWS, ROW_BYTES);
    ls_options options = conf_options(mode, 200, 1);
    options.num_host_pages = 8;
    self->random = oracle_random_seeded(5);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    ls_group_make(&self->ls, &like, &self->random, &self->source);
    ls_group_make(&self->ls, &like, &self->random, &self->destination);
    ls_group_set_counts(&self->ls, &self->source, &rows);
    for (int i = 0; i < 2; i++)
        self->tickets[i] = ls_ticket_make(&self->ls, &self->source);
    open_streams(self, conf->device);
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    pst_device *device = self->ls.device;
    CHECK_OK(pst_device_free(device, self->scratch));
    CHECK_OK(pst_event_destroy(device, self->done));
    CHECK_OK(pst_event_destroy(device, self->begun));
    CHECK_OK(pst_stream_destroy(device, self->other));
    ls_group_free(&self->ls, &self->source);
    ls_group_free(&self->ls, &self->destination);
    ls_close(&self->ls);
}

static void stash(scene *self, int ticket)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch.programmatic = true;
    CHECK_OK(pst_ticket_stash(self->ls.tickets[self->tickets[ticket]], self->source.group,
                              ls_at(&self->source), &options, self->ls.stream));
}

static void enqueue_before(scene *self, before what)
{
    pst_device *device = self->ls.device;
    pst_stream stream = self->ls.stream;
    switch (what) {
    case FILL:
        CHECK_OK(pst_device_fill(device, self->scratch, 1, 64, stream));
        break;
    case COPY:
        CHECK_OK(pst_device_copy(device, self->scratch, self->scratch + 32, 32, stream));
        break;
    case EVENT:
    case SPLIT:
        CHECK_OK(pst_event_record(device, self->begun, stream));
        CHECK_OK(pst_event_wait(device, self->begun, self->other));
        if (what == SPLIT)
            CHECK_OK(pst_device_fill(device, self->scratch, 2, 64, self->other));
        CHECK_OK(pst_event_record(device, self->done, self->other));
        CHECK_OK(pst_event_wait(device, self->done, stream));
        break;
    case STEP:
        CHECK_OK(pst_pool_step(self->ls.pool, stream));
        break;
    case STASH:
        stash(self, 1);
        CHECK_OK(pst_ticket_release(self->ls.tickets[self->tickets[1]], stream));
        break;
    default:
        break;
    }
}

/* A stash and a restore, each with that before it, and what comes behind them: a release, so
 * that an ordinary launch follows a programmatic one. */
static void enqueue(scene *self, before what)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch.programmatic = true;
    options.pages = PST_RESTORE_KEEP;
    enqueue_before(self, what);
    stash(self, 0);
    enqueue_before(self, what);
    CHECK_OK(ls_enqueue_restore(self->ls.tickets[self->tickets[0]], &self->destination, &options,
                                self->ls.stream));
    CHECK_OK(pst_ticket_release(self->ls.tickets[self->tickets[0]], self->ls.stream));
}

static void check(scene *self)
{
    pst_pool_status status;
    lockstep *ls = &self->ls;
    CHECK_OK(pst_stream_synchronize(ls->device, ls->stream));
    oracle_stash(ls->oracle, self->tickets[0], &self->source.model, self->source.values);
    oracle_restore(ls->oracle, self->tickets[0], &self->destination.model, PST_RESTORE_CONSUME,
                   PST_TAIL_UNTOUCHED);
    ls_group_compare(ls, &self->destination);
    CHECK_OK(pst_pool_check(ls->pool, ls->stream));
    CHECK_OK(pst_pool_step(ls->pool, ls->stream));
    CHECK_OK(pst_stream_synchronize(ls->device, ls->stream));
    CHECK_OK(pst_pool_poll(ls->pool, &status));
    CHECK_EQ(status.num_faults, 0);
    CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
}

CONFORMANCE(Programmatic, BehindAnyPredecessor)
{
    CONF_EACH_MODE (mode) {
        static scene self;
        if (!set_up(&self, conf, mode))
            return;
        for (int i = 0; i < 2 * BEFORES && !psti_test_failed(); i++) {
            const before what = (before)(i / 2);
            pst_graph *graph = NULL;
            ls_group_fill(&self.ls, &self.source, &self.random);
            ls_group_poison(&self.ls, &self.destination, 0x3c);
            if (i % 2) {
                enqueue(&self, what);
            } else {
                CHECK_OK(pst_graph_begin(conf->device, self.ls.stream));
                enqueue(&self, what);
                CHECK_OK(pst_graph_end(conf->device, self.ls.stream, &graph));
                CHECK_OK(pst_graph_launch(graph, self.ls.stream));
            }
            check(&self);
            CHECK_OK(pst_graph_destroy(graph));
            CHECK_MSG(!psti_test_failed(), "predecessor %d, %s", (int)what,
                      graph ? "captured" : "enqueued");
        }
        self.ls.skip_checks = true; /* the oracle was told of one stash and one restore only */
        oracle_reset(self.ls.oracle, PST_RESET_ALL);
        CHECK_OK(pst_pool_reset(self.ls.pool, PST_RESET_ALL, self.ls.stream));
        tear_down(&self);
    }
}
