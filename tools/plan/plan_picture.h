/* Pictures of a static plan: time across, address up. */
#ifndef PAGESTASH_TOOLS_PLAN_PICTURE_H
#define PAGESTASH_TOOLS_PLAN_PICTURE_H

#include <stdio.h>

#include <pagestash/trace.h>

typedef struct plan_picture {
    const char *title;               /* any bytes; what is no UTF-8 shows as '?' */
    const pst_trace_tensor *tensors; /* id, bytes, begin, end, layer, micro_batch, phase */
    const uint64_t *offsets;         /* of each tensor */
    uint64_t num_tensors;
    uint64_t align; /* live bytes count sizes rounded up to it; 0: 512 */
    uint64_t peak, bound;
} plan_picture;

/* Both return a tool_exit, its message printed, as picture_write does. */

/* One HTML file that loads nothing else. */
int plan_html_write(FILE *file, const plan_picture *picture);

/* Chrome trace JSON, for Perfetto: live bytes as a counter, tensors as slices, a process per layer;
 * an instant is a microsecond. */
int plan_perfetto_write(FILE *file, const plan_picture *picture);

/* Empty where there is none. */
const char *plan_phase_name(uint8_t phase);

#endif
