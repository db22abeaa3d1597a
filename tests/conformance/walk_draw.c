/* What a random program is made of; and other schedules for it. */
#include "tests/conformance/walk.h"

#include "tests/host/program/program_scene.h"

/* ---- drawn ---- */

static void draw_kind(walk *self)
{
    static const pst_schedule_kind kinds[] = {
        PST_SCHEDULE_1F1B,  PST_SCHEDULE_INTERLEAVED,    PST_SCHEDULE_GPIPE,
        PST_SCHEDULE_ZB_H1, PST_SCHEDULE_GPIPE_REVERSED, PST_SCHEDULE_ZB_H2,
        PST_SCHEDULE_ZB_V,  PST_SCHEDULE_DUALPIPE,       PST_SCHEDULE_DUALPIPE_V};
    pst_schedule_config *config = &self->drawn;
    config->kind = kinds[walk_below(self, sizeof(kinds) / sizeof(kinds[0]))];
    config->num_stages = 1 + walk_below(self, 4);
    config->num_micro_batches = config->num_stages + walk_below(self, 4);
    if (config->kind == PST_SCHEDULE_INTERLEAVED) {
        config->num_chunks = 2;
        config->num_micro_batches = config->num_stages * (1 + walk_below(self, 2));
    }
    if (config->kind == PST_SCHEDULE_DUALPIPE)
        config->num_stages = 2 * (1 + walk_below(self, 2));
    if (config->kind == PST_SCHEDULE_DUALPIPE || config->kind == PST_SCHEDULE_DUALPIPE_V)
        config->num_micro_batches = 2 * config->num_stages + 2 * walk_below(self, 2);
    config->stage = walk_below(self, config->num_stages);
}

static void draw_list(walk *self)
{
    uint64_t state = oracle_random_bits(&self->random);
    const random_list list = random_schedule(&state, walk_below(self, 2) == 0);
    memcpy(self->list, list.passes, list.num * sizeof(*list.passes));
    self->drawn.kind = PST_SCHEDULE_LIST;
    self->drawn.passes = self->list;
    self->drawn.num_passes = list.num;
}

static void draw_schedule(walk *self)
{
    self->drawn = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
    if (self->wish.lists || walk_below(self, 2))
        draw_list(self);
    else
        draw_kind(self);
    CHECK_OK(pst_schedule_create(&self->drawn, &self->schedule));
    self->num_chunks = self->schedule->num_chunks;
    CHECK(self->num_chunks <= WALK_CHUNKS);
    self->has_pairs = self->drawn.kind == PST_SCHEDULE_DUALPIPE || /* of some numbers none */
                      self->drawn.kind == PST_SCHEDULE_DUALPIPE_V;
    for (uint64_t i = 0; i < self->schedule->num_passes; i++)
        self->has_pairs |= self->schedule->passes[i].pairs;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        self->layers_of[c] = walk_below(self, self->schedule->num_passes > 20 ? 3 : 5);
        if (c == 0 && self->layers_of[c] == 0)
            self->layers_of[c] = 1;
        self->first_layer[c] = self->num_layers;
        self->num_layers += self->layers_of[c];
        if (self->num_micro_batches < self->schedule->chunks[c].num_micro_batches)
            self->num_micro_batches = self->schedule->chunks[c].num_micro_batches;
    }
    if (self->drawn.kind != PST_SCHEDULE_LIST)
        self->num_micro_batches *= 2;
}

/* How the pool and the streams work, and sets. */
static void draw_config(walk *self)
{
    static const uint32_t streams[] = {1, 2, 2, 4};
    pst_scheduler_config *config = &self->config;
    const bool splits = self->schedule->splits_backward;
    *config = (pst_scheduler_config)PST_SCHEDULER_CONFIG_INIT;
    config->num_sources = 1 + walk_below(self, 4);
    config->num_destinations = 1 + walk_below(self, 4);
    config->ahead = walk_below(self, 5);
    config->num_streams = streams[walk_below(self, 4)];
    config->keeps_nothing = walk_below(self, 8) == 0;
    config->capture = self->wish.layers ? PST_CAPTURE_LAYERS : PST_CAPTURE_ITERATION;
    config->one_ring = !self->has_pairs && !self->wish.layers && walk_below(self, 4) == 0;
    if (config->one_ring)
        config->num_destinations = 0;
    self->own = self->wish.own || walk_below(self, 3) == 0;
    if (!config->one_ring && !self->has_pairs && !splits && !self->wish.layers &&
        config->num_streams == 1 && walk_below(self, 3) == 0)
        config->rule = PST_RESTORE_NEXT;
    const bool is_concurrent = config->num_streams > 1 || walk_below(self, 2);
    self->pool_config.mode = is_concurrent ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config->tail = (pst_restore_tail)walk_below(self, 3);
    if (config->tail == PST_TAIL_ZERO && (self->own || config->one_ring))
        config->tail = PST_TAIL_ZERO_ALL;
    config->failed = (pst_restore_failed)walk_below(self, 2);
    self->is_recorded = !self->wish.layers && !self->has_pairs && walk_below(self, 8) == 0;
    for (uint32_t c = 0; c < self->num_chunks; c++) /* nobody can see what has no layer */
        self->is_recorded &= self->layers_of[c] > 0;
    if (self->is_recorded) {
        config->max_slots = WALK_SLOTS;
        config->num_stages = self->drawn.num_stages;
        config->stage = self->drawn.stage;
    }
    self->two_streams = !self->wish.layers && walk_below(self, 3) == 0;
    self->in_order = walk_below(self, 2);
    self->gives_streams = walk_below(self, 3) == 0;
    config->measures = walk_below(self, 4) == 0;
    self->announces = 50 * walk_below(self, 3);
    self->defers = self->own ? 30 * walk_below(self, 3) : 0;
    if (self->wish.layers)
        self->announces = 0;
}

static void draw_policy(walk *self, pst_layer *layer)
{
    pst_layer_policy *policy = &layer->policy;
    policy->holds = !self->wish.layers && walk_below(self, 2);
    policy->swap_tokens = walk_below(self, WALK_TOKENS + 1);
    if (layer->keep != PST_KEEP_PAGED || self->pool_config.num_host_pages == 0 ||
        walk_below(self, 2))
        return;
    policy->host_den = 1 + walk_below(self, 4);
    policy->host_num = walk_below(self, policy->host_den + 1);
    if (self->config.num_streams > 1 && walk_below(self, 2)) {
        policy->move = PST_MOVE_DEMOTE;
        policy->promote_ahead = walk_below(self, 4);
    }
}

static void draw_layer(walk *self, uint32_t chunk, uint32_t l)
{
    const uint32_t at = self->first_layer[chunk] + l;
    const uint32_t kind = walk_below(self, 10);
    pst_layer *layer = &self->layers[at];
    layer->chunk = chunk;
    layer->layer = l;
    layer->keep = kind < 7 ? PST_KEEP_PAGED : (pst_keep)(kind - 6);
    if (layer->keep == PST_KEEP_SWAPPED && self->has_pairs)
        layer->keep = PST_KEEP_PLANNED;
    draw_policy(self, layer);
    if (layer->keep != PST_KEEP_PAGED)
        return;
    layer->num_parts = 1 + walk_below(self, walk_below(self, 2) ? PST_MAX_PARTS : 1);
    layer->parts = self->parts[at];
    for (uint32_t p = 0; p < layer->num_parts; p++) {
        self->group_of[at][p] = walk_below(self, WALK_GROUPS);
        self->parts[at][p].uses = walk_below(self, 4);
    }
}

static void draw_groups(walk *self)
{
    static const shape_theme themes[] = {SHAPE_ONE_TENSOR, SHAPE_RATIOS, SHAPE_SEGMENTS,
                                         SHAPE_SUMS,       SHAPE_FLOORS, SHAPE_ODD_WIDTHS,
                                         SHAPE_UNALIGNED,  SHAPE_PITCH};
    for (uint32_t g = 0; g < WALK_GROUPS; g++) {
        shape *made = &self->shapes[g];
        shape_make(&self->random, themes[walk_below(self, 8)],
                   oracle_random_in(&self->random, 64, self->wish.bytes), made);
        for (uint32_t s = 0; s < made->group.num_spaces; s++)
            if (made->group.spaces[s].count_type == PST_COUNT_HOST)
                made->group.spaces[s].count_type = PST_COUNT_INT64;
        const uint32_t inputs = oracle_all_inputs(&made->group);
        self->num_inputs = inputs > self->num_inputs ? inputs : self->num_inputs;
        if (made->arena_bytes > self->arena_bytes)
            self->arena_bytes = made->arena_bytes;
    }
}

/* Pages of all tickets at capacity are enough for any order. */
static void draw_pool(walk *self)
{
    pst_pool_config *config = &self->pool_config;
    uint64_t all = 1;
    for (uint32_t l = 0; l < self->num_layers; l++)
        for (uint32_t p = 0; p < self->layers[l].num_parts; p++) {
            pst_group_usage usage;
            oracle_measure(&self->shapes[self->group_of[l][p]].group, NULL, PST_PAGE_BYTES_MIN,
                           &usage);
            all += usage.pages * self->num_micro_batches;
        }
    config->page_bytes = PST_PAGE_BYTES_MIN;
    config->num_pages = all;
    self->is_small = walk_below(self, 4) == 0;
    if (self->is_small)
        config->num_pages = 1 + oracle_random_below(&self->random, all / 2 + 1);
    if (config->num_host_pages)
        config->num_host_pages = self->is_small ? 1 + walk_below(self, (uint32_t)all) : all;
    config->max_tickets = 4096;
    config->scrub = walk_below(self, 3) == 0;
    config->fails_fast = false;
}

/* The same passes, whose slots are the least that are free. */
static void make_list(walk *self)
{
    static pst_pass passes[4 * WALK_PASSES];
    CHECK(self->schedule->num_passes <= 4 * WALK_PASSES);
    memcpy(passes, self->schedule->passes, self->schedule->num_passes * sizeof(*passes));
    self->drawn.kind = PST_SCHEDULE_LIST;
    self->drawn.passes = passes;
    self->drawn.num_passes = self->schedule->num_passes;
    self->drawn.num_chunks = self->drawn.num_micro_batches = self->drawn.group = 0;
    pst_schedule_destroy(self->schedule);
    self->schedule = NULL;
    CHECK_OK(pst_schedule_create(&self->drawn, &self->schedule));
}

static void use_vector(walk *self, const walk_vector *vector)
{
    self->drawn = vector->schedule;
    CHECK_OK(pst_schedule_create(&self->drawn, &self->schedule));
    if (vector->is_list)
        make_list(self);
    self->num_chunks = self->schedule->num_chunks;
    for (uint64_t i = 0; i < self->schedule->num_passes; i++)
        self->has_pairs |= self->schedule->passes[i].pairs;
    for (uint32_t c = 0; c < self->num_chunks; c++) {
        self->layers_of[c] = vector->num_layers;
        self->first_layer[c] = self->num_layers;
        self->num_layers += vector->num_layers;
        if (self->num_micro_batches < self->schedule->chunks[c].num_micro_batches)
            self->num_micro_batches = self->schedule->chunks[c].num_micro_batches;
        for (uint32_t l = 0; l < vector->num_layers; l++) {
            pst_layer *layer = &self->layers[self->first_layer[c] + l];
            *layer = (pst_layer){.chunk = c, .layer = l, .num_parts = 1};
            layer->parts = self->parts[self->first_layer[c] + l];
        }
    }
    self->config = (pst_scheduler_config)PST_SCHEDULER_CONFIG_INIT;
    self->config.num_sources = vector->num_sources;
    self->config.num_destinations = vector->num_destinations;
    self->config.rule = vector->rule;
    self->config.keeps_nothing = vector->keeps_nothing;
    self->config.num_streams = 1;
    self->config.capture = self->wish.layers ? PST_CAPTURE_LAYERS : PST_CAPTURE_ITERATION;
    self->own = self->wish.own;
    self->in_order = true;
    self->shapes[0] = vector->like;
    for (uint32_t g = 1; g < WALK_GROUPS; g++)
        self->shapes[g] = vector->like;
    self->num_inputs = 1;
    self->arena_bytes = vector->like.arena_bytes;
    self->pool_config.page_bytes = vector->page_bytes;
    self->pool_config.num_pages = vector->num_pages;
}

static void measure_records(walk *self)
{
    self->arena_bytes = (self->arena_bytes + 511) & ~(size_t)255;
    self->count_bytes = self->num_inputs * sizeof(int64_t);
    self->record_bytes = (1 + WALK_PLACES) * sizeof(uint64_t) + PST_MAX_PARTS * self->count_bytes;
}

void walk_draw(walk *self, pst_device *device, const walk_wish *wish)
{
    memset(self, 0, sizeof(*self));
    self->wish = *wish;
    self->device = device;
    self->random = oracle_random_seeded(wish->seed);
    self->pool_config = (pst_pool_config)PST_POOL_CONFIG_INIT;
    if (wish->vector) {
        use_vector(self, wish->vector);
        measure_records(self);
        return;
    }
    draw_schedule(self);
    if (psti_test_failed())
        return;
    draw_config(self);
    draw_groups(self);
    measure_records(self);
    self->pool_config.num_host_pages = walk_below(self, 3) == 0;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t l = 0; l < self->layers_of[c]; l++)
            draw_layer(self, c, l);
    draw_pool(self);
}

/* ---- other numbers of micro-batches ---- */

static bool use_number(walk *self, uint32_t num)
{
    pst_schedule_config config = self->drawn;
    pst_schedule *schedule = NULL;
    config.num_micro_batches = num;
    if (pst_schedule_create(&config, &schedule) != PST_OK)
        return false; /* not every number is a schedule of every kind */
    bool fits = true;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        fits &= schedule->chunks[c].num_micro_batches <= self->num_micro_batches &&
                schedule->chunks[c].num_slots <= self->schedule->chunks[c].num_slots;
    pst_schedule_destroy(fits ? self->schedule : schedule);
    if (fits)
        self->schedule = schedule;
    return fits;
}

bool walk_other_number(walk *self)
{
    if (self->drawn.kind == PST_SCHEDULE_LIST || self->is_recorded)
        return false;
    return use_number(self, 1 + walk_below(self, 2 * self->drawn.num_micro_batches));
}

void walk_own_number(walk *self)
{
    pst_schedule *schedule = NULL;
    if (self->schedule->config.num_micro_batches == self->drawn.num_micro_batches ||
        self->drawn.kind == PST_SCHEDULE_LIST)
        return;
    CHECK_OK(pst_schedule_create(&self->drawn, &schedule));
    pst_schedule_destroy(self->schedule);
    self->schedule = schedule;
}

/* ---- another list ---- */

static bool fits(const walk *self, const pst_schedule *schedule)
{
    bool all = schedule->num_chunks == self->num_chunks;
    for (uint32_t c = 0; all && c < self->num_chunks; c++)
        all = schedule->chunks[c].num_micro_batches <= self->num_micro_batches;
    return all;
}

/* What the scheduler cannot do with these layers and sets, and it stays as it was. */
static bool is_refused(pst_status status)
{
    if (status != PST_E_INVALID)
        psti_test_fail(__FILE__, __LINE__, "%s: %s", pst_status_name(status), pst_last_message());
    return false;
}

bool walk_other_list(walk *self)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    random_list list;
    for (uint32_t tries = 0; tries < 20; tries++) {
        uint64_t state = oracle_random_bits(&self->random);
        list = random_schedule(&state, false);
        config.kind = PST_SCHEDULE_LIST;
        config.passes = list.passes;
        config.num_passes = list.num;
        if (pst_schedule_create(&config, &schedule) != PST_OK)
            return false;
        if (fits(self, schedule))
            break;
        pst_schedule_destroy(schedule);
        schedule = NULL;
    }
    if (!schedule)
        return false;
    const pst_status status = pst_scheduler_set_schedule(self->scheduler, schedule);
    if (status != PST_OK) {
        pst_schedule_destroy(schedule);
        return is_refused(status);
    }
    pst_schedule_destroy(self->schedule);
    self->schedule = schedule;
    memcpy(self->list, list.passes, list.num * sizeof(*list.passes));
    self->drawn = config;
    self->drawn.passes = self->list;
    self->has_pairs = self->is_recorded = false;
    self->is_changed = true;
    return true;
}
