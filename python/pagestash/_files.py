"""Files that are read and written: what cannot be is an Error with the name of the file."""
import csv
import os

from ._checks import Error, path_of


def read_rows(path, what):
    """The name of a file of comma-separated values in ASCII, and its rows. Errors: it cannot be read, or is
    no such file."""
    path = path_of(path, what)
    try:
        with open(path, encoding="ascii", newline="") as file:
            return path, list(csv.reader(file))
    except OSError as error:
        raise Error(f"{what}: {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Error(f"{what}: {path}: it is no text of comma-separated values: {error}") from None


def write(path, data, what):
    """Writes bytes, in whole or not at all; what is no file, /dev/stdout say, as it comes. Errors: it cannot
    be written."""
    path = os.path.realpath(path_of(path, what))
    temporary = os.path.join(os.path.dirname(path), f".pagestash-{os.getpid()}-{id(data)}")
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                file.write(data)
            return
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise Error(f"{what}: {path}: {error.strerror}") from None
