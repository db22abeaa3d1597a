/* Room bench/schedule: what hooks, programs and policies cost on the host, and what the scheduler hides
 * on a device. Uses bench/common, tools/common, the GEMM of bench/stash; hooks.c looks inside. */
#ifndef PAGESTASH_BENCH_SCHEDULE_H
#define PAGESTASH_BENCH_SCHEDULE_H

#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "tools/common/flags.h"
#include "tools/common/tool.h"

#define SCHEDULE_FLAGS(F)                                                                         \
    F(CHOICE, device, PST_DEVICE_NAMES, 0, 0, "auto", "of what is hidden; auto is cuda, or host") \
    F(U32, samples, "N", 3, BENCH_MAX_SAMPLES, "21", "of each figure")                            \
    F(U32, layers, "N", 1, 256, "4", "of the stage that is run on the device")                    \
    F(U32, micro_batches, "N", 1, 4096, "8", "that it runs, first of 4 stages of 1F1B")           \
    F(SIZE, live, "BYTES", 1 << 16, UINT64_C(1) << 36, NULL,                                      \
      "that a layer keeps (cuda 256MiB, host 4MiB); static buffers have twice as many")           \
    F(SWITCH, costs, NULL, 0, 0, NULL, "only what runs on the host, without a device")

typedef struct bench_options {
    SCHEDULE_FLAGS(FLAG_MEMBER)
    const char *json;
} bench_options;

/* ---- hooks.c ---- */

enum { BENCH_HOOK_SIZES = 3 };

typedef struct bench_hook_cost {
    uint32_t micro_batches[BENCH_HOOK_SIZES];
    bench_times empty;                     /* ns of a call that does nothing */
    bench_times planned[BENCH_HOOK_SIZES]; /* ns of a hook of a layer with nothing to enqueue */
    bench_times paged[BENCH_HOOK_SIZES];   /* ns of a visit's two hooks, no device behind them */
    bool has_cuda_path;                    /* paged: with the launches' arguments as for cuda */
    double launches, edges;                /* of such a visit: launches; records and waits */
} bench_hook_cost;

int bench_measure_hooks(const bench_options *options, bench_hook_cost *out);

/* ---- pure.c ---- */

typedef struct bench_pure_cost {
    uint64_t visits;
    bench_times compile_ns;     /* of a visit */
    bench_times policy_seconds; /* 61 layers on 16 ranks, 64 micro-batches; enough memory */
    bench_times scarce_seconds; /* the same, where pages have to leave */
    uint64_t evaluations[2];
    bool fits[2];
} bench_pure_cost;

int bench_measure_pure(const bench_options *options, bench_pure_cost *out);

/* ---- hidden.c ---- */

enum { BENCH_MAX_WAYS = 8 };

/* One way to keep what the layers need. */
typedef struct bench_way {
    const char *name;
    bench_times eager_ms, graph_ms; /* of an iteration */
    double exposed_us;              /* of a visit, graph, beyond the way that keeps nothing */
    double waited_us;               /* of a visit, eager, as the scheduler measured; NAN: did not */
    double simulated_us;            /* of a visit; NAN: not simulated */
    double nodes, launch_us; /* of a visit: nodes of the graph, time of the launching thread */
    uint64_t high_water, simulated_high_water;
    bool is_order_known;
} bench_way;

typedef struct bench_hidden {
    pst_device_info device;
    const char *core; /* what stands for a layer's work */
    uint64_t live_bytes, visits;
    bench_times core_us, stash_us, restore_us;
    bench_way ways[BENCH_MAX_WAYS];
    uint32_t num_ways;
} bench_hidden;

int bench_measure_hidden(const bench_options *options, bench_hidden *out);

#endif
