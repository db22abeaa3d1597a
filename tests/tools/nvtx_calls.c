/* The calls whose ranges tell a ticket, an operation and bytes, on the host device; polled with pages in use. */
#include <pagestash/pagestash.h>

#include "../../examples/check.h"

enum { ROWS = 64, F = 512 }; /* 64 rows of 2 F floats: 256 KiB, 16 pages */

static float input[ROWS][2 * F], output[ROWS][F], gradient[ROWS][F], input_gradient[ROWS][2 * F];

static void poll(pst_pool *pool)
{
    pst_pool_status status;
    CHECK(pst_pool_step(pool, NULL));
    CHECK(pst_pool_poll(pool, &status));
}

static void call_all(pst_device *device, pst_pool *pool, pst_ticket ticket, const pst_group *group)
{
    const int32_t count = ROWS;
    void *const bases[] = {input}, *const none[] = {NULL};
    const void *const counts[] = {&count};
    pst_buffers layer = PST_BUFFERS_INIT;
    layer.bases = bases;
    layer.counts = counts;
    CHECK(pst_ticket_stash(ticket, group, &layer, NULL, NULL));
    poll(pool);
    CHECK(pst_ticket_demote(ticket, NULL, NULL));
    poll(pool);
    CHECK(pst_ticket_promote(ticket, NULL, NULL));
    CHECK(pst_ticket_restore(ticket, group, &layer, NULL, NULL));
    CHECK(pst_ticket_stash(ticket, group, &layer, NULL, NULL));
    CHECK(pst_ticket_release(ticket, NULL));

    const pst_glu glu = {.struct_size = sizeof(glu), .dtype = PST_GLU_FP32};
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = output;
    CHECK(pst_glu_forward(device, &glu, ticket, group, &layer, &operands, NULL, NULL));
    operands.gradient.base = gradient;
    operands.input_gradient.base = input_gradient;
    layer.bases = none;
    CHECK(pst_glu_backward(device, &glu, ticket, group, &layer, &operands, NULL, NULL));
    poll(pool);
}

int main(void)
{
    pst_device *device = NULL;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket first, ticket;
    const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = ROWS};
    const pst_tensor tensor = {.row_bytes = sizeof(input[0]), .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config form = PST_GROUP_CONFIG_INIT;
    form.spaces = &space;
    form.tensors = &tensor;
    form.num_spaces = form.num_tensors = 1;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = config.num_host_pages = 16;
    CHECK(pst_device_open("host", 0, &device));
    CHECK(pst_group_create(&form, &group));
    CHECK(pst_pool_create(device, &config, &pool));
    CHECK(pst_ticket_create(pool, group, &first));
    CHECK(pst_ticket_create(pool, group, &ticket)); /* the second of the pool */
    call_all(device, pool, ticket, group);
    CHECK(pst_ticket_destroy(ticket));
    CHECK(pst_ticket_destroy(first));
    CHECK(pst_pool_destroy(pool));
    CHECK(pst_group_destroy(group));
    CHECK(pst_device_close(device));
    return 0;
}
