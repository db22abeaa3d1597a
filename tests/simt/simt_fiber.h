/* Fibers: a stack each, switched by hand, known to the sanitizers. */
#ifndef PSTI_TESTS_SIMT_FIBER_H
#define PSTI_TESTS_SIMT_FIBER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define SIMT_TSAN 1
#endif
#ifdef __SANITIZE_ADDRESS__
#define SIMT_ASAN 1
#endif

#ifndef SIMT_TSAN
#define SIMT_TSAN 0
#endif
#ifndef SIMT_ASAN
#define SIMT_ASAN 0
#endif

/* The machine's own accesses must neither be reported nor order anything. clang instruments atomics
 * in spite of no_sanitize. */
#if !SIMT_TSAN
#define SIMT_RAW
#elif defined(__clang__)
#define SIMT_RAW __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define SIMT_RAW __attribute__((no_sanitize_thread))
#endif

#if SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#define SIMT_RELEASE(object) __tsan_release(object)
#define SIMT_ACQUIRE(object) __tsan_acquire(object)
#else
#define SIMT_RELEASE(object) ((void)(object))
#define SIMT_ACQUIRE(object) ((void)(object))
#endif

#if !defined(SIMT_UCONTEXT) && !defined(__x86_64__)
#define SIMT_UCONTEXT 1
#endif
#ifndef SIMT_UCONTEXT
#define SIMT_UCONTEXT 0
#endif
#if SIMT_UCONTEXT
#include <ucontext.h>
#endif

#if SIMT_TSAN || SIMT_ASAN
#define SIMT_STACK_BYTES (256u << 10)
#else
#define SIMT_STACK_BYTES (64u << 10)
#endif

struct simt_fiber {
#if SIMT_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer; /* while it does not run */
#endif
    void (*entry)(simt_fiber *self);
    unsigned char *stack;
    size_t stack_bytes;
    void *tsan;       /* TSan's thread */
    void *fake_stack; /* ASan's */
};

/* Gives `count` fibers, `stride` bytes apart, stacks with guard pages; they start in entry, which
 * must not return. Under TSan each is a new thread that begins after what the caller has done. */
void simt_fibers_make(simt_fiber *first, size_t stride, uint32_t count,
                      void (*entry)(simt_fiber *self));

/* Of one that does not run. */
void simt_fiber_destroy(simt_fiber *fiber);

/* Makes a fiber of the calling OS thread, as it runs. */
void simt_fiber_adopt(simt_fiber *fiber);

/* First call of an entry. */
void simt_fiber_entered(simt_fiber *self);

/* Saves the running fiber in `from` and continues `to`. */
void simt_fiber_switch(simt_fiber *from, simt_fiber *to);

#endif
