#include "tests/ptx/clock_table.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace
{

[[noreturn]] void fail(const std::string &what)
{
    fprintf(stderr, "clock: %s\n", what.c_str());
    exit(2);
}

struct figure {
    const char *name;
    uint32_t clock_table::*field;
};

const figure figures[] = {
#define CLOCK_FIGURE(name) {#name, &clock_table::name},
    CLOCK_FIGURES(CLOCK_FIGURE)
#undef CLOCK_FIGURE
};
const size_t num_figures = sizeof(figures) / sizeof(figures[0]);

std::vector<std::string> parts_of(const std::string &mnemonic)
{
    std::vector<std::string> parts;
    std::stringstream in(mnemonic);
    for (std::string part; std::getline(in, part, '.');)
        parts.push_back(part);
    return parts;
}

/* The parts of a mnemonic, and what can be asked of them. */
struct words {
    std::vector<std::string> parts;

    const std::string &first() const
    {
        return parts[0];
    }
    bool has(const char *word) const
    {
        for (const std::string &part : parts)
            if (part == word)
                return true;
        return false;
    }
    /* Of the last type that is named. */
    unsigned bits() const
    {
        for (size_t i = parts.size(); i-- > 1;) {
            const std::string &part = parts[i];
            if (part.size() >= 2 && strchr("usb", part[0]) && isdigit((unsigned char)part[1]))
                return (unsigned)atoi(part.c_str() + 1);
        }
        return 32;
    }
};

uint32_t membar_of(const clock_table &table, const words &w)
{
    return w.has("sys") ? table.membar_sys : w.has("cta") ? table.membar_cta : table.membar_gpu;
}

clock_cost memory_cost(const clock_table &table, const words &w, clock_kind kind)
{
    clock_cost cost;
    cost.kind = kind;
    const bool is_shared = w.has("shared") || w.has("shared::cta");
    if (!is_shared && (w.has("release") || w.has("acq_rel")))
        cost.before = membar_of(table, w);
    cost.acquires = w.has("acquire") || w.has("acq_rel");
    return cost;
}

clock_cost fence_cost(const clock_table &table, const words &w)
{
    clock_cost cost;
    cost.kind = clock_kind::fence;
    if (w.has("mbarrier_init"))
        cost.before = table.membar_cta;
    else if (w.has("proxy"))
        cost.before = table.fence_async +
                      (w.parts.back() == "async" ? table.membar_cta + table.membar_gpu : 0);
    else
        cost.before = w.has("gl") ? table.membar_gpu : membar_of(table, w);
    return cost;
}

clock_cost bulk_cost(const clock_table &table, const words &w)
{
    clock_cost cost;
    if (w.has("commit_group")) {
        cost.kind = clock_kind::bulk_commit;
    } else if (w.has("wait_group")) {
        cost.kind = clock_kind::bulk_wait;
        cost.reads_only = w.has("read");
    } else {
        cost.kind = w.has("bulk_group") ? clock_kind::bulk_store : clock_kind::bulk_load;
        cost.slots = table.slots_bulk;
    }
    return cost;
}

/* Of what takes registers and gives one. */
clock_cost compute_cost(const clock_table &table, const words &w)
{
    const std::string &op = w.first();
    const bool wide = w.bits() == 64;
    clock_cost cost;
    cost.latency = table.alu;
    if (op == "setp") {
        cost.slots = wide ? table.slots_wide : 1;
    } else if (w.has("f32") && (op == "add" || op == "sub" || op == "mul" || op == "fma")) {
        cost.latency = table.float_latency;
        cost.is_float = true;
    } else if (op == "div" || op == "rem") {
        cost.slots = wide ? table.slots_divide_64 : table.slots_divide_32;
        cost.latency = wide ? table.divide_64 : table.divide_32;
    } else if (op == "min" || op == "max") {
        cost.slots = wide ? table.slots_minmax_64 : 1;
        cost.latency = wide ? 2 * table.alu : table.alu;
    } else if (op == "mul" || op == "mad") {
        const bool is_long = wide && !w.has("wide");
        cost.slots = is_long ? table.slots_multiply_64 : 1;
        cost.latency = is_long ? 2 * table.alu : table.alu;
    } else if (wide) {
        cost.slots = table.slots_wide;
    }
    return cost;
}

bool is_name_only(const words &w)
{
    if (w.first() == "cvta")
        return true;
    if (w.has("f32") && (w.first() == "neg" || w.first() == "abs"))
        return true;
    if (w.first() == "mov")
        return w.bits() == 64;
    return w.first() == "cvt" && (w.has("u64") || w.has("s64") || w.has("b64"));
}

} /* namespace */

clock_table clock_read_table(const std::string &path, unsigned architecture)
{
    const int column = architecture == 80    ? 0
                       : architecture == 90  ? 1
                       : architecture == 100 ? 2
                                             : -1;
    if (column < 0)
        fail("no architecture " + std::to_string(architecture) + " in " + path);
    std::ifstream in(path);
    if (!in)
        fail("cannot read " + path);
    clock_table table;
    bool known[num_figures] = {};
    for (std::string line; std::getline(in, line);) {
        if (line.empty() || line[0] == '#')
            continue;
        std::stringstream fields(line);
        std::string name, source;
        uint32_t values[3];
        if (!(fields >> name >> values[0] >> values[1] >> values[2] >> source))
            fail(path + ": not NAME, three figures and a source: " + line);
        size_t i = 0;
        while (i < num_figures && name != figures[i].name)
            i++;
        if (i == num_figures || known[i])
            fail(path + ": " + name + (i == num_figures ? " is nobody's" : " stands there twice"));
        known[i] = true;
        table.*figures[i].field = values[column];
    }
    for (size_t i = 0; i < num_figures; i++)
        if (!known[i])
            fail(path + " lacks " + figures[i].name);
    return table;
}

clock_cost clock_cost_of(const clock_table &table, const std::string &mnemonic)
{
    const words w = {parts_of(mnemonic)};
    const std::string &op = w.first();
    clock_cost cost;
    if (op == "ld" && w.has("param")) {
        cost.kind = clock_kind::param;
        cost.latency = table.constant;
        return cost;
    }
    if (op == "ld" || op == "st" || op == "atom" || op == "red")
        return memory_cost(table, w,
                           op == "ld"     ? clock_kind::load
                           : op == "st"   ? clock_kind::store
                           : op == "atom" ? clock_kind::atomic
                                          : clock_kind::reduction);
    if (op == "fence" || op == "membar")
        return fence_cost(table, w);
    if (op == "cp")
        return bulk_cost(table, w);
    if (op == "mbarrier") {
        cost.kind = w.has("try_wait") ? clock_kind::try_wait : clock_kind::mbarrier;
        cost.latency = w.has("try_wait") ? table.mbarrier_try_wait : table.mbarrier_other;
        return cost;
    }
    if (op == "bar" || op == "barrier") {
        cost.kind = w.has("warp") ? clock_kind::shuffle : clock_kind::barrier;
        cost.latency = w.has("warp") ? table.alu : table.barrier;
        return cost;
    }
    if (op == "shfl" || op == "vote" || op == "activemask" || op == "match" || op == "elect") {
        cost.kind = clock_kind::shuffle;
        cost.slots = table.slots_shuffle;
        cost.latency = table.shuffle;
        return cost;
    }
    if (op == "redux") {
        cost.kind = clock_kind::shuffle;
        cost.slots = table.slots_shuffle;
        cost.latency = table.reduce;
        return cost;
    }
    if (op == "bra" || op == "brx" || op == "call") {
        cost.kind = clock_kind::branch;
        cost.slots = op == "call" ? table.slots_call : 1;
        cost.latency = table.branch;
        return cost;
    }
    if (op == "ret" || op == "exit" || op == "trap") {
        cost.kind = clock_kind::end;
        cost.latency = table.branch;
        return cost;
    }
    if (op == "nanosleep") {
        cost.kind = clock_kind::sleep;
        cost.latency = table.sleep_unit_ns * table.clock_mhz / 1000;
        return cost;
    }
    if (op == "griddepcontrol" || op == "createpolicy") {
        cost.latency = table.alu;
        return cost;
    }
    if (is_name_only(w)) {
        cost.slots = table.slots_none;
        return cost;
    }
    static const char *const computes[] = {
        "add", "sub", "mul",  "mad",  "fma", "div",  "rem",  "min",  "max",   "and",  "or",
        "xor", "not", "neg",  "abs",  "shl", "shr",  "shf",  "mov",  "cvt",   "setp", "selp",
        "bfi", "bfe", "prmt", "popc", "clz", "lop3", "slct", "brev", "bfind", "sad"};
    for (const char *known : computes)
        if (op == known)
            return compute_cost(table, w);
    fail("no cost for " + mnemonic);
}
