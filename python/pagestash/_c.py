"""The C library, loaded: calls that raise, and the check that these bindings are the library's."""
import ctypes
import os

from . import _abi

_HERE = os.path.dirname(os.path.abspath(__file__))


class Error(RuntimeError):
    """What the library, or this package, could not do: one sentence.

    status: the library's name for it, "PST_E_BUSY" say; "" where Python found it."""

    def __init__(self, text, status=""):
        super().__init__(text)
        self.status = status


def library_path():
    """Of libpagestash.so: $PAGESTASH_LIBRARY, else the one that the wheel carries."""
    return os.environ.get("PAGESTASH_LIBRARY") or os.path.join(_HERE, "lib", "libpagestash.so")


def version_text(number):
    """10203 -> "1.2.3"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _load():
    path = library_path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"pagestash: cannot load {path}: {error}; PAGESTASH_LIBRARY may name the "
                          "libpagestash.so of a build") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise ImportError(f"pagestash: {path} has no {name}: it is older than this package")
        function.restype, function.argtypes = result, arguments
    if loaded.pst_version() != _abi.PST_VERSION:
        raise ImportError(f"pagestash: {path} is version {version_text(loaded.pst_version())}, and "
                          f"this package {version_text(_abi.PST_VERSION)}")
    _check_structs(loaded, path)
    return loaded


def _check_structs(loaded, path):
    info = _abi.pst_struct_info()
    for struct in _abi.STRUCTS:
        ours, name = ctypes.sizeof(struct), struct.__name__
        if loaded.pst_struct_find(name.encode(), info) != 0:
            raise ImportError(f"pagestash: {path} has no struct {name}")
        fits = info.first_bytes <= ours <= info.bytes if info.can_grow else ours == info.bytes
        if not fits:
            raise ImportError(f"pagestash: {name} has {ours} bytes here and {info.bytes} in {path}")


lib = _load()


def check(status, what):
    """Raises Error with the library's sentence where status is not PST_OK."""
    if status != 0:
        name = lib.pst_status_name(status).decode()
        text = lib.pst_last_message().decode(errors="replace")
        raise Error(f"{what}: {name}: {text}", name)


def call(name, *arguments):
    """Calls a function that answers a status; Error where that is not PST_OK."""
    status = getattr(lib, name)(*arguments)
    if status != 0:
        check(status, name)


def create(name, *arguments):
    """Calls one whose last parameter gets the handle of what it made; the handle, an int."""
    handle = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle.value


def sized(struct, **fields):
    """A struct that can grow, with its sizes set."""
    out = struct(struct_size=ctypes.sizeof(struct), **fields)
    for name, element in _ELEMENTS.get(struct, ()):
        setattr(out, name, ctypes.sizeof(element))
    return out


def get(name, handle, struct):
    """Calls pst_..._get_..._sized; the struct."""
    out = struct()
    call(name, handle, ctypes.byref(out), ctypes.sizeof(struct))
    return out


_ELEMENTS = {
    _abi.pst_group_config: (("space_bytes", _abi.pst_row_space), ("tensor_bytes", _abi.pst_tensor)),
    _abi.pst_scheduler_config: (("layer_bytes", _abi.pst_layer), ("part_bytes", _abi.pst_part)),
    _abi.pst_simulation_config: (("layer_bytes", _abi.pst_simulated_layer),),
}
