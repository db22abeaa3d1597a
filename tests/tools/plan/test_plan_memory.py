"""What `pagestash plan` takes for 10^6 tensors, from the file to the report.

test_plan_memory.py BINARY SOURCE
"""
import os
import re
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "common"))
import cli
from cli import CommandTest, run, run_measured

MOST_BYTES = 300 # of memory for a tensor, which is two requests


class PlanMemoryTest(CommandTest):
    def check(self, trace, *flags):
        code, taken, text = run_measured("plan", "--trace", trace, "--deadline", 3600, *flags)
        tensors = int(re.search(r"^tensors: (\d+)$", text, re.MULTILINE)[1])
        self.assertEqual(code, 0)
        self.assertLess(taken / tensors, MOST_BYTES, text)
        return tensors, text

    def derive(self, *flags):
        path = self.path("trace.csv")
        result = run("trace", "--derive", "--num-layers", 80, "--full", *flags, "--out", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path

    # Fault rows 56.
    def test_repeated_steps(self):
        trace = self.derive("--num-micro-batches", 200)
        tensors, text = self.check(trace)
        self.assertEqual(tensors, 1044800)
        for line in ("status: optimal", "periods: 200", "period tensors: 5224", "different parts: 1"):
            self.assertIn(line + "\n", text)
        self.check(trace, "--out", self.path("plan.csv"), f"--json={self.path('plan.json')}")

    def test_steps_that_hang_together(self):
        """The first placement alone, so that the test does not last: it is what takes the memory."""
        trace = self.derive("--num-micro-batches", 200, "--warmup", 1)
        self.check(trace, "--max-steps", 1)


if __name__ == "__main__":
    cli.BINARY, cli.SOURCE, cli.DEVICE = sys.argv[1], sys.argv[2], "host"
    unittest.main(argv=sys.argv[:1], verbosity=0)
