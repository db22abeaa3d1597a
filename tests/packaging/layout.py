#!/usr/bin/env python3
"""layout.py SOURCE_DIR: a struct that can grow names its last bytes, `padding`, which is 0: what older
callers leave in bytes without a name is not. (That fields stay where they are is abi.py's.)"""

import pathlib
import re
import subprocess
import sys


def listed(source, table):
    text = (source / "host/base/structs.h").read_text()
    return re.findall(r"X\((pst_\w+), \d+\)", text.split(f"{table}(X)")[1].split("\n\n")[0])


def last_field(text, struct):
    """Of plain ones, arrays, several of one type, pointers to functions."""
    body = re.search(rf"typedef struct {struct} {{([^}}]*)}} {struct};", text)[1]
    member = [part.strip() for part in body.split(";") if part.strip()][-1]
    return (re.search(r"\(\*(\w+)\)\(", member) or re.search(r"(\w+)\s*(?:\[.*\])?$", member))[1]


def main():
    source = pathlib.Path(sys.argv[1])
    text = "".join(header.read_text() for header in (source / "include/pagestash").glob("*.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    growing = listed(source, "PSTI_GROWING_STRUCTS")
    lines = ["#include <pagestash/pagestash.h>"]
    for struct in growing:
        field = last_field(text, struct)
        end = f"offsetof({struct}, {field}) + sizeof((({struct} *)0)->{field})"
        lines.append(f"_Static_assert({end} == sizeof({struct}), "
                     f'"{struct} ends in padding: name it `padding`");')
    print(f"{len(growing)} structs that can grow")
    return subprocess.run(["cc", "-std=c11", "-I", source / "include", "-x", "c", "-fsyntax-only", "-"],
                          input="\n".join([*lines, ""]), text=True, check=False).returncode


sys.exit(main())
