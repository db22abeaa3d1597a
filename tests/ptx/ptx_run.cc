#include "tests/ptx/ptx_run.h"

#include <algorithm>
#include <cstddef>
#include <memory>

namespace
{

/* splitmix64 */
struct random_numbers {
    uint64_t state;
    uint32_t below(uint32_t bound)
    {
        uint64_t z = state += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        return (uint32_t)(((z >> 32) * bound) >> 32);
    }
};

class machine
{
  public:
    explicit machine(const ptx_launch &what)
        : launch(what), random{what.seed}, order(what.num_blocks)
    {
        checks.memory = launch.memory;
        checks.args_bytes = launch.args_bytes;
        checks.seed = launch.seed;
        for (uint32_t n = 0; n < launch.num_blocks; n++)
            order[n] = n;
        for (uint32_t n = launch.num_blocks; n > 1; n--)
            std::swap(order[n - 1], order[random.below(n)]);
        eagerness = random.below(4);
    }

    uint64_t run()
    {
        while (next < order.size() || !blocks.empty()) {
            while (blocks.size() < launch.resident && next < order.size())
                start();
            const size_t n = random.below((uint32_t)blocks.size());
            ptx_block &block = *blocks[n];
            turn(block, block.warps[random.below((uint32_t)block.warps.size())]);
            if (block.live == 0) {
                ptx_check_end(block);
                blocks.erase(blocks.begin() + (std::ptrdiff_t)n);
                since_end = 0;
            } else if (since_end > launch.limit) {
                fail("a deadlock: no block ended in " + std::to_string(launch.limit) + " steps");
            }
        }
        return steps;
    }

  private:
    [[noreturn]] void fail(const std::string &what)
    {
        std::string where;
        for (const auto &block : blocks)
            for (const ptx_warp &warp : block->warps)
                for (uint32_t lane = 0; lane < PTX_LANES && where.size() < 400; lane++)
                    if (warp.alive >> lane & 1 && (lane == 0 || warp.pc[lane] != warp.pc[lane - 1]))
                        where += "; block " + std::to_string(block->id) + " thread " +
                                 std::to_string(warp.number * PTX_LANES + lane) + " at line " +
                                 std::to_string(launch.kernel->code[warp.pc[lane]].line);
        ptx_fail(what + " (" + launch.kernel->name + ", seed " + std::to_string(launch.seed) + ")" +
                 where);
    }

    void start()
    {
        blocks.push_back(std::make_unique<ptx_block>());
        ptx_start(*blocks.back(), *launch.kernel, order[next++], launch.num_blocks, launch.threads,
                  launch.dynamic_bytes, launch.args, &checks);
    }

    bool anybody_can_go() const
    {
        for (const auto &block : blocks)
            for (const ptx_warp &warp : block->warps)
                if (warp.alive & ~warp.waiting)
                    return true;
        return false;
    }

    /* Some instructions of one warp; all its lanes mostly, now and then only those that are
     * elsewhere. */
    void turn(ptx_block &block, ptx_warp &warp)
    {
        progress(block);
        if ((warp.alive & ~warp.waiting) == 0) {
            if (++idle % 4096 == 0 && !anybody_can_go())
                fail("a deadlock: everybody waits");
            return;
        }
        idle = 0;
        for (uint32_t left = 1 + random.below(96); left > 0; left--) {
            const uint32_t ready = warp.alive & ~warp.waiting;
            if (ready == 0)
                return;
            uint32_t pc, group = ptx_next(*block.kernel, warp, &pc);
            if (group == 0)
                group = others(warp, ready, &pc);
            if (group != ready && random.below(8) == 0)
                group = others(warp, ready & ~group, &pc);
            if (block.kernel->code[pc].op == ptx_op::bulk_wait)
                end_copies(block, warp, group, block.kernel->code[pc]);
            ptx_execute_group(block, warp, group, pc, &step);
            if (launch.reached && step.active)
                launch.reached[pc] = 1;
            steps++;
            since_end++;
            if (warp.gave_way)
                return;
        }
    }

    uint32_t others(const ptx_warp &warp, uint32_t lanes, uint32_t *pc)
    {
        uint32_t skip = random.below((uint32_t)__builtin_popcount(lanes)), group = 0;
        for (uint32_t left = lanes; skip > 0; skip--)
            lanes = left &= left - 1;
        const uint32_t first = (uint32_t)__builtin_ctz(lanes);
        *pc = warp.pc[first];
        const uint32_t ready = warp.alive & ~warp.waiting;
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            if (ready >> lane & 1 && warp.pc[lane] == *pc &&
                warp.returns[lane].size() == warp.returns[first].size())
                group |= 1u << lane;
        return group;
    }

    void end_copies(ptx_block &block, const ptx_warp &warp, uint32_t group,
                    const ptx_instruction &i)
    {
        for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
            if (!(group >> lane & 1))
                continue;
            const uint32_t thread = warp.number * PTX_LANES + lane;
            const uint32_t pending = (uint32_t)ptx_value(warp, lane, i.from[0], 32);
            for (;;) {
                const std::vector<size_t> left = ptx_must_end(block, thread, pending, i.reads_only);
                if (left.empty())
                    break;
                advance_store(block, left[random.below((uint32_t)left.size())]);
            }
        }
    }

    void advance_store(ptx_block &block, size_t n)
    {
        if (block.stores[n].is_read)
            ptx_write_global(block, n);
        else
            ptx_read_shared(block, n);
    }

    /* Copies in any order, late: of a lazy launch only one now and then. */
    void progress(ptx_block &block)
    {
        static const uint32_t one_in[] = {48, 12, 3, 1};
        if (!block.loads.empty() && random.below(one_in[eagerness]) == 0)
            ptx_land(block, random.below((uint32_t)block.loads.size()));
        if (!block.stores.empty() && random.below(one_in[eagerness]) == 0)
            advance_store(block, random.below((uint32_t)block.stores.size()));
    }

    const ptx_launch &launch;
    random_numbers random;
    std::vector<uint32_t> order;
    size_t next = 0;
    std::vector<std::unique_ptr<ptx_block>> blocks;
    ptx_checks checks;
    ptx_step step;
    uint32_t eagerness, idle = 0;
    uint64_t steps = 0, since_end = 0;
};

} /* namespace */

uint64_t ptx_run(const ptx_launch &launch)
{
    return machine(launch).run();
}
