/* pagestash trace: an allocation trace, read or derived, expanded, written, summed up. */
#include "tools/trace/trace_report.h"

#include <stdio.h>
#include <string.h>

#define TRACE_FLAGS(F)                                                                             \
    F(POWER_OF_2, align, "BYTES", 1, 1u << 30, "512", "sizes are rounded up to this power of two") \
    F(OUTPUT, out, "FILE", 0, 0, NULL,                                                             \
      "write the trace as our CSV; - is stdout, and no summary then")                              \
    F(SWITCH, check, NULL, 0, 0, NULL,                                                             \
      "check the form of every row only, as a stream, in constant memory")

typedef struct trace_options {
    trace_source source;
    TRACE_FLAGS(FLAG_MEMBER)
    const char *json; /* NULL: none */
} trace_options;

#define FLAG_OPTIONS trace_options
static const flag flags[] = {TRACE_FLAGS(FLAG_ROW)};

static const char doc[] =
    "Read an allocation trace, or derive one from the shape of a transformer; expand a profile of "
    "one layer; write it; say what it needs at least, and the peak of an online best-fit "
    "allocator.\vSizes take the suffixes KiB, MiB, GiB.";
static const help_codes codes = {
    .file = "a bad trace, one that lacks the rank, device, iteration or layers asked for"};

static int check_options(const trace_options *options)
{
    const trace_source *source = &options->source;
    TOOL_TRY(trace_source_check("trace", source));
    if (options->check && (options->out != NULL || options->json != NULL ||
                           source->expansion.num_layers > 0 || source->derive))
        return tool_fail(TOOL_USAGE, "--check: allowed is a file, without --out, --json, --expand");
    return TOOL_OK;
}

static int check_form(const trace_source *source)
{
    uint64_t num_rows = 0;
    TOOL_TRY(trace_file_scan(&source->file, &num_rows));
    printf("rows: %llu\n", (unsigned long long)num_rows);
    return TOOL_OK;
}

static int show(const trace_options *options, const pst_trace *trace)
{
    pst_trace_summary summary;
    if (options->out != NULL)
        TOOL_TRY(trace_write_csv(trace, options->out));
    if (options->out != NULL && strcmp(options->out, "-") == 0 && options->json == NULL)
        return TOOL_OK;
    tool_clock_begin("summing up the trace");
    const pst_status status = pst_trace_get_summary(trace, options->align, &summary);
    tool_clock_end();
    if (status == PST_E_INVALID) /* sizes that no address can hold */
        return tool_fail(TOOL_INPUT, "%s: %s", trace_source_name(&options->source),
                         tool_last_message());
    TOOL_PST(status);
    return trace_report(&options->source, trace, &summary, options->json);
}

int cmd_trace(int argc, char **argv)
{
    const flag_table table = {"trace",
                              doc,
                              {trace_file_flags(offsetof(trace_options, source.file)),
                               trace_source_flags(offsetof(trace_options, source)),
                               FLAG_GROUP(flags, 0)},
                              offsetof(trace_options, json),
                              &codes};
    trace_options options = {.source = TRACE_SOURCE_INIT};
    pst_trace *trace = NULL;
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    TOOL_TRY(check_options(&options));
    if (options.check)
        return tool_flush(check_form(&options.source));
    TOOL_TRY(trace_source_read(&options.source, &trace));
    const int code = show(&options, trace);
    pst_trace_destroy(trace);
    return tool_flush(code);
}
