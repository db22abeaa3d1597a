/* The device "clock": the machinery of host, with operations that the clock times. What it hands out is at the same
 * addresses in each run, since what a kernel does may follow from them (copy_edges of kernels/cuda/shift.cuh). */
#include "tests/ptx/clock_device.h"

#include <string.h>
#include <sys/mman.h>

#include "host/device/device.h"
#include "host/linear/linear.h"
#include "host/stash/stash.h"

#define FIRST_ADDRESS 0x200000000000u /* where Linux puts nothing by itself */
#define ALIGNMENT (2u << 20)          /* of what the host device hands out as a span */
#define HEADER 4096u                  /* in front of each allocation: the bytes that are mapped */

static psti_device_ops ops, host_ops; /* the same each time */
static uint64_t next_address, num_mapped;

/* One scene is after the other: the addresses begin anew where nothing is left of the one before. */
static void *take_addresses(uint64_t bytes)
{
    if (num_mapped++ == 0)
        next_address = FIRST_ADDRESS;
    void *at = (void *)(uintptr_t)next_address;
    next_address += (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    return at;
}

static pst_status clock_alloc(pst_device *device, size_t bytes, void **address_out)
{
    (void)device;
    const size_t mapped = bytes + HEADER;
    void *wanted = take_addresses(mapped);
    unsigned char *at = mmap(wanted, mapped, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    PSTI_CHECK(at == wanted, PST_E_DEVICE_NOMEM, "%zu bytes at %p are not to be had", mapped,
               wanted);
    memcpy(at, &mapped, sizeof(mapped));
    *address_out = at + HEADER;
    return PST_OK;
}

static pst_status clock_free(pst_device *device, void *address)
{
    (void)device;
    if (!address)
        return PST_OK;
    unsigned char *at = (unsigned char *)address - HEADER;
    size_t mapped;
    memcpy(&mapped, at, sizeof(mapped));
    munmap(at, mapped);
    num_mapped--;
    return PST_OK;
}

static pst_status clock_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                                  psti_span *span)
{
    PSTI_TRY(host_ops.span_open(device, tier, reserved, span));
    void *wanted = take_addresses(span->mapping_bytes);
    void *at = mremap(span->mapping, span->mapping_bytes, span->mapping_bytes,
                      MREMAP_MAYMOVE | MREMAP_FIXED, wanted);
    PSTI_CHECK(at == wanted, PST_E_NOMEM, "%llu bytes at %p are not to be had",
               (unsigned long long)span->mapping_bytes, wanted);
    span->mapping = at;
    span->address = at;
    return PST_OK;
}

static void clock_span_close(pst_device *device, psti_span *span)
{
    num_mapped -= span->mapping != NULL;
    host_ops.span_close(device, span);
}

pst_status psti_clock_device_open(int num_sms, bool has_bulk, const psti_runners *runners,
                                  pst_device **device_out)
{
    PSTI_TRY(psti_host_device_make("clock", num_sms, runners, device_out));
    host_ops = ops = *(*device_out)->ops;
    ops.alloc = ops.alloc_pinned = clock_alloc;
    ops.free = ops.free_pinned = clock_free;
    ops.span_open = clock_span_open;
    ops.span_close = clock_span_close;
    (*device_out)->ops = &ops;
    (*device_out)->info.backends = 1u << PST_BACKEND_LDG;
    if (has_bulk)
        (*device_out)->info.backends |= 1u << PST_BACKEND_BULK | 1u << PST_BACKEND_SQUEEZE;
    return PST_OK;
}

const char *psti_clock_picked(const pst_device *device, const psti_move_args *args)
{
    const psti_launch launch = {.backend = PST_BACKEND_AUTO};
    return psti_backend_name((pst_backend)psti_pick_backend(device, &launch, args));
}

pst_status psti_clock_product(pst_device *device, const pst_product *product, pst_stream stream)
{
    return psti_product_enqueue_counted(device, product, stream);
}

pst_status psti_clock_expect(pst_pool *pool, const uint64_t *word, uint64_t expected,
                             pst_stream stream)
{
    return psti_pool_expect(pool, word, expected, stream);
}
