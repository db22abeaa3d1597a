/* Room scheduler: plays the compiled program (host/program) on streams of a device, hook by hook.
 *
 *   scheduler.c            a step's begin and end, abort, destroy
 *   scheduler_create.c     makes one
 *   scheduler_describe.c   checks and copies what the caller says of layers
 *   scheduler_own.c        tickets, events, streams and memory of a scheduler
 *   scheduler_program.c    schedules and their programs, one for each number of micro-batches
 *   scheduler_cursor.c     which hook comes next, and edges between the caller's streams
 *   scheduler_hooks.c      the hooks
 *   scheduler_play.c       operations of a program as calls of the device
 *   scheduler_record.c     the first step of a scheduler without a schedule
 *   scheduler_passes.c     what that step has recorded so far
 *   scheduler_layers.c     graphs of single layers
 *   scheduler_glu.c        tickets for the caller's own launches
 *   scheduler_stats.c      figures
 *   scheduler_measure.c    times of waits
 *
 * Uses base, device, stash, schedule and program. All functions here are called with the lock. */
#ifndef PSTI_HOST_SCHEDULER_H
#define PSTI_HOST_SCHEDULER_H

#include <pagestash/scheduler.h>

#include <pthread.h>

#include "host/base/handle.h"
#include "host/program/program.h"
#include "host/stash/stash.h"

enum { PSTI_MAX_SIDES = 4, PSTI_MAX_COMPILED = 8, PSTI_MAX_LANES = 2, PSTI_NUM_PASS_KINDS = 4 };

typedef enum psti_scheduler_state {
    PSTI_SCHEDULER_IDLE = 0,
    PSTI_SCHEDULER_OPEN,
    PSTI_SCHEDULER_BROKEN /* only abort and destroy */
} psti_scheduler_state;

/* ---- what the caller described ---- */

typedef struct psti_scheduler_part {
    const pst_group *group;
    pst_buffers *sources;      /* fixed sets; NULL: the caller's own */
    pst_buffers *destinations; /* the same */
    pst_dirty **dirty;         /* of each destination; NULL: none */
    uint32_t uses;             /* bits, never 0 */
    bool is_glu;               /* stashed and restored by the caller's launches of a GLU */
} psti_scheduler_part;

typedef struct psti_scheduler_layer {
    uint32_t chunk, layer;
    pst_keep keep;
    bool is_taken; /* by an element of the caller's */
    uint32_t num_parts;
    psti_scheduler_part parts[PST_MAX_PARTS];
    void *buffers[2];
    uint64_t whole_bytes, token_bytes, num_tokens;
    uint64_t swap_bytes;  /* SWAPPED: that leave */
    uint64_t first_token; /* what its backwards are told */
    pst_layer_policy policy;
    pst_migrate_options demote;
    unsigned char *host_memory; /* SWAPPED: swap_stride for each slot; NULL: it never leaves */
    uint64_t swap_stride;
} psti_scheduler_layer;

/* ---- (chunk, layer, slot) ---- */

typedef struct psti_seat {
    uint32_t layer; /* index into layers */
    uint32_t slot;
    uint32_t first_ticket; /* PAGED: one for each part */
    /* the caller's own form: bits of parts whose restore waits for backward_begin; [1] of weight
     * passes */
    uint8_t deferred[2];
    uint8_t graphs; /* LAYERS: bits 1 << pst_pass_kind of what was captured */
    uint8_t
        input_pages; /* the same: 1 + what a captured BACKWARD_INPUT with a GLU was told, 0: none */
    /* LAYERS, by pst_pass_kind: of the current program, or frozen */
    uint8_t sets[PSTI_NUM_PASS_KINDS];
    bool in_place;                 /* backwards read the source, and what is restored goes there */
    struct psti_layer_memory *own; /* the same, the caller's own form; NULL: nothing captured yet */
} psti_seat;

/* Addresses of a captured layer. */
typedef struct psti_layer_memory {
    bool is_known;
    uint32_t alias;
    pst_buffers *parts[PST_MAX_PARTS];
} psti_layer_memory;

/* ---- schedules ---- */

typedef struct psti_compiled {
    pst_schedule *schedule; /* NULL: none */
    psti_program *program;
} psti_compiled;

/* ---- where a step is ---- */

/* A pass whose hooks come. Two of them in a pair. */
typedef struct psti_lane {
    uint32_t visit, end; /* next, and behind the last; equal: done */
    bool is_open;        /* between begin and end of `visit` */
    bool is_recomputing; /* within a backward, between the forward hooks of its layer */
    bool has_stream;     /* a hook of it came */
    uint8_t announced;   /* parts of the open visit */
    pst_stream stream;   /* of its last hook */
} psti_lane;

/* One call of a hook. */
typedef struct psti_hook {
    pst_visit_key key;
    pst_stream stream;
    uint32_t visit; /* of the program */
    bool is_begin;
    uint8_t announced;    /* parts that are stashed already */
    uint16_t graph_kinds; /* events of its seat that a graph waits for and records */
    uint32_t seat;
    const pst_buffers *const *sources; /* forward_end of the caller's own form */
} psti_hook;

typedef struct psti_recording psti_recording;
typedef struct psti_measures psti_measures;

struct pst_scheduler {
    psti_handle handle;
    pthread_mutex_t lock;
    pst_device *device; /* NULL without a pool */
    pst_pool *pool;
    pst_arena *arena;
    psti_hold hold;

    /* the configuration */
    uint32_t num_sources, num_destinations, ahead, num_streams, max_slots;
    uint32_t num_stages, stage;
    pst_restore_rule rule;
    pst_capture capture;
    bool one_ring, keeps_nothing, measures, is_own;
    bool recomputes;   /* some layer is RECOMPUTED */
    bool was_recorded; /* base */
    bool is_stale;     /* graphs of layers came since: programs are compiled anew */
    bool is_frozen; /* fixed sets: there are graphs of layers, so seats keep the sets they have */
    bool is_evaluating;
    bool is_marked; /* of a pair: turn[] says where the streams before it were */
    bool owns_side[PSTI_MAX_SIDES];
    pst_stash_options stash_options;
    pst_restore_options restore_options;
    pst_destination_fn destination;
    void *user;
    psti_scheduler_layer *layers; /* chunk after chunk */
    psti_program_layer *program_layers;
    uint32_t num_layers, num_chunks;
    uint32_t *layers_of; /* [num_chunks] */
    uint32_t *first_layer, *num_slots, *first_seat;
    struct psti_block_of_scheduler *blocks; /* memory that lives as long as this */

    /* owned */
    psti_seat *seats;
    uint32_t num_seats, num_tickets, num_events, next_other;
    pst_ticket *tickets;
    pst_event *events; /* [num_seats * PSTI_NUM_EVENT_KINDS]; NULL: not needed so far */
    pst_stream side[PSTI_MAX_SIDES];
    pst_event turn[2];              /* edges between the caller's streams */
    pst_event fork;                 /* where side streams begin */
    pst_event join[PSTI_MAX_SIDES]; /* where they are */
    pst_event asked;                /* record and wait at once */
    uint64_t *serial_word;          /* on the device */
    uint64_t serial;

    /* schedules: the caller's, and the same with other numbers of micro-batches */
    psti_compiled base, others[PSTI_MAX_COMPILED];
    psti_compiled now; /* one of them; next_other: where the next one goes */

    /* the step */
    psti_scheduler_state state;
    uint64_t capture_id; /* 0: not captured */
    uint64_t pass;       /* of the schedule: that of lane 0 */
    uint32_t num_lanes, num_before;
    psti_lane lanes[PSTI_MAX_LANES];
    pst_stream before[PSTI_MAX_LANES]; /* the caller's streams that what came before ran on */
    uint32_t pending[PST_MAX_SETS];    /* the caller's own form: visit whose source is in use by its
                                     * stash, PSTI_NO_VISIT: none */
    psti_recording *recording;         /* NULL: there is a schedule */

    psti_measures *measured; /* NULL: nothing is */
    pst_scheduler_stats stats;
    uint64_t pool_steps; /* of the last status that was looked at */
};

/* ---- scheduler_create.c ---- */

/* Zeroed memory that is freed with the scheduler; NULL without memory. */
void *psti_scheduler_take(pst_scheduler *self, uint64_t count, uint64_t bytes);
/* A deep copy of what a group's buffers say; NULL without memory. */
pst_buffers *psti_scheduler_copy_buffers(pst_scheduler *self, const pst_group *group,
                                         const pst_buffers *from);
/* Layers and parts of a config. */
pst_status psti_scheduler_take_layers(pst_scheduler *self, const pst_scheduler_config *config);
/* As the launches would: INVALID where the buffers cannot be used with the part's tickets. */
pst_status psti_scheduler_check_buffers(const pst_scheduler *self, const pst_group *group,
                                        const pst_buffers *buffers, bool with_counts,
                                        const char *what);
void psti_scheduler_free(pst_scheduler *self);

/* ---- scheduler_own.c ---- */

pst_status psti_scheduler_open(pst_scheduler *self, const pst_scheduler_config *config);
/* All but the tickets of a pool that failed. */
pst_status psti_scheduler_close(pst_scheduler *self);
/* Synchronous. */
pst_status psti_scheduler_write_serial(pst_scheduler *self, uint64_t serial);
/* Those of the kinds that a program names, of all seats that lack them. */
pst_status psti_scheduler_add_events(pst_scheduler *self, const uint16_t *kinds, uint16_t all);
/* Pinned memory of a swapped layer: 0 where all its visits stay in their buffers. program: NULL: not
 * known yet */
uint64_t psti_scheduler_swapped_bytes(const pst_scheduler *self, uint32_t layer,
                                      const psti_program *program);
/* Allocates what is not there yet of it, for all layers. */
pst_status psti_scheduler_add_swapped(pst_scheduler *self, const psti_program *program,
                                      bool is_captured);

/* ---- scheduler_program.c ---- */

/* Whether the tickets are enough for a schedule. Fails: INVALID. */
pst_status psti_scheduler_check_slots(const pst_scheduler *self, const pst_schedule *schedule);
pst_status psti_scheduler_copy_schedule(const pst_schedule *from, pst_schedule **copy_out);
/* Owns the schedule also where it fails. */
pst_status psti_scheduler_compile(pst_scheduler *self, pst_schedule *schedule,
                                  psti_compiled *compiled_out);
void psti_compiled_free(psti_compiled *compiled);
/* The program of a step; 0: of the schedule's own number of micro-batches. */
pst_status psti_scheduler_choose(pst_scheduler *self, uint32_t num_micro_batches, bool is_captured);
/* Takes another schedule instead of what there was. */
void psti_scheduler_adopt(pst_scheduler *self, const psti_compiled *compiled);
/* Seats keep the sets that they have: a graph reads them. */
void psti_scheduler_freeze(pst_scheduler *self);

/* ---- scheduler_cursor.c ---- */

void psti_cursor_begin_step(pst_scheduler *self, pst_stream stream);
/* The stream of a hook waits for what came before on others. */
pst_status psti_cursor_turn(pst_scheduler *self, psti_lane *lane, pst_stream stream);
/* The lane that this hook is next of. Fails: ORDER, with both visits. */
pst_status psti_cursor_find_begin(pst_scheduler *self, const pst_visit_key *key,
                                  psti_lane **lane_out);
/* The lane that this visit is open in, on this stream. what: "end" and the like. */
pst_status psti_cursor_find_open(pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                                 const char *what, psti_lane **lane_out);
/* The lane in whose backward of a RECOMPUTED layer the forward hooks of this one may come, or NULL. */
psti_lane *psti_cursor_recomputes(pst_scheduler *self, const pst_visit_key *key);
/* Behind the end of the lane's visit. */
void psti_cursor_advance(pst_scheduler *self, psti_lane *lane);
/* ORDER where visits are missing. */
pst_status psti_cursor_check_done(const pst_scheduler *self);
/* Of the two streams' events: stream waits for `other`. */
pst_status psti_scheduler_follow(pst_scheduler *self, pst_stream other, pst_stream stream);

enum { PSTI_KEY_TEXT_BYTES = 112 };
/* "backward of layer 2, micro-batch 1"; with the chunk where there are several. */
const char *psti_key_text(const pst_scheduler *self, const pst_visit_key *key,
                          char text[PSTI_KEY_TEXT_BYTES]);

/* ---- scheduler_play.c ---- */

pst_status psti_scheduler_play(pst_scheduler *self, const psti_hook *hook,
                               const psti_operation *operations, uint32_t num,
                               const psti_visit *visits);
/* Restores what the callback could not place earlier. */
pst_status psti_scheduler_restore_late(pst_scheduler *self, const psti_hook *hook,
                                       const psti_visit *visits);
pst_status psti_scheduler_record(pst_scheduler *self, pst_event event, pst_stream stream);
pst_status psti_scheduler_wait(pst_scheduler *self, pst_event event, pst_stream stream);

/* The set of a visit; where programs have aliases the seat says it. */
static inline uint8_t psti_set_of(const psti_seat *seat, const psti_visit *visit)
{
    return visit->set == PSTI_NO_SET && visit->keep == PST_KEEP_PAGED ? seat->sets[visit->kind]
                                                                      : visit->set;
}

/* The caller's own form, where other layers are graphs: which of the pending sources an eager one is. */
static inline uint32_t psti_own_source(const pst_scheduler *self, const psti_seat *seat)
{
    return (seat->layer + seat->slot) % self->num_sources;
}

static inline pst_event *psti_scheduler_event(pst_scheduler *self, uint32_t seat, uint32_t kind)
{
    return &self->events[(size_t)seat * PSTI_NUM_EVENT_KINDS + kind];
}

/* ---- scheduler_hooks.c ---- */

/* What a visit's begin tells, but for what is freed. */
void psti_scheduler_tell(const pst_scheduler *self, const psti_seat *seat, const psti_visit *visit,
                         pst_visit *visit_out);

/* ---- scheduler_layers.c ---- */

/* Whether a graph of this layer can be captured now. Fails: INVALID, ORDER. */
pst_status psti_scheduler_check_place(const pst_scheduler *self, pst_pass_kind kind, uint32_t chunk,
                                      uint32_t layer, uint32_t slot);

/* ---- scheduler_glu.c ---- */

/* Behind a forward without a backward: what its graph has stashed there, nobody will read. */
pst_status psti_scheduler_drop_glus(pst_scheduler *self, uint32_t seat, pst_stream stream);
/* Whether what captured GLUs were told holds in this schedule. Fails: INVALID. */
pst_status psti_scheduler_check_glus(const pst_scheduler *self, const pst_schedule *schedule);

/* ---- scheduler_record.c ---- */

/* The open visit of this kind and seat; NULL: none. */
const psti_visit *psti_recording_find_open(const pst_scheduler *self, pst_pass_kind kind,
                                           uint32_t seat);
pst_status psti_recording_open(pst_scheduler *self);
void psti_recording_close(pst_scheduler *self);
void psti_recording_begin_step(pst_scheduler *self, pst_stream stream);
/* stream waits for the visits that have not ended. */
pst_status psti_recording_join(pst_scheduler *self, pst_stream stream);
pst_status psti_recording_begin(pst_scheduler *self, const pst_visit_key *key, pst_stream stream,
                                pst_visit *visit_out);
pst_status psti_recording_part(pst_scheduler *self, const pst_visit_key *key, uint32_t part,
                               const pst_buffers *source, pst_stream stream);
pst_status psti_recording_end(pst_scheduler *self, const pst_visit_key *key,
                              const pst_buffers *const *sources, pst_stream stream);
/* What an aborted step had recorded. */
void psti_recording_forget(pst_scheduler *self);
/* The recorded order is the schedule from now on. */
pst_status psti_recording_end_step(pst_scheduler *self, pst_stream stream);

/* ---- scheduler_measure.c ---- */

pst_status psti_measures_open(pst_scheduler *self);
void psti_measures_close(pst_scheduler *self);
pst_status psti_measures_begin_step(pst_scheduler *self);
/* Around what a begin hook enqueues. is_timed_out: whether there is something to end. */
pst_status psti_measures_begin(pst_scheduler *self, const psti_hook *hook,
                               const psti_operation *operations, uint32_t num, bool *is_timed_out);
pst_status psti_measures_end(pst_scheduler *self, pst_stream stream);
pst_status psti_measures_end_step(pst_scheduler *self, pst_stream stream);
void psti_measures_abort(pst_scheduler *self);
/* The times of a step that has run. */
pst_status psti_measures_collect(pst_scheduler *self);

/* ---- scheduler_stats.c ---- */

/* Looks at what the pool published last. */
void psti_scheduler_look(pst_scheduler *self);

#endif
