/* Shared by the files of the host device. */
#ifndef PSTI_HOST_DEVICE_HOST_H
#define PSTI_HOST_DEVICE_HOST_H

#include "host/base/lock.h"
#include "host/device/host_graph.h"
#include "host/device/host_slots.h"

typedef struct psti_host_state {
    psti_lock lock; /* of captures, of the capture fields of streams and events, of taking and
                           * giving slots */
    psti_captures captures;
    psti_slots streams, events;
    const psti_runners *runners;
} psti_host_state;

static inline psti_host_state *psti_host_state_of(const pst_device *device)
{
    return device->state;
}

/* That the stream, or NULL, is this device's and was not destroyed. */
pst_status psti_host_check_stream(const pst_device *device, pst_stream stream);

/* ---- device_host.c ---- */

/* OK but for what a called function answers. */
pst_status psti_host_run(const pst_device *device, const psti_node *node);
/* Runs the node, or records it where the stream is being captured. */
pst_status psti_host_enqueue(pst_device *device, const psti_node *node, pst_stream stream);

/* ---- host_stream.c: what the table of a host device holds of streams, events and graphs ---- */

pst_status psti_host_stream_create(pst_device *device, pst_stream *stream_out);
pst_status psti_host_stream_destroy(pst_device *device, pst_stream stream);
pst_status psti_host_stream_synchronize(pst_device *device, pst_stream stream);
pst_status psti_host_stream_query(pst_device *device, pst_stream stream, bool *idle_out);
pst_status psti_host_event_create(pst_device *device, pst_event *event_out);
pst_status psti_host_event_destroy(pst_device *device, pst_event event);
pst_status psti_host_event_record(pst_device *device, pst_event event, pst_stream stream,
                                  bool external);
pst_status psti_host_event_wait(pst_device *device, pst_event event, pst_stream stream,
                                bool external);
pst_status psti_host_event_synchronize(pst_device *device, pst_event event);
pst_status psti_host_event_elapsed(pst_device *device, pst_event begin, pst_event end,
                                   double *seconds_out);
pst_status psti_host_graph_begin(pst_device *device, pst_stream stream);
pst_status psti_host_graph_end(pst_device *device, pst_stream stream, pst_graph *graph);
pst_status psti_host_graph_launch(pst_graph *graph, pst_stream stream);
void psti_host_graph_destroy(pst_graph *graph);
pst_status psti_host_capture_of(pst_device *device, pst_stream stream,
                                psti_capture_of *capture_out);
pst_status psti_host_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold);

#endif
