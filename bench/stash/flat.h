/* Plain copies of contiguous bytes between two places, sampled in turn. Uses rig.h; ceiling.c and
 * link.c use it. */
#ifndef PAGESTASH_BENCH_FLAT_H
#define PAGESTASH_BENCH_FLAT_H

#include "bench/stash/rig.h"

enum { BENCH_MAX_FLAT_COPIES = 8 };

typedef struct bench_flat_copy {
    bench_slot slot;
    int num_sms;
    pst_graph *graph;
    bench_series series;
    uint64_t mismatched_bytes;
} bench_flat_copy;

typedef struct bench_flat {
    const bench_timer *timer;
    const pst_device_info *device;
    const char *role; /* of the anchors that they become */
    bench_state state;
    uint64_t bytes;
    unsigned char *source, *sink; /* on the device: what is filled, and what is verified */
    unsigned char *pinned;        /* what the copies read in place of source, or NULL */
    bool to_pinned;               /* what they write in place of sink */
    bench_flat_copy copies[BENCH_MAX_FLAT_COPIES];
    uint32_t num;
} bench_flat;

/* Records and checks one more. */
int bench_flat_add(bench_flat *flat, bench_slot slot, int num_sms);
/* One sample of each. */
int bench_flat_sample(bench_flat *flat);
/* The fastest from copy number `first` on, or NULL. */
const bench_flat_copy *bench_flat_best(const bench_flat *flat, uint32_t first);
/* Adds the anchors; copy number i becomes anchor *first_out + i. */
int bench_flat_report(const bench_flat *flat, bench_report *report, int *first_out);
int bench_flat_close(bench_flat *flat);

#endif
