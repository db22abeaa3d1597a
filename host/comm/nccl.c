/* Room comm: communication between ranks, and buffers for it. Only nccl*.c and comm_nccl*.c call
 * NCCL, which they find at run time. Uses base, device, stash and kernels/core. Used by programs,
 * through nccl.h, comm.h and scratch.h of the public headers. */
#include <pagestash/nccl.h>

#include "host/base/nvtx.h"
#include "host/comm/nccl_api.h"
#include "host/stash/stash.h"

pst_status pst_nccl_agree(pst_pool *pool, pst_nccl_comm comm, pst_stream stream)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(comm, PST_E_INVALID, "comm is NULL");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_nccl_agree");
    pst_device *device = pool->device;
    PSTI_CHECK(device->info.kind == PST_DEVICE_CUDA, PST_E_UNSUPPORTED,
               "the pool is on device %s: NCCL works on cuda only", device->info.name);
    psti_nccl nccl;
    PSTI_TRY(psti_nccl_find(false, &nccl));
    PSTI_TRY(psti_pool_note(pool, psti_nccl_check_device(&nccl, device, comm)));
    psti_capture_of capture;
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
    int32_t *valid = pst_pool_step_valid(pool);
    const psti_nccl_result result =
        nccl.all_reduce(valid, valid, 1, PSTI_NCCL_INT32, PSTI_NCCL_MIN, comm, stream);
    return psti_pool_note(pool, psti_nccl_translate(&nccl, result, comm, "ncclAllReduce"));
}
