/* Every line of inline PTX, behind a name; and the CUDA words that the kernels use. The CPU build of
 * the kernels (tests/simt) defines PSTI_SIMT and has defined the same names before. */
#ifndef PSTI_CUDA_PTX_CUH
#define PSTI_CUDA_PTX_CUH

#ifndef PSTI_SIMT

#include <cuda_runtime.h>
#include <stdint.h>

#define PSTI_DEVICE static __device__ __forceinline__
#define PSTI_DEVICE_METHOD __device__ __forceinline__
#define PSTI_SHARED(type, name) __shared__ type name
#define PSTI_KERNEL(name, args_type, args)                                      \
    static __global__ void __launch_bounds__(PSTI_MAX_THREADS, PSTI_MIN_BLOCKS) \
        name(const __grid_constant__ args_type args)
#define PSTI_PAUSE() __nanosleep(64)

typedef uint4 psti_vector; /* 16 bytes */

/* Page and row data are used once: no L1, streamed through L2. volatile keeps a batch of loads in
 * front of its stores; ld.global.nc would let the compiler sink them. */
PSTI_DEVICE psti_vector psti_load_vector(const void *at)
{
    psti_vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

PSTI_DEVICE void psti_store_vector(void *at, psti_vector v)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

#define PSTI_DEFINE_ATOMICS(suffix, type, reg)                                                    \
    PSTI_DEVICE type psti_load_relaxed_##suffix(const type *at)                                   \
    {                                                                                             \
        type v;                                                                                   \
        asm volatile("ld.relaxed.gpu.global." #suffix " %0, [%1];"                                \
                     : "=" reg(v)                                                                 \
                     : "l"(at)                                                                    \
                     : "memory");                                                                 \
        return v;                                                                                 \
    }                                                                                             \
    PSTI_DEVICE type psti_load_acquire_##suffix(const type *at)                                   \
    {                                                                                             \
        type v;                                                                                   \
        asm volatile("ld.acquire.gpu.global." #suffix " %0, [%1];"                                \
                     : "=" reg(v)                                                                 \
                     : "l"(at)                                                                    \
                     : "memory");                                                                 \
        return v;                                                                                 \
    }                                                                                             \
    PSTI_DEVICE void psti_store_relaxed_##suffix(type *at, type v)                                \
    {                                                                                             \
        asm volatile("st.relaxed.gpu.global." #suffix " [%0], %1;" ::"l"(at), reg(v) : "memory"); \
    }                                                                                             \
    PSTI_DEVICE void psti_store_release_##suffix(type *at, type v)                                \
    {                                                                                             \
        asm volatile("st.release.gpu.global." #suffix " [%0], %1;" ::"l"(at), reg(v) : "memory"); \
    }                                                                                             \
    PSTI_DEVICE type psti_add_acq_rel_##suffix(type *at, type v)                                  \
    {                                                                                             \
        type old;                                                                                 \
        asm volatile("atom.acq_rel.gpu.global.add." #suffix " %0, [%1], %2;"                      \
                     : "=" reg(old)                                                               \
                     : "l"(at), reg(v)                                                            \
                     : "memory");                                                                 \
        return old;                                                                               \
    }

PSTI_DEFINE_ATOMICS(u32, uint32_t, "r")
PSTI_DEFINE_ATOMICS(u64, uint64_t, "l")
#undef PSTI_DEFINE_ATOMICS

PSTI_DEVICE uint32_t psti_cas_acq_rel_u32(uint32_t *at, uint32_t expected, uint32_t desired)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(at), "r"(expected), "r"(desired)
                 : "memory");
    return old;
}

PSTI_DEVICE uint64_t psti_cas_acq_rel_u64(uint64_t *at, uint64_t expected, uint64_t desired)
{
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
    return old;
}

PSTI_DEVICE void psti_or_relaxed_u32(uint32_t *at, uint32_t bits)
{
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(at), "r"(bits) : "memory");
}

PSTI_DEVICE void psti_store_before_system_u64(uint64_t *at, uint64_t value)
{
    asm volatile("st.relaxed.sys.u64 [%0], %1;\n\tfence.acq_rel.sys;" ::"l"(at), "l"(value)
                 : "memory");
}

PSTI_DEVICE void psti_store_release_system_u64(uint64_t *at, uint64_t value)
{
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

PSTI_DEVICE uint64_t psti_shuffle_up_u64(uint64_t value, uint32_t distance)
{
    return __shfl_up_sync(0xffffffffu, value, distance);
}

PSTI_DEVICE uint64_t psti_shuffle_xor_u64(uint64_t value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

#endif /* PSTI_SIMT */

#endif
