/* The device "clock": the machinery of host, with moves that the clock times. */
#include "tests/ptx/clock_device.h"

#include <pagestash/pagestash.h>

#include "host/device/device.h"

pst_status psti_clock_device_open(int num_sms, const psti_runners *runners, pst_device **device_out)
{
    PSTI_TRY(psti_host_device_make("clock", num_sms, runners, device_out));
    (*device_out)->info.backends =
        1u << PST_BACKEND_LDG | 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE;
    return PST_OK;
}
