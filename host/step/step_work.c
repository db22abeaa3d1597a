/* What a GPU computes for one micro-batch: operations with their FLOPs and bytes. Shapes of products
 * are the estimator's modules. */
#include <string.h>

#include "host/base/structs.h"
#include "host/step/step.h"

typedef struct list {
    const psti_step *step;
    pst_step_part part;
    bool is_all_again; /* every operation, by full recomputation */
    uint64_t wide;     /* columns on one GPU of the last product */
    pst_step_work to;
} list;

typedef struct moved {
    uint64_t forward, input, weight;
} moved;

/* What selective recomputation runs again, by names or their beginnings. */
static const struct {
    uint32_t bit;
    const char *names[8];
} again[] = {
    {PST_RECOMPUTE_NORM, {"norm1", "norm2"}},
    {PST_RECOMPUTE_ACTIVATION, {"mlp.activation", "shared.activation", "expert.activation"}},
    {PST_RECOMPUTE_ATTENTION, {"attention.core", "attention.softmax"}},
    {PST_RECOMPUTE_EXPERTS, {"expert.activation"}},
    {PST_RECOMPUTE_MLP, {"mlp.fc", "mlp.activation"}},
    {PST_RECOMPUTE_MOE, {"router", "latent.", "dispatch.", "expert.", "combine.", "shared."}},
    {PST_RECOMPUTE_SHARED, {"shared."}},
    {PST_RECOMPUTE_LATENT, {"attention.q_up", "attention.kv_up", "attention.rope"}},
};

static bool recomputes(const list *self, const char *name)
{
    bool does = false;
    for (size_t i = 0; i < sizeof(again) / sizeof(again[0]); i++)
        for (int j = 0; j < 8 && again[i].names[j] != NULL; j++)
            does = does || ((self->step->run.recompute & again[i].bit) != 0 &&
                            strncmp(name, again[i].names[j], strlen(again[i].names[j])) == 0);
    return does;
}

static pst_step_op *put(list *self, const char *name, pst_step_kind kind)
{
    pst_step_op *op = &self->to.ops[self->to.num_ops++];
    *op = (pst_step_op){
        .name = name, .kind = kind, .is_again = self->is_all_again || recomputes(self, name)};
    return op;
}

/* Reads and writes alone. */
static pst_step_op *put_memory(list *self, const char *name, moved of)
{
    pst_step_op *op = put(self, name, PST_STEP_MEMORY);
    op->forward.bytes = of.forward;
    op->input.bytes = of.input;
    op->weight.bytes = of.weight;
    return op;
}

/* Rows of so many elements, each read or written so often in a forward and a backward. */
static pst_step_op *put_rows(list *self, const char *name, uint64_t rows, uint64_t size,
                             uint64_t forward, uint64_t input)
{
    const uint64_t once = PSTI_PRODUCT(self->step->width, rows, size);
    return put_memory(self, name, (moved){psti_times(forward, once), psti_times(input, once), 0});
}

/* ---- products ---- */

/* Those that Transformer Engine runs in fp8. */
static bool is_fp8(const list *self, const char *name)
{
    return self->step->run.fp8 != PST_FP8_NONE && strcmp(name, "router") != 0 &&
           strcmp(name, "shared.gate") != 0 && strcmp(name, "output") != 0;
}

/* rows x inputs times inputs x outputs, count times. A weight's gradient is added to what is kept of
 * it, which is read and written for that. */
static void put_product(list *self, const char *name, pst_step_kind kind, uint64_t rows,
                        const pst_estimate_module *module)
{
    const uint64_t width = self->step->width, count = module->count;
    const uint64_t in = PSTI_PRODUCT(count, rows, module->inputs);
    const uint64_t out = PSTI_PRODUCT(count, rows, module->outputs);
    const uint64_t weight = PSTI_PRODUCT(count, module->inputs, module->outputs);
    const uint64_t flops = PSTI_PRODUCT(2, in, module->outputs);
    pst_step_op *op = put(self, name, kind);
    op->is_fp8 = is_fp8(self, name);
    const uint64_t narrow = op->is_fp8 ? 1 : width; /* of operands */
    op->forward = (pst_step_amount){
        flops, psti_plus(psti_times(narrow, psti_plus(in, weight)), psti_times(width, out))};
    op->input = (pst_step_amount){
        flops, psti_plus(psti_times(narrow, psti_plus(out, weight)), psti_times(width, in))};
    op->weight = (pst_step_amount){
        flops, psti_plus(psti_times(narrow, psti_plus(in, out)),
                         PSTI_PRODUCT(2, self->step->run.gradient_width, weight))};
    self->wide = module->outputs;
    if (!op->is_fp8)
        return;
    /* read once, written as it is and transposed */
    pst_step_op *cast = put_memory(
        self, "fp8.cast", (moved){psti_times(width + 2, in), psti_times(width + 2, out), 0});
    cast->is_again = op->is_again;
}

/* ---- a layer ---- */

/* Queries, and keys and values, of a token on one GPU. */
typedef struct heads {
    uint64_t queries, keys; /* numbers of heads */
    uint64_t qk_size, v_size;
} heads;

static heads heads_of(const psti_step *step)
{
    const pst_estimate_config *run = &step->run;
    heads of = {.queries = run->num_heads / step->split.tensor};
    of.keys = run->kv_rank ? of.queries : psti_kv_heads(run, &step->split);
    of.qk_size = run->kv_rank ? psti_plus(run->qk_size, run->qk_position_size) : run->head_size;
    of.v_size = run->kv_rank ? run->v_size : run->head_size;
    return of;
}

/* With a causal mask a position sees half of the others, of whatever length its GPU has a part of:
 * so many multiplications and additions for each column of a head. */
static uint64_t scores(const psti_step *step, const heads *of)
{
    return PSTI_PRODUCT(of->queries, step->tokens, step->run.sequence_size);
}

/* Flash attention: two products in the forward, five in the backward, which makes the scores anew (Dao
 * 2023), all with the mask; else two and four, without. */
static void put_core(list *self)
{
    const psti_step *step = self->step;
    const bool is_flash = step->run.has_flash_attention;
    const heads of = heads_of(step);
    const uint64_t once = scores(step, &of), qk = of.qk_size, v = of.v_size;
    const uint64_t sizes = psti_plus(qk, v);
    const uint64_t tensors =
        PSTI_PRODUCT(step->width, step->tokens, psti_plus(of.queries, of.keys), sizes);
    pst_step_op *op = put(self, "attention.core", is_flash ? PST_STEP_ATTENTION : PST_STEP_PRODUCT);
    op->forward = (pst_step_amount){PSTI_PRODUCT(is_flash ? 1 : 2, once, sizes), tensors};
    op->input = (pst_step_amount){
        is_flash ? psti_times(once, psti_plus(psti_times(3, qk), psti_times(2, v)))
                 : PSTI_PRODUCT(4, once, sizes),
        psti_times(2, tensors)};
    if (is_flash)
        return;
    /* scores are written, masked and normed, read; with dropout read and written once more, with a
     * mask of a byte each */
    const uint64_t all = PSTI_PRODUCT(of.queries, step->tokens, step->run.sequence_size);
    const uint64_t dropout =
        step->run.has_attention_dropout ? psti_plus(psti_times(2, step->width), 1) : 0;
    put_memory(self, "attention.softmax",
               (moved){psti_times(psti_plus(psti_times(4, step->width), dropout), all),
                       psti_times(psti_plus(psti_times(7, step->width), dropout), all), 0});
}

/* Rotary positions turn queries and keys; latent attention's are put together of two parts then. */
static void put_positions(list *self)
{
    const heads of = heads_of(self->step);
    if (self->step->run.max_positions == 0)
        put_rows(self, "attention.rope", self->step->tokens,
                 psti_times(psti_plus(of.queries, of.keys), of.qk_size), 2, 2);
}

/* With what is added to a block's output: the input, and a mask. */
static void put_residual(list *self, const char *name)
{
    const psti_step *step = self->step;
    pst_step_op *op = put_rows(self, name, step->local, step->run.hidden_size, 3, 3);
    if (step->run.has_hidden_dropout) {
        const uint64_t mask = psti_times(step->local, step->run.hidden_size);
        op->forward.bytes = psti_plus(op->forward.bytes, mask);
        op->input.bytes = psti_plus(op->input.bytes, PSTI_PRODUCT(1 + 2 * step->width, mask));
    }
}

/* Of columns that come in pairs where it is gated. Unfused it is two operations, or three. */
static void put_activation(list *self, const char *name, uint64_t rows)
{
    const bool is_gated = self->step->run.is_gated;
    const uint64_t passes = self->step->run.fuses_activation ? 1 : 2;
    const uint64_t out = is_gated ? self->wide / 2 : self->wide;
    put_rows(self, name, rows, out, passes * (is_gated ? 3 : 2), passes * (is_gated ? 5 : 3));
}

/* A norm reads and writes; its backward reads the input, too. */
static void put_norm(list *self, const pst_estimate_module *module)
{
    const uint64_t size = psti_times(module->count, module->outputs);
    put_rows(self, module->name, module->rows, size, 2, 3);
}

static uint64_t heads_norm_size(const list *self, const pst_estimate_module *module)
{
    const heads of = heads_of(self->step);
    return self->step->run.qk_norm == PST_QK_NORM_HEAD
               ? psti_times(psti_plus(of.queries, of.keys), of.qk_size)
               : module->outputs;
}

/* ---- experts ---- */

static uint64_t expert_rows(const psti_step *step)
{
    const pst_moe_rows kind =
        step->run.moe_rows == PST_MOE_CAPACITY ? PST_MOE_CAPACITY : PST_MOE_BALANCED;
    return psti_moe_rows(&step->run, &step->split, kind);
}

/* Rows are brought into the order of their experts, sent, and where a GPU has several experts sorted
 * once more; and the same on the way back, where a token's rows are added up. */
static void put_permutation(list *self, const char *name)
{
    const psti_step *step = self->step;
    const uint64_t sent = psti_sent_rows(&step->run, &step->split);
    const bool sorts = step->split.experts > 1 && step->run.num_experts > step->split.experts;
    const uint64_t rows = PSTI_SUM(step->local, sent, sorts ? psti_times(2, expert_rows(step)) : 0);
    put_rows(self, name, rows, psti_routed_size(&step->run), 1, 1);
}

static void put_router(list *self)
{
    /* logits and probabilities in fp32, and who goes where */
    const uint64_t scores_bytes = PSTI_PRODUCT(12, self->step->local, self->step->run.num_experts);
    put_memory(self, "router.topk", (moved){scores_bytes, scores_bytes, 0});
}

static void put_module(list *self, const pst_estimate_module *module)
{
    const char *name = module->name;
    const psti_step *step = self->step;
    if (strncmp(name, "expert.", 7) == 0 && module->is_product) {
        const uint64_t rows = psti_div_up(expert_rows(step), module->count);
        put_product(self, name, PST_STEP_EXPERT_PRODUCT, rows, module);
    } else if (module->is_product) {
        put_product(self, name, PST_STEP_PRODUCT, module->rows, module);
    } else if (strcmp(name, "attention.core") == 0) {
        put_positions(self);
        put_core(self);
    } else if (strcmp(name, "expert.activation") == 0) {
        put_activation(self, name, expert_rows(step));
    } else if (strstr(name, "activation") != NULL) {
        put_activation(self, name, step->tokens);
    } else if (strcmp(name, "attention.qk_norm") == 0) {
        put_rows(self, name, module->rows, heads_norm_size(self, module), 2, 3);
    } else {
        put_norm(self, module);
    }
}

static void put_layer(list *self, const pst_estimate_modules *modules)
{
    for (uint32_t i = 0; i < modules->num_modules; i++) {
        const pst_estimate_module *module = &modules->modules[i];
        const bool is_last_expert = strcmp(module->name, "expert.fc2") == 0;
        if (strcmp(module->name, "expert.fc1") == 0)
            put_permutation(self, "dispatch.permute");
        put_module(self, module);
        if (strcmp(module->name, "router") == 0)
            put_router(self);
        if (is_last_expert)
            put_permutation(self, "combine.permute");
        if (strcmp(module->name, "attention.proj") == 0)
            put_residual(self, "attention.residual");
    }
    put_residual(self, "mlp.residual");
}

/* ---- around the layers ---- */

/* The gradient of the matrix is added at the rows of the tokens. */
static void put_embedding(list *self, const char *name, uint64_t times)
{
    const psti_step *step = self->step;
    const uint64_t words = PSTI_PRODUCT(times, step->tokens, step->run.hidden_size);
    put_memory(self, name,
               (moved){PSTI_PRODUCT(2, step->width, words), 0,
                       psti_times(psti_plus(step->width, psti_times(2, step->run.gradient_width)),
                                  words)});
}

/* Logits: fused the loss reads them twice and writes the gradient in their place; else they are
 * widened, and of the wide ones the largest is found and taken off, and what is raised is summed up and
 * divided by, each in a pass of its own; the backward takes the label off, scales and narrows. */
static void put_loss(list *self, uint64_t times)
{
    const psti_step *step = self->step;
    const pst_estimate_config *run = &step->run;
    const uint64_t logits =
        PSTI_PRODUCT(times, step->tokens, run->padded_vocab_size / step->split.tensor);
    const bool is_fused = run->loss == PST_LOSS_FUSED;
    const uint64_t forward = is_fused ? psti_times(3, step->width) : psti_plus(step->width, 36);
    const uint64_t backward = is_fused ? 0 : psti_plus(step->width, 20);
    put_memory(self, "loss", (moved){psti_times(forward, logits), psti_times(backward, logits), 0});
}

static void put_last(list *self, const pst_estimate_module *module)
{
    const uint64_t depths = self->step->run.mtp_layers;
    pst_estimate_module output = *module;
    if (strcmp(module->name, "mtp.embedding") == 0) {
        put_embedding(self, module->name, depths);
    } else if (strcmp(module->name, "output") == 0) {
        output.count = 1 + depths;
        put_product(self, module->name, PST_STEP_PRODUCT, module->rows, &output);
        put_loss(self, 1 + depths);
    } else {
        self->is_all_again =
            self->step->run.recompute_layers != 0 && strncmp(module->name, "mtp", 3) == 0;
        put_module(self, module);
        self->is_all_again = false;
    }
}

static void put_ends(list *self, const pst_estimate_modules *modules)
{
    for (uint32_t i = 0; i < modules->num_modules; i++) {
        const pst_estimate_module *module = &modules->modules[i];
        const bool is_first = strcmp(module->name, "embedding") == 0;
        const bool is_positions = strcmp(module->name, "positions") == 0;
        if (is_first && self->part == PST_STEP_FIRST)
            put_embedding(self, module->name, 1);
        if (is_positions && self->part == PST_STEP_FIRST)
            put_rows(self, module->name, self->step->tokens, self->step->run.hidden_size, 3, 0);
        if (!is_first && !is_positions && self->part == PST_STEP_LAST)
            put_last(self, module);
    }
}

/* ---- sums ---- */

static pst_status add_up(pst_step_work *to)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < to->num_ops; i++) {
        const pst_step_op *op = &to->ops[i];
        to->forward_flops = psti_plus(to->forward_flops, op->forward.flops);
        to->backward_flops = PSTI_SUM(to->backward_flops, op->input.flops, op->weight.flops);
        to->again_flops = psti_plus(to->again_flops, op->is_again ? op->forward.flops : 0);
        bytes = PSTI_SUM(bytes, op->forward.bytes, op->input.bytes, op->weight.bytes);
    }
    PSTI_CHECK(PSTI_SUM(to->forward_flops, to->backward_flops, to->again_flops, bytes) !=
                   PSTI_TOO_MUCH,
               PST_E_INVALID, "run: FLOPs or bytes of a micro-batch exceed 64 bits");
    return PST_OK;
}

pst_status psti_step_work_of(const psti_step *step, pst_step_part part, pst_step_work *work_out)
{
    static const pst_estimate_part parts[] = {
        [PST_STEP_DENSE] = PST_ESTIMATE_DENSE,
        [PST_STEP_MOE] = PST_ESTIMATE_MOE,
        [PST_STEP_FIRST] = PST_ESTIMATE_OUTSIDE,
        [PST_STEP_LAST] = PST_ESTIMATE_OUTSIDE,
    };
    const bool is_layer = part == PST_STEP_DENSE || part == PST_STEP_MOE;
    list self = {.step = step, .part = part};
    pst_estimate_modules modules;
    self.is_all_again = is_layer && step->run.recompute_layers != 0;
    PSTI_TRY(pst_estimate_get_modules(&step->run, parts[part], &modules));
    if (is_layer)
        put_layer(&self, &modules);
    else
        put_ends(&self, &modules);
    PSTI_TRY(add_up(&self.to));
    *work_out = self.to;
    return PST_OK;
}

uint64_t psti_step_model_flops(const psti_step *step, pst_step_part part, const pst_step_work *work)
{
    const bool is_layer = part == PST_STEP_DENSE || part == PST_STEP_MOE;
    const heads of = heads_of(step);
    if (!is_layer || step->run.has_flash_attention)
        return work->forward_flops;
    return psti_minus(work->forward_flops,
                      psti_times(scores(step, &of), psti_plus(of.qk_size, of.v_size)));
}

pst_status pst_step_get_work_sized(const pst_step_config *config, pst_step_part part,
                                   pst_step_work *work_out, size_t work_bytes)
{
    psti_step step;
    pst_step_work of;
    PSTI_TRY(psti_step_open(config, false, &step));
    PSTI_CHECK(work_out, PST_E_INVALID, "work_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_step_work, work_bytes));
    PSTI_TRY(psti_step_check_part(part));
    PSTI_TRY(psti_step_work_of(&step, part, &of));
    memcpy(work_out, &of, work_bytes);
    return PST_OK;
}
