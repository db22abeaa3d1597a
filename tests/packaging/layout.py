#!/usr/bin/env python3
"""layout.py SOURCE_DIR LIBRARY: the library names each struct that the headers define, with the size
that the compiler gives it, and whether it can grow. One that can names its last bytes, `padding`,
which is 0: what older callers leave in bytes without a name is not. (That fields stay where they are
is abi.py's.)"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile


class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("bytes", ctypes.c_size_t),
                ("first_bytes", ctypes.c_size_t), ("version", ctypes.c_int),
                ("can_grow", ctypes.c_bool), ("padding", ctypes.c_uint8 * 3)]


def bodies(include):
    text = "".join(header.read_text() for header in sorted(include.glob("pagestash/*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return dict(re.findall(r"^typedef struct (pst_\w+) {([^}]*)} \1;", text, flags=re.M))


def last_field(body):
    """Of plain ones, arrays, several of one type, pointers to functions."""
    member = [part.strip() for part in body.split(";") if part.strip()][-1]
    return (re.search(r"\(\*(\w+)\)\(", member) or re.search(r"(\w+)\s*(?:\[.*\])?$", member))[1]


def compiled(include):
    """Of each struct its size, and where its last field ends."""
    lines = [f'printf("%s %zu %zu\\n", "{name}", sizeof({name}), offsetof({name}, {field}) + '
             f"sizeof((({name} *)0)->{field}));"
             for name, body in bodies(include).items() for field in [last_field(body)]]
    head = ["#include <pagestash/pagestash.h>", "#include <stdio.h>", "int main(void) {"]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "sizes")
        subprocess.run(["cc", "-std=c11", "-I", include, "-x", "c", "-", "-o", program], text=True,
                       input="\n".join([*head, *lines, "}"]), check=True)
        out = subprocess.run([program], text=True, check=True, capture_output=True).stdout
    return {name: (int(size), int(end)) for name, size, end in map(str.split, out.splitlines())}


def told(path):
    """What the library says: name -> Info."""
    library = ctypes.CDLL(path)
    infos = [Info() for _ in range(library.pst_struct_count())]
    for i, info in enumerate(infos):
        assert library.pst_struct_get(i, ctypes.byref(info)) == 0
    assert len({info.name for info in infos}) == len(infos)
    return {info.name.decode(): info for info in infos}


def faults(compiler, library):
    for name in sorted(compiler.keys() ^ library.keys()):
        yield f"{name} is in " + ("no list of host/base/structs.h" if name in compiler else
                                  "host/base/structs.h, and in no header")
    for name in sorted(compiler.keys() & library.keys()):
        (size, end), info = compiler[name], library[name]
        if info.bytes != size:
            yield f"{name} has {size} bytes; the library says {info.bytes}"
        if info.can_grow and end != size:
            yield f"{name} ends in padding: name it `padding`"


def main():
    bad = list(faults(compiled(pathlib.Path(sys.argv[1], "include")), library := told(sys.argv[2])))
    print(f"{len(library)} structs", *bad, sep="\n")
    return 1 if bad else 0


sys.exit(main())
