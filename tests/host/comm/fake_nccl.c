/* Stands in for libnccl.so.2, for devices that are the host in truth: what ranks exchange is done
 * by the call of the last one, as the host's communicators do it, or by its node on a stream. FAKE_NCCL_VERSION is the version
 * code that it claims, or "error". Built with FAKE_NCCL_OLD it has the functions of 2.13. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/comm/comm.h"
#include "tests/host/comm/fake_nccl.h"

#define DECLARE(name, symbol) psti_nccl_##name symbol;
PSTI_NCCL_FUNCTIONS(DECLARE)
PSTI_NCCL_LATER_FUNCTIONS(DECLARE)
fake_current_device fakeCurrentDevice;
fake_get_counts fakeGetCounts;
fake_get_queue fakeGetQueue;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fake_counts counts;

/* ---- the library ---- */

psti_nccl_result ncclGetVersion(int *version_out)
{
    const char *version = getenv("FAKE_NCCL_VERSION");
    if (version && strcmp(version, "error") == 0)
        return PSTI_NCCL_INVALID_USAGE;
    *version_out = version ? (int)strtol(version, NULL, 10) : 21300;
    return PSTI_NCCL_SUCCESS;
}

const char *ncclGetErrorString(psti_nccl_result result)
{
    static const char *const texts[] = {"no error",       "unhandled cuda error", "system error",
                                        "internal error", "invalid argument",     "invalid usage",
                                        "remote error",   "in progress"};
    return texts[result];
}

const char *ncclGetLastError(pst_nccl_comm comm)
{
    pthread_mutex_lock(&lock); /* others' aborts write it */
    const char *error = comm ? comm->last_error : NULL;
    pthread_mutex_unlock(&lock);
    return error;
}

int *fakeCurrentDevice(void)
{
    static _Thread_local int current = -1;
    return &current;
}

fake_counts *fakeGetCounts(void)
{
    return &counts;
}

fake_queue *fakeGetQueue(void)
{
    static _Thread_local fake_queue queue;
    return &queue;
}

static void check_alive(const struct ncclComm *comm)
{
    if (!comm->has_ended)
        return;
    fprintf(stderr, "rank %d is used after its end\n", comm->rank);
    abort();
}

psti_nccl_result ncclCommCuDevice(pst_nccl_comm comm, int *device_out)
{
    check_alive(comm);
    if (comm->device_result == PSTI_NCCL_SUCCESS)
        *device_out = comm->device;
    return comm->device_result;
}

psti_nccl_result ncclCommCount(pst_nccl_comm comm, int *num_ranks_out)
{
    check_alive(comm);
    *num_ranks_out = comm->num_ranks;
    return PSTI_NCCL_SUCCESS;
}

psti_nccl_result ncclCommUserRank(pst_nccl_comm comm, int *rank_out)
{
    check_alive(comm);
    *rank_out = comm->rank;
    return PSTI_NCCL_SUCCESS;
}

psti_nccl_result ncclCommGetAsyncError(pst_nccl_comm comm, psti_nccl_result *error_out)
{
    pthread_mutex_lock(&lock);
    check_alive(comm);
    const bool joins = comm->num_joined && *comm->num_joined < comm->num_ranks;
    const bool waits = joins || (comm->is_posted && comm->mode == FAKE_POLLS);
    *error_out = comm->async_error ? comm->async_error
                 : waits           ? PSTI_NCCL_IN_PROGRESS
                                   : PSTI_NCCL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return PSTI_NCCL_SUCCESS;
}

/* ---- what is exchanged; with the lock ---- */

static void fail_all(const struct ncclComm *comm, psti_nccl_result error, const char *text)
{
    for (int r = 0; r < comm->num_ranks; r++) {
        comm->ranks[r].async_error = error;
        comm->ranks[r].last_error = text;
    }
}

static pst_exchange translate(const fake_op *op)
{
    static const pst_dtype dtypes[] = {[PSTI_NCCL_BFLOAT16] = PST_DTYPE_BF16,
                                       [PSTI_NCCL_FLOAT16] = PST_DTYPE_FP16,
                                       [PSTI_NCCL_FLOAT32] = PST_DTYPE_FP32,
                                       [PSTI_NCCL_INT32] = PST_DTYPE_INT32,
                                       [PSTI_NCCL_UINT8] = PST_DTYPE_BYTE};
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = op->kind;
    exchange.dtype = dtypes[op->type];
    exchange.reduction = op->reduction == PSTI_NCCL_SUM   ? PST_REDUCE_SUM
                         : op->reduction == PSTI_NCCL_MIN ? PST_REDUCE_MIN
                                                          : PST_REDUCE_MAX;
    exchange.from = op->from;
    exchange.to = op->to;
    exchange.count = op->count;
    return exchange;
}

static void exchange_all(const struct ncclComm *comm)
{
    char why[256];
    pst_exchange of[FAKE_RANKS];
    const pst_exchange *all[FAKE_RANKS];
    for (int r = 0; r < comm->num_ranks; r++) {
        of[r] = translate(&comm->ranks[r].ops[0]);
        all[r] = &of[r];
    }
    if (psti_exchanges_differ(all, comm->num_ranks, why, sizeof(why))) {
        fail_all(comm, 3, "the ranks' calls differ");
        return;
    }
    for (int r = 0; r < comm->num_ranks; r++)
        psti_exchange_first(all, comm->num_ranks, r);
    for (int r = 0; r < comm->num_ranks; r++)
        psti_exchange_second(all, comm->num_ranks, r);
}

/* The n-th of a rank's sends to `peer`, or NULL. */
static const fake_op *find_send(const struct ncclComm *rank, int peer, int n)
{
    for (int i = 0; i < rank->num_ops; i++)
        if (rank->ops[i].is_send && rank->ops[i].peer == peer && n-- == 0)
            return &rank->ops[i];
    return NULL;
}

static void receive_all(const struct ncclComm *rank)
{
    int received[FAKE_RANKS] = {0};
    for (int i = 0; i < rank->num_ops; i++) {
        const fake_op *op = &rank->ops[i];
        if (!op->is_receive)
            continue;
        const fake_op *sent = find_send(&rank->ranks[op->peer], rank->rank, received[op->peer]++);
        if (!sent || sent->count != op->count || sent->type != op->type)
            fail_all(rank, 3, "a receive has no send");
        else
            memcpy(op->to, sent->from, op->count * psti_dtype_bytes(translate(op).dtype));
    }
}

static void do_posted(const struct ncclComm *comm)
{
    const fake_op *first = comm->num_ops ? &comm->ops[0] : NULL;
    if (first && !first->is_send && !first->is_receive)
        exchange_all(comm);
    else
        for (int r = 0; r < comm->num_ranks; r++)
            receive_all(&comm->ranks[r]);
    for (int r = 0; r < comm->num_ranks; r++) {
        comm->ranks[r].is_posted = false;
        comm->ranks[r].num_ops = 0;
    }
    pthread_cond_broadcast(&changed);
}

static psti_nccl_result post(struct ncclComm *comm, bool blocks)
{
    bool all = true;
    comm->is_posted = true;
    for (int r = 0; r < comm->num_ranks; r++)
        all = all && comm->ranks[r].is_posted;
    if (all)
        do_posted(comm);
    while (blocks && comm->is_posted && !comm->async_error)
        pthread_cond_wait(&changed, &lock);
    if (comm->async_error)
        return comm->async_error;
    return comm->is_posted && comm->mode == FAKE_POLLS ? PSTI_NCCL_IN_PROGRESS : PSTI_NCCL_SUCCESS;
}

/* ---- the calls ---- */

/* What one call, or a group of them, puts on a stream. */
typedef struct fake_node {
    struct ncclComm *comm;
    fake_op ops[FAKE_OPS];
    int num_ops;
} fake_node;

static _Thread_local int group_depth;
static _Thread_local pst_nccl_comm group_comm;

static pst_status run_node(const void *args)
{
    const fake_node *node = args;
    pthread_mutex_lock(&lock);
    check_alive(node->comm);
    memcpy(node->comm->ops, node->ops, sizeof(node->ops));
    node->comm->num_ops = node->num_ops;
    const psti_nccl_result result = post(node->comm, true);
    pthread_mutex_unlock(&lock);
    return result == PSTI_NCCL_SUCCESS ? PST_OK : PST_E_PEER;
}

/* With the lock, which running the node takes. */
static psti_nccl_result enqueue_node(struct ncclComm *comm)
{
    const fake_queue *queue = fakeGetQueue();
    fake_node node = {.comm = comm, .num_ops = comm->num_ops};
    memcpy(node.ops, comm->ops, sizeof(node.ops));
    comm->num_ops = 0;
    pthread_mutex_unlock(&lock);
    const pst_status status =
        queue->enqueue(queue->user, run_node, &node, sizeof(node), comm->stream);
    pthread_mutex_lock(&lock);
    return status == PST_OK ? PSTI_NCCL_SUCCESS : PSTI_NCCL_INVALID_USAGE;
}

static psti_nccl_result submit(struct ncclComm *comm)
{
    return fakeGetQueue()->enqueue ? enqueue_node(comm) : post(comm, comm->mode == FAKE_BLOCKS);
}

static psti_nccl_result add(pst_nccl_comm comm, pst_stream stream, fake_op op)
{
    psti_nccl_result result = PSTI_NCCL_SUCCESS;
    pthread_mutex_lock(&lock);
    check_alive(comm);
    comm->stream = stream;
    if (comm->num_ops == FAKE_OPS || (comm->is_posted && comm->mode != FAKE_RETURNS)) {
        result = PSTI_NCCL_INVALID_USAGE;
    } else {
        comm->ops[comm->num_ops++] = op;
        group_comm = comm;
        if (group_depth == 0)
            result = submit(comm);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

psti_nccl_result ncclAllGather(const void *from, void *to, size_t count, unsigned type,
                               pst_nccl_comm comm, pst_stream stream)
{
    return add(
        comm, stream,
        (fake_op){
            .kind = PST_EXCHANGE_ALL_GATHER, .from = from, .to = to, .count = count, .type = type});
}

psti_nccl_result ncclReduceScatter(const void *from, void *to, size_t count, unsigned type,
                                   unsigned reduction, pst_nccl_comm comm, pst_stream stream)
{
    return add(comm, stream,
               (fake_op){.kind = PST_EXCHANGE_REDUCE_SCATTER,
                         .from = from,
                         .to = to,
                         .count = count,
                         .type = type,
                         .reduction = reduction});
}

psti_nccl_result ncclAllReduce(const void *from, void *to, size_t count, unsigned type,
                               unsigned reduction, pst_nccl_comm comm, pst_stream stream)
{
    comm->from = from;
    comm->to = to;
    comm->count = count;
    comm->type = type;
    comm->reduction = reduction;
    comm->stream = stream;
    if (psti_nccl_failed(comm->reduce_result))
        return comm->reduce_result;
    comm->num_reduces++;
    const psti_nccl_result result = add(comm, stream,
                                        (fake_op){.kind = PST_EXCHANGE_ALL_REDUCE,
                                                  .from = from,
                                                  .to = to,
                                                  .count = count,
                                                  .type = type,
                                                  .reduction = reduction});
    return result == PSTI_NCCL_SUCCESS ? comm->reduce_result : result;
}

psti_nccl_result ncclSend(const void *from, size_t count, unsigned type, int to_rank,
                          pst_nccl_comm comm, pst_stream stream)
{
    return add(
        comm, stream,
        (fake_op){.is_send = true, .from = from, .count = count, .type = type, .peer = to_rank});
}

psti_nccl_result ncclRecv(void *to, size_t count, unsigned type, int from_rank, pst_nccl_comm comm,
                          pst_stream stream)
{
    return add(
        comm, stream,
        (fake_op){.is_receive = true, .to = to, .count = count, .type = type, .peer = from_rank});
}

psti_nccl_result ncclGroupStart(void)
{
    group_comm = NULL;
    group_depth++;
    return PSTI_NCCL_SUCCESS;
}

/* A rank that neither sends nor receives has no communicator here, and meets nobody. */
psti_nccl_result ncclGroupEnd(void)
{
    psti_nccl_result result = PSTI_NCCL_SUCCESS;
    if (--group_depth > 0 || !group_comm)
        return result;
    pthread_mutex_lock(&lock);
    result = group_comm->group_result ? group_comm->group_result : submit(group_comm);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- communicators that the library makes ---- */

/* With the lock. */
static void end(struct ncclComm *comm)
{
    check_alive(comm);
    comm->has_ended = true;
    comm->is_posted = false;
    comm->num_ops = 0;
}

psti_nccl_result ncclCommAbort(pst_nccl_comm comm)
{
    pthread_mutex_lock(&lock);
    end(comm);
    counts.aborts++;
    fail_all(comm, 6, "a rank has aborted");
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return PSTI_NCCL_SUCCESS;
}

psti_nccl_result ncclCommDestroy(pst_nccl_comm comm)
{
    pthread_mutex_lock(&lock);
    end(comm);
    counts.destroys++;
    pthread_mutex_unlock(&lock);
    return PSTI_NCCL_SUCCESS;
}

psti_nccl_result ncclGetUniqueId(pst_comm_id *id_out)
{
    static unsigned char made;
    memset(id_out, 0, sizeof(*id_out));
    id_out->bytes[100] = ++made;
    return PSTI_NCCL_SUCCESS;
}

#ifndef FAKE_NCCL_OLD
/* Of a pretended GPU (tests/tools), where nobody says which device is current. */
__attribute__((weak)) void pretended_launched(const char *name, const char *shape);

typedef struct fake_group {
    pst_comm_id id;
    int num_joined;
    bool is_taken[FAKE_RANKS];
    struct ncclComm comms[FAKE_RANKS];
    struct fake_group *next;
} fake_group;

static fake_group *groups;

static fake_group *find_group(const pst_comm_id *id)
{
    fake_group *group = groups;
    while (group && memcmp(&group->id, id, sizeof(*id)) != 0)
        group = group->next;
    if (group)
        return group;
    group = calloc(1, sizeof(*group));
    group->id = *id;
    group->next = groups;
    groups = group;
    return group;
}

psti_nccl_result ncclCommInitRankConfig(pst_nccl_comm *comm_out, int num_ranks, pst_comm_id id,
                                        int rank, psti_nccl_config *config)
{
    psti_nccl_result result = PSTI_NCCL_INVALID_ARGUMENT;
    if (num_ranks > FAKE_RANKS || config->magic != 0xcafebeef || config->blocking != 0)
        return result;
    pthread_mutex_lock(&lock);
    fake_group *group = find_group(&id);
    const bool is_pretended = pretended_launched != NULL;
    if (!group->is_taken[rank]) {
        group->is_taken[rank] = true;
        group->num_joined++;
        group->comms[rank] = (struct ncclComm){.ranks = group->comms,
                                               .num_ranks = num_ranks,
                                               .rank = rank,
                                               .device = is_pretended ? 0 : *fakeCurrentDevice(),
                                               .mode = FAKE_POLLS,
                                               .num_joined = &group->num_joined};
        counts.inits++;
        *comm_out = &group->comms[rank];
        result = PSTI_NCCL_IN_PROGRESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Only tests call it. */
psti_nccl_result ncclCommInitAll(pst_nccl_comm *comms_out, int num_ranks, const int *devices);

psti_nccl_result ncclCommInitAll(pst_nccl_comm *comms_out, int num_ranks, const int *devices)
{
    psti_nccl_config config = {.magic = 0xcafebeef};
    pst_comm_id id;
    (void)devices;
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < num_ranks; rank++)
        if (ncclCommInitRankConfig(&comms_out[rank], num_ranks, id, rank, &config) !=
            PSTI_NCCL_IN_PROGRESS)
            return PSTI_NCCL_INVALID_ARGUMENT;
    return PSTI_NCCL_SUCCESS;
}

psti_nccl_result ncclCommFinalize(pst_nccl_comm comm)
{
    check_alive(comm);
    pthread_mutex_lock(&lock);
    counts.finalizes++;
    pthread_mutex_unlock(&lock);
    return counts.finalize_result;
}
#endif
