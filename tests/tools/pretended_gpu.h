/* What the two files of the pretended CUDA runtime share. */
#ifndef PRETENDED_GPU_H
#define PRETENDED_GPU_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct pretended_memory {
    size_t allocations, bytes; /* that live, of the device and pinned */
} pretended_memory;

extern pretended_memory pretended_held;

/* Whether the process ends at a launch, so that nobody looks at bytes (PRETENDED_UNTIL). */
bool pretended_is_brief(void);

/* A kernel, or what a library in place of one of CUDA's enqueues (rehearsal.cmake exports it). */
void pretended_launched(const char *name, const char *shape);

/* Of a launch: what a stream that is captured keeps. */
void pretended_keep_node(const cudaLaunchConfig_t *config);

#endif
