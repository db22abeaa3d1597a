/* A step of layers with gated activations, for tests: 1F1B, the first of three stages. */
#ifndef PAGESTASH_TESTS_SCHEDULER_GLU_H
#define PAGESTASH_TESTS_SCHEDULER_GLU_H

#include <pagestash/pagestash.h>

enum {
    GLU_STEP_LAYERS = 3,
    GLU_STEP_MICRO_BATCHES = 5,
    GLU_STEP_VISITS = GLU_STEP_LAYERS * GLU_STEP_MICRO_BATCHES,
    GLU_STEP_SETS = 2,
    GLU_STEP_ROWS = 96,
    GLU_STEP_FEATURES = 100,
    GLU_STEP_OUTPUT = GLU_STEP_FEATURES * 2, /* bytes of a row */
    GLU_STEP_INPUT = GLU_STEP_OUTPUT * 2,
    GLU_STEP_BESIDE = 40,
    GLU_STEP_PLAIN = 512
};

typedef struct glu_step_config {
    pst_device *device; /* closed with the step; NULL: host */
    bool has_plain;     /* a second part, which the scheduler stashes */
    bool watches_host;  /* looks where pages are when a backward reads them; device host */
    bool forgets;       /* backwards leave their pages */
    uint32_t num_streams;
    pst_layer_policy policy;
} glu_step_config;

/* Of one visit, on the device: what it reads, and what it must come to. */
typedef struct glu_step_visit {
    unsigned char *input, *beside, *plain, *output, *input_gradient;
} glu_step_visit;

typedef struct glu_step {
    glu_step_config config;
    pst_device *device;
    pst_pool *pool;
    pst_group *groups[2]; /* of the part of the GLU, of the plain one */
    pst_schedule *schedule;
    pst_scheduler *scheduler;
    pst_stream stream;
    pst_layer layers[GLU_STEP_LAYERS];
    pst_part parts[2];
    unsigned char *block;
    uint64_t used_bytes;
    unsigned char *gradient; /* of the output, of all visits */
    int32_t *counts;         /* of each visit */
    glu_step_visit truth[GLU_STEP_VISITS], made[GLU_STEP_VISITS];
    /* sources and destinations: beside, input, plain; and the count of a source */
    void *bases[2 * GLU_STEP_SETS][3];
    const void *set_counts[2 * GLU_STEP_SETS];
    pst_buffers buffers[2 * GLU_STEP_SETS][2]; /* of each part */
    const pst_buffers *lists[4][GLU_STEP_SETS];
    uint32_t num_read, num_read_on_host;
    pst_pool_status status; /* of the last check */
} glu_step;

void glu_step_open(glu_step *self, const glu_step_config *config);
void glu_step_close(glu_step *self);
/* Other rows and numbers for every visit. Synchronous. */
void glu_step_draw(glu_step *self, uint64_t seed);
/* One step, eagerly or into a capture. */
pst_status glu_step_run(glu_step *self);
/* Synchronises: all that was made is as without pages, and no page is in use. */
void glu_step_check(glu_step *self);

#endif
