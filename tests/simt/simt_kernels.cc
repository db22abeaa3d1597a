/* The library's CUDA kernels, compiled for the CPU, as runners of a device. */
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "kernels/cuda/compute/product.cuh"
#include "kernels/cuda/fused/glu.cuh"
#include "kernels/cuda/paging/control.cuh"
#include "kernels/cuda/paging/move.cuh"
#include "kernels/cuda/paging/pattern.cuh"

#include "tests/simt/simt_device.h"

static_assert(PSTI_MAX_THREADS == SIMT_TEAM_THREADS && PSTI_TEAMS <= SIMT_MAX_TEAMS, "blocks");

static simt_config configured = simt_complete(nullptr);
static uint64_t num_launches;

void psti_simt_configure(const simt_config *config)
{
    configured = simt_complete(config);
    __atomic_store_n(&num_launches, 0, __ATOMIC_RELAXED);
}

void psti_simt_count_traffic(bool counts)
{
    simt_vectors = {counts, 0, 0};
}

simt_traffic psti_simt_traffic(void)
{
    return simt_vectors;
}

/* As grid_of in kernels/cuda/launch.cu, within max_blocks. */
static uint32_t grid_of(uint32_t blocks_per_sm, uint32_t num_sms, uint64_t work)
{
    const uint64_t sms = num_sms ? num_sms : configured.num_sms;
    const uint64_t resident = psti_min_u64(sms * blocks_per_sm, configured.max_blocks);
    const uint64_t blocks = psti_min_u64(work, resident);
    return blocks ? (uint32_t)blocks : 1;
}

static void launch(const void *args, uint32_t grid, uint32_t threads, void (*body)(void *))
{
    simt_config config = configured;
    config.seed += __atomic_fetch_add(&num_launches, 1, __ATOMIC_RELAXED);
    simt_launch(&config, grid, threads, body, const_cast<void *>(args));
}

/* Called with the kernel and the type of its arguments. */
template <class Args, void (*kKernel)(const Args &)> static void call(void *args)
{
    kKernel(*static_cast<const Args *>(args));
}

template <class Args, void (*kKernel)(const Args &)>
static void run(const void *args, uint64_t work)
{
    launch(args, grid_of(configured.blocks_per_sm, 0, work), configured.threads,
           call<Args, kKernel>);
}

/* By the kernel of the backend, as psti_cuda_launch. Under a budget a block has so many teams at most, where these have
 * all their threads. */
static void run_move(const void *opaque, void (*const kernels[])(void *), uint32_t most_teams)
{
    const psti_move_args *args = static_cast<const psti_move_args *>(opaque);
    const bool is_ldg = args->backend == PST_BACKEND_LDG;
    const bool is_small = args->backend == PST_BACKEND_SQUEEZE;
    const bool has_teams =
        is_ldg && args->num_sms && args->max_tiles > 1 && configured.threads == PSTI_MAX_THREADS;
    const uint32_t blocks_per_sm = is_ldg && !has_teams ? configured.blocks_per_sm : 1;
    const uint32_t grid = grid_of(blocks_per_sm, args->num_sms, args->max_tiles);
    const uint32_t threads = configured.threads * (has_teams ? most_teams : 1);
    launch(args, grid, is_small ? PSTI_WARP : threads, kernels[args->backend]);
}

/* A grid of as many blocks as there may be, whatever the work. */
#define RUN_MOVE(NAME, name, args_type)                                                        \
    static void run_##name(const void *args)                                                   \
    {                                                                                          \
        static void (*const kernels[])(void *) = {nullptr, call<args_type, name##_ldg_kernel>, \
                                                  call<args_type, name##_bulk_kernel>,         \
                                                  call<args_type, name##_squeeze_kernel>};     \
        run_move(args, kernels, PSTI_TEAMS);                                                   \
    }
#define RUN_FUSED(NAME, name, args_type)                                                       \
    static void run_##name(const void *args)                                                   \
    {                                                                                          \
        static void (*const kernels[])(void *) = {nullptr, call<args_type, name##_ldg_kernel>, \
                                                  nullptr, nullptr};                           \
        run_move(args, kernels, PSTI_FUSED_TEAMS);                                             \
    }
#define RUN_GRID(NAME, name, args_type)                  \
    static void run_##name(const void *args)             \
    {                                                    \
        run<args_type, name##_kernel>(args, UINT64_MAX); \
    }
#define RUN_BLOCK(NAME, name, args_type)        \
    static void run_##name(const void *args)    \
    {                                           \
        run<args_type, name##_kernel>(args, 1); \
    }
PSTI_MOVE_LIST(RUN_MOVE)
PSTI_FUSED_LIST(RUN_FUSED)
PSTI_GRID_LIST(RUN_GRID)
PSTI_BLOCK_LIST(RUN_BLOCK)

const psti_runners psti_simt_runners = {{
#define PSTI_RUNNER(NAME, name, args_type) run_##name,
    PSTI_OP_LIST(PSTI_RUNNER)
#undef PSTI_RUNNER
}};
