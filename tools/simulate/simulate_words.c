/* Values of flags that are lists of numbers, or words with something behind them. */
#include "tools/common/parse.h"
#include "tools/simulate/simulate_command.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NS (UINT64_C(1) << 53)

enum { WORD_BYTES = 48, MAX_WORDS = 1 << 16 };

/* The word up to the separator; text moves behind it, NULL: nothing is there. False: there is none, or
 * it is too long. */
static bool cut(const char **text, char separator, char out[WORD_BYTES])
{
    if (*text == NULL)
        return false;
    const char *end = strchr(*text, separator);
    const size_t length = end != NULL ? (size_t)(end - *text) : strlen(*text);
    if (length >= WORD_BYTES)
        return false;
    memcpy(out, *text, length);
    out[length] = '\0';
    *text = end != NULL ? end + 1 : NULL;
    return true;
}

static uint32_t count_words(const char *text)
{
    uint32_t num = 1;
    for (; *text != '\0'; text++)
        num += *text == ',';
    return num;
}

static int too_many(const char *name, uint32_t num)
{
    return tool_fail(TOOL_USAGE, "--%s: %" PRIu32 " parts: allowed are at most %d", name, num,
                     MAX_WORDS);
}

int simulate_read_times_flag(const char *name, const char *text, pst_times *out)
{
    uint64_t numbers[3] = {0, 0, 0};
    const char *rest = text;
    char word[WORD_BYTES];
    int num = 0;
    while (rest != NULL && num < 3 && cut(&rest, ',', word) &&
           parse_u64(word, 0, MAX_NS, &numbers[num]))
        num++;
    if (num == 1 && rest == NULL) { /* all of it inside */
        *out = (pst_times){0, numbers[0], 0};
        return TOOL_OK;
    }
    if (num != 3 || rest != NULL)
        return tool_fail(
            TOOL_USAGE,
            "--%s %.80s: allowed is BEFORE,INSIDE,AFTER or INSIDE, integers 0..%" PRIu64, name,
            text, MAX_NS);
    *out = (pst_times){numbers[0], numbers[1], numbers[2]};
    return TOOL_OK;
}

int simulate_read_pages_flag(const char *name, const char *text, uint64_t *out)
{
    const bool is_host = strcmp(name, "host-pages") == 0;
    if (strcmp(text, "auto") == 0) {
        *out = SIMULATE_AUTO;
        return TOOL_OK;
    }
    if (parse_u64(text, is_host ? 0 : 1, REPLAY_MAX_PAGES, out))
        return TOOL_OK;
    return tool_fail(TOOL_USAGE, "--%s %.80s: allowed is an integer %d..%u, or auto", name, text,
                     is_host ? 0 : 1, REPLAY_MAX_PAGES);
}

int simulate_read_layers_flag(const char *text, uint32_t **layers_out, uint32_t *num_out)
{
    const uint32_t num = count_words(text);
    const char *rest = text;
    char word[WORD_BYTES];
    uint64_t number = 0;
    if (num > MAX_WORDS)
        return too_many("layers", num);
    uint32_t *layers = calloc(num, sizeof(*layers));
    if (layers == NULL)
        return tool_fail(TOOL_NO, "out of memory for %" PRIu32 " numbers of --layers", num);
    uint32_t i = 0;
    for (; i < num && cut(&rest, ',', word) && parse_u64(word, 0, SIMULATE_MAX_LAYERS, &number);
         i++)
        layers[i] = (uint32_t)number;
    *layers_out = layers;
    *num_out = num;
    if (i == num)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--layers %.80s: allowed is an integer 0..%u, or one for each chunk", text,
                     SIMULATE_MAX_LAYERS);
}

/* LAYER=NUM/DEN or CHUNK.LAYER=NUM/DEN. */
static bool read_offload(const char *word, simulate_offload *out)
{
    char place[WORD_BYTES];
    char first[WORD_BYTES];
    uint64_t numbers[2] = {0, 0};
    const char *share = word;
    if (!cut(&share, '=', place) || share == NULL)
        return false;
    const char *layer = place;
    if (!cut(&layer, '.', first) || !parse_u64(first, 0, SIMULATE_MAX_LAYERS, &numbers[0]))
        return false;
    if (layer != NULL && !parse_u64(layer, 0, SIMULATE_MAX_LAYERS, &numbers[1]))
        return false;
    out->chunk = layer != NULL ? (uint32_t)numbers[0] : SIMULATE_ALL;
    out->layer = (uint32_t)(layer != NULL ? numbers[1] : numbers[0]);
    return parse_fraction(share, &out->share.num, &out->share.den);
}

int simulate_read_offload_flag(const char *text, simulate_offload **offloads_out, uint32_t *num_out)
{
    const uint32_t num = count_words(text);
    const char *rest = text;
    char word[WORD_BYTES];
    if (num > MAX_WORDS)
        return too_many("offload", num);
    simulate_offload *offloads = calloc(num, sizeof(*offloads));
    if (offloads == NULL)
        return tool_fail(TOOL_NO, "out of memory for %" PRIu32 " shares of --offload", num);
    uint32_t i = 0;
    while (i < num && cut(&rest, ',', word) && read_offload(word, &offloads[i]))
        i++;
    *offloads_out = offloads;
    *num_out = num;
    if (i == num)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--offload %.80s: allowed is LAYER=NUM/DEN or CHUNK.LAYER=NUM/DEN, integers "
                     "with NUM <= DEN, and several with commas between",
                     text);
}

int simulate_read_link_flag(const char *text, uint64_t *out_rate_out, uint64_t *in_rate_out)
{
    double rates[2] = {0.0, 0.0};
    const char *rest = text;
    char word[WORD_BYTES];
    int num = 0;
    while (rest != NULL && num < 2 && cut(&rest, ',', word) &&
           parse_factor(word, SIMULATE_MAX_FACTOR, &rates[num]))
        num++;
    if (num != 2 || rest != NULL)
        return tool_fail(TOOL_USAGE,
                         "--link-gb/s %.80s: allowed is OUT,IN, numbers above 0, at most %d", text,
                         SIMULATE_MAX_FACTOR);
    *out_rate_out = (uint64_t)llround(rates[0] * 1e9);
    *in_rate_out = (uint64_t)llround(rates[1] * 1e9);
    return TOOL_OK;
}

/* ---- schedules ---- */

static const struct {
    pst_schedule_kind kind;
    const char *name;
} kinds[] = {
    {PST_SCHEDULE_1F1B, "1f1b"},
    {PST_SCHEDULE_GPIPE, "gpipe"},
    {PST_SCHEDULE_GPIPE_REVERSED, "gpipe-reversed"},
    {PST_SCHEDULE_INTERLEAVED, "interleaved"},
    {PST_SCHEDULE_ZB_H1, "zb-h1"},
    {PST_SCHEDULE_ZB_H2, "zb-h2"},
    {PST_SCHEDULE_ZB_V, "zb-v"},
    {PST_SCHEDULE_DUALPIPE, "dualpipe"},
    {PST_SCHEDULE_DUALPIPE_V, "dualpipe-v"},
    {PST_SCHEDULE_LIST, "list"},
};
enum { NUM_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

const char *simulate_kind_name(pst_schedule_kind kind)
{
    for (int i = 0; i < NUM_KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "";
}

int simulate_read_schedule_flag(const char *text, pst_schedule_kind *kind_out,
                                const char **path_out, bool *is_megatron_out)
{
    *path_out = NULL;
    *is_megatron_out = strncmp(text, "megatron:", 9) == 0;
    *kind_out = PST_SCHEDULE_LIST;
    if (*is_megatron_out || strncmp(text, "list:", 5) == 0) {
        *path_out = strchr(text, ':') + 1;
        if (**path_out != '\0')
            return TOOL_OK;
    }
    for (int i = 0; i < NUM_KINDS - 1 && *path_out == NULL; i++)
        if (strcmp(text, kinds[i].name) == 0) {
            *kind_out = kinds[i].kind;
            return TOOL_OK;
        }
    return tool_fail(TOOL_USAGE,
                     "--schedule %.80s: allowed are 1f1b, gpipe, gpipe-reversed, interleaved, "
                     "zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v, list:FILE and megatron:FILE",
                     text);
}
