#include "tests/ptx/clock_compile.h"

#include <algorithm>
#include <map>
#include <set>

namespace
{

typedef std::vector<ptx_instruction> code;

bool ends_block(ptx_op op)
{
    return op == ptx_op::bra || op == ptx_op::call || op == ptx_op::ret || op == ptx_op::bar_sync ||
           op == ptx_op::sleep;
}

/* May stand under a predicate. */
bool may_be_predicated(const ptx_instruction &i)
{
    return i.guard < 0 && !ends_block(i.op) && !ptx_is_together(i.op) &&
           i.op != ptx_op::activemask && i.op != ptx_op::bar_warp;
}

std::set<uint32_t> targets_of(const code &c)
{
    std::set<uint32_t> targets;
    for (const ptx_instruction &i : c)
        if (i.op == ptx_op::bra || i.op == ptx_op::call)
            targets.insert(i.target);
    return targets;
}

bool writes(const ptx_instruction &i, int32_t reg)
{
    for (const ptx_operand &o : i.to)
        if (o.is_register && (int32_t)o.reg == reg)
            return true;
    return false;
}

/* Jumps over at most `most` instructions that may be predicated, and nobody else jumps in between. */
bool skips_little(const code &c, const std::set<uint32_t> &targets, uint32_t at, uint32_t most)
{
    const ptx_instruction &branch = c[at];
    if (branch.op != ptx_op::bra || branch.guard < 0 || branch.target <= at + 1 ||
        branch.target > at + 1 + most)
        return false;
    for (uint32_t n = at + 1; n < branch.target; n++)
        if (!may_be_predicated(c[n]) || targets.count(n) || writes(c[n], branch.guard))
            return false;
    return true;
}

/* Every instruction that stays knows its old number; jumps are mended by that. */
struct numbered {
    ptx_instruction what;
    uint32_t old;
};

void mend_targets(std::vector<numbered> &list, uint32_t old_size)
{
    std::vector<uint32_t> now(old_size + 1, UINT32_MAX);
    for (uint32_t n = 0; n < list.size(); n++)
        now[list[n].old] = std::min(now[list[n].old], n);
    uint32_t next = (uint32_t)list.size();
    for (uint32_t n = old_size + 1; n-- > 0;) {
        if (now[n] == UINT32_MAX)
            now[n] = next;
        next = now[n];
    }
    for (numbered &n : list)
        if (n.what.op == ptx_op::bra || n.what.op == ptx_op::call)
            n.what.target = now[n.what.target];
}

code predicate(const code &c, uint32_t most)
{
    const std::set<uint32_t> targets = targets_of(c);
    std::vector<numbered> list;
    uint32_t until = 0;
    const ptx_instruction *branch = nullptr;
    for (uint32_t n = 0; n < c.size(); n++) {
        if (n >= until && skips_little(c, targets, n, most)) {
            branch = &c[n];
            until = branch->target;
            continue;
        }
        numbered one = {c[n], n};
        if (n < until) {
            one.what.guard = branch->guard;
            one.what.guard_negated = !branch->guard_negated;
        }
        list.push_back(one);
    }
    mend_targets(list, (uint32_t)c.size());
    code result;
    for (const numbered &n : list)
        result.push_back(n.what);
    return result;
}

/* ---- the order within a block */

enum memory_kind { none, global_load, global_store, shared_load, shared_store, all_memory };

memory_kind memory_of(const ptx_instruction &i, const clock_cost &cost)
{
    switch (i.op) {
    case ptx_op::ld:
        if (i.space == ptx_space::param)
            return none;
        if (cost.acquires)
            return all_memory;
        return i.space == ptx_space::shared ? shared_load : global_load;
    case ptx_op::st:
        if (cost.before)
            return all_memory;
        return i.space == ptx_space::shared ? shared_store : global_store;
    case ptx_op::atom_cas:
    case ptx_op::atom_add:
    case ptx_op::atom_exch:
    case ptx_op::atom_or:
    case ptx_op::red_or:
    case ptx_op::red_add:
        return cost.before || cost.acquires ? all_memory : global_store;
    case ptx_op::fence:
    case ptx_op::nothing:
    case ptx_op::mbarrier_init:
    case ptx_op::mbarrier_expect:
    case ptx_op::mbarrier_try_wait:
    case ptx_op::bulk_load:
    case ptx_op::bulk_store:
    case ptx_op::bulk_commit:
    case ptx_op::bulk_wait:
    case ptx_op::activemask:
    case ptx_op::bar_warp:
        return all_memory;
    default:
        return ptx_is_together(i.op) ? all_memory : none;
    }
}

/* Whether `second`, which stands behind, must stay there. */
bool must_follow(memory_kind first, memory_kind second)
{
    if (first == none || second == none)
        return false;
    if (first == all_memory || second == all_memory)
        return true;
    const bool is_global = first == global_load || first == global_store;
    const bool also_global = second == global_load || second == global_store;
    const bool both_load = (first == global_load || first == shared_load) &&
                           (second == global_load || second == shared_load);
    return is_global == also_global && !both_load;
}

struct node {
    std::vector<std::pair<uint32_t, uint32_t>> after; /* who waits for it, and how long */
    uint32_t waits = 0;                               /* for so many */
    uint32_t ready = 0;                               /* cycle */
    uint32_t height = 0;                              /* cycles to the end of the block */
    uint32_t slots = 1;
    bool done = false;
};

uint32_t latency_of(const clock_table &table, const ptx_instruction &i, const clock_cost &cost,
                    const std::vector<bool> &fixed)
{
    switch (cost.kind) {
    case clock_kind::load:
        return i.space == ptx_space::shared ? table.shared : table.l2;
    case clock_kind::atomic:
        return table.atomic;
    case clock_kind::param:
        return i.base.is_register && !fixed[i.base.reg] ? table.constant_indexed : cost.latency;
    default:
        return i.op == ptx_op::mov && i.from[0].is_register && i.from[0].reg < ptx_param
                   ? table.special_register
                   : cost.latency;
    }
}

void reads_of(const ptx_instruction &i, std::vector<uint32_t> *reads)
{
    for (const ptx_operand &o : i.from)
        if (o.is_register)
            reads->push_back(o.reg);
    if (i.has_address && i.base.is_register)
        reads->push_back(i.base.reg);
    if (i.guard >= 0) {
        reads->push_back((uint32_t)i.guard);
        for (const ptx_operand &o : i.to) /* lanes that it leaves out keep what they have */
            reads->push_back(o.reg);
    }
}

struct block_order {
    const clock_table &table;
    const code &c;
    const std::vector<bool> &fixed;
    uint32_t first, end;
    std::vector<node> nodes;

    void edge(uint32_t from, uint32_t to, uint32_t latency)
    {
        nodes[from].after.push_back({to, latency});
        nodes[to].waits++;
    }

    void depend()
    {
        std::map<uint32_t, uint32_t> writer;
        std::map<uint32_t, std::vector<uint32_t>> readers;
        std::vector<memory_kind> kinds;
        std::vector<uint32_t> latency;
        for (uint32_t n = 0; n < end - first; n++) {
            const ptx_instruction &i = c[first + n];
            const clock_cost cost = clock_cost_of(table, i.mnemonic);
            nodes[n].slots = cost.slots;
            latency.push_back(latency_of(table, i, cost, fixed));
            kinds.push_back(memory_of(i, cost));
            std::vector<uint32_t> reads;
            reads_of(i, &reads);
            for (const uint32_t r : reads) {
                if (writer.count(r))
                    edge(writer[r], n,
                         (int32_t)r == i.guard ? table.predicate : latency[writer[r]]);
                readers[r].push_back(n);
            }
            for (const ptx_operand &o : i.to) {
                if (o.reg == ptx_sink)
                    continue;
                for (const uint32_t reader : readers[o.reg])
                    if (reader != n)
                        edge(reader, n, 0);
                if (writer.count(o.reg))
                    edge(writer[o.reg], n, 1);
                readers[o.reg].clear();
                writer[o.reg] = n;
            }
            for (uint32_t m = 0; m < n; m++)
                if (must_follow(kinds[m], kinds[n]))
                    edge(m, n, 0);
            if (ends_block(i.op))
                for (uint32_t m = 0; m < n; m++)
                    edge(m, n, 0);
        }
        for (uint32_t n = end - first; n-- > 0;) {
            nodes[n].height = latency[n];
            for (const auto &a : nodes[n].after)
                nodes[n].height = std::max(nodes[n].height, a.second + nodes[a.first].height);
        }
    }

    /* The one with the longest way to go of those that can issue now; if none can, of those that
     * can first. */
    uint32_t pick(uint32_t now) const
    {
        uint32_t best = UINT32_MAX;
        for (uint32_t n = 0; n < nodes.size(); n++) {
            if (nodes[n].done || nodes[n].waits)
                continue;
            if (best == UINT32_MAX) {
                best = n;
                continue;
            }
            const uint32_t a = std::max(nodes[n].ready, now), b = std::max(nodes[best].ready, now);
            if (a < b || (a == b && nodes[n].height > nodes[best].height))
                best = n;
        }
        return best;
    }

    void order(code *out)
    {
        uint32_t now = 0;
        nodes.resize(end - first);
        depend();
        for (uint32_t n = 0; n < nodes.size(); n++) {
            const uint32_t next = pick(now);
            now = std::max(now, nodes[next].ready) + nodes[next].slots;
            nodes[next].done = true;
            for (const auto &a : nodes[next].after) {
                nodes[a.first].waits--;
                nodes[a.first].ready =
                    std::max(nodes[a.first].ready, now - nodes[next].slots + a.second);
            }
            out->push_back(c[first + next]);
        }
    }
};

} /* namespace */

std::vector<bool> clock_fixed_arguments(const ptx_kernel &kernel)
{
    std::vector<bool> fixed(kernel.num_registers, false);
    std::vector<uint32_t> writers(kernel.num_registers, 0);
    for (const ptx_instruction &i : kernel.code)
        for (const ptx_operand &o : i.to)
            writers[o.reg]++;
    fixed[ptx_param] = true;
    for (bool more = true; more;) {
        more = false;
        for (const ptx_instruction &i : kernel.code) {
            const bool moves = i.op == ptx_op::mov || i.op == ptx_op::add;
            if (!moves || i.bits != 64 || writers[i.to[0].reg] != 1 || fixed[i.to[0].reg])
                continue;
            bool from_fixed = i.from[0].is_register && fixed[i.from[0].reg];
            if (i.op == ptx_op::add)
                from_fixed = from_fixed && !i.from[1].is_register;
            if (from_fixed)
                more = fixed[i.to[0].reg] = true;
        }
    }
    return fixed;
}

ptx_kernel clock_compile(const clock_table &table, const ptx_kernel &kernel)
{
    ptx_kernel result = kernel;
    const code c = predicate(kernel.code, table.predicated);
    const std::set<uint32_t> targets = targets_of(c);
    const std::vector<bool> fixed = clock_fixed_arguments(kernel);
    result.code.clear();
    for (uint32_t first = 0; first < c.size();) {
        uint32_t end = first + 1;
        while (end < c.size() && !ends_block(c[end - 1].op) && !targets.count(end))
            end++;
        block_order block = {table, c, fixed, first, end, {}};
        block.order(&result.code);
        first = end;
    }
    return result;
}
