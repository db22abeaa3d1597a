/* Walks the hooks and writes the operations that each enqueues. */
#include "host/base/table.h"
#include "host/program/build.h"

/* The side stream of a direction. */
typedef enum lane { LANE_STASH = 0, LANE_RESTORE, LANE_TO_HOST, LANE_FROM_HOST } lane;

/* Restores of PAGED or of SWAPPED layers: each waits for those before it. What is promoted for a GLU alone
 * stands among them. */
typedef struct queue {
    uint8_t keep;
    uint32_t *restores; /* visits, in order */
    uint32_t num;
    uint32_t issued, begun;
    uint32_t promoted; /* restores up to here are promoted, or need it not */
    uint32_t ahead;
} queue;

typedef struct walk {
    psti_build *build;
    psti_program *program;
    queue queues[2];
    uint32_t now; /* the visit whose hook is written */
    bool at_end;
    bool side_is_behind; /* rule NEXT: something was enqueued since the last JOIN */
    pst_status status;
} walk;

static uint8_t side(const walk *w, lane which)
{
    const uint32_t streams = w->build->config->num_streams;
    const uint32_t of_two = which == LANE_RESTORE || which == LANE_FROM_HOST ? 1 : 0;
    return (uint8_t)(PSTI_ON_SIDE + (streams == 1 ? 0 : streams == 2 ? of_two : (uint32_t)which));
}

/* ---- writing ---- */

static pst_status make_room(walk *w)
{
    PSTI_CHECK(w->program->num_operations < UINT32_MAX - 1, PST_E_INVALID,
               "more than %u operations", UINT32_MAX - 1);
    return psti_grow((void **)&w->program->operations, &w->build->room,
                     (uint64_t)w->program->num_operations + 1, sizeof(psti_operation));
}

static void put(walk *w, psti_operation operation)
{
    psti_program *program = w->program;
    if (program->num_operations == w->build->room && w->status == PST_OK)
        w->status = make_room(w);
    if (w->status == PST_OK)
        program->operations[program->num_operations++] = operation;
}

static void put_event(walk *w, psti_act act, uint8_t stream, psti_event_kind event, uint32_t visit)
{
    put(w, (psti_operation){.act = (uint8_t)act,
                            .stream = stream,
                            .event = (uint8_t)event,
                            .seat = w->program->visits[visit].seat,
                            .visit = visit});
}

static void put_wait(walk *w, uint8_t stream, psti_event_kind event, uint32_t visit)
{
    put_event(w, PSTI_ACT_WAIT, stream, event, visit);
}

static void put_record(walk *w, uint8_t stream, psti_event_kind event, uint32_t visit)
{
    put_event(w, PSTI_ACT_RECORD, stream, event, visit);
}

static void put_part(walk *w, psti_act act, uint8_t stream, uint32_t visit, uint32_t part,
                     bool keeps)
{
    put(w, (psti_operation){.act = (uint8_t)act,
                            .stream = stream,
                            .part = (uint8_t)part,
                            .keeps = keeps,
                            .seat = w->program->visits[visit].seat,
                            .visit = visit});
}

static psti_event_kind restored_kind(const psti_visit *visit)
{
    return visit->kind == PST_PASS_BACKWARD_WEIGHT ? PSTI_EVENT_RESTORED_W : PSTI_EVENT_RESTORED;
}

static psti_event_kind consumed_kind(const psti_visit *visit)
{
    return visit->kind == PST_PASS_BACKWARD_WEIGHT ? PSTI_EVENT_CONSUMED_W : PSTI_EVENT_CONSUMED;
}

static bool is_stashed(const psti_visit *visit)
{
    return visit->kind == PST_PASS_FORWARD && !visit->in_place;
}

/* ---- restores ---- */

/* The hook that ends this visit comes before the one that is written now, whatever the mixture of the
 * hooks of a pair. */
static bool has_ended(const walk *w, uint32_t visit)
{
    const psti_visit *visits = w->program->visits;
    return (w->at_end ? visit <= w->now : visit < w->now) &&
           !psti_are_paired(w->build, &visits[visit], &visits[w->now]);
}

/* Whether pages of this visit's tickets are on the host, and nothing has brought them back before. */
static bool needs_promote(const walk *w, const psti_visit *backward)
{
    const psti_program_layer *layer = psti_layer_of(w->build, backward);
    if (backward->keep != PST_KEEP_PAGED || !(layer->demotes || layer->promotes))
        return false;
    const uint32_t first = psti_life_of(w->build, backward)->first_backward;
    return first == backward->pass ||
           !w->program->visits[psti_visit_in(w->build, backward, first)].is_fetched;
}

static void put_promote(walk *w, uint32_t backward)
{
    const psti_visit *visit = &w->program->visits[backward];
    const psti_program_layer *layer = psti_layer_of(w->build, visit);
    const uint8_t stream = side(w, LANE_FROM_HOST);
    if (layer->demotes && stream != side(w, LANE_TO_HOST))
        put_wait(w, stream, PSTI_EVENT_DEMOTED, visit->partner);
    if (!layer->demotes && stream != side(w, LANE_STASH))
        put_wait(w, stream, PSTI_EVENT_STASHED, visit->partner);
    for (uint32_t part = 0; part < layer->num_parts; part++)
        if (layer->demotes || layer->glus >> part & 1)
            put_part(w, PSTI_ACT_PROMOTE, stream, backward, part, false);
    if (stream != side(w, LANE_RESTORE))
        put_record(w, stream, PSTI_EVENT_PROMOTED, backward);
}

/* Pages come back ahead of their restores. */
static void put_promotes(walk *w, queue *q, uint32_t up_to)
{
    for (; q->promoted < q->num; q->promoted++) {
        const uint32_t v = q->restores[q->promoted];
        const psti_visit *visit = &w->program->visits[v];
        if (!needs_promote(w, visit))
            continue;
        const bool is_due = q->promoted < up_to ||
                            q->promoted - q->issued < psti_layer_of(w->build, visit)->promote_ahead;
        if (!is_due || !has_ended(w, visit->partner))
            break;
        put_promote(w, v);
    }
}

/* Rule NEXT: the visit that follows is the one to restore for. */
static bool is_followed(const walk *w)
{
    const queue *q = &w->queues[0];
    return w->build->config->rule == PST_RESTORE_NEXT && q->issued < q->num &&
           q->restores[q->issued] == w->now + 1;
}

static void put_restore_waits(walk *w, uint32_t v, uint8_t stream)
{
    const psti_visit *visits = w->program->visits;
    const uint8_t stash = side(w, visits[v].keep == PST_KEEP_PAGED ? LANE_STASH : LANE_TO_HOST);
    const uint32_t before = w->build->before[v];
    if (before != PSTI_NO_VISIT) {
        const uint32_t end = psti_end_of_user(w->build, before);
        const bool is_stash = visits[end].kind == PST_PASS_FORWARD;
        const bool has_waited = end == w->now && is_followed(w); /* issue_next */
        if (is_stash && stash != stream && end != visits[v].partner)
            put_wait(w, stream, PSTI_EVENT_STASHED, end);
        else if (!is_stash && !has_waited)
            put_wait(w, stream, consumed_kind(&visits[end]), end);
    }
    if (stash != stream)
        put_wait(w, stream, PSTI_EVENT_STASHED, visits[v].partner);
    if (needs_promote(w, &visits[v]) && side(w, LANE_FROM_HOST) != stream)
        put_wait(w, stream, PSTI_EVENT_PROMOTED, v);
}

static void put_restore(walk *w, queue *q)
{
    const uint32_t v = q->restores[q->issued];
    const psti_visit *visit = &w->program->visits[v];
    const bool is_paged = visit->keep == PST_KEEP_PAGED;
    const uint8_t stream = side(w, is_paged ? LANE_RESTORE : LANE_FROM_HOST);
    put_promotes(w, q, q->issued + 1);
    put_restore_waits(w, v, stream);
    const uint32_t parts = is_paged ? psti_parts_restored(w->build, visit) : 0;
    for (uint32_t part = 0; part < PST_MAX_PARTS; part++)
        if (parts >> part & 1)
            put_part(w, PSTI_ACT_RESTORE, stream, v, part, !psti_reads_last(w->build, visit, part));
    if (!is_paged)
        put_part(w, PSTI_ACT_SWAP_IN, stream, v, 0, false);
    put_record(w, stream, restored_kind(visit), v);
    q->issued++;
    w->side_is_behind = true;
}

/* Whether the next restore of a queue can be issued at the end hook that is written now. */
static bool can_issue(const walk *w, const queue *q)
{
    if (q->issued == q->num || q->issued - q->begun >= q->ahead)
        return false;
    const uint32_t v = q->restores[q->issued], before = w->build->before[v];
    return (before == PSTI_NO_VISIT || has_ended(w, psti_end_of_user(w->build, before))) &&
           has_ended(w, w->program->visits[v].partner);
}

static void issue(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    /* The backward of the pair may be ahead of this hook: it issues for itself. */
    if (visit->in_pair && visit->kind == PST_PASS_FORWARD)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        while (can_issue(w, &w->queues[i]))
            put_restore(w, &w->queues[i]);
        put_promotes(w, &w->queues[i], 0);
    }
}

/* Rule NEXT: that restore, behind this visit. */
static void issue_next(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    if (!is_followed(w))
        return;
    if (visit->kind != PST_PASS_FORWARD)
        put_wait(w, side(w, LANE_RESTORE), consumed_kind(visit), w->now);
    put_restore(w, &w->queues[0]);
}

/* ---- hooks ---- */

/* Whether the main stream has passed the stash of user u, by its restore, when it comes to visit v. */
static bool has_passed(const walk *w, uint32_t u, uint32_t v)
{
    const psti_visit *visits = w->program->visits;
    const uint32_t backward = visits[u].partner;
    return visits[backward].is_restored && backward < v &&
           !psti_are_paired(w->build, &visits[backward], &visits[v]);
}

/* Whether the next user of u's set, a forward, waits for u's stash. */
static bool is_waited_for(const walk *w, uint32_t u)
{
    const psti_visit *visit = &w->program->visits[u];
    const uint32_t next = w->build->after[u];
    if (visit->keep == PST_KEEP_PAGED && !psti_parts_stashed(psti_layer_of(w->build, visit)))
        return false; /* the main stream itself has stashed it */
    return next != PSTI_NO_VISIT && w->program->visits[next].kind == PST_PASS_FORWARD &&
           !has_passed(w, u, next);
}

static void forward_begin(walk *w)
{
    if (w->build->config->rule == PST_RESTORE_NEXT)
        return;
    const uint32_t before = w->build->before[w->now];
    if (before != PSTI_NO_VISIT && is_stashed(&w->program->visits[before]) &&
        is_waited_for(w, before))
        put_wait(w, PSTI_ON_MAIN, PSTI_EVENT_FREE, w->now);
}

static bool is_restored_elsewhere(const walk *w, uint32_t next, uint8_t stream)
{
    if (next == PSTI_NO_VISIT || w->program->visits[next].kind == PST_PASS_FORWARD)
        return false;
    const bool is_paged = w->program->visits[next].keep == PST_KEEP_PAGED;
    return side(w, is_paged ? LANE_RESTORE : LANE_FROM_HOST) != stream;
}

static void put_demote(walk *w, const psti_program_layer *layer)
{
    const uint8_t stream = side(w, LANE_TO_HOST);
    if (stream != side(w, LANE_STASH))
        put_wait(w, stream, PSTI_EVENT_STASHED, w->now);
    for (uint32_t part = 0; part < layer->num_parts; part++)
        put_part(w, PSTI_ACT_DEMOTE, stream, w->now, part, false);
    if (stream != side(w, LANE_FROM_HOST))
        put_record(w, stream, PSTI_EVENT_DEMOTED, w->now);
}

/* What the caller's launches within this visit do. */
static void put_glus(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    const psti_program_layer *layer = psti_layer_of(w->build, visit);
    const bool is_forward = visit->kind == PST_PASS_FORWARD;
    if (visit->keep != PST_KEEP_PAGED || visit->in_place || visit->partner == PSTI_NO_VISIT ||
        !layer->glus)
        return;
    const uint32_t parts = layer->glus & (is_forward ? ~0u : psti_parts_read(w->build, visit));
    for (uint32_t part = 0; part < layer->num_parts; part++)
        if (parts >> part & 1)
            put_part(w, is_forward ? PSTI_ACT_GLU_STASH : PSTI_ACT_GLU_RESTORE, PSTI_ON_MAIN,
                     w->now, part, !is_forward && !psti_reads_last(w->build, visit, part));
}

/* Whether side streams have nothing to do with this forward: GLUs alone stash it, its pages stay where
 * they are, and no restore takes its set. */
static bool stays_on_main(const walk *w, const psti_program_layer *layer)
{
    const uint32_t next = w->build->after[w->now];
    return !psti_parts_stashed(layer) && !layer->demotes && !layer->promotes &&
           (next == PSTI_NO_VISIT || w->program->visits[next].kind == PST_PASS_FORWARD);
}

static void put_stash(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    const psti_program_layer *layer = psti_layer_of(w->build, visit);
    const bool is_paged = visit->keep == PST_KEEP_PAGED;
    if (is_paged && stays_on_main(w, layer))
        return;
    const uint8_t stream = side(w, is_paged ? LANE_STASH : LANE_TO_HOST);
    const uint8_t back = side(w, is_paged ? LANE_RESTORE : LANE_FROM_HOST);
    const bool is_demoted = is_paged && layer->demotes;
    put_record(w, PSTI_ON_MAIN, PSTI_EVENT_PRODUCED, w->now);
    put_wait(w, stream, PSTI_EVENT_PRODUCED, w->now);
    for (uint32_t part = 0; is_paged && part < layer->num_parts; part++)
        if (psti_parts_stashed(layer) >> part & 1)
            put_part(w, PSTI_ACT_STASH, stream, w->now, part, false);
    /* parts that were announced early say nothing of the GLU's */
    if (is_paged && layer->glus && psti_parts_stashed(layer))
        put_wait(w, stream, PSTI_EVENT_PRODUCED, w->now);
    if (!is_paged)
        put_part(w, PSTI_ACT_SWAP_OUT, stream, w->now, 0, false);
    const uint32_t next = w->build->after[w->now];
    if (back != stream || is_restored_elsewhere(w, next, stream) ||
        (is_demoted && side(w, LANE_TO_HOST) != stream))
        put_record(w, stream, PSTI_EVENT_STASHED, w->now);
    if (w->build->config->rule != PST_RESTORE_NEXT && is_waited_for(w, w->now))
        put_record(w, stream, PSTI_EVENT_FREE, next);
    if (is_demoted)
        put_demote(w, layer);
    w->side_is_behind = true;
}

static void backward_begin(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    if (!visit->is_fetched)
        return;
    queue *q = &w->queues[visit->keep == PST_KEEP_PAGED ? 0 : 1];
    if (q->issued == q->begun)
        put_restore(w, q);
    q->begun++;
    if (w->build->config->rule != PST_RESTORE_NEXT)
        put_wait(w, PSTI_ON_MAIN, restored_kind(visit), w->now);
}

/* Whether this visit is the last to read its set, and a restore goes there next. */
static bool frees_for_restore(const walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    uint32_t user = visit->in_place ? visit->partner : w->now;
    if (visit->is_held)
        user = psti_visit_in(w->build, visit, psti_life_of(w->build, visit)->first_backward);
    if (visit->set == PSTI_NO_SET && !w->build->config->forward_alias)
        return false;
    const uint32_t next = w->build->after[user];
    return psti_end_of_user(w->build, user) == w->now && next != PSTI_NO_VISIT &&
           w->program->visits[next].kind != PST_PASS_FORWARD;
}

static void join(walk *w)
{
    if (w->build->config->rule == PST_RESTORE_NEXT && w->side_is_behind)
        put(w, (psti_operation){.act = PSTI_ACT_JOIN, .stream = PSTI_ON_SIDE, .visit = w->now});
    w->side_is_behind = false;
}

static void begin_hook(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    w->at_end = false;
    if (visit->kind == PST_PASS_FORWARD)
        forward_begin(w);
    else
        backward_begin(w);
    join(w);
}

static void end_hook(walk *w)
{
    const psti_visit *visit = &w->program->visits[w->now];
    const bool is_kept = visit->keep == PST_KEEP_PAGED || visit->keep == PST_KEEP_SWAPPED;
    w->at_end = true;
    put_glus(w);
    if (visit->kind == PST_PASS_FORWARD && is_kept && !visit->in_place &&
        visit->partner != PSTI_NO_VISIT)
        put_stash(w);
    if (visit->kind != PST_PASS_FORWARD && ((is_kept && frees_for_restore(w)) || is_followed(w)))
        put_record(w, PSTI_ON_MAIN, consumed_kind(visit), w->now);
    if (w->build->config->rule == PST_RESTORE_NEXT)
        issue_next(w);
    else
        issue(w);
}

/* ---- all together ---- */

static pst_status fill_queue(walk *w, queue *q, uint8_t keep, uint32_t ahead)
{
    const psti_program *program = w->program;
    *q = (queue){.keep = keep, .ahead = ahead};
    for (uint32_t v = 0; v < program->num_visits; v++)
        q->num += program->visits[v].is_fetched && program->visits[v].keep == keep;
    q->restores = psti_calloc((size_t)q->num + 1, sizeof(uint32_t));
    PSTI_CHECK(q->restores, PST_E_NOMEM, "no memory for %u restores", q->num);
    uint32_t at = 0;
    for (uint32_t v = 0; v < program->num_visits; v++)
        if (program->visits[v].is_fetched && program->visits[v].keep == keep)
            q->restores[at++] = v;
    return PST_OK;
}

static pst_status run(walk *w)
{
    const psti_program_config *config = w->build->config;
    const uint32_t sets = config->one_ring ? config->num_sources : config->num_destinations;
    /* Sets of the caller's may be any number: as many restores as there are seats can be ahead. */
    const uint32_t all = config->forward_alias ? w->program->num_seats : sets;
    PSTI_TRY(fill_queue(w, &w->queues[0], PST_KEEP_PAGED, config->ahead ? config->ahead : all));
    PSTI_TRY(fill_queue(w, &w->queues[1], PST_KEEP_SWAPPED, PSTI_NUM_BUFFERS));
    psti_program *program = w->program;
    const uint64_t usual =
        (uint64_t)program->num_visits * 6; /* operations, without parts or hosts */
    PSTI_TRY(
        psti_grow((void **)&program->operations, &w->build->room, usual, sizeof(psti_operation)));
    for (w->now = 0; w->now < program->num_visits && w->status == PST_OK; w->now++) {
        program->hooks[2 * (size_t)w->now] = program->num_operations;
        begin_hook(w);
        program->hooks[2 * (size_t)w->now + 1] = program->num_operations;
        end_hook(w);
    }
    program->hooks[2 * (size_t)program->num_visits] = program->num_operations;
    program->bytes += w->build->room * sizeof(psti_operation);
    return w->status;
}

pst_status psti_build_operations(psti_build *build)
{
    walk w = {.build = build, .program = build->program};
    const pst_status status = run(&w);
    psti_free(w.queues[0].restores);
    psti_free(w.queues[1].restores);
    return status;
}
