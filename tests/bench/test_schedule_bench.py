#!/usr/bin/env python3
"""test_schedule_bench.py SOURCE PROGRAM: a short run on host, its report, and what goals.py says."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "tools", "common"))
import reports

SHORT = ("--device", "host", "--samples", "3", "--live", "256KiB", "--layers", "3")


def run(*command):
    result = subprocess.run(command, text=True, capture_output=True, timeout=600)
    reports.check_tables(result.stdout)
    return result


class ScheduleBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "report.json")
        self.goals = os.path.join(SOURCE, "bench", "goals.py")

    def report(self, *flags):
        result = run(PROGRAM, *flags, f"--json={self.path}")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(self.path, encoding="utf-8") as file:
            return reports.load(file.read()), result.stdout

    def test_report(self):
        report, text = self.report(*SHORT)
        self.assertEqual((report["schema_version"], report["command"]),
                         (1, "pagestash-schedule-bench"))
        for row in report["hooks"]["rows"]:
            self.assertLess(0, row["hook_ns"]["median"])
            self.assertLess(row["hook_ns"]["min"], row["paged_visit_ns"]["min"])
        self.assertAlmostEqual(report["hooks"]["launches_of_a_visit"], 1, places=1)
        self.assertEqual(report["pure"]["visits"], 2 * 61 * 512)
        self.assertTrue(report["pure"]["scarce_policy_fits"])
        hidden = report["hidden"]
        self.assertEqual(hidden["visits"], 3 * 2 * 8)
        ways = {way["way"]: way for way in hidden["ways"]}
        self.assertEqual(list(ways)[:2], ["nothing kept", "no overlap"])
        self.assertEqual(ways["nothing kept"]["exposed_us_of_a_visit"], 0)
        # 4 micro-batches of 3 layers, of one page each, less those restored early
        self.assertEqual([ways[name]["high_water_pages"] for name in
                          ("rule next, 2 + 2", "2 + 2, one stream", "2 + 3, two streams")],
                         [12, 10, 9])
        for way in ways.values():
            self.assertIn(way["way"], text)
            self.assertTrue(math.isfinite(way["graph_ms"]["median"]))
            if way["simulated_us_of_a_visit"] is not None:
                self.assertEqual(way["high_water_pages"], way["simulated_high_water_pages"])

    def test_goals(self):
        self.report(*SHORT, "--costs")
        result = run(sys.executable, self.goals, self.path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for words in ("S1  ns of a hook", "S4  s to solve", "a goal of GPUs"):
            self.assertIn(words, result.stdout)
        fixed = os.path.join(SOURCE, "tests/data/bench/schedule.json")
        result = run(sys.executable, self.goals, fixed)
        with open(fixed.replace("json", "txt"), encoding="ascii") as file:
            self.assertEqual(result.stdout, file.read())

    def test_refusals(self):
        for flags in (("--samples", "2"), ("--layers", "257"), ("--live", "3"), ("--sampels", "9")):
            self.assertEqual(run(PROGRAM, *flags).returncode, 2)


if __name__ == "__main__":
    SOURCE, PROGRAM = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=0)
