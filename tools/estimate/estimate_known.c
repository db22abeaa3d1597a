/* Flags that do not count here: those of Megatron-LM, as estimate_known.txt lists them, and misspelt ones. */
#include "tools/common/near.h"
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

#include "estimate_known.h" /* made by CMake of estimate_known.txt */

/* Of headings: the words of estimate_effect, and how many values a flag has. */
static const char effects[] = "harmless|memory|states|shards", arities[] = "switches|values|lists";

static bool is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* Goes over the names up to the wanted one; NULL: over all. How many those were. */
static int walk(const char *name, estimate_known *found)
{
    char words[2][16];
    int num = 0, effect = 0, arity = 0;
    size_t length;
    for (const char *at = estimate_known_txt; *at != '\0';
         at += length + strspn(at + length, " \n")) {
        length = strcspn(at, *at == '#' ? "\n" : " \n");
        if (*at == '#')
            continue;
        if (at[length - 1] == ':') {
            (void)sscanf(at, "%15[a-z]-%15[a-z]", words[0], words[1]);
            (void)parse_choice(words[0], effects, &effect);
            (void)parse_choice(words[1], arities, &arity);
            continue;
        }
        if (name != NULL && is_word(at, length, name)) {
            *found = (estimate_known){ESTIMATE_HARMLESS + (estimate_effect)effect, arity, num};
            return num;
        }
        num++;
    }
    return num;
}

int estimate_num_known(void)
{
    return walk(NULL, NULL);
}

estimate_known estimate_find_known(const char *name)
{
    estimate_known known = {.effect = ESTIMATE_UNKNOWN};
    (void)walk(name, &known);
    return known;
}

const char *estimate_meant(const char *name)
{
    const char *meant = NULL;
    size_t fewest = SIZE_MAX;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].kind != ESTIMATE_NO_FLAG)
            near_pick(name, estimate_flag(id), &fewest, &meant);
    return meant;
}
