#!/usr/bin/env python3
"""structs.py SOURCE_DIR: structs that can grow, both ways. Builds the library twice, as it is and from
a copy whose growing structs have one more field each, and caller*.c with the headers of each. The older
caller must work with the newer library, which takes what is missing as 0 and writes no more than the
caller has; the newer caller must be refused by the older library, with both sizes and the version."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("include", "kernels", "host", "tests/packaging")
REFUSED = r"(pst_\w+) INVALID: .*: \1 has \d+ bytes in pagestash \d+\.\d+\.\d+, which is older"


def growing(source):
    text = (source / "host/base/structs.h").read_text()
    table = text[text.index("PSTI_GROWING_STRUCTS(X)"):text.index("enum {")]
    return sorted(re.findall(r"X\((pst_\w+), \d+\)", table))


def grow(tree, structs):
    found = []
    for header in (tree / "include/pagestash").glob("*.h"):
        text = header.read_text()
        for name in structs:
            text, count = re.subn(rf"^}} {name};$", f"    uint64_t appended;\n}} {name};", text,
                                  flags=re.M)
            found += [name] * count
        header.write_text(text)
    assert sorted(found) == structs, set(found) ^ set(structs)


def build(tree, cut):
    include = ["-I", tree, "-I", tree / "include"]
    sources = [path for folder in ("host", "kernels/host") for path in (tree / folder).rglob("*.c")
               if "cuda" not in path.name]
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-w", "-shared", "-fPIC", *include, *sources,
                    "-o", tree / "libpagestash.so", "-lm", "-lpthread", "-ldl"], check=True)
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-DCUT={cut}", *include,
                    *(tree / "tests/packaging").glob("caller*.c"), "-o", tree / "caller", "-L", tree,
                    "-lpagestash"], check=True)


def call(caller, library, structs, line):
    done = subprocess.run([caller / "caller"], env={**os.environ, "LD_LIBRARY_PATH": str(library)},
                          text=True, stdout=subprocess.PIPE, check=False)
    lines = done.stdout.splitlines()
    print(f"{caller.name} caller, {library.name} library: {len(lines)} structs", *lines[-1:], sep="; ")
    wrong = [said for said in lines if not re.match(line, said)]
    assert done.returncode == 0 and not wrong, (done.returncode, wrong)
    lines.sort()
    assert [said.split()[0] for said in lines] == structs, "caller*.c do not have every struct"


def main():
    source = pathlib.Path(sys.argv[1])
    structs = growing(source)
    with tempfile.TemporaryDirectory() as folder:
        old, new = pathlib.Path(folder, "old"), pathlib.Path(folder, "new")
        for tree in (old, new):
            for part in FOLDERS:
                shutil.copytree(source / part, tree / part)
        grow(new, structs)
        build(old, 0)
        build(new, 8)
        call(old, old, structs, r"\w+ OK$")
        call(old, new, structs, r"\w+ OK$")
        call(new, old, structs, REFUSED)


main()
