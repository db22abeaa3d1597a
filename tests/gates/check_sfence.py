#!/usr/bin/env python3
"""check_sfence.py SOURCE_DIR CC [LIBRARY]: streaming stores are fenced before their function ends.

Disassembles the library. From each streaming store (movnt...) every way through its function must meet
an sfence before it returns or jumps away: nothing else orders these stores on x86, and no test on one
machine is sure to see it. First the gate is tried on kernels/host/copy.h as it is, without its sfence,
and with an sfence that stands in front of the stores. Without LIBRARY that is all.
Exit 77: no x86-64, or no objdump.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

FUNCTION = re.compile(r"^([0-9a-f]+) <(\S+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+((?:(?:bnd|notrack|rep|repz|lock|data16|cs) )*)(\w+)\s*(.*)$")

PLANTED = """
#include <emmintrin.h>
#include <stdint.h>
static inline void real_fence(void) { _mm_sfence(); }
#define _mm_sfence() %s
#include "kernels/host/copy.h"
void planted(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    %s;
    psti_copy(to, from, bytes, bytes);
}
"""
PLANTS = (  # what is in place of the sfence, what stands before the copy, whether it passes
    ("real_fence()", "(void)0", True),
    ("(void)0", "(void)0", False),
    ("(void)0", "real_fence()", False),
)


def functions_of(file):
    """{name: [(address, mnemonic, operands)]}."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(file)], check=True,
                          capture_output=True, text=True).stdout
    functions, current = {}, []
    for line in text.splitlines():
        if head := FUNCTION.match(line):
            current = functions.setdefault(f"{head[2]} at {head[1]}", [])
        elif found := INSTRUCTION.match(line):
            current.append((int(found[1], 16), found[3], found[4]))
    return functions


def unfenced(code):
    """Whether some way from a streaming store leaves the function without an sfence."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    ways = [i + 1 for i, (_, what, _) in enumerate(code) if re.match(r"v?movnt(?!dqa)", what)]
    seen = set()
    while ways:
        i = ways.pop()
        if i in seen:
            continue
        seen.add(i)
        if i >= len(code):
            return True
        _, what, operands = code[i]
        if what in ("sfence", "mfence", "hlt", "ud2"):
            continue
        if what.startswith("ret"):
            return True
        if what.startswith("j"):
            target = re.match(r"([0-9a-f]+)", operands)
            if not target or int(target[1], 16) not in at:
                return True  # to another function, or nobody knows where
            ways.append(at[int(target[1], 16)])
        if what != "jmp":
            ways.append(i + 1)
    return False


def faults(file):
    streams, wrong = 0, []
    for name, code in functions_of(file).items():
        if any(re.match(r"v?movnt(?!dqa)", what) for _, what, _ in code):
            streams += 1
            wrong += [f"{name}: streaming stores, and a way out without sfence"] if unfenced(code) else []
    return wrong or ([] if streams else ["no streaming stores at all"]), streams


def self_test(root, cc, scratch):
    for fence, before, passes in PLANTS:
        source, made = pathlib.Path(scratch) / "planted.c", pathlib.Path(scratch) / "planted.so"
        source.write_text(PLANTED % (fence, before))
        subprocess.run([cc, "-O2", "-w", "-shared", "-fPIC", "-I", str(root), "-o", str(made),
                        str(source)], check=True)
        wrong, streams = faults(made)
        if streams == 0 or bool(wrong) == passes:
            sys.exit(f"planted, {fence} for the sfence and {before} before it: {wrong}")


def main():
    if platform.machine() != "x86_64" or not shutil.which("objdump"):
        print("skipped: no x86-64, or no objdump")
        return 1 if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1" else 77
    with tempfile.TemporaryDirectory() as scratch:
        self_test(pathlib.Path(sys.argv[1]), sys.argv[2], scratch)
    if len(sys.argv) < 4:
        return 0
    wrong, streams = faults(sys.argv[3])
    print("\n".join(wrong) if wrong else f"{streams} functions with streaming stores, all fenced")
    return 1 if wrong else 0


sys.exit(main())
