/* Dirty words: how many rows restores left in a set of buffers, on the device. */
#include "host/stash/stash.h"

#include "host/base/nvtx.h"

pst_status pst_dirty_create(pst_device *device, const pst_group *group, bool tail_is_zero,
                            pst_dirty **dirty_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK(dirty_out, PST_E_INVALID, "dirty_out is NULL");
    const size_t bytes = group->num_counts * sizeof(uint64_t);
    void *words = NULL;
    pst_dirty *dirty = psti_handle_new(sizeof(*dirty), PSTI_KIND_DIRTY);
    PSTI_CHECK(dirty, PST_E_NOMEM, "no memory for dirty words");
    pst_status status = psti_part_alloc(device, bytes, &words);
    if (status == PST_OK)
        status = pst_device_fill(device, words, tail_is_zero ? 0 : 0xff, bytes, NULL);
    if (status == PST_OK)
        status = pst_stream_synchronize(device, NULL); /* other threads may capture */
    if (status != PST_OK) {
        psti_part_free(device, words);
        psti_handle_free(dirty);
        return status;
    }
    dirty->device = device;
    dirty->words = words;
    dirty->num_counts = group->num_counts;
    dirty->form = group->form;
    for (uint32_t i = 0; i < group->num_spaces; i++)
        dirty->capacities[i] = group->spaces[i].capacity;
    psti_device_retain(device, PSTI_LIVE_DIRTY);
    *dirty_out = dirty;
    return PST_OK;
}

pst_status pst_dirty_destroy(pst_dirty *dirty)
{
    if (!dirty)
        return PST_OK;
    PSTI_CHECK_HANDLE(dirty, DIRTY);
    const uint32_t graphs = psti_hold_count(dirty->device, &dirty->hold);
    PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs use these dirty words", graphs);
    const pst_status status = psti_part_free(dirty->device, dirty->words);
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    psti_device_release(dirty->device, PSTI_LIVE_DIRTY);
    psti_handle_free(dirty);
    return PST_OK;
}

pst_status pst_dirty_mark(pst_dirty *dirty, pst_stream stream)
{
    psti_capture_of capture;
    PSTI_CHECK_HANDLE(dirty, DIRTY);
    PSTI_RANGE("pst_dirty_mark");
    pst_device *device = dirty->device;
    PSTI_TRY(device->ops->capture_of(device, stream, &capture));
    PSTI_TRY(psti_hold_in(device, &capture, &dirty->hold));
    return pst_device_fill(device, dirty->words, 0xff, dirty->num_counts * sizeof(*dirty->words),
                           stream);
}
