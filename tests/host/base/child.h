/* Functions that run in a process of their own: this program anew, before main. What the library
 * reads only once, the environment, can so be tried again and again. */
#ifndef PAGESTASH_TESTS_CHILD_H
#define PAGESTASH_TESTS_CHILD_H

#include <stdbool.h>

typedef struct child_result {
    bool exited; /* by itself; otherwise a signal ended it, SIGALRM after a while */
    char out[4096];
    char err[4096];
} child_result;

/* Runs the PST_CHILD of that name with these variables ("NAME=value", NULL at the end) and no
 * others of the library; false when that could not be done. */
bool child_run(const char *name, const char *const *variables, child_result *result);

bool child_is(const char *name);
void child_leave(void);

/* Ends a child of fork at once. ThreadSanitizer's _exit looks for threads, which such a child has not got. */
_Noreturn void child_end(int status);

/* PST_CHILD(name) { ... } */
#define PST_CHILD(name)                                               \
    static void child_##name(void);                                   \
    __attribute__((constructor)) static void enter_child_##name(void) \
    {                                                                 \
        if (child_is(#name)) {                                        \
            child_##name();                                           \
            child_leave();                                            \
        }                                                             \
    }                                                                 \
    static void child_##name(void)

#endif
