/* Plain copies between the device and pinned memory; host_tier.c compares the pinned tier with
 * them. */
#ifndef PAGESTASH_BENCH_LINK_H
#define PAGESTASH_BENCH_LINK_H

#include "bench/stash/flat.h"

typedef struct bench_link {
    bench_flat ways[2]; /* to the host, from it; copy number 0 is the driver's */
} bench_link;

/* In buffers of the rig. */
int bench_link_open(bench_link *link, const bench_rig *rig);
/* One sample of each. */
int bench_link_sample(bench_link *link);
/* Adds the anchors. */
int bench_link_report(const bench_link *link, bench_report *report);
int bench_link_close(bench_link *link);

#endif
