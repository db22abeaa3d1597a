/* The table of a ptx device: as the host device's, but what it hands out is noted, and not clear. */
#include "tests/ptx/ptx_device.h"

#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/device/device.h"
#include "tests/ptx/ptx_kernels.h"

static const psti_device_ops *host_ops;

/* As a record that is live in the first epoch, where nothing makes it another one. */
static void fill(void *address, size_t bytes)
{
    uint32_t *words = address;
    for (size_t i = 0; i < bytes / sizeof(*words); i++)
        words[i] = 1;
}

static pst_status noted(pst_status status, void *const *address, size_t bytes)
{
    if (status == PST_OK)
        ptx_memory_set(*address, bytes);
    return status;
}

static pst_status ptx_alloc(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_TRY(host_ops->alloc(device, bytes, address_out));
    fill(*address_out, bytes);
    return noted(PST_OK, address_out, bytes);
}

static pst_status ptx_alloc_pinned(pst_device *device, size_t bytes, void **address_out)
{
    return noted(host_ops->alloc_pinned(device, bytes, address_out), address_out, bytes);
}

static pst_status ptx_free(pst_device *device, void *address)
{
    ptx_memory_set(address, 0);
    return host_ops->free(device, address);
}

static pst_status ptx_free_pinned(pst_device *device, void *address)
{
    ptx_memory_set(address, 0);
    return host_ops->free_pinned(device, address);
}

static pst_status ptx_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                                psti_span *span)
{
    PSTI_TRY(host_ops->span_open(device, tier, reserved, span));
    ptx_memory_set(span->address, span->mapped);
    return PST_OK;
}

static pst_status ptx_span_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    const pst_status status = host_ops->span_resize(device, span, bytes);
    ptx_memory_set(span->address, span->mapped);
    return status;
}

static void ptx_span_close(pst_device *device, psti_span *span)
{
    ptx_memory_set(span->address, 0);
    host_ops->span_close(device, span);
}

pst_status psti_ptx_device_open(const ptx_options *options, pst_device **device_out)
{
    static psti_device_ops ops; /* the same each time */
    const char *text = getenv("PSTI_PTX_ARCH");
    unsigned architecture = options ? options->architecture : 0;
    if (architecture == 0)
        architecture = text ? (unsigned)atoi(text) : 90;
    const psti_runners *runners = ptx_runners_of(architecture);
    PSTI_CHECK(runners, PST_E_NO_DEVICE, "no PTX for compute_%u", architecture);
    psti_ptx_configure(options);
    PSTI_TRY(psti_host_device_make("ptx", PTX_NUM_SMS, runners, device_out));
    host_ops = (*device_out)->ops;
    ops = *host_ops;
    ops.alloc = ptx_alloc;
    ops.alloc_pinned = ptx_alloc_pinned;
    ops.free = ptx_free;
    ops.free_pinned = ptx_free_pinned;
    ops.span_open = ptx_span_open;
    ops.span_resize = ptx_span_resize;
    ops.span_close = ptx_span_close;
    (*device_out)->ops = &ops;
    (*device_out)->info.backends =
        architecture < 90
            ? 1u << PST_BACKEND_LDG
            : 1u << PST_BACKEND_LDG | 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE;
    return PST_OK;
}
