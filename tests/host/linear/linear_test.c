/* Linear layers of ranks that are threads: bits of plain products, scratch, graphs. */
#include <pagestash/pagestash.h>

#include <stdio.h>

#include "tests/host/linear/layer.h"

/* ---- every form ---- */

/* A layer with a scratch of its own, so that its peak is this call's. */
typedef struct layer_scene {
    layer layer;
    pst_scratch *scratch;
    pst_linear *linear;
    pst_linear_bytes bytes;
    pst_linear_operands operands;
} layer_scene;

static void open_linear(rank_of_test *self, layer_scene *scene)
{
    RANK_OK(pst_scratch_create(self->device, NULL, &scene->scratch));
    const pst_linear_config config = layer_config(&scene->layer, self->comm, scene->scratch);
    RANK_OK(pst_linear_create(&config, &scene->linear));
    RANK_OK(pst_linear_get_bytes(scene->linear, &scene->bytes));
    scene->operands = layer_operands(&scene->layer);
}

/* Nothing is leased, and at most so much was. */
static void close_linear(rank_of_test *self, layer_scene *scene, uint64_t peak)
{
    pst_scratch_info info;
    RANK_OK(pst_scratch_get_info(scene->scratch, &info));
    RANK_CHECK(info.num_live == 0 && info.leased_bytes == 0);
    if (info.peak_leased_bytes != peak)
        psti_test_fail(__FILE__, __LINE__, "rank %d: %d bytes leased, not %d", self->rank,
                       (int)info.peak_leased_bytes, (int)peak);
    RANK_OK(pst_linear_destroy(scene->linear));
    RANK_OK(pst_scratch_destroy(scene->scratch));
}

static void check_forward(rank_of_test *self, layer_scene *scene, bool keeps)
{
    layer_clear(&scene->layer);
    open_linear(self, scene);
    if (keeps)
        scene->operands.gathered = scene->layer.gathered.base;
    RANK_OK(pst_linear_forward(scene->linear, &scene->operands, self->stream));
    RANK_CHECK(tensor_is(&scene->layer.output, &scene->layer.wanted));
    if (keeps)
        RANK_CHECK(tensor_is(&scene->layer.gathered, &scene->layer.all_input));
    close_linear(self, scene, keeps ? 0 : scene->bytes.forward_scratch);
}

static void check_backward(rank_of_test *self, layer_scene *scene, bool kept)
{
    const uint64_t in_pieces = scene->layer.form.sequence_parallel && self->num_ranks > 1;
    open_linear(self, scene);
    if (kept) {
        scene->operands.gathered = scene->layer.gathered.base;
        scene->operands.input = NULL;
    }
    RANK_OK(pst_linear_backward(scene->linear, &scene->operands, self->stream));
    RANK_CHECK(tensor_is(&scene->layer.input_gradient, &scene->layer.wanted_input));
    RANK_CHECK(tensor_is(&scene->layer.weight_gradient, &scene->layer.wanted_weight));
    close_linear(self, scene,
                 scene->bytes.backward_scratch - (kept ? in_pieces * scene->bytes.gathered : 0));
}

/* One gradient at a time, with the same bits. What only the other needs is not gathered. */
static void check_parts(rank_of_test *self, layer_scene *scene)
{
    const bool is_column = scene->layer.form.kind == PST_LINEAR_COLUMN;
    for (int part = 0; part < 2; part++) {
        layer_clear(&scene->layer);
        open_linear(self, scene);
        if (part == 0)
            scene->operands.weight_gradient = NULL;
        else
            scene->operands.input_gradient = NULL;
        RANK_OK(pst_linear_backward(scene->linear, &scene->operands, self->stream));
        if (part == 0)
            RANK_CHECK(tensor_is(&scene->layer.input_gradient, &scene->layer.wanted_input));
        else
            RANK_CHECK(tensor_is(&scene->layer.weight_gradient, &scene->layer.wanted_weight));
        close_linear(self, scene, scene->bytes.backward_scratch / (is_column ? 2 : 1));
    }
}

static void check_form(rank_of_test *self, const layer_form *form)
{
    layer_scene scene;
    const bool may_keep = form->kind == PST_LINEAR_COLUMN && form->sequence_parallel;
    layer_open(&scene.layer, form, self->rank, self->device);
    if (may_keep) {
        check_forward(self, &scene, true);
        check_backward(self, &scene, true);
        RANK_CHECK(layer_is_near(&scene.layer));
    }
    check_forward(self, &scene, false);
    check_backward(self, &scene, false);
    RANK_CHECK(layer_is_near(&scene.layer));
    check_parts(self, &scene);
    if (psti_test_failed())
        printf("%d ranks, kind %d, dtypes %d %d, pieces %u, parallel %d, %d tokens\n",
               form->num_ranks, form->kind, form->dtype, form->of_gradient, form->pieces,
               form->sequence_parallel, (int)form->tokens);
    layer_close(&scene.layer);
}

/* Of all that can be combined. */
static layer_form form_of(unsigned i, int num_ranks)
{
    const unsigned ranks = (unsigned)num_ranks;
    layer_form form = {.num_ranks = num_ranks, .kind = (pst_linear_kind)(i & 1)};
    form.sequence_parallel = (i & 2) != 0;
    form.pieces = i >> 2 & 1;
    form.dtype = (i & 8) ? PST_DTYPE_BF16 : PST_DTYPE_FP32;
    form.of_gradient = PST_DTYPE_FP32;
    form.accumulates = (i & 16) != 0;
    form.tokens = (i & 32) ? 3 : 4;
    if (i % 5 == 0)
        form.tokens = 1;
    if (form.dtype == PST_DTYPE_BF16 && i % 3 == 0)
        form.of_gradient = PST_DTYPE_BF16;
    form.in = ranks * (i % 7 == 0 ? 3 : 8);
    form.out = ranks * (i % 7 == 1 ? 5 : 4);
    return form;
}

static void check_forms(rank_of_test *self)
{
    for (unsigned i = 0; i < 64 && !psti_test_failed(); i += psti_test_step(5)) {
        const layer_form form = form_of(i, self->num_ranks);
        check_form(self, &form);
    }
}

PST_TEST(Linear, ResultsAreThoseOfPlainProducts)
{
    for (int num_ranks = 1; num_ranks <= SCENE_RANKS; num_ranks *= 2)
        ranks_run(num_ranks, 200000, check_forms, NULL);
    ranks_run(3, 200000, check_forms, NULL);
}

/* ---- what was gathered, in pages ---- */

/* Tokens of all ranks, one tensor of a pool of its own. */
typedef struct gathered_pages {
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    void *base;
    const void *counts;
    int64_t rows;
    pst_buffers buffers;
} gathered_pages;

static void open_pages(rank_of_test *self, gathered_pages *pages, const layer_scene *scene)
{
    const layer_tensor *gathered = &scene->layer.gathered;
    const pst_row_space space = {
        .kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_HOST, .capacity = (int64_t)gathered->rows};
    const pst_tensor tensor = {.row_bytes = scene->bytes.gathered / gathered->rows};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    pool.page_bytes = PST_PAGE_BYTES_MIN;
    pool.num_pages = 1;
    pool.max_tickets = 1;
    RANK_OK(pst_group_create(&config, &pages->group));
    RANK_OK(pst_pool_create(self->device, &pool, &pages->pool));
    RANK_OK(pst_ticket_create(pages->pool, pages->group, &pages->ticket));
    pages->base = gathered->base;
    pages->rows = space.capacity;
    pages->counts = &pages->rows;
    pages->buffers = (pst_buffers)PST_BUFFERS_INIT;
    pages->buffers.bases = &pages->base;
    pages->buffers.counts = &pages->counts;
}

static void close_pages(rank_of_test *self, gathered_pages *pages)
{
    pst_pool_status status;
    RANK_OK(pst_pool_step(pages->pool, self->stream));
    RANK_OK(pst_pool_poll(pages->pool, &status));
    RANK_CHECK(status.step_valid && status.in_use[0] == 0 && status.high_water[0] == 1);
    RANK_OK(pst_ticket_destroy(pages->ticket));
    RANK_OK(pst_pool_destroy(pages->pool));
    RANK_OK(pst_group_destroy(pages->group));
}

/* Between forward and backward another layer has the buffer. */
static void page_gathered(rank_of_test *self)
{
    for (unsigned i = 2; i < 64 && !psti_test_failed(); i += 4) { /* column, sequence parallel */
        const layer_form form = form_of(i, self->num_ranks);
        layer_scene scene;
        gathered_pages pages;
        layer_open(&scene.layer, &form, self->rank, self->device);
        layer_clear(&scene.layer);
        open_linear(self, &scene);
        open_pages(self, &pages, &scene);
        scene.operands.gathered = scene.layer.gathered.base;
        RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
        RANK_OK(pst_ticket_stash(pages.ticket, pages.group, &pages.buffers, NULL, self->stream));
        RANK_OK(
            pst_device_fill(self->device, pages.base, 0xff, scene.bytes.gathered, self->stream));
        scene.operands.input = NULL;
        RANK_OK(pst_ticket_restore(pages.ticket, pages.group, &pages.buffers, NULL, self->stream));
        RANK_OK(pst_linear_backward(scene.linear, &scene.operands, self->stream));
        RANK_OK(pst_stream_synchronize(self->device, self->stream));
        RANK_CHECK(tensor_is(&scene.layer.output, &scene.layer.wanted));
        RANK_CHECK(tensor_is(&scene.layer.input_gradient, &scene.layer.wanted_input));
        RANK_CHECK(tensor_is(&scene.layer.weight_gradient, &scene.layer.wanted_weight));
        close_pages(self, &pages);
        close_linear(self, &scene,
                     scene.bytes.backward_scratch -
                         (self->num_ranks > 1 ? scene.bytes.gathered : 0));
        layer_close(&scene.layer);
    }
}

PST_TEST(Linear, WhatWasGatheredMayGoToPages)
{
    ranks_run(1, 0, page_gathered, NULL);
    ranks_run(4, 200000, page_gathered, NULL);
}

static void check_alone(rank_of_test *self)
{
    pst_comm *comm = self->comm;
    self->comm = NULL;
    check_forms(self);
    self->comm = comm;
}

PST_TEST(Linear, OneRankNeedsNoCommunicator)
{
    ranks_run(1, 0, check_alone, NULL);
}

/* ---- traffic ---- */

/* In pieces of rows a rank sends all but its own of what is gathered or scattered; a sum on all ranks
 * is as much as both. */
static uint64_t traffic_of(const layer_form *form, bool is_backward, bool kept)
{
    const uint64_t ranks = (uint64_t)form->num_ranks, tokens = form->tokens * ranks;
    const bool is_column = form->kind == PST_LINEAR_COLUMN;
    const uint64_t one = tokens * (is_column ? form->in : form->out) * (ranks - 1) / ranks * 4;
    if (form->sequence_parallel)
        return is_column && is_backward && !kept ? 2 * one : one;
    return is_column == is_backward ? 2 * one : 0;
}

static uint64_t sent_bytes(rank_of_test *self)
{
    pst_comm_info info;
    RANK_OK(pst_comm_get_info(self->comm, &info));
    return info.sent_bytes;
}

static void check_traffic(rank_of_test *self)
{
    for (unsigned i = 0; i < 16; i++) {
        layer_form form = form_of(i & 7, self->num_ranks);
        const bool kept = (i & 8) && form.sequence_parallel && form.kind == PST_LINEAR_COLUMN;
        layer_scene scene;
        layer_open(&scene.layer, &form, self->rank, self->device);
        open_linear(self, &scene);
        scene.operands.gathered = kept ? scene.layer.gathered.base : NULL;
        const uint64_t before = sent_bytes(self);
        RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
        const uint64_t between = sent_bytes(self);
        RANK_OK(pst_linear_backward(scene.linear, &scene.operands, self->stream));
        RANK_CHECK(between - before == traffic_of(&form, false, kept));
        RANK_CHECK(sent_bytes(self) - between == traffic_of(&form, true, kept));
        RANK_OK(pst_linear_destroy(scene.linear));
        RANK_OK(pst_scratch_destroy(scene.scratch));
        layer_close(&scene.layer);
    }
}

PST_TEST(Linear, TrafficIsThatOfTheTable)
{
    ranks_run(1, 0, check_traffic, NULL);
    ranks_run(4, 200000, check_traffic, NULL);
}

/* ---- the caller's part of `gathered` ---- */

static void run_in_place(rank_of_test *self)
{
    const layer_form form = {.num_ranks = self->num_ranks,
                             .dtype = PST_DTYPE_FP32,
                             .of_gradient = PST_DTYPE_FP32,
                             .sequence_parallel = true,
                             .tokens = 4,
                             .in = 8,
                             .out = 16,
                             .pieces = *(const uint32_t *)self->arg};
    layer_scene scene;
    layer_open(&scene.layer, &form, self->rank, self->device);
    open_linear(self, &scene);
    char *own = (char *)scene.layer.gathered.base + self->rank * 4 * 8 * 4;
    memcpy(own, scene.layer.input.base, 4 * 8 * 4);
    scene.operands.input = own;
    scene.operands.gathered = scene.layer.gathered.base;
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_CHECK(tensor_is(&scene.layer.output, &scene.layer.wanted));
    RANK_CHECK(tensor_is(&scene.layer.gathered, &scene.layer.all_input));
    close_linear(self, &scene, 0);
    layer_close(&scene.layer);
}

PST_TEST(Linear, TheInputMayBeItsPlaceInGathered)
{
    for (uint32_t pieces = 0; pieces < 2; pieces++) {
        ranks_run(1, 0, run_in_place, &pieces);
        ranks_run(4, 200000, run_in_place, &pieces);
    }
}

/* ---- graphs ---- */

static void capture(rank_of_test *self)
{
    const layer_form form = form_of(*(const unsigned *)self->arg, self->num_ranks);
    layer_scene scene;
    pst_graph *graph = NULL;
    layer_open(&scene.layer, &form, self->rank, self->device);
    layer *of = &scene.layer;
    open_linear(self, &scene);
    RANK_OK(pst_graph_begin(self->device, self->stream));
    RANK_OK(pst_linear_forward(scene.linear, &scene.operands, self->stream));
    RANK_OK(pst_linear_backward(scene.linear, &scene.operands, self->stream));
    RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    RANK_OK(pst_linear_destroy(scene.linear));
    for (int replay = 0; replay < 3; replay++) {
        layer_clear(of);
        RANK_OK(pst_graph_launch(graph, self->stream));
        RANK_CHECK(tensor_is(&of->output, &of->wanted));
        RANK_CHECK(tensor_is(&of->input_gradient, &of->wanted_input));
        RANK_CHECK(tensor_is(&of->weight_gradient, &of->wanted_weight));
    }
    RANK_OK(pst_graph_destroy(graph));
    RANK_OK(pst_scratch_destroy(scene.scratch));
    layer_close(of);
}

PST_TEST(Linear, AGraphNeedsNoLayer)
{
    for (unsigned i = 0; i < 8; i++)
        ranks_run(4, 200000, capture, &i);
}

/* ---- layers that share a scratch ---- */

enum { SHARING = 3 };

/* Column, row, and a larger column, for which names that were leased before have grown. */
static void open_sharing(rank_of_test *self, pst_scratch *scratch, layer_scene *scenes)
{
    for (unsigned i = 0; i < SHARING; i++) {
        layer_form form = form_of(2 + (i & 1), self->num_ranks);
        form.tokens = 2 + 3 * i;
        layer_open(&scenes[i].layer, &form, self->rank, self->device);
        const pst_linear_config config = layer_config(&scenes[i].layer, self->comm, scratch);
        RANK_OK(pst_linear_create(&config, &scenes[i].linear));
        scenes[i].operands = layer_operands(&scenes[i].layer);
    }
}

/* Forwards, then backwards from the last to the first, as a model has them. */
static void run_sharing(rank_of_test *self, layer_scene *scenes)
{
    for (int i = 0; i < SHARING; i++)
        RANK_OK(pst_linear_forward(scenes[i].linear, &scenes[i].operands, self->stream));
    for (int i = SHARING - 1; i >= 0; i--)
        RANK_OK(pst_linear_backward(scenes[i].linear, &scenes[i].operands, self->stream));
}

static void check_sharing(rank_of_test *self, layer_scene *scenes)
{
    for (int i = 0; i < SHARING; i++) {
        layer *of = &scenes[i].layer;
        RANK_CHECK(tensor_is(&of->output, &of->wanted));
        RANK_CHECK(tensor_is(&of->input_gradient, &of->wanted_input));
        RANK_CHECK(tensor_is(&of->weight_gradient, &of->wanted_weight));
        layer_clear(of);
    }
}

static void share(rank_of_test *self)
{
    layer_scene scenes[SHARING];
    pst_scratch *scratch = NULL;
    pst_scratch_info info;
    pst_graph *graph = NULL;
    RANK_OK(pst_scratch_create(self->device, NULL, &scratch));
    open_sharing(self, scratch, scenes);
    RANK_OK(pst_graph_begin(self->device, self->stream));
    run_sharing(self, scenes);
    RANK_OK(pst_graph_end(self->device, self->stream, &graph));
    for (int round = 0; round < 4; round++) {
        if (round % 2 == 0)
            RANK_OK(pst_graph_launch(graph, self->stream));
        else
            run_sharing(self, scenes);
        check_sharing(self, scenes);
    }
    RANK_OK(pst_scratch_get_info(scratch, &info));
    RANK_CHECK(info.num_names == 2 && info.num_live == 0);
    RANK_OK(pst_graph_destroy(graph));
    for (int i = 0; i < SHARING; i++) {
        RANK_OK(pst_linear_destroy(scenes[i].linear));
        layer_close(&scenes[i].layer);
    }
    RANK_OK(pst_scratch_destroy(scratch));
}

PST_TEST(Linear, LayersShareOneScratch)
{
    ranks_run(4, 200000, share, NULL);
    ranks_run(SCENE_RANKS, 200000, share, NULL);
}
