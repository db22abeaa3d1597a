/* What kernel source sees of CUDA when it is compiled for the CPU: see simt_machine.h. Included in
 * front of kernels/cuda/X.cuh with PSTI_SIMT defined; defines what ptx.cuh would. */
#ifndef PSTI_TESTS_SIMT_H
#define PSTI_TESTS_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifndef PSTI_SIMT
#error "define PSTI_SIMT before including simt.h"
#endif

extern "C" {

typedef struct simt_dim3 {
    uint32_t x, y, z;
} simt_dim3;

simt_dim3 simt_thread_idx(void);
simt_dim3 simt_block_idx(void);
simt_dim3 simt_block_dim(void);
simt_dim3 simt_grid_dim(void);

void simt_sync_threads(const char *file, int line);
void simt_sync_warp(const char *file, int line);
uint64_t simt_shuffle_up(uint64_t value, uint32_t distance);
uint64_t simt_shuffle_xor(uint64_t value, uint32_t mask);
void simt_pause(void);
void simt_misaligned(const void *at);

/* One variable in shared memory; constant-initialised. */
typedef struct simt_variable {
    uint32_t number;
    uint32_t offset;
} simt_variable;

/* Where the variable lies in this block's shared memory, which is poisoned as the block starts. */
void *simt_shared(simt_variable *variable, size_t bytes);

} /* extern "C" */

#define threadIdx simt_thread_idx()
#define blockIdx simt_block_idx()
#define blockDim simt_block_dim()
#define gridDim simt_grid_dim()
#define __syncthreads() simt_sync_threads(__FILE__, __LINE__)
#define __syncwarp() simt_sync_warp(__FILE__, __LINE__)

#define PSTI_DEVICE static inline
#define PSTI_DEVICE_METHOD inline
#define PSTI_KERNEL(name, args_type, args) static void name(const args_type &args)
#define PSTI_PAUSE() simt_pause()
/* A reference: `name` is a plain name, so an array needs a struct or a typedef around it. */
#define PSTI_SHARED(type, name)           \
    static simt_variable name##_variable; \
    type &name = *static_cast<type *>(simt_shared(&name##_variable, sizeof(type)))

struct alignas(16) psti_vector {
    uint32_t x, y, z, w;
};

/* One access of 16 bytes, for the sanitizers too. */
typedef uint32_t simt_quad __attribute__((vector_size(16), may_alias));

PSTI_DEVICE psti_vector psti_load_vector(const void *at)
{
    if ((uintptr_t)at % sizeof(simt_quad) != 0)
        simt_misaligned(at);
    const simt_quad quad = *static_cast<const simt_quad *>(at);
    return {quad[0], quad[1], quad[2], quad[3]};
}

PSTI_DEVICE void psti_store_vector(void *at, psti_vector v)
{
    if ((uintptr_t)at % sizeof(simt_quad) != 0)
        simt_misaligned(at);
    *static_cast<simt_quad *>(at) = simt_quad{v.x, v.y, v.z, v.w};
}

PSTI_DEVICE uint64_t psti_shuffle_up_u64(uint64_t value, uint32_t distance)
{
    return simt_shuffle_up(value, distance);
}

PSTI_DEVICE uint64_t psti_shuffle_xor_u64(uint64_t value, uint32_t mask)
{
    return simt_shuffle_xor(value, mask);
}

#endif
