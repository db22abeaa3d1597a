/* Tickets that a pool lends to several threads at once. */
#include <pthread.h>

#include "tests/host/stash/slab_scene.h"

enum { THREADS = 4, ROUNDS = PSTI_UNDER_TSAN ? 100 : 400 };

typedef struct worker {
    slab_scene *scene;
    pst_stream stream;
    unsigned char rows[SMALL_BYTES];
    int number;
    uint32_t wrong;
} worker;

static pst_status work_once(worker *self, int round)
{
    const int32_t count = 1 + round % SMALL_CAPACITY;
    void *const bases[1] = {self->rows};
    const void *const counts[1] = {&count};
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_ticket ticket = {0};
    buffers.bases = bases;
    buffers.counts = counts;
    memset(self->rows, self->number + round, SMALL_BYTES);
    PSTI_TRY(pst_ticket_take(self->scene->pool, self->stream, &ticket));
    PSTI_TRY(pst_ticket_stash(ticket, self->scene->base.group, &buffers, NULL, self->stream));
    memset(self->rows, 0xdd, SMALL_BYTES);
    if (round % 3 != 0) {
        PSTI_TRY(pst_ticket_restore(ticket, self->scene->base.group, &buffers, NULL, self->stream));
        for (int at = 0; at < SMALL_BYTES; at++)
            self->wrong +=
                self->rows[at] != (at < count * SMALL_ROW ? (self->number + round) % 256 : 0xdd);
    }
    PSTI_TRY(pst_ticket_give(ticket, self->stream));
    self->wrong += pst_ticket_release(ticket, self->stream) != PST_E_INVALID;
    return PST_OK;
}

static void *work_on(void *opaque)
{
    worker *self = opaque;
    for (int round = 0; round < ROUNDS; round++)
        self->wrong += work_once(self, round) != PST_OK;
    return NULL;
}

/* What a graph holds comes back when it is destroyed, on another thread than the others take on. */
static pst_status capture_once(worker *self, int round)
{
    pst_device *device = self->scene->device;
    pst_graph *graph = NULL;
    pst_ticket ticket = {0};
    const small_scene *base = &self->scene->base;
    pst_buffers buffers = base->buffers;
    void *const bases[1] = {self->rows};
    buffers.bases = bases;
    PSTI_TRY(pst_graph_begin(device, self->stream));
    PSTI_TRY(pst_ticket_take(self->scene->pool, self->stream, &ticket));
    PSTI_TRY(pst_ticket_stash(ticket, base->group, &buffers, NULL, self->stream));
    PSTI_TRY(pst_device_fill(device, self->rows, 0, SMALL_BYTES, self->stream));
    PSTI_TRY(pst_ticket_restore(ticket, base->group, &buffers, NULL, self->stream));
    PSTI_TRY(pst_ticket_give(ticket, self->stream));
    PSTI_TRY(pst_graph_end(device, self->stream, &graph));
    memset(self->rows, self->number + round, SMALL_BYTES);
    PSTI_TRY(pst_graph_launch(graph, self->stream));
    for (int at = 0; at < SMALL_BYTES; at++)
        self->wrong += self->rows[at] != (self->number + round) % 256;
    return pst_graph_destroy(graph);
}

static void *capture_on(void *opaque)
{
    worker *self = opaque;
    for (int round = 0; round < ROUNDS; round++)
        self->wrong += capture_once(self, round) != PST_OK;
    return NULL;
}

/* Each takes back what it gave: tickets for as many as there are threads are enough. One captures. */
PST_TEST(Slab, ThreadsTakeAndGive)
{
    static worker workers[THREADS];
    slab_scene self;
    pthread_t threads[THREADS];
    memset(&self, 0, sizeof(self));
    small_configs(&self.base);
    self.base.pool_config.mode = PST_POOL_CONCURRENT;
    self.base.pool_config.num_pages = 2 * THREADS;
    self.base.pool_config.slab_tickets = THREADS;
    self.base.pool_config.slab_pages = 2;
    self.device = self.base.device;
    CHECK_OK(pst_pool_create(self.device, &self.base.pool_config, &self.base.pool));
    CHECK_OK(pst_group_create(&self.base.group_config, &self.base.group));
    CHECK_OK(pst_stream_create(self.device, &self.a));
    CHECK_OK(pst_stream_create(self.device, &self.b));
    self.pool = self.base.pool;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.scene = &self, .number = 50 * i};
        CHECK_OK(pst_stream_create(self.device, &workers[i].stream));
        CHECK_EQ(pthread_create(&threads[i], NULL, i == 0 ? capture_on : work_on, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(workers[i].wrong, 0);
        CHECK_OK(pst_stream_destroy(self.device, workers[i].stream));
    }
    close_slab(&self);
}
