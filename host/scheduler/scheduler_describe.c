/* Checks what the caller says of layers, their parts and their buffers, and copies it. */
#include "host/base/structs.h"
#include "host/scheduler/scheduler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/arith.h"

/* ---- buffers ---- */

pst_buffers *psti_scheduler_copy_buffers(pst_scheduler *self, const pst_group *group,
                                         const pst_buffers *from)
{
    const size_t tensors = group->num_tensors, spaces = group->num_spaces;
    pst_buffers *copy = psti_scheduler_take(self, 1, sizeof(*copy));
    void **bases = psti_scheduler_take(self, tensors, sizeof(*bases));
    const void **counts = psti_scheduler_take(self, spaces, sizeof(*counts));
    int64_t *capacities = psti_scheduler_take(self, spaces, sizeof(*capacities));
    uint64_t *strides = psti_scheduler_take(self, tensors * 2, sizeof(*strides));
    if (!copy || !bases || !counts || !capacities || !strides)
        return NULL;
    memcpy(bases, from->bases, tensors * sizeof(*bases));
    *copy = (pst_buffers)PST_BUFFERS_INIT;
    copy->bases = bases;
    if (from->counts) {
        memcpy(counts, from->counts, spaces * sizeof(*counts));
        copy->counts = counts;
    }
    if (from->capacities) {
        memcpy(capacities, from->capacities, spaces * sizeof(*capacities));
        copy->capacities = capacities;
    }
    if (from->row_strides) {
        memcpy(strides, from->row_strides, tensors * sizeof(*strides));
        copy->row_strides = strides;
    }
    if (from->segment_strides) {
        memcpy(strides + tensors, from->segment_strides, tensors * sizeof(*strides));
        copy->segment_strides = strides + tensors;
    }
    return copy;
}

pst_status psti_scheduler_check_buffers(const pst_scheduler *self, const pst_group *group,
                                        const pst_buffers *buffers, bool with_counts,
                                        const char *what)
{
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
    psti_placing placing = {.spaces = spaces, .tensors = tensors, .pool = self->pool};
    PSTI_TRY(psti_place(self->device, group, buffers, what, &placing));
    const uint64_t pages = psti_table_length(self->pool, placing.max_tiles);
    const uint64_t room = psti_table_length(self->pool, group->max_tiles);
    PSTI_CHECK(!with_counts || buffers->counts, PST_E_INVALID, "%s: counts is NULL", what);
    for (uint32_t i = 0; with_counts && i < group->num_spaces; i++)
        PSTI_CHECK(buffers->counts[i], PST_E_INVALID, "%s: counts[%u] is NULL", what, i);
    PSTI_CHECK(!with_counts || pages <= room, PST_E_INVALID,
               "%s: %" PRIu64 " pages at capacity, its group has %" PRIu64, what, pages, room);
    return PST_OK;
}

/* ---- parts ---- */

enum { NAME_BYTES = 96 };

static pst_buffers *take_sets(pst_scheduler *self, const psti_scheduler_part *part,
                              const pst_buffers *const *sets, uint32_t num, bool with_counts,
                              const char *name, pst_status *status)
{
    char what[NAME_BYTES + 32];
    pst_buffers *all = psti_scheduler_take(self, num, sizeof(*all));
    *status = PST_OK;
    for (uint32_t i = 0; i < num && *status == PST_OK && all; i++) {
        snprintf(what, sizeof(what), "%s, %s %u", name, with_counts ? "source" : "destination", i);
        *status = psti_scheduler_check_buffers(self, part->group, sets[i], with_counts, what);
        const pst_buffers *copy =
            *status == PST_OK ? psti_scheduler_copy_buffers(self, part->group, sets[i]) : NULL;
        if (copy)
            all[i] = *copy;
        else if (*status == PST_OK)
            all = NULL;
    }
    if (*status == PST_OK && !all)
        *status = PSTI_FAIL(PST_E_NOMEM, "no memory for a scheduler");
    return all;
}

static pst_status take_dirty(pst_scheduler *self, psti_scheduler_part *part, const pst_part *given,
                             uint32_t num, const char *name)
{
    if (!given->dirty) {
        PSTI_CHECK(self->restore_options.tail != PST_TAIL_ZERO, PST_E_INVALID,
                   "%s: tail PST_TAIL_ZERO needs dirty words", name);
        return PST_OK;
    }
    part->dirty = psti_scheduler_take(self, num, sizeof(pst_dirty *));
    PSTI_CHECK(part->dirty, PST_E_NOMEM, "no memory for a scheduler");
    for (uint32_t i = 0; i < num; i++) {
        pst_dirty *dirty = given->dirty[i];
        PSTI_CHECK_HANDLE(dirty, DIRTY);
        PSTI_CHECK(dirty->device == self->device && dirty->form == part->group->form, PST_E_INVALID,
                   "%s, dirty %u: of another device, or made for a group of another form", name, i);
        part->dirty[i] = dirty;
    }
    return PST_OK;
}

static pst_status take_part(pst_scheduler *self, const pst_part *given, const char *name,
                            psti_scheduler_part *part)
{
    pst_status status;
    const pst_group *group = given->group;
    const uint32_t num_destinations = self->one_ring ? self->num_sources : self->num_destinations;
    const uint32_t both = PST_USE_BACKWARD | PST_USE_WEIGHT;
    PSTI_CHECK_HANDLE(group, GROUP);
    PSTI_CHECK((given->uses & ~both) == 0, PST_E_INVALID,
               "%s: uses %u: allowed are PST_USE_BACKWARD, _WEIGHT and their sum", name,
               given->uses);
    PSTI_CHECK(given->padding == 0, PST_E_INVALID, "%s: padding %u: must be 0", name,
               given->padding);
    part->group = group;
    part->is_glu = group->glu_tensor != PSTI_NO_TENSOR;
    PSTI_CHECK(!part->is_glu || self->pool->view.concurrent, PST_E_INVALID,
               "%s: a GLU writes it on the hooks' stream: needs a concurrent pool", name);
    part->uses = given->uses ? given->uses : both;
    PSTI_CHECK(self->is_own == !given->sources, PST_E_INVALID,
               "%s: sources is %sNULL, that of the first part is not so", name,
               self->is_own ? "not " : "");
    if (self->is_own) {
        PSTI_CHECK(!given->destinations && !given->dirty, PST_E_INVALID,
                   "%s: destinations and dirty are for fixed sets", name);
        PSTI_CHECK(self->restore_options.tail != PST_TAIL_ZERO, PST_E_INVALID,
                   "%s: tail PST_TAIL_ZERO needs dirty words", name);
        return PST_OK;
    }
    const bool has_none = self->one_ring || part->is_glu;
    PSTI_CHECK(!given->destinations == has_none, PST_E_INVALID, "%s: destinations is %sNULL", name,
               has_none ? "not " : "");
    PSTI_CHECK(!part->is_glu || !given->dirty, PST_E_INVALID,
               "%s: dirty is not NULL, and a GLU writes it", name);
    part->sources = take_sets(self, part, given->sources, self->num_sources, true, name, &status);
    PSTI_TRY(status);
    if (part->is_glu)
        return PST_OK;
    part->destinations = part->sources;
    if (!self->one_ring)
        part->destinations = take_sets(self, part, given->destinations, self->num_destinations,
                                       false, name, &status);
    PSTI_TRY(status);
    return take_dirty(self, part, given, num_destinations, name);
}

/* ---- layers ---- */

static pst_status take_swapped(const pst_layer *given, const char *name,
                               psti_scheduler_layer *layer)
{
    const uint64_t tokens = given->policy.swap_tokens;
    const uint64_t bytes = psti_plus(given->whole_bytes, psti_times(tokens, given->token_bytes));
    PSTI_CHECK(given->buffers[0] && given->buffers[1], PST_E_INVALID, "%s: a buffer is NULL", name);
    PSTI_CHECK(tokens <= given->num_tokens, PST_E_INVALID,
               "%s: swap_tokens %" PRIu64 ": it has num_tokens %" PRIu64, name, tokens,
               given->num_tokens);
    PSTI_CHECK(bytes < UINT64_C(1) << 48, PST_E_INVALID, "%s: %" PRIu64 " bytes to swap", name,
               bytes);
    layer->swap_bytes = bytes;
    layer->swap_stride = (bytes + 255) & ~UINT64_C(255);
    layer->first_token = tokens < given->num_tokens ? tokens : UINT64_MAX;
    return PST_OK;
}

static pst_status check_policy(const pst_scheduler *self, const pst_layer *given, const char *name)
{
    const pst_layer_policy *policy = &given->policy;
    const bool shares = given->keep == PST_KEEP_PAGED && policy->host_num > 0;
    PSTI_CHECK(policy->host_num <= policy->host_den, PST_E_INVALID,
               "%s: policy.host_num %u of host_den %u: allowed are fractions from 0 to 1", name,
               policy->host_num, policy->host_den);
    PSTI_CHECK(policy->move == PST_MOVE_DIRECT || policy->move == PST_MOVE_DEMOTE, PST_E_INVALID,
               "%s: policy.move %d: allowed are direct and demote", name, (int)policy->move);
    PSTI_CHECK(!shares || self->pool->view.max_pages[PSTI_TIER_HOST] > 0, PST_E_INVALID,
               "%s: policy.host_num %u: the pool has no host pages", name, policy->host_num);
    const bool demotes = shares && policy->move == PST_MOVE_DEMOTE;
    PSTI_CHECK(!demotes || self->num_streams > 1, PST_E_INVALID,
               "%s: policy.move DEMOTE: needs a concurrent pool and at least two streams", name);
    return PST_OK;
}

/* Pages that a demote may move: what it holds is known on the device only. */
static void prepare_demote(const pst_scheduler *self, psti_scheduler_layer *layer)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < layer->num_parts; i++) {
        const uint64_t of_part = psti_table_length(self->pool, layer->parts[i].group->max_tiles);
        pages = pages < of_part ? of_part : pages;
    }
    const pst_layer_policy *policy = &layer->policy;
    const uint64_t share = policy->host_den ? pages * policy->host_num / policy->host_den : 0;
    layer->demote = (pst_migrate_options)PST_INIT(pst_migrate_options);
    layer->demote.share = share < pages ? PST_MIGRATE_UP_TO : PST_MIGRATE_REST;
    if (share < pages)
        layer->demote.max_pages = share ? share : 1;
}

static pst_status take_layer(pst_scheduler *self, const pst_scheduler_config *config,
                             const pst_layer *given, psti_scheduler_layer *layer)
{
    char name[64], part_name[NAME_BYTES];
    snprintf(name, sizeof(name), "layer %u of chunk %u", given->layer, given->chunk);
    PSTI_CHECK(!layer->is_taken, PST_E_INVALID, "%s: given twice", name);
    PSTI_CHECK(given->keep >= PST_KEEP_PAGED && given->keep <= PST_KEEP_RECOMPUTED, PST_E_INVALID,
               "%s: keep %d: allowed are 0 to 3", name, (int)given->keep);
    const bool needs_pool = given->keep == PST_KEEP_PAGED || given->keep == PST_KEEP_SWAPPED;
    PSTI_CHECK(!needs_pool || self->pool, PST_E_INVALID, "%s: PAGED and SWAPPED need a pool", name);
    PSTI_TRY(check_policy(self, given, name));
    layer->is_taken = true;
    layer->chunk = given->chunk;
    layer->layer = given->layer;
    layer->keep = given->keep;
    layer->policy = given->policy;
    layer->first_token = given->keep == PST_KEEP_RECOMPUTED ? 0 : UINT64_MAX;
    memcpy(layer->buffers, given->buffers, sizeof(layer->buffers));
    layer->whole_bytes = given->whole_bytes;
    layer->token_bytes = given->token_bytes;
    layer->num_tokens = given->num_tokens;
    if (given->keep == PST_KEEP_SWAPPED)
        return take_swapped(given, name, layer);
    if (given->keep != PST_KEEP_PAGED)
        return PST_OK;
    PSTI_CHECK(given->num_parts >= 1 && given->num_parts <= PST_MAX_PARTS, PST_E_INVALID,
               "%s: num_parts %u: allowed are 1 to %d", name, given->num_parts, PST_MAX_PARTS);
    PSTI_CHECK(given->parts, PST_E_INVALID, "%s: parts is NULL, of num_parts %u", name,
               given->num_parts);
    layer->num_parts = given->num_parts;
    for (uint32_t i = 0; i < given->num_parts; i++) {
        pst_part part = {0};
        psti_take_element(&part, given->parts, i, config->part_bytes);
        snprintf(part_name, sizeof(part_name), "%s, part %u", name, i);
        PSTI_TRY(take_part(self, &part, part_name, &layer->parts[i]));
    }
    prepare_demote(self, layer);
    return PST_OK;
}

/* The element of an array whose elements may be shorter than ours. */
static pst_layer layer_of(const pst_scheduler_config *config, uint32_t i)
{
    pst_layer layer = {0};
    psti_take_element(&layer, config->layers, i, config->layer_bytes);
    return layer;
}

/* How many layers each chunk has; every one is there exactly once. */
static pst_status count_layers(pst_scheduler *self, const pst_scheduler_config *config)
{
    uint32_t chunks = config->schedule ? config->schedule->num_chunks : 1;
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const pst_layer layer = layer_of(config, i);
        PSTI_CHECK(layer.chunk < config->num_layers || layer.chunk < chunks, PST_E_INVALID,
                   "layers[%u]: chunk %u: %s", i, layer.chunk,
                   config->schedule ? "the schedule has fewer" : "there are not so many layers");
        if (layer.chunk >= chunks)
            chunks = layer.chunk + 1;
    }
    self->num_chunks = chunks;
    self->layers_of = psti_scheduler_take(self, chunks, sizeof(uint32_t));
    self->first_layer = psti_scheduler_take(self, chunks, sizeof(uint32_t));
    self->num_slots = psti_scheduler_take(self, chunks, sizeof(uint32_t));
    self->first_seat = psti_scheduler_take(self, chunks, sizeof(uint32_t));
    PSTI_CHECK(self->layers_of && self->first_layer && self->num_slots && self->first_seat,
               PST_E_NOMEM, "no memory for a scheduler");
    for (uint32_t i = 0; i < config->num_layers; i++)
        self->layers_of[layer_of(config, i).chunk]++;
    for (uint32_t c = 1; c < chunks; c++)
        self->first_layer[c] = self->first_layer[c - 1] + self->layers_of[c - 1];
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const pst_layer layer = layer_of(config, i);
        PSTI_CHECK(layer.layer < self->layers_of[layer.chunk], PST_E_INVALID,
                   "layers[%u]: layer %u of chunk %u: %u layers are of that chunk, so they are 0 "
                   "to %u",
                   i, layer.layer, layer.chunk, self->layers_of[layer.chunk],
                   self->layers_of[layer.chunk] - 1);
    }
    return PST_OK;
}

static void describe_layer(const psti_scheduler_layer *layer, psti_program_layer *described)
{
    described->keep = (uint8_t)layer->keep;
    described->num_parts = (uint8_t)layer->num_parts;
    for (uint32_t i = 0; i < layer->num_parts; i++)
        described->uses[i] = (uint8_t)layer->parts[i].uses;
    for (uint32_t i = 0; i < layer->num_parts; i++)
        described->glus |= (uint8_t)((layer->parts[i].is_glu ? 1u : 0u) << i);
    const bool shares = layer->keep == PST_KEEP_PAGED && layer->policy.host_num > 0;
    described->holds = layer->policy.holds;
    described->demotes = shares && layer->policy.move == PST_MOVE_DEMOTE;
    described->promotes = shares && layer->policy.move == PST_MOVE_DIRECT && described->glus;
    if (described->demotes || described->promotes)
        described->promote_ahead = layer->policy.promote_ahead ? layer->policy.promote_ahead : 1;
}

/* Whether some part is restored by the scheduler. */
static bool restores(const pst_scheduler *self)
{
    for (uint32_t i = 0; i < self->num_layers; i++)
        for (uint32_t p = 0; p < self->layers[i].num_parts; p++)
            if (!self->layers[i].parts[p].is_glu)
                return true;
    return false;
}

pst_status psti_scheduler_take_layers(pst_scheduler *self, const pst_scheduler_config *config)
{
    PSTI_TRY(count_layers(self, config));
    self->num_layers = config->num_layers;
    self->layers = psti_scheduler_take(self, config->num_layers, sizeof(*self->layers));
    self->program_layers =
        psti_scheduler_take(self, config->num_layers, sizeof(*self->program_layers));
    PSTI_CHECK(self->layers && self->program_layers, PST_E_NOMEM, "no memory for a scheduler");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const pst_layer layer = layer_of(config, i);
        if (layer.keep == PST_KEEP_PAGED && layer.parts) {
            self->is_own = !layer.parts->sources;
            break;
        }
    }
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const pst_layer layer = layer_of(config, i);
        const uint32_t at = self->first_layer[layer.chunk] + layer.layer;
        PSTI_TRY(take_layer(self, config, &layer, &self->layers[at]));
        self->recomputes |= layer.keep == PST_KEEP_RECOMPUTED;
        describe_layer(&self->layers[at], &self->program_layers[at]);
    }
    PSTI_CHECK(!self->is_own || self->destination || self->capture == PST_CAPTURE_LAYERS ||
                   !restores(self),
               PST_E_INVALID, "destination is NULL: restores of the caller's own form ask it");
    return PST_OK;
}
