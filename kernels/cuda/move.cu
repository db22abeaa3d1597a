#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/move.cuh"

const void *psti_cuda_stash_kernel(void)
{
    return (const void *)stash_kernel;
}

const void *psti_cuda_restore_kernel(void)
{
    return (const void *)restore_kernel;
}

cudaError_t psti_cuda_stash(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                            const psti_move_args *args, cudaStream_t stream)
{
    const uint32_t grid = psti_grid(budget, PSTI_OP_STASH, args->num_sms, args->max_tiles);
    return psti_launch(launch, stash_kernel, args, grid, stream);
}

cudaError_t psti_cuda_restore(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                              const psti_move_args *args, cudaStream_t stream)
{
    const uint64_t work = args->flags & PSTI_MOVE_RELEASE ? 1 : args->max_tiles;
    const uint32_t grid = psti_grid(budget, PSTI_OP_RESTORE, args->num_sms, work);
    return psti_launch(launch, restore_kernel, args, grid, stream);
}
