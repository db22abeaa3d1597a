#!/usr/bin/env python3
"""What a notebook does with a simulation: the example as it stands, and plots with matplotlib."""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from common.needs import needs
from common.vectors import ROOT

from pagestash import Error, SimulatedLayer, simulate
from pagestash.schedule import Schedule


class Example(unittest.TestCase):
    @needs("matplotlib")
    def test_example(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, os.path.join(ROOT, "examples", "python", "simulate.py"), folder],
                text=True, capture_output=True, check=False, env={**os.environ, "MPLBACKEND": "svg"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(sorted(os.listdir(folder)), ["timeline.html", "timeline.svg"])
            xml.etree.ElementTree.parse(os.path.join(folder, "timeline.svg"))
        self.assertIn("4 stages, makespan ", done.stdout)
        self.assertIn("Policy(fits: ", done.stdout)


def simulated(kind="zb-h1", num_stages=2, ns=10, **fields):
    moved = {"host_share": "1/2", "move": "demote"} if "host_pages" in fields else {}
    schedules = Schedule.pipeline(kind, num_stages, 4)
    layers = SimulatedLayer.repeat(2, num_chunks=schedules[0].num_chunks, pages=[3, 1, 2, 4], **moved,
                                   forward_ns=(ns, 4 * ns, ns), backward_ns=(2 * ns, 8 * ns, 2 * ns))
    return simulate(schedules, layers, stash_ns=9 * ns, restore_ns=12 * ns,
                    out_rate=10**12, in_rate=10**12, **fields)


MANY = {"kind": "1f1b", "num_stages": 4, "num_streams": 4, "pages": 9, "host_pages": 9}


@needs("matplotlib")
class Plots(unittest.TestCase):
    def setUp(self):
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        self.pyplot = pyplot
        self.addCleanup(pyplot.close, "all")

    def test_what_is_drawn(self):
        whole = simulated()
        figure = whole.plot()
        self.assertEqual(len(figure.axes), 4)
        for number, stage in enumerate(whole.raw_stages):
            levels = figure.axes[2 * number + 1].lines[0].get_ydata()
            self.assertEqual((max(levels), levels[-1]), (stage.high_water[0], 0))
        self.assertEqual(len(whole.plot(stages=[1]).axes), 2)
        with self.assertRaisesRegex(Error, "stages .2.: allowed are 0 to 1"):
            whole.plot(stages=[2])

    def test_words(self):
        for fields, title, unit in (
                ({}, "zb-h1, 2 stages, 4 micro-batches\npeak 12 pages of 256 KiB on stage 0, makespan 3060 ns", "ns"),
                ({"ns": 10**6, "page_bytes": 16384}, "zb-h1, .*\npeak 12 pages of 16 KiB on stage 0, "
                                                     "makespan 306 ms", "ms"),
                ({"kind": "zb-v", "pages": 5}, "zb-v, 2 stages, 2 chunks, .*\npeak 5 pages .*\n"
                                               "does not fit, needs 24 pages", "ns")):
            figure = simulated(**fields).plot()
            self.assertRegex(figure.get_suptitle(), f"^{title}$")
            self.assertEqual([axes.get_ylabel() for axes in figure.axes], ["stream", "pages"] * 2)
            self.assertEqual([axes.get_xlabel() for axes in figure.axes], [""] * 3 + [f"time ({unit})"])
        own = [Schedule.of([("F", 0, 0), ("B", 0, 0)])]
        self.assertRegex(simulate(own, [SimulatedLayer()]).plot().get_suptitle(),
                         "^own list of passes, 1 stage, 1 micro-batch\npeak 0 pages ")

    def test_legend(self):
        """Has what is drawn and nothing else, each in its colour, and lies beside all that the axes have."""
        whole, many = simulated(), simulated(**MANY)
        for figure, drawn, names in (
                (None, whole, "forward, backward, stall, bubble, stash, restore, pages in use"),
                (None, many, "forward, backward, stall, bubble, stash, restore, demote, promote, pages in use"),
                (self.pyplot.figure(figsize=(6, 4)), many, None),
                (self.pyplot.figure(figsize=(9, 4), layout="tight"), many, None),
                (self.pyplot.figure(figsize=(14, 4)).subfigures(1, 2)[1], many, None)):
            figure = drawn.plot(figure, stages=[0])
            figure.figure.canvas.draw()
            legend, = figure.legends
            said = [text.get_text() for text in legend.get_texts()]
            self.assertEqual(", ".join(said), names or ", ".join(said))
            bars = {tuple(bar.get_facecolor()[0]) for axes in figure.axes for bar in axes.collections}
            self.assertEqual({patch.get_facecolor() for patch in legend.get_patches()}, bars)
            self.assertEqual(len(said), len(bars) + 1)
            box = legend.get_window_extent()
            self.assertTrue(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, (figure.bbox, box))
            for other in [figure._suptitle, *figure.axes]:
                self.assertFalse(box.overlaps(other.get_tightbbox()), (other, box, other.get_tightbbox()))

    def test_styles(self):
        """Lines and bars stand out against the paper, bubbles hardly, in light and dark."""
        from matplotlib import colors

        def bright(colour):
            return sum(colors.to_rgb(colour)) / 3
        for style in ("default", "dark_background"):
            with self.pyplot.style.context(style):
                figure = simulated().plot()
            paper = bright(figure.axes[0].get_facecolor())
            for line in (axes.lines[0] for axes in figure.axes[1::2]):
                self.assertGreater(abs(bright(line.get_color()) - paper), 0.9)
            legend, = figure.legends
            for patch, text in zip(legend.get_patches(), legend.get_texts()):
                contrast = abs(bright(patch.get_facecolor()) - paper)
                self.assertEqual(contrast < 0.2, text.get_text() == "bubble", (style, text, contrast))


if __name__ == "__main__":
    unittest.main()
