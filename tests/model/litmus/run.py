#!/usr/bin/env python3
"""run.py: the litmus shapes of this folder under herd with the PTX model of ptx.bell and ptx.cat.

What each shape forbids must be Never. Then each of its weakenings is tried: one line of its comment,
`weaker THREAD: SOUGHT -> BECOMES = VERDICT`, replaces the first such instruction of that thread.
HERD names herd7, else it is looked for. Exit 77: there is none (docs/memory-order.md says where to get it).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
WEAKER = re.compile(r"^ \* weaker P(\d+): (.+?) -> (.+?) = (Never|Sometimes)")


def verdict(herd, text, scratch):
    file = pathlib.Path(scratch) / "shape.litmus"
    file.write_text(text)
    done = subprocess.run([herd, "-bell", "ptx.bell", "-model", "ptx.cat", str(file)], cwd=HERE,
                          capture_output=True, text=True)
    found = re.search(r"^Observation \S+ (\w+)", done.stdout, re.M)
    return found[1] if found else f"nothing: {done.stderr.strip()}"


def weakened(text, thread, sought, becomes):
    """The shape with the first such instruction of the thread's column replaced."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        columns = line.split("|")
        if line.startswith(" ") and not line.startswith(" *") and thread < len(columns) and \
                sought in columns[thread]:
            columns[thread] = columns[thread].replace(sought, becomes)
            lines[i] = "|".join(columns)
            return "".join(lines)
    sys.exit(f"P{thread} has no {sought}")


def main():
    herd = os.environ.get("HERD") or shutil.which("herd7")
    if not herd:
        print("skipped: herd7 is not installed")
        return 77
    right = True
    with tempfile.TemporaryDirectory() as scratch:
        for file in sorted(HERE.glob("*.litmus")):
            text = file.read_text()
            cases = [("as it is", text, "Never")]
            for line in text.splitlines():
                if found := WEAKER.match(line):
                    thread, sought, becomes, expected = found.groups()
                    cases.append((f"P{thread}: {sought} -> {becomes}",
                                  weakened(text, int(thread), sought, becomes), expected))
            for name, shape, expected in cases:
                got = verdict(herd, shape, scratch)
                right &= got == expected
                print(f"{'ok   ' if got == expected else 'WRONG'} {file.stem:8} {name:60} {got}")
    return 0 if right else 1


sys.exit(main())
