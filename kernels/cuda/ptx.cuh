/* Every line of inline PTX, behind a name; and the CUDA words that the kernels use. The CPU
 * build of the kernels (tests/simt) defines PSTI_SIMT and has defined the same names before. */
#ifndef PSTI_CUDA_PTX_CUH
#define PSTI_CUDA_PTX_CUH

#ifndef PSTI_SIMT

#include <cuda_runtime.h>
#include <stdint.h>

#define PSTI_DEVICE static __device__ __forceinline__
#define PSTI_DEVICE_METHOD __device__ __forceinline__
#define PSTI_SHARED(type, name) __shared__ type name
/* One variable for each team of the block. */
#define PSTI_SHARED_OF_TEAM(type, name)         \
    __shared__ type name##_of_team[PSTI_TEAMS]; \
    type &name = name##_of_team[team_in_block()]
#define PSTI_KERNEL(name, args_type, args)                                 \
    static __global__ void __launch_bounds__(PSTI_MAX_THREADS, PSTI_TEAMS) \
        name(const __grid_constant__ args_type args)
/* Of blocks of one team or of PSTI_TEAMS. */
#define PSTI_TEAM_KERNEL(name, args_type, args)                               \
    static __global__ void __launch_bounds__(PSTI_TEAMS *PSTI_MAX_THREADS, 1) \
        name(const __grid_constant__ args_type args)
/* Of blocks of one team or of PSTI_FUSED_TEAMS. */
#define PSTI_FUSED_KERNEL(name, args_type, args)                                    \
    static __global__ void __launch_bounds__(PSTI_FUSED_TEAMS *PSTI_MAX_THREADS, 1) \
        name(const __grid_constant__ args_type args)
/* Of blocks that have an SM each. They take a third of its registers all the same: other kernels want some. */
#define PSTI_WIDE_KERNEL(name, args_type, args)                   \
    static __global__ void __launch_bounds__(PSTI_MAX_THREADS, 3) \
        name(const __grid_constant__ args_type args)
/* Of blocks of one warp, with the registers that another kernel leaves. */
#define PSTI_SMALL_KERNEL(name, args_type, args) \
    static __global__ void __maxnreg__(32) name(const __grid_constant__ args_type args)
/* At the top of a kernel: what its bounds cannot say about its launches. */
#define PSTI_ASSUME_ONE_WARP() __builtin_assume(threadIdx.x < PSTI_WARP && blockDim.x == PSTI_WARP)
#define PSTI_ASSUME_ONE_TEAM() __builtin_assume(blockDim.x == PSTI_MAX_THREADS)
#define PSTI_ASSUME_TEAMS() __builtin_assume(blockDim.x >= PSTI_MAX_THREADS)
#define PSTI_PAUSE() __nanosleep(64)
#define PSTI_SYNC_TEAM() psti_sync_team()

/* One instruction for blocks of one team and of several, where a kernel may be launched with either. */
PSTI_DEVICE void psti_sync_team()
{
    if (blockDim.x < PSTI_MAX_THREADS)
        __syncthreads();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.x / PSTI_MAX_THREADS), "n"(PSTI_MAX_THREADS)
                     : "memory");
}

typedef uint4 psti_vector; /* 16 bytes */

/* A cache policy for loads and bulk stores: the line is the first to leave L2. */
PSTI_DEVICE uint64_t psti_evict_first()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* volatile keeps a batch of loads in front of its stores; ld.global.nc would let the compiler sink
 * them. */
PSTI_DEVICE psti_vector psti_load_vector(const void *at, uint64_t policy)
{
    psti_vector v;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at), "l"(policy)
                 : "memory");
    return v;
}

/* Zeros that a load may replace, each set once. Of constants nvcc sets a copy on each way that leads around the load. */
PSTI_DEVICE psti_vector psti_zero_vector()
{
    psti_vector v;
    asm volatile("mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w));
    return v;
}

/* The same value, of which the compiler does not know that it has worked out something from it before. So it does that
 * again, and does not keep the earlier answer in a register all the way. */
PSTI_DEVICE uint32_t psti_anew(uint32_t value)
{
    asm volatile("" : "+r"(value));
    return value;
}

PSTI_DEVICE void psti_store_vector(void *at, psti_vector v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

/* Evict-first. */
PSTI_DEVICE void psti_store_vector_streaming(void *at, psti_vector v)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* A byte where there is one, else 0. Branches would send the lanes of a warp different ways for long. */
PSTI_DEVICE uint32_t psti_load_byte_if(bool is_one, const unsigned char *at)
{
    uint32_t byte = 0;
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "setp.ne.u32 p, %2, 0;\n\t"
                 "@p ld.global.u8 %0, [%1];\n\t"
                 "}"
                 : "+r"(byte)
                 : "l"(at), "r"((uint32_t)is_one)
                 : "memory");
    return byte;
}

PSTI_DEVICE void psti_store_byte_if(bool is_one, unsigned char *at, uint32_t byte)
{
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "setp.ne.u32 p, %2, 0;\n\t"
                 "@p st.global.u8 [%0], %1;\n\t"
                 "}" ::"l"(at),
                 "r"(byte), "r"((uint32_t)is_one)
                 : "memory");
}

/* All 16 bytes, also where not all are used: less would have more conflicts of banks. */
PSTI_DEVICE psti_vector psti_load_shared_vector(const psti_vector *at)
{
    psti_vector v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(at))
                 : "memory");
    return v;
}

#define PSTI_DEFINE_LOAD(order, suffix, type, reg)                    \
    PSTI_DEVICE type psti_load_##order##_##suffix(const type *at)     \
    {                                                                 \
        type v;                                                       \
        asm volatile("ld." #order ".gpu.global." #suffix " %0, [%1];" \
                     : "=" reg(v)                                     \
                     : "l"(at)                                        \
                     : "memory");                                     \
        return v;                                                     \
    }
#define PSTI_DEFINE_STORE(order, suffix, type, reg)                                     \
    PSTI_DEVICE void psti_store_##order##_##suffix(type *at, type v)                    \
    {                                                                                   \
        asm volatile("st." #order ".gpu.global." #suffix " [%0], %1;" ::"l"(at), reg(v) \
                     : "memory");                                                       \
    }
#define PSTI_DEFINE_ADD(order, suffix, type, reg)                               \
    PSTI_DEVICE type psti_add_##order##_##suffix(type *at, type v)              \
    {                                                                           \
        type old;                                                               \
        asm volatile("atom." #order ".gpu.global.add." #suffix " %0, [%1], %2;" \
                     : "=" reg(old)                                             \
                     : "l"(at), reg(v)                                          \
                     : "memory");                                               \
        return old;                                                             \
    }
#define PSTI_DEFINE_ATOMICS(suffix, type, reg)    \
    PSTI_DEFINE_LOAD(relaxed, suffix, type, reg)  \
    PSTI_DEFINE_LOAD(acquire, suffix, type, reg)  \
    PSTI_DEFINE_STORE(relaxed, suffix, type, reg) \
    PSTI_DEFINE_STORE(release, suffix, type, reg) \
    PSTI_DEFINE_ADD(acq_rel, suffix, type, reg)

PSTI_DEFINE_ATOMICS(u32, uint32_t, "r")
PSTI_DEFINE_ATOMICS(u64, uint64_t, "l")
PSTI_DEFINE_ADD(acquire, u64, uint64_t, "l")
#undef PSTI_DEFINE_ATOMICS
#undef PSTI_DEFINE_ADD
#undef PSTI_DEFINE_STORE
#undef PSTI_DEFINE_LOAD

#define PSTI_DEFINE_CAS(name, type, order, width, reg)                           \
    PSTI_DEVICE type name(type *at, type expected, type desired)                 \
    {                                                                            \
        type old;                                                                \
        asm volatile("atom." order ".gpu.global.cas." width " %0, [%1], %2, %3;" \
                     : "=" reg(old)                                              \
                     : "l"(at), reg(expected), reg(desired)                      \
                     : "memory");                                                \
        return old;                                                              \
    }

PSTI_DEFINE_CAS(psti_cas_acq_rel_u32, uint32_t, "acq_rel", "b32", "r")
PSTI_DEFINE_CAS(psti_cas_acq_rel_u64, uint64_t, "acq_rel", "b64", "l")
/* Of words that a lock or the order of launches protects. */
PSTI_DEFINE_CAS(psti_cas_relaxed_u64, uint64_t, "relaxed", "b64", "l")
#undef PSTI_DEFINE_CAS

PSTI_DEVICE void psti_or_relaxed_u32(uint32_t *at, uint32_t bits)
{
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(at), "r"(bits) : "memory");
}

/* No result, so nobody waits for it. */
PSTI_DEVICE void psti_add_relaxed_u64(uint64_t *at, uint64_t value)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

PSTI_DEVICE void psti_add_release_u64(uint64_t *at, uint64_t value)
{
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

/* System scope, as the host reads them. The fence and a relaxed store behind it are a release of
 * what was stored before (PTX ISA, "release patterns"): one fence for all stores behind it, where a
 * st.release each would be a fence each. */
PSTI_DEVICE void psti_store_before_system_u64(uint64_t *at, uint64_t value)
{
    asm volatile("st.release.sys.u64 [%0], %1;\n\tfence.acq_rel.sys;" ::"l"(at), "l"(value)
                 : "memory");
}

PSTI_DEVICE void psti_store_behind_system_u64(uint64_t *at, uint64_t value)
{
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

PSTI_DEVICE void psti_store_release_system_u64(uint64_t *at, uint64_t value)
{
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

PSTI_DEVICE uint64_t psti_shuffle_u64(uint64_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}

PSTI_DEVICE uint32_t psti_shuffle_u32(uint32_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}

PSTI_DEVICE uint64_t psti_shuffle_up_u64(uint64_t value, uint32_t distance)
{
    return __shfl_up_sync(0xffffffffu, value, distance);
}

PSTI_DEVICE uint64_t psti_shuffle_xor_u64(uint64_t value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

/* 32 of 64 bits, from bit number `bits` on, which is below 32. */
PSTI_DEVICE uint32_t psti_funnel(uint32_t low, uint32_t high, uint32_t bits)
{
    return __funnelshift_r(low, high, bits);
}

/* Modulo 2^32, by a whole warp. */
PSTI_DEVICE uint32_t psti_warp_sum_u32(uint32_t mine)
{
    return __reduce_add_sync(0xffffffffu, mine);
}

/* By a whole warp. */
PSTI_DEVICE bool psti_any(bool mine)
{
    return __any_sync(0xffffffffu, mine);
}

/* By a whole warp: a bit for each lane. */
PSTI_DEVICE uint32_t psti_ballot(bool mine)
{
    return __ballot_sync(0xffffffffu, mine);
}

PSTI_DEVICE uint32_t psti_popcount(uint32_t bits)
{
    return (uint32_t)__popc((int)bits);
}

/* As many bytes as the launch asked for, which is `bytes`; 0: a caller before has said how many. */
PSTI_DEVICE unsigned char *psti_dynamic_shared(uint32_t bytes)
{
    (void)bytes;
    extern __shared__ __align__(128) unsigned char psti_dynamic[];
    return psti_dynamic;
}

/* ---- from sm_90: programmatic dependent launch, and asynchronous bulk copies ---- */

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define PSTI_HAS_BULK 1
#else
#define PSTI_HAS_BULK 0
#endif

/* Waits until the launches that this one depends on have ended and their writes are there; returns
 * at once where they have. */
PSTI_DEVICE void psti_wait_for_predecessor()
{
#if PSTI_HAS_BULK
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* When every block has said so, a launch that depends on this one may be brought up. */
PSTI_DEVICE void psti_let_successor_come()
{
#if PSTI_HAS_BULK
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#if PSTI_HAS_BULK

PSTI_DEVICE uint32_t psti_shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* For one arrival. */
PSTI_DEVICE void psti_barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(psti_shared_address(barrier))
                 : "memory");
}

/* Makes barriers known to the machine that copies. */
PSTI_DEVICE void psti_fence_barrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Orders ordinary accesses to global memory and those of the machine that copies, both ways. Stages
 * are written by the machine alone; without .global it would be a membar of GPU scope, too. */
PSTI_DEVICE void psti_fence_proxy()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* The same for shared memory. */
PSTI_DEVICE void psti_fence_proxy_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The one arrival, and that many bytes to come. */
PSTI_DEVICE void psti_barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     psti_shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Whether phase number 2 n + parity is over; waits a while for it. */
PSTI_DEVICE bool psti_barrier_try_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}"
                 : "=r"(done)
                 : "r"(psti_shared_address(barrier)), "r"(parity)
                 : "memory");
    return done != 0;
}

PSTI_DEVICE void psti_bulk_load(void *shared, const void *from, uint32_t bytes, uint64_t *barrier,
                                uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(psti_shared_address(shared)),
                 "l"(from), "r"(bytes), "r"(psti_shared_address(barrier)), "l"(policy)
                 : "memory");
}

PSTI_DEVICE void psti_bulk_store(void *to, const void *shared, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(psti_shared_address(shared)), "r"(bytes)
                 : "memory");
}

PSTI_DEVICE void psti_bulk_store_hinted(void *to, const void *shared, uint32_t bytes,
                                        uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
        "r"(psti_shared_address(shared)), "r"(bytes), "l"(policy)
        : "memory");
}

/* What was stored since the last commit is one group. */
PSTI_DEVICE void psti_bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all groups but the last kPending have read their shared memory. */
template <uint32_t kPending> PSTI_DEVICE void psti_bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/* Until all groups are in memory. */
PSTI_DEVICE void psti_bulk_wait_all()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif /* PSTI_HAS_BULK */

#endif /* PSTI_SIMT */

#endif
