/* Gated activations in float64 by libm, and how far float32 may be from them: docs/fused.md. */
#ifndef PAGESTASH_TESTS_GLU_EXACT_H
#define PAGESTASH_TESTS_GLU_EXACT_H

#include "kernels/core/glu.h"

#include <math.h>

/* A result and the sum of the magnitudes of its terms. */
typedef struct exact_sum {
    double is, terms;
} exact_sum;

typedef struct exact_gate {
    exact_sum act, slope;
} exact_gate;

typedef struct exact_glu {
    exact_sum value, by_gate, by_up;
} exact_glu;

/* In units of 2^-24 of the terms. */
typedef struct glu_bound {
    double value, by_gate, by_up;
} glu_bound;

static inline glu_bound bound_of(uint32_t kind)
{
    static const glu_bound bounds[] = {
        [PST_GLU_SWIGLU] = {7, 8, 7},      [PST_GLU_GEGLU] = {8, 7, 8},
        [PST_GLU_GEGLU_TANH] = {5, 5, 5},  [PST_GLU_REGLU] = {1, 1, 1},
        [PST_GLU_QUICK_GEGLU] = {5, 5, 5}, [PST_GLU_CLAMPED] = {5, 5, 5},
    };
    return bounds[kind];
}

static inline psti_activation activation_of(uint32_t kind)
{
    const psti_activation how = {kind, 7.0f, 1.702f, 1.0f};
    return how;
}

/* gate * sigmoid(z), of which z is rounded `roundings` times. */
static inline exact_gate exact_by_sigmoid(double gate, double z, double by_gate, double roundings)
{
    const double e = exp(-fabs(z)), large = 1 / (1 + e), small = e / (1 + e);
    const double share = z < 0 ? small : large, others = z < 0 ? large : small;
    const double moved = fabs(z) * roundings, bent = gate * share * others * by_gate;
    const exact_gate at = {{gate * share, fabs(gate * share) * (1 + moved * others)},
                           {share + bent, share * (1 + moved * others) + fabs(bent) * (1 + moved)}};
    return at;
}

static inline exact_gate exact_by_erf(double gate)
{
    const double below = erfc(fabs(gate) * M_SQRT1_2) / 2;
    const double share = gate < 0 ? below : (1 + erf(gate * M_SQRT1_2)) / 2;
    const double bent = gate * exp(-gate * gate / 2) / sqrt(2 * M_PI);
    const exact_gate at = {{gate * share, fabs(gate) * share}, {share + bent, share + fabs(bent)}};
    return at;
}

/* By tanh where nothing is lost. */
static inline exact_gate exact_by_tanh(double gate)
{
    const double root = sqrt(2 / M_PI), y = root * (gate + 0.044715 * gate * gate * gate);
    exact_gate at = exact_by_sigmoid(gate, 2 * y, 2 * root * (1 + 3 * 0.044715 * gate * gate), 1);
    if (y > 0 && y < 100) {
        const double t = tanh(y);
        at.act.is = gate * (1 + t) / 2;
        at.slope.is =
            (1 + t) / 2 + gate / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * gate * gate);
    }
    return at;
}

static inline exact_gate exact_gate_of(const psti_activation *how, double gate)
{
    const double limit = how->limit;
    switch (how->kind) {
    case PST_GLU_SWIGLU:
        return exact_by_sigmoid(gate, gate, 1, 0);
    case PST_GLU_GEGLU:
        return exact_by_erf(gate);
    case PST_GLU_GEGLU_TANH:
        return exact_by_tanh(gate);
    case PST_GLU_QUICK_GEGLU:
        return exact_by_sigmoid(gate, (double)1.702f * gate, (double)1.702f, 1);
    case PST_GLU_CLAMPED: {
        const double clamped = fmin(gate, limit);
        exact_gate at = exact_by_sigmoid(clamped, how->alpha * clamped, how->alpha, 1);
        if (gate > limit)
            at.slope.is = at.slope.terms = 0;
        return at;
    }
    default: {
        const exact_gate at = {{fmax(gate, 0), fmax(gate, 0)}, {gate > 0, gate > 0}};
        return at;
    }
    }
}

/* A factor that is denormal in float32 has lost digits that the other one may show. */
static inline exact_sum exact_product(exact_sum sum, double factor)
{
    const double floor_terms = sum.terms == 0 ? 0 : fmax(sum.terms, 0x1p-126);
    const exact_sum product = {sum.is * factor, floor_terms * fabs(factor)};
    return product;
}

static inline exact_glu exact_glu_of(const psti_activation *how, exact_gate at, double up)
{
    double factor = up, open = 1;
    if (how->kind == PST_GLU_CLAMPED) {
        open = fabs(up) <= (double)how->limit;
        factor = fmax(fmin(up, how->limit), -how->limit) + (double)how->bias;
    }
    const exact_glu glu = {exact_product(at.act, factor), exact_product(at.slope, factor),
                           exact_product(at.act, open)};
    return glu;
}

/* Digits of a format, with the smallest exponent of a normal number and the largest. */
typedef struct float_format {
    int digits, smallest, largest;
} float_format;

static inline float_format format_of(uint32_t dtype)
{
    static const float_format formats[] = {
        [PST_GLU_BF16] = {8, -126, 127},
        [PST_GLU_FP16] = {11, -14, 15},
        [PST_GLU_FP32] = {24, -126, 127},
    };
    return formats[dtype];
}

/* One unit in the last place of a result. */
static inline double ulp_of(uint32_t dtype, double result)
{
    const float_format format = format_of(dtype);
    const int exponent = result == 0 ? format.smallest : ilogb(result);
    return ldexp(1, (exponent < format.smallest ? format.smallest : exponent) + 1 - format.digits);
}

/* How much of its bound, half an ulp and c * 2^-24 of the terms, a result's error takes; above 1 it
 * is wrong. */
static inline double share_of_bound(uint32_t dtype, double result, exact_sum exact, double c)
{
    const float_format format = format_of(dtype);
    const double room = c * 0x1p-24 * exact.terms;
    if (isnan(result))
        return INFINITY;
    if (isinf(result)) {
        const double end = ldexp(2 - ldexp(1, -format.digits), format.largest);
        return fabs(exact.is) + room >= end && (result > 0) == (exact.is > 0) ? 0 : INFINITY;
    }
    const double error = fabs(result - exact.is);
    return error == 0 ? 0 : error / (ulp_of(dtype, result) / 2 + room);
}

static inline float read_as(uint32_t dtype, uint32_t bits)
{
    return dtype == PST_GLU_BF16   ? psti_bf16_to_float((uint16_t)bits)
           : dtype == PST_GLU_FP16 ? psti_half_to_float((uint16_t)bits)
                                   : psti_float_of(bits);
}

static inline uint32_t bits_as(uint32_t dtype, float value)
{
    return dtype == PST_GLU_BF16   ? psti_float_to_bf16(value)
           : dtype == PST_GLU_FP16 ? psti_float_to_half(value)
                                   : psti_bits_of(value);
}

static inline double round_as(uint32_t dtype, float value)
{
    return (double)read_as(dtype, bits_as(dtype, value));
}

#endif
