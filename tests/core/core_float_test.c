/* kernels/core/float.h: every 16-bit number there and back, and rounding at and beside every midpoint. */
#include "tests/harness.h"

#include "kernels/core/float.h"

#include <math.h>

enum { BF16_INFINITY = 0x7f80, HALF_INFINITY = 0x7c00, CANONICAL_NAN = 0x7fff };

PST_TEST(CoreFloat, EveryBf16ComesBack)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float value = psti_bf16_to_float((uint16_t)bits);
        CHECK(psti_bits_of(value) == bits << 16);
        const bool is_nan = (bits & 0x7fff) > BF16_INFINITY;
        CHECK_EQ(psti_float_to_bf16(value), is_nan ? CANONICAL_NAN : bits);
    }
}

/* The value from its sign, exponent and digits, as IEEE 754 has it. */
static double half_by_definition(uint32_t bits)
{
    const int exponent = bits >> 10 & 0x1f, digits = bits & 0x3ff;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 0x1f)
        return digits ? NAN : sign * INFINITY;
    return sign * ldexp(exponent ? 1024 + digits : digits, (exponent ? exponent : 1) - 25);
}

PST_TEST(CoreFloat, EveryHalfComesBack)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float value = psti_half_to_float((uint16_t)bits);
        const double expected = half_by_definition(bits);
        if (isnan(expected)) {
            CHECK(isnan(value));
            CHECK_EQ(psti_float_to_half(value), CANONICAL_NAN);
            continue;
        }
        CHECK_MSG((double)value == expected && !signbit(value) == !signbit(expected),
                  "half %x is %g", bits, (double)value);
        CHECK_EQ(psti_float_to_half(value), bits);
    }
}

static uint16_t to_16(bool is_half, float value)
{
    return is_half ? psti_float_to_half(value) : psti_float_to_bf16(value);
}

static double of_16(bool is_half, uint32_t bits)
{
    return is_half ? half_by_definition(bits) : (double)psti_bf16_to_float((uint16_t)bits);
}

/* Around the midpoint of a number and the next one; behind the largest is what would follow it. */
static void check_midpoint(bool is_half, uint32_t low, double above)
{
    const float middle = (float)((of_16(is_half, low) + above) / 2);
    CHECK((double)middle * 2 == of_16(is_half, low) + above);
    const uint32_t even = low + (low & 1);
    CHECK_EQ(to_16(is_half, middle), even);
    CHECK_EQ(to_16(is_half, nextafterf(middle, 0)), low);
    CHECK_EQ(to_16(is_half, nextafterf(middle, INFINITY)), low + 1);
    CHECK_EQ(to_16(is_half, -middle), even | 0x8000);
    CHECK_EQ(to_16(is_half, -nextafterf(middle, 0)), low | 0x8000);
    CHECK_EQ(to_16(is_half, -nextafterf(middle, INFINITY)), (low + 1) | 0x8000);
}

PST_TEST(CoreFloat, HalfRoundsToTheNearestAndToEven)
{
    for (uint32_t low = 0; low < HALF_INFINITY && !psti_test_failed(); low++)
        check_midpoint(true, low, low + 1 == HALF_INFINITY ? 65536 : half_by_definition(low + 1));
    CHECK_EQ(psti_float_to_half(65537), HALF_INFINITY);
    CHECK_EQ(psti_float_to_half(70000), HALF_INFINITY);
    CHECK_EQ(psti_float_to_half(1e30f), HALF_INFINITY);
    CHECK_EQ(psti_float_to_half(INFINITY), HALF_INFINITY);
    CHECK_EQ(psti_float_to_half(-INFINITY), HALF_INFINITY | 0x8000);
    CHECK_EQ(psti_float_to_half(0x1p-149f), 0);
    CHECK_EQ(psti_float_to_half(-0.0f), 0x8000);
}

/* From the largest the midpoint to 2^128 is above it in float32, too. */
PST_TEST(CoreFloat, Bf16RoundsToTheNearestAndToEven)
{
    for (uint32_t low = 0; low < BF16_INFINITY && !psti_test_failed(); low++)
        check_midpoint(false, low, low + 1 == BF16_INFINITY ? 0x1p128 : of_16(false, low + 1));
    CHECK_EQ(psti_float_to_bf16(INFINITY), BF16_INFINITY);
    CHECK_EQ(psti_float_to_bf16(-INFINITY), BF16_INFINITY | 0x8000);
}

PST_TEST(CoreFloat, NoNanBecomesInfinity)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000};
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_EQ(psti_float_to_bf16(psti_float_of(nans[i])), CANONICAL_NAN);
        CHECK_EQ(psti_float_to_half(psti_float_of(nans[i])), CANONICAL_NAN);
    }
}
