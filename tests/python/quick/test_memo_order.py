"""memo.run under other orders: of passes, where tokens come back into another buffer than they left, and of
tokens, where attention sees several groups of them."""
import os
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import memo
from pagestash.memo._run import Run
from pagestash.memo._unit import Unit
from pagestash.schedule import Schedule

torch.set_num_threads(1)


def gradients(fraction, layers=3, micro_batches=3, tokens=64):
    """Of a step of GPipe."""
    torch.manual_seed(0)
    model = gpt.GPT(layers, hidden=32, dropout=0.1)
    schedule = Schedule("gpipe", num_micro_batches=micro_batches)
    run = memo.run(model.layers, fraction=fraction, cut=24, block_tokens=16, schedule=schedule)
    losses = {}
    for one in schedule:
        if one.kind == "forward":
            losses[one.micro_batch] = gpt.loss_of(model, gpt.words_of(one.micro_batch, 2, tokens))
        else:
            losses[one.micro_batch].backward()
    run.step()
    figures = run.scheduler.stats() if run.scheduler else None
    run.close()
    return [p.grad.clone() for p in model.parameters()], figures


class Order(unittest.TestCase):
    def test_tokens_that_come_back_into_the_other_buffer(self):
        wanted, _ = gradients(None)
        for fraction in (0, "1/2", 1):
            with self.subTest(fraction=fraction):
                got, figures = gradients(fraction)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(wanted, got)))
                self.assertGreater(figures.swapped, 6)


class Gathered(gpt.Block):
    """Attention sees two tokens for each of the layer's, the second ones behind all first ones, as those of two
    ranks are with sequence parallelism."""

    def forward(self, x):
        batch, tokens, hidden = x.shape
        both = self.norm1(torch.cat([x, x.flip(-1)], 1))
        q, k, v = (t.view(batch, 2 * tokens, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(both).chunk(3, -1))
        o = self.attend(q, k, v).transpose(1, 2).reshape(batch, 2, tokens, hidden)
        x = x + self.out(o.sum(1))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Twice(Unit):
    """Of a Gathered."""
    groups = 2


class Groups(unittest.TestCase):
    def trained(self, fraction, cut=24):
        """Losses, weights."""
        torch.manual_seed(0)
        model = gpt.GPT(3, hidden=32, heads=2, block=Gathered)
        with unittest.mock.patch.object(Run, "unit_type", Twice):
            run = memo.run(model.layers, fraction=fraction, cut=cut, block_tokens=16)
        losses = gpt.train(model, run, 1, batch=2, tokens=64)
        run.close()
        return losses, [p.detach() for p in model.parameters()]

    def test_groups_of_tokens(self):
        whole, _ = self.trained(None, cut=0)
        losses, weights = self.trained(None)
        for a, b in zip(whole, losses, strict=True):
            self.assertAlmostEqual(a, b, places=5)
        for fraction in ("1/4", "1/2"):
            with self.subTest(fraction=fraction):
                got, other = self.trained(fraction)
                self.assertEqual(got, losses)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(weights, other)))


if __name__ == "__main__":
    unittest.main()
