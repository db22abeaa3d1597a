/* Communicators of threads: what exchanges give, against plain loops. */
#include <stdlib.h>
#include <string.h>

#include "kernels/core/float.h"
#include "tests/host/comm/comm_scene.h"
#include "tests/random.h"

enum { MOST = 3000 }; /* elements of a rank */

static const uint64_t sizes[] = {2, 2, 4, 4, 1};

/* Small whole numbers, which every type has, and whose sums every type has. */
static int value_of(int rank, uint64_t i)
{
    return (int)((i * 7 + (uint64_t)rank * 5) % 13) - 6;
}

static void set(unsigned char *to, uint64_t i, pst_dtype dtype, int value)
{
    const float wide = (float)value;
    const int32_t whole = value;
    const uint16_t narrow =
        dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(wide) : psti_float_to_half(wide);
    const uint8_t byte = (uint8_t)value;
    const void *from = dtype == PST_DTYPE_FP32    ? (const void *)&wide
                       : dtype == PST_DTYPE_INT32 ? (const void *)&whole
                       : dtype == PST_DTYPE_BYTE  ? (const void *)&byte
                                                  : (const void *)&narrow;
    memcpy(to + i * sizes[dtype], from, sizes[dtype]);
}

static bool is(const unsigned char *at, uint64_t i, pst_dtype dtype, int value)
{
    unsigned char wanted[4];
    set(wanted, 0, dtype, value);
    return memcmp(at + i * sizes[dtype], wanted, sizes[dtype]) == 0;
}

static int reduced(int num_ranks, uint64_t i, pst_reduction reduction)
{
    int found = value_of(0, i);
    for (int r = 1; r < num_ranks; r++) {
        const int other = value_of(r, i);
        found = reduction == PST_REDUCE_SUM   ? found + other
                : reduction == PST_REDUCE_MIN ? (other < found ? other : found)
                                              : (other > found ? other : found);
    }
    return found;
}

typedef struct shape {
    pst_exchange_kind kind;
    pst_dtype dtype;
    pst_reduction reduction;
    uint64_t count;
    bool in_place, starts;
} shape;

static uint64_t from_count(const shape *of, int num_ranks)
{
    return of->kind == PST_EXCHANGE_REDUCE_SCATTER ? of->count * (uint64_t)num_ranks : of->count;
}

static uint64_t to_count(const shape *of, int num_ranks)
{
    return of->kind == PST_EXCHANGE_ALL_GATHER ? of->count * (uint64_t)num_ranks : of->count;
}

/* What stands at element i of a rank's `to`. */
static int wanted(const shape *of, const rank_of_test *self, uint64_t i)
{
    const int before = (self->rank + self->num_ranks - 1) % self->num_ranks;
    switch (of->kind) {
    case PST_EXCHANGE_ALL_GATHER:
        return value_of((int)(i / of->count), i % of->count);
    case PST_EXCHANGE_REDUCE_SCATTER:
        return reduced(self->num_ranks, i + (uint64_t)self->rank * of->count, of->reduction);
    case PST_EXCHANGE_ALL_REDUCE:
        return reduced(self->num_ranks, i, of->reduction);
    case PST_EXCHANGE_SHIFT:
        return value_of(before, i);
    case PST_EXCHANGE_ALL_TO_ALL_V:
        break;
    }
    return 0;
}

typedef struct buffers {
    unsigned char from[4 * MOST * SCENE_RANKS], to[4 * MOST * SCENE_RANKS];
} buffers;

static pst_exchange place(const shape *of, const rank_of_test *self, buffers *in)
{
    const uint64_t own = (uint64_t)self->rank * of->count * sizes[of->dtype];
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = of->kind;
    exchange.dtype = of->dtype;
    exchange.reduction = of->reduction;
    exchange.count = of->count;
    exchange.from = in->from;
    exchange.to = in->to;
    if (of->in_place && of->kind == PST_EXCHANGE_ALL_GATHER)
        exchange.from = in->to + own;
    else if (of->in_place && of->kind == PST_EXCHANGE_REDUCE_SCATTER)
        exchange.to = in->from + own;
    else if (of->in_place && of->kind == PST_EXCHANGE_ALL_REDUCE)
        exchange.to = in->from;
    return exchange;
}

static void fill(const shape *of, const rank_of_test *self, const pst_exchange *exchange)
{
    for (uint64_t i = 0; i < from_count(of, self->num_ranks); i++)
        set((unsigned char *)(uintptr_t)exchange->from, i, of->dtype, value_of(self->rank, i));
}

static void check(const shape *of, const rank_of_test *self, const pst_exchange *exchange)
{
    for (uint64_t i = 0; i < to_count(of, self->num_ranks) && !psti_test_failed(); i++)
        if (!is(exchange->to, i, of->dtype, wanted(of, self, i)))
            psti_test_fail(__FILE__, __LINE__,
                           "rank %d of %d, kind %d, dtype %d, reduction %d: element %llu",
                           self->rank, self->num_ranks, (int)of->kind, (int)of->dtype,
                           (int)of->reduction, (unsigned long long)i);
}

static void exchange_once(rank_of_test *self, const shape *of, buffers *in)
{
    uint64_t number = 0;
    memset(in, 0x55, sizeof(*in));
    pst_exchange exchange = place(of, self, in);
    fill(of, self, &exchange);
    if (of->starts) {
        RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &number));
        RANK_OK(pst_comm_finish(self->comm, number, self->stream));
    } else {
        RANK_OK(pst_comm_run(self->comm, &exchange, self->stream));
    }
    check(of, self, &exchange);
}

/* All ranks draw the same. */
static void any_exchanges(rank_of_test *self)
{
    const uint32_t num = *(const uint32_t *)self->arg;
    buffers *in = calloc(1, sizeof(*in));
    for (uint32_t n = 0; n < num && self->created == PST_OK; n++) {
        static const uint64_t counts[] = {1, 0, 2, 7, 1024, 1025, MOST};
        shape of = {.kind = (pst_exchange_kind)(n % 4)};
        of.kind = of.kind == PST_EXCHANGE_ALL_TO_ALL_V ? PST_EXCHANGE_SHIFT : of.kind;
        const bool reduces =
            of.kind == PST_EXCHANGE_REDUCE_SCATTER || of.kind == PST_EXCHANGE_ALL_REDUCE;
        of.dtype = (pst_dtype)random_below(&self->random, reduces ? 4 : 5);
        of.reduction = reduces ? (pst_reduction)random_below(&self->random, 3) : PST_REDUCE_SUM;
        of.count = counts[random_below(&self->random, 7)];
        of.in_place = random_below(&self->random, 2);
        of.starts = random_below(&self->random, 2);
        exchange_once(self, &of, in);
    }
    free(in);
}

PST_TEST(Comm, EveryKind)
{
    const uint32_t num = PSTI_UNDER_TSAN ? 40 : 160;
    const int ranks[] = {1, 2, 3, 8};
    for (int i = 0; i < 4 && !psti_test_failed(); i++)
        ranks_run(ranks[i], 0, any_exchanges, (void *)(uintptr_t)&num);
}

/* Sums of numbers that no order but that of the ranks gives. */
static void sum_in_order(rank_of_test *self)
{
    enum { COUNT = 2049 };
    static const float parts[] = {1e8f, 1.0f, -1e8f, 3.0f, 1e-3f, -7e7f, 5.5f, 7e7f};
    float sums[COUNT], expected = 0;
    for (int i = 0; i < COUNT; i++)
        sums[i] = parts[self->rank];
    for (int r = 0; r < self->num_ranks; r++)
        expected = r ? expected + parts[r] : parts[0];
    RANK_OK(pst_comm_all_reduce(self->comm, sums, sums, COUNT, PST_DTYPE_FP32, PST_REDUCE_SUM,
                                self->stream));
    for (int i = 0; i < COUNT; i++)
        RANK_CHECK(psti_bits_of(sums[i]) == psti_bits_of(expected));
}

PST_TEST(Comm, SumsHaveTheOrderOfTheRanks)
{
    ranks_run(8, 0, sum_in_order, NULL);
}

/* What rank r sends to q are 3 r + q elements, of its own value, at a place of its own. */
static void all_to_all(rank_of_test *self)
{
    enum { ROOM = 64 };
    float from[SCENE_RANKS * ROOM], to[SCENE_RANKS * ROOM];
    uint64_t lists[4][SCENE_RANKS];
    const uint64_t rank = (uint64_t)self->rank;
    pst_comm_info info;
    uint64_t sent = 0;
    for (uint64_t q = 0; q < (uint64_t)self->num_ranks; q++) {
        lists[0][q] = 3 * rank + q;
        lists[1][q] = ROOM * q + rank;
        lists[2][q] = 3 * q + rank;
        lists[3][q] = ROOM * ((uint64_t)self->num_ranks - 1 - q);
        sent += q == rank ? 0 : lists[0][q] * sizeof(float);
        for (uint64_t i = 0; i < ROOM; i++) {
            from[ROOM * q + i] = (float)(100 * rank + 10 * q) + (float)i / 64;
            to[ROOM * q + i] = -1;
        }
    }
    RANK_OK(pst_comm_all_to_all_v(self->comm, from, lists[0], lists[1], to, lists[2], lists[3],
                                  PST_DTYPE_FP32, self->stream));
    for (uint64_t q = 0; q < (uint64_t)self->num_ranks; q++)
        for (uint64_t i = 0; i < ROOM; i++) {
            const float wanted_value =
                i < lists[2][q] ? (float)(100 * q + 10 * rank) + (float)(i + q) / 64 : -1;
            RANK_CHECK(to[lists[3][q] + i] == wanted_value);
        }
    RANK_OK(pst_comm_get_info(self->comm, &info));
    RANK_CHECK(info.num_exchanges == 1 && info.sent_bytes == sent);
    RANK_CHECK(info.rank == self->rank && info.num_ranks == self->num_ranks);
    lists[0][0] += rank == 1; /* rank 0 does not expect that */
    RANK_STATUS(pst_comm_all_to_all_v(self->comm, from, lists[0], lists[1], to, lists[2], lists[3],
                                      PST_DTYPE_FP32, self->stream),
                PST_E_PEER);
    RANK_CHECK(strstr(pst_last_message(), "rank 1 sends 4 elements to rank 0, which receives 3"));
}

PST_TEST(Comm, AllToAll)
{
    ranks_run(4, 0, all_to_all, NULL);
}

/* ---- where operands lie ---- */

static void lie_side_by_side(rank_of_test *self)
{
    enum { COUNT = 16 };
    float buffer[2 * COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        buffer[i] = (float)i;
    RANK_OK(pst_comm_all_reduce(self->comm, buffer, buffer + COUNT, COUNT, PST_DTYPE_FP32,
                                PST_REDUCE_MAX, self->stream));
    for (int i = 0; i < COUNT; i++)
        RANK_CHECK(buffer[COUNT + i] == (float)i);
    for (int i = 0; i < COUNT; i++)
        buffer[i] = 0;
    RANK_OK(pst_comm_all_reduce(self->comm, buffer + COUNT, buffer, COUNT, PST_DTYPE_FP32,
                                PST_REDUCE_MAX, self->stream));
    for (int i = 0; i < COUNT; i++)
        RANK_CHECK(buffer[i] == (float)i);
    RANK_STATUS(pst_comm_all_reduce(self->comm, buffer, buffer + COUNT - 1, COUNT, PST_DTYPE_FP32,
                                    PST_REDUCE_MAX, self->stream),
                PST_E_INVALID);
    RANK_STATUS(pst_comm_all_reduce(self->comm, buffer + COUNT - 1, buffer, COUNT, PST_DTYPE_FP32,
                                    PST_REDUCE_MAX, self->stream),
                PST_E_INVALID);
}

PST_TEST(Comm, OperandsMayLieSideBySide)
{
    ranks_run(2, 200000, lie_side_by_side, NULL);
}

static void count_bytes(rank_of_test *self)
{
    float from[40] = {0}, to[40];
    pst_comm_info info;
    RANK_OK(pst_comm_all_gather(self->comm, from, to, 10, PST_DTYPE_FP32, self->stream));
    RANK_OK(pst_comm_reduce_scatter(self->comm, from, to, 10, PST_DTYPE_FP32, self->stream));
    RANK_OK(pst_comm_all_reduce(self->comm, from, to, 10, PST_DTYPE_FP32, PST_REDUCE_MAX,
                                self->stream));
    RANK_OK(pst_comm_get_info(self->comm, &info));
    RANK_CHECK(info.sent_bytes == 120 + 120 + 60 && info.num_exchanges == 3);
}

PST_TEST(Comm, BytesAreThoseOfARing)
{
    ranks_run(4, 0, count_bytes, NULL);
}

/* ---- beside the rank's own work ---- */

static void several_at_once(rank_of_test *self)
{
    enum { COUNT = 100 };
    float from[PST_COMM_MAX_STARTED][COUNT], to[PST_COMM_MAX_STARTED][COUNT];
    uint64_t numbers[PST_COMM_MAX_STARTED + 1];
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_SHIFT;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = COUNT;
    for (int round = 0; round < 10; round++) {
        for (int n = 0; n < PST_COMM_MAX_STARTED; n++) {
            for (int i = 0; i < COUNT; i++)
                from[n][i] = (float)(self->rank * 1000 + n * 100 + i + round);
            exchange.from = from[n];
            exchange.to = to[n];
            RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &numbers[n]));
        }
        RANK_STATUS(pst_comm_start(self->comm, &exchange, self->stream, &numbers[8]), PST_E_BUSY);
        RANK_STATUS(pst_comm_destroy(self->comm), PST_E_BUSY);
        RANK_STATUS(pst_comm_finish(self->comm, numbers[7] + 1, self->stream), PST_E_INVALID);
        RANK_OK(pst_comm_finish(self->comm, numbers[3], self->stream));
        RANK_OK(pst_comm_finish(self->comm, numbers[1], self->stream)); /* it has ended with 3 */
        for (int n = 0; n < 4; n++)
            RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &numbers[n]));
        float sum = (float)self->rank; /* behind all that were started */
        RANK_OK(pst_comm_all_reduce(self->comm, &sum, &sum, 1, PST_DTYPE_FP32, PST_REDUCE_SUM,
                                    self->stream));
        RANK_CHECK(sum == 3); /* of the ranks 0, 1 and 2 */
        RANK_OK(pst_comm_finish(self->comm, numbers[3], self->stream));
        RANK_OK(pst_comm_wait(self->comm, self->stream, 10000));
        const int before = (self->rank + self->num_ranks - 1) % self->num_ranks;
        for (int n = 0; n < PST_COMM_MAX_STARTED; n++)
            for (int i = 0; i < COUNT; i++)
                RANK_CHECK(to[n][i] == (float)(before * 1000 + n * 100 + i + round));
    }
}

PST_TEST(Comm, SeveralAreStarted)
{
    ranks_run(3, 0, several_at_once, NULL);
}

/* ---- graphs ---- */

typedef struct memory {
    float from[64], sum[64], gathered[64 * 4], started[64];
} memory;

static void capture(rank_of_test *self, memory *in, pst_graph **graph_out)
{
    uint64_t number = 0;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_SHIFT;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 64;
    exchange.from = in->sum;
    exchange.to = in->started;
    RANK_OK(pst_graph_begin(self->device, self->stream));
    RANK_OK(pst_comm_all_reduce(self->comm, in->from, in->sum, 64, PST_DTYPE_FP32, PST_REDUCE_SUM,
                                self->stream));
    RANK_OK(pst_comm_start(self->comm, &exchange, self->stream, &number));
    RANK_OK(
        pst_comm_all_gather(self->comm, in->from, in->gathered, 64, PST_DTYPE_FP32, self->stream));
    RANK_OK(pst_comm_finish(self->comm, number, self->stream));
    RANK_OK(pst_graph_end(self->device, self->stream, graph_out));
}

static void replay(rank_of_test *self)
{
    memory in;
    pst_graph *graph = NULL;
    memset(&in, 0, sizeof(in));
    capture(self, &in, &graph);
    RANK_CHECK(in.sum[0] == 0);
    RANK_STATUS(pst_comm_destroy(self->comm), PST_E_BUSY);
    for (int round = 1; round <= 20; round++) {
        float sum = 0;
        for (int i = 0; i < 64; i++)
            in.from[i] = (float)(self->rank + i * round);
        RANK_OK(pst_graph_launch(graph, self->stream));
        for (int r = 0; r < self->num_ranks; r++)
            sum += (float)(r + 5 * round);
        RANK_CHECK(in.sum[5] == sum && in.started[5] == sum);
        for (int r = 0; r < self->num_ranks; r++)
            RANK_CHECK(in.gathered[64 * r + 5] == (float)(r + 5 * round));
    }
    RANK_OK(pst_graph_destroy(graph));
}

PST_TEST(Comm, AGraphExchangesAtEachLaunch)
{
    ranks_run(4, 0, replay, NULL);
}
