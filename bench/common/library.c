/* Looks up functions of libraries that are loaded when the program runs. */
#include "bench/common/library.h"

#include <dlfcn.h>
#include <string.h>

bool bench_find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    memcpy(function_out, &symbol, sizeof(symbol));
    return symbol != NULL;
}
