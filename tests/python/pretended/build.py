#!/usr/bin/env python3
"""build.py: makes the pretended CUDA libraries for the installed torch, without importing it.

For each of libcudart.so.13, libcuda.so.1, libcublas.so.13 and libcublasLt.so.13 the functions are those of the C
files beside this, and for every other one that torch's libraries link a function that counts the call,
says so once and answers that it is not supported. The libraries lie in build/pretended/KEY; the key is
of all that goes into them. Prints the folder."""
import glob
import hashlib
import os
import re
import subprocess
import sysconfig
import tempfile

_HERE = os.path.dirname(os.path.abspath(__file__))
_SOURCE = os.path.abspath(os.path.join(_HERE, "..", "..", ".."))
LIBRARIES = {  # name: (C files, what a missing function answers)
    "libcudart.so.13": (("base.c", "streams.c", "graphs.c", "memory.c", "device.c"), 801),  # cudaErrorNotSupported
    "libcuda.so.1": (("driver.c",), 801),                # CUDA_ERROR_NOT_SUPPORTED
    "libcublas.so.13": (("cublas.c",), 15),              # CUBLAS_STATUS_NOT_SUPPORTED
    "libcublasLt.so.13": (("cublaslt.c",), 15),
}


class Missing(Exception):
    """What the pretended libraries cannot be built without: one sentence."""


def torch_libraries():
    """The folder of torch's libraries."""
    path = os.path.join(sysconfig.get_paths()["platlib"], "torch", "lib")
    if not os.path.exists(os.path.join(path, "libtorch_cuda.so")):
        raise Missing(f"no torch with CUDA in {path}")
    return path


def cuda_headers():
    """The folder of cuda_runtime_api.h, of CUDA 13."""
    packages = os.path.join(sysconfig.get_paths()["platlib"], "nvidia", "cu13")
    for folder in (os.environ.get("CUDA_HOME", "/nonexistent"), "/usr/local/cuda", packages):
        path = os.path.join(folder, "include")
        if not os.path.exists(os.path.join(path, "cuda_runtime_api.h")):
            continue
        with open(os.path.join(path, "cuda_runtime_api.h"), encoding="utf-8") as file:
            if re.search(r"#define CUDART_VERSION +13", file.read()):
                return path
    raise Missing(f"no headers of CUDA 13 in $CUDA_HOME, /usr/local/cuda or {packages}")


def wanted(folder):
    """Names of the functions that torch's libraries link, by library."""
    out = {name: set() for name in LIBRARIES}
    for path in glob.glob(folder + "/libtorch*.so") + glob.glob(folder + "/libc*.so"):
        said = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True,
                              check=True).stdout
        for field in map(str.split, said.splitlines()):
            if len(field) < 8 or field[6] != "UND":
                continue
            name, _, version = field[7].partition("@")
            if not version and re.match("cu[A-Z]", name) and "nvrtc" in path:
                version = "libcuda.so.1"  # whose names have no version
            if version.lstrip("@") in out:
                out[version.lstrip("@")].add(name)
    return out


def _defined(objects):
    said = subprocess.run(["nm", "-g", "--defined-only", *objects], capture_output=True, text=True,
                          check=True).stdout
    return {line.split()[2] for line in said.splitlines() if len(line.split()) == 3}


def _compile(into, sources, headers):
    objects = [os.path.join(into, os.path.basename(source) + ".o") for source in sources]
    for source, made in zip(sources, objects):
        subprocess.run(["gcc", "-std=gnu11", "-g", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror",
                        "-fno-builtin", "-I", _HERE, "-I", os.path.join(_SOURCE, "include"),
                        "-isystem", headers, "-c", source, "-o", made], check=True)
    return objects


def _link(into, name, names, headers):
    files, answer = LIBRARIES[name]
    objects = _compile(into, [os.path.join(_HERE, file) for file in files], headers)
    rest = os.path.join(into, f"rest_{name.split('.')[0]}.c")
    with open(rest, "w", encoding="ascii") as file:
        file.write('#include "pretended.h"\n')
        for function in sorted(names - _defined(objects)):
            file.write(f"int {function}(void);\nint {function}(void)\n"
                       f'{{ pretended_missing("{function}"); return {answer}; }}\n')
    objects += _compile(into, [rest], headers)
    versions = os.path.join(into, name + ".map")
    with open(versions, "w", encoding="ascii") as file:
        file.write(f"{'' if name == 'libcuda.so.1' else name} {{ global: *; }};\n")
    runtime = [] if name == "libcudart.so.13" else [os.path.join(into, "libcudart.so.13")]
    subprocess.run(["gcc", "-shared", "-o", os.path.join(into, name), f"-Wl,-soname,{name}",
                    f"-Wl,--version-script,{versions}", "-Wl,-z,defs", *objects, *runtime,
                    "-ldl", "-lpthread"], check=True)


def _key(folder, headers):
    key = hashlib.sha256()
    for path in (sorted(glob.glob(_HERE + "/*.[ch]")) + [os.path.abspath(__file__)]
                 + sorted(glob.glob(_SOURCE + "/include/pagestash/*.h"))):
        with open(path, "rb") as file:
            key.update(file.read())
    stat = os.stat(os.path.join(folder, "libtorch_cuda.so"))
    key.update(f"{headers} {stat.st_size} {stat.st_mtime_ns}".encode())
    return key.hexdigest()[:16]


def build():
    """The folder with the libraries; makes it if it is not there. Raises Missing."""
    folder, headers = torch_libraries(), cuda_headers()
    base = os.path.join(_SOURCE, "build", "pretended")
    out = os.path.join(base, _key(folder, headers))
    if os.path.isdir(out):
        return out
    os.makedirs(base, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as made:
        names = wanted(folder)
        if not names["libcudart.so.13"]:
            raise Missing(f"{folder} links no libcudart.so.13")
        for name in LIBRARIES:
            _link(made, name, names[name], headers)
        try:
            os.rename(made, out)
        except OSError:  # somebody else was first
            return out
        os.makedirs(made)
    return out


if __name__ == "__main__":
    print(build())
