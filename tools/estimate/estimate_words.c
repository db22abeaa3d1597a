/* Messages about fields of the configuration, said in flags or in the words of a config.json. */
#include "tools/estimate/estimate_flags.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *field;
    estimate_flag id;
    const char *in_file; /* its names in config.json, the first that is there counts; NULL: none */
} words[] = {
    {"num_layers", ESTIMATE_F_NUM_LAYERS, "num_hidden_layers|n_layer"},
    {"hidden_size", ESTIMATE_F_HIDDEN_SIZE, "hidden_size|n_embd"},
    {"num_heads", ESTIMATE_F_NUM_ATTENTION_HEADS, "num_attention_heads|n_head"},
    {"num_kv_heads", ESTIMATE_F_NUM_QUERY_GROUPS, "num_key_value_heads"},
    {"head_size", ESTIMATE_F_KV_CHANNELS, "head_dim"},
    {"ffn_size", ESTIMATE_F_FFN_HIDDEN_SIZE, "intermediate_size|n_inner"},
    {"vocab_size", ESTIMATE_F_VOCAB_SIZE, "vocab_size"},
    {"padded_vocab_size", ESTIMATE_F_PADDED_VOCAB_SIZE, NULL},
    {"max_positions", ESTIMATE_F_MAX_POSITION_EMBEDDINGS, "n_positions"},
    {"qk_norm", ESTIMATE_F_QK_NORM, NULL},
    {"has_qkv_bias", ESTIMATE_F_ADD_QKV_BIAS, "attention_bias"},
    {"q_rank", ESTIMATE_F_Q_LORA_RANK, "q_lora_rank"},
    {"kv_rank", ESTIMATE_F_KV_LORA_RANK, "kv_lora_rank"},
    {"qk_size", ESTIMATE_F_QK_HEAD_DIM, "qk_nope_head_dim"},
    {"v_size", ESTIMATE_F_V_HEAD_DIM, "v_head_dim"},
    {"num_experts", ESTIMATE_F_NUM_EXPERTS, "num_local_experts|num_experts|n_routed_experts"},
    {"experts_per_token", ESTIMATE_F_MOE_ROUTER_TOPK, "num_experts_per_tok"},
    {"expert_ffn_size", ESTIMATE_F_MOE_FFN_HIDDEN_SIZE, "moe_intermediate_size|intermediate_size"},
    {"shared_ffn_size", ESTIMATE_F_MOE_SHARED_SIZE,
     "shared_expert_intermediate_size|n_shared_experts"},
    {"is_moe", ESTIMATE_F_MOE_LAYER_FREQ, NULL},
    {"latent_size", ESTIMATE_F_MOE_LATENT_SIZE, NULL},
    {"mtp_layers", ESTIMATE_F_MTP_NUM_LAYERS, NULL},
    {"moe_rows", ESTIMATE_F_MOE_BUFFER, NULL},
    {"world_size", ESTIMATE_F_WORLD_SIZE, NULL},
    {"tensor_parallel", ESTIMATE_F_TENSOR, NULL},
    {"pipeline_parallel", ESTIMATE_F_PIPELINE, NULL},
    {"virtual_stages", ESTIMATE_F_VIRTUAL_STAGES, NULL},
    {"context_parallel", ESTIMATE_F_CONTEXT, NULL},
    {"expert_parallel", ESTIMATE_F_EXPERT, NULL},
    {"expert_tensor_parallel", ESTIMATE_F_EXPERT_TENSOR, NULL},
    {"sequence_parallel", ESTIMATE_F_SEQUENCE_PARALLEL, NULL},
    {"micro_batch_group_size", ESTIMATE_F_INTERLEAVE_GROUP, NULL},
    {"sequence_size", ESTIMATE_F_SEQ_LENGTH, NULL},
    {"micro_batch", ESTIMATE_F_MICRO_BATCH_SIZE, NULL},
    {"global_batch", ESTIMATE_F_GLOBAL_BATCH_SIZE, NULL},
    {"recompute_layers", ESTIMATE_F_RECOMPUTE_NUM_LAYERS, NULL},
    {"has_flash_attention", ESTIMATE_F_USE_FLASH_ATTN, NULL},
};
enum { NUM_WORDS = sizeof(words) / sizeof(words[0]) };

typedef struct sentence {
    const estimate_line *line;
    FILE *out;
    bool names_file, names_flag; /* of what was given */
} sentence;

static bool print_in_file(const sentence *self, const char *names)
{
    char name[64];
    while (names != NULL && *names != '\0') {
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof(name), "%.*s", (int)length, names);
        if (json_object_get(self->line->file, name) != NULL) {
            fprintf(self->out, "%s (%s)", name, estimate_text(self->line, ESTIMATE_F_HF_CONFIG));
            return true;
        }
        names += length + (names[length] == '|');
    }
    return false;
}

static void print_flag(sentence *self, int word)
{
    const estimate_line *line = self->line;
    const estimate_flag id = words[word].id;
    self->names_flag = self->names_flag || estimate_has(line, id);
    if (!estimate_has(line, id) && print_in_file(self, words[word].in_file)) {
        self->names_file = true;
        return;
    }
    if (id == ESTIMATE_F_WORLD_SIZE && !estimate_has(line, id) &&
        (estimate_has(line, ESTIMATE_F_NPROC_PER_NODE) || estimate_has(line, ESTIMATE_F_NNODES))) {
        fputs("--nproc-per-node * --nnodes", self->out);
        self->names_flag = true;
        return;
    }
    if (id == ESTIMATE_F_VIRTUAL_STAGES && estimate_has(line, ESTIMATE_F_LAYERS_PER_VIRTUAL)) {
        fputs("--num-layers-per-virtual-pipeline-stage: virtual stages", self->out);
        self->names_flag = true;
        return;
    }
    fprintf(self->out, "--%s", estimate_flag_table[id].name);
    if (words[word].in_file != NULL && !estimate_has(line, id) &&
        estimate_has(line, ESTIMATE_F_PRESET))
        fprintf(self->out, " (--preset %s)", estimate_text(line, ESTIMATE_F_PRESET));
}

static void print_word(sentence *self, const char *word, size_t length)
{
    static const char bias[] = "has_linear_bias"; /* which a flag takes away */
    for (int i = 0; i < NUM_WORDS; i++)
        if (strlen(words[i].field) == length && memcmp(words[i].field, word, length) == 0) {
            print_flag(self, i);
            return;
        }
    if (length == sizeof(bias) - 1 && memcmp(bias, word, length) == 0)
        fputs("no --disable-bias-linear", self->out);
    else
        fwrite(word, 1, length, self->out);
}

static void print_message(sentence *self, const char *message)
{
    self->names_flag = strstr(message, "--") != NULL;
    while (*message != '\0' && strncmp(message, " [", 2) != 0) { /* then: where in our sources */
        const size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz_");
        print_word(self, message, length);
        message += length;
        if (length == 0)
            fputc(*message++, self->out);
    }
}

int estimate_refuse(const estimate_line *line, const char *format, ...)
{
    char message[1024];
    char *text = NULL;
    size_t bytes = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    sentence self = {.line = line, .out = open_memstream(&text, &bytes)};
    if (self.out == NULL)
        return tool_fail(TOOL_USAGE, "%s", message);
    print_message(&self, message);
    fclose(self.out);
    const bool is_of_file = self.names_file && !self.names_flag;
    const int code =
        tool_fail(is_of_file ? TOOL_INPUT : TOOL_USAGE, "%s", text != NULL ? text : message);
    free(text);
    return code;
}
