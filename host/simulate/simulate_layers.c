/* The layers of a simulated rank: checks them, and compiles its program. */
#include "host/base/structs.h"
#include "host/simulate/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A layer that is looked at, for messages. */
typedef struct here {
    const psti_sim *all;
    uint32_t stage;
    const pst_simulated_layer *layer;
} here;

#define CHECK_LAYER(at, condition, format, ...)                                                \
    PSTI_CHECK(condition, PST_E_INVALID, "stage %u, chunk %u, layer %u: " format, (at)->stage, \
               (at)->layer->chunk, (at)->layer->layer, __VA_ARGS__)

/* ---- layers ---- */

static pst_status check_policy(const here *at)
{
    const pst_simulation_config *config = &at->all->config;
    const pst_layer_policy *policy = &at->layer->policy;
    CHECK_LAYER(at, policy->host_num <= policy->host_den,
                "policy.host_num %u: at most policy.host_den, %u", policy->host_num,
                policy->host_den);
    CHECK_LAYER(at, policy->host_num == 0 || config->num_pages[1] > 0,
                "policy.host_num %u: there are no host pages", policy->host_num);
    CHECK_LAYER(at, policy->move == PST_MOVE_DIRECT || policy->move == PST_MOVE_DEMOTE,
                "policy.move %d: allowed are 0 and 1", (int)policy->move);
    CHECK_LAYER(at, policy->move == PST_MOVE_DIRECT || config->num_streams > 1,
                "policy.move is DEMOTE with num_streams %u: it takes 2 or 4", config->num_streams);
    CHECK_LAYER(at, policy->move == PST_MOVE_DIRECT || config->mode == PST_POOL_CONCURRENT,
                "policy.move is DEMOTE with mode %s: it takes CONCURRENT", "ORDERED");
    return PST_OK;
}

static pst_status check_usage(const here *at, uint32_t part, uint32_t micro_batch)
{
    const pst_simulated_layer *layer = at->layer;
    const pst_group_usage *usage = &layer->usages[(size_t)part * layer->num_usages + micro_batch];
    const uint64_t page_bytes = at->all->config.page_bytes;
    CHECK_LAYER(at, usage->pages <= UINT32_MAX,
                "usages, part %u, micro-batch %u: %" PRIu64 " pages: at most %u", part, micro_batch,
                usage->pages, UINT32_MAX);
    CHECK_LAYER(at, usage->stream_bytes <= usage->pages * page_bytes,
                "usages, part %u, micro-batch %u: %" PRIu64 " stream_bytes in %" PRIu64
                " pages of %" PRIu64,
                part, micro_batch, usage->stream_bytes, usage->pages, page_bytes);
    CHECK_LAYER(at, usage->payload_bytes <= usage->stream_bytes,
                "usages, part %u, micro-batch %u: %" PRIu64 " payload_bytes of %" PRIu64
                " stream_bytes",
                part, micro_batch, usage->payload_bytes, usage->stream_bytes);
    return PST_OK;
}

static pst_status check_glus(const here *at, uint32_t num_parts)
{
    const pst_simulated_layer *layer = at->layer;
    const bool is_alone = at->all->config.mode == PST_POOL_CONCURRENT;
    CHECK_LAYER(at, layer->glu_parts >> num_parts == 0, "glu_parts %u: it has %u parts",
                layer->glu_parts, num_parts);
    CHECK_LAYER(at, layer->padding_2 == 0, "padding_2 %u: must be 0", layer->padding_2);
    CHECK_LAYER(at, layer->glu_parts == 0 || is_alone,
                "glu_parts with mode %s: it takes CONCURRENT", "ORDERED");
    for (uint32_t part = 0; part < num_parts; part++) {
        if (!(layer->glu_parts >> part & 1))
            continue;
        CHECK_LAYER(at, layer->part_ns[part] == 0,
                    "part_ns[%u] %" PRIu64 ": 0 for a part that a GLU writes", part,
                    layer->part_ns[part]);
        for (uint32_t i = 0; layer->glu_bytes && i < layer->num_usages; i++) {
            const size_t n = (size_t)part * layer->num_usages + i;
            CHECK_LAYER(at, layer->glu_bytes[n] <= layer->usages[n].payload_bytes,
                        "glu_bytes, part %u, micro-batch %u: %" PRIu64 " of %" PRIu64
                        " payload_bytes",
                        part, i, layer->glu_bytes[n], layer->usages[n].payload_bytes);
        }
    }
    return PST_OK;
}

static pst_status check_parts(const here *at, uint32_t num_micro_batches)
{
    const pst_simulated_layer *layer = at->layer;
    const uint32_t num_parts = layer->num_parts ? layer->num_parts : 1;
    CHECK_LAYER(at, num_parts <= PST_MAX_PARTS, "num_parts %u: at most %u", num_parts,
                PST_MAX_PARTS);
    CHECK_LAYER(at, layer->usages && layer->num_usages > 0, "paged, and has %s", "no usages");
    CHECK_LAYER(at, layer->num_usages == 1 || layer->num_usages >= num_micro_batches,
                "num_usages %u: 1, or of all %u micro-batches", layer->num_usages,
                num_micro_batches);
    for (uint32_t part = 0; part < num_parts; part++) {
        CHECK_LAYER(at, layer->uses[part] <= (PST_USE_BACKWARD | PST_USE_WEIGHT),
                    "uses[%u] %u: at most %u", part, layer->uses[part],
                    PST_USE_BACKWARD | PST_USE_WEIGHT);
        CHECK_LAYER(at, layer->part_ns[part] <= layer->forward.core,
                    "part_ns[%u] %" PRIu64 ": at most forward.core, %" PRIu64, part,
                    layer->part_ns[part], layer->forward.core);
        for (uint32_t i = 0; i < layer->num_usages; i++)
            PSTI_TRY(check_usage(at, part, i));
    }
    PSTI_TRY(check_glus(at, num_parts));
    return check_policy(at);
}

static void order_parts(psti_sim_layer *to, const pst_simulated_layer *from)
{
    for (uint32_t i = 0; i < to->num_parts; i++) {
        uint32_t place = 0;
        const uint64_t own = from->part_ns[i] ? from->part_ns[i] : PSTI_SIM_UNKNOWN;
        if (to->glus >> i & 1)
            continue;
        for (uint32_t j = 0; j < to->num_parts; j++) {
            if (to->glus >> j & 1)
                continue;
            const uint64_t other = from->part_ns[j] ? from->part_ns[j] : PSTI_SIM_UNKNOWN;
            place += other < own || (other == own && j < i);
        }
        to->part_order[place] = (uint8_t)i;
        to->part_ns[i] = from->part_ns[i];
        if (from->part_ns[i] > 0)
            to->num_early++;
    }
}

static void take_layer(psti_sim_layer *to, const pst_simulated_layer *from)
{
    const bool is_paged = from->keep == PST_KEEP_PAGED;
    const pst_layer_policy *policy = &from->policy;
    *to = (psti_sim_layer){
        .keep = (uint8_t)from->keep,
        .num_parts = (uint8_t)(!is_paged         ? 0
                               : from->num_parts ? from->num_parts
                                                 : 1),
        .glus = (uint8_t)(is_paged ? from->glu_parts : 0),
        .demotes = is_paged && policy->move == PST_MOVE_DEMOTE && policy->host_num > 0,
        .glu_bytes = from->glu_bytes,
        .num_usages = from->num_usages,
        .usages = from->usages,
        .times = {from->forward, from->backward, from->backward_input, from->backward_weight},
        .recompute_ns = from->recompute_ns,
        .max_demote_pages = from->max_demote_pages,
        .swap_bytes = from->swap_bytes};
    if (!to->demotes) {
        to->host_num = policy->host_num;
        to->host_den = policy->host_den;
    }
    order_parts(to, from);
}

static void take_program_layer(psti_program_layer *to, const psti_sim_layer *own,
                               const pst_simulated_layer *from)
{
    *to = (psti_program_layer){.keep = own->keep,
                               .num_parts = own->num_parts,
                               .glus = own->glus,
                               .holds = from->policy.holds,
                               .demotes = own->demotes,
                               .promotes = own->glus && own->host_num > 0,
                               .promote_ahead = from->policy.promote_ahead};
    if ((to->demotes || to->promotes) && to->promote_ahead == 0)
        to->promote_ahead = 1;
    for (uint32_t part = 0; part < own->num_parts; part++)
        to->uses[part] =
            (uint8_t)(from->uses[part] ? from->uses[part] : PST_USE_BACKWARD | PST_USE_WEIGHT);
}

/* ---- ranks ---- */

/* Arrays of one rank's layers, by chunk. */
typedef struct shape {
    uint32_t *num_layers, *first_layer; /* of each chunk */
    psti_program_layer *layers;
    bool *is_there; /* of each layer */
} shape;

static void free_shape(shape *self)
{
    psti_free(self->num_layers);
    psti_free(self->first_layer);
    psti_free(self->layers);
    psti_free(self->is_there);
}

static void get_layer(const psti_sim *self, uint32_t stage, uint32_t i, pst_simulated_layer *to)
{
    memset(to, 0, sizeof(*to));
    psti_take_element(to, self->config.layers[stage], i, self->config.layer_bytes);
}

bool psti_sim_has_glus(const psti_sim *self, uint32_t stage)
{
    for (uint32_t i = 0; i < self->config.num_layers[stage]; i++) {
        pst_simulated_layer layer;
        get_layer(self, stage, i, &layer);
        if (layer.keep == PST_KEEP_PAGED && layer.glu_parts != 0)
            return true;
    }
    return false;
}

static pst_status count_layers(const psti_sim *self, const psti_sim_rank *rank, shape *to)
{
    const uint32_t num = self->config.num_layers[rank->stage];
    const uint32_t num_chunks = rank->schedule->num_chunks;
    for (uint32_t i = 0; i < num; i++) {
        pst_simulated_layer layer;
        get_layer(self, rank->stage, i, &layer);
        PSTI_CHECK(layer.chunk < num_chunks, PST_E_INVALID,
                   "stage %u, layers[%u].chunk %u: the schedule has %u", rank->stage, i,
                   layer.chunk, num_chunks);
        to->num_layers[layer.chunk]++;
    }
    for (uint32_t c = 1; c < num_chunks; c++)
        to->first_layer[c] = to->first_layer[c - 1] + to->num_layers[c - 1];
    return PST_OK;
}

static pst_status take_layers(const psti_sim *self, psti_sim_rank *rank, shape *to)
{
    PSTI_TRY(count_layers(self, rank, to));
    rank->max_parts = 1;
    for (uint32_t i = 0; i < self->config.num_layers[rank->stage]; i++) {
        pst_simulated_layer layer;
        const here at = {self, rank->stage, &layer};
        get_layer(self, rank->stage, i, &layer);
        const uint32_t place = to->first_layer[layer.chunk] + layer.layer;
        CHECK_LAYER(&at, layer.layer < to->num_layers[layer.chunk],
                    "the chunk has %u layers, one of which is missing",
                    to->num_layers[layer.chunk]);
        CHECK_LAYER(&at, !to->is_there[place], "layers[%u] is %s", i, "the second of this number");
        CHECK_LAYER(&at, layer.keep <= PST_KEEP_RECOMPUTED, "keep %d: allowed are 0 to %d",
                    (int)layer.keep, PST_KEEP_RECOMPUTED);
        if (layer.keep == PST_KEEP_PAGED)
            PSTI_TRY(check_parts(&at, rank->schedule->chunks[layer.chunk].num_micro_batches));
        to->is_there[place] = true;
        take_layer(&rank->layers[place], &layer);
        take_program_layer(&to->layers[place], &rank->layers[place], &layer);
        if (rank->layers[place].num_parts > rank->max_parts)
            rank->max_parts = rank->layers[place].num_parts;
    }
    return PST_OK;
}

/* The compiler does not know the stage. */
static pst_status name_stage(const psti_sim_rank *rank, pst_status status)
{
    char text[PSTI_MESSAGE_BYTES];
    if (status != PST_E_INVALID)
        return status;
    snprintf(text, sizeof(text), "%s", pst_last_message());
    char *place = strrchr(text, '['); /* in the source: there is going to be another */
    if (place && place > text)
        place[-1] = '\0';
    return PSTI_FAIL(status, "stage %u: %s", rank->stage, text);
}

static pst_status compile(const psti_sim *self, psti_sim_rank *rank, const shape *from)
{
    const pst_simulation_config *config = &self->config;
    const psti_program_config wanted = {.schedule = rank->schedule,
                                        .num_layers = from->num_layers,
                                        .layers = from->layers,
                                        .num_sources = config->num_sources,
                                        .num_destinations = config->num_destinations,
                                        .ahead = config->ahead,
                                        .num_streams = config->num_streams,
                                        .one_ring = config->one_ring,
                                        .keeps_nothing = config->keeps_nothing,
                                        .by_slot = config->by_slot,
                                        .rule = config->rule};
    return name_stage(rank, psti_program_make(&wanted, &rank->program));
}

static void find_mixture(psti_sim_rank *rank)
{
    bool has_glus = false, has_copies = false;
    for (uint32_t i = 0; i < rank->program->num_operations; i++) {
        const psti_operation *op = &rank->program->operations[i];
        has_glus |= psti_sim_is_glu(op);
        has_copies |= op->act >= PSTI_ACT_STASH && op->act <= PSTI_ACT_PROMOTE;
    }
    rank->mixes = has_glus && has_copies;
}

static pst_status make_arrays(const psti_sim *self, psti_sim_rank *rank)
{
    const size_t seats = (size_t)rank->program->num_seats + 1;
    const size_t lives = (size_t)rank->schedule->num_lives + 1;
    const bool has_cells = self->in_time || self->has_glus || self->config.num_streams > 1;
    rank->tickets = psti_calloc(seats * rank->max_parts, sizeof(psti_sim_ticket));
    rank->events = psti_calloc(seats * PSTI_NUM_EVENT_KINDS, sizeof(uint64_t));
    rank->ends[0] = psti_calloc(lives, sizeof(uint64_t));
    rank->ends[1] = psti_calloc(lives, sizeof(uint64_t));
    if (has_cells)
        rank->cells = psti_calloc((size_t)rank->program->num_operations + 1, sizeof(uint64_t));
    PSTI_CHECK(rank->tickets && rank->events && rank->ends[0] && rank->ends[1] &&
                   (rank->cells || !has_cells),
               PST_E_NOMEM, "stage %u: no memory for %u visits", rank->stage,
               rank->program->num_visits);
    return self->in_time ? psti_sim_open_time(rank) : PST_OK;
}

static pst_status fill_rank(const psti_sim *self, psti_sim_rank *rank, shape *own)
{
    PSTI_CHECK(own->num_layers && own->first_layer && own->layers && own->is_there && rank->layers,
               PST_E_NOMEM, "stage %u: no memory for %u layers", rank->stage,
               self->config.num_layers[rank->stage]);
    PSTI_TRY(take_layers(self, rank, own));
    PSTI_TRY(compile(self, rank, own));
    find_mixture(rank);
    return make_arrays(self, rank);
}

pst_status psti_sim_open_rank(const psti_sim *self, psti_sim_rank *rank)
{
    const size_t layers = (size_t)self->config.num_layers[rank->stage] + 1;
    const size_t chunks = (size_t)rank->schedule->num_chunks + 1;
    shape own = {.num_layers = psti_calloc(chunks, sizeof(uint32_t)),
                 .first_layer = psti_calloc(chunks, sizeof(uint32_t)),
                 .layers = psti_calloc(layers, sizeof(psti_program_layer)),
                 .is_there = psti_calloc(layers, sizeof(bool))};
    rank->layers = psti_calloc(layers, sizeof(psti_sim_layer));
    const pst_status status = fill_rank(self, rank, &own);
    free_shape(&own);
    return status;
}
