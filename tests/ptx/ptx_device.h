/* The device "ptx": the library's host device, whose operations are nvcc's PTX, executed. */
#ifndef PSTI_TESTS_PTX_PTX_DEVICE_H
#define PSTI_TESTS_PTX_PTX_DEVICE_H

#include <pagestash/device.h>

typedef struct ptx_options {
    unsigned architecture; /* 80, 90 or 100; 0: PSTI_PTX_ARCH, or else 90 */
    uint64_t seed; /* of launch n of the process it is seed + n; 0: PSTI_PTX_SEED, or else 1 */
    uint32_t max_blocks; /* of a launch; 0: 3 */
    uint32_t resident;   /* at a time; 0: 2 */
    uint32_t
        threads; /* of a block where it may have several warps; 0: 64. Under a budget, as launch.cu says */
} ptx_options;

PST_BEGIN_DECLS

/* All but the architecture hold for all ptx devices of the process. NULL: defaults. Fails:
 * NO_DEVICE where there is no PTX, since there is no nvcc; INVALID, NOMEM. */
pst_status psti_ptx_device_open(const ptx_options *options, pst_device **device_out);
void psti_ptx_configure(const ptx_options *options);

PST_END_DECLS

#endif
