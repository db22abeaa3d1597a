/* Launches that are counted and not made. */
#include "bench/stash/counting.h"

#if PSTI_HAVE_CUDA
#include "kernels/cuda/launch.h"
#endif

uint64_t counting_launches;
uint64_t counting_capture_id;

#if PSTI_HAVE_CUDA
static cudaError_t count(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    (void)kernel;
    (void)args;
    counting_launches += config->gridDim.x > 0;
    return cudaSuccess;
}

pst_status counting_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    static const psti_cuda_budget budget = {.num_sms = COUNTING_SMS,
                                            .blocks_per_sm = {{0, 4, 1, 1}, {0, 4, 1, 1}}};
    (void)device;
    return psti_cuda_launch(&budget, count, op, args, stream) == cudaSuccess ? PST_OK : PST_E_CUDA;
}
#else
pst_status counting_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    (void)device;
    (void)op;
    (void)args;
    (void)stream;
    counting_launches++;
    return PST_OK;
}
#endif

pst_status counting_capture_of(pst_device *device, pst_stream stream, psti_capture_of *capture)
{
    (void)device;
    (void)stream;
    *capture = (psti_capture_of){.id = counting_capture_id};
    return PST_OK;
}
