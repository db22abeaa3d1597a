// Calls copy_shifted and lift_run of the kernels, and looks at each of its accesses of 16 bytes.
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "tests/simt/shift.h"
#include "tests/simt/simt_selftest.h"

namespace
{

simt_run now;
uint32_t num_wrong; /* the threads of a block take turns */

void look(const void *at, const unsigned char *begin)
{
    const auto address = (uintptr_t)at, first = (uintptr_t)begin;
    if (address % 16 != 0 || address < first || address + 16 > first + now.bytes)
        num_wrong++;
}

psti_vector watched_load(const void *at, uint64_t policy)
{
    look(at, now.from);
    return psti_load_vector(at, policy);
}

void watched_store(void *at, psti_vector v)
{
    look(at, now.to);
    psti_store_vector(at, v);
}

} // namespace

#define psti_load_vector watched_load
#define psti_store_vector watched_store
#define psti_store_vector_streaming watched_store
#define shifted_part watched_part /* else the linker has one of both for the kernels, too */
#include "kernels/cuda/shift.cuh"

struct lift_stage {
    psti_vector vectors[SIMT_MOST_LIFTED / 16];
};

struct shift_args {
    const simt_run *runs;
    uint32_t num;
};

/* As bulk_copier brings and lifts. */
template <bool kStreaming> PSTI_DEVICE void lift_now()
{
    PSTI_SHARED(lift_stage, stage);
    const shifted_run r = shift_run(now.to, now.from, now.bytes);
    for (uint32_t v = r.first; thread_of() == 0 && v < r.loads; v++)
        stage.vectors[v - r.first] = watched_load(now.from + source_at(r, v), 0);
    const lifting_warp me = lifting_warp_of();
    run_edges edges = {0, 0};
    PSTI_SYNC_TEAM();
    if (is_helper()) {
        edges.load(r, now.from, now.bytes);
        edges.store(r, now.to, now.bytes);
    }
    if (me.group == (now.lifts - 1) % me.groups && me.number < me.warps)
        lift_run<kStreaming>(me, r, now.to, stage.vectors);
}

/* One warp has fewer loads ahead, as in squeeze. */
template <bool kStreaming> PSTI_DEVICE void copy_now()
{
    if (now.lifts)
        lift_now<kStreaming>();
    else if (num_threads() == PSTI_WARP)
        copy_shifted<kStreaming, 1, false>(now.to, now.from, now.bytes, 0, false);
    else if (now.alone == 0)
        copy_shifted<kStreaming, 3, true>(now.to, now.from, now.bytes, 0, false);
    else if (thread_of() / PSTI_WARP == now.alone - 1)
        copy_shifted<kStreaming, 3, false>(now.to, now.from, now.bytes, 0, true);
}

PSTI_KERNEL(shift_kernel, shift_args, args)
{
    for (uint32_t i = 0; i < args.num; i++) {
        PSTI_SYNC_TEAM();
        if (thread_of() == 0)
            now = args.runs[i];
        PSTI_SYNC_TEAM();
        if (now.stashes)
            copy_now<true>();
        else
            copy_now<false>();
    }
}

uint32_t simt_copy_runs(const simt_run *runs, uint32_t num, uint32_t threads)
{
    const simt_config config = simt_complete(nullptr);
    num_wrong = 0;
    simt_launch_kernel<shift_args, shift_kernel>(&config, 1, threads, {runs, num});
    return num_wrong;
}
