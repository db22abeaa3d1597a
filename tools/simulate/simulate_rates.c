/* Rates of copies from a report of pagestash-bench. */
#include "tools/simulate/simulate_sources.h"

#include <math.h>
#include <string.h>

/* What one operation took, as time = fixed + bytes / rate through its fewest and its most bytes. */
typedef struct fit {
    double least_bytes, least_seconds, most_bytes, most_seconds;
    bool has_any;
} fit;

static bool is_text(const json_t *row, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(row, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* Rows with every SM that the sweep had: what a stash takes that nothing limits. */
static void add_row(fit *self, const json_t *row)
{
    const json_t *median = json_object_get(row, "seconds_median");
    const double bytes = json_number_value(json_object_get(row, "bytes"));
    const double seconds = json_number_value(median);
    if (!json_is_number(median) || !(bytes > 0.0) || !(seconds > 0.0))
        return;
    if (!self->has_any || bytes < self->least_bytes) {
        self->least_bytes = bytes;
        self->least_seconds = seconds;
    }
    if (!self->has_any || bytes > self->most_bytes) {
        self->most_bytes = bytes;
        self->most_seconds = seconds;
    }
    self->has_any = true;
}

static int solve(const fit *self, const char *path, const char *op, uint64_t *fixed_ns_out,
                 uint64_t *rate_out)
{
    const double bytes = self->most_bytes - self->least_bytes;
    const double seconds = self->most_seconds - self->least_seconds;
    if (!(bytes > 0.0) || !(seconds > 0.0))
        return tool_fail(TOOL_INPUT,
                         "%s: rows: no two of op %s, sweep bytes, state cold of which the larger "
                         "took longer: allowed is a report of pagestash-bench with this sweep",
                         path, op);
    const double rate = bytes / seconds;
    const double fixed = self->least_seconds - self->least_bytes / rate;
    *fixed_ns_out = fixed > 0.0 ? (uint64_t)llround(fixed * 1e9) : 0;
    *rate_out = rate < 1.0 ? 1 : (uint64_t)llround(rate);
    return TOOL_OK;
}

static int read_copies(const json_t *report, const char *path, pst_simulated_rates *rates)
{
    const json_t *rows = json_object_get(report, "rows");
    fit of_op[2] = {{.has_any = false}, {.has_any = false}};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_text(row, "sweep", "bytes") && is_text(row, "state", "cold") &&
            is_text(row, "backend", "auto"))
            add_row(&of_op[is_text(row, "op", "restore")], row);
    }
    TOOL_TRY(solve(&of_op[0], path, "stash", &rates->stash_fixed_ns, &rates->stash_rate));
    return solve(&of_op[1], path, "restore", &rates->restore_fixed_ns, &rates->restore_rate);
}

/* The fastest rows of which every page was pinned. */
static void read_link(const json_t *report, pst_simulated_rates *rates)
{
    const json_t *rows = json_object_get(json_object_get(report, "host_tier"), "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double rate = 1e9 * json_number_value(json_object_get(row, "gbps"));
        uint64_t *best = is_text(row, "op", "restore") ? &rates->in_rate : &rates->out_rate;
        const json_t *pinned = json_object_get(row, "pinned_pages");
        if (rate >= 1.0 && rate < 1e18 && json_is_integer(pinned) &&
            json_equal(pinned, json_object_get(row, "pages")) && (uint64_t)rate > *best)
            *best = (uint64_t)rate;
    }
}

int simulate_read_rates(const char *path, pst_simulated_rates *rates_out)
{
    json_error_t error;
    json_t *report = json_load_file(path, 0, &error);
    if (report == NULL && json_error_code(&error) == json_error_out_of_memory)
        return tool_fail(TOOL_NO, "--rates %s: out of memory", path);
    if (report == NULL && error.line < 0)
        return tool_fail(TOOL_INPUT, "--rates %s: %s", path, error.text);
    if (report == NULL)
        return tool_fail(TOOL_INPUT, "%s:%d: %s: allowed is a report of pagestash-bench", path,
                         error.line, error.text);
    const int code = read_copies(report, path, rates_out);
    if (code == TOOL_OK)
        read_link(report, rates_out);
    json_decref(report);
    return code;
}
