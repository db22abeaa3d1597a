/* Shared by the files of the CUDA device. */
#ifndef PSTI_HOST_DEVICE_CUDA_H
#define PSTI_HOST_DEVICE_CUDA_H

#include "host/device/device.h"

#include <cuda_runtime_api.h>

/* Makes the device current for one call and puts the caller's back. */
typedef struct psti_cuda_guard {
    int previous;
    bool switched;
} psti_cuda_guard;

psti_cuda_guard psti_cuda_enter(const pst_device *device);
void psti_cuda_leave(const psti_cuda_guard *entered);

#define PSTI_ON(device)                                                                   \
    __attribute__((cleanup(psti_cuda_leave), unused)) const psti_cuda_guard psti_guard_ = \
        psti_cuda_enter(device)

/* ---- device_cuda_span.c ---- */

pst_status psti_cuda_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                               psti_span *span);
pst_status psti_cuda_span_resize(pst_device *device, psti_span *span, uint64_t bytes);
void psti_cuda_span_close(pst_device *device, psti_span *span);

#endif
