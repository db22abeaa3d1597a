/* Stands in for the .cu files where the library has no cuda device, so that nobody calls it. */
#include "bench/stash/gpu.h"

/* No stub looks at its arguments. NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ABSENT(name, ...)                             \
    const char *name(__VA_ARGS__)                     \
    {                                                 \
        return "this program was built without CUDA"; \
    }

ABSENT(bench_gpu_get_facts, int index, bench_gpu_facts *facts_out)
ABSENT(bench_gpu_copy, pst_backend backend, bool streaming, int num_sms, void *to, const void *from,
       uint64_t bytes, pst_stream stream)
ABSENT(bench_gpu_transform, void *to, const void *from, uint64_t bytes, pst_stream stream)
ABSENT(bench_gpu_batched, void *scratch, size_t *scratch_bytes, void *const *from, void *const *to,
       const uint32_t *sizes, uint32_t num, pst_stream stream)
ABSENT(bench_gpu_probe_begin, pst_stream stream)
ABSENT(bench_gpu_probe_end, pst_stream stream, bench_grid *grid_out)
ABSENT(bench_gpu_empty, const bench_grid *grid, pst_stream stream)
ABSENT(bench_gpu_idle, pst_stream stream)
ABSENT(bench_gpu_hold, pst_stream stream)

/* NOLINTEND(misc-unused-parameters) */
