/* Schedules of a pipeline as data: in which order one GPU runs its passes.
 *
 *   pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;   kind, stages, micro-batches, or a list
 *   pst_schedule_create(&config, &schedule);
 *   pst_schedule_get_info(schedule, &info);
 *
 * A pass is the forward or the backward of one chunk (virtual stage of this GPU) for one micro-batch.
 * A backward is whole, or split into what the stage before waits for (INPUT) and what only the
 * optimizer waits for (WEIGHT). A chunk and a micro-batch live from their forward to the end of their
 * last backward.
 *
 * A slot is the index of what a (chunk, micro-batch) keeps while it lives: micro-batches of a chunk
 * that do not live at the same time share one.
 *
 * Pure: no device, clock or files. A schedule never changes. Threads: any; destroy must not race with
 * another use. pst_pass is frozen.
 */
#ifndef PAGESTASH_SCHEDULE_H
#define PAGESTASH_SCHEDULE_H

#include <pagestash/status.h>

#define PST_SCHEDULE_MAX_MICRO_BATCHES (1u << 20)   /* of a schedule */
#define PST_SCHEDULE_MAX_PASSES (UINT64_C(1) << 32) /* of a schedule */
#define PST_SCHEDULE_NO_SLOT UINT32_MAX             /* of pst_schedule_slot */

typedef struct pst_schedule pst_schedule; /* immutable; made by pst_schedule_create */

/* What a pass computes. */
typedef enum pst_pass_kind {
    PST_PASS_FORWARD = 0,        /* the output */
    PST_PASS_BACKWARD = 1,       /* all of it */
    PST_PASS_BACKWARD_INPUT = 2, /* the gradient of the input alone */
    PST_PASS_BACKWARD_WEIGHT = 3 /* the gradients of the weights, behind the above */
} pst_pass_kind;

/* One chunk's forward or backward of one micro-batch. */
typedef struct pst_pass {
    uint32_t micro_batch, chunk; /* from 0 */
    pst_pass_kind kind;          /* what it computes */
    /* starts together with the next pass, and their layers interleave: one is a forward, one a
     * backward, of two different (chunk, micro-batch); the next one is not the first of a pair */
    bool pairs;
    uint8_t padding[3]; /* 0 */
} pst_pass;

/* What a schedule's list is, with p = num_stages, m = num_micro_batches, v = num_chunks. The lists are
 * those of docs/scheduler.md. */
typedef enum pst_schedule_kind {
    PST_SCHEDULE_1F1B = 0, /* one forward, one backward (PipeDream-Flush, arXiv:2006.09503) */
    /* v at least 2; p <= group <= m, and the last group of micro-batches is whole or has at least
     * p */
    PST_SCHEDULE_INTERLEAVED = 1,
    PST_SCHEDULE_GPIPE = 2,          /* all forwards, then all backwards */
    PST_SCHEDULE_GPIPE_REVERSED = 3, /* the same, backwards from the last to the first */
    PST_SCHEDULE_ZB_H1 = 4,          /* Zero Bubble Pipeline Parallelism (ICLR 2024) */
    PST_SCHEDULE_ZB_H2 = 5,          /* the same, about twice as many in flight */
    PST_SCHEDULE_ZB_V = 6, /* v = 2: chunk 0 is virtual stage `stage`, chunk 1 2p - 1 - stage */
    /* v = 2: chunk 1 runs from the last GPU to the first; p and m even, m at least 2p */
    PST_SCHEDULE_DUALPIPE = 7,
    PST_SCHEDULE_DUALPIPE_V = 8, /* v = 2, as ZB_V; m at least 2p */
    PST_SCHEDULE_LIST = 9        /* passes of the caller's */
} pst_schedule_kind;

/* What a kind has no use for is 0; else INVALID. */
typedef struct pst_schedule_config {
    size_t struct_size;
    pst_schedule_kind kind; /* default: 1F1B */
    /* GPUs of the pipeline, up to 2^20, and which, from 0; num_stages 0: 1 */
    uint32_t num_stages, stage;
    /* of this GPU; 0: 1, and 2 for INTERLEAVED, ZB_V and both DualPipes; LIST: as many as the list
     * has */
    uint32_t num_chunks;
    /* 1 to 2^20; DUALPIPE: of both directions together, each chunk has half of them. LIST: 0, or
     * the most that a chunk has */
    uint32_t num_micro_batches;
    uint32_t group;         /* INTERLEAVED: micro-batches that a chunk runs before the next; 0: p */
    bool overlaps_exchange; /* INTERLEAVED: one more forward before the first backward */
    uint8_t padding[3];     /* 0 */
    uint32_t limit;         /* ZB_V: most micro-batches in flight; 0: p */
    const pst_pass *passes; /* LIST; copied */
    uint64_t num_passes;    /* LIST: 1 to 2^32 */
} pst_schedule_config;

#define PST_SCHEDULE_CONFIG_INIT PST_INIT(pst_schedule_config)

/* Config stands last, since it can grow itself; new figures take reserved words, which are 0 until
 * then. */
typedef struct pst_schedule_info {
    uint64_t num_passes; /* of the list */
    /* most (chunk, micro-batch) that live at once, in a pair those of both passes; 0: none has a
     * backward */
    uint32_t peak;
    uint32_t peak_at;     /* the first pass, from 0, after which so many live */
    bool is_fifo;         /* in each chunk what began to live first ends first */
    bool is_lifo;         /* in each chunk what began to live last ends first */
    bool splits_backward; /* it has passes BACKWARD_INPUT */
    bool is_forward_only; /* it has no backward */
    uint8_t padding[4];   /* 0 */
    uint64_t digest;      /* of what all stages share: all of config but `stage` and the passes */
    uint64_t reserved[4]; /* 0 */
    pst_schedule_config config; /* zeros replaced by what they stand for; passes NULL */
} pst_schedule_info;

PST_BEGIN_DECLS

/* Makes the list of the kind, or checks and copies the caller's.
 * A list must hold, in each chunk, the forwards of micro-batches 0, 1, ... in any order, without a gap,
 * and each once; for each either BACKWARD, or BACKWARD_INPUT with or without a BACKWARD_WEIGHT behind
 * it; or no backward in the whole list (forward only).
 * Time and memory follow num_passes; of ZB_V, time follows num_passes * num_stages.
 * Fails: INVALID (the message has the pass's number, from 0, and the passes in words), NOMEM. */
PST_API pst_status pst_schedule_create(const pst_schedule_config *config,
                                       pst_schedule **schedule_out);
PST_API void pst_schedule_destroy(pst_schedule *schedule); /* NULL is allowed */

/* Fails: INVALID. */
PST_API pst_status pst_schedule_get_info_sized(const pst_schedule *schedule,
                                               pst_schedule_info *info_out, size_t info_bytes);
static inline pst_status pst_schedule_get_info(const pst_schedule *schedule,
                                               pst_schedule_info *info_out)
{
    return pst_schedule_get_info_sized(schedule, info_out, sizeof(pst_schedule_info));
}

/* Pass n, from 0. Fails: INVALID. */
PST_API pst_status pst_schedule_get_pass(const pst_schedule *schedule, uint64_t n,
                                         pst_pass *pass_out);

/* Number of slots of a chunk: the most of its micro-batches that live at once. Fails: INVALID. */
PST_API pst_status pst_schedule_get_slots(const pst_schedule *schedule, uint32_t chunk,
                                          uint32_t *num_slots_out);

/* The slot of a micro-batch: the least that is free when its forward begins, but micro_batch modulo
 * the number of slots in the library's own kinds, other than GPIPE_REVERSED: a slot then is right for
 * every number of micro-batches that needs as many slots.
 * PST_SCHEDULE_NO_SLOT: no such micro-batch, no schedule, or it is forward only. */
PST_API uint32_t pst_schedule_slot(const pst_schedule *schedule, uint32_t chunk,
                                   uint32_t micro_batch);

/* The library's kind whose list is exactly this one, with all that makes it; where several kinds have
 * the same list, the first of the enum. So a recorded order serves other numbers of micro-batches.
 * num_stages 0: 1.
 * Fails: AGAIN (no kind has this list), INVALID (it is no schedule; stage), NOMEM. */
PST_API pst_status pst_schedule_recognise_sized(const pst_pass *passes, uint64_t num_passes,
                                                uint32_t num_stages, uint32_t stage,
                                                pst_schedule_config *config_out,
                                                size_t config_bytes);
static inline pst_status pst_schedule_recognise(const pst_pass *passes, uint64_t num_passes,
                                                uint32_t num_stages, uint32_t stage,
                                                pst_schedule_config *config_out)
{
    return pst_schedule_recognise_sized(passes, num_passes, num_stages, stage, config_out,
                                        sizeof(pst_schedule_config));
}

PST_END_DECLS

#endif
