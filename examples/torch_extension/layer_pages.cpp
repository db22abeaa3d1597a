/* torch.ops.layer_pages.*: an extension of torch, with its own pool of pages, that keeps what a layer saves.
 *
 * It is what a framework's C++ part does (Transformer Engine's, Megatron's): it links libpagestash, makes a
 * pool on the device of its tensors, stashes a layer's tensors in the forward, and restores them in the
 * backward. It uses torch's stable interface only, so one binary serves torch 2.10 on and every Python.
 *
 * Whatever it is given, it answers with an exception or works: handles are numbers that are looked up,
 * and a restore is checked against what was stashed. What only the device knows, that pages ran out or a
 * count is wrong, is a fault of the step (`step` answers it) and never an error of these functions. */
#include <pagestash/pagestash.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

/* Of libtorch_cuda, which a torch without CUDA has not. */
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t,
                                                                                   void **);

namespace
{

using torch::stable::Tensor;

constexpr int64_t rows_per_scale = 32; /* of MXFP8: one row of scales for 32 rows of data */
constexpr int64_t max_tickets = 64;    /* layers that wait for their backward at once */

void check(pst_status status, const char *what)
{
    STD_TORCH_CHECK(status == PST_OK, what, ": ", pst_status_name(status), ": ",
                    pst_last_message());
}

struct DestroyGroup {
    void operator()(pst_group *group) const
    {
        pst_group_destroy(group);
    }
};

/* What one layer has in the pages. */
struct Stashed {
    pst_ticket ticket;
    std::unique_ptr<pst_group, DestroyGroup> group;
    std::vector<int64_t> bytes; /* of each tensor */
};

struct Pool {
    pst_device *device = nullptr;
    pst_pool *pool = nullptr;
    bool is_cuda = false;
    int32_t index = 0;
    int64_t next_layer = 1;
    std::map<int64_t, Stashed> layers;

    Pool() = default;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    ~Pool()
    {
        pst_pool_destroy(pool);
        pst_device_close(device);
    }

    /* The stream that torch's operators of this thread are on: copies are ordered behind what fills the
     * tensors, and torch's allocator may give their memory away as soon as they are gone. */
    pst_stream stream() const
    {
        if (!is_cuda)
            return nullptr;
        void *current = nullptr;
        STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream &&
                            aoti_torch_get_current_cuda_stream(index, &current) ==
                                AOTI_TORCH_SUCCESS,
                        "layer_pages: torch does not say which CUDA stream is current");
        return static_cast<pst_stream>(current);
    }
};

std::mutex mutex; /* of everything below, and of a stream's order */
/* Never destroyed: at the end of the process CUDA may be gone before. */
auto &pools = *new std::map<int64_t, std::unique_ptr<Pool>>;
int64_t next_pool = 1;

Pool &pool_of(int64_t number)
{
    const auto found = pools.find(number);
    STD_TORCH_CHECK(found != pools.end(), "layer_pages: there is no pool ", number);
    return *found->second;
}

int64_t bytes_of(const Tensor &tensor)
{
    int32_t dtype = 0;
    STD_TORCH_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype) == AOTI_TORCH_SUCCESS,
                    "layer_pages: a tensor without a dtype");
    return tensor.numel() * static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
}

/* Throws for what the library could not read: it sees addresses only. */
void check_tensor(const Pool &pool, const Tensor &tensor, const char *what, size_t i)
{
    STD_TORCH_CHECK(pool.is_cuda ? tensor.is_cuda() && tensor.get_device_index() == pool.index
                                 : tensor.is_cpu(),
                    what, " ", i, " is not on the device of the pool");
    STD_TORCH_CHECK(tensor.is_contiguous(), what, " ", i, " is not contiguous");
}

/* Bytes of a row, and the share of the layer's rows that the tensor has. */
pst_tensor describe(const Tensor &tensor, int64_t capacity, size_t i)
{
    const int64_t scale_rows = capacity / rows_per_scale + (capacity % rows_per_scale != 0);
    STD_TORCH_CHECK(tensor.dim() >= 1 && tensor.numel() > 0, "tensor ", i, " is empty");
    const int64_t rows = tensor.size(0);
    STD_TORCH_CHECK(rows == capacity || rows == scale_rows, "tensor ", i, " has ", rows,
                    " rows; allowed are ", capacity, ", and ", scale_rows, " of scales");
    pst_tensor out = {};
    out.row_bytes = static_cast<uint64_t>(bytes_of(tensor) / rows);
    out.num = 1;
    out.den = rows == capacity ? 1 : rows_per_scale;
    out.rounding = PST_ROUND_UP;
    return out;
}

pst_row_space row_space(const Tensor &counts, int64_t capacity)
{
    int32_t dtype = 0;
    STD_TORCH_CHECK(aoti_torch_get_dtype(counts.get(), &dtype) == AOTI_TORCH_SUCCESS &&
                        (dtype == aoti_torch_dtype_int32() || dtype == aoti_torch_dtype_int64()),
                    "counts: allowed are int32 and int64");
    const int64_t num_counts = counts.numel();
    STD_TORCH_CHECK(num_counts >= 1 && num_counts <= PST_MAX_SEGMENTS, "counts: ", num_counts,
                    " elements; allowed are 1 to ", PST_MAX_SEGMENTS);
    pst_row_space out = {};
    out.kind = num_counts == 1 ? PST_ROWS_PREFIX : PST_ROWS_SUM;
    out.count_type = dtype == aoti_torch_dtype_int32() ? PST_COUNT_INT32 : PST_COUNT_INT64;
    out.capacity = capacity;
    out.num_segments = num_counts == 1 ? 0 : static_cast<uint32_t>(num_counts);
    return out;
}

/* create(like, num_pages, page_bytes) -> pool: on the device of `like`. */
int64_t create(const Tensor &like, int64_t num_pages, int64_t page_bytes)
{
    STD_TORCH_CHECK(like.is_cpu() || like.is_cuda(), "like: allowed are tensors on cpu and cuda");
    STD_TORCH_CHECK(num_pages >= 1 && page_bytes >= 0, "num_pages and page_bytes: ", num_pages,
                    ", ", page_bytes, "; allowed are at least 1 and 0");
    auto pool = std::make_unique<Pool>();
    pool->is_cuda = like.is_cuda();
    pool->index = pool->is_cuda ? like.get_device_index() : 0;
    check(pst_device_open(pool->is_cuda ? "cuda" : "host", pool->index, &pool->device), "device");

    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = static_cast<uint64_t>(num_pages);
    config.page_bytes = static_cast<uint64_t>(page_bytes);
    config.slab_tickets = max_tickets;
    config.slab_counts = PST_MAX_SEGMENTS;
    check(pst_pool_create(pool->device, &config, &pool->pool), "pool");

    const std::lock_guard<std::mutex> lock(mutex);
    pools[next_pool] = std::move(pool);
    return next_pool++;
}

/* stash(pool, tensors, counts, capacity) -> layer: the tensors' live rows go to pages, and their memory
 * may be reused by what follows on this stream. counts: how many rows are live, or of each expert. */
int64_t stash(int64_t pool_number, std::vector<Tensor> tensors, Tensor counts, int64_t capacity)
{
    const std::lock_guard<std::mutex> lock(mutex);
    Pool &pool = pool_of(pool_number);
    STD_TORCH_CHECK(capacity >= 1, "capacity: ", capacity, "; allowed is at least 1");
    check_tensor(pool, counts, "counts", 0);
    const pst_row_space space = row_space(counts, capacity);

    std::vector<pst_tensor> described;
    std::vector<void *> bases;
    Stashed layer = {};
    for (size_t i = 0; i < tensors.size(); i++) {
        check_tensor(pool, tensors[i], "tensor", i);
        described.push_back(describe(tensors[i], capacity, i));
        bases.push_back(tensors[i].data_ptr());
        layer.bytes.push_back(bytes_of(tensors[i]));
    }
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = described.data();
    config.num_tensors = static_cast<uint32_t>(described.size());
    pst_group *group = nullptr;
    check(pst_group_create(&config, &group), "group"); /* host only; keep it where that counts */
    layer.group.reset(group);

    const void *const row_counts[] = {counts.data_ptr()};
    pst_buffers source = PST_BUFFERS_INIT;
    source.bases = bases.data();
    source.counts = row_counts;
    const pst_stream stream = pool.stream();
    check(pst_ticket_take(pool.pool, stream, &layer.ticket), "ticket");
    const pst_status status = pst_ticket_stash(layer.ticket, group, &source, nullptr, stream);
    if (status != PST_OK) {
        const std::string message = pst_last_message();
        pst_ticket_give(layer.ticket, stream);
        STD_TORCH_CHECK(false, "stash: ", pst_status_name(status), ": ", message);
    }
    const int64_t number = pool.next_layer++;
    pool.layers.emplace(number, std::move(layer));
    return number;
}

/* restore(pool, layer, tensors): the live rows come back, zeros behind them, and the pages are free.
 * tensors: as many bytes each as were stashed. The layer is gone then. */
void restore(int64_t pool_number, int64_t number, std::vector<Tensor> tensors)
{
    const std::lock_guard<std::mutex> lock(mutex);
    Pool &pool = pool_of(pool_number);
    const auto found = pool.layers.find(number);
    STD_TORCH_CHECK(found != pool.layers.end(), "restore: there is no layer ", number,
                    ", or it was restored before");
    Stashed &layer = found->second;
    STD_TORCH_CHECK(tensors.size() == layer.bytes.size(), "restore: ", tensors.size(), " tensors; ",
                    layer.bytes.size(), " were stashed");
    std::vector<void *> bases;
    for (size_t i = 0; i < tensors.size(); i++) {
        check_tensor(pool, tensors[i], "tensor", i);
        STD_TORCH_CHECK(bytes_of(tensors[i]) == layer.bytes[i], "restore: tensor ", i, " has ",
                        bytes_of(tensors[i]), " bytes; ", layer.bytes[i], " were stashed");
        bases.push_back(tensors[i].data_ptr());
    }
    pst_buffers destination = PST_BUFFERS_INIT;
    destination.bases = bases.data();
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.tail = PST_TAIL_ZERO_ALL;
    options.failed = PST_FAILED_ZERO; /* so that a lost step carries no NaN */
    const pst_stream stream = pool.stream();
    check(pst_ticket_restore(layer.ticket, layer.group.get(), &destination, &options, stream),
          "restore");
    check(pst_ticket_give(layer.ticket, stream), "ticket");
    pool.layers.erase(found);
}

/* drop(pool, layer): its pages are free; there will be no backward. */
void drop(int64_t pool_number, int64_t number)
{
    const std::lock_guard<std::mutex> lock(mutex);
    Pool &pool = pool_of(pool_number);
    const auto found = pool.layers.find(number);
    STD_TORCH_CHECK(found != pool.layers.end(), "drop: there is no layer ", number);
    check(pst_ticket_give(found->second.ticket, pool.stream()), "ticket");
    pool.layers.erase(found);
}

/* step(pool) -> [valid, pages in use, pages wanted at once, pages lost or owned twice]: ends a step, and
 * waits for the device. A training loop would poll instead, a step late. */
std::vector<int64_t> step(int64_t pool_number)
{
    const std::lock_guard<std::mutex> lock(mutex);
    Pool &pool = pool_of(pool_number);
    const pst_stream stream = pool.stream();
    check(pst_pool_check(pool.pool, stream), "check");
    check(pst_pool_step(pool.pool, stream), "step");
    check(pst_device_synchronize(pool.device), "step");
    pst_pool_status status = {};
    check(pst_pool_poll(pool.pool, &status), "step");
    return {status.step_valid, static_cast<int64_t>(status.in_use[0] + status.in_use[1]),
            static_cast<int64_t>(status.demand_high_water), status.check_errors};
}

/* close(pool): refused while layers wait for their backward, or captured graphs use the pool. */
void close_pool(int64_t pool_number)
{
    const std::lock_guard<std::mutex> lock(mutex);
    Pool &pool = pool_of(pool_number);
    STD_TORCH_CHECK(pool.layers.empty(), "close: ", pool.layers.size(),
                    " layers wait for their backward");
    check(pst_pool_destroy(pool.pool), "close");
    pool.pool = nullptr;
    pools.erase(pool_number);
}

} // namespace

STABLE_TORCH_LIBRARY(layer_pages, m)
{
    m.def("create(Tensor like, int num_pages, int page_bytes=0) -> int");
    m.def("stash(int pool, Tensor[] tensors, Tensor counts, int capacity) -> int");
    m.def("restore(int pool, int layer, Tensor(a!)[] tensors) -> ()");
    m.def("drop(int pool, int layer) -> ()");
    m.def("step(int pool) -> int[]");
    m.def("close(int pool) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(layer_pages, CompositeExplicitAutograd, m)
{
    m.impl("create", TORCH_BOX(&create));
    m.impl("stash", TORCH_BOX(&stash));
    m.impl("restore", TORCH_BOX(&restore));
    m.impl("drop", TORCH_BOX(&drop));
    m.impl("step", TORCH_BOX(&step));
    m.impl("close", TORCH_BOX(&close_pool));
}
