/* Events of a simulation for the pictures. */
#include "tools/simulate/simulate_picture.h"

#include <stdlib.h>
#include <string.h>

const char *const simulate_lane_names[SIMULATE_NUM_LANES] = {"main", "stash", "restore", "to host",
                                                             "from host"};

pst_simulated_stream simulate_lane(const pst_simulated_event *event)
{
    switch (event->kind) {
    case PST_SIMULATED_DO_STASH:
        return PST_SIMULATED_STASH;
    case PST_SIMULATED_DO_RESTORE:
        return PST_SIMULATED_RESTORE;
    case PST_SIMULATED_DO_DEMOTE:
    case PST_SIMULATED_DO_SWAP_OUT:
        return PST_SIMULATED_TO_HOST;
    case PST_SIMULATED_DO_PROMOTE:
    case PST_SIMULATED_DO_SWAP_IN:
        return PST_SIMULATED_FROM_HOST;
    default:
        return PST_SIMULATED_MAIN;
    }
}

typedef struct watcher {
    pst_simulated_event *last; /* [stages]: of the main stream, not yet told */
    bool *has_last;
    simulate_event_fn watch;
    void *user;
} watcher;

bool simulate_is_same_visit(const pst_visit_key *a, const pst_visit_key *b)
{
    return a->kind == b->kind && a->chunk == b->chunk && a->layer == b->layer &&
           a->micro_batch == b->micro_batch;
}

static void tell_last(watcher *self, uint32_t stage)
{
    if (self->has_last[stage])
        self->watch(self->user, &self->last[stage]);
    self->has_last[stage] = false;
}

static void on_event(void *user, const pst_simulated_event *event)
{
    watcher *self = user;
    pst_simulated_event *last = &self->last[event->stage];
    if (event->stream != PST_SIMULATED_MAIN) {
        self->watch(self->user, event);
        return;
    }
    if (self->has_last[event->stage] && event->kind == PST_SIMULATED_WORK &&
        last->kind == PST_SIMULATED_WORK && last->end_ns == event->begin_ns &&
        simulate_is_same_visit(&last->visit, &event->visit)) {
        last->end_ns = event->end_ns;
        return;
    }
    tell_last(self, event->stage);
    *last = *event;
    self->has_last[event->stage] = true;
}

static int watch_all(const simulate_model *model, watcher *self, pst_stage_result *stages)
{
    pst_simulation simulation;
    pst_simulation_config config = model->config;
    config.on_event = on_event;
    config.user = self;
    TOOL_PST(pst_simulate(&config, &simulation, stages));
    for (uint32_t s = 0; s < model->num_stages; s++)
        tell_last(self, s);
    return TOOL_OK;
}

int simulate_watch(const simulate_model *model, simulate_event_fn watch, void *user)
{
    watcher self = {.watch = watch, .user = user};
    self.last = calloc(model->num_stages, sizeof(*self.last));
    self.has_last = calloc(model->num_stages, sizeof(*self.has_last));
    pst_stage_result *stages = calloc(model->num_stages, sizeof(*stages));
    const bool has_all = self.last != NULL && self.has_last != NULL && stages != NULL;
    const int code = has_all ? watch_all(model, &self, stages)
                             : tool_fail(TOOL_NO, "out of memory for the timeline of %u ranks",
                                         model->num_stages);
    free(stages);
    free(self.last);
    free(self.has_last);
    return code;
}
