/* Handles: the magic words of public objects, and the memory of those that were destroyed. */
#include "host/base/handle.h"

#include <stddef.h>

enum { NUM_LATE = 64, NUM_BUCKETS = 1024 };

static const char *const type_names[PSTI_NUM_KINDS] = {
#define TYPE_NAME(kind, type) #type,
    PSTI_HANDLE_LIST(TYPE_NAME)
#undef TYPE_NAME
};

/* ---- with PAGESTASH_CHECK=1: every object ever made, in lists that only grow ---- */

typedef union listed {
    union listed *next;
    max_align_t alignment; /* of the object behind it */
} listed;

uint32_t psti_handles;
static listed *buckets[NUM_BUCKETS]; /* atomic */

static listed **bucket_of(const void *pointer)
{
    return &buckets[((uintptr_t)pointer >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static void *new_listed(size_t bytes)
{
    listed *made = psti_calloc(1, sizeof(*made) + bytes);
    if (!made)
        return NULL;
    listed **bucket = bucket_of(made + 1);
    listed *first = __atomic_load_n(bucket, __ATOMIC_RELAXED);
    do
        made->next = first;
    while (!__atomic_compare_exchange_n(bucket, &first, made, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED));
    return made + 1;
}

static bool is_listed(const void *pointer)
{
    const listed *at = __atomic_load_n(bucket_of(pointer), __ATOMIC_ACQUIRE);
    while (at && at + 1 != pointer)
        at = at->next;
    return at != NULL;
}

/* ---- else: the last few that were destroyed ---- */

static void *late[NUM_LATE]; /* atomic */
static uint32_t num_late;    /* atomic: ever */

static void free_late(void *memory)
{
    const uint32_t at = __atomic_fetch_add(&num_late, 1, __ATOMIC_RELAXED) % NUM_LATE;
    psti_free(__atomic_exchange_n(&late[at], memory, __ATOMIC_ACQ_REL));
}

/* ---- making and freeing ---- */

void *psti_handle_new(size_t bytes, psti_kind kind)
{
    const bool lists = psti_env_check_mode();
    psti_handle *made = lists ? new_listed(bytes) : psti_calloc(1, bytes);
    if (!made)
        return NULL;
    __atomic_store_n(&made->magic, PSTI_HANDLE_ALIVE | kind, __ATOMIC_RELEASE);
    __atomic_store_n(&psti_handles, lists ? PSTI_HANDLES_LISTED : PSTI_HANDLES_FREE,
                     __ATOMIC_RELAXED);
    return made;
}

void psti_handle_free(void *handle)
{
    psti_handle *dead = handle;
    if (!dead)
        return;
    const uint64_t kind = __atomic_load_n(&dead->magic, __ATOMIC_RELAXED) & 0xff;
    __atomic_store_n(&dead->magic, PSTI_HANDLE_DEAD | kind, __ATOMIC_RELEASE);
    if (!psti_is_check_mode())
        free_late(dead);
}

/* ---- checking ---- */

static uint64_t magic_of(const void *pointer)
{
    return __atomic_load_n(&((const psti_handle *)pointer)->magic, __ATOMIC_ACQUIRE);
}

bool psti_handle_is_listed(const void *pointer, psti_kind kind)
{
    return is_listed(pointer) && magic_of(pointer) == (PSTI_HANDLE_ALIVE | kind);
}

/* Whether there may be a handle to read. */
static bool is_readable(const void *pointer)
{
    const uintptr_t address = (uintptr_t)pointer;
    if (address < 4096 || address % sizeof(uint64_t) != 0)
        return false;
    const uint32_t mode = __atomic_load_n(&psti_handles, __ATOMIC_RELAXED);
    return mode == PSTI_HANDLES_FREE || (mode == PSTI_HANDLES_LISTED && is_listed(pointer));
}

pst_status psti_handle_refuse(const char *file, int line, const char *name, const void *pointer,
                              psti_kind kind)
{
    const char *wanted = type_names[kind];
    if (!pointer)
        return psti_fail(PST_E_INVALID, file, line, "%s is NULL", name);
    const uint64_t magic = is_readable(pointer) ? magic_of(pointer) : 0;
    const uint64_t found = magic & 0xff;
    const uint64_t word = magic & ~UINT64_C(0xff);
    if (found < PSTI_NUM_KINDS && word == PSTI_HANDLE_DEAD)
        return psti_fail(PST_E_INVALID, file, line, "%s is a %s that was destroyed", name,
                         type_names[found]);
    if (found < PSTI_NUM_KINDS && word == PSTI_HANDLE_ALIVE)
        return psti_fail(PST_E_INVALID, file, line, "%s is a %s, not a %s", name, type_names[found],
                         wanted);
    return psti_fail(PST_E_INVALID, file, line, "%s is no %s of this library", name, wanted);
}

/* ---- calls beside a destroy ---- */

psti_handle *psti_handle_enter(const void *handle)
{
    psti_handle *entered = (psti_handle *)(uintptr_t)handle;
    const uint32_t users = __atomic_fetch_add(&entered->users, 1, __ATOMIC_ACQUIRE);
    if (!(users & PSTI_HANDLE_CLOSED))
        return entered;
    __atomic_fetch_sub(&entered->users, 1, __ATOMIC_RELAXED);
    return NULL;
}

void psti_handle_leave(psti_handle *const *entered)
{
    if (*entered)
        __atomic_fetch_sub(&(*entered)->users, 1, __ATOMIC_RELEASE);
}

pst_status psti_handle_close(void *handle)
{
    psti_handle *closed = handle;
    uint32_t users = 0;
    if (__atomic_compare_exchange_n(&closed->users, &users, PSTI_HANDLE_CLOSED, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return PST_OK;
    const char *type = type_names[__atomic_load_n(&closed->magic, __ATOMIC_RELAXED) & 0xff];
    PSTI_CHECK(!(users & PSTI_HANDLE_CLOSED), PST_E_INVALID,
               "this %s is being destroyed by another thread", type);
    return PSTI_FAIL(PST_E_BUSY, "%u calls of other threads use this %s", users, type);
}

void psti_handle_reopen(void *handle)
{
    psti_handle *opened = handle;
    __atomic_fetch_and(&opened->users, ~PSTI_HANDLE_CLOSED, __ATOMIC_RELEASE);
}
