/* The launches, with the options that every stash and restore of ours has, and torch's current stream. */
#ifndef PAGESTASH_CSRC_LAUNCH_H
#define PAGESTASH_CSRC_LAUNCH_H

#include "tokens.h"

#include <torch/csrc/stable/c/shim.h>

namespace pagestash
{

/* Of torch, where it has them: CUDA is a library of its own, and 2.10 has no tensor with a deleter. */
struct Optional {
    AOTITorchError (*current_cuda_stream)(int32_t index, void **stream_out);
    AOTITorchError (*from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t,
                                int32_t, int32_t, AtenTensorHandle *, int32_t, const uint8_t *,
                                int64_t, void (*)(void *, void *), void *);
};

extern Optional optional_of_torch;

void bind_torch();

/* The current one of torch on the pool's device. */
pst_stream stream_of(const Pool &pool);

/* Throws where the stash cannot be enqueued, the ticket given back. */
void stash_or_give(pst_ticket ticket, const pst_group *group, const pst_buffers &source,
                   int num_sms, pst_stream stream);

/* Rows behind the live ones, and all rows where the stash had failed, become zeros. */
void restore_rows_of(pst_ticket ticket, const pst_group *group, const pst_buffers &destination,
                     int num_sms, bool keep, pst_stream stream);

} // namespace pagestash

#endif
