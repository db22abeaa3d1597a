/* Shared by the files that record the first step. */
#ifndef PSTI_HOST_SCHEDULER_RECORD_H
#define PSTI_HOST_SCHEDULER_RECORD_H

#include "host/scheduler/scheduler.h"

#define PSTI_NO_MICRO_BATCH UINT32_MAX
#define PSTI_NO_SEAT UINT32_MAX

/* A pass whose hooks come; two of them are a pair. */
typedef struct psti_active {
    uint64_t pass;
    uint32_t num_visits; /* that have ended */
    bool is_open, is_recomputing;
    uint8_t announced;
    pst_stream stream; /* of the open visit */
    psti_visit visit;  /* the open one */
} psti_active;

struct psti_recording {
    pst_pass *passes;
    uint64_t num, room;
    psti_active actives[PSTI_MAX_LANES];
    uint32_t num_actives;
    uint32_t *owners; /* micro-batch of each slot, chunk after chunk; PSTI_NO_MICRO_BATCH: free */
    uint32_t *first_slot;
    /* round and round: PAGED sources and destinations, SWAPPED buffers */
    uint32_t next_source, next_destination, next_buffer;
    uint32_t last_out[PST_MAX_SETS + 2]; /* seat whose stash or swap last read this set or buffer */
    pst_visit_key pending[PST_MAX_SETS];
    bool is_pending[PST_MAX_SETS];
};

/* ---- scheduler_passes.c ---- */

/* The slot of a chunk that this micro-batch has; NULL: none. */
uint32_t *psti_recorded_find_slot(const pst_scheduler *self, uint32_t chunk, uint32_t micro_batch);
bool psti_recorded_is_done(const pst_scheduler *self, const psti_active *a);
/* The pass of this visit whose hooks come; NULL: none. */
psti_active *psti_recorded_find_active(const pst_scheduler *self, const pst_visit_key *key);
/* The pass that this visit is the next of, perhaps a new one. NULL: *status says why not. */
psti_active *psti_recorded_next(pst_scheduler *self, const pst_visit_key *key, pst_status *status);
/* Fails: ORDER (a pass is not over). */
pst_status psti_recorded_check_done(const pst_scheduler *self);
/* Whether a kind of the library's has this list, for every number of micro-batches. */
bool psti_recorded_recognise(const pst_scheduler *self, pst_schedule_config *config);

#endif
