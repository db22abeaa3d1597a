/* Shares and treatments of one stage under one form: Belady's start, then all, or a local search. */
#include <stdlib.h>
#include <string.h>

#include "host/base/arith.h"
#include "host/policy/policy.h"

#define TINY_STAGE 5u  /* layers up to which pairs change by up to four steps */
#define SMALL_STAGE 8u /* by up to two */
#define ALL_PAIRS 24u  /* layers beyond which pairs are neighbours in their order */
#define NEAR_LAYERS 4u

typedef struct search {
    psti_problem *problem;
    const psti_form *form;
    psti_stage *stage;
    uint32_t *best_picks;
    psti_cost best;
    bool has_best;
    struct away *list; /* room for a step of each option */
    uint32_t frozen;   /* a layer that stays as it is; UINT32_MAX: none */
} search;

static bool is_over(const search *self)
{
    return self->problem->evaluations >= self->problem->max_evaluations;
}

static pst_status look(search *self, psti_cost *cost_out)
{
    return psti_policy_evaluate_stage(self->problem, self->form, self->stage, cost_out);
}

static pst_status note_if_better(search *self)
{
    psti_cost cost;
    PSTI_TRY(look(self, &cost));
    if (self->has_best && !psti_cost_is_less(&cost, &self->best))
        return PST_OK;
    self->best = cost;
    self->has_best = true;
    memcpy(self->best_picks, self->stage->picks, self->stage->num_layers * sizeof(uint32_t));
    return PST_OK;
}

static void use_best(search *self)
{
    memcpy(self->stage->picks, self->best_picks, self->stage->num_layers * sizeof(uint32_t));
}

/* ---- start ---- */

/* A step away from home: of one layer to one option. */
struct away {
    uint32_t layer, option;
    uint64_t lifetime_ns, order; /* order: among those of a layer */
    double price;                /* recomputation for a byte that it spares */
};
typedef struct away away;

static int by_lifetime(const void *a, const void *b)
{
    const away *x = a, *y = b;
    if (x->lifetime_ns != y->lifetime_ns)
        return x->lifetime_ns < y->lifetime_ns ? 1 : -1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_need(const void *a, const void *b)
{
    const away *x = a, *y = b;
    return x->lifetime_ns != y->lifetime_ns ? -by_lifetime(a, b) : by_lifetime(a, b);
}

static int by_price(const void *a, const void *b)
{
    const away *x = a, *y = b;
    if (x->price < y->price || x->price > y->price)
        return x->price < y->price ? -1 : 1;
    return by_lifetime(a, b);
}

static int by_order(const void *a, const void *b)
{
    const away *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* Shares step by step; of a planned layer, all tokens at once. */
static uint64_t list_moves(const psti_stage *stage, away *list)
{
    uint64_t num = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const psti_place *place = &stage->places[i];
        bool has_swap = false;
        for (uint32_t o = place->home + 1; o < place->num_options; o++) {
            const psti_option *option = &place->options[o];
            if (option->keep == PST_KEEP_RECOMPUTED ||
                (option->keep == PST_KEEP_SWAPPED && has_swap))
                continue;
            has_swap |= option->keep == PST_KEEP_SWAPPED;
            list[num++] = (away){.layer = i,
                                 .option = o,
                                 .lifetime_ns = place->lifetime_ns,
                                 .order = o - place->home};
        }
    }
    return num;
}

static uint64_t list_recomputed(const psti_stage *stage, away *list)
{
    uint64_t num = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const psti_place *place = &stage->places[i];
        const pst_policy_layer *allowed = &place->allowed;
        const uint32_t last = place->num_options - 1;
        if (place->options[last].keep != PST_KEEP_RECOMPUTED || last == place->home)
            continue;
        uint64_t bytes = allowed->planned_bytes;
        for (uint32_t u = 0; u < stage->layers[0][i].num_usages && stage->layers[0][i].usages; u++)
            bytes = psti_plus(bytes, stage->layers[0][i].usages[u].stream_bytes);
        list[num++] = (away){.layer = i,
                             .option = last,
                             .lifetime_ns = place->lifetime_ns,
                             .price = (double)allowed->recompute_ns / (double)(bytes ? bytes : 1)};
    }
    return num;
}

static void go_home(psti_stage *stage)
{
    for (uint32_t i = 0; i < stage->num_layers; i++)
        stage->picks[i] = stage->places[i].home;
}

static void go(psti_stage *stage, const away *list, uint64_t num)
{
    go_home(stage);
    for (uint64_t n = 0; n < num; n++)
        stage->picks[list[n].layer] = list[n].option;
}

/* The fewest steps of the list with which the GPU has room. */
static pst_status fewest_steps(search *self, const away *list, uint64_t num)
{
    uint64_t low = 0, high = num;
    psti_cost cost;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        go(self->stage, list, middle);
        PSTI_TRY(look(self, &cost));
        if (cost.missing[0] == 0)
            high = middle;
        else
            low = middle + 1;
    }
    go(self->stage, list, low);
    return note_if_better(self);
}

/* Orders in which layers leave: the one needed last first (Belady), all in step, the one needed
 * first first; and by what recomputation costs. */
static const struct start {
    int (*compare)(const void *a, const void *b);
    bool recomputes;
} starts[] = {{by_lifetime, false}, {by_order, false}, {by_need, false}, {by_price, true}};

enum { NUM_STARTS = sizeof(starts) / sizeof(starts[0]) };

static pst_status try_start(search *self, const struct start *start, away *list)
{
    const uint64_t num =
        start->recomputes ? list_recomputed(self->stage, list) : list_moves(self->stage, list);
    qsort(list, num, sizeof(*list), start->compare);
    return num ? fewest_steps(self, list, num) : PST_OK;
}

/* The first start with which it fits. */
static pst_status try_starts(search *self, away *list)
{
    go_home(self->stage);
    PSTI_TRY(note_if_better(self));
    for (int i = 0; i < NUM_STARTS && (self->best.missing[0] || self->best.missing[1]); i++)
        PSTI_TRY(try_start(self, &starts[i], list));
    return PST_OK;
}

static void search_free(search *self)
{
    psti_free(self->list);
    psti_free(self->best_picks);
}

static pst_status search_make(search *self, psti_problem *problem, const psti_form *form,
                              psti_stage *stage)
{
    *self = (search){.problem = problem, .form = form, .stage = stage, .frozen = UINT32_MAX};
    uint64_t options = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++)
        options += stage->places[i].num_options;
    self->best_picks = psti_calloc(stage->num_layers + 1u, sizeof(uint32_t));
    self->list = psti_calloc((size_t)options + 1, sizeof(*self->list));
    if (self->best_picks && self->list)
        return PST_OK;
    search_free(self);
    return PSTI_FAIL(PST_E_NOMEM, "no memory for %llu options", (unsigned long long)options);
}

pst_status psti_policy_start(psti_problem *problem, const psti_form *form, psti_stage *stage,
                             psti_cost *cost_out)
{
    search all;
    PSTI_TRY(search_make(&all, problem, form, stage));
    const pst_status status = try_starts(&all, all.list);
    if (status == PST_OK) {
        use_best(&all);
        *cost_out = all.best;
    }
    search_free(&all);
    return status;
}

/* ---- all of them ---- */

static bool next_combination(psti_stage *stage)
{
    for (uint32_t i = stage->num_layers; i-- > 0;) {
        if (++stage->picks[i] < stage->places[i].num_options)
            return true;
        stage->picks[i] = 0;
    }
    return false;
}

static pst_status try_all(search *self)
{
    memset(self->stage->picks, 0, self->stage->num_layers * sizeof(uint32_t));
    do
        PSTI_TRY(note_if_better(self));
    while (next_combination(self->stage));
    use_best(self);
    return PST_OK;
}

/* ---- local search ---- */

static bool has_option(const search *self, uint32_t layer, int64_t option)
{
    return layer != self->frozen && option >= 0 &&
           option < (int64_t)self->stage->places[layer].num_options;
}

static pst_status try_pick(search *self, uint32_t layer, int64_t option)
{
    uint32_t *pick = &self->stage->picks[layer];
    const uint32_t before = *pick;
    if (!has_option(self, layer, option) || option == before || is_over(self))
        return PST_OK;
    *pick = (uint32_t)option;
    const pst_status status = note_if_better(self);
    *pick = before;
    return status;
}

/* One step up, one down, and the first and last of each other treatment. */
static pst_status try_layer(search *self, uint32_t layer)
{
    const psti_place *place = &self->stage->places[layer];
    const int64_t pick = self->stage->picks[layer];
    PSTI_TRY(try_pick(self, layer, pick - 1));
    PSTI_TRY(try_pick(self, layer, pick + 1));
    for (uint32_t o = 0; o < place->num_options; o++) {
        const bool is_edge = o == 0 || o + 1 == place->num_options ||
                             place->options[o].keep != place->options[o - 1].keep ||
                             place->options[o].keep != place->options[o + 1].keep;
        if (is_edge && (int64_t)o != pick - 1 && (int64_t)o != pick + 1)
            PSTI_TRY(try_pick(self, layer, o));
    }
    return PST_OK;
}

/* Two layers at once, each by up to `most` steps. */
static pst_status try_pair(search *self, uint32_t a, uint32_t b, int64_t most)
{
    uint32_t *pick = &self->stage->picks[a];
    const int64_t before = *pick, other = self->stage->picks[b];
    pst_status status = PST_OK;
    for (int64_t up = -most; up <= most && status == PST_OK; up++) {
        if (up == 0 || !has_option(self, a, before + up))
            continue;
        *pick = (uint32_t)(before + up);
        for (int64_t down = -most; down <= most && status == PST_OK; down++)
            if (down != 0 && (most > 1 || (up < 0) != (down < 0)))
                status = try_pick(self, b, other + down);
    }
    *pick = (uint32_t)before;
    return status;
}

/* Of three layers one gives and two take, or two give and one takes. */
static pst_status try_triple(search *self, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t *pick = &self->stage->picks[a];
    const int64_t before = *pick;
    pst_status status = PST_OK;
    for (int64_t up = -1; up <= 1 && status == PST_OK; up += 2) {
        if (!has_option(self, a, before + up))
            continue;
        *pick = (uint32_t)(before + up);
        status = try_pair(self, b, c, 1);
    }
    *pick = (uint32_t)before;
    return status;
}

static pst_status try_neighbours(search *self)
{
    const uint32_t num = self->stage->num_layers;
    const bool is_small = num <= SMALL_STAGE;
    const int64_t most = num <= TINY_STAGE ? 4 : is_small ? 2 : 1;
    for (uint32_t a = 0; a < num; a++)
        PSTI_TRY(try_layer(self, a));
    for (uint32_t a = 0; a < num; a++)
        for (uint32_t b = a + 1; b < num && (num <= ALL_PAIRS || b <= a + NEAR_LAYERS); b++)
            PSTI_TRY(try_pair(self, a, b, most));
    for (uint32_t a = 0; a < num && is_small; a++)
        for (uint32_t b = 0; b < num; b++)
            for (uint32_t c = b + 1; c < num; c++)
                if (a != b && a != c)
                    PSTI_TRY(try_triple(self, a, b, c));
    return PST_OK;
}

static pst_status improve(search *self)
{
    for (;;) {
        const psti_cost before = self->best;
        PSTI_TRY(try_neighbours(self));
        if (!psti_cost_is_less(&self->best, &before))
            return PST_OK;
        use_best(self);
        if (is_over(self))
            return PST_OK;
    }
}

/* From the picks in force, as another search: if that finds better, it becomes the best. */
static pst_status improve_from(search *self, search *other)
{
    other->has_best = false;
    PSTI_TRY(note_if_better(other));
    PSTI_TRY(improve(other));
    if (!psti_cost_is_less(&other->best, &self->best))
        return PST_OK;
    use_best(other);
    self->has_best = false;
    return note_if_better(self);
}

/* From each other start. */
static pst_status improve_starts(search *self, search *other)
{
    for (int i = 0; i < NUM_STARTS && !is_over(self); i++) {
        other->has_best = false;
        PSTI_TRY(try_start(other, &starts[i], other->list));
        if (!other->has_best)
            continue;
        use_best(other);
        PSTI_TRY(improve_from(self, other));
    }
    return PST_OK;
}

/* From the best with one layer at an end of its options: the others first, then all. */
static pst_status improve_kicked(search *self, search *other)
{
    for (uint32_t i = 0; i < self->stage->num_layers && !is_over(self); i++)
        for (int end = 0; end < 2; end++) {
            use_best(self);
            const uint32_t option = end ? self->stage->places[i].num_options - 1 : 0;
            if (self->stage->picks[i] == option)
                continue;
            self->stage->picks[i] = option;
            other->has_best = false;
            PSTI_TRY(note_if_better(other));
            other->frozen = i;
            PSTI_TRY(improve(other));
            other->frozen = UINT32_MAX;
            PSTI_TRY(improve_from(self, other));
        }
    return PST_OK;
}

/* From the picks in force and from others; the best of all is in force then. */
static pst_status improve_all(search *self)
{
    search other;
    PSTI_TRY(note_if_better(self));
    PSTI_TRY(improve(self));
    PSTI_TRY(search_make(&other, self->problem, self->form, self->stage));
    pst_status status = improve_starts(self, &other);
    if (status == PST_OK)
        status = improve_kicked(self, &other);
    search_free(&other);
    use_best(self);
    return status;
}

/* Layers whose move changes nothing, such as those that are always kept in place, stay at home. */
static pst_status settle(search *self)
{
    for (uint32_t i = 0; i < self->stage->num_layers; i++) {
        psti_cost cost;
        uint32_t *pick = &self->stage->picks[i];
        const uint32_t before = *pick;
        if (before == self->stage->places[i].home)
            continue;
        *pick = self->stage->places[i].home;
        PSTI_TRY(look(self, &cost));
        if (psti_cost_is_less(&self->best, &cost))
            *pick = before;
        else
            self->best = cost;
    }
    return PST_OK;
}

pst_status psti_policy_search(psti_problem *problem, const psti_form *form, psti_stage *stage,
                              psti_cost *cost, bool *all_tried_out)
{
    search all;
    *all_tried_out = stage->combinations <= problem->max_combinations;
    PSTI_TRY(search_make(&all, problem, form, stage));
    pst_status status = *all_tried_out ? try_all(&all) : improve_all(&all);
    if (status == PST_OK)
        status = settle(&all);
    *cost = all.best;
    search_free(&all);
    return status;
}
