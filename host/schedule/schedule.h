/* Schedules as data: the passes of one GPU of a pipeline, and what is known of them.
 *
 * Room schedule: pure, uses base alone. Used by program, scheduler, simulate and policy, which read a
 * pst_schedule here without asking; by trace and estimate, which walk pipeline.h in constant memory;
 * by the command, which reads and writes lists (schedule_file.h).
 *
 *   pipeline.c      the order of 1F1B, INTERLEAVED and both GPIPEs; lists are made from it
 *   schedule_kinds.c, schedule_zb.c, schedule_dual.c   from a config to a list
 *   schedule_index.c   checks a list, and finds the three passes of each (chunk, micro-batch)
 *   schedule_slots.c   peak, order, slots
 *   schedule_recognise.c   from a list back to a config
 *   schedule_file.c, schedule_integers.c   lists of all ranks as text
 */
#ifndef PSTI_HOST_SCHEDULE_H
#define PSTI_HOST_SCHEDULE_H

#include <pagestash/schedule.h>

#include "host/base/base.h"
#include "host/base/handle.h"

/* What a (chunk, micro-batch) does: numbers of passes. The backwards are 0 in a forward-only
 * schedule. */
typedef struct psti_life {
    uint32_t forward;
    uint32_t first_backward; /* the whole, or of the input */
    uint32_t last_backward;  /* the same, or of the weights */
    uint32_t slot;           /* PST_SCHEDULE_NO_SLOT: forward only */
} psti_life;

typedef struct psti_schedule_chunk {
    psti_life *lives; /* of micro-batch 0, 1, ... */
    uint32_t num_micro_batches;
    uint32_t num_slots; /* 0: forward only */
} psti_schedule_chunk;

/* Immutable. */
struct pst_schedule {
    psti_handle handle;
    pst_schedule_config config; /* as in info */
    pst_schedule_info info;
    pst_pass *passes;
    uint64_t num_passes;
    psti_schedule_chunk *chunks;
    uint32_t num_chunks;
    bool splits_backward, is_forward_only;
    psti_life *lives; /* of all chunks, one after the other */
    uint64_t num_lives;
};

/* pre: there is such a chunk and micro-batch. */
static inline const psti_life *psti_schedule_life(const pst_schedule *schedule, uint32_t chunk,
                                                  uint32_t micro_batch)
{
    return &schedule->chunks[chunk].lives[micro_batch];
}

/* "forward", "backward", "input backward", "weight backward". */
const char *psti_pass_kind_name(pst_pass_kind kind);

enum { PSTI_SCHEDULE_MAX_STAGES = 1 << 20 };

enum { PSTI_PASS_TEXT_BYTES = 80 };
/* "forward of chunk 0, micro-batch 4"; returns text. */
const char *psti_pass_text(const pst_pass *pass, char text[PSTI_PASS_TEXT_BYTES]);

/* ---- schedule_kinds.c ---- */

enum { PSTI_REFUSAL_BYTES = 256 };
/* Replaces zeros by what they stand for. False: the kind does not have such a schedule; why, unless
 * NULL, says what is allowed. Of LIST the passes are not looked at. */
bool psti_schedule_resolve(pst_schedule_config *config, char *why);

/* Of a resolved config other than LIST. */
uint64_t psti_schedule_count(const pst_schedule_config *config);

/* Where generators put their passes. */
typedef struct psti_pass_list {
    pst_pass *passes;
    uint64_t num, room; /* what is beyond room is counted and not written */
} psti_pass_list;

static inline void psti_pass_put(psti_pass_list *list, pst_pass_kind kind, uint32_t chunk,
                                 uint64_t micro_batch)
{
    if (list->num < list->room)
        list->passes[list->num] =
            (pst_pass){.micro_batch = (uint32_t)micro_batch, .chunk = chunk, .kind = kind};
    list->num++;
}

/* The list of a resolved config other than LIST. Fails: NOMEM. */
pst_status psti_schedule_generate(const pst_schedule_config *config, psti_pass_list *list);

/* schedule_zb.c, schedule_dual.c: the same of single kinds. */
void psti_schedule_zb_h(const pst_schedule_config *config, psti_pass_list *list);
pst_status psti_schedule_zb_v(const pst_schedule_config *config, psti_pass_list *list);
void psti_schedule_dualpipe(const pst_schedule_config *config, psti_pass_list *list);
uint64_t psti_schedule_dualpipe_count(const pst_schedule_config *config);

/* ---- schedule_index.c ---- */

/* Checks the passes, and makes chunks and lives. Fails: INVALID, NOMEM. */
pst_status psti_schedule_index(pst_schedule *self);

/* ---- schedule_slots.c ---- */

/* Peak, order and slots. Fails: NOMEM. */
pst_status psti_schedule_color(pst_schedule *self);

#endif
