/* What the pretended libraries share, and what tests ask them (common/pretended.py). */
#ifndef PRETENDED_H
#define PRETENDED_H

#include <stdint.h>

#include <pagestash/device.h>

/* The host device whose streams and events torch's are. */
pst_device *pretended_device(void);

/* Of functions that are not there: counts a call; the name of the index-th, or NULL, and its calls. */
void pretended_missing(const char *name);
const char *pretended_missing_name(int index, uint64_t *calls_out);

/* Kernels launched, also by replays; a launch by another library on `stream`, a cudaError_t. */
uint64_t pretended_kernels(void);
int pretended_launch(void *stream);

/* Calls of cudaMalloc, bytes that live, and how many there may be. */
uint64_t pretended_mallocs(void);
uint64_t pretended_allocated(void);
void pretended_set_memory(uint64_t bytes);

#endif
