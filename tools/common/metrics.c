/* Figures as text. */
#include "tools/common/metrics.h"

#include "tools/common/tool.h"

#include <math.h>
#include <stdio.h>

void metrics_add_bytes(metric_list *list, const char *key, uint64_t bytes)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_BYTES, .whole = bytes};
}

void metrics_add_count(metric_list *list, const char *key, uint64_t count)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_COUNT, .whole = count};
}

void metrics_add_real(metric_list *list, const char *key, double real)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_REAL, .real = real};
}

void metrics_add_rare(metric_list *list, const char *key, double real)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_RARE, .real = real};
}

void metrics_add_text(metric_list *list, const char *key, const char *text)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_TEXT, .text = text};
}

void metrics_add_bool(metric_list *list, const char *key, bool value)
{
    list->items[list->num++] = (metric){.key = key, .kind = METRIC_BOOL, .whole = value};
}

void metrics_hide(metric_list *list, size_t begin)
{
    for (size_t i = begin; i < list->num; i++)
        list->items[i].is_hidden = true;
}

const char *metrics_human(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024.0 && unit < 4; unit++)
        value /= 1024.0;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return out;
}

void metrics_print(const metric *item)
{
    char text[32];
    const bool is_absent = isnan(item->real);
    if (item->is_hidden || (item->kind == METRIC_RARE && is_absent))
        return;
    for (const char *c = item->key; *c != '\0'; c++)
        putchar(*c == '_' ? ' ' : *c);
    if (item->kind == METRIC_RARE)
        printf(": %.6g\n", item->real);
    else if (item->kind == METRIC_REAL && is_absent)
        printf(": not measured\n");
    else if (item->kind == METRIC_REAL)
        printf(": %.4f\n", item->real);
    else if (item->kind == METRIC_BYTES)
        printf(": %llu (%s)\n", (unsigned long long)item->whole, metrics_human(item->whole, text));
    else if (item->kind == METRIC_TEXT) {
        fputs(": ", stdout);
        tool_put(item->text != NULL && *item->text != '\0' ? item->text : "-");
        putchar('\n');
    } else if (item->kind == METRIC_BOOL)
        printf(": %s\n", item->whole ? "yes" : "no");
    else
        printf(": %llu\n", (unsigned long long)item->whole);
}

void metrics_print_all(const metric_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        metrics_print(&list->items[i]);
}
