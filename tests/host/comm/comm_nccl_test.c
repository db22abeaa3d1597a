/* Communicators of NCCL: what exchanges give, against the host's communicators, bit for bit;
 * started ones, and captures. The NCCL of these tests exchanges within the call, so a capture
 * shows here that nothing but what may be enqueued is called, and not what a launch does. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/core/float.h"
#include "tests/host/comm/nccl_scene.h"
#include "tests/random.h"

enum { MOST = 700, BYTES = 4 * MOST * FAKE_RANKS }; /* elements of a rank */

static const uint64_t sizes[] = {2, 2, 4, 4, 1};

/* Two of each: one for NCCL and one for the host. */
typedef struct buffers {
    unsigned char from[2][BYTES], to[2][BYTES];
    uint64_t lists[4][FAKE_RANKS];
} buffers;

/* Of numbers whose sums depend on the order. */
static void fill(nccl_rank *self, unsigned char *to, pst_dtype dtype)
{
    for (uint64_t i = 0; i < BYTES / sizes[dtype]; i++) {
        const uint32_t bits = (uint32_t)random_below(&self->random, 1u << 24);
        const float value = ((float)bits - (float)(1 << 23)) / (float)(1u << (bits % 20));
        const uint16_t narrow =
            dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value / 4096);
        const void *from = dtype == PST_DTYPE_FP32 ? (const void *)&value
                           : dtype == PST_DTYPE_INT32 || dtype == PST_DTYPE_BYTE
                               ? (const void *)&bits
                               : &narrow;
        memcpy(to + i * sizes[dtype], from, sizes[dtype]);
    }
}

/* What rank r sends to q: 5 r + 3 q + 1 elements, not in the order of the ranks; rank 1 sends
 * nothing to rank 0. */
static void set_lists(const nccl_rank *self, buffers *in)
{
    const uint64_t rank = (uint64_t)self->rank;
    for (uint64_t q = 0; q < (uint64_t)self->num_ranks; q++) {
        in->lists[0][q] = rank == 1 && q == 0 ? 0 : 5 * rank + 3 * q + 1;
        in->lists[1][q] = 40 * ((q + rank) % FAKE_RANKS) + rank;
        in->lists[2][q] = q == 1 && rank == 0 ? 0 : 5 * q + 3 * rank + 1;
        in->lists[3][q] = 40 * (FAKE_RANKS - 1 - q);
    }
}

static pst_exchange draw(nccl_rank *self, const buffers *in)
{
    static const uint64_t counts[] = {0, 1, 2, 33, MOST};
    pst_exchange of = PST_EXCHANGE_INIT;
    of.kind = (pst_exchange_kind)random_below(&self->random, 5);
    const bool reduces =
        of.kind == PST_EXCHANGE_REDUCE_SCATTER || of.kind == PST_EXCHANGE_ALL_REDUCE;
    of.dtype = (pst_dtype)random_below(&self->random, reduces ? 4 : 5);
    of.reduction = reduces ? (pst_reduction)random_below(&self->random, 3) : PST_REDUCE_SUM;
    of.count = counts[random_below(&self->random, 5)];
    if (of.kind == PST_EXCHANGE_ALL_TO_ALL_V) {
        of.count = 0;
        of.send_counts = in->lists[0];
        of.send_offsets = in->lists[1];
        of.receive_counts = in->lists[2];
        of.receive_offsets = in->lists[3];
    }
    return of;
}

static void place(const nccl_rank *self, pst_exchange *of, buffers *in, int which, bool in_place)
{
    const uint64_t own = (uint64_t)self->rank * of->count * sizes[of->dtype];
    of->from = in->from[which];
    of->to = in->to[which];
    if (in_place && of->kind == PST_EXCHANGE_ALL_GATHER)
        of->from = in->to[which] + own;
    else if (in_place && of->kind == PST_EXCHANGE_REDUCE_SCATTER)
        of->to = in->from[which] + own;
    else if (in_place && of->kind == PST_EXCHANGE_ALL_REDUCE)
        of->to = in->from[which];
}

static void exchange_both(nccl_rank *self, buffers *in)
{
    uint64_t number = 0;
    pst_exchange of = draw(self, in);
    const bool in_place = random_below(&self->random, 2), starts = random_below(&self->random, 2);
    const uint64_t common = self->random; /* the exchange; the numbers are the rank's own */
    self->random += (uint64_t)self->rank;
    fill(self, in->from[0], of.dtype);
    fill(self, in->to[0], of.dtype);
    self->random = common;
    memcpy(in->from[1], in->from[0], BYTES);
    memcpy(in->to[1], in->to[0], BYTES);
    place(self, &of, in, 0, in_place);
    if (starts) {
        WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
        WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    } else {
        WANT_OK(pst_comm_run(self->comm, &of, self->stream));
    }
    place(self, &of, in, 1, in_place);
    WANT_OK(pst_comm_run(self->host_comm, &of, NULL));
    if (memcmp(in->from[0], in->from[1], BYTES) != 0 || memcmp(in->to[0], in->to[1], BYTES) != 0)
        printf("rank %d of %d: kind %d, dtype %d, reduction %d, count %d, in place %d\n",
               self->rank, self->num_ranks, (int)of.kind, (int)of.dtype, (int)of.reduction,
               (int)of.count, in_place);
}

static void any_exchanges(nccl_rank *self)
{
    enum { NUM = 150 };
    pst_comm_info info, host_info;
    buffers *in = calloc(1, sizeof(*in));
    set_lists(self, in);
    for (int n = 0; n < NUM; n++)
        exchange_both(self, in);
    free(in);
    WANT_OK(pst_comm_wait(self->comm, self->stream, 0));
    WANT_OK(pst_comm_get_info(self->comm, &info));
    WANT_OK(pst_comm_get_info(self->host_comm, &host_info));
    WANT(info.rank == self->rank && info.num_ranks == self->num_ranks);
    WANT(info.num_exchanges == NUM && info.sent_bytes == host_info.sent_bytes);
}

PST_CHILD(comm_nccl_own)
{
    for (int ranks = 1; ranks <= FAKE_RANKS; ranks++)
        nccl_run(ranks, false, 0, any_exchanges);
    const fake_counts *counts = nccl_counts();
    WANT(counts->inits == 10 && counts->finalizes == 10 && counts->destroys == 10);
    WANT(counts->aborts == 0);
    puts("done");
}

PST_TEST(CommNccl, OwnRanksExchangeWhatTheHostsDo)
{
    nccl_check_child("comm_nccl_own", "FAKE_NCCL_VERSION=22809");
}

PST_CHILD(comm_nccl_given)
{
    nccl_load();
    for (int ranks = 1; ranks <= FAKE_RANKS; ranks++)
        nccl_run(ranks, true, 0, any_exchanges);
    const fake_counts *counts = nccl_counts();
    WANT(counts->finalizes == 0 && counts->destroys == 0 && counts->aborts == 0);
    puts("done");
}

PST_TEST(CommNccl, GivenRanksExchangeWhatTheHostsDo)
{
    nccl_check_child("comm_nccl_given", NULL);
}

/* ---- started ---- */

typedef struct shifts {
    float from[PST_COMM_MAX_STARTED + 1], to[PST_COMM_MAX_STARTED + 1];
} shifts;

static pst_exchange shift(shifts *in, int n)
{
    pst_exchange of = PST_EXCHANGE_INIT;
    of.kind = PST_EXCHANGE_SHIFT;
    of.dtype = PST_DTYPE_FP32;
    of.count = 1;
    of.from = &in->from[n];
    of.to = &in->to[n];
    return of;
}

static void several_at_once(nccl_rank *self)
{
    shifts in;
    uint64_t number = 0;
    const int before = (self->rank + self->num_ranks - 1) % self->num_ranks;
    for (int n = 0; n <= PST_COMM_MAX_STARTED; n++) {
        const pst_exchange of = shift(&in, n);
        in.from[n] = (float)(100 * self->rank + n);
        if (n == PST_COMM_MAX_STARTED) {
            WANT_FAILURE(pst_comm_start(self->comm, &of, self->stream, &number), PST_E_BUSY,
                         "8 exchanges are started and not finished");
            WANT_OK(pst_comm_run(self->comm, &of, self->stream)); /* behind all of them */
        } else {
            WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
            WANT(number == (uint64_t)n + 1);
        }
    }
    WANT_FAILURE(pst_comm_destroy(self->comm), PST_E_BUSY, "8 exchanges are started");
    WANT_OK(pst_comm_finish(self->comm, 3, NULL)); /* by another stream */
    WANT_OK(pst_comm_finish(self->comm, 2, self->stream));
    WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    for (int n = 0; n <= PST_COMM_MAX_STARTED; n++)
        WANT(in.to[n] == (float)(100 * before + n));
}

PST_CHILD(comm_nccl_started)
{
    nccl_run(3, false, 0, several_at_once);
    puts("done");
}

PST_TEST(CommNccl, SeveralAreStarted)
{
    nccl_check_child("comm_nccl_started", "FAKE_NCCL_VERSION=22809");
}

/* ---- which streams NCCL gets, and what they wait for ---- */

typedef struct event_call {
    bool is_wait;
    pst_event event;
    pst_stream stream;
} event_call;

static event_call event_calls[16];
static int num_event_calls;
static const psti_device_ops *plain;

static void note(bool is_wait, pst_event event, pst_stream stream)
{
    if (num_event_calls < 16)
        event_calls[num_event_calls++] = (event_call){is_wait, event, stream};
}

static pst_status noted_record(pst_device *device, pst_event event, pst_stream stream,
                               bool external)
{
    note(false, event, stream);
    WANT(!external);
    return plain->event_record(device, event, stream, external);
}

static pst_status noted_wait(pst_device *device, pst_event event, pst_stream stream, bool external)
{
    note(true, event, stream);
    WANT(!external);
    return plain->event_wait(device, event, stream, external);
}

/* The n-th pair: `from` records what `to` waits for. */
static void check_edge(int n, pst_stream from, pst_stream to)
{
    const event_call *record = &event_calls[2 * n], *wait = record + 1;
    WANT(!record->is_wait && record->stream == from);
    WANT(wait->is_wait && wait->stream == to && wait->event == record->event);
}

static void look_at_edges(nccl_rank *self)
{
    shifts in = {.from = {0}};
    uint64_t number = 0;
    pst_exchange of = shift(&in, 0);
    plain = self->at.real;
    self->at.ops.event_record = noted_record;
    self->at.ops.event_wait = noted_wait;
    WANT_OK(pst_comm_run(self->comm, &of, self->stream));
    WANT(num_event_calls == 4);
    const pst_stream side = event_calls[1].stream;
    WANT(side != NULL && side != self->stream);
    check_edge(0, self->stream, side);
    check_edge(1, side, self->stream);
    num_event_calls = 0;
    WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
    WANT(num_event_calls == 3);
    WANT_OK(pst_comm_run(self->comm, &of, NULL)); /* of another stream: behind the started one */
    WANT(num_event_calls == 7 && event_calls[4].stream == side && event_calls[5].stream == side);
    WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    WANT(num_event_calls == 8 && event_calls[7].event == event_calls[2].event);
    WANT(event_calls[7].is_wait && event_calls[7].stream == self->stream);
    self->at.ops.event_record = plain->event_record;
    self->at.ops.event_wait = plain->event_wait;
}

PST_CHILD(comm_nccl_edges)
{
    nccl_run(1, false, 0, look_at_edges);
    puts("done");
}

PST_TEST(CommNccl, AllGoThroughOneStreamThatWaitsAndIsWaitedFor)
{
    nccl_check_child("comm_nccl_edges", "FAKE_NCCL_VERSION=22809");
}

/* ---- captured ---- */

static pst_status forbidden(pst_device *device, pst_stream stream)
{
    (void)device, (void)stream;
    return PSTI_FAIL(PST_E_CAPTURE, "must not be called in a capture");
}

static void capture(nccl_rank *self)
{
    shifts in;
    pst_graph *graph = NULL;
    uint64_t number = 0;
    const int before = (self->rank + self->num_ranks - 1) % self->num_ranks;
    in.from[0] = (float)self->rank;
    in.from[1] = (float)self->rank + 10;
    const pst_exchange of = shift(&in, 0), beside = shift(&in, 1);
    WANT_OK(pst_comm_run(self->comm, &of, self->stream)); /* outside, and then inside */
    self->at.ops.stream_synchronize = forbidden;
    WANT_OK(pst_graph_begin(self->at.device, self->stream));
    WANT_OK(pst_comm_start(self->comm, &beside, self->stream, &number));
    WANT_OK(pst_comm_run(self->comm, &of, self->stream));
    WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    WANT_OK(pst_graph_end(self->at.device, self->stream, &graph)); /* the side stream has joined */
    self->at.ops.stream_synchronize = self->at.real->stream_synchronize;
    WANT(in.to[0] == (float)before && in.to[1] == (float)before + 10);
    WANT_FAILURE(pst_comm_destroy(self->comm), PST_E_BUSY, "1 captured graphs exchange by it");
    WANT_OK(pst_comm_run(self->comm, &of, self->stream)); /* and outside again */
    WANT_OK(pst_graph_destroy(graph));
}

PST_CHILD(comm_nccl_capture)
{
    nccl_run(3, false, 0, capture);
    puts("done");
}

PST_TEST(CommNccl, ACaptureHasTheForkAndTheJoin)
{
    nccl_check_child("comm_nccl_capture", "FAKE_NCCL_VERSION=22809");
}

/* What would break the capture is refused before; afterwards the capture is whole. */
static void mix(nccl_rank *self)
{
    shifts in = {.from = {0}};
    uint64_t number = 0;
    pst_graph *graph = NULL;
    pst_device *device = self->at.device;
    const pst_exchange of = shift(&in, 0);
    WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
    WANT_OK(pst_graph_begin(device, self->stream));
    WANT_FAILURE(pst_comm_finish(self->comm, number, self->stream), PST_E_CAPTURE,
                 "exchange 1 was started outside a capture, and is finished in a capture");
    WANT_FAILURE(pst_comm_run(self->comm, &of, self->stream), PST_E_CAPTURE,
                 "exchange 1 was started outside a capture and is not finished, this one is in a "
                 "capture");
    WANT_OK(pst_comm_finish(self->comm, number, NULL));
    WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
    WANT_FAILURE(pst_comm_run(self->comm, &of, NULL), PST_E_CAPTURE,
                 "the communicator is in the capture of another stream, until that ends");
    WANT_FAILURE(pst_comm_finish(self->comm, number, NULL), PST_E_CAPTURE,
                 "exchange 2 was started in a capture, and is finished outside a capture");
    WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    WANT_OK(pst_graph_end(device, self->stream, &graph));
    WANT_OK(pst_graph_destroy(graph));
}

/* A capture that is given up leaves nothing that must be finished in it. */
static void give_up(nccl_rank *self)
{
    shifts in = {.from = {0}};
    uint64_t number = 0;
    pst_graph *graph = NULL;
    const pst_exchange of = shift(&in, 0);
    WANT_OK(pst_graph_begin(self->at.device, self->stream));
    WANT_OK(pst_comm_start(self->comm, &of, self->stream, &number));
    WANT_FAILURE(pst_graph_end(self->at.device, self->stream, &graph), PST_E_CAPTURE, "");
    WANT_FAILURE(pst_comm_destroy(self->comm), PST_E_BUSY, "1 exchanges are started");
    WANT_OK(pst_comm_finish(self->comm, number, self->stream));
    WANT_OK(pst_comm_run(self->comm, &of, self->stream));
}

PST_CHILD(comm_nccl_mixed)
{
    nccl_run(2, false, 0, mix);
    nccl_run(1, false, 0, give_up);
    puts("done");
}

PST_TEST(CommNccl, InAndOutsideACaptureAreNotMixed)
{
    nccl_check_child("comm_nccl_mixed", "FAKE_NCCL_VERSION=22809");
}
