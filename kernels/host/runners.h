/* Room kernels/host: the operations on the CPU, one function each. Uses kernels and kernels/core.
 * Used by the host device through psti_host_runners. */
#ifndef PSTI_HOST_RUNNERS_H
#define PSTI_HOST_RUNNERS_H

#include "kernels/kernels.h"

#define PSTI_DECLARE_RUNNER(NAME, name, args) void psti_host_##name(const void *);
PSTI_OP_LIST(PSTI_DECLARE_RUNNER)
#undef PSTI_DECLARE_RUNNER

#endif
