#include "tests/ptx/clock_case.h"

#include <pagestash/pagestash.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/core/stream.h"

#include "tests/ptx/clock_compile.h"
#include "tests/ptx/clock_device.h"

/* DRAM is shared with so few SMs that an SM gets all it can take. */
#define FEW_SMS 16u
#define WARP_THREADS 32u
#define TEAM_THREADS 256u

#define ONLY_LAST clock_case::only_last
#define BUDGET clock_case::budget
#define ALL_SMS clock_case::all_sms
#define SHORT clock_case::in_short
#define MIGRATES clock_case::migrates

const clock_case clock_cases[] = {
    /* name, what, flags, tensors, segments, row bytes, rows, live, offset, page bytes */
    {"live0", "nothing is live", SHORT, 1, 0, 4096, 256, 0, 0, 262144},
    {"tiles64", "64 tiles of one tensor", SHORT | MIGRATES, 1, 0, 4096, 256, 256, 0, 262144},
    {"tiles64_all_sms", "64 tiles, and DRAM shared with all SMs", ALL_SMS, 1, 0, 4096, 256, 256, 0,
     262144},
    {"tiles64_budget", "64 tiles under a budget of one SM", SHORT | BUDGET, 1, 0, 4096, 256, 256, 0,
     262144},
    {"live0_budget", "nothing live under a budget of one SM", BUDGET, 1, 0, 4096, 256, 0, 0,
     262144},
    {"pages256", "256 pages of one tile", MIGRATES, 1, 0, 4096, 1024, 1024, 0, 16384},
    {"pages1024", "1,024 pages of one tile", MIGRATES, 1, 0, 4096, 4096, 4096, 0, 16384},
    {"tensors64", "64 tensors, 16 tiles in the last", ONLY_LAST, 64, 0, 4096, 64, 64, 0, 262144},
    {"segments2", "2 segments of 32 tiles", 0, 1, 2, 4096, 128, 128, 0, 262144},
    {"segments64", "64 segments of 12,000 bytes", 0, 1, 64, 1200, 16, 10, 0, 262144},
    {"rows4", "16 tiles at an address that 4 divides", 0, 1, 0, 4096, 64, 64, 4, 262144},
    {"odd", "16 tiles at an odd address", 0, 1, 0, 4096, 64, 64, 1, 262144},
};
const uint32_t clock_num_cases = sizeof(clock_cases) / sizeof(clock_cases[0]);

namespace
{

void check(pst_status status, const char *what)
{
    if (status == PST_OK)
        return;
    fprintf(stderr, "clock: %s: %s\n", what, pst_last_message());
    exit(2);
}
#define CHECK(call) check(call, #call)

/* What runs while a move is timed. */
struct armed {
    bool on = false, ran = false;
    int traced = -1;
    const clock_table *table;
    const ptx_program *program;
    const clock_case *what;
    std::string kernel;
    clock_report report;
} timed;

clock_range range_of(const void *address, uint64_t bytes)
{
    return {(uint64_t)(uintptr_t)address, bytes};
}

/* The most registers that the bounds of the kernel leave to a thread: what it has is at most that. */
uint32_t registers_of(const clock_table &table, const ptx_kernel &kernel)
{
    if (kernel.max_registers)
        return kernel.max_registers;
    const uint32_t threads = kernel.max_threads * (kernel.min_blocks ? kernel.min_blocks : 1);
    const uint32_t most = table.registers_per_sm / threads;
    return most < 255 ? most / 8 * 8 : 255;
}

/* As psti_cuda_launch asks for it, on one SM. */
void size_launch(const psti_move_args &args, clock_launch *launch)
{
    const ptx_kernel &kernel = *launch->kernel;
    const bool ldg = args.backend == PST_BACKEND_LDG;
    launch->threads = args.backend == PST_BACKEND_SQUEEZE ? WARP_THREADS : TEAM_THREADS;
    if (ldg && args.num_sms && timed.kernel.find("migrate") == std::string::npos)
        launch->threads = kernel.max_threads; /* teams, where the kernel has them */
    launch->dynamic_bytes = args.backend == PST_BACKEND_BULK      ? 8 * PSTI_TILE_BYTES
                            : args.backend == PST_BACKEND_SQUEEZE ? PSTI_TILE_BYTES
                                                                  : 0;
    launch->dynamic_bytes += (launch->threads + TEAM_THREADS - 1) / TEAM_THREADS *
                             psti_segment_room(&args); /* a table for each team */
    launch->resident =
        clock_resident(*timed.table, launch->threads, registers_of(*timed.table, kernel),
                       kernel.shared_bytes + launch->dynamic_bytes);
    if (!ldg || launch->threads > TEAM_THREADS)
        launch->resident = 1;
    const uint64_t work = args.max_tiles ? args.max_tiles : 1;
    launch->num_blocks = (uint32_t)(work < launch->resident ? work : launch->resident);
}

void name_memory(const psti_move_args &args, clock_launch *launch, psti_op op)
{
    std::vector<clock_range> rows, pages[PSTI_TIERS];
    for (uint32_t t = 0; t < args.num_tensors; t++) {
        const psti_tensor &tensor = args.tensors[t];
        const psti_space &space = args.spaces[tensor.space];
        const uint64_t one = tensor.row_stride * (uint64_t)space.capacity;
        const uint64_t last = tensor.segment_stride * (space.num_segments - 1);
        if (tensor.base && one)
            rows.push_back(range_of(tensor.base, last + one));
    }
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        if (args.pool.max_pages[tier])
            pages[tier].push_back(
                range_of(args.pool.pages[tier],
                         (uint64_t)args.pool.max_pages[tier] << args.pool.page_shift));
    if (op == PSTI_OP_MIGRATE) {
        const bool up = (args.flags & PSTI_MOVE_PROMOTE) != 0;
        launch->sources = pages[up ? PSTI_TIER_HOST : PSTI_TIER_DEVICE];
        launch->targets = pages[up ? PSTI_TIER_DEVICE : PSTI_TIER_HOST];
        return;
    }
    launch->sources = op == PSTI_OP_STASH ? rows : pages[PSTI_TIER_DEVICE];
    launch->targets = op == PSTI_OP_STASH ? pages[PSTI_TIER_DEVICE] : rows;
}

void run_move(psti_op op, const void *opaque)
{
    if (!timed.on) {
        psti_host_runners.run[op](opaque);
        return;
    }
    psti_move_args args;
    const psti_move_args *given = (const psti_move_args *)opaque;
    memset(&args, 0, sizeof(args));
    memcpy(&args, given,
           offsetof(psti_move_args, tensors) + given->num_tensors * sizeof(psti_tensor));
    clock_launch launch;
    const ptx_kernel kernel = clock_compile(*timed.table, timed.program->kernel(timed.kernel));
    launch.kernel = &kernel;
    launch.args = &args;
    launch.traced = timed.traced;
    launch.active_sms = timed.what->flags & ALL_SMS ? timed.table->num_sms : FEW_SMS;
    size_launch(args, &launch);
    name_memory(args, &launch, op);
    timed.report = clock_run(*timed.table, launch);
    timed.ran = true;
}

void run_stash(const void *args)
{
    run_move(PSTI_OP_STASH, args);
}
void run_restore(const void *args)
{
    run_move(PSTI_OP_RESTORE, args);
}
void run_migrate(const void *args)
{
    run_move(PSTI_OP_MIGRATE, args);
}

/* Rows, counts and a group for a case. */
struct scene {
    pst_device *device = nullptr;
    pst_stream stream = nullptr;
    pst_group *group = nullptr;
    pst_pool *pool = nullptr;
    pst_ticket ticket;
    std::vector<void *> memory, bases;
    void *counts = nullptr, *zeros = nullptr;
    uint64_t *mismatches = nullptr;
    const void *count_of_space[2];
    pst_buffers buffers = PST_BUFFERS_INIT;
    uint64_t bytes = 0; /* of each tensor */
};

void make_rows(scene &s, const clock_case &what)
{
    const uint32_t segments = what.num_segments ? what.num_segments : 1;
    const std::vector<int32_t> live(segments, (int32_t)what.live);
    s.bytes = (uint64_t)segments * what.rows * what.row_bytes;
    CHECK(pst_device_alloc(s.device, segments * sizeof(int32_t), &s.counts));
    CHECK(pst_device_alloc(s.device, segments * sizeof(int32_t), &s.zeros));
    CHECK(pst_device_copy(s.device, s.counts, live.data(), segments * sizeof(int32_t), s.stream));
    CHECK(pst_device_fill(s.device, s.zeros, 0, segments * sizeof(int32_t), s.stream));
    for (uint32_t t = 0; t < what.num_tensors; t++) {
        void *at = nullptr;
        CHECK(pst_device_alloc(s.device, s.bytes + what.offset, &at));
        s.memory.push_back(at);
        s.bases.push_back((char *)at + what.offset);
    }
    s.count_of_space[0] = s.counts;
    s.count_of_space[1] = s.zeros;
    s.buffers.bases = s.bases.data();
    s.buffers.counts = s.count_of_space;
}

void make_group(scene &s, const clock_case &what)
{
    pst_row_space spaces[2];
    memset(spaces, 0, sizeof(spaces));
    for (pst_row_space &space : spaces) {
        space.kind = what.num_segments ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX;
        space.num_segments = what.num_segments;
        space.capacity = what.rows;
    }
    std::vector<pst_tensor> tensors(what.num_tensors);
    for (uint32_t t = 0; t < what.num_tensors; t++) {
        memset(&tensors[t], 0, sizeof(tensors[t]));
        tensors[t].row_bytes = what.row_bytes;
        tensors[t].space = (what.flags & ONLY_LAST) && t + 1 < what.num_tensors;
    }
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = what.flags & ONLY_LAST ? 2 : 1;
    config.tensors = tensors.data();
    config.num_tensors = what.num_tensors;
    CHECK(pst_group_create(&config, &s.group));
}

void make_pool(scene &s, const clock_case &what, bool concurrent, bool has_host)
{
    pst_group_usage usage;
    CHECK(pst_group_measure(s.group, nullptr, what.page_bytes, &usage));
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = what.page_bytes;
    config.num_pages = usage.pages + 4;
    config.num_host_pages = has_host ? usage.pages + 4 : 0;
    config.mode = concurrent ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    CHECK(pst_pool_create(s.device, &config, &s.pool));
    CHECK(pst_ticket_create(s.pool, s.group, &s.ticket));
}

void arm(bool on)
{
    timed.on = on;
}

void stash_and_restore(scene &s, const pst_launch_options &launch, clock_op op)
{
    const pst_pattern pattern = {1, 7, nullptr};
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    pst_migrate_options migrate = PST_MIGRATE_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    stash.launch = migrate.launch = restore.launch = launch;
    CHECK(pst_group_fill(s.device, s.group, &s.buffers, &pattern, s.stream));
    arm(op == clock_op::stash);
    CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, &stash, s.stream));
    arm(false);
    for (void *at : s.bases)
        CHECK(pst_device_fill(s.device, at, 0xee, s.bytes, s.stream));
    if (op == clock_op::migrate) {
        arm(true);
        CHECK(pst_ticket_demote(s.ticket, &migrate, s.stream));
        arm(false);
    }
    arm(op == clock_op::restore);
    CHECK(pst_ticket_restore(s.ticket, s.group, &s.buffers, &restore, s.stream));
    arm(false);
    CHECK(pst_device_fill(s.device, s.mismatches, 0, sizeof(uint64_t), s.stream));
    CHECK(pst_group_verify(s.device, s.group, &s.buffers, &pattern, 0xee, s.mismatches, s.stream));
    CHECK(pst_pool_check(s.pool, s.stream));
    CHECK(pst_pool_step(s.pool, s.stream));
    pst_pool_status status;
    CHECK(pst_pool_poll(s.pool, &status));
    if (*s.mismatches || status.num_faults || status.in_use[0] || status.in_use[1]) {
        fprintf(stderr, "clock: %s under the clock: %llu bytes differ, %u faults, first %s\n",
                timed.kernel.c_str(), (unsigned long long)*s.mismatches, status.num_faults,
                pst_fault_text((pst_fault)status.fault));
        exit(1);
    }
}

void close(scene &s)
{
    CHECK(pst_ticket_destroy(s.ticket));
    CHECK(pst_pool_destroy(s.pool));
    CHECK(pst_group_destroy(s.group));
    for (void *at : s.memory)
        CHECK(pst_device_free(s.device, at));
    CHECK(pst_device_free(s.device, s.counts));
    CHECK(pst_device_free(s.device, s.zeros));
    CHECK(pst_device_free(s.device, s.mismatches));
    CHECK(pst_stream_destroy(s.device, s.stream));
    CHECK(pst_device_close(s.device));
}

} /* namespace */

bool clock_time_case(const clock_table &table, const ptx_program &program, const clock_case &what,
                     clock_op op, const std::string &backend, bool concurrent, int traced,
                     clock_report *report_out)
{
    static psti_runners runners;
    static const char *const names[] = {"stash", "restore", "migrate"};
    /* a migration knows pages, and no rows; finding none is a fault */
    if (op == clock_op::migrate && !(what.flags & MIGRATES))
        return false;
    if ((what.flags & BUDGET) && backend != "ldg")
        return false; /* the others have one block an SM anyway */
    runners = psti_host_runners;
    runners.run[PSTI_OP_STASH] = run_stash;
    runners.run[PSTI_OP_RESTORE] = run_restore;
    runners.run[PSTI_OP_MIGRATE] = run_migrate;
    timed = armed();
    timed.table = &table;
    timed.program = &program;
    timed.what = &what;
    timed.traced = traced;
    timed.kernel = std::string(names[(int)op]) + "_" + backend + "_kernel";
    scene s;
    pst_launch_options launch;
    memset(&launch, 0, sizeof(launch));
    launch.backend = backend == "ldg"    ? PST_BACKEND_LDG
                     : backend == "bulk" ? PST_BACKEND_BULK
                                         : PST_BACKEND_SQUEEZE;
    launch.num_sms = what.flags & BUDGET ? 1 : 0;
    CHECK(psti_clock_device_open((int)table.num_sms, &runners, &s.device));
    CHECK(pst_stream_create(s.device, &s.stream));
    CHECK(pst_device_alloc(s.device, sizeof(uint64_t), (void **)&s.mismatches));
    make_rows(s, what);
    make_group(s, what);
    make_pool(s, what, concurrent, op == clock_op::migrate);
    stash_and_restore(s, launch, op);
    close(s);
    if (!timed.ran) {
        fprintf(stderr, "clock: no launch of %s\n", timed.kernel.c_str());
        exit(1);
    }
    *report_out = timed.report;
    return true;
}
