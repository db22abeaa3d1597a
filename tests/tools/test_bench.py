#!/usr/bin/env python3
"""test_bench.py PAGESTASH_BENCH: what it writes and how it ends. No figure is judged."""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

bench = None
MIB = 1 << 20
TIMES = {"samples", "seconds_min", "seconds_median", "seconds_max", "gbps"}
ROW_KEYS = TIMES | {
    "op", "sweep", "state", "bytes", "capacity_bytes", "num_sms", "backend", "page_size", "pages",
    "pool_bytes", "copies", "pattern", "ring", "tensors", "scales", "alignment", "nodes",
    "share_of_a0", "share_of_own_copy", "own_copy", "anchors", "mismatched_bytes"}
ANCHOR_KEYS = TIMES | {"name", "role", "state", "bytes", "num_sms", "nodes", "mismatched_bytes"}
TOP_KEYS = ["schema_version", "machine", "commit", "driver", "clocks", "quick", "a0", "anchors",
            "rows", "skipped", "overlap", "pairs", "call_cost"]
MACHINE_KEYS = {"device", "device_name", "device_bytes", "num_sms", "compute_capability",
                "cache_bytes", "cache_source", "cpu", "num_cpus", "system"}
SWEEPS = ["bytes", "num_sms", "page_size", "ring", "pattern", "tensors", "alignment", "backend",
          "gemm", "pairs"]
GOALS = ["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "H1"]


def run(*arguments):
    return subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=240)


class Bench(unittest.TestCase):
    def report(self, *arguments):
        """Runs on host; the report and the lines of the table."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            result = run("--device", "host", "--json", path, *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr, "")
            self.assertEqual(os.listdir(folder), ["report.json"])
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.check(report)
        return report, result.stdout.splitlines()

    def check(self, report):
        self.assertEqual(list(report), TOP_KEYS)
        self.assertEqual(report["schema_version"], 2)
        self.assertEqual(set(report["machine"]), MACHINE_KEYS)
        self.assertEqual(report["machine"]["device"], "host")
        self.assertIn(report["machine"]["cache_source"], ("sysfs", "sysconf", "assumed"))
        self.assertGreater(report["machine"]["cache_bytes"], 0)
        self.assertIsNone(report["driver"])
        self.assertIsNone(report["clocks"])
        self.check_call_cost(report["call_cost"])
        for anchor in report["anchors"]:
            self.assertEqual(set(anchor), ANCHOR_KEYS)
            self.check_times(anchor)
        a0 = report["anchors"][report["a0"]]
        self.assertEqual((a0["name"], a0["role"], a0["state"]), ("memcpy", "a0", "cold"))
        self.assertGreaterEqual(2 * a0["bytes"], 4 * report["machine"]["cache_bytes"])
        for row in report["rows"]:
            self.check_row(row, report, a0)

    def check_times(self, figures):
        self.assertGreaterEqual(figures["samples"], 20)
        self.assertEqual(figures["mismatched_bytes"], 0)
        self.assertLessEqual(0, figures["seconds_min"])
        self.assertLessEqual(figures["seconds_min"], figures["seconds_median"])
        self.assertLessEqual(figures["seconds_median"], figures["seconds_max"])
        self.assertAlmostEqual(figures["gbps"] * figures["seconds_median"],
                               figures["bytes"] * 1e-9, delta=1e-6)

    def check_row(self, row, report, a0):
        self.assertEqual(set(row), ROW_KEYS)
        self.check_times(row)
        self.assertEqual((row["nodes"], row["num_sms"], row["backend"]), (1, 1, "auto"))
        self.assertLess(row["bytes"], row["capacity_bytes"])
        self.assertEqual(row["pool_bytes"], row["pages"] * row["page_size"] * row["copies"])
        self.assertLessEqual(row["bytes"], row["pages"] * row["page_size"])
        if row["bytes"] == 0:
            self.assertEqual(row["pattern"], "empty")
            self.assertIsNone(row["share_of_a0"])
            self.assertIsNone(row["own_copy"])
            return
        # four caches lie between two uses of a byte, or the buffers were flushed
        moved = 2 * row["bytes"] * row["copies"]
        self.assertTrue(moved >= 4 * report["machine"]["cache_bytes"] or row["copies"] == 256)
        self.assertTrue(math.isclose(row["share_of_a0"], row["gbps"] / a0["gbps"], rel_tol=1e-6))
        own = report["anchors"][row["own_copy"]]
        self.assertEqual((own["name"], own["role"]), ("memcpy", "configuration"))
        self.assertEqual(own["bytes"], row["bytes"])
        self.assertEqual((own["state"], own["samples"]), (row["state"], row["samples"]))
        self.assertLessEqual(own["seconds_min"] / row["seconds_max"], row["share_of_own_copy"])
        self.assertLessEqual(row["share_of_own_copy"], own["seconds_max"] / row["seconds_min"])
        if row["sweep"] in ("bytes", "pattern", "custom"):
            full = report["anchors"][row["anchors"]["full_capacity_copy"]]
            self.assertEqual(full["bytes"], row["capacity_bytes"])

    def check_call_cost(self, cost):
        if cost["unavailable"] is not None:
            self.assertEqual(cost["rows"], [])
            return
        self.assertEqual([row["tensors"] for row in cost["rows"]], [1, 10, 64])
        for row in cost["rows"]:
            self.assertLess(0, row["ns_min"])
            self.assertLessEqual(row["ns_min"], row["ns_median"])

    def test_quick_on_host(self):
        report, lines = self.report("--quick")
        rows = report["rows"]

        def values(key, sweep):
            return {row[key] for row in rows if row["sweep"] == sweep}
        self.assertTrue(report["quick"])
        self.assertEqual({(row["op"], row["state"]) for row in rows},
                         {(op, state) for op in ("stash", "restore") for state in ("cold", "warm")})
        self.assertEqual({row["sweep"] for row in rows},
                         set(SWEEPS) - {"num_sms", "backend", "gemm", "pairs"})
        self.assertLessEqual(64 * MIB - max(values("bytes", "bytes")), MIB)
        self.assertEqual(values("page_size", "page_size"), {4 ** n << 14 for n in range(5)})
        self.assertEqual(values("ring", "ring"), {"fresh", "shuffled", "reversed"})
        self.assertEqual(values("pattern", "pattern"),
                         {"uniform", "zipf", "hot-expert", "empty", "full"})
        self.assertEqual(values("tensors", "tensors"), {1, 6, 64})
        self.assertEqual(values("scales", "tensors"), {True})
        self.assertEqual(values("alignment", "alignment"), {16, 4, 2})
        self.assertEqual({skip["sweep"] for skip in report["skipped"]}, {"num_sms", "backend"})
        for skip in report["skipped"]:
            self.assertIn("host has none", skip["reason"])
        self.assertIn("host", report["overlap"]["unavailable"])
        self.assertEqual(report["overlap"]["rows"], [])
        pairs = report["pairs"]
        self.assertGreaterEqual(pairs.pop("pairs"), 10000)
        self.assertEqual(pairs, {"faults": 0, "check_errors": 0, "moved_pages": 0,
                                 "mismatched_bytes": 0})
        self.check_table(lines, len(rows))

    def check_table(self, lines, num_rows):
        self.assertEqual(sum(line.startswith(("stash ", "restore ")) for line in lines), num_rows)
        goals = lines[lines.index("goals: the worst of this run") + 1:-1]
        self.assertEqual(list(dict.fromkeys(line.split()[0] for line in goals)), GOALS)
        for line in goals:
            self.assertRegex(line, r" reached | missed |not measured here: .")
        self.assertEqual(lines[-1], "mismatched bytes: 0")

    def test_one_configuration(self):
        report, lines = self.report("--quick", "--bytes", "3MiB", "--page-size", "64KiB",
                                    "--tensors", "2", "--pattern", "zipf", "--num-sms", "1",
                                    "--backend", "auto")
        self.assertEqual(len(report["rows"]), 4)
        for row in report["rows"]:
            self.assertEqual((row["sweep"], row["page_size"], row["tensors"], row["pattern"]),
                             ("custom", 64 << 10, 2, "zipf"))
            self.assertLessEqual(abs(row["bytes"] - 3 * MIB), 8192)
        self.assertIsNone(report["pairs"])
        self.assertEqual(report["overlap"]["unavailable"], "not asked for")
        self.check_table(lines, 4)

    def test_sweeps_by_name(self):
        report, _ = self.report("--quick", "--sweep", "tensors,pairs")
        self.assertEqual({row["sweep"] for row in report["rows"]}, {"tensors"})
        self.assertIsNotNone(report["pairs"])
        report, _ = self.report("--quick", "--sweep", "num_sms,backend,gemm")
        self.assertEqual(report["rows"], [])
        self.assertEqual({skip["sweep"] for skip in report["skipped"]}, {"num_sms", "backend"})

    def test_call_cost_alone_on_stdout(self):
        result = run("--call-cost", "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["rows"], [])
        self.assertIsNone(report["a0"])
        self.check_call_cost(report["call_cost"])

    def refused(self, code, *arguments, says=""):
        """One line, nothing on stdout, and no JSON nor part of one."""
        with tempfile.TemporaryDirectory() as folder:
            result = run("--json", os.path.join(folder, "report.json"), *arguments)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(result.returncode, code, arguments)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(says, result.stderr)

    def test_bad_usage_is_one_line(self):
        self.refused(2, "--device", "gpu")
        self.refused(2, "--speed")
        self.refused(2, "more")
        self.refused(2, "--json", "")
        self.refused(2, "--json", "/nowhere/report.json")
        self.refused(2, "--json", "/")
        if os.geteuid() != 0:  # who may write anywhere
            self.refused(2, "--json", "/proc/report.json")
        for flag, value in (("--bytes", "0"), ("--bytes", "1TiB"), ("--tensors", "0"),
                            ("--tensors", "65"), ("--pattern", "odd"), ("--backend", "warp"),
                            ("--num-sms", "-1"), ("--page-size", "8KiB"), ("--page-size", "8MiB"),
                            ("--page-size", "96KiB"), ("--sweep", "speed"), ("--sweep", "ring,"),
                            ("--sweep", "")):
            self.refused(2, "--device", "host", flag, value, says="allowed are")
        self.refused(2, "--sweep", "ring", "--bytes", "1MiB", says="not together")

    def test_what_the_device_lacks(self):
        self.refused(2, "--device", "host", "--num-sms", "2", says="allowed are 0 to 1 on host")
        for backend in ("ldg", "bulk", "squeeze"):
            self.refused(4, "--device", "host", "--backend", backend, says="host has none")
        self.refused(1, "--device", "host", "--bytes", "1024GiB", says="bytes free")

    def test_absent_device(self):
        if run("--device", "cuda", "--sweep", "pairs", "--quick").returncode != 0:
            self.refused(4, "--device", "cuda")


if __name__ == "__main__":
    bench = sys.argv.pop(1)
    unittest.main()
