/* The buffers, groups, pool and graphs of one configuration, and the clock. Uses case.h, report.h
 * and gpu.h; the files that measure use it. */
#ifndef PAGESTASH_BENCH_RIG_H
#define PAGESTASH_BENCH_RIG_H

#include "bench/stash/gpu.h"
#include "bench/stash/report.h"

enum { BENCH_POISON = 0xa5, BENCH_SEED = 1 };

/* ---- timer.c: graphs, how long a replay takes, and whether bytes are right ---- */

typedef struct bench_timer {
    pst_device *device;
    bool is_host;
    pst_stream stream;
    pst_event begin, end;
    uint64_t *mismatches; /* pinned: verifications count here */
} bench_timer;

int bench_timer_open(bench_timer *timer, pst_device *device);
int bench_timer_close(bench_timer *timer);
/* The exit code for what a function of gpu.h returned; prints what. */
int bench_gpu_status(const char *error);
#define BENCH_GPU(call) TOOL_TRY(bench_gpu_status(call))
/* Seconds of one replay, launch included. */
int bench_time(const bench_timer *timer, pst_graph *graph, double *seconds_out);
/* Runs a replay and waits for it. */
int bench_replay(const bench_timer *timer, pst_graph *graph);
/* A group whose tensors share one row space. */
int bench_make_group(const pst_row_space *space, const pst_tensor *tensors, uint32_t num_tensors,
                     pst_group **group_out);
/* Contiguous bytes as a group of one row, and where they lie: *base must outlive the use. */
int bench_make_flat(uint64_t bytes, pst_group **group_out);
pst_buffers bench_flat_at(void *const *base);
/* Random bytes; and adds how many differ from them. */
int bench_fill_flat(const bench_timer *timer, void *base, uint64_t bytes, uint64_t key);
int bench_verify_flat(const bench_timer *timer, void *base, uint64_t bytes, uint64_t key,
                      uint64_t *mismatched_bytes);

/* ---- rig.c ---- */

/* What cub is told of one copy of the buffers: on the device, arrays of addresses, and of sizes
 * (uint32_t). */
typedef struct bench_pieces {
    void *rows, *pages, *sizes;
    uint32_t num;
    void *scratch;
    size_t scratch_bytes;
} bench_pieces;

/* One of the copies of the buffers that cold samples take in turn. */
typedef struct bench_copy {
    unsigned char *arena;         /* the tensors */
    void *bases[PST_MAX_TENSORS]; /* of each, in the arena */
    const void *counts;
    unsigned char *target; /* what anchors write */
    pst_ticket ticket;
    bench_pieces pieces;
    pst_graph *graphs[BENCH_NUM_SLOTS]; /* NULL: not measured */
} bench_copy;

typedef struct bench_rig {
    const bench_machine *machine;
    pst_device *device;
    bench_timer timer;
    bench_case what;
    bench_shape shape;
    uint64_t pages;
    uint64_t target_bytes; /* of one copy */
    uint32_t num_copies;
    pst_group *group; /* of all copies */
    bool wanted[BENCH_NUM_SLOTS];
    bench_grid grid; /* of the stash; cuda only */
    pst_pool *pool;
    double pool_seconds; /* that its creation took */
    void *counts;
    void *arenas, *targets;
    void *flush; /* four times the cache, where the copies do not come to that; or NULL */
    bench_copy *copies;
} bench_rig;

/* Everything that can be known without taking memory, and the bytes that open would take of the
 * device (of host: pinned pages, too). */
int bench_rig_prepare(bench_rig *rig, pst_device *device, const bench_machine *machine,
                      const bench_case *what);
int bench_rig_bytes(const bench_rig *rig, uint64_t *bytes_out);
/* After a failure close frees nothing and returns code: the process ends. */
int bench_rig_open(bench_rig *rig);
int bench_rig_close(bench_rig *rig, int code);
int bench_rig_enqueue(const bench_rig *rig, const bench_copy *copy, bench_slot slot);
/* The tensors and counts of a copy, which must outlive the use. */
pst_buffers bench_copy_at(const bench_copy *copy);
uint64_t bench_flush_bytes(const bench_rig *rig);

/* ---- can_run.c: what the device can run ---- */

/* Bytes that may be taken of the device's memory, and of the host's. Of the host's half of what was
 * available at first is left alone. */
int bench_memory_limit(pst_device *device, const bench_machine *machine, uint64_t *most_out,
                       uint64_t *free_out);
int bench_host_limit(const bench_machine *machine, uint64_t *most_out);
/* Prepares the configuration. What the device cannot run is a skip in the report, or fails unless
 * may_skip is set. */
int bench_prepare_or_skip(bench_rig *rig, pst_device *device, const bench_case *what, bool may_skip,
                          bench_report *report, bool *skipped_out);
/* ---- measure.c ---- */

/* Fills, stashes, poisons, restores, and adds to *mismatched_bytes what differs: the live bytes,
 * and those behind them, which must still be the poison. */
int bench_check(const bench_rig *rig, uint64_t key, uint64_t *mismatched_bytes);
/* A stash that failed copies nothing, and very fast. */
int bench_check_faults(const bench_rig *rig);

/* ---- anchors.c: what the operations are compared with ---- */

/* Whether the slot is one that this device can measure. */
bool bench_has_anchor(const pst_device_info *device, bench_slot slot);
/* The own copies that a stash or a restore is compared with. */
uint32_t bench_own_copies(const pst_device_info *device, pst_backend backend, bool is_stash,
                          bench_slot *slots);
/* One of the copies of contiguous bytes. */
int bench_enqueue_copy(const bench_timer *timer, bench_slot slot, int num_sms, void *to,
                       const void *from, uint64_t bytes);
int bench_make_pieces(const bench_rig *rig, bench_copy *copy);
int bench_free_pieces(const bench_rig *rig, bench_copy *copy);
int bench_enqueue_pieces(const bench_rig *rig, const bench_pieces *pieces, bool back);

/* Records what enqueue(context) enqueues on the timer's stream as a graph. */
#define BENCH_RECORD(timer, enqueue, graph_out)                         \
    do {                                                                \
        TOOL_PST(pst_graph_begin((timer)->device, (timer)->stream));    \
        const int bench_record_code_ = (enqueue);                       \
        const pst_status bench_record_status_ =                         \
            pst_graph_end((timer)->device, (timer)->stream, graph_out); \
        TOOL_TRY(bench_record_code_);                                   \
        TOOL_PST(bench_record_status_);                                 \
    } while (0)

#endif
