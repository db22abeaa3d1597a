/* What a GLU with pages reads and writes, beside one in memory with a stash and a restore of its input: in
 * units of live rows times features, counted where the kernels move 16 bytes. */
#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include <stdlib.h>

#include "tests/simt/simt_device.h"

enum { FEATURES = 256, ROWS = 48, CAPACITY = 64, UNIT = ROWS * FEATURES * 2 };
enum { INPUT = CAPACITY * FEATURES * 4, OUTPUT = INPUT / 2 };

typedef struct scene {
    pst_device *device;
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    void *input, *output, *gradient, *input_gradient;
    int64_t count;
    pst_glu glu;
} scene;

static void open_scene(scene *self)
{
    const pst_row_space space = {.count_type = PST_COUNT_HOST, .capacity = CAPACITY};
    const pst_tensor tensor = {.row_bytes = FEATURES * 4, .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_pool_config pages = PST_POOL_CONFIG_INIT;
    *self = (scene){.count = ROWS, .glu = PST_GLU_INIT};
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    pages.page_bytes = PST_PAGE_BYTES_MIN;
    pages.num_pages = 8;
    CHECK_OK(psti_simt_device_open(NULL, &self->device));
    CHECK_OK(pst_pool_create(self->device, &pages, &self->pool));
    CHECK_OK(pst_group_create(&config, &self->group));
    CHECK_OK(pst_ticket_create(self->pool, self->group, &self->ticket));
    CHECK_OK(pst_device_alloc(self->device, INPUT, &self->input));
    CHECK_OK(pst_device_alloc(self->device, INPUT, &self->input_gradient));
    CHECK_OK(pst_device_alloc(self->device, OUTPUT, &self->output));
    CHECK_OK(pst_device_alloc(self->device, OUTPUT, &self->gradient));
    CHECK_OK(pst_device_fill(self->device, self->input, 0x3f, INPUT, NULL));
    CHECK_OK(pst_device_fill(self->device, self->gradient, 0x3e, OUTPUT, NULL));
    CHECK_OK(pst_device_synchronize(self->device));
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_device_free(self->device, self->input));
    CHECK_OK(pst_device_free(self->device, self->input_gradient));
    CHECK_OK(pst_device_free(self->device, self->output));
    CHECK_OK(pst_device_free(self->device, self->gradient));
    CHECK_OK(pst_ticket_destroy(self->ticket));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_device_close(self->device));
}

static void forward(const scene *self, pst_ticket ticket)
{
    const void *count = &self->count;
    pst_buffers source = PST_BUFFERS_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    source.bases = &self->input;
    source.counts = &count;
    operands.output.base = self->output;
    CHECK_OK(pst_glu_forward(self->device, &self->glu, ticket, self->group, &source, &operands,
                             NULL, NULL));
}

static void backward(const scene *self, pst_ticket ticket, bool with_output)
{
    const void *count = &self->count;
    void *const input = ticket.id ? NULL : self->input;
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    buffers.bases = &input;
    buffers.counts = &count;
    operands.gradient.base = self->gradient;
    operands.input_gradient.base = self->input_gradient;
    operands.output.base = with_output ? self->output : NULL;
    CHECK_OK(pst_glu_backward(self->device, &self->glu, ticket, self->group, &buffers, &operands,
                              NULL, NULL));
}

static void move(const scene *self, bool back)
{
    const void *count = &self->count;
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = &self->input;
    buffers.counts = &count;
    if (back)
        CHECK_OK(pst_ticket_restore(self->ticket, self->group, &buffers, NULL, NULL));
    else
        CHECK_OK(pst_ticket_stash(self->ticket, self->group, &buffers, NULL, NULL));
}

/* Since the last call. */
static void check_units(const scene *self, uint64_t loaded, uint64_t stored)
{
    CHECK_OK(pst_device_synchronize(self->device));
    const simt_traffic traffic = psti_simt_traffic();
    CHECK_EQ(traffic.loaded, loaded * UNIT);
    CHECK_EQ(traffic.stored, stored * UNIT);
    psti_simt_count_traffic(true);
}

PST_TEST(GluTraffic, PagesCostForwardTwoUnitsAndBackwardNone)
{
    const pst_ticket none = {0};
    scene self;
    open_scene(&self);
    psti_simt_count_traffic(true);
    forward(&self, none); /* 7 apart */
    move(&self, false);
    check_units(&self, 2 + 2, 1 + 2);
    move(&self, true); /* 9, with the output 10 */
    backward(&self, none, false);
    check_units(&self, 2 + 3, 2 + 2);
    forward(&self, self.ticket); /* 5 */
    check_units(&self, 2, 1 + 2);
    backward(&self, self.ticket, false); /* 5 */
    check_units(&self, 3, 2);
    forward(&self, self.ticket);
    check_units(&self, 2, 1 + 2);
    backward(&self, self.ticket, true); /* 6 */
    check_units(&self, 3, 3);
    psti_simt_count_traffic(false);
    close_scene(&self);
}
