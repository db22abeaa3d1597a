/* What scheduler_glu.h says. */
#include "tests/host/scheduler/scheduler_glu.h"

#include <pagestash/glu.h>
#include <stdlib.h>
#include <string.h>

#include "host/stash/stash.h"
#include "kernels/core/mix.h"
#include "tests/harness.h"
#include "tests/host/scheduler/rig.h"

enum { BLOCK_BYTES = 16 << 20, BESIDE = 0, INPUT = 1, PLAIN = 2 };

static const pst_glu glu = PST_INIT(pst_glu);

/* ---- open and close ---- */

static void *take(glu_step *self, uint64_t bytes)
{
    void *taken = self->block + self->used_bytes;
    self->used_bytes += (bytes + 255) & ~UINT64_C(255);
    if (self->used_bytes > BLOCK_BYTES) {
        psti_test_fail(__FILE__, __LINE__, "the step has too little memory");
        abort();
    }
    return taken;
}

static void take_visit(glu_step *self, glu_step_visit *visit)
{
    visit->input = take(self, GLU_STEP_ROWS * GLU_STEP_INPUT);
    visit->beside = take(self, GLU_STEP_ROWS * GLU_STEP_BESIDE);
    visit->plain = take(self, GLU_STEP_ROWS * GLU_STEP_PLAIN);
    visit->output = take(self, GLU_STEP_ROWS * GLU_STEP_OUTPUT);
    visit->input_gradient = take(self, GLU_STEP_ROWS * GLU_STEP_INPUT);
}

static void take_set(glu_step *self, uint32_t set)
{
    void **bases = self->bases[set];
    bases[BESIDE] = take(self, GLU_STEP_ROWS * GLU_STEP_BESIDE);
    bases[INPUT] = take(self, GLU_STEP_ROWS * GLU_STEP_INPUT);
    bases[PLAIN] = take(self, GLU_STEP_ROWS * GLU_STEP_PLAIN);
    self->set_counts[set] = take(self, sizeof(int32_t));
    for (uint32_t part = 0; part < 2; part++) {
        pst_buffers *buffers = &self->buffers[set][part];
        *buffers = (pst_buffers)PST_BUFFERS_INIT;
        buffers->bases = bases + (part ? PLAIN : BESIDE);
        buffers->counts = &self->set_counts[set];
        self->lists[set / GLU_STEP_SETS * 2 + part][set % GLU_STEP_SETS] = buffers;
    }
}

static void open_groups(glu_step *self)
{
    const pst_row_space space = {.capacity = GLU_STEP_ROWS};
    const pst_tensor tensors[] = {{.row_bytes = GLU_STEP_BESIDE},
                                  {.row_bytes = GLU_STEP_INPUT, .written_by = PST_WRITTEN_BY_GLU},
                                  {.row_bytes = GLU_STEP_PLAIN}};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = 2;
    CHECK_OK(pst_group_create(&config, &self->groups[0]));
    config.tensors = tensors + 2;
    config.num_tensors = 1;
    CHECK_OK(pst_group_create(&config, &self->groups[1]));
}

static void open_scheduler(glu_step *self)
{
    pst_schedule_config order = PST_SCHEDULE_CONFIG_INIT;
    pst_scheduler_config config = PST_SCHEDULER_CONFIG_INIT;
    order.num_stages = 3;
    order.num_micro_batches = GLU_STEP_MICRO_BATCHES;
    CHECK_OK(pst_schedule_create(&order, &self->schedule));
    for (uint32_t part = 0; part < 2; part++) {
        self->parts[part].group = self->groups[part];
        self->parts[part].sources = self->lists[part];
        self->parts[part].destinations = part ? self->lists[2 + part] : NULL;
    }
    for (uint32_t l = 0; l < GLU_STEP_LAYERS; l++) {
        self->layers[l].layer = l;
        self->layers[l].num_parts = self->config.has_plain ? 2 : 1;
        self->layers[l].parts = self->parts;
        self->layers[l].policy = self->config.policy;
    }
    config.pool = self->pool;
    config.schedule = self->schedule;
    config.layers = self->layers;
    config.num_layers = GLU_STEP_LAYERS;
    config.num_streams = self->config.num_streams;
    CHECK_OK(pst_scheduler_create(&config, &self->scheduler));
}

void glu_step_open(glu_step *self, const glu_step_config *config)
{
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    void *block = NULL;
    memset(self, 0, sizeof(*self));
    self->config = *config;
    self->device = config->device;
    if (!self->device)
        CHECK_OK(pst_device_open("host", 0, &self->device));
    CHECK_OK(pst_stream_create(self->device, &self->stream));
    CHECK_OK(pst_device_alloc(self->device, BLOCK_BYTES, &block));
    self->block = block;
    self->gradient = take(self, GLU_STEP_ROWS * GLU_STEP_OUTPUT);
    self->counts = take(self, GLU_STEP_VISITS * sizeof(int32_t));
    for (uint32_t v = 0; v < GLU_STEP_VISITS; v++) {
        take_visit(self, &self->truth[v]);
        take_visit(self, &self->made[v]);
    }
    for (uint32_t set = 0; set < 2 * GLU_STEP_SETS; set++)
        take_set(self, set);
    open_groups(self);
    pool.page_bytes = PST_PAGE_BYTES_MIN;
    pool.num_pages = 256;
    pool.num_host_pages = 256;
    pool.mode = PST_POOL_CONCURRENT;
    CHECK_OK(pst_pool_create(self->device, &pool, &self->pool));
    open_scheduler(self);
    glu_step_draw(self, 0);
}

void glu_step_close(glu_step *self)
{
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_scheduler_destroy(self->scheduler));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_group_destroy(self->groups[0]));
    CHECK_OK(pst_group_destroy(self->groups[1]));
    pst_schedule_destroy(self->schedule);
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
    CHECK_OK(pst_device_free(self->device, self->block));
    CHECK_OK(pst_device_close(self->device));
}

/* ---- without pages ---- */

static pst_glu_operands forward_operands(const glu_step_visit *visit)
{
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = visit->output;
    return operands;
}

static pst_glu_operands backward_operands(const glu_step *self, const glu_step_visit *visit)
{
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.gradient.base = self->gradient;
    operands.input_gradient.base = visit->input_gradient;
    return operands;
}

static void draw_bytes(unsigned char *to, uint64_t bytes, uint64_t *state)
{
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)psti_mix_next(state);
}

/* bf16 between 1/8 and 8, of either sign. */
static void draw_numbers(unsigned char *to, uint64_t bytes, uint64_t *state)
{
    for (uint64_t i = 0; i < bytes / 2; i++) {
        const uint64_t drawn = psti_mix_next(state);
        const uint16_t number =
            (uint16_t)((124 + drawn % 6) << 7 | (drawn >> 8 & 127) | (drawn >> 16 & 1) << 15);
        memcpy(to + 2 * i, &number, sizeof(number));
    }
}

void glu_step_draw(glu_step *self, uint64_t seed)
{
    uint64_t state = seed;
    CHECK_OK(pst_device_synchronize(self->device));
    draw_numbers(self->gradient, GLU_STEP_ROWS * GLU_STEP_OUTPUT, &state);
    for (uint32_t v = 0; v < GLU_STEP_VISITS; v++) {
        const glu_step_visit *visit = &self->truth[v];
        void *bases[] = {visit->beside, visit->input};
        const void *count = &self->counts[v];
        pst_buffers buffers = PST_BUFFERS_INIT;
        buffers.bases = bases;
        buffers.counts = &count;
        self->counts[v] = (int32_t)(psti_mix_next(&state) % (GLU_STEP_ROWS + 1));
        draw_numbers(visit->input, GLU_STEP_ROWS * GLU_STEP_INPUT, &state);
        draw_bytes(visit->beside, GLU_STEP_ROWS * GLU_STEP_BESIDE, &state);
        draw_bytes(visit->plain, GLU_STEP_ROWS * GLU_STEP_PLAIN, &state);
        const pst_glu_operands forward = forward_operands(visit);
        const pst_glu_operands backward = backward_operands(self, visit);
        CHECK_OK(pst_glu_forward(self->device, &glu, (pst_ticket){0}, self->groups[0], &buffers,
                                 &forward, NULL, self->stream));
        CHECK_OK(pst_glu_backward(self->device, &glu, (pst_ticket){0}, self->groups[0], &buffers,
                                  &backward, NULL, self->stream));
    }
    CHECK_OK(pst_device_synchronize(self->device));
}

/* ---- layers ---- */

static pst_status copy(glu_step *self, void *to, const void *from, uint64_t row_bytes)
{
    return pst_device_copy(self->device, to, from, GLU_STEP_ROWS * row_bytes, self->stream);
}

static pst_status forward(glu_step *self, uint32_t layer, uint32_t micro_batch)
{
    const uint32_t v = layer * GLU_STEP_MICRO_BATCHES + micro_batch;
    const pst_glu_operands operands = forward_operands(&self->made[v]);
    pst_visit visit;
    pst_ticket ticket;
    RIG_TRY(
        pst_scheduler_forward_begin(self->scheduler, 0, layer, micro_batch, self->stream, &visit));
    void **set = self->bases[visit.set];
    void *count = (void *)(uintptr_t)self->set_counts[visit.set];
    RIG_TRY(pst_device_copy(self->device, count, &self->counts[v], sizeof(int32_t), self->stream));
    RIG_TRY(copy(self, set[BESIDE], self->truth[v].beside, GLU_STEP_BESIDE));
    RIG_TRY(copy(self, set[INPUT], self->truth[v].input, GLU_STEP_INPUT));
    RIG_TRY(copy(self, set[PLAIN], self->truth[v].plain, GLU_STEP_PLAIN));
    RIG_TRY(pst_scheduler_get_ticket(self->scheduler, PST_PASS_FORWARD, 0, layer, visit.slot, 0,
                                     &ticket, NULL));
    RIG_TRY(pst_glu_forward(self->device, &glu, ticket, self->groups[0],
                            &self->buffers[visit.set][0], &operands, NULL, self->stream));
    if (ticket.id) /* nobody reads it there any more */
        RIG_TRY(pst_device_fill(self->device, set[INPUT], 0xdd, GLU_STEP_ROWS * GLU_STEP_INPUT,
                                self->stream));
    return pst_scheduler_forward_end(self->scheduler, 0, layer, micro_batch, NULL, self->stream);
}

/* Where the pages are that are read now: the device works at once. */
static void watch(glu_step *self, pst_ticket handle)
{
    const psti_ticket *ticket = psti_ticket_find(handle);
    self->num_read++;
    self->num_read_on_host += ticket->record->num_host > 0;
}

static pst_status backward(glu_step *self, uint32_t layer, uint32_t micro_batch)
{
    const uint32_t v = layer * GLU_STEP_MICRO_BATCHES + micro_batch;
    const pst_glu_operands operands = backward_operands(self, &self->made[v]);
    pst_visit visit;
    pst_ticket ticket;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    void *beside[] = {self->made[v].beside, NULL};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = beside;
    RIG_TRY(pst_scheduler_backward_begin(self->scheduler, PST_PASS_BACKWARD, 0, layer, micro_batch,
                                         self->stream, &visit));
    RIG_TRY(pst_scheduler_get_ticket(self->scheduler, PST_PASS_BACKWARD, 0, layer, visit.slot, 0,
                                     &ticket, &options.pages));
    const uint32_t at = visit.in_place ? visit.set : GLU_STEP_SETS + visit.set;
    if (self->config.watches_host && ticket.id)
        watch(self, ticket);
    if (self->config.forgets)
        options.pages = PST_RESTORE_KEEP;
    RIG_TRY(pst_glu_backward(self->device, &glu, ticket, self->groups[0],
                             ticket.id ? &buffers : &self->buffers[at][0], &operands, &options,
                             self->stream));
    if (visit.in_place)
        RIG_TRY(copy(self, self->made[v].beside, self->bases[at][BESIDE], GLU_STEP_BESIDE));
    if (self->config.has_plain)
        RIG_TRY(copy(self, self->made[v].plain, self->bases[at][PLAIN], GLU_STEP_PLAIN));
    return pst_scheduler_backward_end(self->scheduler, PST_PASS_BACKWARD, 0, layer, micro_batch,
                                      self->stream);
}

pst_status glu_step_run(glu_step *self)
{
    RIG_TRY(pst_scheduler_step_begin(self->scheduler, NULL, self->stream));
    for (uint64_t i = 0; i < self->schedule->num_passes; i++) {
        const pst_pass *pass = &self->schedule->passes[i];
        for (uint32_t l = 0; l < GLU_STEP_LAYERS; l++)
            RIG_TRY(pass->kind == PST_PASS_FORWARD
                        ? forward(self, l, pass->micro_batch)
                        : backward(self, GLU_STEP_LAYERS - 1 - l, pass->micro_batch));
    }
    return pst_scheduler_step_end(self->scheduler, self->stream);
}

/* ---- what came of it ---- */

static void check_rows(const unsigned char *made, const unsigned char *truth, uint64_t row_bytes,
                       const glu_step *self, uint32_t v)
{
    CHECK_MSG(memcmp(made, truth, row_bytes * (uint64_t)self->counts[v]) == 0,
              "visit %u, rows of %llu bytes differ", v, (unsigned long long)row_bytes);
}

void glu_step_check(glu_step *self)
{
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_pool_poll(self->pool, &self->status));
    CHECK_MSG(self->status.step_valid == 1 && self->status.num_faults == 0, "the first fault: %s",
              pst_fault_text((pst_fault)self->status.fault));
    CHECK_EQ(self->status.in_use[0] + self->status.in_use[1], 0);
    for (uint32_t v = 0; v < GLU_STEP_VISITS; v++) {
        const glu_step_visit *made = &self->made[v], *truth = &self->truth[v];
        check_rows(made->output, truth->output, GLU_STEP_OUTPUT, self, v);
        check_rows(made->input_gradient, truth->input_gradient, GLU_STEP_INPUT, self, v);
        check_rows(made->beside, truth->beside, GLU_STEP_BESIDE, self, v);
        if (self->config.has_plain)
            check_rows(made->plain, truth->plain, GLU_STEP_PLAIN, self, v);
        /* what is not written again must not pass for it */
        memset(made->output, 0x77, GLU_STEP_ROWS * GLU_STEP_OUTPUT);
        memset(made->input_gradient, 0x77, GLU_STEP_ROWS * GLU_STEP_INPUT);
        memset(made->beside, 0x77, GLU_STEP_ROWS * GLU_STEP_BESIDE);
        memset(made->plain, 0x77, GLU_STEP_ROWS * GLU_STEP_PLAIN);
    }
}
