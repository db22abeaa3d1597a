/* The figures of a scheduler. */
#include "host/base/structs.h"
#include "host/scheduler/scheduler.h"

#include <string.h>

void psti_scheduler_look(pst_scheduler *self)
{
    pst_pool_status status;
    char message[PSTI_MESSAGE_BYTES];
    if (!self->pool)
        return;
    memcpy(message, pst_last_message(), sizeof(message));
    if (pst_pool_poll(self->pool, &status) != PST_OK) {
        psti_restore_message(message);
        return;
    }
    if (status.steps != self->pool_steps && !status.step_valid)
        self->stats.lost_steps++;
    self->pool_steps = status.steps;
}

pst_status pst_scheduler_get_stats_sized(pst_scheduler *self, pst_scheduler_stats *stats_out,
                                         size_t stats_bytes)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_CHECK(stats_out, PST_E_INVALID, "stats_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_scheduler_stats, stats_bytes));
    pthread_mutex_lock(&self->lock);
    psti_scheduler_look(self);
    const pst_status status = psti_measures_collect(self);
    pst_scheduler_stats stats = self->stats;
    stats.num_tickets = self->num_tickets;
    stats.num_events = self->num_events;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        stats.num_slots += self->layers_of[c] ? self->num_slots[c] : 0;
    pthread_mutex_unlock(&self->lock);
    PSTI_TRY(status);
    memcpy(stats_out, &stats, stats_bytes);
    return PST_OK;
}
