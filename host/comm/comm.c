/* Communicators: what every call checks, whoever carries the bytes. */
#include "host/comm/comm.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "host/base/arith.h"
#include "host/base/nvtx.h"
#include "host/base/structs.h"
#include "host/stash/stash.h"

#define MOST_BYTES ((uint64_t)1 << 45) /* of an operand, as of a group */
#define TEN_MINUTES 600000u

/* ---- exchanges ---- */

static uint64_t ranks_of(const pst_comm *comm)
{
    return (uint64_t)comm->info.num_ranks;
}

/* Elements of `from` and `to`, of which each rank has one, all have, or the lists say. */
static uint64_t reach_of(const uint64_t *counts, const uint64_t *offsets, uint64_t num_ranks)
{
    uint64_t reach = 0;
    for (uint64_t r = 0; r < num_ranks; r++) {
        const uint64_t end = counts[r] ? psti_plus(offsets[r], counts[r]) : 0;
        reach = end > reach ? end : reach;
    }
    return reach;
}

static pst_status check_fields(const pst_exchange *of)
{
    const bool reduces =
        of->kind == PST_EXCHANGE_REDUCE_SCATTER || of->kind == PST_EXCHANGE_ALL_REDUCE;
    const bool has_lists = of->kind == PST_EXCHANGE_ALL_TO_ALL_V;
    PSTI_CHECK(of->kind >= PST_EXCHANGE_ALL_GATHER && of->kind <= PST_EXCHANGE_SHIFT, PST_E_INVALID,
               "kind %d: allowed are 0 to %d", (int)of->kind, (int)PST_EXCHANGE_SHIFT);
    PSTI_CHECK(of->dtype >= PST_DTYPE_BF16 && of->dtype <= PST_DTYPE_BYTE, PST_E_INVALID,
               "dtype %d: allowed are 0 to %d", (int)of->dtype, (int)PST_DTYPE_BYTE);
    PSTI_CHECK(!reduces || of->dtype != PST_DTYPE_BYTE, PST_E_INVALID,
               "dtype byte: is moved, not reduced");
    PSTI_CHECK(of->reduction >= PST_REDUCE_SUM &&
                   of->reduction <= (reduces ? PST_REDUCE_MAX : PST_REDUCE_SUM),
               PST_E_INVALID, "reduction %d: allowed are 0 to %d", (int)of->reduction,
               reduces ? (int)PST_REDUCE_MAX : 0);
    PSTI_CHECK(of->padding == 0, PST_E_INVALID, "padding %u: must be 0", of->padding);
    const bool lists =
        of->send_counts && of->send_offsets && of->receive_counts && of->receive_offsets;
    const bool any_list =
        of->send_counts || of->send_offsets || of->receive_counts || of->receive_offsets;
    PSTI_CHECK(has_lists ? lists && of->count == 0 : !any_list, PST_E_INVALID,
               has_lists ? "all-to-all-v: the four lists must be there, and count 0"
                         : "counts and offsets: are of all-to-all-v alone");
    return PST_OK;
}

static bool overlap(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

/* The one place where operands of these kinds may share memory. */
static bool is_in_place(const pst_comm *comm, const pst_exchange *of, uint64_t part)
{
    const uintptr_t from = (uintptr_t)of->from, to = (uintptr_t)of->to;
    const uint64_t own = (uint64_t)comm->info.rank * part;
    return (of->kind == PST_EXCHANGE_ALL_REDUCE && from == to) ||
           (of->kind == PST_EXCHANGE_ALL_GATHER && from == to + own) ||
           (of->kind == PST_EXCHANGE_REDUCE_SCATTER && to == from + own);
}

static pst_status check_operand(const pst_comm *comm, const char *what, const void *address,
                                uint64_t bytes, uint64_t size)
{
    PSTI_CHECK(bytes <= MOST_BYTES, PST_E_INVALID, "%s: %" PRIu64 " bytes: at most %" PRIu64, what,
               bytes, MOST_BYTES);
    PSTI_CHECK(address || bytes == 0, PST_E_INVALID, "%s is NULL", what);
    PSTI_CHECK((uintptr_t)address % size == 0, PST_E_INVALID,
               "%s at %p: must be aligned to %" PRIu64, what, address, size);
    return bytes ? psti_check_address(comm->device, address, bytes) : PST_OK;
}

static pst_status check_exchange(const pst_comm *comm, const pst_exchange *of,
                                 uint64_t *sent_bytes_out)
{
    PSTI_TRY(check_fields(of));
    const uint64_t size = psti_dtype_bytes(of->dtype), ranks = ranks_of(comm);
    const uint64_t part = psti_times(of->count, size), whole = psti_times(part, ranks);
    uint64_t from = part, to = part;
    switch (of->kind) {
    case PST_EXCHANGE_ALL_GATHER:
        to = whole;
        *sent_bytes_out = part * (ranks - 1);
        break;
    case PST_EXCHANGE_REDUCE_SCATTER:
        from = whole;
        *sent_bytes_out = part * (ranks - 1);
        break;
    case PST_EXCHANGE_ALL_REDUCE:
        *sent_bytes_out = psti_fraction(part, 2 * (ranks - 1), ranks);
        break;
    case PST_EXCHANGE_SHIFT:
        *sent_bytes_out = ranks > 1 ? part : 0;
        break;
    case PST_EXCHANGE_ALL_TO_ALL_V:
        from = psti_times(reach_of(of->send_counts, of->send_offsets, ranks), size);
        to = psti_times(reach_of(of->receive_counts, of->receive_offsets, ranks), size);
        *sent_bytes_out = 0;
        for (uint64_t r = 0; r < ranks; r++)
            if (r != (uint64_t)comm->info.rank)
                *sent_bytes_out += of->send_counts[r] * size;
        break;
    }
    PSTI_TRY(check_operand(comm, "from", of->from, from, size));
    PSTI_TRY(check_operand(comm, "to", of->to, to, size));
    PSTI_CHECK(!overlap((uintptr_t)of->from, from, (uintptr_t)of->to, to) ||
                   is_in_place(comm, of, part),
               PST_E_INVALID, "from at %p, %" PRIu64 " bytes, overlaps to at %p, %" PRIu64 " bytes",
               of->from, from, of->to, to);
    return PST_OK;
}

/* What run and start have in common, before they enqueue. */
static pst_status begin(pst_comm *comm, const pst_exchange *given, pst_exchange *exchange_out,
                        pst_stream stream, uint64_t *sent_bytes_out)
{
    psti_capture_of capture;
    PSTI_CHECK(given, PST_E_INVALID, "exchange is NULL");
    PSTI_TAKE(pst_exchange, own, given);
    PSTI_TRY(check_exchange(comm, &own, sent_bytes_out));
    PSTI_TRY(comm->ops->check(comm));
    PSTI_TRY(comm->device->ops->capture_of(comm->device, stream, &capture));
    PSTI_TRY(psti_hold_in(comm->device, &capture, &comm->hold));
    *exchange_out = own;
    return PST_OK;
}

static void note(pst_comm *comm, uint64_t sent_bytes)
{
    comm->info.num_exchanges++;
    comm->info.sent_bytes += sent_bytes;
}

pst_status pst_comm_run(pst_comm *comm, const pst_exchange *exchange, pst_stream stream)
{
    pst_exchange own;
    uint64_t sent_bytes = 0;
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_RANGE("pst_comm_run");
    PSTI_TRY(begin(comm, exchange, &own, stream, &sent_bytes));
    PSTI_TRY(comm->ops->run(comm, &own, stream));
    note(comm, sent_bytes);
    return PST_OK;
}

pst_status pst_comm_start(pst_comm *comm, const pst_exchange *exchange, pst_stream stream,
                          uint64_t *number_out)
{
    pst_exchange own;
    uint64_t sent_bytes = 0;
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_RANGE("pst_comm_start");
    PSTI_CHECK(number_out, PST_E_INVALID, "number_out is NULL");
    PSTI_CHECK(comm->num_started - comm->num_finished < PST_COMM_MAX_STARTED, PST_E_BUSY,
               "%d exchanges are started and not finished, more are not allowed",
               PST_COMM_MAX_STARTED);
    PSTI_TRY(begin(comm, exchange, &own, stream, &sent_bytes));
    PSTI_TRY(comm->ops->start(comm, &own, comm->num_started + 1, stream));
    note(comm, sent_bytes);
    *number_out = ++comm->num_started;
    return PST_OK;
}

pst_status pst_comm_finish(pst_comm *comm, uint64_t number, pst_stream stream)
{
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_RANGE("pst_comm_finish");
    PSTI_CHECK(number > 0 && number <= comm->num_started, PST_E_INVALID,
               "number %" PRIu64 ": %" PRIu64 " were started", number, comm->num_started);
    if (number <= comm->num_finished)
        return comm->ops->check(comm);
    const pst_status status = comm->ops->finish(comm, number, stream);
    if (status == PST_OK || status == PST_E_PEER)
        comm->num_finished = number;
    return status;
}

/* ---- by name ---- */

static pst_status run(pst_comm *comm, pst_exchange_kind kind, const void *from, void *to,
                      uint64_t count, pst_dtype dtype, pst_reduction reduction, pst_stream stream)
{
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = kind;
    exchange.from = from;
    exchange.to = to;
    exchange.count = count;
    exchange.dtype = dtype;
    exchange.reduction = reduction;
    return pst_comm_run(comm, &exchange, stream);
}

pst_status pst_comm_all_gather(pst_comm *comm, const void *from, void *to, uint64_t count,
                               pst_dtype dtype, pst_stream stream)
{
    return run(comm, PST_EXCHANGE_ALL_GATHER, from, to, count, dtype, PST_REDUCE_SUM, stream);
}

pst_status pst_comm_reduce_scatter(pst_comm *comm, const void *from, void *to, uint64_t count,
                                   pst_dtype dtype, pst_stream stream)
{
    return run(comm, PST_EXCHANGE_REDUCE_SCATTER, from, to, count, dtype, PST_REDUCE_SUM, stream);
}

pst_status pst_comm_all_reduce(pst_comm *comm, const void *from, void *to, uint64_t count,
                               pst_dtype dtype, pst_reduction reduction, pst_stream stream)
{
    return run(comm, PST_EXCHANGE_ALL_REDUCE, from, to, count, dtype, reduction, stream);
}

pst_status pst_comm_all_to_all_v(pst_comm *comm, const void *from, const uint64_t *send_counts,
                                 const uint64_t *send_offsets, void *to,
                                 const uint64_t *receive_counts, const uint64_t *receive_offsets,
                                 pst_dtype dtype, pst_stream stream)
{
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_ALL_TO_ALL_V;
    exchange.dtype = dtype;
    exchange.from = from;
    exchange.to = to;
    exchange.send_counts = send_counts;
    exchange.send_offsets = send_offsets;
    exchange.receive_counts = receive_counts;
    exchange.receive_offsets = receive_offsets;
    return pst_comm_run(comm, &exchange, stream);
}

/* ---- wait, abort ---- */

pst_status pst_comm_wait(pst_comm *comm, pst_stream stream, uint32_t milliseconds)
{
    PSTI_CHECK_HANDLE(comm, COMM);
    return comm->ops->wait(comm, stream, milliseconds);
}

pst_status pst_comm_abort(pst_comm *comm, const char *cause)
{
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_CHECK(cause && cause[0], PST_E_INVALID, "cause is %s", cause ? "empty" : "NULL");
    psti_log(PST_LOG_WARN, "rank %d of %d aborts: %s", comm->info.rank, comm->info.num_ranks,
             cause);
    return comm->ops->abort(comm, cause);
}

/* ---- create, destroy, info ---- */

pst_status pst_comm_make_id(pst_device *device, pst_comm_id *id_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(id_out, PST_E_INVALID, "id_out is NULL");
    if (device->info.kind == PST_DEVICE_CUDA)
        return psti_nccl_make_id(id_out);
    psti_ranks_make_id(id_out);
    return PST_OK;
}

static pst_status check_config(const pst_comm_config *config)
{
    PSTI_CHECK(config->num_ranks >= 1 && config->num_ranks <= PST_COMM_MAX_RANKS, PST_E_INVALID,
               "num_ranks %d: allowed are 1 to %d", config->num_ranks, PST_COMM_MAX_RANKS);
    PSTI_CHECK(config->rank >= 0 && config->rank < config->num_ranks, PST_E_INVALID,
               "rank %d: allowed are 0 to %d", config->rank, config->num_ranks - 1);
    PSTI_CHECK(config->padding == 0, PST_E_INVALID, "padding %u: must be 0", config->padding);
    for (size_t i = 0; i < sizeof(config->id.bytes); i++)
        if (config->id.bytes[i])
            return PST_OK;
    return PSTI_FAIL(PST_E_INVALID, "id is all 0: pst_comm_make_id makes one");
}

/* Not by a thread that captures. */
static pst_status check_thread(pst_device *device)
{
    bool idle = false;
    return device->ops->stream_query(device, NULL, &idle);
}

static pst_comm *make(pst_device *device)
{
    pst_comm *made = psti_handle_new(sizeof(*made), PSTI_KIND_COMM);
    if (made) {
        made->device = device;
        made->ops = device->info.kind == PST_DEVICE_HOST ? &psti_ranks_ops : &psti_nccl_ops;
    }
    return made;
}

static pst_status give(pst_comm *made, pst_status opened, pst_comm **comm_out)
{
    if (opened != PST_OK) {
        psti_handle_free(made);
        return opened;
    }
    psti_device_retain(made->device, PSTI_LIVE_COMM);
    psti_log(PST_LOG_INFO, "communicator of rank %d of %d", made->info.rank, made->info.num_ranks);
    *comm_out = made;
    return PST_OK;
}

pst_status pst_comm_create(pst_device *device, const pst_comm_config *config, pst_comm **comm_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(config, PST_E_INVALID, "config is NULL");
    PSTI_CHECK(comm_out, PST_E_INVALID, "comm_out is NULL");
    PSTI_TAKE(pst_comm_config, own, config);
    PSTI_TRY(check_config(&own));
    PSTI_TRY(check_thread(device));
    if (!own.timeout_ms)
        own.timeout_ms = TEN_MINUTES;
    pst_comm *made = make(device);
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for a communicator");
    made->info.num_ranks = own.num_ranks;
    made->info.rank = own.rank;
    const bool is_host = device->info.kind == PST_DEVICE_HOST;
    return give(made, is_host ? psti_ranks_open(made, &own) : psti_nccl_open(made, &own), comm_out);
}

pst_status pst_comm_adopt(pst_device *device, pst_nccl_comm nccl, pst_comm **comm_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(nccl, PST_E_INVALID, "nccl is NULL");
    PSTI_CHECK(comm_out, PST_E_INVALID, "comm_out is NULL");
    PSTI_CHECK(device->info.kind == PST_DEVICE_CUDA, PST_E_UNSUPPORTED,
               "device %s: NCCL works on cuda only", device->info.name);
    PSTI_TRY(check_thread(device));
    pst_comm *made = make(device);
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for a communicator");
    return give(made, psti_nccl_adopt(made, nccl, TEN_MINUTES), comm_out);
}

pst_status pst_comm_destroy(pst_comm *comm)
{
    if (!comm)
        return PST_OK;
    PSTI_CHECK_HANDLE(comm, COMM);
    pst_device *device = comm->device;
    const bool works = comm->ops->check(comm) == PST_OK;
    const uint64_t open = comm->num_started - comm->num_finished;
    PSTI_TRY(check_thread(device));
    PSTI_CHECK(open == 0 || !works, PST_E_BUSY,
               "%" PRIu64 " exchanges are started and not finished", open);
    const uint32_t graphs = psti_hold_count(device, &comm->hold);
    PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs exchange by it", graphs);
    comm->ops->close(comm);
    psti_device_release(device, PSTI_LIVE_COMM);
    psti_handle_free(comm);
    return PST_OK;
}

pst_status pst_comm_get_info_sized(const pst_comm *comm, pst_comm_info *info_out, size_t info_bytes)
{
    PSTI_CHECK_HANDLE(comm, COMM);
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_comm_info, info_bytes));
    memcpy(info_out, &comm->info, info_bytes);
    return PST_OK;
}
