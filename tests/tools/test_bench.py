#!/usr/bin/env python3
"""test_bench.py PAGESTASH_BENCH: what it writes and how it ends. No figure is judged."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

bench = None
ROW_KEYS = {"op", "bytes", "num_sms", "page_size", "pattern", "tensors", "samples", "seconds_min",
            "seconds_median", "seconds_max", "gbps", "share_of_copy", "mismatched_bytes", "anchor"}
ANCHOR_KEYS = {"name", "bytes", "samples", "seconds_min", "seconds_median", "seconds_max", "gbps"}
TOP_KEYS = ["schema_version", "machine", "commit", "driver", "anchors", "rows", "call_cost"]


def run(*arguments):
    return subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=240)


class Bench(unittest.TestCase):
    def check_call_cost(self, cost):
        if cost["unavailable"] is not None:
            self.assertEqual(cost["rows"], [])
            return
        self.assertEqual([row["tensors"] for row in cost["rows"]], [1, 10, 64])
        for row in cost["rows"]:
            self.assertLess(0, row["ns_min"])
            self.assertLessEqual(row["ns_min"], row["ns_median"])

    def check_row(self, row, anchors):
        self.assertEqual(set(row), ROW_KEYS)
        anchor = anchors[row["anchor"]]
        self.assertEqual(set(anchor), ANCHOR_KEYS)
        self.assertEqual(anchor["name"], "memcpy")
        self.assertEqual(anchor["bytes"], row["bytes"])
        self.assertEqual(anchor["samples"], 2 * row["samples"])
        self.assertGreaterEqual(row["samples"], 20)
        self.assertEqual(row["mismatched_bytes"], 0)
        self.assertLess(0, row["seconds_min"])
        self.assertLessEqual(row["seconds_min"], row["seconds_median"])
        self.assertLessEqual(row["seconds_median"], row["seconds_max"])
        self.assertAlmostEqual(row["gbps"] * row["seconds_median"], row["bytes"] * 1e-9, delta=1e-6)
        self.assertLessEqual(anchor["seconds_min"] / row["seconds_max"], row["share_of_copy"])
        self.assertLessEqual(row["share_of_copy"], anchor["seconds_max"] / row["seconds_min"])

    def test_quick_on_host(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            result = run("--device", "host", "--quick", "--json", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(os.listdir(folder), ["report.json"])
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual(list(report), TOP_KEYS)
        self.assertEqual(report["schema_version"], 1)
        self.assertEqual(report["machine"]["device"], "host")
        self.assertIsNone(report["driver"])
        self.check_call_cost(report["call_cost"])
        rows = report["rows"]
        for row in rows:
            self.check_row(row, report["anchors"])
        self.assertEqual({row["op"] for row in rows}, {"stash", "restore"})
        self.assertEqual({row["pattern"] for row in rows}, {"uniform", "hot-expert"})
        self.assertEqual({row["tensors"] for row in rows}, {1, 6, 64})
        lines = result.stdout.splitlines()
        self.assertEqual(sum(line.startswith(("stash ", "restore ")) for line in lines), len(rows))
        self.assertEqual(lines[-1], "mismatched bytes: 0")

    def test_call_cost_alone_on_stdout(self):
        result = run("--call-cost", "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["rows"], [])
        self.check_call_cost(report["call_cost"])

    def test_bad_usage_is_one_line(self):
        for arguments in (["--device", "gpu"], ["--speed"], ["more"], ["--json", ""],
                          ["--json", "/nowhere/report.json"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    bench = sys.argv.pop(1)
    unittest.main()
