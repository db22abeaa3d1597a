#include "bench.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_times bench_summary(double *samples, uint32_t num_samples)
{
    qsort(samples, num_samples, sizeof(samples[0]), by_value);
    const double low = samples[(num_samples - 1) / 2], high = samples[num_samples / 2];
    return (bench_times){.min = samples[0],
                         .median = (low + high) / 2.0,
                         .max = samples[num_samples - 1],
                         .samples = num_samples};
}
