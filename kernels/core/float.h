/* Floating point that is the same everywhere: what is fused is written so, and 16-bit formats are
 * read and rounded by their bits. */
#ifndef PSTI_CORE_FLOAT_H
#define PSTI_CORE_FLOAT_H

#include "kernels/core/fn.h"

#include <string.h>

PSTI_FN uint32_t psti_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

PSTI_FN float psti_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a * b + c: one rounding where the processor has the instruction, else two. Nothing else is left to
 * the compiler to fuse, so that all processors with the instruction give the same bits. */
PSTI_FN float psti_fma(float a, float b, float c)
{
#if defined(__CUDACC__)
    return __fmaf_rn(a, b, c);
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* b where a is NaN. */
PSTI_FN float psti_smaller(float a, float b)
{
#if defined(__CUDACC__)
    return fminf(a, b);
#else
    return a < b ? a : b;
#endif
}

PSTI_FN float psti_magnitude(float value)
{
#if defined(__CUDACC__)
    return fabsf(value);
#else
    return psti_float_of(psti_bits_of(value) & 0x7fffffffu);
#endif
}

PSTI_FN float psti_bf16_to_float(uint16_t bits)
{
    return psti_float_of((uint32_t)bits << 16);
}

/* To the nearest, ties to even. Every NaN becomes 0x7fff, as by the GPU's own conversion. */
PSTI_FN uint16_t psti_float_to_bf16(float value)
{
    const uint32_t bits = psti_bits_of(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

PSTI_FN float psti_half_to_float(uint16_t half)
{
    const uint32_t size = (half & 0x7fffu) << 13;
    const uint32_t exponent = size & 0x0f800000u;
    const float denormal = psti_float_of(size + 0x38800000u) - psti_float_of(0x38800000u);
    const uint32_t normal = size + (exponent == 0x0f800000u ? 0x70000000u : 0x38000000u);
    const uint32_t bits = exponent == 0 ? psti_bits_of(denormal) : normal;
    return psti_float_of(bits | (half & 0x8000u) << 16);
}

/* To the nearest, ties to even. Every NaN becomes 0x7fff. Where the result is denormal, a sum of
 * float32 rounds it: the last digit of 0.5 is that of the smallest half. */
PSTI_FN uint16_t psti_float_to_half(float value)
{
    const uint32_t bits = psti_bits_of(value), size = bits & 0x7fffffffu;
    const uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const uint32_t denormal = psti_bits_of(psti_float_of(size) + 0.5f) - 0x3f000000u;
    uint32_t half = size < 0x38800000u ? denormal : normal;
    half = size >= 0x47800000u ? 0x7c00u : half; /* below it, rounding may still carry into this */
    half |= bits >> 16 & 0x8000u;
    return (uint16_t)(size > 0x7f800000u ? 0x7fffu : half);
}

#endif
