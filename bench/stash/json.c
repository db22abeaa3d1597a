#include "bench/stash/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REAL_DIGITS = 9 };

void bench_json_set(json_t **object, const char *key, json_t *value)
{
    if (*object != NULL && json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

void bench_json_append(json_t **array, json_t *value)
{
    if (*array != NULL && json_array_append_new(*array, value) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

json_t *bench_json_whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *bench_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *bench_json_text(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

/* Not a file that could be replaced: a device, a pipe. */
static bool is_special(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

static int write_special(const char *path, const json_t *object, size_t flags)
{
    errno = 0;
    FILE *file = fopen(path, "we");
    bool right = file && json_dumpf(object, file, flags) == 0 && fputc('\n', file) != EOF;
    right = file && fclose(file) == 0 && right;
    return right ? BENCH_OK : bench_fail(BENCH_NO, "--json %s: %s", path, strerror(errno));
}

/* Writes beside the file and renames, so that nobody ever sees half of it. */
static int replace_file(const char *path, const json_t *object, size_t flags)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%d.tmp", path, (int)getpid()) < 0)
        return bench_fail(BENCH_NO, "--json %s: out of memory", path);
    errno = 0;
    FILE *file = fopen(temporary, "we");
    bool right = file && json_dumpf(object, file, flags) == 0 && fputc('\n', file) != EOF;
    right = file && fclose(file) == 0 && right && rename(temporary, path) == 0;
    const int error = errno;
    if (!right && file)
        unlink(temporary);
    free(temporary);
    return right ? BENCH_OK : bench_fail(BENCH_NO, "--json %s: %s", path, strerror(error));
}

int bench_write_json(const bench_report *report, const char *path)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS);
    json_t *object = bench_report_object(report);
    if (object == NULL)
        return bench_fail(BENCH_NO, "--json %s: out of memory", path);
    int code = BENCH_OK;
    if (strcmp(path, "-") != 0 && is_special(path))
        code = write_special(path, object, flags);
    else if (strcmp(path, "-") != 0)
        code = replace_file(path, object, flags);
    else if (json_dumpf(object, stdout, flags) != 0 || putchar('\n') == EOF)
        code = bench_fail(BENCH_NO, "standard output: %s", strerror(errno));
    json_decref(object);
    return code;
}
