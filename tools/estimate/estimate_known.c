/* Flags that do not count here: those of Megatron-LM, as estimate_known.txt lists them, and misspelt ones. */
#include "tools/common/near.h"
#include "tools/common/parse.h"
#include "tools/estimate/estimate_flags.h"

#include <stdio.h>
#include <string.h>

#include "estimate_known.h" /* made by CMake of estimate_known.txt */

/* Of headings: the words of estimate_effect, and how many values a flag has. */
static const char effects[] = "harmless|memory|states|shards", arities[] = "switches|values|lists";

estimate_known estimate_find_known(const char *name)
{
    char words[2][16];
    int effect = 0, arity = 0;
    size_t length;
    for (const char *at = estimate_known_txt; *at != '\0';
         at += length + strspn(at + length, " \n")) {
        length = strcspn(at, *at == '#' ? "\n" : " \n");
        if (at[length - 1] == ':' && *at != '#') {
            (void)sscanf(at, "%15[a-z]-%15[a-z]", words[0], words[1]);
            (void)parse_choice(words[0], effects, &effect);
            (void)parse_choice(words[1], arities, &arity);
        } else if (strlen(name) == length && memcmp(at, name, length) == 0) {
            return (estimate_known){ESTIMATE_HARMLESS + (estimate_effect)effect, arity};
        }
    }
    return (estimate_known){ESTIMATE_UNKNOWN, 0};
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
