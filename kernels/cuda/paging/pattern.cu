#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/paging/pattern.cuh"

const void *psti_cuda_fill_kernel(void)
{
    return (const void *)fill_kernel;
}

const void *psti_cuda_verify_kernel(void)
{
    return (const void *)verify_kernel;
}

cudaError_t psti_cuda_fill(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                           const psti_pattern_args *args, cudaStream_t stream)
{
    const uint32_t grid = psti_grid(budget, budget->blocks_per_sm[PSTI_OP_FILL], 0, UINT32_MAX);
    return psti_launch(launch, fill_kernel, args, grid, stream);
}

cudaError_t psti_cuda_verify(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                             const psti_pattern_args *args, cudaStream_t stream)
{
    const uint32_t grid = psti_grid(budget, budget->blocks_per_sm[PSTI_OP_VERIFY], 0, UINT32_MAX);
    return psti_launch(launch, verify_kernel, args, grid, stream);
}
