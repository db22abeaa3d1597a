/* Between the device's table (C) and its launches (C++). */
#ifndef PSTI_TESTS_PTX_PTX_KERNELS_H
#define PSTI_TESTS_PTX_PTX_KERNELS_H

#include "kernels/kernels.h"
#include "tests/ptx/ptx_device.h"

#define PTX_NUM_SMS 4

PST_BEGIN_DECLS

/* NULL: there is no PTX for that architecture. */
const psti_runners *ptx_runners_of(unsigned architecture);

/* Memory that kernels may touch; bytes 0: no longer. */
void ptx_memory_set(const void *address, uint64_t bytes);

PST_END_DECLS

#endif
