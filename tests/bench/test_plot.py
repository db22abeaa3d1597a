#!/usr/bin/env python3
"""test_plot.py SOURCE_DIR [PAGESTASH_BENCH]: bench/plot.py. Exit 77: no matplotlib; what needs none
is tested first."""
import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
source = bench = None
PICTURES = {"bandwidth.svg", "num_sms.svg", "page_size.svg", "skew.svg", "gemm.svg"}
MIB = 1 << 20
has_matplotlib = importlib.util.find_spec("matplotlib") is not None


def row(op, sweep, gbps, **other):
    values = {"op": op, "sweep": sweep, "state": "cold", "backend": "auto", "pattern": "prefix",
              "ring": "fresh", "bytes": 64 * MIB, "num_sms": 8, "page_size": 256 << 10,
              "gbps": gbps}
    values.update(other)
    seconds = values["bytes"] / gbps * 1e-9 if gbps else 1e-6
    return {**values, "seconds_min": 0.97 * seconds, "seconds_max": 1.05 * seconds}


def invented(name="Invented GPU", peak=1000.0):
    """A report with rows for every picture. Its figures are made up."""
    rows = []
    for op in ("stash", "restore"):
        for state, factor in (("cold", 1.0), ("warm", 1.2)):
            for i in range(12):
                speed = factor * peak * (1 - 0.5 ** (i / 2 + 0.3))
                rows.append(row(op, "bytes", speed, bytes=MIB << i, state=state))
            for i in range(9):
                rows.append(row(op, "page_size", factor * peak * (0.8 + 0.02 * i),
                                page_size=16384 << i, state=state))
        for backend, each in (("ldg", 14.0), ("bulk", 25.0), ("squeeze", 18.0)):
            for sms in (1, 4, 8, 16, 32, 64, 132):
                rows.append(row(op, "num_sms", min(0.95 * peak, each * sms), num_sms=sms,
                                backend=backend))
        for i, pattern in enumerate(("uniform", "zipf", "hot-expert", "full")):
            rows.append(row(op, "pattern", peak * (0.9 - 0.01 * i), pattern=pattern))
        rows.append(row(op, "pattern", None, pattern="empty", bytes=0))
        for i, ring in enumerate(("fresh", "shuffled", "reversed")):
            rows.append(row(op, "ring", peak * (0.9 - 0.01 * i), ring=ring))
    overlap = [{"backend": backend, "num_sms": sms, "gemm_slowdown": sms / 132 + more,
                "sm_share": sms / 132, "start_delay_seconds": 1e-6 * sms + more * 1e-4}
               for backend, more in (("bulk", 0.01), ("squeeze", 0.02)) for sms in (4, 8, 16, 32)]
    return {"schema_version": 2, "machine": {"device_name": name}, "commit": "0" * 12,
            "a0": 1, "anchors": [{"name": "slow", "gbps": peak / 2}, {"name": "a0", "gbps": peak}],
            "rows": rows, "overlap": {"unavailable": None, "rows": overlap}}


def plot(*arguments, env=None):
    return subprocess.run([sys.executable, str(source / "bench/plot.py"), *arguments],
                          capture_output=True, text=True, timeout=240,
                          env=dict(os.environ, **(env or {})))


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"

    def write(self, report, name="report.json"):
        path = self.folder / name
        text = report if isinstance(report, str) else json.dumps(report)
        path.write_text(text, encoding="utf-8")
        return str(path)


class BadInput(Folder):
    def refused(self, code, text, *arguments, env=None):
        result = plot("--out", str(self.out), *arguments, env=env)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(text, result.stderr.splitlines()[-1])
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse(self.out.exists())
        return result

    def bad(self, text, report):
        result = self.refused(3, text, self.write(report))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def changed(self, *path, to):
        report = invented()
        at = report
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to
        return report

    def test_usage(self):
        self.refused(2, "REPORT")
        self.refused(2, "--nonsense", "--nonsense", "x")

    def test_bad_reports(self):
        self.refused(3, "No such file", str(self.folder / "none.json"))
        self.bad("not JSON", "")
        self.bad("not JSON", '{"rows": [NaN]}')
        self.bad("not JSON", "[" * 100000)
        self.bad("an object", "[]")
        self.bad("schema_version: 1: wanted is 2", self.changed("schema_version", to=1))
        self.bad("machine: null: wanted is an object", self.changed("machine", to=None))
        self.bad("machine.device_name: 5", self.changed("machine", "device_name", to=5))
        self.bad("rows: 5: wanted is a list", self.changed("rows", to=5))
        self.bad("rows[3]: 5: wanted is an object", self.changed("rows", 3, to=5))
        self.bad('rows[3].gbps: "fast": wanted is a number or null',
                 self.changed("rows", 3, "gbps", to="fast"))
        self.bad("rows[3].gbps: 1000", self.changed("rows", 3, "gbps", to=10 ** 400))
        self.bad("rows[0].num_sms: true: wanted is a whole number",
                 self.changed("rows", 0, "num_sms", to=True))
        self.bad("rows[0].bytes: -1", self.changed("rows", 0, "bytes", to=-1))
        self.bad("overlap.rows[1].backend: 1: wanted is text",
                 self.changed("overlap", "rows", 1, "backend", to=1))
        self.bad("a0: 2: wanted is null or an index in anchors", self.changed("a0", to=2))

    def test_without_matplotlib(self):
        shadow = self.folder / "matplotlib.py"
        shadow.write_text('raise ImportError("absent")\n', encoding="ascii")
        self.refused(4, "matplotlib cannot be loaded", self.write(invented()),
                     env={"PYTHONPATH": str(self.folder)})


@unittest.skipUnless(has_matplotlib, "no matplotlib")
class Pictures(Folder):
    def draw(self, *reports, out=None):
        out = out or self.out
        result = plot("--out", str(out), *reports)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        return result.stderr, {path.name: path.read_bytes() for path in out.iterdir()}

    def texts(self, picture):
        root = xml.etree.ElementTree.fromstring(picture)
        return "\n".join(text.strip() for text in root.itertext() if text.strip())

    def test_every_picture(self):
        errors, pictures = self.draw(self.write(invented()))
        self.assertEqual((errors, set(pictures)), ("", PICTURES))
        for name in PICTURES - {"gemm.svg"}:
            self.assertIn("A0: 1000", self.texts(pictures[name]))
            self.assertIn("GB/s", self.texts(pictures[name]))
        for backend in ("ldg", "bulk", "squeeze"):
            self.assertIn(backend, self.texts(pictures["num_sms.svg"]))
        for word in ("hot-expert", "reversed"):
            self.assertIn(word, self.texts(pictures["skew.svg"]))
        self.assertNotIn("empty", self.texts(pictures["skew.svg"]))
        self.assertIn("share of the SMs", self.texts(pictures["gemm.svg"]))

    def test_same_bytes_again(self):
        path = self.write(invented())
        self.assertEqual(self.draw(path), self.draw(path, out=self.folder / "again"))

    def test_several_reports_are_told_apart(self):
        first = self.write(invented("GPU one"), "a.json")
        second = self.write(invented("GPU two", 2000.0), "b.json")
        _, pictures = self.draw(first, second)
        text = self.texts(pictures["num_sms.svg"])
        for label in ("GPU one, bulk", "GPU two, bulk", "A0, GPU two: 2000"):
            self.assertIn(label, text)
        _, pictures = self.draw(first, self.write(invented("GPU one"), "c.json"),
                                out=self.folder / "same")
        self.assertIn("c.json, bulk", self.texts(pictures["num_sms.svg"]))

    def test_names_are_not_markup(self):
        report = invented("GPU $\\frac$ <b> \0 &")
        report["rows"][0]["bytes"] = report["overlap"]["rows"][0]["num_sms"] = 0
        _, pictures = self.draw(self.write(report), self.write(invented("other"), "b.json"))
        self.assertIn("GPU $\\frac$ <b> ? &, bulk", self.texts(pictures["num_sms.svg"]))

    def test_what_is_missing_is_skipped(self):
        report = invented()
        report["overlap"]["rows"] = []
        report["rows"] = [entry for entry in report["rows"] if entry["sweep"] != "num_sms"]
        report["a0"] = None
        errors, pictures = self.draw(self.write(report))
        self.assertEqual(set(pictures), PICTURES - {"num_sms.svg", "gemm.svg"})
        self.assertIn("num_sms.svg skipped", errors)
        self.assertIn("gemm.svg skipped", errors)
        self.assertNotIn("A0", self.texts(pictures["bandwidth.svg"]))
        nothing = copy.deepcopy(report)
        nothing["rows"] = []
        result = plot("--out", str(self.out), self.write(nothing))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 5)

    def test_cannot_write(self):
        (self.folder / "file").write_text("", encoding="ascii")
        result = plot("--out", str(self.folder / "file"), self.write(invented()))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_report_of_the_benchmark(self):
        if bench is None:
            self.skipTest("no pagestash-bench")
        path = str(self.folder / "host.json")
        subprocess.run([bench, "--device", "host", "--quick", "--json", path], check=True,
                       capture_output=True, timeout=200)
        _, pictures = self.draw(path)
        self.assertLessEqual({"bandwidth.svg", "page_size.svg", "skew.svg"}, set(pictures))


if __name__ == "__main__":
    source = pathlib.Path(sys.argv[1]).resolve()
    bench = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    program = unittest.main(argv=sys.argv[:1], verbosity=1, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if not has_matplotlib:
        print("no matplotlib (python3-matplotlib): pictures not drawn, skipped")
        sys.exit(77)
