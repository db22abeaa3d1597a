/* Captures stash and restore of three layers once and replays the graph with other row counts: the
 * kernels read the counts, so nothing is captured again. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#define LAYERS 3
#define CAPACITY 2048
#define ROW_BYTES 1024
#define STEPS 4

int main(int argc, char **argv)
{
    pst_device *device = NULL;
    pst_stream stream = NULL;
    CHECK(pst_device_open(argc > 1 ? argv[1] : "auto", 0, &device));
    CHECK(pst_stream_create(device, &stream));

    /* one static buffer serves all layers, as in a captured model; one count for each layer */
    void *buffer = NULL;
    void *memory = NULL;
    CHECK(pst_device_alloc(device, (size_t)CAPACITY * ROW_BYTES, &buffer));
    CHECK(pst_device_alloc(device, (LAYERS + 2) * sizeof(int64_t), &memory));
    CHECK(pst_device_fill(device, memory, 0, (LAYERS + 2) * sizeof(int64_t), stream));
    int64_t *counts = memory;
    uint64_t *step_word = (uint64_t *)memory + LAYERS;
    uint64_t *mismatches = step_word + 1;

    pst_pool_config pool_config = PST_POOL_CONFIG_INIT;
    pool_config.page_bytes = 64 * 1024;
    pool_config.num_pages = 64; /* a worst-case pool would need 96 */
    pst_pool *pool = NULL;
    CHECK(pst_pool_create(device, &pool_config, &pool));

    /* all layers are of one form */
    const pst_row_space space = {
        .kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_INT64, .capacity = CAPACITY};
    const pst_tensor tensor = {.row_bytes = ROW_BYTES};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    pst_group *group = NULL;
    CHECK(pst_group_create(&config, &group));

    pst_ticket tickets[LAYERS];
    const void *count_of[LAYERS];
    pst_buffers layers[LAYERS];
    for (int layer = 0; layer < LAYERS; layer++) {
        CHECK(pst_ticket_create(pool, group, &tickets[layer]));
        count_of[layer] = counts + layer;
        layers[layer] = (pst_buffers)PST_BUFFERS_INIT;
        layers[layer].bases = &buffer;
        layers[layer].counts = &count_of[layer];
    }

    pst_graph *graph = NULL;
    CHECK(pst_graph_begin(device, stream));
    for (int layer = 0; layer < LAYERS; layer++) {
        const pst_pattern pattern = {.seed = 7, .key = (uint64_t)layer, .step = step_word};
        CHECK(pst_group_fill(device, group, &layers[layer], &pattern, stream));
        CHECK(pst_ticket_stash(tickets[layer], group, &layers[layer], NULL, stream));
    }
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        const pst_pattern pattern = {.seed = 7, .key = (uint64_t)layer, .step = step_word};
        CHECK(pst_device_fill(device, buffer, 0xee, (size_t)CAPACITY * ROW_BYTES, stream));
        CHECK(pst_ticket_restore(tickets[layer], group, &layers[layer], NULL, stream));
        CHECK(pst_group_verify(device, group, &layers[layer], &pattern, 0xee, mismatches, stream));
    }
    CHECK(pst_pool_step(pool, stream));
    CHECK(pst_graph_end(device, stream, &graph));

    int failed = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        int64_t rows[LAYERS];
        for (int layer = 0; layer < LAYERS; layer++)
            rows[layer] = (int64_t)(step * 397 + (uint64_t)layer * 701) % CAPACITY;
        CHECK(pst_device_copy(device, counts, rows, sizeof(rows), stream));
        CHECK(pst_device_copy(device, step_word, &step, sizeof(step), stream));
        CHECK(pst_graph_launch(graph, stream));
        uint64_t wrong = 0;
        CHECK(pst_device_copy(device, &wrong, mismatches, sizeof(wrong), stream));
        CHECK(pst_stream_synchronize(device, stream));
        pst_pool_status status;
        CHECK(pst_pool_poll(pool, &status));
        printf("step %llu: rows %lld %lld %lld, most pages in use %llu of 64, step_valid %d, "
               "differing bytes: %llu\n",
               (unsigned long long)step, (long long)rows[0], (long long)rows[1], (long long)rows[2],
               (unsigned long long)status.step_demand, status.step_valid,
               (unsigned long long)wrong);
        failed |= wrong != 0 || !status.step_valid;
    }

    CHECK(pst_graph_destroy(graph));
    for (int layer = 0; layer < LAYERS; layer++)
        CHECK(pst_ticket_destroy(tickets[layer]));
    CHECK(pst_group_destroy(group));
    CHECK(pst_pool_destroy(pool));
    CHECK(pst_device_free(device, memory));
    CHECK(pst_device_free(device, buffer));
    CHECK(pst_stream_destroy(device, stream));
    CHECK(pst_device_close(device));
    return failed;
}
