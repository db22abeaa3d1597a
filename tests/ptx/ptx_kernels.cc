/* Launches of the library's operations from PTX, with the grids of kernels/cuda/launch.cu. */
#include "tests/ptx/ptx_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/core/stream.h"
#include "tests/ptx/ptx_run.h"

#define WARP_THREADS 32u
#define TEAM_THREADS 256u /* PSTI_MAX_THREADS of kernels/cuda */

namespace
{

class allocations : public ptx_memory
{
  public:
    void set(uint64_t address, uint64_t bytes)
    {
        low = high = 0;
        if (bytes)
            ranges[address] = address + bytes;
        else
            ranges.erase(address);
    }
    bool holds(uint64_t address, uint64_t bytes) const override
    {
        if (address >= low && address + bytes <= high)
            return true;
        auto at = ranges.upper_bound(address);
        if (at == ranges.begin())
            return false;
        --at;
        if (address + bytes > at->second)
            return false;
        low = at->first;
        high = at->second;
        return true;
    }

  private:
    std::map<uint64_t, uint64_t> ranges; /* first byte, end */
    mutable uint64_t low = 0, high = 0;  /* of the last answer */
};

struct ptx_file {
    unsigned architecture;
    bool is_there = false;
    ptx_program program;
    psti_runners runners;
    std::map<const ptx_kernel *, std::vector<unsigned char>> reached;
};

std::mutex mutex; /* of everything here: one launch at a time */
allocations memory;
uint64_t num_launches;
ptx_options configured;
ptx_file files[] = {{80, false, {}, {}, {}}, {90, false, {}, {}, {}}, {100, false, {}, {}, {}}};

uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, nullptr, 0) : otherwise;
}

/* Lines of the PTX that the process executed, as "90 1234", to the file that PSTI_PTX_REACHED
 * names. */
void write_reached()
{
    FILE *to = fopen(getenv("PSTI_PTX_REACHED"), "a");
    if (!to)
        ptx_fail("cannot write PSTI_PTX_REACHED");
    for (const ptx_file &file : files)
        for (const auto &of : file.reached)
            for (size_t n = 0; n < of.second.size(); n++)
                if (of.second[n])
                    fprintf(to, "%u %u\n", file.architecture, of.first->code[n].line);
    fclose(to);
}

const char *const names[PSTI_NUM_OPS] = {
#define NAME_OF(NAME, name, args_type) #name,
    PSTI_OP_LIST(NAME_OF)
#undef NAME_OF
};

std::string name_of(psti_op op, const psti_move_args *move)
{
    static const char *const backends[] = {"", "_ldg", "_bulk", "_squeeze"};
    return std::string(names[op]) + backends[move ? move->backend : 0] + "_kernel";
}

/* A ring of stages: large_ring and small_ring of kernels/cuda/paging/bulk.cuh. */
uint32_t ring_bytes(const psti_move_args *move)
{
    if (!move || move->backend == PST_BACKEND_LDG)
        return 0;
    return move->backend == PST_BACKEND_BULK ? 8 * PSTI_TILE_BYTES : 4 * (PSTI_TILE_BYTES / 4);
}

/* As work_of in launch.cu where it can be small; grids are small here anyway. */
uint64_t work_of(psti_op op, const psti_move_args *move)
{
    if (move)
        return move->max_tiles;
    return op == PSTI_OP_STEP || op == PSTI_OP_CHECK || op == PSTI_OP_EXPECT ? 1 : UINT64_MAX;
}

void shape(psti_op op, const psti_move_args *move, ptx_launch *launch)
{
    const uint32_t most = configured.max_blocks ? configured.max_blocks : 3;
    uint64_t blocks = move && move->num_sms ? move->num_sms : PTX_NUM_SMS * 2;
    blocks = std::min<uint64_t>(std::min<uint64_t>(blocks, most), work_of(op, move));
    launch->num_blocks = blocks ? (uint32_t)blocks : 1;
    const bool is_small = move && move->backend == PST_BACKEND_SQUEEZE;
    const uint32_t team = is_small ? WARP_THREADS : TEAM_THREADS;
    const bool has_teams =
        move && move->num_sms && move->backend == PST_BACKEND_LDG && move->max_tiles > 1;
    uint32_t threads = team; /* kernels count on it */
    launch->dynamic_bytes = ring_bytes(move);
    if (has_teams)
        threads = launch->kernel->max_threads;
    if (move)
        launch->dynamic_bytes += (has_teams ? threads / team : 1) * psti_segment_room(move);
    launch->threads = threads;
}

void run(ptx_file &file, psti_op op, const void *opaque)
{
    const std::lock_guard<std::mutex> hold(mutex);
    const psti_move_args *move =
        op < PSTI_NUM_MOVES ? static_cast<const psti_move_args *>(opaque) : nullptr;
    ptx_launch launch;
    launch.kernel = &file.program.kernel(name_of(op, move));
    shape(op, move, &launch);
    launch.resident = configured.resident ? configured.resident : 2;
    launch.args = opaque;
    launch.args_bytes = psti_op_args_bytes(op);
    launch.seed = (configured.seed ? configured.seed : number("PSTI_PTX_SEED", 1)) + num_launches++;
    launch.memory = &memory;
    launch.limit = number("PSTI_PTX_LIMIT", launch.limit);
    static const bool notes = getenv("PSTI_PTX_REACHED") && atexit(write_reached) == 0;
    if (notes) {
        std::vector<unsigned char> &reached = file.reached[launch.kernel];
        reached.resize(launch.kernel->code.size());
        launch.reached = reached.data();
    }
    ptx_run(launch);
}

template <int kFile, psti_op kOp> void run_op(const void *args)
{
    run(files[kFile], kOp, args);
}

template <int kFile> void fill(psti_runners *runners)
{
#define RUNNER(NAME, name, args_type) runners->run[PSTI_OP_##NAME] = run_op<kFile, PSTI_OP_##NAME>;
    PSTI_OP_LIST(RUNNER)
#undef RUNNER
}

} /* namespace */

const psti_runners *ptx_runners_of(unsigned architecture)
{
    const std::lock_guard<std::mutex> hold(mutex);
    for (ptx_file &file : files) {
        if (file.architecture != architecture)
            continue;
        const char *folder = getenv("PSTI_PTX_DIR");
        const std::string path = std::string(folder ? folder : PSTI_PTX_BUILT) + "/kernels-" +
                                 std::to_string(architecture) + ".ptx";
        FILE *there = fopen(path.c_str(), "r");
        if (!there)
            return nullptr;
        fclose(there);
        if (!file.is_there) {
            file.program = ptx_read(path);
            fill<0>(&files[0].runners);
            fill<1>(&files[1].runners);
            fill<2>(&files[2].runners);
            file.is_there = true;
        }
        return &file.runners;
    }
    return nullptr;
}

void ptx_memory_set(const void *address, uint64_t bytes)
{
    const std::lock_guard<std::mutex> hold(mutex);
    memory.set((uint64_t)(uintptr_t)address, bytes);
}

void psti_ptx_configure(const ptx_options *options)
{
    const std::lock_guard<std::mutex> hold(mutex);
    configured = options ? *options : ptx_options();
    num_launches = 0;
}
