/* The functions of one level: included once by each glu_rows*.c, and vectorised for its processor.
 * Blocks of a row become float32 on the stack, in two runs; what follows knows no layout. */
#ifndef PSTI_HOST_GLU_ROWS_BODY_H
#define PSTI_HOST_GLU_ROWS_BODY_H

#include "kernels/host/glu_rows.h"

#define BLOCK 128u
#define INLINE static inline __attribute__((always_inline))

typedef struct block {
    _Alignas(64) float gate[BLOCK];
    _Alignas(64) float up[BLOCK];
} block;

INLINE float read_at(uint32_t dtype, const unsigned char *from, uint64_t i)
{
    uint16_t half;
    float value;
    if (dtype == PST_GLU_FP32) {
        memcpy(&value, from + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, from + i * sizeof half, sizeof half);
    return dtype == PST_GLU_BF16 ? psti_bf16_to_float(half) : psti_half_to_float(half);
}

INLINE void write_at(uint32_t dtype, unsigned char *to, uint64_t i, float value)
{
    if (dtype == PST_GLU_FP32) {
        memcpy(to + i * sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t half =
        dtype == PST_GLU_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
    memcpy(to + i * sizeof half, &half, sizeof half);
}

INLINE uint64_t size_of(uint32_t dtype)
{
    return dtype == PST_GLU_FP32 ? 4 : 2;
}

/* ---- between a row and float32; `run` is a constant where it is not `count` */

INLINE void read_run(uint32_t dtype, const unsigned char *restrict from, uint32_t run,
                     float *restrict to)
{
    for (uint32_t i = 0; i < run; i++)
        to[i] = read_at(dtype, from, i);
}

INLINE void write_run(uint32_t dtype, unsigned char *restrict to, uint32_t run,
                      const float *restrict from)
{
    for (uint32_t i = 0; i < run; i++)
        write_at(dtype, to, i, from[i]);
}

INLINE void read_pairs(uint32_t dtype, const unsigned char *restrict from, uint32_t interleave,
                       uint32_t count, block *restrict to)
{
    if (interleave == 1)
        for (uint32_t i = 0; i < count; i++) {
            to->gate[i] = read_at(dtype, from, 2 * i);
            to->up[i] = read_at(dtype, from, 2 * i + 1);
        }
    else
        for (uint32_t i = 0; i < count; i += 32) {
            read_run(dtype, from + 2 * i * size_of(dtype), 32, to->gate + i);
            read_run(dtype, from + (2 * i + 32) * size_of(dtype), 32, to->up + i);
        }
}

INLINE void write_pairs(uint32_t dtype, unsigned char *restrict to, uint32_t interleave,
                        uint32_t count, const block *restrict from)
{
    if (interleave == 1)
        for (uint32_t i = 0; i < count; i++) {
            write_at(dtype, to, 2 * i, from->gate[i]);
            write_at(dtype, to, 2 * i + 1, from->up[i]);
        }
    else
        for (uint32_t i = 0; i < count; i += 32) {
            write_run(dtype, to + 2 * i * size_of(dtype), 32, from->gate + i);
            write_run(dtype, to + (2 * i + 32) * size_of(dtype), 32, from->up + i);
        }
}

/* Calls once with each dtype as a constant. */
#define FOR_DTYPE(function, dtype, ...)          \
    do {                                         \
        if ((dtype) == PST_GLU_BF16)             \
            function(PST_GLU_BF16, __VA_ARGS__); \
        else if ((dtype) == PST_GLU_FP16)        \
            function(PST_GLU_FP16, __VA_ARGS__); \
        else                                     \
            function(PST_GLU_FP32, __VA_ARGS__); \
    } while (0)

/* A block that is not full is filled with zeros, of which all results are 0. */
static void read_values(uint32_t dtype, const void *from, uint64_t at, uint32_t count, float *to)
{
    const unsigned char *first = (const unsigned char *)from + at * size_of(dtype);
    memset(to + count, 0, (BLOCK - count) * sizeof *to);
    FOR_DTYPE(read_run, dtype, first, count, to);
}

static void write_values(uint32_t dtype, void *to, uint64_t at, uint32_t count, const float *from)
{
    FOR_DTYPE(write_run, dtype, (unsigned char *)to + at * size_of(dtype), count, from);
}

static void read_block(uint32_t dtype, uint32_t interleave, const void *gate, const void *up,
                       uint64_t at, uint32_t count, block *to)
{
    if (interleave == 0) {
        read_values(dtype, gate, at, count, to->gate);
        read_values(dtype, up, at, count, to->up);
        return;
    }
    const unsigned char *first = (const unsigned char *)gate + 2 * at * size_of(dtype);
    memset(to->gate + count, 0, (BLOCK - count) * sizeof *to->gate);
    memset(to->up + count, 0, (BLOCK - count) * sizeof *to->up);
    FOR_DTYPE(read_pairs, dtype, first, interleave, count, to);
}

static void write_block(uint32_t dtype, uint32_t interleave, void *gate, void *up, uint64_t at,
                        uint32_t count, const block *from)
{
    if (interleave == 0) {
        write_values(dtype, gate, at, count, from->gate);
        write_values(dtype, up, at, count, from->up);
        return;
    }
    unsigned char *first = (unsigned char *)gate + 2 * at * size_of(dtype);
    FOR_DTYPE(write_pairs, dtype, first, interleave, count, from);
}

/* ---- blocks of float32 */

INLINE void values_of_kind(uint32_t kind, const psti_activation *how, const block *restrict in,
                           float p, float *restrict out)
{
    const psti_activation now = {kind, how->limit, how->alpha, how->bias};
    for (uint32_t i = 0; i < BLOCK; i++)
        out[i] = p * psti_glu_value(&now, in->gate[i], in->up[i]);
}

/* `values` are without p. */
INLINE void slopes_of_kind(uint32_t kind, const psti_activation *how, const block *restrict in,
                           const float *restrict gradient, float p, block *restrict out,
                           float *restrict values)
{
    const psti_activation now = {kind, how->limit, how->alpha, how->bias};
    for (uint32_t i = 0; i < BLOCK; i++) {
        const psti_glu_slopes slopes = psti_glu_slopes_of(&now, in->gate[i], in->up[i]);
        const float scaled = gradient[i] * p;
        out->gate[i] = scaled * slopes.by_gate;
        out->up[i] = scaled * slopes.by_up;
        values[i] = slopes.value;
    }
}

/* Calls once with each kind as a constant. */
#define FOR_KIND(function, kind, ...)                   \
    do {                                                \
        if ((kind) == PST_GLU_SWIGLU)                   \
            function(PST_GLU_SWIGLU, __VA_ARGS__);      \
        else if ((kind) == PST_GLU_GEGLU)               \
            function(PST_GLU_GEGLU, __VA_ARGS__);       \
        else if ((kind) == PST_GLU_GEGLU_TANH)          \
            function(PST_GLU_GEGLU_TANH, __VA_ARGS__);  \
        else if ((kind) == PST_GLU_QUICK_GEGLU)         \
            function(PST_GLU_QUICK_GEGLU, __VA_ARGS__); \
        else if ((kind) == PST_GLU_CLAMPED)             \
            function(PST_GLU_CLAMPED, __VA_ARGS__);     \
        else                                            \
            function(PST_GLU_REGLU, __VA_ARGS__);       \
    } while (0)

static void values_of(const psti_activation *how, const block *in, float p, float *out)
{
    FOR_KIND(values_of_kind, how->kind, how, in, p, out);
}

static void slopes_of(const psti_activation *how, const block *in, const float *gradient, float p,
                      block *out, float *values)
{
    FOR_KIND(slopes_of_kind, how->kind, how, in, gradient, p, out, values);
}

/* Written so that gcc takes the sums side by side. */
static void add_products(const float *restrict gradient, const float *restrict values,
                         float *restrict sum)
{
    for (uint32_t j = 0; j < PSTI_GLU_SUMS; j++) {
        float one = sum[j];
        for (uint32_t i = 0; i < BLOCK; i += PSTI_GLU_SUMS)
            one = psti_fma(gradient[i + j], values[i + j], one);
        sum[j] = one;
    }
}

static uint32_t count_at(uint64_t at, uint64_t n)
{
    return n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
}

static void forward(const psti_activation *how, uint32_t dtype, uint32_t interleave,
                    const void *gate, const void *up, uint64_t n, float p, void *out)
{
    block in;
    _Alignas(64) float values[BLOCK];
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint32_t count = count_at(at, n);
        read_block(dtype, interleave, gate, up, at, count, &in);
        values_of(how, &in, p, values);
        write_values(dtype, out, at, count, values);
    }
}

static void backward(const psti_activation *how, uint32_t dtype, uint32_t interleave,
                     const void *gate, const void *up, const void *gradient, uint64_t n, float p,
                     void *gate_gradient, void *up_gradient, void *out, float sum[PSTI_GLU_SUMS])
{
    block in, by;
    _Alignas(64) float values[BLOCK], from[BLOCK];
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint32_t count = count_at(at, n);
        read_block(dtype, interleave, gate, up, at, count, &in);
        read_values(dtype, gradient, at, count, from);
        slopes_of(how, &in, from, p, &by, values);
        add_products(from, values, sum);
        write_block(dtype, interleave, gate_gradient, up_gradient, at, count, &by);
        if (out == NULL)
            continue;
        for (uint32_t i = 0; i < BLOCK; i++)
            values[i] = p * values[i];
        write_values(dtype, out, at, count, values);
    }
}

static const psti_glu_rows rows_of_this_level = {forward, backward};

#endif
