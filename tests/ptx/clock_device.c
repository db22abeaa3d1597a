/* The device "clock": the machinery of host, with operations that the clock times. */
#include "tests/ptx/clock_device.h"

#include "host/device/device.h"
#include "host/linear/linear.h"
#include "host/stash/stash.h"

pst_status psti_clock_device_open(int num_sms, const psti_runners *runners, pst_device **device_out)
{
    PSTI_TRY(psti_host_device_make("clock", num_sms, runners, device_out));
    (*device_out)->info.backends =
        1u << PST_BACKEND_LDG | 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE;
    return PST_OK;
}

pst_status psti_clock_product(pst_device *device, const pst_product *product, pst_stream stream)
{
    return psti_product_enqueue_counted(device, product, stream);
}

pst_status psti_clock_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                             pst_stream stream)
{
    return psti_pool_expect(pool, word, expected, stream);
}
