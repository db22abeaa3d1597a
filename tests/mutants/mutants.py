#!/usr/bin/env python3
"""mutants.py SOURCE_DIR [BUILD_DIR] [options]: do the tests notice faults that are put into the source?

Each line of the lists beside this file is one fault (README.md has the form). One build holds all of them: a
fault is a place in the source that reads PSTI_MUTANT, and so the tests run once for each. What cannot be
chosen at run time is compiled apart. BUILD_DIR holds pagestash_tests as it is (target pagestash_tests): only
what depends on a changed file is compiled anew, into BUILD_DIR/mutants.

Exit 1: a mutant survived, or a test fails without any. Exit 2: a line of a list is wrong.

--changed      only mutants whose file or list is changed, and 15 others, drawn by the commit's hash: changed
               since the upstream branch, or where nothing is ahead of that, by the last commit or merge
--only TEXT    only those whose line, or LIST:NUMBER, holds TEXT
--list         prints those and builds nothing
--limit N      seconds after which a test counts as failed (10), or five times what it needs without mutants
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

DRAWN = 15
SEPARATOR = " ## "
COLUMNS = "file, text, replacement and test"
TARGET = "tests/pagestash_tests"
SWITCH = """#include <stdlib.h>
static int psti_mutant;
__attribute__((constructor(101), unused)) static void psti_mutant_read(void)
{
    const char *const text = getenv("PSTI_MUTANT");
    psti_mutant = text ? atoi(text) : 0;
}
"""


class Wrong(Exception):
    """A line of a list that cannot be used, or a build that does not work."""


class Mutant:
    def __init__(self, number, at, line, apart):
        self.number, self.at, self.line, self.apart = number, at, line, apart
        columns = [column.strip() for column in line.split(SEPARATOR)]
        if len(columns) != 4 or not all(columns):
            raise Wrong(f"{at}: {COLUMNS} are wanted, with \"{SEPARATOR}\" between them: {line}")
        self.file, text, self.replacement, self.test = columns
        marks = text.count("@")
        if marks not in (0, 2):
            raise Wrong(f"{at}: a text has no @, or two around what is replaced: {text}")
        parts = text.split("@") if marks else ("", text, "")
        self.text, replaced = text, parts[1].strip()
        self.pattern = "({})({})({})".format(*(r"\s+".join(map(re.escape, re.split(r"\s+", part)))
                                               for part in parts))
        if replaced in ("", self.replacement):
            raise Wrong(f"{at}: nothing is replaced: {text}")
        self.is_statement = replaced.endswith((";", "}"))
        if not apart and self.is_statement != self.replacement.endswith((";", "}")):
            raise Wrong(f"{at}: a statement and an expression cannot stand for each other: {line}")
        self.start = self.end = None  # in the file

    def find(self, source):
        found = list(re.finditer(self.pattern, source))
        if len(found) != 1:
            raise Wrong(f"{self.at}: must occur once in {self.file}, occurs {len(found)} times: {self.text}")
        self.start, self.end = found[0].span(2)

    def around(self):
        """What stands before and behind the text when it can be chosen."""
        if self.is_statement:
            return f"{{ if (psti_mutant == {self.number}) {{ {self.replacement} }} else {{ ", " } }"
        return f"(psti_mutant == {self.number} ? ({self.replacement}) : (", "))"


def read_lists(root, folder):
    mutants, sources, wrong = [], {}, []
    for path in sorted(folder.glob("*.txt")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("# "):
                continue
            try:
                mutants.append(read_line(root, len(mutants) + 1, f"{path.name}:{number}", line, sources))
            except Wrong as what:
                wrong.append(str(what))
    if wrong or not mutants:
        raise Wrong("\n".join(wrong) or f"{folder}: no mutants")
    return mutants, sources


def read_line(root, number, at, line, sources):
    mutant = Mutant(number, at, line.removeprefix("apart: "), line.startswith("apart: "))
    if mutant.file not in sources:
        if not (root / mutant.file).is_file():
            raise Wrong(f"{at}: there is no {mutant.file}")
        sources[mutant.file] = (root / mutant.file).read_text()
    mutant.find(sources[mutant.file])
    return mutant


def switched(source, mutants):
    """The source with all of them, each chosen by its number. The outer of two begins first and ends last."""
    pieces = []
    for n, one in enumerate(mutants):
        for other in mutants[:n]:
            if other.start < one.start < other.end < one.end or one.start < other.start < one.end < other.end:
                raise Wrong(f"{one.at}: overlaps with {other.at}")
        before, behind = one.around()
        length = one.end - one.start
        pieces += [(one.start, 1, -length, one.number, before), (one.end, 0, length, -one.number, behind)]
    text, last = [], 0
    for at, _, _, _, piece in sorted(pieces):
        text += [source[last:at], piece]
        last = at
    return "".join(text) + source[last:]


# ---- which are taken


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def changed_files(root):
    """Since what is upstream, or by the last commit or merge; None: there is nothing to compare with."""
    head = git(root, "rev-parse", "HEAD")
    base = git(root, "merge-base", "HEAD", "@{upstream}") or git(root, "merge-base", "HEAD", "origin/main")
    if base in (None, head):
        base = git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    return base and git(root, "diff", "--name-only", base).splitlines()


def taken(root, folder, mutants):
    files = changed_files(root)
    if files is None:
        return mutants
    changed = [one for one in mutants if one.file in files or
               str((folder / one.at.split(":")[0]).relative_to(root)) in files]
    others = [one for one in mutants if one not in changed]
    draw = random.Random(git(root, "rev-parse", "HEAD")).sample(others, min(DRAWN, len(others)))
    print(f"{len(changed)} mutants of changed files, {len(draw)} of {len(others)} others")
    return sorted(changed + draw, key=lambda one: one.number)


# ---- one build


class Build:
    """pagestash_tests as it is, and how its objects were made."""

    def __init__(self, root, folder):
        self.root, self.folder, self.out = root, folder, folder / "mutants"
        self.link = shlex.split(self.ninja("commands", "-s", TARGET))
        entries = json.loads((folder / "compile_commands.json").read_text())
        commands = {words[words.index("-o") + 1]: words
                    for words in (shlex.split(entry["command"]) for entry in entries)}
        linked = list(self.link)
        for archive in (word for word in self.link if word.endswith(".a") and not word.startswith("/")):
            linked += self.ninja("inputs", archive).split()
        self.commands = {name: commands[name] for name in linked  # nvcc's objects are not run without a GPU
                         if name in commands and not name.endswith(".cu.o")}
        self.uses = collections.defaultdict(list)  # objects, by file
        name = None
        for line in self.ninja("deps").splitlines():
            if not line.startswith(" "):
                name = line.split(":")[0]
            elif name in self.commands:
                self.uses[str((folder / line.strip()).resolve())].append(name)

    def ninja(self, tool, *arguments):
        done = subprocess.run(["ninja", "-C", self.folder, "-t", tool, *arguments], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise Wrong(f"{self.folder}: ninja -t {tool}: {done.stdout}{done.stderr}")
        return done.stdout

    def make(self, name, files, pool):
        """The tests with these files ({path: text}) in the place of the source's."""
        out = self.out / name
        shutil.rmtree(out / "source", ignore_errors=True)  # of an earlier run, with other mutants
        for file, text in files.items():
            path = out / "source" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (out / "switch.h").write_text(SWITCH)
        objects = sorted({user for file in files for user in self.uses[str(self.root / file)]})
        for file in files:
            if not self.uses[str(self.root / file)]:
                raise Wrong(f"{file}: the tests do not use it")
        made = dict(zip(objects, pool.map(lambda one: self.compile(one, out), objects)))
        link = [made.get(word, word) for word in self.link]
        members = [path for one, path in made.items() if one not in self.link]
        first = next(n for n, word in enumerate(link) if word.endswith(".a"))
        link[first:first] = members  # what is defined there is not taken from an archive
        program = str(out / "pagestash_tests")
        link[link.index("-o") + 1] = program
        self.run([word for word in link if word not in (":", "&&")], "link")
        return program, len(objects)

    def compile(self, name, out):
        words = list(self.commands[name])
        source = pathlib.Path(words[words.index("-c") + 1])
        if (other := out / "source" / source.relative_to(self.root)).exists():
            words[words.index("-c") + 1] = str(other)
        path = out / "objects" / (hashlib.sha1(name.encode()).hexdigest()[:12] + ".o")
        path.parent.mkdir(parents=True, exist_ok=True)
        words[words.index("-o") + 1] = str(path)
        words[1:1] = [f"-I{out / 'source'}", "-include", str(out / "switch.h")]
        words += [f"-fmacro-prefix-map={out / 'source'}/=", "-O1", "-w"]
        self.run([*filter(None, [os.environ.get("CMAKE_C_COMPILER_LAUNCHER")]), *words], source)
        return str(path)

    def run(self, words, what):
        # by its manifests ccache does not see that a file now stands before the one it knows of
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "CCACHE_NODIRECT": "1"})
        if done.returncode:
            raise Wrong(f"{what} does not build with the mutants:\n{done.stderr[:3000]}")


# ---- the tests


def run_tests(program, test, number, limit):
    """(exit status, or None after `limit` seconds; seconds; output)"""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("GTEST_", "PSTI_TEST_LONG"))}
    environment["PSTI_MUTANT"] = str(number)
    begin = time.monotonic()
    with subprocess.Popen([program, "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={test}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True, env=environment) as child:
        try:
            output, _ = child.communicate(timeout=limit)
            status = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            status = None
    return status, time.monotonic() - begin, output


def try_all(mutants, programs, limit, pool):
    """Prints who survived, and a table of all. True: none did."""
    pairs = sorted({(programs[one], one.test) for one in mutants if not one.apart} |
                   {(programs[None], one.test) for one in mutants if one.apart})
    plain = {}
    for (_, test), (status, seconds, output) in zip(
            pairs, pool.map(lambda pair: run_tests(*pair, 0, 120), pairs)):
        if status != 0 or not re.search(r"^tests run: [1-9]", output, re.M):
            tail = "\n".join(output.splitlines()[-8:])
            raise Failed(f"{test} does not pass without mutants:\n{tail}")
        plain[test] = max(seconds, plain.get(test, 0))

    def run(one):
        number = 0 if one.apart else one.number
        return one, run_tests(programs[one], one.test, number, max(limit, 5 * plain[one.test]))

    rooms = collections.defaultdict(lambda: [0, 0, 0.0])
    for one, (status, seconds, _) in pool.map(run, mutants):
        room = rooms[one.at.split(".")[0]]
        room[0] += 1
        room[1] += status != 0
        room[2] += seconds
        if status == 0:
            print(f"survived: {one.at}: {one.line}")
    table(rooms)
    return all(room[0] == room[1] for room in rooms.values())


class Failed(Exception):
    """A test that fails without mutants."""


def table(rooms):
    rooms["all"] = [sum(column) for column in zip(*rooms.values())]
    print(f"{'list':12} {'mutants':>8} {'killed':>7} {'seconds':>8}")
    for name, (count, killed, seconds) in rooms.items():
        print(f"{name:12} {count:8} {killed:7} {seconds:8.1f}")


def run(options):
    root, folder = pathlib.Path(options.root).resolve(), pathlib.Path(__file__).resolve().parent
    if options.lists:
        folder = pathlib.Path(options.lists).resolve()
    mutants, sources = read_lists(root, folder)
    for file, text in sources.items():
        switched(text, [one for one in mutants if one.file == file and not one.apart])
    if options.changed:
        mutants = taken(root, folder, mutants)
    mutants = [one for one in mutants if options.only in f"{one.at} {one.line}"]
    if not mutants:
        raise Wrong(f"no mutant has {options.only}")
    if options.list:
        print("\n".join(f"{one.at}: {one.line}" for one in mutants))
        return True
    begin = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    build = Build(root, pathlib.Path(options.build).resolve())
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        together = [one for one in mutants if not one.apart]
        files = {one.file: switched(sources[one.file], [other for other in together if other.file == one.file])
                 for one in together}
        programs, compiled = {None: str(build.folder / TARGET)}, 0
        if together:
            program, compiled = build.make("together", files, pool)
            programs.update({one: program for one in together})
        for one in mutants:
            if one.apart:
                text = sources[one.file]
                text = text[:one.start] + one.replacement + text[one.end:]
                programs[one], count = build.make(f"apart-{one.number}", {one.file: text}, pool)
                compiled += count
        print(f"{compiled} objects compiled in {time.monotonic() - begin:.0f} s")
        return try_all(mutants, programs, options.limit, pool)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("root")
    parser.add_argument("build", nargs="?")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--limit", type=float, default=10)
    parser.add_argument("--lists", help=argparse.SUPPRESS)  # another folder, for the test of this file
    options = parser.parse_args()
    if not options.list and not options.build:
        parser.error("BUILD_DIR is wanted")
    try:
        return 0 if run(options) else 1
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
