/* pst_nccl_agree. Where there is no GPU a pool on the host device plays one, and
 * tests/host/comm/fake_nccl.c plays NCCL. PAGESTASH_NCCL_LIBRARY is read once in a process, so that
 * happens in children. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/comm/nccl_scene.h"
#include "tests/host/stash/scene.h"

/* ---- nccl_api.h against nccl.h ---- */

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

_Static_assert((int)PSTI_NCCL_SUCCESS == (int)ncclSuccess, "");
_Static_assert((int)PSTI_NCCL_INVALID_ARGUMENT == (int)ncclInvalidArgument, "");
_Static_assert((int)PSTI_NCCL_INVALID_USAGE == (int)ncclInvalidUsage, "");
_Static_assert((int)PSTI_NCCL_IN_PROGRESS == (int)ncclInProgress, "");
_Static_assert((int)PSTI_NCCL_UINT8 == (int)ncclUint8, "");
_Static_assert((int)PSTI_NCCL_INT32 == (int)ncclInt32, "");
_Static_assert((int)PSTI_NCCL_FLOAT16 == (int)ncclFloat16, "");
_Static_assert((int)PSTI_NCCL_FLOAT32 == (int)ncclFloat32, "");
_Static_assert((int)PSTI_NCCL_BFLOAT16 == (int)ncclBfloat16, "");
_Static_assert((int)PSTI_NCCL_SUM == (int)ncclSum, "");
_Static_assert((int)PSTI_NCCL_MAX == (int)ncclMax, "");
_Static_assert((int)PSTI_NCCL_MIN == (int)ncclMin, "");
_Static_assert(sizeof(pst_comm_id) == sizeof(ncclUniqueId), "");
_Static_assert(offsetof(psti_nccl_config, magic) == offsetof(ncclConfig_t, magic), "");
_Static_assert(offsetof(psti_nccl_config, version) == offsetof(ncclConfig_t, version), "");
_Static_assert(offsetof(psti_nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "");
_Static_assert(offsetof(psti_nccl_config, undefined) == offsetof(ncclConfig_t, cgaClusterSize), "");

#define SAME_TYPE(function, ours) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), ours), #function)
SAME_TYPE(ncclGetVersion, psti_nccl_get_version);
SAME_TYPE(ncclGetErrorString, psti_nccl_get_error_string);
SAME_TYPE(ncclGetLastError, psti_nccl_get_last_error);
SAME_TYPE(ncclCommCuDevice, psti_nccl_comm_cu_device);
SAME_TYPE(ncclCommCount, psti_nccl_comm_count);
SAME_TYPE(ncclCommUserRank, psti_nccl_comm_user_rank);
SAME_TYPE(ncclCommGetAsyncError, psti_nccl_comm_get_async_error);
SAME_TYPE(ncclCommAbort, psti_nccl_comm_abort);
SAME_TYPE(ncclCommDestroy, psti_nccl_comm_destroy);
SAME_TYPE(ncclCommFinalize, psti_nccl_comm_finalize);
SAME_TYPE(ncclGroupStart, psti_nccl_group_start);
SAME_TYPE(ncclGroupEnd, psti_nccl_group_end);
SAME_TYPE(ncclAllGather, psti_nccl_all_gather);
SAME_TYPE(ncclReduceScatter, psti_nccl_reduce_scatter);
SAME_TYPE(ncclAllReduce, psti_nccl_all_reduce);
SAME_TYPE(ncclSend, psti_nccl_send);
SAME_TYPE(ncclRecv, psti_nccl_recv);
/* Of NCCL's own structs. */
SAME_TYPE(ncclGetUniqueId, psti_nccl_result(ncclUniqueId *));
SAME_TYPE(ncclCommInitRankConfig,
          psti_nccl_result(pst_nccl_comm *, int, ncclUniqueId, int, ncclConfig_t *));
#endif

/* ---- arguments, in this process ---- */

PST_TEST(Nccl, AHostPoolHasNoNccl)
{
    small_scene self;
    struct ncclComm comm = {.ranks = &comm, .num_ranks = 1};
    small_open(&self);
    CHECK_STATUS(pst_nccl_agree(self.pool, &comm, NULL), PST_E_UNSUPPORTED);
    CHECK_SAID("the pool is on device host: NCCL works on cuda only [nccl.c:");
    CHECK_STATUS(pst_nccl_agree(NULL, &comm, NULL), PST_E_INVALID);
    CHECK_SAID("pool is NULL [");
    CHECK_STATUS(pst_nccl_agree((pst_pool *)self.device, &comm, NULL), PST_E_INVALID);
    CHECK_SAID("pool is a pst_device, not a pst_pool [");
    CHECK_STATUS(pst_nccl_agree(self.pool, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("comm is NULL [");
    CHECK_EQ(*pst_pool_step_valid(self.pool), 1);
    small_close(&self);
}

/* ---- in a child ---- */

typedef struct rank {
    small_scene scene;
    pst_nccl_comm comm;
} rank;

enum { RANKS = 3 };

static rank ranks[RANKS];
static struct ncclComm comms[RANKS];

/* The program has loaded NCCL and made a communicator; rank i has device i. */
static void open_ranks(int num_ranks)
{
    nccl_load();
    for (int i = 0; i < num_ranks; i++) {
        small_open(&ranks[i].scene);
        ranks[i].scene.device->info.kind = PST_DEVICE_CUDA;
        ranks[i].scene.device->info.index = i;
        ranks[i].comm = &comms[i];
        comms[i] = (struct ncclComm){
            .ranks = comms, .num_ranks = num_ranks, .device = i, .last_error = ""};
    }
}

static void close_ranks(int num_ranks)
{
    for (int i = 0; i < num_ranks; i++)
        small_close(&ranks[i].scene);
    puts("done");
}

/* A release of a ticket that holds nothing is a fault. */
static void fail_step(const rank *self)
{
    WANT(pst_ticket_release(self->scene.ticket, NULL) == PST_OK);
}

static pst_pool_status step(const rank *self)
{
    pst_pool_status status = {.step_valid = -1};
    WANT(pst_pool_step(self->scene.pool, NULL) == PST_OK);
    WANT(pst_pool_poll(self->scene.pool, &status) == PST_OK);
    return status;
}

PST_CHILD(nccl_reduction)
{
    open_ranks(1);
    const rank *self = &ranks[0];
    const struct ncclComm *asked = self->comm;
    pst_stream stream = NULL;
    WANT(pst_stream_create(self->scene.device, &stream) == PST_OK);
    WANT(pst_nccl_agree(self->scene.pool, self->comm, stream) == PST_OK);
    WANT(asked->num_reduces == 1);
    WANT(asked->from == pst_pool_step_valid(self->scene.pool));
    WANT(asked->to == asked->from);
    WANT(asked->count == 1 && asked->type == PSTI_NCCL_INT32);
    WANT(asked->reduction == PSTI_NCCL_MIN);
    WANT(asked->stream == stream);
    WANT(pst_nccl_agree(self->scene.pool, self->comm, NULL) == PST_OK);
    WANT(asked->num_reduces == 2 && asked->stream == NULL);
    WANT(pst_stream_destroy(self->scene.device, stream) == PST_OK);
    close_ranks(1);
}

PST_TEST(Nccl, ReducesTheFlagInPlaceOnTheStream)
{
    nccl_check_child("nccl_reduction", NULL);
}

/* Every set of ranks that fail. */
PST_CHILD(nccl_ranks)
{
    open_ranks(RANKS);
    for (int failing = 0; failing < 1 << RANKS; failing++) {
        for (int i = 0; i < RANKS; i++)
            if (failing & 1 << i)
                fail_step(&ranks[i]);
        for (int i = 0; i < RANKS; i++)
            WANT(pst_nccl_agree(ranks[i].scene.pool, ranks[i].comm, NULL) == PST_OK);
        for (int i = 0; i < RANKS; i++) {
            const pst_pool_status status = step(&ranks[i]);
            const bool own = failing & 1 << i;
            WANT(status.step_valid == (failing == 0));
            WANT(status.num_faults == own);
            WANT(status.fault == (own ? PST_FAULT_EMPTY : PST_FAULT_NONE));
            WANT(*pst_pool_step_valid(ranks[i].scene.pool) == 1); /* of the next step */
            WANT(pst_pool_reset(ranks[i].scene.pool, PST_RESET_ALL, NULL) == PST_OK);
        }
    }
    close_ranks(RANKS);
}

/* Fault rows 72. */
PST_TEST(Nccl, OneInvalidRankMakesTheStepInvalidOnAll)
{
    nccl_check_child("nccl_ranks", NULL);
}

PST_CHILD(nccl_page_sizes)
{
    open_ranks(2);
    small_scene *other = &ranks[1].scene;
    WANT(pst_ticket_destroy(other->ticket) == PST_OK);
    WANT(pst_pool_destroy(other->pool) == PST_OK);
    other->pool_config.page_bytes = PST_PAGE_BYTES_MAX;
    WANT(pst_pool_create(other->device, &other->pool_config, &other->pool) == PST_OK);
    WANT(pst_ticket_create(other->pool, other->group, &other->ticket) == PST_OK);
    for (int failing = 0; failing < 2; failing++) {
        if (failing)
            fail_step(&ranks[1]);
        for (int i = 0; i < 2; i++)
            WANT(pst_nccl_agree(ranks[i].scene.pool, ranks[i].comm, NULL) == PST_OK);
        for (int i = 0; i < 2; i++)
            WANT(step(&ranks[i]).step_valid == !failing);
    }
    close_ranks(2);
}

/* Only the flag is exchanged: pages are each rank's own affair.
 * Fault rows 74. */
PST_TEST(Nccl, RanksMayHavePagesOfOtherSizes)
{
    nccl_check_child("nccl_page_sizes", NULL);
}

PST_CHILD(nccl_refusals)
{
    open_ranks(2);
    pst_pool *pool = ranks[0].scene.pool;
    WANT_FAILURE(pst_nccl_agree(pool, ranks[1].comm, NULL), PST_E_INVALID,
                 "comm is of CUDA device 1, not of device 0 [nccl_find.c:");
    comms[0].device_result = PSTI_NCCL_INVALID_ARGUMENT;
    comms[0].last_error = "ncclCommCuDevice: communicator is damaged\n";
    WANT_FAILURE(pst_nccl_agree(pool, ranks[0].comm, NULL), PST_E_INVALID,
                 "ncclCommCuDevice: invalid argument; NCCL's last error: ncclCommCuDevice: "
                 "communicator is damaged  [nccl_find.c:");
    comms[0].device_result = PSTI_NCCL_SUCCESS;
    comms[0].last_error = "";
    comms[0].reduce_result = PSTI_NCCL_INVALID_USAGE;
    WANT_FAILURE(pst_nccl_agree(pool, ranks[0].comm, NULL), PST_E_INVALID,
                 "ncclAllReduce: invalid usage; NCCL's last error: none [nccl_find.c:");
    WANT(comms[0].num_reduces == 0 && comms[1].num_reduces == 0);
    WANT(step(&ranks[0]).step_valid == 1); /* the pool works on */
    close_ranks(2);
}

PST_TEST(Nccl, WrongCommunicatorsAndCallsAreRefused)
{
    nccl_check_child("nccl_refusals", NULL);
}

PST_CHILD(nccl_failures)
{
    static const struct {
        psti_nccl_result result;
        const char *message;
    } failures[] = {
        {1, "ncclAllReduce: unhandled cuda error; NCCL's last error: broken pipe ["},
        {2, "ncclAllReduce: system error; NCCL's last error: broken pipe ["},
        {3, "ncclAllReduce: internal error; NCCL's last error: broken pipe ["},
        {6, "ncclAllReduce: remote error; NCCL's last error: broken pipe ["},
    };
    open_ranks(1);
    pst_pool *pool = ranks[0].scene.pool;
    comms[0].last_error = "broken pipe";
    for (int i = 0; i < 4; i++) {
        comms[0].reduce_result = failures[i].result;
        WANT_FAILURE(pst_nccl_agree(pool, ranks[0].comm, NULL), PST_E_CUDA, failures[i].message);
        comms[0].reduce_result = PSTI_NCCL_SUCCESS;
        WANT_FAILURE(pst_nccl_agree(pool, ranks[0].comm, NULL), PST_E_CUDA,
                     "an earlier CUDA error");
        WANT(comms[0].num_reduces == i);
        WANT(pst_pool_reset(pool, PST_RESET_ALL, NULL) == PST_OK);
        WANT(pst_nccl_agree(pool, ranks[0].comm, NULL) == PST_OK);
    }
    comms[0].reduce_result = PSTI_NCCL_IN_PROGRESS; /* a communicator that does not block */
    WANT(pst_nccl_agree(pool, ranks[0].comm, NULL) == PST_OK);
    WANT(step(&ranks[0]).step_valid == 1);
    close_ranks(1);
}

PST_TEST(Nccl, AfterAFailureOfNcclThePoolWantsAReset)
{
    nccl_check_child("nccl_failures", NULL);
}

PST_CHILD(nccl_capture)
{
    open_ranks(1);
    const rank *self = &ranks[0];
    pst_device *device = self->scene.device;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    WANT(pst_stream_create(device, &stream) == PST_OK);
    WANT(pst_graph_begin(device, stream) == PST_OK);
    WANT(pst_nccl_agree(self->scene.pool, self->comm, stream) == PST_OK);
    WANT(pst_graph_end(device, stream, &graph) == PST_OK);
    WANT(self->scene.pool->hold.graphs == 1);
    WANT(pst_graph_destroy(graph) == PST_OK);
    WANT(self->scene.pool->hold.graphs == 0);
    WANT(pst_stream_destroy(device, stream) == PST_OK);
    close_ranks(1);
}

PST_TEST(Nccl, ACaptureHoldsThePool)
{
    nccl_check_child("nccl_capture", NULL);
}

/* ---- which library ---- */

static pst_status agree_alone(void)
{
    return pst_nccl_agree(ranks[0].scene.pool, ranks[0].comm, NULL);
}

PST_CHILD(nccl_late)
{
    small_open(&ranks[0].scene);
    ranks[0].scene.device->info.kind = PST_DEVICE_CUDA;
    ranks[0].comm = &comms[0];
    WANT_FAILURE(agree_alone(), PST_E_UNSUPPORTED,
                 "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL "' is not loaded in this process: it "
                 "must name the NCCL that made comm [nccl_find.c:");
    small_close(&ranks[0].scene);
    open_ranks(1);
    WANT(agree_alone() == PST_OK); /* the failure is not remembered */
    close_ranks(1);
}

PST_TEST(Nccl, NcclIsFoundOnceTheProgramHasLoadedIt)
{
    nccl_check_child("nccl_late", NULL);
}

/* Prints what is wrong with the library that the environment names. */
PST_CHILD(nccl_library)
{
    open_ranks(1);
    printf("%s %s\n", pst_status_name(agree_alone()), pst_last_message());
    WANT(comms[0].num_reduces == 0);
    close_ranks(1);
}

static void check_library(const char *library, const char *version, const char *message)
{
    char expected[1024];
    const char *const variables[] = {library, version, NULL};
    child_result child;
    snprintf(expected, sizeof(expected), "PST_E_UNSUPPORTED %s [nccl_find.c:", message);
    CHECK(child_run("nccl_library", variables, &child) && child.exited);
    CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s", child.out);
    CHECK_MSG(strstr(child.out, "]\ndone\n") != NULL, "%s", child.out);
    CHECK_STR(child.err, "");
}

#define FAKE "PAGESTASH_NCCL_LIBRARY='" PSTI_FAKE_NCCL "'"

/* Fault rows 73. */
PST_TEST(Nccl, WithoutNcclTheMessageSaysWhichFileWasTried)
{
    check_library("PAGESTASH_NCCL_LIBRARY=/nowhere/libnccl.so", NULL,
                  "PAGESTASH_NCCL_LIBRARY='/nowhere/libnccl.so' is not loaded in this process: it "
                  "must name the NCCL that made comm");
    check_library("XPAGESTASH=unset", NULL,
                  "PAGESTASH_NCCL_LIBRARY='libnccl.so.2' is not loaded in this process: it must "
                  "name the NCCL that made comm");
    check_library("PAGESTASH_NCCL_LIBRARY=libc.so.6", NULL,
                  "PAGESTASH_NCCL_LIBRARY='libc.so.6' has no ncclGetVersion");
}

/* Fault rows 73. */
PST_TEST(Nccl, AnOldNcclIsRefusedWithItsVersion)
{
    static const char library[] = "PAGESTASH_NCCL_LIBRARY=" PSTI_FAKE_NCCL;
    check_library(library, "FAKE_NCCL_VERSION=21212",
                  FAKE " is NCCL 2.12.12: at least 2.13 is needed");
    check_library(library, "FAKE_NCCL_VERSION=2804",
                  FAKE " is NCCL 2.8.4: at least 2.13 is needed");
    check_library(library, "FAKE_NCCL_VERSION=error", FAKE ": ncclGetVersion: invalid usage");
    nccl_check_child("nccl_reduction", "FAKE_NCCL_VERSION=22809");
}

/* ---- a GPU, with the NCCL of the machine: one rank ---- */

typedef struct gpu_scene {
    pst_device *device;
    pst_pool *pool;
    pst_stream stream;
    pst_nccl_comm comm;
} gpu_scene;

static void check_published(const gpu_scene *self, int32_t valid)
{
    pst_pool_status status;
    CHECK_OK(pst_stream_synchronize(self->device, self->stream));
    CHECK_OK(pst_pool_poll(self->pool, &status));
    CHECK_EQ(status.step_valid, valid);
}

/* Enqueued, then replayed from a graph; `valid` is what the step finds in the flag. */
static void check_agreement(const gpu_scene *self, int32_t valid)
{
    pst_graph *graph = NULL;
    int32_t *flag = pst_pool_step_valid(self->pool);
    for (int captured = 0; captured < 2; captured++) {
        if (captured)
            CHECK_OK(pst_graph_begin(self->device, self->stream));
        CHECK_OK(pst_device_fill(self->device, flag, 0, sizeof(*flag), self->stream));
        CHECK_OK(pst_device_fill(self->device, flag, (uint8_t)valid, 1, self->stream));
        CHECK_OK(pst_nccl_agree(self->pool, self->comm, self->stream));
        CHECK_OK(pst_pool_step(self->pool, self->stream));
        if (captured) {
            CHECK_OK(pst_graph_end(self->device, self->stream, &graph));
            CHECK_OK(pst_graph_launch(graph, self->stream));
            CHECK_STATUS(pst_pool_destroy(self->pool), PST_E_BUSY);
        }
        check_published(self, valid);
    }
    CHECK_OK(pst_graph_destroy(graph));
}

PST_TEST(Nccl, OneRankOnAGpuAgreesWithItself)
{
    gpu_scene self = {.device = NULL};
    nccl_real nccl;
    const int first = 0;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    const pst_status opened = pst_device_open("cuda", first, &self.device);
    if (opened == PST_E_NO_DEVICE || opened == PST_E_UNSUPPORTED)
        pst_test_skip("no GPU");
    CHECK_MSG(opened == PST_OK, "%s", pst_last_message());
    if (!nccl_find_real(&nccl)) {
        CHECK_OK(pst_device_close(self.device));
        pst_test_skip("a GPU, but no NCCL: PAGESTASH_NCCL_LIBRARY names its file");
    }
    CHECK_EQ(nccl.comm_init_all(&self.comm, 1, &first), PSTI_NCCL_SUCCESS);
    CHECK_OK(pst_stream_create(self.device, &self.stream));
    CHECK_OK(pst_pool_create(self.device, &config, &self.pool));
    check_agreement(&self, 1);
    check_agreement(&self, 0);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_stream_destroy(self.device, self.stream));
    CHECK_OK(pst_device_close(self.device));
    CHECK_EQ(nccl.comm_destroy(self.comm), PSTI_NCCL_SUCCESS);
}
