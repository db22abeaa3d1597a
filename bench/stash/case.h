/* Room bench/stash: the program pagestash-bench. Uses tools/common and bench/common. Used by nobody.
 * This file: configurations: what one is, the sweeps that list them (sweep.c), and the tensors and row counts
 * that one stands for (shape.c). Uses the library only; every other file of this folder uses it. */
#ifndef PAGESTASH_BENCH_CASE_H
#define PAGESTASH_BENCH_CASE_H

#include <pagestash/pagestash.h>

#define BENCH_KIB ((uint64_t)1024)
#define BENCH_MIB (1024 * BENCH_KIB)

typedef enum bench_sweep {
    BENCH_SWEEP_BYTES,
    BENCH_SWEEP_NUM_SMS,
    BENCH_SWEEP_PAGE_SIZE,
    BENCH_SWEEP_RING,
    BENCH_SWEEP_PATTERN,
    BENCH_SWEEP_TENSORS,
    BENCH_SWEEP_ALIGNMENT,
    BENCH_SWEEP_PITCH,
    BENCH_SWEEP_BACKEND,
    BENCH_SWEEP_GEMM,
    BENCH_SWEEP_PAIRS,
    BENCH_SWEEP_HOST,
    BENCH_SWEEP_GLU,
    BENCH_SWEEP_LINEAR,
    BENCH_NUM_SWEEPS,
    BENCH_SWEEP_CUSTOM = BENCH_NUM_SWEEPS /* the one that --bytes and so on describe */
} bench_sweep;

typedef enum bench_pattern {
    BENCH_PREFIX,     /* one count */
    BENCH_UNIFORM,    /* a segment for each of 8 experts; the same rows in each */
    BENCH_ZIPF,       /* expert e has rows in proportion to 1 / (e + 1) */
    BENCH_HOT_EXPERT, /* one has half of the rows, the others share the rest */
    BENCH_EMPTY,      /* no row is live */
    BENCH_FULL,       /* every row of the capacity is live */
    BENCH_NUM_PATTERNS
} bench_pattern;

typedef enum bench_ring { BENCH_FRESH, BENCH_SHUFFLED, BENCH_REVERSED } bench_ring;
typedef enum bench_state { BENCH_COLD, BENCH_WARM, BENCH_NUM_STATES } bench_state;

/* One configuration: for each state a row for stash and one for restore. */
typedef struct bench_case {
    uint64_t bytes; /* wanted; the result says how many they are */
    uint64_t page_bytes;
    uint64_t host_bytes; /* of the pool's pinned tier; 0: none, and no rotation of buffers */
    bench_sweep sweep;
    uint32_t tensors;
    uint32_t alignment;             /* of bases and wide rows: 16, 4 or 2 bytes */
    uint32_t row_bytes, row_stride; /* of every tensor; 0: those of an MoE layer, packed */
    bench_pattern pattern;
    bench_ring ring;
    pst_backend backend;
    int num_sms; /* 0: all */
    bool scales; /* every second tensor is one of scales, 1/32 as wide */
    bool peers;  /* beside what else one could do: cub, the full capacity */
} bench_case;

enum { BENCH_MAX_CASES = 256 };

const char *bench_sweep_name(bench_sweep sweep);
const char *bench_pattern_name(bench_pattern pattern);
const char *bench_ring_name(bench_ring ring);
const char *bench_state_name(bench_state state);
const char *bench_backend_name(pst_backend backend);

/* What differs from it in one thing is what the sweeps are made of. */
bench_case bench_base_case(void);
/* The configurations of the sweeps in the set (bits 1 << bench_sweep); returns how many. */
size_t bench_cases(const pst_device_info *device, uint32_t sweeps, bool quick, bench_case *cases);

/* The tensors of a configuration, laid out in one arena, and their row counts. */
typedef struct bench_shape {
    pst_row_space space;
    pst_tensor tensors[PST_MAX_TENSORS];
    uint64_t offsets[PST_MAX_TENSORS]; /* of the bases in the arena */
    uint32_t num_tensors;
    int64_t counts[PST_MAX_SEGMENTS];
    uint32_t num_counts;
    uint64_t arena_bytes; /* the capacity */
    uint64_t live_bytes;
} bench_shape;

void bench_shape_of(const bench_case *what, bench_shape *shape);

#endif
