/* JSON files of others, which may be anything. */
#include "tools/common/json_in.h"

#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* jansson tells most of its failed allocations as faults of the text. */
static bool ran_out;

static void *take_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    ran_out |= memory == NULL;
    return memory;
}

static json_t *load_json(const char *text, size_t bytes, json_error_t *error)
{
    ran_out = false;
    json_set_alloc_funcs(take_memory, free);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
    json_set_alloc_funcs(malloc, free);
    return root;
}

static int parse_json(const char *name, const char *text, size_t bytes, json_t **root_out)
{
    json_error_t error;
    *root_out = NULL;
    const char *nul = memchr(text, 0, bytes); /* jansson overlooks one behind a number */
    if (nul != NULL)
        return tool_fail(TOOL_INPUT, "%s: byte %td: NUL", name, nul - text);
    *root_out = load_json(text, bytes, &error);
    if (*root_out == NULL && (ran_out || error.text[0] == '\0'))
        return tool_fail(TOOL_NO, "out of memory for %s", name);
    if (*root_out == NULL) {
        for (char *at = error.text; *at != '\0'; at++)
            if ((unsigned char)*at < ' ' || *at == 127)
                *at = '?'; /* it quotes the file, and stays one line */
        return tool_fail(TOOL_INPUT, "%s: line %d, column %d: %s", name, error.line, error.column,
                         error.text);
    }
    if (json_is_object(*root_out))
        return TOOL_OK;
    json_decref(*root_out);
    *root_out = NULL;
    return tool_fail(TOOL_INPUT, "%s: not a JSON object", name);
}

static int refuse_size(const char *path, size_t max)
{
    return tool_fail(TOOL_INPUT, "%s: more than %zu MiB", path, max >> 20);
}

/* No more than max bytes of it are ever read. */
static int read_all(int file, const char *path, size_t max, char *text, size_t *bytes)
{
    while (*bytes <= max) {
        const ptrdiff_t got = tool_read(&file, text + *bytes, max + 1 - *bytes);
        if (got < 0)
            return tool_fail(TOOL_INPUT, "%s: %s", path, strerror((int)-got));
        if (got == 0)
            return TOOL_OK;
        *bytes += (size_t)got;
    }
    return refuse_size(path, max);
}

static int read_file(int file, const char *path, size_t max, json_t **root_out)
{
    struct stat status;
    size_t bytes = 0;
    if (fstat(file, &status) != 0 || fcntl(file, F_SETFL, 0) != 0)
        return tool_fail(TOOL_INPUT, "%s: %s", path, strerror(errno));
    if (S_ISREG(status.st_mode) && (size_t)status.st_size > max)
        return refuse_size(path, max);
    char *text = malloc(max + 1);
    if (text == NULL)
        return tool_fail(TOOL_NO, "out of memory for %s", path);
    int code = read_all(file, path, max, text, &bytes);
    if (code == TOOL_OK)
        code = parse_json(path, text, bytes, root_out);
    free(text);
    return code;
}

int json_read(const char *path, size_t max_bytes, json_t **root_out)
{
    /* not to wait for somebody to write to a pipe; who does so already is waited for */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *root_out = NULL;
    if (file < 0)
        return tool_fail(TOOL_INPUT, "%s: %s", path, strerror(errno));
    const int code = read_file(file, path, max_bytes, root_out);
    close(file);
    return code;
}
