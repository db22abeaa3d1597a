/* Gives every visit that holds buffers a set, decides what stays in place, and chains the users of
 * each set in the order of visits. */
#include <string.h>

#include "host/base/table.h"
#include "host/program/build.h"

static bool is_forward(const psti_visit *visit)
{
    return visit->kind == PST_PASS_FORWARD;
}

/* A forward whose layer keeps something in sets of buffers for one backward or several. */
static bool is_source(const psti_visit *visit, uint8_t keep)
{
    return is_forward(visit) && visit->keep == keep && visit->partner != PSTI_NO_VISIT;
}

static bool has_one_use(const psti_build *build, const psti_visit *visit)
{
    const psti_life *life = psti_life_of(build, visit);
    return life->first_backward == life->last_backward && !build->config->keeps_nothing;
}

static void keep_in_place(psti_build *build, psti_visit *visit)
{
    visit->in_place = true;
    build->program->visits[visit->partner].in_place = true;
}

/* ---- sources by position: round and round ---- */

static void keep_holder(psti_build *build, uint32_t holder)
{
    if (holder != PSTI_NO_VISIT && has_one_use(build, &build->program->visits[holder]))
        keep_in_place(build, &build->program->visits[holder]);
}

/* A forward stays in place if the next one with its set comes after its backward. */
static void keep_until_taken(psti_build *build)
{
    psti_visit *visits = build->program->visits;
    uint32_t holders[PST_MAX_SETS];
    memset(holders, 0xff, sizeof(holders));
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        if (!is_source(&visits[v], PST_KEEP_PAGED))
            continue;
        uint32_t *holder = &holders[visits[v].set];
        if (*holder != PSTI_NO_VISIT && visits[*holder].partner < v)
            keep_holder(build, *holder);
        *holder = v;
    }
    for (uint32_t set = 0; set < build->config->num_sources; set++)
        keep_holder(build, holders[set]);
}

/* A forward stays in place if the very next visit is its backward. */
static void keep_next(psti_build *build)
{
    psti_visit *visits = build->program->visits;
    for (uint32_t v = 0; v < build->program->num_visits; v++)
        if (is_source(&visits[v], PST_KEEP_PAGED) && visits[v].partner == v + 1 &&
            !build->config->keeps_nothing)
            keep_in_place(build, &visits[v]);
}

static void round_sources(psti_build *build)
{
    uint32_t position = 0;
    for (uint32_t v = 0; v < build->program->num_visits; v++)
        if (is_source(&build->program->visits[v], PST_KEEP_PAGED))
            build->program->visits[v].set = (uint8_t)(position++ % build->config->num_sources);
}

/* ---- one ring: forwards and restores in the same sets ---- */

/* Forwards that are kept so far, and whose backward is still to come. */
typedef struct kept_now {
    uint32_t visits[PST_MAX_SETS + 1];
    uint32_t num;
} kept_now;

static void drop_kept(kept_now *kept, uint32_t i)
{
    kept->visits[i] = kept->visits[--kept->num];
}

/* The one whose backward comes last gives way (Belady). Returns it. */
static uint32_t evict(psti_build *build, kept_now *kept)
{
    psti_visit *visits = build->program->visits;
    uint32_t last = 0;
    for (uint32_t i = 1; i < kept->num; i++)
        if (visits[kept->visits[i]].partner > visits[kept->visits[last]].partner)
            last = i;
    const uint32_t evicted = kept->visits[last];
    visits[evicted].in_place = visits[visits[evicted].partner].in_place = false;
    drop_kept(kept, last);
    return evicted;
}

/* Of `sets`, those that pass through always find `passing` that are not kept. */
static void keep_ring(psti_build *build, uint8_t keep, uint32_t sets, uint32_t passing)
{
    psti_visit *visits = build->program->visits;
    kept_now kept = {.num = 0};
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &visits[v];
        if (visit->keep != keep || visit->partner == PSTI_NO_VISIT)
            continue;
        bool passes = !visit->in_place;
        if (is_forward(visit) && has_one_use(build, visit)) {
            keep_in_place(build, visit);
            kept.visits[kept.num++] = v;
            passes = kept.num > sets && evict(build, &kept) == v;
        }
        while (passes && kept.num > sets - passing)
            evict(build, &kept);
        for (uint32_t i = 0; !is_forward(visit) && i < kept.num; i++)
            if (kept.visits[i] == visit->partner)
                drop_kept(&kept, i);
    }
}

/* ---- sets that belong to seats ---- */

/* What a seat's visits use; by the walk, in the order of visits. */
typedef struct seat_sets {
    uint32_t *forward, *backward; /* [seats] */
    uint32_t num_sets;
} seat_sets;

/* A forward stays in place if its backward is the next visit that touches its set. */
static pst_status keep_fixed(psti_build *build, uint8_t keep, const seat_sets *sets)
{
    psti_visit *visits = build->program->visits;
    uint32_t *touched = psti_calloc((size_t)sets->num_sets + 1, sizeof(uint32_t)); /* visit + 1 */
    PSTI_CHECK(touched, PST_E_NOMEM, "no memory for %u sets", sets->num_sets);
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &visits[v];
        if (visit->keep != keep || visit->partner == PSTI_NO_VISIT)
            continue;
        const uint32_t *of = is_forward(visit) ? sets->forward : sets->backward;
        uint32_t *last = &touched[of[visit->seat]];
        if (!is_forward(visit) && *last == visit->partner + 1 && has_one_use(build, visit))
            keep_in_place(build, &visits[visit->partner]);
        *last = v + 1;
    }
    psti_free(touched);
    return PST_OK;
}

/* Graphs of a seat read one place: all of its visits stay in place, or none. The graph of a layer with
 * a GLU has the stash inside, so nothing of it stays. */
static pst_status keep_whole_seats(psti_build *build, uint8_t keep)
{
    psti_program *program = build->program;
    bool *leaves = psti_calloc((size_t)program->num_seats + 1, sizeof(bool));
    PSTI_CHECK(leaves, PST_E_NOMEM, "no memory for %u seats", program->num_seats);
    for (uint32_t v = 0; v < program->num_visits; v++)
        if (is_source(&program->visits[v], keep) &&
            (!program->visits[v].in_place || psti_layer_of(build, &program->visits[v])->glus))
            leaves[program->visits[v].seat] = true;
    for (uint32_t v = 0; v < program->num_visits; v++)
        if (program->visits[v].keep == keep && program->visits[v].partner != PSTI_NO_VISIT &&
            leaves[program->visits[v].seat])
            program->visits[v].in_place = false;
    psti_free(leaves);
    return PST_OK;
}

/* Each seat gets, when it is first met, the set whose last use is longest ago. */
typedef struct choice {
    uint64_t last[PST_MAX_SETS]; /* use + 1 */
    uint32_t num;
} choice;

static uint32_t oldest(const choice *sets)
{
    uint32_t best = 0;
    for (uint32_t set = 1; set < sets->num; set++)
        if (sets->last[set] < sets->last[best])
            best = set;
    return best;
}

/* Of forwards, or of restored backwards. Counts neighbours that share a set. */
static pst_status choose_by_slot(psti_build *build, uint8_t keep, bool forwards, uint32_t num_sets,
                                 uint32_t *conflicts)
{
    psti_program *program = build->program;
    uint8_t *chosen = psti_calloc((size_t)program->num_seats + 1, 1); /* set + 1 */
    PSTI_CHECK(chosen, PST_E_NOMEM, "no memory for %u seats", program->num_seats);
    choice sets = {.num = num_sets};
    uint32_t before = UINT32_MAX;
    for (uint32_t v = 0; v < program->num_visits; v++) {
        psti_visit *visit = &program->visits[v];
        if (!(forwards ? is_source(visit, keep) : visit->is_restored && visit->keep == keep))
            continue;
        uint8_t *set = &chosen[visit->seat];
        if (*set == 0)
            *set = (uint8_t)(oldest(&sets) + 1);
        visit->set = (uint8_t)(*set - 1);
        sets.last[visit->set] = (uint64_t)v + 1;
        if (conflicts && visit->set == before)
            ++*conflicts;
        before = visit->set;
    }
    psti_free(chosen);
    return PST_OK;
}

/* ---- restored backwards ---- */

/* A weight pass reads what its backward left, if that read all it needs and so few restores lie
 * between that none takes the set. v is the backward. */
static void hold(psti_build *build, uint32_t v)
{
    psti_visit *visits = build->program->visits;
    const uint32_t num_destinations = build->config->num_destinations;
    const psti_life *life = psti_life_of(build, &visits[v]);
    if (life->last_backward == visits[v].pass || !psti_layer_of(build, &visits[v])->holds)
        return;
    const uint32_t weight = psti_visit_in(build, &visits[v], life->last_backward);
    const uint32_t restored = psti_parts_restored(build, &visits[weight]);
    if (restored & ~psti_parts_restored(build, &visits[v]))
        return;
    if (restored == 0 && psti_parts_read(build, &visits[weight]) != 0)
        return; /* it reads pages alone */
    uint32_t between = 0;
    for (uint32_t w = v + 1; w < weight && between < num_destinations; w++)
        between += !is_forward(&visits[w]) && visits[w].keep == PST_KEEP_PAGED &&
                   !visits[w].in_place && !visits[w].is_held;
    visits[weight].is_held = between < num_destinations;
}

/* Whether a visit that nothing is restored for waits for pages of a GLU's parts. */
static bool awaits_pages(const psti_build *build, const psti_visit *visit)
{
    const psti_program_layer *layer = psti_layer_of(build, visit);
    if (visit->keep != PST_KEEP_PAGED || !(layer->demotes || layer->promotes) ||
        !(psti_parts_read(build, visit) & layer->glus))
        return false;
    const uint32_t first = psti_life_of(build, visit)->first_backward;
    return first == visit->pass ||
           !build->program->visits[psti_visit_in(build, visit, first)].is_fetched;
}

static void mark_restored(psti_build *build)
{
    const psti_program_config *config = build->config;
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &build->program->visits[v];
        if (is_forward(visit) || visit->in_place || visit->is_held)
            continue;
        visit->is_restored =
            visit->keep == PST_KEEP_SWAPPED ||
            (visit->keep == PST_KEEP_PAGED && psti_parts_restored(build, visit) != 0);
        visit->is_fetched = visit->is_restored || awaits_pages(build, visit);
        if (visit->keep == PST_KEEP_PAGED && visit->is_restored && !config->by_slot &&
            !config->one_ring)
            hold(build, v);
    }
}

static void round_destinations(psti_build *build)
{
    uint32_t position = 0;
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &build->program->visits[v];
        if (visit->is_restored && visit->keep == PST_KEEP_PAGED)
            visit->set = (uint8_t)(position++ % build->config->num_destinations);
    }
}

/* Forwards and restores take the set that nobody has and whose last use is longest ago. */
static void choose_in_ring(psti_build *build, uint8_t keep, uint32_t num_sets)
{
    psti_visit *visits = build->program->visits;
    choice sets = {.num = num_sets};
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &visits[v];
        if (visit->keep != keep || visit->partner == PSTI_NO_VISIT)
            continue;
        if (!is_forward(visit) && visit->in_place)
            visit->set = visits[visit->partner].set;
        else if (is_forward(visit) || visit->is_restored)
            visit->set = (uint8_t)oldest(&sets);
        else
            continue;
        const bool stays = is_forward(visit) && visit->in_place;
        sets.last[visit->set] = stays ? UINT64_MAX : (uint64_t)v + 1;
    }
}

/* ---- chains ---- */

/* The name of the set that a user has; sets of aliases come after the others. */
static uint32_t name_of(const psti_build *build, const psti_visit *visit, const seat_sets *aliases)
{
    if (visit->keep == PST_KEEP_SWAPPED)
        return PSTI_FIRST_BUFFER + visit->set;
    if (aliases)
        return PSTI_NUM_SETS +
               (is_forward(visit) ? aliases->forward : aliases->backward)[visit->seat];
    const bool is_source_set = is_forward(visit) || build->config->one_ring;
    return visit->set + (is_source_set ? 0u : (uint32_t)PSTI_FIRST_DESTINATION);
}

static pst_status check_pair(const psti_build *build, uint32_t a, uint32_t b)
{
    const psti_visit *visits = build->program->visits;
    PSTI_CHECK(
        !psti_are_paired(build, &visits[a], &visits[b]) ||
            is_forward(&visits[a]) == is_forward(&visits[b]),
        PST_E_INVALID,
        "layer %u of pass %u and layer %u of pass %u share a set, and their passes are a pair",
        visits[a].layer, visits[a].pass, visits[b].layer, visits[b].pass);
    return PST_OK;
}

static pst_status chain(psti_build *build, const seat_sets *aliases)
{
    psti_program *program = build->program;
    const uint32_t num_sets = PSTI_NUM_SETS + (aliases ? aliases->num_sets : 0);
    uint32_t *last = psti_calloc(num_sets, sizeof(uint32_t)); /* user + 1 */
    PSTI_CHECK(last, PST_E_NOMEM, "no memory for %u sets", num_sets);
    pst_status status = PST_OK;
    for (uint32_t v = 0; v < program->num_visits && status == PST_OK; v++) {
        const psti_visit *visit = &program->visits[v];
        build->before[v] = build->after[v] = PSTI_NO_VISIT;
        const bool is_kind = visit->keep == PST_KEEP_PAGED || visit->keep == PST_KEEP_SWAPPED;
        if (!is_kind || !(visit->is_restored || is_source(visit, visit->keep)))
            continue;
        uint32_t *user = &last[name_of(build, visit, aliases)];
        if (*user != 0) {
            build->before[v] = *user - 1;
            build->after[*user - 1] = v;
            status = check_pair(build, *user - 1, v);
        }
        *user = v + 1;
        program->num_kept += is_forward(visit) && visit->in_place;
        program->num_stashed += is_forward(visit) && !visit->in_place;
        program->num_restored += visit->is_restored;
    }
    psti_free(last);
    return status;
}

/* ---- all together ---- */

/* Small numbers for the caller's aliases. */
static pst_status number_aliases(const psti_build *build, seat_sets *sets)
{
    const psti_program_config *config = build->config;
    psti_map map = {0};
    pst_status status = PST_OK;
    const uint32_t seats = build->program->num_seats;
    for (uint32_t i = 0; i < 2 * seats && status == PST_OK; i++) {
        const uint32_t alias =
            i < seats ? config->forward_alias[i] : config->backward_alias[i - seats];
        uint64_t number = psti_map_get(&map, alias);
        if (number == PSTI_MAP_NONE) {
            number = sets->num_sets++;
            status = psti_map_set(&map, alias, number);
        }
        *(i < seats ? &sets->forward[i] : &sets->backward[i - seats]) = (uint32_t)number;
    }
    psti_map_free(&map);
    return status;
}

static pst_status take_seats(const psti_build *build, seat_sets *sets)
{
    sets->forward = psti_calloc((size_t)build->program->num_seats + 1, sizeof(uint32_t));
    sets->backward = psti_calloc((size_t)build->program->num_seats + 1, sizeof(uint32_t));
    PSTI_CHECK(sets->forward && sets->backward, PST_E_NOMEM, "no memory for %u seats",
               build->program->num_seats);
    return PST_OK;
}

static void free_seats(const seat_sets *sets)
{
    psti_free(sets->forward);
    psti_free(sets->backward);
}

/* The buffers of swapped layers by seat: those of its forwards, for its backwards too. */
static pst_status fix_buffers(psti_build *build)
{
    psti_program *program = build->program;
    PSTI_TRY(choose_by_slot(build, PST_KEEP_SWAPPED, true, PSTI_NUM_BUFFERS, NULL));
    seat_sets sets = {.num_sets = PSTI_NUM_BUFFERS};
    pst_status status = take_seats(build, &sets);
    for (uint32_t v = 0; v < program->num_visits && status == PST_OK; v++) {
        psti_visit *visit = &program->visits[v];
        if (visit->keep != PST_KEEP_SWAPPED || visit->partner == PSTI_NO_VISIT)
            continue;
        if (is_forward(visit))
            sets.forward[visit->seat] = sets.backward[visit->seat] = visit->set;
        else
            visit->set = program->visits[visit->partner].set;
    }
    if (status == PST_OK)
        status = keep_fixed(build, PST_KEEP_SWAPPED, &sets);
    free_seats(&sets);
    return status == PST_OK ? keep_whole_seats(build, PST_KEEP_SWAPPED) : status;
}

static pst_status keep_paged(psti_build *build, const seat_sets *aliases)
{
    const psti_program_config *config = build->config;
    if (aliases) {
        PSTI_TRY(keep_fixed(build, PST_KEEP_PAGED, aliases));
        return keep_whole_seats(build, PST_KEEP_PAGED);
    }
    if (config->one_ring) {
        keep_ring(build, PST_KEEP_PAGED, config->num_sources, config->num_sources > 2 ? 2 : 1);
        return PST_OK;
    }
    if (config->by_slot)
        PSTI_TRY(choose_by_slot(build, PST_KEEP_PAGED, true, config->num_sources,
                                &build->program->conflicts[0]));
    else
        round_sources(build);
    if (config->rule == PST_RESTORE_NEXT)
        keep_next(build);
    else
        keep_until_taken(build);
    return config->by_slot ? keep_whole_seats(build, PST_KEEP_PAGED) : PST_OK;
}

static pst_status build_sets(psti_build *build, const seat_sets *aliases)
{
    const psti_program_config *config = build->config;
    PSTI_TRY(keep_paged(build, aliases));
    if (config->by_slot)
        PSTI_TRY(fix_buffers(build));
    else
        keep_ring(build, PST_KEEP_SWAPPED, PSTI_NUM_BUFFERS, 1);
    mark_restored(build);
    if (!config->by_slot)
        choose_in_ring(build, PST_KEEP_SWAPPED, PSTI_NUM_BUFFERS);
    if (aliases)
        return chain(build, aliases);
    if (config->by_slot)
        PSTI_TRY(choose_by_slot(build, PST_KEEP_PAGED, false, config->num_destinations,
                                &build->program->conflicts[1]));
    else if (config->one_ring)
        choose_in_ring(build, PST_KEEP_PAGED, config->num_sources);
    else
        round_destinations(build);
    for (uint32_t v = 0; v < build->program->num_visits; v++) {
        psti_visit *visit = &build->program->visits[v];
        if (!is_forward(visit) && visit->in_place)
            visit->set = build->program->visits[visit->partner].set;
        if (visit->is_held) /* its backward's */
            visit->set = build->program
                             ->visits[psti_visit_in(build, visit,
                                                    psti_life_of(build, visit)->first_backward)]
                             .set;
    }
    return chain(build, NULL);
}

pst_status psti_build_sets(psti_build *build)
{
    if (!build->config->forward_alias)
        return build_sets(build, NULL);
    seat_sets aliases = {0};
    pst_status status = take_seats(build, &aliases);
    if (status == PST_OK)
        status = number_aliases(build, &aliases);
    if (status == PST_OK)
        status = build_sets(build, &aliases);
    free_seats(&aliases);
    return status;
}
