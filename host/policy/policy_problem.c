/* What is asked, checked and laid out: stages, layers at one page size, what may become of each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/arith.h"
#include "host/base/structs.h"
#include "host/policy/policy.h"

#define MAX_BYTES (UINT64_C(1) << 61)
#define DEFAULT_DEN 8u
#define DEFAULT_BLOCKS 8u
#define DEFAULT_SETS 4u
#define ROUNDING_PARTS 200u /* 0.5 % */
#define MAX_BLOCKS 64u
#define DEFAULT_EVALUATIONS 4096u
#define DEFAULT_COMBINATIONS 4096u
#define WORK UINT64_C(4000000) /* visits that are simulated in all: about a second */

void *psti_problem_take(psti_problem *problem, uint64_t count, size_t size)
{
    if (problem->num_memory == problem->room_memory) {
        const uint32_t room = problem->room_memory ? 2 * problem->room_memory : 64;
        void **memory = psti_calloc(room, sizeof(void *));
        if (!memory)
            return NULL;
        if (problem->num_memory > 0)
            memcpy(memory, problem->memory, problem->num_memory * sizeof(void *));
        psti_free(problem->memory);
        problem->memory = memory;
        problem->room_memory = room;
    }
    void *taken = psti_calloc((size_t)count + 1, size);
    if (taken)
        problem->memory[problem->num_memory++] = taken;
    return taken;
}

void psti_problem_free(psti_problem *problem)
{
    for (uint32_t s = 0; problem->stages && s < problem->num_stages; s++)
        pst_schedule_destroy(problem->stages[s].shortened);
    for (uint32_t i = 0; i < problem->num_memory; i++)
        psti_free(problem->memory[i]);
    psti_free(problem->memory);
    *problem = (psti_problem){0};
}

/* ---- checks ---- */

static pst_status check_numbers(const pst_policy_config *config)
{
    PSTI_CHECK(config->share_den <= PSTI_POLICY_MAX_DEN, PST_E_INVALID,
               "share_den %u: allowed are up to %u", config->share_den, PSTI_POLICY_MAX_DEN);
    PSTI_CHECK(config->objective <= PST_POLICY_LEAST_EXPOSED, PST_E_INVALID,
               "objective %d: there are 0 and 1", (int)config->objective);
    PSTI_CHECK(config->sets <= PST_POLICY_SETS_CALLERS, PST_E_INVALID, "sets %d: there are 0 and 1",
               (int)config->sets);
    PSTI_CHECK((config->given & ~PST_POLICY_GIVEN_ALL) == 0, PST_E_INVALID,
               "given 0x%x: allowed are the bits 0x%x", config->given, PST_POLICY_GIVEN_ALL);
    PSTI_CHECK(config->max_sets <= PST_MAX_SETS, PST_E_INVALID, "max_sets %u: allowed are up to %u",
               config->max_sets, PST_MAX_SETS);
    PSTI_CHECK(config->quantile_per_mille <= 1000, PST_E_INVALID,
               "quantile_per_mille %u: allowed are up to 1000", config->quantile_per_mille);
    PSTI_CHECK(config->set_bytes <= MAX_BYTES && config->reserve_bytes <= MAX_BYTES, PST_E_INVALID,
               "set_bytes %" PRIu64 ", reserve_bytes %" PRIu64 ": allowed are up to 2^61",
               config->set_bytes, config->reserve_bytes);
    PSTI_CHECK(config->routings || config->num_routings == 0, PST_E_INVALID,
               "routings is NULL, num_routings is %u", config->num_routings);
    return PST_OK;
}

static pst_status check_page_bytes(const pst_policy_config *config)
{
    PSTI_CHECK(!config->page_bytes == (config->num_page_bytes == 0), PST_E_INVALID,
               "num_page_bytes %u: wants as many page_bytes", config->num_page_bytes);
    for (uint32_t i = 0; i < config->num_page_bytes; i++) {
        const uint64_t bytes = config->page_bytes[i];
        PSTI_CHECK(bytes >= PST_PAGE_BYTES_MIN && bytes <= PST_PAGE_BYTES_MAX &&
                       (bytes & (bytes - 1)) == 0 && (i == 0 || bytes > config->page_bytes[i - 1]),
                   PST_E_INVALID,
                   "page_bytes[%u] %" PRIu64 ": allowed are powers of two, 16 KiB to 4 MiB, rising",
                   i, bytes);
    }
    return PST_OK;
}

static pst_status check_allowed(const pst_policy_layer *allowed, uint32_t stage, uint32_t layer)
{
    PSTI_CHECK(allowed->treatments < 1u << (PST_KEEP_RECOMPUTED + 1), PST_E_INVALID,
               "stage %u, layer %u: treatments 0x%x: allowed are the bits 0xf", stage, layer,
               allowed->treatments);
    const psti_wide swapped =
        allowed->whole_bytes + (psti_wide)allowed->token_bytes * allowed->num_tokens;
    PSTI_CHECK(swapped <= MAX_BYTES && allowed->planned_bytes <= MAX_BYTES, PST_E_INVALID,
               "stage %u, layer %u: whole_bytes, token_bytes and num_tokens, or planned_bytes: "
               "allowed are together up to 2^61",
               stage, layer);
    if (allowed->treatments & 1u << PST_KEEP_SWAPPED)
        PSTI_CHECK(swapped > 0 && allowed->block_tokens <= allowed->num_tokens, PST_E_INVALID,
                   "stage %u, layer %u: SWAPPED wants whole_bytes or token_bytes and num_tokens, "
                   "and block_tokens up to those",
                   stage, layer);
    if (allowed->block_tokens > 0)
        PSTI_CHECK(allowed->num_tokens / allowed->block_tokens <= MAX_BLOCKS, PST_E_INVALID,
                   "stage %u, layer %u: block_tokens %" PRIu64 " of %" PRIu64
                   ": allowed are up to %u blocks",
                   stage, layer, allowed->block_tokens, allowed->num_tokens, MAX_BLOCKS);
    return PST_OK;
}

/* ---- page size ---- */

typedef struct usage_sum {
    psti_wide payload, pages;
} usage_sum;

static uint64_t pages_of(const pst_group_usage *usage, uint64_t page_bytes)
{
    return usage->stream_bytes / page_bytes + (usage->stream_bytes % page_bytes != 0);
}

static const pst_simulated_layer *layer_of(const psti_problem *problem, uint32_t routing,
                                           uint32_t stage, uint32_t i)
{
    const bool is_own = routing == 0 || !problem->config.routings;
    const pst_simulated_layer *const *stages =
        is_own ? problem->simulation.layers : problem->config.routings[routing - 1];
    const size_t bytes = is_own ? problem->simulation.layer_bytes : problem->config.routing_bytes;
    return (const pst_simulated_layer *)(const void *)((const char *)stages[stage] + i * bytes);
}

static void sum_usages(const psti_problem *problem, uint64_t page_bytes, usage_sum *sum)
{
    for (uint32_t r = 0; r < problem->num_routings; r++)
        for (uint32_t s = 0; s < problem->num_stages; s++)
            for (uint32_t i = 0; i < problem->simulation.num_layers[s]; i++) {
                const pst_simulated_layer *layer = layer_of(problem, r, s, i);
                const uint32_t parts = layer->num_parts ? layer->num_parts : 1;
                for (uint32_t u = 0; layer->usages && u < parts * layer->num_usages; u++) {
                    sum->payload += layer->usages[u].payload_bytes;
                    sum->pages += pages_of(&layer->usages[u], page_bytes);
                }
            }
}

static void choose_page_bytes(psti_problem *problem)
{
    const pst_policy_config *config = &problem->config;
    const uint64_t given =
        problem->simulation.page_bytes ? problem->simulation.page_bytes : PST_PAGE_BYTES_DEFAULT;
    uint64_t sizes[64];
    uint32_t num = 0;
    for (; num < config->num_page_bytes && num < 64; num++)
        sizes[num] = config->page_bytes[num];
    if (num == 0)
        for (uint64_t bytes = PST_PAGE_BYTES_MIN; bytes <= PST_PAGE_BYTES_MAX; bytes *= 2)
            sizes[num++] = bytes;
    problem->page_bytes = config->given & PST_POLICY_GIVEN_PAGE_BYTES ? given : sizes[0];
    if (config->given & PST_POLICY_GIVEN_PAGE_BYTES)
        return;
    for (uint32_t i = 0; i < num; i++) {
        usage_sum sum = {0};
        sum_usages(problem, sizes[i], &sum);
        if (sum.pages * sizes[i] * ROUNDING_PARTS <= sum.payload * (ROUNDING_PARTS + 1))
            problem->page_bytes = sizes[i];
    }
}

/* ---- routings ---- */

typedef struct routing_size {
    uint64_t pages;
    uint32_t routing;
} routing_size;

static int by_pages(const void *a, const void *b)
{
    const routing_size *x = a, *y = b;
    if (x->pages != y->pages)
        return x->pages < y->pages ? 1 : -1;
    return (x->routing > y->routing) - (x->routing < y->routing);
}

static uint64_t pages_of_routing(const psti_problem *problem, uint32_t routing)
{
    uint64_t pages = 0;
    for (uint32_t s = 0; s < problem->num_stages; s++)
        for (uint32_t i = 0; i < problem->simulation.num_layers[s]; i++) {
            const pst_simulated_layer *layer = layer_of(problem, routing, s, i);
            const uint32_t parts = layer->num_parts ? layer->num_parts : 1;
            for (uint32_t u = 0; layer->usages && u < parts * layer->num_usages; u++)
                pages = psti_plus(pages, pages_of(&layer->usages[u], problem->page_bytes));
        }
    return pages;
}

/* The one at the quantile, then the others by falling pages, so that what is beyond a limit shows
 * early. */
static pst_status order_routings(psti_problem *problem)
{
    const uint32_t num = problem->num_routings;
    routing_size *sizes = psti_problem_take(problem, num, sizeof(*sizes));
    problem->routings = psti_problem_take(problem, num, sizeof(*problem->routings));
    PSTI_CHECK(sizes && problem->routings, PST_E_NOMEM, "no memory for %u routings", num);
    for (uint32_t r = 0; r < num; r++)
        sizes[r] = (routing_size){.pages = pages_of_routing(problem, r), .routing = r};
    qsort(sizes, num, sizeof(*sizes), by_pages);
    const uint64_t share =
        problem->config.quantile_per_mille ? problem->config.quantile_per_mille : 1000;
    const uint64_t within = psti_div_up(share * num, 1000);
    const uint32_t first = num - (uint32_t)(within ? within : 1);
    problem->routings[0] = sizes[first].routing;
    for (uint32_t r = 0, at = 1; r < num; r++)
        if (r != first)
            problem->routings[at++] = sizes[r].routing;
    return PST_OK;
}

/* ---- what may become of a layer ---- */

static void add_option(psti_place *place, psti_option *options, pst_keep keep, uint32_t share,
                       uint64_t tokens)
{
    options[place->num_options++] =
        (psti_option){.keep = keep, .share_num = share, .tokens = tokens};
}

static void add_swaps(psti_place *place, psti_option *options)
{
    const uint64_t all = place->allowed.num_tokens;
    const uint64_t block = place->allowed.block_tokens ? place->allowed.block_tokens
                                                       : psti_div_up(all, DEFAULT_BLOCKS);
    uint64_t tokens = all;
    for (;;) {
        add_option(place, options, PST_KEEP_SWAPPED, 0, tokens);
        if (tokens == 0)
            return;
        tokens = tokens > block ? (tokens - 1) / block * block : 0;
    }
}

/* The layer's own treatment and those that are allowed, as psti_option says. */
static void list_options(const psti_problem *problem, const pst_simulated_layer *layer,
                         psti_place *place, psti_option *options)
{
    const uint32_t bits = place->allowed.treatments ? place->allowed.treatments : 1u << layer->keep;
    const bool is_given = place->allowed.treatments == 0 && layer->keep != PST_KEEP_PAGED;
    place->options = options;
    if (is_given) {
        add_option(place, options, layer->keep, 0, layer->policy.swap_tokens);
        options[0].is_given = true;
        return;
    }
    if (bits & 1u << PST_KEEP_PLANNED)
        add_option(place, options, PST_KEEP_PLANNED, 0, 0);
    if (bits & 1u << PST_KEEP_PAGED) {
        const bool shares_given = problem->config.given & PST_POLICY_GIVEN_SHARES;
        for (uint32_t num = 0; num <= (shares_given ? 0 : problem->share_den); num++)
            add_option(place, options, PST_KEEP_PAGED, num, 0);
        if (shares_given)
            options[place->num_options - 1].is_given = true;
    }
    if (bits & 1u << PST_KEEP_SWAPPED)
        add_swaps(place, options);
    if (bits & 1u << PST_KEEP_RECOMPUTED)
        add_option(place, options, PST_KEEP_RECOMPUTED, 0, 0);
}

static bool stays(const pst_simulated_layer *layer, const psti_option *option)
{
    if (option->keep == PST_KEEP_PAGED)
        return option->is_given ? layer->policy.host_num == 0 : option->share_num == 0;
    return option->keep == PST_KEEP_PLANNED;
}

/* ---- stages ---- */

/* The layer with usages of its own, at the page size. */
static pst_status copy_layer(psti_problem *problem, uint32_t routing, uint32_t stage, uint32_t i,
                             pst_simulated_layer *copy)
{
    const pst_simulation_config *simulation = &problem->simulation;
    psti_take_element(copy, simulation->layers[stage], i, simulation->layer_bytes);
    copy->struct_size = sizeof(*copy);
    const pst_simulated_layer *from = layer_of(problem, routing, stage, i);
    const uint32_t parts = copy->num_parts ? copy->num_parts : 1;
    PSTI_CHECK(parts <= PST_MAX_PARTS, PST_E_INVALID,
               "stage %u, layer %u: num_parts %u: allowed are up to %u", stage, i, parts,
               PST_MAX_PARTS);
    PSTI_CHECK((from->num_parts ? from->num_parts : 1) == parts, PST_E_INVALID,
               "stage %u, layer %u: num_parts %u, of routing %u %u", stage, i, parts, routing,
               from->num_parts);
    copy->num_usages = from->num_usages;
    copy->glu_bytes = from->glu_bytes;
    problem->has_glus |= copy->keep == PST_KEEP_PAGED && copy->glu_parts != 0;
    if (!from->usages)
        return PST_OK;
    const uint64_t num = (uint64_t)parts * from->num_usages;
    pst_group_usage *usages = psti_problem_take(problem, num, sizeof(*usages));
    PSTI_CHECK(usages, PST_E_NOMEM, "no memory for %" PRIu64 " usages", num);
    for (uint64_t u = 0; u < num; u++) {
        usages[u] = from->usages[u];
        usages[u].pages = pages_of(&usages[u], problem->page_bytes);
    }
    copy->usages = usages;
    return PST_OK;
}

static pst_status make_places(psti_problem *problem, psti_stage *stage)
{
    const pst_policy_config *config = &problem->config;
    const uint32_t most = 2 * (PSTI_POLICY_MAX_DEN + 2) + MAX_BLOCKS + 4;
    stage->places = psti_problem_take(problem, stage->num_layers, sizeof(psti_place));
    stage->picks = psti_problem_take(problem, stage->num_layers, sizeof(uint32_t));
    stage->options =
        psti_problem_take(problem, (uint64_t)stage->num_layers * most, sizeof(psti_option));
    PSTI_CHECK(stage->places && stage->picks && stage->options, PST_E_NOMEM,
               "no memory for %u layers", stage->num_layers);
    stage->static_bytes = config->static_bytes ? config->static_bytes[stage->index] : 0;
    PSTI_CHECK(stage->static_bytes <= MAX_BYTES, PST_E_INVALID,
               "stage %u: static_bytes %" PRIu64 ": allowed are up to 2^61", stage->index,
               stage->static_bytes);
    stage->combinations = 1;
    uint64_t planned = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        psti_place *place = &stage->places[i];
        if (config->layers)
            psti_take_element(&place->allowed, config->layers[stage->index], i,
                              config->layer_bytes);
        PSTI_TRY(check_allowed(&place->allowed, stage->index, i));
        const pst_simulated_layer *layer = &stage->layers[0][i];
        list_options(problem, layer, place, stage->options + (size_t)i * most);
        while (place->home < place->num_options && !stays(layer, &place->options[place->home]))
            place->home++;
        place->leaves_always = place->home == place->num_options;
        place->home = place->leaves_always ? 0 : place->home;
        stage->picks[i] = place->home;
        stage->combinations = psti_times(stage->combinations, place->num_options);
        planned = psti_plus(planned, place->allowed.planned_bytes);
        for (uint32_t o = 0; o < place->num_options; o++)
            problem->may_swap |= place->options[o].keep == PST_KEEP_SWAPPED;
    }
    PSTI_CHECK(planned <= stage->static_bytes, PST_E_INVALID,
               "stage %u: planned_bytes of its layers are %" PRIu64 ", static_bytes %" PRIu64,
               stage->index, planned, stage->static_bytes);
    return PST_OK;
}

static pst_status make_stage(psti_problem *problem, uint32_t s)
{
    psti_stage *stage = &problem->stages[s];
    const pst_simulation_config *simulation = &problem->simulation;
    stage->index = s;
    stage->num_layers = simulation->num_layers[s];
    stage->schedule = simulation->schedules[s];
    stage->layers = psti_problem_take(problem, problem->num_routings, sizeof(*stage->layers));
    PSTI_CHECK(stage->layers, PST_E_NOMEM, "no memory for %u routings", problem->num_routings);
    for (uint32_t r = 0; r < problem->num_routings; r++) {
        pst_simulated_layer *copies =
            psti_problem_take(problem, stage->num_layers, sizeof(*copies));
        PSTI_CHECK(copies, PST_E_NOMEM, "no memory for %u layers", stage->num_layers);
        for (uint32_t i = 0; i < stage->num_layers; i++)
            PSTI_TRY(copy_layer(problem, problem->routings[r], s, i, &copies[i]));
        stage->layers[r] = copies;
    }
    for (uint64_t p = 0; p < stage->schedule->num_passes; p++)
        problem->has_pairs |= stage->schedule->passes[p].pairs;
    problem->has_split |= stage->schedule->splits_backward;
    PSTI_TRY(make_places(problem, stage));
    PSTI_TRY(psti_policy_shorten(problem, stage));
    return psti_bound_lifetimes(stage);
}

static pst_status take_scratch(psti_problem *problem)
{
    uint64_t layers = 0;
    for (uint32_t s = 0; s < problem->num_stages; s++)
        layers += problem->stages[s].num_layers;
    const uint64_t samples = (uint64_t)problem->num_stages * problem->num_routings;
    problem->scratch = psti_problem_take(problem, layers, sizeof(*problem->scratch));
    problem->scratch_layers =
        psti_problem_take(problem, problem->num_stages, sizeof(*problem->scratch_layers));
    problem->results = psti_problem_take(problem, problem->num_stages, sizeof(*problem->results));
    problem->samples =
        psti_problem_take(problem, samples * PSTI_NUM_SAMPLES, sizeof(*problem->samples));
    PSTI_CHECK(problem->scratch && problem->scratch_layers && problem->results && problem->samples,
               PST_E_NOMEM, "no memory for %" PRIu64 " layers", layers);
    return PST_OK;
}

/* The simulation, as it is, says what is wrong with it. */
static pst_status try_simulation(const psti_problem *problem)
{
    pst_simulation_config config = problem->simulation;
    config.on_event = NULL;
    pst_simulation simulation = {0};
    pst_stage_result *results = psti_calloc(config.num_stages + 1u, sizeof(*results));
    PSTI_CHECK(results, PST_E_NOMEM, "no memory for %u stages", config.num_stages);
    const pst_status status = pst_simulate(&config, &simulation, results);
    psti_free(results);
    return status;
}

pst_status psti_problem_make(const pst_policy_config *config, psti_problem *problem)
{
    *problem = (psti_problem){0};
    {
        PSTI_TAKE(pst_policy_config, whole, config);
        problem->config = whole;
    }
    PSTI_CHECK(problem->config.simulation, PST_E_INVALID, "simulation is NULL");
    {
        PSTI_TAKE(pst_simulation_config, whole, problem->config.simulation);
        problem->simulation = whole;
    }
    PSTI_TRY(check_numbers(&problem->config));
    PSTI_TRY(check_page_bytes(&problem->config));
    if (problem->config.layers)
        PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_policy_layer, &problem->config, layer_bytes));
    if (problem->config.routings)
        PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_simulated_layer, &problem->config, routing_bytes));
    PSTI_TRY(try_simulation(problem));
    problem->num_stages = problem->simulation.num_stages;
    problem->num_routings = problem->config.num_routings + 1;
    problem->share_den = problem->config.share_den ? problem->config.share_den : DEFAULT_DEN;
    problem->most_sets = problem->config.max_sets ? problem->config.max_sets : DEFAULT_SETS;
    choose_page_bytes(problem);
    problem->simulation.page_bytes = problem->page_bytes;
    problem->simulation.on_event = NULL;
    problem->most_total_bytes = problem->most_exposed_ns = UINT64_MAX;
    PSTI_TRY(order_routings(problem));
    problem->stages = psti_problem_take(problem, problem->num_stages, sizeof(psti_stage));
    PSTI_CHECK(problem->stages, PST_E_NOMEM, "no memory for %u stages", problem->num_stages);
    uint64_t visits = 0;
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        PSTI_TRY(make_stage(problem, s));
        visits = psti_plus(visits, problem->stages[s].num_visits);
    }
    const uint64_t affordable = visits ? WORK * problem->num_stages / visits : WORK;
    problem->max_evaluations = problem->config.max_evaluations;
    if (problem->max_evaluations == 0)
        problem->max_evaluations = psti_min(DEFAULT_EVALUATIONS, affordable);
    problem->max_combinations = problem->config.max_combinations;
    if (problem->max_combinations == 0)
        problem->max_combinations = DEFAULT_COMBINATIONS;
    return take_scratch(problem);
}
