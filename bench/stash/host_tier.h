/* What the files on the pinned tier share. */
#ifndef PAGESTASH_BENCH_HOST_TIER_H
#define PAGESTASH_BENCH_HOST_TIER_H

#include "bench/stash/rig.h"

enum { BENCH_TO_HOST, BENCH_FROM_HOST, BENCH_DIRECTIONS };

/* ---- link.c: plain copies between the device and pinned memory ---- */

enum { BENCH_MAX_LINK_COPIES = 8 };

typedef struct bench_link_copy {
    bench_slot slot;
    int num_sms;
    pst_graph *graph;
    bench_series series;
    uint64_t mismatched_bytes;
} bench_link_copy;

typedef struct bench_link {
    const bench_rig *rig; /* whose buffers they use */
    void *pinned;
    bench_link_copy copies[BENCH_DIRECTIONS][BENCH_MAX_LINK_COPIES]; /* [0]: the driver's */
    uint32_t num[BENCH_DIRECTIONS];
} bench_link;

int bench_link_open(bench_link *link, const bench_rig *rig);
/* One sample of each. */
int bench_link_sample(bench_link *link);
/* Adds the anchors. */
int bench_link_report(const bench_link *link, bench_report *report);
/* The fastest of our own, or NULL. */
const bench_link_copy *bench_link_best(const bench_link *link, int direction);
int bench_link_close(bench_link *link);

#endif
