/* What is measured, a function for each; main.c calls them in turn, and they know nothing of it. */
#ifndef PAGESTASH_BENCH_MEASURE_H
#define PAGESTASH_BENCH_MEASURE_H

#include "bench/stash/report.h"

/* cache_bytes: 0 for what the machine says. */
int bench_machine_of(pst_device *device, uint64_t cache_bytes, bench_machine *machine);
void bench_read_clocks(bench_machine *machine);

/* Measures and adds a result and its anchors. If the device cannot run the configuration, adds a
 * skip, or fails unless may_skip is set. */
int bench_measure(pst_device *device, const bench_case *what, uint32_t samples, bool may_skip,
                  bench_report *report);
/* Fails, with what is in the way, if the device cannot run the configuration. */
int bench_can_run(pst_device *device, const bench_case *what, bench_report *report);
int bench_measure_nodes(pst_device *device, uint32_t samples, bench_report *report);
int bench_measure_overlaps(pst_device *device, bool quick, bench_report *report);
int bench_measure_pairs(pst_device *device, uint64_t pairs, bench_report *report);
int bench_measure_glu(pst_device *device, bool quick, uint32_t samples, bench_report *report);
int bench_measure_linears(pst_device *device, bool quick, uint32_t samples, bench_report *report);
int bench_measure_host_tier(pst_device *device, bool quick, bench_report *report);
int bench_measure_recovery(pst_device *device, const bench_machine *machine, bool quick,
                           uint32_t samples, bench_recovery *recovered);
int bench_measure_calls(bench_call_cost *cost);

#endif
