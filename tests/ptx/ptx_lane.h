/* One lane at one instruction: what ptx_warp.cc (who goes next, barriers, what a warp does
 * together) has of ptx_compute.cc (values) and ptx_access.cc (memory and asynchronous copies). */
#ifndef PSTI_TESTS_PTX_PTX_LANE_H
#define PSTI_TESTS_PTX_PTX_LANE_H

#include <cstring>

#include "tests/ptx/ptx_warp.h"

namespace ptx_lanes
{

typedef uint64_t u64;
typedef int64_t s64;

inline u64 cut(u64 v, uint32_t bits)
{
    return bits >= 64 ? v : v & (((u64)1 << bits) - 1);
}

inline s64 extend(u64 v, uint32_t bits)
{
    return bits >= 64 ? (s64)v : (s64)(v << (64 - bits)) >> (64 - bits);
}

inline std::string described(const ptx_block &block, const ptx_instruction &i)
{
    std::string text = i.text + " (line " + std::to_string(i.line) + " of " + block.kernel->name;
    if (block.checks)
        text += ", seed " + std::to_string(block.checks->seed);
    return text + ")";
}

/* One lane at one instruction. */
struct lane_at {
    ptx_block &block;
    ptx_warp &warp;
    const ptx_instruction &i;
    uint32_t lane;

    u64 in(size_t n, uint32_t bits) const
    {
        return ptx_value(warp, lane, i.from[n], bits);
    }
    u64 in(size_t n) const
    {
        return in(n, i.bits);
    }
    void out(size_t n, u64 value, uint32_t bits) const
    {
        warp.registers[i.to[n].reg * PTX_LANES + lane] = cut(value, bits);
    }
    void out(u64 value) const
    {
        out(0, value, i.bits);
    }
    u64 address() const
    {
        return ptx_value(warp, lane, i.base, 64) + (u64)i.offset;
    }
    [[noreturn]] void fail(const std::string &what) const
    {
        ptx_fail(what + ", block " + std::to_string(block.id) + " thread " +
                 std::to_string(warp.number * PTX_LANES + lane) + ": " + described(block, i));
    }
    void need_memory(u64 at, u64 bytes, bool writes) const
    {
        const bool in_args =
            at >= block.args && at + bytes <= block.args + block.checks->args_bytes;
        if (in_args && writes)
            fail("a write to arguments");
        if (!in_args && (i.space == ptx_space::param ||
                         (block.checks->memory && !block.checks->memory->holds(at, bytes))))
            fail("outside what the device has given out");
    }
    /* Where so many bytes of memory are. */
    unsigned char *memory(u64 at, u64 bytes, bool writes) const
    {
        if (at % bytes != 0)
            fail("misaligned");
        if (i.space != ptx_space::shared) {
            if (block.checks)
                need_memory(at, bytes, writes);
            return (unsigned char *)(uintptr_t)at;
        }
        const u64 offset = (uint32_t)at;
        if (offset + bytes > block.shared.size())
            fail("outside shared memory");
        if (block.checks && writes)
            write_shared(offset, bytes);
        return block.shared.data() + offset;
    }
    void write_shared(u64 at, u64 bytes) const
    {
        for (const ptx_bulk_store &s : block.stores)
            if (!s.is_read && at < s.from + s.bytes && s.from < at + bytes)
                fail("overwrites what a bulk copy has still to read");
        memset(block.written.data() + at, 1, bytes);
    }
    /* A plain access. */
    void touch_shared(u64 at, u64 bytes, bool writes) const;
    bool is_written(u64 at, u64 bytes, u64 used) const
    {
        for (u64 n = 0; n < bytes; n++)
            if (!block.written[at + n] && used >> n & 1)
                return false;
        return true;
    }
    void need_written(u64 at, u64 bytes) const
    {
        if (!is_written(at, bytes, ~(u64)0))
            fail("reads shared memory that nobody wrote");
    }
};

void load(const lane_at &l, u64 at);
void store(const lane_at &l, u64 at);
void read_modify_write(const lane_at &l, u64 at);
void start_bulk(const lane_at &l);
void wait_bulk(const lane_at &l);
void mbarrier(const lane_at &l, u64 at);
/* What one lane does for itself. */
void compute(const lane_at &l);
/* What most instructions are, for all lanes at a time; false: not one of those. */
bool compute_all(ptx_warp &warp, const ptx_instruction &i, uint32_t active);

} /* namespace ptx_lanes */

#endif
