/* Reading the values of flags. */
#include "tools/common/parse.h"

#include <stdlib.h>
#include <string.h>

/* Reads digits from *text and moves it behind them. */
static bool take_digits(const char **text, uint64_t *out)
{
    const char *at = *text;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *out = value;
    return true;
}

bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value;
    if (!take_digits(&text, &value) || *text != '\0' || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    uint64_t value;
    if (!take_digits(&text, &value))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text, units[i].suffix) != 0)
            continue;
        if (value > UINT64_MAX >> units[i].shift)
            return false;
        value <<= units[i].shift;
        if (value < min || value > max)
            return false;
        *out = value;
        return true;
    }
    return false;
}

bool parse_factor(const char *text, double max, double *out)
{
    if (*text == '\0' || text[strspn(text, "0123456789.")] != '\0')
        return false;
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0.0 && value <= max))
        return false;
    *out = value;
    return true;
}

bool parse_fraction(const char *text, uint32_t *num_out, uint32_t *den_out)
{
    uint64_t num;
    uint64_t den;
    if (!take_digits(&text, &num) || *text++ != '/')
        return false;
    if (!take_digits(&text, &den) || *text != '\0' || den == 0 || den > UINT32_MAX || num > den)
        return false;
    *num_out = (uint32_t)num;
    *den_out = (uint32_t)den;
    return true;
}

bool parse_range(const char *text, uint64_t *begin_out, uint64_t *end_out)
{
    uint64_t begin;
    uint64_t end;
    if (!take_digits(&text, &begin) || *text++ != ':')
        return false;
    if (!take_digits(&text, &end) || *text != '\0' || begin >= end)
        return false;
    *begin_out = begin;
    *end_out = end;
    return true;
}

bool parse_choice(const char *text, const char *choices, int *out)
{
    const size_t length = strlen(text);
    for (int i = 0;; i++) {
        const size_t choice_length = strcspn(choices, "|");
        if (choice_length == length && memcmp(text, choices, length) == 0) {
            if (out != NULL)
                *out = i;
            return true;
        }
        if (choices[choice_length] == '\0')
            return false;
        choices += choice_length + 1;
    }
}
