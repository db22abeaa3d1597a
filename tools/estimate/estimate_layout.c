/* Which layers have experts, and which chunk of which stage has how many layers. */
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 16 };

/* ---- --moe-layer-freq ---- */

/* Sums, repetitions and brackets of lists of 0 and 1, as Python has them. */
typedef struct pattern {
    const char *at;
    bool *out;
    uint64_t num, room;
    int nesting;
} pattern;

static bool take(pattern *self, char wanted)
{
    self->at += strspn(self->at, " ");
    if (*self->at != wanted)
        return false;
    self->at++;
    return true;
}

static bool take_factor(pattern *self, uint64_t *factor)
{
    self->at += strspn(self->at, " ");
    char digits[8] = "";
    const size_t length = strspn(self->at, "0123456789");
    if (length == 0 || length >= sizeof(digits))
        return false;
    memcpy(digits, self->at, length);
    self->at += length;
    return parse_u64(digits, 0, PST_ESTIMATE_MAX_LAYERS, factor);
}

/* Those from first on, factor times. */
static bool repeat(pattern *self, uint64_t first, uint64_t factor)
{
    const uint64_t num = self->num - first;
    if (num * factor > self->room - first)
        return false;
    self->num = first + num * factor;
    for (uint64_t i = first + num; i < self->num; i++)
        self->out[i] = self->out[i - num];
    return true;
}

static bool take_list(pattern *self)
{
    if (take(self, ']'))
        return true;
    do {
        const bool is_one = take(self, '1');
        if ((!is_one && !take(self, '0')) || self->num == self->room)
            return false;
        self->out[self->num++] = is_one;
    } while (take(self, ','));
    return take(self, ']');
}

static bool take_sum(pattern *self);

static bool take_term(pattern *self)
{
    const uint64_t first = self->num;
    uint64_t factor = 1;
    if (take(self, '(')) {
        const bool is_right = ++self->nesting <= MAX_NESTING && take_sum(self) && take(self, ')');
        self->nesting--;
        if (!is_right)
            return false;
    } else if (!take(self, '[') || !take_list(self)) {
        return false;
    }
    while (take(self, '*'))
        if (!take_factor(self, &factor) || !repeat(self, first, factor))
            return false;
    return true;
}

static bool take_sum(pattern *self)
{
    do {
        if (!take_term(self))
            return false;
    } while (take(self, '+'));
    return true;
}

static int refuse_freq(const char *text)
{
    return tool_fail(TOOL_USAGE,
                     "--moe-layer-freq %.80s: allowed is an integer from 1, or lists of 0 and 1 as "
                     "([0]*3+[1]*58), at most %u layers",
                     text, PST_ESTIMATE_MAX_LAYERS);
}

static int fill_layers(const char *text, uint64_t num_layers, bool *is_moe)
{
    uint64_t every;
    if (parse_u64(text, 1, INT64_MAX, &every)) {
        for (uint64_t i = 0; i < num_layers; i++)
            is_moe[i] = i % every == 0;
        return TOOL_OK;
    }
    pattern self = {.at = text, .out = is_moe, .room = PST_ESTIMATE_MAX_LAYERS};
    if (!take_sum(&self) || self.at[strspn(self.at, " ")] != '\0')
        return refuse_freq(text);
    if (self.num != num_layers)
        return tool_fail(TOOL_USAGE, "--moe-layer-freq %.80s: %llu layers, --num-layers is %llu",
                         text, (unsigned long long)self.num, (unsigned long long)num_layers);
    return TOOL_OK;
}

int estimate_moe_layers(const char *text, uint64_t num_layers, bool **is_moe_out)
{
    if (num_layers > PST_ESTIMATE_MAX_LAYERS)
        return tool_fail(TOOL_USAGE, "--num-layers %llu: at most %u",
                         (unsigned long long)num_layers, PST_ESTIMATE_MAX_LAYERS);
    bool *is_moe = calloc(PST_ESTIMATE_MAX_LAYERS, sizeof(*is_moe));
    if (is_moe == NULL)
        return tool_fail(TOOL_NO, "out of memory for %llu layers", (unsigned long long)num_layers);
    const int code = fill_layers(text, num_layers, is_moe);
    uint64_t num_moe = 0;
    for (uint64_t i = 0; i < num_layers && code == TOOL_OK; i++)
        num_moe += is_moe[i];
    if (code != TOOL_OK || num_moe == num_layers) {
        free(is_moe);
        is_moe = NULL;
    }
    *is_moe_out = is_moe;
    return code;
}
