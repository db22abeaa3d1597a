/* What an instruction of the model costs, and what it makes others wait for. */
#include <cstdio>

#include "tests/ptx/clock_sm.h"

namespace clock_model
{

clock_access sm::access_of() const
{
    clock_access a;
    const ptx_instruction &i = *step.what;
    a.bytes = i.bits / 8 *
              (uint32_t)std::max<size_t>(1, i.op == ptx_op::ld   ? i.to.size()
                                            : i.op == ptx_op::st ? i.from.size()
                                                                 : 1);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (step.active >> lane & 1)
            a.address[a.num++] = step.address[lane];
    return a;
}

/* An acquire load again: it waits for somebody, and all its trips are one. */
bool sm::polls(warp_state &w) const
{
    const uint32_t lane = (uint32_t)__builtin_ctz(step.active);
    if (step.what->op != ptx_op::ld || step.what->mnemonic.find("acquire") == std::string::npos)
        return false;
    const bool same = w.last.what == step.what && w.last.address == step.address[lane];
    if (!same) {
        w.last.before = w.here;
        w.last.what = step.what;
        w.last.address = step.address[lane];
    }
    return same;
}

void sm::note_tile(warp_state &w, uint64_t address, uint64_t bytes, bool loads, clock_time now,
                   clock_time there)
{
    if (loads && within(launch.sources, address)) {
        if (!any_load || now < first_load)
            first_load = now;
        if (!w.has_loaded) {
            before_first.join(w.here);
            w.first_load = now;
            w.in_flight_until = now;
        }
        any_load = w.has_loaded = true;
        const clock_time from = std::max(now, w.in_flight_until);
        if (there > from)
            w.in_flight += there - from;
        w.in_flight_until = std::max(w.in_flight_until, there);
        if (launch.targets.empty())
            marks.push_back({now, bytes});
    } else if (!loads && within(launch.targets, address)) {
        any_store = w.has_stored = true;
        last_store = std::max(last_store, now);
        w.last_store = now;
        w.at_store = w.here;
        marks.push_back({now, bytes});
        report.tile_bytes += bytes;
    }
}

void sm::memory(warp_state &w, const code_facts &f, clock_time now)
{
    const clock_access a = access_of();
    const ptx_instruction &i = *step.what;
    const uint64_t first = a.address[0];
    const bool is_param =
        i.space == ptx_space::generic && first - (uint64_t)(uintptr_t)launch.args < 4096;
    clock_time there = now, done = now;
    chain depth = w.here;
    if (i.space == ptx_space::shared) {
        there = mem.shared(now, a);
        if (f.cost.kind == clock_kind::atomic)
            there += (table.shared_atomic - table.shared) * clock_cycle;
    } else if (is_param) {
        there = now + table.constant_indexed * clock_cycle;
    } else if (f.cost.kind == clock_kind::load) {
        there = mem.load(now, a);
        note_tile(w, first, a.bytes * a.num, true, now, there);
        depth.trips++;
    } else if (f.cost.kind == clock_kind::store) {
        mem.store(now, a, &done);
        note_tile(w, first, a.bytes * a.num, false, now, done);
    } else {
        there = done = mem.atomic(now, a);
        depth.trips += f.cost.kind == clock_kind::atomic;
    }
    w.stored = std::max(w.stored, done);
    for (const uint32_t r : f.writes) {
        w.ready[r] = there;
        w.depth[r] = depth;
    }
    if (f.cost.acquires) { /* nothing behind it may begin before */
        w.next = std::max(w.next, there);
        w.here.join(depth);
    }
}

void sm::bulk(block_state &b, warp_state &w, clock_time now, size_t loads_before,
              size_t stores_before)
{
    for (size_t n = loads_before; n < b.block.loads.size(); n++) {
        const ptx_bulk_load &l = b.block.loads[n];
        chain depth = w.here;
        depth.trips++;
        const clock_time there = mem.bulk_load(now, l.from, l.bytes);
        b.loads.push_back({there, l.barrier, depth, l});
        note_tile(w, l.from, l.bytes, true, now, there);
    }
    for (size_t n = stores_before; n < b.block.stores.size(); n++) {
        const ptx_bulk_store &s = b.block.stores[n];
        bulk_store_state state;
        state.read = mem.bulk_store(now, s.to, s.bytes, &state.done);
        b.stores.push_back(state);
        note_tile(w, s.to, s.bytes, false, now, state.done);
    }
}

void sm::issue(block_state &b, size_t n, clock_time now)
{
    warp_state &w = b.warps[n];
    ptx_warp &warp = b.block.warps[n];
    const size_t loads_before = b.block.loads.size(), stores_before = b.block.stores.size();
    uint32_t pc;
    ptx_next(*launch.kernel, warp, &pc);
    const code_facts &f = facts[pc];
    clock_time start = now;
    if (f.cost.slots)
        for (const uint32_t r : f.reads)
            w.here.join(w.depth[r]);
    ptx_execute(b.block, warp, &step);
    if (b.block.id == 0 && (int)n == launch.traced && f.cost.slots)
        fprintf(stderr, "%9.1f %3u trips %2u membars %08x  %s\n", (double)now / clock_cycle,
                w.here.trips, w.here.membars, step.active, step.what->text.c_str());
    report.instructions++;
    report.slots += f.cost.slots;
    w.next = now + f.cost.slots * clock_cycle;
    if (f.cost.kind == clock_kind::branch) /* taken or not */
        w.next += (f.cost.latency - 1) * clock_cycle;
    if (step.active == 0)
        return;
    if (f.cost.before) { /* a membar waits for the stores in front of it */
        start = std::max(now + f.cost.before * clock_cycle, w.stored);
        w.next = start + f.cost.slots * clock_cycle;
        w.here.membars += f.cost.before >= table.membar_gpu;
    }
    switch (f.cost.kind) {
    case clock_kind::param:
    case clock_kind::compute:
    case clock_kind::shuffle: {
        clock_time there = start + f.cost.latency * clock_cycle;
        chain depth;
        if (f.cost.slots == 0) {
            there = now;
            for (const uint32_t r : f.reads) {
                there = std::max(there, w.ready[r]);
                depth.join(w.depth[r]);
            }
        }
        for (const uint32_t r : f.writes) {
            w.ready[r] = there;
            w.depth[r] = depth;
        }
        break;
    }
    case clock_kind::load:
        if (polls(w))
            w.here = w.last.before;
        memory(w, f, start);
        break;
    case clock_kind::store:
    case clock_kind::atomic:
    case clock_kind::reduction:
        memory(w, f, start);
        break;
    case clock_kind::fence:
        break;
    case clock_kind::barrier: {
        clock_time last = w.next;
        chain all = w.here;
        for (const uint32_t r : step.released) {
            last = std::max(last, b.warps[r].next);
            all.join(b.warps[r].here);
        }
        for (const uint32_t r : step.released) {
            b.warps[r].next = last + f.cost.latency * clock_cycle;
            b.warps[r].here = all;
        }
        break;
    }
    case clock_kind::branch:
        break;
    case clock_kind::sleep:
        w.next = now + f.cost.latency * clock_cycle;
        break;
    case clock_kind::bulk_load:
    case clock_kind::bulk_store:
        bulk(b, w, start, loads_before, stores_before);
        break;
    case clock_kind::try_wait:
        w.here.join(b.barrier_depth[(uint32_t)step.address[__builtin_ctz(step.active)]]);
        for (const uint32_t r : f.writes) {
            w.ready[r] = start + f.cost.latency * clock_cycle;
            w.depth[r] = chain();
        }
        break;
    case clock_kind::mbarrier:
    case clock_kind::bulk_commit:
    case clock_kind::bulk_wait:
        break;
    case clock_kind::end:
        for (const uint32_t r : step.released)
            b.warps[r].next = std::max(b.warps[r].next, now) + table.barrier * clock_cycle;
        if (warp.alive == 0) {
            w.ends = true;
            end = std::max(end, w.next);
            last_block = (size_t)(&b - blocks.data());
        }
        break;
    }
}

} /* namespace clock_model */
