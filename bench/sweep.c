/* The list of configurations: at every size a base, and what differs from it in one thing. */
#include "bench.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

const char *bench_pattern_name(bench_pattern pattern)
{
    return pattern == BENCH_HOT_EXPERT ? "hot-expert" : "uniform";
}

size_t bench_sweep(bool quick, bench_case *cases, size_t max)
{
    static const uint64_t all_sizes[] = {1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    static const uint64_t quick_sizes[] = {1 * MIB, 64 * MIB};
    static const bench_case variants[] = {
        {.page_bytes = 256 * KIB, .tensors = 6, .pattern = BENCH_UNIFORM},
        {.page_bytes = 256 * KIB, .tensors = 6, .pattern = BENCH_HOT_EXPERT},
        {.page_bytes = 256 * KIB, .tensors = 1, .pattern = BENCH_UNIFORM},
        {.page_bytes = 256 * KIB, .tensors = 64, .pattern = BENCH_UNIFORM},
        {.page_bytes = 64 * KIB, .tensors = 6, .pattern = BENCH_UNIFORM},
        {.page_bytes = 1 * MIB, .tensors = 6, .pattern = BENCH_UNIFORM},
    };
    const size_t num_variants = quick ? 4 : sizeof(variants) / sizeof(variants[0]);
    const size_t num_sizes = quick ? 2 : sizeof(all_sizes) / sizeof(all_sizes[0]);
    size_t num = 0;
    for (size_t s = 0; s < num_sizes; s++)
        for (size_t v = 0; v < num_variants; v++, num++)
            if (num < max) {
                cases[num] = variants[v];
                cases[num].bytes = quick ? quick_sizes[s] : all_sizes[s];
            }
    return num;
}
