/* Around the block of docs/scheduler.md: 4 paged layers of the first stage, on the host device. */
#include <pagestash/pagestash.h>

#include <stdint.h>

#include "check.h"

enum { ROWS = 64, ROW_BYTES = 1024, SETS = 2 };

static int num_forwards, num_backwards;

static void my_forward(uint32_t layer, uint8_t *rows)
{
    rows[0] = (uint8_t)(layer + 1);
    num_forwards++;
}

static void my_backward(uint32_t layer, const uint8_t *rows)
{
    num_backwards += rows[0] == layer + 1;
}

int main(void)
{
    static uint8_t sources[SETS][ROWS * ROW_BYTES], destinations[SETS][ROWS * ROW_BYTES];
    const int32_t count = 40;
    const void *const counts[] = {&count};
    void *const bases[] = {sources[0], sources[1], destinations[0], destinations[1]};
    pst_buffers at[2 * SETS];
    for (int i = 0; i < 2 * SETS; i++) {
        at[i] = (pst_buffers)PST_BUFFERS_INIT;
        at[i].bases = &bases[i];
        at[i].counts = counts;
    }
    const pst_buffers *const froms[] = {&at[0], &at[1]}, *const tos[] = {&at[2], &at[3]};

    const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = ROWS};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    pst_group_config form = PST_GROUP_CONFIG_INIT;
    form.spaces = &space;
    form.tensors = &tensor;
    form.num_spaces = form.num_tensors = 1;
    pst_group *group = NULL;
    CHECK(pst_group_create(&form, &group));
    const pst_part part = {.group = group, .sources = froms, .destinations = tos};
    pst_layer layers[4] = {{0}};
    for (uint32_t i = 0; i < 4; i++) {
        layers[i].layer = i;
        layers[i].parts = &part;
        layers[i].num_parts = 1;
    }

    pst_device *device = NULL;
    pst_pool *pool = NULL;
    pst_schedule *schedule = NULL;
    pst_scheduler *scheduler = NULL;
    pst_schedule_info info;
    pst_pass pass;
    pst_visit visit;
    const uint32_t rank = 0;
    pst_stream stream = NULL;
    pst_pool_config pages = PST_POOL_CONFIG_INIT;
    pages.num_pages = 64;
    CHECK(pst_device_open("host", 0, &device));
    CHECK(pst_stream_create(device, &stream));
    CHECK(pst_pool_create(device, &pages, &pool));

#include "block.inc"

    pst_pool_status status;
    CHECK(pst_stream_synchronize(device, stream));
    CHECK(pst_pool_poll(pool, &status));
    printf("%d forwards, %d backwards that read what their forward wrote\n", num_forwards,
           num_backwards);
    return !(num_forwards == 32 && num_backwards == 32 && status.step_valid &&
             status.high_water[0] > 0 && status.in_use[0] == 0);
}
