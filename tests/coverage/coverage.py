#!/usr/bin/env python3
"""coverage.py BUILD_DIR [--json FILE] [--missing ROOM]: what the tests ran of each room, by gcov.

BUILD_DIR was configured with PAGESTASH_COVERAGE, and tests have run in it. A room is a folder of host, kernels
or tools; its headers count where their functions are compiled into one of these objects. A line is covered
where any of its objects ran it. A branch is one way out of a conditional jump, as gcc makes them without
optimisation: `if (a && b)` has four, two for each operand. A file of several objects has a line or branch once.

It fails where a room's lines or branches are below 90 % and explained.txt does not say why, where what it says
is not needed any more, or where a figure is more than a point below the one that stands there; and where a
source file has no line that counts and explained.txt does not name it. --missing prints a room's lines that never ran.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

WANTED = 90.0
SLACK = 1.0  # what threads and deadlines do differs from run to run; so a row may stay this far above, too
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPLAINED = ROOT / "tests/coverage/explained.txt"
ROOM = re.compile(r"(host/\w+|kernels/\w+|tools/\w+|tools|kernels)/[\w.]+\Z")
ROW = re.compile(r"(\S+) +(?:(lines|branches) +(\d+\.\d) %|(no lines)): (\S.*)\Z")


class File:
    """Lines and branches of one source file; a branch is known by its line, its function and its place there."""

    def __init__(self):
        self.lines = collections.Counter()
        self.branches = collections.Counter()

    def add(self, lines):
        for line in lines:
            number = line["line_number"]
            self.lines[number] += line["count"]
            for place, branch in enumerate(line["branches"]):
                self.branches[number, line.get("function_name"), place] += branch["count"]


def gcov(objects):
    """What gcov says about each file that these objects were compiled from."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", *objects],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:  # as after a build that is newer than the last run
        sys.exit(f"gcov: {done.stderr.strip().splitlines()[0]}; delete the build's *.gcda, and run the tests again")
    reports = [json.loads(line) for line in done.stdout.splitlines() if line]
    if len(reports) != len(objects):
        sys.exit(f"gcov gave {len(reports)} reports for {len(objects)} objects: {done.stderr}")
    for report in reports:
        for file in report["files"]:
            yield os.path.join(report["current_working_directory"], file["file"]), file["lines"]


def read_build(build, root):
    """Path in the source, File."""
    objects = sorted(str(path) for path in pathlib.Path(build).rglob("*.gcno"))
    if not any(pathlib.Path(build).rglob("*.gcda")):
        sys.exit(f"{build}: nothing was counted there; configure with --preset coverage, and run tests")
    parts = [objects[i:i + 16] for i in range(0, len(objects), 16)]
    files = collections.defaultdict(File)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for reports in pool.map(lambda part: list(gcov(part)), parts):
            for path, lines in reports:
                path = os.path.relpath(path, root)
                if ROOM.match(path):
                    files[path].add(lines)
    return files


def percent(covered, total):
    return 100.0 * covered / total if total else 100.0


def by_room(files):
    """Room: lines and branches, covered and total."""
    rooms = {}
    for path, file in sorted(files.items()):
        room = rooms.setdefault(ROOM.match(path)[1], {"lines": [0, 0], "branches": [0, 0]})
        for kind, counts in (("lines", file.lines), ("branches", file.branches)):
            room[kind][0] += sum(count > 0 for count in counts.values())
            room[kind][1] += len(counts)
    return rooms


def without_lines(files, root):
    sources = (path for folder in ("host", "kernels/host", "tools") for path in (root / folder).rglob("*.c"))
    return sorted({str(path.relative_to(root)) for path in sources} - set(files))


def read_explained(path):
    """{(room, "lines" or "branches"): percent, (file, "no lines"): None}"""
    explained = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith(("#", " ")):  # a comment, or more of a reason
            continue
        row = ROW.match(line)
        if row is None:
            sys.exit(f"{path}:{number}: '{line}' is none of 'ROOM lines PERCENT %: REASON', "
                     "'ROOM branches PERCENT %: REASON' and 'FILE no lines: REASON'")
        key = row[1], row[2] or row[4]
        if key in explained:
            sys.exit(f"{path}:{number}: a second row for {key[0]} {key[1]}")
        explained[key] = row[3] and float(row[3])
    return explained


def complaints(rooms, absent, explained):
    for room, figures in rooms.items():
        for kind, (covered, total) in figures.items():
            figure = round(percent(covered, total), 1)
            said = explained.pop((room, kind), None)
            if said is None and figure < WANTED:
                yield f"{room}: {figure:.1f} % of {kind} ran, below {WANTED:.0f} %, and nothing explains it"
            elif said is not None and figure >= WANTED + SLACK:
                yield f"{room}: {figure:.1f} % of {kind} ran, which needs no explanation any more"
            elif said is not None and figure < said - SLACK:
                yield f"{room}: {figure:.1f} % of {kind} ran, and {said:.1f} % when that was explained"
    for file in absent:
        if (file, "no lines") in explained:
            del explained[file, "no lines"]
        else:
            yield f"{file}: has no line that counts, and nothing explains it"
    for name, kind in explained:
        yield f"{name} {kind}: is explained, and there is no such thing"


def table(rooms):
    total = {kind: [sum(room[kind][i] for room in rooms.values()) for i in (0, 1)]
             for kind in ("lines", "branches")}
    yield f"{'room':<20}{'lines':>8}{'of':>8}{'%':>8}{'branches':>12}{'of':>8}{'%':>8}"
    for name, room in [*rooms.items(), ("all", total)]:
        (lines, all_lines), (branches, all_branches) = room["lines"], room["branches"]
        yield (f"{name:<20}{lines:>8}{all_lines:>8}{percent(lines, all_lines):>8.1f}"
               f"{branches:>12}{all_branches:>8}{percent(branches, all_branches):>8.1f}")


def missing(files, room, root):
    for path, file in sorted(files.items()):
        if ROOM.match(path)[1] != room:
            continue
        text = (root / path).read_text().splitlines()
        for number, count in sorted(file.lines.items()):
            if count == 0:
                yield f"{path}:{number}: {text[number - 1].strip()}"


def main(arguments, root=ROOT, explained_path=EXPLAINED):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--json")
    parser.add_argument("--missing", metavar="ROOM")
    options = parser.parse_args(arguments)
    files = read_build(options.build, root)
    rooms = by_room(files)
    if options.missing:
        if options.missing not in rooms:
            parser.error(f"--missing {options.missing}: is none of {', '.join(rooms)}")
        print(*missing(files, options.missing, root), sep="\n")
        return 0
    print(*table(rooms), sep="\n")
    absent = without_lines(files, root)
    wrong = list(complaints(rooms, absent, read_explained(explained_path)))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {room: {kind: {"covered": covered, "total": total} for kind, (covered, total) in figures.items()}
             for room, figures in rooms.items()}, indent=2) + "\n")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
