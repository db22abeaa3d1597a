/* Ends a small program with a message where a step failed. The benchmarks of plans and the arena
 * use it. */
#ifndef PAGESTASH_BENCH_MUST_H
#define PAGESTASH_BENCH_MUST_H

#include "tools/common/tool.h"

#include <stdlib.h>

static inline void bench_check_status(pst_status status)
{
    const int code = tool_status(status);
    if (code != TOOL_OK)
        exit(code);
}

static inline void *bench_need(void *memory)
{
    if (memory == NULL)
        exit(tool_fail(TOOL_NO, "out of memory"));
    return memory;
}

#endif
