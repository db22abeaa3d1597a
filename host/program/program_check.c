/* Proves that a program is right: what belongs to whom, and that streams and events order it. */
#include <inttypes.h>

#include "host/program/program_order.h"

/* ---- what a visit needs ---- */

static const psti_program_layer *layer_of(const psti_order *self, const psti_visit *visit)
{
    const pst_pass *pass = &self->config->schedule->passes[visit->pass];
    return &self->config->layers[self->program->first_layer[pass->chunk] + visit->layer];
}

static const psti_life *life_of(const psti_order *self, const psti_visit *visit)
{
    const pst_pass *pass = &self->config->schedule->passes[visit->pass];
    return psti_schedule_life(self->config->schedule, pass->chunk, pass->micro_batch);
}

static bool keeps_sets(const psti_visit *visit)
{
    return visit->keep == PST_KEEP_PAGED || visit->keep == PST_KEEP_SWAPPED;
}

/* Parts that a visit reads or, a forward, writes: bits. */
static uint32_t parts_used(const psti_order *self, const psti_visit *visit)
{
    const psti_program_layer *layer = layer_of(self, visit);
    const psti_life *life = life_of(self, visit);
    if (!keeps_sets(visit) || self->config->schedule->is_forward_only)
        return 0;
    if (visit->keep == PST_KEEP_SWAPPED)
        return 1;
    uint32_t parts = 0;
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        const bool is_whole =
            visit->kind == PST_PASS_FORWARD || life->first_backward == life->last_backward;
        const uint32_t use =
            visit->pass == life->first_backward ? PST_USE_BACKWARD : PST_USE_WEIGHT;
        if (is_whole || (layer->uses[p] & use) != 0)
            parts |= 1u << p;
    }
    return parts;
}

/* Those of them that lie in a set: a backward reads a GLU's part in pages, unless it stayed in place. */
static uint32_t parts_of(const psti_order *self, const psti_visit *visit)
{
    const uint32_t parts = parts_used(self, visit);
    const bool in_sets =
        visit->kind == PST_PASS_FORWARD || visit->in_place || visit->keep != PST_KEEP_PAGED;
    return in_sets ? parts : parts & ~(uint32_t)layer_of(self, visit)->glus;
}

/* The visit of a layer in a pass. */
static uint32_t visit_in(const psti_order *self, uint32_t pass, uint32_t layer)
{
    const pst_pass *at = &self->config->schedule->passes[pass];
    const uint32_t num_layers = self->program->num_layers[at->chunk];
    return self->program->first_visit[pass] +
           (at->kind == PST_PASS_FORWARD ? layer : num_layers - 1 - layer);
}

/* Whose set a visit writes or reads. */
static uint32_t user_of(const psti_order *self, uint32_t number)
{
    const psti_visit *visit = &self->program->visits[number];
    if (visit->kind == PST_PASS_FORWARD)
        return number;
    if (visit->in_place)
        return visit->partner;
    return visit->is_held ? visit_in(self, life_of(self, visit)->first_backward, visit->layer)
                          : number;
}

/* ---- what is said of visits ---- */

/* A user's number of a set is one; others have their user's. */
static bool has_set(const psti_order *self, uint32_t number)
{
    const psti_program_config *config = self->config;
    const psti_visit *visit = &self->program->visits[number];
    const psti_visit *user = &self->program->visits[user_of(self, number)];
    const bool is_forward = user->kind == PST_PASS_FORWARD;
    uint32_t limit = is_forward ? config->num_sources : config->num_destinations;
    if (config->one_ring)
        limit = config->num_sources;
    if (visit->keep == PST_KEEP_SWAPPED)
        limit = 2;
    else if (config->by_slot && config->forward_alias)
        return true;
    return visit->set < limit && visit->set == user->set;
}

static pst_status check_visit(const psti_order *self, uint32_t pass, uint32_t layer, bool in_pair)
{
    const pst_schedule *schedule = self->config->schedule;
    const pst_pass *at = &schedule->passes[pass];
    const uint32_t number = visit_in(self, pass, layer), chunk = at->chunk;
    const psti_visit *visit = &self->program->visits[number];
    const psti_life *life = psti_schedule_life(schedule, chunk, at->micro_batch);
    const uint32_t slot = schedule->is_forward_only ? 0 : life->slot;
    uint32_t partner = PSTI_NO_VISIT;
    if (!schedule->is_forward_only)
        partner = visit_in(
            self, at->kind == PST_PASS_FORWARD ? life->first_backward : life->forward, layer);
    PSTI_CHECK(visit->pass == pass && visit->layer == layer && visit->kind == at->kind &&
                   visit->partner == partner && visit->in_pair == in_pair &&
                   visit->seat == self->program->first_seat[chunk] +
                                      layer * self->program->num_slots[chunk] + slot &&
                   visit->keep ==
                       self->config->layers[self->program->first_layer[chunk] + layer].keep,
               PST_E_INVALID, "visit %" PRIu32 " is not that of pass %" PRIu32 ", layer %" PRIu32,
               number, pass, layer);
    if (partner == PSTI_NO_VISIT)
        return PST_OK;
    const bool is_only = life->first_backward == life->last_backward;
    PSTI_CHECK(visit->in_place == self->program->visits[partner].in_place &&
                   (!visit->in_place || (is_only && keeps_sets(visit))),
               PST_E_INVALID, "visit %" PRIu32 " and its partner %" PRIu32 " are in place, or not",
               number, partner);
    PSTI_CHECK(!visit->is_held || (!is_only && at->kind == PST_PASS_BACKWARD_WEIGHT), PST_E_INVALID,
               "visit %" PRIu32 " cannot be held", number);
    const bool is_restored = at->kind != PST_PASS_FORWARD && !visit->in_place && !visit->is_held &&
                             parts_of(self, visit) != 0;
    PSTI_CHECK(visit->is_restored == is_restored, PST_E_INVALID,
               "visit %" PRIu32 " is restored, or not", number);
    PSTI_CHECK(visit->is_fetched || !is_restored, PST_E_INVALID,
               "visit %" PRIu32 " is restored, and not fetched", number);
    PSTI_CHECK(parts_of(self, visit) == 0 || has_set(self, number), PST_E_INVALID,
               "visit %" PRIu32 " has no set, or not its user's", number);
    return PST_OK;
}

/* ---- operations ---- */

static pst_status misplaced(const psti_order *self, uint32_t operation, const char *why)
{
    char text[PSTI_ORDER_TEXT_BYTES];
    return PSTI_FAIL(PST_E_INVALID, "%s %s",
                     psti_order_text(self, psti_order_mark(operation), text), why);
}

static bool is_transfer(const psti_operation *operation)
{
    return operation->act >= PSTI_ACT_STASH;
}

static bool is_glu(const psti_operation *operation)
{
    return operation->act >= PSTI_ACT_GLU_STASH;
}

static bool is_swap(const psti_operation *operation)
{
    return operation->act == PSTI_ACT_SWAP_OUT || operation->act == PSTI_ACT_SWAP_IN;
}

/* Parts that an operation can be of. */
static uint32_t parts_for(const psti_order *self, const psti_operation *operation)
{
    const psti_visit *visit = &self->program->visits[operation->visit];
    const uint32_t glus = visit->keep == PST_KEEP_PAGED ? layer_of(self, visit)->glus : 0;
    const bool demotes = layer_of(self, visit)->demotes;
    switch ((psti_act)operation->act) {
    case PSTI_ACT_GLU_STASH:
    case PSTI_ACT_GLU_RESTORE:
        return parts_used(self, visit) & glus;
    case PSTI_ACT_STASH:
        return parts_of(self, visit) & ~glus;
    case PSTI_ACT_PROMOTE: /* ahead of the first backward come all parts */
        return parts_used(self, &self->program->visits[visit->partner]) & (demotes ? ~0u : glus);
    default:
        return parts_of(self, visit) |
               parts_of(self, &self->program->visits[user_of(self, operation->visit)]);
    }
}

/* Numbers in range, and the visit one that such an operation can be for. */
static pst_status check_operation(const psti_order *self, uint32_t number)
{
    const psti_program *program = self->program;
    const psti_operation *operation = &program->operations[number];
    const uint32_t detail = operation->act <= PSTI_ACT_RECORD ? operation->event : operation->part;
    const uint32_t limit = operation->act <= PSTI_ACT_RECORD ? PSTI_NUM_EVENT_KINDS : PST_MAX_PARTS;
    PSTI_CHECK(operation->act <= PSTI_ACT_GLU_RESTORE &&
                   operation->stream <= program->num_streams &&
                   operation->visit < program->num_visits && operation->seat < program->num_seats &&
                   (operation->act == PSTI_ACT_JOIN || detail < limit),
               PST_E_INVALID, "operation %" PRIu32 " has a number out of range", number);
    if (operation->act >= PSTI_ACT_JOIN && is_glu(operation) != (operation->stream == PSTI_ON_MAIN))
        return misplaced(self, number, "is not for this stream");
    if (!is_transfer(operation))
        return PST_OK;
    const psti_visit *visit = &program->visits[operation->visit];
    const bool is_of_forward =
        operation->act == PSTI_ACT_STASH || operation->act == PSTI_ACT_DEMOTE ||
        operation->act == PSTI_ACT_SWAP_OUT || operation->act == PSTI_ACT_GLU_STASH;
    if (visit->seat != operation->seat || visit->in_place ||
        (visit->kind == PST_PASS_FORWARD) != is_of_forward ||
        visit->keep != (is_swap(operation) ? PST_KEEP_SWAPPED : PST_KEEP_PAGED))
        return misplaced(self, number, "is nothing for this visit");
    if ((parts_for(self, operation) >> operation->part & 1) == 0)
        return misplaced(self, number, "is of a part that the visit does not use");
    return PST_OK;
}

static pst_status step_ticket(psti_order *self, uint32_t number, psti_mark by)
{
    const psti_operation *operation = &self->program->operations[number];
    const psti_visit *visit = &self->program->visits[operation->visit];
    psti_ticket_state *ticket =
        &self->tickets[(size_t)operation->seat * PST_MAX_PARTS + operation->part];
    const bool is_out = operation->act == PSTI_ACT_STASH || operation->act == PSTI_ACT_SWAP_OUT ||
                        operation->act == PSTI_ACT_GLU_STASH;
    const psti_program_layer *layer = layer_of(self, visit);
    const uint32_t forward = visit->kind == PST_PASS_FORWARD ? operation->visit : visit->partner;
    if (is_out && ticket->step != PSTI_TICKET_IS_EMPTY)
        return misplaced(self, number, "finds its ticket full");
    if (!is_out && (ticket->step == PSTI_TICKET_IS_EMPTY || ticket->visit != forward))
        return misplaced(self, number, "finds nothing of its own in its ticket");
    PSTI_TRY(psti_order_ticket(self, by, ticket));
    const uint8_t before = ticket->step;
    switch ((psti_act)operation->act) {
    case PSTI_ACT_STASH:
    case PSTI_ACT_SWAP_OUT:
    case PSTI_ACT_GLU_STASH:
        ticket->step = PSTI_TICKET_IS_STASHED;
        ticket->visit = forward;
        return PST_OK;
    case PSTI_ACT_DEMOTE:
        ticket->step = PSTI_TICKET_IS_DEMOTED;
        return before == PSTI_TICKET_IS_STASHED && layer->demotes
                   ? PST_OK
                   : misplaced(self, number, "is not behind its stash alone");
    case PSTI_ACT_PROMOTE:
        ticket->step = PSTI_TICKET_IS_PROMOTED;
        return before == (layer->demotes ? PSTI_TICKET_IS_DEMOTED : PSTI_TICKET_IS_STASHED)
                   ? PST_OK
                   : misplaced(self, number, "finds nothing demoted");
    case PSTI_ACT_RESTORE:
    case PSTI_ACT_SWAP_IN:
    case PSTI_ACT_GLU_RESTORE:
        if (is_swap(operation) ? visit->pass == life_of(self, visit)->last_backward
                               : !operation->keeps)
            ticket->step = PSTI_TICKET_IS_EMPTY;
        return before != PSTI_TICKET_IS_DEMOTED &&
                       !(is_glu(operation) && layer->promotes && before == PSTI_TICKET_IS_STASHED)
                   ? PST_OK
                   : misplaced(self, number, "finds its pages on the host");
    case PSTI_ACT_WAIT:
    case PSTI_ACT_RECORD:
    case PSTI_ACT_JOIN:
        break;
    }
    return PST_OK;
}

static pst_status check_transfer(psti_order *self, uint32_t number)
{
    const psti_operation *operation = &self->program->operations[number];
    const psti_mark by = psti_order_operation(self, number);
    const uint32_t user = user_of(self, operation->visit), part = 1u << operation->part;
    PSTI_TRY(step_ticket(self, number, by));
    switch ((psti_act)operation->act) {
    case PSTI_ACT_STASH:
    case PSTI_ACT_SWAP_OUT:
    case PSTI_ACT_GLU_STASH:
        return psti_order_read(self, by, user, part);
    case PSTI_ACT_RESTORE:
    case PSTI_ACT_SWAP_IN:
        return psti_order_write(self, by, user, part);
    default:
        return PST_OK;
    }
}

static pst_status check_list(psti_order *self, uint32_t first, uint32_t end)
{
    for (uint32_t n = first; n < end; n++) {
        const psti_operation *operation = &self->program->operations[n];
        PSTI_TRY(check_operation(self, n));
        if (operation->act == PSTI_ACT_RECORD)
            PSTI_TRY(psti_order_record(self, n));
        else if (operation->act == PSTI_ACT_WAIT)
            PSTI_TRY(psti_order_wait(self, n));
        else if (operation->act == PSTI_ACT_JOIN)
            psti_order_join_side(self, n);
        else
            PSTI_TRY(check_transfer(self, n));
    }
    return PST_OK;
}

/* ---- hooks ---- */

/* Graphs of layers hold the main stream's waits and records: its waits come last in a begin, its
 * records first in an end. */
static pst_status check_main_edges(const psti_order *self, const uint32_t *hook)
{
    const psti_operation *operations = self->program->operations;
    bool waits = false, acts = false;
    uint32_t glus = 0;
    for (uint32_t n = hook[0]; n < hook[1]; n++) {
        const bool is_wait =
            operations[n].act == PSTI_ACT_JOIN ||
            (operations[n].act == PSTI_ACT_WAIT && operations[n].stream == PSTI_ON_MAIN);
        if (waits && !is_wait)
            return misplaced(self, n, "stands in a begin behind a wait of the main stream");
        waits |= is_wait;
    }
    for (uint32_t n = hook[1]; n < hook[2]; n++) {
        const bool is_record =
            operations[n].stream == PSTI_ON_MAIN && operations[n].act == PSTI_ACT_RECORD;
        if (is_glu(&operations[n]) && (acts || n != hook[1] + glus++))
            return misplaced(self, n, "is not first in an end");
        if (is_glu(&operations[n]))
            continue;
        if (acts && is_record)
            return misplaced(self, n, "is a record of the main stream, and not first in an end");
        acts |= !is_record;
    }
    return PST_OK;
}

/* Of a PAGED forward: RECORD PRODUCED, waits, and one STASH for each part that no GLU writes. */
static pst_status check_stashes(const psti_order *self, uint32_t number)
{
    const psti_visit *visit = &self->program->visits[number];
    const uint32_t *hook = self->program->hooks + (size_t)number * 2;
    const psti_operation *operations = self->program->operations;
    const psti_program_layer *layer = layer_of(self, visit);
    uint32_t n = hook[1], part = 0;
    while (n < hook[2] && is_glu(&operations[n]))
        n++;
    const uint32_t first = n;
    if (n < hook[2] && operations[n].act == PSTI_ACT_RECORD && operations[n].seat == visit->seat &&
        operations[n].event == PSTI_EVENT_PRODUCED && operations[n].visit == number)
        n++;
    while (n > first && n < hook[2] && operations[n].act == PSTI_ACT_WAIT)
        n++;
    for (; part < layer->num_parts; part++) {
        if (layer->glus >> part & 1)
            continue;
        if (n == hook[2] || operations[n].act != PSTI_ACT_STASH || operations[n].visit != number ||
            operations[n].part != part)
            break;
        n++;
    }
    PSTI_CHECK(part == layer->num_parts, PST_E_INVALID,
               "the end of visit %" PRIu32 " does not begin with its record and a stash per part",
               number);
    return PST_OK;
}

static pst_status check_hooks(psti_order *self, uint32_t number)
{
    const psti_program *program = self->program;
    const psti_visit *visit = &program->visits[number];
    const uint32_t *hook = program->hooks + (size_t)number * 2;
    const uint32_t parts = parts_of(self, visit);
    PSTI_TRY(check_list(self, hook[0], hook[1]));
    if (parts != 0) {
        const psti_mark by = psti_order_visit(self, number);
        if (visit->kind == PST_PASS_FORWARD)
            PSTI_TRY(psti_order_write(self, by, number, parts));
        else
            PSTI_TRY(psti_order_read(self, by, user_of(self, number), parts));
        if (visit->kind == PST_PASS_FORWARD && visit->keep == PST_KEEP_PAGED && !visit->in_place)
            PSTI_TRY(check_stashes(self, number));
    }
    PSTI_TRY(check_main_edges(self, hook));
    return check_list(self, hook[1], hook[2]);
}

static pst_status walk_pass(psti_order *self, uint32_t pass)
{
    const uint32_t first = self->program->first_visit[pass];
    const uint32_t chunk = self->config->schedule->passes[pass].chunk;
    for (uint32_t v = 0; v < self->program->num_layers[chunk]; v++)
        PSTI_TRY(check_hooks(self, first + v));
    return PST_OK;
}

static bool is_paired(const pst_schedule *schedule, uint64_t pass)
{
    return schedule->passes[pass].pairs || (pass > 0 && schedule->passes[pass - 1].pairs);
}

static pst_status walk(psti_order *self)
{
    const pst_schedule *schedule = self->config->schedule;
    for (uint32_t i = 0; i < schedule->num_passes; i++) {
        if (!schedule->passes[i].pairs) {
            PSTI_TRY(walk_pass(self, i));
            continue;
        }
        psti_order_fork(self);
        PSTI_TRY(walk_pass(self, i));
        self->place.is_second = true;
        PSTI_TRY(walk_pass(self, ++i));
        psti_order_join(self);
    }
    for (size_t t = 0; t < (size_t)self->program->num_seats * PST_MAX_PARTS; t++)
        if (self->tickets[t].step != PSTI_TICKET_IS_EMPTY)
            return misplaced(self, self->tickets[t].last.who, "leaves its ticket full");
    return PST_OK;
}

/* ---- the arrays ---- */

static pst_status check_chunks(const psti_order *self)
{
    const pst_schedule *schedule = self->config->schedule;
    const psti_program *program = self->program;
    uint32_t layer = 0;
    uint64_t seat = 0;
    bool is_right = program->num_chunks == schedule->num_chunks && program->num_streams >= 1 &&
                    program->num_streams < PSTI_STREAMS;
    for (uint32_t c = 0; is_right && c < program->num_chunks; c++) {
        is_right = program->num_layers[c] == self->config->num_layers[c] &&
                   program->num_slots[c] >= schedule->chunks[c].num_slots &&
                   program->first_layer[c] == layer && program->first_seat[c] == seat;
        layer += program->num_layers[c];
        seat += (uint64_t)program->num_layers[c] * program->num_slots[c];
    }
    PSTI_CHECK(is_right && program->num_seats == seat, PST_E_INVALID,
               "chunks, layers or seats are not those of the configuration");
    return PST_OK;
}

static pst_status check_visits(const psti_order *self)
{
    const pst_schedule *schedule = self->config->schedule;
    const psti_program *program = self->program;
    uint32_t next = 0, previous = 0;
    for (uint32_t i = 0; i < schedule->num_passes; i++) {
        const bool swaps =
            schedule->passes[i].pairs && schedule->passes[i].kind != PST_PASS_FORWARD;
        const uint32_t order[2] = {swaps ? i + 1 : i, swaps ? i : i + 1};
        for (uint32_t n = 0; n < (schedule->passes[i].pairs ? 2 : 1); n++) {
            PSTI_CHECK(program->first_visit[order[n]] == next, PST_E_INVALID,
                       "pass %" PRIu32 " does not begin with visit %" PRIu32, order[n], next);
            next += program->num_layers[schedule->passes[order[n]].chunk];
        }
        i += schedule->passes[i].pairs;
    }
    PSTI_CHECK(program->num_visits == next, PST_E_INVALID, "there are not %" PRIu32 " visits",
               next);
    for (uint32_t h = 0; h <= 2 * next; previous = program->hooks[h++])
        PSTI_CHECK(program->hooks[h] >= previous && (h > 0 || program->hooks[h] == 0),
                   PST_E_INVALID, "the hooks of visit %" PRIu32 " are out of order", h / 2);
    PSTI_CHECK(previous == program->num_operations, PST_E_INVALID, "hooks and operations differ");
    for (uint32_t i = 0; i < schedule->num_passes; i++)
        for (uint32_t l = 0; l < program->num_layers[schedule->passes[i].chunk]; l++)
            PSTI_TRY(check_visit(self, i, l, is_paired(schedule, i)));
    return PST_OK;
}

pst_status psti_program_check(const psti_program_config *config, const psti_program *program)
{
    psti_order order = {.config = config, .program = program};
    PSTI_TRY(check_chunks(&order));
    PSTI_TRY(check_visits(&order));
    pst_status status = psti_order_make(&order, config, program);
    if (status == PST_OK)
        status = walk(&order);
    psti_order_free(&order);
    return status;
}
