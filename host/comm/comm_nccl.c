/* Communicators of NCCL: exchanges, what ends them, and waiting.
 *
 * All exchanges of a communicator go through a stream of its own, which waits for the caller's
 * stream, which waits for it, by events: so they have one order, whichever streams the caller has
 * and whatever was started, also within a capture, which the stream then joins as a fork does. */
#include "host/comm/comm_nccl.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- errors; with the lock ---- */

void psti_nccl_fail(psti_nccl_rank *self, int rank, const char *cause)
{
    if (self->failed)
        return;
    self->failed = true;
    snprintf(self->cause, sizeof(self->cause), "rank %d: %s", rank, cause);
}

/* What NCCL answered to a call; false: the communicator has failed with it. */
static bool note(pst_comm *comm, psti_nccl_result result, const char *call)
{
    char text[512];
    psti_nccl_rank *self = comm->nccl;
    if (!psti_nccl_failed(result))
        return true;
    psti_nccl_explain(&self->nccl, result, self->comm, call, text, sizeof(text));
    psti_nccl_fail(self, comm->info.rank, text);
    return false;
}

/* Whether NCCL is done with the calls before: the next one is allowed, and the last one's work is
 * enqueued. False, too, where the communicator has failed. */
static bool is_ready(pst_comm *comm, const char *call)
{
    psti_nccl_rank *self = comm->nccl;
    psti_nccl_result state = PSTI_NCCL_SUCCESS;
    return !self->failed &&
           note(comm, self->nccl.comm_get_async_error(self->comm, &state),
                "ncclCommGetAsyncError") &&
           note(comm, state, call) && state != PSTI_NCCL_IN_PROGRESS;
}

/* ---- time ---- */

static int64_t now_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Between two looks: short at first, because NCCL enqueues in some microseconds. */
static void pause_since(int64_t begin)
{
    static const struct timespec some = {0, 100000};
    if (now_microseconds() - begin < 1000)
        sched_yield();
    else
        nanosleep(&some, NULL);
}

pst_status psti_nccl_settle(pst_comm *comm, const char *call)
{
    psti_nccl_rank *self = comm->nccl;
    char text[256];
    const int64_t begin = now_microseconds();
    for (;;) {
        pthread_mutex_lock(&self->lock);
        const bool ready = is_ready(comm, call);
        if (!ready && now_microseconds() - begin >= (int64_t)self->timeout_ms * 1000) {
            snprintf(text, sizeof(text), "%s has not come about within %u ms", call,
                     self->timeout_ms);
            psti_nccl_fail(self, comm->info.rank, text);
        }
        const bool failed = self->failed;
        pthread_mutex_unlock(&self->lock);
        PSTI_CHECK(!failed, PST_E_PEER, "%s", self->cause); /* never changes again */
        if (ready)
            return PST_OK;
        pause_since(begin);
    }
}

static pst_status nccl_check(pst_comm *comm)
{
    PSTI_TRY(psti_device_check_alive(comm->device));
    return psti_nccl_settle(comm, "a call before");
}

/* ---- exchanges ---- */

static const char *const call_names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                         "ncclSend and ncclRecv", "ncclSend and ncclRecv"};

static const unsigned types[] = {PSTI_NCCL_BFLOAT16, PSTI_NCCL_FLOAT16, PSTI_NCCL_FLOAT32,
                                 PSTI_NCCL_INT32, PSTI_NCCL_UINT8};

static psti_nccl_result send(const psti_nccl_rank *self, const pst_exchange *of, uint64_t first,
                             uint64_t count, int to_rank)
{
    const char *from = (const char *)of->from + first * psti_dtype_bytes(of->dtype);
    return count ? self->nccl.send(from, count, types[of->dtype], to_rank, self->comm, self->side)
                 : PSTI_NCCL_SUCCESS;
}

static psti_nccl_result receive(const psti_nccl_rank *self, const pst_exchange *of, uint64_t first,
                                uint64_t count, int from_rank)
{
    char *to = (char *)of->to + first * psti_dtype_bytes(of->dtype);
    return count ? self->nccl.recv(to, count, types[of->dtype], from_rank, self->comm, self->side)
                 : PSTI_NCCL_SUCCESS;
}

static psti_nccl_result send_all(const pst_comm *comm, const pst_exchange *of)
{
    const int ranks = comm->info.num_ranks, rank = comm->info.rank;
    psti_nccl_result result = PSTI_NCCL_SUCCESS;
    if (of->kind == PST_EXCHANGE_SHIFT) {
        result = send(comm->nccl, of, 0, of->count, (rank + 1) % ranks);
        return psti_nccl_failed(result)
                   ? result
                   : receive(comm->nccl, of, 0, of->count, (rank + ranks - 1) % ranks);
    }
    for (int r = 0; r < ranks && !psti_nccl_failed(result); r++) {
        result = send(comm->nccl, of, of->send_offsets[r], of->send_counts[r], r);
        if (!psti_nccl_failed(result))
            result = receive(comm->nccl, of, of->receive_offsets[r], of->receive_counts[r], r);
    }
    return result;
}

/* With the lock, on the communicator's stream. */
static psti_nccl_result exchange(const pst_comm *comm, const pst_exchange *of)
{
    static const unsigned reductions[] = {PSTI_NCCL_SUM, PSTI_NCCL_MIN, PSTI_NCCL_MAX};
    const psti_nccl_rank *self = comm->nccl;
    const unsigned type = types[of->dtype], reduction = reductions[of->reduction];
    psti_nccl_result result = PSTI_NCCL_SUCCESS;
    switch (of->kind) {
    case PST_EXCHANGE_ALL_GATHER:
        return self->nccl.all_gather(of->from, of->to, of->count, type, self->comm, self->side);
    case PST_EXCHANGE_REDUCE_SCATTER:
        return self->nccl.reduce_scatter(of->from, of->to, of->count, type, reduction, self->comm,
                                         self->side);
    case PST_EXCHANGE_ALL_REDUCE:
        return self->nccl.all_reduce(of->from, of->to, of->count, type, reduction, self->comm,
                                     self->side);
    case PST_EXCHANGE_ALL_TO_ALL_V:
    case PST_EXCHANGE_SHIFT:
        result = self->nccl.group_start();
        if (!psti_nccl_failed(result)) {
            result = send_all(comm, of);
            const psti_nccl_result end = self->nccl.group_end(); /* in any case */
            result = psti_nccl_failed(result) ? result : end;
        }
        break;
    }
    return result;
}

/* ---- streams ---- */

static const char *place(uint64_t capture, uint64_t other)
{
    return !capture ? "outside a capture" : !other ? "in a capture" : "in another capture";
}

/* An event of another capture, or of none, must not be waited for; that would break the capture. */
static pst_status check_capture(pst_comm *comm, pst_stream stream, uint64_t *capture_out)
{
    const psti_nccl_rank *self = comm->nccl;
    psti_capture_of here, side;
    PSTI_TRY(comm->device->ops->capture_of(comm->device, stream, &here));
    PSTI_TRY(comm->device->ops->capture_of(comm->device, self->side, &side));
    PSTI_CHECK(side.id == 0 || side.id == here.id, PST_E_CAPTURE,
               "the communicator is in the capture of another stream, until that ends");
    const uint64_t last = self->captured_in[comm->num_started % PST_COMM_MAX_STARTED];
    PSTI_CHECK(comm->num_started == comm->num_finished || last == here.id, PST_E_CAPTURE,
               "exchange %" PRIu64 " was started %s and is not finished, this one is %s",
               comm->num_started, place(last, 0), place(here.id, last));
    *capture_out = here.id;
    return PST_OK;
}

/* The communicator's stream waits for `stream`, and exchanges. With the lock: pst_comm_wait must
 * not look at a stream that is being captured. */
static pst_status fork_to_side(pst_comm *comm, const pst_exchange *of, pst_stream stream)
{
    psti_nccl_rank *self = comm->nccl;
    pst_device *device = comm->device;
    PSTI_TRY(device->ops->event_record(device, self->came, stream, false));
    PSTI_TRY(device->ops->event_wait(device, self->came, self->side, false));
    if (of->count > 0 || of->kind == PST_EXCHANGE_ALL_TO_ALL_V)
        (void)note(comm, exchange(comm, of), call_names[of->kind]);
    return PST_OK;
}

static pst_status enqueue(pst_comm *comm, const pst_exchange *of, uint64_t slot, pst_stream stream)
{
    psti_nccl_rank *self = comm->nccl;
    pst_device *device = comm->device;
    uint64_t capture = 0;
    PSTI_TRY(check_capture(comm, stream, &capture));
    pthread_mutex_lock(&self->lock);
    const pst_status status = self->failed ? PST_OK : fork_to_side(comm, of, stream);
    pthread_mutex_unlock(&self->lock);
    PSTI_TRY(status);
    PSTI_TRY(psti_nccl_settle(comm, call_names[of->kind]));
    PSTI_TRY(device->ops->event_record(device, self->left[slot], self->side, false));
    self->captured_in[slot] = capture;
    return PST_OK;
}

static pst_status nccl_run(pst_comm *comm, const pst_exchange *of, pst_stream stream)
{
    pst_device *device = comm->device;
    PSTI_TRY(enqueue(comm, of, PST_COMM_MAX_STARTED, stream));
    return device->ops->event_wait(device, comm->nccl->left[PST_COMM_MAX_STARTED], stream, false);
}

static pst_status nccl_start(pst_comm *comm, const pst_exchange *of, uint64_t number,
                             pst_stream stream)
{
    return enqueue(comm, of, number % PST_COMM_MAX_STARTED, stream);
}

static pst_status nccl_finish(pst_comm *comm, uint64_t number, pst_stream stream)
{
    psti_nccl_rank *self = comm->nccl;
    pst_device *device = comm->device;
    const uint64_t slot = number % PST_COMM_MAX_STARTED, captured_in = self->captured_in[slot];
    psti_capture_of here, side;
    PSTI_TRY(nccl_check(comm));
    PSTI_TRY(device->ops->capture_of(device, stream, &here));
    PSTI_TRY(device->ops->capture_of(device, self->side, &side));
    if (captured_in && side.id != captured_in)
        return PST_OK; /* its capture was given up, and nothing is under way */
    PSTI_CHECK(here.id == captured_in, PST_E_CAPTURE,
               "exchange %" PRIu64 " was started %s, and is finished %s", number,
               place(captured_in, 0), place(here.id, captured_in));
    return device->ops->event_wait(device, self->left[slot], stream, false);
}

/* ---- wait, abort ---- */

/* One look. Nobody waits here for a call of NCCL that does not return: that is not idle. */
static pst_status look(pst_comm *comm, pst_stream stream, bool *idle_out)
{
    psti_nccl_rank *self = comm->nccl;
    pst_device *device = comm->device;
    psti_capture_of side;
    PSTI_TRY(device->ops->stream_query(device, stream, idle_out));
    if (pthread_mutex_trylock(&self->lock) != 0) {
        *idle_out = false;
        return PST_OK;
    }
    *idle_out = is_ready(comm, "a call before") && *idle_out;
    const bool failed = self->failed;
    pst_status status = device->ops->capture_of(device, self->side, &side);
    if (status == PST_OK && *idle_out && side.id == 0)
        status = device->ops->stream_query(device, self->side, idle_out);
    pthread_mutex_unlock(&self->lock);
    PSTI_CHECK(!failed, PST_E_PEER, "%s", self->cause);
    return status;
}

static pst_status nccl_wait(pst_comm *comm, pst_stream stream, uint32_t milliseconds)
{
    const int64_t begin = now_microseconds();
    PSTI_TRY(psti_device_check_alive(comm->device));
    for (;;) {
        bool idle = false;
        PSTI_TRY(look(comm, stream, &idle));
        if (idle)
            return PST_OK;
        PSTI_CHECK(now_microseconds() - begin < (int64_t)milliseconds * 1000, PST_E_AGAIN,
                   "rank %d: what was enqueued has not ended after %u ms; %s", comm->info.rank,
                   milliseconds,
                   comm->nccl->is_own ? "pst_comm_abort ends it"
                                      : "the communicator is the caller's, who may end it by "
                                        "ncclCommAbort");
        pause_since(begin);
    }
}

static pst_status nccl_abort(pst_comm *comm, const char *cause)
{
    psti_nccl_rank *self = comm->nccl;
    psti_nccl_result result = PSTI_NCCL_SUCCESS;
    PSTI_TRY(psti_device_check_alive(comm->device));
    pthread_mutex_lock(&self->lock);
    psti_nccl_fail(self, comm->info.rank, cause);
    if (self->is_own && self->comm) {
        result = self->nccl.comm_abort(self->comm);
        self->comm = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    return psti_nccl_translate(&self->nccl, result, NULL, "ncclCommAbort");
}

const psti_comm_ops psti_nccl_ops = {
    .check = nccl_check,
    .run = nccl_run,
    .start = nccl_start,
    .finish = nccl_finish,
    .wait = nccl_wait,
    .abort = nccl_abort,
    .close = psti_nccl_close,
};
