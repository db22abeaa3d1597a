#include "tools/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char *const flag_names[PST_TRACE_NUM_FORMATS] = {"csv", "memo", "minimalloc",
                                                              "stalloc", "pytorch"};

/* As tool_status, but for what an input says. */
static int input_status(pst_status status)
{
    if (status == PST_E_INVALID)
        return tool_fail(TOOL_INPUT, "%s", pst_last_message());
    return tool_status(status);
}

/* A negative descriptor: TOOL_INPUT, already said. */
static int open_file(pst_trace_format format, const char *path, pst_trace_config *config)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    const int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        tool_fail(TOOL_INPUT, "--%s %s: %s", flag_names[format], path, strerror(errno));
    config->format = format;
    config->name = is_stdin ? "standard input" : path;
    return descriptor;
}

static void close_file(int descriptor)
{
    if (descriptor != STDIN_FILENO)
        close(descriptor);
}

int trace_file_load(pst_trace_format format, const char *path, const pst_trace_config *config,
                    pst_trace **trace_out)
{
    pst_trace_config own = *config;
    int descriptor = open_file(format, path, &own);
    if (descriptor < 0)
        return TOOL_INPUT;
    const pst_status status = pst_trace_read(&own, tool_read, &descriptor, trace_out);
    close_file(descriptor);
    return input_status(status);
}

/* The format of the file that is named, or PST_TRACE_NUM_FORMATS. */
static pst_trace_format format_of(const trace_source *source)
{
    int format = 0;
    while (format < PST_TRACE_NUM_FORMATS && source->paths[format] == NULL)
        format++;
    return (pst_trace_format)format;
}

static pst_trace_config config_of(const trace_source *source)
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    config.device = source->device;
    config.rank = source->rank;
    config.iteration = source->iteration;
    config.keep_unfreed = source->keep_unfreed;
    return config;
}

const char *trace_source_name(const trace_source *source)
{
    const pst_trace_format format = format_of(source);
    return format < PST_TRACE_NUM_FORMATS ? source->paths[format] : "derived";
}

/* Whether a flag of the derived model was given. */
static bool has_shape(const pst_trace_derivation *a)
{
    static const pst_trace_derivation b = PST_TRACE_DERIVATION_INIT;
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
    const bool is_derived = source->derive;
    const bool has_ranges = expansion->forward_end > 0 || expansion->backward_end > 0;
    if (!is_derived && (source->part != 0 || has_shape(&source->derivation)))
        return tool_fail(TOOL_USAGE, "--derive: missing: the flags from --part to --warmup are "
                                     "allowed with it only");
    if (is_derived && (source->rank != PST_TRACE_NONE || source->device != 0 ||
                       source->iteration != PST_TRACE_NONE || source->keep_unfreed))
        return tool_fail(TOOL_USAGE, "--derive: allowed is a file with --device, --rank, "
                                     "--iteration and --keep-unfreed");
    if (expansion->num_layers == 0 && (has_ranges || source->order != 0))
        return tool_fail(TOOL_USAGE, "--expand: missing: --forward, --backward and --order are "
                                     "allowed with it only");
    if (expansion->num_layers == 0 && !is_derived && source->num_micro_batches > 1)
        return tool_fail(TOOL_USAGE,
                         "--microbatches %u: allowed above 1 with --expand or --derive only",
                         source->num_micro_batches);
    if (source->order != PST_ORDER_1F1B && expansion->num_stages != 1)
        return tool_fail(TOOL_USAGE, "--stages %u: allowed above 1 with --order 1f1b only",
                         expansion->num_stages);
    return TOOL_OK;
}

int trace_source_check(const char *command, const trace_source *source)
{
    const pst_trace_expansion *expansion = &source->expansion;
    int num_sources = source->derive;
    for (int i = 0; i < PST_TRACE_NUM_FORMATS; i++)
        num_sources += source->paths[i] != NULL;
    if (num_sources != 1)
        return tool_fail(TOOL_USAGE,
                         "%s: %d traces given: allowed is one of --csv, --memo, --minimalloc, "
                         "--stalloc, --pytorch and --derive",
                         command, num_sources);
    const bool has_forward = expansion->forward_end > 0;
    const bool has_backward = expansion->backward_end > 0;
    if (has_forward != has_backward)
        return tool_fail(TOOL_USAGE, "--%s: missing: allowed are both ranges or none",
                         has_forward ? "backward" : "forward");
    TOOL_TRY(check_company(source));
    if (expansion->stage >= expansion->num_stages)
        return tool_fail(TOOL_USAGE, "--stage %u: allowed is 0..%u, below --stages",
                         expansion->stage, expansion->num_stages - 1);
    return TOOL_OK;
}

static int derive(const trace_source *source, pst_trace **trace_out)
{
    pst_trace_derivation derivation = source->derivation;
    derivation.part = (pst_trace_part)source->part;
    if (source->expansion.num_layers == 0)
        derivation.num_micro_batches = source->num_micro_batches;
    return tool_status(pst_trace_derive(&derivation, trace_out));
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
    const int code = input_status(pst_trace_expand(profile, &expansion, trace));
    if (code == TOOL_OK)
        pst_trace_destroy(profile);
    return code;
}

int trace_source_load(const trace_source *source, pst_trace **trace_out)
{
    const pst_trace_format format = format_of(source);
    const pst_trace_config config = config_of(source);
    pst_trace *trace = NULL;
    int code = format < PST_TRACE_NUM_FORMATS
                   ? trace_file_load(format, source->paths[format], &config, &trace)
                   : derive(source, &trace);
    if (code == TOOL_OK && source->expansion.num_layers > 0)
        code = expand(source, &trace);
    if (code == TOOL_OK)
        *trace_out = trace;
    else
        pst_trace_destroy(trace);
    return code;
}

int trace_source_scan(const trace_source *source, uint64_t *num_rows_out)
{
    const pst_trace_format format = format_of(source);
    pst_trace_config config = config_of(source);
    pst_trace_reader *reader = NULL;
    pst_trace_request row;
    uint64_t num_rows = 0;
    int descriptor = open_file(format, source->paths[format], &config);
    if (descriptor < 0)
        return TOOL_INPUT;
    pst_status status = pst_trace_reader_open(&config, tool_read, &descriptor, &reader);
    while (status == PST_OK) {
        status = pst_trace_reader_next(reader, &row);
        num_rows += status == PST_OK;
    }
    pst_trace_reader_close(reader);
    close_file(descriptor);
    if (status != PST_E_AGAIN)
        return input_status(status);
    *num_rows_out = num_rows;
    return TOOL_OK;
}
