#!/usr/bin/env python3
"""layout.py SOURCE_DIR [--write]: where every field of every public struct lies, as the compiler has
it, must be what layout.txt says. So a change shows in a diff: lines may be added at the end of a struct
that can grow, none may change. Such a struct also names its last bytes, `padding`: what older callers
leave in bytes without a name is not 0."""

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


def padded(layout, growing):
    """The growing structs whose last field ends before they do."""
    for entry in re.findall(r"^pst(?:.+\n)(?:  .+\n)*", layout, flags=re.M):
        name, size, *fields = entry.split()
        if name in growing and int(fields[-2]) + int(fields[-1]) != int(size):
            yield name


def main():
    source = pathlib.Path(sys.argv[1])
    growing = listed(source, "PSTI_GROWING_STRUCTS")
    file = source / "tests/packaging/layout.txt"
    now = layouts(source, growing)
    bad = [f"{name} ends in padding: name it `padding`" for name in padded(now, growing)]
    if sys.argv[2:] == ["--write"]:
        file.write_text(now)
    if now != file.read_text():
        bad.append("layout.txt is not the layout; --write writes it, and git diff shows what changed")
    print(f"{now.count('pst_')} structs", *bad, sep="\n")
    return 1 if bad else 0


sys.exit(main())
