/* The report of an estimate as text. */
#include "tools/estimate/estimate_report.h"

#include <inttypes.h>
#include <stdio.h>

static void print_notes(const char *title, const estimate_notes *notes)
{
    if (notes->num_lines > 0)
        printf("\n%s\n", title);
    for (size_t i = 0; i < notes->num_lines; i++)
        printf("  %s\n", notes->lines[i]);
}

static void print_params(const estimate_figures *figures)
{
    const pst_estimate_params *params = &figures->params;
    printf("\nparameters: %" PRIu64 " (%" PRIu64 " with the vocabulary padded to %" PRIu64 ")\n",
           params->total, params->padded, params->padded_vocab);
    if (figures->has_part[PST_ESTIMATE_MOE])
        printf("  a token meets %" PRIu64 "; in routed experts %" PRIu64 "\n", params->active,
               params->experts);
    if (params->router_bias != 0)
        printf("  not counted: %" PRIu64 " of the router's bias\n", params->router_bias);
    if (params->dense_layer != 0)
        printf("  a dense layer: %" PRIu64 "\n", params->dense_layer);
    if (params->moe_layer != 0)
        printf("  a layer with experts: %" PRIu64 "\n", params->moe_layer);
    printf("  embedding %" PRIu64 ", output matrix %" PRIu64 "\n", params->embedding,
           params->output);
    if (figures->options->config.mtp_layers != 0)
        printf("  not counted: %" PRIu64 " depths of multi-token prediction of %" PRIu64 "\n",
               figures->options->config.mtp_layers, params->mtp);
}

/* "+1.250" */
static const char *signed_gib(bool is_negative, uint64_t size, char out[33])
{
    out[0] = is_negative ? '-' : '+';
    (void)estimate_gib(size, out + 1);
    return out;
}

/* ---- stages ---- */

static void print_list(const uint64_t *words, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++)
        printf("%s%" PRIu64, i == 0 ? "" : "+", words[i]);
}

static void print_stage(const estimate_figures *figures, uint64_t number)
{
    const estimate_stage *stage = &figures->stages[number];
    const pst_estimate_memory *memory = &stage->memory;
    char text[10][32], margin[33];
    const uint64_t limit = figures->options->memory_bytes;
    const bool fits = stage->peak_bytes <= limit;
    const uint64_t apart = fits ? limit - stage->peak_bytes : stage->peak_bytes - limit;
    printf("  %5" PRIu64 "%c %15" PRIu64 " %9s %9s %9s %9s %8s %9s %8s %8s %9s %9s %11s  ", number,
           number == figures->heaviest ? '*' : ' ', memory->states.params,
           estimate_gib(memory->states.weight_bytes, text[0]),
           estimate_gib(memory->states.gradient_bytes, text[1]),
           estimate_gib(memory->states.optimizer_bytes, text[2]),
           estimate_gib(memory->saved_bytes, text[3]), estimate_gib(memory->head_bytes, text[4]),
           estimate_gib(memory->recompute_bytes, text[5]),
           estimate_gib(memory->paging_bytes, text[6]), estimate_gib(memory->empty_bytes, text[9]),
           estimate_gib(memory->transient_bytes, text[7]), estimate_gib(stage->peak_bytes, text[8]),
           signed_gib(!fits, apart, margin));
    print_list(stage->chunk_layers, figures->num_chunks);
    printf(" x ");
    print_list(stage->live, figures->num_chunks);
    printf("  %s\n", memory->transient);
}

static void print_stages(const estimate_figures *figures)
{
    char limit[32], overhead[32], host[32];
    const estimate_options *options = figures->options;
    const estimate_stage *heaviest = &figures->stages[figures->heaviest];
    printf(
        "\nmemory of one GPU of each stage, GiB; * needs most; layers x micro-batches in flight, "
        "of each chunk; the largest transient\n"
        "  %5s  %15s %9s %9s %9s %9s %8s %9s %8s %8s %9s %9s %11s\n",
        "stage", "parameters", "weights", "gradients", "optimizer", "saved", "head", "recompute",
        "paging", "empty", "transient", "peak", "margin");
    for (uint64_t i = 0; i < figures->num_stages; i++)
        print_stage(figures, i);
    printf("  of %s GiB, %s GiB for context and NCCL, which the peak holds\n",
           estimate_gib(options->memory_bytes, limit),
           estimate_gib(options->overhead_bytes, overhead));
    if (heaviest->memory.states.host_bytes != 0)
        printf("  in host memory, for a GPU of stage %" PRIu64 ": %s GiB of the optimizer\n",
               figures->heaviest, estimate_gib(heaviest->memory.states.host_bytes, host));
    printf("  %s: stage %" PRIu64 " needs %" PRIu64 " bytes of %" PRIu64 "\n",
           heaviest->peak_bytes <= options->memory_bytes ? "fits" : "does not fit",
           figures->heaviest, heaviest->peak_bytes, options->memory_bytes);
}

/* ---- ledger ---- */

static void print_ledger(const pst_estimate_ledger *ledger, const char *kind)
{
    char whole[32], own[32];
    printf("\nsaved by %s for a micro-batch: undivided, and on one GPU\n", kind);
    for (uint32_t i = 0; i < ledger->num_entries; i++) {
        const pst_estimate_entry *of = &ledger->entries[i];
        printf("  %-22s %16" PRIu64 " %16" PRIu64 " %12s %12s MiB\n", of->name, of->whole_bytes,
               of->bytes, estimate_mib(of->whole_bytes, whole), estimate_mib(of->bytes, own));
    }
    printf("  %-22s %16" PRIu64 " %16" PRIu64 " %12s %12s MiB\n", "sum", ledger->whole_bytes,
           ledger->bytes, estimate_mib(ledger->whole_bytes, whole),
           estimate_mib(ledger->bytes, own));
}

/* ---- experts ---- */

static void print_rows(const char *name, uint64_t rows, uint64_t bytes, const char *note)
{
    char gib[32];
    printf("  %-26s %14" PRIu64 " %18" PRIu64 " %12s%s%s\n", name, rows, bytes,
           estimate_gib(bytes, gib), *note == '\0' ? "" : "  ", note);
}

static void print_moe(const estimate_figures *figures)
{
    const pst_estimate_moe *moe = &figures->moe;
    printf("\nexpert layers of a GPU of stage %" PRIu64 ": %" PRIu64 " live, %" PRIu64
           " bytes saved for a row\n  %-26s %14s %18s %12s\n",
           figures->moe_stage, moe->live_layers, moe->row_bytes, "buffers", "rows of one", "bytes",
           "GiB");
    print_rows("balanced", moe->balanced_rows, moe->balanced_bytes, "");
    print_rows("capacity", moe->capacity_rows, moe->capacity_bytes, "");
    print_rows("worst routing", moe->worst_rows, moe->worst_bytes, "");
    print_rows("paged_rows_model", moe->capacity_rows, moe->paged_bytes,
               "pages of rows, and the layer at work with the capacity");
    print_rows("  of that, pages", moe->num_pages * figures->options->config.page_rows,
               moe->pages_bytes, "their rows, of all layers together");
    print_rows("  page tables, besides", moe->num_pages, moe->table_bytes, "for so many pages");
    print_rows("paged, worst working", moe->worst_rows, moe->worst_working_bytes + moe->pages_bytes,
               "pages of rows, and the layer at work with the worst routing");
    print_rows("pool_bytes", moe->pool_pages, moe->pool_bytes,
               "a pool of so many byte pages, as its creation takes it");
}

/* ---- what if ---- */

static uint64_t size_of(int64_t bytes)
{
    return bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
}

static void print_whatifs(const estimate_figures *figures)
{
    char saved[33], extra[33];
    printf("\nwhat if: GiB saved at the peak of stage %" PRIu64
           ", GiB more that leave one of its GPUs in an iteration\n",
           figures->heaviest);
    for (uint32_t i = 0; i < figures->num_whatifs; i++) {
        const estimate_whatif *of = &figures->whatifs[i];
        printf("  %-64s %12s %12s\n", of->change,
               signed_gib(of->saved_bytes < 0, size_of(of->saved_bytes), saved),
               signed_gib(of->extra_wire_bytes < 0, size_of(of->extra_wire_bytes), extra));
    }
}

static int print_all(const estimate_figures *figures)
{
    const estimate_options *options = figures->options;
    estimate_print_config(&options->config);
    print_notes("assumed", &options->assumptions);
    print_notes("warnings", &options->warnings);
    print_notes("not counted, though it changes memory", &options->unmodelled);
    print_params(figures);
    estimate_print_modules(figures);
    print_stages(figures);
    if (figures->has_part[PST_ESTIMATE_DENSE])
        print_ledger(&figures->ledgers[0], "a dense layer");
    if (figures->has_part[PST_ESTIMATE_MOE])
        print_ledger(&figures->ledgers[1], "a layer with experts");
    TOOL_TRY(estimate_print_traffic(figures));
    estimate_print_products(figures);
    if (figures->has_part[PST_ESTIMATE_MOE])
        print_moe(figures);
    print_whatifs(figures);
    return TOOL_OK;
}

int estimate_report_text(const estimate_options *options)
{
    estimate_figures figures;
    int code = estimate_figures_init(&figures, options);
    if (code == TOOL_OK)
        code = print_all(&figures);
    estimate_figures_free(&figures);
    return code;
}
