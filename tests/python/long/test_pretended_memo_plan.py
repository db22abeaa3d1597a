"""MEMO's four steps as one thing, on the pretended GPU: profile, expand, plan, train by it while tokens are
swapped and computed again."""
import functools
import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from common import pretended
pretended.start()
pretended.use_as_cuda()

import torch
from common import gpt
from common.pages import run_block
from pagestash import Error, allocator, memo

torch.set_num_threads(1)
TOKENS, SWAPPED = 512, dict(fraction="1/2", block_tokens=64, check=False)  # its kernels compute nothing


class Trainer:
    """A GPT whose layers are swapped, and its optimizer."""

    def __init__(self, layers, hidden=64, **fields):
        self.model = gpt.GPT(layers, hidden).to("cuda")
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3, foreach=False)
        self.run = memo.run(self.model.layers, **SWAPPED, **fields)
        self.words = gpt.words_of(0, 1, TOKENS).to("cuda")

    def step(self):
        """Of one micro-batch."""
        with self.run.iteration():
            gpt.loss_of(self.model, self.words).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class PlainTrainer(Trainer):
    """Nothing is swapped."""

    def __init__(self, layers):  # pylint: disable=super-init-not-called
        self.model = gpt.GPT(layers).to("cuda")
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3, foreach=False)
        self.words = gpt.words_of(0, 1, TOKENS).to("cuda")

    def step(self):
        """Of one micro-batch."""
        gpt.loss_of(self.model, self.words).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Experts(torch.nn.Module):
    """Rows at capacity, of which the first `counts` are live."""

    def __init__(self, hidden):
        super().__init__()
        self.up = torch.nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = torch.nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, rows, _counts):
        return self.down(torch.relu(self.up(rows)))


class Pair(torch.nn.Module):
    """A dense layer and one of experts."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.dense, self.experts, self.counts = gpt.Block(hidden, heads), Experts(hidden), None

    def forward(self, x):
        x = self.dense(x)
        return x + self.experts(x.flatten(0, 1), self.counts).view_as(x)


class PairTrainer(Trainer):
    """Dense layers are swapped, experts paged."""

    def __init__(self, layers, plan=None):  # pylint: disable=super-init-not-called
        self.model = gpt.GPT(layers, block=Pair).to("cuda")
        counts = torch.zeros(1, dtype=torch.int64, device="cuda")
        counts.copy_(torch.tensor([100]))
        for layer in self.model.layers:
            layer.counts = counts
        units = [unit for layer in self.model.layers for unit in (
            layer.dense, memo.paged(layer.experts, counts=lambda _rows, counts: counts, capacity=TOKENS))]
        self.run = memo.run(units, pages=400, plan=plan, **SWAPPED)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3, foreach=False)
        self.words = gpt.words_of(0, 1, TOKENS).to("cuda")


class Whole(unittest.TestCase):
    def test_dense_layers_swapped_and_experts_paged_follow_the_plan_of_the_model_itself(self):
        profile = memo.profile(PairTrainer, PairTrainer.step, layers=8, verify=False,
                               blocks=lambda trainer: [layer.dense for layer in trainer.model.layers])
        plan = profile.plan()
        self.assertEqual((plan.status, plan.peak, plan.layers), ("optimal", plan.lower_bound, 8))
        trainer = PairTrainer(8, plan=plan)
        for _ in range(4):
            trainer.step()
        figures, now = trainer.run.scheduler.stats(), allocator.stats()
        self.assertEqual((figures.swapped, figures.stashed), (3 * 6, 3 * 6))  # the first step is measured
        self.assertEqual({kind: n for kind, n in now["deviations"].items() if n}, {}, now["first_deviation"])
        self.assertEqual((now["planned_peak_bytes"], now["planned"]), (plan.peak, now["requests"]))
        self.assertGreater(now["planned"], 3 * 1000)

    def test_a_swapped_model_of_eight_layers_follows_the_plan_of_a_profile_of_few(self):
        profile = memo.profile(Trainer, Trainer.step, layers=3)
        self.assertTrue(profile.exact, profile.difference)
        plan = profile.expand(8).plan()
        self.assertEqual((plan.status, plan.peak), ("optimal", plan.lower_bound))
        trainer = Trainer(8, plan=plan)
        for _ in range(4):
            trainer.step()
        self.assertEqual(trainer.run.scheduler.stats().swapped, 4 * 6)
        now = allocator.stats()
        self.assertEqual({kind: n for kind, n in now["deviations"].items() if n}, {}, now["first_deviation"])
        self.assertEqual((now["planned_peak_bytes"], now["arena_bytes"]), (plan.peak, plan.peak))
        self.assertGreater(now["planned"], 3 * 1000)
        with self.subTest("a longer sequence is served, and counted, and then the plan is followed again"):
            trainer.words = gpt.words_of(1, 1, TOKENS + 64).to("cuda")
            trainer.step()
            self.assertTrue(trainer.run.deviations)
            self.assertTrue(any(allocator.stats()["deviations"].values()))
            trainer.words = gpt.words_of(0, 1, TOKENS).to("cuda")
            for _ in range(2):
                trainer.step()
            before = allocator.stats()["deviations"]
            trainer.step()
            self.assertEqual(allocator.stats()["deviations"], before)
        with self.subTest("a plan for another model"):
            with self.assertRaisesRegex(Error, r"the plan is of 8 layers, and 7 are given"):
                Trainer(7, plan=plan)
            with self.assertRaisesRegex(Error, r"norm1.weight is float32\[64\] in the plan's layer, and "
                                               r"float32\[32\] in layer 0"):
                Trainer(8, hidden=32, plan=plan)
        with self.subTest("a step that is not begun"):
            with self.assertRaisesRegex(Error, r"begin\(\) or iteration\(\) comes before"):
                trainer.run.step()


class Model(gpt.GPT):
    """Answers its loss."""

    def __init__(self, layers):
        super().__init__(layers)
        self.to("cuda")

    def forward(self, words):
        return torch.nn.functional.cross_entropy(super().forward(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def same_words():
    """Nothing is asked of the GPU before the first."""
    words = gpt.words_of(0, 1, TOKENS).to("cuda")
    while True:
        yield words


class Pages(unittest.TestCase):
    """The blocks as they stand in the pages."""

    def assert_follows(self, plan):
        now = allocator.stats()
        self.assertEqual((plan.status, plan.layers), ("optimal", 32))
        self.assertEqual({kind: n for kind, n in now["deviations"].items() if n}, {}, now["first_deviation"])
        self.assertEqual((now["planned_peak_bytes"], now["arena_bytes"]), (plan.peak, plan.peak))

    def of_trainers(self, **more):
        """What a block knows whose models get its plan in their build."""
        names = {"memo": memo, "step": Trainer.step, **more}
        names["build"] = lambda layers: Trainer(layers, plan=names.get("plan"))
        return names

    def test_readme(self):
        names = self.of_trainers(batches=range(3))
        run_block("README.md", "memo.profile(", names)
        self.assert_follows(names["plan"])
        self.assertEqual(names["model"].run.scheduler.stats().swapped, 3 * 30)

    def test_memo(self):
        names = {"Model": Model, "batches": same_words()}
        with mock.patch.object(memo, "run", functools.partial(memo.run, **SWAPPED)):
            run_block("docs/memo.md", "class Trainer:", names)
        for _ in range(3):
            names["trainer"].step()
        self.assert_follows(names["plan"])
        self.assertEqual(names["trainer"].run.scheduler.stats().swapped, 3 * 30)

    def test_planner(self):
        names = {"build": PlainTrainer, "step": PlainTrainer.step}
        run_block("docs/planner.md", "memo.profile(build, step)", names)
        for step in range(3):
            if step > 0:
                allocator.mark_iteration()
            names["model"].step()
        self.assert_follows(names["plan"])


if __name__ == "__main__":
    unittest.main()
