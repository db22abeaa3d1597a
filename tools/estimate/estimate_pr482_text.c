/* The layout of the analyzer of 2023, to the last space: its tables were padded to columns. */
#include "tools/estimate/estimate_compat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_BYTES = 48 }; /* with a unit */
enum { MIB_SHIFT = 20, GIB_SHIFT = 30 };

/* ---- numbers ---- */

/* Rounded to so many digits behind the point, a tie to the even one; zeros at the end go, but for
 * the first. */
static void format_value(char text[VALUE_BYTES], pr482_value value, unsigned shift, int digits)
{
    const pr482_wide den = (pr482_wide)value.den << shift;
    const unsigned scale = digits == 2 ? 100 : 10;
    const pr482_wide num = value.num * scale;
    pr482_wide whole = num / den;
    const pr482_wide twice = num % den * 2;
    if (twice > den || (twice == den && whole % 2 != 0))
        whole++;
    const unsigned rest = (unsigned)(whole % scale);
    const bool is_short = digits == 2 && rest % 10 == 0;
    snprintf(text, VALUE_BYTES, "%" PRIu64 ".%0*u", (uint64_t)(whole / scale),
             is_short ? 1 : digits, is_short ? rest / 10 : rest);
}

void pr482_put_giga(const char *before, const pr482_report *report, pr482_name name, int digits,
                    const char *after)
{
    char text[VALUE_BYTES];
    format_value(text, report->values[name], GIB_SHIFT, digits);
    printf("%s%s%s\n", before, text, after);
}

void pr482_put_mega(const pr482_report *report, pr482_name name, const char *after)
{
    char text[VALUE_BYTES] = "";
    if (name != PR482_NONE) {
        format_value(text, report->values[name], MIB_SHIFT, 1);
        strcat(text, after);
    }
    pr482_put_padded(text, PR482_CELL_COLUMNS);
}

static uint64_t count_of(const pr482_report *report, pr482_name name)
{
    return (uint64_t)(report->values[name].num / report->values[name].den);
}

void pr482_put_count(const char *before, const pr482_report *report, pr482_name name)
{
    printf("%s%" PRIu64 "\n", before, count_of(report, name));
}

void pr482_put_params(const pr482_report *report, pr482_name name)
{
    char digits[24];
    const int length = snprintf(digits, sizeof(digits), "%" PRIu64, count_of(report, name));
    fputs("Amount of Parameters: ", stdout);
    for (int i = 0; i < length; i++)
        printf("%s%c", i > 0 && (length - i) % 3 == 0 ? "," : "", digits[i]);
    fputs("  \n", stdout);
}

/* ---- lines ---- */

void pr482_put_line(char c, int columns)
{
    for (int i = 0; i < columns; i++)
        putchar(c);
    putchar('\n');
}

void pr482_put_padded(const char *text, int columns)
{
    int used = 0;
    for (const char *c = text; *c != '\0'; c++)
        used += ((unsigned char)*c & 0xC0) != 0x80;
    printf("%s%*s", text, columns > used ? columns - used : 0, "");
}

void pr482_put_head(const char *text, int columns)
{
    pr482_put_padded(text, columns);
    putchar('\n');
}

void pr482_put_title(const char *title, int columns)
{
    printf("\n***%s***\n", title);
    pr482_put_line('=', columns);
}

void pr482_put_end(int columns)
{
    pr482_put_line('=', columns);
    putchar('\n');
}

/* ---- tables ---- */

pr482_shape pr482_shape_of(uint64_t w0, uint64_t w1, uint64_t b0)
{
    pr482_shape made;
    int used = snprintf(made.text, sizeof(made.text), "w=[%" PRIu64, w0);
    if (w1 != 0)
        used += snprintf(made.text + used, sizeof(made.text) - (size_t)used, ",%" PRIu64, w1);
    used += snprintf(made.text + used, sizeof(made.text) - (size_t)used, "]");
    if (b0 != 0)
        snprintf(made.text + used, sizeof(made.text) - (size_t)used, ",b=[%" PRIu64 "]", b0);
    return made;
}

pr482_shape pr482_message_shape(const pr482_report *report)
{
    pr482_shape made;
    snprintf(made.text, sizeof(made.text), "[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", report->b,
             report->s, report->h);
    return made;
}

static void put_cell(const pr482_report *report, pr482_name name)
{
    pr482_put_mega(report, name, "");
    putchar('\t');
}

void pr482_put_row(const pr482_report *report, const char *label, const pr482_shape *shape,
                   pr482_name weights, pr482_name saved)
{
    pr482_put_padded(label, PR482_LABEL_COLUMNS);
    pr482_put_padded(shape != NULL ? shape->text : "", PR482_SHAPE_COLUMNS);
    putchar('\t');
    put_cell(report, weights);
    if (saved != PR482_NONE)
        put_cell(report, saved);
}

void pr482_put_message(const pr482_report *report, bool is_backward)
{
    const pr482_shape message = pr482_message_shape(report);
    for (int direction = 0; direction < 2; direction++) {
        const bool is_here = direction == (int)is_backward;
        pr482_put_padded(is_here ? message.text : "", PR482_SHAPE_COLUMNS);
        putchar('\t');
        put_cell(report, is_here ? PR482_HIDDEN : PR482_NONE);
    }
    pr482_put_padded("allreduce", PR482_SHAPE_COLUMNS);
    putchar('\t');
}

void pr482_put_ranks(const pr482_report *report, const char *before, uint64_t first,
                     uint64_t stride, uint64_t size)
{
    fputs(before, stdout);
    for (uint64_t i = 0; i < size; i++) {
        const uint64_t rank = first + i * stride;
        printf("%sn%" PRIu64 "_g%" PRIu64, i > 0 ? " " : "[", rank / report->gpus_per_node,
               rank % report->gpus_per_node);
    }
    puts("]");
}
