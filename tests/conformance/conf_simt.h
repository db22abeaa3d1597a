/* The simt device, where the conformance suite meets it. */
#ifndef PAGESTASH_TESTS_CONF_SIMT_H
#define PAGESTASH_TESTS_CONF_SIMT_H

#include "tests/simt/simt_device.h"

/* With the options of the environment (PSTI_SIMT_*). */
static inline pst_status conf_simt_open(pst_device **device_out)
{
    return psti_simt_device_open(NULL, device_out);
}

#endif
