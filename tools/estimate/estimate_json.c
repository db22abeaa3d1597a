/* The report of an estimate as JSON. */
#include "tools/estimate/estimate_out.h"
#include "tools/estimate/estimate_report.h"

json_t *estimate_list_value(const uint64_t *words, uint64_t num)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < num; i++)
        json_add(&list, json_integer((json_int_t)words[i]));
    return list;
}

static json_t *params_value(const pst_estimate_params *params)
{
    json_t *object = json_object();
    JSON_PUT(&object, {"total", params->total}, {"total_padded", params->padded},
             {"active", params->active}, {"experts", params->experts},
             {"router_bias", params->router_bias}, {"dense_layer", params->dense_layer},
             {"moe_layer", params->moe_layer}, {"embedding", params->embedding},
             {"output", params->output}, {"mtp_depth", params->mtp},
             {"padded_vocab", params->padded_vocab});
    return object;
}

/* ---- modules ---- */

static json_t *shape_value(uint64_t count, uint64_t outputs, uint64_t inputs)
{
    const uint64_t words[] = {count, outputs, inputs};
    if (outputs == 0)
        return json_null();
    return estimate_list_value(words, inputs == 0 ? 2 : 3);
}

static json_t *product_value(const estimate_options *options, uint64_t rows, uint64_t outputs,
                             uint64_t inputs, uint64_t count)
{
    json_t *object = json_object();
    const estimate_product product =
        estimate_product_of(rows, outputs, inputs, count,
                            options->config.type == PST_TRAIN_FP32 ? 4 : 2, options->num_sms);
    JSON_PUT(&object, {"rows", rows}, {"tiles", product.tiles},
             {"wave_permille", product.wave_permille}, {"tile_permille", product.tile_permille},
             {"operations_per_byte", product.intensity});
    return object;
}

static json_t *module_value(const estimate_options *options, const pst_estimate_module *of)
{
    json_t *object = json_object();
    json_put_text(&object, "name", of->name);
    json_put(&object, "whole_shape",
             shape_value(of->whole_count, of->whole_outputs, of->whole_inputs));
    json_put(&object, "shape", shape_value(of->count, of->outputs, of->inputs));
    JSON_PUT(&object, {"whole_params", of->whole_params}, {"params", of->params},
             {"whole_saved_bytes", of->whole_saved_bytes}, {"saved_bytes", of->saved_bytes});
    if (!of->is_product)
        return object;
    json_put(&object, "whole_product",
             product_value(options, of->whole_rows, of->whole_outputs, of->whole_inputs,
                           of->whole_count));
    json_put(&object, "product",
             product_value(options, of->rows, of->outputs, of->inputs, of->count));
    return object;
}

static const char *const part_keys[PST_NUM_ESTIMATE_PARTS] = {
    [PST_ESTIMATE_DENSE] = "dense",
    [PST_ESTIMATE_MOE] = "moe",
    [PST_ESTIMATE_OUTSIDE] = "outside",
};

static json_t *modules_value(const estimate_figures *figures)
{
    json_t *object = json_object();
    for (int part = 0; part < PST_NUM_ESTIMATE_PARTS; part++) {
        json_t *list = json_array();
        const pst_estimate_modules *of = &figures->modules[part];
        for (uint32_t i = 0; figures->has_part[part] && i < of->num_modules; i++)
            json_add(&list, module_value(figures->options, &of->modules[i]));
        json_put(&object, part_keys[part], list);
    }
    return object;
}

/* ---- stages ---- */

static json_t *stage_params_value(const pst_estimate_states *states)
{
    json_t *object = json_object();
    JSON_PUT(&object, {"total", states->params}, {"dense", states->params - states->expert_params},
             {"expert", states->expert_params});
    return object;
}

static json_t *bytes_value(const estimate_figures *figures, const estimate_stage *stage)
{
    json_t *object = json_object();
    const pst_estimate_memory *memory = &stage->memory;
    JSON_PUT(&object, {"weights", memory->states.weight_bytes},
             {"gradients", memory->states.gradient_bytes},
             {"optimizer", memory->states.optimizer_bytes}, {"states", memory->states.bytes},
             {"activations", memory->saved_bytes}, {"head", memory->head_bytes},
             {"recompute", memory->recompute_bytes}, {"paging", memory->paging_bytes},
             {"empty_gradients", memory->empty_bytes}, {"total", memory->bytes},
             {"transients", memory->transient_bytes},
             {"overhead", figures->options->overhead_bytes}, {"peak", stage->peak_bytes});
    json_put(
        &object, "margin",
        json_integer((json_int_t)figures->options->memory_bytes - (json_int_t)stage->peak_bytes));
    json_put_whole(&object, "host", memory->states.host_bytes);
    return object;
}

static json_t *stage_value(const estimate_figures *figures, uint64_t number)
{
    json_t *object = json_object();
    const estimate_stage *stage = &figures->stages[number];
    JSON_PUT(&object, {"stage", number}, {"first_rank", number * figures->ranks_per_stage},
             {"num_ranks", figures->ranks_per_stage});
    json_put(&object, "layers", estimate_list_value(stage->chunk_layers, figures->num_chunks));
    json_put_whole(&object, "moe_layers", stage->memory.states.num_moe_layers);
    json_put(&object, "params", stage_params_value(&stage->memory.states));
    json_put(&object, "bytes", bytes_value(figures, stage));
    json_put_text(&object, "transient", stage->memory.transient);
    json_put(&object, "in_flight", estimate_list_value(stage->live, figures->num_chunks));
    JSON_PUT(&object, {"live_layers", stage->memory.live_layers},
             {"live_moe_layers", stage->memory.live_moe_layers}, {"wire_bytes", stage->wire_bytes});
    return object;
}

static json_t *stages_value(const estimate_figures *figures)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < figures->num_stages; i++)
        json_add(&list, stage_value(figures, i));
    return list;
}

/* ---- ledger ---- */

static json_t *ledger_value(const estimate_figures *figures, bool is_whole)
{
    json_t *object = json_object();
    for (int kind = 0; kind < ESTIMATE_NUM_LAYER_KINDS; kind++) {
        json_t *items = json_object();
        const pst_estimate_ledger *ledger = &figures->ledgers[kind];
        if (!figures->has_part[kind]) {
            json_decref(items);
            continue;
        }
        for (uint32_t i = 0; i < ledger->num_entries; i++)
            json_put_whole(&items, ledger->entries[i].name,
                           is_whole ? ledger->entries[i].whole_bytes : ledger->entries[i].bytes);
        json_put_whole(&items, "sum", is_whole ? ledger->whole_bytes : ledger->bytes);
        json_put(&object, part_keys[kind], items);
    }
    return object;
}

/* ---- transfers ---- */

static json_t *op_value(const estimate_figures *figures, uint64_t stage, const pst_estimate_op *op)
{
    json_t *object = json_object();
    const uint64_t num = figures->num_micro_batches;
    json_put_whole(&object, "stage", stage);
    json_put_text(&object, "op", op->name);
    json_put_text(&object, "transfer", estimate_transfer_name(op->transfer));
    json_put_text(&object, "group", estimate_parallel_name(op->parallel));
    JSON_PUT(&object, {"group_size", op->group_size}, {"count", op->count});
    json_put(&object, "count_per_micro_batch",
             op->count % num == 0 ? json_integer((json_int_t)(op->count / num)) : json_null());
    JSON_PUT(&object, {"payload_bytes", op->payload_bytes}, {"wire_bytes", op->wire_bytes});
    return object;
}

static json_t *comm_value(const estimate_figures *figures)
{
    json_t *list = json_array();
    for (uint64_t s = 0; s < figures->num_stages; s++)
        for (uint32_t i = 0; i < figures->stages[s].traffic.num_ops; i++)
            json_add(&list, op_value(figures, s, &figures->stages[s].traffic.ops[i]));
    return list;
}

static void add_members(void *user, const pst_estimate_process_group *group)
{
    json_t **groups = user;
    json_t *members = json_array();
    for (uint64_t i = 0; i < group->size; i++)
        json_add(&members, json_integer((json_int_t)(group->first + i * group->stride)));
    json_add(groups, members);
}

static json_t *group_value(const estimate_options *options, pst_parallel parallel,
                           const pst_estimate_process_group *group)
{
    json_t *object = json_object();
    json_put_text(&object, "group", estimate_parallel_name(parallel));
    JSON_PUT(&object, {"size", group->size}, {"stride", group->stride});
    json_t *members = options->lists_members ? json_array() : json_null();
    if (options->lists_members &&
        estimate_each_group(&options->config, parallel, add_members, &members) != PST_OK) {
        json_decref(members);
        members = NULL;
    }
    json_put(&object, "members", members);
    return object;
}

static json_t *groups_value(const estimate_options *options)
{
    json_t *list = json_array();
    for (int kind = 0; kind < PST_NUM_PARALLELS; kind++) {
        pst_estimate_process_group group;
        if (pst_estimate_get_process_group(&options->config, (pst_parallel)kind, 0, &group) ==
                PST_OK &&
            group.size > 1)
            json_add(&list, group_value(options, (pst_parallel)kind, &group));
    }
    return list;
}

/* null where JSON's readers would lose digits; the GiB, rounded down, are there in any case. */
static void put_wire(json_t **object, estimate_wide bytes)
{
    json_put(object, "wire_bytes",
             bytes <= INT64_MAX ? json_integer((json_int_t)bytes) : json_null());
    json_put_whole(object, "wire_gib", (uint64_t)(bytes >> 30));
}

static json_t *cluster_value(const estimate_figures *figures)
{
    json_t *object = json_object(), *list = json_array();
    for (uint32_t i = 0; i < figures->num_totals; i++) {
        const estimate_total *total = &figures->totals[i];
        json_t *item = json_object();
        json_put_text(&item, "op", total->op->name);
        json_put_whole(&item, "transfers", total->num_transfers);
        put_wire(&item, total->wire_bytes);
        json_add(&list, item);
    }
    JSON_PUT(&object, {"world_size", figures->options->config.world_size},
             {"num_stages", figures->num_stages}, {"num_micro_batches", figures->num_micro_batches},
             {"heaviest_stage", figures->heaviest});
    json_put(&object, "fits",
             json_boolean(figures->stages[figures->heaviest].peak_bytes <=
                          figures->options->memory_bytes));
    json_put_whole(&object, "gpu_memory_bytes", figures->options->memory_bytes);
    json_put(&object, "ops", list);
    put_wire(&object, figures->wire_bytes);
    return object;
}

/* ---- experts, what if ---- */

static json_t *moe_value(const estimate_figures *figures)
{
    if (!figures->has_part[PST_ESTIMATE_MOE])
        return json_null();
    const pst_estimate_moe *moe = &figures->moe;
    json_t *object = json_object();
    JSON_PUT(&object, {"stage", figures->moe_stage}, {"live_layers", moe->live_layers},
             {"row_bytes", moe->row_bytes}, {"balanced_rows", moe->balanced_rows},
             {"capacity_rows", moe->capacity_rows}, {"worst_rows", moe->worst_rows},
             {"balanced_bytes", moe->balanced_bytes}, {"capacity_bytes", moe->capacity_bytes},
             {"worst_bytes", moe->worst_bytes}, {"working_bytes", moe->working_bytes},
             {"worst_working_bytes", moe->worst_working_bytes}, {"pages", moe->num_pages},
             {"pages_bytes", moe->pages_bytes}, {"table_bytes", moe->table_bytes},
             {"paged_rows_model", moe->paged_bytes}, {"pool_pages", moe->pool_pages},
             {"pool_bytes", moe->pool_bytes}, {"backward_bytes", moe->backward_bytes});
    return object;
}

static json_t *linears_value(const estimate_figures *figures)
{
    const pst_estimate_linears *of = &figures->linears;
    if (!figures->has_linears)
        return json_null();
    json_t *object = json_object(), *linears = json_array(), *buffers = json_array();
    JSON_PUT(&object, {"scratch_bytes", of->scratch_bytes}, {"buffers_bytes", of->buffers_bytes},
             {"layer_pages", of->layer_pages}, {"pool_pages", of->pool_pages},
             {"pool_bytes", of->pool_bytes});
    for (uint32_t i = 0; i < of->num_linears; i++) {
        const pst_estimate_linear *linear = &of->linears[i];
        json_t *item = json_object();
        json_put_text(&item, "name", linear->name);
        JSON_PUT(&item, {"forward_scratch", linear->forward_scratch},
                 {"backward_scratch", linear->backward_scratch},
                 {"saved_bytes", linear->saved_bytes}, {"hidden_bytes", linear->hidden_bytes});
        json_add(&linears, item);
    }
    for (uint32_t i = 0; i < of->num_buffers; i++) {
        json_t *item = json_object();
        json_put_text(&item, "name", of->buffers[i].name);
        JSON_PUT(&item, {"bytes", of->buffers[i].bytes});
        json_add(&buffers, item);
    }
    json_put(&object, "linears", linears);
    json_put(&object, "buffers", buffers);
    return object;
}

static json_t *whatif_value(const estimate_figures *figures)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < figures->num_whatifs; i++) {
        json_t *item = json_object();
        json_put_text(&item, "change", figures->whatifs[i].change);
        json_put(&item, "saved_bytes", json_integer((json_int_t)figures->whatifs[i].saved_bytes));
        json_put(&item, "extra_wire_bytes",
                 json_integer((json_int_t)figures->whatifs[i].extra_wire_bytes));
        json_add(&list, item);
    }
    return list;
}

static json_t *figures_value(const estimate_figures *figures)
{
    const estimate_options *options = figures->options;
    json_t *object = json_begin("estimate", 1);
    json_put(&object, "config", estimate_config_value(&options->config));
    json_put(&object, "assumptions", estimate_notes_value(&options->assumptions));
    json_put(&object, "warnings", estimate_notes_value(&options->warnings));
    json_put(&object, "not_counted", estimate_notes_value(&options->unmodelled));
    json_put(&object, "params", params_value(&figures->params));
    json_put(&object, "modules", modules_value(figures));
    json_put(&object, "stages", stages_value(figures));
    json_put(&object, "ledger", ledger_value(figures, false));
    json_put(&object, "whole_ledger", ledger_value(figures, true));
    json_put(&object, "comm", comm_value(figures));
    json_put(&object, "groups", groups_value(options));
    json_put(&object, "cluster", cluster_value(figures));
    json_put(&object, "moe_buffers", moe_value(figures));
    json_put(&object, "linears", linears_value(figures));
    json_put(&object, "whatif", whatif_value(figures));
    return object;
}

int estimate_report_json(const estimate_options *options)
{
    estimate_figures figures;
    int code = estimate_figures_init(&figures, options);
    if (code == TOOL_OK)
        code = json_write(figures_value(&figures), options->json);
    estimate_figures_free(&figures);
    return code;
}
