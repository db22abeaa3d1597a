/* The hot path of Stash.layer: one call stashes, one restores, what a layer saves.
 *
 * What is stashed of the saved tensors, and how, Python decides (pagestash/torch/layer.py), once for each
 * geometry; here that is remembered as a plan, and found again by the geometry: dtypes, sizes, strides,
 * offsets, bytes of the storages, and which tensors share one. */
#include "forms.h"
#include "handles.h"
#include "launch.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>
#include <unordered_map>

namespace pagestash
{

using torch::stable::Tensor;

namespace
{

constexpr size_t MAX_PLANS =
    4096; /* of a process; later geometries are decided in Python each time */

struct Slot {
    size_t saved;  /* index of a tensor with its rows */
    bool at_base;  /* the rows begin where the storage does, else where the tensor does */
    bool is_exact; /* what is restored has the tensor's sizes, strides and dtype, else bytes */
    int64_t num_bytes;
    int32_t dtype;
    std::vector<int64_t> sizes, strides;
};

struct Plan {
    int64_t id;
    bool is_cuda; /* where its tensors are */
    int32_t index;
    std::vector<Slot> slots;
    pst_group *source, *packed; /* never destroyed */
};

struct Plans {
    std::mutex lock;
    std::unordered_map<std::string, const Plan *> by_geometry;
    std::vector<const Plan *> by_id; /* id - 1 */
};

Plans &plans()
{
    static Plans *const all = new Plans;
    return *all;
}

struct Geometry {
    std::string key;
    std::vector<char *> bases; /* of the storages */
};

void append(std::string *key, const void *bytes, size_t num_bytes)
{
    key->append(static_cast<const char *>(bytes), num_bytes);
}

#define PAGESTASH_OK(call)            \
    if ((call) != AOTI_TORCH_SUCCESS) \
    return false

/* False for a tensor that is not strided. */
bool describe(AtenTensorHandle handle, Geometry *all)
{
    int32_t layout = 0, dtype = 0, device = 0, index = 0;
    int64_t dim = 0, offset = 0, storage_bytes = 0, *sizes = nullptr, *strides = nullptr;
    void *data = nullptr;
    PAGESTASH_OK(aoti_torch_get_layout(handle, &layout));
    if (layout != aoti_torch_layout_strided())
        return false;
    PAGESTASH_OK(aoti_torch_get_dtype(handle, &dtype));
    PAGESTASH_OK(aoti_torch_get_device_type(handle, &device));
    PAGESTASH_OK(aoti_torch_get_device_index(handle, &index));
    PAGESTASH_OK(aoti_torch_get_dim(handle, &dim));
    PAGESTASH_OK(aoti_torch_get_sizes(handle, &sizes));
    PAGESTASH_OK(aoti_torch_get_strides(handle, &strides));
    PAGESTASH_OK(aoti_torch_get_storage_offset(handle, &offset));
    PAGESTASH_OK(aoti_torch_get_storage_size(handle, &storage_bytes));
    PAGESTASH_OK(aoti_torch_get_data_ptr(handle, &data));
    char *const base = data && storage_bytes
                           ? static_cast<char *>(data) -
                                 offset * static_cast<int64_t>(aoti_torch_dtype_element_size(dtype))
                           : nullptr;
    const auto first =
        base ? std::find(all->bases.begin(), all->bases.end(), base) : all->bases.end();
    const int64_t numbers[] = {
        dtype, device, index, dim, offset, storage_bytes, first - all->bases.begin()};
    all->bases.push_back(base);
    append(&all->key, numbers, sizeof(numbers));
    append(&all->key, sizes, static_cast<size_t>(dim) * sizeof(*sizes));
    append(&all->key, strides, static_cast<size_t>(dim) * sizeof(*strides));
    return true;
}

bool describe_all(const std::vector<AtenTensorHandle> &saved, const Tensor &counts, int64_t layer,
                  Geometry *all)
{
    int32_t dtype = 0;
    PAGESTASH_OK(aoti_torch_get_dtype(counts.get(), &dtype));
    const int64_t head[] = {layer, dtype, counts.numel(), static_cast<int64_t>(saved.size())};
    all->key.reserve(sizeof(head) + saved.size() * 128);
    all->bases.reserve(saved.size());
    append(&all->key, head, sizeof(head));
    for (const AtenTensorHandle tensor : saved)
        if (!describe(tensor, all))
            return false;
    return true;
}

pst_group *make_group(const std::vector<int64_t> &places, bool is_packed,
                      const pst_row_space &space)
{
    std::vector<pst_tensor> tensors(places.size() / 4, pst_tensor{});
    for (size_t i = 0; i < tensors.size(); i++) {
        tensors[i].row_bytes = static_cast<uint64_t>(places[4 * i]);
        tensors[i].row_stride = is_packed ? 0 : static_cast<uint64_t>(places[4 * i + 1]);
        tensors[i].num = static_cast<uint32_t>(places[4 * i + 2]);
        tensors[i].den = static_cast<uint32_t>(places[4 * i + 3]);
    }
    return create_group(space, tensors);
}

pst_row_space space_of(const Tensor &counts, int64_t capacity, int64_t segments)
{
    pst_row_space space = {};
    space.kind = segments ? PST_ROWS_SEGMENTS : counts.numel() > 1 ? PST_ROWS_SUM : PST_ROWS_PREFIX;
    space.count_type = counts.element_size() == 8 ? PST_COUNT_INT64 : PST_COUNT_INT32;
    space.capacity = capacity;
    space.num_segments = space.kind == PST_ROWS_PREFIX ? 0 : static_cast<uint32_t>(counts.numel());
    return space;
}

/* From the first element to the last. */
int64_t bytes_of(const Slot &slot)
{
    int64_t elements = 1;
    for (size_t d = 0; d < slot.sizes.size(); d++)
        elements += (slot.sizes[d] - 1) * slot.strides[d];
    return elements * static_cast<int64_t>(aoti_torch_dtype_element_size(slot.dtype));
}

std::vector<Slot> slots_of(const std::vector<Tensor> &saved, const std::vector<int64_t> &numbers,
                           const std::vector<int64_t> &strides)
{
    std::vector<Slot> slots;
    size_t used = 0;
    for (size_t i = 0; i + 3 < numbers.size(); i += 4) {
        const size_t index = static_cast<size_t>(numbers[i]);
        if (index >= saved.size())
            fail("pagestash._layer_plan: no saved tensor ", index);
        const Tensor &tensor = saved[index];
        Slot slot = {index, numbers[i + 1] != 0, numbers[i + 2] != 0, numbers[i + 3], 0, {}, {}};
        if (aoti_torch_get_dtype(tensor.get(), &slot.dtype) != AOTI_TORCH_SUCCESS)
            fail("pagestash._layer_plan: a tensor without a dtype");
        if (slot.is_exact) {
            const size_t dim = static_cast<size_t>(tensor.dim());
            if (used + dim > strides.size())
                fail("pagestash._layer_plan: ", strides.size(), " strides are too few");
            for (size_t d = 0; d < dim; d++)
                slot.sizes.push_back(tensor.size(static_cast<int64_t>(d)));
            slot.strides.assign(strides.begin() + used, strides.begin() + used + dim);
            used += dim;
            if (bytes_of(slot) != slot.num_bytes)
                fail("pagestash._layer_plan: saved tensor ", index, " has ", bytes_of(slot),
                     " bytes with these strides, and not ", slot.num_bytes);
        } else {
            slot.dtype = aoti_torch_dtype_uint8();
            slot.sizes = {slot.num_bytes};
            slot.strides = {1};
        }
        slots.push_back(std::move(slot));
    }
    return slots;
}

/* Throws where rows lie outside of the storage that they are read from, or of what is restored, or where
 * the tensors are on several devices. */
void check_plan(const Plan &plan, const std::vector<Tensor> &saved,
                const std::vector<int64_t> &places, int64_t capacity, int64_t segments)
{
    for (size_t i = 0; i < plan.slots.size(); i++) {
        const Slot &slot = plan.slots[i];
        const Tensor &tensor = saved[slot.saved];
        if (tensor.is_cuda() != plan.is_cuda ||
            (plan.is_cuda && tensor.get_device_index() != plan.index))
            fail("pagestash._layer_plan: tensors on several devices");
        const int64_t row_bytes = places[4 * i], stride = std::max(places[4 * i + 1], row_bytes),
                      num = places[4 * i + 2], den = places[4 * i + 3];
        int64_t storage_bytes = 0, offset = 0;
        if (aoti_torch_get_storage_size(tensor.get(), &storage_bytes) != AOTI_TORCH_SUCCESS ||
            aoti_torch_get_storage_offset(tensor.get(), &offset) != AOTI_TORCH_SUCCESS)
            fail("pagestash._layer_plan: a tensor without a storage");
        const int64_t begin =
            slot.at_base ? 0 : offset * static_cast<int64_t>(tensor.element_size());
        const double rows = std::ceil(static_cast<double>(capacity) * static_cast<double>(num) /
                                      static_cast<double>(den)) *
                            static_cast<double>(std::max<int64_t>(segments, 1));
        const double read = static_cast<double>(begin) + (rows - 1) * static_cast<double>(stride) +
                            static_cast<double>(row_bytes);
        if (row_bytes < 1 || num < 1 || den < num || rows < 1 ||
            read > static_cast<double>(storage_bytes) ||
            rows * static_cast<double>(row_bytes) > static_cast<double>(slot.num_bytes))
            fail("pagestash._layer_plan: ", rows, " rows of ", row_bytes, " bytes, stride ", stride,
                 ", in ", storage_bytes, " bytes and restored to ", slot.num_bytes);
    }
}

std::vector<AtenTensorHandle> handles_of(const std::vector<Tensor> &tensors)
{
    std::vector<AtenTensorHandle> handles;
    for (const Tensor &tensor : tensors)
        handles.push_back(tensor.get());
    return handles;
}

/* slots: of each the index of a saved tensor, whether its rows begin at its storage's begin, whether what
 * is restored is that tensor, bytes. places: bytes and stride of a row, ratio. strides: of those that are
 * that tensor, in what is restored. Its number; 0: too many. */
int64_t layer_plan(std::vector<Tensor> saved, Tensor counts, int64_t layer,
                   std::vector<int64_t> slots, std::vector<int64_t> places,
                   std::vector<int64_t> strides, int64_t capacity, int64_t segments)
{
    Geometry geometry;
    if (slots.empty() || slots.size() != places.size() ||
        slots.size() > 4 * size_t{PST_MAX_TENSORS} ||
        !describe_all(handles_of(saved), counts, layer, &geometry))
        return 0;
    auto plan = std::make_unique<Plan>();
    plan->slots = slots_of(saved, slots, strides);
    plan->is_cuda = saved[plan->slots[0].saved].is_cuda();
    plan->index = saved[plan->slots[0].saved].get_device_index();
    check_plan(*plan, saved, places, capacity, segments);
    const pst_row_space space = space_of(counts, capacity, segments);
    Plans &all = plans();
    std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.by_geometry.find(geometry.key);
    if (found != all.by_geometry.end())
        return found->second->id;
    if (all.by_id.size() >= MAX_PLANS)
        return 0;
    plan->source = make_group(places, false, space);
    plan->packed = make_group(places, true, space);
    plan->id = static_cast<int64_t>(all.by_id.size()) + 1;
    all.by_id.push_back(plan.get());
    return all.by_geometry.emplace(std::move(geometry.key), plan.release()).first->second->id;
}

/* (ticket, plan); (0, 0): no plan for this geometry, and nothing was done. */
std::tuple<int64_t, int64_t> layer_stash(const std::vector<AtenTensorHandle> &saved,
                                         const Tensor &counts, int64_t address, int64_t layer,
                                         int64_t num_sms)
{
    Geometry geometry;
    const Plan *plan = nullptr;
    if (describe_all(saved, counts, layer, &geometry)) {
        Plans &all = plans();
        std::lock_guard<std::mutex> guard(all.lock);
        const auto found = all.by_geometry.find(geometry.key);
        plan = found == all.by_geometry.end() ? nullptr : found->second;
    }
    if (!plan)
        return {0, 0};
    void *bases[PST_MAX_TENSORS];
    for (size_t i = 0; i < plan->slots.size(); i++) {
        const Slot &slot = plan->slots[i];
        bases[i] = geometry.bases[slot.saved];
        if (!slot.at_base &&
            aoti_torch_get_data_ptr(saved[slot.saved], &bases[i]) != AOTI_TORCH_SUCCESS)
            fail("pagestash._layer_stash: a tensor without memory");
    }
    const void *const read = counts.data_ptr();
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    buffers.counts = &read;
    const InUse used(pool_of(address, "pagestash"));
    if (used.pool->is_cuda != plan->is_cuda || (plan->is_cuda && used.pool->index != plan->index))
        return {0, 0}; /* Python says what is on another device */
    const pst_stream stream = stream_of(*used.pool);
    pst_ticket ticket;
    check(pst.ticket_take(used.pool->handle, stream, &ticket), "pst_ticket_take");
    stash_or_give(ticket, plan->source, buffers, static_cast<int>(num_sms), stream);
    return {static_cast<int64_t>(ticket.id), plan->id};
}

void allocate(const Plan &plan, const Pool &pool, Handles *out, void **bases)
{
    const int32_t device =
        pool.is_cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
    out->all.reserve(plan.slots.size());
    for (size_t i = 0; i < plan.slots.size(); i++) {
        const Slot &slot = plan.slots[i];
        AtenTensorHandle handle = nullptr;
        if (aoti_torch_empty_strided(static_cast<int64_t>(slot.sizes.size()), slot.sizes.data(),
                                     slot.strides.data(), slot.dtype, device,
                                     pool.is_cuda ? pool.index : 0, &handle) != AOTI_TORCH_SUCCESS)
            fail("pagestash: torch cannot give ", slot.num_bytes, " bytes to restore into");
        out->all.push_back(handle);
        if (aoti_torch_get_data_ptr(handle, &bases[i]) != AOTI_TORCH_SUCCESS)
            fail("pagestash._layer_restore: a tensor without memory");
    }
}

/* The rows of each slot, in new tensors. Without keep the ticket is given back. */
void layer_restore(int64_t ticket, int64_t id, int64_t address, int64_t num_sms, bool keep,
                   Handles *out)
{
    const Plan *plan = nullptr;
    {
        Plans &all = plans();
        std::lock_guard<std::mutex> guard(all.lock);
        if (id < 1 || static_cast<size_t>(id) > all.by_id.size())
            fail("pagestash._layer_restore: no plan ", id);
        plan = all.by_id[static_cast<size_t>(id) - 1];
    }
    const auto pool = pool_of(address, "pagestash");
    void *bases[PST_MAX_TENSORS];
    allocate(*plan, *pool, out, bases);
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = bases;
    const InUse used(pool);
    const pst_stream stream = stream_of(*pool);
    const pst_ticket held = {static_cast<uint64_t>(ticket)};
    restore_rows_of(held, plan->packed, buffers, static_cast<int>(num_sms), keep, stream);
    if (!keep)
        check(pst.ticket_give(held, stream), "pst_ticket_give");
}

/* Arguments and answers are those of the schemas in ops.py. */
void boxed_layer_stash(StableIValue *stack, uint64_t num_arguments, uint64_t num_answers)
{
    using torch::stable::detail::from, torch::stable::detail::to;
    if (num_arguments != 5 || num_answers != 2)
        fail("pagestash._layer_stash: another schema");
    Handles saved;
    const Tensor counts(to<AtenTensorHandle>(stack[1]));
    saved.take(stack[0]);
    const auto [ticket, plan] = layer_stash(saved.all, counts, to<int64_t>(stack[2]),
                                            to<int64_t>(stack[3]), to<int64_t>(stack[4]));
    stack[0] = from(ticket);
    stack[1] = from(plan);
}

void boxed_layer_restore(StableIValue *stack, uint64_t num_arguments, uint64_t num_answers)
{
    using torch::stable::detail::to;
    if (num_arguments != 5 || num_answers != 1)
        fail("pagestash._layer_restore: another schema");
    Handles out;
    layer_restore(to<int64_t>(stack[0]), to<int64_t>(stack[1]), to<int64_t>(stack[2]),
                  to<int64_t>(stack[3]), to<bool>(stack[4]), &out);
    stack[0] = out.give();
}

} // namespace

} // namespace pagestash

STABLE_TORCH_LIBRARY_IMPL(pagestash, CompositeExplicitAutograd, m)
{
    m.impl("_layer_plan", TORCH_BOX(&pagestash::layer_plan));
    m.impl("_layer_stash", &pagestash::boxed_layer_stash);
    m.impl("_layer_restore", &pagestash::boxed_layer_restore);
}
