#!/usr/bin/env python3
"""mutants.py SOURCE_DIR TESTS PTX_DIR SHORT [options]: does the conformance suite notice changed PTX?

Fixed seeds pick instructions of each kernel and architecture that the tests reach, and change one each:
a barrier, wait, store or atomic is gone, a predicate or branch is the other way, an offset, number,
comparison or operation is another, operands are swapped, an order or scope is weaker. TESTS then runs
the conformance suite on the ptx device with that PTX: SHORT, a GoogleTest filter, and for survivors
more of what is about such kernels (LONG). A crash, a failure and a hang are finds. What both miss is
asked of check_orders.py, and counted apart: memory is sequentially consistent here.

A survivor is missed unless equivalent.txt argues why it changes nothing. Exit 1: fewer than 90 % are
found, or an argument fits nothing that survived. Exit 77: no PTX.

--each N       mutants of each kernel (2)
--only TEXT    only those whose line in the table holds TEXT
--seed N       other mutants than those that are held
--after FILE   believes what an earlier run, which was cut off, has printed there of mutants
--unreached    prints how much of each kernel the tests reach, and changes nothing
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gates"))
import check_orders  # noqa: E402

ARCHITECTURES = (80, 90, 100)
WANTED = 0.9
ENTRY = re.compile(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?_Z(?:N\d+_INTERNAL_\w{8}_\d+_\w+?_[0-9a-f]{8})?"
                   r"\d+([a-z]\w*?)(?:_kernel|E)")
STATEMENT = re.compile(r"^(\s*)(?:@(!?)(%p\d+|p)\s+)?([a-z][\w.:]*)(?:\s+(.*?))?;\s*$")
OTHER_OP = {"add": "sub", "sub": "add", "shl": "shr", "and": "or", "or": "and", "xor": "or",
            "min": "max", "max": "min", "div": "rem", "rem": "div", "not": "mov"}
OTHER_COMPARE = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}
OTHER_FLOAT_OP = {"add": "sub", "sub": "add", "abs": "mov", "neg": "mov", "min": "mov", "mul": "add"}
FLOAT = re.compile(r"0f[0-9A-F]{8}")
GONE = ("bar.", "cp.async", "mbarrier.init", "mbarrier.arrive", "st.", "red.", "fence.", "membar.",
        "griddepcontrol.", "call")
LONG = {  # suites, by what begins the names of kernels
    ("reset", "resize", "slab", "step", "check", "expect"):
        "Reset Resize Slab Scrub Status Demand Check Damage DamagedTiers Lost Lifetime",
    ("fill", "verify"): "Pattern Sums Strides",
    ("product",): "Counted",
    ("migrate",): "Migrate DamagedTiers Scrub",
    ("glu",): "Glu GluPages",
    ("stash", "restore"):
        "Tickets Tail Strides Sums Failed Lost Damage Migrate Exhaustion Scrub Graphs Slab Random",
}
TOO_LONG = "-Migrate/*.EveryShare*"
SWAPPED = ("sub", "setp.l", "setp.g", "selp", "shl", "shr", "shf", "div", "rem", "atom.")


def parts_of(operands):
    """Operands, at commas outside brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[(]*[}\])])", operands or "")]


def changes(line):
    """{kind: [line as it becomes]} of one statement."""
    found = collections.defaultdict(list)
    match = STATEMENT.match(line)
    if not match:
        return found
    indent, negated, guard, name, operands = match.groups()
    words, parts = name.split("."), parts_of(operands)
    at = f"@{negated}{guard} " if guard else ""

    def become(kind, new_name=name, new_parts=None, new_at=at):
        text = ", ".join(parts if new_parts is None else new_parts)
        found[kind].append(f"{indent}{new_at}{new_name} \t{text};")

    if name.startswith(GONE) and not name.startswith("st.param"):
        found["gone"].append(f"{indent}// gone")
    if guard and words[0] == "bra":
        become("the other branch", new_at=f"@{'' if negated else '!'}{guard} ")
        found["no branch"].append(f"{indent}// gone")
    elif guard:
        become("the other predicate", new_at=f"@{'' if negated else '!'}{guard} ")
    if words[-1] == "f32":
        if words[0] in OTHER_FLOAT_OP:
            other = OTHER_FLOAT_OP[words[0]]
            become("another operation", f"{other}.f32", parts[:2] if other == "mov" else parts)
        if words[0] == "setp" and words[1] in ("lt", "le", "ltu", "ge"):
            other = {"lt": "ge", "le": "gt", "ltu": "geu", "ge": "lt"}[words[1]]
            become("another comparison", f"setp.{other}.f32")
    elif words[0] in OTHER_OP and len(words) == 2:
        other = OTHER_OP[words[0]]
        if words[1] == "pred" or other not in ("div", "rem") or words[1].startswith("u"):
            become("another operation", ".".join([other, *words[1:]]))
    if words[0] == "setp" and words[1] in OTHER_COMPARE and words[-1] != "f32":
        become("another comparison", ".".join(["setp", OTHER_COMPARE[words[1]], *words[2:]]))
    if name.startswith(SWAPPED) and len(parts) >= 3:
        become("swapped", new_parts=[parts[0], *([parts[1], parts[3], parts[2]] if words[0] == "atom" and
                                                 len(parts) == 4 else
                                                 [parts[2], parts[1], *parts[3:]])])
        if words[0] == "atom" and len(parts) != 4:
            found["swapped"].pop()
    for n, part in enumerate(parts):
        if address := re.fullmatch(r"\[(%r\w+)(?:\+(-?\d+))?\]", part):
            step = (int(re.search(r"(\d+)$", name)[1]) // 8) if re.search(r"\d+$", name) else 8
            for by in (step, -step):
                text = f"[{address[1]}+{int(address[2] or 0) + by}]"
                become("another offset", new_parts=[*parts[:n], text, *parts[n + 1:]])
        elif n and FLOAT.fullmatch(part):
            bits = int(part[2:], 16)
            for other in (bits ^ 1 << 31, bits ^ 1 << 21):  # the other sign, about 25 % more or less
                become("another number", new_parts=[*parts[:n], f"0f{other:08X}", *parts[n + 1:]])
        elif n and re.fullmatch(r"-?\d+", part) and words[0] not in ("cp", "nanosleep", "createpolicy"):
            for by in (1, -1):
                text = str(int(part) + by)
                if not (text[0] == "-" and words[0] in ("bar", "shfl", "vote", "mov", "selp")):
                    become("another number", new_parts=[*parts[:n], text, *parts[n + 1:]])
    for old, new in (("acquire", "relaxed"), ("release", "relaxed"), ("acq_rel", "relaxed"),
                     ("sys", "gpu"), ("gpu", "cta")):
        if old in words and (words[0] not in ("fence", "membar") or new in ("gpu", "cta")):
            become("weaker", ".".join(new if word == old else word for word in words))
    return {kind: [text for text in texts if text.split() != line.split()]
            for kind, texts in found.items()}


class Ptx:
    """The PTX of one architecture, with .loc for check_orders.py, and without."""

    def __init__(self, nvcc, root, architecture, scratch):
        self.architecture = architecture
        self.full = check_orders.compile_ptx(nvcc, root, str(architecture), scratch).splitlines()
        kept = [(n, line) for n, line in enumerate(self.full)
                if not re.match(r"\s*\.(loc|file)\b", line)]
        end = next(n for n, (_, line) in enumerate(kept) if ".section" in line)
        self.at, self.lines = zip(*kept[:end])
        self.kernel = [None] * len(self.lines)  # of each line
        name = None
        for n, line in enumerate(self.lines):
            if match := ENTRY.search(line):
                name = match[1].removeprefix("psti_")
            self.kernel[n] = name
        self.kernels = [name for name in dict.fromkeys(filter(None, self.kernel))
                        if architecture >= 90 or not name.endswith(("_bulk", "_squeeze"))]
        self.faults = check_orders.order_faults("\n".join(self.full), architecture)

    def text(self, line, becomes):
        return "\n".join((*self.lines[:line], becomes, *self.lines[line + 1:])) + "\n"

    def orders_notice(self, line, becomes):
        at = self.at[line]
        full = "\n".join((*self.full[:at], becomes, *self.full[at + 1:]))
        return check_orders.order_faults(full, self.architecture) != self.faults


class Mutant:
    def __init__(self, ptx, line, kind, becomes):
        self.ptx, self.line, self.kind, self.becomes = ptx, line, kind, becomes
        self.kernel = ptx.kernel[line]
        self.found = None

    def key(self):
        """As equivalent.txt has it: which of the kernel's lines with that text, and what it became."""
        text = self.ptx.lines[self.line]
        same = [n for n, line in enumerate(self.ptx.lines)
                if line == text and self.ptx.kernel[n] == self.kernel]
        plain = " ".join(text.split())
        return (f"{self.ptx.architecture} {self.kernel} | {plain} | {same.index(self.line) + 1} of "
                f"{len(same)} | {' '.join(self.becomes.split())}")


def pick(ptx, reached, each, seed):
    """So many of each kernel: first a kind, then an instruction, so that rare kinds are met, too."""
    mutants = []
    for kernel in ptx.kernels:
        choice = random.Random(f"{seed} {ptx.architecture} {kernel}")
        kinds = collections.defaultdict(list)
        for line in sorted(reached):
            if ptx.kernel[line] == kernel:
                for kind, texts in changes(ptx.lines[line]).items():
                    kinds[kind] += [(line, text) for text in texts]
        taken = set()
        for _ in range(each if kinds else 0):
            kind = choice.choice(sorted(kind for kind in kinds if kinds[kind]))
            line, text = choice.choice(kinds[kind])
            if line not in taken:
                mutants.append(Mutant(ptx, line, kind, text))
            taken.add(line)
    return mutants


class Suite:
    """The conformance suite on the ptx device, with some PTX."""

    def __init__(self, tests, short):
        self.tests = tests
        self.filters = {"short": short}
        for kernels, suites in LONG.items():
            wanted = ":".join(f"{suite}/ptx*.*" for suite in suites.split())
            self.filters["long " + kernels[0]] = wanted + TOO_LONG
        self.seconds = {}  # of what is right

    def long_half(self, kernel):
        return "long " + next(names[0] for names in LONG if kernel.startswith(names))

    def device(self, ptx, kernel):
        """The one on which a kernel is tried; what all have in common runs where blocks are smallest."""
        backend = re.search(r"_(ldg|bulk|squeeze)$", kernel)
        small = backend[1] if backend else "squeeze" if ptx.architecture >= 90 else "ldg"
        return f"ptx{ptx.architecture}" + ("" if small == "ldg" else f"_{small}")

    def filter(self, half, device):
        """That half of the suite, on that device alone."""
        wanted, _, without = self.filters[half].partition("-")
        own = [part for part in wanted.replace("/ptx*.", f"/{device}.").split(":")
               if f"/{device}." in part]
        return ":".join(own) + (f"-{without}" if own and without else "")

    def run(self, folder, half, device, limit, reached=None):
        """What it says: "" where all is right."""
        tests = self.filter(half, device)
        if not tests:
            return ""
        environment = dict(os.environ, PSTI_PTX_DIR=str(folder))
        if reached:
            environment["PSTI_PTX_REACHED"] = str(reached)
        try:
            done = subprocess.run(["nice", self.tests, "--source=tests/conformance/", "--gtest_brief=1",
                                   "--gtest_fail_fast", f"--gtest_filter={tests}"],
                                  env=environment, capture_output=True, text=True, timeout=limit,
                                  cwd=folder, errors="replace", check=False)
        except subprocess.TimeoutExpired:
            return f"hangs: more than {limit:.0f} s"
        if done.returncode == 0:
            return ""
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("ptx: ")]
        wrong = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
        return said[0][5:] if said else f"{wrong[1] if wrong else 'exit ' + str(done.returncode)}"


def believe(mutants, half, earlier):
    """Those of the mutants of which the earlier run has not said what that half finds."""
    unknown = []
    for mutant in mutants:
        said = earlier.get((half, mutant.key()))
        if said is None:
            unknown.append(mutant)
        elif said:
            mutant.found = (half.split()[0], "in an earlier run")
    return unknown


def printed_by(path):
    """{(half, key): found} of what try_half has printed to that file."""
    said = {}
    for line in pathlib.Path(path).read_text().splitlines() if path else ():
        if known := re.match(r"(\w+(?: \w+)?): (found|NOT FOUND): (.*)$", line):
            said[known[1], known[3]] = known[2] == "found"
    return said


def try_half(suite, half, mutant, scratch):
    """Runs that half with the mutant; notes and prints what it found, while others run."""
    device = suite.device(mutant.ptx, mutant.kernel)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        pathlib.Path(folder, f"kernels-{mutant.ptx.architecture}.ptx").write_text(
            mutant.ptx.text(mutant.line, mutant.becomes))
        if said := suite.run(folder, half, device, 20 + 4 * suite.seconds[half, device]):
            mutant.found = (half.split()[0], said)
    print(f"{half}: {'found' if said else 'NOT FOUND'}: {mutant.key()}", file=sys.stderr, flush=True)


def try_all(suite, mutants, pool, scratch, earlier):
    """The long half of what survived, by kind of kernel: as it is first, for its seconds."""
    list(pool.map(lambda mutant: try_half(suite, "short", mutant, scratch),
                  believe(mutants, "short", earlier)))
    left = [mutant for mutant in mutants if not mutant.found]
    for half in sorted({suite.long_half(m.kernel) for m in left}):
        mine = believe([m for m in left if suite.long_half(m.kernel) == half], half, earlier)
        look(suite, half, {(m.ptx, suite.device(m.ptx, m.kernel)) for m in mine}, pool, scratch)
        list(pool.map(lambda mutant, half=half: try_half(suite, half, mutant, scratch), mine))
    for mutant in left:
        if not mutant.found and mutant.ptx.orders_notice(mutant.line, mutant.becomes):
            mutant.found = ("orders", "")


def arguments_for_equivalence():
    """{key: why} of equivalent.txt."""
    found, key = {}, None
    for line in (HERE / "equivalent.txt").read_text().splitlines():
        if line.startswith(" "):
            found[key] += line.strip() + " "
        elif line and not line.startswith("#"):
            key = line.strip()
            found[key] = ""
    return found


def look(suite, half, pairs, pool, scratch):
    """{architecture: lines that this half reaches} on pairs of PTX and device; notes its seconds there."""
    reached = collections.defaultdict(set)

    def run_one(pair):
        ptx, device = pair
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            pathlib.Path(folder, f"kernels-{ptx.architecture}.ptx").write_text("\n".join(ptx.lines) + "\n")
            out = pathlib.Path(folder, "reached")
            out.touch()
            begin = time.monotonic()
            said = suite.run(folder, half, device, 3600, out)
            suite.seconds[half, device] = time.monotonic() - begin
            return ptx, device, said, out.read_text()

    for ptx, device, said, lines in pool.map(run_one, sorted(pairs, key=lambda pair: pair[1])):
        if said:
            sys.exit(f"the {half} half fails on {device} as it is: {said}")
        reached[ptx.architecture].update(int(line.split()[1]) - 1 for line in lines.splitlines())
    return reached


def print_reach(ptx, reached):
    for kernel in ptx.kernels:
        lines = [n for n, line in enumerate(ptx.lines)
                 if ptx.kernel[n] == kernel and STATEMENT.match(line)]
        there = sum(n in reached for n in lines)
        print(f"{ptx.architecture:3} {kernel:16} {there:5} of {len(lines):5} instructions reached")


def report(mutants, argued):
    """The table; whether enough are found, and the arguments that fit nothing."""
    count = collections.Counter()
    used = set()
    for mutant in mutants:
        how, said = mutant.found or ("missed", "")
        key = mutant.key()
        if how == "missed" and argued.get(key):
            how = "equivalent"
            used.add(key)
        count[how] += 1
        print(f"{how:10} {mutant.kind:18} {key}" + (f"\n{'':11}{said[:150]}" if said else ""))
    stale = [key for key in argued if key not in used]
    for key in stale:
        print(f"equivalent.txt argues what did not survive: {key}")
    found = count["short"] + count["long"] + count["orders"]
    of = len(mutants) - count["equivalent"]
    print(f"{found} of {of} found ({100 * found / max(of, 1):.1f} %): {count['short']} by the short half, "
          f"{count['long']} by the long one, {count['orders']} by check_orders.py alone; "
          f"{count['equivalent']} equivalent, {count['missed']} missed")
    return found >= WANTED * of and of > 0, stale


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("root", "tests", "ptx_dir", "short"):
        parser.add_argument(name)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after")
    parser.add_argument("--unreached", action="store_true")
    options = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists() or not pathlib.Path(options.ptx_dir, "kernels-90.ptx").exists():
        print("no PTX: nvcc is wanted, and the target kernels_ptx")
        return 77
    root = pathlib.Path(options.root).resolve()
    suite = Suite(str(pathlib.Path(options.tests).resolve()), options.short)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        ptxs = list(pool.map(lambda arch: Ptx(nvcc, root, arch, scratch), ARCHITECTURES))
        pairs = {(ptx, suite.device(ptx, kernel)) for ptx in ptxs for kernel in ptx.kernels}
        reached = look(suite, "short", pairs, pool, scratch)
        if options.unreached:
            for ptx in ptxs:
                print_reach(ptx, reached[ptx.architecture])
            return 0
        mutants = [mutant for ptx in ptxs
                   for mutant in pick(ptx, reached[ptx.architecture], options.each, options.seed)
                   if options.only in f"{mutant.kind} {mutant.key()}"]
        try_all(suite, mutants, pool, scratch, printed_by(options.after))
    print("seconds as it is: " + ", ".join(f"{device} {half} {seconds:.1f}" for (half, device), seconds
                                           in sorted(suite.seconds.items())), file=sys.stderr)
    is_enough, stale = report(mutants, arguments_for_equivalence())
    is_part = options.only or any(getattr(options, name) != parser.get_default(name) for name in ("each", "seed"))
    return 0 if is_enough and (is_part or not stale) else 1


if __name__ == "__main__":
    sys.exit(main())
