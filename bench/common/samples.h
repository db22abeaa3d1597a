/* Samples, their medians, a clock, and numbers that are the same in every run. Uses libc only; the
 * benchmarks of stashes, plans and the arena use it. */
#ifndef PAGESTASH_BENCH_SAMPLES_H
#define PAGESTASH_BENCH_SAMPLES_H

#include <stdint.h>

typedef struct bench_times {
    double min, median, p90, max; /* in the unit of the samples */
    uint32_t samples;
} bench_times;

enum { BENCH_MAX_SAMPLES = 1024 };

typedef struct bench_series {
    double samples[BENCH_MAX_SAMPLES];
    uint32_t num;
} bench_series;

/* Leaves the value out when the series is full. */
void bench_series_add(bench_series *series, double value);
/* Of a series that is not empty. */
bench_times bench_summary(const bench_series *series);
/* Median of above[i] / below[i]; NaN where either is empty. */
double bench_median_ratio(const bench_series *above, const bench_series *below);

/* Seconds of a clock that only goes forward. */
double bench_now(void);
/* Seconds of processor time that this process has had, all threads together. */
double bench_cpu(void);

#define BENCH_FIRST_DRAW UINT64_C(88172645463325252)
/* The next number of a sequence that begins with BENCH_FIRST_DRAW: xorshift64, Marsaglia 2003. */
uint64_t bench_draw(uint64_t *state);

#endif
