/* Preloaded: makes allocations of the whole program fail. PSTI_FAIL_MALLOC is how many succeed before
 * the first that fails, with "once" behind it where later ones succeed again. PSTI_COUNT_MALLOC is a
 * descriptor that the number of allocations is written to at the end. Counted from main to exit: the CUDA
 * runtime allocates before, and does not look whether it got something. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

static long successes_left = -1; /* -1: all succeed */
static bool is_once;
static long num_allocations; /* the commands that are tested have one thread */
static bool has_begun;

typedef int (*main_fn)(int, char **, char **);
typedef int (*start_fn)(main_fn, int, char **, void (*)(void), void (*)(void), void (*)(void),
                        void *);

static main_fn real_main;

/* Behind all of the program's own handlers: what counts for coverage does not look whether it got something. */
static void end_main(void)
{
    has_begun = false;
}

static int begin_main(int count, char **arguments, char **environment)
{
    atexit(end_main);
    has_begun = true;
    return real_main(count, arguments, environment);
}

/* What the C library calls a program's main by. */
int __libc_start_main(main_fn program, int count, char **arguments, void (*before)(void),
                      void (*after)(void), void (*linker)(void), void *stack)
{
    start_fn start;
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&start, &found, sizeof(start));
    real_main = program;
    return start(begin_main, count, arguments, before, after, linker, stack);
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("PSTI_FAIL_MALLOC");
    if (text == NULL)
        return;
    successes_left = atol(text);
    is_once = strstr(text, "once") != NULL;
}

__attribute__((destructor)) static void end(void)
{
    const char *text = getenv("PSTI_COUNT_MALLOC");
    if (text != NULL)
        dprintf(atoi(text), "%ld\n", num_allocations);
}

static bool fails(void)
{
    if (!has_begun)
        return false;
    num_allocations++;
    if (successes_left != 0) {
        successes_left -= successes_left > 0;
        return false;
    }
    successes_left = is_once ? -1 : 0;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(memory, bytes);
}
