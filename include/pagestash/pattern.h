/* Bytes that can be recomputed: fills the live rows of a group's buffers and checks them later, on the
 * device, enqueued and capturable. For replay, benchmarks, and anybody's own bring-up.
 *
 * The byte at offset o of segment s of tensor t is byte (o mod 8), least significant first, of
 *   mix(key_t,s + o / 8),  key_t,s = mix(mix(seed + *step) + mix(key) + 2^32 t + s)
 * where mix is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
 * number generators", OOPSLA 2014) applied to x + 0x9e3779b97f4a7c15.
 */
#ifndef PAGESTASH_PATTERN_H
#define PAGESTASH_PATTERN_H

#include <pagestash/group.h>

/* Frozen. */
typedef struct pst_pattern {
    uint64_t seed;        /* same seed, key and step: same bytes */
    uint64_t key;         /* what tells this filling from others of the step: layer, micro-batch */
    const uint64_t *step; /* device address, read when the work runs; NULL: 0 */
} pst_pattern;

/* What pst_group_verify checks behind the live rows. */
#define PST_VERIFY_ANY (-1) /* as `tail`: rows behind the live ones are not looked at */

PST_BEGIN_DECLS

/* Writes the pattern into the live rows of buffers, whose counts are read on the device. Counts
 * outside [0, capacity] write nothing. Stream: one launch; can be captured.
 * Fails: INVALID (as for pst_ticket_stash), CUDA. */
PST_API pst_status pst_group_fill(pst_device *device, const pst_group *group,
                                  const pst_buffers *buffers, const pst_pattern *pattern,
                                  pst_stream stream);

/* Compares the live rows of buffers with the pattern and adds the number of differing bytes to
 * *mismatches (device address); of a segment whose count is outside [0, capacity], all bytes. tail
 * is a byte value 0..255 that all rows from the live ones to the capacity must hold, or
 * PST_VERIFY_ANY. Gaps between rows are not looked at.
 * Fails: INVALID (as for pst_ticket_stash), CUDA. */
PST_API pst_status pst_group_verify(pst_device *device, const pst_group *group,
                                    const pst_buffers *buffers, const pst_pattern *pattern,
                                    int tail, uint64_t *mismatches, pst_stream stream);

PST_END_DECLS

#endif
