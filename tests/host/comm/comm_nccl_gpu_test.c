/* Communicators of NCCL on a GPU, with the NCCL of the machine: one rank, whose exchanges are
 * copies. */
#include "tests/host/comm/nccl_scene.h"

enum { COUNT = 1000 };

typedef struct scene {
    pst_device *device;
    pst_stream stream;
    pst_comm *comm;
    float *from, *to;
    float numbers[COUNT];
} scene;

static const uint64_t counts[] = {COUNT}, offsets[] = {0};

static pst_exchange exchange_of(const scene *self, pst_exchange_kind kind)
{
    pst_exchange of = PST_EXCHANGE_INIT;
    of.kind = kind;
    of.dtype = PST_DTYPE_FP32;
    of.count = COUNT;
    of.from = self->from;
    of.to = self->to;
    if (kind == PST_EXCHANGE_ALL_TO_ALL_V) {
        of.count = 0;
        of.send_counts = of.receive_counts = counts;
        of.send_offsets = of.receive_offsets = offsets;
    }
    return of;
}

static void check_copied(const scene *self)
{
    float numbers[COUNT] = {0};
    CHECK_OK(pst_comm_wait(self->comm, self->stream, 10000));
    CHECK_OK(pst_device_copy(self->device, numbers, self->to, sizeof(numbers), self->stream));
    CHECK_OK(pst_stream_synchronize(self->device, self->stream));
    for (int i = 0; i < COUNT; i++)
        CHECK(numbers[i] == self->numbers[i]);
}

static void enqueue(const scene *self, const pst_exchange *of, bool starts)
{
    uint64_t number = 0;
    CHECK_OK(pst_device_fill(self->device, self->to, 0, sizeof(self->numbers), self->stream));
    if (!starts) {
        CHECK_OK(pst_comm_run(self->comm, of, self->stream));
        return;
    }
    CHECK_OK(pst_comm_start(self->comm, of, self->stream, &number));
    CHECK_OK(pst_comm_finish(self->comm, number, self->stream));
}

/* Enqueued, and replayed from a graph. */
static void exchange_with_itself(const scene *self)
{
    pst_graph *graph = NULL;
    for (int n = 0; n < 10; n++) {
        const pst_exchange of = exchange_of(self, (pst_exchange_kind)(n % 5));
        enqueue(self, &of, n >= 5);
        check_copied(self);
        CHECK_OK(pst_graph_begin(self->device, self->stream));
        enqueue(self, &of, n >= 5);
        CHECK_OK(pst_graph_end(self->device, self->stream, &graph));
        CHECK_OK(pst_device_fill(self->device, self->to, 1, sizeof(self->numbers), self->stream));
        CHECK_OK(pst_graph_launch(graph, self->stream));
        check_copied(self);
        CHECK_OK(pst_graph_destroy(graph));
    }
}

static void open_scene(scene *self, pst_device *device)
{
    const size_t bytes = sizeof(self->numbers);
    *self = (scene){.device = device};
    for (int i = 0; i < COUNT; i++)
        self->numbers[i] = (float)i;
    CHECK_OK(pst_stream_create(self->device, &self->stream));
    CHECK_OK(pst_device_alloc(self->device, bytes, (void **)&self->from));
    CHECK_OK(pst_device_alloc(self->device, bytes, (void **)&self->to));
    CHECK_OK(pst_device_copy(self->device, self->from, self->numbers, bytes, self->stream));
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_device_free(self->device, self->from));
    CHECK_OK(pst_device_free(self->device, self->to));
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    CHECK_OK(pst_device_close(self->device));
}

PST_TEST(CommNccl, OneRankOnAGpuExchangesWithItself)
{
    scene self;
    nccl_real nccl;
    pst_nccl_comm given = NULL;
    const int first = 0;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    pst_device *device = NULL;
    const pst_status opened = pst_device_open("cuda", first, &device);
    if (opened == PST_E_NO_DEVICE || opened == PST_E_UNSUPPORTED)
        pst_test_skip("no GPU");
    CHECK_MSG(opened == PST_OK, "%s", pst_last_message());
    open_scene(&self, device);
    if (!nccl_find_real(&nccl)) {
        close_scene(&self);
        pst_test_skip("a GPU, but no NCCL: PAGESTASH_NCCL_LIBRARY names its file");
    }
    CHECK_EQ(nccl.comm_init_all(&given, 1, &first), PSTI_NCCL_SUCCESS);
    CHECK_OK(pst_comm_adopt(self.device, given, &self.comm));
    exchange_with_itself(&self);
    CHECK_OK(pst_comm_destroy(self.comm));
    CHECK_EQ(nccl.comm_destroy(given), PSTI_NCCL_SUCCESS);
    config.num_ranks = 1;
    CHECK_OK(pst_comm_make_id(self.device, &config.id));
    CHECK_OK(pst_comm_create(self.device, &config, &self.comm));
    exchange_with_itself(&self);
    CHECK_OK(pst_comm_destroy(self.comm));
    CHECK_OK(pst_comm_make_id(self.device, &config.id));
    CHECK_OK(pst_comm_create(self.device, &config, &self.comm));
    CHECK_OK(pst_comm_abort(self.comm, "enough"));
    CHECK_STATUS(pst_comm_wait(self.comm, self.stream, 0), PST_E_PEER);
    CHECK_OK(pst_comm_destroy(self.comm));
    close_scene(&self);
}
