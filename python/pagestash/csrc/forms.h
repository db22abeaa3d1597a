/* Tensors of torch as the rows of a group; groups are kept by form, so that no launch makes one. */
#ifndef PAGESTASH_CSRC_FORMS_H
#define PAGESTASH_CSRC_FORMS_H

#include "tokens.h"

#include <torch/csrc/stable/tensor.h>

namespace pagestash
{

/* How rows are counted. */
struct Counting {
    pst_rows_kind kind;
    pst_count_type count_type;
    uint32_t num_segments;
};

/* Of tensors in one row space. The caller owns it. */
pst_group *create_group(const pst_row_space &space, const std::vector<pst_tensor> &tensors);

/* Of one launch; the arrays that pst_buffers points into. */
struct Buffers {
    std::shared_ptr<pst_group> group;
    std::vector<uint64_t> row_bytes;
    pst_buffers raw;

    /* Throws with a sentence for what does not fit: `what` (the op) and `name` (of the tensors) are
     * its beginning. counts NULL: a restore. */
    Buffers(const Pool &pool, const std::vector<torch::stable::Tensor> &tensors,
            const torch::stable::Tensor *counts, int64_t capacity, int64_t segments,
            const char *what, const char *name);
    Buffers(const Buffers &) = delete;

  private:
    void add(const Pool &pool, const torch::stable::Tensor &tensor, int64_t segments,
             const char *what, const char *name);

    size_t num_ = 0;
    void *bases_[PST_MAX_TENSORS];
    uint64_t row_strides_[PST_MAX_TENSORS], segment_strides_[PST_MAX_TENSORS];
    const void *counts_;
    int64_t capacity_;
};

/* Throws where the tensor is not on the pool's device. */
void check_device(const Pool &pool, const torch::stable::Tensor &tensor, const char *what,
                  const std::string &name);

} // namespace pagestash

#endif
