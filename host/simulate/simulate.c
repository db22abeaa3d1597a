/* The public call: runs ranks in turn, step after step, and puts together what came of it. */
#include "host/simulate/simulate.h"

#include "host/base/structs.h"

#include <string.h>

static void begin_step(psti_sim_rank *rank, bool is_last)
{
    const psti_program *program = rank->program;
    const size_t lives = (size_t)rank->schedule->num_lives;
    memset(&rank->result, 0, sizeof(rank->result));
    memset(rank->tickets, 0,
           (size_t)program->num_seats * rank->max_parts * sizeof(psti_sim_ticket));
    memset(rank->ends[0], 0xff, lives * sizeof(uint64_t)); /* UNKNOWN */
    memset(rank->ends[1], 0xff, lives * sizeof(uint64_t));
    rank->start_ns = rank->clock[PSTI_ON_MAIN];
    for (uint32_t s = 0; s < PST_NUM_SIMULATED_STREAMS; s++)
        rank->clock[s] = rank->start_ns;
    rank->next_pass = 0;
    rank->failed_wanted = rank->swapped_bytes = rank->waited_ns = 0;
    rank->has_begun = false;
    rank->is_last_step = is_last;
    if (rank->all->in_time)
        psti_sim_begin_step_in_time(rank);
}

/* The step's main stream is joined by what side streams have left to do. */
static pst_status end_step(psti_sim_rank *rank)
{
    uint64_t *clock = rank->clock;
    for (uint32_t s = PSTI_ON_SIDE; s < PST_NUM_SIMULATED_STREAMS; s++)
        if (clock[s] > clock[PSTI_ON_MAIN]) {
            rank->result.exposed_backward_ns += clock[s] - clock[PSTI_ON_MAIN];
            clock[PSTI_ON_MAIN] = clock[s];
        }
    PSTI_CHECK(clock[PSTI_ON_MAIN] < PSTI_SIM_TOO_LATE, PST_E_INVALID,
               "stage %u: its times add up to 2^63 ns or more", rank->stage);
    return PST_OK;
}

static bool is_done(const psti_sim_rank *rank)
{
    return rank->next_pass == rank->schedule->num_passes;
}

/* False: passes wait for each other. */
static bool run_step(const psti_sim *self)
{
    bool did = true, done = false;
    while (did && !done) {
        did = false;
        done = true;
        for (uint32_t i = 0; i < self->config.num_stages; i++) {
            psti_sim_rank *rank = &self->ranks[i];
            if (is_done(rank))
                continue;
            did |= self->in_time ? psti_sim_run_time(rank) : psti_sim_run_list(rank);
            done &= is_done(rank);
        }
    }
    return done;
}

/* ---- what came of it ---- */

static void describe(psti_sim_rank *rank)
{
    const psti_program *program = rank->program;
    pst_stage_result *result = &rank->result;
    result->num_passes = rank->schedule->num_passes;
    result->peak_in_flight = rank->schedule->info.peak;
    for (uint32_t c = 0; c < program->num_chunks; c++) {
        result->num_slots += program->num_slots[c];
        for (uint32_t l = 0; l < program->num_layers[c]; l++)
            result->num_tickets += (uint64_t)rank->layers[program->first_layer[c] + l].num_parts *
                                   program->num_slots[c];
    }
    result->kept_in_place = program->num_kept;
    result->stashed = program->num_stashed;
    result->restored = program->num_restored;
    result->conflicts[0] = program->conflicts[0];
    result->conflicts[1] = program->conflicts[1];
    result->program_bytes = program->bytes;
    result->order_is_simulated =
        (rank->all->config.num_streams > 1 || rank->mixes) && !rank->all->config.in_call_order;
    psti_sim_bounds(rank);
}

/* Of each rank the time that the last step took it, from the end of its step before. */
static uint64_t longest(const psti_sim *self, uint64_t before)
{
    uint64_t end = 0, alone = 0;
    for (uint32_t i = 0; i < self->config.num_stages; i++) {
        const psti_sim_rank *rank = &self->ranks[i];
        end = psti_sim_later(end, rank->clock[PSTI_ON_MAIN]);
        alone = psti_sim_later(alone, rank->clock[PSTI_ON_MAIN] - rank->start_ns);
    }
    return self->config.alone ? alone : end - before;
}

static void conclude(psti_sim *self, uint64_t before, pst_simulation *simulation)
{
    simulation->makespan_ns = longest(self, before);
    for (uint32_t i = 0; i < self->config.num_stages; i++) {
        psti_sim_rank *rank = &self->ranks[i];
        const uint64_t end = rank->clock[PSTI_ON_MAIN], own = end - rank->start_ns;
        rank->result.end_ns = end - self->origin_ns;
        if (!self->config.alone && simulation->makespan_ns > own)
            rank->result.bubble_ns += simulation->makespan_ns - own;
        describe(rank);
    }
}

static pst_status run(psti_sim *self, pst_simulation *simulation)
{
    uint64_t before = 0;
    for (uint32_t step = 0; step < self->config.steps && !simulation->deadlocked; step++) {
        const bool is_last = step + 1 == self->config.steps;
        before = self->origin_ns = 0;
        for (uint32_t i = 0; i < self->config.num_stages; i++) {
            const uint64_t now = self->ranks[i].clock[PSTI_ON_MAIN];
            self->origin_ns = i == 0 ? now : psti_min(self->origin_ns, now);
            before = psti_sim_later(before, now);
            begin_step(&self->ranks[i], is_last);
        }
        simulation->deadlocked = !run_step(self);
        for (uint32_t i = 0; i < self->config.num_stages; i++)
            PSTI_TRY(end_step(&self->ranks[i]));
    }
    if (simulation->deadlocked)
        psti_sim_name_deadlock(self, simulation->deadlock, sizeof(simulation->deadlock));
    conclude(self, before, simulation);
    return PST_OK;
}

static void give(const psti_sim *self, const pst_simulation *simulation,
                 pst_simulation *simulation_out, size_t simulation_bytes,
                 pst_stage_result *stages_out, size_t stage_bytes)
{
    memcpy(simulation_out, simulation, simulation_bytes);
    for (uint32_t i = 0; i < self->config.num_stages; i++)
        memcpy((unsigned char *)stages_out + i * stage_bytes, &self->ranks[i].result, stage_bytes);
}

pst_status pst_simulate_sized(const pst_simulation_config *config, pst_simulation *simulation_out,
                              size_t simulation_bytes, pst_stage_result *stages_out,
                              size_t stage_bytes)
{
    PSTI_TAKE(pst_simulation_config, own, config);
    PSTI_CHECK(simulation_out && stages_out, PST_E_INVALID, "simulation_out or stages_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_simulation, simulation_bytes));
    PSTI_TRY(PSTI_CHECK_SIZE(pst_stage_result, stage_bytes));
    psti_sim self = {0};
    pst_simulation simulation = {0};
    pst_status status = psti_sim_open(&self, &own);
    if (status == PST_OK)
        status = run(&self, &simulation);
    if (status == PST_OK)
        give(&self, &simulation, simulation_out, simulation_bytes, stages_out, stage_bytes);
    psti_sim_close(&self);
    return status;
}
