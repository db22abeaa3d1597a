#!/usr/bin/env python3
"""check_run.py ROOT: that no check can pass by not running.

tests/run.sh is given tests that pass, fail and are skipped: a skipped one is named with its reason, and fails the
run where PSTI_TEST_ALL_TOOLS is 1, but for those that run.sh names; so does one within a file of unittest. Then Spin, nvcc, relacy and torch are hidden in turn from
what needs them: that must be skipped here, and fail there.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
MODES = ("", "1")


def run(command, all_tools, **variables):
    environment = {**os.environ, "PSTI_TEST_ALL_TOOLS": all_tools, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


def run_tests(tests, all_tools):
    """tests/run.sh over tests by name: shell commands. Answers its exit code and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, command in tests.items():
            lines += [f"add_test({name} sh -c [==[{command}]==])",
                      f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)"]
        pathlib.Path(folder, "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        return run([ROOT / "tests/run.sh", folder], all_tools)


class Runner(unittest.TestCase):
    def test_all_pass(self):
        for mode in MODES:
            status, said = run_tests({"a": "true", "b": "true"}, mode)
            self.assertEqual(status, 0, said)
            self.assertNotRegex(said, r"(?m)^skipped ")

    def test_one_fails(self):
        for mode in MODES:
            self.assertEqual(run_tests({"a": "true", "b": "false"}, mode)[0], 1)

    def test_a_skipped_one_is_named_with_its_reason(self):
        tests = {"a": "true", "b": "echo first; echo no tool; exit 77", "c": "exit 77"}
        status, said = run_tests(tests, "")
        self.assertEqual(status, 0, said)
        self.assertIn("skipped b: no tool\nskipped c: no reason was printed\n", said)
        status, said = run_tests(tests, "1")
        self.assertEqual(status, 1, said)
        self.assertIn("no test may be skipped but model.litmus", said)

    def test_one_of_many_within_an_entry(self):
        for words in ("(skipped=2)", "(expected failures=1, skipped=2)"):
            tests = {"a": f"echo 'OK {words}'", "b": "echo OK"}
            status, said = run_tests(tests, "")
            self.assertEqual(status, 0, said)
            self.assertIn(f"skipped within a: OK {words}\n", said)
            self.assertNotIn("within b", said)
            self.assertEqual(run_tests(tests, "1")[0], 1)

    def test_two_may_be_absent(self):
        tests = {"a": "true", "model.litmus": "echo skipped: herd7 is not installed; exit 77",
                 "tools.peers_triton": "echo no triton: skipped; exit 77"}
        for mode in MODES:
            status, said = run_tests(tests, mode)
            self.assertEqual(status, 0, said)
            self.assertIn("skipped model.litmus: skipped: herd7 is not installed", said)
            self.assertIn("skipped tools.peers_triton: no triton", said)
        self.assertEqual(run_tests({**tests, "model.litmus2": "exit 77"}, "1")[0], 1)


class Hidden(unittest.TestCase):
    """Programs are looked for in a folder that has only what is named."""

    def hidden(self, name, command, programs, **variables):
        with tempfile.TemporaryDirectory() as folder:
            for program, path in programs.items():
                os.symlink(path, pathlib.Path(folder, program))
            test = " ".join([f"PATH={folder}", *(f"{key}={value}" for key, value in variables.items()),
                             *map(str, command)])
            status, said = run_tests({name: test}, "")
            self.assertEqual(status, 0, said)
            self.assertRegex(said, rf"(?m)^skipped {name}: ")
            status, said = run_tests({name: test}, "1")
            self.assertEqual(status, 1, said)

    def test_spin(self):
        self.hidden("model.quick", [ROOT / "tests/model/run.sh", "quick"],
                    {"sh": "/bin/sh", "dirname": "/usr/bin/dirname"})

    def test_nvcc(self):
        for script in ("check_kernels.py", "check_orders.py"):
            self.hidden("gates.kernels", [sys.executable, ROOT / "tests/gates" / script, ROOT], {})
        with tempfile.TemporaryDirectory() as empty:
            self.hidden("gates.clock_model", [sys.executable, ROOT / "tests/gates/check_clock_model.py", ROOT, empty,
                                              "--short"], {})

    def test_torch(self):
        self.hidden("python.quick", ["/bin/sh", ROOT / "tests/python/run.sh", "/", "quick"],
                    {"python3": "/bin/false", "dirname": "/usr/bin/dirname"}, PSTI_TEST_PYTHON="/none")

    def test_relacy(self):
        """What stands in its place where it is not found."""
        stand_in = re.findall(r'"(echo skipped: relacy[^"]*)"', (ROOT / "tests/CMakeLists.txt").read_text())
        self.assertEqual(len(stand_in), 1)
        self.hidden("model.lock", ["sh", "-c", f"'{stand_in[0]}'"], {"sh": "/bin/sh"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
