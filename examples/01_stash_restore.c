/* Stashes the live rows of two tensors, reuses the buffers for something else, and restores them.
 * Runs on a GPU where there is one, else on the host. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#define CAPACITY 4096 /* rows the static buffers are made for */
#define LIVE 1500     /* rows that the router filled this time */
#define HIDDEN 512    /* bf16 */

int main(int argc, char **argv)
{
    pst_device *device = NULL;
    pst_stream stream = NULL;
    CHECK(pst_device_open(argc > 1 ? argv[1] : "auto", 0, &device));
    CHECK(pst_stream_create(device, &stream));

    /* what the application has: buffers for the worst case, and a count on the device */
    void *activations = NULL;
    void *probabilities = NULL;
    void *counts = NULL;
    const int32_t live = LIVE;
    CHECK(pst_device_alloc(device, (size_t)CAPACITY * HIDDEN * 2, &activations));
    CHECK(pst_device_alloc(device, (size_t)CAPACITY * 4, &probabilities));
    CHECK(pst_device_alloc(device, 3 * sizeof(uint64_t), &counts));
    uint64_t *mismatches = (uint64_t *)counts + 1;
    CHECK(pst_device_fill(device, counts, 0, 3 * sizeof(uint64_t), stream));
    CHECK(pst_device_copy(device, counts, &live, sizeof(live), stream));

    /* how pagestash sees a layer of this form: bytes per row, and how rows are counted */
    const pst_row_space space = {.kind = PST_ROWS_PREFIX, .capacity = CAPACITY};
    const pst_tensor tensors[] = {{.row_bytes = HIDDEN * 2}, {.row_bytes = 4}};
    pst_group_config group_config = PST_GROUP_CONFIG_INIT;
    group_config.spaces = &space;
    group_config.num_spaces = 1;
    group_config.tensors = tensors;
    group_config.num_tensors = 2;
    pst_group *group = NULL;
    CHECK(pst_group_create(&group_config, &group));

    /* and where this layer's are */
    void *const bases[] = {activations, probabilities};
    const void *const row_counts[] = {counts};
    pst_buffers layer = PST_BUFFERS_INIT;
    layer.bases = bases;
    layer.counts = row_counts;

    pst_pool_config pool_config = PST_POOL_CONFIG_INIT;
    pool_config.num_pages = 16; /* of 256 KiB */
    pst_pool *pool = NULL;
    pst_ticket ticket;
    CHECK(pst_pool_create(device, &pool_config, &pool));
    CHECK(pst_ticket_create(pool, group, &ticket));

    /* forward: the layer fills its buffers, stash keeps the live rows, the buffers are free again */
    const pst_pattern pattern = {.seed = 1};
    CHECK(pst_group_fill(device, group, &layer, &pattern, stream));
    CHECK(pst_ticket_stash(ticket, group, &layer, NULL, stream));
    CHECK(pst_device_fill(device, activations, 0xee, (size_t)CAPACITY * HIDDEN * 2, stream));
    CHECK(pst_device_fill(device, probabilities, 0xee, (size_t)CAPACITY * 4, stream));

    /* backward: exactly the live rows come back */
    CHECK(pst_ticket_restore(ticket, group, &layer, NULL, stream));
    CHECK(pst_group_verify(device, group, &layer, &pattern, 0xee, mismatches, stream));
    CHECK(pst_pool_step(pool, stream));

    uint64_t wrong = 0;
    CHECK(pst_device_copy(device, &wrong, mismatches, sizeof(wrong), stream));
    CHECK(pst_stream_synchronize(device, stream));
    pst_pool_status status;
    CHECK(pst_pool_poll(pool, &status));
    pst_device_info info;
    CHECK(pst_device_get_info(device, &info));
    printf("%s: %d of %d rows took %llu pages; faults: %u, differing bytes: %llu\n", info.name,
           LIVE, CAPACITY, (unsigned long long)status.high_water[0], status.num_faults,
           (unsigned long long)wrong);

    CHECK(pst_ticket_destroy(ticket));
    CHECK(pst_group_destroy(group));
    CHECK(pst_pool_destroy(pool));
    CHECK(pst_device_free(device, counts));
    CHECK(pst_device_free(device, probabilities));
    CHECK(pst_device_free(device, activations));
    CHECK(pst_stream_destroy(device, stream));
    CHECK(pst_device_close(device));
    return wrong == 0 && status.num_faults == 0 ? 0 : 1;
}
