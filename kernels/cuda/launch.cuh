/* The one launcher. Grids are sized by the capacity that the host knows and by the SM budget; what
 * is live decides how many blocks find work. */
#ifndef PSTI_CUDA_LAUNCH_CUH
#define PSTI_CUDA_LAUNCH_CUH

#include "kernels/cuda/launch.h"

#define PSTI_BLOCK_THREADS 256u

static inline uint32_t psti_grid(const psti_cuda_budget *budget, int blocks_per_sm,
                                 uint32_t num_sms, uint64_t work)
{
    const uint64_t sms = num_sms ? num_sms : (uint64_t)budget->num_sms;
    const uint64_t resident = sms * (uint64_t)blocks_per_sm;
    const uint64_t blocks = work < resident ? work : resident;
    return blocks ? (uint32_t)blocks : 1;
}

template <class Args>
static inline cudaError_t psti_launch(psti_cuda_launch_fn launch, void (*kernel)(Args),
                                      const Args *args, uint32_t grid, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    void *pointers[] = {const_cast<Args *>(args)};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(PSTI_BLOCK_THREADS);
    config.stream = stream;
    return launch(&config, (const void *)kernel, pointers);
}

#endif
