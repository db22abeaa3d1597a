#include "kernels/cuda/launch.cuh"

cudaError_t psti_cuda_fill_budget(psti_cuda_budget *budget)
{
    const void *const kernels[PSTI_NUM_OPS] = {
#define PSTI_KERNEL_OF(NAME, name, args) psti_cuda_##name##_kernel(),
        PSTI_OP_LIST(PSTI_KERNEL_OF)
#undef PSTI_KERNEL_OF
    };
    for (int op = 0; op < PSTI_NUM_OPS; op++) {
        const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &budget->blocks_per_sm[op], kernels[op], (int)PSTI_BLOCK_THREADS, 0);
        if (error != cudaSuccess)
            return error;
    }
    return psti_cuda_fill_moves(budget);
}

cudaError_t psti_cuda_launch(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, psti_op op,
                             const void *args, cudaStream_t stream)
{
    switch (op) {
#define PSTI_LAUNCH(NAME, name, args_type) \
    case PSTI_OP_##NAME:                   \
        return psti_cuda_##name(budget, launch, (const args_type *)args, stream);
        PSTI_OP_LIST(PSTI_LAUNCH)
#undef PSTI_LAUNCH
    case PSTI_NUM_OPS:
        break;
    }
    return cudaErrorInvalidValue;
}
