#include <cstddef>
#include <cstring>

#include "tests/ptx/ptx_lane.h"

namespace
{

using namespace ptx_lanes;

/* Lets go whom barrier `id` holds, if all it waits for are there; count 0: all that live. */
void try_barrier(ptx_block &block, uint32_t id, uint32_t count, ptx_step *step)
{
    uint32_t there = 0;
    for (const ptx_warp &warp : block.warps)
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            there += warp.waiting >> lane & 1 && warp.waits_for[lane] == id;
    if (there == 0 || there < (count ? count : block.live))
        return;
    for (ptx_warp &warp : block.warps) {
        const uint32_t before = warp.waiting;
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            if (warp.waiting >> lane & 1 && warp.waits_for[lane] == id)
                warp.waiting &= ~(1u << lane);
        if (before == warp.waiting)
            continue;
        warp.meetings++;
        step->released.push_back(warp.number);
    }
}

void wait_at_barrier(ptx_block &block, ptx_warp &warp, const ptx_instruction &i, ptx_step *step)
{
    uint32_t id = 0, count = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (step->active >> lane & 1) {
            id = (uint32_t)ptx_value(warp, lane, i.from[0], 32);
            count = i.from.size() > 1 ? (uint32_t)ptx_value(warp, lane, i.from[1], 32) : 0;
            warp.waits_for[lane] = id;
        }
    warp.waiting |= step->active;
    try_barrier(block, id, count, step);
}

/* Lanes that wait at this instruction come in with those that reach it; the last one lets all
 * go. Returns those that go. */
uint32_t meet(ptx_block &block, ptx_warp &warp, const ptx_instruction &i, uint32_t pc,
              uint32_t active)
{
    uint32_t wanted = 0, here = active;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (warp.waiting >> lane & 1 && warp.waits_for[lane] == (PTX_AT_SHUFFLE | pc))
            here |= 1u << lane;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (here >> lane & 1)
            wanted |= (uint32_t)ptx_value(warp, lane, i.from.back(), 32);
    if (wanted & ~warp.alive || here & ~wanted)
        ptx_fail("a warp's operation without all its lanes: " + described(block, i));
    if (wanted == here) {
        warp.waiting &= ~here;
        return here;
    }
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (active >> lane & 1)
            warp.waits_for[lane] = PTX_AT_SHUFFLE | pc;
    warp.waiting |= active;
    return 0;
}

void set_lane(uint32_t *lanes, uint32_t lane, bool to)
{
    *lanes = (*lanes & ~(1u << lane)) | (uint32_t)to << lane;
}

void shuffle(const ptx_block &block, ptx_warp &warp, const ptx_instruction &i, uint32_t here)
{
    u64 old[PTX_LANES];
    const uint32_t defined =
        block.checks && i.from[0].is_register ? warp.defined[i.from[0].reg] : UINT32_MAX;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        old[lane] = ptx_value(warp, lane, i.from[0], 32);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        if (!(here >> lane & 1))
            continue;
        const uint32_t by = (uint32_t)ptx_value(warp, lane, i.from[1], 32);
        const uint32_t from = i.shuffle == ptx_shuffle::up     ? lane - by
                              : i.shuffle == ptx_shuffle::bfly ? lane ^ by
                                                               : by % PTX_LANES;
        const bool valid = from < PTX_LANES;
        const uint32_t source = valid ? from : lane;
        if (!(here >> source & 1))
            ptx_fail("a shuffle from a lane that is not in it: " + described(block, i));
        warp.registers[i.to[0].reg * PTX_LANES + lane] = old[source];
        if (block.checks && i.from[0].is_register)
            set_lane(&warp.defined[i.to[0].reg], lane, defined >> source & 1);
        if (i.to.size() > 1)
            warp.registers[i.to[1].reg * PTX_LANES + lane] = valid;
    }
}

void vote(ptx_warp &warp, const ptx_instruction &i, uint32_t here)
{
    uint32_t yes = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (here >> lane & 1)
            yes |= (uint32_t)ptx_value(warp, lane, i.from[0], 1) << lane;
    const u64 result = i.op == ptx_op::vote_any   ? yes != 0
                       : i.op == ptx_op::vote_all ? yes == here
                                                  : yes;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (here >> lane & 1)
            warp.registers[i.to[0].reg * PTX_LANES + lane] = result;
}

void reduce(ptx_warp &warp, const ptx_instruction &i, uint32_t here)
{
    uint32_t sum = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (here >> lane & 1)
            sum += (uint32_t)ptx_value(warp, lane, i.from[0], 32);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (here >> lane & 1)
            warp.registers[i.to[0].reg * PTX_LANES + lane] = sum;
}

void run_together(ptx_block &block, ptx_warp &warp, const ptx_instruction &i, uint32_t pc,
                  ptx_step *step)
{
    step->active = meet(block, warp, i, pc, step->active);
    if (block.checks)
        for (const ptx_operand &o : i.to)
            warp.defined[o.reg] |= step->active;
    if (i.op == ptx_op::shfl)
        shuffle(block, warp, i, step->active);
    else if (i.op == ptx_op::redux_add)
        reduce(warp, i, step->active);
    else
        vote(warp, i, step->active);
}

void end(ptx_block &block, ptx_warp &warp, uint32_t active, ptx_step *step)
{
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        if (!(active >> lane & 1))
            continue;
        if (!warp.returns[lane].empty()) {
            warp.pc[lane] = warp.returns[lane].back();
            warp.returns[lane].pop_back();
            warp.num_calls--;
            continue;
        }
        warp.alive &= ~(1u << lane);
        block.live--;
    }
    try_barrier(block, 0, 0, step);
}

uint32_t defined_of(const ptx_warp &warp, const ptx_operand &o)
{
    return o.is_register ? warp.defined[o.reg] : UINT32_MAX;
}

/* Whether what it does with its operands is seen outside their registers and shared memory. */
bool decides(const ptx_instruction &i)
{
    switch (i.op) {
    case ptx_op::st:
        return i.space != ptx_space::shared;
    case ptx_op::atom_cas:
    case ptx_op::atom_add:
    case ptx_op::red_or:
    case ptx_op::red_add:
    case ptx_op::bar_sync:
    case ptx_op::bar_warp:
    case ptx_op::vote_ballot:
    case ptx_op::vote_any:
    case ptx_op::vote_all:
    case ptx_op::redux_add:
    case ptx_op::atom_exch:
    case ptx_op::atom_or:
    case ptx_op::mbarrier_init:
    case ptx_op::mbarrier_expect:
    case ptx_op::mbarrier_try_wait:
    case ptx_op::bulk_load:
    case ptx_op::bulk_store:
    case ptx_op::bulk_wait:
        return true;
    default:
        return false;
    }
}

void need_defined(const ptx_block &block, const ptx_warp &warp, const ptx_instruction &i,
                  uint32_t active)
{
    uint32_t missing = i.has_address ? active & ~defined_of(warp, i.base) : 0;
    if (decides(i))
        for (const ptx_operand &o : i.from)
            missing |= active & ~defined_of(warp, o);
    if (missing)
        ptx_fail("depends on what nobody wrote, block " + std::to_string(block.id) + " thread " +
                 std::to_string(warp.number * PTX_LANES + (uint32_t)__builtin_ctz(missing)) + ": " +
                 described(block, i));
}

/* Lanes in which a value is that of its operands' registers. */
uint32_t nonzero(const ptx_warp &warp, const ptx_operand &o)
{
    uint32_t found = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        found |= (uint32_t)(ptx_value(warp, lane, o, 1) != 0) << lane;
    return found;
}

/* Before it is executed. */
void define(ptx_warp &warp, const ptx_instruction &i, uint32_t active)
{
    uint32_t defined = UINT32_MAX;
    if (i.op != ptx_op::ld && !decides(i))
        for (const ptx_operand &o : i.from)
            defined &= defined_of(warp, o);
    if ((active & ~defined) && i.op == ptx_op::selp) {
        const uint32_t first = nonzero(warp, i.from[2]);
        defined = defined_of(warp, i.from[2]) &
                  ((first & defined_of(warp, i.from[0])) | (~first & defined_of(warp, i.from[1])));
    } else if ((active & ~defined) && i.bits == 1 &&
               (i.op == ptx_op::and_ || i.op == ptx_op::or_)) {
        /* one operand may decide alone */
        for (const ptx_operand &o : i.from) {
            const uint32_t yes = nonzero(warp, o);
            defined |= defined_of(warp, o) & (i.op == ptx_op::or_ ? yes : ~yes);
        }
    }
    for (const ptx_operand &o : i.to)
        warp.defined[o.reg] = (warp.defined[o.reg] & ~active) | (defined & active);
    warp.defined[ptx_sink] = UINT32_MAX;
}

} /* namespace */

u64 ptx_value(const ptx_warp &warp, uint32_t lane, const ptx_operand &operand, uint32_t bits)
{
    return cut(operand.is_register ? warp.registers[operand.reg * PTX_LANES + lane] : operand.value,
               bits);
}

void ptx_start(ptx_block &block, const ptx_kernel &kernel, uint32_t id, uint32_t num_blocks,
               uint32_t num_threads, uint32_t dynamic_bytes, const void *args,
               const ptx_checks *checks)
{
    block.kernel = &kernel;
    block.id = id;
    block.num_threads = block.live = num_threads;
    block.checks = checks;
    block.args = (u64)(uintptr_t)args;
    if (checks) {
        block.written.assign(kernel.shared_bytes + dynamic_bytes, 0);
        block.stored.assign(kernel.shared_bytes + dynamic_bytes, {});
    }
    block.shared.assign(kernel.shared_bytes + dynamic_bytes, 0xa5);
    block.warps.resize((num_threads + PTX_LANES - 1) / PTX_LANES);
    for (uint32_t w = 0; w < block.warps.size(); w++) {
        ptx_warp &warp = block.warps[w];
        warp.number = w;
        warp.registers.assign((size_t)kernel.num_registers * PTX_LANES, 0xdeadbeefdeadbeefull);
        if (checks) {
            warp.defined.assign(kernel.num_registers, 0);
            for (uint32_t r = 0; r < ptx_argument; r++)
                warp.defined[r] = UINT32_MAX;
        }
        for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
            const uint32_t thread = w * PTX_LANES + lane;
            u64 *r = &warp.registers[lane];
            warp.pc[lane] = 0;
            warp.alive |= (thread < num_threads ? 1u : 0u) << lane;
            r[ptx_tid * PTX_LANES] = thread;
            r[ptx_ntid * PTX_LANES] = num_threads;
            r[ptx_ctaid * PTX_LANES] = id;
            r[ptx_nctaid * PTX_LANES] = num_blocks;
            r[ptx_param * PTX_LANES] = (u64)(uintptr_t)args;
        }
    }
}

/* Whether all lanes are there that this instruction wants together. */
static bool is_complete(const ptx_kernel &kernel, const ptx_warp &warp, uint32_t pc, uint32_t group)
{
    const ptx_instruction &i = kernel.code[pc];
    const ptx_operand *mask = nullptr;
    if (i.op == ptx_op::shfl)
        mask = &i.from[3];
    else if (ptx_is_together(i.op))
        mask = &i.from[1];
    else if (i.op == ptx_op::bar_warp)
        mask = &i.from[0];
    if (!mask)
        return true;
    const uint32_t lane = (uint32_t)__builtin_ctz(group);
    return ((uint32_t)ptx_value(warp, lane, *mask, 32) & warp.alive & ~group) == 0;
}

uint32_t ptx_next(const ptx_kernel &kernel, const ptx_warp &warp, uint32_t *pc_out)
{
    uint32_t ready = warp.alive & ~warp.waiting;
    if (ready && warp.num_calls == 0) { /* mostly all are at one place */
        const uint32_t pc = warp.pc[__builtin_ctz(ready)];
        uint32_t there = 0;
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            there |= (uint32_t)(warp.pc[lane] == pc) << lane;
        *pc_out = pc;
        if ((there & ready) == ready && is_complete(kernel, warp, pc, ready))
            return ready;
    }
    while (ready) {
        uint64_t least = UINT64_MAX;
        uint32_t group = 0;
        for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
            if (!(ready >> lane & 1))
                continue;
            /* the code of a function stands behind that of its callers */
            const uint64_t place = (uint64_t)(8 - warp.returns[lane].size()) << 32 | warp.pc[lane];
            if (place > least)
                continue;
            group = place < least ? 1u << lane : group | 1u << lane;
            least = place;
        }
        *pc_out = (uint32_t)least;
        if (*pc_out >= kernel.code.size() || is_complete(kernel, warp, *pc_out, group))
            return group;
        ready &= ~group;
    }
    return 0;
}

void ptx_execute(ptx_block &block, ptx_warp &warp, ptx_step *step)
{
    uint32_t pc;
    const uint32_t group = ptx_next(*block.kernel, warp, &pc);
    if (group == 0)
        ptx_fail("nothing to execute in " + block.kernel->name);
    ptx_execute_group(block, warp, group, pc, step);
}

void ptx_execute_group(ptx_block &block, ptx_warp &warp, uint32_t group, uint32_t pc,
                       ptx_step *step)
{
    step->released.clear();
    step->group = step->active = group;
    if (pc >= block.kernel->code.size())
        ptx_fail("behind the end of " + block.kernel->name);
    const ptx_instruction &i = block.kernel->code[pc];
    step->what = &i;
    warp.gave_way = false;
    if (block.checks && i.guard >= 0 && group & ~warp.defined[(size_t)i.guard])
        ptx_fail("a predicate depends on what nobody wrote: " + described(block, i));
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        if (!(step->group >> lane & 1))
            continue;
        warp.pc[lane] = pc + 1;
        if (i.guard >= 0 &&
            (warp.registers[(size_t)i.guard * PTX_LANES + lane] != 0) == i.guard_negated)
            step->active &= ~(1u << lane);
    }
    if (step->active == 0)
        return;
    if (block.checks) {
        need_defined(block, warp, i, step->active);
        if (!ptx_is_together(i.op))
            define(warp, i, step->active);
    }
    if (compute_all(warp, i, step->active))
        return;
    if (ptx_is_together(i.op)) {
        run_together(block, warp, i, pc, step);
        return;
    }
    switch (i.op) {
    case ptx_op::bar_warp:
        step->active = meet(block, warp, i, pc, step->active);
        warp.turns += step->active != 0;
        return;
    case ptx_op::activemask:
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            if (step->active >> lane & 1)
                warp.registers[i.to[0].reg * PTX_LANES + lane] = step->active;
        return;
    case ptx_op::bar_sync:
        return wait_at_barrier(block, warp, i, step);
    case ptx_op::ret:
        return end(block, warp, step->active, step);
    default:
        break;
    }
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        if (!(step->active >> lane & 1))
            continue;
        const lane_at l = {block, warp, i, lane};
        if (i.has_address)
            step->address[lane] = l.address();
        switch (i.op) {
        case ptx_op::call:
            warp.returns[lane].push_back(pc + 1);
            warp.num_calls++;
            warp.pc[lane] = i.target;
            break;
        case ptx_op::bra:
            warp.pc[lane] = i.target;
            break;
        case ptx_op::ld:
            load(l, step->address[lane]);
            break;
        case ptx_op::st:
            store(l, step->address[lane]);
            break;
        case ptx_op::atom_cas:
        case ptx_op::atom_add:
        case ptx_op::atom_exch:
        case ptx_op::atom_or:
        case ptx_op::red_or:
        case ptx_op::red_add:
            read_modify_write(l, step->address[lane]);
            break;
        case ptx_op::mbarrier_init:
        case ptx_op::mbarrier_expect:
        case ptx_op::mbarrier_try_wait:
            mbarrier(l, step->address[lane]);
            break;
        default:
            compute(l);
        }
    }
}
