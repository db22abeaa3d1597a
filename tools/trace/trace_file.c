/* Reading an allocation trace in one of the formats that the library knows. */
#include "tools/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(trace_file, member)

/* The formats come first, in the order of pst_trace_format. */
#define FORMAT_ROW(name, word, align, text) \
    {#word, FLAG_TEXT, AT(paths[name]), "FILE", 0, 0, NULL, text "; - is stdin"},
static const flag flags[] = {
    PST_TRACE_FORMAT_LIST(FORMAT_ROW)
    /* what to take of the file */
    {"trace_rank", FLAG_U32, AT(rank), "R", 0, PST_TRACE_NONE - 1, FLAG_NOT_GIVEN,
     "take the rows of rank R (the only one)"},
    {"trace_device", FLAG_U32, AT(device), "D", 0, UINT32_MAX, "0", "take device D of a snapshot"},
    {"iteration", FLAG_U32, AT(iteration), "I", 0, PST_TRACE_NONE - 1, FLAG_NOT_GIVEN,
     "take what follows the I-th iteration mark, from 0 (all)"},
    {"keep_unfreed", FLAG_SWITCH, AT(keep_unfreed), NULL, 0, 0, NULL,
     "tensors that are never freed live to the end (an error, but in snapshots)"},
};

flag_group trace_file_flags(size_t base)
{
    return (flag_group)FLAG_GROUP(flags, base);
}

int trace_file_count(const trace_file *self)
{
    int num = 0;
    for (int i = 0; i < PST_TRACE_NUM_FORMATS; i++)
        num += self->paths[i] != NULL;
    return num;
}

pst_trace_format trace_file_format(const trace_file *self)
{
    int format = 0;
    while (format < PST_TRACE_NUM_FORMATS && self->paths[format] == NULL)
        format++;
    return (pst_trace_format)format;
}

/* A negative descriptor: TOOL_INPUT, already said. */
static int open_file(const trace_file *self, pst_trace_config *config)
{
    const pst_trace_format format = trace_file_format(self);
    const char *path = self->paths[format];
    const bool is_stdin = strcmp(path, "-") == 0;
    const int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        tool_fail(TOOL_INPUT, "--%s %s: %s", flags[format].name, path, strerror(errno));
    *config = (pst_trace_config)PST_TRACE_CONFIG_INIT;
    config->format = format;
    config->name = is_stdin ? "standard input" : path;
    config->device = self->device;
    config->has_rank = self->rank != PST_TRACE_NONE;
    config->rank = self->rank;
    config->has_iteration = self->iteration != PST_TRACE_NONE;
    config->iteration = self->iteration;
    config->keep_unfreed = self->keep_unfreed;
    return descriptor;
}

static void close_file(int descriptor)
{
    if (descriptor != STDIN_FILENO)
        close(descriptor);
}

int trace_file_read(const trace_file *self, pst_trace **trace_out)
{
    pst_trace_config config;
    int descriptor = open_file(self, &config);
    if (descriptor < 0)
        return TOOL_INPUT;
    tool_clock_begin("reading the trace");
    const pst_status status = pst_trace_read(&config, tool_read, &descriptor, trace_out);
    tool_clock_end();
    close_file(descriptor);
    return tool_file_status(status);
}

int trace_file_scan(const trace_file *self, uint64_t *num_rows_out)
{
    pst_trace_config config;
    pst_trace_reader *reader = NULL;
    pst_trace_request row;
    uint64_t num_rows = 0;
    int descriptor = open_file(self, &config);
    if (descriptor < 0)
        return TOOL_INPUT;
    tool_clock_begin("reading the trace");
    pst_status status = pst_trace_reader_open(&config, tool_read, &descriptor, &reader);
    while (status == PST_OK) {
        status = pst_trace_reader_next(reader, &row);
        num_rows += status == PST_OK;
    }
    pst_trace_reader_close(reader);
    close_file(descriptor);
    tool_clock_end();
    if (status != PST_E_AGAIN)
        return tool_file_status(status);
    *num_rows_out = num_rows;
    return TOOL_OK;
}
