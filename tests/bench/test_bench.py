#!/usr/bin/env python3
"""test_bench.py PAGESTASH_BENCH [Bench|Goals|Compare|Long]: what pagestash-bench, bench/goals.py and
bench/compare.py say and how they end. No figure is judged."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "tools", "common"))
import reports
from cli import shown_on_terminal
bench = None
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
MIB = 1 << 20
SMALL = ("--device", "host", "--quick", "--cache", "1MiB")
# In place of libc's: the last byte of copies of so many bytes comes out wrong.
WRONG_COPIES = """
#include <stddef.h>
void *memmove(void *to, const void *from, size_t bytes)
{
    const size_t down = to < from ? 0 : bytes - 1; /* an index counts up, or down */
    for (size_t i = 0; i < bytes; i++)
        ((char *)to)[down ? down - i : i] = ((const char *)from)[down ? down - i : i];
    if (bytes >= WRONG_FROM && bytes <= WRONG_TO)
        ((char *)to)[bytes - 1]++;
    return to;
}
__typeof__(memmove) memcpy __attribute__((alias("memmove")));
"""


def run(*command, **environment):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900,
                            env=dict(os.environ, **environment))
    reports.check_tables(result.stdout)
    return result


def parts_of(value):
    """Every dictionary in a report."""
    found = [value] if isinstance(value, dict) else []
    for part in value.values() if found else value if isinstance(value, list) else ():
        found += parts_of(part)
    return found


class Bench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.path = self.folder / "report.json"

    def report(self, *arguments, code=0, **environment):
        result = run(bench, *SMALL, f"--json={self.path}", *arguments, **environment)
        self.assertEqual(result.returncode, code, result.stderr)
        return reports.load(self.path.read_text(encoding="utf-8")), result

    def test_report(self):
        report, result = self.report("--sweep", "ring,num_sms,pairs,host,glu,linear")
        self.assertEqual((result.stderr, result.stdout.splitlines()[-1]),
                         ("", "mismatched bytes: 0"))
        rows, tier, a0 = report["rows"], report["host_tier"], report["anchors"][report["a0"]]
        self.assertEqual((len(rows), a0["name"], a0["role"]), (12, "memcpy", "a0"))
        self.assertEqual({row["ring"] for row in rows}, {"fresh", "shuffled", "reversed"})
        said = re.findall(r"(?m)^(?:stash|restore) +(?:cold|warm) +ring +[\d.]+ ([a-z]+| ) ", result.stdout)
        self.assertEqual(said, [row["ring"].replace("fresh", " ") for row in rows])
        self.assertEqual({skip["sweep"] for skip in report["skipped"]}, {"num_sms"})
        for times in (part for part in parts_of(report) if "gbps" in part):
            self.assertGreaterEqual(times["samples"], 20)
            self.assertLessEqual(times["seconds_min"], times["seconds_median"])
            self.assertLessEqual(times["seconds_median"], times["seconds_max"])
            self.assertAlmostEqual(times["gbps"] * times["seconds_median"],
                                   times["bytes"] * 1e-9, delta=1e-6)
        for row in rows:
            own = report["anchors"][row["own_copy"]]
            self.assertEqual((own["bytes"], own["state"]), (row["bytes"], row["state"]))
            self.assertAlmostEqual(row["share_of_a0"], row["gbps"] / a0["gbps"], 6)
            self.assertEqual((row["nodes"], row["num_sms"]), (1, 1))
        for row in tier["rows"]:
            self.assertEqual(row["pinned_pages"],
                             row["pages"] * row["offload_num"] // row["offload_den"])
        self.assertTrue(all(part.get("mismatched_bytes", 0) == 0 for part in parts_of(report)))
        self.assertGreaterEqual(report["pairs"]["pairs"], 10000)
        self.assertEqual([glu["bytes"] for glu in report["glu"]], [4 << 20])
        self.assertGreater(report["glu"][0]["speedup"], 0)
        linears = report["linear"]
        self.assertEqual([(row["form"], row["ranks"], row["paced"]) for row in linears["rows"]],
                         [(form, 2, paced) for paced in (False, True)
                          for form in ("column forward fp32", "row forward fp32")])
        self.assertEqual((linears["unavailable"], linears["no_product"], linears["cores"]),
                         (None, None, os.cpu_count()))
        for row in linears["rows"]:
            self.assertTrue(all(row[key] > 0 for key in row if key.endswith("_seconds") and row[key] is not None))
            self.assertEqual(row["pace_seconds"] is None, not row["paced"])
            if row["paced"]:  # waits do not end early
                self.assertGreater(row["products_seconds"] * 1.001, row["pace_seconds"])
        self.check_documented(report)
        goals = run(sys.executable, str(BENCH / "goals.py"), str(self.path))
        self.assertEqual((goals.returncode, goals.stderr), (0, ""))
        self.assertRegex(goals.stdout, r"G10 differing bytes +0.000 \(<= 0\) reached")

    def check_documented(self, report):
        """Also what no report of host holds: the keys that stand in the source."""
        text = (BENCH / "README.md").read_text(encoding="utf-8")
        source = (BENCH / "stash/report_json.c").read_text(encoding="utf-8")
        keys = set(re.findall(r'\bjson_put\w*\(&?\w+, "(\w+)"', source))
        self.assertLess(80, len(keys.union(*parts_of(report))))
        self.assertEqual({key for key in keys.union(*parts_of(report)) if f"`{key}`" not in text},
                         set())

    def wrong(self, least, most, *arguments):
        """The report of a run in which copies of so many bytes go wrong."""
        program = pathlib.Path(bench).read_bytes()
        if b"__asan_init" in program or b"__tsan_init" in program:
            self.skipTest("a sanitizer has its own memcpy")
        library = str(self.folder / "wrong.so")
        subprocess.run(["cc", "-x", "c", "-shared", "-fPIC", "-O3", "-fno-builtin",
                        "-fno-tree-loop-distribute-patterns", f"-DWRONG_FROM={least}",
                        f"-DWRONG_TO={most}", "-o", library, "-"],
                       input=WRONG_COPIES, text=True, check=True)
        report, result = self.report(*arguments, code=1, LD_PRELOAD=library)
        self.assertRegex(result.stderr, r"^pagestash-bench: [1-9]\d* bytes differ\n$")
        self.assertEqual(re.findall(r"(?m)^(?:stash|restore) .* (\d+) wrong$", result.stdout),
                         [str(row["mismatched_bytes"]) for row in
                          [*report["rows"], *(report["host_tier"] or {"rows": []})["rows"]]
                          if row["mismatched_bytes"]])
        return report

    def test_wrong_bytes_are_seen(self):
        report = self.wrong(2 * MIB, 8 * MIB, "--bytes", "3MiB")
        self.assertEqual({anchor["name"] for anchor in report["anchors"]
                          if anchor["mismatched_bytes"]}, {"memcpy", "full_capacity_copy"})
        report = self.wrong(16 << 10, MIB, "--sweep", "host")
        for part in (*report["host_tier"]["rows"], report["host_tier"]["recovery"]):
            self.assertTrue(part["mismatched_bytes"])

    def test_progress(self):
        """On a terminal: each configuration, and seconds of what does not say how far it is. That need not end."""
        shown = shown_on_terminal(bench, *SMALL, "--sweep", "ring").split("\r\033[K")
        self.assertEqual([part for part in shown if part.startswith("configuration")],
                         [f"configuration {i + 1} of 3" for i in range(3)])
        self.assertEqual(shown[-1], "")
        shown = shown_on_terminal(bench, "--device", "host", "--cache", "1MiB", "--sweep", "linear",
                                  until="linears: second")
        self.assertIn("linears: second ", shown)

    def test_refusals_are_one_line(self):
        for code, says, *arguments in (
                (2, "allowed are auto", "--device", "gpu"), (2, "--speed", "--speed"),
                (2, "more", "more"), (2, "--json", "--json="), (3, "--json", "--json=/"),
                (2, "--bytes 1TiB: allowed", "--bytes", "1TiB"),
                (2, "power of two", "--page-size", "96KiB"), (2, "allowed is all", "--sweep", "x"),
                (2, "auto|ldg", "--backend", "warp"), (2, "0..1024", "--num-sms", "-1"),
                (2, "not together", "--sweep", "ring", "--bytes", "1MiB"),
                (2, "not together", "--call-cost", "--quick"),
                (2, "0 to 1 on host", "--device", "host", "--num-sms", "2"),
                (4, "host has none", "--device", "host", "--backend", "ldg"),
                (1, "bytes free", "--device", "host", "--bytes", "1024GiB")):
            with self.subTest(arguments=arguments):
                result = run(bench, f"--json={self.path}", *arguments)
                self.assertEqual((result.returncode, result.stdout), (code, ""))
                self.assertRegex(result.stderr, f"^.*{re.escape(says)}.*\n$")
                self.assertFalse(self.path.exists())
        result = run(bench, "--quick", PAGESTASH_NUM_SMS="1")
        self.assertEqual((result.returncode, result.stdout), (2, ""))


class Long(Bench):
    """Every sweep, and every copy that can go wrong."""

    def test_report(self):
        report, result = self.report()
        self.assertIn("mismatched bytes: 0", result.stdout)
        self.assertEqual({row["sweep"] for row in report["rows"]} |
                         {skip["sweep"] for skip in report["skipped"]},
                         {"bytes", "page_size", "ring", "pattern", "tensors", "alignment", "pitch",
                          "num_sms", "backend"})
        self.assertEqual({(row["row_bytes"], row["row_stride"]) for row in report["rows"]
                          if row["sweep"] == "pitch"},
                         {(rows, stride) for rows in (256, 1024, 4096)
                          for stride in (rows, rows + 16, 2 * rows, 3 * rows)})
        self.assertEqual({row["bytes"] == 0 for row in report["rows"]
                          if row["pattern"] == "empty"}, {True})

    def test_wrong_bytes_are_seen(self):
        for least, most, wanted, *arguments in (
                (200 * MIB, 1 << 40, {"a0"}, "--bytes", "3MiB"),
                (10 * MIB, 20 * MIB, {"to_host", "from_host"}, "--sweep", "host")):
            report = self.wrong(least, most, *arguments)
            self.assertEqual({anchor["role"] for anchor in report["anchors"]
                              if anchor["mismatched_bytes"]}, wanted)


class Goals(unittest.TestCase):
    def test_known_report(self):
        """The worst figure of each goal, whether that is enough, and where it stood, in a report that
        nobody measured."""
        data = BENCH.parent / "tests/data/bench"
        verdicts = run(sys.executable, str(BENCH / "goals.py"), "--json", str(data / "goals.json"))
        self.assertEqual((verdicts.returncode, verdicts.stderr), (0, ""))  # and no file is taken
        self.assertIn('"goals"', verdicts.stdout)
        result = run(sys.executable, str(BENCH / "goals.py"), str(data / "goals.json"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, (data / "goals.txt").read_text(encoding="ascii"))


class Compare(unittest.TestCase):
    """compare.py over two programs that measure nothing."""
    PROGRAM = """#!{python}
import json, sys
calls = {calls}
share = {share}
if "--call-cost" in sys.argv:
    rows, calls = [], [dict(row, ns_median=ns) for row, ns in calls]
else:
    assert sys.argv[sys.argv.index("--bytes") + 1] == "64MiB", sys.argv
    rows = [dict(op=op, state="cold", seconds_median=0.01, share_of_own_copy=share)
            for op in ("stash", "restore")]
    calls = []
print(json.dumps(dict(rows=rows, call_cost=dict(rows=calls))))
"""

    def build(self, name, calls, share):
        folder = self.folder / name / "bin"
        folder.mkdir(parents=True)
        program = folder / "pagestash-bench"
        program.write_text(self.PROGRAM.format(python=sys.executable, calls=calls, share=share),
                           encoding="ascii")
        program.chmod(0o755)
        return str(folder.parent)

    def test_pairs(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        before = self.build("before", [({"tensors": 6}, 100)], 1.03)
        after = self.build("after", [({"call": "stash", "tensors": 6}, 150),
                                     ({"call": "take", "tensors": 6}, 40)], 1.0)
        script = str(BENCH / "compare.py")
        result = run(sys.executable, script, "--rounds", "2", before, after)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^call +stash +6 tensors +100.000 +150.000 ns +1.500 ")
        self.assertRegex(result.stdout, r"(?m)^call +take +6 tensors +- +40.000 ns$")
        self.assertEqual(len(re.findall(r" 1.030 .*missed$", result.stdout, re.M)), 2)
        result = run(sys.executable, script, "--rounds", "1", "--json", after, before)
        self.assertEqual({row["ratio"] for row in json.loads(result.stdout)["rows"]
                          if row["what"] != "call"}, {1 / 1.03})
        result = run(sys.executable, script, before, str(self.folder))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^compare.py: .*pagestash-bench.*\n$")


if __name__ == "__main__":
    bench = sys.argv.pop(1)
    unittest.main()
