/* A device whose moves are run by somebody else, all other operations by kernels/host. */
#ifndef PSTI_TESTS_PTX_CLOCK_DEVICE_H
#define PSTI_TESTS_PTX_CLOCK_DEVICE_H

#include <pagestash/device.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

pst_status psti_clock_device_open(int num_sms, const psti_runners *runners,
                                  pst_device **device_out);

#ifdef __cplusplus
}
#endif

#endif
