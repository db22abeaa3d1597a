/* Vector clocks (Fidge 1988, Mattern 1989) over the streams of a program: what happens before what. */
#include "host/program/program_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/table.h"

/* ---- names ---- */

static const char *const event_names[] = {
    [PSTI_EVENT_PRODUCED] = "produced",
    [PSTI_EVENT_STASHED] = "stashed",
    [PSTI_EVENT_FREE] = "free",
    [PSTI_EVENT_RESTORED] = "restored",
    [PSTI_EVENT_RESTORED_W] = "restored W",
    [PSTI_EVENT_CONSUMED] = "consumed",
    [PSTI_EVENT_CONSUMED_W] = "consumed W",
    [PSTI_EVENT_DEMOTED] = "demoted",
    [PSTI_EVENT_PROMOTED] = "promoted",
};
_Static_assert(sizeof(event_names) / sizeof(*event_names) == PSTI_NUM_EVENT_KINDS, "a name each");

static const char *const act_names[] = {
    [PSTI_ACT_WAIT] = "wait for",
    [PSTI_ACT_RECORD] = "record of",
    [PSTI_ACT_JOIN] = "join",
    [PSTI_ACT_STASH] = "stash of",
    [PSTI_ACT_RESTORE] = "restore of",
    [PSTI_ACT_DEMOTE] = "demote of",
    [PSTI_ACT_PROMOTE] = "promote of",
    [PSTI_ACT_SWAP_OUT] = "swap out of",
    [PSTI_ACT_SWAP_IN] = "swap in of",
    [PSTI_ACT_GLU_STASH] = "GLU's stash of",
    [PSTI_ACT_GLU_RESTORE] = "GLU's restore of",
};

static void put_visit(const psti_order *self, uint32_t number, char *text, size_t room)
{
    const psti_visit *visit = &self->program->visits[number];
    const pst_pass *pass = &self->config->schedule->passes[visit->pass];
    snprintf(text, room, "%s of chunk %" PRIu32 ", layer %" PRIu32 ", micro-batch %" PRIu32,
             psti_pass_kind_name(pass->kind), pass->chunk, visit->layer, pass->micro_batch);
}

const char *psti_order_text(const psti_order *self, psti_mark mark,
                            char text[PSTI_ORDER_TEXT_BYTES])
{
    char visit[96];
    if (mark.is_visit) {
        put_visit(self, mark.who, visit, sizeof(visit));
        snprintf(text, PSTI_ORDER_TEXT_BYTES, "%s on the main stream", visit);
        return text;
    }
    const psti_operation *operation = &self->program->operations[mark.who];
    char what[24] = "", where[32] = "the main stream";
    put_visit(self, operation->visit, visit, sizeof(visit));
    if (operation->act == PSTI_ACT_WAIT || operation->act == PSTI_ACT_RECORD)
        snprintf(what, sizeof(what), " '%s' of", event_names[operation->event]);
    else if (operation->act != PSTI_ACT_SWAP_OUT && operation->act != PSTI_ACT_SWAP_IN)
        snprintf(what, sizeof(what), " part %u of", (unsigned)operation->part);
    if (operation->stream != PSTI_ON_MAIN)
        snprintf(where, sizeof(where), "side stream %u", (unsigned)operation->stream);
    snprintf(text, PSTI_ORDER_TEXT_BYTES, "%s%s %s on %s (operation %" PRIu32 ")",
             act_names[operation->act], what, visit, where, mark.who);
    return text;
}

static pst_status clash(const psti_order *self, psti_mark first, const char *why, psti_mark second)
{
    char a[PSTI_ORDER_TEXT_BYTES], b[PSTI_ORDER_TEXT_BYTES];
    return PSTI_FAIL(PST_E_INVALID, "%s %s %s", psti_order_text(self, first, a), why,
                     psti_order_text(self, second, b));
}

/* ---- make ---- */

/* Numbers of the caller's become numbers of sets. */
static pst_status number_aliases(psti_order *self, const uint32_t *aliases, uint32_t *sets,
                                 psti_map *map)
{
    for (uint32_t seat = 0; seat < self->program->num_seats; seat++) {
        uint64_t set = psti_map_get(map, aliases[seat]);
        if (set == PSTI_MAP_NONE)
            PSTI_TRY(psti_map_set(map, aliases[seat], set = self->num_sets++));
        sets[seat] = (uint32_t)set;
    }
    return PST_OK;
}

static pst_status make_sets(psti_order *self)
{
    const psti_program_config *config = self->config;
    const uint32_t num_seats = self->program->num_seats;
    self->num_sets = config->num_sources + config->num_destinations + 2; /* two to swap */
    if (config->by_slot && config->forward_alias && config->backward_alias) {
        psti_map map = {0};
        self->forward_sets = psti_calloc((size_t)num_seats + 1, sizeof(uint32_t));
        self->backward_sets = psti_calloc((size_t)num_seats + 1, sizeof(uint32_t));
        pst_status status = PST_E_NOMEM;
        if (self->forward_sets && self->backward_sets)
            status = number_aliases(self, config->forward_alias, self->forward_sets, &map);
        if (status == PST_OK)
            status = number_aliases(self, config->backward_alias, self->backward_sets, &map);
        psti_map_free(&map);
        PSTI_TRY(status);
    }
    self->sets = psti_calloc(self->num_sets, sizeof(*self->sets));
    for (uint32_t s = 0; self->sets && s < self->num_sets; s++)
        self->sets[s].user = PSTI_NO_VISIT;
    return self->sets ? PST_OK : PST_E_NOMEM;
}

static pst_status make(psti_order *self)
{
    const psti_program *program = self->program;
    size_t num_events = 0;
    self->first_event = psti_calloc((size_t)program->num_seats + 1, sizeof(uint32_t));
    self->tickets =
        psti_calloc((size_t)program->num_seats * PST_MAX_PARTS + 1, sizeof(*self->tickets));
    if (!self->first_event || !self->tickets)
        return PST_E_NOMEM;
    for (uint32_t seat = 0; seat < program->num_seats; seat++) {
        self->first_event[seat] = (uint32_t)num_events;
        num_events += (size_t)__builtin_popcount(program->event_kinds[seat]);
    }
    self->events = psti_calloc(num_events + 1, sizeof(*self->events));
    return self->events ? make_sets(self) : PST_E_NOMEM;
}

pst_status psti_order_make(psti_order *self, const psti_program_config *config,
                           const psti_program *program)
{
    *self = (psti_order){.config = config, .program = program};
    return make(self) == PST_OK ? PST_OK
                                : PSTI_FAIL(PST_E_NOMEM, "out of memory to check a program");
}

void psti_order_free(psti_order *self)
{
    psti_free(self->first_event);
    psti_free(self->events);
    psti_free(self->sets);
    psti_free(self->forward_sets);
    psti_free(self->backward_sets);
    psti_free(self->tickets);
}

/* ---- clocks ---- */

static uint32_t line_of(const psti_order *self, uint32_t stream)
{
    return stream + (self->place.is_second ? PSTI_STREAMS : 0);
}

static void learn(psti_clock *clock, const psti_clock *other)
{
    for (uint32_t line = 0; line < PSTI_LINES; line++)
        if (clock->of[line] < other->of[line])
            clock->of[line] = other->of[line];
}

void psti_order_fork(psti_order *self)
{
    self->place = (psti_place){.pair = ++self->num_pairs};
    for (uint32_t s = 0; s < PSTI_STREAMS; s++)
        self->lines[PSTI_STREAMS + s] = self->lines[s];
}

void psti_order_join(psti_order *self)
{
    for (uint32_t s = 0; s < PSTI_STREAMS; s++)
        learn(&self->lines[s], &self->lines[PSTI_STREAMS + s]);
    self->place = (psti_place){0};
}

static psti_mark access(psti_order *self, uint32_t stream, uint32_t who, bool is_visit)
{
    const uint32_t line = line_of(self, stream);
    return (psti_mark){.tick = ++self->lines[line].of[line],
                       .who = who,
                       .line = (uint8_t)line,
                       .is_visit = is_visit};
}

psti_mark psti_order_operation(psti_order *self, uint32_t operation)
{
    return access(self, self->program->operations[operation].stream, operation, false);
}

psti_mark psti_order_visit(psti_order *self, uint32_t visit)
{
    return access(self, PSTI_ON_MAIN, visit, true);
}

/* Whether `first` is over before `second`. */
static bool precedes(const psti_order *self, psti_mark first, psti_mark second)
{
    return first.tick <= self->lines[second.line].of[first.line];
}

/* ---- events ---- */

static psti_event_state *event_of(psti_order *self, const psti_operation *operation)
{
    const uint32_t kinds = self->program->event_kinds[operation->seat];
    const uint32_t bit = 1u << operation->event;
    if ((kinds & bit) == 0)
        return NULL;
    const uint32_t below = (uint32_t)__builtin_popcount(kinds & (bit - 1));
    return &self->events[self->first_event[operation->seat] + below];
}

static bool in_other_pass(psti_place a, psti_place b)
{
    return a.pair != 0 && a.pair == b.pair && a.is_second != b.is_second;
}

static pst_status no_event(const psti_order *self, uint32_t operation)
{
    char text[PSTI_ORDER_TEXT_BYTES];
    return PSTI_FAIL(PST_E_INVALID, "%s has an event that its seat has not",
                     psti_order_text(self, psti_order_mark(operation), text));
}

pst_status psti_order_record(psti_order *self, uint32_t operation)
{
    const psti_operation *record = &self->program->operations[operation];
    psti_event_state *event = event_of(self, record);
    if (!event)
        return no_event(self, operation);
    if (event->wait != 0 && in_other_pass(event->waited, self->place))
        return clash(self, psti_order_mark(event->wait - 1),
                     "comes before or after, as the hooks of a pair may,",
                     psti_order_mark(operation));
    const bool has_rival = event->record != 0 && in_other_pass(event->recorded, self->place);
    event->rival = has_rival ? event->record : 0;
    event->record = operation + 1;
    event->recorded = self->place;
    event->at = self->lines[line_of(self, record->stream)];
    return PST_OK;
}

pst_status psti_order_wait(psti_order *self, uint32_t operation)
{
    const psti_operation *wait = &self->program->operations[operation];
    const psti_mark by = psti_order_mark(operation);
    psti_event_state *event = event_of(self, wait);
    char text[PSTI_ORDER_TEXT_BYTES];
    if (!event)
        return no_event(self, operation);
    PSTI_CHECK(event->record != 0, PST_E_INVALID, "%s has no record before it",
               psti_order_text(self, by, text));
    const psti_mark record = psti_order_mark(event->record - 1);
    if (in_other_pass(event->recorded, self->place))
        return clash(self, record, "comes before or after, as the hooks of a pair may,", by);
    if (event->rival != 0)
        return clash(self, psti_order_mark(event->rival - 1),
                     "or that of the pair's other pass is the last before", by);
    /* A later record of the same seat says more, and costs time alone. */
    if (self->program->operations[record.who].visit < wait->visit)
        return clash(self, record, "is the last before", by);
    event->wait = operation + 1;
    event->waited = self->place;
    learn(&self->lines[line_of(self, wait->stream)], &event->at);
    return PST_OK;
}

void psti_order_join_side(psti_order *self, uint32_t operation)
{
    const uint32_t side = self->program->operations[operation].stream;
    learn(&self->lines[line_of(self, PSTI_ON_MAIN)], &self->lines[line_of(self, side)]);
}

/* ---- sets and tickets ---- */

static psti_set_state *set_of(psti_order *self, uint32_t user)
{
    const psti_visit *visit = &self->program->visits[user];
    const bool is_forward = visit->kind == PST_PASS_FORWARD;
    if (visit->keep == PST_KEEP_SWAPPED)
        return &self->sets[self->config->num_sources + self->config->num_destinations + visit->set];
    if (self->forward_sets)
        return &self->sets[is_forward ? self->forward_sets[visit->seat]
                                      : self->backward_sets[visit->seat]];
    return &self->sets[visit->set +
                       (is_forward || self->config->one_ring ? 0 : self->config->num_sources)];
}

/* No earlier user is still at the set. */
static pst_status follow(const psti_order *self, const psti_set_state *set, psti_mark by)
{
    for (uint32_t line = 0; line < PSTI_LINES; line++)
        if (!precedes(self, set->before[line], by))
            return clash(self, set->before[line], "is at the set of, not ordered before,", by);
    return PST_OK;
}

static void take_over(psti_set_state *set, uint32_t user)
{
    for (uint32_t line = 0; line < PSTI_LINES; line++)
        if (set->now[line].tick != 0)
            set->before[line] = set->now[line];
    memset(set->now, 0, sizeof(set->now));
    memset(set->written, 0, sizeof(set->written));
    set->user = user;
}

pst_status psti_order_write(psti_order *self, psti_mark by, uint32_t user, uint32_t parts)
{
    psti_set_state *set = set_of(self, user);
    if (set->user != user)
        take_over(set, user);
    PSTI_TRY(follow(self, set, by));
    for (uint32_t part = 0; part < PST_MAX_PARTS; part++) {
        if ((parts >> part & 1) == 0)
            continue;
        if (set->written[part].tick != 0)
            return clash(self, set->written[part], "has already written what is written by", by);
        set->written[part] = by;
    }
    set->now[by.line] = by;
    return PST_OK;
}

pst_status psti_order_read(psti_order *self, psti_mark by, uint32_t user, uint32_t parts)
{
    psti_set_state *set = set_of(self, user);
    char text[PSTI_ORDER_TEXT_BYTES], theirs[96];
    if (set->user != user) {
        PSTI_CHECK(set->user != PSTI_NO_VISIT, PST_E_INVALID,
                   "%s reads a set that nobody has written", psti_order_text(self, by, text));
        put_visit(self, set->user, theirs, sizeof(theirs));
        return PSTI_FAIL(PST_E_INVALID, "%s reads a set that has gone to %s",
                         psti_order_text(self, by, text), theirs);
    }
    PSTI_TRY(follow(self, set, by));
    for (uint32_t part = 0; part < PST_MAX_PARTS; part++) {
        if ((parts >> part & 1) == 0)
            continue;
        PSTI_CHECK(set->written[part].tick != 0, PST_E_INVALID,
                   "%s reads part %" PRIu32 ", which nobody has written",
                   psti_order_text(self, by, text), part);
        if (!precedes(self, set->written[part], by))
            return clash(self, set->written[part], "writes what is read, not ordered before, by",
                         by);
    }
    set->now[by.line] = by;
    return PST_OK;
}

pst_status psti_order_ticket(psti_order *self, psti_mark by, psti_ticket_state *ticket)
{
    if (!precedes(self, ticket->last, by))
        return clash(self, ticket->last, "is at the ticket of, not ordered before,", by);
    ticket->last = by;
    return PST_OK;
}
