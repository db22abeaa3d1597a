/* What the files of pagestash-plan-bench share: an instance is run over seeds and threads, and gets a row. */
#ifndef PAGESTASH_BENCH_PLAN_BENCH_H
#define PAGESTASH_BENCH_PLAN_BENCH_H

#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <stdio.h>

enum { PLAN_BENCH_SAMPLES = 5 };

#define PLAN_FLAGS(F)                                                                             \
    F(U32, threads, "N", 1, 64, "2",                                                              \
      "of the planner; with more than 1, each run is also made with 1")                           \
    F(U32, seeds, "N", 1, 100, "5", "seeds of each run")                                          \
    F(U32, tilings, "N", 0, 100000, "20", "seeds of tilings of 100, 300 and 1,000")               \
    F(CHOICE, only, "all|reader|derived|deadlines|minimalloc|instance|rows|tilings|peer|command", \
      0, 0, "all", "of all runs")                                                                 \
    F(FACTOR, deadline, "SECONDS", 0, 1000000, "60", "of each run")                               \
    F(TEXT, minimalloc, "FOLDER", 0, 0, "tests/data/minimalloc", "with MiniMalloc's instances")   \
    F(TEXT, step, "FILE", 0, 0, "bench/plan/gpt-l96-step.csv",                                    \
      "a recorded training step in MiniMalloc's format, named W")                                 \
    F(TEXT, instance, "FILE", 0, 0, "-", "one more instance in MiniMalloc's format; -: none")     \
    F(TEXT, peer, "FILE", 0, 0, "-", "MiniMalloc's program, to run beside; -: none")              \
    F(TEXT, command, "FILE", 0, 0, "-", "pagestash, to run as users do; -: not")

typedef struct options {
    PLAN_FLAGS(FLAG_MEMBER)
    const char *json;
} options;

extern options chosen;
extern json_t *rows; /* of the report */
extern FILE *table;  /* NULL when the report goes to stdout */

/* One instance. target and others: seconds; 0: none. */
typedef struct instance {
    const char *name;
    const pst_plan_tensor *tensors;
    const pst_plan_block *blocks; /* or NULL; else mode bilevel */
    uint32_t num_blocks;
    uint64_t num_tensors, align, capacity;
    double target, minimalloc, supermalloc;
    bool has_times, has_tail; /* has_tail: p90 over the seeds is wanted below twice the median */
} instance;

typedef struct effort {
    double wall, cpu; /* seconds */
} effort;

/* A line of the table. */
void __attribute__((format(printf, 1, 2))) say(const char *format, ...);
effort run_with(const instance *of, const pst_plan_config *config, uint64_t *offsets,
                pst_plan *plan);
/* Passes the plan through the judge. */
void check_plan(const instance *of, const uint64_t *offsets, const pst_plan *plan);
/* Both, until the deadline of the options. */
effort run_once(const instance *of, uint64_t seed, uint32_t threads, uint64_t *offsets,
                pst_plan *plan);
double gap_percent(const pst_plan *plan);
/* Adds rows with 1 thread and with as many as the options say. Returns the median of the processor's
 * seconds with 1. */
double run(const instance *of);

/* How far behind its deadline a run ends, by the processor's time, which other programs do not change. */
void run_deadline(const instance *of, double seconds);

/* ---- plan_passes.c */

/* Deadlines of mode bilevel. */
void run_passes(const double *deadlines, size_t num);

/* ---- plan_command.c */

void run_command(void);

/* ---- plan_peer.c */

typedef struct peer_result {
    bool is_met; /* it found a plan within the capacity and the deadline */
    double cpu;  /* seconds, user */
} peer_result;

/* Runs the program of the options. Ends this one where it cannot be run. */
peer_result peer_run(const instance *of, uint64_t capacity);

/* ---- plan_reader.c */

void run_reader(void);

#endif
