#!/usr/bin/env python3
"""test_coverage.py: coverage.py over a small program of two rooms, compiled and run here."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean

import coverage

SOURCES = {
    "host/one/one.h": """\
static inline int sign(int n)
{
    if (n < 0)
        return -1;
    return 1;
}
int one(int n);
""",
    "host/one/one.c": """\
#include "host/one/one.h"
int one(int n)
{
    return sign(n);
}
""",
    "tools/two.c": """\
#include <unistd.h>
#include "host/one/one.h"
static int both(int a, int b)
{
    if (a > 0 && b > 0)
        return 1;
    return 0;
}
int main(int argc, char **argv)
{
    const int answer = one(-argc) + sign(argc) + both(argc, argc);
    if (argc > 1 && fork() == 0)
        _exit(argv[1][0] == 'c' && both(-1, 1));
    return answer != 1;
}
""",
}
LEAVE = coverage.ROOT / "tests/coverage/leave.c"


def compile_program(root, build):
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    objects = []
    for source in (root / "host/one/one.c", root / "tools/two.c", LEAVE):
        objects.append(f"{source.stem}.o")
        subprocess.run(["gcc", "-O0", "--coverage", f"-I{root}", "-c", source, "-o", objects[-1]], cwd=build,
                       check=True)
    subprocess.run(["gcc", "--coverage", "-Wl,--wrap=_exit", *objects, "-o", "program"], cwd=build, check=True)


class Coverage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root, cls.build = pathlib.Path(folder.name, "source"), pathlib.Path(folder.name, "build")
        cls.build.mkdir()
        compile_program(cls.root, cls.build)

    def setUp(self):
        for path in self.build.glob("*.gcda"):  # as if nothing had run
            path.unlink()

    def run_program(self, *arguments):
        subprocess.run([self.build / "program", *arguments], check=True, timeout=240)

    def report(self, explained="", *arguments):
        """Exit code, and what it printed."""
        path = self.root / "explained.txt"
        path.write_text(explained)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = coverage.main([str(self.build), *arguments], self.root, path)
        return code, said.getvalue()

    def figures(self):
        path = self.build / "figures.json"
        self.report("", "--json", str(path))
        return {(room, kind): (figure["covered"], figure["total"])
                for room, kinds in json.loads(path.read_text()).items() for kind, figure in kinds.items()}

    def test_a_header_counts_once_for_all_its_objects(self):
        self.run_program()
        figures = self.figures()
        # Each object goes one way through sign.
        self.assertEqual(figures["host/one", "lines"], (6, 6))
        self.assertEqual(figures["host/one", "branches"], (2, 2))

    def test_each_condition_has_two_branches(self):
        self.run_program()
        figures = self.figures()
        self.assertEqual(figures["tools", "lines"], (7, 9))  # not `return 0` of both, nor the child's _exit
        self.assertEqual(figures["tools", "branches"], (3, 12))

    def test_a_child_that_ends_by_exit_is_counted(self):
        self.run_program("c")
        figures = self.figures()
        self.assertEqual(figures["tools", "lines"], (9, 9))

    def test_what_is_explained(self):
        self.run_program()
        lines, branches = "tools lines 77.8 %: a reason\n", "tools branches 25.0 %: a reason\n    of two lines\n"
        code, said = self.report(f"# a comment\n{lines}{branches}")
        self.assertEqual((code, said.count("\n")), (0, 4), said)
        for rows, complaint in (
                (lines, "tools: 25.0 % of branches ran, below 90 %, and nothing explains it"),
                (branches, "tools: 77.8 % of lines ran, below 90 %, and nothing explains it"),
                (lines.replace("77.8", "78.9") + branches,
                 "tools: 77.8 % of lines ran, and 78.9 % when that was explained"),
                (lines + branches + "host/one lines 80.0 %: no more\n",
                 "host/one: 100.0 % of lines ran, which needs no explanation any more"),
                (lines + branches + "host/none lines 80.0 %: a reason\n",
                 "host/none lines: is explained, and there is no such thing")):
            code, said = self.report(rows)
            self.assertEqual((code, said.splitlines()[4:]), (1, [complaint]))
        self.assertEqual(self.report(lines.replace("77.8", "78.8") + branches)[0], 0)

    def test_near_the_limit_a_row_may_stand_or_not(self):
        for covered, without, with_row in ((89, 1, 0), (90, 0, 0), (91, 0, 1)):
            rooms = {"tools": {"lines": [covered, 100], "branches": [1, 1]}}
            for rows, wanted in (({}, without), ({("tools", "lines"): 89.5}, with_row)):
                self.assertEqual(len(list(coverage.complaints(rooms, [], rows))), wanted, (covered, rows))

    def test_a_file_without_lines(self):
        self.run_program()
        gpu = self.root / "host/one/gpu.c"
        gpu.write_text("int gpu;\n")
        self.addCleanup(gpu.unlink)
        rows = "tools lines 77.8 %: a reason\ntools branches 25.0 %: a reason\n"
        code, said = self.report(rows)
        self.assertEqual(code, 1)
        self.assertIn("host/one/gpu.c: has no line that counts, and nothing explains it\n", said)
        self.assertEqual(self.report(f"{rows}host/one/gpu.c no lines: a reason\n")[0], 0)

    def test_missing_prints_the_lines(self):
        self.run_program()
        code, said = self.report("", "--missing", "tools")
        self.assertEqual((code, said), (0, "tools/two.c:7: return 0;\n"
                                           "tools/two.c:13: _exit(argv[1][0] == 'c' && both(-1, 1));\n"))

    def test_counts_of_another_build(self):
        self.run_program()
        path = next(self.build.glob("*two.gcda"))
        path.write_bytes(path.read_bytes()[:8] + b"else" + path.read_bytes()[12:])
        with self.assertRaisesRegex(SystemExit, r"gcov: \S*two.gcda:stamp mismatch.*; delete the build's \*\.gcda"):
            self.report()

    def test_what_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "nothing was counted there"):
            self.report()
        self.run_program()
        for row, complaint in (("tools lines 80 %: a reason", "'tools lines 80 %: a reason' is none of"),
                               ("tools lines 80.0 %:", "is none of"), ("tools words 80.0 %: a reason", "is none of"),
                               ("tools lines 80.0 %: a\ntools lines 81.0 %: b", "2: a second row for tools lines")):
            with self.assertRaisesRegex(SystemExit, complaint):
                self.report(row + "\n")


if __name__ == "__main__":
    unittest.main()
