/* Scratch: named buffers that are used for a moment and used again, at addresses that never
 * move.
 *
 *   pst_scratch_create(device, &config, &scratch);
 *   pst_scratch_reserve(scratch, "allgather", bytes);             sizes it ahead, before a capture
 *   pst_scratch_scope_begin(scratch, "layer 3, forward");
 *   pst_scratch_lease(scratch, "allgather", bytes, "column linear", stream, &lease);
 *   ... work of `stream` that uses lease.address ...
 *   pst_scratch_release(scratch, &lease, "column linear", stream);
 *   pst_scratch_scope_end(scratch);
 *
 * A buffer has one user at a time. Who keeps a recycled buffer for the backward reads in the end
 * what another layer has put there; here that is an error: a second lease of a name that is
 * leased, and a lease that is alive at the end of its scope, are refused with both places named.
 *
 * Addresses are reserved at the first lease or reserve of a name, memory is mapped behind them
 * as it is asked for, and stays until trim or destroy. So a graph's addresses stay right when a
 * buffer grows. A buffer cannot grow while the stream is being captured: reserve what a capture
 * will lease.
 *
 * Order. A lease and its release name a stream; the lease is used by work between the two on
 * that stream, or on others joined to it. Where the next lease is on another stream, the library
 * has that stream wait for the release; also between what is captured and what is not, by events
 * that are nodes of the graph. Launches of graphs that lease the same name belong in one stream,
 * or are ordered by the program.
 *
 * What is leased in a capture is released in it, what is leased outside is released outside: else
 * no event stands for the work between the two, and the release is refused with both places named.
 *
 * With PAGESTASH_CHECK=1 what is released is filled with bytes 0xff, NaN in each of bf16, fp16,
 * fp32.
 *
 * Threads: a scratch by one at a time. Ranks that are threads have a scratch each.
 */
#ifndef PAGESTASH_SCRATCH_H
#define PAGESTASH_SCRATCH_H

#include <pagestash/device.h>

#define PST_SCRATCH_MAX_NAMES 64      /* of one scratch */
#define PST_SCRATCH_MAX_NAME_BYTES 64 /* of a name or place, with its end */

typedef struct pst_scratch pst_scratch; /* made by pst_scratch_create */

/* How far a buffer can grow. */
typedef struct pst_scratch_config {
    size_t struct_size;
    uint64_t
        reserve_bytes; /* addresses for each name, the most it can grow to; 0: twice the memory of
                             * the device */
} pst_scratch_config;

#define PST_SCRATCH_CONFIG_INIT PST_INIT(pst_scratch_config)

/* A leased buffer. Frozen. */
typedef struct pst_lease {
    void *address;  /* aligned to 256 */
    uint64_t bytes; /* as asked for */
    uint64_t id;    /* of this lease, never used twice; 0: none */
} pst_lease;

/* What a scratch holds now, and held at most. */
typedef struct pst_scratch_info {
    uint64_t mapped_bytes;      /* memory behind all names, now */
    uint64_t peak_mapped_bytes; /* the most of that so far */
    uint64_t leased_bytes;      /* of live leases, as asked for */
    uint64_t peak_leased_bytes; /* the most of that at one time */
    uint64_t num_leases;        /* ever made */
    uint64_t num_waits;         /* leases that had a stream wait for another's release */
    uint32_t num_names;         /* that have a buffer */
    uint32_t num_live;          /* leases */
} pst_scratch_info;

PST_BEGIN_DECLS

/* config: NULL for the defaults. Fails: INVALID, NOMEM. */
PST_API pst_status pst_scratch_create(pst_device *device, const pst_scratch_config *config,
                                      pst_scratch **scratch_out);

/* NULL is allowed. Waits for the releases. Fails: BUSY (a lease lives, or a graph that leased;
 * both are named), CAPTURE. */
PST_API pst_status pst_scratch_destroy(pst_scratch *scratch);

/* The buffer of that name has at least `bytes`. Synchronous. Fails: INVALID (name, more than
 * reserve_bytes), BUSY (PST_SCRATCH_MAX_NAMES names), DEVICE_NOMEM, NOMEM, CAPTURE. */
PST_API pst_status pst_scratch_reserve(pst_scratch *scratch, const char *name, uint64_t bytes);

/* Memory of names that are not leased, and of which no graph's lease is known, goes back.
 * Synchronous: waits for the releases. Fails: CAPTURE. */
PST_API pst_status pst_scratch_trim(pst_scratch *scratch);

/* Leases `bytes` of the buffer of that name, for work of `stream` from here on. Grows the buffer
 * where it is too small.
 * place: who asks, for messages; copied.
 * Fails: INVALID (0 bytes, name, more than reserve_bytes), BUSY (the name is leased: by whom,
 * since which scope), CAPTURE (it would have to grow: the message has its bytes and those
 * wanted), DEVICE_NOMEM, NOMEM, CUDA. Then nothing is leased and nothing enqueued. */
PST_API pst_status pst_scratch_lease(pst_scratch *scratch, const char *name, uint64_t bytes,
                                     const char *place, pst_stream stream, pst_lease *lease_out);

/* The buffer's work ends here, in the order of `stream`, and the lease becomes all 0.
 * Fails: INVALID (no live lease of this scratch: where it was released before is named; no stream of
 * the device's), CAPTURE (the capture is broken), CUDA, ORDER (across a capture's edge, see above).
 * With INVALID, and with CAPTURE or ORDER of what was leased outside captures, the lease lives on: it
 * can be released there. With the others it has ended. What was leased in a capture and is released
 * outside of it ends, too: with PST_OK where no graph holds the name, since the capture failed or its
 * graph is destroyed; else with ORDER, and that capture's graph must not be launched. */
PST_API pst_status pst_scratch_release(pst_scratch *scratch, pst_lease *lease, const char *place,
                                       pst_stream stream);

/* Scopes nest. What is leased in a scope is released in it. place: copied.
 * Fails: ORDER (end: a lease of this scope is alive; its name, its place and the scope's are
 * named. The scope ends all the same, and the lease then counts as of the scope around it; or no
 * scope is open), NOMEM. */
PST_API pst_status pst_scratch_scope_begin(pst_scratch *scratch, const char *place);
PST_API pst_status pst_scratch_scope_end(pst_scratch *scratch);

/* Fails: INVALID. */
PST_API pst_status pst_scratch_get_info_sized(const pst_scratch *scratch,
                                              pst_scratch_info *info_out, size_t info_bytes);
static inline pst_status pst_scratch_get_info(const pst_scratch *scratch,
                                              pst_scratch_info *info_out)
{
    return pst_scratch_get_info_sized(scratch, info_out, sizeof(pst_scratch_info));
}

PST_END_DECLS

#endif
