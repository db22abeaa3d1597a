/* Around the block of docs/fused.md: a layer of 40 live rows of 64, on the host device. */
#include <pagestash/pagestash.h>

#include <stdint.h>

#include "check.h"

enum { ROWS = 64, F = 8 };

static void run(pst_device *device, pst_ticket ticket, pst_group *group,
                uint16_t input[ROWS][2 * F], uint16_t input_gradient[ROWS][2 * F])
{
    static uint16_t hidden[ROWS][F], hidden_gradient[ROWS][F];
    static float weights[ROWS], weights_gradient[ROWS];
    const int32_t count = 40;
    const void *const counts[] = {&count};
    void *const bases[] = {input}, *const none[] = {NULL};
    const pst_stream stream = NULL;
    for (int row = 0; row < ROWS; row++) {
        weights[row] = 1;
        for (int f = 0; f < F; f++)
            hidden_gradient[row][f] = 0x3f80; /* 1 in bf16 */
    }
    pst_buffers layer = PST_BUFFERS_INIT;
    layer.bases = bases;
    layer.counts = counts;
    pst_buffers destination = layer;
    destination.bases = none;
#include "block.inc"
}

int main(void)
{
    static uint16_t input[ROWS][2 * F], input_gradient[ROWS][2 * F];
    pst_device *device = NULL;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket ticket;
    const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = ROWS};
    const pst_tensor tensor = {.row_bytes = sizeof(input[0]), .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    pst_pool_config pages = PST_POOL_CONFIG_INIT;
    pages.num_pages = 1;
    CHECK(pst_device_open("host", 0, &device));
    CHECK(pst_pool_create(device, &pages, &pool));
    CHECK(pst_group_create(&config, &group));
    CHECK(pst_ticket_create(pool, group, &ticket));
    for (int row = 0; row < ROWS; row++)
        for (int f = 0; f < 2 * F; f++)
            input[row][f] = 0x3f80;

    run(device, ticket, group, input, input_gradient);

    pst_pool_status status;
    CHECK(pst_pool_step(pool, NULL));
    CHECK(pst_device_synchronize(device));
    CHECK(pst_pool_poll(pool, &status));
    /* one page was taken and is free again; gradients of live rows, and of no others */
    return !(status.step_valid && status.high_water[0] == 1 && status.in_use[0] == 0 &&
             input_gradient[39][0] != 0 && input_gradient[40][0] == 0);
}
