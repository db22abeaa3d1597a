/* Functions of a device table that count what is enqueued and run nothing, so that the cost of calls can
 * be measured without a GPU. */
#ifndef PAGESTASH_BENCH_COUNTING_H
#define PAGESTASH_BENCH_COUNTING_H

#include "host/device/device.h"

enum { COUNTING_SMS = 132 }; /* of the GPU that grids are made for */

extern uint64_t counting_launches;   /* so far; set it to 0 */
extern uint64_t counting_capture_id; /* that every stream is in; 0: none is captured */

/* Where the build has CUDA, the whole way to the driver: parameter block and grid. */
pst_status counting_launch(pst_device *device, psti_op op, const void *args, pst_stream stream);
pst_status counting_capture_of(pst_device *device, pst_stream stream, psti_capture_of *capture);

#endif
