/* What instructions compute from registers. */
#include <cmath>

#include "tests/ptx/ptx_lane.h"

namespace ptx_lanes
{

namespace
{

__extension__ typedef __int128 s128;
__extension__ typedef unsigned __int128 u128;

float number(u64 bits)
{
    const uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

u64 bits_of(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof(word));
    return std::isnan(value) ? 0x7fffffffu : word; /* the one NaN that PTX gives */
}

/* The smaller one; of a number and no number the number, and -0 is below 0. */
float smaller(float a, float b)
{
    if (std::isnan(a) || std::isnan(b))
        return std::isnan(a) ? b : a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}

u64 of_floats(const lane_at &l)
{
    const float a = number(l.in(0)), b = number(l.i.from.size() > 1 ? l.in(1) : 0);
    switch (l.i.op) {
    case ptx_op::add_f32:
        return bits_of(a + b);
    case ptx_op::sub_f32:
        return bits_of(a - b);
    case ptx_op::mul_f32:
        return bits_of(a * b);
    case ptx_op::fma_f32:
        return bits_of(std::fma(a, b, number(l.in(2))));
    case ptx_op::neg_f32:
        return bits_of(-a);
    case ptx_op::abs_f32:
        return bits_of(std::fabs(a));
    default: /* min_f32 */
        return bits_of(smaller(a, b));
    }
}

bool compares_floats(const ptx_instruction &i, float a, float b)
{
    if (std::isnan(a) || std::isnan(b))
        return i.or_unordered;
    switch (i.compare) {
    case ptx_compare::eq:
        return a == b;
    case ptx_compare::ne:
        return a != b;
    case ptx_compare::lt:
        return a < b;
    case ptx_compare::le:
        return a <= b;
    case ptx_compare::gt:
        return a > b;
    default:
        return a >= b;
    }
}

bool compares(const lane_at &l)
{
    const ptx_instruction &i = l.i;
    if (i.is_float)
        return compares_floats(i, number(l.in(0)), number(l.in(1)));
    const u64 a = l.in(0), b = l.in(1);
    const s64 x = extend(a, i.bits), y = extend(b, i.bits);
    const bool less = i.is_signed ? x < y : a < b;
    switch (i.compare) {
    case ptx_compare::eq:
        return a == b;
    case ptx_compare::ne:
        return a != b;
    case ptx_compare::lt:
        return less;
    case ptx_compare::le:
        return less || a == b;
    case ptx_compare::gt:
        return !less && a != b;
    case ptx_compare::ge:
        return !less;
    }
    return false;
}

u64 multiplied_high(const lane_at &l)
{
    const uint32_t bits = l.i.bits;
    if (l.i.is_signed)
        return (u64)(((s128)extend(l.in(0), bits) * extend(l.in(1), bits)) >> bits);
    return (u64)(((u128)l.in(0) * l.in(1)) >> bits);
}

u64 divided(const lane_at &l, bool remainder)
{
    const u64 a = l.in(0), b = l.in(1);
    if (l.i.is_signed)
        l.fail("a signed division");
    if (b == 0)
        return remainder ? a : ~(u64)0;
    return remainder ? a % b : a / b;
}

u64 shifted(const lane_at &l, bool left)
{
    const u64 a = l.in(0), by = l.in(1, 32);
    const uint32_t bits = l.i.bits;
    if (left)
        return by >= bits ? 0 : a << by;
    if (l.i.is_signed)
        return (u64)(extend(a, bits) >> (by >= bits ? bits - 1 : by));
    return by >= bits ? 0 : a >> by;
}

u64 inserted(const lane_at &l)
{
    const u64 position = l.in(2, 8), length = l.in(3, 8);
    const u64 ones = length >= 64 ? ~(u64)0 : ((u64)1 << length) - 1;
    const u64 mask = position >= 64 ? 0 : ones << position;
    return (l.in(1) & ~mask) | (position >= 64 ? 0 : (l.in(0) << position) & mask);
}

u64 permuted(const lane_at &l)
{
    const u64 bytes = l.in(0) | l.in(1) << 32, select = l.in(2);
    u64 result = 0;
    for (uint32_t n = 0; n < 4; n++) {
        const u64 which = select >> (4 * n) & 15;
        u64 byte = bytes >> (8 * (which & 7)) & 255;
        if (which & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * n);
    }
    return result;
}

u64 funnelled(const lane_at &l)
{
    const u64 both = l.in(1) << 32 | l.in(0), count = l.in(2);
    const u64 by = l.i.wraps ? count & 31 : count < 32 ? count : 32;
    return l.i.op == ptx_op::shf_l ? (by == 32 ? both : both << by >> 32 & UINT32_MAX) : both >> by;
}

u64 extracted(const lane_at &l)
{
    const u64 position = l.in(1, 8), length = l.in(2, 8);
    if (l.i.is_signed)
        l.fail("a signed bit field");
    const u64 moved = position >= l.i.bits ? 0 : l.in(0) >> position;
    return length >= 64 ? moved : moved & (((u64)1 << length) - 1);
}

/* An operand of all lanes. */
struct source {
    const u64 *at;
    size_t step;
    u64 operator()(uint32_t lane) const
    {
        return at[lane * step];
    }
};

source source_of(const ptx_warp &warp, const ptx_operand &o)
{
    if (o.is_register)
        return {&warp.registers[o.reg * PTX_LANES], 1};
    return {&o.value, 0};
}

template <class F> void each_lane(u64 *to, uint32_t active, u64 mask, F f)
{
    if (active == UINT32_MAX) {
        for (uint32_t lane = 0; lane < PTX_LANES; lane++)
            to[lane] = f(lane) & mask;
        return;
    }
    for (; active; active &= active - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(active);
        to[lane] = f(lane) & mask;
    }
}

} /* namespace */

void compute(const lane_at &l)
{
    const ptx_instruction &i = l.i;
    switch (i.op) {
    case ptx_op::add:
        return l.out(l.in(0) + l.in(1));
    case ptx_op::sub:
        return l.out(l.in(0) - l.in(1));
    case ptx_op::and_:
        return l.out(l.in(0) & l.in(1));
    case ptx_op::or_:
        return l.out(l.in(0) | l.in(1));
    case ptx_op::xor_:
        return l.out(l.in(0) ^ l.in(1));
    case ptx_op::not_:
        return l.out(~l.in(0));
    case ptx_op::neg:
        return l.out(0 - l.in(0));
    case ptx_op::mul_lo:
        return l.out(l.in(0) * l.in(1));
    case ptx_op::mul_hi:
        return l.out(multiplied_high(l));
    case ptx_op::mul_wide:
        return l.out(0,
                     i.is_signed ? (u64)(extend(l.in(0), i.bits) * extend(l.in(1), i.bits))
                                 : l.in(0) * l.in(1),
                     2 * i.bits);
    case ptx_op::mad_lo:
        return l.out(l.in(0) * l.in(1) + l.in(2));
    case ptx_op::div:
        return l.out(divided(l, false));
    case ptx_op::rem:
        return l.out(divided(l, true));
    case ptx_op::min:
    case ptx_op::max: {
        const bool less =
            i.is_signed ? extend(l.in(0), i.bits) < extend(l.in(1), i.bits) : l.in(0) < l.in(1);
        return l.out(less == (i.op == ptx_op::min) ? l.in(0) : l.in(1));
    }
    case ptx_op::shl:
        return l.out(shifted(l, true));
    case ptx_op::shr:
        return l.out(shifted(l, false));
    case ptx_op::mov:
        return l.out(l.in(0));
    case ptx_op::pack: {
        const uint32_t part = i.bits / (uint32_t)i.from.size();
        u64 value = 0;
        for (size_t n = 0; n < i.from.size(); n++)
            value |= l.in(n, part) << (part * n);
        return l.out(value);
    }
    case ptx_op::unpack: {
        const uint32_t part = i.bits / (uint32_t)i.to.size();
        const u64 value = l.in(0);
        for (size_t n = 0; n < i.to.size(); n++)
            l.out(n, value >> (part * n), part);
        return;
    }
    case ptx_op::selp:
        return l.out(l.in(2, 1) ? l.in(0) : l.in(1));
    case ptx_op::setp:
        return l.out(0, compares(l), 1);
    case ptx_op::cvt: {
        const u64 value = l.in(0, i.from_bits);
        return l.out(i.from_signed ? (u64)extend(value, i.from_bits) : value);
    }
    case ptx_op::bfi:
        return l.out(inserted(l));
    case ptx_op::prmt:
        return l.out(permuted(l));
    case ptx_op::shf_l:
    case ptx_op::shf_r:
        return l.out(funnelled(l));
    case ptx_op::bfe:
        return l.out(extracted(l));
    case ptx_op::popc:
        return l.out(0, (u64)__builtin_popcountll(l.in(0)), 32);
    case ptx_op::clz: {
        const u64 v = l.in(0);
        return l.out(0, v ? (u64)__builtin_clzll(v) - (64 - i.bits) : i.bits, 32);
    }
    case ptx_op::add_f32:
    case ptx_op::sub_f32:
    case ptx_op::mul_f32:
    case ptx_op::fma_f32:
    case ptx_op::neg_f32:
    case ptx_op::abs_f32:
    case ptx_op::min_f32:
        return l.out(of_floats(l));
    case ptx_op::bulk_load:
    case ptx_op::bulk_store:
        return start_bulk(l);
    case ptx_op::bulk_commit:
        l.block.groups[l.warp.number * PTX_LANES + l.lane]++;
        return;
    case ptx_op::bulk_wait:
        return wait_bulk(l);
    case ptx_op::sleep:
        l.warp.gave_way = true;
        return;
    case ptx_op::fence:
    case ptx_op::nothing:
        return;
    default:
        l.fail("not executed");
    }
}

bool compute_all(ptx_warp &warp, const ptx_instruction &i, uint32_t active)
{
    const u64 mask = cut(~(u64)0, i.bits);
    if (i.to.size() != 1 || i.from.empty() || i.from.size() > 2 || i.has_address)
        return false;
    u64 *to = &warp.registers[i.to[0].reg * PTX_LANES];
    const source a = source_of(warp, i.from[0]), b = source_of(warp, i.from.back());
    const auto all = [&](auto f) {
        each_lane(to, active, mask, f);
        return true;
    };
    switch (i.op) {
    case ptx_op::add:
        return all([&](uint32_t n) { return a(n) + b(n); });
    case ptx_op::sub:
        return all([&](uint32_t n) { return a(n) - b(n); });
    case ptx_op::and_:
        return all([&](uint32_t n) { return a(n) & b(n); });
    case ptx_op::or_:
        return all([&](uint32_t n) { return a(n) | b(n); });
    case ptx_op::xor_:
        return all([&](uint32_t n) { return a(n) ^ b(n); });
    case ptx_op::mov:
        return all([&](uint32_t n) { return a(n); });
    case ptx_op::mul_lo:
        return all([&](uint32_t n) { return a(n) * b(n); });
    case ptx_op::setp:
        if (i.is_float ||
            (i.is_signed && i.compare != ptx_compare::eq && i.compare != ptx_compare::ne))
            return false;
        break;
    default:
        return false;
    }
    const auto both = [&](auto compare) {
        each_lane(to, active, 1,
                  [&](uint32_t n) { return (u64)compare(a(n) & mask, b(n) & mask); });
        return true;
    };
    switch (i.compare) {
    case ptx_compare::eq:
        return both([](u64 x, u64 y) { return x == y; });
    case ptx_compare::ne:
        return both([](u64 x, u64 y) { return x != y; });
    case ptx_compare::lt:
        return both([](u64 x, u64 y) { return x < y; });
    case ptx_compare::le:
        return both([](u64 x, u64 y) { return x <= y; });
    case ptx_compare::gt:
        return both([](u64 x, u64 y) { return x > y; });
    case ptx_compare::ge:
        return both([](u64 x, u64 y) { return x >= y; });
    }
    return false;
}

} /* namespace ptx_lanes */
