/* The command line. */
#ifndef PAGESTASH_BENCH_OPTIONS_H
#define PAGESTASH_BENCH_OPTIONS_H

#include "bench/stash/bench.h"

typedef struct bench_options {
    const char *device;
    const char *json;
    bool quick;
    bool call_cost;
    uint32_t sweeps; /* bits 1 << bench_sweep; 0: not asked for */
    bool has_custom;
    bench_case custom;
} bench_options;

int bench_parse_options(int argc, char **argv, bench_options *options);

#endif
