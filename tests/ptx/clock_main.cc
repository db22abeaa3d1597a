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

const char *const ops[] = {"stash", "restore", "migrate"};
const char *const pools[] = {"ordered", "concurrent"};
const char *const backends[] = {"ldg", "bulk", "squeeze"};

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

void print(const clock_table &table, unsigned architecture, const char *op, const char *backend,
           const char *pool, const clock_case &what, const clock_report &r, double empty)
{
    const double per_cycle = r.tile_cycles > 0 ? 2 * 16384 / r.tile_cycles : 0;
    printf("{\"architecture\": %u, \"op\": \"%s\", \"backend\": \"%s\", \"pool\": \"%s\", "
           "\"case\": \"%s\", \"cycles\": %.0f, \"microseconds\": %.2f, \"over_empty_us\": %.2f, "
           "\"first_load\": %.0f, \"trips_before\": %u, \"membars_before\": %u, "
           "\"after_store\": %.0f, \"trips_after\": %u, \"membars_after\": %u, "
           "\"trips\": %u, \"membars\": %u, \"tile_cycles\": %.1f, \"bytes_per_cycle\": %.1f, "
           "\"gb_per_s\": %.1f, \"duty\": %.3f, \"instructions\": %llu, \"slots\": %llu}\n",
           architecture, op, backend, pool, what.name, r.cycles, r.cycles / table.clock_mhz,
           (r.cycles - empty) / table.clock_mhz, r.first_load, r.trips_before, r.membars_before,
           r.after_store, r.trips_after, r.membars_after, r.trips, r.membars, r.tile_cycles,
           per_cycle, per_cycle * table.gigahertz(), r.duty, (unsigned long long)r.instructions,
           (unsigned long long)r.slots);
    fflush(stdout);
}

void run_program(const std::string &table_path, const std::string &ptx, const selection &wanted)
{
    const ptx_program program = ptx_read(ptx);
    const clock_table table = clock_read_table(table_path, program.architecture);
    const double empty = empty_cycles(table, program.architecture);
    for (uint32_t c = 0; c < clock_num_cases; c++)
        for (int op = 0; op < 3; op++)
            for (int backend = 0; backend < 3; backend++)
                for (int concurrent = 0; concurrent < 2; concurrent++) {
                    const clock_case &what = clock_cases[c];
                    clock_report report;
                    if ((backend > 0 && program.architecture < 90) ||
                        (wanted.is_short &&
                         (!(what.flags & clock_case::in_short) || concurrent || op == 2)) ||
                        (!wanted.name.empty() && wanted.name != what.name) ||
                        (!wanted.op.empty() && wanted.op != ops[op]) ||
                        (!wanted.pool.empty() && wanted.pool != pools[concurrent]) ||
                        (!wanted.backend.empty() && wanted.backend != backends[backend]))
                        continue;
                    if (clock_time_case(table, program, what, (clock_op)op, backends[backend],
                                        concurrent != 0, wanted.traced, &report))
                        print(table, program.architecture, ops[op], backends[backend],
                              pools[concurrent], what, report, empty);
                }
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
