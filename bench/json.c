/* The report as JSON; keys are described in README.md. */
#include "bench.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { SCHEMA_VERSION = 1, REAL_DIGITS = 9 };

/* Memory that runs out shows at the end: set() of a NULL value drops the object. */
static void set(json_t **object, const char *key, json_t *value)
{
    if (*object != NULL && json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* The rest of the line of `path` that begins with `name`, blanks and a colon left out; false if
 * there is none. */
static bool read_line(const char *path, const char *name, char *value, size_t value_bytes)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0) {
            const char *rest = line + strlen(name);
            rest += strspn(rest, " \t:");
            snprintf(value, value_bytes, "%.*s", (int)strcspn(rest, "\n"), rest);
            found = true;
        }
    if (file)
        fclose(file);
    return found;
}

static json_t *machine_object(const pst_device_info *device)
{
    char cpu[256] = "unknown";
    struct utsname system = {0};
    json_t *object = json_object();
    read_line("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
    uname(&system);
    set(&object, "device", json_string(device->kind == PST_DEVICE_CUDA ? "cuda" : "host"));
    set(&object, "device_name", json_string(device->name));
    set(&object, "device_bytes", whole(device->total_bytes));
    set(&object, "num_sms", json_integer(device->num_sms));
    set(&object, "compute_capability", json_integer(device->compute_capability));
    set(&object, "cpu", json_string(cpu));
    set(&object, "num_cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    set(&object, "system", json_sprintf("%s %s", system.sysname, system.release));
    return object;
}

static json_t *driver_value(const pst_device_info *device)
{
    char driver[256];
    if (device->kind == PST_DEVICE_CUDA &&
        read_line("/sys/module/nvidia/version", "", driver, sizeof(driver)))
        return json_string(driver);
    return json_null();
}

static void set_times(json_t **object, const bench_times *seconds, uint64_t bytes)
{
    set(object, "samples", json_integer(seconds->samples));
    set(object, "seconds_min", json_real(seconds->min));
    set(object, "seconds_median", json_real(seconds->median));
    set(object, "seconds_max", json_real(seconds->max));
    set(object, "gbps", json_real((double)bytes / seconds->median * 1e-9));
}

static json_t *anchor_object(const bench_report *report, const bench_result *result)
{
    const bool is_host = report->device.kind == PST_DEVICE_HOST;
    json_t *object = json_object();
    set(&object, "name", json_string(is_host ? "memcpy" : "pst_device_copy"));
    set(&object, "bytes", whole(result->bytes));
    set_times(&object, &result->copy, result->bytes);
    return object;
}

static json_t *row_object(const bench_result *result, const char *op, const bench_times *seconds,
                          double share, size_t anchor)
{
    json_t *object = json_object();
    set(&object, "op", json_string(op));
    set(&object, "bytes", whole(result->bytes));
    set(&object, "num_sms", json_integer(result->num_sms));
    set(&object, "page_size", whole(result->what.page_bytes));
    set(&object, "pattern", json_string(bench_pattern_name(result->what.pattern)));
    set(&object, "tensors", json_integer(result->what.tensors));
    set_times(&object, seconds, result->bytes);
    set(&object, "share_of_copy", json_real(share));
    set(&object, "mismatched_bytes", whole(result->mismatched_bytes));
    set(&object, "anchor", whole(anchor));
    return object;
}

static void append(json_t **array, json_t *value)
{
    if (*array != NULL && json_array_append_new(*array, value) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

static json_t *call_cost_object(const bench_call_cost *cost)
{
    json_t *object = json_object(), *rows = json_array();
    for (int i = 0; i < BENCH_CALL_TENSORS && !cost->unavailable; i++) {
        json_t *row = json_object();
        set(&row, "tensors", json_integer(cost->tensors[i]));
        set(&row, "samples", json_integer(cost->ns[i].samples));
        set(&row, "ns_min", json_real(cost->ns[i].min));
        set(&row, "ns_median", json_real(cost->ns[i].median));
        set(&row, "ns_max", json_real(cost->ns[i].max));
        append(&rows, row);
    }
    set(&object, "unavailable", cost->unavailable ? json_string(cost->unavailable) : json_null());
    set(&object, "goal_ns", json_integer(BENCH_CALL_TARGET_NS));
    set(&object, "rows", rows);
    return object;
}

static json_t *report_object(const bench_report *report)
{
    json_t *anchors = json_array(), *rows = json_array(), *object = json_object();
    for (size_t i = 0; i < report->num_results; i++) {
        const bench_result *result = &report->results[i];
        append(&anchors, anchor_object(report, result));
        append(&rows, row_object(result, "stash", &result->stash, result->stash_share, i));
        append(&rows, row_object(result, "restore", &result->restore, result->restore_share, i));
    }
    set(&object, "schema_version", json_integer(SCHEMA_VERSION));
    set(&object, "machine", machine_object(&report->device));
    set(&object, "commit", json_string(PAGESTASH_COMMIT));
    set(&object, "driver", driver_value(&report->device));
    set(&object, "anchors", anchors);
    set(&object, "rows", rows);
    set(&object, "call_cost", call_cost_object(report->cost));
    return object;
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
    json_t *object = report_object(report);
    if (object == NULL)
        return bench_fail(BENCH_NO, "--json %s: out of memory", path);
    int code = BENCH_OK;
    if (strcmp(path, "-") != 0)
        code = replace_file(path, object, flags);
    else if (json_dumpf(object, stdout, flags) != 0 || putchar('\n') == EOF)
        code = bench_fail(BENCH_NO, "standard output: %s", strerror(errno));
    json_decref(object);
    return code;
}
