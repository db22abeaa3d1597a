#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/paging/move.cuh"

namespace
{

struct mover {
    void (*kernel)(psti_move_args);
    uint32_t threads;
    uint32_t ring_bytes; /* dynamic shared memory */
};

const mover movers[PSTI_NUM_MOVES][PSTI_NUM_BACKENDS] = {
    {{},
     {stash_ldg_kernel, PSTI_BLOCK_THREADS, 0},
     {stash_bulk_kernel, PSTI_BLOCK_THREADS, large_ring::kRingBytes},
     {stash_squeeze_kernel, PSTI_WARP, small_ring::kRingBytes}},
    {{},
     {restore_ldg_kernel, PSTI_BLOCK_THREADS, 0},
     {restore_bulk_kernel, PSTI_BLOCK_THREADS, large_ring::kRingBytes},
     {restore_squeeze_kernel, PSTI_WARP, small_ring::kRingBytes}},
    {{},
     {migrate_ldg_kernel, PSTI_BLOCK_THREADS, 0},
     {migrate_bulk_kernel, PSTI_BLOCK_THREADS, large_ring::kRingBytes},
     {migrate_squeeze_kernel, PSTI_WARP, small_ring::kRingBytes}}};

static_assert(PSTI_OP_STASH == 0 && PSTI_OP_RESTORE == 1 && PSTI_OP_MIGRATE == 2,
              "rows of the table");
static_assert(PST_BACKEND_LDG == 1 && PST_BACKEND_BULK == 2 && PST_BACKEND_SQUEEZE == 3,
              "columns of the table");

/* Blocks per SM: as many as fit, but of a ring one is enough. None where the code was made for a
 * GPU without bulk copies (its kernels are empty then), or where the ring does not fit. */
cudaError_t fill_move(const mover &move, int most_shared, int *blocks_per_sm)
{
    const void *kernel = (const void *)move.kernel;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    *blocks_per_sm = 0;
    if (error == cudaSuccess && move.ring_bytes &&
        (attributes.ptxVersion < 90 ||
         attributes.sharedSizeBytes + move.ring_bytes > (size_t)most_shared))
        return cudaSuccess;
    if (error == cudaSuccess && move.ring_bytes)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)move.ring_bytes);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_sm, kernel,
                                                              (int)move.threads, move.ring_bytes);
    if (move.ring_bytes && *blocks_per_sm > 1)
        *blocks_per_sm = 1;
    return error;
}

cudaError_t launch_move(const psti_cuda_budget *budget, psti_cuda_launch_fn launch, psti_op op,
                        const psti_move_args *args, cudaStream_t stream)
{
    const mover &move = movers[op][args->backend];
    cudaLaunchAttribute attributes[4];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(psti_grid(budget, budget->move_blocks_per_sm[op][args->backend],
                                    args->num_sms, args->max_tiles));
    config.blockDim = dim3(move.threads);
    config.dynamicSmemBytes = move.ring_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (args->flags & (PSTI_MOVE_LOW | PSTI_MOVE_HIGH)) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributePriority;
        attribute->val.priority =
            args->flags & PSTI_MOVE_HIGH ? budget->high_priority : budget->low_priority;
    }
    if (args->flags & PSTI_MOVE_PROGRAMMATIC && budget->is_programmatic) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute->val.programmaticStreamSerializationAllowed = 1;
    }
    /* Writes over the link take long to be done; those of others need not wait for them. All
     * moves of a pool are in one domain, since only then fences of device scope order them: the
     * last one, for NCCL is in the first remote one, and by a map of its own, whatever that of
     * the stream is. */
    if (args->pool.max_pages[PSTI_TIER_HOST] && budget->num_domains > 2) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeMemSyncDomainMap;
        attribute->val.memSyncDomainMap.default_ = 0;
        attribute->val.memSyncDomainMap.remote = (unsigned char)(budget->num_domains - 1);
        attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeMemSyncDomain;
        attribute->val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    }
    void *pointers[] = {const_cast<psti_move_args *>(args)};
    return launch(&config, (const void *)move.kernel, pointers);
}

} /* namespace */

cudaError_t psti_cuda_fill_moves(psti_cuda_budget *budget)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)stash_ldg_kernel);
    budget->is_programmatic = error == cudaSuccess && attributes.ptxVersion >= 90;
    budget->backends = 0;
    for (int backend = PST_BACKEND_LDG; backend < PSTI_NUM_BACKENDS; backend++) {
        bool runs = true;
        for (int op = 0; op < PSTI_NUM_MOVES && error == cudaSuccess; op++) {
            int *blocks_per_sm = &budget->move_blocks_per_sm[op][backend];
            error = fill_move(movers[op][backend], budget->most_shared, blocks_per_sm);
            runs = runs && *blocks_per_sm > 0;
        }
        budget->backends |= runs ? 1u << backend : 0;
    }
    return error;
}

const void *psti_cuda_stash_kernel(void)
{
    return (const void *)stash_ldg_kernel;
}

const void *psti_cuda_restore_kernel(void)
{
    return (const void *)restore_ldg_kernel;
}

const void *psti_cuda_migrate_kernel(void)
{
    return (const void *)migrate_ldg_kernel;
}

cudaError_t psti_cuda_stash(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                            const psti_move_args *args, cudaStream_t stream)
{
    return launch_move(budget, launch, PSTI_OP_STASH, args, stream);
}

cudaError_t psti_cuda_restore(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                              const psti_move_args *args, cudaStream_t stream)
{
    return launch_move(budget, launch, PSTI_OP_RESTORE, args, stream);
}

cudaError_t psti_cuda_migrate(const psti_cuda_budget *budget, psti_cuda_launch_fn launch,
                              const psti_move_args *args, cudaStream_t stream)
{
    return launch_move(budget, launch, PSTI_OP_MIGRATE, args, stream);
}
