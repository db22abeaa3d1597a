/* estimate_main FLAGS...: what `pagestash estimate` understands of them, a line for each value. */
#include <pagestash/estimate.h>

#include <inttypes.h>
#include <stdio.h>

#include "tools/estimate/estimate_flags.h"

#define NUMBER(name) printf("%s %" PRIu64 "\n", #name, (uint64_t)config->name)

static void print_config(const pst_estimate_config *config)
{
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].member != NULL && estimate_rows[id].type < ESTIMATE_IS_LAYERS)
            printf("%s %" PRIu64 "\n", estimate_rows[id].member, estimate_value(config, id));
    printf("is_moe ");
    for (uint64_t i = 0; config->is_moe != NULL && i < config->num_layers; i++)
        putchar(config->is_moe[i] ? '1' : '0');
    printf("\nchunk_layers ");
    const uint64_t num_chunks = config->pipeline_parallel * config->virtual_stages;
    for (uint64_t i = 0; config->chunk_layers != NULL && i < num_chunks; i++)
        printf("%s%" PRIu64, i > 0 ? "," : "", config->chunk_layers[i]);
    putchar('\n');
}

static void print_notes(const char *kind, const json_t *notes)
{
    for (size_t i = 0; i < json_array_size(notes); i++)
        printf("%s %s\n", kind, json_string_value(json_array_get(notes, i)));
}

static void print_options(const estimate_options *config)
{
    NUMBER(mode), NUMBER(is_strict), NUMBER(lists_members);
    NUMBER(gpus_per_node), NUMBER(memory_bytes), NUMBER(has_load_cv);
    printf("overhead_bytes %" PRIu64 "\nfragmentation %" PRIu64 "/%" PRIu64 "\n",
           config->reserve.overhead_bytes, config->reserve.fragmentation_num,
           config->reserve.fragmentation_den);
    NUMBER(has_capacity), NUMBER(has_headroom);
    NUMBER(load_cv_num), NUMBER(load_cv_den), NUMBER(num_sms), NUMBER(timeline_stage);
    NUMBER(pr482_logit_bytes);
    printf("preset %s\nhf_config %s\nrouting %s\nhtml %s\njson %s\n",
           config->preset ? config->preset : "", config->hf_config ? config->hf_config : "",
           config->routing ? config->routing : "", config->html ? config->html : "",
           config->json ? config->json : "");
    print_notes("assumption", config->assumptions);
    print_notes("warning", config->warnings);
    print_notes("unmodelled", config->unmodelled);
    print_notes("matters", config->matters);
    NUMBER(is_more), NUMBER(is_less);
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
        print_config(&options.config);
        print_options(&options);
        code = print_params(&options.config);
        if (code == TOOL_OK)
            code = print_stages(&options.config);
    }
    estimate_free(&options);
    return code;
}
