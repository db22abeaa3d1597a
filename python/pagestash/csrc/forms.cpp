/* Groups by form, and the checks of what a launch is given: see forms.h. */
#include "forms.h"

#include <mutex>
#include <unordered_map>

namespace pagestash
{

using torch::stable::Tensor;

pst_group *create_group(const pst_row_space &space, const std::vector<pst_tensor> &tensors)
{
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors.data();
    config.num_tensors = static_cast<uint32_t>(tensors.size());
    pst_group *group = nullptr;
    check(pst.group_create(&config, &group), "pst_group_create");
    return group;
}

namespace
{

constexpr size_t MAX_FORMS = 1024; /* kept; what a launch uses lives on by itself */

std::string place_of(bool is_cuda, int32_t index)
{
    return is_cuda ? "cuda:" + std::to_string(index) : "the CPU";
}

std::shared_ptr<pst_group> make_group(const Counting &counting, const std::vector<uint64_t> &rows)
{
    std::vector<pst_tensor> tensors(rows.size(), pst_tensor{});
    for (size_t i = 0; i < rows.size(); i++)
        tensors[i].row_bytes = rows[i];
    pst_row_space space = {};
    space.kind = counting.kind;
    space.count_type = counting.count_type;
    space.capacity = 1; /* each launch names its own */
    space.num_segments = counting.num_segments;
    return std::shared_ptr<pst_group>(create_group(space, tensors),
                                      [](pst_group *old) { pst.group_destroy(old); });
}

struct Forms {
    std::mutex lock;
    std::unordered_map<std::string, std::shared_ptr<pst_group>> groups;
};

std::shared_ptr<pst_group> group_of(const Counting &counting, const std::vector<uint64_t> &rows)
{
    static Forms *const forms = new Forms;
    std::string key(reinterpret_cast<const char *>(&counting), sizeof(counting));
    key.append(reinterpret_cast<const char *>(rows.data()), rows.size() * sizeof(rows[0]));
    {
        std::lock_guard<std::mutex> guard(forms->lock);
        const auto found = forms->groups.find(key);
        if (found != forms->groups.end())
            return found->second;
    }
    auto made = make_group(counting, rows);
    std::lock_guard<std::mutex> guard(forms->lock);
    if (forms->groups.size() >= MAX_FORMS)
        forms->groups.clear();
    return forms->groups.emplace(std::move(key), std::move(made)).first->second;
}

int32_t dtype_of(const Tensor &tensor)
{
    int32_t dtype = 0;
    if (aoti_torch_get_dtype(tensor.get(), &dtype) != AOTI_TORCH_SUCCESS)
        fail("pagestash: a tensor without a dtype");
    return dtype;
}

/* Bytes of one row of a tensor whose dimensions from `first` on are a row; 0 where they have gaps. */
uint64_t dense_bytes(const Tensor &tensor, int64_t first)
{
    int64_t elements = 1;
    for (int64_t d = tensor.dim() - 1; d >= first; d--) {
        if (tensor.size(d) != 1 && tensor.stride(d) != elements)
            return 0;
        elements *= tensor.size(d);
    }
    return static_cast<uint64_t>(elements) * tensor.element_size();
}

const void *counts_of(const Pool &pool, const Tensor &counts, int64_t segments, const char *what,
                      Counting *counting)
{
    check_device(pool, counts, what, "counts");
    const int32_t dtype = dtype_of(counts);
    if (dtype == aoti_torch_dtype_int32())
        counting->count_type = PST_COUNT_INT32;
    else if (dtype == aoti_torch_dtype_int64())
        counting->count_type = PST_COUNT_INT64;
    else
        fail(what, ": counts must be int32 or int64");
    const int64_t num = counts.numel();
    if (num < 1 || num > PST_MAX_SEGMENTS)
        fail(what, ": counts has ", num, " elements; 1 to ", PST_MAX_SEGMENTS, " are allowed");
    if (segments && num != segments)
        fail(what, ": counts has ", num, " elements for ", segments, " segments");
    if (!counts.is_contiguous())
        fail(what, ": counts is not contiguous");
    if (!segments && num > 1) {
        counting->kind = PST_ROWS_SUM;
        counting->num_segments = static_cast<uint32_t>(num);
    }
    return counts.data_ptr();
}

} // namespace

void check_device(const Pool &pool, const Tensor &tensor, const char *what, const std::string &name)
{
    int32_t layout = 0;
    if (aoti_torch_get_layout(tensor.get(), &layout) != AOTI_TORCH_SUCCESS ||
        layout != aoti_torch_layout_strided())
        fail(what, ": ", name, " is not a strided tensor");
    const bool is_cuda = tensor.is_cuda();
    const bool fits =
        pool.is_cuda ? is_cuda && tensor.get_device_index() == pool.index : tensor.is_cpu();
    if (!fits)
        fail(what, ": ", name, " is on ",
             is_cuda || tensor.is_cpu() ? place_of(is_cuda, tensor.get_device_index())
                                        : "another device",
             ", and the pool on ", place_of(pool.is_cuda, pool.index));
}

Buffers::Buffers(const Pool &pool, const std::vector<Tensor> &tensors, const Tensor *counts,
                 int64_t capacity, int64_t segments, const char *what, const char *name)
    : capacity_(capacity)
{
    if (tensors.empty() || tensors.size() > PST_MAX_TENSORS)
        fail(what, ": ", tensors.size(), " tensors; 1 to ", PST_MAX_TENSORS, " are allowed");
    if (capacity < 1 || capacity > (int64_t{1} << 45))
        fail(what, ": capacity ", capacity, " must be 1 to 2^45 rows");
    if (segments < 0 || segments > PST_MAX_SEGMENTS)
        fail(what, ": segments ", segments, " must be 0 to ", PST_MAX_SEGMENTS);
    Counting counting = {segments ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX, PST_COUNT_INT64,
                         static_cast<uint32_t>(segments)};
    row_bytes.reserve(tensors.size());
    for (const Tensor &tensor : tensors)
        add(pool, tensor, segments, what, name);
    raw = PST_BUFFERS_INIT;
    if (counts) {
        counts_ = counts_of(pool, *counts, segments, what, &counting);
        raw.counts = &counts_;
    }
    group = group_of(counting, row_bytes);
    raw.bases = bases_;
    raw.capacities = &capacity_;
    raw.row_strides = row_strides_;
    raw.segment_strides = segment_strides_;
}

void Buffers::add(const Pool &pool, const Tensor &tensor, int64_t segments, const char *what,
                  const char *name)
{
    const auto mine = [&] { return std::string(name) + " " + std::to_string(num_); };
    check_device(pool, tensor, what, mine());
    const uint64_t rows = static_cast<uint64_t>(capacity_) * (segments ? segments : 1);
    uint64_t bytes = 0, row_stride = 0, segment_stride = 0;
    if (tensor.is_contiguous()) {
        const uint64_t total = static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
        if (total == 0 || total % rows)
            fail(what, ": ", mine(), " has ", total, " bytes, no multiple of ", rows,
                 " rows (capacity ", capacity_, ", segments ", segments, ")");
        bytes = total / rows;
    } else {
        const int64_t first = segments ? 2 : 1;
        const bool fits = tensor.dim() >= first && tensor.size(first - 1) == capacity_ &&
                          (!segments || tensor.size(0) == segments);
        bytes = fits ? dense_bytes(tensor, first) : 0;
        if (bytes == 0)
            fail(what, ": ", mine(), " is neither contiguous nor rows without gaps of dimension ",
                 first - 1, ", which must be the capacity ", capacity_);
        if (capacity_ > 1)
            row_stride = static_cast<uint64_t>(tensor.stride(first - 1)) * tensor.element_size();
        if (segments > 1)
            segment_stride = static_cast<uint64_t>(tensor.stride(0)) * tensor.element_size();
        if ((capacity_ > 1 && row_stride < bytes) || (segments > 1 && segment_stride < bytes))
            fail(what, ": the rows of ", mine(), " overlap");
    }
    bases_[num_] = tensor.data_ptr();
    row_strides_[num_] = row_stride;
    segment_strides_[num_] = segment_stride;
    row_bytes.push_back(bytes);
    num_++;
}

} // namespace pagestash
