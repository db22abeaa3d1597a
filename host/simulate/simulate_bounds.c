/* The least and the most pages that a program with several side streams can hold at once, whatever the
 * times: of the orders that the waits allow, the one with every restore as early and every stash as
 * late as can be, and the other way round.
 *
 * Stashes have one stream, and restores another, so how far an order has come is a pair of numbers. Of
 * the orders that have so many stashes, one that did all it can before each further stash has the most
 * restores; so no order holds fewer pages at its worst moment. The same holds the other way round.
 *
 * What GLUs take and free is in the order of the main stream, so their worst moment is known. Beside that
 * of the side streams it is at most the sum of the two, and at least the greater. */
#include "host/simulate/simulate.h"

typedef struct walk {
    const psti_sim_rank *rank;
    uint64_t *cells; /* of a wait its record; of a record UNKNOWN until it is done */
    uint32_t next[PST_NUM_SIMULATED_STREAMS];
    psti_act lazy; /* what is done when nothing else can be */
    uint64_t held, most;
    uint64_t moves[2]; /* most pages of one demote, of one promote */
} walk;

static uint64_t pages_of(const psti_sim_rank *rank, const psti_operation *op, uint32_t part)
{
    const psti_visit *visit = &rank->program->visits[op->visit];
    const psti_sim_layer *layer = psti_sim_layer_of(rank, visit);
    const uint32_t micro_batch = rank->schedule->passes[visit->pass].micro_batch;
    return layer
        ->usages[(size_t)part * layer->num_usages + (layer->num_usages == 1 ? 0 : micro_batch)]
        .pages;
}

static void apply(walk *w, const psti_operation *op)
{
    const psti_sim_rank *rank = w->rank;
    if (op->act == PSTI_ACT_STASH) {
        const psti_sim_layer *layer = psti_sim_layer_of(rank, &rank->program->visits[op->visit]);
        w->held += pages_of(rank, op, layer->part_order[psti_sim_stash_place(layer, op)]);
        w->most = psti_sim_later(w->most, w->held);
    } else if (op->act == PSTI_ACT_RESTORE && !op->keeps) {
        w->held -= pages_of(rank, op, op->part);
    } else if (op->act == PSTI_ACT_DEMOTE || op->act == PSTI_ACT_PROMOTE) {
        uint64_t *moves = &w->moves[op->act == PSTI_ACT_PROMOTE];
        *moves = psti_sim_later(*moves, pages_of(rank, op, op->part));
    }
}

/* Whether the operation can be done; then it is. */
static bool does(walk *w, const psti_operation *op, uint32_t n)
{
    if (op->act == PSTI_ACT_WAIT)
        return w->cells[w->cells[n]] != PSTI_SIM_UNKNOWN;
    if (op->act == PSTI_ACT_RECORD)
        w->cells[n] = 0;
    else
        apply(w, op);
    return true;
}

/* As far as it goes without the lazy operation; force: with one of these. True: it moved. */
static bool advance(walk *w, uint32_t stream, bool force)
{
    const psti_program *program = w->rank->program;
    uint32_t *next = &w->next[stream];
    const uint32_t from = *next;
    for (; *next < program->num_operations; ++*next) {
        const psti_operation *op = &program->operations[*next];
        const bool is_lazy = op->act == (uint8_t)w->lazy;
        if (op->stream != stream)
            continue;
        if ((is_lazy && !force) || !does(w, op, *next))
            break;
        if (is_lazy) {
            ++*next;
            return true;
        }
    }
    return *next != from;
}

static bool advance_all(walk *w, bool force)
{
    bool moved = false;
    for (uint32_t s = PSTI_ON_MAIN; s < PST_NUM_SIMULATED_STREAMS; s++)
        moved |= advance(w, s, force);
    return moved;
}

/* The high water with all of `lazy` as late as can be. */
static uint64_t high_water(const psti_sim_rank *rank, psti_act lazy)
{
    walk w = {.rank = rank, .cells = rank->cells, .lazy = lazy};
    psti_sim_link(rank);
    do
        while (advance_all(&w, false))
            ;
    while (advance_all(&w, true));
    /* a page that moves has a place in both tiers; it may stay so for as long as it likes */
    return lazy == PSTI_ACT_RESTORE ? w.most + w.moves[0] + w.moves[1] : w.most;
}

static uint64_t high_water_of_glus(const psti_sim_rank *rank)
{
    uint64_t held = 0, most = 0;
    for (uint32_t n = 0; n < rank->program->num_operations; n++) {
        const psti_operation *op = &rank->program->operations[n];
        if (op->act == PSTI_ACT_GLU_STASH)
            held += pages_of(rank, op, op->part);
        else if (op->act == PSTI_ACT_GLU_RESTORE && !op->keeps)
            held -= pages_of(rank, op, op->part);
        most = psti_sim_later(most, held);
    }
    return most;
}

void psti_sim_bounds(psti_sim_rank *rank)
{
    uint64_t *bounds = rank->result.high_water_bounds;
    bounds[0] = bounds[1] = rank->result.demand_high_water;
    if (rank->all->config.num_streams == 1 && !rank->mixes)
        return;
    const uint64_t of_glus = high_water_of_glus(rank);
    bounds[0] = psti_sim_later(high_water(rank, PSTI_ACT_STASH), of_glus);
    bounds[1] = high_water(rank, PSTI_ACT_RESTORE) + of_glus;
}
