// CUDA threads as fibers: contexts, stacks, and what the sanitizers must be told of them.
#include "tests/simt/simt_fiber.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

static const size_t kGuardBytes = 4096;

#if SIMT_UCONTEXT

SIMT_RAW static void trampoline(unsigned high, unsigned low)
{
    simt_fiber *fiber =
        reinterpret_cast<simt_fiber *>((uintptr_t)((uint64_t)high << 32 | (uint64_t)low));
    fiber->entry(fiber);
}

SIMT_RAW static void prepare(simt_fiber *fiber)
{
    const uint64_t address = (uint64_t) reinterpret_cast<uintptr_t>(fiber);
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(trampoline), 2,
                (unsigned)(address >> 32), (unsigned)address);
}

SIMT_RAW static inline void switch_stacks(simt_fiber *from, simt_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#else

extern "C" void simt_switch_stack(void **save, void *load);
extern "C" void simt_first_switch(void);

/* What a called function must preserve, and the stack pointer. A new fiber finds itself in r12 and
 * its entry in r13. */
asm(R"(
    .text
    .p2align 4
    .globl simt_switch_stack
    .hidden simt_switch_stack
    .type simt_switch_stack, @function
simt_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simt_switch_stack, . - simt_switch_stack
    .globl simt_first_switch
    .hidden simt_first_switch
    .type simt_first_switch, @function
simt_first_switch:
    movq %r12, %rdi
    call *%r13
    ud2
    .size simt_first_switch, . - simt_first_switch
)");

SIMT_RAW static void prepare(simt_fiber *fiber)
{
    /* r15 r14 r13 r12 rbx rbp, return address, then a stack aligned as in front of a call */
    uintptr_t *top = reinterpret_cast<uintptr_t *>(fiber->stack + fiber->stack_bytes) - 4;
    uintptr_t *frame = top - 7;
    frame[0] = 0;
    frame[1] = 0;
    frame[2] = reinterpret_cast<uintptr_t>(fiber->entry);
    frame[3] = reinterpret_cast<uintptr_t>(fiber);
    frame[4] = 0;
    frame[5] = 0;
    frame[6] = reinterpret_cast<uintptr_t>(&simt_first_switch);
    top[0] = 0; /* ends a walk of the stack */
    fiber->stack_pointer = frame;
}

SIMT_RAW static inline void switch_stacks(simt_fiber *from, simt_fiber *to)
{
    simt_switch_stack(&from->stack_pointer, to->stack_pointer);
}

#endif

SIMT_RAW void simt_fibers_make(simt_fiber *first, size_t stride, uint32_t count,
                               void (*entry)(simt_fiber *self))
{
    const size_t each = kGuardBytes + SIMT_STACK_BYTES;
    void *memory = mmap(nullptr, each * count, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("simt: no memory for stacks");
        abort();
    }
    for (uint32_t i = 0; i < count; i++) {
        unsigned char *guard = static_cast<unsigned char *>(memory) + i * each;
        simt_fiber *fiber =
            reinterpret_cast<simt_fiber *>(reinterpret_cast<unsigned char *>(first) + i * stride);
        mprotect(guard, kGuardBytes, PROT_NONE);
        fiber->entry = entry;
        fiber->stack = guard + kGuardBytes;
        fiber->stack_bytes = SIMT_STACK_BYTES;
        prepare(fiber);
#if SIMT_TSAN
        fiber->tsan = __tsan_create_fiber(0);
#endif
    }
}

SIMT_RAW void simt_fiber_destroy(simt_fiber *fiber)
{
#if SIMT_TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
    munmap(fiber->stack - kGuardBytes, kGuardBytes + fiber->stack_bytes);
}

SIMT_RAW void simt_fiber_adopt(simt_fiber *fiber)
{
    pthread_attr_t attributes;
    void *stack = nullptr;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &fiber->stack_bytes);
    pthread_attr_destroy(&attributes);
    fiber->stack = static_cast<unsigned char *>(stack);
#if SIMT_TSAN
    fiber->tsan = __tsan_get_current_fiber();
#endif
}

SIMT_RAW void simt_fiber_entered(simt_fiber *self)
{
#if SIMT_ASAN
    __sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
#else
    (void)self;
#endif
}

SIMT_RAW void simt_fiber_switch(simt_fiber *from, simt_fiber *to)
{
#if SIMT_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if SIMT_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
    switch_stacks(from, to);
#if SIMT_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}
