/* Pictures of a static plan: time across, address up. */
#ifndef PAGESTASH_TOOLS_PLAN_PICTURE_H
#define PAGESTASH_TOOLS_PLAN_PICTURE_H

#include <stdio.h>

#include <pagestash/trace.h>

typedef struct plan_picture {
    const char *title;               /* any bytes; what is not UTF-8 shows as U+FFFD */
    const pst_trace_tensor *tensors; /* id, bytes, begin, end, layer, micro_batch, phase */
    const uint64_t *offsets;         /* of each tensor */
    uint64_t num_tensors;
    uint64_t align; /* the load counts sizes rounded up to it; 0: 512 */
    uint64_t peak, bound;
} plan_picture;

/* Both return a tool_exit, its message printed. */

/* One HTML file that loads nothing else. */
int plan_html_write(FILE *file, const plan_picture *picture);

/* Chrome trace JSON, for Perfetto: the load as a counter, tensors as slices, a process per layer;
 * an instant is a microsecond. */
int plan_perfetto_write(FILE *file, const plan_picture *picture);

/* ---- what all pictures need ---- */

/* A JSON string in ASCII, that cannot end a <script> either. */
void picture_put_text(FILE *file, const char *text);

/* As a string where JavaScript's numbers are not exact. */
void picture_put_number(FILE *file, uint64_t value);

/* The page up to a marker; returns what stands behind it. */
const char *picture_put_page(FILE *file, const char *page, const char *marker);

const char *picture_phase_name(uint8_t phase);

/* Prints why and returns TOOL_NO if the file could not be written. */
int picture_finish(FILE *file);

#endif
