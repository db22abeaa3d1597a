#!/usr/bin/env python3
"""test_mutants.py SOURCE_DIR: mutants.py finds who survives, and refuses lists that say nothing.

A project of one function and one program that takes GoogleTest's filter is built for it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

MUTANTS = pathlib.Path(sys.argv.pop(1)).resolve() / "tests" / "mutants" / "mutants.py"
PROJECT = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(two_files LANGUAGES C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include_directories(${CMAKE_SOURCE_DIR})
add_library(objects STATIC host/larger.c)
add_subdirectory(tests)
""",
    "tests/CMakeLists.txt": """add_executable(pagestash_tests main.c)
target_link_libraries(pagestash_tests objects)
""",
    "host/larger.h": """static inline int twice(int a)
{
    return 2 * a;
}
int larger(int a, int b);
""",
    "host/larger.c": """#include "host/larger.h"
#define NONE 0
static const int least[] = {NONE,
                            7};
int larger(int a, int b)
{
    int steps = 0;
    while (steps < 3)
        steps++;
    if (steps != 3 || b == least[1])
        return least[1];
    return a > b ? a : b;
}
""",
    "tests/main.c": """#include <stdio.h>
#include <string.h>
#include "host/larger.h"
int main(int argc, char **argv)
{
    const char *const filter = strchr(argv[argc - 1], '=') + 1;
    if (strcmp(filter, "Larger.First") == 0)
        return printf("tests run: 1, passed: 1\\n") < 0 || larger(2, 1) != 2;
    if (strcmp(filter, "Larger.Second") == 0)
        return printf("tests run: 1, passed: 1\\n") < 0 || larger(1, twice(1)) != 2 || larger(9, 7) != 7;
    if (strcmp(filter, "Larger.Fails") == 0)
        return printf("tests run: 1, passed: 0\\n") > 0;
    return printf("tests run: 0, passed: 0\\n") > 0 ? 2 : 0;
}
""",
}
FIRST = "host/larger.c ## return a > b ? @a@ : b; ## b ## Larger.First"
SECOND = "host/larger.c ## a > b ? a : b ## a ## Larger.Second"
SURVIVES = "host/larger.c ## a > b ? a : b ## a ## Larger.First"


class Mutants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        for name, text in PROJECT.items():
            (cls.root / name).parent.mkdir(exist_ok=True)
            (cls.root / name).write_text(text)
        build = cls.root / "build"
        for words in (["cmake", "-S", cls.root, "-B", build, "-G", "Ninja"], ["ninja", "-C", build]):
            subprocess.run(words, check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_lists(self, *options, **lists):
        """Exit status and what is printed, for lists of these lines."""
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            for name, lines in lists.items():
                pathlib.Path(folder, name + ".txt").write_text("\n".join(lines) + "\n")
            done = subprocess.run([sys.executable, MUTANTS, self.root, self.root / "build", "--lists", folder,
                                   *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def refuses(self, line, *said):
        status, text = self.run_lists("--list", room=["# a comment", "", line])
        self.assertEqual(status, 2, text)
        for part in ("room.txt:3: ", *said):
            self.assertIn(part, text)

    def test_all_are_killed(self):
        status, text = self.run_lists(room=[FIRST, SECOND], other=[
            "host/larger.h ## 2 * a ## 3 * a ## Larger.Second",
            "host/larger.c ## if (@steps != 3 || b == least[1]@) ## b == least[1] && b == 0 ## Larger.Second",
            "apart: host/larger.c ## {NONE, 7} ## {7, NONE} ## Larger.Second"])
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"(?m)^room +2 +2 ")
        self.assertRegex(text, r"(?m)^other +3 +3 ")
        self.assertRegex(text, r"(?m)^all +5 +5 ")

    def test_what_an_earlier_run_left_is_not_compiled(self):
        left = self.root / "build" / "mutants" / "together" / "source" / "host" / "larger.h"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("#error left\n")
        status, text = self.run_lists(room=[FIRST])
        self.assertEqual(status, 0, text)

    def test_one_that_survives_fails(self):
        status, text = self.run_lists(room=[FIRST, SURVIVES])
        self.assertEqual(status, 1, text)
        self.assertIn(f"survived: room.txt:2: {SURVIVES}", text)
        self.assertRegex(text, r"(?m)^all +2 +1 ")

    def test_one_that_survives_apart_fails(self):
        line = "host/larger.c ## {NONE, 7} ## {1, 7} ## Larger.Second"
        status, text = self.run_lists(room=["apart: " + line])
        self.assertEqual(status, 1, text)
        self.assertIn(f"survived: room.txt:1: {line}", text)

    def test_one_that_ends_nowhere_is_killed(self):
        status, text = self.run_lists("--limit", "1", room=[
            "host/larger.c ## while (@steps < 3@) ## 1 ## Larger.First"])
        self.assertEqual(status, 0, text)

    def test_a_test_must_pass_without_mutants(self):
        for test in ("Larger.Fails", "Larger.Unknown"):
            status, text = self.run_lists(room=[FIRST.replace("Larger.First", test)])
            self.assertEqual(status, 1, text)
            self.assertIn(f"{test} does not pass without mutants", text)

    def test_lines_that_are_no_mutants(self):
        self.refuses("host/larger.c ## a > b ## a < b", "file, text, replacement and test are wanted")
        self.refuses(FIRST + " ## more", "file, text, replacement and test are wanted")
        self.refuses("host/larger.c ## a > b ##  ## Larger.First", "file, text, replacement and test are wanted")
        self.refuses("host/smaller.c ## a > b ## a < b ## Larger.First", "there is no host/smaller.c")
        self.refuses("host/larger.c ## a >= b ## a < b ## Larger.First", "occurs 0 times: a >= b")
        self.refuses("host/larger.c ## steps ## 1 ## Larger.First", "occurs 4 times: steps")
        self.refuses("host/larger.c ## a > b ## a > b ## Larger.First", "nothing is replaced")
        self.refuses("host/larger.c ## return @a > b ## a < b ## Larger.First", "has no @, or two")
        self.refuses("host/larger.c ## steps++; ## steps-- ## Larger.First", "cannot stand for each other")

    def test_all_wrong_lines_are_named(self):
        status, text = self.run_lists("--list", room=[FIRST, "a", SECOND, "b"])
        self.assertEqual(status, 2)
        self.assertIn("room.txt:2: ", text)
        self.assertIn("room.txt:4: ", text)

    def test_two_that_overlap(self):
        status, text = self.run_lists("--list", room=[
            "host/larger.c ## > b ? a ## < b ? a ## Larger.First",
            "host/larger.c ## a > b ## a < b ## Larger.First"])
        self.assertEqual(status, 2, text)
        self.assertIn("room.txt:2: overlaps with room.txt:1", text)

    def test_only_some(self):
        status, text = self.run_lists("--only", "Larger.Second", room=[FIRST, SECOND])
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"(?m)^all +1 +1 ")
        status, text = self.run_lists("--only", "nothing like it", room=[FIRST])
        self.assertEqual(status, 2, text)


class Changed(unittest.TestCase):
    """Which are taken, of a repository whose last commit changed one file."""

    NUM = 40

    def git(self, *words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root,
                              check=True, capture_output=True, text=True).stdout.strip()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name in ("first", "second"):
            (self.root / f"{name}.c").write_text("".join(f"x{n:02};\n" for n in range(self.NUM)))
            (self.root / f"{name}.txt").write_text("".join(
                f"{name}.c ## x{n:02}; ## ; ## A.B\n" for n in range(self.NUM)))
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "all")

    def tearDown(self):
        self.folder.cleanup()

    def taken(self):
        done = subprocess.run([sys.executable, MUTANTS, self.root, "--list", "--changed", "--lists", self.root],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def change(self, name):
        with open(self.root / name, "a", encoding="utf-8") as file:
            file.write("# more\n" if name.endswith(".txt") else "more;\n")

    def test_without_a_parent_all_are_taken(self):
        self.assertEqual(len(self.taken()), 2 * self.NUM)

    def test_what_the_last_commit_changed_and_some_others(self):
        self.change("first.c")
        self.git("commit", "--quiet", "--all", "--message", "one")
        lines = self.taken()
        self.assertIn(f"{self.NUM} mutants of changed files, 15 of {self.NUM} others", lines)
        self.assertEqual(sum("second.txt:" in line for line in lines), 15)
        self.assertEqual(lines, self.taken())
        self.git("commit", "--quiet", "--amend", "--message", "other")
        self.assertNotEqual(lines, self.taken())

    def test_what_is_not_upstream_yet(self):
        branch = self.git("branch", "--show-current")
        for name in ("first.c", "second.txt"):
            self.change(name)
            self.git("commit", "--quiet", "--all", "--message", name)
        self.assertIn("15 of 40", self.taken()[0])  # by the last commit
        self.git("update-ref", f"refs/remotes/origin/{branch}", "HEAD~2")
        self.git("config", f"branch.{branch}.remote", "origin")
        self.git("config", f"branch.{branch}.merge", f"refs/heads/{branch}")
        self.git("config", "remote.origin.url", ".")
        self.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
        self.assertIn("80 mutants of changed files, 0 of 0 others", self.taken())

    def test_what_is_not_committed_yet(self):
        self.change("first.c")
        self.git("commit", "--quiet", "--all", "--message", "both")
        self.change("second.c")
        self.assertIn("80 mutants of changed files", self.taken()[0])


if __name__ == "__main__":
    unittest.main()
