#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/paging/control.cuh"

#define KERNEL(name)                            \
    const void *psti_cuda_##name##_kernel(void) \
    {                                           \
        return (const void *)name##_kernel;     \
    }
KERNEL(reset)
KERNEL(resize)
KERNEL(step)
KERNEL(check)

cudaError_t psti_cuda_reset(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                            const psti_control_args *args, cudaStream_t stream)
{
    const uint64_t all = (uint64_t)args->pool.max_pages[0] + args->pool.max_pages[1];
    const uint64_t pages = args->what & PST_RESET_PAGES ? all : 0;
    const uint64_t work = args->pool.scrubs ? pages : pages / PSTI_BLOCK_THREADS + 1;
    const uint32_t grid = psti_grid(budget, budget->blocks_per_sm[PSTI_OP_RESET], 0, work);
    return psti_launch(launch, reset_kernel, args, grid, stream);
}

cudaError_t psti_cuda_resize(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                             const psti_control_args *args, cudaStream_t stream)
{
    const uint64_t work = args->pool.max_pages[0] / PSTI_BLOCK_THREADS + 1;
    const uint32_t grid = psti_grid(budget, budget->blocks_per_sm[PSTI_OP_RESIZE], 0, work);
    return psti_launch(launch, resize_kernel, args, grid, stream);
}

cudaError_t psti_cuda_step(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                           const psti_control_args *args, cudaStream_t stream)
{
    (void)budget;
    return psti_launch(launch, step_kernel, args, 1, stream);
}

cudaError_t psti_cuda_check(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                            const psti_control_args *args, cudaStream_t stream)
{
    (void)budget;
    return psti_launch(launch, check_kernel, args, 1, stream);
}
