/* Fills a group's buffers with bytes that follow from a key, and verifies them, on the device. */
#include <pagestash/pattern.h>

#include "host/stash/stash.h"

#include "host/base/nvtx.h"

static pst_status enqueue(pst_device *device, const pst_group *group, const pst_buffers *buffers,
                          const pst_pattern *pattern, int tail, uint64_t *mismatches,
                          pst_stream stream)
{
    psti_pattern_args args;
    psti_placing placing = {.spaces = args.spaces, .tensors = args.tensors, .with_counts = true};
    PSTI_TRY(psti_place(device, group, buffers, "buffers", &placing));
    if (pattern->step)
        PSTI_TRY(psti_check_address(device, pattern->step, sizeof(*pattern->step)));
    if (mismatches)
        PSTI_TRY(psti_check_address(device, mismatches, sizeof(*mismatches)));
    args.seed = pattern->seed;
    args.key = pattern->key;
    args.step = pattern->step;
    args.mismatches = mismatches;
    args.tail = tail;
    args.num_tensors = group->num_tensors;
    args.num_spaces = group->num_spaces;
    args.reserved = 0;
    return device->ops->launch(device, mismatches ? PSTI_OP_VERIFY : PSTI_OP_FILL, &args, stream);
}

pst_status pst_group_fill(pst_device *device, const pst_group *group, const pst_buffers *buffers,
                          const pst_pattern *pattern, pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(pattern, PST_E_INVALID, "pattern is NULL");
    PSTI_RANGE("pst_group_fill");
    return enqueue(device, group, buffers, pattern, PST_VERIFY_ANY, NULL, stream);
}

pst_status pst_group_verify(pst_device *device, const pst_group *group, const pst_buffers *buffers,
                            const pst_pattern *pattern, int tail, uint64_t *mismatches,
                            pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(pattern && mismatches, PST_E_INVALID, "pattern or mismatches is NULL");
    PSTI_CHECK(tail >= PST_VERIFY_ANY && tail <= 255, PST_E_INVALID,
               "tail %d: allowed are 0 to 255 and PST_VERIFY_ANY", tail);
    PSTI_RANGE("pst_group_verify");
    return enqueue(device, group, buffers, pattern, tail, mismatches, stream);
}
