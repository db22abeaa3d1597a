"""memo.run: the same losses and weights whatever is swapped, as long as the pieces are the same."""
import gc
import os
import sys
import unittest
import weakref

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import memo

torch.set_num_threads(1)


def trained(fraction, cut, layers=4, steps=2, tokens=256, **fields):
    """(losses, weights, figures)."""
    torch.manual_seed(0)
    model = gpt.GPT(layers)
    run = memo.run(model.layers, fraction=fraction, cut=cut, block_tokens=64, **fields)
    losses = gpt.train(model, run, steps, tokens=tokens)
    figures = run.scheduler.stats() if run.scheduler else None
    run.close()
    return losses, [p.detach().clone() for p in model.parameters()], figures


class Equal(unittest.TestCase):
    def test_every_fraction_trains_as_none_does(self):
        losses, weights, _ = trained(None, 64)
        for fraction in (0, "1/4", "1/2", 1):
            with self.subTest(fraction=fraction):
                got, their, figures = trained(fraction, 64)
                self.assertEqual(got, losses)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(weights, their)))
                self.assertEqual((figures.swapped, figures.kept_in_place), (4, 4))

    def test_a_run_that_nobody_has_is_gone_with_its_model(self):
        model = gpt.GPT(2)
        run = memo.run(model.layers, fraction="1/2", block_tokens=64)
        gpt.train(model, run, 1, tokens=256)
        left = weakref.ref(model), weakref.ref(run), weakref.ref(run.buffers)
        del model, run
        gc.collect()
        self.assertEqual([one() for one in left], [None] * 3)


if __name__ == "__main__":
    unittest.main()
