/* What a call answers.
 *
 * A status speaks of static facts and of synchronous work. What depends on values that only the
 * device knows (row counts, free pages) is never a status: it is a fault recorded in the pool's
 * status block, see pool.h.
 *
 * Stated once for every function of the library: when a call fails by checking its arguments,
 * nothing was enqueued and no out parameter was written. Every call that enqueues also answers CAPTURE
 * when the capture of its stream is broken, and NOMEM when a captured node cannot be recorded. After PST_E_CUDA part of the work may
 * have been enqueued; the pool concerned then accepts only pst_pool_reset and pst_pool_destroy.
 */
#ifndef PAGESTASH_STATUS_H
#define PAGESTASH_STATUS_H

#include <pagestash/api.h>

/* X(name, value, text): the only list of codes. Values are pinned for ever. */
#define PST_STATUS_LIST(X)                                                                  \
    X(PST_OK, 0, "success")                                                                 \
    X(PST_E_INVALID, -1, "invalid argument: fix the call")                                  \
    X(PST_E_BUSY, -2, "in use: a captured graph, a ticket or a pool still holds it")        \
    X(PST_E_NOMEM, -3, "out of host memory")                                                \
    X(PST_E_DEVICE_NOMEM, -4, "out of device memory")                                       \
    X(PST_E_UNSUPPORTED, -5, "not supported by this device or build")                       \
    X(PST_E_NO_DEVICE, -6, "no usable device of that kind")                                 \
    X(PST_E_CUDA, -7, "a CUDA call failed: the pool accepts only reset and destroy")        \
    X(PST_E_CAPTURE, -8, "not allowed while the stream is being captured, or not captured") \
    X(PST_E_AGAIN, -9, "nothing has been published yet")                                    \
    X(PST_E_ORDER, -10, "the call does not follow the schedule: abort the step")            \
    X(PST_E_PEER, -11, "another rank failed, was late or did something else")               \
    X(PST_E_DAMAGED, -12, "the pool's memory was overwritten: PAGESTASH_CHECK=1 found it")

/* What a call answers; pst_last_message has the words. */
typedef enum pst_status {
#define PST_STATUS_ENUM(name, value, text) name = value,
    PST_STATUS_LIST(PST_STATUS_ENUM)
#undef PST_STATUS_ENUM
} pst_status;

PST_BEGIN_DECLS

/* "PST_E_BUSY"; "PST_E_UNKNOWN" for a value outside the list. Static storage. Threads: any. */
PST_API const char *pst_status_name(pst_status status);

/* One sentence; static storage. Threads: any. */
PST_API const char *pst_status_text(pst_status status);

/* What the last failing call of this thread had to say: file, line, the value, what is allowed,
 * CUDA's own error name. "" before the first failure. Valid until this thread's next failing
 * call. A successful call leaves it alone. */
PST_API const char *pst_last_message(void);

PST_END_DECLS

#endif
