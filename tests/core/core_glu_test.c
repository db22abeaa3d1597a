/* kernels/core/glu.h: errors stay within the bounds of docs/fused.md, and 0, infinities and NaN give
 * what torch gives. */
#include "tests/harness.h"

#include "tests/core/glu_exact.h"

static const char *const kinds[] = {"swiglu", "geglu", "geglu_tanh", "reglu", "quick", "clamped"};
enum { NUM_KINDS = 6 };

static void check_within(const char *what, uint32_t kind, uint32_t dtype, const float in[2],
                         float result, exact_sum exact, double c)
{
    const double rounded = round_as(dtype, result);
    const double share = share_of_bound(dtype, rounded, exact, c);
    CHECK_MSG(share <= 1, "%s of %s(%.9g, %.9g), dtype %u: %.9g, not %.9g; %.3g times the bound",
              what, kinds[kind], (double)in[0], (double)in[1], dtype, rounded, exact.is, share);
}

/* One gate with several ups. */
static void check_gate(uint32_t kind, uint32_t dtype, float gate, const float *ups,
                       uint32_t num_ups)
{
    const psti_activation how = activation_of(kind);
    const glu_bound bound = bound_of(kind);
    const exact_gate at = exact_gate_of(&how, (double)gate);
    for (uint32_t i = 0; i < num_ups && !psti_test_failed(); i++) {
        const float in[] = {gate, (float)round_as(dtype, ups[i])};
        if (isinf(in[1]))
            continue;
        const exact_glu exact = exact_glu_of(&how, at, (double)in[1]);
        const psti_glu_slopes found = psti_glu_slopes_of(&how, gate, in[1]);
        CHECK(psti_bits_of(found.value) == psti_bits_of(psti_glu_value(&how, gate, in[1])));
        check_within("value", kind, dtype, in, found.value, exact.value, bound.value);
        check_within("by_gate", kind, dtype, in, found.by_gate, exact.by_gate, bound.by_gate);
        check_within("by_up", kind, dtype, in, found.by_up, exact.by_up, bound.by_up);
    }
}

static const float all_ups[] = {1, 0, -1, 0.37f, -6.9f, 7, 1000, 6e4f, -1e30f, 0x1p-20f, 1e-35f};

static void check_every_gate(uint32_t dtype)
{
    const uint32_t num_ups = psti_test_cases(sizeof all_ups / sizeof *all_ups);
    for (uint32_t kind = 0; kind < NUM_KINDS; kind++)
        for (uint32_t bits = 0; bits < 0x10000 && !psti_test_failed(); bits++) {
            const float gate = read_as(dtype, bits);
            if (isfinite(gate)) /* with all ups where the functions bend */
                check_gate(kind, dtype, gate, all_ups,
                           bits % 64 == 0 ? sizeof all_ups / sizeof *all_ups : num_ups);
        }
}

PST_TEST(CoreGlu, EveryBf16Gate)
{
    check_every_gate(PST_GLU_BF16);
}

PST_TEST(CoreGlu, EveryFp16Gate)
{
    check_every_gate(PST_GLU_FP16);
}

/* Every 4099th float32, in the short tests every 20495th, and all ups with some. */
PST_TEST(CoreGlu, ManyFp32Gates)
{
    const uint32_t num = psti_test_cases(1047808), step = 0xffffffffu / num | 1;
    for (uint32_t kind = 0; kind < NUM_KINDS; kind++)
        for (uint32_t i = 0; i < num && !psti_test_failed(); i++) {
            const float gate = psti_float_of(i * step);
            if (isfinite(gate))
                check_gate(kind, PST_GLU_FP32, gate, all_ups, i % 16 ? 1 : 11);
        }
}

/* Where the tails and the clamps begin and end, each number beside them. */
PST_TEST(CoreGlu, AroundTheEnds)
{
    static const float ends[] = {7,     -7,  13.2f,  -13.2f, 14.2f,   -14.4f, 16,   -16,
                                 18.7f, -60, -87.3f, -88.7f, -103.9f, -104,   -176, 176};
    for (uint32_t kind = 0; kind < NUM_KINDS; kind++)
        for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
            for (int32_t by = -300; by <= 300 && !psti_test_failed(); by++) {
                const float gate = psti_float_of(psti_bits_of(ends[i]) + (uint32_t)by);
                check_gate(kind, PST_GLU_FP32, gate, all_ups, 2);
            }
}

/* With up = 1, of clamped 0: value and derivative by the gate as torch 2.15 gives them. Its tails in
 * float32 end at -88.7, these do not, and where its tanh overflows, this one is right. */
PST_TEST(CoreGlu, SpecialsAreThoseOfTorch)
{
    enum { NUM = 5 };
    static const float gates[NUM] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
    static const float values[NUM_KINDS][NUM] = {
        {0, -0.0f, INFINITY, NAN, NAN}, {0, 0, INFINITY, NAN, NAN},
        {0, -0.0f, INFINITY, NAN, NAN}, {0, 0, INFINITY, 0, NAN},
        {0, -0.0f, INFINITY, NAN, NAN}, {0, -0.0f, 6.99995f, NAN, NAN}};
    static const float slopes[NUM_KINDS][NUM] = {
        {.5f, .5f, NAN, NAN, NAN}, {.5f, .5f, NAN, NAN, NAN}, {.5f, .5f, NAN, NAN, NAN},
        {0, 0, 1, 0, 1},           {.5f, .5f, NAN, NAN, NAN}, {.5f, .5f, 0, NAN, 0}};
    for (uint32_t kind = 0; kind < NUM_KINDS; kind++)
        for (uint32_t i = 0; i < NUM; i++) {
            const psti_activation how = activation_of(kind);
            const float up = kind == PST_GLU_CLAMPED ? 0 : 1;
            const psti_glu_slopes at = psti_glu_slopes_of(&how, gates[i], up);
            const float pairs[][2] = {{at.value, values[kind][i]},
                                      {at.by_up, values[kind][i]},
                                      {at.by_gate, slopes[kind][i]}};
            for (uint32_t j = 0; j < 3; j++) {
                const float found = pairs[j][0], expected = pairs[j][1];
                CHECK_MSG(isnan(expected) ? isnan(found)
                                          : found == expected || fabsf(found - expected) < 5e-5f,
                          "%s(%g), %u: %g, not %g", kinds[kind], (double)gates[i], j, (double)found,
                          (double)expected);
            }
        }
}

PST_TEST(CoreGlu, GradientsOfClampsAndRectifier)
{
    const psti_activation clamped = activation_of(PST_GLU_CLAMPED);
    const psti_activation relu = activation_of(PST_GLU_REGLU);
    const float above = nextafterf(7, 8);
    CHECK(psti_glu_slopes_of(&clamped, 7, 3).by_gate > 3);
    CHECK(psti_glu_slopes_of(&clamped, above, 3).by_gate == 0);
    CHECK(psti_glu_slopes_of(&clamped, above, NAN).by_gate == 0);
    CHECK(isnan(psti_glu_slopes_of(&clamped, 7, NAN).by_gate));
    CHECK(psti_glu_slopes_of(&clamped, 2, 7).by_up > 1);
    CHECK(psti_glu_slopes_of(&clamped, 2, -7).by_up > 1);
    CHECK(psti_glu_slopes_of(&clamped, 2, above).by_up == 0);
    CHECK(psti_glu_slopes_of(&clamped, 2, -above).by_up == 0);
    CHECK(psti_glu_slopes_of(&clamped, NAN, -above).by_up == 0);
    CHECK(psti_glu_slopes_of(&clamped, 2, NAN).by_up == 0);
    CHECK(isnan(psti_glu_value(&clamped, 2, NAN)));
    CHECK(psti_glu_slopes_of(&relu, -1, INFINITY).by_gate == 0);
    CHECK(psti_glu_slopes_of(&relu, 0, NAN).by_gate == 0);
    CHECK(psti_glu_slopes_of(&relu, 0x1p-149f, 5).by_gate == 5);
    CHECK(psti_glu_slopes_of(&relu, NAN, 5).by_gate == 5);
    CHECK(isnan(psti_glu_value(&relu, -1, INFINITY)));
}
