/* What host/device/device_cuda.c asks of the CUDA kernels. */
#ifndef PSTI_CUDA_LAUNCH_H
#define PSTI_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaLaunchKernelExC, or something that only counts the cost of getting there. */
typedef cudaError_t (*psti_cuda_launch_fn)(const cudaLaunchConfig_t *config, const void *kernel,
                                           void **args);

#define PSTI_NUM_MOVES 3 /* stash, restore and migrate, the first of the list */
#define PSTI_NUM_BACKENDS 4

/* Of one device; filled once when it is opened. */
typedef struct psti_cuda_budget {
    int num_sms;
    int most_shared;                 /* bytes of shared memory that a block can have */
    int num_domains;                 /* of memory synchronisation */
    bool is_programmatic;            /* the code knows programmatic dependent launch */
    uint32_t backends;               /* bits 1 << pst_backend: those that have code and fit */
    int low_priority, high_priority; /* as streams have them */
    int blocks_per_sm[PSTI_NUM_OPS]; /* resident */
    int move_blocks_per_sm[PSTI_NUM_MOVES][PSTI_NUM_BACKENDS];
} psti_cuda_budget;

/* Fills in the resident blocks per SM of each kernel, with the device current. Fails where the
 * library holds no code for the device. */
cudaError_t psti_cuda_fill_budget(psti_cuda_budget *budget);
cudaError_t psti_cuda_fill_moves(psti_cuda_budget *budget);

cudaError_t psti_cuda_launch(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, psti_op op,
                             const void *args, cudaStream_t stream);

/* Per file of kernels: the kernel of an operation, and its launch. */
#define PSTI_DECLARE_CUDA(NAME, name, args_type)                                             \
    const void *psti_cuda_##name##_kernel(void);                                             \
    cudaError_t psti_cuda_##name(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, \
                                 const args_type *args, cudaStream_t stream);
PSTI_OP_LIST(PSTI_DECLARE_CUDA)
#undef PSTI_DECLARE_CUDA

#ifdef __cplusplus
}
#endif

#endif
