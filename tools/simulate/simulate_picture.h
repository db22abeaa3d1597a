/* Timelines of a simulation. */
#ifndef PAGESTASH_SIMULATE_PICTURE_H
#define PAGESTASH_SIMULATE_PICTURE_H

#include "tools/simulate/simulate_command.h"

#include <stdio.h>

enum { SIMULATE_MAX_VISITS = 20000 }; /* that a page shows */

/* Both simulate the model as it is filled once more, and return a tool_exit. */

/* Chrome trace JSON for Perfetto: a process for each rank, a thread for each stream. */
int simulate_write_perfetto(const simulate_job *job, const simulate_model *model, FILE *file);
/* One page that loads nothing else. Of a longer schedule the first and last visits of each rank. */
int simulate_write_html(const simulate_job *job, const simulate_model *model, FILE *file);

/* By what an event is, whatever stream has it: all five are drawn also where streams are fewer. */
enum { SIMULATE_NUM_LANES = PST_NUM_SIMULATED_STREAMS };
pst_simulated_stream simulate_lane(const pst_simulated_event *event);
extern const char *const simulate_lane_names[SIMULATE_NUM_LANES];

bool simulate_is_same_visit(const pst_visit_key *a, const pst_visit_key *b);

/* Events as they come, but the work of a visit (before, inside, after) in one where no gap is in it. */
typedef void (*simulate_event_fn)(void *user, const pst_simulated_event *event);
int simulate_watch(const simulate_model *model, simulate_event_fn watch, void *user);

#endif
