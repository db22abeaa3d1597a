/* Which rules, sets, rings, numbers of restores ahead and streams there are to choose from. */
#include "host/policy/policy.h"

typedef struct forms {
    psti_form *list;
    uint32_t num, room;
} forms;

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

/* What the simulation has, with its zeros replaced. */
static psti_form given_form(const psti_problem *problem)
{
    const pst_simulation_config *simulation = &problem->simulation;
    return (psti_form){
        .rule = simulation->rule,
        .one_ring = simulation->one_ring,
        .num_sources = or_default(simulation->num_sources, 2),
        .num_destinations = simulation->one_ring ? simulation->num_destinations
                                                 : or_default(simulation->num_destinations, 2),
        .ahead = simulation->ahead,
        .num_streams =
            or_default(simulation->num_streams, simulation->mode == PST_POOL_CONCURRENT ? 2 : 1),
        .mode = simulation->mode,
    };
}

static bool is_given(const psti_problem *problem, uint32_t bit)
{
    return (problem->config.given & bit) != 0;
}

static bool may_ring(const psti_problem *problem)
{
    return !problem->has_pairs && !problem->simulation.by_slot;
}

static bool may_next(const psti_problem *problem)
{
    return !problem->has_pairs && !problem->has_split && !problem->simulation.by_slot;
}

static bool has_rule(const psti_problem *problem, pst_restore_rule rule)
{
    if (is_given(problem, PST_POLICY_GIVEN_RULE))
        return problem->simulation.rule == rule;
    return rule == PST_RESTORE_ASAP || may_next(problem);
}

static void add(forms *to, psti_form form)
{
    if (to->num < to->room)
        to->list[to->num++] = form;
}

/* The form with each number of streams. */
static void add_streams(const psti_problem *problem, forms *to, psti_form form)
{
    const psti_form given = given_form(problem);
    if (is_given(problem, PST_POLICY_GIVEN_STREAMS)) {
        form.num_streams = given.num_streams;
        form.mode = given.mode;
        if (form.rule == PST_RESTORE_ASAP || form.num_streams == 1)
            add(to, form);
        return;
    }
    form.num_streams = 1;
    form.mode = problem->has_glus ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    add(to, form);
    if (form.rule == PST_RESTORE_NEXT)
        return;
    form.num_streams = 2;
    form.mode = PST_POOL_CONCURRENT;
    add(to, form);
    form.num_streams = 4;
    if (problem->may_swap)
        add(to, form);
}

static void add_asap(const psti_problem *problem, forms *to, uint32_t ahead)
{
    const psti_form given = given_form(problem);
    psti_form form = {.rule = PST_RESTORE_ASAP, .ahead = ahead};
    if (is_given(problem, PST_POLICY_GIVEN_SETS)) {
        form.one_ring = given.one_ring;
        form.num_sources = given.num_sources;
        form.num_destinations = given.num_destinations;
        add_streams(problem, to, form);
        return;
    }
    for (uint32_t sources = 1; sources <= problem->most_sets; sources++)
        for (uint32_t destinations = 1; destinations <= problem->most_sets; destinations++) {
            form.num_sources = sources;
            form.num_destinations = destinations;
            add_streams(problem, to, form);
        }
    form.one_ring = true;
    form.num_destinations = 0;
    const uint32_t most_ring =
        problem->most_sets * 2 < PST_MAX_SETS ? problem->most_sets * 2 : PST_MAX_SETS;
    for (uint32_t sets = 1; may_ring(problem) && sets <= most_ring; sets++) {
        form.num_sources = sets;
        add_streams(problem, to, form);
    }
}

uint32_t psti_forms_list(const psti_problem *problem, psti_form list[PSTI_MAX_FORMS])
{
    forms all = {.list = list, .room = PSTI_MAX_FORMS};
    const uint32_t ahead =
        is_given(problem, PST_POLICY_GIVEN_AHEAD) ? problem->simulation.ahead : 0;
    if (has_rule(problem, PST_RESTORE_ASAP))
        add_asap(problem, &all, ahead);
    if (has_rule(problem, PST_RESTORE_NEXT)) {
        const psti_form given = given_form(problem);
        psti_form next = {.rule = PST_RESTORE_NEXT, .num_sources = 1, .num_destinations = 1};
        if (is_given(problem, PST_POLICY_GIVEN_SETS)) {
            next.num_sources = given.num_sources;
            next.num_destinations = given.num_destinations;
        }
        if (!is_given(problem, PST_POLICY_GIVEN_SETS) || !given.one_ring)
            add_streams(problem, &all, next);
    }
    return all.num;
}

bool psti_form_next(const psti_problem *problem, psti_form *form_out)
{
    *form_out = (psti_form){
        .rule = PST_RESTORE_NEXT,
        .num_sources = 1,
        .num_destinations = 1,
        .num_streams = 1,
        .mode = problem->has_glus ? PST_POOL_CONCURRENT : PST_POOL_ORDERED,
    };
    return may_next(problem);
}

static uint32_t most_ahead(const psti_form *form)
{
    return form->one_ring ? form->num_sources : form->num_destinations;
}

bool psti_forms_are_equal(const psti_form *a, const psti_form *b)
{
    return a->rule == b->rule && a->one_ring == b->one_ring && a->num_sources == b->num_sources &&
           a->num_destinations == b->num_destinations && a->ahead == b->ahead &&
           a->num_streams == b->num_streams && a->mode == b->mode;
}

uint32_t psti_forms_near(const psti_problem *problem, const psti_form *form,
                         psti_form near[PSTI_MAX_NEAR])
{
    uint32_t num = 0;
    const uint32_t most = most_ahead(form), ahead = or_default(form->ahead, most);
    if (form->rule == PST_RESTORE_NEXT || is_given(problem, PST_POLICY_GIVEN_AHEAD))
        return 0;
    if (ahead > 1) {
        near[num] = *form;
        near[num++].ahead = ahead - 1;
    }
    if (ahead < most) {
        near[num] = *form;
        near[num++].ahead = ahead + 1 == most ? 0 : ahead + 1;
    }
    return num;
}
