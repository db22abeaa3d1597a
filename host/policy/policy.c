/* Solves: tries the forms, then, where memory is scarce, what leaves the device under the best. */
#include <string.h>

#include "host/base/arith.h"
#include "host/base/structs.h"
#include "host/policy/policy.h"

enum { MAX_FINALISTS = 4, MAX_ROUNDS = 3 };

/* A form with the picks of all stages, and what they cost. */
typedef struct candidate {
    psti_form form;
    uint32_t *picks; /* of all stages */
    psti_evaluation evaluation;
    bool is_there;
} candidate;

typedef struct solver {
    psti_problem problem;
    psti_form forms[PSTI_MAX_FORMS];
    uint32_t num_forms;
    uint32_t num_layers; /* of all stages */
    psti_evaluation now;
    candidate best;
    candidate finalists[MAX_FINALISTS];
    bool has_next, all_tried;
    bool fits_apart; /* under some form each stage by itself fits */
    uint64_t next_exposed_ns, next_total_bytes;
    uint64_t bound_ns;
} solver;

/* ---- picks and candidates ---- */

static void save_picks(const solver *self, uint32_t *picks)
{
    for (uint32_t s = 0; s < self->problem.num_stages; s++) {
        const psti_stage *stage = &self->problem.stages[s];
        memcpy(picks, stage->picks, stage->num_layers * sizeof(uint32_t));
        picks += stage->num_layers;
    }
}

static void load_picks(solver *self, const uint32_t *picks)
{
    for (uint32_t s = 0; s < self->problem.num_stages; s++) {
        psti_stage *stage = &self->problem.stages[s];
        memcpy(stage->picks, picks, stage->num_layers * sizeof(uint32_t));
        picks += stage->num_layers;
    }
}

static void go_home(solver *self)
{
    for (uint32_t s = 0; s < self->problem.num_stages; s++)
        for (uint32_t i = 0; i < self->problem.stages[s].num_layers; i++)
            self->problem.stages[s].picks[i] = self->problem.stages[s].places[i].home;
}

static pst_status take_stages(solver *self, psti_evaluation *evaluation)
{
    evaluation->stages =
        psti_problem_take(&self->problem, self->problem.num_stages, sizeof(pst_policy_stage));
    PSTI_CHECK(evaluation->stages, PST_E_NOMEM, "no memory for %u stages",
               self->problem.num_stages);
    return PST_OK;
}

static pst_status take_candidate(solver *self, candidate *to)
{
    to->picks = psti_problem_take(&self->problem, self->num_layers, sizeof(uint32_t));
    PSTI_CHECK(to->picks, PST_E_NOMEM, "no memory for %u layers", self->num_layers);
    return take_stages(self, &to->evaluation);
}

/* What stands in picks and `now` becomes the candidate. */
static void set_candidate(solver *self, candidate *to, const psti_form *form)
{
    pst_policy_stage *stages = to->evaluation.stages;
    memcpy(stages, self->now.stages, self->problem.num_stages * sizeof(*stages));
    to->evaluation = self->now;
    to->evaluation.stages = stages;
    to->form = *form;
    to->is_there = true;
    save_picks(self, to->picks);
}

static bool fits(const psti_cost *cost)
{
    return cost->missing[0] == 0 && cost->missing[1] == 0;
}

/* ---- nothing moved ---- */

static bool may_stay(const solver *self)
{
    for (uint32_t s = 0; s < self->problem.num_stages; s++)
        for (uint32_t i = 0; i < self->problem.stages[s].num_layers; i++)
            if (self->problem.stages[s].places[i].leaves_always)
                return false;
    return true;
}

/* Total first among those that expose at most what NEXT does; the others by exposed time. */
static bool is_better_unmoved(const solver *self, const psti_cost *a, const psti_cost *b)
{
    const bool a_holds = !self->has_next || a->exposed_ns <= self->next_exposed_ns;
    const bool b_holds = !self->has_next || b->exposed_ns <= self->next_exposed_ns;
    if (fits(a) != fits(b))
        return fits(a);
    if (a_holds != b_holds)
        return a_holds;
    return a_holds ? psti_cost_has_fewer_bytes(a, b) : psti_cost_is_less(a, b);
}

static pst_status try_unmoved(solver *self, const psti_form *form)
{
    const psti_cost *best = &self->best.evaluation.cost;
    if (self->best.is_there && best->exposed_ns <= self->next_exposed_ns) {
        self->problem.most_total_bytes = best->total_bytes;
        self->problem.most_exposed_ns = self->next_exposed_ns;
    }
    PSTI_TRY(psti_policy_evaluate(&self->problem, form, &self->now));
    if (!self->now.is_cut && fits(&self->now.cost) &&
        (!self->best.is_there ||
         is_better_unmoved(self, &self->now.cost, &self->best.evaluation.cost)))
        set_candidate(self, &self->best, form);
    return PST_OK;
}

/* One step at a time from the best, while that helps. */
static pst_status refine_unmoved(solver *self)
{
    while (self->best.is_there) {
        psti_form near[PSTI_MAX_NEAR];
        const psti_form from = self->best.form;
        const uint32_t num = psti_forms_near(&self->problem, &from, near);
        for (uint32_t i = 0; i < num; i++)
            PSTI_TRY(try_unmoved(self, &near[i]));
        if (psti_forms_are_equal(&from, &self->best.form))
            return PST_OK;
    }
    return PST_OK;
}

static pst_status measure_next(solver *self)
{
    psti_form next;
    self->next_exposed_ns = self->next_total_bytes = UINT64_MAX;
    self->has_next = psti_form_next(&self->problem, &next) && may_stay(self);
    if (!self->has_next)
        return PST_OK;
    PSTI_TRY(psti_policy_evaluate(&self->problem, &next, &self->now));
    self->next_exposed_ns = self->now.cost.exposed_ns;
    self->next_total_bytes = self->now.cost.total_bytes;
    return PST_OK;
}

static pst_status solve_unmoved(solver *self)
{
    go_home(self);
    PSTI_TRY(measure_next(self));
    for (uint32_t f = 0; may_stay(self) && f < self->num_forms; f++)
        PSTI_TRY(try_unmoved(self, &self->forms[f]));
    self->all_tried = true;
    PSTI_TRY(refine_unmoved(self));
    self->problem.most_total_bytes = self->problem.most_exposed_ns = UINT64_MAX;
    return PST_OK;
}

/* ---- something moved ---- */

/* The candidate takes its place among the finalists, the best first. */
static void enter(solver *self, const psti_form *form)
{
    candidate *list = self->finalists;
    int at = MAX_FINALISTS - 1;
    if (list[at].is_there && !psti_cost_is_less(&self->now.cost, &list[at].evaluation.cost))
        return;
    set_candidate(self, &list[at], form);
    for (; at > 0 && (!list[at - 1].is_there ||
                      psti_cost_is_less(&list[at].evaluation.cost, &list[at - 1].evaluation.cost));
         at--) {
        const candidate other = list[at - 1];
        list[at - 1] = list[at];
        list[at] = other;
    }
}

static pst_status start_form(solver *self, const psti_form *form)
{
    psti_cost cost;
    for (uint32_t s = 0; s < self->problem.num_stages; s++)
        PSTI_TRY(psti_policy_start(&self->problem, form, &self->problem.stages[s], &cost));
    PSTI_TRY(psti_policy_evaluate(&self->problem, form, &self->now));
    enter(self, form);
    return PST_OK;
}

/* A tie goes to the form that came first, and of one form to what was found last. */
static pst_status note_moved(solver *self, const psti_form *form)
{
    PSTI_TRY(psti_policy_evaluate(&self->problem, form, &self->now));
    const psti_cost *best = &self->best.evaluation.cost;
    const bool is_same = self->best.is_there && psti_forms_are_equal(form, &self->best.form);
    if (!self->best.is_there || psti_cost_is_less(&self->now.cost, best) ||
        (is_same && !psti_cost_is_less(best, &self->now.cost)))
        set_candidate(self, &self->best, form);
    return PST_OK;
}

/* From the picks in force. Evaluations are shared out among what is left to search. */
static pst_status search_form(solver *self, const psti_form *form, uint64_t left)
{
    psti_problem *problem = &self->problem;
    bool fits_apart = true;
    PSTI_TRY(note_moved(self, form)); /* the start counts, too */
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        bool all_tried = false;
        psti_cost cost;
        const uint64_t rest = problem->end_evaluations > problem->evaluations
                                  ? problem->end_evaluations - problem->evaluations
                                  : 0;
        problem->max_evaluations = problem->evaluations + rest / (left * (problem->num_stages - s));
        PSTI_TRY(psti_policy_search(problem, form, &problem->stages[s], &cost, &all_tried));
        self->all_tried &= all_tried;
        fits_apart &= fits(&cost);
    }
    self->fits_apart |= fits_apart;
    return note_moved(self, form);
}

static pst_status refine_moved(solver *self)
{
    psti_form near[PSTI_MAX_NEAR];
    const psti_form from = self->best.form;
    const uint32_t num = psti_forms_near(&self->problem, &from, near);
    for (uint32_t i = 0; i < num; i++) {
        load_picks(self, self->best.picks);
        PSTI_TRY(note_moved(self, &near[i]));
    }
    return PST_OK;
}

/* Combinations of shares, treatments and forms, of the stage that has most. */
static uint64_t count_combinations(const solver *self)
{
    uint64_t most = 1;
    for (uint32_t s = 0; s < self->problem.num_stages; s++) {
        const uint64_t combinations = self->problem.stages[s].combinations;
        most = combinations > most ? combinations : most;
    }
    return psti_times(most, self->num_forms);
}

/* Whether the search sees all that the answer is made of: stages that do not wait for each other, one
 * routing, all micro-batches. */
static bool is_searched_whole(const solver *self)
{
    bool is_whole = self->problem.num_routings == 1 &&
                    (self->problem.num_stages == 1 || self->problem.simulation.alone);
    for (uint32_t s = 0; s < self->problem.num_stages; s++)
        is_whole &= self->problem.stages[s].shortened == NULL;
    return is_whole;
}

static pst_status search_forms(solver *self, bool tries_all)
{
    for (uint32_t f = 0; tries_all && f < self->num_forms; f++)
        PSTI_TRY(search_form(self, &self->forms[f], 1));
    if (tries_all)
        return refine_moved(self);
    for (uint32_t i = 0; i < MAX_FINALISTS; i++)
        self->finalists[i].is_there = false;
    for (uint32_t f = 0; f < self->num_forms; f++)
        PSTI_TRY(start_form(self, &self->forms[f]));
    uint32_t num = 0;
    while (num < MAX_FINALISTS && self->finalists[num].is_there)
        num++;
    for (uint32_t i = 0; i < num; i++) {
        load_picks(self, self->finalists[i].picks);
        PSTI_TRY(search_form(self, &self->finalists[i].form, num - i));
    }
    return refine_moved(self);
}

/* Shares are searched with the routing that decides. Where the others want more pages than it and
 * memory has, so many are left free and the search begins anew. */
static pst_status solve_moved(solver *self)
{
    psti_problem *problem = &self->problem;
    const bool tries_all = count_combinations(self) <= problem->max_combinations;
    const uint64_t evaluations = problem->max_evaluations;
    self->best.is_there = false;
    for (int i = 0; i < MAX_ROUNDS; i++) {
        self->all_tried = tries_all && is_searched_whole(self);
        problem->end_evaluations = psti_plus(problem->evaluations, evaluations);
        problem->max_evaluations = problem->end_evaluations;
        PSTI_TRY(search_forms(self, tries_all));
        const psti_cost *cost = &self->best.evaluation.cost;
        if (fits(cost) || !self->fits_apart || is_searched_whole(self))
            return PST_OK;
        for (int tier = 0; tier < 2; tier++)
            problem->margin_pages[tier] += psti_div_up(cost->missing[tier], problem->page_bytes);
    }
    return PST_OK;
}

/* ---- the answer ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void fill_sums(const solver *self, pst_policy *policy)
{
    for (uint32_t s = 0; s < self->problem.num_stages; s++) {
        const pst_policy_stage *stage = &self->best.evaluation.stages[s];
        policy->num_pages = larger(policy->num_pages, stage->num_pages[0]);
        policy->num_host_pages = larger(policy->num_host_pages, stage->num_pages[1]);
        policy->recompute_ns = larger(policy->recompute_ns, stage->recompute_ns);
        policy->static_bytes = larger(policy->static_bytes, stage->static_bytes);
        policy->pool_bytes = larger(policy->pool_bytes, stage->pool_bytes);
        policy->swap_buffer_bytes = larger(policy->swap_buffer_bytes, stage->swap_buffer_bytes);
        policy->swapped_bytes = larger(policy->swapped_bytes, stage->swapped_bytes);
        policy->gpu_bytes = larger(policy->gpu_bytes, stage->gpu_bytes);
        policy->host_bytes = larger(policy->host_bytes, stage->host_bytes);
        for (int way = 0; way < 2; way++)
            policy->link_bytes[way] = larger(policy->link_bytes[way], stage->link_bytes[way]);
    }
}

static void fill_policy(const solver *self, pst_policy *policy)
{
    const psti_form *form = &self->best.form;
    const psti_cost *cost = &self->best.evaluation.cost;
    *policy = (pst_policy){
        .fits = fits(cost),
        .is_scarce = cost->moves,
        .one_ring = form->one_ring,
        .rule = form->rule,
        .num_sources = form->num_sources,
        .num_destinations = form->num_destinations,
        .ahead = form->ahead,
        .num_streams = form->num_streams,
        .mode = form->mode,
        .num_sets = (uint32_t)self->best.evaluation.num_sets,
        .page_bytes = self->problem.page_bytes,
        .exposed_ns = cost->exposed_ns,
        .makespan_ns = self->best.evaluation.makespan_ns,
        .total_bytes = cost->total_bytes,
        .next_exposed_ns = self->next_exposed_ns,
        .next_total_bytes = self->next_total_bytes,
        .missing_gpu_bytes = cost->missing[0],
        .missing_host_bytes = cost->missing[1],
        .evaluations = self->problem.evaluations,
    };
    policy->sets_bytes = psti_times(policy->num_sets, self->problem.config.set_bytes);
    policy->exposed_bound_ns = policy->fits ? self->bound_ns : 0;
    const bool has_all = self->all_tried && (self->problem.config.given & PST_POLICY_GIVEN_AHEAD);
    policy->is_optimal = policy->fits && (has_all || cost->exposed_ns == self->bound_ns);
    fill_sums(self, policy);
}

static void fill_choices(solver *self, pst_layer_choice *choices)
{
    load_picks(self, self->best.picks);
    for (uint32_t s = 0; s < self->problem.num_stages; s++) {
        const psti_stage *stage = &self->problem.stages[s];
        for (uint32_t i = 0; i < stage->num_layers; i++, choices++) {
            pst_simulated_layer layer = stage->layers[0][i];
            const psti_place *place = &stage->places[i];
            psti_apply_option(&self->problem, place, &place->options[stage->picks[i]], &layer);
            *choices = (pst_layer_choice){
                .stage = s,
                .chunk = layer.chunk,
                .layer = layer.layer,
                .keep = layer.keep,
                .policy = layer.policy,
                .recompute_ns = layer.recompute_ns,
                .swap_bytes = layer.swap_bytes,
            };
        }
    }
}

/* ---- all ---- */

static pst_status solver_make(const pst_policy_config *config, solver *self)
{
    PSTI_TRY(psti_problem_make(config, &self->problem));
    for (uint32_t s = 0; s < self->problem.num_stages; s++)
        self->num_layers += self->problem.stages[s].num_layers;
    PSTI_TRY(take_stages(self, &self->now));
    PSTI_TRY(take_candidate(self, &self->best));
    for (int i = 0; i < MAX_FINALISTS; i++)
        PSTI_TRY(take_candidate(self, &self->finalists[i]));
    self->num_forms = psti_forms_list(&self->problem, self->forms);
    PSTI_CHECK(self->num_forms > 0, PST_E_INVALID,
               "what is given leaves no choice: the rule NEXT knows one side stream, two rings and "
               "whole backwards alone");
    return psti_bound_exposed(&self->problem, &self->bound_ns);
}

static pst_status solve(solver *self, const pst_policy_config *config)
{
    PSTI_TRY(solver_make(config, self));
    PSTI_TRY(solve_unmoved(self));
    const bool is_done =
        self->best.is_there && (self->problem.config.objective == PST_POLICY_LEAST_BYTES);
    return is_done ? PST_OK : solve_moved(self);
}

static pst_status take_answers(const solver *self, pst_policy *policy_out, size_t policy_bytes,
                               pst_policy_stage *stages_out, size_t stage_bytes)
{
    pst_policy policy;
    fill_policy(self, &policy);
    memcpy(policy_out, &policy, policy_bytes);
    for (uint32_t s = 0; stages_out && s < self->problem.num_stages; s++)
        memcpy((char *)stages_out + s * stage_bytes, &self->best.evaluation.stages[s], stage_bytes);
    return PST_OK;
}

pst_status pst_policy_solve_sized(const pst_policy_config *config, pst_policy *policy_out,
                                  size_t policy_bytes, pst_layer_choice *choices_out,
                                  pst_policy_stage *stages_out, size_t stage_bytes)
{
    PSTI_CHECK(config && policy_out && choices_out, PST_E_INVALID,
               "config, policy_out or choices_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_policy, policy_bytes));
    PSTI_TRY(PSTI_CHECK_SIZE(pst_policy_stage, stage_bytes));
    solver *self = psti_calloc(1, sizeof(*self));
    PSTI_CHECK(self, PST_E_NOMEM, "no memory for a solver");
    pst_status status = solve(self, config);
    if (status == PST_OK) {
        status = take_answers(self, policy_out, policy_bytes, stages_out, stage_bytes);
        fill_choices(self, choices_out);
    }
    psti_problem_free(&self->problem);
    psti_free(self);
    return status;
}
