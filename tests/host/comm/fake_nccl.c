/* Stands in for libnccl.so.2, for pools on the host device: a reduction is done by the call of the
 * last rank. FAKE_NCCL_VERSION is the version code that it claims, or "error". */
#include <stdlib.h>
#include <string.h>

#include "tests/host/comm/fake_nccl.h"

psti_nccl_get_version ncclGetVersion;
psti_nccl_get_error_string ncclGetErrorString;
psti_nccl_get_last_error ncclGetLastError;
psti_nccl_comm_cu_device ncclCommCuDevice;
psti_nccl_all_reduce ncclAllReduce;

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
    return comm->last_error;
}

psti_nccl_result ncclCommCuDevice(pst_nccl_comm comm, int *device_out)
{
    if (comm->device_result == PSTI_NCCL_SUCCESS)
        *device_out = comm->device;
    return comm->device_result;
}

static void reduce_to_minimum(const struct ncclComm *ranks, int num_ranks)
{
    int32_t least = INT32_MAX;
    for (int i = 0; i < num_ranks; i++) {
        const int32_t *from = ranks[i].from;
        if (*from < least)
            least = *from;
    }
    for (int i = 0; i < num_ranks; i++)
        *(int32_t *)ranks[i].to = least;
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
    if (comm->reduce_result != PSTI_NCCL_SUCCESS && comm->reduce_result != PSTI_NCCL_IN_PROGRESS)
        return comm->reduce_result;
    comm->num_reduces++;
    for (int i = 0; i < comm->num_ranks; i++)
        if (comm->ranks[i].num_reduces != comm->num_reduces)
            return comm->reduce_result;
    if (type == PSTI_NCCL_INT32 && reduction == PSTI_NCCL_MIN && count == 1)
        reduce_to_minimum(comm->ranks, comm->num_ranks);
    return comm->reduce_result;
}
