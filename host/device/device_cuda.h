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

/* Translates an error, with CUDA's own name, and clears it where it is not sticky. */
pst_status psti_cuda_translate(cudaError_t error, const char *call, const char *file, int line);

#define PSTI_TRY_CUDA(call)                                                \
    do {                                                                   \
        const cudaError_t error_ = (call);                                 \
        if (error_ != cudaSuccess)                                         \
            return psti_cuda_translate(error_, #call, __FILE__, __LINE__); \
    } while (0)

/* ---- device_cuda_stream.c ---- */

pst_status psti_cuda_stream_create(pst_device *device, pst_stream *stream_out);
pst_status psti_cuda_stream_destroy(pst_device *device, pst_stream stream);
pst_status psti_cuda_stream_synchronize(pst_device *device, pst_stream stream);
pst_status psti_cuda_stream_query(pst_device *device, pst_stream stream, bool *idle_out);
pst_status psti_cuda_event_create(pst_device *device, pst_event *event_out);
pst_status psti_cuda_event_destroy(pst_device *device, pst_event event);
pst_status psti_cuda_event_record(pst_device *device, pst_event event, pst_stream stream,
                                  bool external);
pst_status psti_cuda_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                bool external);
pst_status psti_cuda_event_synchronize(pst_device *device, pst_event event);
pst_status psti_cuda_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                   double *seconds_out);
pst_status psti_cuda_graph_begin(pst_device *device, pst_stream stream);
pst_status psti_cuda_graph_end(pst_device *device, pst_stream stream, pst_graph *graph);
pst_status psti_cuda_graph_launch(pst_graph *graph, pst_stream stream);
void psti_cuda_graph_destroy(pst_graph *graph);
pst_status psti_cuda_capture_of(pst_device *device, pst_stream stream,
                                psti_capture_of *capture_out);
pst_status psti_cuda_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold);

/* ---- device_cuda_span.c ---- */

pst_status psti_cuda_span_open(pst_device *device, uint32_t tier, uint64_t reserved,
                               psti_span *span);
pst_status psti_cuda_span_resize(pst_device *device, psti_span *span, uint64_t bytes);
void psti_cuda_span_close(pst_device *device, psti_span *span);

#endif
