/* Launch lines and config.json files over arbitrary bytes: the first byte chooses. What is refused
 * gets one line; what is accepted is a configuration that the library takes, with sizes that can be
 * asked for. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/fuzz/pieces.h"
#include "tools/estimate/estimate.h"

enum { MAX_WORDS = 512 };

/* In place of those that print. */
static int num_failures;

int tool_fail(int code, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    require(length > 0 && strchr(line, '\n') == NULL);
    num_failures += code != TOOL_OK;
    return code;
}

const char *tool_last_message(void)
{
    return pst_last_message();
}

int tool_status(pst_status status)
{
    require(status == PST_OK);
    return TOOL_OK;
}

int tool_file_status(pst_status status)
{
    return status == PST_E_INVALID ? tool_fail(TOOL_INPUT, "%s", pst_last_message())
                                   : tool_status(status);
}

ptrdiff_t tool_read(void *descriptor, void *buffer, size_t bytes)
{
    return read(*(const int *)descriptor, buffer, bytes);
}

static void check_notes(const json_t *notes)
{
    for (size_t i = 0; i < json_array_size(notes); i++)
        require(strchr(json_string_value(json_array_get(notes, i)), '\n') == NULL);
}

static void check_config(const pst_estimate_config *config)
{
    pst_estimate_params params;
    require(pst_estimate_check(config) == PST_OK);
    require(config->world_size > 0 && config->global_batch > 0);
    require(config->head_size > 0 || config->kv_rank > 0);
    require(config->num_layers <= PST_ESTIMATE_MAX_LAYERS);
    const pst_status status = pst_estimate_get_params(config, &params);
    require(status == PST_OK || status == PST_E_INVALID);
}

static void parse(int argc, char **argv)
{
    estimate_options options;
    num_failures = 0;
    const int code = estimate_parse(argc, argv, &options);
    require(code == TOOL_OK || code == TOOL_USAGE || code == TOOL_INPUT);
    require(num_failures == (code != TOOL_OK));
    if (code == TOOL_OK) {
        check_config(&options.config);
        check_notes(options.assumptions);
        check_notes(options.warnings);
        check_notes(options.unmodelled);
    }
    estimate_free(&options);
}

/* Words between zeros or line ends. No word is a path, which could be anything on this machine. */
static void parse_line(const uint8_t *data, size_t size)
{
    char *argv[MAX_WORDS] = {(char[]){"estimate"}};
    int argc = 1;
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    bool is_open = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\n' || text[i] == '\0') {
            text[i] = '\0';
            is_open = false;
            continue;
        }
        text[i] = (char)(text[i] == '/' ? '|' : text[i]);
        if (!is_open && argc < MAX_WORDS)
            argv[argc++] = &text[i];
        is_open = true;
    }
    parse(argc, argv);
    free(text);
}

static void parse_file(const uint8_t *data, size_t size)
{
    char path[64];
    const int file = memfd_create("config", MFD_CLOEXEC);
    require(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    char *argv[] = {(char[]){"estimate"}, (char[]){"--hf-config"}, path};
    parse(3, argv);
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0)
        parse_line(data + 1, size - 1);
    else
        parse_file(data + 1, size - 1);
    return 0;
}
