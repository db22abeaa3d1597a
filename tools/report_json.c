#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REAL_DIGITS = 9 };

/* Text as JSON may hold it: whatever is no UTF-8 becomes '?'. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value == NULL ? strdup(text) : NULL;
    for (char *c = copy; c != NULL && *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    if (copy != NULL)
        value = json_string(copy);
    free(copy);
    return value;
}

/* A failed set leaves no object: the caller sees NULL at the end. */
static void set(json_t **object, const char *key, json_t *value)
{
    if (*object != NULL && json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

static void set_text(json_t **object, const char *key, const char *text)
{
    set(object, key, text_value(text));
}

static void set_whole(json_t **object, const char *key, uint64_t whole)
{
    set(object, key, json_integer((json_int_t)whole));
}

static void set_offload(json_t **object, const uint32_t *offload)
{
    char fraction[32];
    snprintf(fraction, sizeof(fraction), "%u/%u", offload[0], offload[1]);
    set_text(object, "offload_fraction", fraction);
}

static json_t *options_object(const replay_options *options, const replay_trace *trace,
                              const replay_result *result)
{
    static const char *const on_overflow[] = {"fail", "grow", "retry"};
    json_t *object = json_object();
    set_text(&object, "routing", options->routing);
    set_text(&object, "device", result->device.kind == PST_DEVICE_CUDA ? "cuda" : "host");
    set_text(&object, "device_name", result->device.name);
    set_whole(&object, "hidden", options->hidden);
    set_whole(&object, "ffn", options->ffn);
    set_text(&object, "dtype", options->dtype == REPLAY_MXFP8 ? "mxfp8" : "bf16");
    set_whole(&object, "experts", trace->num_experts);
    set_whole(&object, "ep", options->ep);
    set_whole(&object, "rank", options->rank);
    set_whole(&object, "layers", trace->layers);
    set_whole(&object, "microbatches", options->microbatches);
    set_whole(&object, "step_begin", trace->step_begin);
    set_whole(&object, "step_end", trace->step_begin + trace->steps);
    set_whole(&object, "page_bytes", options->page_bytes);
    set_whole(&object, "streams", options->streams);
    set(&object, "graph", json_boolean(!options->no_graph));
    set_whole(&object, "num_sms", options->num_sms);
    set_whole(&object, "seed", options->seed);
    set_text(&object, "layout", options->layout == PST_ROWS_PREFIX ? "prefix" : "segments");
    set_text(&object, "tail", options->tail == PST_TAIL_ZERO ? "zero" : "keep");
    set_text(&object, "restore", options->restore == PST_RESTORE_KEEP ? "keep" : "consume");
    set_text(&object, "mode", options->mode == PST_POOL_CONCURRENT ? "concurrent" : "ordered");
    set_text(&object, "backend", replay_backend_name(options->backend));
    set_offload(&object, options->offload);
    set_text(&object, "on_overflow", on_overflow[options->on_overflow]);
    set(&object, "scrub", json_boolean(options->scrub));
    return object;
}

static json_t *report_object(const replay_options *options, const replay_trace *trace,
                             const replay_result *result, const metric_list *list)
{
    char version[32];
    const int number = pst_version();
    snprintf(version, sizeof(version), "%d.%d.%d", number / 10000, number / 100 % 100,
             number % 100);
    json_t *object = json_object();
    set_whole(&object, "schema_version", REPORT_SCHEMA_VERSION);
    set_text(&object, "command", "replay");
    set_text(&object, "version", version);
    set(&object, "options", options_object(options, trace, result));
    for (size_t i = 0; i < list->num; i++) {
        const metric *item = &list->items[i];
        if (item->kind == METRIC_BYTES || item->kind == METRIC_COUNT)
            set_whole(&object, item->key, item->whole);
        else
            set(&object, item->key, isnan(item->real) ? json_null() : json_real(item->real));
    }
    return object;
}

static int write_failed(const char *path)
{
    return tool_fail(TOOL_NO, "--json %s: %s", path, strerror(errno));
}

static int write_all(int descriptor, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t done = write(descriptor, text, left);
        if (done < 0 && errno != EINTR)
            return -1;
        text += done > 0 ? done : 0;
        left -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

/* Writes beside the file and renames, so that nobody ever sees half of it. */
static int replace_file(const char *path, const char *text)
{
    char temporary[PATH_MAX];
    const int length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return write_failed(path);
    }
    const int descriptor = mkstemp(temporary);
    if (descriptor < 0)
        return write_failed(path);
    const mode_t mask = umask(0);
    umask(mask);
    int failed = write_all(descriptor, text) != 0 || fchmod(descriptor, 0666 & ~mask) != 0 ||
                 fsync(descriptor) != 0;
    failed = close(descriptor) != 0 || failed;
    if (!failed && rename(temporary, path) == 0)
        return TOOL_OK;
    const int code = write_failed(path);
    unlink(temporary);
    return code;
}

/* Pipes and devices cannot be replaced; a link is followed to the file that it means. */
static int write_text(const char *path, const char *text)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return replace_file(path, text);
    if (S_ISREG(about.st_mode)) {
        char *real = realpath(path, NULL);
        const int code = real != NULL ? replace_file(real, text) : write_failed(path);
        free(real);
        return code;
    }
    const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return write_failed(path);
    const int failed = write_all(descriptor, text) != 0;
    return close(descriptor) != 0 || failed ? write_failed(path) : TOOL_OK;
}

int report_json(const replay_options *options, const replay_trace *trace,
                const replay_result *result, const metric_list *list)
{
    json_t *object = report_object(options, trace, result, list);
    char *text = object != NULL
                     ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS))
                     : NULL;
    json_decref(object);
    char *line = NULL;
    if (text == NULL || asprintf(&line, "%s\n", text) < 0) {
        free(text);
        return tool_fail(TOOL_NO, "--json %s: out of memory", options->json);
    }
    free(text);
    int code = TOOL_OK;
    if (strcmp(options->json, "-") == 0)
        fputs(line, stdout);
    else
        code = write_text(options->json, line);
    free(line);
    return code;
}

int report_check(const char *json)
{
    struct stat about;
    if (json == NULL || strcmp(json, "-") == 0)
        return TOOL_OK;
    if (*json == '\0')
        return tool_fail(TOOL_USAGE, "--json: empty: allowed is a file, or - for stdout");
    if (stat(json, &about) == 0 && S_ISDIR(about.st_mode))
        return tool_fail(TOOL_USAGE, "--json %s: is a folder: allowed is a file, or - for stdout",
                         json);
    char *copy = strdup(json);
    if (copy == NULL)
        return tool_fail(TOOL_NO, "--json %s: out of memory", json);
    const int failed = access(dirname(copy), W_OK | X_OK) != 0;
    free(copy);
    return failed ? tool_fail(TOOL_USAGE, "--json %s: %s", json, strerror(errno)) : TOOL_OK;
}
