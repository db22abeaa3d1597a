/* Makes programs: checks what is to be compiled, and numbers visits and seats. */
#include "host/base/arith.h"
#include "host/program/build.h"

bool psti_are_paired(const psti_build *build, const psti_visit *a, const psti_visit *b)
{
    if (!a->in_pair || !b->in_pair)
        return false;
    const pst_pass *passes = build->config->schedule->passes;
    return (b->pass == a->pass + 1 && passes[a->pass].pairs) ||
           (a->pass == b->pass + 1 && passes[b->pass].pairs);
}

uint32_t psti_parts_read(const psti_build *build, const psti_visit *visit)
{
    const psti_program_layer *layer = psti_layer_of(build, visit);
    uint32_t wanted = PST_USE_BACKWARD | PST_USE_WEIGHT;
    const psti_life *life = psti_life_of(build, visit);
    if (life->first_backward != life->last_backward)
        wanted = visit->kind == PST_PASS_BACKWARD_WEIGHT ? PST_USE_WEIGHT : PST_USE_BACKWARD;
    uint32_t parts = 0;
    for (uint32_t part = 0; part < layer->num_parts; part++)
        if (layer->uses[part] & wanted)
            parts |= 1u << part;
    return parts;
}

uint32_t psti_parts_restored(const psti_build *build, const psti_visit *visit)
{
    return psti_parts_read(build, visit) & ~(uint32_t)psti_layer_of(build, visit)->glus;
}

bool psti_reads_last(const psti_build *build, const psti_visit *visit, uint32_t part)
{
    const psti_program_layer *layer = psti_layer_of(build, visit);
    const uint32_t last = psti_life_of(build, visit)->last_backward;
    if (last == visit->pass || !(layer->uses[part] & PST_USE_WEIGHT))
        return true;
    /* what a weight pass holds is in a set, and no GLU's part is */
    return build->program->visits[psti_visit_in(build, visit, last)].is_held &&
           !(layer->glus >> part & 1);
}

uint32_t psti_end_of_user(const psti_build *build, uint32_t user)
{
    const psti_visit *visit = &build->program->visits[user];
    if (visit->kind == PST_PASS_FORWARD)
        return visit->in_place ? visit->partner : user;
    const psti_life *life = psti_life_of(build, visit);
    if (life->last_backward == visit->pass)
        return user;
    const uint32_t weight = psti_visit_in(build, visit, life->last_backward);
    return build->program->visits[weight].is_held ? weight : user;
}

/* ---- what is allowed ---- */

static pst_status check_layers(const psti_program_config *config, bool has_pairs)
{
    const pst_schedule *schedule = config->schedule;
    uint64_t at = 0;
    for (uint32_t c = 0; c < schedule->num_chunks; c++)
        for (uint32_t l = 0; l < config->num_layers[c]; l++, at++) {
            const psti_program_layer *layer = &config->layers[at];
            PSTI_CHECK(layer->keep != PST_KEEP_SWAPPED || !has_pairs, PST_E_INVALID,
                       "chunk %u, layer %u: swapped, in a schedule with pairs of passes", c, l);
            PSTI_CHECK(
                !layer->demotes || config->num_streams > 1, PST_E_INVALID,
                "chunk %u, layer %u: policy.move is DEMOTE with %u side stream: it takes 2 or 4", c,
                l, config->num_streams);
        }
    return PST_OK;
}

static pst_status check_config(const psti_program_config *config, bool has_pairs)
{
    PSTI_CHECK(!config->one_ring || !has_pairs, PST_E_INVALID,
               "one_ring, in a schedule with pairs of passes: two rings are wanted there");
    PSTI_CHECK(!config->one_ring || !config->by_slot, PST_E_INVALID,
               "one_ring, with sets that belong to slots: two rings are wanted there");
    if (config->rule == PST_RESTORE_NEXT)
        PSTI_CHECK(!has_pairs && !config->schedule->splits_backward && !config->by_slot &&
                       !config->one_ring && config->num_streams == 1,
                   PST_E_INVALID,
                   "the rule NEXT knows one side stream, two rings, and whole backwards alone");
    return check_layers(config, has_pairs);
}

/* ---- visits ---- */

static pst_status count(psti_build *build)
{
    psti_program *program = build->program;
    const psti_program_config *config = build->config;
    const pst_schedule *schedule = config->schedule;
    uint64_t seats = 0, layers = 0;
    for (uint32_t c = 0; c < schedule->num_chunks; c++) {
        program->num_layers[c] = config->num_layers[c];
        program->num_slots[c] =
            config->num_slots ? config->num_slots[c] : schedule->chunks[c].num_slots;
        program->first_layer[c] = (uint32_t)layers;
        program->first_seat[c] = (uint32_t)seats;
        layers += config->num_layers[c];
        seats += (uint64_t)config->num_layers[c] * program->num_slots[c];
        PSTI_CHECK(seats <= PSTI_MAX_SEATS, PST_E_INVALID,
                   "more than %u of layers times slots up to chunk %u", PSTI_MAX_SEATS, c);
        PSTI_CHECK(program->num_slots[c] >= schedule->chunks[c].num_slots, PST_E_INVALID,
                   "chunk %u: the schedule wants %u slots, there are %u", c,
                   schedule->chunks[c].num_slots, program->num_slots[c]);
    }
    uint64_t visits = 0;
    for (uint64_t p = 0; p < schedule->num_passes; p++)
        visits += config->num_layers[schedule->passes[p].chunk];
    PSTI_CHECK(visits < UINT32_MAX / 2, PST_E_INVALID, "%llu visits: at most %u",
               (unsigned long long)visits, UINT32_MAX / 2 - 1);
    program->num_seats = (uint32_t)seats;
    program->num_visits = (uint32_t)visits;
    return PST_OK;
}

/* Visits of a pass: a forward goes up the layers, a backward down. */
static void fill_pass(psti_build *build, uint32_t p, bool in_pair)
{
    psti_program *program = build->program;
    const pst_schedule *schedule = build->config->schedule;
    const pst_pass *pass = &schedule->passes[p];
    const psti_life *life = psti_schedule_life(schedule, pass->chunk, pass->micro_batch);
    const uint32_t layers = program->num_layers[pass->chunk];
    const uint32_t slots = program->num_slots[pass->chunk];
    const bool is_forward = pass->kind == PST_PASS_FORWARD;
    for (uint32_t i = 0; i < layers; i++) {
        psti_visit *visit = &program->visits[program->first_visit[p] + i];
        const uint32_t layer = is_forward ? i : layers - 1 - i;
        *visit = (psti_visit){
            .pass = p,
            .layer = layer,
            .partner = PSTI_NO_VISIT,
            .set = PSTI_NO_SET,
            .kind = (uint8_t)pass->kind,
            .in_pair = in_pair,
        };
        visit->keep = psti_layer_of(build, visit)->keep;
        visit->seat = program->first_seat[pass->chunk] + layer * slots;
        if (schedule->is_forward_only)
            continue;
        visit->seat += life->slot;
        visit->partner =
            psti_visit_in(build, visit, is_forward ? life->first_backward : life->forward);
    }
}

static void number(psti_build *build)
{
    psti_program *program = build->program;
    const pst_schedule *schedule = build->config->schedule;
    uint32_t at = 0;
    for (uint64_t p = 0; p < schedule->num_passes; p++) {
        const pst_pass *pass = &schedule->passes[p];
        const bool swaps = pass->pairs && pass->kind != PST_PASS_FORWARD;
        const uint64_t first = p + (swaps ? 1 : 0), second = p + (swaps ? 0 : 1);
        program->first_visit[first] = at;
        at += program->num_layers[schedule->passes[first].chunk];
        if (!pass->pairs)
            continue;
        program->first_visit[second] = at;
        at += program->num_layers[schedule->passes[second].chunk];
        p++;
    }
    program->first_visit[schedule->num_passes] = at;
    bool in_pair = false;
    for (uint64_t p = 0; p < schedule->num_passes; p++) {
        fill_pass(build, (uint32_t)p, in_pair || schedule->passes[p].pairs);
        in_pair = schedule->passes[p].pairs;
    }
}

/* ---- memory ---- */

static void *take(psti_program *program, uint64_t count, size_t size)
{
    program->bytes += count * size;
    return psti_calloc((size_t)count + 1, size);
}

void psti_program_free(psti_program *program)
{
    if (!program)
        return;
    psti_free(program->visits);
    psti_free(program->first_visit);
    psti_free(program->hooks);
    psti_free(program->operations);
    psti_free(program->num_layers);
    psti_free(program->num_slots);
    psti_free(program->first_layer);
    psti_free(program->first_seat);
    psti_free(program->event_kinds);
    psti_free(program);
}

static pst_status take_chunks(psti_program *program, uint32_t num_chunks)
{
    program->num_chunks = num_chunks;
    program->num_layers = take(program, num_chunks, sizeof(uint32_t));
    program->num_slots = take(program, num_chunks, sizeof(uint32_t));
    program->first_layer = take(program, num_chunks, sizeof(uint32_t));
    program->first_seat = take(program, num_chunks, sizeof(uint32_t));
    PSTI_CHECK(program->num_layers && program->num_slots && program->first_layer &&
                   program->first_seat,
               PST_E_NOMEM, "no memory for %u chunks", num_chunks);
    return PST_OK;
}

static pst_status take_visits(psti_build *build)
{
    psti_program *program = build->program;
    const uint64_t visits = program->num_visits;
    program->visits = take(program, visits, sizeof(psti_visit));
    program->first_visit = take(program, build->config->schedule->num_passes + 1, sizeof(uint32_t));
    program->hooks = take(program, 2 * visits + 1, sizeof(uint32_t));
    program->event_kinds = take(program, program->num_seats, sizeof(uint16_t));
    build->before = psti_calloc((size_t)visits + 1, sizeof(uint32_t));
    build->after = psti_calloc((size_t)visits + 1, sizeof(uint32_t));
    PSTI_CHECK(program->visits && program->first_visit && program->hooks && program->event_kinds &&
                   build->before && build->after,
               PST_E_NOMEM, "no memory for %u visits", program->num_visits);
    return PST_OK;
}

static void note_events(psti_program *program)
{
    for (uint32_t i = 0; i < program->num_operations; i++) {
        const psti_operation *operation = &program->operations[i];
        if (operation->act == PSTI_ACT_WAIT || operation->act == PSTI_ACT_RECORD)
            program->event_kinds[operation->seat] |= (uint16_t)(1u << operation->event);
    }
}

static pst_status make(psti_build *build)
{
    const pst_schedule *schedule = build->config->schedule;
    for (uint64_t p = 0; p < schedule->num_passes; p++)
        build->has_pairs |= schedule->passes[p].pairs;
    PSTI_TRY(check_config(build->config, build->has_pairs));
    PSTI_TRY(take_chunks(build->program, schedule->num_chunks));
    build->program->num_streams = build->config->num_streams;
    PSTI_TRY(count(build));
    PSTI_TRY(take_visits(build));
    number(build);
    PSTI_TRY(psti_build_sets(build));
    PSTI_TRY(psti_build_operations(build));
    note_events(build->program);
    return PST_OK;
}

pst_status psti_program_make(const psti_program_config *config, psti_program **program_out)
{
    psti_build build = {.config = config};
    build.program = psti_calloc(1, sizeof(psti_program));
    PSTI_CHECK(build.program, PST_E_NOMEM, "no memory for a program");
    build.program->bytes = sizeof(psti_program);
    const pst_status status = make(&build);
    psti_free(build.before);
    psti_free(build.after);
    if (status != PST_OK) {
        psti_program_free(build.program);
        return status;
    }
    *program_out = build.program;
    return PST_OK;
}
