/* What block.h says. */
#include "tests/host/linear/block.h"

#include <stdio.h>
#include <string.h>

#include "tests/host/linear/matrices.h"

/* ---- what a rank has ---- */

static uint64_t size_of(const layer_tensor *tensor)
{
    return tensor->rows * tensor->columns * dtype_bytes(tensor->dtype);
}

static uint64_t experts_of(const block *self)
{
    return self->form.num_experts ? self->form.num_experts : 1;
}

static bool is_cuda(const block *self)
{
    pst_device_info info = {.kind = PST_DEVICE_HOST};
    return pst_device_get_info(self->rank->device, &info) == PST_OK && info.kind == PST_DEVICE_CUDA;
}

static void set_configs(block *self)
{
    const block_form *form = &self->form;
    const uint64_t ranks = (uint64_t)self->rank->num_ranks;
    pst_linear_config config = PST_LINEAR_CONFIG_INIT;
    config.dtype = form->dtype;
    config.weight_gradient_dtype = form->of_gradient;
    config.pieces = form->pieces;
    config.sequence_parallel = form->sequence_parallel;
    config.tokens = form->num_experts ? form->tokens : form->tokens * ranks;
    config.in_features = form->hidden;
    config.out_features = 2 * form->features;
    config.comm = self->rank->comm;
    config.scratch = self->scratch;
    config.workspace_bytes = is_cuda(self) ? 1 << 20 : 0;
    self->up = self->down = config;
    self->down.kind = PST_LINEAR_ROW;
    self->down.in_features = form->features;
    self->down.out_features = form->hidden;
    self->glu = (pst_glu)PST_GLU_INIT;
    self->glu.dtype = (pst_glu_dtype)form->dtype;
    self->glu.interleave = form->interleave;
}

static block_results make_results(const block *self)
{
    const layer_tensor *as = &self->input, *up = &self->up_weight, *down = &self->down_weight;
    const pst_dtype of_gradient = self->form.of_gradient;
    return (block_results){.output = tensor_make(as->rows, as->columns, as->dtype),
                           .input_gradient = tensor_make(as->rows, as->columns, as->dtype),
                           .up_gradient = tensor_make(up->rows, up->columns, of_gradient),
                           .down_gradient = tensor_make(down->rows, down->columns, of_gradient),
                           .of_probability = tensor_make(self->rows, 1, PST_DTYPE_FP32)};
}

static void make_tensors(block *self)
{
    const block_form *form = &self->form;
    const uint64_t ranks = (uint64_t)self->rank->num_ranks, features = form->features / ranks;
    const uint64_t experts = experts_of(self), seed = 10 * (uint64_t)self->rank->rank;
    const uint64_t outer = self->rows / (form->sequence_parallel ? ranks : 1);
    const bool is_same = !form->sequence_parallel; /* the input of all ranks */
    self->input = tensor_draw(outer, form->hidden, form->dtype, is_same ? 1 : seed + 1);
    self->output_gradient = tensor_draw(outer, form->hidden, form->dtype, is_same ? 2 : seed + 2);
    self->up_weight = tensor_draw(experts * 2 * features, form->hidden, form->dtype, seed + 3);
    self->down_weight = tensor_draw(experts * form->hidden, features, form->dtype, seed + 4);
    self->probability = tensor_draw(self->rows, 1, PST_DTYPE_FP32, seed + 5);
    self->between = tensor_make(self->rows, 2 * features, form->dtype);
    self->gathered = tensor_make(self->rows, form->hidden, form->dtype);
    self->other = tensor_draw(self->rows, OTHER_BYTES / 4, PST_DTYPE_FP32, seed + 6);
    self->found = make_results(self);
    self->wanted = make_results(self);
}

/* One row space, or for experts that of their counts. */
static void make_pages(block *self)
{
    const block_form *form = &self->form;
    const pst_row_space space = {.kind = form->num_experts ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX,
                                 .count_type =
                                     form->num_experts ? form->count_type : PST_COUNT_HOST,
                                 .capacity = (int64_t)self->up.tokens,
                                 .num_segments = form->num_experts};
    const pst_tensor tensors[] = {{.row_bytes = OTHER_BYTES},
                                  {.row_bytes = self->between.columns * dtype_bytes(form->dtype),
                                   .written_by = PST_WRITTEN_BY_GLU}};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_pool_config pages = PST_POOL_CONFIG_INIT;
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = tensors;
    config.num_tensors = 2;
    pages.page_bytes = PST_PAGE_BYTES_MIN;
    pages.num_pages = 8;
    pages.max_tickets = 1;
    CHECK_OK(pst_group_create(&config, &self->group));
    CHECK_OK(pst_pool_create(self->rank->device, &pages, &self->pool));
    CHECK_OK(pst_ticket_create(self->pool, self->group, &self->ticket));
    self->host_count = (int64_t)self->up.tokens;
    self->bases[0] = self->other.base;
    self->buffers = (pst_buffers)PST_BUFFERS_INIT;
    self->buffers.bases = self->bases;
    self->buffers.counts = self->counts;
}

static void set_operands(block *self)
{
    const block_results *to = &self->found;
    pst_mlp_operands operands = PST_MLP_OPERANDS_INIT;
    operands.input = self->input.base;
    operands.up_weight = self->up_weight.base;
    operands.down_weight = self->down_weight.base;
    operands.output = to->output.base;
    operands.output_gradient = self->output_gradient.base;
    operands.input_gradient = to->input_gradient.base;
    operands.up_weight_gradient = to->up_gradient.base;
    operands.down_weight_gradient = to->down_gradient.base;
    if (self->form.has_probability)
        operands.probability.base = self->probability.base;
    operands.accumulates = self->form.accumulates;
    if (self->form.num_experts)
        operands.counts =
            self->form.count_type == PST_COUNT_INT64 ? (void *)self->wide : (void *)self->narrow;
    self->operands = operands;
    self->counts[0] = operands.counts ? operands.counts : &self->host_count;
}

void block_open(block *self, const block_form *form, rank_of_test *rank)
{
    pst_mlp_config config = PST_MLP_CONFIG_INIT;
    memset(self, 0, sizeof(*self));
    self->form = *form;
    self->rank = rank;
    CHECK_OK(pst_scratch_create(rank->device, NULL, &self->scratch));
    set_configs(self);
    self->rows = experts_of(self) * self->up.tokens;
    self->wide = test_memory(BLOCK_EXPERTS * sizeof(*self->wide));
    self->narrow = test_memory(BLOCK_EXPERTS * sizeof(*self->narrow));
    make_tensors(self);
    set_operands(self);
    make_pages(self);
    config.up = &self->up;
    config.down = &self->down;
    config.glu = &self->glu;
    config.num_experts = form->num_experts;
    config.count_type = form->count_type;
    CHECK_OK(pst_mlp_create(&config, &self->mlp));
    CHECK_OK(pst_mlp_get_bytes(self->mlp, &self->bytes));
}

static void free_results(block_results *results)
{
    tensor_free(&results->output);
    tensor_free(&results->input_gradient);
    tensor_free(&results->up_gradient);
    tensor_free(&results->down_gradient);
    tensor_free(&results->of_probability);
}

void block_close(block *self)
{
    layer_tensor *const all[] = {
        &self->input,       &self->output_gradient, &self->up_weight, &self->down_weight,
        &self->probability, &self->between,         &self->gathered,  &self->other};
    CHECK_OK(pst_mlp_destroy(self->mlp));
    CHECK_OK(pst_ticket_destroy(self->ticket));
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_group_destroy(self->group));
    CHECK_OK(pst_scratch_destroy(self->scratch));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        tensor_free(all[i]);
    test_memory_free(self->wide);
    test_memory_free(self->narrow);
    free_results(&self->found);
    free_results(&self->wanted);
}

void block_set_pages(block *self, bool has_pages)
{
    self->operands.hidden = has_pages ? NULL : self->between.base;
    self->operands.ticket.id = has_pages ? self->ticket.id : 0;
    self->operands.group = has_pages ? self->group : NULL;
    self->operands.buffers = has_pages ? &self->buffers : NULL;
}

void block_clear(block *self, block_results *results)
{
    const layer_tensor *gradients[] = {&results->up_gradient, &results->down_gradient};
    memset(results->output.base, 0xff, size_of(&results->output));
    memset(results->input_gradient.base, 0xff, size_of(&results->input_gradient));
    memset(results->of_probability.base, 0xff, size_of(&results->of_probability));
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t seed = 20 + i;
        const layer_tensor *to = gradients[i];
        elements_draw(to->base, to->rows * to->columns, to->dtype, &seed);
    }
    memset(self->between.base, 0xff, size_of(&self->between));
}

/* ---- the same without a block ---- */

/* Between the layers, kept by the caller. */
typedef struct parts {
    layer_tensor between, activation, activation_gradient, between_gradient;
    pst_group *group;
} parts;

static parts make_parts(const block *self)
{
    const uint64_t columns = self->between.columns;
    const pst_dtype dtype = self->form.dtype;
    const pst_row_space space = {
        .kind = self->form.num_experts ? PST_ROWS_SEGMENTS : PST_ROWS_PREFIX,
        .count_type = self->form.num_experts ? self->form.count_type : PST_COUNT_HOST,
        .capacity = (int64_t)self->up.tokens,
        .num_segments = self->form.num_experts};
    const pst_tensor tensor = {.row_bytes = columns * dtype_bytes(dtype),
                               .written_by = PST_WRITTEN_BY_GLU};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    parts made = {.between = tensor_make(self->rows, columns, dtype),
                  .activation = tensor_make(self->rows, columns / 2, dtype),
                  .activation_gradient = tensor_make(self->rows, columns / 2, dtype),
                  .between_gradient = tensor_make(self->rows, columns, dtype)};
    config.spaces = &space;
    config.num_spaces = 1;
    config.tensors = &tensor;
    config.num_tensors = 1;
    if (pst_group_create(&config, &made.group) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return made;
}

static void run_glu(const block *self, const parts *of, bool is_backward)
{
    const pst_ticket none = {0};
    void *const base = of->between.base;
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    buffers.bases = &base;
    buffers.counts = self->counts;
    operands.output.base = of->activation.base;
    operands.probability = self->operands.probability;
    if (!is_backward) {
        CHECK_OK(pst_glu_forward(self->rank->device, &self->glu, none, of->group, &buffers,
                                 &operands, NULL, self->rank->stream));
        return;
    }
    operands.gradient.base = of->activation_gradient.base;
    operands.input_gradient.base = of->between_gradient.base;
    operands.probability_gradient.base = self->wanted.of_probability.base;
    CHECK_OK(pst_glu_backward(self->rank->device, &self->glu, none, of->group, &buffers, &operands,
                              NULL, self->rank->stream));
}

/* A layer of the block by itself. */
static void run_layer(const block *self, const pst_linear_config *config,
                      const pst_linear_operands *operands, bool is_backward)
{
    pst_linear *linear = NULL;
    CHECK_OK(pst_linear_create(config, &linear));
    if (is_backward)
        CHECK_OK(pst_linear_backward(linear, operands, self->rank->stream));
    else
        CHECK_OK(pst_linear_forward(linear, operands, self->rank->stream));
    CHECK_OK(pst_linear_destroy(linear));
}

static void want_dense(block *self, const parts *of)
{
    pst_linear_operands up = PST_LINEAR_OPERANDS_INIT, down = PST_LINEAR_OPERANDS_INIT;
    up.input = self->input.base;
    up.weight = self->up_weight.base;
    up.output = of->between.base;
    up.output_gradient = of->between_gradient.base;
    up.input_gradient = self->wanted.input_gradient.base;
    up.weight_gradient = self->wanted.up_gradient.base;
    down.input = of->activation.base;
    down.weight = self->down_weight.base;
    down.output = self->wanted.output.base;
    down.output_gradient = self->output_gradient.base;
    down.input_gradient = of->activation_gradient.base;
    down.weight_gradient = self->wanted.down_gradient.base;
    up.accumulates = down.accumulates = self->form.accumulates;
    run_layer(self, &self->up, &up, false);
    run_glu(self, of, false);
    run_layer(self, &self->down, &down, false);
    run_layer(self, &self->down, &down, true);
    run_glu(self, of, true);
    run_layer(self, &self->up, &up, true);
}

/* The part of an expert. */
static pst_matrix of_expert(const layer_tensor *all, uint64_t expert, uint64_t experts,
                            bool is_transposed)
{
    const uint64_t stride = all->columns * dtype_bytes(all->dtype);
    return (pst_matrix){.base = (char *)all->base + expert * (all->rows / experts) * stride,
                        .row_stride = stride,
                        .dtype = all->dtype,
                        .is_transposed = is_transposed};
}

/* d = a * b of an expert's live rows, or columns. */
static void multiply(const block *self, uint64_t expert, const layer_tensor *a, bool a_transposed,
                     const layer_tensor *b, bool b_transposed, const layer_tensor *d)
{
    const uint64_t experts = self->form.num_experts, count = (uint64_t)self->wide[expert];
    pst_product product = PST_PRODUCT_INIT;
    product.a = of_expert(a, expert, experts, a_transposed);
    product.b = of_expert(b, expert, experts, b_transposed);
    product.d = of_expert(d, expert, experts, false);
    product.m = a_transposed ? a->columns : count;
    product.k = a_transposed ? count : a->columns;
    product.n = d->columns;
    if (a_transposed && self->form.accumulates)
        product.c = product.d;
    CHECK_OK(pst_product_run(self->rank->device, &product, self->rank->stream));
}

static void want_experts(block *self, const parts *of)
{
    const block_results *to = &self->wanted;
    const uint64_t experts = self->form.num_experts;
    for (uint64_t e = 0; e < experts; e++)
        multiply(self, e, &self->input, false, &self->up_weight, true, &of->between);
    run_glu(self, of, false);
    for (uint64_t e = 0; e < experts; e++) {
        multiply(self, e, &of->activation, false, &self->down_weight, true, &to->output);
        multiply(self, e, &self->output_gradient, false, &self->down_weight, false,
                 &of->activation_gradient);
    }
    run_glu(self, of, true);
    for (uint64_t e = 0; e < experts; e++) {
        multiply(self, e, &self->output_gradient, true, &of->activation, false, &to->down_gradient);
        multiply(self, e, &of->between_gradient, false, &self->up_weight, false,
                 &to->input_gradient);
        multiply(self, e, &of->between_gradient, true, &self->input, false, &to->up_gradient);
    }
}

static void want(block *self)
{
    parts of = make_parts(self);
    block_clear(self, &self->wanted);
    if (self->form.num_experts)
        want_experts(self, &of);
    else
        want_dense(self, &of);
    CHECK_OK(pst_device_synchronize(self->rank->device));
    pst_group_destroy(of.group);
    tensor_free(&of.between);
    tensor_free(&of.activation);
    tensor_free(&of.activation_gradient);
    tensor_free(&of.between_gradient);
}

/* The same block of one rank on host. */
static void want_on_host(block *self)
{
    rank_of_test rank = {.num_ranks = 1};
    block same = *self;
    CHECK_OK(pst_device_open("host", 0, &rank.device));
    CHECK_OK(pst_scratch_create(rank.device, NULL, &same.scratch));
    same.rank = &rank;
    same.up.comm = same.down.comm = NULL;
    same.up.workspace_bytes = same.down.workspace_bytes = 0;
    same.up.scratch = same.down.scratch = same.scratch;
    want(&same);
    CHECK_OK(pst_scratch_destroy(same.scratch));
    CHECK_OK(pst_device_close(rank.device));
}

void block_want(block *self)
{
    if (is_cuda(self))
        want_on_host(self);
    else
        want(self);
}

/* Of the largest element. Three products and a GLU lie between the input and a gradient of it, and their sums
 * of some dozens of terms come in another order. */
static double share_on_cuda(pst_dtype dtype)
{
    return 8 * dtype_error(dtype) + 128 * dtype_error(PST_DTYPE_FP32);
}

bool block_is_right(const block *self)
{
    const block_results *found = &self->found, *wanted = &self->wanted;
    const layer_tensor *const pairs[][2] = {{&found->output, &wanted->output},
                                            {&found->input_gradient, &wanted->input_gradient},
                                            {&found->up_gradient, &wanted->up_gradient},
                                            {&found->down_gradient, &wanted->down_gradient},
                                            {&found->of_probability, &wanted->of_probability}};
    static const char *const names[] = {"output", "input", "up", "down", "probability"};
    const int num = self->operands.probability_gradient.base ? 5 : 4;
    const bool near = is_cuda(self);
    const double share = share_on_cuda(self->form.dtype);
    bool is_right = true;
    for (int i = 0; i < num; i++)
        if (!(near ? tensor_is_near(pairs[i][0], pairs[i][1], share)
                   : tensor_is(pairs[i][0], pairs[i][1]))) {
            printf("rank %d: %s is wrong\n", self->rank->rank, names[i]);
            is_right = false;
        }
    return is_right;
}
