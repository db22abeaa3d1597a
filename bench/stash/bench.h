/* What the files of pagestash-bench share. */
#ifndef PAGESTASH_BENCH_H
#define PAGESTASH_BENCH_H

#include <pagestash/pagestash.h>

/* Every function that can fail returns one of these, its message already printed. */
enum bench_exit {
    BENCH_OK = 0,
    BENCH_NO = 1,     /* bytes differ, a stash failed, memory does not suffice */
    BENCH_USAGE = 2,  /* unknown flag or device, a value out of range */
    BENCH_DEVICE = 4, /* the asked device or backend is absent, or failed */
};

#define BENCH_KIB ((uint64_t)1024)
#define BENCH_MIB (1024 * BENCH_KIB)

/* ---- main.c ---- */

/* Prints "pagestash-bench: TEXT" on stderr as one line and returns code. */
int bench_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The exit code for a status of the library; prints the library's message unless it is PST_OK. */
int bench_status(pst_status status);
/* The exit code for what a function of gpu.h returned; prints what. */
int bench_gpu(const char *error);

#define BENCH_TRY(call)                     \
    do {                                    \
        const int bench_try_code_ = (call); \
        if (bench_try_code_ != BENCH_OK)    \
            return bench_try_code_;         \
    } while (0)
#define BENCH_PST(call) BENCH_TRY(bench_status(call))
#define BENCH_GPU(call) BENCH_TRY(bench_gpu(call))

/* ---- stats.c ---- */

typedef struct bench_times {
    double min, median, max; /* in the unit of the samples */
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
/* Median of above[i] / below[i]. */
double bench_median_ratio(const bench_series *above, const bench_series *below);

/* ---- sweep.c and shape.c: configurations ---- */

typedef enum bench_sweep {
    BENCH_SWEEP_BYTES,
    BENCH_SWEEP_NUM_SMS,
    BENCH_SWEEP_PAGE_SIZE,
    BENCH_SWEEP_RING,
    BENCH_SWEEP_PATTERN,
    BENCH_SWEEP_TENSORS,
    BENCH_SWEEP_ALIGNMENT,
    BENCH_SWEEP_BACKEND,
    BENCH_SWEEP_GEMM,
    BENCH_SWEEP_PAIRS,
    BENCH_SWEEP_HOST,
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
    uint32_t alignment; /* of bases and wide rows: 16, 4 or 2 bytes */
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
    pst_tensor tensors[PST_MAX_TENSORS]; /* without bases */
    uint64_t offsets[PST_MAX_TENSORS];   /* of the bases in the arena */
    uint32_t num_tensors;
    int64_t counts[PST_MAX_SEGMENTS];
    uint32_t num_counts;
    uint64_t arena_bytes; /* the capacity */
    uint64_t live_bytes;
} bench_shape;

void bench_shape_of(const bench_case *what, bench_shape *shape);

/* ---- what is measured: the two operations, and the anchors that they are compared with ---- */

typedef enum bench_slot {
    BENCH_DRIVER_COPY,       /* pst_device_copy: memcpy on host, the driver's copy on cuda */
    BENCH_OWN_LDG,           /* our own copy of contiguous bytes, stored as a restore stores */
    BENCH_OWN_LDG_STREAMING, /* the same, stored as a stash stores */
    BENCH_OWN_BULK,
    BENCH_OWN_BULK_STREAMING,
    BENCH_OWN_SQUEEZE,
    BENCH_OWN_SQUEEZE_STREAMING,
    BENCH_CUB_TRANSFORM,
    BENCH_CUB_BATCHED,   /* over the pieces of the same pages, whose places the host knows */
    BENCH_FULL_CAPACITY, /* driver copy of all rows, live or not */
    BENCH_EMPTY_NODE,    /* of the stash's grid and parameters */
    BENCH_NUM_ANCHORS,
    BENCH_STASH = BENCH_NUM_ANCHORS,
    BENCH_RESTORE,
    BENCH_NUM_SLOTS
} bench_slot;

enum { BENCH_NO_ANCHOR = -1 };

typedef struct bench_anchor {
    const char *name;
    const char *role; /* "a0", "configuration", "nodes", "to_host", "from_host" */
    bench_state state;
    uint64_t bytes;
    int num_sms; /* 0: whatever it takes */
    uint32_t nodes;
    bench_times seconds;
    uint64_t mismatched_bytes;
} bench_anchor;

typedef struct bench_row {
    bench_times seconds;
    int anchors[BENCH_NUM_ANCHORS]; /* index in the report, or BENCH_NO_ANCHOR */
    int own_copy;                   /* the same for the fastest own copy of as many bytes */
    double share_of_own_copy;       /* NaN without one */
} bench_row;

typedef struct bench_result {
    bench_case what;
    uint64_t bytes, capacity_bytes, pages;
    int num_sms;
    uint32_t num_copies; /* of the buffers */
    uint64_t nodes[2];   /* of a graph that stashes, and of one that restores */
    uint64_t mismatched_bytes;
    bench_row rows[BENCH_NUM_STATES][2]; /* stash, restore */
} bench_result;

const char *bench_anchor_name(const pst_device_info *device, bench_slot slot);

/* ---- report ---- */

typedef struct bench_clocks {
    unsigned sm_mhz, memory_mhz, max_sm_mhz, max_memory_mhz; /* 0: not said */
} bench_clocks;

typedef struct bench_machine {
    pst_device_info device;
    uint64_t cache_bytes;     /* L2 on cuda, last level on host */
    const char *cache_source; /* who said so */
    uint64_t host_bytes;      /* of the host's memory, available at first */
    char driver[80];          /* "": none */
    bool has_clocks;
    bench_clocks clocks; /* after the first copies at full speed */
} bench_machine;

typedef struct bench_skip {
    bench_sweep sweep;
    char what[200];
    char reason[240];
} bench_skip;

/* Stash and GEMM side by side. */
typedef struct bench_overlap {
    pst_backend backend;
    int num_sms;  /* of the stash */
    int gemm_sms; /* that the GEMM was told to use */
    uint64_t bytes;
    bench_times gemm_alone, gemm_beside;   /* alone on all SMs */
    bench_times stash_alone, stash_beside; /* seconds */
    bench_times start_alone, start_beside; /* of an empty kernel of the stash's grid */
    uint64_t mismatched_bytes;
} bench_overlap;

enum { BENCH_MAX_OVERLAPS = 8 };

typedef struct bench_pairs {
    uint64_t pairs; /* of each of two runs */
    uint64_t faults, check_errors, mismatched_bytes;
    uint64_t moved_pages; /* whose id was another one in the second run */
} bench_pairs;

/* A group between the device and pinned memory: stash, restore. */
typedef struct bench_host_row {
    uint64_t bytes, pages;
    uint64_t pool_bytes; /* of the pool's pinned tier */
    bool is_part;      /* half of the group alone in one tier, beside which a mixed stash stands */
    uint32_t num, den; /* fraction that was asked for */
    uint64_t pinned_pages; /* that the tickets had */
    int num_sms;
    bench_times seconds[2];
    double share_of_engine[2];  /* of the driver's copy; NaN unless all bytes cross the link */
    double share_of_sm_copy[2]; /* of the fastest of our own copies; NaN also where there is none */
    uint64_t mismatched_bytes;
} bench_host_row;

typedef struct bench_pin {
    uint64_t bytes;
    double seconds; /* to create the pool, device pages included */
} bench_pin;

/* From a stash that failed to a pool that is ready to run again. */
typedef struct bench_recovery {
    char unavailable[160]; /* why there is no figure, or "" */
    uint64_t grown_bytes;
    bench_times seconds;
    uint64_t mismatched_bytes;
} bench_recovery;

enum { BENCH_MAX_HOST_ROWS = 32, BENCH_MAX_PINS = 4 };

typedef struct bench_host_tier {
    uint64_t bytes; /* of the group; 0: not measured */
    int engine[2];  /* anchors, to the host and from it: the driver's copy */
    int sm_copy[2]; /* the fastest of our own; or BENCH_NO_ANCHOR */
    bench_host_row rows[BENCH_MAX_HOST_ROWS];
    size_t num_rows;
    bench_pin pins[BENCH_MAX_PINS];
    size_t num_pins;
    bench_recovery recovery;
} bench_host_tier;

enum { BENCH_CALL_TENSORS = 3, BENCH_CALL_TARGET_NS = 5000 };

typedef struct bench_call_cost {
    const char *unavailable; /* why there is no figure, or NULL */
    uint32_t tensors[BENCH_CALL_TENSORS];
    bench_times ns[BENCH_CALL_TENSORS]; /* of one call, each sample a mean over many */
} bench_call_cost;

typedef struct bench_report {
    bench_machine machine;
    bool quick;
    bench_anchor *anchors;
    size_t num_anchors;
    int a0;
    bench_result *results;
    size_t num_results;
    bench_skip *skips;
    size_t num_skips;
    char no_overlap[160]; /* why there are none, or "" */
    bench_overlap overlaps[BENCH_MAX_OVERLAPS];
    size_t num_overlaps;
    bool has_pairs;
    bench_pairs pairs;
    bench_host_tier host_tier;
    bench_call_cost cost;
} bench_report;

/* Each returns BENCH_OK, or BENCH_NO when memory is out. */
int bench_add_anchor(bench_report *report, const bench_anchor *anchor, int *index_out);
int bench_add_result(bench_report *report, const bench_result *result);
int bench_add_skip(bench_report *report, const bench_case *what, const char *reason);
void bench_describe(const bench_case *what, char *text, size_t bytes);
uint64_t bench_mismatches(const bench_report *report);
void bench_free_report(bench_report *report);
/* 10^9 bytes per second at the median; 0 of no bytes. */
double bench_gbps(uint64_t bytes, const bench_times *seconds);
/* NaN of no bytes, and without A0. */
double bench_share_of_a0(const bench_report *report, uint64_t bytes, const bench_times *seconds);

/* Of the pool's device pages. */
uint64_t bench_pool_bytes(const bench_result *result);

void bench_print_report(const bench_report *report);
void bench_print_goals(const bench_report *report);
/* Writes the whole object to path, or nothing; "-" is stdout. */
int bench_write_json(const bench_report *report, const char *path);

/* ---- who measures ---- */

int bench_machine_of(pst_device *device, bench_machine *machine);
void bench_read_clocks(bench_machine *machine);

/* Measures and adds a result and its anchors. If the device cannot run the configuration, adds a
 * skip, or fails unless may_skip is set. */
int bench_measure(pst_device *device, const bench_case *what, uint32_t samples, bool may_skip,
                  bench_report *report);
int bench_measure_nodes(pst_device *device, uint32_t samples, bench_report *report);
int bench_measure_overlaps(pst_device *device, bool quick, bench_report *report);
int bench_measure_pairs(pst_device *device, uint64_t pairs, bench_report *report);
int bench_measure_host_tier(pst_device *device, bool quick, bench_report *report);
int bench_measure_recovery(pst_device *device, const bench_machine *machine, bool quick,
                           uint32_t samples, bench_recovery *recovered);
int bench_measure_calls(bench_call_cost *cost);

#endif
