/* The stash, restore and migrate kernels. One launch each; the grid may be anything from one
 * block up, and no two teams need to run at the same time.
 *
 * Bytes moved: live bytes read once and written once, plus 4 bytes of table, 8 of owner word and 4
 * of ring per page. Floor: 2 * live bytes / memory bandwidth. */
#ifndef PSTI_CUDA_MOVE_CUH
#define PSTI_CUDA_MOVE_CUH

#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/paging/bulk.cuh"
#include "kernels/cuda/paging/migrate.cuh"
#include "kernels/cuda/paging/restore.cuh"
#include "kernels/cuda/paging/stash.cuh"

PSTI_TEAM_KERNEL(stash_ldg_kernel, psti_move_args, args)
{
    PSTI_ASSUME_TEAMS();
    PSTI_SHARED_OF_TEAM(move_with_runs, room);
    direct_copier<true> copier = {&room.runs, 0};
    run_stash(room.move, copier, args, not_fused());
}

PSTI_TEAM_KERNEL(restore_ldg_kernel, psti_move_args, args)
{
    PSTI_ASSUME_TEAMS();
    PSTI_SHARED_OF_TEAM(move_with_runs, room);
    direct_copier<false> copier = {&room.runs, 0};
    run_restore(room.move, copier, args, not_fused());
}

PSTI_TEAM_KERNEL(migrate_ldg_kernel, psti_move_args, args)
{
    PSTI_ASSUME_TEAMS();
    PSTI_SHARED_OF_TEAM(move_shared, s);
    PSTI_SHARED_OF_TEAM(page_room<PSTI_MAX_THREADS>, room);
    direct_copier<true> copier = {};
    run_migrate(s, batch_in(s, room), copier, args);
}

#if PSTI_HAS_BULK
#define PSTI_BULK_BODY(run, ring, streaming)                  \
    {                                                         \
        ring::assume_threads();                               \
        PSTI_SHARED(move_shared, s);                          \
        PSTI_SHARED(ring, r);                                 \
        dynamic_shared<ring::kRingBytes>(args);               \
        bulk_copier<ring, streaming> copier = {&r, 0, 0, {}}; \
        run(s, copier, args, not_fused());                    \
    }
#define PSTI_BULK_MIGRATE_BODY(ring)                     \
    {                                                    \
        ring::assume_threads();                          \
        PSTI_SHARED(move_shared, s);                     \
        PSTI_SHARED(page_room<ring::kThreads>, room);    \
        PSTI_SHARED(ring, r);                            \
        dynamic_shared<ring::kRingBytes>(args);          \
        bulk_copier<ring, true> copier = {&r, 0, 0, {}}; \
        run_migrate(s, batch_in(s, room), copier, args); \
    }
#else /* never launched there */
#define PSTI_BULK_MIGRATE_BODY(ring) \
    {                                \
    }
#define PSTI_BULK_BODY(run, ring, streaming) \
    {                                        \
    }
#endif

PSTI_WIDE_KERNEL(stash_bulk_kernel, psti_move_args, args)
PSTI_BULK_BODY(run_stash, large_ring, true)

PSTI_WIDE_KERNEL(restore_bulk_kernel, psti_move_args, args)
PSTI_BULK_BODY(run_restore, large_ring, false)

PSTI_SMALL_KERNEL(stash_squeeze_kernel, psti_move_args, args)
PSTI_BULK_BODY(run_stash, small_ring, true)

PSTI_SMALL_KERNEL(restore_squeeze_kernel, psti_move_args, args)
PSTI_BULK_BODY(run_restore, small_ring, false)

PSTI_WIDE_KERNEL(migrate_bulk_kernel, psti_move_args, args)
PSTI_BULK_MIGRATE_BODY(large_ring)

PSTI_SMALL_KERNEL(migrate_squeeze_kernel, psti_move_args, args)
PSTI_BULK_MIGRATE_BODY(small_ring)

#endif
