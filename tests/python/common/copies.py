"""The copies that a device of the library really makes, in their order: what the scheduler hands to the
device's table is written down on its way (copies.c, built here)."""
import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile

from common.needs import skip

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))


class _Copy(ctypes.Structure):
    _fields_ = [("to", ctypes.c_uint64), ("source", ctypes.c_uint64), ("num_bytes", ctypes.c_uint64)]


@functools.cache
def _build():
    if shutil.which("gcc") is None:
        skip("no gcc")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "copies.so")
        subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I", _ROOT,
                        "-I", os.path.join(_ROOT, "include"), "-o", path, os.path.join(_HERE, "copies.c")],
                       check=True)
        return ctypes.CDLL(path)


@contextlib.contextmanager
def of(device):
    """Of a pagestash.pool.Device. Gives a list, which has (to, source, bytes) of each copy at the end."""
    watcher, out = _build(), []
    watcher.copies_watch(ctypes.c_void_p(device.handle))
    try:
        yield out
    finally:
        watcher.copies_unwatch(ctypes.c_void_p(device.handle))
    made, num = (_Copy * 4096).in_dll(watcher, "copies_made"), ctypes.c_uint32.in_dll(watcher, "copies_num").value
    if num > len(made):
        raise AssertionError(f"{num} copies: more than are written down")
    out.extend((one.to, one.source, one.num_bytes) for one in made[:num])
