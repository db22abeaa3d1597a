"""Megatron-Core's layers by tokens, on two gloo ranks with its own schedules: losses, weights and gradients
as without swapping, to the bit, whatever is swapped."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common.megatron_ranks import run_ranks  # noqa: E402
from common.needs import main, needs  # noqa: E402

STEPS = 8
SCENARIOS = ("no_pipelining", "pipelining")


@needs("megatron")
class Memo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ranks = run_ranks([f"megatron_memo.{name}" for name in SCENARIOS])

    def each(self, scenario):
        """(rank, case, results by fraction)."""
        for rank, results in enumerate(self.ranks):
            for case, by_fraction in results[scenario].items():
                yield rank, case, by_fraction

    def assert_equal_steps(self, rank, case, by_fraction):
        """All fractions as without swapping."""
        wanted = by_fraction["None"]["steps"]
        self.assertEqual(len({step["after"] for step in wanted}), STEPS)
        for fraction, one in by_fraction.items():
            with self.subTest(rank=rank, case=case, fraction=fraction):
                self.assertEqual(one["steps"], wanted)
                if one["figures"] is not None:
                    self.assertEqual((one["figures"]["steps"], one["figures"]["deviations"]),
                                     (STEPS, {}))

    def test_without_pipelining(self):
        for rank, case, by_fraction in self.each("no_pipelining"):
            self.assert_equal_steps(rank, case, by_fraction)
            figures = by_fraction["1/2"]["figures"]
            # 3 micro-batches of 3 layers, of which the last two stay in their buffers
            self.assertEqual((figures["visits"], figures["swapped"]), (STEPS * 9, STEPS * 3))

    def test_with_pipelining(self):
        for rank, case, by_fraction in self.each("pipelining"):
            self.assert_equal_steps(rank, case, by_fraction)
            figures = by_fraction["1/2"]["figures"]
            self.assertEqual(figures["visits"], STEPS * 4 * figures["units"])
            self.assertGreater(figures["swapped"], STEPS * 4 * (figures["units"] - 2) - 1)


if __name__ == "__main__":
    main()
