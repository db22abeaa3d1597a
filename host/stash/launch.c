/* Turns launch options into what one launch is told. */
#include "host/stash/stash.h"

/* The first line that holds picks the backend. Not yet measured: bulk copies need few SMs to keep
 * much memory in flight, many SMs reach the same with loads. */
typedef struct backend_rule {
    int compute_capability; /* at least */
    uint32_t max_sms;       /* at most; of those that the launch may use */
    uint64_t min_bytes;     /* at least; of the group at capacity */
    pst_backend backend;
} backend_rule;

static const backend_rule rules[] = {
    {.compute_capability = 90, .max_sms = 32, .min_bytes = 1u << 20, .backend = PST_BACKEND_BULK},
    {.compute_capability = 0, .max_sms = UINT32_MAX, .min_bytes = 0, .backend = PST_BACKEND_LDG},
};

static pst_backend pick_backend(const pst_device *device, uint64_t max_tiles, bool is_aligned,
                                uint32_t num_sms)
{
    const uint32_t sms = num_sms ? num_sms : (uint32_t)device->info.num_sms;
    const uint64_t bytes = max_tiles << PSTI_TILE_SHIFT;
    if (device->preset != PST_BACKEND_AUTO)
        return device->preset;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const backend_rule *rule = &rules[i];
        if (!(device->info.backends & 1u << rule->backend))
            continue;
        if (rule->backend != PST_BACKEND_LDG && !is_aligned)
            continue; /* bulk copies need 16-byte-aligned rows */
        if (device->info.compute_capability >= rule->compute_capability && sms <= rule->max_sms &&
            bytes >= rule->min_bytes)
            return rule->backend;
    }
    return PST_BACKEND_AUTO; /* the host device, which has one way only */
}

pst_status psti_launch_make(const pst_device *device, uint64_t max_tiles, bool is_aligned,
                            const pst_launch_options *options, psti_launch *launch_out)
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
    const int preset = options->num_sms ? options->num_sms : psti_env_num_sms();
    launch_out->num_sms = (uint32_t)(preset < all ? preset : 0);
    launch_out->backend =
        (uint32_t)(backend != PST_BACKEND_AUTO
                       ? backend
                       : pick_backend(device, max_tiles, is_aligned, launch_out->num_sms));
    launch_out->flags = (options->priority == PST_PRIORITY_LOW ? PSTI_MOVE_LOW : 0) |
                        (options->priority == PST_PRIORITY_HIGH ? PSTI_MOVE_HIGH : 0) |
                        (options->programmatic ? PSTI_MOVE_PROGRAMMATIC : 0);
    return PST_OK;
}
