#!/usr/bin/env python3
"""test_bench.py PAGESTASH_BENCH: what it writes and how it ends. No figure is judged."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

bench = None
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
MIB = 1 << 20
TIMES = {"samples", "seconds_min", "seconds_median", "seconds_max", "gbps"}
ROW_KEYS = TIMES | {
    "op", "sweep", "state", "bytes", "capacity_bytes", "num_sms", "backend", "page_size", "pages",
    "pool_bytes", "copies", "pattern", "ring", "tensors", "scales", "alignment", "nodes",
    "share_of_a0", "share_of_own_copy", "own_copy", "anchors", "mismatched_bytes"}
ANCHOR_KEYS = TIMES | {"name", "role", "state", "bytes", "num_sms", "nodes", "mismatched_bytes"}
TOP_KEYS = ["schema_version", "machine", "commit", "driver", "clocks", "quick", "a0", "anchors",
            "rows", "skipped", "overlap", "host_tier", "pairs", "call_cost"]
HOST_TIER_KEYS = {"bytes", "engine", "sm_copy", "rows", "pin", "recovery"}
HOST_ROW_KEYS = TIMES | {
    "op", "bytes", "pages", "pinned_pages", "pool_pinned_bytes", "part", "offload_num",
    "offload_den", "num_sms", "share_of_engine", "share_of_sm_copy", "mismatched_bytes"}
MACHINE_KEYS = {"device", "device_name", "device_bytes", "num_sms", "compute_capability",
                "cache_bytes", "cache_source", "cpu", "num_cpus", "system"}
SWEEPS = ["bytes", "num_sms", "page_size", "ring", "pattern", "tensors", "alignment", "backend",
          "gemm", "pairs", "host"]
GOALS = ["G1", "G2", "G3", "G4", "G5", "G7", "G8", "G9", "T1", "T2", "T3", "T4", "T5", "G10", "H1"]
# In place of libc's: the last byte of copies of so many bytes comes out wrong.
WRONG_COPIES = """
#include <stdlib.h>
void *memmove(void *to, const void *from, size_t bytes)
{
    static size_t least, most;
    unsigned char *out = to;
    const unsigned char *in = from;
    if (!most) {
        least = strtoull(getenv("WRONG_FROM"), NULL, 10);
        most = strtoull(getenv("WRONG_TO"), NULL, 10);
    }
    if (out < in)
        for (size_t i = 0; i < bytes; i++)
            out[i] = in[i];
    else
        for (size_t i = bytes; i-- > 0;)
            out[i] = in[i];
    if (bytes >= least && bytes <= most)
        out[bytes - 1]++;
    return to;
}
void *memcpy(void *to, const void *from, size_t bytes)
{
    return memmove(to, from, bytes);
}
"""


def run(*arguments, **environment):
    return subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=240,
                          env=dict(os.environ, **environment))


def keys_of(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


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
        if report["host_tier"]:
            self.check_host_tier(report["host_tier"], report["anchors"])

    def check_host_tier(self, tier, anchors):
        self.assertEqual(set(tier), HOST_TIER_KEYS)
        self.assertEqual(tier["sm_copy"], {"to_host": None, "from_host": None})
        for direction, index in tier["engine"].items():
            engine = anchors[index]
            self.assertEqual((engine["name"], engine["role"], engine["bytes"]),
                             ("memcpy", direction, tier["bytes"]))
        for row in tier["rows"]:
            self.assertEqual(set(row), HOST_ROW_KEYS)
            self.check_times(row)
            self.assertIsNone(row["share_of_sm_copy"])
            self.assertEqual(row["pinned_pages"],
                             row["pages"] * row["offload_num"] // row["offload_den"])
            self.assertGreaterEqual(row["pool_pinned_bytes"], row["pinned_pages"] << 18)
            whole = row["offload_num"] == row["offload_den"] and not row["part"]
            self.assertEqual(row["share_of_engine"] is not None, whole)
            if not row["part"]:
                self.assertEqual(row["bytes"], tier["bytes"])
        kinds = {(row["op"], row["part"], row["offload_num"] / row["offload_den"],
                  row["pool_pinned_bytes"]) for row in tier["rows"]}
        pools = [pin["bytes"] for pin in tier["pin"]]
        part = next(row["pool_pinned_bytes"] for row in tier["rows"] if row["part"])
        self.assertEqual(kinds, {(op, is_part, share, pool) for op in ("stash", "restore")
                                 for is_part, shares, sizes in ((False, (1, 0.5), pools),
                                                                (True, (1, 0), [part]))
                                 for share in shares for pool in sizes})
        self.assertEqual(len(pools), 2)
        recovery = tier["recovery"]
        self.assertIsNone(recovery["unavailable"])
        self.assertEqual(recovery["mismatched_bytes"], 0)
        self.assertGreaterEqual(recovery["samples"], 20)
        self.assertLess(0, recovery["seconds_min"])
        self.assertLessEqual(recovery["seconds_median"], recovery["seconds_max"])

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
                         set(SWEEPS) - {"num_sms", "backend", "gemm", "pairs", "host"})
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
        self.assertIsNotNone(report["host_tier"])
        self.check_documented(report)
        pairs = report["pairs"]
        self.assertGreaterEqual(pairs.pop("pairs"), 10000)
        self.assertEqual(pairs, {"faults": 0, "check_errors": 0, "moved_pages": 0,
                                 "mismatched_bytes": 0})
        self.check_table(lines, len(rows) + len(report["host_tier"]["rows"]))

    def check_documented(self, report):
        """Also what no report of host holds: the keys that stand in the source."""
        text = (BENCH / "README.md").read_text(encoding="utf-8")
        source = "".join(path.read_text(encoding="utf-8") for path in BENCH.glob("json_*.c"))
        keys = keys_of(report) | set(re.findall(r'\bset\w*\(&?\w+, "(\w+)"', source))
        self.assertIn("start_delay_seconds", keys)
        self.assertEqual({key for key in keys if f"`{key}`" not in text}, set())

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
        self.assertIsNone(report["host_tier"])
        self.assertEqual(report["overlap"]["unavailable"], "not asked for")
        self.check_table(lines, 4)

    def test_sweeps_by_name(self):
        report, _ = self.report("--quick", "--sweep", "tensors,pairs")
        self.assertEqual({row["sweep"] for row in report["rows"]}, {"tensors"})
        self.assertIsNotNone(report["pairs"])
        report, _ = self.report("--quick", "--sweep", "num_sms,backend,gemm")
        self.assertEqual(report["rows"], [])
        self.assertEqual({skip["sweep"] for skip in report["skipped"]}, {"num_sms", "backend"})

    def wrong(self, least, most, *arguments):
        """A run in which copies of so many bytes go wrong: its report."""
        with tempfile.TemporaryDirectory() as folder:
            source, library, path = (os.path.join(folder, name)
                                     for name in ("wrong.c", "wrong.so", "report.json"))
            pathlib.Path(source).write_text(WRONG_COPIES, encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", "-O3", "-fno-builtin",
                            "-fno-tree-loop-distribute-patterns", "-o", library, source],
                           check=True)
            arguments = arguments or ("--bytes", "3MiB")
            result = run("--device", "host", "--quick", "--json", path, *arguments,
                         LD_PRELOAD=library, WRONG_FROM=str(least), WRONG_TO=str(most))
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"^pagestash-bench: [1-9]\d* bytes differ\n$")
            with open(path, encoding="utf-8") as file:
                return json.load(file)

    def test_wrong_bytes_are_seen(self):
        if b"__asan_init" in (program := pathlib.Path(bench).read_bytes()) or \
                b"__tsan_init" in program:
            return  # a sanitizer has its own

        def differing(report):
            return ({anchor["name"] + " " + anchor["role"] for anchor in report["anchors"]
                     if anchor["mismatched_bytes"]},
                    any(row["mismatched_bytes"] for row in report["rows"]))
        anchors = {"memcpy configuration", "full_capacity_copy configuration"}
        self.assertEqual(differing(self.wrong(16 << 10, 1 << 20)), (set(), True))
        self.assertEqual(differing(self.wrong(2 << 20, 8 << 20)), (anchors, False))
        self.assertEqual(differing(self.wrong(200 << 20, 1 << 40)), ({"memcpy a0"}, False))
        self.assertEqual(differing(self.wrong(10 << 20, 20 << 20, "--sweep", "host"))[0],
                         {"memcpy to_host", "memcpy from_host"})
        tier = self.wrong(16 << 10, 1 << 20, "--sweep", "host")["host_tier"]
        self.assertTrue(all(row["mismatched_bytes"] for row in tier["rows"]))
        self.assertTrue(tier["recovery"]["mismatched_bytes"])

    def test_goals_of_a_known_report(self):
        """The worst figure of each goal, whether that is enough, and where it stood."""
        program = pathlib.Path(bench).parents[1] / "bench" / "pagestash_bench_goals"
        result = subprocess.run([program], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()[2:]
        goals = [(line.split()[0], float(match[1]), match[2], match[3].strip()) for line in lines
                 if (match := re.search(r" ([-\d.]+) \([<>].*\) (reached|missed)(.*)", line))]
        self.assertEqual(goals, [
            ("G1", 0.951, "reached", "restore of 512 MiB"),
            ("G1", 0.92, "missed", "stash of 256 MiB"),
            ("G1", 0.84, "missed", "stash of 64 MiB"),
            ("G1", 0.66, "reached", "restore of 16 MiB"),
            ("G2", 1.053, "missed", "restore, bytes, 64 MiB, auto, 132 SMs"),
            ("G3", 2, "reached", "one stash, one restore"),
            ("G4", 32, "reached", "bulk"),
            ("G4", 0.95, "missed", "restore with 8 SMs"),
            ("G5", 0.04, "missed", "bulk with 33 SMs"),
            ("G7", 0.02, "reached", "restore"),
            ("G7", 0.04, "missed", "stash"),
            ("G8", 0.94, "missed", "restore, pages of 64 KiB"),
            ("G9", 2.0, "missed", "warm"),
            ("G9", 1.9, "reached", "restore"),
            ("T1", 0.909, "missed", "stash with 8 SMs"),
            ("T2", 0.96, "reached", "restore with 132 SMs"),
            ("T3", 1.127, "missed", "1/2 with 8 SMs, pool of 1024 MiB"),
            ("T4", 0.88, "missed", "stash with 8 SMs, 16384 over 1024 MiB"),
            ("T5", 12, "reached", "grow by 1024 MiB"),
            ("G10", 0, "reached", "all checks of this run"),
            ("G10", 0, "reached", "ordered pool, same history twice"),
            ("G10", 3, "missed", "errors and faults")])
        rest = [line for line in lines if not re.search(" (reached|missed)", line)]
        self.assertEqual([line.split()[0] for line in rest], ["G3", "H1", "H1"])
        for line in rest:
            self.assertIn("not measured here: ", line)

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
        self.refused(2, "--call-cost", "--quick", says="not together")

    def test_environment_that_would_change_what_is_measured(self):
        for name in ("PAGESTASH_BACKEND", "PAGESTASH_NUM_SMS"):
            result = run("--device", "host", "--quick", **{name: "1"})
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertRegex(result.stderr, f"^pagestash-bench: {name}=1: .*\n$")

    def test_a_device_file_stays_one(self):
        result = run("--call-cost", "--json", "/dev/null")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(os.path.isfile("/dev/null"))

    def test_what_the_device_lacks(self):
        self.refused(2, "--device", "host", "--num-sms", "2", says="allowed are 0 to 1 on host")
        for backend in ("ldg", "bulk", "squeeze"):
            self.refused(4, "--device", "host", "--backend", backend, says="host has none")
        self.refused(1, "--device", "host", "--bytes", "1024GiB", says="bytes free")
        self.refused(1, "--device", "host", "--bytes", "1024GiB", says="at most")

    def test_absent_device(self):
        if run("--device", "cuda", "--sweep", "pairs", "--quick").returncode != 0:
            self.refused(4, "--device", "cuda")


if __name__ == "__main__":
    bench = sys.argv.pop(1)
    unittest.main()
