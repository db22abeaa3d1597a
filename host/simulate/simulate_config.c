/* What a simulation is made of: checks the configuration, replaces zeros, opens ranks. */
#include "host/base/structs.h"
#include "host/simulate/simulate.h"

#include <inttypes.h>

static pst_status check_sets(const pst_simulation_config *config)
{
    PSTI_CHECK(config->num_sources <= PST_MAX_SETS, PST_E_INVALID, "num_sources %u: at most %u",
               config->num_sources, PST_MAX_SETS);
    PSTI_CHECK(config->num_destinations <= PST_MAX_SETS, PST_E_INVALID,
               "num_destinations %u: at most %u", config->num_destinations, PST_MAX_SETS);
    PSTI_CHECK(!config->one_ring || config->num_destinations == 0, PST_E_INVALID,
               "num_destinations %u with one_ring: restores go into the %u sources",
               config->num_destinations, config->num_sources);
    PSTI_CHECK(config->num_streams == 1 || config->num_streams == 2 || config->num_streams == 4,
               PST_E_INVALID, "num_streams %u: allowed are 1, 2, 4", config->num_streams);
    PSTI_CHECK(config->rule == PST_RESTORE_ASAP || config->rule == PST_RESTORE_NEXT, PST_E_INVALID,
               "rule %d: allowed are 0 and 1", (int)config->rule);
    PSTI_CHECK(config->mode == PST_POOL_ORDERED || config->mode == PST_POOL_CONCURRENT,
               PST_E_INVALID, "mode %d: allowed are 0 and 1", (int)config->mode);
    PSTI_CHECK(config->mode == PST_POOL_CONCURRENT || config->num_streams == 1 ||
                   config->in_call_order,
               PST_E_INVALID, "num_streams %u with mode ORDERED: it takes CONCURRENT",
               config->num_streams);
    return PST_OK;
}

static pst_status check_numbers(const pst_simulation_config *config)
{
    for (uint32_t tier = 0; tier < 2; tier++)
        PSTI_CHECK(config->num_pages[tier] <= INT32_MAX || config->num_pages[tier] == UINT64_MAX,
                   PST_E_INVALID, "num_pages[%u] %" PRIu64 ": at most %d, or UINT64_MAX for enough",
                   tier, config->num_pages[tier], INT32_MAX);
    PSTI_CHECK(config->page_bytes >= PST_PAGE_BYTES_MIN &&
                   config->page_bytes <= PST_PAGE_BYTES_MAX &&
                   (config->page_bytes & (config->page_bytes - 1)) == 0,
               PST_E_INVALID, "page_bytes %" PRIu64 ": allowed are powers of two, %u to %u",
               config->page_bytes, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX);
    PSTI_CHECK(config->chunk_order <= PST_CHUNKS_DIRECTIONS, PST_E_INVALID,
               "chunk_order %d: allowed are 0 to %d", (int)config->chunk_order,
               PST_CHUNKS_DIRECTIONS);
    return check_sets(config);
}

static void resolve(pst_simulation_config *config)
{
    if (config->num_sources == 0)
        config->num_sources = 2;
    if (config->num_destinations == 0 && !config->one_ring)
        config->num_destinations = 2;
    if (config->num_streams == 0)
        config->num_streams = 1;
    if (config->steps == 0)
        config->steps = 1;
    if (config->page_bytes == 0)
        config->page_bytes = PST_PAGE_BYTES_DEFAULT;
}

/* Stages that wait for each other run the same schedule. */
static pst_status check_schedules(const pst_simulation_config *config)
{
    for (uint32_t i = 0; i < config->num_stages; i++) {
        const pst_schedule *own = config->schedules[i], *first = config->schedules[0];
        PSTI_CHECK(psti_handle_is(own, PSTI_KIND_SCHEDULE), PST_E_INVALID,
                   "schedules[%u] is no schedule", i);
        PSTI_CHECK(config->layers[i] || config->num_layers[i] == 0, PST_E_INVALID,
                   "layers[%u] is NULL, num_layers[%u] is %u", i, i, config->num_layers[i]);
        if (config->alone)
            continue;
        PSTI_CHECK(own->config.kind == first->config.kind, PST_E_INVALID,
                   "schedules[%u] is of another kind than schedules[0]: stages wait for each other",
                   i);
        if (own->config.kind == PST_SCHEDULE_LIST)
            continue;
        PSTI_CHECK(own->config.num_stages == config->num_stages && own->config.stage == i,
                   PST_E_INVALID, "schedules[%u] is of stage %u of %u, not of %u of %u", i,
                   own->config.stage, own->config.num_stages, i, config->num_stages);
        PSTI_CHECK(own->info.digest == first->info.digest, PST_E_INVALID,
                   "schedules[%u] has other micro-batches, chunks or groups than schedules[0]", i);
    }
    return PST_OK;
}

static pst_chunk_order order_of(const pst_simulation_config *config)
{
    if (config->chunk_order != PST_CHUNKS_OF_KIND)
        return config->chunk_order;
    switch (config->schedules[0]->config.kind) {
    case PST_SCHEDULE_ZB_V:
    case PST_SCHEDULE_DUALPIPE_V:
        return PST_CHUNKS_V;
    case PST_SCHEDULE_DUALPIPE:
        return PST_CHUNKS_DIRECTIONS;
    default:
        return PST_CHUNKS_LOOPED;
    }
}

pst_status psti_sim_open(psti_sim *self, const pst_simulation_config *config)
{
    self->config = *config;
    resolve(&self->config);
    PSTI_CHECK(config->num_stages > 0, PST_E_INVALID, "num_stages is 0");
    PSTI_CHECK(config->schedules && config->layers && config->num_layers, PST_E_INVALID,
               "schedules, layers or num_layers is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE_IN(pst_simulated_layer, config, layer_bytes));
    PSTI_TRY(check_numbers(&self->config));
    PSTI_TRY(check_schedules(config));
    self->chunk_order = order_of(config);
    for (uint32_t i = 0; i < config->num_stages; i++)
        self->has_glus |= psti_sim_has_glus(self, i);
    self->in_time = config->interference_per_mille > 0 ||
                    ((self->config.num_streams > 1 || self->has_glus) && !config->in_call_order);
    self->ranks = psti_calloc(config->num_stages, sizeof(psti_sim_rank));
    PSTI_CHECK(self->ranks, PST_E_NOMEM, "no memory for %u stages", config->num_stages);
    for (uint32_t i = 0; i < config->num_stages; i++) {
        psti_sim_rank *rank = &self->ranks[i];
        rank->all = self;
        rank->stage = i;
        rank->schedule = config->schedules[i];
        for (uint32_t tier = 0; tier < 2; tier++)
            rank->num_pages[tier] = psti_min(config->num_pages[tier], PSTI_SIM_ENOUGH_PAGES);
        PSTI_TRY(psti_sim_open_rank(self, rank));
    }
    return PST_OK;
}

void psti_sim_close(psti_sim *self)
{
    for (uint32_t i = 0; self->ranks && i < self->config.num_stages; i++) {
        psti_sim_rank *rank = &self->ranks[i];
        psti_program_free(rank->program);
        psti_free(rank->layers);
        psti_free(rank->tickets);
        psti_free(rank->events);
        psti_free(rank->cells);
        psti_free(rank->ends[0]);
        psti_free(rank->ends[1]);
        psti_free(rank->main);
    }
    psti_free(self->ranks);
    self->ranks = NULL;
}
