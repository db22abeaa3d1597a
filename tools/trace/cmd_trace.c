/* pagestash trace: an allocation trace, read or derived, expanded, written, summed up. */
#include "tools/common/output.h"
#include "tools/trace/trace_report.h"

#include <stdio.h>
#include <string.h>

typedef struct trace_options {
    trace_source source;
    uint64_t align;
    const char *out; /* NULL: none */
    bool json, check;
} trace_options;

#define AT(member) offsetof(trace_options, member)

static const flag flags[] = {
    {"align", "BYTES", FLAG_POWER_OF_2, 1, 1u << 30, AT(align),
     "sizes are rounded up to this power of two (512)"},
    {"out", "FILE", FLAG_TEXT, 0, 0, AT(out),
     "write the trace as our CSV; - is stdout, and no summary then"},
    {"json", NULL, FLAG_SWITCH, 0, 0, AT(json), "the summary as JSON"},
    {"check", NULL, FLAG_SWITCH, 0, 0, AT(check),
     "check the form of every row only, as a stream, in constant memory"},
};
enum { NUM_FLAGS = sizeof(flags) / sizeof(flags[0]) };

static const char doc[] =
    "Read an allocation trace, or derive one from the shape of a transformer; expand a profile of "
    "one layer; write it; say what it needs at least, and what an allocator reaches that places "
    "every request as it comes.\vSizes take the suffixes KiB, MiB, GiB. Exit codes: 0 done; 1 out "
    "of memory, or a file that cannot be written; 2 usage; 3 bad trace, or one that lacks the "
    "rank, device, iteration or layers asked for.";

static int check_options(const trace_options *options)
{
    const trace_source *source = &options->source;
    const bool is_stdout = options->out != NULL && strcmp(options->out, "-") == 0;
    TOOL_TRY(trace_source_check("trace", source));
    if (is_stdout && options->json)
        return tool_fail(TOOL_USAGE,
                         "--out -: allowed is a file with --json, which goes to stdout");
    if (options->check && (options->out != NULL || options->json ||
                           source->expansion.num_layers > 0 || source->derive))
        return tool_fail(TOOL_USAGE, "--check: allowed is a file, without --out, --json, --expand");
    return output_check("out", options->out);
}

static int check_form(const trace_source *source)
{
    uint64_t num_rows = 0;
    TOOL_TRY(trace_source_scan(source, &num_rows));
    printf("rows: %llu\n", (unsigned long long)num_rows);
    return TOOL_OK;
}

static int show(const trace_options *options, const pst_trace *trace)
{
    pst_trace_summary summary;
    if (options->out != NULL)
        TOOL_TRY(trace_write_csv(trace, options->out));
    if (options->out != NULL && strcmp(options->out, "-") == 0)
        return TOOL_OK;
    const pst_status status = pst_trace_get_summary(trace, options->align, &summary);
    if (status == PST_E_INVALID) /* sizes that no address can hold */
        return tool_fail(TOOL_INPUT, "%s: %s", trace_source_name(&options->source),
                         pst_last_message());
    TOOL_PST(status);
    return options->json ? trace_print_json(&options->source, trace, &summary)
                         : trace_print_text(&options->source, trace, &summary);
}

int cmd_trace(int argc, char **argv)
{
    const flag_table table = {
        "trace", doc, {trace_source_flags(AT(source)), {flags, NUM_FLAGS, 0}}};
    trace_options options = {.source = TRACE_SOURCE_INIT};
    pst_trace *trace = NULL;
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    TOOL_TRY(check_options(&options));
    if (options.check)
        return tool_flush(check_form(&options.source));
    TOOL_TRY(trace_source_load(&options.source, &trace));
    const int code = show(&options, trace);
    pst_trace_destroy(trace);
    return tool_flush(code);
}
