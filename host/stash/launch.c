/* Turns launch options into what one launch is told. */
#include "host/stash/stash.h"

#include "kernels/core/stream.h"

/* Whether bulk is what copies the tensor soonest: one packed segment at an odd address, or several aligned ones, whose
 * rows are so long that a tile has few of them, whatever is live. */
static bool is_for_bulk(const psti_move_args *args, uint32_t t)
{
    const psti_tensor *tensor = &args->tensors[t];
    const uint64_t where = (uint64_t)(uintptr_t)tensor->base | tensor->segment_stride;
    if (args->odd >> t & 1)
        return true;
    return args->spaces[tensor->space].num_segments > 1 && psti_is_packed(tensor) &&
           where % PSTI_VECTOR_BYTES == 0 && tensor->row_bytes >= PSTI_TILE_BYTES / 8;
}

/* What auto is on a device that has more than one: bulk where that is for all tensors, else ldg. In the clock
 * model of tests/ptx, which is not a measurement, no other copies any case of an ordered pool faster by more than
 * 3 %. tests/gates/check_clock_model.py holds that. */
uint32_t psti_pick_backend(const pst_device *device, const psti_launch *launch,
                           const psti_move_args *args)
{
    bool is_bulk = args->num_tensors && device->info.backends & 1u << PST_BACKEND_BULK;
    if (launch->backend != PST_BACKEND_AUTO || device->info.backends == 0)
        return launch->backend;
    for (uint32_t t = 0; t < args->num_tensors && is_bulk; t++)
        is_bulk = is_for_bulk(args, t);
    return is_bulk ? PST_BACKEND_BULK : PST_BACKEND_LDG;
}

uint32_t psti_launch_sms(const pst_device *device, int num_sms)
{
    const int preset = num_sms ? num_sms : psti_env_num_sms();
    return (uint32_t)(preset < device->info.num_sms ? preset : 0);
}

pst_status psti_launch_make(const pst_device *device, const pst_launch_options *options,
                            psti_launch *launch_out)
{
    const int all = device->info.num_sms;
    const pst_backend backend = options->backend;
    PSTI_CHECK(options->num_sms >= 0 && options->num_sms <= all, PST_E_INVALID,
               "num_sms %d: allowed are 0 to %d on this device", options->num_sms, all);
    PSTI_CHECK(backend >= PST_BACKEND_AUTO && backend <= PST_BACKEND_SQUEEZE, PST_E_INVALID,
               "backend %d: allowed are auto, ldg, bulk and squeeze", (int)backend);
    PSTI_CHECK(backend == PST_BACKEND_AUTO || device->info.backends & 1u << backend,
               PST_E_UNSUPPORTED, "backend %s: %s has none", psti_backend_name(backend),
               device->info.name);
    PSTI_CHECK(options->priority >= PST_PRIORITY_STREAM && options->priority <= PST_PRIORITY_HIGH,
               PST_E_INVALID, "priority %d: allowed are stream, low and high",
               (int)options->priority);
    launch_out->num_sms = psti_launch_sms(device, options->num_sms);
    launch_out->backend = (uint32_t)(backend != PST_BACKEND_AUTO ? backend : device->preset);
    launch_out->flags = (options->priority == PST_PRIORITY_LOW ? PSTI_MOVE_LOW : 0) |
                        (options->priority == PST_PRIORITY_HIGH ? PSTI_MOVE_HIGH : 0) |
                        (options->programmatic ? PSTI_MOVE_PROGRAMMATIC : 0);
    return PST_OK;
}
