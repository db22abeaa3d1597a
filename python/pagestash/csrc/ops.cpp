/* torch.ops.pagestash.*: the kernels, by torch's stable ABI, so that one binary serves torch 2.10 on.
 *
 * Schemas, fake kernels and autograd formulas are Python's (pagestash/torch/ops.py): the same for these
 * kernels and for those in Python. No symbol of torch is used but its C shim. */
#include "forms.h"
#include "launch.h"

#include <torch/csrc/stable/library.h>

#include <dlfcn.h>

#include <optional>

namespace pagestash
{

using torch::stable::Tensor;

namespace
{

/* The id lies in the tensor; the deleter has its own, for a compiler may reuse the tensor's bytes. */
struct Cell {
    int64_t shown;
    uint64_t id;
};

void cell_died(void *, void *context)
{
    Cell *const cell = static_cast<Cell *>(context);
    token_died(cell->id);
    delete cell;
}

Tensor token_tensor(uint64_t id)
{
    Cell *const cell = new Cell{static_cast<int64_t>(id), id};
    const int64_t size = 1, stride = 1;
    AtenTensorHandle handle = nullptr;
    if (optional_of_torch.from_blob(&cell->shown, 1, &size, &stride, 0, aoti_torch_dtype_int64(),
                                    aoti_torch_device_type_cpu(), -1, &handle,
                                    aoti_torch_layout_strided(), nullptr, 0, cell_died,
                                    cell) != AOTI_TORCH_SUCCESS) {
        delete cell;
        token_died(id);
        fail("pagestash.stash: torch makes no tensor for the token");
    }
    return Tensor(handle);
}

uint64_t id_of(const Tensor &token, const char *what)
{
    int32_t dtype = 0;
    if (!token.is_cpu() || token.numel() != 1 ||
        aoti_torch_get_dtype(token.get(), &dtype) != AOTI_TORCH_SUCCESS ||
        dtype != aoti_torch_dtype_int64())
        fail(what, ": the token must be what stash gave: one int64 on the CPU");
    return static_cast<uint64_t>(*static_cast<const int64_t *>(token.data_ptr()));
}

int sms_of(int64_t num_sms, const char *what)
{
    if (num_sms < 0 || num_sms > 1 << 20)
        fail(what, ": num_sms ", num_sms, " must be 0 (all) or more");
    return static_cast<int>(num_sms);
}

uint64_t stash_rows(const std::vector<Tensor> &tensors, const Tensor &counts, int64_t pool_address,
                    int64_t capacity, int64_t segments, int64_t num_sms)
{
    static const char what[] = "pagestash.stash";
    const InUse used(pool_of(pool_address, what));
    Pool &pool = *used.pool;
    const Buffers buffers(pool, tensors, &counts, capacity, segments, what, "tensor");
    const int sms = sms_of(num_sms, what);
    const pst_stream stream = stream_of(pool);
    if (pool.num_graves)
        drain(pool, stream, false);
    auto token = std::make_shared<Token>();
    token->pool = used.pool;
    token->shape = {capacity, segments, buffers.row_bytes};
    token->stream = stream;
    check(pst.ticket_take(pool.handle, stream, &token->ticket), "pst_ticket_take");
    stash_or_give(token->ticket, buffers.group.get(), buffers.raw, sms, stream);
    return token_add(std::move(token))->ticket.id;
}

Tensor stash(std::vector<Tensor> tensors, Tensor counts, int64_t pool, int64_t capacity,
             int64_t segments, int64_t num_sms, int64_t)
{
    if (!optional_of_torch.from_blob)
        fail("pagestash.stash: a tensor is not a strided tensor of the CPU or of CUDA");
    return token_tensor(stash_rows(tensors, counts, pool, capacity, segments, num_sms));
}

/* For a cell of Python's, which says pagestash_ops_died when it dies. */
void stash_into(Tensor cell, std::vector<Tensor> tensors, Tensor counts, int64_t pool,
                int64_t capacity, int64_t segments, int64_t num_sms)
{
    id_of(cell, "pagestash.stash");
    const uint64_t id = stash_rows(tensors, counts, pool, capacity, segments, num_sms);
    *static_cast<int64_t *>(cell.data_ptr()) = static_cast<int64_t>(id);
}

void restore_rows(const std::shared_ptr<Token> &token, const std::vector<Tensor> &destinations,
                  int64_t num_sms, bool keep)
{
    static const char what[] = "pagestash.restore";
    const Pool &pool = *token->pool;
    const Shape &shape = token->shape;
    if (destinations.size() != shape.row_bytes.size())
        fail(what, ": ", destinations.size(), " destinations for a stash of ",
             shape.row_bytes.size(), " tensors");
    const Buffers buffers(pool, destinations, nullptr, shape.capacity, shape.segments, what,
                          "destination");
    for (size_t i = 0; i < shape.row_bytes.size(); i++)
        if (buffers.row_bytes[i] != shape.row_bytes[i])
            fail(what, ": destination ", i, " has ", buffers.row_bytes[i],
                 " bytes in a row, and what was stashed ", shape.row_bytes[i]);
    restore_rows_of(token->ticket, buffers.group.get(), buffers.raw, sms_of(num_sms, what), keep,
                    stream_of(pool));
}

void restore(Tensor token_tensor, std::vector<Tensor> destinations, int64_t pool_address,
             int64_t num_sms, bool keep, std::optional<Tensor>)
{
    static const char what[] = "pagestash.restore";
    const InUse used(pool_of(pool_address, what));
    const pst_stream stream = stream_of(*used.pool);
    const auto token = token_claim(id_of(token_tensor, what), used.pool.get(), what);
    try {
        restore_rows(token, destinations, num_sms, keep);
    } catch (...) {
        token_keep(*token, token->stream);
        throw;
    }
    if (keep)
        token_keep(*token, stream);
    else
        token_give(token, stream);
}

void release(Tensor token_tensor)
{
    static const char what[] = "pagestash.release";
    const auto token = token_claim(id_of(token_tensor, what), nullptr, what);
    pst_stream stream = nullptr;
    std::optional<InUse> used;
    try {
        used.emplace(token->pool);
        stream = stream_of(*token->pool);
    } catch (...) {
        token_keep(*token, token->stream);
        throw;
    }
    token_give(token, stream);
}

} // namespace

} // namespace pagestash

STABLE_TORCH_LIBRARY_IMPL(pagestash, CompositeExplicitAutograd, m)
{
    m.impl("stash", TORCH_BOX(&pagestash::stash));
    m.impl("_stash_into", TORCH_BOX(&pagestash::stash_into));
    m.impl("restore", TORCH_BOX(&pagestash::restore));
    m.impl("release", TORCH_BOX(&pagestash::release));
}

/* For Python, by ctypes. */
#define PAGESTASH_EXPORT extern "C" __attribute__((visibility("default")))

/* library: the dlopen handle of libpagestash. NULL, or the name of a function that it lacks. */
PAGESTASH_EXPORT const char *pagestash_ops_bind(void *library)
{
    using namespace pagestash;
#define PAGESTASH_USED_BIND(name)                                                  \
    pst.name = reinterpret_cast<decltype(pst.name)>(dlsym(library, "pst_" #name)); \
    if (!pst.name)                                                                 \
        return "pst_" #name;
    PAGESTASH_USED_LIST(PAGESTASH_USED_BIND)
#undef PAGESTASH_USED_BIND
    bind_torch();
    return nullptr;
}

/* Goes up with what Python calls here. */
PAGESTASH_EXPORT int pagestash_ops_interface(void)
{
    return 1;
}

/* Whether tokens have a deleter; else Python makes them, for stash_into. */
PAGESTASH_EXPORT int pagestash_ops_makes_tokens(void)
{
    return pagestash::optional_of_torch.from_blob != nullptr;
}

PAGESTASH_EXPORT void pagestash_ops_opened(int64_t pool, int is_cuda, int32_t index, int ordered)
{
    pagestash::pool_opened(pool, is_cuda != 0, index, ordered != 0);
}

/* How many tickets have to wait still; -1: no such pool. */
PAGESTASH_EXPORT int64_t pagestash_ops_drain(int64_t address, void *stream)
{
    try {
        const pagestash::InUse used(pagestash::pool_of(address, "pagestash.drain"));
        return static_cast<int64_t>(
            pagestash::drain(*used.pool, static_cast<pst_stream>(stream), true));
    } catch (const std::exception &) {
        return -1;
    }
}

/* Gives back what can be given on the default stream, then refuses new users: before the pool is destroyed. */
PAGESTASH_EXPORT void pagestash_ops_closing(int64_t pool)
{
    try {
        pagestash_ops_drain(pool, nullptr);
        pagestash::pool_closing(pool);
    } catch (const std::exception &) {
        /* never opened here */
    }
}

PAGESTASH_EXPORT void pagestash_ops_closed(int64_t pool, int is_gone)
{
    try {
        pagestash::pool_closed(pool, is_gone != 0);
    } catch (const std::exception &) {
        /* never opened here */
    }
}

PAGESTASH_EXPORT void pagestash_ops_died(uint64_t id)
{
    pagestash::token_died(id);
}
