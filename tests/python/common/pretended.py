"""A GPU that is pretended: torch runs its CUDA code on a runtime of ours (tests/python/pretended).

    from common import pretended
    pretended.start()      # before torch is imported; skips where it cannot
    import torch           # torch.cuda.is_available() from here

Memory, streams, events, captures and graphs are real, those of the host device of libpagestash.so;
use_as_cuda makes that pagestash's device "cuda", too. Copies and memsets are made, and replayed by
graphs; kernels, and products of matrices, do nothing. So tests move bytes with copy_ between
tensors of one dtype and layout, and zero_."""
import ctypes
import os
import pickle
import sys
import traceback

from common.needs import skip

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pretended")
_runtime = None


def start():
    """Loads the libraries in place of those that torch links, once in a process."""
    global _runtime
    if _runtime is not None:
        return
    if "torch" in sys.modules:
        raise RuntimeError("the pretended GPU must come before torch: use a process of its own")
    sys.path.insert(0, _FOLDER)
    import build  # pylint: disable=import-error,import-outside-toplevel
    sys.path.remove(_FOLDER)
    try:
        folder = build.build()
    except build.Missing as why:
        skip(f"no pretended GPU: {why}")
    from pagestash import _c  # pylint: disable=import-outside-toplevel
    os.environ["PAGESTASH_LIBRARY"] = _c.library_path()  # the runtime opens it, too
    for name in build.LIBRARIES:
        loaded = ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
        _runtime = _runtime or loaded
    for name in ("kernels", "mallocs", "allocated"):
        getattr(_runtime, f"pretended_{name}").restype = ctypes.c_uint64
    _runtime.pretended_missing_name.restype = ctypes.c_char_p
    _runtime.pretended_missing_name.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    _runtime.pretended_device.restype = ctypes.c_void_p
    _runtime.pretended_set_memory.argtypes = [ctypes.c_uint64]


def use_as_cuda():
    """Makes pagestash's device "cuda" the one that torch's streams belong to. It is private to this
    helper that Device.open keeps devices in Device._open."""
    from pagestash import _abi  # pylint: disable=import-outside-toplevel
    from pagestash.pool import Device  # pylint: disable=import-outside-toplevel

    class Pretended(Device):
        """The host device of the runtime, which calls itself cuda."""

        def info(self):
            info = super().info()
            info.kind = _abi.PST_DEVICE_CUDA
            return info

    device = Pretended("host")
    device.name, device.handle = "cuda", _runtime.pretended_device()
    Device._open["cuda", 0] = device
    return device


def missing():
    """Functions that torch called and that are not there: {name: calls}."""
    out, index, calls = {}, 0, ctypes.c_uint64()
    while name := _runtime.pretended_missing_name(index, calls):
        out[name.decode()] = calls.value
        index += 1
    return out


def kernels():
    """How many kernels were launched, also by replays."""
    return _runtime.pretended_kernels()


def mallocs():
    """Calls of cudaMalloc that got memory."""
    return _runtime.pretended_mallocs()


def allocated():
    """Bytes that cudaMalloc gave and that live."""
    return _runtime.pretended_allocated()


def set_memory(num_bytes):
    """Of the device, in all; 8 GiB at first."""
    _runtime.pretended_set_memory(num_bytes)


def in_child(function, *arguments):
    """What the function answers in a child of this process, in which torch has not used CUDA yet:
    what torch allows once in a process can so be tried several times. Raises what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = True, function(*arguments)
        except BaseException:  # pylint: disable=broad-except
            answer = False, traceback.format_exc()
        with os.fdopen(writer, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)  # pylint: disable=protected-access
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    status = os.waitpid(child, 0)[1]
    if status != 0:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    good, answer = pickle.loads(said)
    if not good:
        raise AssertionError(answer)
    return answer


def call(name, *arguments):
    """Calls a function of the runtime; its cudaError_t."""
    return getattr(_runtime, name)(*arguments)
