/* Rows of the table of goals. */
#ifndef PAGESTASH_BENCH_GOALS_H
#define PAGESTASH_BENCH_GOALS_H

#include "bench/stash/bench.h"

/* The worst figure of the run, NaN if nothing was measured, and where it stood. */
typedef struct bench_figure {
    double value;
    char where[160];
} bench_figure;

bench_figure bench_no_figure(void);
/* The worse of two: the larger if small is good. */
void bench_worsen(bench_figure *worst, double value, bool small_is_good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* missing: what it would take, where nothing was measured. */
void bench_print_goal(const char *id, const char *what, const bench_figure *worst,
                      bool small_is_good, double target, const char *missing);

/* goals_host.c: those of the pinned tier. */
void bench_print_host_goals(const bench_report *report);

#endif
