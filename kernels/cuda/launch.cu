/* The table of kernels, and the one launcher. Grids are sized by the capacity that the host knows
 * and by the SM budget; what is live decides how many blocks find work. */
#include "kernels/cuda/launch.h"

#include "kernels/cuda/compute/product.cuh"
#include "kernels/cuda/fused/glu.cuh"
#include "kernels/cuda/paging/control.cuh"
#include "kernels/cuda/paging/move.cuh"
#include "kernels/cuda/paging/pattern.cuh"

#define BLOCK_THREADS ((uint32_t)PSTI_MAX_THREADS)

namespace
{

struct entry {
    const void *kernel; /* NULL: none */
    uint32_t threads;
    uint32_t ring_bytes; /* of dynamic shared memory */
};

/* Moves: a column for each backend; what is fused has loads alone. The others have one kernel, in the column of auto. Threads are those
 * of one team. */
const entry table[PSTI_NUM_OPS][PSTI_NUM_BACKENDS] = {
#define MOVE_ROW(NAME, name, args_type)                                                   \
    {{NULL, 0, 0},                                                                        \
     {(const void *)name##_ldg_kernel, BLOCK_THREADS, 0},                                 \
     {(const void *)name##_bulk_kernel, BLOCK_THREADS, (uint32_t)large_ring::kRingBytes}, \
     {(const void *)name##_squeeze_kernel, PSTI_WARP, (uint32_t)small_ring::kRingBytes}},
#define FUSED_ROW(NAME, name, args_type) \
    {{NULL, 0, 0}, {(const void *)name##_ldg_kernel, BLOCK_THREADS, 0}, {NULL, 0, 0}, {NULL, 0, 0}},
#define ONE_KERNEL_ROW(NAME, name, args_type) \
    {{(const void *)name##_kernel, BLOCK_THREADS, 0}, {NULL, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0}},
    PSTI_MOVE_LIST(MOVE_ROW) PSTI_FUSED_LIST(FUSED_ROW) PSTI_GRID_LIST(ONE_KERNEL_ROW)
        PSTI_BLOCK_LIST(ONE_KERNEL_ROW)};

static_assert(PST_BACKEND_AUTO == 0 && PST_BACKEND_LDG == 1 && PST_BACKEND_BULK == 2 &&
                  PST_BACKEND_SQUEEZE == 3,
              "columns of the table");

static_assert(PSTI_TEAMS * (sizeof(move_shared) + (PSTI_MAX_SEGMENTS + 1) * sizeof(uint64_t)) <=
                  48u << 10,
              "shared memory that need not be asked for, of the ldg backend");

/* Blocks per SM, each with `room` for a team's table of segments: as many as fit, but of a ring one is
 * enough. None where the code was made for a
 * GPU without bulk copies (its kernels are empty then), or where the ring does not fit. */
cudaError_t count_blocks(const entry &what, uint32_t room, int most_shared, int *blocks_per_sm)
{
    const uint32_t dynamic = what.ring_bytes + room;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, what.kernel);
    *blocks_per_sm = 0;
    if (error == cudaSuccess && what.ring_bytes &&
        (attributes.ptxVersion < 90 || attributes.sharedSizeBytes + dynamic > (size_t)most_shared))
        return cudaSuccess;
    if (error == cudaSuccess && what.ring_bytes)
        error = cudaFuncSetAttribute(what.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)dynamic);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_sm, what.kernel,
                                                              (int)what.threads, dynamic);
    if (what.ring_bytes && *blocks_per_sm > 1)
        *blocks_per_sm = 1;
    return error;
}

/* How many blocks can find something to do. */
uint64_t work_of(psti_op op, const void *args)
{
    switch (op) {
#define MOVE_WORK(NAME, name, args_type) \
    case PSTI_OP_##NAME:                 \
        return ((const psti_move_args *)args)->max_tiles;
#define GRID_WORK(NAME, name, args_type) \
    case PSTI_OP_##NAME:                 \
        return name##_work((const args_type *)args);
        PSTI_MOVE_LIST(MOVE_WORK)
        PSTI_FUSED_LIST(MOVE_WORK)
        PSTI_GRID_LIST(GRID_WORK)
    default: /* of PSTI_BLOCK_LIST */
        return 1;
    }
}

/* Under a budget of SMs a launch has one block for each, so that it never is on more of them, wherever
 * blocks are placed. */
uint32_t grid_of(const psti_cuda_budget *budget, int blocks_per_sm, uint32_t num_sms, uint64_t work)
{
    const uint64_t resident = num_sms ? num_sms : (uint64_t)budget->num_sms * blocks_per_sm;
    const uint64_t most = PSTI_MAX_TEAMS / PSTI_TEAMS;
    const uint64_t there = resident < most ? resident : most;
    const uint64_t blocks = work < there ? work : there;
    return blocks ? (uint32_t)blocks : 1;
}

/* One block of the ldg backend would keep too few loads in flight for its SM: there it has the teams that
 * otherwise are blocks, and with them all registers of the SM, which so is its own. Not where there is
 * work for one team alone, as in a release: it would wait until an SM is empty. */
uint32_t threads_of(psti_op op, const psti_move_args *move)
{
    const bool has_teams =
        move && move->num_sms && move->backend == PST_BACKEND_LDG && move->max_tiles > 1;
    const uint32_t backend = move ? move->backend : (uint32_t)PST_BACKEND_AUTO;
    const uint32_t teams = op >= PSTI_NUM_COPIES ? PSTI_FUSED_TEAMS : PSTI_TEAMS;
    return table[op][backend].threads * (has_teams ? teams : 1);
}

void add_attributes(const psti_cuda_budget *budget, const psti_move_args *args,
                    cudaLaunchConfig_t *config)
{
    if (args->flags & (PSTI_MOVE_LOW | PSTI_MOVE_HIGH)) {
        cudaLaunchAttribute *attribute = &config->attrs[config->numAttrs++];
        attribute->id = cudaLaunchAttributePriority;
        attribute->val.priority =
            args->flags & PSTI_MOVE_HIGH ? budget->high_priority : budget->low_priority;
    }
    if (args->flags & PSTI_MOVE_PROGRAMMATIC && budget->is_programmatic) {
        cudaLaunchAttribute *attribute = &config->attrs[config->numAttrs++];
        attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute->val.programmaticStreamSerializationAllowed = 1;
    }
    /* Writes over the link take long to be done; those of others need not wait for them. All
     * moves of a pool are in one domain, since only then fences of device scope order them: the
     * last one, for NCCL is in the first remote one, and by a map of its own, whatever that of
     * the stream is. */
    if (args->pool.max_pages[PSTI_TIER_HOST] && budget->num_domains > 2) {
        cudaLaunchAttribute *attribute = &config->attrs[config->numAttrs++];
        attribute->id = cudaLaunchAttributeMemSyncDomainMap;
        attribute->val.memSyncDomainMap.default_ = 0;
        attribute->val.memSyncDomainMap.remote = (unsigned char)(budget->num_domains - 1);
        attribute = &config->attrs[config->numAttrs++];
        attribute->id = cudaLaunchAttributeMemSyncDomain;
        attribute->val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    }
}

} /* namespace */

cudaError_t psti_cuda_fill_budget(psti_cuda_budget *budget)
{
    cudaFuncAttributes attributes;
    cudaError_t error =
        cudaFuncGetAttributes(&attributes, table[PSTI_OP_STASH][PST_BACKEND_LDG].kernel);
    budget->is_programmatic = error == cudaSuccess && attributes.ptxVersion >= 90;
    budget->backends = 0;
    const uint32_t most_room = psti_table_bytes(PSTI_MAX_SEGMENTS);
    for (int backend = PST_BACKEND_AUTO; backend < PSTI_NUM_BACKENDS; backend++) {
        bool runs = backend != PST_BACKEND_AUTO;
        for (int op = 0; op < PSTI_NUM_OPS && error == cudaSuccess; op++) {
            int *blocks_per_sm = &budget->blocks_per_sm[op][backend];
            if (table[op][backend].kernel == NULL)
                continue;
            error = count_blocks(table[op][backend], op < PSTI_NUM_MOVES ? most_room : 0,
                                 budget->most_shared, blocks_per_sm);
            runs = runs && *blocks_per_sm > 0;
        }
        budget->backends |= runs ? 1u << backend : 0;
    }
    return error;
}

cudaError_t psti_cuda_launch(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, psti_op op,
                             const void *args, cudaStream_t stream)
{
    const psti_move_args *move = op < PSTI_NUM_MOVES ? (const psti_move_args *)args : NULL;
    const uint32_t backend = move ? move->backend : (uint32_t)PST_BACKEND_AUTO;
    const entry &what = table[op][backend];
    cudaLaunchAttribute attributes[4];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid_of(budget, budget->blocks_per_sm[op][backend],
                                  move ? move->num_sms : 0, work_of(op, args)));
    config.blockDim = dim3(threads_of(op, move));
    config.dynamicSmemBytes = what.ring_bytes;
    if (move) /* a table of segments for each team */
        config.dynamicSmemBytes +=
            threads_of(op, move) / what.threads * (size_t)psti_segment_room(move);
    config.stream = stream;
    config.attrs = attributes;
    if (move)
        add_attributes(budget, move, &config);
    void *pointers[] = {const_cast<void *>(args)};
    return launch(&config, what.kernel, pointers);
}
