/* The arithmetic of gated activations (pagestash/glu.h): float32, the same on CPU and GPU. */
#ifndef PSTI_CORE_GLU_H
#define PSTI_CORE_GLU_H

#include "kernels/core/float.h"
#include "kernels/core/layout.h"

#include <pagestash/glu.h>

/* The switch over a constant kind shall vanish, also where clang finds it too long to inline. */
#define PSTI_FN_OF_KIND PSTI_FN __attribute__((always_inline))

/* The value without the probability, and its partial derivatives. */
typedef struct psti_glu_slopes {
    float value, by_gate, by_up;
} psti_glu_slopes;

/* act(g) and its derivative. */
typedef struct psti_gate {
    float act, slope;
} psti_gate;

/* From here on e^-z is part * scale * scale, scale a power of two. Where z is large the square would
 * lose digits, and what is multiplied by `scale` last does not. */
typedef struct psti_decay {
    float part, scale;
} psti_decay;

/* A z that is clamped here makes `scale` 0. */
#define PSTI_DECAY_END 176.0f

/* e^-z for z = high + low, 0 <= z <= PSTI_DECAY_END, `about` being z rounded. The polynomial is
 * minimax in relative error on [-ln 2, ln 2] with its first two coefficients 1, fitted by weighted
 * least squares in the manner of Lawson: 2^-26.0. */
PSTI_FN psti_decay psti_decay_of(float about, float high, float low)
{
    const float magic = 12582912.0f + 127.0f; /* 1.5 * 2^23: its sums are whole */
    const float shifted = psti_fma(about, -0.721347520f, magic);
    const float halves = shifted - magic;                  /* of -z / ln 2 */
    float rest = psti_fma(halves, -1.38623046875f, -high); /* exact, as 2 ln 2 has 14 bits here */
    rest = psti_fma(halves, -6.38923645e-5f, rest) - low;
    float part = psti_fma(1.96115987e-4f, rest, 1.41044700e-3f);
    part = psti_fma(part, rest, 8.33610317e-3f);
    part = psti_fma(part, rest, 4.16612684e-2f);
    part = psti_fma(part, rest, 1.66666141e-1f);
    part = psti_fma(part, rest, 5.00000346e-1f);
    part = psti_fma(part, rest, 1.0f);
    part = psti_fma(part, rest, 1.0f);
    const psti_decay decay = {part, psti_float_of(psti_bits_of(shifted) << 23)};
    return decay;
}

/* 1 / x for x in [2^-100, 2^100], to 1.1 * 2^-24 with fma, else to 2 * 2^-24: a division would be a
 * call on the GPU. The first step is minimax for the guess that the subtraction gives, 2^-9.7; the
 * second is cubic. */
PSTI_FN float psti_reciprocal(float x)
{
    const float guess = psti_float_of(0x7ef00000u - psti_bits_of(x));
    const float near = guess * psti_fma(-1.03116935f * x, guess, 2.03212865f);
    const float wrong = psti_fma(-x, near, 1.0f);
    return psti_fma(near, psti_fma(wrong, wrong, wrong), near);
}

/* act = gate * sigmoid(z), where z has the derivative by_gate. */
PSTI_FN psti_gate psti_gate_of_sigmoid(float gate, float z, float by_gate)
{
    const float size = psti_smaller(psti_magnitude(z), PSTI_DECAY_END);
    const psti_decay decay = psti_decay_of(size, size, 0.0f);
    const float part = decay.part * decay.scale;
    const float large = psti_reciprocal(psti_fma(part, decay.scale, 1.0f)); /* sigmoid(|z|) */
    const bool below = z < 0.0f;
    const float scale = below ? decay.scale : 1.0f;
    const float share = below ? part * large : large; /* sigmoid(z) / scale */
    const float others = below ? large : part * large * decay.scale;
    const float scaled = gate * share;
    const psti_gate result = {scaled * scale, psti_fma(scaled * others, by_gate, share) * scale};
    return result;
}

/* e^(x^2 / 2) * erfc(x / sqrt 2) / 2 for x in [0, 19]. In y = x / (x + 2.5) - 0.25 the polynomial is
 * minimax in relative error for x in [0, 14.5], found by Remez: 2^-24.9 with these coefficients. */
PSTI_FN float psti_scaled_tail(float x)
{
    const float v = psti_reciprocal(x + 2.5f);
    const float y = psti_fma(x, v, -0.25f);
    float sum = psti_fma(-0.0805210024f, y, 0.101590566f);
    sum = psti_fma(sum, y, 0.0655873567f);
    sum = psti_fma(sum, y, -0.0253864527f);
    sum = psti_fma(sum, y, -0.14849481f);
    sum = psti_fma(sum, y, -0.106496938f);
    sum = psti_fma(sum, y, 0.268255323f);
    sum = psti_fma(sum, y, 0.38951993f);
    sum = psti_fma(sum, y, -1.10288739f);
    sum = psti_fma(sum, y, 0.954403996f);
    return sum * v;
}

/* act = gate * (1 + erf(gate / sqrt 2)) / 2. */
PSTI_FN psti_gate psti_gate_of_erf(float gate)
{
    const float x = psti_smaller(psti_magnitude(gate), 18.762f);     /* sqrt(2 PSTI_DECAY_END) */
    const float head = psti_float_of(psti_bits_of(x) & 0xfffff000u); /* its square is exact */
    /* A plain product would be fused with the subtraction that it is for. */
    const float low = psti_fma(0.5f * (x + head), x - head, 0.0f);
    const psti_decay decay = psti_decay_of(0.5f * x * x, 0.5f * head * head, low);
    const float tail = psti_scaled_tail(x);
    const float part = decay.part * decay.scale;
    const bool below = gate < 0.0f;
    const float step = below ? 0.0f : 1.0f;
    const float density = psti_fma(gate, 0.398942280f, below ? tail : -tail);
    const psti_gate result = {psti_fma(-(x * tail) * part, decay.scale, gate * step),
                              psti_fma(part * density, decay.scale, step)};
    return result;
}

/* act = gate * (1 + tanh(y)) / 2 = gate * sigmoid(2 y). From 16 on the square does not matter, and
 * shall not overflow. */
PSTI_FN psti_gate psti_gate_of_tanh(float gate)
{
    const float square = psti_smaller(gate * gate, 256.0f);
    const float z = gate * psti_fma(square, 0.0713548163f, 1.59576912f);
    return psti_gate_of_sigmoid(gate, z, psti_fma(square, 0.214064449f, 1.59576912f));
}

PSTI_FN_OF_KIND psti_gate psti_gate_of(const psti_activation *how, float gate)
{
    switch (how->kind) {
    case PST_GLU_SWIGLU:
        return psti_gate_of_sigmoid(gate, gate, 1.0f);
    case PST_GLU_GEGLU:
        return psti_gate_of_erf(gate);
    case PST_GLU_GEGLU_TANH:
        return psti_gate_of_tanh(gate);
    case PST_GLU_QUICK_GEGLU:
        return psti_gate_of_sigmoid(gate, 1.702f * gate, 1.702f);
    case PST_GLU_CLAMPED: {
        const float clamped = gate > how->limit ? how->limit : gate;
        return psti_gate_of_sigmoid(clamped, how->alpha * clamped, how->alpha);
    }
    default: { /* PST_GLU_REGLU */
        const psti_gate result = {gate < 0.0f ? 0.0f : gate, 1.0f};
        return result;
    }
    }
}

/* What act(g) is multiplied by. */
PSTI_FN_OF_KIND float psti_glu_factor(const psti_activation *how, float up)
{
    if (how->kind != PST_GLU_CLAMPED)
        return up;
    const float below = up > how->limit ? how->limit : up;
    return (below < -how->limit ? -how->limit : below) + how->bias;
}

PSTI_FN_OF_KIND float psti_glu_value(const psti_activation *how, float gate, float up)
{
    return psti_gate_of(how, gate).act * psti_glu_factor(how, up);
}

/* Where a clamp or the rectifier holds, the derivative is 0, whatever the other factors are. */
PSTI_FN_OF_KIND psti_glu_slopes psti_glu_slopes_of(const psti_activation *how, float gate, float up)
{
    const psti_gate at = psti_gate_of(how, gate);
    const float factor = psti_glu_factor(how, up);
    psti_glu_slopes slopes = {at.act * factor, at.slope * factor, at.act};
    if (how->kind == PST_GLU_REGLU)
        slopes.by_gate = gate <= 0.0f ? 0.0f : slopes.by_gate;
    if (how->kind == PST_GLU_CLAMPED) {
        slopes.by_gate = gate <= how->limit ? slopes.by_gate : 0.0f;
        slopes.by_up = up >= -how->limit && up <= how->limit ? slopes.by_up : 0.0f;
    }
    return slopes;
}

#endif
