#!/usr/bin/env python3
"""nvidia_standins.py FOLDER: lets PyPI's CUDA build of torch be imported without NVIDIA's packages.

FOLDER is torch/lib of an installation. Each library of NVIDIA that torch's libraries name and that FOLDER
lacks is made there: the same soname, the functions that torch asks of it, under the same symbol versions.
Every function answers 100, cudaErrorNoDevice, so that torch finds no device and goes on without one.
Packages of NVIDIA are 2.5 GB to download; torch on the CPU needs none of what is in them. Wants gcc and
readelf."""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

NVIDIA = re.compile(r"lib(cu|nccl|nv)")
# Libraries without symbol versions: how the names of their functions begin, mangled or not.
UNVERSIONED = {
    "libnccl": re.compile(r"p?nccl[A-Z]"),
    "libcusparseLt": re.compile(r"cusparseLt[A-Z]"),
    "libcufile": re.compile(r"cuFile[A-Z]"),
    "libnvshmem_host": re.compile(r"(_Z\d+)?nvshmemx?[A-Z_]"),
    "libcupti": re.compile(r"cupti[A-Z]"),
}


def readelf(path, *flags):
    return subprocess.run(["readelf", "--wide", *flags, path], check=True, text=True,
                          capture_output=True).stdout


def needed(path):
    """Sonames of NVIDIA's libraries that a library names."""
    names = re.findall(r"\(NEEDED\).*\[(.+?)\]", readelf(path, "--dynamic"))
    return {name for name in names if NVIDIA.match(name)}


def version_owners(path):
    """Symbol version -> soname of the library that has it."""
    owners, soname = {}, None
    for line in readelf(path, "--version-info").splitlines():
        if match := re.search(r"File: (\S+)", line):
            soname = match[1]
        elif match := re.search(r"Name: (\S+)", line):
            owners[match[1]] = soname
    return owners


def undefined(path):
    """(name, version) of each symbol that a library expects of others; "" where it has no version."""
    for line in readelf(path, "--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) > 7 and fields[6] == "UND":
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@")


def owner_of(name, sonames):
    """The library of a function without a version; None where it is not NVIDIA's."""
    for soname in sonames:
        pattern = UNVERSIONED.get(soname.split(".so")[0])
        if pattern and pattern.match(name):
            return soname
    return None


def wanted(folder):
    """soname -> version -> names of what torch's libraries ask of libraries that are absent."""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in sorted([*folder.glob("libtorch*.so"), *folder.glob("libc10*.so")]):
        if "linalg" in path.name:  # torch loads this one when a GPU first wants it
            continue
        absent = {soname for soname in needed(path) if not (folder / soname).exists()}
        owners = version_owners(path)
        for soname in absent:
            found[soname]  # also where nothing is asked of it: the loader wants the file
        for name, version in undefined(path):
            soname = owners.get(version) if version else owner_of(name, absent)
            if soname in absent:
                found[soname][version].add(name)
    return found


def make(folder, soname, versions):
    """Compiles one library. Names in no version of the script stay global and without one."""
    names = set().union(*versions.values())
    code = "".join(f"long {name}(void) {{ return 100; }}\n" for name in sorted(names))
    script = "".join(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(some))} }};\n"
                     for version, some in versions.items() if version)
    with tempfile.TemporaryDirectory() as temporary:
        source, versioned = pathlib.Path(temporary, "code.c"), pathlib.Path(temporary, "versions")
        source.write_text(code or "int pagestash_nothing_asked;\n")
        versioned.write_text(script)
        flags = [f"-Wl,--version-script,{versioned}"] if script else []
        subprocess.run(["gcc", "-w", "-fno-builtin", "-fPIC", "-shared", source, "-o", folder / soname,
                        f"-Wl,-soname,{soname}", *flags], check=True)
    return len(names)


def make_all(folder):
    """The libraries made: soname -> how many functions."""
    folder = pathlib.Path(folder)
    if not (folder / "libtorch.so").exists():
        sys.exit(f"nvidia_standins.py: {folder} is not torch/lib of an installation: no libtorch.so")
    return {soname: make(folder, soname, versions)
            for soname, versions in sorted(wanted(folder).items())}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    made = make_all(sys.argv[1])
    print(f"{len(made)} libraries, {sum(made.values())} functions: {' '.join(made)}")
