#!/usr/bin/env python3
"""layout.py SOURCE_DIR [--write]: where every field of every public struct lies, as the compiler has
it, against layout.txt, which is the layout of the last release: written by --write when one is made.
Frozen structs are the same; those that can grow begin as they did. Such a struct also names its last
bytes, `padding`: what older callers leave in bytes without a name is not 0."""

import pathlib
import re
import subprocess
import sys
import tempfile


def listed(source, table):
    text = (source / "host/base/structs.h").read_text()
    return re.findall(r"X\((pst_\w+), \d+\)", text.split(f"{table}(X)")[1].split("\n\n")[0])


def fields_of(body):
    """Names of the members, in order: plain ones, arrays, several of one type, pointers to functions."""
    names = []
    for member in filter(None, (part.strip() for part in body.split(";"))):
        function = re.search(r"\(\*(\w+)\)\(", member)
        names += [function[1]] if function else [re.search(r"(\w+)\s*(?:\[.*\])?$", part)[1]
                                                 for part in member.split(",")]
    return names


def layouts(source, growing):
    """Those that can grow, then all others, which are frozen."""
    text = "".join(header.read_text() for header in sorted((source / "include/pagestash").glob("*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    structs = growing + sorted(set(re.findall(r"typedef struct (pst_\w+) {", text)) - set(growing))
    lines = ["#include <pagestash/pagestash.h>", "#include <stdio.h>", "int main(void) {"]
    for name in structs:
        body = re.search(rf"typedef struct {name} {{([^}}]*)}} {name};", text)[1]
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("  {field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name} *)0)->{field}));" for field in fields_of(body)]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "layout")
        subprocess.run(["cc", "-std=c11", "-I", source / "include", "-x", "c", "-", "-o", program],
                       input="\n".join(lines + ["}"]), text=True, check=True)
        return subprocess.run([program], text=True, check=True, capture_output=True).stdout


def entries(layout):
    """Of each struct its size, and its fields with offset and size."""
    found = re.findall(r"^(pst_\w+) (\d+)\n((?:  .+\n)*)", layout, flags=re.M)
    return {name: (int(size), [tuple(line.split()) for line in fields.splitlines()])
            for name, size, fields in found}


def faults(now, released, growing):
    for name, (size, fields) in now.items():
        old_size, old = released.get(name, (0, []))
        if name in growing and int(fields[-1][1]) + int(fields[-1][2]) != size:
            yield f"{name} ends in padding: name it `padding`"
        if name in growing and old and old[-1][0] == "padding":
            old = old[:-1]  # a small field may have taken its place
        if name in released and (fields[:len(old)] != old or size < old_size or
                                 (name not in growing and (fields, size) != (old, old_size))):
            yield f"{name} is not what layout.txt, the last release, has"
    yield from (f"{name} is gone" for name in released.keys() - now.keys())


def main():
    source = pathlib.Path(sys.argv[1])
    growing = listed(source, "PSTI_GROWING_STRUCTS")
    file = source / "tests/packaging/layout.txt"
    now = layouts(source, growing)
    if sys.argv[2:] == ["--write"]:
        file.write_text(now)
    bad = list(faults(entries(now), entries(file.read_text()), growing))
    print(f"{now.count('pst_')} structs", *bad, sep="\n")
    return 1 if bad else 0


sys.exit(main())
