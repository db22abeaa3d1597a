/* Random groups, and random counts for them. */
#ifndef PAGESTASH_TESTS_SHAPES_H
#define PAGESTASH_TESTS_SHAPES_H

#include "tests/oracle/oracle.h"

/* A group before it has memory, and where its tensors are to lie in an arena. Between the tensors
 * and at both ends of the arena lie bytes that belong to nobody. */
typedef struct shape {
    oracle_group group;
    size_t arena_bytes;
    bool tail_is_zero;
    bool without_counts; /* a pure destination */
} shape;

typedef enum shape_theme {
    SHAPE_ANY,
    SHAPE_ONE_TENSOR,
    SHAPE_64_TENSORS,
    SHAPE_8_SPACES,
    SHAPE_1024_SEGMENTS,
    SHAPE_BYTE_ROWS,
    SHAPE_UNALIGNED,
    SHAPE_ODD_WIDTHS,
    SHAPE_RATIOS,
    SHAPE_LONG_ROWS, /* rows of several tiles */
    SHAPE_SEGMENTS,
    SHAPE_PITCH, /* rows further apart than they are long */
    SHAPE_FUSED, /* the rows of all tensors side by side in one buffer */
    SHAPE_SUMS,
    SHAPE_HOST_COUNTS,
    SHAPE_FLOORS, /* ratios that round down, beside such that round up */
    SHAPE_THEMES
} shape_theme;

/* About `bytes` at capacity. */
void shape_make(oracle_random *random, shape_theme theme, uint64_t bytes, shape *made);
/* The same tensors elsewhere: other bases, strides, count types and capacities, which are at least
 * those of `source`, unless may_be_smaller. */
void shape_like(oracle_random *random, const shape *source, bool may_be_smaller, shape *made);

typedef enum shape_room {
    SHAPE_SAME_ROOM,
    SHAPE_LESS_ROOM, /* capacities up to the group's */
    SHAPE_MORE_ROOM, /* from the group's on */
} shape_room;

/* Other buffers for one launch of a group, as pst_buffers can name them: bases, and where this
 * wants it strides and capacities. Returns the bytes of their arena. */
size_t shape_place(oracle_random *random, shape_theme theme, shape_room room, oracle_group *group);

typedef enum counts_kind {
    COUNTS_RANDOM,
    COUNTS_ZERO,
    COUNTS_FULL,
    COUNTS_HOT,    /* one segment full, the others empty */
    COUNTS_SPARSE, /* most are zero */
    COUNTS_EDGES,  /* 0, 1, full - 1 and full */
    COUNTS_GOOD,   /* from here on they fail */
    COUNTS_ONE_OVER = COUNTS_GOOD,
    COUNTS_NEGATIVE,
    COUNTS_EXTREME, /* the smallest or largest number of the type */
    COUNTS_KINDS
} counts_kind;

/* values: one for each number that a stash reads. */
void shape_counts(oracle_random *random, const oracle_group *group, counts_kind kind,
                  int64_t *values);

#endif
