/* Which word was meant by a misspelt one. */
#ifndef PAGESTASH_NEAR_H
#define PAGESTASH_NEAR_H

#include <stddef.h>

/* Makes `other` the one that was meant where it is at most two letters from `word` (put in, left out,
 * changed, or swapped with the next one) and nearer than those before it. Start from SIZE_MAX and NULL.
 * Words of 6 to 80 letters alone. */
void near_pick(const char *word, const char *other, size_t *fewest, const char **meant);
/* The same where `word` says the parts of `other` between its dashes, two at least, and leaves out at most one; a
 * part of three letters or more may go on, or end, before the other one does: gpu-mem, sequence-parallelism. */
void near_pick_words(const char *word, const char *other, size_t *fewest, const char **meant);

#endif
