/* Stashes layers whose buffers are allocated anew each step, inside captured graphs. One description
 * serves all layers, each launch names its addresses, and tickets come from the pool's slab during
 * capture, so that there are as many as are live at once, not one for each stash. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#define LAYERS 4
#define MICRO_BATCHES 3
#define PASSES (LAYERS * MICRO_BATCHES) /* of a layer and a micro-batch, in a graph */
#define STEPS 3                         /* each captured anew */
#define REPLAYS 3                       /* of each captured graph */
#define CAPACITY 512
#define MOST_ROWS (CAPACITY * 3 / 4) /* in these steps */
#define TENSORS 2
#define PAGE_BYTES (64 * 1024)

static const uint64_t row_bytes[TENSORS] = {512, 4}; /* activations, routing probabilities */

/* What a step has allocated: forward's activations, and where backward wants them. */
typedef struct memory {
    void *kept[PASSES][TENSORS];
    void *restored[PASSES][TENSORS];
} memory;

typedef struct scene {
    pst_device *device;
    bool is_host;
    pst_stream stream;
    pst_group *group;
    pst_pool *pool;
    int64_t *counts; /* [PASSES], on the device as all below */
    uint64_t *step_word, *mismatches;
} scene;

/* As a framework's allocator would; on host plain malloc. */
static void *allocate(const scene *self, size_t bytes)
{
    void *address = NULL;
    if (!self->is_host)
        CHECK(pst_device_alloc(self->device, bytes, &address));
    else if ((address = malloc(bytes)) == NULL)
        exit(1);
    return address;
}

static void let_go(const scene *self, void *address)
{
    if (!self->is_host)
        CHECK(pst_device_free(self->device, address));
    else
        free(address);
}

static void allocate_step(const scene *self, memory *step)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int t = 0; t < TENSORS; t++) {
            step->kept[pass][t] = allocate(self, CAPACITY * row_bytes[t]);
            step->restored[pass][t] = allocate(self, CAPACITY * row_bytes[t]);
        }
}

static void free_step(const scene *self, const memory *step)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int t = 0; t < TENSORS; t++) {
            let_go(self, step->kept[pass][t]);
            let_go(self, step->restored[pass][t]);
        }
}

static void forward(const scene *self, memory *step, int pass, pst_ticket *ticket)
{
    const pst_pattern pattern = {.seed = 5, .key = (uint64_t)pass, .step = self->step_word};
    const void *const counts[] = {self->counts + pass};
    pst_buffers buffers = PST_BUFFERS_INIT; /* gone when this function returns */
    buffers.bases = step->kept[pass];
    buffers.counts = counts;
    CHECK(pst_group_fill(self->device, self->group, &buffers, &pattern, self->stream));
    CHECK(pst_ticket_take(self->pool, self->stream, ticket));
    CHECK(pst_ticket_stash(*ticket, self->group, &buffers, NULL, self->stream));
    for (int t = 0; t < TENSORS; t++) /* the memory is somebody else's from here on */
        CHECK(pst_device_fill(self->device, step->kept[pass][t], 0xee, CAPACITY * row_bytes[t],
                              self->stream));
}

static void backward(const scene *self, memory *step, int pass, pst_ticket ticket)
{
    const pst_pattern pattern = {.seed = 5, .key = (uint64_t)pass, .step = self->step_word};
    const void *const counts[] = {self->counts + pass};
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = step->restored[pass];
    buffers.counts = counts;
    for (int t = 0; t < TENSORS; t++)
        CHECK(pst_device_fill(self->device, step->restored[pass][t], 0xdd, CAPACITY * row_bytes[t],
                              self->stream));
    CHECK(pst_ticket_restore(ticket, self->group, &buffers, NULL, self->stream));
    CHECK(pst_ticket_give(ticket, self->stream));
    CHECK(pst_group_verify(self->device, self->group, &buffers, &pattern, 0xdd, self->mismatches,
                           self->stream));
}

static pst_graph *capture(const scene *self, memory *step)
{
    pst_graph *graph = NULL;
    pst_ticket tickets[LAYERS];
    CHECK(pst_graph_begin(self->device, self->stream));
    for (int first = 0; first < PASSES; first += LAYERS) {
        for (int layer = 0; layer < LAYERS; layer++)
            forward(self, step, first + layer, &tickets[layer]);
        for (int layer = LAYERS - 1; layer >= 0; layer--)
            backward(self, step, first + layer, tickets[layer]);
    }
    CHECK(pst_pool_step(self->pool, self->stream));
    CHECK(pst_graph_end(self->device, self->stream, &graph));
    return graph;
}

/* Returns whether every byte came back. */
static bool replay(const scene *self, pst_graph *graph, uint64_t step)
{
    int64_t rows[PASSES];
    uint64_t wrong = 0;
    pst_pool_status status;
    for (int pass = 0; pass < PASSES; pass++)
        rows[pass] = (int64_t)((step * 101 + (uint64_t)pass * 211) % (MOST_ROWS + 1));
    CHECK(pst_device_copy(self->device, self->counts, rows, sizeof(rows), self->stream));
    CHECK(pst_device_copy(self->device, self->step_word, &step, sizeof(step), self->stream));
    CHECK(pst_graph_launch(graph, self->stream));
    CHECK(pst_device_copy(self->device, &wrong, self->mismatches, sizeof(wrong), self->stream));
    CHECK(pst_stream_synchronize(self->device, self->stream));
    CHECK(pst_pool_poll(self->pool, &status));
    printf("  rows %lld, %lld, ... %lld: most pages in use %llu, step_valid %d, differing bytes: "
           "%llu\n",
           (long long)rows[0], (long long)rows[1], (long long)rows[PASSES - 1],
           (unsigned long long)status.step_demand, status.step_valid, (unsigned long long)wrong);
    return wrong == 0 && status.step_valid && status.in_use[0] == 0;
}

static void make_scene(scene *self)
{
    const pst_row_space space = {
        .kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_INT64, .capacity = CAPACITY};
    const pst_tensor tensors[TENSORS] = {{.row_bytes = row_bytes[0]}, {.row_bytes = row_bytes[1]}};
    pst_group_config layer = PST_GROUP_CONFIG_INIT;
    layer.spaces = &space;
    layer.num_spaces = 1;
    layer.tensors = tensors;
    layer.num_tensors = TENSORS;
    CHECK(pst_group_create(&layer, &self->group));

    pst_group_usage full;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    CHECK(pst_group_measure(self->group, NULL, PAGE_BYTES, &full));
    config.page_bytes = PAGE_BYTES;
    config.num_pages = 16; /* a worst-case pool would need 20 */
    /* those of a graph, and of the one that was destroyed before it: on cuda a thread of the driver
     * lets go of them a moment later */
    config.slab_tickets = 2 * LAYERS;
    config.slab_pages = full.pages;
    config.slab_counts = pst_group_num_counts(self->group);
    CHECK(pst_pool_create(self->device, &config, &self->pool));

    void *words = NULL;
    CHECK(pst_device_alloc(self->device, (PASSES + 2) * sizeof(int64_t), &words));
    CHECK(pst_device_fill(self->device, words, 0, (PASSES + 2) * sizeof(int64_t), self->stream));
    self->counts = words;
    self->step_word = (uint64_t *)words + PASSES;
    self->mismatches = self->step_word + 1;
}

int main(int argc, char **argv)
{
    scene self = {.device = NULL};
    pst_device_info info;
    CHECK(pst_device_open(argc > 1 ? argv[1] : "auto", 0, &self.device));
    CHECK(pst_device_get_info(self.device, &info));
    self.is_host = info.kind == PST_DEVICE_HOST;
    CHECK(pst_stream_create(self.device, &self.stream));
    make_scene(&self);

    static memory steps[2]; /* the one before is freed last, so that no address comes again */
    bool all_equal = true;
    for (uint64_t step = 0; step < STEPS; step++) {
        memory *now = &steps[step % 2];
        allocate_step(&self, now);
        pst_graph *graph = capture(&self, now);
        if (step > 0)
            free_step(&self, &steps[(step + 1) % 2]);
        printf("step %llu: a graph of %d stashes at new addresses, with %d tickets\n",
               (unsigned long long)step, PASSES, LAYERS);
        for (uint64_t i = 0; i < REPLAYS; i++)
            all_equal &= replay(&self, graph, step * REPLAYS + i);
        CHECK(pst_graph_destroy(graph));
    }
    free_step(&self, &steps[(STEPS - 1) % 2]);

    CHECK(pst_pool_destroy(self.pool));
    CHECK(pst_group_destroy(self.group));
    CHECK(pst_device_free(self.device, self.counts));
    CHECK(pst_stream_destroy(self.device, self.stream));
    CHECK(pst_device_close(self.device));
    return all_equal ? 0 : 1;
}
