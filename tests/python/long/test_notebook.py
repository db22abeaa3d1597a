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


class Notebook(unittest.TestCase):
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

    @needs("matplotlib")
    def test_plot(self):
        import matplotlib
        matplotlib.use("svg")
        layers = SimulatedLayer.repeat(2, pages=[3, 1, 2, 4], forward_ns=(1, 4, 1),
                                       backward_ns=(2, 8, 2))
        whole = simulate(Schedule.pipeline("zb-h1", 2, 4), layers, stash_ns=9, restore_ns=12)
        figure = whole.plot()
        self.assertEqual(len(figure.axes), 4)
        for number, stage in enumerate(whole.raw_stages):
            levels = figure.axes[2 * number + 1].lines[0].get_ydata()
            self.assertEqual((max(levels), levels[-1]), (stage.high_water[0], 0))
        self.assertEqual(len(whole.plot(stages=[1]).axes), 2)
        with self.assertRaisesRegex(Error, "stages .2.: allowed are 0 to 1"):
            whole.plot(stages=[2])


if __name__ == "__main__":
    unittest.main()
