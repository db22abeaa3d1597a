/* The sections of the analyzer of 2023; its tables were padded to columns, to the last space. */
#include "tools/estimate/estimate_compat.h"

#include <inttypes.h>
#include <stdio.h>

static void put_layers(const pr482_report *report, uint64_t num_layers)
{
    printf("│    └─ParallelTransformer: X %" PRIu64 "(layer_num)%40s\t", num_layers, "");
    pr482_put_mega(report, PR482_LAYER, "/layer");
    fputs("\t\n", stdout);
}

#define ROW(...) (pr482_put_row(report, __VA_ARGS__), (void)putchar('\n'))

/* Rows of a layer that are no matrices stand in both tables, before t or after. */
static void put_rearranged(const pr482_report *report, pr482_name qkv, pr482_name hidden)
{
    ROW("│    │    |     └─rearrange", NULL, PR482_NONE, qkv);
    ROW("│    │    |     └─core_attention_flash", NULL, PR482_NONE, hidden);
    ROW("│    │    |     └─rearrange", NULL, PR482_NONE, hidden);
}

static void put_norm(const pr482_report *report, const char *label, pr482_name weights)
{
    const pr482_shape norm = pr482_shape_of(report->h, 0, report->h);
    ROW(label, &norm, weights, PR482_HIDDEN);
}

static void put_full_layer(const pr482_report *report)
{
    const uint64_t h = report->h, f = report->f;
    const pr482_shape qkv = pr482_shape_of(3 * h, h, h), dense = pr482_shape_of(h, h, h);
    const pr482_shape up = pr482_shape_of(2 * f, h, 2 * f), down = pr482_shape_of(h, f, h);
    put_layers(report, report->n);
    put_norm(report, "│    │    └─input_layernorm", PR482_NORM_IN);
    ROW("│    │    └─self_attention", NULL, PR482_NONE, PR482_ATTENTION);
    ROW("│    │    |     └─query_key_value", &qkv, PR482_W_QKV, PR482_NONE);
    put_rearranged(report, PR482_QKV, PR482_HIDDEN);
    ROW("│    │    |     └─dense", &dense, PR482_W_DENSE, PR482_HIDDEN);
    put_norm(report, "│    │    └─post_attention_layernorm", PR482_NORM_MLP);
    ROW("│    │    └─mlp", NULL, PR482_NONE, PR482_MLP);
    ROW("│    │    |     └─dense_h_to_4h", &up, PR482_W_UP, PR482_NONE);
    ROW("│    │    |     └─bias_glue", NULL, PR482_NONE, PR482_GLUE);
    ROW("│    │    |     └─dense_4h_to_h", &down, PR482_W_DOWN, PR482_HIDDEN);
    ROW("│    │    └─drop_add_fusion", NULL, PR482_NONE, PR482_DROP);
}

/* ---- sections ---- */

static void print_full(const pr482_report *report)
{
    const pr482_shape words = pr482_shape_of(report->v, report->h, 0);
    const pr482_shape positions = pr482_shape_of(report->s, report->h, 0);
    pr482_put_title("Full Model without Parallel", 107);
    puts("Layer                                      Param.(shape)           Param.(Mem. MB)  "
         "Act.(Mem. MB)        ");
    pr482_put_line('-', 106);
    pr482_put_head("GPTModel", 65);
    pr482_put_head("├─TransformerLanguageModel", PR482_LABEL_COLUMNS);
    ROW("│    └─Embedding", NULL, PR482_NONE, PR482_EMBEDDING);
    pr482_put_row(report, "│    │    └─word_embeddings", &words, PR482_WORDS, PR482_NONE);
    fputs("  \n", stdout);
    ROW("│    │    └─position_embeddings", &positions, PR482_POSITIONS, PR482_NONE);
    put_full_layer(report);
    pr482_put_line('-', 107);
    pr482_put_params(report, PR482_COUNT);
    pr482_put_giga("Parameters: ", report, PR482_WEIGHTS, 1, "GB");
    pr482_put_giga("Gradients: ", report, PR482_GRADIENTS, 1, "GB");
    pr482_put_giga("Optimizers(Adam) States: ", report, PR482_OPTIMIZER, 1, "GB");
    pr482_put_giga("Activations: ", report, PR482_SAVED, 1, "GB");
    pr482_put_giga("Total memory demand: ", report, PR482_TOTAL, 1, "GB");
    pr482_put_end(110);
}

static void print_summary(const pr482_report *report)
{
    static const struct {
        const char *name;
        pr482_name count, bytes;
    } parts[] = {{"Pipeline Parallelism", PR482_PP_ALL_COUNT, PR482_PP_ALL_BYTES},
                 {"Data Parallelism", PR482_DP_COUNT, PR482_DP_BYTES},
                 {"Tensor Parallelism", PR482_TP_ALL_COUNT, PR482_TP_ALL_BYTES},
                 {"All Communication", PR482_SUM_COUNT, PR482_SUM_BYTES}};
    pr482_put_title("Cluster Communication Summary", 30);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        puts(parts[i].name);
        pr482_put_count("│    └─frequency/iteration: ", report, parts[i].count);
        pr482_put_giga("│    └─volume/iteration: ", report, parts[i].bytes, 1, " GB");
    }
    pr482_put_end(30);
}

static void print_gpu(const pr482_report *report)
{
    pr482_put_title("Memory demand on each GPU in the cluster", 30);
    pr482_put_params(report, PR482_GPU_COUNT);
    pr482_put_giga("Parameters: ", report, PR482_GPU_WEIGHTS, 1, "GB");
    pr482_put_giga("Gradients: ", report, PR482_GPU_GRADIENTS, 1, "GB");
    pr482_put_giga("Optimizers(Adam) States: ", report, PR482_GPU_OPTIMIZER, 1, "GB");
    pr482_put_giga("Activations: ", report, PR482_GPU_SAVED, 1, "GB");
    pr482_put_giga("Memory Requirement: ", report, PR482_GPU_PEAK, 1, "GB");
    pr482_put_end(30);
}

static void put_stage(const pr482_report *report, uint64_t stage)
{
    const uint64_t size = report->world / report->p;
    printf("│    └─Stage%" PRIu64 ": ParallelTransformerLayer_Index%" PRIu64 "-%" PRIu64 "\n",
           stage, stage * report->l, stage * report->l + report->l - 1);
    printf("│    │    └─stage_device_mappings%s\n", stage > 0 ? " " : "");
    pr482_put_ranks(report, "│    │    │      └─", stage * size, 1, size);
}

static void put_first_stage(const pr482_report *report)
{
    const pr482_shape message = pr482_message_shape(report);
    put_stage(report, 0);
    puts("│    │    └─each single communication on each gpu");
    fputs("│    │    │    └─shape: ", stdout);
    pr482_put_padded(message.text, PR482_SHAPE_COLUMNS);
    fputs("  \n│    │    │    └─volume: ", stdout);
    pr482_put_mega(report, PR482_HIDDEN, "MB");
    puts("\n│    │    │    └─func: isend, irecv\n"
         "│    │    │    └─location: between stage in forward and backward process\n"
         "│    │    └─each iteration communication on each gpu");
    printf("│    │    │    └─frequency: %" PRIu64 " (num_gradient_accumulation_steps * 4)\n"
           "│    │    │    └─volume: ",
           (uint64_t)report->values[PR482_PP_COUNT].num);
    pr482_put_mega(report, PR482_PP_BYTES, "MB");
    putchar('\n');
}

static void print_pipeline(const pr482_report *report)
{
    const uint64_t num_groups = report->world / report->p;
    pr482_put_title("Pipeline Parallel Communications", 88);
    pr482_put_head("GPTModel", 65);
    pr482_put_head("├─TransformerLanguageModel", PR482_LABEL_COLUMNS);
    pr482_put_head("│    └─Embedding", 62);
    pr482_put_head("│    │    └─word_embeddings", PR482_LABEL_COLUMNS);
    pr482_put_head("│    │    └─position_embeddings", PR482_LABEL_COLUMNS);
    put_first_stage(report);
    for (uint64_t stage = 1; stage < report->p; stage++)
        put_stage(report, stage);
    putchar('\n');
    pr482_put_line('-', 88);
    printf("%" PRIu64 " Pipeline Parallel Communication Groups:\n", num_groups);
    for (uint64_t i = 0; i < num_groups; i++)
        pr482_put_ranks(report, "│    └─", i, num_groups, report->p);
    puts("All Communication of Cluster in Pipeline Parallelism");
    pr482_put_count("│    └─frequency/iteration: ", report, PR482_PP_ALL_COUNT);
    pr482_put_giga("│    └─volume/iteration: ", report, PR482_PP_ALL_BYTES, 1, "GB");
    pr482_put_end(88);
}

static void put_data_groups(const pr482_report *report)
{
    const uint64_t stage_size = report->world / report->p;
    printf("│    │    └─%" PRIu64 " Data Parallel Groups \n", report->p * report->t);
    for (uint64_t stage = 0; stage < report->p; stage++)
        for (uint64_t i = 0; i < report->t; i++)
            pr482_put_ranks(report, "│    │    │    └─", stage * stage_size + i, report->t,
                            report->d);
}

static void print_data(const pr482_report *report)
{
    pr482_put_title("Data Parallel Communications", 88);
    pr482_put_head("GPTModel", 65);
    puts("├─each iteration                \n"
         "│    └─synchronize_gradient                                         ");
    put_data_groups(report);
    puts("│    │    └─communication ");
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_DP_HALF_BYTES, 1, "GB");
    puts("│    │    │    └─func: reduce_scatter (using DistributedOptimizer) \n"
         "│    │    └─frequency/iteration: 1");
    printf("│    │    └─location: after forward_and_backward_compute * %" PRIu64
           " times/iteration \n",
           report->m);
    puts("│    └─gather_model_param (using DistributedOptimizer)"
         "                                          ");
    put_data_groups(report);
    puts("│    │    └─communication on each gpu");
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_DP_HALF_BYTES, 1, "GB");
    puts("│    │    │    └─func: all_gather\n"
         "│    │    └─frequency/iteration: 1\n"
         "│    │    └─location: after optimizer.iteration");
    pr482_put_line('-', 88);
    puts("All Communication of Cluster in Data Parallelism");
    pr482_put_count("│    └─frequency/iteration: ", report, PR482_DP_COUNT);
    pr482_put_giga("│    └─volume/iteration: ", report, PR482_DP_BYTES, 1, "GB");
    pr482_put_end(88);
}

/* ---- the tensor parallel table ---- */

#define MESSAGE_ROW(is_backward, ...) \
    (pr482_put_row(report, __VA_ARGS__), put_tail(report, is_backward))

static void put_tail(const pr482_report *report, bool is_backward)
{
    pr482_put_message(report, is_backward);
    putchar('\n');
}

/* A matrix that saves nothing has an empty cell here. */
static void put_column(const pr482_report *report, const char *label, const pr482_shape *shape,
                       pr482_name weights)
{
    pr482_put_row(report, label, shape, weights, PR482_NONE);
    pr482_put_padded("", PR482_CELL_COLUMNS);
    putchar('\t');
}

static void put_tensor_layer(const pr482_report *report)
{
    const uint64_t h = report->h, f = report->f, t = report->t;
    const pr482_shape qkv = pr482_shape_of(3 * h / t, h, h), dense = pr482_shape_of(h / t, h, h);
    const pr482_shape up = pr482_shape_of(2 * f / t, h, 2 * f / t);
    const pr482_shape down = pr482_shape_of(h, f / t, h);
    put_layers(report, report->l);
    put_norm(report, "│    │    └─input_layernorm", PR482_NORM_IN);
    ROW("│    │    └─self_attention", NULL, PR482_NONE, PR482_ATTENTION);
    put_column(report, "│    │    |     └─query_key_value", &qkv, PR482_W_QKV_PART);
    put_tail(report, true);
    put_rearranged(report, PR482_QKV_PART, PR482_HIDDEN_PART);
    MESSAGE_ROW(false, "│    │    |     └─dense", &dense, PR482_W_DENSE_PART, PR482_HIDDEN);
    put_norm(report, "│    │    └─post_attention_layernorm", PR482_NORM_MLP);
    ROW("│    │    └─mlp", NULL, PR482_NONE, PR482_MLP);
    put_column(report, "│    │    |     └─dense_h_to_4h", &up, PR482_W_UP_PART);
    put_tail(report, true);
    ROW("│    │    |     └─bias_glue", NULL, PR482_NONE, PR482_GLUE);
    MESSAGE_ROW(false, "│    │    |     └─dense_4h_to_h", &down, PR482_W_DOWN, PR482_HIDDEN);
    ROW("│    │    └─drop_add_fusion", NULL, PR482_NONE, PR482_DROP);
}

static void put_tensor_table(const pr482_report *report)
{
    const pr482_shape words = pr482_shape_of(report->v / report->t, 0, report->h);
    const pr482_shape positions = pr482_shape_of(report->s, 0, report->h);
    puts("Layer                                      Param(shape)           Param(Mem. MB)  "
         "Activations(Mem. MB)   TP_Fw.(Comm. Shape)  TP_Fw.(Comm. Mem. MB)   "
         "TP_Bw.(Comm. Shape)  TP_Bw.(Comm. Mem. MB)   TP(Comm. func)");
    pr482_put_line('-', 209);
    pr482_put_head("GPTModel", 65);
    pr482_put_head("├─TransformerLanguageModel", PR482_LABEL_COLUMNS);
    pr482_put_row(report, "│    └─Embedding", NULL, PR482_NONE, PR482_EMBEDDING);
    pr482_put_head("", 20);
    put_column(report, "│    │    └─word_embeddings", &words, PR482_WORDS);
    put_tail(report, false);
    ROW("│    │    └─position_embeddings", &positions, PR482_POSITIONS, PR482_NONE);
    put_tensor_layer(report);
    pr482_put_line('-', 211);
}

static void put_tensor_counts(const pr482_report *report)
{
    puts("Communication in Tensor Parallel\n"
         "│    └─each gpu:\n"
         "│    │    └─each micro_batch:");
    pr482_put_count("│    │    │    └─frequency: ", report, PR482_TP_MICRO_COUNT);
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_TP_MICRO_BYTES, 1, "GB");
    puts("│    │    │    └─each transformer:\n"
         "│    │    │    │    └─frequency: 2(forward)+2(backward)=4");
    pr482_put_giga("│    │    │    │    └─volume: ", report, PR482_TP_LAYER_BYTES, 2, "GB");
    puts("│    │    └─each iteration:");
    pr482_put_count("│    │    │    └─frequency: ", report, PR482_TP_COUNT);
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_TP_BYTES, 1, "GB");
    puts("│    └─cluster:\n"
         "│    │    └─each micro_batch:");
    pr482_put_count("│    │    │    └─frequency: ", report, PR482_TP_ALL_MICRO_COUNT);
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_TP_ALL_MICRO_BYTES, 1, "GB");
    puts("│    │    └─each iteration:");
    pr482_put_count("│    │    │    └─frequency: ", report, PR482_TP_ALL_COUNT);
    pr482_put_giga("│    │    │    └─volume: ", report, PR482_TP_ALL_BYTES, 1, "GB");
}

static void print_tensor(const pr482_report *report)
{
    const uint64_t num_groups = report->world / report->t;
    pr482_put_title("Tensor Parallel Communications", 209);
    put_tensor_table(report);
    printf("%" PRIu64 " Tensor Parallel Communication Groups:\n", num_groups);
    for (uint64_t i = 0; i < num_groups; i++)
        pr482_put_ranks(report, "│    └─", i * report->t, 1, report->t);
    put_tensor_counts(report);
    pr482_put_end(215);
}

void pr482_print(const pr482_report *report)
{
    print_full(report);
    print_summary(report);
    print_gpu(report);
    if (report->p != 1)
        print_pipeline(report);
    if (report->d != 1)
        print_data(report);
    if (report->t != 1)
        print_tensor(report);
}
