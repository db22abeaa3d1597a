/* Defects planted in programs: what the brute force calls wrong the check has to find. */
#include <stdio.h>

#include "tests/host/program/program_brute.h"

typedef enum defect {
    DROP_WAIT = 0,
    DROP_RECORD,
    DROP_JOIN,
    DROP_TRANSFER,
    SWAP_NEIGHBOURS,
    EARLIER_WAIT,
    OTHER_SEAT,
    OTHER_STREAM,
    OTHER_PART,
    OTHER_KEEPS,
    OTHER_SET,
    NUM_DEFECTS
} defect;

static const char *const names[NUM_DEFECTS] = {
    "wait left out",     "record left out",    "join left out",
    "transfer left out", "neighbours swapped", "wait in an earlier hook",
    "other seat",        "other stream",       "other part",
    "keeps or not",      "other set",
};

typedef struct tally {
    uint32_t planted[NUM_DEFECTS], harmful[NUM_DEFECTS], found[NUM_DEFECTS];
} tally;

/* A program whose visits, hooks and operations may be spoilt. */
typedef struct spoilt {
    psti_program program;
    psti_visit *visits;
    uint32_t *hooks;
    psti_operation *operations;
} spoilt;

static void spoilt_open(spoilt *self, const psti_program *from)
{
    const size_t visits = from->num_visits;
    self->program = *from;
    self->visits = calloc(visits + 1, sizeof(*self->visits));
    self->hooks = calloc(2 * visits + 1, sizeof(*self->hooks));
    self->operations = calloc((size_t)from->num_operations + 1, sizeof(*self->operations));
    self->program.visits = self->visits;
    self->program.hooks = self->hooks;
    self->program.operations = self->operations;
}

static void spoilt_reset(spoilt *self, const psti_program *from)
{
    self->program.num_operations = from->num_operations;
    memcpy(self->visits, from->visits, from->num_visits * sizeof(*self->visits));
    memcpy(self->hooks, from->hooks, (2 * (size_t)from->num_visits + 1) * sizeof(*self->hooks));
    memcpy(self->operations, from->operations, from->num_operations * sizeof(*self->operations));
}

static void spoilt_close(spoilt *self)
{
    free(self->visits);
    free(self->hooks);
    free(self->operations);
}

static uint32_t hook_of(const spoilt *self, uint32_t n)
{
    uint32_t hook = 0;
    while (self->hooks[hook + 1] <= n)
        hook++;
    return hook;
}

static void drop(spoilt *self, uint32_t n)
{
    const uint32_t num = self->program.num_operations--;
    memmove(&self->operations[n], &self->operations[n + 1], (num - n - 1) * sizeof(psti_operation));
    for (uint32_t h = 0; h <= 2 * self->program.num_visits; h++)
        self->hooks[h] -= self->hooks[h] > n;
}

/* Operation n to the end of the hook before its own. */
static void advance(spoilt *self, uint32_t n)
{
    const psti_operation operation = self->operations[n];
    const uint32_t hook = hook_of(self, n);
    uint32_t at = n;
    for (; at > self->hooks[hook]; at--)
        self->operations[at] = self->operations[at - 1];
    self->operations[at] = operation;
    self->hooks[hook]++;
    for (uint32_t h = hook; h > 0 && self->hooks[h - 1] > self->hooks[h]; h--)
        self->hooks[h - 1] = self->hooks[h];
}

static bool is_transfer(const psti_operation *operation)
{
    return operation->act > PSTI_ACT_JOIN;
}

/* Plants the defect at operation n. Returns whether it can be there. */
static bool plant_at(spoilt *self, defect which, uint32_t n)
{
    psti_operation *o = &self->operations[n];
    const psti_operation was = *o;
    switch (which) {
    case DROP_WAIT:
    case DROP_RECORD:
    case DROP_JOIN:
    case DROP_TRANSFER:
        if (which == DROP_TRANSFER ? !is_transfer(o)
                                   : o->act != (which == DROP_WAIT     ? PSTI_ACT_WAIT
                                                : which == DROP_RECORD ? PSTI_ACT_RECORD
                                                                       : PSTI_ACT_JOIN))
            return false;
        drop(self, n);
        return true;
    case SWAP_NEIGHBOURS:
        if (n + 1 == self->program.num_operations || hook_of(self, n) != hook_of(self, n + 1))
            return false;
        *o = o[1];
        o[1] = was;
        return memcmp(&was, o, sizeof(was)) != 0;
    case EARLIER_WAIT:
        if (o->act != PSTI_ACT_WAIT || hook_of(self, n) == 0)
            return false;
        advance(self, n);
        return true;
    case OTHER_SEAT:
        o->seat = (o->seat + 1) % self->program.num_seats;
        return o->seat != was.seat && o->act != PSTI_ACT_JOIN;
    case OTHER_STREAM:
        o->stream = (uint8_t)((o->stream + 1) % (self->program.num_streams + 1));
        return true;
    case OTHER_PART:
        o->part = (uint8_t)((o->part + 1) % PST_MAX_PARTS);
        return is_transfer(o);
    case OTHER_KEEPS:
        o->keeps = !o->keeps;
        return o->act == PSTI_ACT_RESTORE;
    default:
        return false;
    }
}

static bool plant(spoilt *self, const psti_program_config *config, defect which, uint32_t n)
{
    if (which != OTHER_SET)
        return n < self->program.num_operations && plant_at(self, which, n);
    if (n >= self->program.num_visits)
        return false;
    psti_visit *visit = &self->visits[n];
    const uint8_t was = visit->set;
    const bool is_source = visit->kind == PST_PASS_FORWARD || visit->in_place || config->one_ring;
    const uint32_t sets = visit->keep == PST_KEEP_SWAPPED ? 2
                          : is_source                     ? config->num_sources
                                                          : config->num_destinations;
    if (visit->set != PSTI_NO_SET)
        visit->set = (uint8_t)((visit->set + 1u) % sets);
    return visit->set != was;
}

/* What the check does not find must not matter; what it finds may be a matter of form. */
static void judge(const psti_program_config *config, const spoilt *bad, defect which, uint32_t n,
                  tally *all)
{
    const bool is_found = psti_program_check(config, &bad->program) != PST_OK;
    const char *harm = brute_check(config, &bad->program);
    all->planted[which]++;
    all->harmful[which] += harm != NULL;
    all->found[which] += is_found;
    CHECK_MSG(is_found || !harm, "%s, at %u, is not found: %s", names[which], n, harm);
    /* A wait that is left out is found if and only if it was needed. */
    CHECK_MSG(which != DROP_WAIT || !is_found || harm, "%s, at %u, does no harm, but: %s",
              names[which], n, pst_last_message());
}

static void plant_all(const scene *s, tally *all)
{
    spoilt bad;
    spoilt_open(&bad, s->program);
    const uint32_t num = s->program->num_operations + s->program->num_visits;
    for (uint32_t which = 0; which < NUM_DEFECTS; which++)
        for (uint32_t n = 0; n < num; n++) {
            spoilt_reset(&bad, s->program);
            if (plant(&bad, &s->config, (defect)which, n))
                judge(&s->config, &bad, (defect)which, n, all);
        }
    spoilt_close(&bad);
}

/* ---- small programs of each form ---- */

typedef struct form {
    const char *list;
    uint32_t layers, sources, destinations, streams;
    bool one_ring, by_slot, next;
    uint8_t keep, parts;
    uint8_t uses[2];
    bool demotes, holds;
} form;

static const form forms[] = {
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 3,
     .sources = 2,
     .destinations = 2,
     .streams = 1},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 3,
     .sources = 1,
     .destinations = 2,
     .streams = 2},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 2,
     .sources = 2,
     .destinations = 2,
     .streams = 4,
     .by_slot = true},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 3,
     .sources = 3,
     .destinations = 1,
     .streams = 2,
     .one_ring = true},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 3,
     .sources = 1,
     .destinations = 1,
     .streams = 1,
     .next = true},
    {.list = "F0.0 F0.1 I0.0 W0.0 I0.1 W0.1",
     .layers = 2,
     .sources = 2,
     .destinations = 2,
     .streams = 2,
     .parts = 2,
     .uses = {PST_USE_BACKWARD | PST_USE_WEIGHT, PST_USE_WEIGHT}},
    {.list = "F0.0 F0.1 I0.0 W0.0 I0.1 W0.1",
     .layers = 1,
     .sources = 2,
     .destinations = 2,
     .streams = 1,
     .holds = true},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 2,
     .sources = 2,
     .destinations = 2,
     .streams = 4,
     .demotes = true},
    {.list = "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
     .layers = 3,
     .streams = 4,
     .keep = PST_KEEP_SWAPPED,
     .sources = 1,
     .destinations = 1},
    {.list = "F0.0 F0.1 F0.2+ B0.0 F0.3+ B0.1 B0.2 B0.3",
     .layers = 2,
     .sources = 2,
     .destinations = 2,
     .streams = 1},
    {.list = "F0.0 F0.1 F0.2+ B0.0 B0.1+ F0.3 B0.2 B0.3",
     .layers = 2,
     .sources = 2,
     .destinations = 2,
     .streams = 2,
     .by_slot = true},
};

static pst_status open_form(scene *s, const form *of)
{
    pst_pass passes[16];
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    list.kind = PST_SCHEDULE_LIST;
    list.passes = passes;
    list.num_passes = scene_parse(of->list, passes, 16);
    const pst_status status = scene_open(s, &list, of->layers, of->sources, of->destinations);
    s->config.num_streams = of->streams;
    s->config.one_ring = of->one_ring;
    s->config.by_slot = of->by_slot;
    s->config.rule = of->next ? PST_RESTORE_NEXT : PST_RESTORE_ASAP;
    for (uint32_t l = 0; l < of->layers; l++) {
        s->layers[l].keep = of->keep;
        s->layers[l].demotes = of->demotes;
        s->layers[l].holds = of->holds;
        if (of->parts != 0) {
            s->layers[l].num_parts = of->parts;
            memcpy(s->layers[l].uses, of->uses, sizeof(of->uses));
        }
    }
    return status == PST_OK ? psti_program_make(&s->config, &s->program) : status;
}

PST_TEST(ProgramDefects, AreFound)
{
    static scene s;
    static tally all;
    for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
        CHECK_OK(open_form(&s, &forms[f]));
        CHECK_OK(psti_program_check(&s.config, s.program));
        const char *harm = brute_check(&s.config, s.program);
        CHECK_MSG(!harm, "form %zu: %s", f, harm);
        plant_all(&s, &all);
        scene_close(&s);
    }
    for (uint32_t which = 0; which < NUM_DEFECTS; which++)
        CHECK_MSG(all.harmful[which] * 10 > all.planted[which] * 4, "%s: %u planted, %u harmful",
                  names[which], all.planted[which], all.harmful[which]);
    CHECK(all.harmful[DROP_WAIT] == all.found[DROP_WAIT]);
    CHECK(all.harmful[DROP_WAIT] < all.planted[DROP_WAIT]); /* some are redundant */
}

PST_TEST(ProgramDefects, OfRandomProgramsAreFound)
{
    uint64_t seed = 25;
    static scene s;
    static tally all;
    const uint32_t cases = psti_test_cases(5000);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        spoilt bad;
        const uint64_t start = seed;
        CHECK_OK(scene_random(&s, &seed));
        if (psti_program_make(&s.config, &s.program) == PST_OK && s.program->num_operations > 0 &&
            s.program->num_operations < 200) {
            spoilt_open(&bad, s.program);
            for (uint32_t k = 0; k < 3; k++) {
                const defect which = (defect)random_below(&seed, NUM_DEFECTS);
                const uint32_t n = (uint32_t)random_below(&seed, s.program->num_operations);
                spoilt_reset(&bad, s.program);
                /* The check knows every mixture of a pair, the brute force tries some. */
                if (plant(&bad, &s.config, which == DROP_WAIT ? DROP_RECORD : which, n))
                    judge(&s.config, &bad, which == DROP_WAIT ? DROP_RECORD : which, n, &all);
            }
            spoilt_close(&bad);
        }
        if (psti_test_failed())
            printf("seed %llu\n", (unsigned long long)start);
        scene_close(&s);
    }
}

/* ---- rules of form ---- */

static bool said(const char *text)
{
    return strstr(pst_last_message(), text) != NULL;
}

/* A graph of a layer takes the main stream's waits and records with it: they stand at the edge. */
PST_TEST(ProgramDefects, MainStreamIsAtTheEdge)
{
    static scene s;
    uint32_t num_records = 0, num_waits = 0;
    for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
        spoilt bad;
        CHECK_OK(open_form(&s, &forms[f]));
        spoilt_open(&bad, s.program);
        for (uint32_t n = 0; n < s.program->num_operations; n++) {
            const psti_operation was = s.program->operations[n];
            spoilt_reset(&bad, s.program);
            const uint32_t hook = hook_of(&bad, n);
            if (was.stream != PSTI_ON_MAIN || n + 1 == s.program->num_operations)
                continue;
            if (was.act == PSTI_ACT_RECORD && bad.hooks[hook + 1] > n + 1) {
                plant(&bad, &s.config, SWAP_NEIGHBOURS, n);
                CHECK_STATUS(psti_program_check(&s.config, &bad.program), PST_E_INVALID);
                num_records += said("is a record of the main stream, and not first in an end");
            } else if (was.act == PSTI_ACT_WAIT && bad.hooks[hook + 1] == n + 1 &&
                       bad.hooks[hook + 2] > n + 1) {
                bad.hooks[hook + 1]++; /* what begins the end becomes the last of the begin */
                CHECK_STATUS(psti_program_check(&s.config, &bad.program), PST_E_INVALID);
                num_waits += said("stands in a begin behind a wait of the main stream");
            }
        }
        spoilt_close(&bad);
        scene_close(&s);
    }
    CHECK(num_records > 0 && num_waits > 0);
}

/* A record or a wait at the end hook of a visit. */
typedef struct edge {
    uint32_t at;
    psti_act act;
    uint32_t visit; /* that records, or was recorded */
} edge;

/* Passes F0 [F1 B0] B1 of one layer that keeps nothing: visits 0 to 3, and these edges alone, on one
 * event. Returns what the check says. */
static const char *say_of(const edge *edges, uint32_t num)
{
    static scene s;
    pst_pass passes[4];
    psti_operation operations[4];
    pst_schedule_config list = PST_SCHEDULE_CONFIG_INIT;
    list.kind = PST_SCHEDULE_LIST;
    list.passes = passes;
    list.num_passes = scene_parse("F0.0 F0.1+ B0.0 B0.1", passes, 4);
    if (scene_open(&s, &list, 1, 1, 1) != PST_OK)
        return "no schedule";
    s.layers[0].keep = PST_KEEP_PLANNED;
    if (psti_program_make(&s.config, &s.program) != PST_OK)
        return "no program";
    psti_program program = *s.program;
    program.operations = operations;
    program.num_operations = num;
    program.event_kinds[0] = 1u << PSTI_EVENT_PROMOTED;
    for (uint32_t h = 0; h <= 8; h++)
        for (uint32_t i = 0; i < num; i++)
            program.hooks[h] += h > 2 * edges[i].at + 1;
    for (uint32_t i = 0; i < num; i++)
        operations[i] = (psti_operation){.act = (uint8_t)edges[i].act,
                                         .stream = PSTI_ON_SIDE,
                                         .event = PSTI_EVENT_PROMOTED,
                                         .visit = edges[i].visit};
    const pst_status status = psti_program_check(&s.config, &program);
    scene_close(&s);
    return status == PST_OK ? "" : pst_last_message();
}

/* Which record is the last before a wait must not depend on how the hooks of a pair mix. */
PST_TEST(ProgramDefects, MixturesOfAPair)
{
    const edge good[] = {{0, PSTI_ACT_RECORD, 0},
                         {1, PSTI_ACT_WAIT, 0},
                         {2, PSTI_ACT_WAIT, 0},
                         {3, PSTI_ACT_RECORD, 3}};
    CHECK_STR(say_of(good, 4), "");
    const edge behind[] = {{1, PSTI_ACT_RECORD, 1}, {3, PSTI_ACT_WAIT, 1}};
    CHECK_STR(say_of(behind, 2), "");
    const edge none[] = {{1, PSTI_ACT_WAIT, 1}};
    CHECK(strstr(say_of(none, 1), "has no record before it"));
    const edge across[] = {{1, PSTI_ACT_RECORD, 1}, {2, PSTI_ACT_WAIT, 1}};
    CHECK(strstr(say_of(across, 2), "comes before or after, as the hooks of a pair may,"));
    const edge again[] = {{0, PSTI_ACT_RECORD, 0}, {1, PSTI_ACT_WAIT, 0}, {2, PSTI_ACT_RECORD, 2}};
    CHECK(strstr(say_of(again, 3), "comes before or after, as the hooks of a pair may,"));
    const edge both[] = {{1, PSTI_ACT_RECORD, 1}, {2, PSTI_ACT_RECORD, 2}, {3, PSTI_ACT_WAIT, 2}};
    CHECK(strstr(say_of(both, 3), "or that of the pair's other pass is the last before"));
    const edge early[] = {{0, PSTI_ACT_RECORD, 0}, {1, PSTI_ACT_WAIT, 1}, {3, PSTI_ACT_RECORD, 3}};
    CHECK(strstr(say_of(early, 3), "is the last before"));
}

/* ---- what is said ---- */

PST_TEST(ProgramDefects, AreNamed)
{
    static scene s;
    spoilt bad;
    CHECK_OK(open_form(&s, &forms[0]));
    spoilt_open(&bad, s.program);
    spoilt_reset(&bad, s.program);
    uint32_t n = 0;
    while (bad.operations[n].act != PSTI_ACT_WAIT || bad.operations[n].stream == PSTI_ON_MAIN)
        n++;
    drop(&bad, n); /* the side stream does not wait for what it stashes */
    CHECK_STATUS(psti_program_check(&s.config, &bad.program), PST_E_INVALID);
    CHECK_SAID(
        "forward of chunk 0, layer 0, micro-batch 0 on the main stream writes what is read, not "
        "ordered before, by stash of part 0 of forward of chunk 0, layer 0, micro-batch 0 on "
        "side stream 1 (operation 1)");
    spoilt_reset(&bad, s.program);
    for (n = 0; bad.operations[n].act != PSTI_ACT_WAIT || bad.operations[n].stream != PSTI_ON_MAIN;)
        n++;
    drop(&bad, n); /* a forward does not wait for its set */
    CHECK_STATUS(psti_program_check(&s.config, &bad.program), PST_E_INVALID);
    CHECK_SAID("stash of part 0 of forward of chunk 0, layer 0, micro-batch 0 on side stream 1 "
               "(operation 2) is at the set of, not ordered before, forward of chunk 0, layer 2, "
               "micro-batch 0 on the main stream");
    spoilt_close(&bad);
    scene_close(&s);
}
