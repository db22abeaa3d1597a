/* Fills a group with bytes that follow from a key, and verifies them, on the device. */
#include <pagestash/pattern.h>

#include "host/stash/stash.h"

#include <string.h>

#include "host/base/nvtx.h"

static pst_status enqueue(const pst_group *group, const pst_group *counts_of,
                          const pst_pattern *pattern, int tail, uint64_t *mismatches,
                          pst_stream stream)
{
    pst_device *device = group->device;
    psti_pattern_args args = {.seed = pattern->seed,
                              .key = pattern->key,
                              .step = pattern->step,
                              .mismatches = mismatches,
                              .tail = tail,
                              .num_tensors = group->num_tensors,
                              .num_spaces = group->num_spaces};
    memcpy(args.tensors, group->tensors, sizeof(args.tensors));
    memcpy(args.spaces, group->spaces, sizeof(args.spaces));
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        args.spaces[i].counts = counts_of->spaces[i].counts;
        args.spaces[i].is_int64 = counts_of->spaces[i].is_int64;
    }
    return device->ops->launch(device, mismatches ? PSTI_OP_VERIFY : PSTI_OP_FILL, &args, stream);
}

pst_status pst_group_fill(const pst_group *group, const pst_pattern *pattern, pst_stream stream)
{
    PSTI_CHECK(group && pattern, PST_E_INVALID, "group or pattern is NULL");
    PSTI_CHECK(group->has_counts, PST_E_INVALID, "group has a row space without counts");
    PSTI_RANGE("pst_group_fill");
    return enqueue(group, group, pattern, PST_VERIFY_ANY, NULL, stream);
}

pst_status pst_group_verify(const pst_group *group, const pst_group *counts_of,
                            const pst_pattern *pattern, int tail, uint64_t *mismatches,
                            pst_stream stream)
{
    char buffer[256];
    PSTI_CHECK(group && counts_of && pattern && mismatches, PST_E_INVALID,
               "group, counts_of, pattern or mismatches is NULL");
    PSTI_CHECK(tail >= PST_VERIFY_ANY && tail <= 255, PST_E_INVALID,
               "tail %d: allowed are 0 to 255 and PST_VERIFY_ANY", tail);
    PSTI_CHECK(counts_of->has_counts, PST_E_INVALID, "counts_of has a row space without counts");
    const char *difference = psti_group_difference(counts_of, group, buffer, sizeof(buffer));
    PSTI_CHECK(!difference, PST_E_INVALID, "group is unlike counts_of: %s", difference);
    PSTI_RANGE("pst_group_verify");
    return enqueue(group, counts_of, pattern, tail, mismatches, stream);
}
