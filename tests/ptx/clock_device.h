/* What the clock has of the library's C headers: a device whose operations are run by somebody else, and two
 * launches that no public call makes on it alone. */
#ifndef PSTI_TESTS_PTX_CLOCK_DEVICE_H
#define PSTI_TESTS_PTX_CLOCK_DEVICE_H

#include <pagestash/pagestash.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

pst_status psti_clock_device_open(int num_sms, const psti_runners *runners,
                                  pst_device **device_out);

/* A product that the device counts, in the kernel that a GPU has for it. */
pst_status psti_clock_product(pst_device *device, const pst_product *product, pst_stream stream);
pst_status psti_clock_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                             pst_stream stream);

#ifdef __cplusplus
}
#endif

#endif
