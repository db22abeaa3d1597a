/* Whether the device can run a configuration, and whether its memory can hold it. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <inttypes.h>
#include <stdio.h>

int bench_memory_limit(pst_device *device, const bench_machine *machine, uint64_t *most_out,
                       uint64_t *free_out)
{
    pst_device_info info;
    TOOL_PST(pst_device_get_info(device, &info));
    const uint64_t spare =
        info.kind == PST_DEVICE_HOST ? machine->host_bytes / 2 : info.free_bytes / 16;
    *most_out = info.free_bytes > spare ? info.free_bytes - spare : 0;
    *free_out = info.free_bytes;
    return TOOL_OK;
}

int bench_host_limit(const bench_machine *machine, uint64_t *most_out)
{
    pst_device *host = NULL;
    uint64_t free_bytes;
    TOOL_PST(pst_device_open("host", 0, &host));
    const int code = bench_memory_limit(host, machine, most_out, &free_bytes);
    TOOL_PST(pst_device_close(host));
    return code;
}

/* reason: "" if the device can run it; else *code is the exit code that an explicit wish for it
 * ends with. */
static int why_not(const bench_rig *rig, char *reason, size_t reason_bytes, int *code)
{
    const pst_device_info *info = &rig->machine->device;
    const bench_case *what = &rig->what;
    uint64_t bytes = 0, most, free_bytes;
    *reason = '\0';
    if (what->backend != PST_BACKEND_AUTO && !(info->backends & 1u << what->backend)) {
        *code = TOOL_DEVICE;
        snprintf(reason, reason_bytes, "backend %s: %s has none", bench_backend_name(what->backend),
                 info->name);
        return TOOL_OK;
    }
    if (what->num_sms > info->num_sms) {
        *code = TOOL_USAGE;
        snprintf(reason, reason_bytes, "num_sms %d: %s has %d", what->num_sms, info->name,
                 info->num_sms);
        return TOOL_OK;
    }
    TOOL_TRY(bench_rig_bytes(rig, &bytes));
    TOOL_TRY(bench_memory_limit(rig->device, rig->machine, &most, &free_bytes));
    if (bytes > most) {
        *code = TOOL_NO;
        snprintf(reason, reason_bytes,
                 "%" PRIu64 " bytes wanted, at most %" PRIu64 " of %" PRIu64 " bytes free", bytes,
                 most, free_bytes);
    }
    return TOOL_OK;
}

int bench_prepare_or_skip(bench_rig *rig, pst_device *device, const bench_case *what, bool may_skip,
                          bench_report *report, bool *skipped_out)
{
    char reason[240], text[200];
    int code = TOOL_OK;
    TOOL_TRY(bench_rig_prepare(rig, device, &report->machine, what));
    TOOL_TRY(why_not(rig, reason, sizeof(reason), &code));
    *skipped_out = *reason != '\0';
    if (*reason == '\0')
        return TOOL_OK;
    if (may_skip)
        return bench_add_skip(report, what, reason);
    bench_describe(what, text, sizeof(text));
    return tool_fail(code, "%s: %s", text, reason);
}

int bench_can_run(pst_device *device, const bench_case *what, bench_report *report)
{
    bench_rig rig;
    bool skipped;
    return bench_prepare_or_skip(&rig, device, what, false, report, &skipped);
}
