#include "tests/ptx/clock_timed.h"

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

namespace
{

struct armed {
    bool is_on = false, has_run = false;
    pst_device *device;
    const clock_setting *setting;
    clock_wanted wanted;
    clock_report report;
} timed;

/* One parameter block, with zeros where the caller's has nothing. */
struct argument_block {
    alignas(64) unsigned char bytes[4096] = {0};
    argument_block(psti_op op, const void *from)
    {
        if (op >= PSTI_NUM_MOVES) {
            memcpy(bytes, from, psti_op_args_bytes(op));
            return;
        }
        const psti_move_args *move = (const psti_move_args *)from;
        memcpy(bytes, from,
               offsetof(psti_move_args, tensors) + move->num_tensors * sizeof(psti_tensor));
        if (op >= PSTI_NUM_COPIES)
            memcpy(bytes + offsetof(psti_glu_args, glu), &((const psti_glu_args *)from)->glu,
                   sizeof(psti_glu));
    }
};

/* The most registers that the bounds of the kernel leave to a thread: what it has is at most that. */
uint32_t registers_of(const clock_table &table, const ptx_kernel &kernel)
{
    if (kernel.max_registers)
        return kernel.max_registers;
    const uint32_t threads = kernel.max_threads * (kernel.min_blocks ? kernel.min_blocks : 1);
    const uint32_t most = table.registers_per_sm / threads;
    return most < 255 ? most / 8 * 8 : 255;
}

void size_resident(clock_launch *launch)
{
    const clock_table &table = timed.setting->table;
    const ptx_kernel &kernel = *launch->kernel;
    launch->resident = clock_resident(table, launch->threads, registers_of(table, kernel),
                                      kernel.shared_bytes + launch->dynamic_bytes);
}

/* As psti_cuda_launch asks for a move, on one SM. */
void size_move(psti_op op, const psti_move_args &args, clock_launch *launch)
{
    const bool is_ldg = args.backend == PST_BACKEND_LDG;
    launch->threads = args.backend == PST_BACKEND_SQUEEZE ? WARP_THREADS : TEAM_THREADS;
    if (is_ldg && args.num_sms && op != PSTI_OP_MIGRATE)
        launch->threads = launch->kernel->max_threads; /* teams, where the kernel has them */
    launch->dynamic_bytes = args.backend == PST_BACKEND_BULK      ? 8 * PSTI_TILE_BYTES
                            : args.backend == PST_BACKEND_SQUEEZE ? PSTI_TILE_BYTES
                                                                  : 0;
    launch->dynamic_bytes += (launch->threads + TEAM_THREADS - 1) / TEAM_THREADS *
                             psti_segment_room(&args); /* a table for each team */
    size_resident(launch);
    if (!is_ldg || launch->threads > TEAM_THREADS)
        launch->resident = 1;
    const uint64_t work = args.max_tiles ? args.max_tiles : 1;
    launch->num_blocks = (uint32_t)(work < launch->resident ? work : launch->resident);
}

/* A grid has work for more SMs than one. */
void size_other(psti_op op, clock_launch *launch)
{
    const bool is_block = op == PSTI_OP_STEP || op == PSTI_OP_CHECK || op == PSTI_OP_EXPECT;
    launch->threads = TEAM_THREADS;
    size_resident(launch);
    launch->num_blocks = is_block ? 1 : launch->resident;
}

void add(std::vector<clock_range> *to, const void *address, uint64_t bytes)
{
    if (address && bytes)
        to->push_back({(uint64_t)(uintptr_t)address, bytes});
}

void add_tensor(std::vector<clock_range> *to, const psti_tensor &tensor, const psti_space &space)
{
    const uint64_t one = tensor.row_stride * (uint64_t)space.capacity;
    const uint64_t last = tensor.segment_stride * (space.num_segments - 1);
    if (one)
        add(to, tensor.base, last + one);
}

void add_tensors(std::vector<clock_range> *to, const psti_tensor *tensors, uint32_t num,
                 const psti_space *spaces)
{
    for (uint32_t t = 0; t < num; t++)
        add_tensor(to, tensors[t], spaces[tensors[t].space]);
}

void add_pages(std::vector<clock_range> *to, const psti_pool_view &pool, uint32_t tier)
{
    add(to, pool.pages[tier], (uint64_t)pool.max_pages[tier] << pool.page_shift);
}

void name_move(psti_op op, const psti_move_args &args, clock_launch *launch)
{
    std::vector<clock_range> rows, pages[PSTI_TIERS];
    add_tensors(&rows, args.tensors, args.num_tensors, args.spaces);
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        add_pages(&pages[tier], args.pool, tier);
    if (op == PSTI_OP_MIGRATE) {
        const bool up = (args.flags & PSTI_MOVE_PROMOTE) != 0;
        launch->sources = pages[up ? PSTI_TIER_HOST : PSTI_TIER_DEVICE];
        launch->targets = pages[up ? PSTI_TIER_DEVICE : PSTI_TIER_HOST];
        return;
    }
    const bool stashes = op == PSTI_OP_STASH || op == PSTI_OP_GLU_FORWARD;
    launch->sources = stashes ? rows : pages[PSTI_TIER_DEVICE];
    launch->targets = stashes ? pages[PSTI_TIER_DEVICE] : rows;
}

void add_matrix(std::vector<clock_range> *to, const psti_matrix &rows, const psti_space &space,
                uint64_t row_bytes)
{
    psti_tensor tensor;
    memset(&tensor, 0, sizeof(tensor));
    tensor.base = rows.base;
    tensor.row_bytes = row_bytes;
    tensor.row_stride = rows.row_stride;
    tensor.segment_stride = rows.segment_stride;
    add_tensor(to, tensor, space);
}

/* A tile is one of the input, in pages or where it stands for them, or of its gradient. */
void name_glu(psti_op op, const psti_glu_args &args, clock_launch *launch)
{
    const psti_glu &glu = args.glu;
    const psti_tensor &input = args.move.tensors[glu.tensor];
    const psti_space &space = args.move.spaces[input.space];
    name_move(op, args.move, launch);
    if (!glu.has_ticket && op == PSTI_OP_GLU_BACKWARD)
        launch->sources.swap(launch->targets);
    add_matrix(&launch->beside, glu.gradient, space, input.row_bytes / 2);
    add_matrix(&launch->targets, glu.input_gradient, space, input.row_bytes);
    add_matrix(&launch->beside, glu.output, space, input.row_bytes / 2);
    add_matrix(&launch->beside, glu.probability, space, sizeof(float));
    add_matrix(&launch->beside, glu.probability_gradient, space, sizeof(float));
}

/* Up to the last element of the last expert. */
void add_factor(std::vector<clock_range> *to, const psti_product_matrix &m,
                const psti_product_args &args, uint32_t rows, uint32_t columns, uint64_t size)
{
    const uint64_t last = (args.num_experts - 1) * m.expert_stride + (rows - 1) * m.row_stride +
                          (columns - 1) * m.column_stride;
    add(to, m.base, last + size);
}

void name_product(const psti_product_args &args, clock_launch *launch)
{
    const uint64_t size = args.dtype == PST_DTYPE_FP32 ? 4 : 2;
    const uint64_t size_of_d = args.of_d == PST_DTYPE_FP32 ? 4 : 2;
    add_factor(&launch->sources, args.a, args, args.m, args.k, size);
    add_factor(&launch->sources, args.b, args, args.k, args.n, size);
    add_factor(&launch->beside, args.c, args, args.m, args.n, size_of_d);
    add_factor(&launch->beside, args.d, args, args.m, args.n, size_of_d);
}

void name_memory(psti_op op, const void *args, clock_launch *launch)
{
    const psti_pattern_args *pattern = (const psti_pattern_args *)args;
    const psti_control_args *control = (const psti_control_args *)args;
    if (op < PSTI_NUM_COPIES)
        name_move(op, *(const psti_move_args *)args, launch);
    else if (op < PSTI_NUM_MOVES)
        name_glu(op, *(const psti_glu_args *)args, launch);
    else if (op == PSTI_OP_PRODUCT)
        name_product(*(const psti_product_args *)args, launch);
    else if (op == PSTI_OP_FILL || op == PSTI_OP_VERIFY)
        add_tensors(op == PSTI_OP_FILL ? &launch->targets : &launch->sources, pattern->tensors,
                    pattern->num_tensors, pattern->spaces);
    else if (op == PSTI_OP_RESET || op == PSTI_OP_RESIZE) /* which may clear pages */
        add_pages(&launch->targets, control->pool, PSTI_TIER_DEVICE);
}

void run(psti_op op, const void *opaque)
{
    if (!timed.is_on || op != timed.wanted.op) {
        psti_host_runners.run[op](opaque);
        return;
    }
    const clock_setting &setting = *timed.setting;
    const argument_block args(op, opaque);
    const ptx_kernel kernel =
        clock_compile(setting.table, setting.program.kernel(timed.wanted.kernel));
    clock_launch launch;
    launch.kernel = &kernel;
    launch.args = args.bytes;
    launch.traced = setting.traced;
    launch.active_sms = timed.wanted.is_all_sms ? setting.table.num_sms : FEW_SMS;
    if (op < PSTI_NUM_MOVES)
        size_move(op, *(const psti_move_args *)args.bytes, &launch);
    else
        size_other(op, &launch);
    name_memory(op, args.bytes, &launch);
    timed.report = clock_run(setting.table, launch);
    if (op < PSTI_NUM_MOVES)
        timed.report.picked = psti_clock_picked(timed.device, (const psti_move_args *)args.bytes);
    timed.has_run = true;
}

template <psti_op kOp> void run_op(const void *args)
{
    run(kOp, args);
}

const psti_runners runners = {{
#define RUNNER(NAME, name, args_type) run_op<PSTI_OP_##NAME>,
    PSTI_OP_LIST(RUNNER)
#undef RUNNER
}};

} /* namespace */

void clock_check(pst_status status, const char *what)
{
    if (status == PST_OK)
        return;
    fprintf(stderr, "clock: %s: %s\n", what, pst_last_message());
    exit(2);
}

pst_device *clock_open(const clock_setting &setting, const clock_wanted &wanted)
{
    pst_device *device = nullptr;
    timed = armed();
    timed.setting = &setting;
    timed.wanted = wanted;
    CLOCK_CHECK(psti_clock_device_open((int)setting.table.num_sms,
                                       setting.program.architecture >= 90, &runners, &device));
    timed.device = device;
    return device;
}

void clock_arm(bool on)
{
    timed.is_on = on;
}

clock_report clock_close(pst_device *device)
{
    CLOCK_CHECK(pst_device_close(device));
    if (!timed.has_run) {
        fprintf(stderr, "clock: no launch of %s in %s\n", timed.wanted.kernel,
                timed.wanted.summary);
        exit(1);
    }
    return timed.report;
}
