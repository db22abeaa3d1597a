/* Memory that can grow in place: addresses are reserved once, memory is put behind a prefix of
 * them. Here for the host's memory; device_cuda_span.c has the GPU's. */
#include "host/device/device.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MPOL_PREFERRED 1 /* linux/mempolicy.h; libnuma is not asked for */

/* ---- how much there is ---- */

/* The number in a file of one line; UINT64_MAX where there is none ("max"). */
static uint64_t read_number(const char *path)
{
    unsigned long long value = 0;
    FILE *file = fopen(path, "re");
    const bool found = file && fscanf(file, "%llu", &value) == 1;
    if (file)
        fclose(file);
    return found ? value : UINT64_MAX;
}

static uint64_t system_available(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (kib == 0)
        return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return kib * 1024;
}

/* What is left below a limit; UINT64_MAX where there is none. */
static uint64_t left_of(uint64_t most, uint64_t used)
{
    if (most == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return most > used ? most - used : 0;
}

/* Addresses that this process may still have (`ulimit -v`). */
static uint64_t addresses_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    const uint64_t pages = read_number("/proc/self/statm");
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return left_of(limit.rlim_cur, pages == UINT64_MAX ? UINT64_MAX : pages * page_bytes);
}

uint64_t psti_available_bytes(void)
{
    const uint64_t left[] = {system_available(), addresses_left(),
                             left_of(read_number("/sys/fs/cgroup/memory.max"),
                                     read_number("/sys/fs/cgroup/memory.current"))};
    uint64_t least = left[0];
    for (size_t i = 1; i < sizeof(left) / sizeof(left[0]); i++)
        least = left[i] < least ? left[i] : least;
    return least;
}

/* Memory that is promised and not touched yet does not show, so some is left over. */
static pst_status check_available(uint64_t bytes)
{
    const uint64_t available = psti_available_bytes();
    const uint64_t most = available - available / 8;
    PSTI_CHECK(bytes <= most && !psti_allocation_fails(), PST_E_NOMEM,
               "%" PRIu64 " bytes of host pages wanted, at most %" PRIu64 " of %" PRIu64
               " available ones may be taken",
               bytes, most, available);
    return PST_OK;
}

/* ---- reserve, commit ---- */

pst_status psti_host_span_open(psti_span *span, uint64_t reserved)
{
    void *address = MAP_FAILED;
    /* room to begin and to end at a huge page */
    if (reserved <= SIZE_MAX / 2)
        reserved = (reserved + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    if (!psti_allocation_fails() && reserved <= SIZE_MAX - HUGE_BYTES)
        address = mmap(NULL, reserved + HUGE_BYTES, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PSTI_CHECK(address != MAP_FAILED, PST_E_NOMEM,
               "%" PRIu64 " bytes of addresses cannot be reserved", reserved);
    const uint64_t at = ((uint64_t)(uintptr_t)address + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    *span = (psti_span){.address = (unsigned char *)(uintptr_t)at,
                        .reserved = reserved,
                        .mapping = address,
                        .mapping_bytes = reserved + HUGE_BYTES};
    return PST_OK;
}

pst_status psti_host_span_commit(psti_span *span, uint64_t from, uint64_t bytes, int numa_node)
{
    unsigned char *at = span->address + from;
    PSTI_TRY(check_available(bytes));
    PSTI_CHECK(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0, PST_E_NOMEM,
               "%" PRIu64 " bytes of host pages wanted, %" PRIu64 " available: %s", bytes,
               psti_available_bytes(), strerror(errno));
    madvise(at, bytes, MADV_HUGEPAGE); /* not everywhere, and only a matter of speed, as below */
    if (numa_node >= 0 && numa_node < 64) {
        const unsigned long nodes = 1ul << numa_node;
        syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, &nodes, sizeof(nodes) * 8 + 1, 0);
    }
    return PST_OK;
}

void psti_host_span_decommit(psti_span *span, uint64_t from, uint64_t bytes)
{
    madvise(span->address + from, bytes, MADV_DONTNEED);
    mprotect(span->address + from, bytes, PROT_NONE);
}

void psti_host_span_close(psti_span *span)
{
    if (span->mapping)
        munmap(span->mapping, span->mapping_bytes);
    *span = (psti_span){0};
}

pst_status psti_host_span_resize(psti_span *span, uint64_t bytes)
{
    if (bytes > span->mapped)
        PSTI_TRY(psti_host_span_commit(span, span->mapped, bytes - span->mapped, -1));
    else if (bytes < span->mapped)
        psti_host_span_decommit(span, bytes, span->mapped - bytes);
    span->mapped = bytes;
    return PST_OK;
}
