/* Handles: how every public opaque object begins, so that a pointer that is none is refused. */
#ifndef PSTI_HOST_HANDLE_H
#define PSTI_HOST_HANDLE_H

#include "host/base/base.h"

/* X(kind, type) */
#define PSTI_HANDLE_LIST(X)     \
    X(DEVICE, pst_device)       \
    X(GRAPH, pst_graph)         \
    X(POOL, pst_pool)           \
    X(GROUP, pst_group)         \
    X(DIRTY, pst_dirty)         \
    X(TICKET, pst_ticket)       \
    X(TRACE, pst_trace)         \
    X(READER, pst_trace_reader) \
    X(PLAN, pst_plan_file)      \
    X(ARENA, pst_arena)         \
    X(SCHEDULE, pst_schedule)   \
    X(SCHEDULER, pst_scheduler) \
    X(SCRATCH, pst_scratch)     \
    X(COMM, pst_comm)

typedef enum psti_kind {
#define PSTI_KIND_ENUM(kind, type) PSTI_KIND_##kind,
    PSTI_HANDLE_LIST(PSTI_KIND_ENUM)
#undef PSTI_KIND_ENUM
        PSTI_NUM_KINDS
} psti_kind;

/* The first member of an object, under the name `handle`. */
typedef struct psti_handle {
    uint64_t magic; /* atomic: its kind, and whether it was destroyed */
    uint32_t users; /* atomic: calls inside it, and PSTI_HANDLE_CLOSED */
    uint32_t padding;
} psti_handle;

#define PSTI_HANDLE_ALIVE UINT64_C(0x9b57a5edc0ffee00) /* and the kind in the last byte */
#define PSTI_HANDLE_DEAD UINT64_C(0x3d1e0f0edeadee00)
#define PSTI_HANDLE_CLOSED (1u << 31)

/* ---- making and freeing ---- */

/* An object of `bytes`, zeroed but for its handle; NULL without memory. */
void *psti_handle_new(size_t bytes, psti_kind kind);
/* NULL is allowed. The handle is INVALID from now on. The memory of the last few is kept for a
 * while, so that this shows; with PAGESTASH_CHECK=1 that of all, for ever. */
void psti_handle_free(void *handle);

/* ---- checking ---- */

/* What handles there are, known once an object was made. */
typedef enum psti_handle_mode {
    PSTI_HANDLES_NONE,
    PSTI_HANDLES_FREE,  /* the pointer is all there is */
    PSTI_HANDLES_LISTED /* PAGESTASH_CHECK=1: in a list of all that were ever made */
} psti_handle_mode;

extern uint32_t psti_handles; /* atomic: a psti_handle_mode */

/* Looks a pointer up in the list, and reads nothing behind it. */
bool psti_handle_is_listed(const void *pointer, psti_kind kind);

/* Whether PAGESTASH_CHECK=1; cheap, and known once an object was made. */
static inline bool psti_is_check_mode(void)
{
    return __atomic_load_n(&psti_handles, __ATOMIC_RELAXED) == PSTI_HANDLES_LISTED;
}

static inline bool psti_handle_is(const void *pointer, psti_kind kind)
{
    const uintptr_t address = (uintptr_t)pointer;
    const uint32_t mode = __atomic_load_n(&psti_handles, __ATOMIC_RELAXED);
    if (address < 4096 || address % sizeof(uint64_t) != 0 || mode == PSTI_HANDLES_NONE)
        return false;
    if (mode == PSTI_HANDLES_LISTED)
        return psti_handle_is_listed(pointer, kind);
    return __atomic_load_n(&((const psti_handle *)pointer)->magic, __ATOMIC_RELAXED) ==
           (PSTI_HANDLE_ALIVE | kind);
}

/* INVALID, saying why the pointer is no handle of that kind. */
pst_status psti_handle_refuse(const char *file, int line, const char *name, const void *pointer,
                              psti_kind kind);

#define PSTI_CHECK_HANDLE(pointer, kind)                                                        \
    do {                                                                                        \
        if (!psti_handle_is(pointer, PSTI_KIND_##kind))                                         \
            return psti_handle_refuse(__FILE__, __LINE__, #pointer, pointer, PSTI_KIND_##kind); \
    } while (0)

/* ---- calls beside a destroy ----
 *
 * A call that must not see its object destroyed by another thread begins with PSTI_USE_HANDLE; a
 * destroy with psti_handle_close, which answers BUSY while such calls run. */

/* NULL: being destroyed. */
psti_handle *psti_handle_enter(const void *handle);
void psti_handle_leave(psti_handle *const *entered);

/* PSTI_CHECK_HANDLE of a variable, and its object stays until the function returns. */
#define PSTI_USE_HANDLE(pointer, kind)                                                 \
    PSTI_CHECK_HANDLE(pointer, kind);                                                  \
    __attribute__((cleanup(psti_handle_leave))) psti_handle *const psti_in_##pointer = \
        psti_handle_enter(pointer);                                                    \
    PSTI_CHECK(psti_in_##pointer, PST_E_INVALID, #pointer " is being destroyed by another thread")

/* From now on nobody enters. Fails: BUSY while calls of other threads are inside, INVALID where
 * another thread closed it. */
pst_status psti_handle_close(void *handle);
/* After a destroy that was refused. */
void psti_handle_reopen(void *handle);

#endif
