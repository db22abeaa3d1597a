/* The tree of a report: everything that an estimate says, worked out once. */
#include "tools/estimate/estimate.h"

#include <stdlib.h>
#include <string.h>

#include "host/base/arith.h"

typedef struct report {
    const estimate_options *options;
    const pst_estimate_config *config;
    uint64_t num_stages, num_chunks, heaviest;
    estimate_stage *stages;
    uint64_t *chunk_words; /* behind the stages' pointers */
    json_t *root;
} report;

json_t *estimate_item(const char *key, const char *name, const json_whole *items, size_t num)
{
    json_t *object = json_object();
    if (key != NULL)
        json_put_text(&object, key, name);
    json_put_wholes(&object, items, num);
    return object;
}

/* ---- parameters, layers ---- */

static int put_params(report *self)
{
    pst_estimate_params of;
    ESTIMATE_TRY(self->options, pst_estimate_get_params(self->config, &of));
    json_put(&self->root, "params",
             ESTIMATE_OBJECT({"total", of.total}, {"total_padded", of.padded},
                             {"active", of.active}, {"experts", of.experts},
                             {"router_bias", of.router_bias}, {"dense_layer", of.dense_layer},
                             {"moe_layer", of.moe_layer}, {"embedding", of.embedding},
                             {"output", of.output}, {"mtp_depth", of.mtp},
                             {"padded_vocab", of.padded_vocab}));
    return TOOL_OK;
}

static json_t *shape_value(uint64_t count, uint64_t outputs, uint64_t inputs)
{
    const uint64_t words[] = {count, outputs, inputs};
    return outputs == 0 ? json_null() : estimate_list(words, inputs == 0 ? 2 : 3);
}

/* Work is cut into tiles of 128 x 256 outputs, the largest of CUTLASS on Hopper, which as many
 * multiprocessors as there are take in waves. In 128 bits: sizes are any. */
static json_t *product_value(report *self, uint64_t rows, uint64_t outputs, uint64_t inputs,
                             uint64_t count)
{
    enum { TILE_ROWS = 128, TILE_COLUMNS = 256 };
    const uint64_t num_sms = self->options->num_sms, type = self->config->type;
    const psti_wide of_one =
        (psti_wide)psti_div_up(rows, TILE_ROWS) * psti_div_up(outputs, TILE_COLUMNS);
    const psti_wide tiles = of_one * count, waves = (tiles + num_sms - 1) / num_sms;
    const psti_wide moved =
        ((psti_wide)rows * inputs + (psti_wide)inputs * outputs + (psti_wide)rows * outputs) *
        (type == PST_TRAIN_FP32 ? 4 : 2);
    const bool is_some = tiles != 0 && moved != 0;
    return ESTIMATE_OBJECT(
        {"rows", rows}, {"tiles", psti_saturate(tiles)},
        {"wave_permille", is_some ? (uint64_t)(tiles * 1000 / (waves * num_sms)) : 0},
        {"tile_permille", is_some ? (uint64_t)((psti_wide)rows * outputs * 1000 /
                                               (of_one * TILE_ROWS * TILE_COLUMNS))
                                  : 0},
        {"operations_per_byte",
         is_some ? (uint64_t)(2 * (psti_wide)rows * inputs * outputs / moved) : 0});
}

static json_t *modules_value(report *self, const pst_estimate_modules *modules)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < modules->num_modules; i++) {
        const pst_estimate_module *of = &modules->modules[i];
        json_t *item = ESTIMATE_ITEM(
            "name", of->name, {"whole_params", of->whole_params}, {"params", of->params},
            {"whole_saved_bytes", of->whole_saved_bytes}, {"saved_bytes", of->saved_bytes});
        json_put(&item, "whole_shape",
                 shape_value(of->whole_count, of->whole_outputs, of->whole_inputs));
        json_put(&item, "shape", shape_value(of->count, of->outputs, of->inputs));
        if (of->is_product) {
            json_put(&item, "whole_product",
                     product_value(self, of->whole_rows, of->whole_outputs, of->whole_inputs,
                                   of->whole_count));
            json_put(&item, "product",
                     product_value(self, of->rows, of->outputs, of->inputs, of->count));
        }
        json_add(&list, item);
    }
    return list;
}

static json_t *ledger_value(const pst_estimate_ledger *ledger, bool is_whole)
{
    json_t *items = json_object();
    const uint64_t sum = is_whole ? ledger->whole_bytes : ledger->bytes;
    for (uint32_t i = 0; i < ledger->num_entries; i++)
        json_put_whole(&items, ledger->entries[i].name,
                       is_whole ? ledger->entries[i].whole_bytes : ledger->entries[i].bytes);
    json_put_whole(&items, "sum", sum);
    return items;
}

static bool has_part(const pst_estimate_config *config, pst_estimate_part part)
{
    if (part == PST_ESTIMATE_OUTSIDE || config->num_experts == 0)
        return part != PST_ESTIMATE_MOE;
    for (uint64_t i = 0; i < config->num_layers; i++)
        if ((config->is_moe == NULL || config->is_moe[i]) == (part == PST_ESTIMATE_MOE))
            return true;
    return false;
}

static int put_layers(report *self)
{
    static const char *const keys[] = {"dense", "moe", "outside"};
    json_t *lists = json_object(), *own = json_object(), *whole = json_object();
    pst_status status = PST_OK;
    for (pst_estimate_part part = 0; part < PST_NUM_ESTIMATE_PARTS && status == PST_OK; part++) {
        pst_estimate_modules modules = {.num_modules = 0};
        pst_estimate_ledger ledger = {.num_entries = 0};
        const bool is_there = has_part(self->config, part), is_moe = part == PST_ESTIMATE_MOE;
        if (is_there)
            status = pst_estimate_get_modules(self->config, part, &modules);
        json_put(&lists, keys[part], modules_value(self, &modules));
        if (!is_there || part == PST_ESTIMATE_OUTSIDE || status != PST_OK)
            continue;
        status = pst_estimate_get_ledger(self->config, is_moe, &ledger);
        json_put(&own, keys[part], ledger_value(&ledger, false));
        json_put(&whole, keys[part], ledger_value(&ledger, true));
    }
    json_put(&self->root, "modules", lists);
    json_put(&self->root, "ledger", own);
    json_put(&self->root, "whole_ledger", whole);
    return estimate_status(self->options, status);
}

/* ---- stages ---- */

static json_t *bytes_value(report *self, const estimate_stage *stage)
{
    const estimate_options *options = self->options;
    const pst_estimate_memory *memory = &stage->memory;
#define PART(key, member, name) {#key, memory->member},
    json_t *object = ESTIMATE_OBJECT(
        ESTIMATE_PARTS(PART){"states", memory->states.bytes}, {"total", memory->bytes},
        {"transients", memory->transient_bytes}, {"overhead", stage->reserve_bytes},
        {"peak", stage->peak_bytes}, {"host", memory->states.host_bytes},
        {"host_saved", memory->offloaded_bytes});
#undef PART
    json_put(&object, "margin",
             json_integer((json_int_t)options->memory_bytes - (json_int_t)stage->peak_bytes));
    return object;
}

static json_t *stage_value(report *self, uint64_t number)
{
    const estimate_stage *stage = &self->stages[number];
    const pst_estimate_states *states = &stage->memory.states;
    const uint64_t ranks = self->config->world_size / self->num_stages;
    json_t *object = ESTIMATE_OBJECT(
        {"stage", number}, {"first_rank", number * ranks}, {"num_ranks", ranks},
        {"moe_layers", states->num_moe_layers}, {"live_layers", stage->memory.live_layers},
        {"live_moe_layers", stage->memory.live_moe_layers}, {"wire_bytes", stage->wire_bytes});
    json_put(&object, "layers", estimate_list(stage->chunk_layers, self->num_chunks));
    json_put(&object, "in_flight", estimate_list(stage->live, self->num_chunks));
    json_put(&object, "params",
             ESTIMATE_OBJECT({"total", states->params},
                             {"dense", states->params - states->expert_params},
                             {"expert", states->expert_params}));
    json_put(&object, "bytes", bytes_value(self, stage));
    json_put_text(&object, "transient", stage->memory.transient);
    return object;
}

static int put_stages(report *self)
{
    const pst_estimate_config *config = self->config;
    for (uint64_t i = 0; i < self->num_stages; i++) {
        estimate_stage *stage = &self->stages[i];
        stage->chunk_layers = self->chunk_words + 2 * i * self->num_chunks;
        stage->live = stage->chunk_layers + self->num_chunks;
        for (uint64_t j = 0; j < self->num_chunks; j++)
            stage->chunk_layers[j] = config->chunk_layers != NULL
                                         ? config->chunk_layers[j * self->num_stages + i]
                                         : config->num_layers / self->num_stages / self->num_chunks;
        ESTIMATE_TRY(self->options, estimate_measure(config, i, &self->options->reserve, stage));
        if (stage->peak_bytes > self->stages[self->heaviest].peak_bytes)
            self->heaviest = i;
    }
    json_t *list = json_array();
    for (uint64_t i = 0; i < self->num_stages; i++)
        json_add(&list, stage_value(self, i));
    json_put(&self->root, "stages", list);
    return TOOL_OK;
}

/* ---- experts; dense layers by linear.h ---- */

static int put_moe(report *self)
{
    pst_estimate_moe of;
    uint64_t stage = 0, most = 0;
    if (!has_part(self->config, PST_ESTIMATE_MOE)) {
        json_put(&self->root, "moe_buffers", json_null());
        return TOOL_OK;
    }
    for (uint64_t i = 0; i < self->num_stages; i++) {
        const uint64_t live = self->stages[i].memory.buffered_moe_layers;
        stage = live > most ? i : stage;
        most = live > most ? live : most;
    }
    ESTIMATE_TRY(self->options, pst_estimate_get_moe(self->config, most, &of));
    json_put(&self->root, "moe_buffers",
             ESTIMATE_OBJECT(
                 {"stage", stage}, {"live_layers", of.live_layers}, {"row_bytes", of.row_bytes},
                 {"balanced_rows", of.balanced_rows}, {"capacity_rows", of.capacity_rows},
                 {"worst_rows", of.worst_rows}, {"balanced_bytes", of.balanced_bytes},
                 {"capacity_bytes", of.capacity_bytes}, {"worst_bytes", of.worst_bytes},
                 {"working_bytes", of.working_bytes},
                 {"worst_working_bytes", of.worst_working_bytes}, {"pages", of.num_pages},
                 {"pages_bytes", of.pages_bytes}, {"table_bytes", of.table_bytes},
                 {"paged_rows_model", of.paged_bytes}, {"pool_pages", of.pool_pages},
                 {"pool_bytes", of.pool_bytes}, {"backward_bytes", of.backward_bytes}));
    return TOOL_OK;
}

/* Latent attention is none of them, and nor are layers whose pages no pool could hold. */
static void put_linears(report *self)
{
    const pst_estimate_memory *memory = &self->stages[self->heaviest].memory;
    const uint64_t live = memory->live_layers - memory->live_moe_layers;
    pst_estimate_linears of;
    if (!has_part(self->config, PST_ESTIMATE_DENSE) ||
        pst_estimate_get_linears(self->config, 0, self->config->is_gated, live, &of) != PST_OK) {
        json_put(&self->root, "linears", json_null());
        return;
    }
    json_t *linears = json_array(), *buffers = json_array();
    json_t *object =
        ESTIMATE_OBJECT({"scratch_bytes", of.scratch_bytes}, {"buffers_bytes", of.buffers_bytes},
                        {"layer_pages", of.layer_pages}, {"pool_pages", of.pool_pages},
                        {"pool_bytes", of.pool_bytes}, {"expert_pages", of.expert_pages});
    for (const pst_estimate_linear *l = of.linears; l < of.linears + of.num_linears; l++)
        json_add(&linears,
                 ESTIMATE_ITEM("name", l->name, {"forward_scratch", l->forward_scratch},
                               {"backward_scratch", l->backward_scratch},
                               {"saved_bytes", l->saved_bytes}, {"hidden_bytes", l->hidden_bytes}));
    for (uint32_t i = 0; i < of.num_buffers; i++)
        json_add(&buffers,
                 ESTIMATE_ITEM("name", of.buffers[i].name, {"bytes", of.buffers[i].bytes}));
    json_put(&object, "linears", linears);
    json_put(&object, "buffers", buffers);
    json_put(&self->root, "linears", object);
}

/* ---- what is left out ---- */

static int put_gaps(report *self)
{
    pst_estimate_gaps of;
    json_t *list = json_array();
    TOOL_PST(pst_estimate_get_gaps(self->config, self->heaviest, &of));
    for (const pst_estimate_gap *gap = of.gaps; gap < of.gaps + of.num_gaps; gap++) {
        json_t *object = json_object();
        json_put_text(&object, "field", gap->field);
        json_put_text(&object, "reason", gap->reason);
        json_put_whole(&object, "bytes", psti_min(gap->bytes, INT64_MAX));
        json_add(&list, object);
    }
    json_put(&self->root, "left_out", list);
    return TOOL_OK;
}

/* ---- time ---- */

/* How long a step takes, null without a GPU. */
static int put_step(report *self)
{
    const estimate_options *options = self->options;
    pst_step_prediction step;
    if (options->gpu_name == NULL) {
        json_put(&self->root, "step", json_null());
        return TOOL_OK;
    }
    TOOL_PST(estimate_predict(options, &options->config, &step));
    const pst_step_stage *of = &step.of_busiest;
    const double seconds = (double)step.step_ns * 1e-9 * (double)options->config.world_size;
    json_put(&self->root, "step",
             ESTIMATE_ITEM("gpu", options->gpu_name, {"step_ns", step.step_ns},
                           {"span_ns", step.span_ns}, {"tokens", step.tokens},
                           {"tokens_per_second",
                            seconds > 0.0 ? (uint64_t)((double)step.tokens / seconds) : UINT64_MAX},
                           {"model_flops", step.model_flops}, {"mfu_permille", step.mfu_per_mille},
                           {"stage", step.busiest}, {"products_ns", of->products_ns},
                           {"memory_ns", of->memory_ns}, {"exposed_ns", of->exposed_ns},
                           {"hidden_ns", of->hidden_ns}, {"bubble_ns", of->bubble_ns},
                           {"gradients_ns", of->gradients_ns}, {"params_ns", of->params_ns},
                           {"hidden_ends_ns", of->hidden_ends_ns},
                           {"optimizer_ns", of->optimizer_ns}));
    return TOOL_OK;
}

/* ---- all of it ---- */

/* The key of a number above 2^63 - 1, which as one of JSON is below 0. */
static const char *too_large_in(const char *name, json_t *value)
{
    const bool may_be_negative =
        strcmp(name, "margin") == 0 || strcmp(name, "extra_wire_bytes") == 0;
    const char *key, *found = NULL;
    json_t *member;
    size_t i;
    if (json_is_integer(value) && json_integer_value(value) < 0 && !may_be_negative)
        return name;
    json_object_foreach(value, key, member) if (found == NULL) found = too_large_in(key, member);
    json_array_foreach(value, i, member) if (found == NULL) found = too_large_in(name, member);
    return found;
}

static int fill(report *self)
{
    const estimate_options *options = self->options;
    json_put(&self->root, "config", estimate_config_value(self->config));
    json_put(&self->root, "assumptions", json_incref(options->assumptions));
    json_put(&self->root, "warnings", json_incref(options->warnings));
    json_put(&self->root, "not_counted", json_incref(options->unmodelled));
    json_put(&self->root, "matters", json_incref(options->matters));
    TOOL_TRY(put_params(self));
    TOOL_TRY(put_layers(self));
    TOOL_TRY(put_stages(self));
    TOOL_TRY(put_moe(self));
    put_linears(self);
    TOOL_TRY(put_gaps(self));
    estimate_put_traffic(options, self->stages, self->heaviest, &self->root);
    TOOL_TRY(estimate_put_whatifs(options, self->heaviest,
                                  self->stages[self->heaviest].peak_bytes <= options->memory_bytes,
                                  &self->root));
    TOOL_TRY(put_step(self));
    const char *too_large = too_large_in("", self->root);
    if (too_large != NULL)
        return estimate_too_much(options, too_large);
    return self->root != NULL ? TOOL_OK : tool_fail(TOOL_NO, "estimate: out of memory");
}

int estimate_tree(const estimate_options *options, json_t **tree_out)
{
    const pst_estimate_config *config = &options->config;
    report self = {.options = options,
                   .config = config,
                   .num_stages = config->pipeline_parallel,
                   .num_chunks = config->virtual_stages,
                   .root = json_begin("estimate", 1)};
    self.stages = calloc(self.num_stages, sizeof(*self.stages));
    self.chunk_words = calloc(2 * self.num_stages * self.num_chunks, sizeof(*self.chunk_words));
    const int code = self.stages != NULL && self.chunk_words != NULL
                         ? fill(&self)
                         : tool_fail(TOOL_NO, "estimate: out of memory");
    if (code != TOOL_OK)
        json_decref(self.root);
    else
        *tree_out = self.root;
    free(self.stages);
    free(self.chunk_words);
    return code;
}
