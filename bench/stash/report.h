/* What a run found: the lists that it grows by (report.c), as tables (report_text.c) and as JSON
 * (report_json.c). Those who measure fill it, main.c prints it. */
#ifndef PAGESTASH_BENCH_REPORT_H
#define PAGESTASH_BENCH_REPORT_H

#include "bench/common/samples.h"
#include "bench/stash/case.h"
#include "tools/common/tool.h"

/* ---- the two operations, and the anchors that they are compared with ---- */

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

/* ---- the whole ---- */

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

/* A GLU in memory with a stash and a restore of its input, and one with pages. */
typedef struct bench_glu_row {
    const char *name;
    uint32_t features;
    uint64_t bytes; /* live, of the input */
    bench_times compute, stash, restore, differentiate;
    bench_times forward, backward; /* with pages */
    bench_times copy;              /* memcpy of the input's live bytes */
    double speedup;                /* of the two over the four */
    uint64_t mismatched_bytes;
} bench_glu_row;

enum { BENCH_MAX_GLUS = 8 };

/* A tensor-parallel linear: its parts by themselves, and together; from when all ranks begin to when the
 * last one has ended. NaN where the device has no products. */
typedef struct bench_linear_row {
    const char *name;
    bool is_paced; /* the products only wait, as if a processor of their own did them */
    double pace;   /* at least so many seconds; NaN where they are not paced */
    uint32_t num_ranks;
    uint64_t tokens, in_features, out_features;
    bench_times copy;     /* memcpy of the bytes that an exchange leaves on a rank */
    bench_times nothing;  /* exchanges of one element */
    bench_times products; /* whole */
    bench_times pieces;   /* the same in the pieces of a ring */
    bench_times exchange;
    bench_times layer; /* with pieces 1 */
    bench_times ring;  /* with pieces 0 */
    double ring_ratio; /* ring over layer */
    double hidden;     /* (products + exchange - ring) / the shorter of the two; median */
} bench_linear_row;

enum { BENCH_MAX_LINEARS = 24 };

typedef enum bench_call {
    BENCH_CALL_STASH,
    BENCH_CALL_RESTORE,
    BENCH_CALL_DESCRIBE, /* pst_group_create and its destroy */
    BENCH_CALL_TAKE,
    BENCH_CALL_GIVE,
    BENCH_CALL_TAKE_CAPTURED,
    BENCH_CALL_GIVE_CAPTURED,
    BENCH_NUM_CALLS
} bench_call;

enum { BENCH_CALL_TENSORS = 4 };

typedef struct bench_call_cost {
    const char *unavailable; /* why there is no figure, or NULL */
    uint32_t tensors[BENCH_CALL_TENSORS];
    bench_times ns[BENCH_NUM_CALLS][BENCH_CALL_TENSORS]; /* of one call, each sample a mean */
} bench_call_cost;

const char *bench_call_name(bench_call call);

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
    bench_glu_row glus[BENCH_MAX_GLUS];
    size_t num_glus;
    char no_linear[240];  /* why there are none, or "" */
    char no_product[240]; /* why the device has none, or "" */
    uint32_t num_cores;   /* of the host: each rank has a thread, and one for exchanges */
    bench_linear_row linears[BENCH_MAX_LINEARS];
    size_t num_linears;
    bool has_pairs;
    bench_pairs pairs;
    bench_host_tier host_tier;
    bench_call_cost cost;
} bench_report;

/* Each returns TOOL_OK, or TOOL_NO when memory is out. */
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

/* report_text.c and report_json.c */
/* json_path: where the JSON went, or NULL; the last line says how to judge it. */
void bench_print_report(const bench_report *report, const char *json_path);
/* Writes the whole object to path, or nothing; "-" is stdout. */
int bench_write_json(const bench_report *report, const char *path);

#endif
