/* What kernel source sees of CUDA when it is compiled for the CPU: see simt_machine.h. Included in
 * front of kernels/cuda/X.cuh with PSTI_SIMT defined; defines what ptx.cuh would. */
#ifndef PSTI_TESTS_SIMT_H
#define PSTI_TESTS_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifndef PSTI_SIMT
#error "define PSTI_SIMT before including simt.h"
#endif

#define PSTI_SIMT_POINTS 1
#include "tests/simt/simt_machine.h"
#include "tests/simt/simt_points.h"

extern "C" {

typedef struct simt_dim3 {
    uint32_t x, y, z;
} simt_dim3;

simt_dim3 simt_thread_idx(void);
simt_dim3 simt_block_idx(void);
simt_dim3 simt_block_dim(void);
simt_dim3 simt_grid_dim(void);

void simt_sync_threads(const char *file, int line);
/* A team: SIMT_TEAM_THREADS of the block, or as many as there are. */
void simt_sync_team(const char *file, int line);
void simt_sync_warp(const char *file, int line);
uint64_t simt_shuffle(uint64_t value, uint32_t lane);
uint64_t simt_shuffle_up(uint64_t value, uint32_t distance);
uint64_t simt_shuffle_xor(uint64_t value, uint32_t mask);
void simt_pause(void);
void simt_misaligned(const void *at);

extern simt_traffic simt_vectors;

/* One variable in shared memory; constant-initialised. */
typedef struct simt_variable {
    uint32_t number;
    uint32_t offset;
} simt_variable;

/* Word i of those that nobody should read: no two are the same, nor are a word's halves those of the next. */
static inline uint64_t simt_poison_word(uint64_t i)
{
    return 0xa5a5a5a5a5a5a5a5u + i * 0x1000000010000001u;
}

/* Where the variable lies in this block's shared memory, which is poisoned as the block starts. */
void *simt_shared(simt_variable *variable, size_t bytes);
unsigned char *simt_dynamic(uint32_t bytes); /* 0: as many as were asked for before */

/* Asynchronous bulk copies: simt_bulk.cc. */
void simt_barrier_init(uint64_t *barrier);
void simt_barrier_expect(uint64_t *barrier, uint32_t bytes);
int simt_barrier_try_wait(uint64_t *barrier, uint32_t parity);
void simt_bulk_load(void *shared, const void *from, uint32_t bytes, uint64_t *barrier);
void simt_bulk_store(void *to, const void *shared, uint32_t bytes);
void simt_bulk_commit(void);
void simt_bulk_wait(uint32_t pending, int read_only);

} /* extern "C" */

#define threadIdx simt_thread_idx()
#define blockIdx simt_block_idx()
#define blockDim simt_block_dim()
#define gridDim simt_grid_dim()
#define __syncthreads() simt_sync_threads(__FILE__, __LINE__)
#define PSTI_SYNC_TEAM() simt_sync_team(__FILE__, __LINE__)
#define __syncwarp() simt_sync_warp(__FILE__, __LINE__)

#define PSTI_DEVICE static inline
#define PSTI_DEVICE_METHOD inline
#define PSTI_KERNEL(name, args_type, args) static void name(const args_type &args)
#define PSTI_WIDE_KERNEL(name, args_type, args) PSTI_KERNEL(name, args_type, args)
#define PSTI_SMALL_KERNEL(name, args_type, args) PSTI_KERNEL(name, args_type, args)
#define PSTI_TEAM_KERNEL(name, args_type, args) PSTI_KERNEL(name, args_type, args)
#define PSTI_FUSED_KERNEL(name, args_type, args) PSTI_KERNEL(name, args_type, args)
/* Blocks may have other sizes here. */
#define PSTI_ASSUME_ONE_WARP()
#define PSTI_ASSUME_ONE_TEAM()
#define PSTI_ASSUME_TEAMS()
#define PSTI_PAUSE() simt_pause()
/* A reference: `name` is a plain name, so an array needs a struct or a typedef around it. */
#define PSTI_SHARED(type, name)           \
    static simt_variable name##_variable; \
    type &name = *static_cast<type *>(simt_shared(&name##_variable, sizeof(type)))

#define PSTI_SHARED_OF_TEAM(type, name)                    \
    static simt_variable name##_variables[SIMT_MAX_TEAMS]; \
    type &name = *static_cast<type *>(                     \
        simt_shared(&name##_variables[simt_thread_idx().x / SIMT_TEAM_THREADS], sizeof(type)))

struct alignas(16) psti_vector {
    uint32_t x, y, z, w;
};

/* One access of 16 bytes, for the sanitizers too. */
typedef uint32_t simt_quad __attribute__((vector_size(16), may_alias));

PSTI_DEVICE psti_vector psti_load_vector(const void *at, uint64_t policy = 0)
{
    (void)policy;
    if ((uintptr_t)at % sizeof(simt_quad) != 0)
        simt_misaligned(at);
    if (simt_vectors.is_counting)
        __atomic_fetch_add(&simt_vectors.loaded, sizeof(simt_quad), __ATOMIC_RELAXED);
    const simt_quad quad = *static_cast<const simt_quad *>(at);
    return {quad[0], quad[1], quad[2], quad[3]};
}

PSTI_DEVICE psti_vector psti_zero_vector()
{
    return {0, 0, 0, 0};
}

PSTI_DEVICE uint32_t psti_anew(uint32_t value)
{
    return value;
}

PSTI_DEVICE void psti_store_vector(void *at, psti_vector v)
{
    if ((uintptr_t)at % sizeof(simt_quad) != 0)
        simt_misaligned(at);
    if (simt_vectors.is_counting)
        __atomic_fetch_add(&simt_vectors.stored, sizeof(simt_quad), __ATOMIC_RELAXED);
    *static_cast<simt_quad *>(at) = simt_quad{v.x, v.y, v.z, v.w};
}

PSTI_DEVICE void psti_store_vector_streaming(void *at, psti_vector v)
{
    psti_store_vector(at, v);
}

PSTI_DEVICE uint32_t psti_load_byte_if(bool is_one, const unsigned char *at)
{
    return is_one ? *at : 0;
}

PSTI_DEVICE void psti_store_byte_if(bool is_one, unsigned char *at, uint32_t byte)
{
    if (is_one)
        *at = (unsigned char)byte;
}

PSTI_DEVICE uint64_t psti_evict_first()
{
    return 0;
}

/* A launch begins when the one before it has ended. */
PSTI_DEVICE void psti_wait_for_predecessor()
{
}
PSTI_DEVICE void psti_let_successor_come()
{
}

#define PSTI_HAS_BULK 1

PSTI_DEVICE unsigned char *psti_dynamic_shared(uint32_t bytes)
{
    return simt_dynamic(bytes);
}

PSTI_DEVICE void psti_barrier_init(uint64_t *barrier)
{
    simt_barrier_init(barrier);
}

PSTI_DEVICE void psti_fence_barrier_init()
{
}
PSTI_DEVICE void psti_fence_proxy()
{
}
PSTI_DEVICE void psti_fence_proxy_shared()
{
}

PSTI_DEVICE void psti_barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    simt_barrier_expect(barrier, bytes);
}

PSTI_DEVICE bool psti_barrier_try_wait(uint64_t *barrier, uint32_t parity)
{
    return simt_barrier_try_wait(barrier, parity) != 0;
}

PSTI_DEVICE void psti_bulk_load(void *shared, const void *from, uint32_t bytes, uint64_t *barrier,
                                uint64_t policy)
{
    (void)policy;
    simt_bulk_load(shared, from, bytes, barrier);
}

PSTI_DEVICE void psti_bulk_store(void *to, const void *shared, uint32_t bytes)
{
    simt_bulk_store(to, shared, bytes);
}

PSTI_DEVICE void psti_bulk_store_hinted(void *to, const void *shared, uint32_t bytes,
                                        uint64_t policy)
{
    (void)policy;
    simt_bulk_store(to, shared, bytes);
}

PSTI_DEVICE void psti_bulk_commit()
{
    simt_bulk_commit();
}

template <uint32_t kPending> PSTI_DEVICE void psti_bulk_wait_read()
{
    simt_bulk_wait(kPending, 1);
}

PSTI_DEVICE void psti_bulk_wait_all()
{
    simt_bulk_wait(0, 0);
}

PSTI_DEVICE psti_vector psti_load_shared_vector(const psti_vector *at)
{
    return *at;
}

PSTI_DEVICE uint32_t psti_funnel(uint32_t low, uint32_t high, uint32_t bits)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> bits);
}

PSTI_DEVICE uint64_t psti_shuffle_u64(uint64_t value, uint32_t lane)
{
    return simt_shuffle(value, lane);
}

PSTI_DEVICE uint32_t psti_shuffle_u32(uint32_t value, uint32_t lane)
{
    return (uint32_t)simt_shuffle(value, lane);
}

PSTI_DEVICE uint64_t psti_shuffle_up_u64(uint64_t value, uint32_t distance)
{
    return simt_shuffle_up(value, distance);
}

PSTI_DEVICE uint64_t psti_shuffle_xor_u64(uint64_t value, uint32_t mask)
{
    return simt_shuffle_xor(value, mask);
}

PSTI_DEVICE uint32_t psti_warp_sum_u32(uint32_t mine)
{
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        mine += (uint32_t)simt_shuffle_xor(mine, mask);
    return mine;
}

PSTI_DEVICE bool psti_any(bool mine)
{
    uint64_t any = mine;
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        any |= simt_shuffle_xor(any, mask);
    return any != 0;
}

PSTI_DEVICE uint32_t psti_popcount(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}

PSTI_DEVICE uint32_t psti_ballot(bool mine)
{
    uint64_t all = (uint64_t)mine << (threadIdx.x % 32);
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        all |= simt_shuffle_xor(all, mask);
    return (uint32_t)all;
}

#endif
