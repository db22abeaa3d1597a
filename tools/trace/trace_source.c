/* Deriving a trace from a transformer's shape, and expanding the profile of a layer. */
#include "tools/trace/trace_source.h"

#define AT(member) offsetof(trace_source, member)
#define MAX_PARTS (1u << 20)

static const flag flags[] = {
    {"derive", FLAG_SWITCH, AT(derive), NULL, 0, 0, NULL,
     "a transformer's trace from formulas instead of a file; the flags from --part to "
     "--num-micro-batches describe it"},
    {"part", FLAG_CHOICE, AT(part), "model|layer-forward|layer-backward|layer", 0, 0, "model",
     "the whole model, or one layer of it"},
    {"micro_batch_size", FLAG_U64, AT(derivation.micro_batch), "N", 1, UINT32_MAX, "1",
     "sequences of a micro-batch"},
    {"seq_length", FLAG_U64, AT(derivation.sequence_size), "N", 1, INT64_MAX, "131072",
     "tokens of a sequence"},
    {"hidden_size", FLAG_U64, AT(derivation.hidden_size), "N", 1, UINT32_MAX, "4096",
     "width of the model"},
    {"ffn_hidden_size", FLAG_U64, AT(derivation.ffn_size), "N", 1, UINT32_MAX, NULL,
     "width of the MLP (4 * hidden-size)"},
    {"num_attention_heads", FLAG_U64, AT(derivation.num_heads), "N", 1, UINT32_MAX, "32",
     "heads of the attention"},
    {"vocab_size", FLAG_U64, AT(derivation.vocab_size), "N", 1, UINT32_MAX, "50257",
     "tokens of the vocabulary"},
    {"tensor_model_parallel_size", FLAG_U32, AT(derivation.tensor_parallel), "N", 1, UINT32_MAX,
     "4", "tensor parallel ranks"},
    {"context_parallel_size", FLAG_U32, AT(derivation.context_parallel), "N", 1, UINT32_MAX, "2",
     "context parallel ranks"},
    {"num_layers", FLAG_U32, AT(derivation.num_layers), "N", 1, UINT32_MAX, "32",
     "layers of the derived model"},
    {"alpha", FLAG_FRACTION, AT(derivation.alpha_num), "NUM/DEN", 0, 0, "1/4",
     "share of the tokens that is swapped; the rest is recomputed"},
    {"full", FLAG_SWITCH, AT(derivation.full), NULL, 0, 0, NULL,
     "also request what the backward needs, and swap nothing (swapped tensors live outside the "
     "plan)"},
    {"fused_loss", FLAG_SWITCH, AT(derivation.fused_loss), NULL, 0, 0, NULL,
     "the head's tensors as for a vocabulary of 512"},
    {"warmup", FLAG_U32, AT(derivation.warmup), "N", 0, UINT32_MAX, "0",
     "micro-batches of the derived model that go forward before forwards and backwards "
     "take turns"},
    {"num_micro_batches", FLAG_U32, AT(num_micro_batches), "M", 1, MAX_PARTS, "1",
     "micro-batches of the derived model, or that --expand makes"},
    {"expand", FLAG_U32, AT(expansion.num_layers), "N", 1, MAX_PARTS, NULL,
     "take the trace as a profile of one or some layers and make N of them"},
    {"forward", FLAG_RANGE, AT(expansion.forward_begin), "A:B", 0, 0, NULL,
     "requests of the profile's layer forward (by labels, or by what repeats)"},
    {"backward", FLAG_RANGE, AT(expansion.backward_begin), "A:B", 0, 0, NULL,
     "requests of its backward"},
    {"order", FLAG_CHOICE, AT(order), "sequential|1f1b", 0, 0, "sequential",
     "of the micro-batches that --expand makes"},
    {"pipeline_model_parallel_size", FLAG_U32, AT(expansion.num_stages), "P", 1, MAX_PARTS, "1",
     "stages of the pipeline, for 1f1b"},
    {"pipeline_model_parallel_rank", FLAG_U32, AT(expansion.stage), "S", 0, MAX_PARTS, "0",
     "the stage that is ours, from 0"},
};

flag_group trace_source_flags(size_t base)
{
    return (flag_group)FLAG_GROUP(flags, base);
}

const char *trace_source_name(const trace_source *source)
{
    return source->derive ? "derived" : source->file.paths[trace_file_format(&source->file)];
}

/* Whether a flag of the derived model was given. */
static bool has_shape(const pst_trace_derivation *a)
{
    static const pst_trace_derivation b = {.micro_batch = 1, /* what the flags have by default */
                                           .sequence_size = 131072,
                                           .hidden_size = 4096,
                                           .num_heads = 32,
                                           .vocab_size = 50257,
                                           .tensor_parallel = 4,
                                           .context_parallel = 2,
                                           .num_layers = 32,
                                           .alpha_num = 1,
                                           .alpha_den = 4};
    return a->micro_batch != b.micro_batch || a->sequence_size != b.sequence_size ||
           a->hidden_size != b.hidden_size || a->ffn_size != b.ffn_size ||
           a->num_heads != b.num_heads || a->vocab_size != b.vocab_size ||
           a->tensor_parallel != b.tensor_parallel || a->context_parallel != b.context_parallel ||
           a->num_layers != b.num_layers || a->full || a->fused_loss || a->warmup != b.warmup ||
           a->alpha_num != b.alpha_num || a->alpha_den != b.alpha_den;
}

/* Flags that belong to the other kind of source, or to an expansion that was not asked for. */
static int check_company(const trace_source *source)
{
    const pst_trace_expansion *expansion = &source->expansion;
    const trace_file *file = &source->file;
    const bool has_ranges = expansion->forward_end > 0 || expansion->backward_end > 0;
    if (!source->derive && (source->part != 0 || has_shape(&source->derivation)))
        return tool_fail(TOOL_USAGE, "--derive: missing: the flags from --part to --warmup are "
                                     "allowed with it only");
    if (source->derive && (file->rank != PST_TRACE_NONE || file->device != 0 ||
                           file->iteration != PST_TRACE_NONE || file->keep_unfreed))
        return tool_fail(TOOL_USAGE, "--derive: allowed is a file with --trace-device, "
                                     "--trace-rank, --iteration and --keep-unfreed");
    if (expansion->num_layers == 0 && (has_ranges || source->order != 0))
        return tool_fail(TOOL_USAGE, "--expand: missing: --forward, --backward and --order are "
                                     "allowed with it only");
    if (expansion->num_layers == 0 && !source->derive && source->num_micro_batches > 1)
        return tool_fail(TOOL_USAGE,
                         "--num-micro-batches %u: allowed above 1 with --expand or --derive only",
                         source->num_micro_batches);
    if (source->order != PST_ORDER_1F1B && expansion->num_stages != 1)
        return tool_fail(
            TOOL_USAGE, "--pipeline-model-parallel-size %u: allowed above 1 with --order 1f1b only",
            expansion->num_stages);
    return TOOL_OK;
}

int trace_source_check(const char *command, const trace_source *source)
{
    const pst_trace_expansion *expansion = &source->expansion;
    const bool has_forward = expansion->forward_end > 0;
    const bool has_backward = expansion->backward_end > 0;
    const int num_sources = trace_file_count(&source->file) + source->derive;
    if (num_sources != 1)
        return tool_fail(TOOL_USAGE,
                         "%s: %d traces given: allowed is one of" TRACE_FILE_FLAGS " --derive",
                         command, num_sources);
    if (has_forward != has_backward)
        return tool_fail(TOOL_USAGE, "--%s: missing: allowed are both ranges or none",
                         has_forward ? "backward" : "forward");
    TOOL_TRY(check_company(source));
    if (expansion->stage >= expansion->num_stages)
        return tool_fail(TOOL_USAGE,
                         "--pipeline-model-parallel-rank %u: allowed is 0..%u, below "
                         "--pipeline-model-parallel-size",
                         expansion->stage, expansion->num_stages - 1);
    return TOOL_OK;
}

static int derive(const trace_source *source, pst_trace **trace_out)
{
    pst_trace_derivation derivation = source->derivation;
    derivation.part = (pst_trace_part)source->part;
    if (source->expansion.num_layers == 0)
        derivation.num_micro_batches = source->num_micro_batches;
    tool_clock_begin("deriving the trace");
    const pst_status status = pst_trace_derive(&derivation, trace_out);
    tool_clock_end();
    return tool_status(status);
}

/* The profile becomes what it is expanded to. */
static int expand(const trace_source *source, pst_trace **trace)
{
    pst_trace_expansion expansion = source->expansion;
    pst_trace *profile = *trace;
    const uint64_t num_requests = pst_trace_num_requests(profile);
    expansion.num_micro_batches = source->num_micro_batches;
    expansion.order = (pst_trace_order)source->order;
    if (expansion.forward_end > num_requests || expansion.backward_end > num_requests)
        return tool_fail(TOOL_USAGE, "--%s: allowed is a range within 0:%llu, the trace's requests",
                         expansion.forward_end > num_requests ? "forward" : "backward",
                         (unsigned long long)num_requests);
    tool_clock_begin("expanding the trace");
    const pst_status status = pst_trace_expand(profile, &expansion, trace);
    tool_clock_end();
    const int code = tool_file_status(status);
    if (code == TOOL_OK)
        pst_trace_destroy(profile);
    return code;
}

int trace_source_read(const trace_source *source, pst_trace **trace_out)
{
    pst_trace *trace = NULL;
    int code = source->derive ? derive(source, &trace) : trace_file_read(&source->file, &trace);
    if (code == TOOL_OK && source->expansion.num_layers > 0)
        code = expand(source, &trace);
    if (code == TOOL_OK)
        *trace_out = trace;
    else
        pst_trace_destroy(trace);
    return code;
}
