/* Sets of the caller's own: how many exist at once, from the hook that needs one to the hook that lists
 * it as free. */
#include "host/policy/policy.h"

static void fill_program_layer(const psti_problem *problem, const psti_stage *stage, uint32_t i,
                               psti_program_layer *to)
{
    pst_simulated_layer layer = stage->layers[0][i];
    const psti_place *place = &stage->places[i];
    psti_apply_option(problem, place, &place->options[stage->picks[i]], &layer);
    *to = (psti_program_layer){
        .keep = (uint8_t)layer.keep,
        .num_parts = (uint8_t)(layer.num_parts ? layer.num_parts : 1),
        .glus = (uint8_t)(layer.keep == PST_KEEP_PAGED ? layer.glu_parts : 0),
        .holds = layer.policy.holds,
        .demotes = layer.policy.move == PST_MOVE_DEMOTE && layer.policy.host_num > 0,
        .promote_ahead = layer.policy.promote_ahead ? layer.policy.promote_ahead : 1,
    };
    to->promotes = to->glus && layer.policy.host_num > 0 && !to->demotes;
    for (uint32_t part = 0; part < to->num_parts; part++)
        to->uses[part] =
            (uint8_t)(layer.uses[part] ? layer.uses[part] : PST_USE_BACKWARD | PST_USE_WEIGHT);
}

/* Layers chunk after chunk, as programs have them. */
static pst_status make_program(const psti_problem *problem, const psti_form *form,
                               const psti_stage *stage, psti_program_layer *layers,
                               uint32_t *num_layers, psti_program **program_out)
{
    const uint32_t num_chunks = stage->schedule->num_chunks;
    uint32_t at = 0;
    for (uint32_t c = 0; c < num_chunks; c++) {
        const uint32_t first = at;
        for (uint32_t i = 0; i < stage->num_layers; i++)
            if (stage->layers[0][i].chunk == c) {
                fill_program_layer(problem, stage, i, &layers[first + stage->layers[0][i].layer]);
                at++;
            }
        num_layers[c] = at - first;
    }
    const psti_program_config config = {
        .schedule = stage->schedule,
        .num_layers = num_layers,
        .layers = layers,
        .num_sources = form->num_sources,
        .num_destinations = form->num_destinations,
        .ahead = form->ahead,
        .num_streams = form->num_streams,
        .one_ring = form->one_ring,
        .keeps_nothing = problem->simulation.keeps_nothing,
        .by_slot = problem->simulation.by_slot,
        .rule = form->rule,
    };
    return psti_program_make(&config, program_out);
}

typedef struct sets_walk {
    const psti_program *program;
    bool *
        is_held; /* [visits]: the visit's set exists: a forward's source, a backward's destination */
    uint32_t pending[PST_MAX_SETS]; /* the forward whose stash may still read this set */
    uint64_t num, most;
} sets_walk;

static void take(sets_walk *walk, uint32_t visit)
{
    if (walk->is_held[visit])
        return;
    walk->is_held[visit] = true;
    if (++walk->num > walk->most)
        walk->most = walk->num;
}

static void give(sets_walk *walk, uint32_t visit)
{
    walk->num -= walk->is_held[visit];
    walk->is_held[visit] = false;
}

/* As the scheduler's hooks list sources: where the next visit takes the set. */
static void give_pending(sets_walk *walk, uint8_t set)
{
    if (set == PSTI_NO_SET || walk->pending[set] == PSTI_NO_VISIT)
        return;
    give(walk, walk->pending[set]);
    walk->pending[set] = PSTI_NO_VISIT;
}

static void begin_visit(sets_walk *walk, uint32_t v, bool one_ring)
{
    uint32_t num = 0;
    const psti_visit *visit = &walk->program->visits[v];
    const psti_operation *operations = psti_begin_hook(walk->program, v, &num);
    for (uint32_t i = 0; i < num; i++)
        if (operations[i].act == PSTI_ACT_RESTORE)
            take(walk, operations[i].visit);
    if (visit->keep != PST_KEEP_PAGED || visit->partner == PSTI_NO_VISIT)
        return;
    if (visit->kind == PST_PASS_FORWARD) {
        give_pending(walk, visit->set);
        take(walk, v);
        if (!visit->in_place)
            walk->pending[visit->set] = v;
    } else if (one_ring && !visit->in_place) {
        give_pending(walk, visit->set);
    }
}

static void end_visit(sets_walk *walk, uint32_t v)
{
    uint32_t num = 0;
    const psti_visit *visit = &walk->program->visits[v];
    if (visit->kind != PST_PASS_FORWARD && visit->keep == PST_KEEP_PAGED) {
        give(walk, v);
        if (visit->in_place)
            give(walk, visit->partner);
    }
    const psti_operation *operations = psti_end_hook(walk->program, v, &num);
    for (uint32_t i = 0; i < num; i++)
        if (operations[i].act == PSTI_ACT_RESTORE)
            take(walk, operations[i].visit);
}

static pst_status walk_program(const psti_program *program, bool one_ring, uint64_t *num_out)
{
    sets_walk walk = {.program = program};
    for (uint32_t set = 0; set < PST_MAX_SETS; set++)
        walk.pending[set] = PSTI_NO_VISIT;
    walk.is_held = psti_calloc(program->num_visits + 1u, sizeof(bool));
    PSTI_CHECK(walk.is_held, PST_E_NOMEM, "no memory for %u visits", program->num_visits);
    for (uint32_t v = 0; v < program->num_visits; v++) {
        begin_visit(&walk, v, one_ring);
        end_visit(&walk, v);
    }
    psti_free(walk.is_held);
    *num_out = walk.most;
    return PST_OK;
}

pst_status psti_policy_count_sets(const psti_problem *problem, const psti_form *form,
                                  psti_stage *stage, uint64_t *num_out)
{
    psti_program_layer *layers = psti_calloc(stage->num_layers + 1u, sizeof(*layers));
    uint32_t *num_layers = psti_calloc(stage->schedule->num_chunks + 1u, sizeof(*num_layers));
    psti_program *program = NULL;
    pst_status status = PST_E_NOMEM;
    if (layers && num_layers)
        status = make_program(problem, form, stage, layers, num_layers, &program);
    else
        (void)PSTI_FAIL(PST_E_NOMEM, "no memory for %u layers", stage->num_layers);
    if (status == PST_OK)
        status = walk_program(program, form->one_ring, num_out);
    psti_program_free(program);
    psti_free(num_layers);
    psti_free(layers);
    return status;
}
