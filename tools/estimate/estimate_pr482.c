/* The numbers of the analyzer of 2023, its mistakes included. */
#include "tools/estimate/estimate.h"
#include "tools/estimate/estimate_compat.h"
#include "tools/estimate/estimate_out.h"

#include <inttypes.h>

typedef pr482_wide wide;

#define TOO_MUCH (~(wide)0)

/* ---- arithmetic: what is too much becomes TOO_MUCH, and stays it ---- */

static wide sum_of(const wide *terms, size_t num_terms)
{
    wide sum = 0;
    for (size_t i = 0; i < num_terms; i++)
        if (__builtin_add_overflow(sum, terms[i], &sum))
            return TOO_MUCH;
    return sum;
}

static wide product_of(const wide *factors, size_t num_factors)
{
    wide product = 1;
    for (size_t i = 0; i < num_factors; i++)
        if (factors[i] == TOO_MUCH || __builtin_mul_overflow(product, factors[i], &product))
            return TOO_MUCH;
    return product;
}

#define LIST(...) (const wide[]){__VA_ARGS__}, sizeof((const wide[]){__VA_ARGS__}) / sizeof(wide)
#define SUM(...) sum_of(LIST(__VA_ARGS__))
#define PRODUCT(...) product_of(LIST(__VA_ARGS__))

/* ---- element widths ---- */

static uint64_t width_of(const pst_estimate_config *config)
{
    return config->type == PST_TRAIN_FP32 ? 4 : 2;
}

/* What a parameter takes, in elements: gradient, optimizer; and the start-up candidate of the peak
 * as a + c / d. */
typedef struct element_widths {
    uint64_t gradient, optimizer;
    uint64_t start, start_shared;
    uint64_t logit_halves; /* bf16: of the peak, in half elements */
} element_widths;

static element_widths widths_of(const estimate_options *options)
{
    switch (options->config.type) {
    case PST_TRAIN_FP16:
        return (element_widths){1, 8, 4, 2, 4};
    case PST_TRAIN_FP32:
        return (element_widths){1, 2, 3, 1, 4};
    default:
        return (element_widths){2, 6, 5, 2, options->pr482_logit_bytes == 9 ? 9 : 10};
    }
}

/* ---- what it could not express ---- */

typedef struct limit {
    bool is_kept;
    const char *flag;
    uint64_t value;
    uint64_t allowed;
} limit;

static int check_limits(const limit *limits, size_t num_limits)
{
    for (size_t i = 0; i < num_limits; i++)
        if (!limits[i].is_kept)
            return tool_fail(TOOL_USAGE,
                             "--compat pr482: cannot express --%s %" PRIu64 ": allowed is %" PRIu64,
                             limits[i].flag, limits[i].value, limits[i].allowed);
    return TOOL_OK;
}

/* 8/3 of the hidden size, down to a multiple of 64: it computed that, whatever the flag said. */
static uint64_t ffn_of(uint64_t hidden)
{
    const wide width = PRODUCT(hidden, 8) / 3 / 64 * 64;
    return width > UINT64_MAX ? UINT64_MAX : (uint64_t)width;
}

static int check_sizes(const pst_estimate_config *config)
{
    const uint64_t heads = config->num_heads;
    const uint64_t kv_heads = config->num_kv_heads ? config->num_kv_heads : heads;
    const uint64_t size = config->hidden_size / heads;
    const uint64_t ffn = ffn_of(config->hidden_size);
    const limit limits[] = {
        {config->num_experts == 0, "num-experts", config->num_experts, 0},
        {config->kv_rank == 0, "kv-lora-rank", config->kv_rank, 0},
        {config->mtp_layers == 0, "mtp-num-layers", config->mtp_layers, 0},
        {kv_heads == heads, "num-query-groups", kv_heads, heads},
        {(config->head_size == 0 || config->head_size == size) &&
             size * heads == config->hidden_size,
         "kv-channels", config->head_size ? config->head_size : size, size},
        {config->ffn_size == ffn, "ffn-hidden-size", config->ffn_size, ffn},
        {config->context_parallel <= 1, "context-parallel-size", config->context_parallel, 1},
        {config->virtual_stages <= 1, "num-virtual-stages-per-pipeline-rank",
         config->virtual_stages, 1},
        {config->recompute_layers == 0, "recompute-num-layers", config->recompute_layers, 0},
    };
    return check_limits(limits, sizeof(limits) / sizeof(limits[0]));
}

typedef struct demand {
    bool is_met;
    const char *text;
} demand;

static bool is_zero_or(uint64_t given, uint64_t allowed)
{
    return given == 0 || given == allowed;
}

static int check_demands(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    const element_widths widths = widths_of(options);
    const uint64_t width = width_of(config);
    const bool has_widths = is_zero_or(config->gradient_width, widths.gradient * width) &&
                            is_zero_or(config->optimizer_width, widths.optimizer * width);
    const demand demands[] = {
        {config->is_gated, "--swiglu must be given"},
        {config->has_flash_attention, "--use-flash-attn must be given"},
        {config->distributed_optimizer, "--use-distributed-optimizer must be given"},
        {!config->sequence_parallel, "cannot express --sequence-parallel"},
        {config->norm == PST_NORM_LAYER, "cannot express --normalization RMSNorm"},
        {config->qk_norm == PST_QK_NORM_NONE, "cannot express --qk-layernorm"},
        {config->has_linear_bias, "cannot express --disable-bias-linear"},
        {config->is_tied, "cannot express --untie-embeddings-and-output-weights"},
        {config->max_positions != 0, "cannot express --position-embedding-type other than "
                                     "learned_absolute"},
        {config->has_hidden_dropout, "cannot express --hidden-dropout 0"},
        {config->loss != PST_LOSS_FUSED, "cannot express --cross-entropy-loss-fusion"},
        {(config->recompute & ~PST_RECOMPUTE_GATHER) == 0, "cannot express recomputation"},
        {!config->saves_inputs_fp8, "cannot express --activation-func-fp8-input-store"},
        {has_widths, "cannot express other widths of gradients or optimizer states"},
        {config->offload_num == 0, "cannot express --optimizer-cpu-offload"},
        {config->chunk_layers == NULL, "cannot express an uneven layout of the pipeline"},
    };
    for (size_t i = 0; i < sizeof(demands) / sizeof(demands[0]); i++)
        if (!demands[i].is_met)
            return tool_fail(TOOL_USAGE, "--compat pr482: %s", demands[i].text);
    return TOOL_OK;
}

/* ---- its formulas; x bytes to an element ---- */

static void put(pr482_report *report, pr482_name name, wide num, uint64_t den)
{
    report->values[name] = (pr482_value){num, den};
}

static void put_full(pr482_report *r, uint64_t x, const element_widths *k)
{
    const wide h = r->h, f = r->f;
    const wide layer = SUM(PRODUCT(4, h, h), PRODUCT(3, f, h), PRODUCT(7, h), PRODUCT(2, f));
    const wide count = SUM(PRODUCT(r->v, h), PRODUCT(r->s, h), PRODUCT(r->n, layer));
    const wide sbh = PRODUCT(r->s, r->b, h);
    const wide sbf = PRODUCT(r->s, r->b, f);
    const wide saved2 = SUM(PRODUCT(2, r->n, SUM(PRODUCT(10, sbh), PRODUCT(4, sbf))),
                            PRODUCT(3, sbh), PRODUCT(9, r->s, r->b, r->v));
    put(r, PR482_COUNT, count, 1);
    put(r, PR482_WEIGHTS, PRODUCT(x, count), 1);
    put(r, PR482_GRADIENTS, PRODUCT(x, k->gradient, count), 1);
    put(r, PR482_OPTIMIZER, PRODUCT(x, k->optimizer, count), 1);
    put(r, PR482_SAVED, PRODUCT(x, saved2), 2);
    put(r, PR482_TOTAL, PRODUCT(x, SUM(PRODUCT(2, 1 + k->gradient + k->optimizer, count), saved2)),
        2);
}

/* Parameters of a GPU, times t. */
static wide gpu_count(const pr482_report *r)
{
    const wide h = r->h, f = r->f, t = r->t;
    const wide whole = SUM(PRODUCT(7, h), PRODUCT(2, f));
    const wide layer = SUM(PRODUCT(4, h, h), PRODUCT(3, f, h), PRODUCT(t, whole));
    return SUM(PRODUCT(r->v, h), PRODUCT(t, r->s, h), PRODUCT(r->l, layer));
}

static void put_gpu(pr482_report *r, uint64_t x, const element_widths *k)
{
    const uint64_t t = r->t, d = r->d;
    const wide count = gpu_count(r);
    const wide sbh = PRODUCT(r->s, r->b, r->h);
    const wide part = SUM(PRODUCT(5, sbh), PRODUCT(4, r->s, r->b, r->f));
    const wide layer = SUM(part, PRODUCT(5, t, sbh));
    const wide saved2 = PRODUCT(r->p, SUM(PRODUCT(2, r->l, layer), PRODUCT(3, t, sbh)));
    const wide logits2 = r->p == 1 ? PRODUCT(k->logit_halves, r->s, r->b, r->v) : 0;
    const wide start = PRODUCT(2, x, count, SUM(PRODUCT(k->start, d), k->start_shared));
    const wide states = PRODUCT(count, SUM(PRODUCT(1 + k->gradient, d), k->optimizer));
    const wide run = PRODUCT(x, SUM(PRODUCT(2, states), PRODUCT(d, SUM(saved2, logits2))));
    put(r, PR482_GPU_COUNT, count, t);
    put(r, PR482_GPU_WEIGHTS, PRODUCT(x, count), t);
    put(r, PR482_GPU_GRADIENTS, PRODUCT(x, k->gradient, count), t);
    put(r, PR482_GPU_OPTIMIZER, PRODUCT(x, k->optimizer, count), t * d);
    put(r, PR482_GPU_SAVED, PRODUCT(x, saved2), 2 * t);
    put(r, PR482_GPU_PEAK, start > run ? start : run, 2 * t * d);
}

static void put_layer(pr482_report *r, uint64_t x)
{
    const wide h = r->h, f = r->f;
    const wide sbh = PRODUCT(x, r->s, r->b, h);
    const wide sbf = PRODUCT(x, r->s, r->b, f);
    const wide up = PRODUCT(2, x, f, SUM(h, 1));
    put(r, PR482_EMBEDDING, PRODUCT(3, sbh), 2);
    put(r, PR482_LAYER, SUM(PRODUCT(10, sbh), PRODUCT(4, sbf)), 1);
    put(r, PR482_HIDDEN, sbh, 1);
    put(r, PR482_ATTENTION, PRODUCT(6, sbh), 1);
    put(r, PR482_QKV, PRODUCT(3, sbh), 1);
    put(r, PR482_MLP, SUM(sbh, PRODUCT(4, sbf)), 1);
    put(r, PR482_GLUE, PRODUCT(4, sbf), 1);
    put(r, PR482_DROP, PRODUCT(3, sbh), 2);
    put(r, PR482_QKV_PART, PRODUCT(3, sbh), r->t);
    put(r, PR482_HIDDEN_PART, sbh, r->t);
    put(r, PR482_WORDS, PRODUCT(x, r->v, h), 1);
    put(r, PR482_POSITIONS, PRODUCT(x, r->s, h), 1);
    put(r, PR482_NORM_IN, PRODUCT(x, SUM(h, r->b)), 1);
    put(r, PR482_NORM_MLP, PRODUCT(x, 2, h), 1);
    put(r, PR482_W_QKV, PRODUCT(x, h, SUM(PRODUCT(3, h), 1)), 1);
    put(r, PR482_W_DENSE, PRODUCT(x, h, SUM(h, 1)), 1);
    put(r, PR482_W_UP, up, 1);
    put(r, PR482_W_DOWN, PRODUCT(x, h, SUM(f, 1)), 1);
    put(r, PR482_W_QKV_PART, PRODUCT(x, h, SUM(PRODUCT(3, h), r->t)), r->t);
    put(r, PR482_W_DENSE_PART, PRODUCT(x, h, SUM(h, r->t)), r->t);
    put(r, PR482_W_UP_PART, up, r->t);
}

static void put_transfers(pr482_report *r, pr482_name count, pr482_name bytes, wide number)
{
    put(r, count, number, 1);
    put(r, bytes, PRODUCT(number, r->values[PR482_HIDDEN].num), 1);
}

static void put_traffic(pr482_report *r, uint64_t x, bool is_bf16)
{
    const wide sends = PRODUCT(4, r->m), layers = PRODUCT(4, r->l);
    const wide all = PRODUCT(r->world, layers, r->m);
    const wide whole_sends = r->p == 1 ? 0 : PRODUCT(r->world, sends);
    const wide whole_all = r->t == 1 ? 0 : all;
    const wide data = PRODUCT(is_bf16 ? 4 : 2, x, gpu_count(r));
    put_transfers(r, PR482_PP_COUNT, PR482_PP_BYTES, sends);
    put_transfers(r, PR482_PP_ALL_COUNT, PR482_PP_ALL_BYTES, whole_sends);
    put(r, PR482_TP_LAYER_BYTES, PRODUCT(4, r->values[PR482_HIDDEN].num), 1);
    put_transfers(r, PR482_TP_MICRO_COUNT, PR482_TP_MICRO_BYTES, layers);
    put_transfers(r, PR482_TP_COUNT, PR482_TP_BYTES, PRODUCT(layers, r->m));
    put_transfers(r, PR482_TP_ALL_MICRO_COUNT, PR482_TP_ALL_MICRO_BYTES, PRODUCT(r->world, layers));
    put_transfers(r, PR482_TP_ALL_COUNT, PR482_TP_ALL_BYTES, whole_all);
    put(r, PR482_DP_COUNT, r->d == 1 ? 0 : 2, 1);
    put(r, PR482_DP_HALF_BYTES, data, 2 * r->t);
    put(r, PR482_DP_BYTES, data, r->t); /* also where d is 1 */
    put(r, PR482_SUM_COUNT, SUM(whole_sends, whole_all, r->values[PR482_DP_COUNT].num), 1);
    put(r, PR482_SUM_BYTES,
        SUM(data, PRODUCT(r->t, r->values[PR482_PP_ALL_BYTES].num),
            PRODUCT(r->t, r->values[PR482_TP_ALL_BYTES].num)),
        r->t);
}

/* ---- */

static pst_status fill(const estimate_options *options, pr482_report *r)
{
    const pst_estimate_config *c = &options->config;
    pst_estimate_params params;
    TOOL_TRY(pst_estimate_get_params(c, &params));
    *r = (pr482_report){.h = c->hidden_size,
                        .s = c->sequence_size,
                        .b = c->micro_batch ? c->micro_batch : 1,
                        .n = c->num_layers,
                        .f = ffn_of(c->hidden_size),
                        .v = params.padded_vocab,
                        .t = c->tensor_parallel ? c->tensor_parallel : 1,
                        .p = c->pipeline_parallel ? c->pipeline_parallel : 1,
                        .world = c->world_size ? c->world_size : 1,
                        .gpus_per_node = options->gpus_per_node ? options->gpus_per_node : 8};
    r->d = r->world / r->p / r->t;
    r->m = c->global_batch / r->b / r->d;
    r->l = r->n / r->p;
    return PST_OK;
}

/* With digits behind the point to be printed, all stay within 128 bits, and counts within 64. */
static bool is_too_much(const pr482_report *report)
{
    for (int name = PR482_NONE + 1; name < PR482_NUM_VALUES; name++) {
        const pr482_value *value = &report->values[name];
        if (value->num >= TOO_MUCH / 1000 || value->num / value->den > UINT64_MAX)
            return true;
    }
    return false;
}

int estimate_pr482(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    const bool is_bf16 = config->type == PST_TRAIN_BF16;
    TOOL_PST(pst_estimate_check(config));
    TOOL_TRY(check_sizes(config));
    TOOL_TRY(check_demands(options));
    if (options->pr482_logit_bytes == 9 && !is_bf16)
        return tool_fail(TOOL_USAGE, "--compat-logit-bytes 9: belongs to --bf16");
    pr482_report report = {.h = 0};
    TOOL_PST(fill(options, &report));
    const uint64_t width = width_of(config);
    const element_widths widths = widths_of(options);
    put_full(&report, width, &widths);
    put_gpu(&report, width, &widths);
    put_layer(&report, width);
    put_traffic(&report, width, is_bf16);
    if (is_too_much(&report))
        return tool_fail(TOOL_USAGE, "--compat pr482: a number exceeds 64 bits");
    estimate_warn_unmodelled(options);
    pr482_print(&report);
    return TOOL_OK;
}
