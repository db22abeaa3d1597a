/* What the files of pagestash-bench share. */
#ifndef PAGESTASH_BENCH_H
#define PAGESTASH_BENCH_H

#include <pagestash/pagestash.h>

/* Every function that can fail returns one of these, its message already printed. */
enum bench_exit {
    BENCH_OK = 0,
    BENCH_NO = 1,     /* bytes differ, a stash failed, memory does not suffice */
    BENCH_USAGE = 2,  /* unknown flag or device */
    BENCH_DEVICE = 4, /* the asked device is absent or failed */
};

/* ---- main.c ---- */

/* Prints "pagestash-bench: TEXT" on stderr as one line and returns code. */
int bench_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The exit code for a status of the library; prints the library's message unless it is PST_OK. */
int bench_status(pst_status status);

#define BENCH_TRY(call)                     \
    do {                                    \
        const int bench_try_code_ = (call); \
        if (bench_try_code_ != BENCH_OK)    \
            return bench_try_code_;         \
    } while (0)
#define BENCH_PST(call) BENCH_TRY(bench_status(call))

/* ---- stats.c ---- */

typedef struct bench_times {
    double min, median, max; /* in the unit of the samples */
    uint32_t samples;
} bench_times;

enum { BENCH_MAX_SAMPLES = 128 };

/* Sorts the samples. */
bench_times bench_summary(double *samples, uint32_t num_samples);

/* ---- sweep.c ---- */

typedef enum bench_pattern {
    BENCH_UNIFORM,    /* one prefix count */
    BENCH_HOT_EXPERT, /* a segment for each of 8 experts, one of which has 3/8 of the rows */
} bench_pattern;

/* One configuration: a row for stash and one for restore. */
typedef struct bench_case {
    uint64_t bytes; /* wanted; the result says how many they are */
    uint64_t page_bytes;
    uint32_t tensors;
    bench_pattern pattern;
    int num_sms; /* 0: all */
} bench_case;

const char *bench_pattern_name(bench_pattern pattern);
/* Number of configurations; the first max of them are written. */
size_t bench_sweep(bool quick, bench_case *cases, size_t max);

/* ---- shape.c ---- */

/* The tensors of a configuration, laid out in one arena, and their row counts. */
typedef struct bench_shape {
    pst_row_space space;
    pst_tensor tensors[PST_MAX_TENSORS]; /* without bases */
    uint64_t offsets[PST_MAX_TENSORS];   /* of the bases in the arena */
    uint32_t num_tensors;
    int64_t counts[PST_MAX_SEGMENTS];
    uint32_t num_counts;
    uint64_t arena_bytes;
} bench_shape;

void bench_shape_of(const bench_case *what, bench_shape *shape);

/* ---- measure.c ---- */

typedef struct bench_result {
    bench_case what;
    uint64_t bytes; /* live */
    int num_sms;
    bench_times copy, stash, restore;  /* seconds */
    double stash_share, restore_share; /* median of: the copy just before / the operation */
    uint64_t mismatched_bytes;
} bench_result;

int bench_measure(pst_device *device, const bench_case *what, uint32_t samples,
                  bench_result *result);

/* ---- call_cost.c ---- */

enum { BENCH_CALL_TENSORS = 3, BENCH_CALL_TARGET_NS = 5000 };

typedef struct bench_call_cost {
    const char *unavailable; /* why there is no figure, or NULL */
    uint32_t tensors[BENCH_CALL_TENSORS];
    bench_times ns[BENCH_CALL_TENSORS]; /* of one call, each sample a mean over many */
} bench_call_cost;

int bench_measure_calls(bench_call_cost *cost);

/* ---- report.c and json.c ---- */

typedef struct bench_report {
    pst_device_info device;
    const bench_result *results;
    size_t num_results;
    const bench_call_cost *cost;
} bench_report;

void bench_print_header(const pst_device_info *device);
void bench_print_result(const bench_result *result);
void bench_print_summary(const bench_report *report);

/* Writes the whole object to path, or nothing; "-" is stdout. */
int bench_write_json(const bench_report *report, const char *path);

#endif
