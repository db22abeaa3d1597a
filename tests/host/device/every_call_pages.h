/* Rooms of every_call.h for calls of a pool and its tickets, beside the oracle. */
#ifndef PAGESTASH_TESTS_EVERY_CALL_PAGES_H
#define PAGESTASH_TESTS_EVERY_CALL_PAGES_H

#include "tests/host/device/every_call.h"
#include "tests/oracle/lockstep.h"

typedef struct call_pages {
    lockstep ls;
    ls_group source, destination; /* of one form */
    uint32_t live, empty;         /* tickets: one holds what is in the source */
    pst_stream side;              /* for captures */
} call_pages;
extern call_pages pages;

PST_BEGIN_DECLS

extern const call_room pages_room, pages_captured;

void pages_open(pst_device *device);
void pages_same(void);
void pages_revive(void);
void pages_close(void);

PST_END_DECLS

#endif
