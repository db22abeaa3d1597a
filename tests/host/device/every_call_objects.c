/* What several rooms of every_call.h need. */
#include "tests/host/device/every_call.h"

call_objects call_has;

void call_open_streams(pst_device *device)
{
    call_has = (call_objects){.device = device, .made = call_untouched()};
    CHECK_OK(pst_stream_create(device, &call_has.stream));
    CHECK_OK(pst_stream_create(device, &call_has.other));
}

void call_close_streams(void)
{
    CHECK_OK(pst_stream_destroy(call_has.device, call_has.stream));
    CHECK_OK(pst_stream_destroy(call_has.device, call_has.other));
    call_close(call_has.device);
}

pst_status call_create_comm(pst_comm **comm_out)
{
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    const pst_status status = pst_comm_make_id(call_has.device, &config.id);
    config.num_ranks = 1;
    return status == PST_OK ? pst_comm_create(call_has.device, &config, comm_out) : status;
}

void call_open_comm(pst_device *device)
{
    call_open_streams(device);
    CHECK_OK(call_create_comm(&call_has.comm));
}

/* What was started is finished, where it can be. */
void call_close_comm(void)
{
    if (call_has.comm)
        (void)pst_comm_finish(call_has.comm, 1, call_has.stream);
    CHECK_OK(pst_comm_destroy(call_has.comm));
    call_close_streams();
}

void call_check_scratch(void)
{
    pst_scratch_info info;
    CHECK_OK(pst_scratch_get_info(call_has.scratch, &info));
    CHECK_EQ(info.num_live, call_has.lease.id != 0);
}
