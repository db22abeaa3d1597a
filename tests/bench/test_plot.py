#!/usr/bin/env python3
"""test_plot.py SOURCE_DIR: bench/plot.py draws the committed picture again, byte for byte, and every
other one. Exit 77: no matplotlib; what needs none is tested first."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

source = None
PICTURES = {"bandwidth.svg": "A0: 1000", "num_sms.svg": "bulk", "page_size.svg": "256 KiB",
            "skew.svg": "reversed", "gemm.svg": "share of the SMs"}
has_matplotlib = importlib.util.find_spec("matplotlib") is not None


def invented():
    """A report with rows for every picture. Its figures are made up."""
    rows = [{"op": op, "sweep": sweep, "state": "cold", "backend": "bulk", "pattern": "zipf",
             "ring": "reversed", "bytes": 64 << 20, "num_sms": 8, "page_size": 1 << 18,
             "gbps": 900.0, "seconds_min": 6e-5, "seconds_max": 8e-5, key: value}
            for op in ("stash", "restore") for sweep, key, values in (
                ("bytes", "bytes", (1 << 20, 1 << 30)), ("num_sms", "num_sms", (1, 132)),
                ("page_size", "page_size", (1 << 14, 1 << 22)), ("pattern", "pattern", ("zipf",)),
                ("ring", "ring", ("fresh", "reversed"))) for value in values]
    overlap = [{"backend": "bulk", "num_sms": sms, "gemm_slowdown": sms / 100,
                "sm_share": sms / 132, "start_delay_seconds": 1e-6 * sms} for sms in (4, 8)]
    return {"schema_version": 2, "machine": {"device_name": "GPU $\\frac$ <b> &"}, "commit": "0",
            "a0": 0, "anchors": [{"gbps": 1000.0}], "rows": rows, "overlap": {"rows": overlap}}


class Plot(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"

    def write(self, report, name="report.json"):
        (self.folder / name).write_text(json.dumps(report), encoding="utf-8")
        return str(self.folder / name)

    def plot(self, code, *arguments):
        result = subprocess.run([sys.executable, str(source / "bench/plot.py"), "--out",
                                 str(self.out), *arguments], capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def test_usage(self):
        self.assertIn("REPORT", self.plot(2))

    @unittest.skipUnless(has_matplotlib, "no matplotlib")
    def test_bad_reports(self):
        self.assertIn("No such file", self.plot(3, str(self.folder / "none.json")))
        self.assertIn("schema_version 1", self.plot(3, self.write({"schema_version": 1})))
        report = invented()
        del report["rows"][0]["gbps"]
        self.assertIn("'gbps'", self.plot(3, self.write(report)))

    @unittest.skipUnless(has_matplotlib, "no matplotlib")
    def test_committed_picture(self):
        report, = source.glob("bench/results/*/bytes.json")
        self.assertIn("gemm.svg skipped", self.plot(0, str(report)))
        self.assertEqual((self.out / "bandwidth.svg").read_bytes(),
                         (report.parent / "bandwidth.svg").read_bytes())

    @unittest.skipUnless(has_matplotlib, "no matplotlib")
    def test_every_picture_of_several_reports(self):
        first, second = invented(), dict(invented(), machine={"device_name": "other"})
        self.assertEqual(self.plot(0, self.write(first), self.write(second, "b.json")), "")
        self.assertEqual({path.name for path in self.out.iterdir()}, set(PICTURES))
        for name, text in PICTURES.items():
            self.assertIn(text, (self.out / name).read_text(encoding="utf-8").replace(
                "A0, other", "A0"))
        self.assertIn("GPU $\\frac$ &lt;b&gt; &amp;, bulk",
                      (self.out / "num_sms.svg").read_text(encoding="utf-8"))


if __name__ == "__main__":
    source = pathlib.Path(sys.argv[1]).resolve()
    program = unittest.main(argv=sys.argv[:1], verbosity=1, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if not has_matplotlib:
        print("no matplotlib (python3-matplotlib): pictures not drawn, skipped")
        sys.exit(77)
