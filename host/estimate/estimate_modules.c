/* The pieces of a layer and of what stands around the layers: weights, products, what is saved. */
#include "host/base/structs.h"
#include "host/estimate/estimate.h"

#include <string.h>

/* One piece, divided in one way. */
typedef struct piece {
    const char *name;
    uint64_t rows, outputs, inputs, count, params;
    bool is_product;
} piece;

typedef struct list {
    const pst_estimate_config *config;
    psti_split split;
    uint64_t tokens; /* of the tensor parallel group */
    uint64_t local;  /* of one GPU, between the blocks */
    uint32_t num_pieces;
    piece pieces[PST_ESTIMATE_MAX_MODULES];
} list;

static void put(list *self, piece of)
{
    self->pieces[self->num_pieces++] = of;
}

static void put_plain(list *self, const char *name, uint64_t rows)
{
    put(self, (piece){.name = name, .rows = rows, .count = 1});
}

/* outputs x inputs, and so many words of a bias. */
static void put_product(list *self, const char *name, uint64_t rows, uint64_t outputs,
                        uint64_t inputs, uint64_t bias)
{
    put(self, (piece){.name = name,
                      .rows = rows,
                      .outputs = outputs,
                      .inputs = inputs,
                      .count = 1,
                      .params = psti_plus(psti_times(outputs, inputs), bias),
                      .is_product = true});
}

static void put_norm(list *self, const char *name, uint64_t rows, uint64_t size, uint64_t count)
{
    put(self, (piece){.name = name,
                      .rows = rows,
                      .outputs = size,
                      .count = count,
                      .params = PSTI_PRODUCT(count, psti_norm_words(self->config), size)});
}

/* ---- a layer ---- */

static void put_grouped_qkv(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t q = psti_times(config->num_heads, config->head_size);
    const uint64_t kv = psti_times(config->num_kv_heads, config->head_size);
    const uint64_t own = psti_div_down(PSTI_SUM(q, kv, kv), self->split.tensor);
    put_product(self, "attention.qkv", self->tokens, own, config->hidden_size,
                config->has_linear_bias || config->has_qkv_bias ? own : 0);
    if (config->qk_norm == PST_QK_NORM_HEAD)
        put_norm(self, "attention.qk_norm", self->tokens, config->head_size, 2);
    if (config->qk_norm == PST_QK_NORM_PROJECTION)
        put_norm(self, "attention.qk_norm", self->tokens, psti_plus(q, kv), 1);
}

static void put_latent_qkv(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t heads = config->num_heads / self->split.tensor;
    const uint64_t q = psti_times(heads, psti_plus(config->qk_size, config->qk_position_size));
    if (config->q_rank != 0) {
        put_product(self, "attention.q_down", self->local, config->q_rank, config->hidden_size, 0);
        put_norm(self, "attention.q_norm", self->local, config->q_rank, 1);
    }
    put_product(self, "attention.q_up", self->tokens, q,
                config->q_rank ? config->q_rank : config->hidden_size, 0);
    put_product(self, "attention.kv_down", self->local,
                psti_plus(config->kv_rank, config->qk_position_size), config->hidden_size, 0);
    put_norm(self, "attention.kv_norm", self->local, config->kv_rank, 1);
    put_product(self, "attention.kv_up", self->tokens,
                psti_times(heads, psti_plus(config->qk_size, config->v_size)), config->kv_rank, 0);
}

static void put_attention(list *self)
{
    const pst_estimate_config *config = self->config;
    const uint64_t h = config->hidden_size;
    const uint64_t size = config->kv_rank ? config->v_size : config->head_size;
    put_norm(self, "norm1", self->local, h, 1);
    if (config->kv_rank)
        put_latent_qkv(self);
    else
        put_grouped_qkv(self);
    put_plain(self, "attention.core", self->tokens);
    put_product(self, "attention.proj", self->tokens, h,
                psti_times(config->num_heads / self->split.tensor, size),
                config->has_linear_bias ? h : 0);
    put_norm(self, "norm2", self->local, h, 1);
}

/* Matrices of a block that take its input: one, or two where it is gated. */
static uint64_t columns(const list *self, uint64_t ffn_size)
{
    return psti_times(self->config->is_gated ? 2 : 1, ffn_size);
}

typedef struct names {
    const char *fc1, *activation, *fc2;
} names;

static void put_block(list *self, names of, uint64_t ffn_size, bool has_bias)
{
    const uint64_t h = self->config->hidden_size;
    const uint64_t own = ffn_size / self->split.tensor;
    const uint64_t wide = columns(self, own);
    put_product(self, of.fc1, self->tokens, wide, h, has_bias ? wide : 0);
    put_plain(self, of.activation, self->tokens);
    put_product(self, of.fc2, self->tokens, h, own, has_bias ? h : 0);
}

/* With a bias where other matrices have one. */
static void put_expert(list *self, const char *name, uint64_t outputs, uint64_t inputs)
{
    const pst_estimate_config *config = self->config;
    const uint64_t count = config->num_experts / self->split.experts;
    const uint64_t rows = psti_moe_rows(config, &self->split, PST_MOE_BALANCED);
    const uint64_t bias = config->has_linear_bias ? outputs : 0;
    put(self, (piece){.name = name,
                      .rows = psti_div_up(rows, count),
                      .outputs = outputs,
                      .inputs = inputs,
                      .count = count,
                      .params = psti_times(count, psti_plus(psti_times(outputs, inputs), bias)),
                      .is_product = outputs != 0});
}

static void put_moe(list *self)
{
    const pst_estimate_config *config = self->config;
    const bool has_bias = config->has_linear_bias;
    const uint64_t h = config->hidden_size, latent = config->latent_size;
    const uint64_t size = psti_routed_size(config);
    const uint64_t own = config->expert_ffn_size / self->split.expert_tensor;
    put_product(self, "router", self->local, config->num_experts, h,
                has_bias ? config->num_experts : 0);
    if (latent != 0)
        put_product(self, "latent.down", self->local, latent, h, has_bias ? latent : 0);
    put_expert(self, "expert.fc1", columns(self, own), size);
    put_expert(self, "expert.activation", 0, 0);
    put_expert(self, "expert.fc2", size, own);
    if (latent != 0)
        put_product(self, "latent.up", self->local, h, latent, has_bias ? h : 0);
    if (config->shared_ffn_size != 0)
        put_block(self, (names){"shared.fc1", "shared.activation", "shared.fc2"},
                  config->shared_ffn_size, false);
    if (config->has_shared_gate)
        put_product(self, "shared.gate", self->local, 1, h, 0);
}

/* ---- around the layers ---- */

static void put_embedding(list *self, const char *name, uint64_t words, uint64_t params)
{
    put(self, (piece){.name = name,
                      .rows = self->tokens,
                      .outputs = words,
                      .inputs = self->config->hidden_size,
                      .count = 1,
                      .params = params});
}

/* Of all depths, without their layers. The embedding and its positions are a copy where they are on
 * another GPU than the first. */
static void put_mtp(list *self, uint64_t words, bool has_copy)
{
    const pst_estimate_config *config = self->config;
    const uint64_t h = config->hidden_size, depths = config->mtp_layers;
    const uint64_t own = h / self->split.tensor;
    if (depths == 0)
        return;
    put_embedding(self, "mtp.embedding", words,
                  has_copy ? psti_times(psti_plus(words, config->max_positions), h) : 0);
    put_norm(self, "mtp.norm", self->local, h, 3 * depths);
    put(self, (piece){.name = "mtp.proj",
                      .rows = self->tokens,
                      .outputs = own,
                      .inputs = psti_times(2, h),
                      .count = depths,
                      .params = PSTI_PRODUCT(depths, 2, h, own),
                      .is_product = true});
}

static void put_outside(list *self, bool is_whole)
{
    const pst_estimate_config *config = self->config;
    const uint64_t h = config->hidden_size;
    const uint64_t words =
        is_whole ? config->vocab_size : config->padded_vocab_size / self->split.tensor;
    const bool is_apart = !is_whole && config->pipeline_parallel > 1;
    const bool has_copy = is_apart && config->mtp_layers == 0;
    put_embedding(self, "embedding", words, psti_times(words, h));
    if (config->max_positions != 0)
        put_embedding(self, "positions", config->max_positions,
                      psti_times(config->max_positions, h));
    put_norm(self, "final_norm", self->local, h, 1);
    put_product(self, "output", self->tokens, words, h, 0);
    if (config->is_tied && !has_copy)
        self->pieces[self->num_pieces - 1].params = 0;
    put_mtp(self, words, is_apart);
}

static list list_of(const pst_estimate_config *config, psti_split split, pst_estimate_part part,
                    bool is_whole)
{
    list self = {.config = config, .split = split};
    self.tokens = psti_tokens(config, &split);
    self.local = psti_local_tokens(config, &split);
    if (part == PST_ESTIMATE_OUTSIDE) {
        put_outside(&self, is_whole);
        return self;
    }
    put_attention(&self);
    if (part == PST_ESTIMATE_MOE)
        put_moe(&self);
    else
        put_block(&self, (names){"mlp.fc1", "mlp.activation", "mlp.fc2"}, config->ffn_size,
                  config->has_linear_bias);
    return self;
}

static const psti_split undivided = {1, 1, 1, 1, false};

psti_words psti_layer_words(const pst_estimate_config *config, bool is_moe, bool is_whole)
{
    psti_words sum = {0, 0};
    if (is_moe && config->num_experts == 0)
        return sum;
    const list of = list_of(config, is_whole ? undivided : psti_split_of(config),
                            is_moe ? PST_ESTIMATE_MOE : PST_ESTIMATE_DENSE, is_whole);
    for (uint32_t i = 0; i < of.num_pieces; i++) {
        sum.all = psti_plus(sum.all, of.pieces[i].params);
        if (strncmp(of.pieces[i].name, "expert.", 7) == 0)
            sum.experts = psti_plus(sum.experts, of.pieces[i].params);
    }
    return sum;
}

uint64_t psti_outside_words(const pst_estimate_config *config, uint64_t stage)
{
    const list of = list_of(config, psti_split_of(config), PST_ESTIMATE_OUTSIDE, false);
    const uint64_t last = config->pipeline_parallel - 1;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < of.num_pieces; i++) {
        const char *name = of.pieces[i].name;
        const bool is_first = strcmp(name, "embedding") == 0 || strcmp(name, "positions") == 0;
        if (stage == (is_first ? 0 : last))
            sum = psti_plus(sum, of.pieces[i].params);
    }
    return sum;
}

/* ---- empty gradients ---- */

/* Shapes of weights that have one already: at most those of two kinds of layers. */
typedef struct shapes {
    uint32_t num;
    uint64_t outputs[2 * PST_ESTIMATE_MAX_MODULES], inputs[2 * PST_ESTIMATE_MAX_MODULES];
    uint64_t words;
} shapes;

/* Transformer Engine's: not the router, a shared expert's gate, the output matrix. */
static bool is_linear(const piece *of)
{
    static const char *const others[] = {"router", "shared.gate", "output"};
    bool is = of->is_product;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        is = is && strcmp(of->name, others[i]) != 0;
    return is;
}

static void add_shapes(shapes *self, const pst_estimate_config *config, pst_estimate_part part)
{
    const list of = list_of(config, psti_split_of(config), part, false);
    for (uint32_t i = 0; i < of.num_pieces; i++) {
        const piece *next = &of.pieces[i];
        bool is_new = is_linear(next);
        for (uint32_t j = 0; j < self->num; j++)
            is_new =
                is_new && (self->outputs[j] != next->outputs || self->inputs[j] != next->inputs);
        if (!is_new)
            continue;
        self->outputs[self->num] = next->outputs;
        self->inputs[self->num++] = next->inputs;
        self->words = psti_plus(self->words, psti_times(next->outputs, next->inputs));
    }
}

uint64_t psti_empty_gradients(const pst_estimate_config *config, const pst_estimate_states *states)
{
    shapes of = {0};
    if (!config->keeps_empty_gradients)
        return 0;
    if (states->num_layers > states->num_moe_layers)
        add_shapes(&of, config, PST_ESTIMATE_DENSE);
    if (states->num_moe_layers != 0)
        add_shapes(&of, config, PST_ESTIMATE_MOE);
    return psti_times(of.words, psti_element_bytes(config));
}

/* ---- weights in fp8 ---- */

static void add_linears(psti_linears *to, const pst_estimate_config *config, pst_estimate_part part,
                        uint64_t num)
{
    if (num == 0)
        return;
    const list of = list_of(config, psti_split_of(config), part, false);
    for (uint32_t i = 0; i < of.num_pieces; i++) {
        const piece *next = &of.pieces[i];
        if (!is_linear(next))
            continue;
        const bool is_expert = strncmp(next->name, "expert.", 7) == 0;
        const uint64_t times = psti_times(num, next->count);
        const uint64_t words = PSTI_PRODUCT(times, next->outputs, next->inputs);
        to->words = psti_plus(to->words, words);
        to->expert_words = psti_plus(to->expert_words, is_expert ? words : 0);
        const uint64_t bytes =
            psti_times(times, psti_fp8_weight_bytes(config, next->outputs, next->inputs));
        to->fp8_bytes = psti_plus(to->fp8_bytes, bytes);
        to->expert_fp8_bytes = psti_plus(to->expert_fp8_bytes, is_expert ? bytes : 0);
    }
}

psti_linears psti_layer_linears(const pst_estimate_config *config, bool is_moe)
{
    psti_linears of = {0};
    if (config->fp8 != PST_FP8_NONE)
        add_linears(&of, config, is_moe ? PST_ESTIMATE_MOE : PST_ESTIMATE_DENSE, 1);
    return of;
}

psti_linears psti_linears_of(const pst_estimate_config *config, uint64_t stage,
                             const pst_estimate_states *states)
{
    psti_linears of = {0};
    const bool is_last = stage == config->pipeline_parallel - 1;
    if (config->fp8 == PST_FP8_NONE)
        return of;
    add_linears(&of, config, PST_ESTIMATE_DENSE, states->num_layers - states->num_moe_layers);
    add_linears(&of, config, PST_ESTIMATE_MOE, states->num_moe_layers);
    add_linears(&of, config, PST_ESTIMATE_OUTSIDE, is_last ? 1 : 0);
    return of;
}

/* ---- what is saved ---- */

typedef struct place {
    const char *prefix;         /* of the tensor's name */
    const char *module, *other; /* the one of the two that the layer has */
} place;

/* A tensor belongs to the module that takes it, or that makes it and needs it again. The first
 * prefix counts. */
static const place places[] = {
    {"norm1.", "norm1", NULL},
    {"qkv.in", "attention.qkv", "attention.q_down"},
    {"qkv.in", "attention.q_up", NULL},
    {"qk_norm.", "attention.qk_norm", NULL},
    {"q_down.out", "attention.q_norm", NULL},
    {"q_norm.", "attention.q_norm", NULL},
    {"q_up.", "attention.q_up", NULL},
    {"kv_down.out", "attention.kv_norm", NULL},
    {"kv_norm.", "attention.kv_norm", NULL},
    {"kv_up.", "attention.kv_up", NULL},
    {"proj.", "attention.proj", NULL},
    {"norm2.", "norm2", NULL},
    {"fc1.in", "mlp.fc1", NULL},
    {"fc1.out", "mlp.activation", NULL},
    {"activation.", "mlp.activation", NULL},
    {"fc2.", "mlp.fc2", NULL},
    {"mlp.mask", "mlp.fc2", "expert.fc2"},
    {"moe.", "router", NULL},
    {"router.", "router", NULL},
    {"dispatch.", "router", NULL},
    {"expert.fc1.in", "expert.fc1", NULL},
    {"expert.fc2.", "expert.fc2", NULL},
    {"expert.", "expert.activation", NULL},
    {"latent.up.", "latent.up", NULL},
    {"shared.fc1.in", "shared.fc1", NULL},
    {"shared.fc2.", "shared.fc2", NULL},
    {"shared.gate", "shared.gate", NULL},
    {"shared.", "shared.activation", NULL},
    {"attention.", "attention.core", NULL},
    {"softmax.", "attention.core", NULL},
    {"q", "attention.core", NULL},
    {"k", "attention.core", NULL},
    {"v", "attention.core", NULL},
};

static pst_estimate_module *find(pst_estimate_modules *modules, const char *name)
{
    for (uint32_t i = 0; i < modules->num_modules && name != NULL; i++)
        if (strcmp(modules->modules[i].name, name) == 0)
            return &modules->modules[i];
    return NULL;
}

static pst_estimate_module *module_of(pst_estimate_modules *modules, const char *tensor)
{
    pst_estimate_module *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        if (strncmp(tensor, places[i].prefix, strlen(places[i].prefix)) != 0)
            continue;
        found = find(modules, places[i].module);
        if (found == NULL)
            found = find(modules, places[i].other);
    }
    return found;
}

static void add_ledger(pst_estimate_modules *modules, const pst_estimate_ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->num_entries; i++) {
        const pst_estimate_entry *entry = &ledger->entries[i];
        pst_estimate_module *module = module_of(modules, entry->name);
        if (module == NULL)
            continue; /* then sums differ, and tests say so */
        module->whole_saved_bytes += entry->whole_bytes;
        module->saved_bytes += entry->bytes;
    }
}

static void add_saved(pst_estimate_modules *modules, const char *name, uint64_t whole, uint64_t own)
{
    pst_estimate_module *module = find(modules, name);
    if (module == NULL)
        return;
    module->whole_saved_bytes = whole;
    module->saved_bytes = own;
    modules->whole_saved_bytes = psti_plus(modules->whole_saved_bytes, whole);
    modules->saved_bytes = psti_plus(modules->saved_bytes, own);
}

static void add_ends(const pst_estimate_config *config, pst_estimate_modules *modules)
{
    const psti_split split = psti_split_of(config);
    const psti_ends whole = psti_ends_of(config, &undivided), own = psti_ends_of(config, &split);
    const psti_mtp whole_mtp = psti_mtp_of(config, &undivided), mtp = psti_mtp_of(config, &split);
    const uint64_t depths = config->mtp_layers;
    add_saved(modules, "embedding", whole.embedding, own.embedding);
    add_saved(modules, "final_norm", whole.final_norm, own.final_norm);
    add_saved(modules, "output", psti_minus(whole.head, whole.final_norm),
              psti_minus(own.head, own.final_norm));
    add_saved(modules, "mtp.embedding", psti_times(depths, whole.embedding),
              psti_times(depths, own.embedding));
    add_saved(modules, "mtp.norm", psti_times(depths, whole_mtp.norms),
              psti_times(depths, mtp.norms));
    add_saved(modules, "mtp.proj", psti_times(depths, whole_mtp.projection),
              psti_times(depths, mtp.projection));
}

/* ---- both divisions side by side ---- */

static void put_pair(pst_estimate_modules *to, const piece *whole, const piece *own)
{
    to->modules[to->num_modules++] = (pst_estimate_module){
        .name = own->name,
        .whole_outputs = whole->outputs,
        .whole_inputs = whole->inputs,
        .whole_count = whole->count,
        .outputs = own->outputs,
        .inputs = own->inputs,
        .count = own->count,
        .is_product = own->is_product,
        .whole_rows = whole->rows,
        .rows = own->rows,
        .whole_params = whole->params,
        .params = own->params,
    };
    to->whole_params = psti_plus(to->whole_params, whole->params);
    to->params = psti_plus(to->params, own->params);
}

static pst_status fill_saved(const pst_estimate_config *config, pst_estimate_part part,
                             pst_estimate_modules *modules)
{
    pst_estimate_ledger ledger;
    if (part == PST_ESTIMATE_OUTSIDE) {
        add_ends(config, modules);
        PSTI_CHECK(modules->whole_saved_bytes != PSTI_TOO_MUCH &&
                       modules->saved_bytes != PSTI_TOO_MUCH,
                   PST_E_INVALID, "config: saved activations exceed 64 bits");
        return PST_OK;
    }
    PSTI_TRY(pst_estimate_get_ledger(config, part == PST_ESTIMATE_MOE, &ledger));
    modules->whole_saved_bytes = ledger.whole_bytes;
    modules->saved_bytes = ledger.bytes;
    add_ledger(modules, &ledger);
    return PST_OK;
}

pst_status pst_estimate_get_modules_sized(const pst_estimate_config *given, pst_estimate_part part,
                                          pst_estimate_modules *modules_out, size_t modules_bytes)
{
    pst_estimate_config config;
    pst_estimate_modules modules = {.num_modules = 0};
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(modules_out, PST_E_INVALID, "modules_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_modules, modules_bytes));
    PSTI_CHECK(part >= PST_ESTIMATE_DENSE && part < PST_NUM_ESTIMATE_PARTS, PST_E_INVALID,
               "part %d: allowed are 0 to %d", (int)part, PST_NUM_ESTIMATE_PARTS - 1);
    if (part != PST_ESTIMATE_OUTSIDE) {
        const bool is_moe = part == PST_ESTIMATE_MOE;
        PSTI_CHECK(is_moe ? config.num_experts != 0 : config.ffn_size != 0, PST_E_INVALID,
                   "%s 0: part is %d", is_moe ? "num_experts" : "ffn_size", (int)part);
    }
    const list whole = list_of(&config, undivided, part, true);
    const list own = list_of(&config, psti_split_of(&config), part, false);
    for (uint32_t i = 0; i < own.num_pieces; i++)
        put_pair(&modules, &whole.pieces[i], &own.pieces[i]);
    PSTI_CHECK(modules.whole_params != PSTI_TOO_MUCH && modules.params != PSTI_TOO_MUCH,
               PST_E_INVALID, "config: parameters exceed 64 bits");
    PSTI_TRY(fill_saved(&config, part, &modules));
    memcpy(modules_out, &modules, modules_bytes);
    return PST_OK;
}
