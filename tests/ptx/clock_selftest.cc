/* clock_selftest TABLE: programs so small that their cycles can be counted by hand, with the
 * figures of compute_90 where nothing else is said. Numbers in comments are the cycle at which an instruction is issued. */
#include <cmath>
#include <cstdio>

#include "tests/ptx/clock_compile.h"
#include "tests/ptx/clock_run.h"

namespace
{

struct program {
    const char *name;
    const char *code;
    uint32_t threads;
    bool is_bulk;     /* the memory behind the argument is in DRAM */
    bool is_compiled; /* by clock_compile */
    double cycles;
    uint32_t trips, membars;
    unsigned architecture = 90;
};

#define ARGUMENT "ld.param.u64 %rd1, [k_param_0];\n"

#define THREE_OF_FLOAT32                                            \
    "fma.rn.f32 %f1, %f0, %f0, %f0; fma.rn.f32 %f2, %f0, %f0, %f0;" \
    "fma.rn.f32 %f3, %f0, %f0, %f0; ret;"

const program programs[] = {
    {"nothing", "ret;", 32, false, false, 1, 0, 0},
    /* 0, there at 5; 5; 10; store 15, ret 16 */
    {"a chain",
     "mov.u32 %r1, 1; add.u32 %r2, %r1, 1; add.u32 %r3, %r2, 1; st.shared.u32 [s], %r3; ret;", 32,
     false, false, 17, 0, 0},
    /* a name; 0 in two slots; 5; 10; 11 */
    {"64 bits",
     "mov.u64 %rd1, 5; add.s64 %rd2, %rd1, 1; add.s64 %rd3, %rd2, 1; st.shared.u64 [s], %rd3; ret;",
     32, false, false, 12, 0, 0},
    /* tid at 20; 20; the predicate decides 13 later: 33, then 5 for the branch; ret 38 */
    {"a branch", "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 99; @%p1 bra $L; $L: ret;", 32, false,
     false, 39, 0, 0},
    /* argument there at 5; line 1, sector 0.5, L2 280: 286.5; likewise 568; store 568, ret 569 */
    {"two trips to L2",
     ARGUMENT
     "ld.global.u64 %rd2, [%rd1]; ld.global.u64 %rd3, [%rd2]; st.shared.u64 [s], %rd3; ret;",
     32, false, false, 570, 2, 0},
    /* 5; DRAM 806.5; store, then the other sector of the line from L2: 807.5 + 281.5; 1089, 1090 */
    {"a line of DRAM, and again",
     ARGUMENT "ld.global.u64 %rd2, [%rd1]; st.shared.u64 [s], %rd2; ld.global.u64 %rd3, [%rd1+32];"
              "st.shared.u64 [s], %rd3; ret;",
     32, true, false, 1091, 2, 0},
    /* both loads go before their stores: 5 and 6, the second waits a line and half a cycle */
    {"loads moved together",
     ARGUMENT "ld.global.u64 %rd2, [%rd1]; st.shared.u64 [s], %rd2; ld.global.u64 %rd3, [%rd1+32];"
              "st.shared.u64 [s], %rd3; ret;",
     32, false, true, 290, 1, 0},
    /* behind an acquire nothing begins: 5; 286.5; 568 */
    {"an acquire in front",
     ARGUMENT "ld.acquire.gpu.global.u64 %rd2, [%rd1]; ld.global.u64 %rd3, [%rd1+32];"
              "st.shared.u64 [s], %rd3; ret;",
     32, false, true, 570, 2, 0},
    /* 500 and its own slot */
    {"a membar", "fence.acq_rel.gpu; ret;", 32, false, false, 502, 0, 1},
    /* store 5; the release waits from 6 to 506 */
    {"a release", ARGUMENT "st.global.u64 [%rd1], 7; st.release.gpu.global.u64 [%rd1+32], 7; ret;",
     32, false, false, 508, 0, 1},
    /* 5.5 + 560; 565.5; 566.5 */
    {"an atomic",
     ARGUMENT "atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 0; st.shared.u32 [s], %r1; ret;", 1,
     false, false, 568, 1, 0},
    /* the second warp alone: 38 to 538; barrier 539; all go on at 540 + 20 */
    {"a barrier",
     "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra $L; fence.acq_rel.gpu;"
     "$L: bar.sync 0; ret;",
     64, false, false, 561, 0, 1},
    /* tid at 20; 20; 25; 32 passes and 29; 86 and 87 */
    {"one bank",
     "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 7; ld.shared.u32 %r3, [%r2];"
     "st.shared.u32 [s], %r3; ret;",
     32, false, false, 88, 0, 0},
    /* 8, when both addresses are there; the machine 32, 128 lines of DRAM 4, 800, 170 and 20 more:
     * 1034; the predicate 1064; branch 1072 to 1077 */
    {"a bulk copy",
     ARGUMENT "mbarrier.init.shared::cta.b64 [b], 1; mov.u32 %r1, s; mov.u32 %r2, b;"
              "mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 16384;"
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], "
              "16384, [%r2];"
              "mbarrier.try_wait.parity.shared::cta.b64 %p1, [b], 0; @%p1 bra $L; $L: ret;",
     1, true, false, 1078, 1, 0},
    /* 0, there at 5; 5; 9; the sign is a name; 13; store 17, ret 18 */
    {"a chain of float32",
     "mov.f32 %f1, 0f3F800000; add.f32 %f2, %f1, %f1; mul.f32 %f3, %f2, %f2; neg.f32 %f4, %f3;"
     "fma.rn.f32 %f5, %f4, %f4, %f3; st.shared.f32 [s], %f5; ret;",
     32, false, false, 19, 0, 0},
    /* 0, 1, 2; ret 3 */
    {"three of float32", THREE_OF_FLOAT32, 32, false, false, 4, 0, 0},
    /* 0, 2, 4; ret 5: sixteen lanes a scheduler */
    {"three of float32 on 80", THREE_OF_FLOAT32, 32, false, false, 6, 0, 0, 80},
    /* warps 0 and 4 have one scheduler: 0, 2, 4, 6, 8, 10; ret 11 */
    {"those of two warps on 80", THREE_OF_FLOAT32, 160, false, false, 12, 0, 0, 80},
    /* 0; the other kind goes in between: 1; 2; ret 3 */
    {"float32 and integers on 80",
     "fma.rn.f32 %f1, %f0, %f0, %f0; add.u32 %r1, %r0, 1; fma.rn.f32 %f2, %f0, %f0, %f0; ret;", 32,
     false, false, 4, 0, 0, 80},
};

ptx_program parse(const program &p)
{
    return ptx_parse(
        std::string(".version 9.0\n.target sm_90\n.address_size 64\n.entry k(\n"
                    ".param .u64 k_param_0\n)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n"
                    ".reg .b64 %rd<8>;\n.reg .f32 %f<8>;\n.shared .align 128 .b8 s[16384];\n"
                    ".shared .align 8 .b8 b[8];\n") +
        p.code + "\n}\n");
}

bool is_right(const std::string &path, const program &p)
{
    const clock_table table = clock_read_table(path, p.architecture);
    alignas(256) static uint64_t memory[2048 + 64];
    uint64_t args[512] = {(uint64_t)(uintptr_t)memory};
    const ptx_program parsed = parse(p);
    const ptx_kernel &plain = parsed.kernel("k");
    const ptx_kernel kernel = p.is_compiled ? clock_compile(table, plain) : plain;
    memory[0] = (uint64_t)(uintptr_t)memory;
    clock_launch launch;
    launch.kernel = &kernel;
    launch.threads = p.threads;
    launch.args = args;
    if (p.is_bulk)
        launch.sources.push_back({(uint64_t)(uintptr_t)memory, sizeof(memory)});
    const clock_report r = clock_run(table, launch);
    if (std::fabs(r.cycles - p.cycles) < 1 && r.trips == p.trips && r.membars == p.membars)
        return true;
    fprintf(stderr, "%s: %.2f cycles, %u trips, %u membars; by hand %.0f, %u, %u\n", p.name,
            r.cycles, r.trips, r.membars, p.cycles, p.trips, p.membars);
    return false;
}

bool fits(const clock_table &table, uint32_t threads, uint32_t registers, uint32_t shared,
          uint32_t wanted)
{
    const uint32_t got = clock_resident(table, threads, registers, shared);
    if (got != wanted)
        fprintf(stderr, "%u threads, %u registers, %u bytes: %u blocks, not %u\n", threads,
                registers, shared, got, wanted);
    return got == wanted;
}

} /* namespace */

int main(int argc, char **argv)
{
    const std::string path = argc > 1 ? argv[1] : "";
    const clock_table table = clock_read_table(path, 90);
    bool right = true;
    for (const program &p : programs)
        right = is_right(path, p) && right;
    right = fits(table, 256, 64, 9600, 4) && right;  /* registers: 64 x 256 x 4 are all of them */
    right = fits(table, 256, 32, 50000, 4) && right; /* shared memory */
    right = fits(table, 1024, 32, 1000, 2) && right; /* threads */
    right = fits(table, 32, 32, 0, 32) && right;     /* blocks */
    return right ? 0 : 1;
}
