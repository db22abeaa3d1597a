"""The C library, loaded: calls that raise, and the check that these bindings are the library's."""
import ctypes
import os

from . import _abi
from ._checks import Error, listed, shown, within

_HERE = os.path.dirname(os.path.abspath(__file__))


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
    for name, (result, arguments, _) in _abi.FUNCTIONS.items():
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


def _range_of(ctype):
    """(least, most) of a C integer or an address; None: it is something else."""
    letter = getattr(ctype, "_type_", None)
    if not isinstance(letter, str) or letter not in "bBhHiIlLqQP":
        return None
    bits = 8 * ctypes.sizeof(ctype)
    return (-1 << bits - 1, (1 << bits - 1) - 1) if letter.islower() else (0, (1 << bits) - 1)


def _calls():
    """Of each function: itself; of each argument that is an integer or an address: (index, least, most)."""
    return {name: (getattr(lib, name), tuple((i, *_range_of(ctype)) for i, ctype in enumerate(arguments)
                                             if _range_of(ctype)))
            for name, (_, arguments, _) in _abi.FUNCTIONS.items()}


_CALLS = _calls()


def status_of(name, *arguments):
    """Calls a function; its status. Errors: an integer that C would cut, a value of another type."""
    function, ranges = _CALLS[name]
    for i, least, most in ranges:
        value = arguments[i]
        if type(value) is not int or not least <= value <= most:
            _, types, names = _abi.FUNCTIONS[name]
            arguments = [_fitting(*one, name) for one in zip(arguments, types, names)]
            break
    try:
        return function(*arguments)
    except (ctypes.ArgumentError, TypeError) as error:
        raise Error(f"{name}: {error}") from None


def _fitting(value, ctype, name, where=""):
    """A value that C takes as it is."""
    allowed = _range_of(ctype)
    if allowed is None or ctype is ctypes.c_void_p and not isinstance(value, (int, float, str, bytes)):
        return value  # ctypes looks at its type
    return within(value, f"{where}: {name}" if where else name, *allowed)


def call(name, *arguments):
    """Calls a function that answers a status; Error where that is not PST_OK."""
    status = status_of(name, *arguments)
    if status != 0:
        check(status, name)


def create(name, *arguments):
    """Calls one whose last parameter gets the handle of what it made; the handle, an int."""
    handle = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle.value


def filled(struct, where="", **fields):
    """A struct of these. Errors: an integer that C would cut, a value of another type."""
    out = struct()
    for name, value in fields.items():
        try:
            setattr(out, name, _fitting(value, _FIELDS[struct][name], name, where))
        except TypeError:
            raise Error(f"{where}: {name} {shown(value)}: it is of another type".lstrip(": ")) from None
    return out


def array(ctype, values, what):
    """A C array of integers or addresses. Errors: as of filled."""
    allowed, values = _range_of(ctype), listed(values, what)
    for i, value in enumerate(values):
        if type(value) is not int or not allowed[0] <= value <= allowed[1]:
            values[i] = within(value, f"{what}[{i}]", *allowed)
    return (ctype * len(values))(*values)


def sized(struct, **fields):
    """A struct that can grow, with its sizes set. Errors: as of filled."""
    out = filled(struct, **fields)
    out.struct_size = ctypes.sizeof(struct)
    for name, element in _ELEMENTS.get(struct, ()):
        setattr(out, name, ctypes.sizeof(element))
    return out


def get(name, handle, struct):
    """Calls pst_..._get_..._sized; the struct."""
    out = struct()
    call(name, handle, ctypes.byref(out), ctypes.sizeof(struct))
    return out


_FIELDS = {struct: dict(struct._fields_) for struct in _abi.STRUCTS}
_ELEMENTS = {
    _abi.pst_group_config: (("space_bytes", _abi.pst_row_space), ("tensor_bytes", _abi.pst_tensor)),
    _abi.pst_scheduler_config: (("layer_bytes", _abi.pst_layer), ("part_bytes", _abi.pst_part)),
    _abi.pst_simulation_config: (("layer_bytes", _abi.pst_simulated_layer),),
}
