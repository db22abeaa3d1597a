/* clock_main TABLE [--short] [--case NAME] [--op NAME] [--backend NAME] [--pool NAME] [--trace WARP]
 *            --kernels PTX...
 *
 * Prints a line of JSON for each launch that is timed: the kernels of each PTX file, in all cases or the
 * short selection; --trace also each instruction of that warp of the first block, to stderr. It is a model, see clock_run.h. */
#include <cstdio>
#include <cstring>

#include "tests/ptx/clock_case.h"

namespace
{

struct selection {
    bool is_short = false;
    int traced = -1; /* warp */
    std::string name, op, backend, pool;
};

/* No selection is wanted, or this one. */
bool fits(const std::string &wanted, const std::string &is)
{
    return wanted.empty() || wanted == is;
}

bool is_wanted(const selection &wanted, const clock_name &name)
{
    return (name.is_short || !wanted.is_short) && fits(wanted.name, name.what) &&
           fits(wanted.op, name.op) && fits(wanted.pool, name.pool) &&
           fits(wanted.backend, name.backend);
}

/* The launch that does nothing, which the others are compared with. */
double empty_cycles(const clock_table &table, unsigned architecture)
{
    const ptx_program program =
        ptx_parse(".version 9.0\n.target sm_" + std::to_string(architecture) +
                  "\n.address_size 64\n.entry empty()\n{\nret;\n}\n");
    clock_launch launch;
    launch.kernel = &program.kernel("empty");
    launch.num_blocks = launch.resident = 4;
    launch.threads = 256;
    return clock_run(table, launch).cycles;
}

void print(const clock_table &table, unsigned architecture, const clock_name &name,
           const clock_report &r, double empty)
{
    const double per_cycle = r.tile_cycles > 0 ? 2 * 16384 / r.tile_cycles : 0;
    printf("{\"architecture\": %u, \"op\": \"%s\", \"backend\": \"%s\", \"pool\": \"%s\", "
           "\"case\": \"%s\", \"cycles\": %.0f, \"microseconds\": %.2f, \"over_empty_us\": %.2f, "
           "\"first_load\": %.0f, \"trips_before\": %u, \"membars_before\": %u, "
           "\"after_store\": %.0f, \"trips_after\": %u, \"membars_after\": %u, "
           "\"trips\": %u, \"membars\": %u, \"tile_cycles\": %.1f, \"bytes_per_cycle\": %.1f, "
           "\"gb_per_s\": %.1f, \"duty\": %.3f, \"instructions\": %llu, \"slots\": %llu, "
           "\"picked\": \"%s\"}\n",
           architecture, name.op.c_str(), name.backend.c_str(), name.pool.c_str(),
           name.what.c_str(), r.cycles, r.cycles / table.clock_mhz,
           (r.cycles - empty) / table.clock_mhz, r.first_load, r.trips_before, r.membars_before,
           r.after_store, r.trips_after, r.membars_after, r.trips, r.membars, r.tile_cycles,
           per_cycle, per_cycle * table.gigahertz(), r.duty, (unsigned long long)r.instructions,
           (unsigned long long)r.slots, r.picked);
    fflush(stdout);
}

void run_program(const std::string &table_path, const std::string &ptx, const selection &wanted)
{
    const ptx_program program = ptx_read(ptx);
    const clock_table table = clock_read_table(table_path, program.architecture);
    const double empty = empty_cycles(table, program.architecture);
    const clock_setting setting = {table, program, wanted.traced};
    const clock_visitor visit = [&](const clock_name &name, const clock_timing &timing) {
        if (is_wanted(wanted, name))
            print(table, program.architecture, name, timing(), empty);
    };
    clock_each_move(setting, visit);
    clock_each_glu(setting, visit);
    clock_each_other(setting, visit);
}

} /* namespace */

int main(int argc, char **argv)
{
    selection wanted;
    bool any = false;
    for (int i = 2; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--short") == 0)
            wanted.is_short = true;
        else if (strcmp(argv[i], "--trace") == 0 && has_value)
            wanted.traced = atoi(argv[++i]);
        else if (strcmp(argv[i], "--pool") == 0 && has_value)
            wanted.pool = argv[++i];
        else if (strcmp(argv[i], "--case") == 0 && has_value)
            wanted.name = argv[++i];
        else if (strcmp(argv[i], "--op") == 0 && has_value)
            wanted.op = argv[++i];
        else if (strcmp(argv[i], "--backend") == 0 && has_value)
            wanted.backend = argv[++i];
        else if (strcmp(argv[i], "--kernels") == 0 && has_value) {
            run_program(argv[1], argv[++i], wanted);
            any = true;
        }
    }
    if (!any)
        fprintf(stderr, "usage: clock_main TABLE [--short] [--case NAME] [--op NAME] "
                        "[--backend NAME] [--pool NAME] [--trace WARP] --kernels PTX...\n");
    return any ? 0 : 2;
}
