/* The device "simt": the library's host device, whose operations are the CUDA kernels on the CPU. */
#ifndef PSTI_TESTS_SIMT_DEVICE_H
#define PSTI_TESTS_SIMT_DEVICE_H

#include <pagestash/device.h>

#include "kernels/kernels.h"
#include "tests/simt/simt_machine.h"

typedef simt_config simt_options;

PST_BEGIN_DECLS

/* Opens the device. The options hold for all simt devices of the process, those open already too,
 * and launches are numbered from 0 again: launch n of the library's kernels has seed options->seed
 * + n. NULL: defaults. Not while another thread uses a simt device. Fails: INVALID, NOMEM. */
pst_status psti_simt_device_open(const simt_options *options, pst_device **device_out);

/* The options and the count of launches, without opening. */
void psti_simt_configure(const simt_config *config);

extern const psti_runners psti_simt_runners;

/* Counts from 0, or no longer; not while another thread uses a simt device. */
void psti_simt_count_traffic(bool counts);
simt_traffic psti_simt_traffic(void);

/* The device "host" whose stash, restore and migrate tell the hook of simt_points.h. Fails: NOMEM. */
pst_status psti_simt_host_open(pst_device **device_out);

PST_END_DECLS

#endif
