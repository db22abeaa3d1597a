"""Whether the loops of bulk copies of compiled kernels spill, from nvdisasm's text of a cubin.

A loop is what lies between a branch backwards and its target. Of the loops around a bulk copy the first
issues it for each value of its operands in a warp, the second goes from chunk to chunk of a tile: neither may
touch local memory. ptxas says how much a kernel spills, not where.
"""

import glob
import os
import re
import shutil
import subprocess

SECTION = re.compile(r"^\.text\.(\w+):")
LABEL = re.compile(r"^(\.L\w+):")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;")
BRANCH = re.compile(r"\bBRA\S*\s.*`\((\.L\w+)\)")
LOCAL = re.compile(r"^(?:@!?\w+\s+)?(LDL|STL)\b")
LOOPS = 2

PLANTED = """
.text.planted:
.L_tile:
        /*0000*/                   STL [R1], R2 ;
.L_chunk:
        /*0010*/                   LDS R3, [R4] ;
        /*0020*/              @!P0 LDL.64 R2, [R1+0x8] ;
.L_copy:
        /*0030*/                   UBLKCP.S.G [UR4], [UR6], UR5 ;
        /*0040*/               @P1 BRA.U.ANY `(.L_copy) ;
        /*0050*/               @P2 BRA `(.L_chunk) ;
        /*0060*/                   BRA `(.L_tile) ;
"""


def find_nvdisasm(root):
    """NVDISASM, the one of the path, or of an environment of python_venv.py; else None."""
    in_python = glob.glob(str(root / "build/*/lib/python*/site-packages/nvidia/cu13/bin/nvdisasm"))
    return os.environ.get("NVDISASM") or shutil.which("nvdisasm") or next(iter(in_python), None)


def text_of(nvdisasm, cubin):
    return subprocess.run([nvdisasm, "-c", str(cubin)], check=True, capture_output=True, text=True).stdout


def sections_of(text):
    """{kernel: (instructions, {label: index of the next instruction})}."""
    sections, current = {}, None
    for line in text.splitlines():
        if match := SECTION.match(line):
            current = sections[match[1]] = ([], {})
        elif current and (match := LABEL.match(line)):
            current[1][match[1]] = len(current[0])
        elif current and (match := INSTRUCTION.match(line)):
            current[0].append(match[1])
    return sections


def spills_of(instructions, labels):
    """How many bulk copies there are, and the accesses to local memory within their loops."""
    loops, copies, spills = [], 0, set()
    for at, text in enumerate(instructions):
        match = BRANCH.search(text)
        if match and labels.get(match[1], at + 1) <= at:
            loops.append((labels[match[1]], at))
    for at, text in enumerate(instructions):
        if "UBLKCP" not in text:
            continue
        copies += 1
        around = sorted((last - first, first, last) for first, last in loops if first <= at <= last)
        for _, first, last in around[:LOOPS]:
            spills |= {n for n in range(first, last + 1) if LOCAL.match(instructions[n])}
    return copies, [instructions[n] for n in sorted(spills)]


def faults(text):
    """Sentences about the squeeze kernels of a cubin; of nothing but those, the others may not spill."""
    wrong, copies = [], 0
    for kernel, (instructions, labels) in sections_of(text).items():
        if "squeeze" in kernel or kernel == "planted":
            found, spills = spills_of(instructions, labels)
            copies += found
            wrong += [f"{kernel}: {spill} in a loop of bulk copies" for spill in spills]
    return wrong if copies else ["no bulk copy was found in what nvdisasm says"]


def self_test():
    found = faults(PLANTED)
    assert found == ["planted: @!P0 LDL.64 R2, [R1+0x8] in a loop of bulk copies"], found
    assert faults(".text.planted:\n")[0].startswith("no bulk copy")
