/* A group: 1 to 64 tensors that one launch stashes or restores, usually all that one MoE layer
 * keeps for its backward pass.
 *
 * Which rows are live is known on the device only. A row space says where that number lies:
 *   prefix    one count; rows [0, count) are live
 *   segments  E counts; slab e of the tensor holds `capacity` rows, of which [0, count[e]) are live
 *
 *   prefix, capacity 6, count 4        segments, E = 2, capacity 3, counts 2 and 1
 *   |####..|                           |##.|#..|
 *
 * A tensor is a base address, bytes per row, and a row space. With a ratio num/den it has
 * ceil(rows * num / den) rows wherever its row space has `rows` (per segment): scale tensors with
 * one row per 32. Dtypes do not exist here.
 *
 * A group's live bytes form one byte stream: each tensor starts at a multiple of 16 KiB; inside a
 * tensor each segment starts at the next multiple of 16. With
 *   bytes_t = sum over segments of roundup(rows_t * row_bytes_t, 16)
 * a group needs
 *   pages = ceil( sum over t of roundup(bytes_t, 16 KiB) / page_bytes )
 * and pst_group_measure computes just that.
 *
 * A group is a source of stash and a destination of restore. A destination may have other bases,
 * strides and capacities than the source, but the same tensors (number, row bytes, ratio, row
 * space) and the same row spaces (number and segments; a prefix is like one segment).
 *
 * Threads: a group is immutable; use it from any thread. It must outlive the work that uses it,
 * captured graphs included (pst_group_destroy checks that for graphs).
 */
#ifndef PAGESTASH_GROUP_H
#define PAGESTASH_GROUP_H

#include <pagestash/device.h>

#define PST_MAX_TENSORS 64
#define PST_MAX_SPACES 8
#define PST_MAX_SEGMENTS 1024

typedef struct pst_group pst_group;

typedef enum pst_rows_kind { PST_ROWS_PREFIX = 0, PST_ROWS_SEGMENTS = 1 } pst_rows_kind;
typedef enum pst_count_type { PST_COUNT_INT32 = 0, PST_COUNT_INT64 = 1 } pst_count_type;

typedef struct pst_row_space {
    pst_rows_kind kind;
    pst_count_type count_type;
    const void *counts;    /* device address of 1 or num_segments signed counts, naturally aligned;
                            * read by stash only, so a pure destination may have NULL */
    int64_t capacity;      /* rows; of one segment for PST_ROWS_SEGMENTS. At least 1 */
    uint32_t num_segments; /* 1..1024; 0 or 1 for PST_ROWS_PREFIX */
    uint32_t padding;      /* 0 */
} pst_row_space;

typedef struct pst_tensor {
    void *base;              /* device address, any alignment (16 is fastest) */
    uint64_t row_bytes;      /* at least 1 */
    uint64_t segment_stride; /* bytes from one segment's first row to the next's; 0: packed, that is
                              * ceil(capacity * num / den) * row_bytes */
    uint32_t space;          /* index into the row spaces */
    uint32_t num, den;       /* rows ratio, num <= den; 0/0 means 1/1 */
    uint32_t padding;        /* 0 */
} pst_tensor;

typedef struct pst_group_config {
    size_t struct_size;
    const pst_row_space *spaces;
    uint32_t num_spaces;  /* 1..8 */
    uint32_t space_bytes; /* sizeof(pst_row_space), set by _INIT */
    const pst_tensor *tensors;
    uint32_t num_tensors;  /* 1..64 */
    uint32_t tensor_bytes; /* sizeof(pst_tensor), set by _INIT */
    bool tail_is_zero;  /* the bytes behind the live rows are zero now; otherwise the first restore
                           * with PST_TAIL_ZERO clears up to the capacity, later ones only what an
                           * earlier restore left there */
    uint8_t padding[7]; /* 0 */
} pst_group_config;

#define PST_GROUP_CONFIG_INIT \
    PST_INIT_2(pst_group_config, space_bytes, pst_row_space, tensor_bytes, pst_tensor)

/* What a group needs for given counts. Frozen. */
typedef struct pst_group_usage {
    uint64_t payload_bytes; /* live bytes */
    uint64_t stream_bytes;  /* with the roundings of the byte stream */
    uint64_t pages;
} pst_group_usage;

PST_BEGIN_DECLS

/* Copies the description; allocates a few hundred bytes on the device.
 * pre: not while capturing.
 * At capacity a group has at most 2^45 bytes, gaps between segments included.
 * Fails: INVALID (names space or tensor, field, value, allowed), NOMEM, DEVICE_NOMEM, CUDA. */
PST_API pst_status pst_group_create(pst_device *device, const pst_group_config *config,
                                    pst_group **group_out);
/* NULL is allowed. Fails: BUSY while a captured graph uses the group. */
PST_API pst_status pst_group_destroy(pst_group *group);

/* Tells that rows behind the live ones were written by somebody else since the last restore, or by
 * a restore that ended in PST_FAULT_ORDER: the next restore with PST_TAIL_ZERO clears up to the
 * capacity again.
 * Stream: one memset of a few bytes per segment; can be captured. */
PST_API pst_status pst_group_mark_dirty(pst_group *group, pst_stream stream);

/* Number of counts of all row spaces together: the length of `counts` below. */
PST_API uint32_t pst_group_num_counts(const pst_group *group);

/* Bytes and pages for counts in host memory, spaces one after the other; NULL means everything at
 * capacity. page_bytes: 0 (default) or a power of two, 16 KiB to 4 MiB. Pure arithmetic.
 * Fails: INVALID (a count outside [0, capacity], page_bytes). */
PST_API pst_status pst_group_measure(const pst_group *group, const int64_t *counts,
                                     uint64_t page_bytes, pst_group_usage *usage_out);

PST_END_DECLS

#endif
