"""Megatron-Core's layers by tokens, on two gloo ranks with its own schedules: losses, weights and
gradients as without swapping, to the bit, whatever is swapped."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from common.megatron_ranks import run_ranks  # noqa: E402
from common.needs import main, needs  # noqa: E402

STEPS = 8
SCENARIOS = ("no_pipelining", "pipelining", "tensor_parallel",
             "context_parallel", "experts", "around", "refused")


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

    def assert_equal_steps(self, rank, case, by_fraction, steps=STEPS):
        """All fractions as without swapping."""
        wanted = by_fraction["None"]["steps"]
        self.assertEqual(len({step["after"] for step in wanted}), steps)
        for fraction, one in by_fraction.items():
            with self.subTest(rank=rank, case=case, fraction=fraction):
                self.assertEqual(one["steps"], wanted)
                if one["figures"] is not None:
                    self.assertEqual((one["figures"]["steps"], one["figures"]["deviations"]),
                                     (steps, {}))

    def test_without_pipelining(self):
        for rank, case, by_fraction in self.each("no_pipelining"):
            self.assert_equal_steps(rank, case, by_fraction)
            figures = by_fraction["1/2"]["figures"]
            # 3 micro-batches of 3 layers, of which the last two stay in their buffers
            self.assertEqual((figures["visits"], figures["swapped"]), (STEPS * 9, STEPS * 3))

    def test_with_pipelining(self):
        for rank, case, by_fraction in self.each("pipelining"):
            if case == "length":
                self.assertEqual(by_fraction["1/2"]["steps"], by_fraction["None"]["steps"])
                self.assertEqual(by_fraction["1/2"]["figures"]["deviations"], {
                    "hidden states of shape (24, 2, 64), torch.float32": 4 * 3})
                continue
            self.assert_equal_steps(rank, case, by_fraction)
            figures = by_fraction["1/2"]["figures"]
            self.assertEqual(figures["visits"], STEPS * 4 * figures["units"])
            self.assertGreater(figures["swapped"], STEPS * 4 * (figures["units"] - 2) - 1)

    def test_tensor_parallel(self):
        for rank, results in enumerate(self.ranks):
            cases = results["tensor_parallel"]
            for case in ("tensor", "sequence"):
                self.assert_equal_steps(rank, case, cases[case], steps=4)
                self.assertEqual(cases[case]["1/2"]["figures"]["swapped"], 4 * 3)
            for want, got in cases["near"]:  # attention has the tokens in the sequence's order
                for a, b in zip(want, got, strict=True):
                    self.assertAlmostEqual(a, b, places=5)

    def test_context_parallel(self):
        for rank, results in enumerate(self.ranks):
            cases = results["context_parallel"]
            self.assertEqual(cases["positions"], [[0, 1, 6, 7], [2, 3, 4, 5]][rank])
            self.assert_equal_steps(rank, "context", cases["context"], steps=4)
            for want, got in cases["near"]:
                for a, b in zip(want, got, strict=True):
                    self.assertAlmostEqual(a, b, places=5)

    def test_experts_are_paged_and_attention_swapped(self):
        for rank, results in enumerate(self.ranks):
            result = results["experts"]
            self.assert_equal_steps(rank, "paged", result["paged"])
            grown = result["grown"]
            self.assertEqual(grown["1/2"]["steps"], grown["None"]["steps"])
            self.assertEqual(grown["1/2"]["figures"]["steps"], 3 + 1)
            # in each of 3 micro-batches all but the last two layers
            self.assertEqual(result["paged"]["1/2"]["figures"]["swapped"], STEPS * 3 * 2)
            pages = result["pages"]
            self.assertEqual((pages["in_use"], pages["faults"], pages["lost"]), ([0, 0], 0, 0))
            self.assertEqual(pages["launches"]["stash"], pages["launches"]["restore"])
            # of each fraction, in each step but the first, 3 micro-batches of the first layer with
            # experts; the other's backward follows at once
            self.assertGreaterEqual(pages["launches"]["stash"], 3 * (STEPS - 1) * 3)

    def test_evaluations_another_number_of_micro_batches_and_an_exception(self):
        for rank, results in enumerate(self.ranks):
            swapped = results["around"]["swapped"]
            wanted = swapped["None"]["steps"]
            for fraction in ("0", "1/2"):
                self.assertEqual(swapped[fraction]["steps"], wanted, f"rank {rank}, {fraction}")
                figures = swapped[fraction]["figures"]
                # 3, 2 and 4 micro-batches, and of the broken step a forward of 3 layers
                self.assertEqual((figures["steps"], figures["visits"]), (3, 3 * (3 + 2 + 4) + 3))

    def test_refusals(self):
        for results in self.ranks:
            sentences = results["refused"]["sentences"]
            self.assertTrue(sentences.pop("left"))
            self.assertEqual(sentences.pop("units"), 0)
            for name, words in (
                    ("recompute_granularity", "is 'selective': what Megatron-Core computes again"),
                    ("cpu_offloading", "it moves the same tensors"),
                    ("fine_grained_activation_offloading", "it moves the same tensors"),
                    ("fp8", "other maxima"), ("cuda_graph_impl", "without their calls"),
                    ("multi_latent_attention", "rotary positions"),
                    ("dropout", "random states for CUDA graphs"),
                    ("cross_attention", "layer 2: it has cross attention"),
                    ("model", "Linear has no decoder with layers"), ("fraction", "from 0 to 1"),
                    ("token_dim", "Megatron-Core's, and not to be said"),
                    ("micro_batches", "say micro_batches"),
                    ("packed_seq_params", "packed_seq_params is given"),
                    ("positions", "not token-wise")):
                with self.subTest(name=name):
                    self.assertIn(words, sentences.pop(name) or "nothing was refused")
            self.assertEqual(sentences, {})

    def test_in_one_piece_all_is_as_without(self):
        for rank, results in enumerate(self.ranks):
            self.assert_equal_steps(rank, "whole", results["around"]["whole"], steps=2)


if __name__ == "__main__":
    main()
