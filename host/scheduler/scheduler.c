/* A step's begin and end, abort, and the end of a scheduler. */
#include "host/scheduler/scheduler.h"
#include "host/base/structs.h"

#include <inttypes.h>

#include "host/base/nvtx.h"

static pst_status capture_of(const pst_scheduler *self, pst_stream stream, uint64_t *id_out)
{
    psti_capture_of capture = {.id = 0};
    if (self->device)
        PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
    *id_out = capture.id;
    return PST_OK;
}

/* ---- begin ---- */

/* Side streams continue where the step's stream is. */
static pst_status fork_sides(pst_scheduler *self, pst_stream stream)
{
    if (!self->device)
        return PST_OK;
    PSTI_TRY(psti_scheduler_record(self, self->fork, stream));
    for (uint32_t i = 0; i < self->num_streams; i++)
        PSTI_TRY(psti_scheduler_wait(self, self->fork, self->side[i]));
    return PST_OK;
}

/* A captured step is held by its graph, which finds out that the schedule changed. */
static pst_status arm(pst_scheduler *self, pst_stream stream)
{
    psti_capture_of capture;
    if (!self->device)
        return PST_OK;
    PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
    PSTI_TRY(psti_hold_in(self->device, &capture, &self->hold));
    if (capture.id == 0)
        return PST_OK;
    return psti_pool_expect(self->pool, self->serial_word, self->serial, stream);
}

static void forget_pending(pst_scheduler *self)
{
    for (uint32_t i = 0; i < PST_MAX_SETS; i++)
        self->pending[i] = PSTI_NO_VISIT;
    for (uint32_t i = 0; i < self->num_seats; i++)
        self->seats[i].deferred[0] = self->seats[i].deferred[1] = 0;
}

static pst_status start(pst_scheduler *self, const pst_step_options *options, pst_stream stream)
{
    PSTI_CHECK(self->state != PSTI_SCHEDULER_BROKEN, PST_E_ORDER,
               "the step before is broken by an error: pst_scheduler_abort");
    PSTI_CHECK(self->state == PSTI_SCHEDULER_IDLE, PST_E_ORDER, "a step is open already");
    if (options->forward_only) {
        self->is_evaluating = true;
        self->state = PSTI_SCHEDULER_OPEN;
        return PST_OK;
    }
    uint64_t capture_id = 0;
    PSTI_TRY(capture_of(self, stream, &capture_id));
    PSTI_CHECK(capture_id == 0 || self->capture == PST_CAPTURE_ITERATION, PST_E_CAPTURE,
               "a step of PST_CAPTURE_LAYERS begins outside graphs");
    if (self->pool)
        PSTI_TRY(psti_pool_usable(self->pool));
    if (!self->recording)
        PSTI_TRY(psti_scheduler_choose(self, options->num_micro_batches, capture_id != 0));
    self->is_evaluating = false;
    self->capture_id = capture_id;
    self->num_before = self->num_lanes = 0; /* the step before may have had other streams */
    self->state = PSTI_SCHEDULER_BROKEN;    /* until all of this is enqueued */
    if (capture_id == 0)
        psti_scheduler_look(self);
    if (self->arena)
        PSTI_TRY(pst_arena_iteration(self->arena));
    PSTI_TRY(psti_measures_begin_step(self));
    PSTI_TRY(arm(self, stream));
    PSTI_TRY(fork_sides(self, stream));
    forget_pending(self);
    if (self->recording)
        psti_recording_begin_step(self, stream);
    else
        psti_cursor_begin_step(self, stream);
    self->state = PSTI_SCHEDULER_OPEN;
    return PST_OK;
}

pst_status pst_scheduler_step_begin(pst_scheduler *self, const pst_step_options *given,
                                    pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_TAKE_OPTIONS(pst_step_options, options, given);
    PSTI_RANGE("pst_scheduler_step_begin");
    pthread_mutex_lock(&self->lock);
    const pst_status status = start(self, &options, stream);
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* ---- end ---- */

static pst_status join_sides(pst_scheduler *self, pst_stream stream)
{
    pst_status first = PST_OK;
    for (uint32_t i = 0; i < self->num_streams && self->device; i++) {
        pst_status status = psti_scheduler_record(self, self->join[i], self->side[i]);
        if (status == PST_OK)
            status = psti_scheduler_wait(self, self->join[i], stream);
        if (first == PST_OK)
            first = status;
    }
    return first;
}

/* Of the step's last passes; streams that a capture joined are joined back. */
static pst_status join_callers(pst_scheduler *self, pst_stream stream)
{
    for (uint32_t i = 0; i < self->num_before; i++)
        PSTI_TRY(psti_scheduler_follow(self, self->before[i], stream));
    return PST_OK;
}

/* Wherever hooks of a step that is given up ran. */
static pst_status join_lanes(pst_scheduler *self, pst_stream stream)
{
    PSTI_TRY(join_callers(self, stream));
    for (uint32_t i = 0; i < self->num_lanes; i++)
        if (self->lanes[i].has_stream)
            PSTI_TRY(psti_scheduler_follow(self, self->lanes[i].stream, stream));
    return psti_recording_join(self, stream);
}

static pst_status finish(pst_scheduler *self, pst_stream stream)
{
    uint64_t capture_id = 0;
    PSTI_CHECK(self->state != PSTI_SCHEDULER_BROKEN, PST_E_ORDER,
               "the step is broken by an earlier error: pst_scheduler_abort");
    PSTI_CHECK(self->state == PSTI_SCHEDULER_OPEN, PST_E_ORDER, "no step is open");
    if (self->is_evaluating) {
        self->is_evaluating = false;
        self->state = PSTI_SCHEDULER_IDLE;
        return PST_OK;
    }
    self->state = PSTI_SCHEDULER_BROKEN; /* unless all goes well */
    PSTI_TRY(capture_of(self, stream, &capture_id));
    PSTI_CHECK(capture_id == self->capture_id, PST_E_CAPTURE, "the step began %s this capture",
               capture_id ? "outside" : "in a capture, outside of");
    if (self->recording)
        PSTI_TRY(psti_recording_end_step(self, stream));
    else
        PSTI_TRY(psti_cursor_check_done(self));
    PSTI_TRY(join_callers(self, stream));
    PSTI_TRY(join_sides(self, stream));
    if (self->pool)
        PSTI_TRY(pst_pool_step(self->pool, stream));
    PSTI_TRY(psti_measures_end_step(self, stream));
    forget_pending(self);
    self->stats.steps++;
    self->state = PSTI_SCHEDULER_IDLE;
    return PST_OK;
}

pst_status pst_scheduler_step_end(pst_scheduler *self, pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_step_end");
    pthread_mutex_lock(&self->lock);
    const pst_status status = finish(self, stream);
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* ---- abort ---- */

/* Whether side streams are still in the capture that the step began in. */
static pst_status check_outside(const pst_scheduler *self, pst_stream stream)
{
    uint64_t id = 0;
    PSTI_TRY(capture_of(self, stream, &id));
    for (uint32_t i = 0; i < self->num_streams && id == 0; i++)
        PSTI_TRY(capture_of(self, self->side[i], &id));
    PSTI_CHECK(id == 0, PST_E_CAPTURE, "end the capture first");
    return PST_OK;
}

static pst_status give_up(pst_scheduler *self, pst_stream stream)
{
    if (self->device)
        PSTI_TRY(check_outside(self, stream));
    const bool was_open = self->state != PSTI_SCHEDULER_IDLE && !self->is_evaluating;
    pst_status status = PST_OK;
    if (was_open)
        self->state = PSTI_SCHEDULER_BROKEN; /* unless all goes well */
    if (was_open && self->device)
        status = join_lanes(self, stream);
    const pst_status joined = join_sides(self, stream);
    if (status == PST_OK)
        status = joined;
    if (status == PST_OK && self->pool)
        status = pst_pool_reset(self->pool, PST_RESET_PAGES | PST_RESET_FAULTS, stream);
    PSTI_TRY(status);
    psti_recording_forget(self);
    psti_measures_abort(self);
    forget_pending(self);
    self->stats.aborted_steps += was_open;
    self->is_evaluating = false;
    self->capture_id = 0;
    self->num_lanes = self->num_before = 0;
    self->state = PSTI_SCHEDULER_IDLE;
    return PST_OK;
}

pst_status pst_scheduler_abort(pst_scheduler *self, pst_stream stream)
{
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    PSTI_RANGE("pst_scheduler_abort");
    pthread_mutex_lock(&self->lock);
    const pst_status status = give_up(self, stream);
    pthread_mutex_unlock(&self->lock);
    psti_log(PST_LOG_INFO, "scheduler: the step is given up");
    return status;
}

/* ---- destroy ---- */

static pst_status check_unused(pst_scheduler *self)
{
    const uint32_t graphs = self->device ? psti_hold_count(self->device, &self->hold) : 0;
    PSTI_CHECK(graphs == 0 && self->state != PSTI_SCHEDULER_OPEN, PST_E_BUSY,
               "%u steps are open, and %u captured graphs hold this scheduler",
               self->state == PSTI_SCHEDULER_OPEN ? 1u : 0u, graphs);
    return PST_OK;
}

/* Of a broken step, too; its tickets would hold pages for ever. A device that has failed keeps nothing
 * of ours: all is freed, and the first error said. */
static pst_status end_all(pst_scheduler *self)
{
    PSTI_TRY(check_unused(self));
    if (!self->device)
        return PST_OK;
    pst_status status = pst_device_synchronize(self->device);
    if (self->state == PSTI_SCHEDULER_BROKEN && status == PST_OK) {
        status = give_up(self, self->side[0]);
        const pst_status ended = pst_device_synchronize(self->device);
        status = status == PST_OK ? ended : status;
    }
    if (status != PST_OK && status != PST_E_CUDA)
        return status;
    const pst_status closed = psti_scheduler_close(self);
    return status == PST_OK ? closed : status;
}

pst_status pst_scheduler_destroy(pst_scheduler *self)
{
    if (!self)
        return PST_OK;
    PSTI_CHECK_HANDLE(self, SCHEDULER);
    pthread_mutex_lock(&self->lock);
    pst_device *device = self->device;
    const pst_status status = end_all(self);
    pthread_mutex_unlock(&self->lock);
    if (!psti_is_gone(status))
        return status;
    if (device)
        psti_device_release(device, PSTI_LIVE_SCHEDULER);
    psti_scheduler_free(self);
    return status;
}
