"""Megatron-Core on two gloo ranks, its own model, schedules and runner: with pages as without
stash."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common.megatron_ranks import run_ranks  # noqa: E402
from common.needs import main, needs  # noqa: E402

SCENARIOS = ("no_pipelining", "pipelining", "recovery", "evaluations", "micro_batches", "lost",
             "scales")


@needs("megatron")
class Megatron(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ranks = run_ranks(SCENARIOS)

    def each(self, scenario):
        """(which rank and case, result) of all ranks."""
        for rank, results in enumerate(self.ranks):
            for name, result in results[scenario].items():
                yield {"rank": rank, "case": name}, result

    def assert_equal_steps(self, result):
        """Losses, weights, gradients, token counts, expert biases and auxiliary losses, to the
        bit."""
        self.assertEqual(len(result["got"]), len(result["want"]))
        for step, (got, want) in enumerate(zip(result["got"], result["want"])):
            self.assertEqual(got["losses"], want["losses"], f"losses of step {step}")
            self.assertEqual(got["after"], want["after"], f"state after step {step}")
            self.assertFalse(got.get("overflow"), f"step {step}")

    def test_without_pipelining(self):
        for case, result in self.each("no_pipelining"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                # 3 steps, 3 micro-batches, 2 of 3 layers: the last one's backward follows at once
                self.assertEqual(result["launches"], {"stash": 18, "restore": 18})
                self.assertEqual((result["in_use"], result["faults"]), ([0, 0], 0))
                self.assertEqual((result["lost"], result["named"]), (0, 0))

    def test_with_pipelining(self):
        for case, result in self.each("pipelining"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                self.assertEqual((result["in_use"], result["faults"]), ([0, 0], 0))
                self.assertEqual(result["launches"]["stash"], result["launches"]["restore"])
                order = result["order"]
                self.assertEqual(len(order), 16)
                pairs = sum(a == -b for a, b in zip(order, order[1:]) if a > 0)
                self.assertEqual(result["launches"]["stash"], 3 * (8 - pairs))

    def test_recovery(self):
        for case, result in self.each("recovery"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                self.assertTrue(result["stash_on"])
                self.assertEqual(result["lost"], 0)
        for rank in self.ranks:
            grown = rank["recovery"]["grow"]
            pages = [step["pages"] for step in grown["got"]]
            self.assertLess(pages[0], pages[1])
            self.assertEqual(len(set(pages[1:])), 1)
            self.assertEqual(grown["launches"]["stash"], 18 + 6)  # one step twice
            self.assertEqual(grown["resets"], ["training"])
            self.assertEqual(rank["recovery"]["no_grow"]["launches"]["stash"], 18)
            # over its budget in step 2: that one again without a limit, then as before
            self.assertEqual(rank["recovery"]["over_budget"]["factors"], [2.0, 2.0, None, 2.0, 2.0])
            capped = rank["recovery"]["max_pages"]["got"]
            self.assertEqual([step["pages"] for step in capped], [8, 0, 0, 0])
            later = rank["recovery"]["dropless"]["got"]
            self.assertEqual([step["pages"] for step in later][1:], [0, pages[1], pages[1]])

    def test_evaluations_between(self):
        for case, result in self.each("evaluations"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                self.assertGreater(result["pages"], 0)

    def test_more_micro_batches(self):
        for case, result in self.each("micro_batches"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                self.assertEqual(result["lost"], 0)

    def test_a_lost_step(self):
        for case, result in self.each("lost"):
            with self.subTest(**case):
                self.assertTrue(result["finite"] and result["overflow"] and result["in_evaluation"])
                self.assertFalse(result["after"])
                self.assertEqual(result["named"], ["is not tagged as rows of the experts"])

    def test_scales_and_untagged(self):
        for case, result in self.each("scales"):
            with self.subTest(**case):
                self.assert_equal_steps(result)
                self.assertEqual((result["wrong_scales"], result["named"]), (0, 1))
                self.assertEqual(result["launches"], {"stash": 18, "restore": 18})


if __name__ == "__main__":
    main()
