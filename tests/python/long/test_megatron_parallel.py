"""Megatron-Core's parallel layers on two gloo ranks: scratch behind its global memory buffer, and pagestash's layers
in the place of its own, give its bits."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common.megatron_ranks import run_ranks  # noqa: E402
from common.needs import main, needs  # noqa: E402


@needs("megatron")
class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ranks = run_ranks(("megatron_parallel.layers", "megatron_parallel.holding"))

    def test_bits_are_megatrons(self):
        for rank in self.ranks:
            self.assertEqual(len(rank["layers"]), 4)
            for case, of in rank["layers"].items():
                gathers = case.startswith("True")
                self.assertEqual((of["scratch"], of["own"], of["held"], of["live"]), (True, True, 0, 0), case)
                # each step: forward and backward of the column layer
                self.assertEqual(of["gets"], 6 if gathers else 0, case)

    def test_who_keeps_a_buffer_is_named(self):
        for rank in self.ranks:
            of = rank["holding"]
            self.assertEqual((of["same"], of["apart"], of["live"], of["held"], of["back"]), (True, True, 2, 2, True))
            taken, twice, how = of["said"]
            self.assertRegex(taken, r"buffer 'megatron.mpu.float32': .*megatron_parallel.py:\d+ takes it, and what "
                                    r".*megatron_parallel.py:\d+ took is held still")
            self.assertIn("it is there already; close() the one before", twice)
            self.assertIn("on_held", how)


if __name__ == "__main__":
    main()
