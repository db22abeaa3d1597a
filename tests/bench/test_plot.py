#!/usr/bin/env python3
"""test_plot.py SOURCE_DIR: bench/plot.py draws the committed picture again, byte for byte, and every
other one; each says what it shows and where that was measured, and no text stands on a curve. Exit 77: no
matplotlib; what needs none is tested first."""
import html
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

source = None
A0 = "A0 = 1000 GB/s, the fastest plain copy (bulk_streaming of 1 GiB)"
PICTURES = {
    "bandwidth.svg": ("Bandwidth over live bytes", A0, "live bytes of the group"),
    "num_sms.svg": ("Bandwidth over the SM budget", A0, "bulk"),
    "page_size.svg": ("Bandwidth over the page size", A0, "256 KiB"),
    "skew.svg": ("Bandwidth over skew and over the order of free pages", A0, "reversed"),
    "gemm.svg": ("What a GEMM and a stash cost each other", "share of the SMs")}
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
    machine = {"device_name": "GPU $\\frac$ <b> &", "cpu": "CPU model", "num_cpus": 96}
    a0 = {"name": "bulk_streaming", "bytes": 1 << 30, "gbps": 1000.0}
    return {"schema_version": 2, "machine": machine, "commit": "c0ffee123456",
            "a0": 0, "anchors": [a0], "rows": rows, "overlap": {"rows": overlap}}


def figures(paths):
    """Name and figure of each picture, drawn in this process."""
    sys.path.insert(0, str(source / "bench"))
    import plot
    pyplot, reports = plot.load_pyplot(), [plot.Report(path) for path in paths]
    plot.label(reports)
    for name, (picture, _) in plot.PICTURES.items():
        figure = picture(pyplot, reports)
        if figure is not None:
            figure.draw_without_rendering()
            yield name, figure
            pyplot.close(figure)


def tick_labels(axis):
    """Those within the view."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]


def points(line):
    """Those of a curve, and of the straight lines between them, in pixels."""
    ends = line.get_transform().transform(line.get_xydata())
    if line.get_linestyle() in ("None", "none"):
        return list(ends)
    return [a + (b - a) * k / 50 for a, b in zip(ends, ends[1:]) for k in range(51)]


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
        first, second = invented(), dict(
            invented(), commit="42", machine={"device_name": "other", "cpu": "CPU model", "num_cpus": 4})
        self.assertEqual(self.plot(0, self.write(first), self.write(second, "b.json")), "")
        self.assertEqual({path.name for path in self.out.iterdir()}, set(PICTURES))
        for name, texts in PICTURES.items():
            drawn = html.unescape((self.out / name).read_text(encoding="utf-8"))
            for text in (*texts, "GPU $\\frac$ <b> &; CPU model, 96 CPUs; commit c0ffee123456",
                         "other: other; CPU model, 4 CPUs; commit 42"):
                self.assertIn(text, drawn, name)
        self.assertIn("GPU $\\frac$ &lt;b&gt; &amp;, bulk",
                      (self.out / "num_sms.svg").read_text(encoding="utf-8"))

    def check_texts(self, name, figure):
        """All of them within the picture, none on another or on a curve."""
        boxes = [(text.get_text(), text.get_window_extent()) for panel in figure.axes for text in (
            panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts, *tick_labels(panel.xaxis),
            *tick_labels(panel.yaxis)) if text.get_text() and text.get_visible()]
        boxes += [(text.get_text(), text.get_window_extent()) for text in figure.texts]
        boxes += [("legend", legend.get_window_extent()) for legend in
                  [*figure.legends, *filter(None, (panel.get_legend() for panel in figure.axes))]]
        curves = [point for panel in figure.axes for line in panel.lines for point in points(line)]
        self.assertGreater(len(curves), 100, name)
        for number, (text, box) in enumerate(boxes):
            where = f"{name}: {text!r}"
            self.assertTrue(0 <= box.x0 and box.x1 <= figure.bbox.width and 0 <= box.y0 and
                            box.y1 <= figure.bbox.height, f"{where} leaves the picture: {box}")
            self.assertEqual(box.count_contains(curves), 0, where)
            if "\n" in text:  # turned labels: their boxes are wider than they are
                continue
            for other, there in boxes[number + 1:]:
                self.assertFalse("\n" not in other and box.overlaps(there), f"{where} and {other!r}")

    @unittest.skipUnless(has_matplotlib, "no matplotlib")
    def test_no_text_stands_on_a_curve(self):
        report, = source.glob("bench/results/*/bytes.json")
        others = [self.write(dict(invented(), commit=f"{number:012x}"), f"{number}.json")
                  for number in range(5)]
        for paths in ([report], others[:1], others):
            drawn = dict(figures(paths))
            for name, figure in drawn.items():
                self.check_texts(name, figure)
            self.assertEqual(len(drawn), 1 if paths == [report] else len(PICTURES))

    @unittest.skipUnless(has_matplotlib, "no matplotlib")
    def test_is_read_on_dark_pages(self):
        """A background of its own, which a page's colours do not show through."""
        self.plot(0, self.write(invented()))
        for name in PICTURES:
            background = (self.out / name).read_text(encoding="utf-8").split('<g id="patch_1">')[1]
            self.assertIn("fill: #ffffff", background[:300], name)


if __name__ == "__main__":
    source = pathlib.Path(sys.argv[1]).resolve()
    program = unittest.main(argv=sys.argv[:1], verbosity=1, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if not has_matplotlib:
        print("no matplotlib (python3-matplotlib): pictures not drawn, skipped")
        sys.exit(77)
