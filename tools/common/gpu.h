/* A GPU by its name in the library's table, or by a file with rates that were measured on one. */
#ifndef PAGESTASH_TOOL_GPU_H
#define PAGESTASH_TOOL_GPU_H

#include "tools/common/tool.h"

/* text: of --FLAG: a name, or a file (docs/formats.md), whose name has a dot or a slash. */
int gpu_read(const char *flag, const char *text, pst_gpu *gpu_out);

#endif
