#!/usr/bin/env python3
"""exports.py SOURCE_DIR LIBRARY: what the shared library exports, what the headers declare, and
the list in exports.txt must be the same. So a change of the interface shows in a diff. Each function
has the version that the SONAME has."""

import pathlib
import re
import subprocess
import sys


def declared(include):
    names = set()
    for header in sorted(include.glob("*.h")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*", " ", header.read_text(), flags=re.S | re.M)
        names.update(re.findall(r"\bPST_API\b[^;(]*?\b(\w+)\s*\(", text))
    return names


def exported(library):
    """name@@VERSION becomes name where the version is right; the version itself is absolute, A."""
    dynamic, symbols = (subprocess.run([*command, library], check=True, text=True,
                                       capture_output=True).stdout
                        for command in (["readelf", "-dW"], ["nm", "-D", "--defined-only"]))
    version = "PAGESTASH_" + re.search(r"SONAME.*\[libpagestash\.so\.([\d.]+)\]", dynamic)[1]
    names = {line.split()[-1].removesuffix(f"@@{version}") for line in symbols.splitlines()}
    return names - {version}


def main():
    source, library = pathlib.Path(sys.argv[1]), sys.argv[2]
    wanted = set((source / "tests/packaging/exports.txt").read_text().split())
    bad = False
    for what, names in (("the headers declare", declared(source / "include/pagestash")),
                        ("the library exports", exported(library))):
        for name in sorted(names ^ wanted):
            bad = True
            print(f"{name}: " + (f"{what} it, exports.txt does not have it" if name in names else
                                 f"exports.txt has it, but not what {what}"))
    print(f"{len(wanted)} functions")
    return 1 if bad or not wanted else 0


sys.exit(main())
