/* A seam in the atomics of the kernels: included before kernels/core/fn.h it makes each of them
 * tell a test first. Nothing else sees it. */
#ifndef PSTI_TESTS_SIMT_POINTS_H
#define PSTI_TESTS_SIMT_POINTS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum simt_access { SIMT_LOAD, SIMT_STORE, SIMT_ADD, SIMT_CAS } simt_access;

/* Called in the thread that is about to access the word, of any launch; it may wait for other host
 * threads, but not launch. NULL: no hook. */
typedef void (*simt_point_hook)(simt_access access, const void *at, void *user);
extern simt_point_hook simt_point_is;
extern void *simt_point_user;

static inline void simt_set_point_hook(simt_point_hook hook, void *user)
{
    simt_point_user = user;
    __atomic_store_n(&simt_point_is, hook, __ATOMIC_RELEASE);
}

static inline void simt_point(simt_access access, const void *at)
{
    const simt_point_hook hook = __atomic_load_n(&simt_point_is, __ATOMIC_ACQUIRE);
    if (hook)
        hook(access, at, simt_point_user);
}

#ifdef __cplusplus
}
#endif

#ifdef PSTI_SIMT_POINTS
#define __atomic_load_n(at, ...) (simt_point(SIMT_LOAD, at), __atomic_load_n(at, __VA_ARGS__))
#define __atomic_store_n(at, ...) (simt_point(SIMT_STORE, at), __atomic_store_n(at, __VA_ARGS__))
#define __atomic_fetch_add(at, ...) (simt_point(SIMT_ADD, at), __atomic_fetch_add(at, __VA_ARGS__))
#define __atomic_fetch_sub(at, ...) (simt_point(SIMT_ADD, at), __atomic_fetch_sub(at, __VA_ARGS__))
#define __atomic_compare_exchange_n(at, ...) \
    (simt_point(SIMT_CAS, at), __atomic_compare_exchange_n(at, __VA_ARGS__))
#endif

#endif
