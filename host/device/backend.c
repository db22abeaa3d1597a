/* Names of the backends, and the one that the environment asks for. */
#include "host/device/device.h"

static const char *const backend_names[] = {"auto", "ldg", "bulk", "squeeze"};

const char *psti_backend_name(pst_backend backend)
{
    return backend_names[backend];
}

pst_status psti_backend_preset(pst_device *device)
{
    const pst_backend asked = psti_env_backend();
    if (device->info.backends == 0) /* not a GPU */
        return PST_OK;
    PSTI_CHECK(asked == PST_BACKEND_AUTO || device->info.backends & 1u << asked, PST_E_UNSUPPORTED,
               "PAGESTASH_BACKEND=%s: %s, compute capability %d.%d, has none",
               psti_backend_name(asked), device->info.name, device->info.compute_capability / 10,
               device->info.compute_capability % 10);
    PSTI_CHECK(psti_env_num_sms() <= device->info.num_sms, PST_E_INVALID,
               "PAGESTASH_NUM_SMS=%d: %s has %d", psti_env_num_sms(), device->info.name,
               device->info.num_sms);
    device->preset = asked;
    return PST_OK;
}
