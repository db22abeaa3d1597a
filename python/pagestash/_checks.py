"""What a caller gave, looked at before it is used: Error, and checks that raise it with one sentence."""
import operator
import os

_MOST_SHOWN = 80  # characters of a value in a sentence


class Error(RuntimeError):
    """What the library, or this package, could not do: one sentence.

    status: the library's name for it, "PST_E_BUSY" say; "" where Python found it."""

    def __init__(self, text, status=""):
        super().__init__(text)
        self.status = status


class Same:
    """Of what never changes and has a handle of the library, or is there once: a copy is the same object."""
    __slots__ = ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class Once(Same):
    """Of what this process alone has."""
    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise Error(f"a {type(self).__name__} belongs to its process: it cannot be pickled")


def shown(value):
    """A value for a sentence: one line, not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def integer(value, what, bits=32):
    """An unsigned integer of so many bits, since ctypes would cut it silently."""
    return within(value, what, 0, (1 << bits) - 1)


def within(value, what, least, most):
    """An integer from `least` to `most`, of any type that is one."""
    try:
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # the last two: of tensors that are no single number
        raise Error(f"{what} {shown(value)}: an integer is wanted") from None
    if not least <= number <= most:
        raise Error(f"{what} {number}: allowed are {least} to {most}")
    return number


def number_of(names, name, what):
    """The index of a name; of a dict its value."""
    try:
        if name in names:
            return names[name] if isinstance(names, dict) else names.index(name)
    except (TypeError, ValueError, RuntimeError):  # a list, an array
        pass
    raise Error(f"{what} {shown(name)}: allowed are {', '.join(map(str, names))}")


def is_a(given, kind, what):
    """The same. Errors: it is of another type."""
    if not isinstance(given, kind):
        raise Error(f"{what}: {type(given).__name__}: a {kind.__name__} is wanted")
    return given


def listed(given, what, wanted="a sequence"):
    """A list of what was given. Errors: it is text, or cannot be listed."""
    if not isinstance(given, (str, bytes)):
        try:
            return list(given)
        except TypeError:
            pass
    raise Error(f"{what} {shown(given)}: {wanted} is wanted")


def path_of(path, what):
    """A file's name as text. Errors: it is none."""
    try:
        path = os.fspath(path)
    except TypeError:
        pass
    if not isinstance(path, str) or not path or "\0" in path:
        raise Error(f"{what}: {shown(path)}: the name of a file is wanted")
    return path
