/* What is enqueued, and where: see launch.h. */
#include "launch.h"

#include <dlfcn.h>

namespace pagestash
{

Optional optional_of_torch;

namespace
{

void *find_loaded(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    return handle ? dlsym(handle, symbol) : nullptr;
}

} // namespace

void bind_torch()
{
    optional_of_torch.current_cuda_stream =
        reinterpret_cast<decltype(Optional::current_cuda_stream)>(
            find_loaded("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"));
    optional_of_torch.from_blob = reinterpret_cast<decltype(Optional::from_blob)>(
        find_loaded("libtorch_cpu.so", "torch_from_blob"));
}

pst_stream stream_of(const Pool &pool)
{
    if (!pool.is_cuda)
        return nullptr;
    void *stream = nullptr;
    if (!optional_of_torch.current_cuda_stream ||
        optional_of_torch.current_cuda_stream(pool.index, &stream) != AOTI_TORCH_SUCCESS)
        fail("pagestash: this torch cannot say which CUDA stream is current");
    return static_cast<pst_stream>(stream);
}

void stash_or_give(pst_ticket ticket, const pst_group *group, const pst_buffers &source,
                   int num_sms, pst_stream stream)
{
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    options.launch.num_sms = num_sms;
    options.launch.priority = PST_PRIORITY_LOW;
    const pst_status status = pst.ticket_stash(ticket, group, &source, &options, stream);
    if (status == PST_OK)
        return;
    const std::string text = pst.last_message();
    pst.ticket_give(ticket, stream);
    fail("pst_ticket_stash: ", pst.status_name(status), ": ", text);
}

void restore_rows_of(pst_ticket ticket, const pst_group *group, const pst_buffers &destination,
                     int num_sms, bool keep, pst_stream stream)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    options.launch.num_sms = num_sms;
    options.launch.priority = PST_PRIORITY_HIGH;
    options.pages = keep ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    options.tail = PST_TAIL_ZERO_ALL;
    options.failed = PST_FAILED_ZERO;
    check(pst.ticket_restore(ticket, group, &destination, &options, stream), "pst_ticket_restore");
}

} // namespace pagestash
