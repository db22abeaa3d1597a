/* Sixteen bytes of a row: elements as they stand in memory, and as float32. */
#ifndef PSTI_CUDA_ELEMENT_CUH
#define PSTI_CUDA_ELEMENT_CUH

#include "kernels/cuda/block.cuh"

#include "kernels/core/glu.h"
#include "kernels/core/layout.h"

/* Of 16 bits, of two formats, and of 32. */
struct element_16 {
    typedef uint16_t type;
    static const uint32_t kPer = 8; /* of a vector */
    PSTI_DEVICE_METHOD static float get(uint32_t bits, bool is_half)
    {
        return is_half ? psti_half_to_float((uint16_t)bits) : psti_bf16_to_float((uint16_t)bits);
    }
    PSTI_DEVICE_METHOD static uint32_t put(float value, bool is_half)
    {
        return is_half ? psti_float_to_half(value) : psti_float_to_bf16(value);
    }
};

struct element_32 {
    typedef uint32_t type;
    static const uint32_t kPer = 4;
    PSTI_DEVICE_METHOD static float get(uint32_t bits, bool is_half)
    {
        (void)is_half;
        return psti_float_of(bits);
    }
    PSTI_DEVICE_METHOD static uint32_t put(float value, bool is_half)
    {
        (void)is_half;
        return psti_bits_of(value);
    }
};

/* Element i of a vector, and setting it in one where it is 0. */
template <class Element> PSTI_DEVICE uint32_t bits_at(const psti_vector &v, uint32_t i)
{
    const uint32_t per_word = Element::kPer / 4;
    const uint32_t word = i / per_word;
    const uint32_t of_word = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
    return per_word == 1 ? of_word : of_word >> (16 * (i % per_word)) & 0xffff;
}

template <class Element> PSTI_DEVICE void add_bits(psti_vector &v, uint32_t i, uint32_t bits)
{
    const uint32_t per_word = Element::kPer / 4;
    const uint32_t word = i / per_word;
    const uint32_t placed = per_word == 1 ? bits : bits << (16 * (i % per_word));
    v.x |= word == 0 ? placed : 0; /* no reference to one of them: v is in registers */
    v.y |= word == 1 ? placed : 0;
    v.z |= word == 2 ? placed : 0;
    v.w |= word == 3 ? placed : 0;
}

/* A vector as numbers, and back. */
template <class Element> struct numbers {
    float of[Element::kPer];
};

template <class Element> PSTI_DEVICE numbers<Element> numbers_of(const psti_vector &v, bool is_half)
{
    numbers<Element> result;
    if (is_half) { /* one branch for all */
#pragma unroll
        for (uint32_t i = 0; i < Element::kPer; i++)
            result.of[i] = Element::get(bits_at<Element>(v, i), true);
        return result;
    }
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++)
        result.of[i] = Element::get(bits_at<Element>(v, i), false);
    return result;
}

template <class Element> PSTI_DEVICE psti_vector vector_of(const numbers<Element> &of, bool is_half)
{
    psti_vector v = {0, 0, 0, 0};
    if (is_half) {
#pragma unroll
        for (uint32_t i = 0; i < Element::kPer; i++)
            add_bits<Element>(v, i, Element::put(of.of[i], true));
        return v;
    }
#pragma unroll
    for (uint32_t i = 0; i < Element::kPer; i++)
        add_bits<Element>(v, i, Element::put(of.of[i], false));
    return v;
}

/* As many elements as there are from `at` on, at most a vector of them. is_wide: all, aligned. */
template <class Element>
PSTI_DEVICE psti_vector load_elements(const unsigned char *at, uint32_t num, bool is_wide,
                                      uint64_t policy)
{
    if (is_wide)
        return psti_load_vector(at, policy);
    psti_vector v = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t i = 0; i < num; i++)
        add_bits<Element>(v, i, ((const typename Element::type *)at)[i]);
    return v;
}

template <class Element>
PSTI_DEVICE void store_elements(unsigned char *at, const psti_vector &v, uint32_t num, bool is_wide)
{
    if (is_wide) {
        psti_store_vector(at, v);
        return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < num; i++)
        ((typename Element::type *)at)[i] = (typename Element::type)bits_at<Element>(v, i);
}

#endif
