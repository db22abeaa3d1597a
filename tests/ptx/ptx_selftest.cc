/* ptx_selftest: what each class of instructions computes, against values worked out by hand. Each
 * runs in one lane and in a whole warp, which the interpreter computes in different ways. */
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tests/ptx/ptx_run.h"
#include "tests/ptx/ptx_selftest.h"

namespace
{

/* %rd1..3, %r1..3 and %rs1..3 hold a, b and c, %p1..3 whether they are odd; the result is in %rd9,
 * or where the code writes them in %r9, %rs9 or %p9. */
struct calculation {
    const char *code;
    uint64_t a, b, c, wanted;
};

const uint64_t ones = UINT64_MAX;

const calculation calculations[] = {
    {"add.s64 %rd9, %rd1, %rd2;", ones, 2, 0, 1},
    {"add.s32 %r9, %r1, %r2;", 0xffffffff, 2, 0, 1},
    {"add.s16 %rs9, %rs1, %rs2;", 0xffff, 2, 0, 1},
    {"add.s64 %rd9, %rd1, -8;", 3, 0, 0, (uint64_t)-5},
    {"sub.s64 %rd9, %rd1, %rd2;", 1, 2, 0, ones},
    {"sub.s32 %r9, %r1, %r2;", 1, 2, 0, 0xffffffff},
    {"and.b64 %rd9, %rd1, %rd2;", 0xf0f0f0f0f0f0f0f0, 0xff00ff00ff00ff00, 0, 0xf000f000f000f000},
    {"or.b32 %r9, %r1, %r2;", 0xf0, 0xff00000f, 0, 0xff0000ff},
    {"xor.b64 %rd9, %rd1, %rd2;", ones, 1, 0, ones - 1},
    {"and.pred %p9, %p1, %p2;", 1, 0, 0, 0},
    {"or.pred %p9, %p1, %p2;", 1, 0, 0, 1},
    {"not.b32 %r9, %r1;", 0, 0, 0, 0xffffffff},
    {"not.b64 %rd9, %rd1;", 1, 0, 0, ones - 1},
    {"not.pred %p9, %p1;", 1, 0, 0, 0},
    {"neg.s32 %r9, %r1;", 1, 0, 0, 0xffffffff},
    {"neg.s64 %rd9, %rd1;", (uint64_t)1 << 63, 0, 0, (uint64_t)1 << 63},
    {"mul.lo.s32 %r9, %r1, %r2;", 0x10001, 0x10001, 0, 0x20001},
    {"mul.lo.s64 %rd9, %rd1, %rd2;", ones, 3, 0, (uint64_t)-3},
    {"mul.hi.u32 %r9, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
    {"mul.hi.u64 %rd9, %rd1, %rd2;", ones, ones, 0, ones - 1},
    {"mul.hi.s64 %rd9, %rd1, %rd2;", ones, 2, 0, ones},
    {"mul.wide.u32 %rd9, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0xfffffffe00000001},
    {"mul.wide.s32 %rd9, %r1, %r2;", 0xffffffff, 2, 0, (uint64_t)-2},
    {"mul.wide.u16 %r9, %rs1, %rs2;", 0xffff, 2, 0, 0x1fffe},
    {"mad.lo.s32 %r9, %r1, %r2, %r3;", 0x80000000, 2, 7, 7},
    {"div.u32 %r9, %r1, %r2;", 0xffffffff, 16, 0, 0x0fffffff},
    {"div.u64 %rd9, %rd1, %rd2;", ones, 16, 0, ones >> 4},
    {"div.u64 %rd9, %rd1, %rd2;", 5, 0, 0, ones},
    {"rem.u32 %r9, %r1, %r2;", 23, 7, 0, 2},
    {"rem.u64 %rd9, %rd1, %rd2;", 23, 0, 0, 23},
    {"min.u64 %rd9, %rd1, %rd2;", ones, 1, 0, 1},
    {"min.s64 %rd9, %rd1, %rd2;", ones, 1, 0, ones},
    {"max.u32 %r9, %r1, %r2;", 0xffffffff, 1, 0, 0xffffffff},
    {"max.s32 %r9, %r1, %r2;", 0xffffffff, 1, 0, 1},
    {"shl.b32 %r9, %r1, 31;", 3, 0, 0, 0x80000000},
    {"shl.b32 %r9, %r1, %r2;", 3, 32, 0, 0},
    {"shl.b64 %rd9, %rd1, %r2;", 3, 63, 0, (uint64_t)1 << 63},
    {"shl.b64 %rd9, %rd1, %r2;", 3, 64, 0, 0},
    {"shr.u32 %r9, %r1, %r2;", 0x80000000, 31, 0, 1},
    {"shr.u32 %r9, %r1, %r2;", 0x80000000, 32, 0, 0},
    {"shr.s32 %r9, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
    {"shr.u64 %rd9, %rd1, %r2;", ones, 60, 0, 15},
    {"shr.s64 %rd9, %rd1, %r2;", (uint64_t)1 << 63, 4, 0, 0xf800000000000000},
    {"shr.s16 %rs9, %rs1, 15;", 0x8000, 0, 0, 0xffff},
    {"mov.u64 %rd9, %rd1;", ones, 0, 0, ones},
    {"mov.u32 %r9, -1;", 0, 0, 0, 0xffffffff},
    {"mov.b64 %rd9, {%r1, %r2};", 1, 2, 0, 0x200000001},
    {"mov.b64 {%r8, %r9}, %rd1;", 0x200000001, 0, 0, 2},
    {"selp.b64 %rd9, %rd1, %rd2, %p3;", 7, 9, 1, 7},
    {"selp.b32 %r9, %r1, %r2, %p3;", 7, 9, 0, 9},
    {"setp.lt.u32 %p9, %r1, %r2;", 0xffffffff, 1, 0, 0},
    {"setp.lt.s32 %p9, %r1, %r2;", 0xffffffff, 1, 0, 1},
    {"setp.lt.s64 %p9, %rd1, %rd2;", 1, 1, 0, 0},
    {"setp.le.u64 %p9, %rd1, %rd2;", 1, 1, 0, 1},
    {"setp.le.s64 %p9, %rd1, %rd2;", 2, ones, 0, 0},
    {"setp.gt.u64 %p9, %rd1, %rd2;", ones, 1, 0, 1},
    {"setp.gt.s32 %p9, %r1, %r2;", 1, 1, 0, 0},
    {"setp.ge.s32 %p9, %r1, %r2;", 1, 1, 0, 1},
    {"setp.ge.u32 %p9, %r1, %r2;", 1, 2, 0, 0},
    {"setp.eq.s32 %p9, %r1, %r2;", 0x100000001, 1, 0, 1}, /* of the low half alone */
    {"setp.ne.s64 %p9, %rd1, %rd2;", 0x100000001, 1, 0, 1},
    {"setp.eq.s16 %p9, %rs1, 0;", 0x10000, 0, 0, 1},
    {"setp.gt.s32 %p9, %r1, -1;", 0, 0, 0, 1},
    {"setp.lt.u32 %p9, %r1, -2;", 0xfffffffd, 0, 0, 1},
    {"cvt.u64.u32 %rd9, %r1;", 0xffffffff, 0, 0, 0xffffffff},
    {"cvt.s64.s32 %rd9, %r1;", 0xffffffff, 0, 0, ones},
    {"cvt.u32.u64 %r9, %rd1;", 0x100000002, 0, 0, 2},
    {"cvt.u32.u16 %r9, %rs1;", 0x18001, 0, 0, 0x8001},
    {"cvt.s32.s8 %r9, %r1;", 0x80, 0, 0, 0xffffff80},
    {"bfi.b32 %r9, %r1, %r2, 8, 4;", 0xff, 0, 0, 0xf00},
    {"bfi.b64 %rd9, %rd1, %rd2, 32, 32;", 1, ones, 0, 0x1ffffffff},
    {"bfi.b32 %r9, %r1, %r2, 0, 32;", 5, 9, 0, 5},
    {"bfe.u32 %r9, %r1, 4, 8;", 0xabcd, 0, 0, 0xbc},
    {"bfe.u64 %rd9, %rd1, 60, 8;", ones, 0, 0, 15},
    {"prmt.b32 %r9, %r1, %r2, 29732;", 0x33221100, 0x77665544, 0, 0x77442244},
    {"prmt.b32 %r9, %r1, %r2, 8;", 0x80, 0, 0, 0x808080ff},
    {"shf.l.wrap.b32 %r9, %r1, %r2, %r3;", 0x80000001, 2, 1, 5},
    {"shf.l.wrap.b32 %r9, %r1, %r2, %r3;", 0x80000001, 2, 32, 2},
    {"shf.l.clamp.b32 %r9, %r1, %r2, %r3;", 0x80000001, 2, 40, 0x80000001},
    {"shf.r.wrap.b32 %r9, %r1, %r2, %r3;", 2, 1, 33, 0x80000001},
    {"shf.r.clamp.b32 %r9, %r1, %r2, %r3;", 2, 7, 32, 7},
    {"popc.b32 %r9, %r1;", 0xf000000f, 0, 0, 8},
    {"popc.b64 %r9, %rd1;", ones, 0, 0, 64},
    {"clz.b32 %r9, %r1;", 1, 0, 0, 31},
    {"clz.b64 %r9, %rd1;", 1, 0, 0, 63},
    {"clz.b32 %r9, %r1;", 0, 0, 0, 32},
    /* numbers: 1 is 0x3f800000, 2 0x40000000, 1/2 0x3f000000 */
    {"add.f32 %r9, %r1, %r2;", 0x3f800000, 0x40000000, 0, 0x40400000},
    {"add.f32 %r9, %r1, %r2;", 0x3f800000, 0x33800000, 0, 0x3f800000}, /* a tie, to the even */
    {"add.f32 %r9, %r1, %r2;", 0x7f800000, 0xff800000, 0, 0x7fffffff}, /* the one NaN */
    {"add.f32 %r9, %r1, %r2;", 0x3f800001, 0x33800000, 0, 0x3f800002}, /* likewise */
    {"add.f32 %r9, %r1, %r2;", 0x7f7fffff, 0x7f7fffff, 0, 0x7f800000},
    {"add.f32 %r9, %r1, %r2;", 0x80000000, 0x80000000, 0, 0x80000000},
    {"add.f32 %r9, %r1, 0fBF800000;", 0x3f800000, 0, 0, 0},
    {"add.f32 %r9, %r1, %r2;", 0xffc12345, 0x3f800000, 0, 0x7fffffff},
    {"sub.f32 %r9, %r1, %r2;", 0x3f800000, 0x40000000, 0, 0xbf800000},
    {"sub.f32 %r9, %r1, %r2;", 0x00800000, 0x00800001, 0, 0x80000001}, /* denormals are made */
    {"mul.f32 %r9, %r1, %r2;", 0x3f000000, 0x40400000, 0, 0x3fc00000},
    {"mul.f32 %r9, %r1, %r2;", 0x7f000000, 0x40000000, 0, 0x7f800000},
    {"mul.f32 %r9, %r1, 0f3F000000;", 0x00000002, 0, 0, 0x00000001}, /* denormals stay */
    {"fma.rn.f32 %r9, %r1, %r2, %r3;", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000}, /* 2^-46 */
    {"mul.f32 %r9, %r1, 0f3F000000;", 0x00000003, 0, 0, 0x00000002}, /* a tie, to the even */
    {"mul.f32 %r9, %r1, %r2;", 0xbf800000, 0, 0, 0x80000000},
    {"fma.rn.f32 %r9, %r1, %r2, %r3;", 0x7f7fffff, 0x40000000, 0xff7fffff, 0x7f7fffff},
    {"fma.rn.f32 %r9, %r1, %r2, %r3;", 0x7f800000, 0, 0x3f800000, 0x7fffffff},
    /* just above a tie; of a rounded product it would be one */
    {"fma.rn.f32 %r9, %r1, %r2, %r3;", 0x39800001, 0x397fffff, 0x3f800000, 0x3f800001},
    {"neg.f32 %r9, %r1;", 0, 0, 0, 0x80000000},
    {"neg.f32 %r9, %r1;", 0xff800000, 0, 0, 0x7f800000},
    {"abs.f32 %r9, %r1;", 0x80000001, 0, 0, 1},
    {"mov.f32 %r9, 0fCB40007F;", 0, 0, 0, 0xcb40007f},
    {"selp.f32 %r9, %r1, 0f3F800000, %p3;", 7, 0, 0, 0x3f800000},
    {".reg .f32 %f<3>; mov.b32 %f1, %r1; add.f32 %f2, %f1, %f1; mov.b32 %r9, %f2;", 0x3f800000, 0,
     0, 0x40000000},
    {"min.f32 %r9, %r1, %r2;", 0x40000000, 0xbf800000, 0, 0xbf800000},
    {"min.f32 %r9, %r1, %r2;", 0, 0x80000000, 0, 0x80000000},
    {"min.f32 %r9, %r1, %r2;", 0x80000000, 0, 0, 0x80000000},
    {"min.f32 %r9, %r1, %r2;", 0x7fc00000, 0x40000000, 0, 0x40000000},
    {"min.f32 %r9, %r1, %r2;", 0x40000000, 0x7fc00000, 0, 0x40000000},
    {"min.f32 %r9, %r1, %r2;", 0x7fc00000, 0xffc00000, 0, 0x7fffffff},
    {"setp.lt.f32 %p9, %r1, %r2;", 0xbf800000, 0x3f800000, 0, 1}, /* not as integers */
    {"setp.lt.f32 %p9, %r1, %r2;", 0xc0000000, 0xbf800000, 0, 1},
    {"setp.lt.f32 %p9, %r1, %r2;", 0x3f800000, 0x7fc00000, 0, 0},
    {"setp.ltu.f32 %p9, %r1, %r2;", 0x3f800000, 0x7fc00000, 0, 1},
    {"setp.ltu.f32 %p9, %r1, %r2;", 0x3f800000, 0x3f000000, 0, 0},
    {"setp.gt.f32 %p9, %r1, %r2;", 0, 0x80000000, 0, 0},
    {"setp.ge.f32 %p9, %r1, %r2;", 0x80000000, 0, 0, 1},
    {"setp.ge.f32 %p9, %r1, %r2;", 0x3f800000, 0x7fc00000, 0, 0},
    {"setp.le.f32 %p9, %r1, 0f00000000;", 0x80000000, 0, 0, 1},
    {"setp.leu.f32 %p9, %r1, %r2;", 0x7fc00000, 0x3f800000, 0, 1},
    {"setp.gtu.f32 %p9, %r1, %r2;", 0x3f800000, 0x3f800000, 0, 0},
    {"setp.eq.f32 %p9, %r1, %r2;", 0, 0x80000000, 0, 1},
    {"setp.eq.f32 %p9, %r1, %r2;", 0x7fc00000, 0x7fc00000, 0, 0},
    {"setp.ne.f32 %p9, %r1, %r2;", 0x3f800000, 0x7fc00000, 0, 0},
    {"setp.neu.f32 %p9, %r1, %r2;", 0x7fc00000, 0x7fc00000, 0, 1},
    /* control */
    {"mov.u64 %rd9, 1; @%p1 mov.u64 %rd9, 2; @!%p1 add.s64 %rd9, %rd9, 4;", 1, 0, 0, 2},
    {"mov.u64 %rd9, 1; @%p1 bra $over; mov.u64 %rd9, 2;\n$over:\nadd.s64 %rd9, %rd9, 4;", 1, 0, 0,
     5},
    {"mov.u64 %rd9, 0;\n$again:\nadd.s64 %rd9, %rd9, 3; add.s64 %rd1, %rd1, -1; "
     "setp.ne.s64 %p4, %rd1, 0; @%p4 bra $again;",
     5, 0, 0, 15},
    {"{ .param .b64 param0; st.param.b64 [param0], %rd8; .param .b64 param1; "
     "st.param.b64 [param1], %rd1; call.uni twice, (param0, param1); } ld.u64 %rd9, [%rd8];",
     21, 0, 0, 42},
    /* memory: 64 bytes at %rd8 with a, b and c behind what the lanes share; 64 at `s` */
    {"st.global.u64 [%rd8], %rd1; ld.global.u8 %rs9, [%rd8+1];", 0x8382, 0, 0, 0x83},
    {"st.global.u64 [%rd8], %rd1; ld.global.s8 %r9, [%rd8];", 0x82, 0, 0, 0xffffff82},
    {"st.global.u64 [%rd8], %rd1; ld.global.s32 %rd9, [%rd8+4];", 0x8000000000000000, 0, 0,
     0xffffffff80000000},
    {"st.global.u64 [%rd8], %rd1; st.global.u8 [%rd8+1], %rs2; ld.global.u64 %rd9, [%rd8];", ones,
     0x1200, 0, 0xffffffffffff00ff},
    {"st.global.v2.u32 [%rd8], {%r1, %r2}; ld.global.u64 %rd9, [%rd8];", 1, 2, 0, 0x200000001},
    {"st.shared.v4.u32 [s+16], {%r1, %r2, %r3, %r1}; ld.shared.v2.u64 {%rd8, %rd9}, [s+16];", 1, 2,
     3, 0x100000003},
    {"ld.param.u64 %rd9, [k_param_0+24];", 1, 2, 3, 3},
    {"ld.param.v2.f32 {%r8, %r9}, [k_param_0+8];", 0x4000000000000001, 0, 0, 0x40000000},
    {"st.global.u64 [%rd8], %rd1; st.global.u16 [%rd8+2], %r2; ld.global.u64 %rd9, [%rd8];", ones,
     0x12345678, 0, 0xffffffff5678ffff},
    {"st.global.u64 [%rd8], %rd1; ld.global.u16 %r9, [%rd8+2];", 0x83828180, 0, 0, 0x8382},
    {"st.global.f32 [%rd8], %r1; ld.global.f32 %r9, [%rd8];", 0x7fc12345, 0, 0, 0x7fc12345},
    {"st.global.u64 [%rd8], %rd1; ld.volatile.u64 %rd9, [%rd8];", 9, 0, 0, 9},
    {"st.global.u64 [%rd8], %rd1; atom.global.cas.b64 %rd9, [%rd8], %rd1, %rd2; "
     "ld.global.u64 %rd9, [%rd8];",
     4, 4, 0, 4},
    {"st.global.u32 [%rd8], %r1; red.global.add.u32 [%rd8], 0; ld.global.u32 %r9, [%rd8];", 9, 0, 0,
     9},
};

/* In a whole warp: %r1 is the lane, the result what lane 5 has. */
const calculation in_a_warp[] = {
    {"mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 1; shfl.sync.up.b32 %r9|%p4, %r2, 4, 0, -1;", 0, 0, 0,
     2},
    {"mov.u32 %r2, %tid.x; shfl.sync.up.b32 %r9|%p4, %r2, 6, 0, -1;", 0, 0, 0, 5}, /* itself */
    {"mov.u32 %r2, %tid.x; shfl.sync.up.b32 %r8|%p9, %r2, 6, 0, -1;", 0, 0, 0, 0},
    {"mov.u32 %r2, %tid.x; shfl.sync.bfly.b32 %r9|%p4, %r2, 16, 31, -1;", 0, 0, 0, 21},
    {"mov.u32 %r2, %tid.x; shfl.sync.idx.b32 %r9|%p4, %r2, 30, 31, -1;", 0, 0, 0, 30},
    {"mov.u32 %r2, %tid.x; setp.lt.u32 %p4, %r2, 3; vote.sync.ballot.b32 %r9, %p4, -1;", 0, 0, 0,
     7},
    {"mov.u32 %r2, %tid.x; setp.lt.u32 %p4, %r2, 3; vote.sync.any.pred %p9, %p4, -1;", 0, 0, 0, 1},
    {"mov.u32 %r2, %tid.x; setp.lt.u32 %p4, %r2, 3; vote.sync.all.pred %p9, %p4, -1;", 0, 0, 0, 0},
    {"mov.u32 %r2, %tid.x; setp.lt.u32 %p4, %r2, 32; vote.sync.all.pred %p9, %p4, -1;", 0, 0, 0, 1},
    {"mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 27; add.s32 %r2, %r2, 1; redux.sync.add.s32 %r9, %r2, "
     "-1;",
     0, 0, 0, 0x80000020},
    {"mov.u32 %r2, %ntid.x; mov.u32 %r3, %nctaid.x; mad.lo.s32 %r9, %r2, 100, %r3;", 0, 0, 0, 3201},
    /* all add to one word that the first has set */
    {"mov.u32 %r2, %tid.x; setp.eq.s32 %p4, %r2, 0; @%p4 st.shared.u32 [s], -1; bar.sync 0; "
     "atom.shared.add.u32 %r8, [s], 1; bar.sync 0; ld.shared.u32 %r9, [s];",
     0, 0, 0, 31},
    {"mov.u32 %r2, %tid.x; setp.eq.s32 %p4, %r2, 0; @%p4 st.shared.u64 [s], 0; bar.warp.sync -1; "
     "shl.b64 %rd7, 1, %r2; atom.shared.or.b64 %rd6, [s], %rd7; bar.sync 1, 32; "
     "ld.shared.u64 %rd9, [s];",
     0, 0, 0, 0xffffffff},
    {"mov.u32 %r2, %tid.x; setp.eq.s32 %p4, %r2, 0; @%p4 st.shared.u32 [s], 7; bar.sync 0; "
     "@%p4 atom.shared.exch.b32 %r8, [s], 9; @%p4 st.shared.u32 [s+4], %r8; bar.sync 0; "
     "ld.shared.v2.u32 {%r3, %r4}, [s]; mad.lo.s32 %r9, %r3, 10, %r4;",
     0, 0, 0, 97},
    /* of 32 that compare and swap one does */
    {"mov.u32 %r2, %tid.x; setp.eq.s32 %p4, %r2, 0; @%p4 st.shared.v2.u32 [s], {%r1, %r1}; "
     "bar.sync 0; "
     "add.s32 %r5, %r2, 1; atom.shared.cas.b32 %r3, [s], 0, %r5; setp.eq.s32 %p5, %r3, 0; "
     "@%p5 red.shared.add.u32 [s+4], 1; bar.sync 0; ld.shared.u32 %r9, [s+4];",
     0, 0, 0, 1},
    /* a bulk copy in, and out again */
    {"mov.u32 %r2, %tid.x; setp.ne.s32 %p4, %r2, 5; @%p4 bra $end; st.global.u64 [%rd8], 11; "
     "st.global.u64 [%rd8+8], 12; mbarrier.init.shared.b64 [s], 1; mov.u32 %r3, s; add.s32 %r4, "
     "%r3, 16; "
     "mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16; cp.async.bulk.shared.global [%r4], "
     "[%rd8], 16, "
     "[%r3];\n$wait:\nmbarrier.try_wait.parity.shared.b64 %p5, [%r3], 0; @!%p5 bra $wait; "
     "add.s64 %rd7, %rd8, 16; cp.async.bulk.global.shared.bulk_group [%rd7], [%r4], 16; "
     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u64 %rd9, "
     "[%rd8+24];\n$end:",
     0, 0, 0, 12},
};

int run_one(const calculation &c, uint32_t threads, uint64_t seed)
{
    alignas(16) uint64_t scratch[8] = {0};
    uint64_t result = 0xbadbadbadbad;
    const uint64_t args[] = {(uint64_t)(uintptr_t)&result, c.a, c.b, c.c,
                             (uint64_t)(uintptr_t)scratch};
    const std::string code = c.code;
    const bool narrow = code.find("%r9") != std::string::npos;
    const char *widen = narrow                                   ? "cvt.u64.u32 %rd9, %r9;"
                        : code.find("%rs9") != std::string::npos ? "cvt.u64.u16 %rd9, %rs9;"
                        : code.find("%p9") != std::string::npos  ? "selp.u64 %rd9, 1, 0, %p9;"
                                                                 : "";
    const std::string stores = threads == 1 ? "st.global.u64 [%rd10], %rd9; ret;"
                                            : "mov.u32 %r7, %tid.x; setp.eq.s32 %p7, %r7, 5; "
                                              "@%p7 st.global.u64 [%rd10], %rd9; ret;";
    const ptx_program program = ptx_parse(selftest_program(code + "\n" + widen + stores));
    ptx_launch launch;
    launch.kernel = &program.kernels[0];
    launch.threads = threads;
    launch.args = args;
    launch.args_bytes = sizeof(args);
    launch.seed = seed;
    ptx_run(launch);
    if (result == c.wanted)
        return 0;
    fprintf(stderr, "%s: %#" PRIx64 " instead of %#" PRIx64 ", %u threads\n", c.code, result,
            c.wanted, threads);
    return 1;
}

} /* namespace */

std::string selftest_program(const std::string &code)
{
    return ".version 8.0\n.target sm_90\n.address_size 64\n"
           ".func twice(.param .b64 twice_param_0, .param .b64 twice_param_1)\n{\n"
           ".reg .b64 %rd<4>;\nld.param.u64 %rd1, [twice_param_0];\n"
           "ld.param.u64 %rd2, [twice_param_1];\nadd.s64 %rd3, %rd2, %rd2;\nst.u64 [%rd1], %rd3;\n"
           "ret;\n}\n"
           ".visible .entry k(.param .align 8 .b8 k_param_0[40])\n{\n.reg .pred %p<10>;\n"
           ".reg .b16 %rs<10>;\n.reg .b32 %r<10>;\n.reg .b64 %rd<11>;\n"
           ".shared .align 16 .b8 s[128];\n"
           "ld.param.u64 %rd10, [k_param_0];\nld.param.u64 %rd1, [k_param_0+8];\n"
           "ld.param.u64 %rd2, [k_param_0+16];\nld.param.u64 %rd3, [k_param_0+24];\n"
           "ld.param.u64 %rd8, [k_param_0+32];\n"
           "cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\ncvt.u32.u64 %r3, %rd3;\n"
           "cvt.u16.u64 %rs1, %rd1;\ncvt.u16.u64 %rs2, %rd2;\ncvt.u16.u64 %rs3, %rd3;\n"
           "and.b64 %rd4, %rd1, 1;\nsetp.ne.s64 %p1, %rd4, 0;\nand.b64 %rd4, %rd2, 1;\n"
           "setp.ne.s64 %p2, %rd4, 0;\nand.b64 %rd4, %rd3, 1;\nsetp.ne.s64 %p3, %rd4, 0;\n" +
           code + "\n}\n";
}

int main()
{
    int wrong = 0;
    for (const calculation &c : calculations)
        wrong +=
            run_one(c, 1, 1) + (c.code[0] == '{' || strstr(c.code, "global") || strstr(c.code, "[s")
                                    ? 0
                                    : run_one(c, 32, 2));
    for (const calculation &c : in_a_warp)
        for (uint64_t seed = 1; seed <= 4; seed++)
            wrong += run_one(c, 32, seed);
    wrong += selftest_errors();
    if (wrong)
        fprintf(stderr, "%d wrong\n", wrong);
    return wrong != 0;
}
