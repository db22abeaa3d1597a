/* A GLU beside the lockstep: its operands, and what must stand in them. */
#ifndef PAGESTASH_TESTS_GLU_RIG_H
#define PAGESTASH_TESTS_GLU_RIG_H

#include <pagestash/glu.h>

#include "tests/conformance/conf.h"

#define GLU_ROUNDED UINT64_MAX
typedef enum glu_odd {
    GLU_ODD_NONE,
    GLU_ODD_OUTPUT,
    GLU_ODD_GRADIENT,
    GLU_ODD_INPUT_GRADIENT,
    GLU_ODD_INPUT,
    GLU_ODDS
} glu_odd;

typedef struct glu_case {
    pst_glu_kind kind;
    pst_glu_dtype dtype;
    uint32_t interleave;
    uint64_t features;
    pst_row_space space;
    uint64_t gap;      /* elements between rows; GLU_ROUNDED: up to a multiple of 16 bytes */
    glu_odd odd;       /* what begins an element behind a multiple of 16 */
    bool has_extremes; /* of what is read: infinities, denormals and what overflows fp16 */
    bool has_probability;
    uint32_t
        front; /* counts of a row space in front of the GLU's, that of the first tensor; 0: none */
    bool is_alone; /* the group has no other tensors */
    bool scrub;
    uint64_t num_pages, num_host_pages;
} glu_case;

/* Rows somewhere on the device, with a host copy. */
typedef struct glu_rows {
    unsigned char *device, *host;
    size_t bytes;
    uint64_t first; /* byte of the first row */
    uint64_t row_bytes, row_stride, segment_stride;
} glu_rows;

#define GLU_GUARD 0x5a  /* what nobody writes */
#define GLU_GUARDED 64u /* bytes of it in front and behind */

typedef struct glu_rig {
    conf_pair pair;
    glu_case how;
    pst_glu glu;
    uint64_t size; /* bytes of an element */
    uint32_t tensor;
    ls_calls calls;
    bool gives_counts; /* to backward */
    pst_glu_operands operands;
    glu_rows output, probability, gradient, input_gradient, probability_gradient;
} glu_rig;

/* A pool, groups and operands, with numbers in what is read. False: that failed. */
bool glu_open(glu_rig *rig, const conf_run *conf, pst_pool_mode mode, const glu_case *how,
              uint64_t seed);
void glu_close(glu_rig *rig);

/* From here on stashes of the lockstep are pst_glu_forward, and restores pst_glu_backward; or not. */
void glu_take_over(glu_rig *rig, bool takes);
/* Forward, backward of the source without a ticket. */
void glu_forward_alone(glu_rig *rig);
void glu_backward_alone(glu_rig *rig);

/* Overwrites what the calls write. */
void glu_poison(glu_rig *rig);
/* Whether the output, or what backward writes, is that of the source, and nothing else was written. */
void glu_check_output(glu_rig *rig);
void glu_check_backward(glu_rig *rig);
/* The same where bytes of the input could not be read: those of the byte stream for which this is true are
 * taken for 0. Of a group without other tensors. */
typedef bool (*glu_is_lost)(uint64_t position);
void glu_check_backward_without(glu_rig *rig, glu_is_lost is_lost);
/* Of so many rows of each segment zeros, and nothing else was written. */
void glu_check_cleared(glu_rig *rig, const int64_t *rows);
void glu_check_untouched(glu_rig *rig);
/* A number that is another one, with near certainty, where a byte of what is written is another one. */
uint64_t glu_hash(glu_rig *rig);

#endif
