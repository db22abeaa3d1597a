/* Memory as an instruction sees it, and asynchronous copies. */
#include <cstddef>

#include "tests/ptx/ptx_lane.h"

namespace ptx_lanes
{

/* A write behind others' reads is not looked at: the compiler reads ahead what it then does not
 * use. */
void lane_at::touch_shared(u64 at, u64 bytes, bool writes) const
{
    const ptx_touch now = {warp.meetings, warp.turns, warp.number * PTX_LANES + lane};
    for (u64 n = at; n < at + bytes; n++) {
        const ptx_touch &last = block.stored[n];
        const bool same_warp = last.thread / PTX_LANES == warp.number;
        if (last.thread != PTX_NOBODY && last.thread != now.thread &&
            last.meetings >= now.meetings && !(same_warp && last.turns < now.turns))
            fail("no barrier behind the write of thread " + std::to_string(last.thread));
        if (writes)
            block.stored[n] = now;
    }
}

void load(const lane_at &l, u64 at)
{
    const ptx_instruction &i = l.i;
    const uint32_t bytes = i.bits / 8;
    const unsigned char *from = l.memory(at, bytes * i.to.size(), false);
    if (l.block.checks && i.space == ptx_space::shared)
        l.touch_shared((uint32_t)at, bytes * i.to.size(), false);
    for (size_t n = 0; n < i.to.size(); n++) {
        u64 value = 0;
        if (l.block.checks && i.space == ptx_space::shared &&
            !l.is_written((uint32_t)at + n * bytes, bytes, i.used_bytes >> n * bytes))
            l.warp.defined[i.to[n].reg] &= ~(1u << l.lane);
        memcpy(&value, from + n * bytes, bytes);
        l.out(n, i.is_signed ? (u64)extend(value, i.bits) : value, 64);
    }
}

void store(const lane_at &l, u64 at)
{
    const ptx_instruction &i = l.i;
    const uint32_t bytes = i.bits / 8;
    unsigned char *to = l.memory(at, bytes * i.from.size(), true);
    if (l.block.checks && i.space == ptx_space::shared)
        l.touch_shared((uint32_t)at, bytes * i.from.size(), true);
    for (size_t n = 0; n < i.from.size(); n++) {
        const u64 value = l.in(n);
        memcpy(to + n * bytes, &value, bytes);
        if (l.block.checks && i.space == ptx_space::shared && i.from[n].is_register &&
            !(l.warp.defined[i.from[n].reg] >> l.lane & 1))
            memset(l.block.written.data() + (uint32_t)at + n * bytes, 0, bytes);
    }
}

void read_modify_write(const lane_at &l, u64 at)
{
    const ptx_instruction &i = l.i;
    if (l.block.checks && i.space == ptx_space::shared && (uint32_t)at < l.block.shared.size())
        l.need_written((uint32_t)at, i.bits / 8);
    unsigned char *where = l.memory(at, i.bits / 8, true);
    u64 old = 0;
    memcpy(&old, where, i.bits / 8);
    u64 next = old;
    if (i.op == ptx_op::atom_cas)
        next = old == l.in(0) ? l.in(1) : old;
    else if (i.op == ptx_op::red_or || i.op == ptx_op::atom_or)
        next = old | l.in(0);
    else if (i.op == ptx_op::atom_exch)
        next = l.in(0);
    else
        next = cut(old + l.in(0), i.bits);
    memcpy(where, &next, i.bits / 8);
    if (!i.to.empty())
        l.out(old);
}

static void settle(ptx_mbarrier &barrier)
{
    if (barrier.arrivals == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.arrivals = barrier.expected;
    }
}

static void check_bulk(const lane_at &l, bool loads, u64 global, u64 inside, u64 bytes)
{
    l.need_memory(global, bytes, !loads);
    if (!loads)
        return l.need_written(inside, bytes);
    l.write_shared(inside, bytes); /* nobody may read it before it has landed: */
    memset(l.block.written.data() + inside, 0, bytes);
}

void start_bulk(const lane_at &l)
{
    const ptx_instruction &i = l.i;
    ptx_block &block = l.block;
    const bool loads = i.op == ptx_op::bulk_load;
    const u64 to = l.in(0, 64), from = l.in(1, 64);
    const uint32_t bytes = (uint32_t)l.in(2, 32);
    const u64 inside = (uint32_t)(loads ? to : from);
    if (to % 16 || from % 16 || bytes % 16 || !bytes || inside + bytes > block.shared.size())
        l.fail("bulk copy of " + std::to_string(bytes) + " bytes");
    if (block.checks)
        check_bulk(l, loads, loads ? from : to, inside, bytes);
    if (loads) {
        block.loads.push_back({from, (uint32_t)to, bytes, (uint32_t)l.in(3, 32)});
        return;
    }
    ptx_bulk_store s;
    s.to = to;
    s.from = (uint32_t)from;
    s.bytes = bytes;
    s.thread = l.warp.number * PTX_LANES + l.lane;
    s.group = block.groups[s.thread];
    block.stores.push_back(s);
}

void mbarrier(const lane_at &l, u64 at)
{
    const uint32_t where = (uint32_t)at;
    ptx_block &block = l.block;
    l.memory(at, 8, l.i.op == ptx_op::mbarrier_init);
    if (l.i.op == ptx_op::mbarrier_init) {
        ptx_mbarrier barrier;
        barrier.arrivals = barrier.expected = (uint32_t)l.in(0, 32);
        block.mbarriers[where] = barrier;
        return;
    }
    if (!block.mbarriers.count(where))
        l.fail("no mbarrier there");
    ptx_mbarrier &barrier = block.mbarriers[where];
    if (l.i.op == ptx_op::mbarrier_try_wait) {
        const bool is_over = barrier.phase != l.in(0, 32);
        l.out(0, is_over, 1);
        l.warp.gave_way = !is_over;
        return;
    }
    barrier.bytes += (int64_t)l.in(0, 32);
    barrier.arrivals--;
    settle(barrier);
}

void wait_bulk(const lane_at &l)
{
    const uint32_t thread = l.warp.number * PTX_LANES + l.lane;
    if (!ptx_must_end(l.block, thread, (uint32_t)l.in(0, 32), l.i.reads_only).empty())
        l.fail("gone on before its copies");
    const uint32_t num = l.block.groups[thread], pending = (uint32_t)l.in(0, 32);
    uint32_t &waited = l.block.waited[thread];
    if (!l.i.reads_only && num > pending && num - pending > waited)
        waited = num - pending;
}

} /* namespace ptx_lanes */

std::vector<size_t> ptx_must_end(const ptx_block &block, uint32_t thread, uint32_t pending,
                                 bool reads_only)
{
    std::vector<size_t> found;
    const auto committed = block.groups.find(thread);
    const uint32_t num = committed == block.groups.end() ? 0 : committed->second;
    for (size_t n = 0; n < block.stores.size(); n++) {
        const ptx_bulk_store &s = block.stores[n];
        if (s.thread == thread && s.group + pending < num && !(reads_only && s.is_read))
            found.push_back(n);
    }
    return found;
}

bool ptx_phase_is_over(const ptx_block &block, uint32_t barrier, uint32_t parity)
{
    const auto found = block.mbarriers.find(barrier);
    return found != block.mbarriers.end() && found->second.phase != parity;
}

void ptx_land(ptx_block &block, size_t load)
{
    const ptx_bulk_load l = block.loads[load];
    block.loads.erase(block.loads.begin() + (std::ptrdiff_t)load);
    memcpy(block.shared.data() + l.to, (const void *)(uintptr_t)l.from, l.bytes);
    if (block.checks)
        memset(block.written.data() + l.to, 1, l.bytes);
    if (!block.mbarriers.count(l.barrier))
        ptx_fail("a copy for no mbarrier");
    block.mbarriers[l.barrier].bytes -= l.bytes;
    ptx_lanes::settle(block.mbarriers[l.barrier]);
}

void ptx_read_shared(ptx_block &block, size_t store)
{
    ptx_bulk_store &s = block.stores[store];
    s.data.assign(block.shared.begin() + s.from, block.shared.begin() + s.from + s.bytes);
    s.is_read = true;
}

void ptx_write_global(ptx_block &block, size_t store)
{
    if (!block.stores[store].is_read)
        ptx_read_shared(block, store);
    const ptx_bulk_store &s = block.stores[store];
    memcpy((void *)(uintptr_t)s.to, s.data.data(), s.bytes);
    block.stores.erase(block.stores.begin() + (std::ptrdiff_t)store);
}

void ptx_check_end(const ptx_block &block)
{
    if (!block.checks)
        return;
    const std::string where = "block " + std::to_string(block.id) + " of " + block.kernel->name +
                              " ended, seed " + std::to_string(block.checks->seed) + ": ";
    if (!block.loads.empty() || !block.stores.empty())
        ptx_fail(where + "bulk copies are pending");
    for (const auto &of : block.groups) {
        const auto waited = block.waited.find(of.first);
        if (of.second > (waited == block.waited.end() ? 0 : waited->second))
            ptx_fail(where + "nobody waited for its bulk copies");
    }
}
