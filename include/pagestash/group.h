/* A group: the description of 1 to 64 tensors that one launch stashes or restores, usually all that
 * one MoE layer keeps for its backward pass. It does not say where they lie: every stash and restore
 * names the addresses in a pst_buffers. So one group serves every layer of its form.
 *
 * Which rows are live is mostly known on the device only. A row space says how they are counted:
 *   prefix    one count; rows [0, count) are live
 *   sum       a prefix whose count is the sum of E counts (tokens per expert, say)
 *   segments  E counts; slab e of the tensor holds `capacity` rows, of which [0, count[e]) are live
 *
 *   prefix, capacity 6, count 4        segments, E = 2, capacity 3, counts 2 and 1
 *   |####..|                           |##.|#..|
 *
 * A tensor is bytes per row, strides, and a row space. With a ratio num/den it has rows * num / den
 * rows, rounded up or down, wherever its row space has `rows` (per segment; of a sum, the sum):
 * scale tensors with one row per 32. Dtypes do not exist here.
 *
 * A group's live bytes form one byte stream: each tensor starts at a multiple of 16 KiB; inside a
 * tensor each segment starts at the next multiple of 16, and rows follow one another without gaps,
 * whatever their stride in memory. With
 *   bytes_t = sum over segments of roundup(rows_t * row_bytes_t, 16)
 * a group needs
 *   pages = ceil( sum over t of roundup(bytes_t, 16 KiB) / page_bytes )
 * and pst_group_measure computes just that. Where row_bytes is a multiple of 128, a row begins at a
 * multiple of 128 of the stream, so no aligned 128 bytes of a row cross a page.
 *
 * Two groups are of one form when their byte streams are: the same tensors (number, row bytes,
 * ratio, rounding, row space) in the same row spaces (number and segments; prefix and sum are like
 * one segment). What was stashed with one may be restored with the other; capacities, strides and
 * count types may differ.
 *
 * Threads: a group is immutable; use it from any thread. Nothing keeps hold of it: it may be
 * destroyed while work that used it runs, and captured graphs do not need it.
 */
#ifndef PAGESTASH_GROUP_H
#define PAGESTASH_GROUP_H

#include <pagestash/device.h>

#define PST_MAX_TENSORS 64    /* of a group */
#define PST_MAX_SPACES 8      /* row spaces of a group */
#define PST_MAX_SEGMENTS 1024 /* segments, or summed counts, of a row space */

typedef struct pst_group pst_group; /* immutable; made by pst_group_create */

/* How the live rows of a row space are counted; the table above has the kinds. */
typedef enum pst_rows_kind {
    PST_ROWS_PREFIX = 0,   /* one count */
    PST_ROWS_SEGMENTS = 1, /* one count for each slab */
    PST_ROWS_SUM = 2       /* the sum of several counts, of one prefix */
} pst_rows_kind;

/* Counts are signed. */
typedef enum pst_count_type {
    PST_COUNT_INT32 = 0, /* on the device */
    PST_COUNT_INT64 = 1, /* on the device */
    PST_COUNT_HOST = 2   /* one int64 in host memory, read by the call that enqueues, so that a
                          * captured graph keeps it; of prefixes only */
} pst_count_type;

/* Of rows * num / den. */
typedef enum pst_rounding {
    PST_ROUND_UP = 0,  /* to the next whole row */
    PST_ROUND_DOWN = 1 /* to the last whole row */
} pst_rounding;

/* How the rows of a tensor lie in the byte stream: packed is the only way. */
#define PST_LAYOUT_PACKED 0u

/* Who writes a tensor's pages, where a group has one that a kernel writes as it computes. A stash or
 * restore copies it all the same, and the byte stream, and so the form, does not know the difference. */
#define PST_WRITTEN_BY_STASH 0u /* pst_ticket_stash, as usual */
#define PST_WRITTEN_BY_GLU 1u   /* pagestash/glu.h */

/* Which rows of tensors are live, and how many there can be. */
typedef struct pst_row_space {
    pst_rows_kind kind;        /* how they are counted */
    pst_count_type count_type; /* of what pst_buffers.counts points to */
    int64_t capacity;      /* rows; of one segment for PST_ROWS_SEGMENTS. At least 1; a launch may
                            * name another */
    uint32_t num_segments; /* segments, or counts that are summed: 1..1024; of a prefix 0 or 1 */
    uint32_t padding;      /* 0 */
} pst_row_space;

/* One tensor of a group: bytes per row, strides, and which rows. */
typedef struct pst_tensor {
    uint64_t row_bytes;      /* at least 1 */
    uint64_t row_stride;     /* bytes from one row to the next, at least row_bytes; 0: row_bytes */
    uint64_t segment_stride; /* bytes from one segment's first row to the next's; 0: packed, that is
                              * the rows at capacity times the row stride */
    uint32_t space;          /* index into the row spaces */
    uint32_t num, den;       /* rows ratio, num <= den; 0/0 means 1/1 */
    pst_rounding rounding;   /* of the rows, where the ratio leaves a fraction */
    uint32_t layout;         /* PST_LAYOUT_PACKED */
    uint32_t written_by; /* PST_WRITTEN_BY_*; of a group at most one by GLU, whose ratio is 1/1 */
} pst_tensor;

/* The row spaces and tensors of a group; the arrays are copied. */
typedef struct pst_group_config {
    size_t struct_size;
    const pst_row_space *spaces; /* num_spaces of them */
    uint32_t num_spaces;         /* 1..8 */
    uint32_t space_bytes;        /* sizeof(pst_row_space), set by _INIT */
    const pst_tensor *tensors;   /* num_tensors of them, in the order of the byte stream */
    uint32_t num_tensors;        /* 1..64 */
    uint32_t tensor_bytes;       /* sizeof(pst_tensor), set by _INIT */
} pst_group_config;

#define PST_GROUP_CONFIG_INIT \
    PST_INIT_2(pst_group_config, space_bytes, pst_row_space, tensor_bytes, pst_tensor)

/* Where the tensors of a group lie, for one launch. The arrays are read by the call that enqueues
 * and may be gone when it returns; what the addresses point to is read and written on the device. */
typedef struct pst_buffers {
    size_t struct_size;
    void *const *bases;        /* num_tensors device addresses, any alignment (16 is fastest); NULL
                                     * will do for a tensor that has no rows even at capacity */
    const void *const *counts; /* num_spaces addresses, naturally aligned: of a prefix one count,
                                     * of a sum or segments num_segments counts. Stash, fill and
                                     * verify read them; a restore does not, so NULL will do */
    const int64_t *capacities; /* num_spaces; NULL, or 0 in it: the group's */
    const uint64_t *row_strides;     /* num_tensors; NULL, or 0 in it: the group's */
    const uint64_t *segment_strides; /* num_tensors; NULL, or 0 in it: the group's; where that is
                                      * packed, packed by the capacity and row stride of this launch */
} pst_buffers;

#define PST_BUFFERS_INIT PST_INIT(pst_buffers)

/* What a group needs for given counts. Frozen. */
typedef struct pst_group_usage {
    uint64_t payload_bytes; /* live bytes */
    uint64_t stream_bytes;  /* with the roundings of the byte stream */
    uint64_t pages;         /* ceil(stream_bytes / page_bytes) */
} pst_group_usage;

/* For destinations whose addresses stay: per count of a group, on the device, how many rows an
 * earlier restore left there, so that PST_TAIL_ZERO clears only those (ticket.h). One for each set
 * of buffers, whose strides and capacities stay, too; restores that name it must be ordered by a
 * stream or by events. */
typedef struct pst_dirty pst_dirty;

PST_BEGIN_DECLS

/* Copies the description. Host memory only: no device is touched, and it is legal at any time,
 * during capture too.
 * At capacity a group has at most 2^45 bytes, gaps between rows and segments included.
 * Fails: INVALID (names space or tensor, field, value, allowed), NOMEM. */
PST_API pst_status pst_group_create(const pst_group_config *config, pst_group **group_out);
/* NULL is allowed. */
PST_API pst_status pst_group_destroy(pst_group *group);

/* Number of counts of all row spaces together: one for a prefix or a sum, num_segments for
 * segments. The length of `counts` below. */
PST_API uint32_t pst_group_num_counts(const pst_group *group);

/* Bytes and pages for counts in host memory, spaces one after the other (of a sum: the sum); NULL
 * means everything at capacity. page_bytes: 0 (default) or a power of two, 16 KiB to 4 MiB. Pure
 * arithmetic. Fails: INVALID (a count outside [0, capacity], page_bytes). */
PST_API pst_status pst_group_measure(const pst_group *group, const int64_t *counts,
                                     uint64_t page_bytes, pst_group_usage *usage_out);

/* Makes the dirty words of one set of buffers of the group's form and capacities: 8 bytes per count on
 * the device.
 * tail_is_zero: the bytes behind the live rows are zero now; otherwise the first restore with
 * PST_TAIL_ZERO clears up to the capacity.
 * Synchronous; not while capturing. Fails: INVALID, NOMEM, DEVICE_NOMEM, CAPTURE, CUDA. */
PST_API pst_status pst_dirty_create(pst_device *device, const pst_group *group, bool tail_is_zero,
                                    pst_dirty **dirty_out);
/* NULL is allowed. Fails: BUSY while a captured graph uses it. */
PST_API pst_status pst_dirty_destroy(pst_dirty *dirty);

/* Tells that rows behind the live ones were written by somebody else since the last restore, or by
 * a restore that ended in PST_FAULT_ORDER: the next restore with PST_TAIL_ZERO clears up to the
 * capacity again.
 * Stream: one memset of 8 bytes per count; can be captured. */
PST_API pst_status pst_dirty_mark(pst_dirty *dirty, pst_stream stream);

PST_END_DECLS

#endif
