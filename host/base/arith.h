/* Arithmetic on 64 bits: sums and products that saturate, quotients that round up, gcd, alignment.
 * What is too much becomes PSTI_TOO_MUCH, and stays it in whatever is made of it. A header alone, and
 * open to commands and benchmarks too. */
#ifndef PSTI_HOST_BASE_ARITH_H
#define PSTI_HOST_BASE_ARITH_H

#include <stddef.h>
#include <stdint.h>

#define PSTI_TOO_MUCH UINT64_MAX

__extension__ typedef unsigned __int128 psti_wide;

static inline uint64_t psti_saturate(psti_wide value)
{
    return value > PSTI_TOO_MUCH ? PSTI_TOO_MUCH : (uint64_t)value;
}

static inline uint64_t psti_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t psti_plus(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? PSTI_TOO_MUCH : sum;
}

/* b is a part of a. */
static inline uint64_t psti_minus(uint64_t a, uint64_t b)
{
    return a == PSTI_TOO_MUCH ? a : a - b;
}

static inline uint64_t psti_times(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? PSTI_TOO_MUCH : product;
}

/* a / b, rounded down. */
static inline uint64_t psti_div_down(uint64_t a, uint64_t b)
{
    return a == PSTI_TOO_MUCH ? a : a / b;
}

/* a / b, rounded up. */
static inline uint64_t psti_div_up(uint64_t a, uint64_t b)
{
    return a == PSTI_TOO_MUCH ? a : a / b + (a % b != 0);
}

/* total * num / den, rounded up. */
static inline uint64_t psti_fraction(uint64_t total, uint64_t num, uint64_t den)
{
    return total == PSTI_TOO_MUCH ? total : psti_saturate(((psti_wide)total * num + den - 1) / den);
}

/* Up to a multiple of align, a power of two; both at most 2^63. */
static inline uint64_t psti_round_up(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) & ~(align - 1);
}

static inline uint64_t psti_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t psti_sum_of(const uint64_t *terms, size_t num_terms)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < num_terms; i++)
        sum = psti_plus(sum, terms[i]);
    return sum;
}

static inline uint64_t psti_product_of(const uint64_t *factors, size_t num_factors)
{
    uint64_t product = 1;
    for (size_t i = 0; i < num_factors; i++)
        product = psti_times(product, factors[i]);
    return product;
}

#define PSTI_LIST(...) \
    (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)
#define PSTI_SUM(...) psti_sum_of(PSTI_LIST(__VA_ARGS__))
#define PSTI_PRODUCT(...) psti_product_of(PSTI_LIST(__VA_ARGS__))

#endif
