/* Lists of passes of all ranks as text: rows with commas, and Megatron-LM's signed integers. Both are
 * described in docs/formats.md. Used by the command. */
#ifndef PSTI_HOST_SCHEDULE_FILE_H
#define PSTI_HOST_SCHEDULE_FILE_H

#include <pagestash/plan_file.h>

#include "host/base/lines.h"
#include "host/schedule/schedule.h"

/* One of the lists: passes first .. first + num_passes - 1. */
typedef struct psti_rank_list {
    uint64_t first, num_passes;
    uint64_t line; /* of its first pass, from 1; 0: not from a file */
} psti_rank_list;

/* All zero: none. To be given to psti_schedule_lists_free. */
typedef struct psti_schedule_lists {
    pst_pass *passes; /* of all ranks, one after the other */
    psti_rank_list *ranks;
    uint64_t num_passes, num_ranks;
    uint64_t room, ranks_room;
} psti_schedule_lists;

/* Each line by itself is checked; whether a list is a schedule is left to psti_schedule_of_rank.
 * After a failure *lists_out is none. Fails: INVALID (the message begins with NAME:LINE:), NOMEM. */
pst_status psti_schedule_read_list(const char *name, pst_trace_read_fn read, void *source,
                                   psti_schedule_lists *lists_out);
pst_status psti_schedule_read_megatron(const char *name, pst_trace_read_fn read, void *source,
                                       psti_schedule_lists *lists_out);
void psti_schedule_lists_free(psti_schedule_lists *lists);

/* The list of a rank as a schedule of kind LIST, with num_ranks stages. name: of the file.
 * Fails: INVALID (the message begins with NAME:LINE: rank), NOMEM. */
pst_status psti_schedule_of_rank(const psti_schedule_lists *lists, const char *name, uint32_t rank,
                                 pst_schedule **schedule_out);

/* Adds the passes of a schedule as the next rank. Fails: NOMEM. */
pst_status psti_schedule_lists_add(psti_schedule_lists *lists, const pst_schedule *schedule);

/* Fails: INVALID (write; of integers: a split backward, a pair, or micro-batches of a chunk that do
 * not come in order, which they cannot say). */
pst_status psti_schedule_write_list(const psti_schedule_lists *lists, pst_plan_write_fn write,
                                    void *sink);
pst_status psti_schedule_write_megatron(const psti_schedule_lists *lists, pst_plan_write_fn write,
                                        void *sink);

/* ---- what both formats share ---- */

enum { PSTI_SCHEDULE_MAX_CHUNKS = 1 << 20 }; /* of integers */

/* A new rank, whose first pass is in this line; a pass of the last rank. Fail: NOMEM. */
pst_status psti_schedule_add_rank(psti_schedule_lists *lists, uint64_t line);
pst_status psti_schedule_add_pass(psti_schedule_lists *lists, const pst_pass *pass);
/* Fails: INVALID (write). */
pst_status psti_schedule_put(pst_plan_write_fn write, void *sink, const char *text);
/* All lines of integers. */
pst_status psti_schedule_read_integers(psti_lines *lines, psti_schedule_lists *lists);

#endif
