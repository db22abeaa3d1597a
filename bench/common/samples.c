/* Samples and their medians, a clock, random numbers. */
#include "bench/common/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_series_add(bench_series *series, double value)
{
    if (series->num < BENCH_MAX_SAMPLES)
        series->samples[series->num++] = value;
}

bench_times bench_summary(const bench_series *series)
{
    const uint32_t num = series->num;
    double sorted[BENCH_MAX_SAMPLES];
    memcpy(sorted, series->samples, num * sizeof(sorted[0]));
    qsort(sorted, num, sizeof(sorted[0]), by_value);
    return (bench_times){.min = sorted[0],
                         .median = (sorted[(num - 1) / 2] + sorted[num / 2]) / 2.0,
                         .p90 = sorted[(num * 9 + 9) / 10 - 1],
                         .max = sorted[num - 1],
                         .samples = num};
}

double bench_median_ratio(const bench_series *above, const bench_series *below)
{
    bench_series ratios = {.num = 0};
    for (uint32_t i = 0; i < above->num && i < below->num; i++)
        bench_series_add(&ratios, above->samples[i] / below->samples[i]);
    return ratios.num ? bench_summary(&ratios).median : (double)NAN;
}

double bench_cpu(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint64_t bench_draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
