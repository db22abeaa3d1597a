/* --compat pr482: the report of the analyzer that was pull request 482 of Megatron-LM (2023), its
 * mistakes included. Its text and formulas stand in estimate_pr482.txt; this fills them in. */
#include "host/base/arith.h"
#include "tools/estimate/estimate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate_pr482.h" /* made by CMake of estimate_pr482.txt */

/* Bytes of an element, then elements for a parameter: its gradient, its optimizer's states; start +
 * shared / d of them in the peak at the start; and what replicas exchange in an iteration. */
static const struct type_sizes {
    uint64_t x, gradient, optimizer, start, shared, volumes;
} types[] = {[PST_TRAIN_BF16] = {2, 2, 6, 5, 2, 4},
             [PST_TRAIN_FP16] = {2, 1, 8, 4, 2, 2},
             [PST_TRAIN_FP32] = {4, 1, 2, 3, 1, 2}};

/* ---- what it could not express ---- */

/* 8/3 of the hidden size, down to a multiple of 64: it computed that, whatever the flag said. */
static uint64_t ffn_of(uint64_t hidden)
{
    return (uint64_t)((psti_wide)hidden * 8 / 3 / 64 * 64);
}

static int check(const pst_estimate_config *c)
{
    const uint64_t heads = c->num_heads, head = c->hidden_size / heads;
    const uint64_t gradient = types[c->type].x * types[c->type].gradient;
    const uint64_t optimizer = types[c->type].x * types[c->type].optimizer;
    const struct {
        uint64_t given, allowed;
        const char *what; /* a flag, or a sentence */
    } limits[] = {
        {c->num_experts, 0, "num-experts"},
        {c->kv_rank, 0, "kv-lora-rank"},
        {c->mtp_layers, 0, "mtp-num-layers"},
        {c->num_kv_heads, heads, "num-query-groups"},
        {c->head_size, head, "kv-channels"},
        {c->ffn_size, ffn_of(c->hidden_size), "ffn-hidden-size"},
        {c->context_parallel, 1, "context-parallel-size"},
        {c->virtual_stages, 1, "num-virtual-stages-per-pipeline-rank"},
        {c->recompute_layers, 0, "recompute-num-layers"},
        {c->hidden_size % heads, 0, "the heads must divide the hidden size"},
        {c->is_gated, true, "--swiglu must be given"},
        {c->has_flash_attention, true, "--use-flash-attn must be given"},
        {c->distributed_optimizer, true, "--use-distributed-optimizer must be given"},
        {c->sequence_parallel, false, "cannot express --sequence-parallel"},
        {c->norm, PST_NORM_LAYER, "cannot express --normalization RMSNorm"},
        {c->qk_norm, PST_QK_NORM_NONE, "cannot express --qk-layernorm"},
        {c->has_linear_bias, true, "cannot express --disable-bias-linear"},
        {c->is_tied, true, "cannot express --untie-embeddings-and-output-weights"},
        {c->max_positions == 0, false,
         "cannot express --position-embedding-type other than learned_absolute"},
        {c->has_hidden_dropout, true, "cannot express --hidden-dropout 0"},
        {c->loss == PST_LOSS_FUSED, false, "cannot express --cross-entropy-loss-fusion"},
        {c->recompute & ~PST_RECOMPUTE_GATHER, 0, "cannot express recomputation"},
        {c->saves_inputs_fp8, false, "cannot express --activation-func-fp8-input-store"},
        {c->gradient_width == gradient && c->optimizer_width == optimizer, true,
         "cannot express other widths of gradients or optimizer states"},
        {c->offload_num, 0, "cannot express --optimizer-cpu-offload"},
        {c->chunk_layers != NULL, false, "cannot express an uneven layout of the pipeline"},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i].given == limits[i].allowed)
            continue;
        if (strchr(limits[i].what, ' ') != NULL)
            return tool_fail(TOOL_USAGE, "--compat pr482: %s", limits[i].what);
        return tool_fail(TOOL_USAGE,
                         "--compat pr482: cannot express --%s %" PRIu64 ": allowed is %" PRIu64,
                         limits[i].what, limits[i].given, limits[i].allowed);
    }
    return TOOL_OK;
}

/* ---- its formulas ---- */

typedef struct named {
    const char *name; /* ends with a space */
    psti_wide number;
} named;

typedef struct writer {
    named names[48]; /* the first is `rank`: the set's GPUs are rank, rank + stride, ... */
    size_t num_names;
    uint64_t gpus_per_node, stride, size;
    const char *at;    /* in the text */
    bool is_silent;    /* works out the numbers only */
    bool has_too_much; /* above 128 bits with the digits to print, or 64 without */
    int columns;       /* of the cell so far */
} writer;

static bool take(writer *self, char c)
{
    const bool is_there = *self->at == c;
    self->at += is_there;
    return is_there;
}

static psti_wide read_sum(writer *self);

/* A name, a number, or what stands in brackets. */
static psti_wide read_factor(writer *self)
{
    if (take(self, '(')) {
        const psti_wide sum = read_sum(self);
        take(self, ')');
        return sum;
    }
    const char *text = self->at;
    const size_t length = strcspn(text, "*+|/():,} \n");
    self->at += length;
    for (size_t i = 0; i < self->num_names; i++) {
        const char *name = self->names[i].name;
        if (strncmp(name, text, length) == 0 && name[length] == ' ')
            return self->names[i].number;
    }
    return strtoull(text, NULL, 10);
}

static psti_wide read_product(writer *self)
{
    psti_wide product = read_factor(self);
    while (take(self, '*'))
        self->has_too_much |= __builtin_mul_overflow(product, read_factor(self), &product);
    return product;
}

/* a|b is the larger one. */
static psti_wide read_sum(writer *self)
{
    psti_wide sum = read_product(self);
    while (*self->at == '+' || *self->at == '|') {
        const bool adds = *self->at++ == '+';
        const psti_wide next = read_product(self);
        if (adds)
            self->has_too_much |= __builtin_add_overflow(sum, next, &sum);
        else
            sum = next > sum ? next : sum;
    }
    return sum;
}

/* ---- its text ---- */

static void put(writer *self, const char *text, size_t length)
{
    if (!self->is_silent)
        fwrite(text, 1, length, stdout);
    for (size_t i = 0; i < length; i++) /* its letters may take several bytes */
        self->columns += ((unsigned char)text[i] & 0xC0) != 0x80;
}

/* A number in braces. A size is rounded to one or two digits behind the point, a tie to the even
 * one; a second digit that is 0 goes. */
static void put_number(writer *self)
{
    char text[48], point[8];
    const psti_wide num = read_sum(self), den = take(self, '/') ? read_factor(self) : 1;
    const char form = take(self, ':') ? *self->at : ' ';
    const int digits = form == 'g' ? 2 : form == 'G' || form == 'M' ? 1 : 0;
    const unsigned scale = digits == 2 ? 100 : digits == 1 ? 10 : 1;
    const psti_wide unit = den << (digits == 0 ? 0 : form == 'M' ? 20 : 30);
    const psti_wide down = num * scale / unit, twice = num * scale % unit * 2;
    const psti_wide whole =
        down + (digits > 0 && (twice > unit || (twice == unit && down % 2 != 0)));
    int length = snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)(whole / scale));
    for (int i = 0; i < length; i++) {
        put(self, ",", form == ',' && i > 0 && (length - i) % 3 == 0);
        put(self, &text[i], 1);
    }
    length = snprintf(point, sizeof(point), ".%0*u", digits, (unsigned)(whole % scale));
    put(self, point, digits == 0 ? 0 : (size_t)length - (digits == 2 && point[2] == '0'));
    self->has_too_much |= num >= ~(psti_wide)0 / 1000 || num / den > UINT64_MAX;
    self->at += strcspn(self->at, "}") + 1;
}

/* As nodes and their GPUs. */
static void put_ranks(writer *self)
{
    uint64_t rank = (uint64_t)self->names[0].number;
    for (uint64_t i = 0; i < self->size; i++, rank += self->stride)
        printf("%sn%" PRIu64 "_g%" PRIu64, i > 0 ? " " : "[", rank / self->gpus_per_node,
               rank % self->gpus_per_node);
    putchar(']');
}

static void put_line(writer *self, const char *text)
{
    self->columns = 0;
    self->at = text;
    while (*self->at != '\n') {
        const size_t length = strcspn(self->at, "{@\\\n");
        put(self, self->at, length);
        self->at += length;
        if (strncmp(self->at, "{ranks}", 7) == 0) {
            put_ranks(self);
            self->at += 7;
        } else if (take(self, '{')) {
            put_number(self);
        } else if (take(self, '@')) {
            char *end;
            for (const long wanted = strtol(self->at, &end, 10); self->columns < wanted;)
                put(self, " ", 1);
            self->columns = 0;
            self->at = end;
        } else if (take(self, '\\')) {
            put(self, *self->at == 't' ? "\t" : *self->at == 's' ? " " : "\n", 1);
            self->columns = 0;
            self->at++;
        }
    }
    put(self, "\n", 1);
}

static uint64_t read_number(writer *self)
{
    const psti_wide number = read_sum(self);
    self->at++;
    return (uint64_t)number;
}

/* FROM,END,STRIDE,SIZE LINE: of each set of GPUs the first is one of FROM to END. */
static void put_sets(writer *self)
{
    const uint64_t from = read_number(self), end = read_number(self);
    self->stride = read_number(self);
    self->size = read_number(self);
    const char *text = self->at;
    for (uint64_t rank = from; rank < end; rank++) {
        self->names[0].number = rank;
        if (rank / self->stride % self->size == 0)
            put_line(self, text);
    }
}

/* CONDITION COLUMNS TITLE: a part of the report begins. False if the condition's number is 1. */
static bool put_title(writer *self)
{
    const bool is_shown = read_number(self) != 1;
    uint64_t columns = read_number(self);
    if (is_shown && !self->is_silent) {
        printf("\n***%.*s***\n", (int)strcspn(self->at, "\n"), self->at);
        while (columns-- > 0)
            putchar('=');
        putchar('\n');
    }
    return is_shown;
}

static void put_text(writer *self)
{
    bool is_shown = true;
    for (const char *line = estimate_pr482_txt; *line != '\0'; line = strchr(line, '\n') + 1) {
        self->at = line + strcspn(line, " \n") + 1;
        if (strncmp(line, "%let ", 5) == 0 && self->is_silent) {
            named *made = &self->names[self->num_names];
            made->name = self->at;
            self->at = strchr(self->at, ' ') + 1;
            made->number = read_sum(self);
            self->num_names++;
        } else if (strncmp(line, "%part ", 6) == 0) {
            is_shown = put_title(self);
        } else if (strncmp(line, "%each ", 6) == 0 && is_shown && !self->is_silent) {
            put_sets(self);
        } else if (*line != '#' && *line != '%' && (is_shown || self->is_silent)) {
            put_line(self, line);
        }
    }
}

static void set_names(writer *self, const estimate_options *options, uint64_t padded_vocab)
{
    const pst_estimate_config *c = &options->config;
    const struct type_sizes *k = &types[c->type];
    const uint64_t t = c->tensor_parallel, p = c->pipeline_parallel, world = c->world_size;
    const uint64_t d = world / p / t, b = c->micro_batch, l = c->num_layers / p;
    const uint64_t logit = c->type == PST_TRAIN_BF16 ? options->pr482_logit_bytes : 4; /* halves */
    const named names[] = {
        {"rank ", 0},
        {"h ", c->hidden_size},
        {"s ", c->sequence_size},
        {"v ", padded_vocab},
        {"n ", c->num_layers},
        {"b ", b},
        {"m ", c->global_batch / b / d},
        {"f ", ffn_of(c->hidden_size)},
        {"l ", l},
        {"last ", l - 1},
        {"t ", t},
        {"p ", p},
        {"d ", d},
        {"has_t ", t > 1},
        {"has_p ", p > 1},
        {"has_d ", d > 1},
        {"world ", world},
        {"stage ", world / p},
        {"logit ", p == 1 ? logit : 0},
        {"x ", k->x},
        {"gradient ", k->gradient},
        {"optimizer ", k->optimizer},
        {"start ", k->start},
        {"shared ", k->shared},
        {"volumes ", k->volumes},
    };
    self->num_names = sizeof(names) / sizeof(names[0]);
    memcpy(self->names, names, sizeof(names));
}

int estimate_pr482(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    writer self = {.gpus_per_node = options->gpus_per_node, .is_silent = true};
    pst_estimate_params params;
    ESTIMATE_TRY(options, pst_estimate_check(config));
    TOOL_TRY(check(config));
    if (options->pr482_logit_bytes == 9 && config->type != PST_TRAIN_BF16)
        return tool_fail(TOOL_USAGE, "--compat-logit-bytes 9: belongs to --bf16");
    ESTIMATE_TRY(options, pst_estimate_get_params(config, &params));
    set_names(&self, options, params.padded_vocab);
    put_text(&self);
    if (self.has_too_much)
        return estimate_refuse_largest(options, 0, "--compat pr482: a number exceeds 64 bits");
    estimate_warn(options->unmodelled, "not counted: ");
    self.is_silent = false;
    put_text(&self);
    return TOOL_OK;
}
