/* Room kernels/cuda: the launcher, and in paging/ the kernels. Uses kernels and kernels/core. Used
 * by host/device/device_cuda.c, which asks for what stands here. */
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

#define PSTI_NUM_BACKENDS 4

/* Of one device; filled once when it is opened. */
typedef struct psti_cuda_budget {
    int num_sms;
    int most_shared;                 /* bytes of shared memory that a block can have */
    int num_domains;                 /* of memory synchronisation */
    bool is_programmatic;            /* the code knows programmatic dependent launch */
    uint32_t backends;               /* bits 1 << pst_backend: those that have code and fit */
    int low_priority, high_priority; /* as streams have them */
    int blocks_per_sm[PSTI_NUM_OPS][PSTI_NUM_BACKENDS]; /* resident; auto: of what is no move */
} psti_cuda_budget;

/* Fills in blocks_per_sm, backends and is_programmatic; most_shared is given, and the device
 * current. Fails where the library holds no code for the device. */
cudaError_t psti_cuda_fill_budget(psti_cuda_budget *budget);

cudaError_t psti_cuda_launch(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, psti_op op,
                             const void *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
