/* The text's tables: modules, matrix products, transfers and who takes part in them. */
#include "tools/estimate/estimate_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/arith.h"

enum { SHOWN_RANKS = 64, TILE_ROWS = 128, TILE_COLUMNS = 256 };

static const char *const part_names[PST_NUM_ESTIMATE_PARTS] = {
    [PST_ESTIMATE_DENSE] = "a dense layer",
    [PST_ESTIMATE_MOE] = "a layer with experts",
    [PST_ESTIMATE_OUTSIDE] = "outside the layers",
};

const char *estimate_gib(uint64_t bytes, char out[32])
{
    const uint64_t whole = bytes >> 30, rest = bytes & ((UINT64_C(1) << 30) - 1);
    const uint64_t thousandths = (rest * 1000 + (UINT64_C(1) << 29)) >> 30;
    snprintf(out, 32, "%" PRIu64 ".%03" PRIu64, whole + thousandths / 1000, thousandths % 1000);
    return out;
}

const char *estimate_mib(uint64_t bytes, char out[32])
{
    const uint64_t whole = bytes >> 20, rest = bytes & ((UINT64_C(1) << 20) - 1);
    const uint64_t hundredths = (rest * 100 + (UINT64_C(1) << 19)) >> 20;
    snprintf(out, 32, "%" PRIu64 ".%02" PRIu64, whole + hundredths / 100, hundredths % 100);
    return out;
}

/* ---- modules ---- */

static const char *shape_text(uint64_t outputs, uint64_t inputs, uint64_t count, char out[64])
{
    int used = 0;
    out[0] = '\0';
    if (outputs == 0)
        return "-";
    if (count > 1)
        used = snprintf(out, 64, "%" PRIu64 " x ", count);
    if (inputs == 0)
        snprintf(out + used, 64 - (size_t)used, "[%" PRIu64 "]", outputs);
    else
        snprintf(out + used, 64 - (size_t)used, "[%" PRIu64 ",%" PRIu64 "]", outputs, inputs);
    return out;
}

static void print_module(const pst_estimate_module *of)
{
    char whole[64], own[64], whole_mib[32], mib[32];
    printf("  %-20s %-24s %-22s %15" PRIu64 " %14" PRIu64 " %11s %11s\n", of->name,
           shape_text(of->whole_outputs, of->whole_inputs, of->whole_count, whole),
           shape_text(of->outputs, of->inputs, of->count, own), of->whole_params, of->params,
           estimate_mib(of->whole_saved_bytes, whole_mib), estimate_mib(of->saved_bytes, mib));
}

void estimate_print_modules(const estimate_figures *figures)
{
    char whole_mib[32], mib[32];
    printf("\nmodules: weights, parameters and what is saved for a micro-batch, of the whole model "
           "and of one GPU\n");
    for (int part = 0; part < PST_NUM_ESTIMATE_PARTS; part++) {
        const pst_estimate_modules *of = &figures->modules[part];
        if (!figures->has_part[part])
            continue;
        printf("  %-20s %-24s %-22s %15s %14s %11s %11s\n", part_names[part], "weights",
               "of one GPU", "parameters", "of one GPU", "saved MiB", "of one GPU");
        for (uint32_t i = 0; i < of->num_modules; i++)
            print_module(&of->modules[i]);
        printf("  %-20s %-24s %-22s %15" PRIu64 " %14" PRIu64 " %11s %11s\n", "sum", "", "",
               of->whole_params, of->params, estimate_mib(of->whole_saved_bytes, whole_mib),
               estimate_mib(of->saved_bytes, mib));
    }
}

/* ---- products ---- */

/* Work is cut into tiles of 128 x 256 outputs, the largest of CUTLASS on Hopper, which as many
 * multiprocessors as there are take in waves. In 128 bits: sizes are any. */
estimate_product estimate_product_of(uint64_t rows, uint64_t outputs, uint64_t inputs,
                                     uint64_t count, uint64_t element_bytes, uint64_t num_sms)
{
    typedef estimate_wide wide;
    const wide of_one = (wide)psti_div_up(rows, TILE_ROWS) * psti_div_up(outputs, TILE_COLUMNS);
    const wide tiles = of_one * count;
    const wide waves = (tiles + num_sms - 1) / num_sms;
    const wide moved =
        ((wide)rows * inputs + (wide)inputs * outputs + (wide)rows * outputs) * element_bytes;
    estimate_product product = {.tiles = tiles > UINT64_MAX ? UINT64_MAX : (uint64_t)tiles};
    if (tiles == 0 || moved == 0)
        return product;
    product.wave_permille = (uint64_t)(tiles * 1000 / (waves * num_sms));
    product.tile_permille =
        (uint64_t)((wide)rows * outputs * 1000 / (of_one * TILE_ROWS * TILE_COLUMNS));
    product.intensity = (uint64_t)(2 * (wide)rows * inputs * outputs / moved);
    return product;
}

static void print_product(const char *of, uint64_t rows, uint64_t outputs, uint64_t inputs,
                          uint64_t count, const estimate_options *options)
{
    char shape[96];
    const estimate_product product =
        estimate_product_of(rows, outputs, inputs, count,
                            options->config.type == PST_TRAIN_FP32 ? 4 : 2, options->num_sms);
    snprintf(shape, sizeof(shape), "%" PRIu64 " x %" PRIu64 " x %" PRIu64, rows, outputs, inputs);
    printf("  %-20s %6" PRIu64 " of %-26s %9" PRIu64 " %4" PRIu64 ".%" PRIu64 " %% %6" PRIu64
           ".%" PRIu64 " %% %9" PRIu64 "\n",
           of, count, shape, product.tiles, product.wave_permille / 10, product.wave_permille % 10,
           product.tile_permille / 10, product.tile_permille % 10, product.intensity);
}

/* Layers of both kinds have the same attention. */
static bool is_shown(const estimate_figures *figures, int part, const char *name)
{
    const pst_estimate_modules *dense = &figures->modules[PST_ESTIMATE_DENSE];
    for (uint32_t i = 0; part == PST_ESTIMATE_MOE && i < dense->num_modules; i++)
        if (strcmp(dense->modules[i].name, name) == 0)
            return true;
    return false;
}

void estimate_print_products(const estimate_figures *figures)
{
    const estimate_options *options = figures->options;
    printf("\nmatrix products (rows x outputs x inputs): the whole model's, then those of one GPU\n"
           "  tiles of %d x %d on %" PRIu64 " multiprocessors: share of the waves that is filled, "
           "share of the tiles that is used;\n"
           "  operations for each byte moved at least: shapes that shrink lose all three\n"
           "  %-20s %-36s %9s %8s %8s %9s\n",
           TILE_ROWS, TILE_COLUMNS, options->num_sms, "module", "shape", "tiles", "waves", "tiles",
           "op/byte");
    for (int part = 0; part < PST_NUM_ESTIMATE_PARTS; part++)
        for (uint32_t i = 0; figures->has_part[part] && i < figures->modules[part].num_modules;
             i++) {
            const pst_estimate_module *of = &figures->modules[part].modules[i];
            if (!of->is_product || is_shown(figures, part, of->name))
                continue;
            print_product(of->name, of->whole_rows, of->whole_outputs, of->whole_inputs,
                          of->whole_count, options);
            print_product("", of->rows, of->outputs, of->inputs, of->count, options);
        }
}

/* ---- transfers ---- */

/* Of a kind; 1 where there is none. */
static uint64_t group_size(const pst_estimate_config *config, pst_parallel parallel)
{
    pst_estimate_process_group group;
    return pst_estimate_get_process_group(config, parallel, 0, &group) == PST_OK ? group.size : 1;
}

pst_status estimate_each_group(const pst_estimate_config *config, pst_parallel parallel,
                               void (*on_group)(void *user,
                                                const pst_estimate_process_group *group),
                               void *user)
{
    const bool is_embedding = parallel == PST_PARALLEL_EMBEDDING;
    const uint64_t end = config->world_size / (is_embedding ? config->pipeline_parallel : 1);
    for (uint64_t rank = 0; rank < end; rank++) {
        pst_estimate_process_group group;
        TOOL_TRY(pst_estimate_get_process_group(config, parallel, rank, &group));
        if (group.first == rank)
            on_group(user, &group);
    }
    return PST_OK;
}

static void print_group(void *user, const pst_estimate_process_group *group)
{
    (void)user;
    for (uint64_t i = 0; i < group->size; i++)
        printf("%s%" PRIu64, i == 0 ? " [" : " ", group->first + i * group->stride);
    putchar(']');
}

static int print_groups(const estimate_options *options, pst_parallel parallel)
{
    const pst_estimate_config *config = &options->config;
    pst_estimate_process_group group;
    TOOL_PST(pst_estimate_get_process_group(config, parallel, 0, &group));
    const uint64_t num_groups = parallel == PST_PARALLEL_EMBEDDING
                                    ? config->world_size / config->pipeline_parallel
                                    : config->world_size / group.size;
    printf("  %s parallel: groups of %" PRIu64 ", %" PRIu64 " of them:",
           estimate_parallel_name(parallel), group.size, num_groups);
    if (options->lists_members || config->world_size <= SHOWN_RANKS)
        TOOL_PST(estimate_each_group(config, parallel, print_group, NULL));
    else
        printf(" the first is ranks 0 to %" PRIu64 " by %" PRIu64 " (--members shows all)",
               (group.size - 1) * group.stride, group.stride);
    putchar('\n');
    return TOOL_OK;
}

/* Of one of its micro-batches, if every one has as many. */
static const char *each_text(uint64_t count, uint64_t num_micro_batches, char out[32])
{
    if (count % num_micro_batches != 0)
        return "-";
    snprintf(out, 32, "%" PRIu64, count / num_micro_batches);
    return out;
}

static void print_ops(const estimate_figures *figures, pst_parallel parallel)
{
    char each[32], payload[32], wire[32];
    for (uint64_t s = 0; s < figures->num_stages; s++)
        for (uint32_t i = 0; i < figures->stages[s].traffic.num_ops; i++) {
            const pst_estimate_op *op = &figures->stages[s].traffic.ops[i];
            if (op->parallel == parallel)
                printf("    %5" PRIu64 " %-18s %-14s %9s %11" PRIu64 " %16" PRIu64 " %12s %12s\n",
                       s, op->name, estimate_transfer_name(op->transfer),
                       each_text(op->count, figures->num_micro_batches, each), op->count,
                       op->payload_bytes, estimate_mib(op->payload_bytes, payload),
                       estimate_gib(op->wire_bytes, wire));
        }
}

static bool has_ops(const estimate_figures *figures, pst_parallel parallel)
{
    for (uint32_t i = 0; i < figures->num_totals; i++)
        if (figures->totals[i].op->parallel == parallel)
            return true;
    return false;
}

static void print_totals(const estimate_figures *figures)
{
    const estimate_wide gib = figures->wire_bytes >> 30;
    printf("\ncluster: %" PRIu64 " GPUs, %" PRIu64 " stages of %" PRIu64 ", an iteration\n",
           figures->options->config.world_size, figures->num_stages, figures->ranks_per_stage);
    printf("  %-18s %-14s %16s %16s\n", "transfer", "kind", "transfers", "wire GiB");
    for (uint32_t i = 0; i < figures->num_totals; i++) {
        const estimate_total *total = &figures->totals[i];
        printf("  %-18s %-14s %16" PRIu64 " %16" PRIu64 "\n", total->op->name,
               estimate_transfer_name(total->op->transfer), total->num_transfers,
               (uint64_t)(total->wire_bytes >> 30));
    }
    printf("  what leaves all GPUs: %" PRIu64 " GiB (received messages are not counted twice)\n",
           (uint64_t)gib);
}

int estimate_print_traffic(const estimate_figures *figures)
{
    const pst_estimate_config *config = &figures->options->config;
    printf(
        "\ntransfers of one GPU of each stage: calls for a micro-batch and an iteration, payload "
        "of a call, wire bytes of an iteration in a ring\n");
    for (int kind = 0; kind < PST_NUM_PARALLELS; kind++) {
        const pst_parallel parallel = (pst_parallel)kind;
        if (group_size(config, parallel) > 1)
            TOOL_TRY(print_groups(figures->options, parallel));
        if (!has_ops(figures, parallel))
            continue;
        printf("    %5s %-18s %-14s %9s %11s %16s %12s %12s\n", "stage", "transfer", "kind",
               "per mb", "calls", "payload", "MiB", "wire GiB");
        print_ops(figures, parallel);
    }
    print_totals(figures);
    return TOOL_OK;
}
