/* Every public function that reaches a device, one case each: what it is called with, and what it must
 * have done. every_call_test.c makes each of the device's calls fail in turn. */
#ifndef PAGESTASH_TESTS_EVERY_CALL_H
#define PAGESTASH_TESTS_EVERY_CALL_H

#include <pagestash/pagestash.h>

#include "tests/harness.h"
#include "tests/host/device/recorder.h"

/* What calls of one room need. All of it is made anew for each attempt. */
typedef struct call_room {
    void (*open)(pst_device *device);
    void (*same)(
        void); /* a call has failed, the device works on: all is as before. NULL: nothing to see */
    void (*revive)(void); /* a call has failed for CUDA: works anew. NULL: it can only be closed */
    void (*close)(void);  /* whatever the call has done, and with it the device */
} call_room;

typedef enum call_kind {
    CALL_FAILS,  /* with the device's call */
    CALL_GIVES,  /* back what it is given, which is gone also where CUDA has failed: OK or CUDA */
    CALL_TRIES,  /* another way where the device cannot: OK, or as CALL_FAILS */
    CALL_BREAKS, /* what it belongs to, until the room's revive has given that up */
    CALL_OWNS, /* objects of its own, which it gives back. Where that fails they stay: so of failures
                  * only CUDA's are tried, and OK is allowed as of GIVES */
    CALL_NONE  /* does not call the device */
} call_kind;

typedef struct call_case {
    const char *name; /* of the function */
    const call_room *room;
    void (*prepare)(void); /* NULL: nothing */
    pst_status (*call)(void);
    void (*done)(void); /* NULL: nothing to see. After the call succeeded: what must be there now */
    call_kind kind;
} call_case;

typedef struct call_table {
    const call_case *cases;
    size_t num;
} call_table;

PST_BEGIN_DECLS

extern const call_table device_calls, pool_calls, ticket_calls, arena_calls, comm_calls,
    linear_calls, scheduler_calls;

/* What out parameters hold before a call, and after one that failed. */
static inline void *call_untouched(void)
{
    return (void *)(uintptr_t)1;
}

/* What several rooms need; of every_call_objects.c. */
typedef struct call_objects {
    pst_device *device;
    pst_stream stream, other;
    void *made; /* by the call; untouched before */
    pst_comm *comm;
    pst_scratch *scratch;
    pst_lease lease;
} call_objects;
extern call_objects call_has;

void call_open_streams(pst_device *device);
void call_close_streams(void); /* and the device */
/* And a communicator of one rank. */
void call_open_comm(pst_device *device);
void call_close_comm(void);
pst_status call_create_comm(pst_comm **comm_out);
/* Nothing is leased but call_has.lease. */
void call_check_scratch(void);

/* Nothing of the device is left. */
static inline void call_close(pst_device *device)
{
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
}

PST_END_DECLS

#endif
