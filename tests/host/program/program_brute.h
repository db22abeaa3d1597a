/* Plays a program's operations in one order of the hooks, with the set of all that came before each
 * access spelled out, and says what is wrong: slow, simple, and nothing of the library's check. */
#ifndef PAGESTASH_TESTS_PROGRAM_BRUTE_H
#define PAGESTASH_TESTS_PROGRAM_BRUTE_H

#include "tests/host/program/program_scene.h"

enum { BRUTE_STREAMS = 7 }; /* main, four side streams, the main streams of a pair's two passes */

typedef struct brute_access {
    int64_t set;    /* -1: none */
    int64_t ticket; /* seat and part; -1: none */
    uint32_t user;  /* visit whose data are in the set */
    uint32_t parts;
    bool writes;
} brute_access;

typedef struct brute {
    const psti_program_config *config;
    const psti_program *program;
    uint32_t words; /* of a set of accesses */
    uint64_t *past[BRUTE_STREAMS];
    uint64_t *records;  /* [seats][kinds] */
    uint32_t *recorded; /* visit + 1 */
    uint64_t *before;   /* [accesses] */
    brute_access *accesses;
    uint32_t num;
    uint32_t *owner; /* [sets] visit + 1 */
    uint64_t *value; /* [sets][parts] */
    uint64_t *held;  /* [tickets] */
    uint32_t num_sets;
    const char *fault;
} brute;

static inline const pst_pass *brute_pass(const brute *b, const psti_visit *visit)
{
    return &b->config->schedule->passes[visit->pass];
}

static inline uint32_t brute_visit(const brute *b, uint32_t pass, uint32_t layer)
{
    const pst_pass *at = &b->config->schedule->passes[pass];
    const uint32_t last = b->config->num_layers[at->chunk] - 1;
    return b->program->first_visit[pass] + (at->kind == PST_PASS_FORWARD ? layer : last - layer);
}

static inline const psti_program_layer *brute_layer(const brute *b, const psti_visit *visit)
{
    const pst_pass *pass = brute_pass(b, visit);
    const psti_program_layer *layer = b->config->layers + visit->layer;
    for (uint32_t c = 0; c < pass->chunk; c++)
        layer += b->config->num_layers[c];
    return layer;
}

/* Parts that a forward writes, or a backward reads in a set. */
static inline uint32_t brute_parts(const brute *b, const psti_visit *visit)
{
    const pst_pass *pass = brute_pass(b, visit);
    const psti_life *life = &b->config->schedule->chunks[pass->chunk].lives[pass->micro_batch];
    const psti_program_layer *layer = brute_layer(b, visit);
    if (layer->keep == PST_KEEP_SWAPPED)
        return 1;
    uint32_t parts = 0;
    for (uint32_t p = 0; layer->keep == PST_KEEP_PAGED && p < layer->num_parts; p++)
        if (pass->kind == PST_PASS_FORWARD || life->first_backward == life->last_backward ||
            (layer->uses[p] &
             (pass->kind == PST_PASS_BACKWARD_WEIGHT ? PST_USE_WEIGHT : PST_USE_BACKWARD)))
            parts |= 1u << p;
    if (pass->kind != PST_PASS_FORWARD && !visit->in_place)
        parts &= ~(uint32_t)layer->glus;
    return parts;
}

/* The visit that brought what this one reads, or itself. */
static inline uint32_t brute_user(const brute *b, uint32_t number)
{
    const psti_visit *visit = &b->program->visits[number];
    const pst_pass *pass = brute_pass(b, visit);
    if (visit->kind != PST_PASS_FORWARD && visit->in_place)
        return visit->partner;
    if (visit->is_held)
        return brute_visit(
            b, b->config->schedule->chunks[pass->chunk].lives[pass->micro_batch].first_backward,
            visit->layer);
    return number;
}

static inline int64_t brute_set(const brute *b, uint32_t number, uint32_t reader)
{
    const psti_visit *visit = &b->program->visits[number];
    const bool is_forward = visit->kind == PST_PASS_FORWARD;
    const uint32_t name = b->program->visits[reader].set;
    if (visit->keep == PST_KEEP_SWAPPED)
        return 16 + name;
    if (!b->config->forward_alias)
        return name + (is_forward || b->config->one_ring ? 0 : 8);
    const uint32_t seats = b->program->num_seats;
    const uint32_t alias =
        is_forward ? b->config->forward_alias[visit->seat] : b->config->backward_alias[visit->seat];
    for (uint32_t s = 0; s < 2 * seats; s++) /* the first seat with this number */
        if ((s < seats ? b->config->forward_alias[s] : b->config->backward_alias[s - seats]) ==
            alias)
            return 18 + s;
    return -1;
}

static inline uint64_t *brute_set_of(brute *b, uint64_t *sets, uint64_t i)
{
    return sets + i * b->words;
}

static inline void brute_learn(const brute *b, uint64_t *past, const uint64_t *other)
{
    for (uint32_t w = 0; w < b->words; w++)
        past[w] |= other[w];
}

static inline void brute_fault(brute *b, const char *fault)
{
    if (!b->fault)
        b->fault = fault;
}

static inline void brute_put(brute *b, uint32_t stream, brute_access access)
{
    const uint32_t n = b->num++;
    memcpy(brute_set_of(b, b->before, n), b->past[stream], b->words * sizeof(uint64_t));
    b->past[stream][n / 64] |= UINT64_C(1) << n % 64;
    b->accesses[n] = access;
}

/* Into the set of `user` comes part p of what forward `from` made. */
static inline void brute_write(brute *b, int64_t set, uint32_t user, uint32_t p, uint64_t value)
{
    uint64_t *values = &b->value[(uint64_t)set * PST_MAX_PARTS];
    if (b->owner[set] != user + 1)
        memset(values, 0, PST_MAX_PARTS * sizeof(*values));
    b->owner[set] = user + 1;
    values[p] = value;
}

static inline uint64_t brute_value(uint32_t forward, uint32_t part)
{
    return ((uint64_t)forward + 1) * PST_MAX_PARTS + part;
}

/* stream: where it runs. */
static inline void brute_transfer(brute *b, const psti_operation *o, uint32_t stream)
{
    const psti_visit *visit = &b->program->visits[o->visit];
    const uint32_t user = brute_user(b, o->visit);
    const int64_t set = brute_set(b, user, user);
    const uint64_t ticket = (uint64_t)o->seat * PST_MAX_PARTS + o->part;
    uint64_t *held = &b->held[ticket];
    brute_access access = {.set = -1, .ticket = (int64_t)ticket};
    const bool is_glu = o->act == PSTI_ACT_GLU_STASH || o->act == PSTI_ACT_GLU_RESTORE;
    const bool moves = o->act == PSTI_ACT_PROMOTE || o->act == PSTI_ACT_GLU_RESTORE;
    if ((!moves && (set < 0 || set >= b->num_sets)) || is_glu != (o->stream == 0)) {
        brute_fault(b, "no set or stream");
        return;
    }
    if (is_glu != (brute_layer(b, visit)->glus >> o->part & 1) && !moves &&
        o->act != PSTI_ACT_DEMOTE)
        brute_fault(b, "a copy of a part that is written otherwise");
    if (o->act == PSTI_ACT_GLU_RESTORE) {
        if (*held != brute_value(visit->partner, o->part))
            brute_fault(b, "a GLU reads something else");
        if (!o->keeps)
            *held = 0;
    } else if (o->act == PSTI_ACT_STASH || o->act == PSTI_ACT_SWAP_OUT ||
               o->act == PSTI_ACT_GLU_STASH) {
        if (*held != 0 || visit->kind != PST_PASS_FORWARD ||
            b->value[(uint64_t)set * PST_MAX_PARTS + o->part] != brute_value(o->visit, o->part))
            brute_fault(b, "a stash of something else, or into a full ticket");
        *held = brute_value(o->visit, o->part);
        access = (brute_access){set, (int64_t)ticket, user, 1u << o->part, false};
    } else if (o->act == PSTI_ACT_RESTORE || o->act == PSTI_ACT_SWAP_IN) {
        if (*held == 0)
            brute_fault(b, "a restore of nothing");
        brute_write(b, set, user, o->part, *held);
        const pst_pass *pass = brute_pass(b, visit);
        const psti_life *life = &b->config->schedule->chunks[pass->chunk].lives[pass->micro_batch];
        if (o->act == PSTI_ACT_RESTORE ? !o->keeps : life->last_backward == visit->pass)
            *held = 0;
        access = (brute_access){set, (int64_t)ticket, user, 1u << o->part, true};
    } else if (*held == 0) {
        brute_fault(b, "a demote or promote of nothing");
    }
    brute_put(b, stream, access);
}

static inline void brute_operation(brute *b, const psti_operation *o, uint32_t main_stream)
{
    const uint32_t stream = o->stream == PSTI_ON_MAIN ? main_stream : o->stream;
    const uint64_t event = (uint64_t)o->seat * PSTI_NUM_EVENT_KINDS + o->event;
    if (o->act == PSTI_ACT_RECORD) {
        memcpy(brute_set_of(b, b->records, event), b->past[stream], b->words * sizeof(uint64_t));
        b->recorded[event] = o->visit + 1;
    } else if (o->act == PSTI_ACT_WAIT) {
        if (b->recorded[event] == 0)
            brute_fault(b, "a wait for nothing");
        brute_learn(b, b->past[stream], brute_set_of(b, b->records, event));
    } else if (o->act == PSTI_ACT_JOIN) {
        brute_learn(b, b->past[main_stream], b->past[o->stream]);
    } else {
        brute_transfer(b, o, stream);
    }
}

static inline void brute_main(brute *b, uint32_t number, uint32_t main_stream)
{
    const psti_visit *visit = &b->program->visits[number];
    const uint32_t parts = brute_parts(b, visit), user = brute_user(b, number);
    const bool writes = visit->kind == PST_PASS_FORWARD;
    if (parts == 0 || visit->partner == PSTI_NO_VISIT)
        return;
    const int64_t set = brute_set(b, user, number); /* the number that the visit itself says */
    if (set < 0 || set >= b->num_sets) {
        brute_fault(b, "no set");
        return;
    }
    for (uint32_t p = 0; p < PST_MAX_PARTS; p++) {
        if ((parts >> p & 1) == 0)
            continue;
        const uint32_t forward = writes ? number : visit->partner;
        if (writes)
            brute_write(b, set, number, p, brute_value(number, p));
        else if (b->value[(uint64_t)set * PST_MAX_PARTS + p] != brute_value(forward, p))
            brute_fault(b, "a backward reads something else");
    }
    brute_put(b, main_stream, (brute_access){set, -1, user, parts, writes});
}

static inline void brute_hook(brute *b, uint32_t number, bool is_end, uint32_t main_stream)
{
    const uint32_t *hook = &b->program->hooks[2 * number + is_end];
    for (uint32_t n = hook[0]; n < hook[1]; n++)
        brute_operation(b, &b->program->operations[n], main_stream);
    if (!is_end)
        brute_main(b, number, main_stream);
}

static inline void brute_pair(brute *b, uint32_t pass, uint64_t *seed, uint32_t mixture)
{
    const pst_schedule *schedule = b->config->schedule;
    uint32_t next[2], end[2];
    for (uint32_t i = 0; i < 2; i++) {
        next[i] = 2 * b->program->first_visit[pass + i];
        end[i] = next[i] + 2 * b->config->num_layers[schedule->passes[pass + i].chunk];
        memcpy(b->past[5 + i], b->past[0], b->words * sizeof(uint64_t));
    }
    while (next[0] < end[0] || next[1] < end[1]) {
        uint32_t i = mixture == 0 ? 0 : mixture == 1 ? 1 : (uint32_t)random_below(seed, 2);
        if (next[i] == end[i])
            i = 1 - i;
        brute_hook(b, next[i] / 2, next[i] % 2 == 1, 5 + i);
        next[i]++;
    }
    for (uint32_t i = 0; i < 2; i++)
        brute_learn(b, b->past[0], b->past[5 + i]);
}

static inline bool brute_conflict(const brute_access *x, const brute_access *y)
{
    if (x->ticket >= 0 && x->ticket == y->ticket)
        return true;
    return x->set >= 0 && x->set == y->set && (x->writes || y->writes) &&
           (x->user != y->user || (x->parts & y->parts) != 0);
}

static inline void brute_order(brute *b)
{
    for (uint32_t j = 0; j < b->num; j++)
        for (uint32_t i = 0; i < j; i++)
            if (brute_conflict(&b->accesses[i], &b->accesses[j]) &&
                (brute_set_of(b, b->before, j)[i / 64] >> i % 64 & 1) == 0)
                brute_fault(b, "two accesses are not ordered");
}

static inline void *brute_take(uint64_t count, size_t size)
{
    return calloc((size_t)count + 1, size);
}

/* NULL: nothing is wrong. Mixture 0 runs the first pass of each pair first, 1 the second, others at
 * random. */
static inline const char *brute_run(const psti_program_config *config, const psti_program *program,
                                    uint32_t mixture)
{
    const pst_schedule *schedule = config->schedule;
    brute b = {.config = config, .program = program};
    const uint64_t events = (uint64_t)program->num_seats * PSTI_NUM_EVENT_KINDS;
    const uint64_t num = (uint64_t)program->num_operations + program->num_visits;
    uint64_t seed = mixture;
    b.words = (uint32_t)(num / 64 + 1);
    b.num_sets = 18 + 2 * program->num_seats;
    for (uint32_t s = 0; s < BRUTE_STREAMS; s++)
        b.past[s] = brute_take(b.words, sizeof(uint64_t));
    b.records = brute_take(events * b.words, sizeof(uint64_t));
    b.recorded = brute_take(events, sizeof(uint32_t));
    b.before = brute_take(num * b.words, sizeof(uint64_t));
    b.accesses = brute_take(num, sizeof(*b.accesses));
    b.owner = brute_take(b.num_sets, sizeof(uint32_t));
    b.value = brute_take((uint64_t)b.num_sets * PST_MAX_PARTS, sizeof(uint64_t));
    b.held = brute_take((uint64_t)program->num_seats * PST_MAX_PARTS, sizeof(uint64_t));
    for (uint32_t p = 0; p < schedule->num_passes; p++) {
        if (schedule->passes[p].pairs) {
            brute_pair(&b, p++, &seed, mixture);
            continue;
        }
        const uint32_t first = program->first_visit[p];
        for (uint32_t l = 0; l < config->num_layers[schedule->passes[p].chunk]; l++) {
            brute_hook(&b, first + l, false, 0);
            brute_hook(&b, first + l, true, 0);
        }
    }
    brute_order(&b);
    for (uint64_t t = 0; t < (uint64_t)program->num_seats * PST_MAX_PARTS; t++)
        if (b.held[t] != 0)
            brute_fault(&b, "a ticket is left full");
    for (uint32_t s = 0; s < BRUTE_STREAMS; s++)
        free(b.past[s]);
    free(b.records);
    free(b.recorded);
    free(b.before);
    free(b.accesses);
    free(b.owner);
    free(b.value);
    free(b.held);
    return b.fault;
}

/* In all of some mixtures. */
static inline const char *brute_check(const psti_program_config *config,
                                      const psti_program *program)
{
    bool has_pairs = false;
    for (uint64_t p = 0; p < config->schedule->num_passes; p++)
        has_pairs |= config->schedule->passes[p].pairs;
    const char *fault = NULL;
    for (uint32_t mixture = 0; mixture < (has_pairs ? 8 : 1) && !fault; mixture++)
        fault = brute_run(config, program, mixture);
    return fault;
}

#endif
