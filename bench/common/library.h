/* Functions of libraries that are loaded when the program runs. Uses libdl only; the parts of
 * bench/stash that need cuBLAS and NVML use it. */
#ifndef PAGESTASH_BENCH_LIBRARY_H
#define PAGESTASH_BENCH_LIBRARY_H

#include <stdbool.h>

/* Stores the function's address in *function_out, a pointer to a function; false: there is none. */
bool bench_find(void *library, const char *name, void *function_out);

#endif
