/* Arenas: a plan (plan_file.h) replayed by an allocator.
 *
 *   pst_arena_config config = PST_ARENA_CONFIG_INIT;
 *   pst_arena_create(device, plan, &config, &arena);
 *   pst_arena_iteration(arena);                            at the begin of every iteration
 *   pst_arena_malloc(arena, bytes, &address, stream);      the planned address
 *   pst_arena_free(arena, address, stream);
 *
 * A request that is what the plan expects next (size, stream) gets the planned address. One that is
 * not is a deviation: it is counted, the first one is kept in words, and it is served from a
 * fallback, ordinary allocations with a cache. A planned address is given only while nothing that
 * lives overlaps it, so a wrong plan or a program that strays costs memory and never data.
 *
 * After a deviation the plan is followed again: an extra request leaves the position where it is;
 * where requests are missing, or come in another order, the position is looked for among the
 * `lookahead` requests around it, with the last eight requests as evidence; and
 * pst_arena_iteration goes to the next mark of the plan, after the last one to the first. What
 * stands before the first mark is played once.
 *
 * Streams. A stream of the plan is bound to the program's where a request first is a planned one in
 * all but the stream. That a stream may reuse what another has freed, the plan knows from the waits
 * between them in its trace. This is believed until a request was found by looking around: then the
 * program may not have come to those waits, and addresses that streams share are not given out.
 * What is shared and freed later than planned, and what was used on a stream
 * (pst_arena_record_stream) that the plan has no `use` row for, is held back. All this until the
 * next pst_arena_iteration, which waits for the device if more than one stream was seen. Freed
 * fallback memory is reused on its own stream only.
 *
 * Threads: any number; one lock. It is held while the fallback's functions run, so these must not
 * call the arena.
 */
#ifndef PAGESTASH_ARENA_H
#define PAGESTASH_ARENA_H

#include <pagestash/device.h>
#include <pagestash/plan_file.h>

#define PST_ARENA_MAX_LOOKAHEAD 4096 /* pst_arena_config.lookahead at most */
#define PST_ARENA_MAX_STREAMS 64     /* of a plan, and bound; requests of others get the fallback */

typedef struct pst_arena pst_arena; /* made by pst_arena_create */

/* Where the memory behind planned addresses comes from. */
typedef enum pst_arena_mode {
    PST_ARENA_ALLOC = 0, /* one allocation of the device */
    PST_ARENA_MEMORY,    /* the caller's memory */
    PST_ARENA_RESERVE    /* addresses are reserved at once, memory is put behind them from the start
                          * up to the highest end given out so far, at the first request that needs
                          * it, and never taken away: a planned peak that is not reached costs
                          * nothing. Where there is no memory the fallback serves. */
} pst_arena_mode;

/* How an arena gets its memory, and how far it looks around. */
typedef struct pst_arena_config {
    size_t struct_size;
    pst_arena_mode mode; /* default: PST_ARENA_ALLOC */
    void *memory; /* mode MEMORY: aligned to `align`, at least as many bytes as the plan has */
    uint64_t memory_bytes; /* of memory */
    uint64_t align;     /* every offset of the plan is a multiple; sizes are compared rounded up to
                           * it. A power of two from 16 to 2 MiB; 0: 512 */
    uint32_t lookahead; /* planned requests before and after the expected one; 0: 64 */
    uint64_t cache_bytes; /* of freed fallback memory that is kept at most; 0: 1 GiB */
    bool streams_joined;  /* the caller has its streams wait for each other before an iteration:
                           * pst_arena_iteration does not wait for the device */
    /* What serves deviations; NULL: pst_device_alloc and pst_device_free, or without a device
     * nothing (DEVICE_NOMEM). Where work may still use what is freed, fallback_free waits for it,
     * as pst_device_free does. */
    pst_status (*fallback_alloc)(void *user, size_t bytes, void **address_out);
    /* given with fallback_alloc, and NULL with it */
    pst_status (*fallback_free)(void *user, void *address);
    void *user; /* first argument of both */
} pst_arena_config;

#define PST_ARENA_CONFIG_INIT PST_INIT(pst_arena_config)

/* Of one request each, but for MISSING. */
typedef enum pst_deviation {
    PST_DEVIATION_SIZE = 0, /* fallback: another size than expected */
    PST_DEVIATION_STREAM,   /* fallback: the expected size on another stream */
    PST_DEVIATION_EXTRA,    /* fallback: the plan had no more requests in this iteration */
    PST_DEVIATION_ORDER,    /* found by looking around, before or after the expected request */
    PST_DEVIATION_MISSING,  /* planned requests that had not come when the iteration ended */
    PST_DEVIATION_BLOCKED,  /* fallback: the planned bytes were still in use, or not safe to share
                             * between streams */
    PST_DEVIATION_NOMEM,    /* fallback: mode RESERVE found no memory for the planned bytes */
    PST_DEVIATION_LATE,     /* freed later than planned */
    PST_DEVIATION_EARLY,    /* freed earlier than planned, which does no harm */
    PST_DEVIATION_USE,      /* used on a stream that the plan knows nothing of */
    PST_NUM_DEVIATIONS      /* how many kinds there are */
} pst_deviation;

#define PST_MAX_DEVIATIONS 16 /* never changes */

/* Figures of an arena since it was made. */
typedef struct pst_arena_stats {
    void *base;            /* of the planned addresses; NULL: the plan has no tensor */
    uint64_t arena_bytes;  /* of the addresses from base on */
    uint64_t backed_bytes; /* of these, with memory behind them */
    uint64_t iterations;   /* calls of pst_arena_iteration */
    uint64_t requests;     /* mallocs, without those of 0 bytes and failed ones */
    uint64_t planned;      /* of these, served at a planned address */
    uint64_t live;         /* blocks, of either kind */
    uint64_t planned_bytes, planned_peak_bytes;   /* live at planned addresses, rounded up */
    uint64_t fallback_bytes, fallback_peak_bytes; /* live in the fallback, rounded up */
    uint64_t taken_bytes, taken_peak_bytes;       /* live or cached there */
    uint64_t fallback_allocs;                     /* calls of fallback_alloc */
    uint64_t deviations[PST_MAX_DEVIATIONS];      /* PST_NUM_DEVIATIONS are used */
    char first_deviation[192];                    /* "": none */
} pst_arena_stats;

PST_BEGIN_DECLS

/* device may be NULL in mode MEMORY. plan may be NULL: every request is served by the fallback, and
 * none is a deviation. Of the plan nothing is needed after the call; config is copied.
 * Fails: INVALID (a field; an offset that is not a multiple of align; more than 64 streams; memory
 * too small), NOMEM, DEVICE_NOMEM, UNSUPPORTED, CUDA. */
PST_API pst_status pst_arena_create(pst_device *device, const pst_plan_file *plan,
                                    const pst_arena_config *config, pst_arena **arena_out);

/* NULL is allowed. pre: work that uses its memory is done. Fails: BUSY while blocks live; what
 * fallback_free answered, after which the arena is gone all the same. */
PST_API pst_status pst_arena_destroy(pst_arena *arena);

/* 0 bytes give NULL and are no request. The memory's content is undefined. It may still be in use
 * by work that was enqueued on `stream`.
 * Fails: NOMEM, DEVICE_NOMEM (after everything cached was given back) and what else fallback_alloc
 * answers. */
PST_API pst_status pst_arena_malloc(pst_arena *arena, size_t bytes, void **address_out,
                                    pst_stream stream);

/* NULL is allowed.
 * pre: `stream` is that of the malloc; work on others has been recorded.
 * Fails: INVALID (an address that is not live here: never given out, or freed before); what
 * fallback_free answered, after which the block is gone all the same. */
PST_API pst_status pst_arena_free(pst_arena *arena, void *address, pst_stream stream);

/* The live block is also used on `stream`, by work enqueued before its free. Fails: INVALID. */
PST_API pst_status pst_arena_record_stream(pst_arena *arena, void *address, pst_stream stream);

/* An iteration begins. Live blocks stay. Waits for the device if there is one, more than one stream
 * was seen, and streams_joined is not set; without a device the caller must have seen to that.
 * Fails: what pst_device_synchronize answers; then the position is the new one all the same, and
 * what was held stays so. */
PST_API pst_status pst_arena_iteration(pst_arena *arena);

/* Gives cached fallback memory back. Fails: what fallback_free answered first. */
PST_API pst_status pst_arena_trim(pst_arena *arena);

/* Whether `address` is that of a live block. */
PST_API bool pst_arena_owns(pst_arena *arena, const void *address);

/* The figures up to now. Fails: INVALID. */
PST_API pst_status pst_arena_get_stats_sized(pst_arena *arena, pst_arena_stats *stats_out,
                                             size_t stats_bytes);
static inline pst_status pst_arena_get_stats(pst_arena *arena, pst_arena_stats *stats_out)
{
    return pst_arena_get_stats_sized(arena, stats_out, sizeof(pst_arena_stats));
}

/* Static text: "size", "stream", ... */
PST_API const char *pst_deviation_name(pst_deviation deviation);

PST_END_DECLS

#endif
