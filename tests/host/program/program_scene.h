/* A schedule, its layers and the program compiled from them, for tests. */
#ifndef PAGESTASH_TESTS_PROGRAM_SCENE_H
#define PAGESTASH_TESTS_PROGRAM_SCENE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/program/program.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { SCENE_CHUNKS = 4, SCENE_LAYERS = 256, SCENE_SEATS = 4096 };

typedef struct scene {
    pst_schedule *schedule;
    uint32_t num_layers[SCENE_CHUNKS], num_slots[SCENE_CHUNKS];
    psti_program_layer layers[SCENE_LAYERS];
    uint32_t forward_alias[SCENE_SEATS], backward_alias[SCENE_SEATS];
    psti_program_config config;
    psti_program *program;
} scene;

static inline psti_program_layer scene_layer(void)
{
    return (psti_program_layer){.keep = PST_KEEP_PAGED,
                                .num_parts = 1,
                                .uses = {PST_USE_BACKWARD | PST_USE_WEIGHT},
                                .promote_ahead = 1};
}

static inline void scene_close(scene *self)
{
    psti_program_free(self->program);
    pst_schedule_destroy(self->schedule);
    self->program = NULL;
    self->schedule = NULL;
}

/* All layers PAGED, of one part; F sources and D destinations. */
static inline pst_status scene_open(scene *self, const pst_schedule_config *schedule,
                                    uint32_t num_layers, uint32_t sources, uint32_t destinations)
{
    *self = (scene){.schedule = NULL};
    for (uint32_t c = 0; c < SCENE_CHUNKS; c++)
        self->num_layers[c] = num_layers;
    for (uint32_t l = 0; l < SCENE_LAYERS; l++)
        self->layers[l] = scene_layer();
    self->config = (psti_program_config){.num_layers = self->num_layers,
                                         .layers = self->layers,
                                         .num_sources = sources,
                                         .num_destinations = destinations,
                                         .num_streams = 1};
    const pst_status status = pst_schedule_create(schedule, &self->schedule);
    self->config.schedule = self->schedule;
    return status;
}

static inline pst_schedule_config scene_kind(pst_schedule_kind kind, uint32_t p, uint32_t stage,
                                             uint32_t m)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    config.kind = kind;
    config.num_stages = p;
    config.stage = stage;
    config.num_micro_batches = m;
    return config;
}

/* "F0.1 I0.0+ W1.2": kind (F, B whole, I, W), chunk, micro-batch, + for the first of a pair. */
static inline uint64_t scene_parse(const char *text, pst_pass *passes, uint64_t room)
{
    static const char kinds[] = "FBIW";
    uint64_t num = 0;
    for (const char *at = text; *at != 0 && num < room; num++) {
        char *end;
        passes[num] = (pst_pass){.kind = (pst_pass_kind)(strchr(kinds, *at) - kinds)};
        passes[num].chunk = (uint32_t)strtoul(at + 1, &end, 10);
        passes[num].micro_batch = (uint32_t)strtoul(end + 1, &end, 10);
        passes[num].pairs = *end == '+';
        at = end + strspn(end, "+ ");
    }
    return num;
}

/* A random schedule: `num` passes; at most 3 chunks, 6 micro-batches each. */
typedef struct random_list {
    pst_pass passes[3 * 6 * 3];
    uint32_t num, num_chunks;
    bool splits, has_pairs;
} random_list;

static inline bool random_pass(uint64_t *seed, uint32_t num_chunks, uint32_t m, bool splits,
                               uint8_t states[3][6], pst_pass *pass)
{
    enum { NEW, LIVE, WHOLE_LEFT, DONE };
    const uint32_t c = (uint32_t)random_below(seed, num_chunks);
    const uint32_t i = (uint32_t)random_below(seed, m);
    uint8_t *state = &states[c][i];
    if (*state == DONE)
        return false;
    *pass = (pst_pass){.chunk = c, .micro_batch = i};
    if (*state == NEW) {
        *state = LIVE;
    } else if (*state == WHOLE_LEFT) {
        pass->kind = PST_PASS_BACKWARD_WEIGHT;
        *state = DONE;
    } else if (splits && random_below(seed, 4) > 0) {
        pass->kind = PST_PASS_BACKWARD_INPUT;
        *state = random_below(seed, 8) == 0 ? DONE : WHOLE_LEFT;
    } else {
        pass->kind = PST_PASS_BACKWARD;
        *state = DONE;
    }
    return true;
}

static inline random_list random_schedule(uint64_t *seed, bool with_pairs)
{
    random_list list = {.num_chunks = 1 + (uint32_t)random_below(seed, 3)};
    uint8_t states[3][6] = {{0}};
    const uint32_t m = 1 + (uint32_t)random_below(seed, 6);
    list.splits = random_below(seed, 2) != 0;
    uint32_t left = list.num_chunks * m;
    while (left > 0) {
        pst_pass *pass = &list.passes[list.num];
        if (!random_pass(seed, list.num_chunks, m, list.splits, states, pass))
            continue;
        list.num++;
        left -= states[pass->chunk][pass->micro_batch] == 3;
    }
    for (uint32_t n = 0; with_pairs && n + 1 < list.num; n++) {
        const pst_pass *a = &list.passes[n], *b = &list.passes[n + 1];
        const bool may = (a->kind == PST_PASS_FORWARD) != (b->kind == PST_PASS_FORWARD) &&
                         (a->chunk != b->chunk || a->micro_batch != b->micro_batch) &&
                         (n == 0 || !list.passes[n - 1].pairs);
        list.passes[n].pairs = may && random_below(seed, 2) == 0;
        list.has_pairs |= list.passes[n].pairs;
    }
    return list;
}

static inline void random_layers(uint64_t *seed, scene *self, bool swaps)
{
    for (uint32_t c = 0; c < SCENE_CHUNKS; c++)
        self->num_layers[c] = (uint32_t)random_below(seed, 5);
    for (uint32_t l = 0; l < 4 * SCENE_CHUNKS; l++) {
        psti_program_layer *layer = &self->layers[l];
        const uint64_t keep = random_below(seed, 10);
        layer->keep = keep < 7    ? PST_KEEP_PAGED
                      : keep == 7 ? PST_KEEP_SWAPPED
                      : keep == 8 ? PST_KEEP_PLANNED
                                  : PST_KEEP_RECOMPUTED;
        if (layer->keep == PST_KEEP_SWAPPED && !swaps)
            layer->keep = PST_KEEP_PLANNED;
        layer->num_parts = (uint8_t)(1 + random_below(seed, 3));
        for (uint32_t p = 0; p < layer->num_parts; p++)
            layer->uses[p] = (uint8_t)(1 + random_below(seed, 3));
        layer->holds = random_below(seed, 3) == 0;
        layer->demotes = self->config.num_streams > 1 && random_below(seed, 3) == 0;
        layer->promote_ahead = 1 + (uint32_t)random_below(seed, 3);
        if (layer->keep == PST_KEEP_PAGED && random_below(seed, 3) == 0)
            layer->glus = (uint8_t)random_below(seed, 1u << layer->num_parts);
        layer->promotes = layer->glus && !layer->demotes && random_below(seed, 2) == 0;
    }
}

/* A random list with random layers and sets. Fails: what pst_schedule_create does. */
static inline pst_status scene_random(scene *self, uint64_t *seed)
{
    const bool with_pairs = random_below(seed, 2) == 0;
    const random_list list = random_schedule(seed, with_pairs);
    pst_schedule_config schedule = PST_SCHEDULE_CONFIG_INIT;
    schedule.kind = PST_SCHEDULE_LIST;
    schedule.passes = list.passes;
    schedule.num_passes = list.num;
    const uint32_t sources = 1 + (uint32_t)random_below(seed, 4);
    const uint32_t destinations = 1 + (uint32_t)random_below(seed, 4);
    const pst_status status = scene_open(self, &schedule, 0, sources, destinations);
    psti_program_config *config = &self->config;
    if (status != PST_OK)
        return status;
    config->num_streams = 1u << random_below(seed, 3);
    config->ahead = (uint32_t)random_below(seed, 5);
    config->keeps_nothing = random_below(seed, 6) == 0;
    switch (random_below(seed, 5)) {
    case 0:
        config->by_slot = true;
        break;
    case 1:
        config->by_slot = true;
        config->forward_alias = self->forward_alias;
        config->backward_alias = self->backward_alias;
        break;
    case 2:
        config->one_ring = !list.has_pairs;
        config->num_sources += config->one_ring ? config->num_destinations : 0;
        break;
    case 3:
        if (!list.has_pairs && !self->schedule->splits_backward) {
            config->rule = PST_RESTORE_NEXT;
            config->num_streams = 1;
        }
        break;
    default:
        break;
    }
    for (uint32_t c = 0; c < self->schedule->num_chunks; c++) /* some have more than they need */
        self->num_slots[c] = self->schedule->chunks[c].num_slots + (uint32_t)random_below(seed, 2);
    config->num_slots = random_below(seed, 3) == 0 ? self->num_slots : NULL;
    const uint64_t num_aliases = 1 + random_below(seed, 12);
    for (uint32_t s = 0; s < SCENE_SEATS; s++) {
        self->forward_alias[s] = 1000 + 77 * (uint32_t)random_below(seed, num_aliases);
        self->backward_alias[s] = 1000 + 77 * (uint32_t)random_below(seed, 2 * num_aliases);
    }
    random_layers(seed, self, !list.has_pairs);
    return PST_OK;
}

/* For whoever looks into a failed test. */
static inline void scene_print(const scene *self)
{
    static const char *const acts[] = {"wait",    "record",    "join",       "STASH",
                                       "RESTORE", "DEMOTE",    "PROMOTE",    "SWAP_OUT",
                                       "SWAP_IN", "GLU_STASH", "GLU_RESTORE"};
    static const char *const events[] = {"produced",  "stashed",   "free",
                                         "restored",  "restoredW", "consumed",
                                         "consumedW", "demoted",   "promoted"};
    const psti_program *program = self->program;
    for (uint32_t h = 0; h < 2 * program->num_visits; h++) {
        const psti_visit *visit = &program->visits[h / 2];
        const pst_pass *pass = &self->schedule->passes[visit->pass];
        printf("%4u %c%u.%u layer %u %s seat %u set %u keep %u%s%s%s%s:", h / 2, "FBIW"[pass->kind],
               pass -> chunk, pass -> micro_batch, visit -> layer, h % 2 ? "end  " : "begin",
               visit->seat, visit->set, visit->keep, visit->in_place ? " in place" : "",
               visit->is_restored ? " restored" : "", visit->is_held ? " held" : "",
               visit->in_pair ? " pair" : "");
        for (uint32_t n = program->hooks[h]; n < program->hooks[h + 1]; n++) {
            const psti_operation *o = &program->operations[n];
            printf(" [%u %s", n, acts[o->act]);
            if (o->act <= PSTI_ACT_RECORD)
                printf(" %s", events[o->event]);
            printf(" on %u seat %u visit %u part %u%s]", o->stream, o->seat, o->visit, o->part,
                   o->keeps ? " keeps" : "");
        }
        printf("\n");
    }
}

#endif
