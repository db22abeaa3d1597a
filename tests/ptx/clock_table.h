/* What the clock takes for granted of an architecture, read from architectures.txt, and what one
 * PTX instruction costs by that. */
#ifndef PSTI_TESTS_PTX_CLOCK_TABLE_H
#define PSTI_TESTS_PTX_CLOCK_TABLE_H

#include <cstdint>
#include <string>
#include <vector>

/* X(name): one figure each, named as in the file. */
#define CLOCK_FIGURES(X)        \
    X(clock_mhz)                \
    X(num_sms)                  \
    X(schedulers)               \
    X(dram_gb_per_s)            \
    X(max_threads_per_sm)       \
    X(max_blocks_per_sm)        \
    X(registers_per_sm)         \
    X(register_unit)            \
    X(shared_per_sm)            \
    X(shared_per_block_extra)   \
    X(alu)                      \
    X(float_latency)            \
    X(float_pipe)               \
    X(predicate)                \
    X(branch)                   \
    X(divide_32)                \
    X(divide_64)                \
    X(shuffle)                  \
    X(reduce)                   \
    X(constant)                 \
    X(constant_indexed)         \
    X(special_register)         \
    X(slots_none)               \
    X(slots_wide)               \
    X(slots_minmax_64)          \
    X(slots_multiply_64)        \
    X(slots_divide_32)          \
    X(slots_divide_64)          \
    X(slots_shuffle)            \
    X(slots_bulk)               \
    X(slots_call)               \
    X(predicated)               \
    X(shared)                   \
    X(shared_bytes_per_cycle)   \
    X(shared_atomic)            \
    X(l2)                       \
    X(dram)                     \
    X(l1_bytes_per_cycle)       \
    X(l2_read_bytes_per_cycle)  \
    X(l2_write_bytes_per_cycle) \
    X(atomic)                   \
    X(store_ack)                \
    X(membar_gpu)               \
    X(membar_sys)               \
    X(membar_cta)               \
    X(barrier)                  \
    X(sleep_unit_ns)            \
    X(bulk_issue)               \
    X(bulk_load)                \
    X(bulk_store_read)          \
    X(bulk_bytes_per_cycle)     \
    X(mbarrier_try_wait)        \
    X(mbarrier_other)           \
    X(mbarrier_wake)            \
    X(fence_async)

struct clock_table {
#define CLOCK_FIELD(name) uint32_t name;
    CLOCK_FIGURES(CLOCK_FIELD)
#undef CLOCK_FIELD
    double gigahertz() const
    {
        return clock_mhz / 1000.0;
    }
};

/* Ends the program with a message where the file lacks a figure, has one twice, or has one that
 * nobody reads. architecture: 80, 90 or 100. */
clock_table clock_read_table(const std::string &path, unsigned architecture);

/* What an instruction waits for besides its operands, and when its result is there. */
enum class clock_kind {
    compute, /* result after `latency` */
    param,   /* ld.param: where the address is a register, a load by index */
    load,    /* ld of global, shared, local or generic memory */
    store,
    atomic,    /* atom: has a result */
    reduction, /* red: has none */
    fence,
    barrier, /* bar.sync */
    shuffle,
    branch,
    sleep,
    bulk_load,
    bulk_store,
    bulk_commit,
    bulk_wait, /* cp.async.bulk.wait_group[.read] */
    mbarrier,  /* init, arrive */
    try_wait,
    end, /* ret, exit */
};

struct clock_cost {
    clock_kind kind = clock_kind::compute;
    uint32_t slots = 1;      /* of its scheduler; 0: the instruction is a name for a register */
    uint32_t latency = 0;    /* of what is not memory */
    uint32_t before = 0;     /* a membar in front of it (release), or the fence itself */
    bool is_float = false;   /* of the pipe for sums and products of float32 */
    bool acquires = false;   /* nothing behind it begins before its result is there */
    bool reads_only = false; /* bulk_wait: of shared memory */
};

/* mnemonic: of one instruction with its suffixes, as it stands in the PTX. An unknown one ends the
 * program. */
clock_cost clock_cost_of(const clock_table &table, const std::string &mnemonic);

#endif
