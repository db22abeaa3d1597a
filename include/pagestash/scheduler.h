/* The scheduler: it decides for every visit of a layer when and on which stream what the layer keeps
 * is stashed, restored, moved to the host or back, and enqueues it. The program calls a hook before
 * and after the part of a layer's forward and backward that writes and reads what is kept.
 *
 *   pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
 *   config.pool = pool; config.schedule = schedule; config.layers = layers; ...
 *   pst_scheduler_create(&config, &scheduler);
 *   for each step:
 *     pst_scheduler_step_begin(scheduler, NULL, stream);
 *     for each pass of the schedule, for each of its layers:
 *       pst_scheduler_forward_begin(scheduler, chunk, layer, micro_batch, stream, &visit);
 *         ... the layer's kernels write the tensors of set visit.set ...
 *       pst_scheduler_forward_end(scheduler, chunk, layer, micro_batch, NULL, stream);
 *     or
 *       pst_scheduler_backward_begin(scheduler, PST_PASS_BACKWARD, chunk, layer, micro_batch, stream, &visit);
 *         ... they read set visit.set: of the sources if visit.in_place, else of the destinations ...
 *       pst_scheduler_backward_end(scheduler, PST_PASS_BACKWARD, chunk, layer, micro_batch, stream);
 *     pst_scheduler_step_end(scheduler, stream);
 *
 * Words: a *visit* is one layer of one pass. A *slot* stands for the micro-batches whose lifetimes do
 * not overlap; tickets and graphs of layers belong to (chunk, layer, slot). A *source* is what a
 * forward writes and a stash reads, a *destination* what a restore writes and a backward reads. A visit
 * is *kept in place* if nobody else needs its source before its backward: it is not stashed.
 *
 * Addresses come in one of two forms, over the same compiled order of operations:
 *   fixed sets   each part of a layer names num_sources sources and num_destinations destinations at
 *                creation; pst_visit.set says which one a visit uses
 *   caller's own part->sources is NULL. forward_part and forward_end take the addresses of the sources,
 *                which the caller allocates and keeps until a hook lists the visit as freed. At most
 *                num_sources wait for their stash to end: the stream of a forward_begin waits as it
 *                would for a fixed set. A hook that restores asks `destination` for addresses; the
 *                restore waits for what was enqueued on the hook's stream until then, so memory of
 *                that stream may be handed out.
 *
 * Gated activations. A part whose group has a tensor that is written by a GLU (pst_tensor.written_by)
 * is stashed by pst_glu_forward and restored by pst_glu_backward, which the caller launches on the
 * hook's stream, with the ticket of pst_scheduler_get_ticket. The scheduler neither stashes nor
 * restores such a part and has no destination for it; where its pages are on the host, they are
 * promoted ahead of the backward, as others are restored. The pool has to be concurrent.
 *
 * Capture (config.capture). With ITERATION a whole step is enqueued into one capture, or none of it.
 * With LAYERS the hooks are called outside graphs, every step; graphs of single layers are captured
 * once (pst_scheduler_layer_capture_begin) and launched between the hooks.
 *
 * Without a schedule the first training step is recorded: everything is stashed, and restored in
 * backward_begin; from its step_end on the recorded order is the schedule. Where a kind of the
 * library's makes the same list, other numbers of micro-batches need no recording; which one it is can
 * be said for sure only by who knows the pipeline (num_stages, stage), else 1F1B is recognised, and
 * only where a forward follows a backward.
 *
 * Errors. A hook that is not the schedule's next is PST_E_ORDER, enqueues nothing, and breaks the step, as
 * CUDA and INVALID do: all hooks then answer ORDER until pst_scheduler_abort. What only the device
 * knows (pages that ran out, a count out of range) is a fault of the pool, and hooks go on.
 *
 * Threads: hooks of one scheduler may come from any thread, one at a time; a lock makes two at once an
 * order of the two. get_stats: any thread.
 *
 * Streams: a handle must mean one stream in all threads that call hooks, so cudaStreamPerThread will
 * not do. A step's begin and hooks come on streams that are behind the step before.
 */
#ifndef PAGESTASH_SCHEDULER_H
#define PAGESTASH_SCHEDULER_H

#include <pagestash/arena.h>
#include <pagestash/keep.h>
#include <pagestash/schedule.h>
#include <pagestash/ticket.h>

#define PST_MAX_PARTS 4 /* of a layer */
#define PST_MAX_SETS 8  /* sources, destinations */

typedef struct pst_scheduler pst_scheduler; /* made by pst_scheduler_create */

/* Passes that read a part: bits. In a schedule without weight passes both are the backward. */
#define PST_USE_BACKWARD 1u /* BACKWARD, or BACKWARD_INPUT */
#define PST_USE_WEIGHT 2u   /* BACKWARD_WEIGHT */

/* Tensors of a PAGED layer that are stashed together, into a ticket of their own. Zero it first. */
typedef struct pst_part {
    const pst_group *group; /* only its description is needed while the part is in use */
    /* num_sources of them, copied with the arrays they point to; NULL: the caller's own, and then of
     * all parts of all layers */
    const pst_buffers *const *sources;
    /* num_destinations, of other memory; of a part that a GLU writes NULL, and no dirty words */
    const pst_buffers *const *destinations;
    pst_dirty *const *dirty; /* num_destinations; NULL: none (pst_restore_options.dirty) */
    uint32_t uses;           /* 0: both */
    uint32_t padding;        /* 0 */
} pst_part;

/* Zero it first. */
typedef struct pst_layer {
    uint32_t chunk, layer; /* layer 0.. within the chunk; every one exactly once */
    pst_keep keep;         /* what becomes of what it keeps */
    uint32_t num_parts;    /* PAGED: 1 to PST_MAX_PARTS */
    const pst_part *parts; /* num_parts of them; NULL if not PAGED */
    /* SWAPPED, MEMO's rounding buffers: the first whole_bytes of a buffer go whole, behind them lie
     * num_tokens rows of token_bytes each, of which policy.swap_tokens go. */
    void *buffers[2];
    uint64_t whole_bytes, token_bytes, num_tokens; /* SWAPPED: of the buffers; else 0 */
    pst_layer_policy policy;                       /* shares and tokens */
} pst_layer;

/* What is captured into graphs. */
typedef enum pst_capture {
    PST_CAPTURE_ITERATION = 0, /* whole steps, or nothing */
    PST_CAPTURE_LAYERS = 1     /* single layers; the hooks stay outside */
} pst_capture;

/* Which restores come when. */
typedef enum pst_restore_rule {
    PST_RESTORE_ASAP = 0, /* as soon as a destination is free */
    /* One visit ahead, behind the visit before it, one stream: what Megatron-LM's paged stash does;
     * for comparison */
    PST_RESTORE_NEXT = 1
} pst_restore_rule;

/* Which visit: one layer of one pass. */
typedef struct pst_visit_key {
    pst_pass_kind kind;                 /* of the pass */
    uint32_t chunk, layer, micro_batch; /* all from 0; layer within the chunk */
} pst_visit_key;

/* The caller's own form: where to restore `part` of the visit to. The arrays that destination_out
 * points to are read before the hook returns. stream: the hook's. Anything but PST_OK defers the restore
 * to the visit's backward_begin; there it is the hook's answer, and breaks the step. Runs under the
 * scheduler's lock: it must not call the scheduler. */
typedef pst_status (*pst_destination_fn)(void *user, const pst_visit_key *visit, uint32_t part,
                                         pst_stream stream, pst_buffers *destination_out);

/* The layers, what restores may be ahead by, and how work is launched. */
typedef struct pst_scheduler_config {
    size_t struct_size;
    pst_pool *pool;               /* NULL: no layer is PAGED or SWAPPED */
    pst_arena *arena;             /* may be NULL; step_begin of training begins its iteration. In
                                   * captured steps with streams_joined, else it may synchronise */
    const pst_schedule *schedule; /* copied; NULL: record the first step */
    const pst_layer *layers;      /* of all chunks, in any order; copied */
    uint32_t num_layers;          /* at least 1 */
    uint32_t layer_bytes;         /* sizeof(pst_layer), set by _INIT */
    uint32_t part_bytes;          /* sizeof(pst_part), set by _INIT */
    /* While recording: the pipeline that the order is one of, so that it is recognised and serves
     * other numbers of micro-batches; num_stages 0: unknown, see above */
    uint32_t num_stages, stage;
    uint32_t num_sources, num_destinations; /* 1 to PST_MAX_SETS; 0: 2, of one ring none */
    /* sources and destinations are the same num_sources sets: restores go into sources,
     * num_destinations is 0 and parts name no destinations. ITERATION, schedules without pairs */
    bool one_ring;
    bool keeps_nothing; /* for comparison: every visit is stashed */
    /* timed events around the waits: exposed times in the statistics; not in captured steps, the
     * recorded one, nor of waits inside graphs of layers */
    bool measures;
    uint8_t padding; /* 0 */
    /* restores that may be issued and not begun; 0: num_destinations, of one ring all its sets */
    uint32_t ahead;
    pst_restore_rule rule; /* default: ASAP */
    uint32_t max_slots;    /* per chunk; 0: what the schedule wants; while recording 8 */
    pst_capture capture;   /* default: ITERATION */
    /* 1, 2 or 4; 0: 1 in ordered pools, 2 in concurrent ones. An ordered pool has 1 */
    uint32_t num_streams;
    pst_stream streams[4]; /* stash, restore, to host, from host; NULL: the scheduler's own */
    pst_launch_options launch[2];   /* of stash and restore */
    pst_restore_tail tail;          /* of restores */
    pst_restore_failed failed;      /* of restores */
    pst_destination_fn destination; /* the caller's own form: needed there */
    void *user;                     /* first argument of destination */
} pst_scheduler_config;

#define PST_SCHEDULER_CONFIG_INIT \
    PST_INIT_2(pst_scheduler_config, layer_bytes, pst_layer, part_bytes, pst_part)

/* What the caller has to know for this visit. */
typedef struct pst_visit {
    uint32_t slot; /* of the micro-batch in its chunk */
    uint32_t set;  /* fixed sets: to write (forward) or read (backward); else UINT32_MAX */
    /* forward: the source stays as it is until the visit's backward; backward: read the forward's
     * source, not a destination */
    bool in_place;
    /* false in forward-only steps, and where a layer is computed again: nothing is kept */
    bool is_live;
    /* an input backward: its destination stays for the weight pass; a weight pass: it reads that
     * one */
    bool is_held;
    uint8_t padding; /* 0 */
    /* caller's own: sources that are no longer needed once the hook's stream has come here */
    uint32_t num_freed;
    /* recompute tokens [first_token, num_tokens) before the backward; UINT64_MAX: none */
    uint64_t first_token;
    pst_visit_key freed[PST_MAX_SETS]; /* kind FORWARD */
} pst_visit;

/* A step. NULL: training, the schedule's number of micro-batches. */
typedef struct pst_step_options {
    size_t struct_size;
    uint32_t num_micro_batches; /* 0: the schedule's; while recording not looked at */
    bool forward_only;          /* evaluation: no schedule, no ticket, no pool */
    uint8_t padding[3];         /* 0 */
} pst_step_options;

#define PST_STEP_OPTIONS_INIT PST_INIT(pst_step_options)

/* Figures since the scheduler was made. */
typedef struct pst_scheduler_stats {
    uint64_t steps, aborted_steps,
        lost_steps;  /* ended well; aborted; ended with step_valid 0, as far
                                                * as the mailbox has told */
    uint64_t visits; /* forward visits of training steps; of these: */
    /* visits, by what became of them */
    uint64_t kept_in_place, stashed, swapped, recomputed, planned;
    uint64_t restores, deferred_restores, demotes, promotes, waits, records; /* enqueued */
    uint64_t program_bytes;                           /* host memory of the compiled order */
    uint64_t conflicts;                               /* LAYERS: neighbours that share a set */
    uint64_t num_tickets, num_slots, num_events;      /* that the scheduler has */
    uint64_t measured_steps;                          /* config.measures; sums over them: */
    uint64_t exposed_forward_ns, exposed_backward_ns; /* waits of the hooks' stream for copies */
    uint64_t worst_ns;                                /* the longest wait of one visit, and whose */
    pst_visit_key worst;                              /* all 0: no wait was measured */
} pst_scheduler_stats;

/* LAYERS, caller's own: the addresses of a captured layer, for good. Once there are any, sources of layers
 * that are not captured are freed by step_end alone. */
typedef struct pst_layer_buffers {
    size_t struct_size;
    uint32_t alias;   /* any number of the caller's; equal ones are one set of memory */
    uint32_t padding; /* 0 */
    const pst_buffers *const *buffers; /* num_parts of the layer; copied */
} pst_layer_buffers;

#define PST_LAYER_BUFFERS_INIT PST_INIT(pst_layer_buffers)

PST_BEGIN_DECLS

/* What create will take, beside the pool: tickets and events on the device, swapped bytes and the
 * compiled order on the host. Fails: as create. */
PST_API pst_status pst_scheduler_bytes(const pst_scheduler_config *config,
                                       uint64_t *device_bytes_out, uint64_t *host_bytes_out);

/* Makes a scheduler with its tickets, events, streams and pinned memory.
 * Owns: those. Pool, arena, groups, dirty words and buffers are the caller's and outlive it.
 * Synchronous; not while capturing.
 * Fails: INVALID (layer and field; more tickets than the pool's max_tickets, with both numbers; DEMOTE
 * in an ordered pool or with one stream; a host share without host pages; a part that a GLU writes, in
 * an ordered pool), NOMEM, DEVICE_NOMEM, CAPTURE, CUDA. */
PST_API pst_status pst_scheduler_create(const pst_scheduler_config *config,
                                        pst_scheduler **scheduler_out);
/* NULL is allowed. Fails: BUSY (a step is open and not broken; captured graphs hold it; with counts),
 * CUDA, DAMAGED (a ticket of its own, as pst_ticket_destroy; after both it is destroyed all the same). */
PST_API pst_status pst_scheduler_destroy(pst_scheduler *scheduler);

/* Opens a step. Side streams continue where `stream` is.
 * Fails: INVALID (another number of micro-batches than a list or recording has), ORDER (a step is
 * open), CAPTURE (also: with this number a swapped layer leaves that never did; one such step outside
 * captures gives it pinned memory), NOMEM, CUDA. */
PST_API pst_status pst_scheduler_step_begin(pst_scheduler *scheduler,
                                            const pst_step_options *options, pst_stream stream);
/* Closes it: `stream` waits for all side streams, then pst_pool_step. Every source is freed.
 * Fails: ORDER (visits are missing: names the first), CAPTURE (begun outside this capture), NOMEM, CUDA. */
PST_API pst_status pst_scheduler_step_end(pst_scheduler *scheduler, pst_stream stream);
/* From any state: `stream` waits for the side streams, pages and faults of the pool are reset (other
 * users of the pool lose theirs), and the next step_begin starts anew.
 * Fails: CAPTURE (end the capture first), CUDA. */
PST_API pst_status pst_scheduler_abort(pst_scheduler *scheduler, pst_stream stream);

/* The hooks. Stream: the one that runs the layer; of a visit's begin and end the same. Enqueue waits,
 * records and launches; no allocation (but while recording), no synchronisation. Fails: ORDER (names
 * both visits), INVALID (buffers), CAPTURE, CUDA, while recording NOMEM. */
PST_API pst_status pst_scheduler_forward_begin(pst_scheduler *scheduler, uint32_t chunk,
                                               uint32_t layer, uint32_t micro_batch,
                                               pst_stream stream, pst_visit *visit_out);
/* Part `part` is complete: its stash starts now. Parts that are not announced are stashed by
 * forward_end. source: NULL with fixed sets. ORDER where the layer runs as a graph, which records itself
 * when all of it is there; INVALID for a part that a GLU writes. */
PST_API pst_status pst_scheduler_forward_part(pst_scheduler *scheduler, uint32_t chunk,
                                              uint32_t layer, uint32_t micro_batch, uint32_t part,
                                              const pst_buffers *source, pst_stream stream);
/* sources: NULL with fixed sets, or when the visit is kept in place or not live; else num_parts of the
 * layer, of which those announced and those that a GLU writes are not looked at. */
PST_API pst_status pst_scheduler_forward_end(pst_scheduler *scheduler, uint32_t chunk,
                                             uint32_t layer, uint32_t micro_batch,
                                             const pst_buffers *const *sources, pst_stream stream);
PST_API pst_status pst_scheduler_backward_begin(pst_scheduler *scheduler, pst_pass_kind kind,
                                                uint32_t chunk, uint32_t layer,
                                                uint32_t micro_batch, pst_stream stream,
                                                pst_visit *visit_out);
PST_API pst_status pst_scheduler_backward_end(pst_scheduler *scheduler, pst_pass_kind kind,
                                              uint32_t chunk, uint32_t layer, uint32_t micro_batch,
                                              pst_stream stream);

/* Between begin and end of a visit, or of a layer's capture: the ticket of a part that a GLU writes,
 * for pst_glu_forward and _backward on that stream.
 * slot:       what visit_out->slot said.
 * ticket_out: id 0 where nothing is in pages: a visit in place (the input is read where the forward
 *             had it), one that is not live, and in evaluation.
 * pages_out:  of a backward: PST_RESTORE_KEEP where the weight pass reads the part once more, else
 *             CONSUME. Who keeps there all the same releases the ticket on that stream before the end
 *             of the visit: else the slot's next stash is PST_FAULT_LIVE.
 * Of a BACKWARD_INPUT in a layer's capture, CONSUME where the schedule has no weight pass for the slot;
 * a schedule that has it for some and not for others is refused, then and later, since a graph does the
 * same at each launch. Forwards in evaluation, and of a forward-only schedule, whose graph was captured
 * stash all the same: forward_end frees that.
 * No device call; what it answers breaks no step. pre: without an open step, that the layer's capture is
 * open. Fails: INVALID (no such part, or no GLU writes it; a pass that does not read it; no step is open
 * and graphs are not of layers), ORDER (no such visit is open). */
PST_API pst_status pst_scheduler_get_ticket(pst_scheduler *scheduler, pst_pass_kind kind,
                                            uint32_t chunk, uint32_t layer, uint32_t slot,
                                            uint32_t part, pst_ticket *ticket_out,
                                            pst_restore_pages *pages_out);

/* LAYERS: inside the capture of one layer's graph, around what the hooks are around. Adds one external
 * wait and one external record. Once end was called, the hooks of the visits of this (kind, chunk,
 * layer, slot) leave these to the graph, which is launched between them. Not while a step is open, and
 * not before a recorded step has ended.
 * With fixed sets, all (chunk, layer, slot) keep from the first capture on the sets that they have, and
 * visit_out->in_place says for good where a backward reads: with other numbers of micro-batches what
 * cannot stay in the source is restored into it. A layer with a part that a GLU writes never stays
 * in place here: the stash is in its graph.
 * own: NULL with fixed sets; the same alias for all backwards of a slot, whose buffers of a part that a
 * GLU writes are not looked at. Fails: INVALID, CAPTURE (not
 * captured), ORDER, NOMEM, CUDA. */
PST_API pst_status pst_scheduler_layer_capture_begin(pst_scheduler *scheduler, pst_pass_kind kind,
                                                     uint32_t chunk, uint32_t layer, uint32_t slot,
                                                     const pst_layer_buffers *own,
                                                     pst_stream stream, pst_visit *visit_out);
PST_API pst_status pst_scheduler_layer_capture_end(pst_scheduler *scheduler, pst_pass_kind kind,
                                                   uint32_t chunk, uint32_t layer, uint32_t slot,
                                                   pst_stream stream);

/* Another schedule over the same layers, between steps. Graphs of whole steps that were captured
 * before become PST_FAULT_SCHEDULE when they are launched; graphs of layers stay right. Synchronous.
 * Fails: INVALID (more slots than there are: chunk, needed, allowed; a captured SWAPPED layer would get
 * another buffer), BUSY (a step is open), CAPTURE (this thread captures), NOMEM, CUDA; then the
 * scheduler is as before. */
PST_API pst_status pst_scheduler_set_schedule(pst_scheduler *scheduler,
                                              const pst_schedule *schedule);
/* The recorded or recognised schedule; passes is NULL. Fails: AGAIN (none yet). */
PST_API pst_status pst_scheduler_get_schedule_sized(const pst_scheduler *scheduler,
                                                    pst_schedule_config *config_out,
                                                    size_t config_bytes);
static inline pst_status pst_scheduler_get_schedule(const pst_scheduler *scheduler,
                                                    pst_schedule_config *config_out)
{
    return pst_scheduler_get_schedule_sized(scheduler, config_out, sizeof(pst_schedule_config));
}
/* Figures up to now; with `measures` of the steps that have run. Threads: any, with `measures` not one
 * that is capturing. */
PST_API pst_status pst_scheduler_get_stats_sized(pst_scheduler *scheduler,
                                                 pst_scheduler_stats *stats_out,
                                                 size_t stats_bytes);
static inline pst_status pst_scheduler_get_stats(pst_scheduler *scheduler,
                                                 pst_scheduler_stats *stats_out)
{
    return pst_scheduler_get_stats_sized(scheduler, stats_out, sizeof(pst_scheduler_stats));
}
/* Equal on all ranks that run the same schedule over the same layers with the same policy: compare it
 * before the first step. Fails: AGAIN (no schedule yet). */
PST_API pst_status pst_scheduler_get_digest(const pst_scheduler *scheduler, uint64_t *digest_out);

PST_END_DECLS

#endif
