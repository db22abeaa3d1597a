/* A rank's operations in the order of time: several side streams take their pages in the order in which
 * they come to run, and the main stream is slower while copies run.
 *
 * Every stream has its operations in the order of the list, and stands before one of them. Again and
 * again the earliest thing happens that can: a copy ends, a copy begins, or work of the main stream
 * ends; of those at one time in this order, and of copies that begin the first of the list. */
#include "host/simulate/simulate.h"

enum { FREE_PER_MILLE = 1000 };

/* A GLU's copy: the main stream comes to it as if by work that takes no time, so that what others do until
 * then is done. */
typedef enum glu_phase { GLU_NONE = 0, GLU_COMES, GLU_COPIES } glu_phase;

/* What the main stream does next in a pass. */
typedef enum step {
    STEP_PASS = 0, /* waits for other ranks */
    STEP_VISIT,    /* before */
    STEP_BEGIN,    /* operations of the begin hook */
    STEP_CORE,
    STEP_PARTS, /* parts that are announced within the core */
    STEP_END,   /* operations of the end hook */
    STEP_AFTER
} step;

typedef struct lane {
    uint32_t next; /* operation that it stands before */
    uint32_t part; /* of that, a stash: how many stashes of its visit came before */
    bool is_running;
    bool is_ready; /* to begin its next operation, a copy, at the rank's clock of this stream */
    uint64_t begin_ns;
    psti_sim_copy copy;
} lane;

struct psti_sim_main {
    step step;
    uint32_t which, visit, num_visits; /* of the passes at hand; visits of this pass left */
    uint64_t order[2];
    uint32_t num_passes;
    uint32_t operation, part;
    uint64_t core_done; /* of the core, in work done, up to the last announced part */
    bool works;
    bool is_blocked; /* by another rank */
    glu_phase glu;
    psti_sim_copy copy; /* of the GLU */
    pst_simulated_kind kind;
    psti_wide left; /* of its work, in units of which a free nanosecond does `speed`, others 1000 */
    uint64_t speed;
    uint64_t begin_ns;
    uint64_t now;
    lane lanes[PST_NUM_SIMULATED_STREAMS];
};

static bool is_early(const psti_sim_rank *rank, const psti_operation *op)
{
    const psti_visit *visit = &rank->program->visits[op->visit];
    return visit->kind == PST_PASS_FORWARD && psti_sim_layer_of(rank, visit)->num_early > 0;
}

pst_status psti_sim_open_time(psti_sim_rank *rank)
{
    rank->main = psti_calloc(1, sizeof(*rank->main));
    PSTI_CHECK(rank->main, PST_E_NOMEM, "no memory for clocks");
    return PST_OK;
}

void psti_sim_link(const psti_sim_rank *rank)
{
    const psti_program *program = rank->program;
    for (uint32_t i = 0; i < program->num_operations; i++) {
        const psti_operation *op = &program->operations[i];
        rank->cells[i] = PSTI_SIM_UNKNOWN;
        if (op->act != PSTI_ACT_WAIT && op->act != PSTI_ACT_RECORD)
            continue;
        uint64_t *last = &rank->events[(size_t)op->seat * PSTI_NUM_EVENT_KINDS + op->event];
        if (op->act == PSTI_ACT_WAIT)
            rank->cells[i] = *last;
        else
            *last = i;
    }
}

void psti_sim_begin_step_in_time(psti_sim_rank *rank)
{
    *rank->main = (psti_sim_main){.now = rank->clock[PSTI_ON_MAIN],
                                  .speed = FREE_PER_MILLE +
                                           (uint64_t)rank->all->config.interference_per_mille};
    psti_sim_link(rank);
}

/* ---- side streams ---- */

/* Whether the stream stands before an operation that may begin; its clock says when. */
static bool is_open(psti_sim_rank *rank, uint32_t stream, const psti_operation *op)
{
    uint64_t *cells = rank->cells, *clock = &rank->clock[stream];
    const uint32_t n = rank->main->lanes[stream].next;
    uint64_t at = 0;
    if (op->act == PSTI_ACT_WAIT) {
        if (psti_sim_waits_for_source(op) && is_early(rank, op))
            return true; /* each part waits for its own */
        at = cells[cells[n]];
    } else if (op->act == PSTI_ACT_STASH && is_early(rank, op)) {
        at = cells[n];
    }
    if (at == PSTI_SIM_UNKNOWN)
        return false;
    *clock = psti_sim_later(*clock, at);
    return true;
}

/* Takes a stream through its waits and records up to a copy. True: it moved. */
static bool advance_side(psti_sim_rank *rank, uint32_t stream)
{
    const psti_program *program = rank->program;
    lane *own = &rank->main->lanes[stream];
    const uint32_t from = own->next;
    if (own->is_running || own->is_ready)
        return false;
    for (; own->next < program->num_operations; own->next++) {
        const psti_operation *op = &program->operations[own->next];
        if (op->stream != stream)
            continue;
        if (op->act == PSTI_ACT_RECORD || op->act == PSTI_ACT_JOIN) {
            rank->cells[own->next] = rank->clock[stream];
            continue;
        }
        if (!is_open(rank, stream, op))
            break;
        if (op->act != PSTI_ACT_WAIT) {
            own->is_ready = true;
            return true;
        }
    }
    return own->next != from;
}

static void begin_copy(psti_sim_rank *rank, uint32_t stream)
{
    lane *own = &rank->main->lanes[stream];
    const psti_operation *op = &rank->program->operations[own->next];
    const psti_sim_layer *layer = psti_sim_layer_of(rank, &rank->program->visits[op->visit]);
    uint32_t part = op->part;
    if (op->act == PSTI_ACT_STASH && is_early(rank, op))
        part = layer->part_order[psti_sim_stash_place(layer, op)];
    own->copy = (psti_sim_copy){.part = part};
    own->begin_ns = rank->clock[stream];
    psti_sim_begin_copy(rank, op, &own->copy);
    rank->clock[stream] = psti_sim_after(own->begin_ns, own->copy.ns);
    own->is_ready = false;
    own->is_running = true;
}

static void end_copy(psti_sim_rank *rank, uint32_t stream)
{
    lane *own = &rank->main->lanes[stream];
    psti_sim_end_copy(rank, &own->copy, own->begin_ns, rank->clock[stream]);
    own->is_running = false;
    own->next++;
}

/* ---- the main stream ---- */

static void start_work(psti_sim_rank *rank, uint64_t ns, pst_simulated_kind kind)
{
    psti_sim_main *main = rank->main;
    main->works = ns > 0;
    main->left = (psti_wide)ns * main->speed;
    main->begin_ns = rank->clock[PSTI_ON_MAIN];
    main->now = psti_sim_later(main->now, main->begin_ns);
    main->kind = kind;
}

static void end_work(psti_sim_rank *rank, uint64_t at)
{
    psti_sim_main *main = rank->main;
    const psti_visit *visit = &rank->program->visits[main->visit];
    rank->clock[PSTI_ON_MAIN] = at;
    main->works = false;
    if (main->glu != GLU_NONE) {
        if (main->glu == GLU_COPIES)
            psti_sim_expose(rank, visit, at - main->begin_ns);
        return;
    }
    rank->result.busy_ns += at - main->begin_ns;
    if (main->kind == PST_SIMULATED_RECOMPUTE)
        rank->result.recompute_ns += at - main->begin_ns;
    if (psti_sim_tells(rank))
        psti_sim_tell_main(rank, main->kind, psti_sim_key(rank, visit), main->begin_ns, at);
}

/* Stashes of this visit, in the order of the list, may begin now: the parts up to `num`. */
static void announce(psti_sim_rank *rank, uint32_t num)
{
    const uint32_t *hook = rank->program->hooks + (size_t)rank->main->visit * 2;
    uint32_t k = 0;
    for (uint32_t n = hook[1]; n < hook[2] && k < num; n++) {
        if (rank->program->operations[n].act != PSTI_ACT_STASH)
            continue;
        if (rank->cells[n] == PSTI_SIM_UNKNOWN)
            rank->cells[n] = rank->clock[PSTI_ON_MAIN];
        k++;
    }
}

/* False: it waits for what is not known yet. */
static bool play_main(psti_sim_rank *rank, const psti_visit *visit, uint32_t n)
{
    const psti_operation *op = &rank->program->operations[n];
    uint64_t *cells = rank->cells;
    if (op->act == PSTI_ACT_JOIN || (op->act == PSTI_ACT_WAIT && op->stream == PSTI_ON_MAIN)) {
        const uint64_t at = op->act == PSTI_ACT_JOIN ? cells[n] : cells[cells[n]];
        if (at == PSTI_SIM_UNKNOWN)
            return false;
        psti_sim_stall(rank, visit, at);
    } else if (op->act == PSTI_ACT_RECORD && op->stream == PSTI_ON_MAIN) {
        cells[n] = rank->clock[PSTI_ON_MAIN];
        if (op->event == PSTI_EVENT_PRODUCED && is_early(rank, op))
            announce(rank, PST_MAX_PARTS);
    }
    return true;
}

/* A GLU's copy, up to where it takes time. True: it is over. */
static bool play_glu(psti_sim_rank *rank, const psti_operation *op)
{
    psti_sim_main *main = rank->main;
    switch (main->glu) {
    case GLU_NONE:
        main->glu = GLU_COMES;
        start_work(rank, 0, PST_SIMULATED_WORK);
        main->works = true;
        return false;
    case GLU_COMES:
        main->glu = GLU_COPIES;
        main->copy = (psti_sim_copy){.part = op->part};
        psti_sim_begin_copy(rank, op, &main->copy);
        start_work(rank, main->copy.ns, PST_SIMULATED_WORK);
        if (main->works)
            return false;
        break;
    case GLU_COPIES:
        break;
    }
    psti_sim_end_copy(rank, &main->copy, main->begin_ns, rank->clock[PSTI_ON_MAIN]);
    main->glu = GLU_NONE;
    return true;
}

/* Of a hook up to operation `end`. */
static bool play_hook(psti_sim_rank *rank, uint32_t end)
{
    psti_sim_main *main = rank->main;
    const psti_visit *visit = &rank->program->visits[main->visit];
    for (; main->operation < end; main->operation++) {
        const psti_operation *op = &rank->program->operations[main->operation];
        if (psti_sim_is_glu(op) ? !play_glu(rank, op) : !play_main(rank, visit, main->operation))
            return false;
    }
    return true;
}

/* The next pass, or the next of a pair. False: another rank has to go on. */
static bool next_pass(psti_sim_rank *rank)
{
    psti_sim_main *main = rank->main;
    if (main->which == main->num_passes) {
        rank->next_pass += main->num_passes;
        main->which = main->num_passes = 0;
        if (rank->next_pass == rank->schedule->num_passes)
            return false;
        const uint64_t need = psti_sim_need(rank);
        main->is_blocked = need == PSTI_SIM_UNKNOWN;
        if (main->is_blocked)
            return false;
        psti_sim_begin_pass(rank, need);
        main->num_passes = psti_sim_passes(rank, rank->next_pass, main->order);
    }
    const uint64_t pass = main->order[main->which];
    main->visit = rank->program->first_visit[pass];
    main->num_visits = rank->program->num_layers[rank->schedule->passes[pass].chunk];
    main->step = STEP_VISIT;
    return true;
}

/* The core up to the next part that is announced within it, or to its end. */
static void next_of_core(psti_sim_rank *rank, const psti_visit *visit, const psti_sim_layer *layer)
{
    psti_sim_main *main = rank->main;
    const uint32_t num_early = visit->kind == PST_PASS_FORWARD ? layer->num_early : 0;
    const uint64_t to = main->part < num_early ? layer->part_ns[layer->part_order[main->part]]
                                               : layer->times[visit->kind].core;
    start_work(rank, to - main->core_done, PST_SIMULATED_WORK);
    main->core_done = to;
    main->step = STEP_PARTS;
}

/* One step; false: it has to wait. */
static bool advance_main(psti_sim_rank *rank)
{
    psti_sim_main *main = rank->main;
    const psti_visit *visit = &rank->program->visits[main->visit];
    const uint32_t *hook = rank->program->hooks + (size_t)main->visit * 2;
    const psti_sim_layer *layer = NULL;
    if (main->step == STEP_PASS)
        return next_pass(rank);
    if (main->num_visits == 0) {
        psti_sim_end_pass(rank, main->order[main->which++]);
        main->step = STEP_PASS;
        return true;
    }
    layer = psti_sim_layer_of(rank, visit);
    switch (main->step) {
    case STEP_VISIT:
        start_work(rank, layer->times[visit->kind].before, PST_SIMULATED_WORK);
        main->operation = hook[0];
        main->step = STEP_BEGIN;
        break;
    case STEP_BEGIN:
        if (!play_hook(rank, hook[1]))
            return false;
        start_work(rank, psti_sim_recompute_ns(layer, visit), PST_SIMULATED_RECOMPUTE);
        main->step = STEP_CORE;
        main->part = 0;
        main->core_done = 0;
        break;
    case STEP_CORE:
        next_of_core(rank, visit, layer);
        break;
    case STEP_PARTS:
        if (visit->kind == PST_PASS_FORWARD && main->part < layer->num_early) {
            announce(rank, ++main->part);
            main->step = STEP_CORE;
        } else {
            main->step = STEP_END;
        }
        break;
    case STEP_END:
        if (!play_hook(rank, hook[2]))
            return false;
        start_work(rank, layer->times[visit->kind].after, PST_SIMULATED_WORK);
        main->step = STEP_AFTER;
        break;
    default:
        psti_sim_end_visit(rank, visit);
        main->num_visits--;
        main->visit++;
        main->step = STEP_VISIT;
        break;
    }
    return true;
}

/* ---- time ---- */

static uint32_t num_running(const psti_sim_rank *rank)
{
    uint32_t num = 0;
    for (uint32_t s = PSTI_ON_SIDE; s < PST_NUM_SIMULATED_STREAMS; s++)
        num += rank->main->lanes[s].is_running;
    return num;
}

/* When the main stream's work ends if as many copies run until then as now. */
static uint64_t end_of_work(const psti_sim_rank *rank)
{
    const psti_sim_main *main = rank->main;
    const uint64_t rate = num_running(rank) > 0 ? FREE_PER_MILLE : main->speed;
    return psti_sim_after(main->now, psti_saturate((main->left + rate - 1) / rate));
}

static void pass_time(psti_sim_rank *rank, uint64_t to)
{
    psti_sim_main *main = rank->main;
    if (to <= main->now)
        return;
    if (main->works) {
        const uint64_t rate = num_running(rank) > 0 ? FREE_PER_MILLE : main->speed;
        const psti_wide done = (psti_wide)(to - main->now) * rate;
        main->left -= done < main->left ? done : main->left;
    }
    main->now = to;
}

/* Everything that takes no time. True: something moved. */
static bool settle(psti_sim_rank *rank)
{
    bool any = false, moved = true;
    for (; moved; any |= moved) {
        moved = false;
        while (!rank->main->works && advance_main(rank))
            moved = true;
        for (uint32_t s = PSTI_ON_SIDE; s < PST_NUM_SIMULATED_STREAMS; s++)
            moved |= advance_side(rank, s);
    }
    return any;
}

/* The side stream whose copy ends first (running) or can begin first; 0: none. */
static uint32_t first_of(const psti_sim_rank *rank, bool running)
{
    const lane *lanes = rank->main->lanes;
    uint32_t first = 0;
    for (uint32_t s = PSTI_ON_SIDE; s < PST_NUM_SIMULATED_STREAMS; s++) {
        if (!(running ? lanes[s].is_running : lanes[s].is_ready))
            continue;
        const bool is_before =
            first == 0 || rank->clock[s] < rank->clock[first] ||
            (rank->clock[s] == rank->clock[first] && lanes[s].next < lanes[first].next);
        if (is_before)
            first = s;
    }
    return first;
}

bool psti_sim_run_time(psti_sim_rank *rank)
{
    const psti_sim_main *main = rank->main;
    bool did = false;
    for (;; did = true) {
        did |= settle(rank);
        const uint32_t ends = first_of(rank, true), begins = first_of(rank, false);
        const uint64_t work_ns = main->works ? end_of_work(rank) : PSTI_SIM_UNKNOWN;
        const uint64_t end_ns = ends ? rank->clock[ends] : PSTI_SIM_UNKNOWN;
        const uint64_t begin_ns = begins ? rank->clock[begins] : PSTI_SIM_UNKNOWN;
        const uint64_t next = psti_min(work_ns, psti_min(end_ns, begin_ns));
        /* What another rank is going to let go on may come before it. */
        if (next == PSTI_SIM_UNKNOWN || (main->is_blocked && next > rank->clock[PSTI_ON_MAIN]))
            return did;
        pass_time(rank, next);
        if (end_ns == next)
            end_copy(rank, ends);
        else if (begin_ns == next)
            begin_copy(rank, begins);
        else
            end_work(rank, next);
    }
}
