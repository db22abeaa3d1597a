#include "tools/common/near.h"

#include <stdint.h>
#include <string.h>

enum { MOST_LETTERS = 80, MOST_EDITS = 2, SHORTEST = 6, SHORTEST_PART = 3 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The optimal string alignment distance. */
static size_t num_edits(const char *a, const char *b)
{
    size_t rows[3][MOST_LETTERS + MOST_EDITS + 1];
    const size_t length_a = strlen(a), length_b = strlen(b);
    for (size_t j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            const size_t changed = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, changed);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[length_a % 3][length_b];
}

void near_pick(const char *word, const char *other, size_t *fewest, const char **meant)
{
    const size_t length = strlen(word), other_length = strlen(other);
    if (length < SHORTEST || length > MOST_LETTERS || other_length > length + MOST_EDITS ||
        length > other_length + MOST_EDITS)
        return;
    const size_t edits = num_edits(word, other);
    if (edits > MOST_EDITS || edits >= *fewest)
        return;
    *fewest = edits;
    *meant = other;
}

/* How many of its words are left out, of which one may be; SIZE_MAX where another one is said. */
static size_t num_left_out(const char *word, const char *other)
{
    size_t num_said = 0, num_out = 0;
    while (*other != '\0') {
        const size_t length = strcspn(word, "-"), other_length = strcspn(other, "-");
        const size_t both = least(length, other_length);
        if ((both >= SHORTEST_PART || length == other_length) && strncmp(word, other, both) == 0) {
            num_said++;
            word += length + (word[length] == '-');
        } else if (strncmp(other, "no-", 3) == 0) { /* which would be the opposite */
            return SIZE_MAX;
        } else {
            num_out++;
        }
        other += other_length + (other[other_length] == '-');
    }
    return *word == '\0' && num_said > 1 && num_out <= 1 ? num_out : SIZE_MAX;
}

void near_pick_words(const char *word, const char *other, size_t *fewest, const char **meant)
{
    const size_t num_out = num_left_out(word, other);
    if (num_out >= *fewest)
        return;
    *fewest = num_out;
    *meant = other;
}
