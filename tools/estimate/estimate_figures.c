/* The figures of a report, from the library. */
#include "tools/estimate/estimate_figures.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return tool_fail(TOOL_NO, "estimate: out of memory");
}

/* JSON holds no more. */
static int check_whole(uint64_t figure, const char *what)
{
    if (figure > INT64_MAX)
        return tool_fail(TOOL_USAGE, "%s: more than 2^63 - 1", what);
    return TOOL_OK;
}

static bool has_part(const pst_estimate_config *config, pst_estimate_part part)
{
    if (part == PST_ESTIMATE_OUTSIDE)
        return true;
    if (config->num_experts == 0)
        return part == PST_ESTIMATE_DENSE;
    for (uint64_t i = 0; i < config->num_layers; i++)
        if ((config->is_moe == NULL || config->is_moe[i]) == (part == PST_ESTIMATE_MOE))
            return true;
    return false;
}

/* A module's figures are at most these sums, which may be above what a GPU has. */
static int check_part(const pst_estimate_modules *modules)
{
    TOOL_TRY(check_whole(modules->whole_params, "parameters of a layer"));
    TOOL_TRY(check_whole(modules->whole_saved_bytes, "bytes saved of a micro-batch, undivided"));
    return check_whole(modules->saved_bytes, "bytes saved of a micro-batch");
}

static int fill_parts(estimate_figures *figures)
{
    const pst_estimate_config *config = &figures->options->config;
    for (int part = 0; part < PST_NUM_ESTIMATE_PARTS; part++) {
        figures->has_part[part] = has_part(config, (pst_estimate_part)part);
        if (!figures->has_part[part])
            continue;
        TOOL_PST(
            pst_estimate_get_modules(config, (pst_estimate_part)part, &figures->modules[part]));
        TOOL_TRY(check_part(&figures->modules[part]));
        if (part < ESTIMATE_NUM_LAYER_KINDS)
            TOOL_PST(
                pst_estimate_get_ledger(config, part == PST_ESTIMATE_MOE, &figures->ledgers[part]));
    }
    return TOOL_OK;
}

static int fill_stage(estimate_figures *figures, uint64_t number)
{
    const estimate_options *options = figures->options;
    const pst_estimate_config *config = &options->config;
    estimate_stage *stage = &figures->stages[number];
    stage->chunk_layers = figures->chunk_words + 2 * number * figures->num_chunks;
    stage->live = stage->chunk_layers + figures->num_chunks;
    for (uint64_t i = 0; i < figures->num_chunks; i++)
        stage->chunk_layers[i] =
            config->chunk_layers != NULL
                ? config->chunk_layers[i * figures->num_stages + number]
                : config->num_layers / figures->num_stages / figures->num_chunks;
    TOOL_PST(estimate_measure(config, number, options->overhead_bytes, stage));
    for (uint32_t i = 0; i < stage->traffic.num_ops; i++) {
        TOOL_TRY(check_whole(stage->traffic.ops[i].payload_bytes, "bytes of a transfer"));
        TOOL_TRY(check_whole(stage->traffic.ops[i].count, "transfers of a GPU"));
    }
    TOOL_TRY(check_whole(stage->peak_bytes, "bytes of a GPU"));
    TOOL_TRY(check_whole(stage->memory.states.host_bytes, "bytes in host memory"));
    return check_whole(stage->wire_bytes, "bytes that leave a GPU");
}

/* Of a GPU's expert layers: each figure is at most one of these. */
static int fill_moe(estimate_figures *figures, uint64_t live_layers)
{
    pst_estimate_moe *moe = &figures->moe;
    if (!figures->has_part[PST_ESTIMATE_MOE])
        return TOOL_OK;
    TOOL_PST(pst_estimate_get_moe(&figures->options->config, live_layers, moe));
    TOOL_TRY(check_whole(moe->capacity_bytes, "bytes of buffers of the capacity"));
    TOOL_TRY(check_whole(moe->worst_bytes, "bytes of buffers for the worst routing"));
    TOOL_TRY(check_whole(moe->worst_working_bytes, "bytes of a buffer for the worst routing"));
    TOOL_TRY(check_whole(moe->paged_bytes, "bytes of pages"));
    TOOL_TRY(check_whole(moe->table_bytes, "bytes of page tables"));
    return check_whole(moe->pool_bytes, "bytes of a pool");
}

/* Dense layers by linear.h; latent attention is none of them, and nor are layers whose pages no pool
 * could hold. */
static int fill_linears(estimate_figures *figures)
{
    const pst_estimate_memory *memory = &figures->stages[figures->heaviest].memory;
    const pst_estimate_config *config = &figures->options->config;
    const uint64_t live = memory->live_layers - memory->live_moe_layers;
    const pst_status status =
        pst_estimate_get_linears(config, 0, config->is_gated, live, &figures->linears);
    figures->has_linears = figures->has_part[PST_ESTIMATE_DENSE] && status == PST_OK;
    if (!figures->has_linears)
        return TOOL_OK;
    TOOL_TRY(check_whole(figures->linears.buffers_bytes, "bytes of scratch"));
    return check_whole(figures->linears.pool_bytes, "bytes of a pool of hidden tensors");
}

/* Layers with experts of one group that full recomputation runs again, at most: no others keep rows.
 * A depth of multi-token prediction is a group of its own. */
static uint64_t moe_layers_of_group(const estimate_figures *figures, uint64_t number)
{
    const pst_estimate_config *config = &figures->options->config;
    const bool *is_moe = config->is_moe;
    const bool is_last = number == figures->num_stages - 1 && config->mtp_layers != 0;
    uint64_t first = 0, most = is_last && (is_moe == NULL || is_moe[config->num_layers - 1]);
    for (uint64_t i = 0; i < figures->num_stages * figures->num_chunks; i++) {
        const uint64_t num = config->chunk_layers != NULL ? config->chunk_layers[i]
                                                          : figures->stages[0].chunk_layers[0];
        uint64_t live = 0;
        for (uint64_t j = 0; j < num && i % figures->num_stages == number; j++) {
            live = (j % config->recompute_layers == 0 ? 0 : live) +
                   (is_moe == NULL || is_moe[first + j]);
            most = live > most ? live : most;
        }
        first += num;
    }
    return most;
}

static int fill_stages(estimate_figures *figures)
{
    const bool is_again = figures->options->config.recompute_layers != 0;
    uint64_t most_live = 0;
    for (uint64_t i = 0; i < figures->num_stages; i++) {
        TOOL_TRY(fill_stage(figures, i));
        const estimate_stage *stage = &figures->stages[i];
        if (stage->peak_bytes > figures->stages[figures->heaviest].peak_bytes)
            figures->heaviest = i;
        const uint64_t live =
            is_again ? moe_layers_of_group(figures, i) : stage->memory.live_moe_layers;
        if (live > most_live) {
            most_live = live;
            figures->moe_stage = i;
        }
    }
    figures->num_micro_batches = figures->stages[0].memory.num_micro_batches;
    return fill_moe(figures, most_live);
}

static estimate_total *total_of(estimate_figures *figures, const pst_estimate_op *op)
{
    for (uint32_t i = 0; i < figures->num_totals; i++)
        if (strcmp(figures->totals[i].op->name, op->name) == 0)
            return &figures->totals[i];
    estimate_total *total = &figures->totals[figures->num_totals++];
    total->op = op;
    return total;
}

/* GPUs that take part in one such transfer and count it too. A message is counted by its sender;
 * who receives it has another entry. */
static uint64_t counted_by(const pst_estimate_op *op)
{
    return op->transfer == PST_TRANSFER_SEND || op->transfer == PST_TRANSFER_RECEIVE
               ? 1
               : op->group_size;
}

/* Stages are as many GPUs each. A group's GPUs are all of one stage, but those of a tied embedding,
 * which are of two and count it in both. */
static int add_totals(estimate_figures *figures)
{
    for (uint64_t s = 0; s < figures->num_stages; s++)
        for (uint32_t i = 0; i < figures->stages[s].traffic.num_ops; i++) {
            const pst_estimate_op *op = &figures->stages[s].traffic.ops[i];
            estimate_total *total = total_of(figures, op);
            uint64_t transfers = 0;
            if (__builtin_mul_overflow(op->count, figures->ranks_per_stage, &transfers) ||
                __builtin_add_overflow(total->num_transfers, transfers, &total->num_transfers))
                return tool_fail(TOOL_USAGE, "transfers of all GPUs: more than 2^63 - 1");
            total->wire_bytes += (estimate_wide)op->wire_bytes * figures->ranks_per_stage;
        }
    for (uint32_t i = 0; i < figures->num_totals; i++) {
        estimate_total *total = &figures->totals[i];
        total->num_transfers /= counted_by(total->op);
        TOOL_TRY(check_whole(total->num_transfers, "transfers of all GPUs"));
        if (total->op->transfer != PST_TRANSFER_RECEIVE)
            figures->wire_bytes += total->wire_bytes;
    }
    /* as much is received as is sent; a GPU's bytes times 2^31 GPUs are below 2^94 */
    return check_whole((uint64_t)(figures->wire_bytes >> 30), "GiB that leave all GPUs");
}

int estimate_figures_init(estimate_figures *figures, const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    *figures =
        (estimate_figures){.options = options,
                           .num_stages = config->pipeline_parallel,
                           .num_chunks = config->virtual_stages,
                           .ranks_per_stage = config->world_size / config->pipeline_parallel};
    TOOL_PST(pst_estimate_get_params(config, &figures->params));
    TOOL_TRY(check_whole(figures->params.padded, "parameters"));
    TOOL_TRY(check_whole(figures->params.mtp, "parameters of multi-token prediction"));
    figures->stages = calloc(figures->num_stages, sizeof(*figures->stages));
    figures->chunk_words = calloc(2 * figures->num_stages * figures->num_chunks, sizeof(uint64_t));
    if (figures->stages == NULL || figures->chunk_words == NULL)
        return no_memory();
    TOOL_TRY(fill_parts(figures));
    TOOL_TRY(fill_stages(figures));
    TOOL_TRY(fill_linears(figures));
    TOOL_TRY(add_totals(figures));
    return estimate_find_whatifs(figures);
}

void estimate_figures_free(estimate_figures *figures)
{
    free(figures->stages);
    free(figures->chunk_words);
    *figures = (estimate_figures){.num_stages = 0};
}
