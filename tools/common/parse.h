/* Values of command line options. Each function returns false, and leaves *out alone, for anything
 * that is not exactly such a value within [min, max]. */
#ifndef PAGESTASH_PARSE_H
#define PAGESTASH_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits only: no sign, no space. */
bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* Plain bytes, or with the suffix KiB, MiB or GiB. */
bool parse_size(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* "1.25": digits and a point. Greater than zero, at most max. */
bool parse_factor(const char *text, double max, double *out);
/* "A/B": a fraction from 0 to 1, B above 0. */
bool parse_fraction(const char *text, uint32_t *num_out, uint32_t *den_out);
/* "A:B", half-open, A < B. */
bool parse_range(const char *text, uint64_t *begin_out, uint64_t *end_out);
/* Index of text in "first|second|third"; out may be NULL. */
bool parse_choice(const char *text, const char *choices, int *out);

#endif
