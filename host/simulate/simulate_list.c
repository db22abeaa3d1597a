/* A rank's operations in the order of the list: since every wait comes behind its record there, one pass
 * over the list gives all times, and the pages of an ordered pool. */
#include "host/simulate/simulate.h"

static void work(psti_sim_rank *rank, const psti_visit *visit, uint64_t ns, pst_simulated_kind kind)
{
    const uint64_t begin = rank->clock[PSTI_ON_MAIN];
    rank->clock[PSTI_ON_MAIN] = psti_sim_after(begin, ns);
    rank->result.busy_ns = psti_plus(rank->result.busy_ns, ns);
    if (psti_sim_tells(rank))
        psti_sim_tell_main(rank, kind, psti_sim_key(rank, visit), begin, rank->clock[PSTI_ON_MAIN]);
}

static void copy(psti_sim_rank *rank, const psti_operation *op, uint32_t part)
{
    psti_sim_copy now = {.part = part};
    const uint64_t begin = rank->clock[op->stream];
    psti_sim_begin_copy(rank, op, &now);
    rank->clock[op->stream] = psti_sim_after(begin, now.ns);
    psti_sim_end_copy(rank, &now, begin, rank->clock[op->stream]);
    if (op->stream == PSTI_ON_MAIN)
        psti_sim_expose(rank, &rank->program->visits[op->visit], rank->clock[PSTI_ON_MAIN] - begin);
}

static void play(psti_sim_rank *rank, const psti_visit *visit, const psti_operation *op)
{
    uint64_t *event = &rank->events[(size_t)op->seat * PSTI_NUM_EVENT_KINDS + op->event];
    switch (op->act) {
    case PSTI_ACT_WAIT:
        if (op->stream == PSTI_ON_MAIN)
            psti_sim_stall(rank, visit, *event);
        else
            rank->clock[op->stream] = psti_sim_later(rank->clock[op->stream], *event);
        break;
    case PSTI_ACT_RECORD:
        *event = rank->clock[op->stream];
        break;
    case PSTI_ACT_JOIN:
        psti_sim_stall(rank, visit, rank->clock[op->stream]);
        break;
    default:
        copy(rank, op, op->part);
    }
}

/* The end of a forward with parts that were announced within the core, which began at core_ns. These
 * come before all else. */
static void end_early(psti_sim_rank *rank, const psti_visit *visit, const psti_sim_layer *layer,
                      const psti_operation *ops, uint32_t num, uint64_t core_ns)
{
    for (uint32_t i = 0; i < num; i++) {
        if (ops[i].act != PSTI_ACT_STASH)
            continue;
        const uint32_t place = psti_sim_stash_place(layer, &ops[i]);
        const uint32_t part = layer->part_order[place];
        if (place >= layer->num_early)
            break;
        uint64_t *clock = &rank->clock[ops[i].stream];
        *clock = psti_sim_later(*clock, psti_sim_after(core_ns, layer->part_ns[part]));
        copy(rank, &ops[i], part);
    }
    for (uint32_t i = 0; i < num; i++) {
        const psti_operation *op = &ops[i];
        if (psti_sim_waits_for_source(op))
            continue; /* each part waits for its own */
        if (op->act != PSTI_ACT_STASH) {
            play(rank, visit, op);
            continue;
        }
        const uint32_t place = psti_sim_stash_place(layer, op);
        const uint64_t *event =
            &rank->events[(size_t)visit->seat * PSTI_NUM_EVENT_KINDS + PSTI_EVENT_PRODUCED];
        if (place < layer->num_early)
            continue;
        rank->clock[op->stream] = psti_sim_later(rank->clock[op->stream], *event);
        copy(rank, op, layer->part_order[place]);
    }
}

static void visit_once(psti_sim_rank *rank, uint32_t v)
{
    const psti_visit *visit = &rank->program->visits[v];
    const psti_sim_layer *layer = psti_sim_layer_of(rank, visit);
    const pst_times *times = &layer->times[visit->kind];
    const uint64_t recompute_ns = psti_sim_recompute_ns(layer, visit);
    uint32_t num = 0;
    work(rank, visit, times->before, PST_SIMULATED_WORK);
    const psti_operation *ops = psti_begin_hook(rank->program, v, &num);
    for (uint32_t i = 0; i < num; i++)
        play(rank, visit, &ops[i]);
    if (recompute_ns > 0) {
        work(rank, visit, recompute_ns, PST_SIMULATED_RECOMPUTE);
        rank->result.recompute_ns = psti_plus(rank->result.recompute_ns, recompute_ns);
    }
    const uint64_t core_ns = rank->clock[PSTI_ON_MAIN];
    work(rank, visit, times->core, PST_SIMULATED_WORK);
    ops = psti_end_hook(rank->program, v, &num);
    if (layer->num_early > 0 && visit->kind == PST_PASS_FORWARD)
        end_early(rank, visit, layer, ops, num, core_ns);
    else
        for (uint32_t i = 0; i < num; i++)
            play(rank, visit, &ops[i]);
    work(rank, visit, times->after, PST_SIMULATED_WORK);
    psti_sim_end_visit(rank, visit);
}

bool psti_sim_run_list(psti_sim_rank *rank)
{
    const uint64_t before = rank->next_pass;
    while (rank->next_pass < rank->schedule->num_passes) {
        const uint64_t need = psti_sim_need(rank);
        uint64_t order[2];
        if (need == PSTI_SIM_UNKNOWN)
            break;
        psti_sim_begin_pass(rank, need);
        const uint32_t num = psti_sim_passes(rank, rank->next_pass, order);
        for (uint32_t i = 0; i < num; i++) {
            const uint32_t first = rank->program->first_visit[order[i]];
            const uint32_t chunk = rank->schedule->passes[order[i]].chunk;
            for (uint32_t l = 0; l < rank->program->num_layers[chunk]; l++)
                visit_once(rank, first + l);
            psti_sim_end_pass(rank, order[i]);
        }
        rank->next_pass += num;
    }
    return rank->next_pass > before;
}
