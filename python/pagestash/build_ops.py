"""Builds torch.ops.pagestash.* for the torch that is installed: python -m pagestash.build_ops [FOLDER]

Needs g++ (or $CXX) and torch 2.10 or newer, no nvcc. One binary serves torch 2.10 and all that is newer, and
every Python: the ops use torch's stable interface only."""
import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile

from . import get_include
from ._checks import Error, path_of

NAME = "libpagestash_ops.so"
OLDEST = (2, 10)  # torch: the oldest whose stable interface the ops can use
_HERE = os.path.dirname(os.path.abspath(__file__))
_SOURCES = os.path.join(_HERE, "csrc")


def _torch_version():
    import torch  # pylint: disable=import-outside-toplevel
    return tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def _files(folder, ends):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(ends))


def key():
    """Names what a binary is made of: sources, headers, this file. 16 digits. Errors: one is not there."""
    digest, headers = hashlib.sha256(), os.path.join(get_include(), "pagestash")
    try:
        for path in _files(_SOURCES, (".cpp", ".h")) + _files(headers, ".h") + [os.path.abspath(__file__)]:
            with open(path, "rb") as file:
                digest.update(file.read())
    except OSError as error:
        raise Error(f"build_ops: {error.filename}: {error.strerror}") from None
    return digest.hexdigest()[:16]


def cache_folder():
    """Where a binary of these sources goes when the package's folder is not to be written."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "pagestash", "ops-" + key())


def command(output, flags=()):
    """The compiler's command line. Errors: torch is too old."""
    import torch  # pylint: disable=import-outside-toplevel
    if _torch_version() < OLDEST:
        raise Error(f"build_ops: torch {torch.__version__}; allowed is 2.10 or newer (below, the ops in "
                    "Python serve)")
    root = os.path.dirname(torch.__file__)
    return [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O2", "-fPIC", "-shared",
            "-fvisibility=hidden", "-Wall", "-Wextra",
            f"-DTORCH_TARGET_VERSION=0x{OLDEST[0]:02x}{OLDEST[1]:02x}000000000000ULL",
            # Messages name csrc/ops.cpp and torch/..., not where somebody built it.
            f"-fmacro-prefix-map={_HERE}/=", f"-fmacro-prefix-map={root}/include/=",
            "-I" + get_include(), "-isystem", os.path.join(root, "include"), *flags,
            *_files(_SOURCES, ".cpp"), "-o", output,
            "-L" + os.path.join(root, "lib"), "-ltorch_cpu", "-ldl"]


def _writable(folder):
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def build(output_folder: str = "", flags=()) -> str:
    """Builds the ops into a folder; where none is named into the package's lib/, and where that cannot be
    written into $XDG_CACHE_HOME/pagestash. The path of the binary, which pagestash.torch.ops finds there.

    flags: more of them for the compiler. Errors: Error with the compiler's words, or: torch is too old."""
    folder = path_of(output_folder, "build_ops") if output_folder else os.path.join(_HERE, "lib")
    if not _writable(folder):
        if output_folder:
            raise Error(f"build_ops: cannot write {output_folder}")
        folder = cache_folder()
        os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, NAME)
    handle, partial = tempfile.mkstemp(dir=folder, suffix=".so")  # several may build at once
    os.close(handle)
    try:
        line = command(partial, flags)
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Error(f"build_ops: cannot run {line[0]}: {error.strerror}; $CXX may name a "
                        "compiler") from None
        if done.returncode:
            raise Error(f"build_ops: {line[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        os.chmod(partial, 0o755)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return path


def cached(folder: str) -> str:
    """The binary of these very sources, in a folder of its own below this one; built where it is not there."""
    folder = os.path.join(path_of(folder, "build_ops"), "ops-" + key())
    path = os.path.join(folder, NAME)
    return path if os.path.exists(path) else build(folder)


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m pagestash.build_ops", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="", help="where to; else the package, else a cache")
    parser.add_argument("--cached", action="store_true",
                        help="FOLDER keeps one of each state of the sources: build only what is not there")
    options = parser.parse_args(arguments)
    if options.cached and not options.folder:
        parser.error("--cached wants a FOLDER")
    try:
        print(cached(options.folder) if options.cached else build(options.folder))
    except Error as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
