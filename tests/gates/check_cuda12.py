#!/usr/bin/env python3
"""check_cuda12.py SOURCE_DIR VENV TESTS FILTER: the source with CUDA 12.4, as far as PyPI has it.

PyPI's wheels hold no nvcc. VENV has them installed (third_party/install.sh --cuda12).
Device code: what the .cu files of kernels/cuda include, compiled by NVRTC 12.4 to PTX for each architecture, that
by the ptxas of 12.4, and both held to what check_kernels.py and check_orders.py want of nvcc's; first the gates
are tried on kernels that break them. Host code: the files that know CUDA or NVTX, by gcc against 12.4's headers;
of the .cu files the launcher, by g++, with the kernels as tests/simt has them. Then TESTS, the C tests, execute
the PTX, which is left in VENV/ptx, for those that FILTER, a GoogleTest filter, picks.
"""

import concurrent.futures
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import check_kernels
import sass_loops

VERSION = (12, 4)
ARCHITECTURES = ("80", "90")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only")
OF_C = ("-std=c11", "-D_GNU_SOURCE", "-Wpedantic", "-Wconversion", "-Wshadow")
KNOWS_CUDA = re.compile(r"PSTI_HAVE_(CUDA|NVTX)|<cuda\w*\.h>|<nvtx3/|device_cuda\.h")
LINES = re.compile(r"^\t\.(loc|file)\t.*\n", re.MULTILINE)  # which tests/ptx does not read
# NVRTC has no C library, and its own words need no header.
LIBRARY = {
    "stdint.h": "".join(f"typedef signed {of} int{bits}_t; typedef unsigned {of} uint{bits}_t;\n" for bits, of in
                        ((8, "char"), (16, "short"), (32, "int"), (64, "long"))) +
                "typedef unsigned long uintptr_t;\n"
                "#define UINT64_C(x) x##ul\n#define UINT32_MAX 0xffffffffu\n#define UINT64_MAX 0xfffffffffffffffful\n",
    "stddef.h": "#define offsetof(type, member) ((size_t)&((type *)0)->member)\n",
    **dict.fromkeys(("stdbool.h", "string.h", "assert.h", "cuda_runtime.h"), ""),
}
KERNELS = """#include "kernels/kernels.h"
#define MOVE(NAME, name, args) FUSED(NAME, name, args) <name##_bulk_kernel> <name##_squeeze_kernel>
#define FUSED(NAME, name, args) <name##_ldg_kernel>
#define ONE(NAME, name, args) <name##_kernel>
PSTI_MOVE_LIST(MOVE) PSTI_FUSED_LIST(FUSED) PSTI_GRID_LIST(ONE) PSTI_BLOCK_LIST(ONE)
"""


def run(command, **options):
    """What a command prints; if it fails, the end."""
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class Toolkit:
    def __init__(self, folder):
        self.ptxas = folder / "cuda_nvcc/bin/ptxas"
        self.include = [word for part in ("cuda_runtime", "cuda_nvcc", "nvtx")
                        for word in ("-isystem", folder / part / "include")]
        self.nvrtc = ctypes.CDLL(str(folder / "cuda_nvrtc/lib/libnvrtc.so.12"))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("Version", ctypes.byref(major), ctypes.byref(minor))
        if (major.value, minor.value) != VERSION:
            sys.exit(f"{folder} holds NVRTC {major.value}.{minor.value}, not {VERSION[0]}.{VERSION[1]}")

    def call(self, name, *arguments):
        if code := getattr(self.nvrtc, f"nvrtc{name}")(*arguments):
            sys.exit(f"nvrtc{name}: {code}")

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, buffer)
        return buffer.value.decode()

    def ptx_of(self, source, kernels, architecture, root):
        """PTX of a text; of its static kernels, those of the names."""
        def strings(texts):
            return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))

        options = ["-std=c++17", "-lineinfo", "-default-device", f"-arch=compute_{architecture}",
                   f"-I{root}", f"-I{root}/include"]
        program = ctypes.c_void_p()
        self.call("CreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", len(LIBRARY),
                  strings(LIBRARY.values()), strings(LIBRARY))
        for kernel in kernels:
            self.call("AddNameExpression", program, kernel.encode())
        if self.nvrtc.nvrtcCompileProgram(program, len(options), strings(options)):
            sys.exit(f"NVRTC, compute_{architecture}:\n{self.text(program, 'ProgramLog')}")
        return self.text(program, "PTX")

    def compile(self, source, kernels, architecture, root, to):
        """ptxas's report, the PTX, which stands in the file `to`, and the file of the machine code."""
        ptx, cubin = self.ptx_of(source, kernels, architecture, root), to.with_suffix(".cubin")
        to.write_text(LINES.sub("", ptx).partition("\t.section")[0])
        return run([self.ptxas, "-v", f"-arch=sm_{architecture}", to, "-o", cubin]), ptx, cubin


# A register, which 13.0's ptxas does not spill. Nobody has seen what it costs.
KNOWN = {f"sm_{architecture} 12.4 _Z16stash_ldg_kernel14psti_move_args: {what}"
         for architecture in ARCHITECTURES for what in ("a stack frame of 8 bytes", "8 bytes of spills")}


def device_faults(toolkit, root, out):
    """What is wrong with the device code, whose PTX is left in the folder `out`."""
    includes = [line for file in sorted((root / "kernels/cuda").rglob("*.cu"))
                for line in file.read_text().splitlines() if re.match(r'#include ".*\.cuh"', line)]
    names = re.findall(r"<(\w+)>", run(["gcc", "-E", "-P", f"-I{root}", f"-I{root}/include", "-xc", "-"],
                                       input=KERNELS))
    nvdisasm = sass_loops.find_nvdisasm(root)
    wrong = check_kernels.without(nvdisasm)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor() as pool:
        planted = pool.submit(toolkit.compile, check_kernels.PLANTED, [], "90", root,
                              pathlib.Path(scratch) / "planted.ptx")
        jobs = {architecture: pool.submit(toolkit.compile, "\n".join(includes), names, architecture, root,
                                          out / f"kernels-{architecture}.ptx") for architecture in ARCHITECTURES}
        check_kernels.self_test(*planted.result()[:2])
        seen, known = set(), set()
        for architecture, job in jobs.items():
            found, kernels = check_kernels.judge(*job.result(), architecture, "12.4", nvdisasm)
            wrong += [sentence for sentence in found if sentence not in KNOWN]
            known |= KNOWN.intersection(found)
            seen |= kernels
    wrong += [f"{sentence}: no longer, so it need not be known" for sentence in KNOWN - known]
    return wrong + check_kernels.absent(seen)


def compile_host(toolkit, root):
    """Host code against the headers: how many files, or the compiler's complaint."""
    include = [f"-I{root}", f"-I{root}/include", *toolkit.include]
    defines = "-DPSTI_HAVE_CUDA=1", "-DPSTI_HAVE_NVTX=1"
    in_c = [file for file in sorted((root / "host").rglob("*.c")) if KNOWS_CUDA.search(file.read_text())]
    for file in in_c:
        run(["gcc", *OF_C, *WARNINGS, *defines, *include, file])
    in_cuda = sorted((root / "kernels/cuda").rglob("*.cu"))
    for file in in_cuda:
        run(["g++", "-std=c++17", *WARNINGS, "-Wno-unknown-pragmas", "-DPSTI_SIMT=1", "-include",
             root / "tests/simt/simt.h", *include, "-xc++", file])
    return len(in_c), len(in_cuda)


def main():
    root, venv, tests = (pathlib.Path(argument).absolute() for argument in sys.argv[1:4])
    folder = next(venv.glob("lib/python*/site-packages/nvidia"), None)
    if not folder:
        sys.exit(f"{venv} has no CUDA: third_party/install.sh --cuda12")
    toolkit, out = Toolkit(folder), venv / "ptx"
    out.mkdir(exist_ok=True)
    in_c, in_cuda = compile_host(toolkit, root)
    print(f"12.4's headers: {in_c} files of host and {in_cuda} of kernels/cuda compile")
    if wrong := device_faults(toolkit, root, out):
        sys.exit("\n".join(wrong))
    print(run([tests, "--gtest_brief=1", "--source=tests/conformance/", f"--gtest_filter={sys.argv[4]}"],
              env=os.environ | {"PSTI_PTX_DIR": str(out)}).strip())


main()
