/* Shared by the files that compile a program. */
#ifndef PSTI_HOST_PROGRAM_BUILD_H
#define PSTI_HOST_PROGRAM_BUILD_H

#include "host/program/program.h"

/* Names of sets: sources from 0, destinations and the buffers of swapped layers behind them, aliases
 * of the caller's in a table of their own. */
enum {
    PSTI_FIRST_DESTINATION = PST_MAX_SETS,
    PSTI_FIRST_BUFFER = 2 * PST_MAX_SETS,
    PSTI_NUM_BUFFERS = 2,
    PSTI_NUM_SETS = PSTI_FIRST_BUFFER + PSTI_NUM_BUFFERS
};

typedef struct psti_build {
    const psti_program_config *config;
    psti_program *program;
    uint32_t *before; /* [visits] the user of the visit's set before it, PSTI_NO_VISIT: none */
    uint32_t *after;  /* the next one */
    bool has_pairs;
    uint64_t room; /* operations that program->operations has room for */
} psti_build;

static inline const pst_pass *psti_pass_of(const psti_build *build, const psti_visit *visit)
{
    return &build->config->schedule->passes[visit->pass];
}

static inline const psti_program_layer *psti_layer_of(const psti_build *build,
                                                      const psti_visit *visit)
{
    const uint32_t chunk = psti_pass_of(build, visit)->chunk;
    return &build->config->layers[build->program->first_layer[chunk] + visit->layer];
}

static inline const psti_life *psti_life_of(const psti_build *build, const psti_visit *visit)
{
    const pst_pass *pass = psti_pass_of(build, visit);
    return psti_schedule_life(build->config->schedule, pass->chunk, pass->micro_batch);
}

/* The visit of this layer in another pass of the same chunk and micro-batch. */
static inline uint32_t psti_visit_in(const psti_build *build, const psti_visit *visit,
                                     uint32_t pass)
{
    const pst_pass *of = &build->config->schedule->passes[pass];
    const uint32_t first = build->program->first_visit[pass];
    return of->kind == PST_PASS_FORWARD
               ? first + visit->layer
               : first + build->program->num_layers[of->chunk] - 1 - visit->layer;
}

/* Whether these are visits of the two passes of one pair. */
bool psti_are_paired(const psti_build *build, const psti_visit *a, const psti_visit *b);

/* Bits of the parts that a backward visit reads, PAGED; those of them that are restored into a set; and
 * whether the visit is the last for which `part` is restored. */
uint32_t psti_parts_read(const psti_build *build, const psti_visit *visit);
uint32_t psti_parts_restored(const psti_build *build, const psti_visit *visit);
bool psti_reads_last(const psti_build *build, const psti_visit *visit, uint32_t part);

/* Bits of the parts of a layer whose stash is the scheduler's. */
static inline uint32_t psti_parts_stashed(const psti_program_layer *layer)
{
    return ((1u << layer->num_parts) - 1) & ~(uint32_t)layer->glus;
}

/* The visit whose end hook frees the set of user u. */
uint32_t psti_end_of_user(const psti_build *build, uint32_t user);

/* ---- program_sets.c: who has which set, and what stays in place ---- */

pst_status psti_build_sets(psti_build *build);

/* ---- program_emit.c: the operations of each hook ---- */

pst_status psti_build_operations(psti_build *build);

#endif
