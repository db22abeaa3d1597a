/* Wrong uses of bulk copies, each of which must end in abort(): see simt_scenarios.cc. */
#define PSTI_SIMT 1
#include "tests/simt/simt.h"

#include "tests/simt/simt_selftest.h"

#include <string.h>

static const uint32_t kStageBytes = 1024; /* all of the dynamic shared memory */
static const uint32_t kLineBytes = 64;

struct line {
    alignas(16) unsigned char byte[kLineBytes];
};

struct bulk_args {
    line *memory;
};

/* What the kernels share: a barrier that is ready, and the stage. */
struct bench {
    uint64_t *barrier;
    unsigned char *stage;
    unsigned char *memory;
};

static bench set_up(const bulk_args &args)
{
    PSTI_SHARED(uint64_t, full);
    psti_barrier_init(&full);
    psti_fence_barrier_init();
    return {&full, psti_dynamic_shared(kStageBytes), args.memory[blockIdx.x].byte};
}

static void load(const bench &b, uint32_t bytes)
{
    psti_bulk_load(b.stage, b.memory, bytes, b.barrier, psti_evict_first());
}

static void await(const bench &b)
{
    while (!psti_barrier_try_wait(b.barrier, 0))
        ;
}

/* ---- what no copy may be ---- */

template <uint32_t kAt, uint32_t kStageAt, uint32_t kBytes> static void load_at(const bench &b)
{
    psti_barrier_expect(b.barrier, kBytes);
    psti_bulk_load(b.stage + kStageAt, b.memory + kAt, kBytes, b.barrier, psti_evict_first());
}

template <uint32_t kAt, uint32_t kStageAt, uint32_t kBytes> static void store_at(const bench &b)
{
    psti_bulk_store(b.memory + kAt, b.stage + kStageAt, kBytes);
    psti_bulk_commit();
}

static void store_from_static(const bench &b)
{
    PSTI_SHARED(line, stage);
    psti_bulk_store(b.memory, stage.byte, kLineBytes);
}

static void too_many(const bench &b)
{
    psti_barrier_expect(b.barrier, 1000 * kLineBytes);
    for (uint32_t i = 0; i < 1000; i++)
        load(b, kLineBytes);
}

/* ---- dynamic shared memory ---- */

static void too_much(const bulk_args &args)
{
    if (threadIdx.x == 0)
        args.memory->byte[0] = *psti_dynamic_shared(1u << 20);
}

static void two_sizes(const bulk_args &)
{
    psti_dynamic_shared(kStageBytes << threadIdx.x % 2);
}

/* ---- barriers ---- */

static void expect_at_no_barrier(const bench &)
{
    PSTI_SHARED(uint64_t, raw);
    psti_barrier_expect(&raw, kLineBytes);
}

static void wait_at_no_barrier(const bench &)
{
    PSTI_SHARED(uint64_t, raw);
    psti_barrier_try_wait(&raw, 0);
}

static void load_at_no_barrier(const bench &b)
{
    PSTI_SHARED(uint64_t, raw);
    psti_bulk_load(b.stage, b.memory, kLineBytes, &raw, psti_evict_first());
    await(b);
}

static void second_arrival(const bench &b)
{
    psti_barrier_expect(b.barrier, kLineBytes);
    psti_barrier_expect(b.barrier, kLineBytes);
}

static void more_than_expected(const bench &b)
{
    psti_barrier_expect(b.barrier, kLineBytes / 2);
    load(b, kLineBytes);
    await(b);
}

static void less_than_expected(const bench &b)
{
    psti_barrier_expect(b.barrier, 2 * kLineBytes);
    load(b, kLineBytes);
    await(b);
}

/* ---- copies that nobody waits for ---- */

static void load_in_flight(const bench &b)
{
    psti_barrier_expect(b.barrier, kLineBytes);
    load(b, kLineBytes);
}

static void store_in_flight(const bench &b)
{
    store_at<0, 0, kLineBytes>(b);
}

static void store_only_read(const bench &b)
{
    store_at<0, 0, kLineBytes>(b);
    psti_bulk_wait_read<0>();
}

static void store_uncommitted(const bench &b)
{
    psti_bulk_store(b.memory, b.stage, kLineBytes);
    psti_bulk_wait_all();
}

/* What must not die, or the others would prove nothing. */
static void right_use(const bench &b)
{
    psti_barrier_expect(b.barrier, kLineBytes);
    load(b, kLineBytes);
    await(b);
    store_at<0, 0, kLineBytes>(b);
    psti_bulk_wait_all();
}

/* ---- what the sanitizers report ---- */

/* Blocks that nothing orders write the same memory. */
static void unguarded(const bulk_args &args)
{
    if (threadIdx.x != 0)
        return;
    bench b = set_up(args);
    b.memory = args.memory[0].byte;
    store_at<0, 0, kLineBytes>(b);
    psti_bulk_wait_all();
}

static void beyond_memory(const bulk_args &args)
{
    if (threadIdx.x != 0)
        return;
    bench b = set_up(args);
    b.memory = args.memory[SIMT_MAX_BLOCKS - 1].byte + 16;
    psti_barrier_expect(b.barrier, kLineBytes);
    load(b, kLineBytes);
    await(b);
}

/* ---- by name ---- */

/* By one thread of each block. */
template <void (*kBody)(const bench &)> static void single(const bulk_args &args)
{
    if (threadIdx.x == 0)
        kBody(set_up(args));
}

template <void (*kKernel)(const bulk_args &)> static void run()
{
    static line memory[SIMT_MAX_BLOCKS];
    simt_config config = {};
    config.residency = 1; /* one block, one line */
    config.spin_limit = 2000;
    for (config.seed = 1; config.seed < 9; config.seed++)
        simt_launch_kernel<bulk_args, kKernel>(&config, 4, SIMT_WARP, {memory});
}

int simt_run_bulk_scenario(const char *name)
{
    static const struct {
        const char *name;
        void (*run)();
    } scenarios[] = {
        {"bulk_right_use", run<single<right_use>>},
        {"bulk_load_from_8", run<single<load_at<8, 0, 16>>>},
        {"bulk_load_to_8", run<single<load_at<0, 8, 16>>>},
        {"bulk_load_24_bytes", run<single<load_at<0, 0, 24>>>},
        {"bulk_load_0_bytes", run<single<load_at<0, 0, 0>>>},
        {"bulk_load_beyond", run<single<load_at<0, kStageBytes, 16>>>},
        {"bulk_load_across", run<single<load_at<0, kStageBytes - 16, 32>>>},
        {"bulk_store_to_8", run<single<store_at<8, 0, 16>>>},
        {"bulk_store_from_8", run<single<store_at<0, 8, 16>>>},
        {"bulk_store_24_bytes", run<single<store_at<0, 0, 24>>>},
        {"bulk_store_0_bytes", run<single<store_at<0, 0, 0>>>},
        {"bulk_store_across", run<single<store_at<0, kStageBytes - 16, 32>>>},
        {"bulk_store_from_static", run<single<store_from_static>>},
        {"bulk_too_many", run<single<too_many>>},
        {"dynamic_too_much", run<too_much>},
        {"dynamic_two_sizes", run<two_sizes>},
        {"bulk_expect_at_no_barrier", run<single<expect_at_no_barrier>>},
        {"bulk_wait_at_no_barrier", run<single<wait_at_no_barrier>>},
        {"bulk_load_at_no_barrier", run<single<load_at_no_barrier>>},
        {"bulk_second_arrival", run<single<second_arrival>>},
        {"bulk_more_than_expected", run<single<more_than_expected>>},
        {"bulk_less_than_expected", run<single<less_than_expected>>},
        {"bulk_load_in_flight", run<single<load_in_flight>>},
        {"bulk_store_in_flight", run<single<store_in_flight>>},
        {"bulk_store_only_read", run<single<store_only_read>>},
        {"bulk_store_uncommitted", run<single<store_uncommitted>>},
        {"bulk_unguarded", run<unguarded>},
        {"bulk_beyond_memory", run<beyond_memory>},
    };
    for (const auto &scenario : scenarios) {
        if (strcmp(name, scenario.name) == 0) {
            scenario.run();
            return 1;
        }
    }
    return 0;
}
