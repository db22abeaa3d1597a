#!/usr/bin/env python3
"""check_kernels.py SOURCE_DIR [NVCC]: what the compiler made of kernels/cuda, without a GPU.

Compiles every kernel for each architecture and reads ptxas's report and the PTX. Fails on spills
and on too many registers; on ld.global.nc, which lets the compiler move loads to their stores; and
on <<<>>>, whose stubs would need the C++ runtime. In stash, restore and migrate also on a stack frame; where
the architecture has it, without a wait for the launch before; in the ldg backend on fewer than
LOADS_IN_FLIGHT 16-byte loads before a store, and on too few registers to hold them; in the others
without bulk copies both ways, or without the wait that these are in memory. A fused kernel is a move of
the ldg backend, too, and has 16-byte accesses of its own; no sum in it is of a product, which ptxas
might fuse, so that results would differ between architectures and from the CPU's. In step on stores to the
mailbox, which the host reads, that are not of system scope or not in order. In all kernels on atomics,
scopes and fences that are not those of orders.txt (check_orders.py).
The squeeze kernels must have 32 registers and may therefore spill a little, but not in the loops of their
copies (sass_loops.py, where there is an nvdisasm), and little shared memory.
First the gates are tried on kernels that break them. Exit 77: no nvcc.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import check_orders
import sass_loops

ARCHITECTURES = ("80", "90", "100")
VECTOR = re.compile(r"\b(ld|st)\.(?:[\w:]+\.)*global(?:\.[\w:]+)*\.v4\.[bu]32")
GLOBAL = re.compile(r"\b(?:ld|st|atom|red)\.(?:[\w:]+\.)*global\b")
BACKENDS = ("ldg", "bulk", "squeeze")
MOVE = re.compile(rf"(stash|restore|migrate)_({'|'.join(BACKENDS)})_")
FUSED = re.compile(r"(glu_forward|glu_backward)_ldg_")
WIDE = {  # beside which move; the loads and stores of one vector, in code for 16 bits and for 32
    "glu_forward": ("stash_ldg_kernel", 2 * 2, 2 * (1 + 2)),
    "glu_backward": ("restore_ldg_kernel", 2 * 3, 2 * 3),
}
FLOATS = re.compile(r"^\s*(?:@!?%p\d+\s+)?(mul|mov|neg|add|sub)\.f32\s+(%?\w+),\s*([^;]*);", re.M)
MAX_REGISTERS = {
    "ldg": 64,      # four blocks of 256 threads on an SM: 64 KiB of loads in flight
    "bulk": 80,     # one block of 256 threads: a third of the registers of an SM
    "squeeze": 32,  # what a kernel of 384 threads with 168 registers leaves
    "fused": 128,   # two teams of 256 threads on an SM, and so all of its registers
}
# Of a block under a budget, 1,024 threads or 512 fused ones: with fewer a second one would fit on its SM.
OWNS_AN_SM = {"ldg": 33, "fused": 65}
MAX_SQUEEZE_SPILLS = 320  # bytes, stores and loads; none in a loop of copies
MAX_SQUEEZE_SHARED = 2048  # bytes, static: the ring is beside it
LOADS_IN_FLIGHT = 4
# The orders that tests/model/mailbox.cc is about: what is covered, 0, fence, words, sequence; nothing else
# between.
STORES = re.compile(r"\b((?:st|atom|red|fence|membar)\.[\w:.]+)")
PUBLICATION = re.compile(r"st\.release\.sys\.u64 st\.release\.sys\.u64 fence\.acq_rel\.sys "
                         r"(st\.(relaxed|release)\.sys\.u64 )+st\.release\.sys\.u64")
BULK = {  # of stash and restore alike, from sm_90
    "bulk loads": r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.",
    "bulk stores": r"cp\.async\.bulk\.global\.shared::cta\.bulk_group",
    "wait for the read of a stage": r"cp\.async\.bulk\.wait_group\.read [12];",
    "wait for memory": r"cp\.async\.bulk\.wait_group 0;",
    "fence of the barriers": r"fence\.mbarrier_init\.",
    # before loads and after stores
    "proxy fences": r"(?s)fence\.proxy\.async\.global;.*fence\.proxy\.async\.global;",
}

PLANTED = """
__global__ void stash_ldg_kernel(int *to, const int *__restrict__ from, int n)
{
    int local[64] = {0};
    for (int i = 0; i < n; i++)
        local[__ldg(from + i) & 63] += i;
    to[threadIdx.x] = local[n & 63];
}
__device__ void churn(float *at, int n)
{
    float v[64];
    for (int i = 0; i < 64; i++)
        v[i] = at[i * 1024 + threadIdx.x];
    for (; n > 0; n--)
        for (int i = 0; i < 64; i++)
            v[i] *= v[(i + 1) % 64];
    for (int i = 0; i < 64; i++)
        at[i * 1024 + threadIdx.x] = v[i];
}
__global__ void __launch_bounds__(1024, 2) spilling_kernel(float *at, int n) { churn(at, n); }
__global__ void wide_kernel(float *at, int n) { churn(at, n); }
__global__ void restore_ldg_kernel(int4 *to, const int4 *from)
{
    to[threadIdx.x] = from[threadIdx.x];
}
__global__ void restore_bulk_kernel(int4 *to, const int4 *from)
{
    to[threadIdx.x] = from[threadIdx.x];
}
__global__ void glu_forward_ldg_kernel(float *at, float a, float b)
{
    asm volatile("{.reg .f32 p, q;\\n\\tmul.f32 p, %0, %1;\\n\\tneg.f32 q, p;\\n\\tadd.f32 %0, q, %1;}"
                 : "+f"(a) : "f"(b));
    at[threadIdx.x] = a;
}
__global__ void stash_squeeze_kernel(float *at, int n) { churn(at, n); }
__global__ void migrate_squeeze_kernel(float *at, int n)
{
    __shared__ float room[513];
    room[threadIdx.x] = at[n];
    __syncthreads();
    at[threadIdx.x] = room[n];
}
__global__ void step_kernel(unsigned long long *at)
{
    asm volatile("st.release.sys.u64 [%0], 0; fence.acq_rel.sys;" ::"l"(at) : "memory");
    asm volatile("st.relaxed.gpu.u64 [%0], 7;" ::"l"(at + 1) : "memory");
    asm volatile("st.release.sys.u64 [%0], 7;" ::"l"(at) : "memory");
}
"""
PLANTED_FAULTS = ("stash_ldg_kernel.*ld.global.nc", "stash_ldg_kernel.*stack frame",
                  "stash_ldg_kernel.*no 16-byte global store",
                  "stash_ldg_kernel.*no griddepcontrol.wait",
                  "restore_ldg_kernel.* 1 16-byte loads", "spilling_kernel.*spills",
                  "wide_kernel.*at most", "stash_squeeze_kernel.*at most 32",
                  "migrate_squeeze_kernel.*2052 bytes of static",
                  "step_kernel.*the mailbox", "glu_forward_ldg_kernel.*1 sums of products",
                  "glu_forward_ldg_kernel.* 0 16-byte loads and 0 stores beside",
                  *(f"restore_bulk_kernel.*no {what}" for what in BULK))


def compile_one(nvcc, source, architecture, include, scratch):
    """Returns ptxas's report, the PTX and the cubin's path."""
    keep = pathlib.Path(scratch) / f"{source.stem}-{architecture}"
    keep.mkdir()
    command = [nvcc, "-std=c++17", "-O3", "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v",
               "-lineinfo", "--keep", "--keep-dir", str(keep), "-o", str(keep / "out.cubin"), str(source)]
    command += [flag for folder in include for flag in ("-I", str(folder))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source.name}, sm_{architecture}: nvcc failed\n{done.stderr}")
    return done.stderr, (keep / f"{source.stem}.ptx").read_text(), keep / "out.cubin"


def known_to(nvcc):
    """Those of ARCHITECTURES that it can compile for: CUDA 12.4 has no 100."""
    known = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.split()
    return [architecture for architecture in ARCHITECTURES if f"compute_{architecture}" in known]


def report_of(text):
    """{kernel: numbers} of ptxas -v."""
    kernels, current = {}, None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            current = kernels.setdefault(match[1], {})
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                r"(\d+) bytes spill loads", line):
            # A function that was not inlined counts for the kernel it is listed under.
            if current is not None:
                current["stack"] = max(current.get("stack", 0), int(match[1]))
                current["spills"] = current.get("spills", 0) + int(match[2]) + int(match[3])
        elif match := re.search(r"Used (\d+) registers", line):
            current["registers"] = int(match[1])
            shared = re.search(r"(\d+) bytes smem", line)
            current["shared"] = int(shared[1]) if shared else 0
    return kernels


def bodies_of(ptx):
    """{kernel: its PTX}. Everything after an .entry belongs to it up to the next."""
    parts = re.split(r"\.entry\s+(\w+)", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def most_loads_before_a_store(body):
    most = loads = 0
    for kind in VECTOR.findall(body):
        loads = loads + 1 if kind == "ld" else 0
        most = max(most, loads)
    return most


def faults_of_move(kind, n, body, architecture, is_fused):
    """What is wrong in one stash, restore or migrate kernel."""
    if kind != "ldg" and architecture < 90:
        return [] if "cp.async" not in body else ["bulk copies before sm_90"]
    wrong = []
    waits, first = body.find("griddepcontrol.wait"), GLOBAL.search(body)
    if architecture >= 90 and waits < 0:
        wrong.append("no griddepcontrol.wait")
    elif architecture >= 90 and first and first.start() < waits:
        wrong.append("memory before griddepcontrol.wait")
    if n["stack"] and kind != "squeeze":
        wrong.append(f"a stack frame of {n['stack']} bytes")
    if kind != "ldg":
        return wrong + [f"no {what}" for what, text in BULK.items() if not re.search(text, body)]
    loads = most_loads_before_a_store(body)
    if loads < LOADS_IN_FLIGHT:
        wrong.append(f"{loads} 16-byte loads before a store, not {LOADS_IN_FLIGHT}")
    least = OWNS_AN_SM["fused" if is_fused else kind]
    if n["registers"] < least:
        wrong.append(f"{n['registers']} registers: a block under a budget would not own its SM, which takes {least}")
    if "st" not in VECTOR.findall(body):
        wrong.append("no 16-byte global store")
    return wrong


def sums_of_products(body):
    """How many sums of float32 have a product as an operand, maybe negated."""
    made = {}
    for op, to, of in FLOATS.findall(body):
        made.setdefault(to, []).append((op, of.split(", ")))

    def is_product(register, seen):
        if register in seen:
            return False
        seen.add(register)
        return any(op == "mul" or op in ("mov", "neg") and is_product(of[0], seen)
                   for op, of in made.get(register, []))

    return sum(op in ("add", "sub") and any(is_product(each, set()) for each in of)
               for ways in made.values() for op, of in ways)


def faults_of_fused(name, body, bodies):
    """What is wrong in how a fused kernel computes, and reaches memory for it."""
    wrong = []
    if num := sums_of_products(body):
        wrong.append(f"{num} sums of products, which may be fused")
    move, loads, stores = WIDE[name]
    kinds = VECTOR.findall(body)
    of_move = VECTOR.findall("".join(text for other, text in bodies.items() if move in other))
    own = [kinds.count(kind) - of_move.count(kind) for kind in ("ld", "st")]
    if own[0] < loads or own[1] < stores:
        wrong.append(f"only {own[0]} 16-byte loads and {own[1]} stores beside those of {move}")
    return wrong


def faults_of_step(body):
    """What is wrong with how the step kernel publishes."""
    stores = STORES.findall(body)
    system = [i for i, store in enumerate(stores) if ".sys" in store]
    found = " ".join(stores[system[0]:system[-1] + 1]) if system else "nothing"
    return [] if PUBLICATION.fullmatch(found) else [f"the mailbox gets {found}"]


def faults(report, ptx, architecture):
    """Sentences about what is wrong, and the numbers of each kernel."""
    wrong, numbers = [], report_of(report)
    bodies = bodies_of(ptx)
    if set(numbers) != set(bodies):
        wrong.append(f"the report has {sorted(numbers)}, the PTX {sorted(bodies)}")
    for name, n in sorted(numbers.items()):
        body, match, fused = bodies.get(name, ""), MOVE.search(name), FUSED.search(name)
        kind = match[2] if match else "ldg"
        most = MAX_REGISTERS["fused" if fused else kind]
        found = faults_of_move(kind, n, body, architecture, fused) if match or fused else []
        if fused:
            found += faults_of_fused(fused[1], body, bodies)
        if "step_kernel" in name:
            found += faults_of_step(body)
        if n["spills"] > (MAX_SQUEEZE_SPILLS if kind == "squeeze" else 0):
            found.append(f"{n['spills']} bytes of spills")
        if n["registers"] > most:
            found.append(f"{n['registers']} registers, at most {most} are allowed")
        if kind == "squeeze" and n["shared"] > MAX_SQUEEZE_SHARED:
            found.append(f"{n['shared']} bytes of static shared memory")
        if "ld.global.nc" in body:
            found.append("ld.global.nc")
        wrong += [f"{name}: {sentence}" for sentence in found]
    return wrong, numbers


def without(nvdisasm):
    """A sentence where there is no nvdisasm and must be one."""
    if nvdisasm:
        return []
    print("no nvdisasm: where the squeeze kernels spill is not looked at")
    return ["this run must have one"] if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1" else []


def self_test(report, ptx):
    """Exits if the gates miss what is planted, of which these are report and PTX for sm_90."""
    wrong, _ = faults(report, ptx, 90)
    sass_loops.self_test()
    for planted in PLANTED_FAULTS:
        if not any(re.search(planted, sentence) for sentence in wrong):
            sys.exit(f"the planted fault was not reported: {planted}\n" + "\n".join(wrong))


def judge(report, ptx, cubin, architecture, name, nvdisasm):
    """Sentences about what is wrong in one source for one architecture, and its kernels, which it prints."""
    found, numbers = faults(report, ptx, int(architecture))
    found += check_orders.order_faults(ptx, int(architecture))
    if nvdisasm and int(architecture) >= 90:
        found += sass_loops.faults(sass_loops.text_of(nvdisasm, cubin))
    for kernel, n in sorted(numbers.items()):
        print(f"sm_{architecture:4} {kernel:40} {n['registers']:4} registers "
              f"{n['stack']:4} stack {n['spills']:4} spills")
    return [f"sm_{architecture} {name} {sentence}" for sentence in found], set(numbers)


def absent(seen):
    """Sentences about kernels that must be there and are not."""
    needed = ("step_kernel", *(f"{name}_ldg_kernel" for name in WIDE),
              *(f"{op}_{kind}_kernel" for op in ("stash", "restore", "migrate") for kind in BACKENDS))
    return [f"no kernel is called {one}" for one in needed if not any(one in name for name in seen)]


def main():
    root = pathlib.Path(sys.argv[1])
    nvcc = sys.argv[2] if len(sys.argv) > 2 else shutil.which("nvcc")
    if not nvcc:
        print("no nvcc")
        return 77
    sources = sorted((root / "kernels/cuda").rglob("*.cu"))
    wrong = [f"{source.name}: <<<>>>; use the launcher" for source in
             [*sources, *(root / "kernels/cuda").rglob("*.cuh")] if "<<<" in source.read_text()]
    nvdisasm = sass_loops.find_nvdisasm(root)
    wrong += without(nvdisasm)
    seen = set()
    with tempfile.TemporaryDirectory() as scratch, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        planted = pathlib.Path(scratch) / "planted.cu"
        planted.write_text(PLANTED)
        self_test(*compile_one(nvcc, planted, "90", [], scratch)[:2])
        jobs = {(architecture, source): pool.submit(compile_one, nvcc, source, architecture,
                                                    [root, root / "include"], scratch)
                for source in sources for architecture in known_to(nvcc)}
        for (architecture, source), job in jobs.items():
            found, kernels = judge(*job.result(), architecture, source.name, nvdisasm)
            wrong += found
            seen |= kernels
    wrong += absent(seen)
    print("\n".join(wrong) if wrong else f"{len(seen)} kernels pass")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
