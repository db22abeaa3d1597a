#!/usr/bin/env python3
"""abi.py SOURCE_DIR [LIBRARY] [--write]: the interface as it is, against abi.xml, that of the last
release (made by --write). What breaks a program that was compiled then has an entry in abi-breaks.txt
and a SONAME of its own; an entry that matches nothing any more is a fault, too. New functions,
enumerators and structs may come, and fields: in reserved words, and at the end of a struct that can grow.

abidiff wants debug information, which a release build has none of: what is looked at is a library of
empty functions, declared as the public headers declare them (the compiler holds the real ones to the
same declarations, packaging.exports has their names), and LIBRARY too where it was built with -g.
Exit 77: no abidiff; 1 where PSTI_TEST_ALL_TOOLS=1, as in .ci/run, says that no tool may be missing."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

# Small, and the same wherever it is made.
WRITE = ("--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--no-elf-needed",
         "--no-architecture", "--no-parameter-names", "--exported-interfaces-only",
         "--drop-private-types", "--type-id-style", "hash")
COMPARE = ("--leaf-changes-only", "--no-added-syms", "--no-corpus-path", "--ignore-soname")


def said(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def version_of(include):
    text = (include / "pagestash/api.h").read_text()
    major, minor = (re.search(rf"^#define PST_VERSION_{part} (\d+)", text, flags=re.M)[1]
                    for part in ("MAJOR", "MINOR"))
    return f"0.{minor}" if major == "0" else major


def declared(include):
    """An empty definition for every declaration; and of every type, since no function takes some."""
    for header in sorted((include / "pagestash").glob("*.h")):
        text = re.sub(r"/\*.*?\*/|^\s*#(?:[^\n]*\\\n)*[^\n]*", " ", header.read_text(),
                      flags=re.S | re.M)
        for declaration in re.findall(r"\bPST_API\b([^;{]*\([^;{]*);", text):
            yield declaration + "{ __builtin_trap(); }\n"
        for name in re.findall(r"^typedef (?:struct|enum) (pst_\w+) {", text, flags=re.M):
            yield f"PST_API void type_{name}({name} *type) {{ (void)type; }}\n"


def described(library, include):
    """Of the library's types only those of the headers."""
    return said("abidw", *WRITE, "--headers-dir", include / "pagestash", library)


def interface(include):
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder, f"libpagestash.so.{version_of(include)}")
        source = "#include <pagestash/pagestash.h>\n" + "".join(declared(include))
        subprocess.run(["cc", "-std=c11", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-I",
                        include, f"-Wl,-soname,{library.name}", "-x", "c", "-", "-o", library],
                       input=source, text=True, check=True)
        return described(library, include)


def structs(corpus):
    """Of each its fields, and in bits where they begin and where the last one ends."""
    for struct in corpus.iter("class-decl"):
        fields = struct.findall("data-member")
        if fields:
            begins = [int(field.get("layout-offset-in-bits")) for field in fields]
            yield struct, fields, [*begins, int(struct.get("size-in-bits"))]


def places(name, fields, bits, growing):
    """Where fields may come, from bit to bit: reserved words; in a struct that can grow also what is
    called padding, and all behind its end."""
    for field, begin, end in zip(fields, bits, bits[1:]):
        called = field.find("var-decl").get("name")
        if called == "reserved" or name in growing and re.fullmatch(r"padding(_\d+)?", called):
            yield begin, end
    if name in growing:
        yield bits[-1], sys.maxsize


def without_growth(base, now, growing):
    """Both without the fields in such places of `base`. (abidiff itself can let appended fields pass,
    but then says nothing of what else changed in that struct.)"""
    if "name='type_" not in now:  # LIBRARY
        base = re.sub(r"<elf-symbol name='type_[^>]*/>|<function-decl name='type_.*?</function-decl>", "",
                      base, flags=re.S)
    base, now = ElementTree.fromstring(base), ElementTree.fromstring(now)
    free = {struct.get("name"): list(places(struct.get("name"), fields, bits, growing))
            for struct, fields, bits in structs(base)}
    for corpus in (base, now):
        for struct, fields, bits in structs(corpus):
            of_it = free.get(struct.get("name"), [])
            for field, at in zip(fields, bits):
                if any(begin <= at < end for begin, end in of_it):
                    struct.remove(field)
            if of_it and of_it[-1][0] < bits[-1] and of_it[-1][1] == sys.maxsize:
                struct.set("size-in-bits", str(of_it[-1][0]))
    for symbol in now.iter("elf-symbol"):  # the version says no more than the SONAME
        symbol.attrib.pop("version", None)
        symbol.attrib.pop("is-default-version", None)
    return [ElementTree.tostring(corpus) for corpus in (base, now)]


def changes(pair, breaks):
    """What abidiff says of two interfaces but for the breaks written down; "" of none."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("base.xml", "now.xml", "breaks.suppr")]
        for file, content in zip(files, (*pair, breaks.encode())):
            file.write_bytes(content)
        command = ["abidiff", *COMPARE, "--suppressions", files[2], *files[:2]]
        done, all_of_it = (subprocess.run(words, text=True, stdout=subprocess.PIPE, check=False)
                           for words in (command, [*command, "--harmless"]))
    if (done.returncode | all_of_it.returncode) & 3:
        raise SystemExit(f"abidiff failed: {done.stdout}{all_of_it.stdout}")
    # To abidiff a new name of a field is harmless.
    names = re.findall(r"^ *name of .* changed to .*\n", all_of_it.stdout, flags=re.M)
    told = done.stdout if done.returncode else ""
    return re.sub(r"^.* summary: .*\n", "", told, flags=re.M).strip("\n") + "".join(names)


def faults(base, now, growing, breaks, version):
    """breaks: the text of abi-breaks.txt."""
    pair = without_growth(base, now, growing)
    changed = changes(pair, breaks)
    if changed:
        yield f"breaks the interface of abi.xml, and is not in abi-breaks.txt:\n{changed}"
    sections = re.split(r"^(?=\[)", breaks, flags=re.M)
    for i, section in enumerate(sections[1:], 1):
        label = re.search(r"^\s*label\s*=\s*(.*)", section, flags=re.M)
        what = label[1] if label else section.strip()
        if not re.match(rf"{re.escape(version)}: \S", what):
            yield f"abi-breaks.txt: not `label = {version}: the reason`: {what}"
        if changes(pair, "".join(sections[:i] + sections[i + 1:])) == changed:
            yield f"abi-breaks.txt: matches nothing: {what}"
    if sections[1:] and f"soname='libpagestash.so.{version}'" in base:
        yield f"abi-breaks.txt: a break needs a version after {version}, which abi.xml is of (api.h)"


def growing_structs(source):
    text = (source / "host/base/structs.h").read_text()
    return re.findall(r"X\((pst_\w+), \d+\)", text.split("PSTI_GROWING_STRUCTS(X)")[1].split("\n\n")[0])


def has_debug_information(library):
    return " .debug_info " in said("readelf", "-SW", library)


def exit_without_abidiff():
    if not shutil.which("abidiff"):
        print("skipped: abidiff is not installed: third_party/install.sh")
        sys.exit(1 if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1" else 77)


def main(source, *options):
    here, include = source / "tests/packaging", source / "include"
    exit_without_abidiff()
    breaks = (here / "abi-breaks.txt").read_text()
    if options == ("--write",):
        (here / "abi.xml").write_text(interface(include))
        (here / "abi-breaks.txt").write_text(breaks.split("\n[")[0].rstrip("\n") + "\n")
        return 0
    subjects = {"the headers": interface(include)}
    for library in options:
        if has_debug_information(library):
            subjects[library] = described(library, include)
    bad = 0
    for name, now in subjects.items():
        for fault in faults((here / "abi.xml").read_text(), now, growing_structs(source), breaks,
                            version_of(include)):
            print(f"{name}: {fault}")
            bad += 1
    print(f"{' and '.join(subjects)} against abi.xml")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
