/* The device "simt": the machinery of host with the CUDA kernels behind it. */
#include "tests/simt/simt_device.h"

#include <pagestash/pagestash.h>

#include "host/device/device.h"

pst_status psti_simt_device_open(const simt_options *options, pst_device **device_out)
{
    const simt_config config = simt_complete(options);
    const char *error = simt_config_error(&config);
    PSTI_CHECK(!error, PST_E_INVALID, "simt options: %s", error);
    psti_simt_configure(&config);
    PSTI_TRY(psti_host_device_make("simt", (int)config.num_sms, &psti_simt_runners, device_out));
    (*device_out)->info.backends =
        1u << PST_BACKEND_LDG | 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE;
    return PST_OK;
}
