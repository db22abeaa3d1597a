#include <cstdio>

#include "tests/ptx/clock_compile.h"
#include "tests/ptx/clock_sm.h"

namespace clock_model
{

static void add_read(code_facts *facts, const ptx_operand &o)
{
    if (o.is_register && o.reg >= ptx_argument)
        facts->reads.push_back(o.reg);
}

sm::sm(const clock_table &what, const clock_launch &how) : table(what), launch(how)
{
    mem.open(table, launch.active_sms);
    for (const std::vector<clock_range> *ranges :
         {&launch.sources, &launch.targets, &launch.beside})
        for (const clock_range &r : *ranges)
            mem.add_bulk(r.address, r.bytes);
    const std::vector<bool> fixed = clock_fixed_arguments(*launch.kernel);
    for (const ptx_instruction &i : launch.kernel->code) {
        code_facts f;
        f.cost = clock_cost_of(table, i.mnemonic);
        for (const ptx_operand &o : i.from)
            add_read(&f, o);
        if (i.has_address)
            add_read(&f, i.base);
        f.guard = i.guard;
        if (i.guard >= 0)
            f.reads.push_back((uint32_t)i.guard);
        for (const ptx_operand &o : i.to)
            if (o.reg != ptx_sink)
                f.writes.push_back(o.reg);
        if (f.cost.kind == clock_kind::param && i.has_address && i.base.is_register &&
            !fixed[i.base.reg])
            f.cost.latency = table.constant_indexed;
        if (i.op == ptx_op::mov && i.from[0].is_register && i.from[0].reg < ptx_param)
            f.cost.latency = table.special_register;
        facts.push_back(f);
    }
    schedulers.assign(table.schedulers, 0);
    float_pipes.assign(table.schedulers, 0);
    blocks.resize(launch.num_blocks);
    while (next_block < launch.num_blocks && running < launch.resident)
        start_block(next_block++, 0);
}

void sm::start_block(uint32_t id, clock_time now)
{
    block_state &b = blocks[id];
    ptx_start(b.block, *launch.kernel, id, launch.num_blocks, launch.threads, launch.dynamic_bytes,
              launch.args);
    b.warps.resize(b.block.warps.size());
    for (warp_state &w : b.warps) {
        w.next = now;
        w.ready.assign(launch.kernel->num_registers, 0);
        w.depth.assign(launch.kernel->num_registers, chain());
    }
    b.runs = true;
    running++;
}

bool sm::within(const std::vector<clock_range> &ranges, uint64_t address)
{
    for (const clock_range &r : ranges)
        if (address >= r.address && address < r.address + r.bytes)
            return true;
    return false;
}

/* Copies that are done by now take effect. */
void sm::settle_bulk(block_state &b, clock_time now)
{
    for (size_t n = 0; n < b.loads.size();) {
        if (b.loads[n].there > now) {
            n++;
            continue;
        }
        b.barrier_depth[b.loads[n].barrier].join(b.loads[n].depth);
        ptx_land(b.block, n);
        b.loads.erase(b.loads.begin() + (std::ptrdiff_t)n);
    }
    for (size_t n = 0; n < b.stores.size();) {
        if (b.stores[n].read <= now && !b.block.stores[n].is_read)
            ptx_read_shared(b.block, n);
        if (b.stores[n].done > now) {
            n++;
            continue;
        }
        ptx_write_global(b.block, n);
        b.stores.erase(b.stores.begin() + (std::ptrdiff_t)n);
    }
}

/* When a wait for copies is over: the machine wakes the warp, which does not poll. */
clock_time sm::wait_for_bulk(block_state &b, const ptx_warp &warp, const ptx_instruction &i,
                             uint32_t group, clock_time at)
{
    const uint32_t lane = (uint32_t)__builtin_ctz(group);
    if (i.op == ptx_op::bulk_wait) {
        const uint32_t pending = (uint32_t)ptx_value(warp, lane, i.from[0], 32);
        for (const size_t n :
             ptx_must_end(b.block, warp.number * PTX_LANES + lane, pending, i.reads_only))
            at = std::max(at, i.reads_only ? b.stores[n].read : b.stores[n].done);
        return at;
    }
    const uint32_t barrier = (uint32_t)(ptx_value(warp, lane, i.base, 64) + (uint64_t)i.offset);
    if (ptx_phase_is_over(b.block, barrier, (uint32_t)ptx_value(warp, lane, i.from[0], 32)))
        return at;
    for (const bulk_load_state &l : b.loads)
        if (l.barrier == barrier)
            at = std::max(at, l.there);
    return at;
}

/* When the warp's next instruction can issue; UINT64_MAX: it waits for others, or has ended. */
clock_time sm::ready_at(block_state &b, size_t n)
{
    warp_state &w = b.warps[n];
    const ptx_warp &warp = b.block.warps[n];
    uint32_t pc;
    const uint32_t group = ptx_next(*launch.kernel, warp, &pc);
    if (group == 0)
        return UINT64_MAX;
    const code_facts &f = facts[pc];
    clock_time at = w.next;
    w.is_float = f.cost.is_float;
    if (f.cost.slots == 0) /* only a name: what waits is its use */
        return at;
    for (const uint32_t r : f.reads)
        at = std::max(at, w.ready[r]);
    for (const uint32_t r : f.writes)
        at = std::max(at, w.ready[r]);
    if (f.guard >= 0) /* a predicate is later where it decides than where it is a value */
        at = std::max(at, w.ready[(size_t)f.guard] + (table.predicate - table.alu) * clock_cycle);
    if (f.cost.kind == clock_kind::bulk_wait || f.cost.kind == clock_kind::try_wait)
        at = wait_for_bulk(b, warp, launch.kernel->code[pc], group, at);
    return at;
}

clock_time sm::free_at(const warp_state &w, size_t scheduler) const
{
    return w.is_float ? std::max(schedulers[scheduler], float_pipes[scheduler])
                      : schedulers[scheduler];
}

void sm::occupy(const clock_cost &cost, size_t scheduler, clock_time now)
{
    schedulers[scheduler] = std::max(schedulers[scheduler], now) + cost.slots * clock_cycle;
    if (cost.is_float)
        float_pipes[scheduler] = now + table.float_pipe * clock_cycle;
}

/* The warp that can issue first; of several the one that waited longest, then by number. */
bool sm::pick(size_t *block_out, size_t *warp_out, clock_time *at_out)
{
    clock_time best = UINT64_MAX, best_ready = UINT64_MAX;
    for (size_t n = 0; n < blocks.size(); n++) {
        block_state &b = blocks[n];
        if (!b.runs)
            continue;
        for (size_t w = 0; w < b.warps.size(); w++) {
            warp_state &state = b.warps[w];
            if (!state.is_known) {
                state.ready_at = state.ends ? UINT64_MAX : ready_at(b, w);
                state.is_known = true;
            }
            const clock_time ready = state.ready_at;
            if (ready == UINT64_MAX)
                continue;
            const clock_time at = std::max(ready, free_at(state, (n + w) % schedulers.size()));
            if (at < best || (at == best && ready < best_ready)) {
                best = at;
                best_ready = ready;
                *block_out = n;
                *warp_out = w;
            }
        }
    }
    *at_out = best;
    return best != UINT64_MAX;
}

/* Says where everybody stands. */
void sm::fail_hung(const block_state &b) const
{
    for (const ptx_warp &warp : b.block.warps)
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            if (warp.alive >> lane & 1 && (lane == 0 || warp.pc[lane] != warp.pc[lane - 1]))
                fprintf(stderr, "block %u warp %u lane %u %s: behind %s\n", b.block.id, warp.number,
                        lane, warp.waiting >> lane & 1 ? "waits" : "could go",
                        launch.kernel->code[warp.pc[lane] - 1].text.c_str());
    ptx_fail(launch.kernel->name + " hangs");
}

clock_report sm::run()
{
    size_t block = 0, warp = 0;
    clock_time now = 0;
    while (pick(&block, &warp, &now)) {
        block_state &b = blocks[block];
        settle_bulk(b, now);
        b.warps[warp].is_known = false;
        issue(b, warp, now);
        for (const uint32_t r : step.released)
            b.warps[r].is_known = false;
        const ptx_op op = step.what->op;
        if (op == ptx_op::bulk_load || op == ptx_op::mbarrier_expect)
            for (warp_state &w : b.warps) /* one may wait for just this copy */
                w.is_known = false;
        occupy(facts[(size_t)(step.what - launch.kernel->code.data())].cost,
               (block + warp) % schedulers.size(), now);
        if (b.block.live == 0) {
            if (!b.block.loads.empty() || !b.block.stores.empty())
                ptx_fail("a block of " + launch.kernel->name + " ended before its copies");
            b.runs = false;
            running--;
            if (next_block < launch.num_blocks)
                start_block(next_block++, now);
        }
    }
    for (const block_state &b : blocks)
        if (b.runs || b.warps.empty())
            fail_hung(b);
    return conclude();
}

/* Cycles per tile over the middle half of the bytes. */
static double steady(std::vector<tile_mark> marks, uint64_t tile_bytes)
{
    std::sort(marks.begin(), marks.end(),
              [](const tile_mark &a, const tile_mark &b) { return a.at < b.at; });
    uint64_t all = 0, done = 0;
    for (const tile_mark &m : marks)
        all += m.bytes;
    clock_time first = 0, last = 0;
    uint64_t bytes_first = 0, bytes_last = 0;
    for (const tile_mark &m : marks) {
        done += m.bytes;
        if (!bytes_first && done >= all / 4) {
            first = m.at;
            bytes_first = done;
        }
        if (done <= all - all / 4 || !bytes_last) {
            last = m.at;
            bytes_last = done;
        }
    }
    if (bytes_last <= bytes_first)
        return 0;
    return (double)(last - first) / clock_cycle * (double)tile_bytes /
           (double)(bytes_last - bytes_first);
}

clock_report sm::conclude()
{
    report.cycles = (double)end / clock_cycle;
    report.first_load = any_load ? (double)first_load / clock_cycle : 0;
    report.last_store = any_store ? (double)last_store / clock_cycle : 0;
    report.after_store = any_store ? (double)(end - last_store) / clock_cycle : 0;
    report.trips_before = before_first.trips;
    report.membars_before = before_first.membars;
    chain at_end, at_store;
    double duty = 0;
    uint32_t copying = 0;
    for (const block_state &b : blocks)
        for (const warp_state &w : b.warps) {
            report.trips = std::max(report.trips, w.here.trips);
            report.membars = std::max(report.membars, w.here.membars);
            if (w.has_loaded && w.has_stored && w.last_store > w.first_load) {
                duty += (double)w.in_flight / (double)(w.last_store - w.first_load);
                copying++;
            }
        }
    for (const warp_state &w : blocks[last_block].warps) {
        at_end.join(w.here);
        if (w.has_stored)
            at_store.join(w.at_store);
    }
    report.trips_after = any_store ? at_end.trips - at_store.trips : 0;
    report.membars_after = any_store ? at_end.membars - at_store.membars : 0;
    report.duty = copying ? duty / copying : 0;
    report.tile_cycles = steady(marks, 16384);
    return report;
}

} /* namespace clock_model */

clock_report clock_run(const clock_table &table, const clock_launch &launch)
{
    return clock_model::sm(table, launch).run();
}

uint32_t clock_resident(const clock_table &table, uint32_t threads, uint32_t registers,
                        uint32_t shared_bytes)
{
    const uint32_t warps = (threads + PTX_LANES - 1) / PTX_LANES;
    const uint32_t per_warp = (registers * PTX_LANES + table.register_unit - 1) /
                              table.register_unit * table.register_unit;
    uint32_t most = std::min(table.max_blocks_per_sm, table.max_threads_per_sm / threads);
    most = std::min(most, table.registers_per_sm / (per_warp * warps));
    return std::min(most, table.shared_per_sm / (shared_bytes + table.shared_per_block_extra));
}
