/* The functions of libpagestash_torch.so, which torch.cuda.memory.CUDAPluggableAllocator loads: see
 * python/pagestash/allocator.py. What they do at first is said by the environment,
 * PAGESTASH_TORCH=off|record|plan, read at the first use of a device; pagestash_torch_switch says
 * something else later.
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
    size_t struct_size;                           /* in: sizeof, to be checked */
    uint64_t requests, planned, live, iterations; /* live: also from before a switch */
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

/* From here on the library does something else: mode "off", "record" (path: of the trace) or "plan"
 * (path: of the plan), as if the process began here, all devices together. Iterations are counted
 * from 0 again; a plan that begins with an iteration is followed from the next
 * pagestash_torch_iteration, and what is asked for before that has memory of its own.
 *
 * What lives from before stays where it is, is neither recorded nor planned, and is freed as ever;
 * the memory around it goes back to the device with the last of it, cached memory at once. Begun
 * graph pools go on. A trace that was being written is complete.
 *
 * pre: no other thread allocates or frees meanwhile; no capture is under way.
 * Answers a pst_status, with the reason as last_failure in the figures: INVALID (mode, phase, a plan
 * that cannot be read or a trace that cannot be written; more than 64 pools), NOMEM, DEVICE_NOMEM
 * (the plan's memory): then all is as before, but for the cache. */
PST_API int pagestash_torch_switch(const char *mode, const char *path);

/* What is recorded from here on, by any thread, is of this phase (a pst_trace_phase), layer and
 * micro-batch (PST_TRACE_NONE: none). Answers a pst_status: INVALID (phase). Where nothing is
 * recorded it does nothing. */
PST_API int pagestash_torch_label(int phase, uint32_t layer, uint32_t micro_batch);

/* Figures of a device since the last switch, all zero but for failures if it was not used yet. Answers a pst_status. */
PST_API int pagestash_torch_stats(int device, pagestash_torch_figures *figures);
PST_API const char *pagestash_torch_deviation_name(int deviation);

PST_END_DECLS

#endif
