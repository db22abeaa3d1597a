/* Opens a configuration: checks it and fills in what its zeros stand for. */
#include "host/estimate/estimate.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"

/* ---- what a zero stands for ---- */

static void fill(uint64_t *field, uint64_t value)
{
    if (*field == 0)
        *field = value;
}

static void fill_widths(pst_estimate_config *config)
{
    static const uint64_t widths[][2] = {
        [PST_TRAIN_BF16] = {4, 12}, [PST_TRAIN_FP16] = {2, 16}, [PST_TRAIN_FP32] = {4, 8}};
    fill(&config->gradient_width, widths[config->type][0]);
    fill(&config->optimizer_width, widths[config->type][1]);
    if (config->offload_num == 0)
        fill(&config->offload_den, 1);
}

static void fill_all(pst_estimate_config *config)
{
    fill(&config->num_kv_heads, config->num_heads);
    if (config->num_heads != 0)
        fill(&config->head_size, config->hidden_size / config->num_heads);
    fill(&config->vocab_multiple, 128);
    fill(&config->tensor_parallel, 1);
    fill(&config->pipeline_parallel, 1);
    fill(&config->virtual_stages, 1);
    fill(&config->context_parallel, 1);
    fill(&config->expert_parallel, 1);
    fill(&config->expert_tensor_parallel, config->tensor_parallel);
    fill(&config->micro_batch, 1);
    fill(&config->micro_batch_group_size, config->pipeline_parallel);
    fill(&config->capacity_num, 1);
    fill(&config->capacity_den, 1);
    fill(&config->row_multiple, 1);
    fill(&config->page_rows, 64);
    if (config->headroom_num == 0 && config->headroom_den == 0) {
        config->headroom_num = 11;
        config->headroom_den = 10;
    }
    fill_widths(config);
}

/* After the split is known to be in its limits. */
static void fill_sizes(pst_estimate_config *config)
{
    const uint64_t replica =
        config->tensor_parallel * config->pipeline_parallel * config->context_parallel;
    fill(&config->world_size, replica);
    const uint64_t unit = psti_times(config->vocab_multiple, config->tensor_parallel);
    fill(&config->padded_vocab_size, psti_times(psti_div_up(config->vocab_size, unit), unit));
    fill(&config->global_batch, psti_times(config->micro_batch, config->world_size / replica));
}

static pst_status open_config(const pst_estimate_config *given, pst_estimate_config *config_out,
                              pst_estimate_fault *fault)
{
    PSTI_TAKE(pst_estimate_config, filled, given);
    const pst_estimate_config *config = &filled;
    PSTI_TRY(psti_check_kinds(config, fault));
    fill_all(&filled);
    PSTI_TRY(psti_check_split_limits(config, fault));
    fill_sizes(&filled);
    PSTI_TRY(psti_check_rules(config, fault));
    *config_out = filled;
    return PST_OK;
}

pst_status psti_estimate_open(const pst_estimate_config *given, pst_estimate_config *config_out)
{
    pst_estimate_fault fault;
    return open_config(given, config_out, &fault);
}

pst_status pst_estimate_check(const pst_estimate_config *config)
{
    pst_estimate_config opened;
    return psti_estimate_open(config, &opened);
}

pst_status pst_estimate_find_fault(const pst_estimate_config *config, pst_estimate_fault *fault_out)
{
    pst_estimate_config opened;
    pst_estimate_fault fault = {.field = ""};
    PSTI_CHECK(fault_out, PST_E_INVALID, "fault_out is NULL");
    const pst_status status = open_config(config, &opened, &fault);
    *fault_out = fault;
    return status;
}

/* ---- what an opened config says ---- */

bool psti_estimate_has_moe(const pst_estimate_config *config, uint64_t layer)
{
    return config->num_experts != 0 && (config->is_moe == NULL || config->is_moe[layer]);
}

uint64_t psti_estimate_dense_group(const pst_estimate_config *config)
{
    return config->world_size / (config->tensor_parallel * config->pipeline_parallel);
}

uint64_t psti_estimate_expert_group(const pst_estimate_config *config)
{
    return config->world_size /
           (config->expert_tensor_parallel * config->expert_parallel * config->pipeline_parallel);
}

uint64_t psti_num_micro_batches(const pst_estimate_config *config)
{
    const uint64_t replica =
        config->tensor_parallel * config->pipeline_parallel * config->context_parallel;
    return config->global_batch / psti_times(config->micro_batch, config->world_size / replica);
}

bool psti_ends_with_moe(const pst_estimate_config *config)
{
    return psti_estimate_has_moe(config, config->num_layers - 1);
}

uint64_t psti_num_mtp(const pst_estimate_config *config, uint64_t stage)
{
    return stage == config->pipeline_parallel - 1 ? config->mtp_layers : 0;
}

bool psti_copies_embedding(const pst_estimate_config *config)
{
    return config->pipeline_parallel > 1 && (config->is_tied || config->mtp_layers != 0);
}

psti_chunk psti_chunk_of(const pst_estimate_config *config, uint64_t stage, uint64_t chunk)
{
    const uint64_t index = chunk * config->pipeline_parallel + stage;
    const uint64_t num_chunks = config->pipeline_parallel * config->virtual_stages;
    psti_chunk of = {.num_layers = config->num_layers / num_chunks};
    of.first = index * of.num_layers;
    if (config->chunk_layers != NULL) {
        of = (psti_chunk){.num_layers = config->chunk_layers[index]};
        for (uint64_t i = 0; i < index; i++)
            of.first += config->chunk_layers[i];
    }
    for (uint64_t i = of.first; i < of.first + of.num_layers; i++)
        of.num_moe += psti_estimate_has_moe(config, i);
    if (chunk == config->virtual_stages - 1)
        of.num_mtp = psti_num_mtp(config, stage);
    of.num_mtp_moe = psti_ends_with_moe(config) ? of.num_mtp : 0;
    return of;
}

pst_status psti_estimate_check_stage(const pst_estimate_config *config, uint64_t stage)
{
    PSTI_CHECK(stage < config->pipeline_parallel, PST_E_INVALID,
               "stage %" PRIu64 ": pipeline_parallel is %" PRIu64, stage,
               config->pipeline_parallel);
    return PST_OK;
}

/* ---- what a layer saves ---- */

pst_status pst_estimate_get_ledger_sized(const pst_estimate_config *given, bool is_moe,
                                         pst_estimate_ledger *ledger_out, size_t ledger_bytes)
{
    static const psti_split undivided = {1, 1, 1, 1, false};
    pst_estimate_config config;
    PSTI_TRY(psti_estimate_open(given, &config));
    PSTI_CHECK(ledger_out, PST_E_INVALID, "ledger_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_estimate_ledger, ledger_bytes));
    PSTI_CHECK(is_moe ? config.num_experts != 0 : config.ffn_size != 0, PST_E_INVALID,
               "%s 0: is_moe is %d", is_moe ? "num_experts" : "ffn_size", is_moe);
    const psti_ledger whole = psti_ledger_of(&config, undivided, is_moe);
    const psti_ledger own = psti_ledger_of(&config, psti_split_of(&config), is_moe);
    pst_estimate_ledger ledger = {.whole_bytes = psti_ledger_sum(&whole),
                                  .bytes = psti_ledger_sum(&own)};
    for (uint32_t i = 0; i < own.num_tensors; i++)
        if (own.tensors[i].bytes != 0 || whole.tensors[i].bytes != 0)
            ledger.entries[ledger.num_entries++] = (pst_estimate_entry){
                own.tensors[i].name, whole.tensors[i].bytes, own.tensors[i].bytes};
    PSTI_CHECK(ledger.whole_bytes != PSTI_TOO_MUCH && ledger.bytes != PSTI_TOO_MUCH, PST_E_INVALID,
               "config: saved activations exceed 64 bits");
    memcpy(ledger_out, &ledger, ledger_bytes);
    return PST_OK;
}
