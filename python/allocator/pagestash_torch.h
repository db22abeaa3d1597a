/* The functions of libpagestash_torch.so, which torch.cuda.memory.CUDAPluggableAllocator loads: see
 * python/pagestash/allocator.py. What they do is said by the environment, PAGESTASH_TORCH=off|record|plan,
 * once per process, at the first use of a device.
 *
 * Threads: any. Nothing here ends the process; failures go to the log (PAGESTASH_LOG=error) and
 * into the figures.
 */
#ifndef PAGESTASH_TORCH_H
#define PAGESTASH_TORCH_H

#include <pagestash/arena.h>
#include <sys/types.h>

enum { PAGESTASH_TORCH_MAX_DEVICES = 64 };

/* An id of torch's graph pools (std::pair<unsigned long long, unsigned long long>). */
typedef struct pagestash_torch_pool {
    uint64_t first, second;
} pagestash_torch_pool;

typedef struct pagestash_torch_figures {
    size_t struct_size; /* in: sizeof, to be checked */
    uint64_t requests, planned, live, iterations;
    uint64_t arena_bytes, planned_peak_bytes;
    uint64_t fallback_bytes, fallback_peak_bytes, taken_bytes, taken_peak_bytes;
    uint64_t failures; /* calls that failed, of all devices */
    uint64_t deviations[PST_NUM_DEVIATIONS];
    uint64_t base;
    char first_deviation[192];
    char last_failure[256];
} pagestash_torch_figures;

PST_BEGIN_DECLS

/* What CUDAPluggableAllocator calls. NULL when there is no memory; torch does not look at that. */
PST_API void *pagestash_torch_malloc(ssize_t size, int device, pst_stream stream);
PST_API void pagestash_torch_free(void *address, ssize_t size, int device, pst_stream stream);

/* What its C++ object can be given by address: set_init_fn, set_reset_fn (called by empty_cache),
 * set_memory_fraction_fn, set_record_stream_fn, set_begin_allocate_to_pool,
 * set_end_allocate_to_pool_fn, set_release_pool. Memory of a pool, that of a captured graph, is
 * neither recorded nor planned, and nobody else gets it before the pool is released. */
PST_API void pagestash_torch_init(int num_devices);
PST_API void pagestash_torch_reset(void);
PST_API void pagestash_torch_memory_fraction(double fraction, int device);
PST_API void pagestash_torch_record_stream(void *address, pst_stream stream);
/* Until the end every request of the device is of the pool; the filter, a std::function, is not
 * asked. */
PST_API void pagestash_torch_begin_pool(int device, pagestash_torch_pool pool, void *filter);
PST_API void pagestash_torch_end_pool(int device, pagestash_torch_pool pool);
PST_API void pagestash_torch_release_pool(int device, pagestash_torch_pool pool);

/* An iteration begins, on all devices. Answers a pst_status; what was recorded is in the file. */
PST_API int pagestash_torch_iteration(void);

/* Figures of a device, all zero but for failures if it was not used yet. Answers a pst_status. */
PST_API int pagestash_torch_stats(int device, pagestash_torch_figures *figures);
PST_API const char *pagestash_torch_deviation_name(int deviation);

PST_END_DECLS

#endif
