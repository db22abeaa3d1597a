/* How one piece of code serves gcc, g++ and nvcc: PSTI_FN functions, and atomics by name.
 *
 * On the GPU (device scope) the same names are defined in kernels/cuda/ptx.cuh before this header
 * is read. TSan knows acquire and release on accesses but not fences, so there are none here. */
#ifndef PSTI_CORE_FN_H
#define PSTI_CORE_FN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define PSTI_FN static __device__ __forceinline__
/* The launcher calls it, too. */
#define PSTI_FN_OF_LAUNCH static __host__ __device__ __forceinline__
/* Of faults: seldom run, and not worth their instructions wherever one may be recorded. */
#define PSTI_FN_RARE static __device__ __noinline__
#else
#define PSTI_FN static inline
#define PSTI_FN_OF_LAUNCH static inline
#define PSTI_FN_RARE static inline

#define PSTI_DEFINE_ATOMICS(suffix, type)                                            \
    PSTI_FN type psti_load_relaxed_##suffix(const type *at)                          \
    {                                                                                \
        return __atomic_load_n(at, __ATOMIC_RELAXED);                                \
    }                                                                                \
    PSTI_FN type psti_load_acquire_##suffix(const type *at)                          \
    {                                                                                \
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);                                \
    }                                                                                \
    PSTI_FN void psti_store_relaxed_##suffix(type *at, type value)                   \
    {                                                                                \
        __atomic_store_n(at, value, __ATOMIC_RELAXED);                               \
    }                                                                                \
    PSTI_FN void psti_store_release_##suffix(type *at, type value)                   \
    {                                                                                \
        __atomic_store_n(at, value, __ATOMIC_RELEASE);                               \
    }                                                                                \
    PSTI_FN type psti_add_acq_rel_##suffix(type *at, type value)                     \
    {                                                                                \
        return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);                      \
    }                                                                                \
    /* returns the old value; stored only when that was expected */                  \
    PSTI_FN type psti_cas_acq_rel_##suffix(type *at, type expected, type desired)    \
    {                                                                                \
        __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_ACQ_REL, \
                                    __ATOMIC_ACQUIRE);                               \
        return expected;                                                             \
    }

PSTI_DEFINE_ATOMICS(u32, uint32_t)
PSTI_DEFINE_ATOMICS(u64, uint64_t)
#undef PSTI_DEFINE_ATOMICS

PSTI_FN uint64_t psti_add_acquire_u64(uint64_t *at, uint64_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_ACQUIRE);
}

PSTI_FN void psti_add_relaxed_u64(uint64_t *at, uint64_t value)
{
    __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

PSTI_FN void psti_add_release_u64(uint64_t *at, uint64_t value)
{
    __atomic_fetch_add(at, value, __ATOMIC_RELEASE);
}

/* Of words that a lock or the order of launches protects. */
PSTI_FN uint64_t psti_cas_relaxed_u64(uint64_t *at, uint64_t expected, uint64_t desired)
{
    __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

PSTI_FN void psti_or_relaxed_u32(uint32_t *at, uint32_t bits)
{
    __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}

/* System scope: what the host reads while the device runs. Whoever sees a store `behind` by an
 * acquire load sees what was stored `before` it; ptx.cuh has one fence for all of them. */
PSTI_FN void psti_store_before_system_u64(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
PSTI_FN void psti_store_behind_system_u64(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
PSTI_FN void psti_store_release_system_u64(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
#endif

PSTI_FN uint64_t psti_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

PSTI_FN uint64_t psti_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
