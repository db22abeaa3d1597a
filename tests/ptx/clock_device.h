/* What the clock has of the library's C headers: a device whose operations are run by somebody else, the choice of
 * a backend, and two launches that no public call makes on it alone. */
#ifndef PSTI_TESTS_PTX_CLOCK_DEVICE_H
#define PSTI_TESTS_PTX_CLOCK_DEVICE_H

#include <pagestash/pagestash.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* has_bulk: of an architecture that has the machine for bulk copies. */
pst_status psti_clock_device_open(int num_sms, bool has_bulk, const psti_runners *runners,
                                  pst_device **device_out);

/* The backend that auto is for a move, see psti_pick_backend. */
const char *psti_clock_picked(const pst_device *device, const psti_move_args *args);

/* A product that the device counts, in the kernel that a GPU has for it. */
pst_status psti_clock_product(pst_device *device, const pst_product *product, pst_stream stream);
pst_status psti_clock_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                             pst_stream stream);

#ifdef __cplusplus
}
#endif

#endif
