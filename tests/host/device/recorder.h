/* A device in front of another: it records each call of the table, and fails at the n-th. Times between
 * events are made up, each longer than the one before, so that no stall decides what a call answers. */
#ifndef PAGESTASH_TESTS_RECORDER_H
#define PAGESTASH_TESTS_RECORDER_H

#include "host/device/device.h"

/* What the failing call answers. */
typedef enum recorder_failure {
    /* Memory that is not there, a capture that forbids it: the device works on, and what was not done
     * can be done again. Calls that give something back do not fail so, and are not counted; nor do waits
     * behind the first wait: what the thread's capture forbids it forbids from the start. */
    RECORDER_PASSES,
    RECORDER_CUDA /* an error of CUDA's own. What was to be given back is gone all the same */
} recorder_failure;

typedef struct recorder_call {
    const char *name; /* the member of psti_device_ops */
    uint64_t bytes;   /* 0 where it moves and takes none; of a launch those of its arguments */
    pst_stream stream;
} recorder_call;

enum { RECORDER_CALLS = 256 };

typedef struct recorder {
    psti_device_ops ops;
    const psti_device_ops *real;
    recorder_call calls[RECORDER_CALLS]; /* the first of those since recorder_arm */
    uint32_t num_calls;
    recorder_failure failure;
    bool has_waited;
    uint32_t fails_at;     /* counted down; 0: no call fails */
    const char *failed;    /* the call that failed, NULL: none has */
    pst_status failed_for; /* what it answered */
    bool gave_back;        /* it gives something back, and did */
    uint32_t num_times;    /* that were asked for: the n-th between two events is n us */
} recorder;

PST_BEGIN_DECLS

/* In front of an open device, which is closed as ever. One recorder at a time; the calls of one thread. */
void recorder_make(recorder *self, pst_device *device);
/* Forgets what was recorded; the call that is the n-th from here on fails, 0: none. */
void recorder_arm(recorder *self, recorder_failure failure, uint32_t n);

PST_END_DECLS

#endif
