"""memo.run under other orders than forward, backward: what comes back into the other buffer is what left."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import gpt
from pagestash import memo
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


if __name__ == "__main__":
    unittest.main()
