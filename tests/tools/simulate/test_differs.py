#!/usr/bin/env python3
"""`pagestash simulate --check host` beside a pool whose figures are wrong: test_differs.py BINARY
SOURCE_FOLDER, of a command whose pst_pool_poll adds a page to what PSTI_TEST_DIFFERS names."""
import os
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))

import cli
import reports
from cli import run
from scene import SimulateTest, pages3, schedule


class Differs(SimulateTest):
    def check(self, figure, *flags):
        flags = [*schedule("1f1b", 2, 4), "--layers", 3, "--visit-pages", self.visits(pages3),
                 "--rank", 0, "--check", "host", *flags]
        env = {"PSTI_TEST_DIFFERS": figure} if figure else {}
        text, report = run("simulate", *flags, env=env), run("simulate", *flags, "--json", env=env)
        self.assertEqual((text.returncode, text.stderr), (report.returncode, report.stderr))
        return text, reports.load(report.stdout)["check"]

    def test_figures_that_differ(self):
        """The first operation that differs is named, and a figure of the end by its key."""
        text, check = self.check("")
        self.assertEqual((text.returncode, text.stderr, check["differences"]), (0, "", 0))
        begin = "pagestash: --check: rank 0"
        for figure, name in (("in_use", "pages in use"), ("host_in_use", "host pages in use")):
            text, check = self.check(figure)
            first, last = text.stderr.splitlines()
            self.assertEqual((text.returncode, check["differences"]), (1, 2))
            pages = pages3(0, 0, 0) if figure == "in_use" else 0
            self.assertEqual(first, f"{begin}, operation 0, for the forward of chunk 0, layer 0, "
                             f"micro-batch 0: {name}: {pages} simulated, {pages + 1} in the pool")
            self.assertEqual(last, f"{begin}: {name} at the end: 0 simulated, 1 in the pool")
        text, check = self.check("spilled")
        self.assertEqual((text.returncode, check["differences"]), (1, 1))
        self.assertEqual(text.stderr, f"{begin}: spilled_pages: 0 simulated, 1 in the pool\n")


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
