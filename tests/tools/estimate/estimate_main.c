/* estimate_main FLAGS...: what `pagestash estimate` understands of them, a line for each value. */
#include <pagestash/estimate.h>

#include <inttypes.h>
#include <stdio.h>

#include "tools/estimate/estimate.h"

#define NUMBER(name) printf("%s %" PRIu64 "\n", #name, (uint64_t)config->name)

static void print_model(const pst_estimate_config *config)
{
    NUMBER(num_layers), NUMBER(hidden_size), NUMBER(num_heads), NUMBER(num_kv_heads);
    NUMBER(head_size), NUMBER(ffn_size), NUMBER(vocab_size), NUMBER(vocab_multiple);
    NUMBER(padded_vocab_size), NUMBER(max_positions), NUMBER(norm), NUMBER(qk_norm);
    NUMBER(is_gated), NUMBER(has_linear_bias), NUMBER(has_qkv_bias), NUMBER(is_tied);
    NUMBER(q_rank), NUMBER(kv_rank), NUMBER(qk_size), NUMBER(qk_position_size), NUMBER(v_size);
    NUMBER(num_experts), NUMBER(experts_per_token), NUMBER(expert_ffn_size);
    NUMBER(shared_ffn_size), NUMBER(has_shared_gate), NUMBER(has_router_bias);
    NUMBER(latent_size), NUMBER(mtp_layers);
    printf("is_moe ");
    for (uint64_t i = 0; config->is_moe != NULL && i < config->num_layers; i++)
        putchar(config->is_moe[i] ? '1' : '0');
    putchar('\n');
}

static void print_run(const pst_estimate_config *config)
{
    NUMBER(world_size), NUMBER(tensor_parallel), NUMBER(pipeline_parallel);
    NUMBER(virtual_stages), NUMBER(context_parallel), NUMBER(expert_parallel);
    NUMBER(expert_tensor_parallel), NUMBER(sequence_parallel), NUMBER(distributed_optimizer);
    NUMBER(micro_batch_group_size), NUMBER(overlaps_exchange);
    NUMBER(sequence_size), NUMBER(micro_batch), NUMBER(global_batch), NUMBER(type);
    NUMBER(gradient_width), NUMBER(optimizer_width), NUMBER(offload_num), NUMBER(offload_den);
    NUMBER(recompute), NUMBER(recompute_layers), NUMBER(has_flash_attention);
    NUMBER(has_hidden_dropout), NUMBER(has_attention_dropout), NUMBER(fuses_activation);
    NUMBER(copies_attention), NUMBER(loss), NUMBER(saves_inputs_fp8);
    NUMBER(applies_probs_late), NUMBER(moe_rows), NUMBER(capacity_num), NUMBER(capacity_den);
    NUMBER(caps_each_expert), NUMBER(row_multiple), NUMBER(page_rows), NUMBER(page_bytes);
    NUMBER(headroom_num), NUMBER(headroom_den);
    const uint64_t num_chunks = config->pipeline_parallel * config->virtual_stages;
    printf("chunk_layers ");
    for (uint64_t i = 0; config->chunk_layers != NULL && i < num_chunks; i++)
        printf("%s%" PRIu64, i > 0 ? "," : "", config->chunk_layers[i]);
    putchar('\n');
}

static void print_notes(const char *kind, const estimate_notes *notes)
{
    for (size_t i = 0; i < notes->num_lines; i++)
        printf("%s %s\n", kind, notes->lines[i]);
}

static void print_options(const estimate_options *config)
{
    NUMBER(mode), NUMBER(json), NUMBER(is_strict), NUMBER(lists_members);
    NUMBER(gpus_per_node), NUMBER(memory_bytes), NUMBER(overhead_bytes), NUMBER(has_load_cv);
    NUMBER(has_capacity), NUMBER(has_headroom);
    NUMBER(load_cv_num), NUMBER(load_cv_den), NUMBER(num_sms), NUMBER(timeline_stage);
    NUMBER(pr482_logit_bytes);
    printf("preset %s\nhf_config %s\nrouting %s\nhtml %s\n", config->preset ? config->preset : "",
           config->hf_config ? config->hf_config : "", config->routing ? config->routing : "",
           config->html ? config->html : "");
    print_notes("assumption", &config->assumptions);
    print_notes("warning", &config->warnings);
    print_notes("unmodelled", &config->unmodelled);
}

static int print_params(const pst_estimate_config *model)
{
    pst_estimate_params params;
    const pst_estimate_params *config = &params;
    TOOL_PST(pst_estimate_get_params(model, &params));
    NUMBER(total), NUMBER(padded), NUMBER(active), NUMBER(experts), NUMBER(router_bias);
    return TOOL_OK;
}

static int print_stages(const pst_estimate_config *config)
{
    for (uint64_t stage = 0; stage < config->pipeline_parallel; stage++) {
        pst_estimate_memory memory;
        TOOL_PST(pst_estimate_get_memory(config, stage, NULL, &memory));
        printf("stage%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
               stage, memory.states.params, memory.states.bytes, memory.saved_bytes,
               memory.head_bytes, memory.bytes);
    }
    return TOOL_OK;
}

int main(int argc, char **argv)
{
    estimate_options options;
    int code = estimate_parse(argc, argv, &options);
    if (code == TOOL_OK) {
        print_model(&options.config);
        print_run(&options.config);
        print_options(&options);
        code = print_params(&options.config);
        if (code == TOOL_OK)
            code = print_stages(&options.config);
    }
    estimate_free(&options);
    return code;
}
