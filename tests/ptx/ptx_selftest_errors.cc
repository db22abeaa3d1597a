/* The second half of ptx_selftest: each kind of error ends the process, and its line names what,
 * where and in which kernel. */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/ptx/ptx_run.h"
#include "tests/ptx/ptx_selftest.h"

namespace
{

/* Lines are counted from the first of the code. */
struct mistake {
    const char *code;
    const char *what;
    uint32_t line; /* 0: it has none */
    uint32_t threads;
};

#define LANE "mov.u32 %r7, %tid.x;\nsetp.eq.s32 %p7, %r7, 0;\n"
#define RING                                                                                      \
    "mov.u32 %r5, s;\nmov.u32 %r6, 16;\nadd.s32 %r6, %r5, %r6;\nmbarrier.init.shared.b64 [%r5], " \
    "1;\n"                                                                                        \
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 16;\n"
#define IN "cp.async.bulk.shared.global [%r6], [%rd8], 16, [%r5];\n"
#define WAIT "$wait:\nmbarrier.try_wait.parity.shared.b64 %p5, [%r5], 0;\n@!%p5 bra $wait;\n"
#define OUT "cp.async.bulk.global.shared.bulk_group [%rd8], [%r6], 16;\n"

const mistake mistakes[] = {
    {"nop;\nret;", "unknown", 1, 1},
    {"nop.x;\nret;", "unknown", 1, 1},
    {"sad.u32 %r1, %r1, %r2, %r3;\nret;", "unknown", 1, 1},
    {"tanh.approx.f32 %r1, %r2;\nret;", "unknown", 1, 1},
    {"add.ftz.f32 %r1, %r2, %r3;\nret;", "unknown", 1, 1},
    {"fma.rz.f32 %r1, %r2, %r3, %r3;\nret;", "unknown", 1, 1},
    {"mul.lo.f32 %r1, %r2, %r3;\nret;", "unknown", 1, 1},
    {"setp.num.f32 %p1, %r2, %r3;\nret;", "unknown", 1, 1},
    {"cvt.rn.f32.u32 %r1, %r2;\nret;", "unknown", 1, 1},
    {"setp.lt.bf16 %p1, %rs1, %rs2;\nret;", "unknown", 1, 1},
    {"mov.f64 %rd1, %rd2;\nret;", "unknown", 1, 1},
    {"ld.global.b128 %rd1, [%rd8];\nret;", "unknown", 1, 1},
    {"atom.global.add.f32 %r1, [%rd8], %r2;\nret;", "unknown", 1, 1},
    {"red.global.add.f32 [%rd8], %r2;\nret;", "unknown", 1, 1},
    {".local .align 16 .b8 __local_depot1[16];\nret;", "directive .local", 1, 1},
    {"atom.global.min.u32 %r1, [%rd8], 1;\nret;", "unknown", 1, 1},
    {"mov.u32 %r1, %laneid;\nret;", "register %laneid", 1, 1},
    {"mov.u32 %r1, %r2+-8;\nret;", "register %r2+-8", 1, 1},
    {"mov.u32 %r1, 8+8;\nret;", "number 8+8", 1, 1},
    {"bra $nowhere;\nret;", "label $nowhere", 0, 1},
    {"div.s32 %r1, %r1, %r2;\nret;", "a signed division", 1, 1},
    {"mov.u32 %r1, 0;\nld.global.u32 %r1, [%rd8+2];\nret;", "misaligned", 2, 1},
    {"st.global.v2.u64 [%rd8+8], {%rd1, %rd2};\nret;", "misaligned", 1, 1},
    {"st.shared.u64 [s+4], %rd1;\nret;", "misaligned", 1, 1},
    {"ld.global.u32 %r1, [%rd8+64];\nret;", "outside what the device has given out", 1, 1},
    {"st.global.u32 [%rd8+-4], %r1;\nret;", "outside what the device has given out", 1, 1},
    {"red.global.add.u32 [%rd8+64], 1;\nret;", "outside what the device has given out", 1, 1},
    {"ld.param.u32 %r1, [k_param_0+40];\nret;", "outside what the device has given out", 1, 1},
    {"mov.b64 %rd4, k_param_0;\nst.u32 [%rd4], 1;\nret;", "a write to arguments", 2, 1},
    {"st.shared.u32 [s+128], 1;\nret;", "outside shared memory", 1, 1},
    {"ld.shared.u32 %r4, [s];\nst.global.u32 [%rd8], %r4;\nret;", "depends on what nobody wrote", 2,
     1},
    {"ld.shared.u32 %r4, [s];\nsetp.eq.s32 %p4, %r4, 0;\n@%p4 ret;\nret;",
     "a predicate depends on what nobody wrote", 3, 1},
    {"ld.shared.u32 %r4, [s];\nst.shared.u32 [s+4], %r4;\nld.shared.u32 %r5, [s+4];\n"
     "add.s32 %r5, %r5, 1;\nst.global.u32 [%rd8], %r5;\nret;",
     "depends on what nobody wrote", 5, 1},
    {"st.global.u32 [%rd8], %r9;\nret;", "depends on what nobody wrote", 1, 1},
    {"atom.shared.add.u32 %r4, [s], 1;\nret;", "reads shared memory that nobody wrote", 1, 1},
    {"shfl.sync.idx.b32 %r4|%p4, %r1, 0, 31, -1;\nret;", "a warp's operation without all its lanes",
     1, 8},
    {LANE "@%p7 st.shared.u32 [s], 1;\nld.shared.u32 %r4, [s];\nret;",
     "no barrier behind the write of thread 0", 4, 32},
    {"st.shared.u32 [s], 1;\nret;", "no barrier behind the write of thread", 1, 32},
    {LANE "@%p7 st.shared.u32 [s], 1;\nbar.warp.sync -1;\nld.shared.u32 %r4, [s];\nret;",
     "no barrier behind the write of thread 0", 5, 64},
    {LANE "@%p7 ret;\nvote.sync.any.pred %p4, %p7, -1;\nret;",
     "a warp's operation without all its lanes", 4, 32},
    {LANE "@%p7 bra $end;\nshfl.sync.idx.b32 %r4|%p4, %r1, 0, 31, -2;\n$end:\nret;",
     "a shuffle from a lane that is not in it", 4, 32},
    {LANE "@%p7 bar.sync 1, 64;\nret;", "a deadlock: everybody waits", 4, 64},
    {LANE "@%p7 bar.sync 0;\n@!%p7 bar.sync 1, 32;\nret;", "a deadlock: everybody waits", 0, 32},
    {"$again:\nld.global.u32 %r4, [%rd8];\nsetp.ne.s32 %p4, %r4, 77;\n@%p4 bra $again;\nret;",
     "a deadlock: no block ended", 0, 1},
    {"mov.u32 %r5, s;\nmbarrier.try_wait.parity.shared.b64 %p5, [%r5], 0;\nret;",
     "no mbarrier there", 2, 1},
    {RING "add.s32 %r6, %r6, 8;\n" IN "ret;", "bulk copy of 16 bytes", 7, 1},
    {RING "cp.async.bulk.shared.global [%r6], [%rd8], 8, [%r5];\nret;", "bulk copy of 8 bytes", 6,
     1},
    {RING "cp.async.bulk.shared.global [%r6], [%rd8], 256, [%r5];\nret;", "bulk copy of 256 bytes",
     6, 1},
    {RING "add.s64 %rd8, %rd8, 64;\n" IN "ret;", "outside what the device has given out", 7, 1},
    {RING IN "ld.shared.u32 %r4, [%r6];\nst.global.u32 [%rd8+32], %r4;\n" WAIT "ret;",
     "depends on what nobody wrote", 8, 1},
    {RING IN "ret;", "bulk copies are pending", 0, 1},
    {RING OUT "ret;", "reads shared memory that nobody wrote", 6, 1},
    {RING IN WAIT OUT "cp.async.bulk.commit_group;\nst.shared.u32 [%r6], 1;\n"
                      "cp.async.bulk.wait_group 0;\nret;",
     "overwrites what a bulk copy has still to read", 12, 1},
    {RING IN WAIT OUT "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nret;",
     "bulk copies", 0, 1},
    {RING IN WAIT OUT "cp.async.bulk.commit_group;\nret;", "bulk copies", 0, 1},
};

class one_array : public ptx_memory
{
  public:
    uint64_t first, bytes;
    one_array(const void *at, uint64_t size) : first((uint64_t)(uintptr_t)at), bytes(size)
    {
    }
    bool holds(uint64_t address, uint64_t size) const override
    {
        return address >= first && address + size <= first + bytes;
    }
};

void run_mistake(const mistake &m)
{
    alignas(16) uint64_t scratch[8] = {0};
    const uint64_t args[] = {0, 1, 2, 3, (uint64_t)(uintptr_t)scratch};
    const one_array memory(scratch, sizeof(scratch));
    const ptx_program program = ptx_parse(selftest_program(m.code));
    ptx_launch launch;
    launch.kernel = &program.kernels[0];
    launch.threads = m.threads;
    launch.args = args;
    launch.args_bytes = sizeof(args);
    launch.memory = &memory;
    launch.limit = 20000;
    for (launch.seed = 1; launch.seed <= 20; launch.seed++) /* of copies some are early */
        ptx_run(launch);
}

/* What a child process that makes the mistake says before it ends. */
std::string said_of(const mistake &m)
{
    int ends[2];
    if (pipe(ends) != 0)
        return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run_mistake(m);
        _exit(0);
    }
    close(ends[1]);
    std::string said;
    char part[512];
    for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;)
        said.append(part, (size_t)n);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? said : "nothing";
}

} /* namespace */

int selftest_errors()
{
    const std::string before = selftest_program("@");
    uint32_t first = 1; /* line of the code */
    for (size_t n = 0; before[n] != '@'; n++)
        first += before[n] == '\n';
    int wrong = 0;
    for (const mistake &m : mistakes) {
        const std::string said = said_of(m);
        const std::string line = "line " + std::to_string(first + m.line - 1);
        const bool has_kernel =
            said.find(" k,") != std::string::npos || said.find(" k)") != std::string::npos ||
            said.find("(k,") != std::string::npos || said.find(" k ") != std::string::npos;
        if (said.find(m.what) != std::string::npos && has_kernel &&
            (m.line == 0 || said.find(line) != std::string::npos))
            continue;
        fprintf(stderr, "%s\n  %s instead of \"%s\" in %s of k\n", m.code, said.c_str(), m.what,
                m.line ? line.c_str() : "a line");
        wrong++;
    }
    return wrong;
}
