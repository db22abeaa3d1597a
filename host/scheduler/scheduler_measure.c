/* How long the caller's streams wait: timed events around the waits of a step, read when a word that
 * the step's end writes says that all of it has run. */
#include "host/scheduler/scheduler.h"

#include "host/base/table.h"

struct psti_measures {
    pst_event *events; /* before and behind the waits of a hook, outside graphs */
    uint64_t num_events, room;
    pst_visit_key *keys; /* whose waits; half as many */
    uint64_t keys_room;
    uint32_t used; /* hooks of this step */
    bool is_on;    /* this step is measured */
    /* pinned: [0] the last step that has run; [1] the one that is enqueued. Until it has run nothing
     * else is measured. */
    uint64_t *steps;
    uint64_t pending; /* 0: nothing */
};

pst_status psti_measures_open(pst_scheduler *self)
{
    void *pinned = NULL;
    if (!self->measures || !self->device)
        return PST_OK;
    self->measured = psti_scheduler_take(self, 1, sizeof(*self->measured));
    PSTI_CHECK(self->measured, PST_E_NOMEM, "no memory for measures");
    PSTI_TRY(psti_part_alloc_pinned(self->device, 2 * sizeof(uint64_t), &pinned));
    self->measured->steps = pinned;
    return PST_OK;
}

void psti_measures_close(pst_scheduler *self)
{
    psti_measures *m = self->measured;
    if (!m)
        return;
    for (uint64_t i = 0; i < m->num_events; i++)
        psti_part_event_destroy(self->device, m->events[i]);
    psti_part_free_pinned(self->device, m->steps);
    psti_free(m->events);
    psti_free(m->keys);
    self->measured = NULL;
}

static pst_status add(pst_scheduler *self, uint32_t i)
{
    uint64_t ns;
    double seconds = 0;
    const psti_measures *m = self->measured;
    PSTI_TRY(pst_event_elapsed(self->device, m->events[2 * i], m->events[2 * i + 1], &seconds));
    ns = seconds > 0 ? (uint64_t)(seconds * 1e9 + 0.5) : 0;
    if (m->keys[i].kind == PST_PASS_FORWARD)
        self->stats.exposed_forward_ns += ns;
    else
        self->stats.exposed_backward_ns += ns;
    if (ns > self->stats.worst_ns) {
        self->stats.worst_ns = ns;
        self->stats.worst = m->keys[i];
    }
    return PST_OK;
}

pst_status psti_measures_collect(pst_scheduler *self)
{
    psti_measures *m = self->measured;
    if (!m || !m->pending || __atomic_load_n(&m->steps[0], __ATOMIC_ACQUIRE) != m->pending)
        return PST_OK;
    m->pending = 0;
    for (uint32_t i = 0; i < m->used; i++)
        PSTI_TRY(add(self, i));
    self->stats.measured_steps++;
    return PST_OK;
}

static bool waits(const psti_operation *operations, uint32_t num)
{
    for (uint32_t i = 0; i < num; i++)
        if (operations[i].act == PSTI_ACT_JOIN ||
            (operations[i].act == PSTI_ACT_WAIT && operations[i].stream == PSTI_ON_MAIN))
            return true;
    return false;
}

/* Events for all hooks of the program that wait. */
static pst_status make_room(pst_scheduler *self)
{
    psti_measures *m = self->measured;
    const psti_program *program = self->now.program;
    uint64_t hooks = 0;
    for (uint32_t v = 0; v < program->num_visits; v++) {
        uint32_t num = 0;
        const psti_operation *operations = psti_begin_hook(program, v, &num);
        hooks += waits(operations, num);
    }
    PSTI_TRY(psti_grow((void **)&m->events, &m->room, 2 * hooks, sizeof(*m->events)));
    PSTI_TRY(psti_grow((void **)&m->keys, &m->keys_room, hooks, sizeof(*m->keys)));
    for (; m->num_events < 2 * hooks; m->num_events++)
        PSTI_TRY(psti_part_event_create(self->device, &m->events[m->num_events]));
    return PST_OK;
}

pst_status psti_measures_begin_step(pst_scheduler *self)
{
    psti_measures *m = self->measured;
    if (!m)
        return PST_OK;
    m->is_on = false;
    if (self->capture_id || self->recording)
        return PST_OK;
    PSTI_TRY(psti_measures_collect(self));
    if (m->pending)
        return PST_OK;
    PSTI_TRY(make_room(self));
    m->used = 0;
    m->is_on = true;
    return PST_OK;
}

pst_status psti_measures_begin(pst_scheduler *self, const psti_hook *hook,
                               const psti_operation *operations, uint32_t num, bool *is_timed_out)
{
    psti_measures *m = self->measured;
    *is_timed_out = m->is_on && waits(operations, num);
    if (!*is_timed_out)
        return PST_OK;
    m->keys[m->used] = hook->key;
    return self->device->ops->event_record(self->device, m->events[(size_t)2 * m->used++],
                                           hook->stream, false);
}

pst_status psti_measures_end(pst_scheduler *self, pst_stream stream)
{
    const psti_measures *m = self->measured;
    return self->device->ops->event_record(self->device, m->events[(size_t)2 * m->used - 1], stream,
                                           false);
}

pst_status psti_measures_end_step(pst_scheduler *self, pst_stream stream)
{
    psti_measures *m = self->measured;
    if (!m || !m->is_on)
        return PST_OK;
    m->is_on = false;
    m->steps[1]++;
    PSTI_TRY(self->device->ops->copy(self->device, &m->steps[0], &m->steps[1], sizeof(uint64_t),
                                     stream));
    m->pending = m->steps[1];
    return PST_OK;
}

void psti_measures_abort(pst_scheduler *self)
{
    if (self->measured)
        self->measured->is_on = false;
}
