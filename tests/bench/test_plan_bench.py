#!/usr/bin/env python3
"""test_plan_bench.py PAGESTASH_PLAN_BENCH Short|Long: what it says fits 100 columns, and its report its schema. No
figure is judged."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "tools", "common"))
import reports  # noqa: E402

PROGRAM = sys.argv[1]
SOURCE = pathlib.Path(__file__).resolve().parents[2]  # what it reads without flags lies there


class Reports(unittest.TestCase):
    def check(self, *rows):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report.json")
            for only in rows:
                done = subprocess.run([PROGRAM, "--only", only, "--seeds", "1", "--tilings", "1", "--deadline", "1",
                                       "--peer", "/bin/true", f"--json={path}"], cwd=SOURCE,
                                      capture_output=True, text=True, timeout=600)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 100], [])
                for row in reports.load(path.read_text(encoding="utf-8"))["rows"]:
                    self.assertIn(f"\n{row['name'][:26]} ", f"\n{done.stdout}")


class Short(Reports):
    def test_reader_and_peer(self):
        self.check("reader", "peer")


class Long(Reports):
    def test_derived(self):
        self.check("derived")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
