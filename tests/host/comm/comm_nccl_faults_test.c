/* Communicators of NCCL: what is refused, failures of NCCL, ranks that do not come, waiting, and
 * which library it is. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "host/base/base.h"
#include "host/comm/comm_nccl.h"
#include "tests/host/comm/nccl_scene.h"

enum { SOON = 50 }; /* milliseconds */

/* One rank, of a communicator that the program has made. */
typedef struct alone {
    nccl_device at;
    struct ncclComm given;
    pst_comm *comm;
} alone;

static void open_alone(alone *self)
{
    nccl_load();
    nccl_open_device(&self->at, 0);
    self->given = (struct ncclComm){.ranks = &self->given, .num_ranks = 1};
    self->comm = NULL;
    WANT_OK(pst_comm_adopt(self->at.device, &self->given, &self->comm));
}

static void close_alone(alone *self)
{
    WANT_OK(pst_comm_destroy(self->comm));
    nccl_close_device(&self->at);
}

static pst_status sum(pst_comm *comm)
{
    float value = 1;
    return pst_comm_all_reduce(comm, &value, &value, 1, PST_DTYPE_FP32, PST_REDUCE_SUM, NULL);
}

static void done(void)
{
    puts("done");
}

/* ---- what is refused ---- */

PST_CHILD(comm_nccl_refused)
{
    alone self;
    pst_comm *other = NULL;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    open_alone(&self);
    pst_device *device = self.at.device;
    struct ncclComm *given = &self.given;
    WANT_FAILURE(pst_comm_adopt(device, NULL, &other), PST_E_INVALID, "nccl is NULL [comm.c:");
    WANT_FAILURE(pst_comm_adopt(device, given, NULL), PST_E_INVALID, "comm_out is NULL [comm.c:");
    WANT_FAILURE(pst_comm_adopt(NULL, given, &other), PST_E_INVALID, "device is NULL [");
    given->device = 3;
    WANT_FAILURE(pst_comm_adopt(device, given, &other), PST_E_INVALID,
                 "comm is of CUDA device 3, not of device 0 [nccl_find.c:");
    given->device = 0;
    given->device_result = PSTI_NCCL_INVALID_ARGUMENT;
    WANT_FAILURE(pst_comm_adopt(device, given, &other), PST_E_INVALID,
                 "ncclCommCuDevice: invalid argument; NCCL's last error: none [nccl_find.c:");
    given->device_result = PSTI_NCCL_SUCCESS;
    given->num_ranks = PST_COMM_MAX_RANKS + 1;
    WANT_FAILURE(pst_comm_adopt(device, given, &other), PST_E_INVALID,
                 "comm has 1025 ranks: allowed are 1 to 1024 [");
    given->num_ranks = 1;
    WANT_OK(pst_stream_create(device, &stream));
    WANT_OK(pst_graph_begin(device, stream));
    WANT_FAILURE(pst_comm_adopt(device, given, &other), PST_E_CAPTURE, "");
    WANT_FAILURE(pst_graph_end(device, stream, &graph), PST_E_CAPTURE, "");
    WANT_OK(pst_stream_destroy(device, stream));
    device->info.kind = PST_DEVICE_HOST;
    WANT_FAILURE(pst_comm_adopt(device, given, &other), PST_E_UNSUPPORTED,
                 "device host: NCCL works on cuda only [comm.c:");
    device->info.kind = PST_DEVICE_CUDA;
    WANT_FAILURE(pst_comm_run(self.comm, NULL, NULL), PST_E_INVALID, "exchange is NULL [comm.c:");
    WANT(other == NULL && given->num_reduces == 0);
    WANT_OK(sum(self.comm)); /* it works on */
    close_alone(&self);
    done();
}

PST_TEST(CommNcclFaults, BadArgumentsAreRefused)
{
    nccl_check_child("comm_nccl_refused", NULL);
}

/* ---- failures of NCCL ---- */

/* Every call answers PEER with this from now on, and NCCL is not called. */
static void check_failed(alone *self, const char *cause)
{
    uint64_t number = 0;
    float value = 0;
    pst_exchange of = PST_EXCHANGE_INIT;
    of.kind = PST_EXCHANGE_SHIFT;
    of.from = of.to = &value;
    self->given.has_ended = true;
    WANT_FAILURE(sum(self->comm), PST_E_PEER, cause);
    WANT_FAILURE(pst_comm_start(self->comm, &of, NULL, &number), PST_E_PEER, cause);
    WANT_FAILURE(pst_comm_wait(self->comm, NULL, 0), PST_E_PEER, cause);
    WANT_OK(pst_comm_abort(self->comm, "again"));
    WANT_FAILURE(sum(self->comm), PST_E_PEER, cause); /* the first cause stays */
    close_alone(self);
}

PST_CHILD(comm_nccl_async)
{
    alone self;
    open_alone(&self);
    WANT_OK(sum(self.comm));
    self.given.async_error = 6;
    self.given.last_error = "the net is down";
    WANT_FAILURE(sum(self.comm), PST_E_PEER,
                 "rank 0: a call before: remote error; NCCL's last error: the net is down [");
    WANT(self.given.num_reduces == 1);
    self.given.async_error = PSTI_NCCL_SUCCESS;
    check_failed(&self,
                 "rank 0: a call before: remote error; NCCL's last error: the net is down [");
    done();
}

PST_TEST(CommNcclFaults, AnAsynchronousErrorReachesEachCall)
{
    nccl_check_child("comm_nccl_async", NULL);
}

PST_CHILD(comm_nccl_calls)
{
    alone self;
    uint64_t number = 0;
    float from = 2, to = 0;
    pst_exchange of = PST_EXCHANGE_INIT;
    of.kind = PST_EXCHANGE_SHIFT;
    of.dtype = PST_DTYPE_FP32;
    of.count = 1;
    of.from = &from;
    of.to = &to;
    open_alone(&self);
    self.given.reduce_result = 3;
    WANT_FAILURE(sum(self.comm), PST_E_PEER,
                 "rank 0: ncclAllReduce: internal error; NCCL's last error: none [");
    check_failed(&self, "rank 0: ncclAllReduce: internal error; NCCL's last error: none [");
    open_alone(&self);
    WANT_OK(pst_comm_start(self.comm, &of, NULL, &number));
    self.given.group_result = PSTI_NCCL_INVALID_USAGE;
    WANT_FAILURE(pst_comm_run(self.comm, &of, NULL), PST_E_PEER,
                 "rank 0: ncclSend and ncclRecv: invalid usage; NCCL's last error: none [");
    WANT_FAILURE(pst_comm_finish(self.comm, number, NULL), PST_E_PEER, "rank 0: ncclSend and");
    check_failed(&self, "rank 0: ncclSend and ncclRecv: invalid usage; ");
    done();
}

PST_TEST(CommNcclFaults, ACallThatFailsEndsTheCommunicator)
{
    nccl_check_child("comm_nccl_calls", NULL);
}

/* ---- ranks that do not come, or abort ---- */

PST_CHILD(comm_nccl_late)
{
    nccl_device at;
    pst_comm *comm = NULL;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    nccl_open_device(&at, 0);
    WANT_FAILURE(pst_comm_create(at.device, &config, &comm), PST_E_INVALID, "num_ranks 0");
    config.num_ranks = 2;
    WANT_FAILURE(pst_comm_create(at.device, &config, &comm), PST_E_INVALID, "id is all 0");
    WANT_OK(pst_comm_make_id(at.device, &config.id));
    config.timeout_ms = SOON;
    WANT_FAILURE(pst_comm_create(at.device, &config, &comm), PST_E_PEER,
                 "rank 0: ncclCommInitRankConfig, to which all ranks must come, has not come about "
                 "within 50 ms [");
    WANT_FAILURE(pst_comm_create(at.device, &config, &comm), PST_E_INVALID,
                 "ncclCommInitRankConfig: invalid argument; NCCL's last error: none [");
    const fake_counts *counts = nccl_counts();
    WANT(comm == NULL && counts->inits == 1 && counts->aborts == 1 && counts->finalizes == 0);
    nccl_close_device(&at);
    done();
}

PST_TEST(CommNcclFaults, AnInitialisationThatNeverEnds)
{
    nccl_check_child("comm_nccl_late", "FAKE_NCCL_VERSION=22809");
}

static pthread_barrier_t gate;

/* All have seen the end of the first exchange, before anybody ends the communicator. */
static void sum_together(nccl_rank *self)
{
    WANT_OK(sum(self->comm));
    pthread_barrier_wait(&gate);
}

static void one_does_not_come(nccl_rank *self)
{
    static const char cause[] = "rank 0: ncclAllReduce has not come about within 50 ms [";
    sum_together(self);
    if (self->rank != 0)
        return;
    self->comm->nccl->timeout_ms = SOON; /* from now on: the others are slower under load */
    WANT_FAILURE(sum(self->comm), PST_E_PEER, cause);
    WANT_FAILURE(pst_comm_wait(self->comm, NULL, 0), PST_E_PEER, cause);
}

PST_CHILD(comm_nccl_alone)
{
    pthread_barrier_init(&gate, NULL, 2);
    nccl_run(2, false, 0, one_does_not_come);
    pthread_barrier_destroy(&gate);
    const fake_counts *counts = nccl_counts();
    WANT(counts->aborts == 1 || counts->aborts == 2); /* the other one may learn of it */
    done();
}

PST_TEST(CommNcclFaults, ARankThatDoesNotCome)
{
    nccl_check_child("comm_nccl_alone", "FAKE_NCCL_VERSION=22809");
}

/* The NCCL of these tests tells the others, as one over a network does. */
static void one_aborts(nccl_rank *self)
{
    static const char *const causes[] = {
        "rank 0: a call before: remote error; NCCL's last error: a rank has aborted [",
        "rank 1: the loss is NaN [",
        "rank 2: a call before: remote error; NCCL's last error: a rank has aborted [",
    };
    sum_together(self);
    if (self->rank == 1)
        WANT_OK(pst_comm_abort(self->comm, "the loss is NaN"));
    pthread_barrier_wait(&gate);
    WANT_FAILURE(sum(self->comm), PST_E_PEER, causes[self->rank]);
    WANT_FAILURE(pst_comm_wait(self->comm, NULL, 0), PST_E_PEER, causes[self->rank]);
}

PST_CHILD(comm_nccl_abort)
{
    pthread_barrier_init(&gate, NULL, 3);
    nccl_run(3, false, 0, one_aborts);
    pthread_barrier_destroy(&gate);
    WANT(nccl_counts()->aborts == 3 && nccl_counts()->destroys == 0);
    done();
}

PST_TEST(CommNcclFaults, OneAborts)
{
    nccl_check_child("comm_nccl_abort", "FAKE_NCCL_VERSION=22809");
}

/* ---- another thread, while a rank waits for others ---- */

static void *watch(void *arg)
{
    pst_comm *comm = arg;
    while (pst_comm_wait(comm, NULL, 1) == PST_OK)
        ; /* until its exchange is under way */
    WANT(nccl_said("rank 0: what was enqueued has not ended after 1 ms; pst_comm_abort ends it ["));
    WANT_OK(pst_comm_abort(comm, "somebody is missing"));
    return NULL;
}

static void one_is_watched(nccl_rank *self)
{
    pthread_t watcher;
    sum_together(self);
    if (self->rank != 0)
        return;
    WANT(pthread_create(&watcher, NULL, watch, self->comm) == 0);
    WANT_FAILURE(sum(self->comm), PST_E_PEER, "rank 0: somebody is missing [");
    pthread_join(watcher, NULL);
}

PST_CHILD(comm_nccl_watched)
{
    pthread_barrier_init(&gate, NULL, 2);
    nccl_run(2, false, 0, one_is_watched);
    pthread_barrier_destroy(&gate);
    done();
}

PST_TEST(CommNcclFaults, AnotherThreadAborts)
{
    nccl_check_child("comm_nccl_watched", "FAKE_NCCL_VERSION=22809");
}

/* ---- wait, abort, destroy ---- */

static void wait_own(nccl_rank *self)
{
    self->at.is_busy = true;
    WANT_FAILURE(pst_comm_wait(self->comm, self->stream, 2), PST_E_AGAIN,
                 "rank 0: what was enqueued has not ended after 2 ms; pst_comm_abort ends it [");
    self->at.idle = self->stream; /* and not that of the exchanges */
    WANT_FAILURE(pst_comm_wait(self->comm, self->stream, 2), PST_E_AGAIN, "rank 0: what was");
    self->at.is_busy = false;
    WANT_OK(pst_comm_wait(self->comm, self->stream, 0));
}

PST_CHILD(comm_nccl_wait)
{
    alone self;
    open_alone(&self);
    self.at.is_busy = true;
    WANT_FAILURE(pst_comm_wait(self.comm, NULL, 2), PST_E_AGAIN,
                 "rank 0: what was enqueued has not ended after 2 ms; the communicator is the "
                 "caller's, who may end it by ncclCommAbort [");
    self.given.async_error = 2;
    WANT_FAILURE(pst_comm_wait(self.comm, NULL, 1000000), PST_E_PEER,
                 "rank 0: a call before: system error; NCCL's last error: none [");
    self.at.is_busy = false;
    WANT_OK(pst_comm_destroy(self.comm));
    self.given.async_error = PSTI_NCCL_SUCCESS;
    WANT_OK(pst_comm_adopt(self.at.device, &self.given, &self.comm));
    WANT_FAILURE(pst_comm_abort(self.comm, ""), PST_E_INVALID, "cause is empty");
    WANT_OK(pst_comm_abort(self.comm, "its owner ends it"));
    check_failed(&self, "rank 0: its owner ends it [");
    WANT(nccl_counts()->aborts == 0);
    nccl_run(1, false, 0, wait_own);
    done();
}

PST_TEST(CommNcclFaults, WaitingHasAnEnd)
{
    nccl_check_child("comm_nccl_wait", "FAKE_NCCL_VERSION=22809");
}

static void sum_once(nccl_rank *self)
{
    WANT_OK(sum(self->comm));
}

PST_CHILD(comm_nccl_finalize)
{
    nccl_load();
    nccl_counts()->finalize_result = 2;
    nccl_run(1, false, 0, sum_once);
    WANT(nccl_counts()->aborts == 1 && nccl_counts()->destroys == 0);
    done();
}

PST_TEST(CommNcclFaults, WhatCannotBeFinalizedIsAborted)
{
    nccl_check_child("comm_nccl_finalize", "FAKE_NCCL_VERSION=22809");
}

/* ---- memory ---- */

PST_CHILD(comm_nccl_memory)
{
    alone self;
    pst_comm *other = NULL;
    int failures = 0;
    pst_status status = PST_E_NOMEM;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    open_alone(&self);
    const uint32_t live = self.at.device->live;
    config.num_ranks = 1;
    for (int makes = 0; makes < 2; makes++) {
        WANT_OK(pst_comm_make_id(self.at.device, &config.id));
        for (failures = 0; failures < 100; failures++) {
            psti_fail_allocation_after(failures);
            status = makes ? pst_comm_create(self.at.device, &config, &other)
                           : pst_comm_adopt(self.at.device, &self.given, &other);
            psti_fail_allocation_after(-1);
            if (status != PST_E_NOMEM)
                break;
            WANT(other == NULL && self.at.device->live == live);
        }
        WANT(failures >= 3 && status == PST_OK);
        WANT_OK(sum(other));
        WANT_OK(pst_comm_destroy(other));
        other = NULL;
    }
    close_alone(&self);
    done();
}

PST_TEST(CommNcclFaults, AnAllocationThatFails)
{
    nccl_check_child("comm_nccl_memory", "FAKE_NCCL_VERSION=22809");
}

/* ---- which library ---- */

PST_CHILD(comm_nccl_library)
{
    nccl_device at;
    pst_comm *comm = NULL;
    struct ncclComm given = {.ranks = &given, .num_ranks = 1};
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    config.id.bytes[0] = 1;
    config.num_ranks = 1;
    nccl_open_device(&at, 0);
    printf("%s ", pst_status_name(pst_comm_adopt(at.device, &given, &comm)));
    printf("%s\n", comm ? "" : pst_last_message());
    WANT_OK(pst_comm_destroy(comm));
    comm = NULL;
    printf("%s ", pst_status_name(pst_comm_create(at.device, &config, &comm)));
    printf("%s\n", comm ? "" : pst_last_message());
    WANT_OK(pst_comm_destroy(comm));
    nccl_close_device(&at);
    done();
}

/* Each "" where the call succeeds, else how it fails. */
static void check_library(const char *library, const char *version, const char *adopt,
                          const char *create)
{
    char expected[1024];
    const char *const variables[] = {library, version, NULL};
    child_result child;
    CHECK(child_run("comm_nccl_library", variables, &child) && child.exited);
    const char *second = strchr(child.out, '\n');
    snprintf(expected, sizeof(expected), "PST_E_UNSUPPORTED %s [nccl_find.c:", adopt);
    CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s", child.out);
    snprintf(expected, sizeof(expected), "\nPST_E_UNSUPPORTED %s [", create);
    if (!create[0])
        snprintf(expected, sizeof(expected), "\nPST_OK ");
    CHECK_MSG(second && strncmp(second, expected, strlen(expected)) == 0, "%s", child.out);
    CHECK_MSG(strstr(child.out, "\ndone\n") != NULL, "%s", child.out);
    CHECK_STR(child.err, "");
}

#define NOT_LOADED " is not loaded in this process: it must name the NCCL that made comm"

/* Nothing is loaded for a communicator that somebody else must have made. */
/* Fault rows 73. */
PST_TEST(CommNcclFaults, WhichLibraryItIs)
{
    static const char fake[] = "PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL;
    check_library(fake, NULL, "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL "'" NOT_LOADED, "");
    check_library(
        fake, "FAKE_NCCL_VERSION=21212", "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL "'" NOT_LOADED,
        "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL "' is NCCL 2.12.12: at least 2.13 is needed");
    check_library(
        "PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL_OLD, NULL,
        "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL_OLD "'" NOT_LOADED,
        "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL_OLD
        "' has no ncclCommInitRankConfig, which came with NCCL 2.14: pst_comm_adopt takes "
        "a communicator that the program has made");
    check_library("PAGESTASH_NCCL_LIBRARY=/nowhere/libnccl.so", NULL,
                  "PAGESTASH_NCCL_LIBRARY='/nowhere/libnccl.so'" NOT_LOADED,
                  "PAGESTASH_NCCL_LIBRARY='/nowhere/libnccl.so' cannot be loaded: "
                  "/nowhere/libnccl.so: cannot open shared object file: No such file or directory");
    check_library("PAGESTASH_NCCL_LIBRARY=libc.so.6", NULL,
                  "PAGESTASH_NCCL_LIBRARY='libc.so.6' has no ncclGetVersion",
                  "PAGESTASH_NCCL_LIBRARY='libc.so.6' has no ncclGetVersion");
}

/* NCCL 2.13 does what a program's own communicator needs. */
PST_CHILD(comm_nccl_oldest)
{
    alone self;
    WANT(dlopen(PSTI_FAKE_NCCL_OLD, RTLD_NOW | RTLD_LOCAL) != NULL);
    open_alone(&self);
    WANT_OK(sum(self.comm));
    close_alone(&self);
    done();
}

PST_TEST(CommNcclFaults, TheOldestNcclTakesCommunicatorsOver)
{
    const char *const variables[] = {"PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL_OLD, NULL};
    child_result child;
    CHECK(child_run("comm_nccl_oldest", variables, &child) && child.exited);
    CHECK_STR(child.out, "done\n");
}
