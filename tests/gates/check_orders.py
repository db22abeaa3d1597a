#!/usr/bin/env python3
"""check_orders.py SOURCE_DIR [NVCC] [--write | --self-test | --self-test=N]: memory orders in the kernels' PTX.

orders.txt lists by function which atomics, scopes, fences and proxies the PTX must have, in which
kernels, and why. What is found must be what is listed, no more and no less. check_kernels.py asks
order_faults for each architecture that it compiles.

-lineinfo gives each instruction the calls that it was inlined through. A row is of the nearest
function of kernels/cuda; functions of kernels/core stand behind it: commit_free/psti_lock is the
lock that commit_free takes. `sites` counts places in the source, so that unrolling does not matter.

--write makes the table anew and keeps the reasons of rows that stay. A row without a reason fails.
--self-test weakens ptx.cuh and copies, one order, scope or fence at a time, and wants each found; with N only so
many, which the commit's hash draws, and five at once.
Exit 77: no nvcc.
"""

import collections
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURES = ("80", "90", "100")
TABLE = pathlib.Path(__file__).with_name("orders.txt")
INSTRUCTION = re.compile(
    r"\b((?:ld|st)\.(?:relaxed|acquire|release|volatile|mmio)\b[\w.:]*"
    r"|(?:atom|red|fence|membar|mbarrier|cp\.async|griddepcontrol|multimem)\.[\w.:]+"
    r"(?:\s+\d+(?=\s*;))?)")
LOC = re.compile(r"\.loc\s+(\d+ \d+ \d+)(?:, function_name (\$\w+), inlined_at (\d+ \d+ \d+))?")
HEAD = """\
# What check_orders.py finds in the PTX of the kernels: after a change `check_orders.py . --write`, then a
# reason for each row that is new, and a look at each that is gone.
# function | instruction | sites | sm_ | kernels: stash: all of its backends, stash_ring: bulk and squeeze
#     why it must be there, and need not be stronger
"""


def compile_ptx(nvcc, root, architecture, scratch):
    out = pathlib.Path(scratch) / f"orders-{architecture}.ptx"
    command = [nvcc, "-std=c++17", "-O3", "-lineinfo", "-ptx", f"-arch=compute_{architecture}",
               "-I", str(root), "-I", str(root / "include"), "-o", str(out),
               str(root / "kernels/cuda/launch.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sm_{architecture}: nvcc failed\n{done.stderr}")
    return out.read_text()


def plain_names(mangled):
    """Names of functions without namespace, template and parameters."""
    names = subprocess.run(["c++filt", "-p"], input="\n".join(mangled), text=True,
                           capture_output=True, check=True).stdout.splitlines()
    while any("<" in name for name in names):
        names = [re.sub(r"<[^<>]*>", "", name) for name in names]
    names = [re.sub(r"\(anonymous namespace\)::|_INTERNAL_\w+::", "", name) for name in names]
    return [name.split()[-1] if name else name for name in names]


def inlined_names(ptx):
    """{label: name} of the functions that were inlined."""
    found = {}
    for label, body in re.findall(r"(\$L__info_string\d+):\s*((?:\.b8 [\d,]+\s*)+)", ptx):
        numbers = re.findall(r"\d+", body.replace(".b8", ""))
        found[label] = bytes(map(int, numbers)).rstrip(b"\0").decode()
    return dict(zip(found, plain_names(found.values())))


def place_of(calls, files):
    """The row's function, and where in it the access stands, of calls from the inside out."""
    names, sites = [], []
    for at, name in calls:
        file = files[at.split()[0]]
        if file.endswith("ptx.cuh"):
            continue
        names.append(name)
        sites.append(at)
        if "kernels/core/" not in file:
            break
    return "/".join(reversed(names)), tuple(sites)


def accesses_in(kernel, body, files, inlined):
    """Of one function of the PTX: each access as (function, site, instruction)."""
    calls_at, calls = {}, []
    for line in body.splitlines():
        if loc := LOC.search(line):
            at, label, outer = loc.groups()
            calls = [(at, inlined[label] if label else kernel)]
            if outer:
                calls += calls_at.get(outer, [])
            calls_at[at] = calls
        for found in INSTRUCTION.findall(line.split("//")[0]):
            yield *place_of(calls, files), re.sub(r"\s+", " ", found)


def orders_of(ptx):
    """{(function, instruction, sites): kernels}."""
    files = dict(re.findall(r'\.file\s+(\d+) "([^"]+)"', ptx))
    inlined = inlined_names(ptx)
    parts = re.split(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)", ptx)
    kernels = [name.removesuffix("_kernel") for name in plain_names(parts[1::2])]
    sites = collections.defaultdict(set)
    for kernel, body in zip(kernels, parts[2::2]):
        for function, site, instruction in accesses_in(kernel, body, files, inlined):
            sites[function, instruction, kernel].add(site)
    found = collections.defaultdict(set)
    for (function, instruction, kernel), places in sites.items():
        found[function, instruction, len(places)].add(kernel)
    return found


def short(kernels, architecture):
    """stash for all backends that the architecture has, stash_ring for those with a ring of stages."""
    kernels = set(kernels)
    for op in ("stash", "restore", "migrate"):
        ring = {f"{op}_bulk", f"{op}_squeeze"}
        if architecture < 90 and f"{op}_ldg" in kernels or ring | {f"{op}_ldg"} <= kernels:
            kernels = kernels - ring - {f"{op}_ldg"} | {op}
        elif ring <= kernels:
            kernels = kernels - ring | {f"{op}_ring"}
    return " ".join(sorted(kernels))


def rows_of(ptx, architecture):
    return {(function, instruction, str(sites), short(kernels, architecture))
            for (function, instruction, sites), kernels in orders_of(ptx).items()}


def read_table():
    """[function, instruction, sites, architectures, kernels, why] of each row."""
    rows = []
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    for line in lines:
        if line.startswith(" "):
            rows[-1][5] = (rows[-1][5] + " " + line.strip()).strip()
        elif line and not line.startswith("#"):
            rows.append([*(field.strip() for field in line.split("|")), ""])
    return rows


def order_faults(ptx, architecture):
    """Sentences about accesses that orders.txt does not list, or that are not there."""
    table = read_table()
    wanted = {(row[0], row[1], row[2], row[4]) for row in table
              if row[3] == "all" or str(architecture) in row[3].split()}
    found = rows_of(ptx, architecture)
    wrong = [f"{row[0]}: no reason in orders.txt for {row[1]}" for row in table if not row[5]]
    wrong += [f"{what[0]}: {what[1]} at {what[2]} places in {what[3]} is not in orders.txt"
              for what in sorted(found - wanted)]
    wrong += [f"{what[0]}: no {what[1]} at {what[2]} places in {what[3]}"
              for what in sorted(wanted - found)]
    return wrong


def write_table(found):
    """found: {architecture: rows}."""
    why = {(row[0], row[1]): row[5] for row in read_table()}
    where = collections.defaultdict(list)
    for architecture, rows in found.items():
        for row in rows:
            where[row].append(str(architecture))
    lines = [HEAD]
    for row, archs in sorted(where.items()):
        archs = "all" if len(archs) == len(found) else " ".join(archs)
        lines.append(f"{row[0]} | {row[1]} | {row[2]} | {archs} | {row[3]}\n")
        text, reason = "", why.get(row[:2], "")
        for word in reason.split():
            if len(text) + len(word) > 104:
                lines.append(f"    {text}\n")
                text = ""
            text = f"{text} {word}".strip()
        lines += [f"    {text}\n"] if text else []
        if not reason:
            print(f"no reason yet: {row[0]} | {row[1]}")
    TABLE.write_text("".join(lines))


# (name, file, what is sought, what it becomes): a regular expression each, found at least once.
PTX, BULK = "kernels/cuda/ptx.cuh", "kernels/cuda/paging/bulk.cuh"
WEAKENED = (
    ("acquire loads relaxed", PTX, r'"ld\." #order', '"ld.relaxed"'),
    ("release stores relaxed", PTX, r'"st\." #order', '"st.relaxed"'),
    ("add relaxed, cta", PTX, r'"atom\." #order "\.gpu', '"atom.relaxed.cta'),
    ("add relaxed", PTX, r'"atom\." #order "', '"atom.relaxed'),
    ("cas relaxed, cta", PTX, r'"atom\." order "\.gpu', '"atom.relaxed.cta'),
    ("cas relaxed", PTX, r'"atom\." order "', '"atom.relaxed'),
    ("system fence absent", PTX, r"\\n\\tfence\.acq_rel\.sys;", ""),
    ("system fence of the GPU", PTX, r"fence\.acq_rel\.sys", "fence.acq_rel.gpu"),
    ("loads cta", PTX, r'#order "\.gpu\.global\." #suffix " %0', '#order ".cta.global." #suffix " %0'),
    ("stores cta", PTX, r'#order "\.gpu\.global\." #suffix " \[', '#order ".cta.global." #suffix " ['),
    ("add cta", PTX, r'"atom\." #order "\.gpu', '"atom." #order ".cta'),
    ("cas cta", PTX, r"\.gpu\.global\.cas", ".cta.global.cas"),
    ("sums without result cta", PTX, r"red\.relaxed\.gpu\.global\.add", "red.relaxed.cta.global.add"),
    ("end of a launch relaxed", PTX, r"red\.release\.gpu\.global\.add", "red.relaxed.gpu.global.add"),
    ("or cta", PTX, r"\.gpu\.global\.or", ".cta.global.or"),
    ("system release of the GPU", PTX, r"st\.release\.sys", "st.release.gpu"),
    ("system release relaxed", PTX, r"st\.release\.sys", "st.relaxed.sys"),
    ("system words of the GPU", PTX, r"st\.relaxed\.sys", "st.relaxed.gpu"),
    ("no wait for the launch before", PTX, r"griddepcontrol\.wait;", ""),
    ("no proxy fence behind the copies", BULK, r"(?<=psti_bulk_wait_all\(\);)\s*psti_fence_proxy\(\);",
     ""),
    ("no proxy fence before the copies", BULK, r"(?<=from here on \*/)\s*psti_fence_proxy\(\);", ""),
    ("no proxy fence before a stage is brought again", BULK,
     r"psti_fence_proxy_shared\(\);(?=\s*if \(whole\))", ""),
    ("no proxy fence behind the last odd run", BULK, r"psti_fence_proxy_shared\(\);(?=\s*})", ""),
    ("no wait for memory", PTX, r"cp\.async\.bulk\.wait_group 0;", ""),
    ("no fence of the barriers", PTX, r"fence\.mbarrier_init\.release\.cluster;", ""),
)
AT_ONCE = ("acquire loads relaxed", "release stores relaxed", "add relaxed, cta", "cas relaxed, cta",
           "system fence absent", "end of a launch relaxed")


def weaken(root, names, scratch):
    """A copy of the sources with these weakenings."""
    copy = pathlib.Path(scratch) / "weakened"
    shutil.rmtree(copy, ignore_errors=True)
    for folder in ("kernels", "include"):
        shutil.copytree(root / folder, copy / folder)
    for name, file, sought, becomes in WEAKENED:
        if name in names:
            text, num = re.subn(sought, lambda _: becomes, (copy / file).read_text())
            if num == 0:
                sys.exit(f"{name}: {file} has nothing to weaken")
            (copy / file).write_text(text)
    return copy


def drawn(root, number):
    """So many of WEAKENED, others for another commit; without git always the same."""
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return random.Random(head.stdout).sample(WEAKENED, number)


def self_test(nvcc, root, scratch, weakened):
    # of a sample gates.kernels says that
    if weakened is WEAKENED and order_faults(compile_ptx(nvcc, root, "90", scratch), 90):
        sys.exit("as it is, orders.txt and the PTX differ")
    missed = 0
    for names in [*([row[0]] for row in weakened), AT_ONCE]:
        wrong = order_faults(compile_ptx(nvcc, weaken(root, names, scratch), "90", scratch), 90)
        missed += not wrong
        print(f"{', '.join(names)}: {len(wrong)} faults" if wrong else f"{names}: NOT FOUND")
    return 1 if missed else 0


def main():
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    root = pathlib.Path(words[0]).resolve()
    nvcc = words[1] if len(words) > 1 else shutil.which("nvcc")
    if not nvcc:
        print("no nvcc")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        if options and options[0].startswith("--self-test"):
            number = options[0].partition("=")[2]
            return self_test(nvcc, root, scratch, drawn(root, int(number)) if number else WEAKENED)
        texts = {int(arch): compile_ptx(nvcc, root, arch, scratch) for arch in ARCHITECTURES}
    if "--write" in options:
        write_table({arch: rows_of(ptx, arch) for arch, ptx in texts.items()})
        return 0
    wrong = [f"sm_{arch} {sentence}" for arch, ptx in texts.items()
             for sentence in order_faults(ptx, arch)]
    print("\n".join(wrong) if wrong else f"{len(read_table())} rows of orders.txt hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
