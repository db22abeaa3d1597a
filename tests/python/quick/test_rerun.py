"""Snapshot: a step that ran and was undone leaves everything as it was, and runs alike again."""
import random
import unittest

import numpy
import torch

import pagestash
from pagestash.torch.rerun import Snapshot


class Router(torch.nn.Module):
    """A layer with dropout, a buffer that counts, a parameter that gets its gradient elsewhere."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.other = torch.nn.Parameter(torch.ones(4))
        self.other.main_grad = torch.zeros(4)
        self.register_buffer("tokens", torch.zeros(4))

    def forward(self, x):
        self.tokens += x.detach().sum(0)
        return torch.nn.functional.dropout(self.linear(x) * self.other, 0.5)


class Tracker:
    """Like Megatron's: tensors that are replaced, a generator that is kept, a name."""

    def __init__(self):
        self.states = {"model": torch.zeros(2), "name": "default",
                       "generator": torch.Generator().manual_seed(3)}

    def get_states(self):
        return dict(self.states)

    def set_states(self, states):
        self.states = states


def step(model, tracker):
    x = torch.randn(8, 4) + random.random() + float(numpy.random.rand())
    x = x + torch.randn(8, 4, generator=tracker.states["generator"]) + tracker.states["model"].sum()
    tracker.states["model"] = tracker.states["model"] + 1
    tracker.states["name"] = "changed"
    loss = model(x).square().mean()
    loss.backward()
    model.other.main_grad += model.other.grad
    return loss.item()


class SnapshotTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.model, self.tracker = Router(), Tracker()
        self.extra = torch.zeros(3)
        self.snapshot = Snapshot([self.model], [self.extra], [self.tracker])

    def test_undone_step_runs_alike(self):
        for gradients in ("none", "some"):
            with self.subTest(gradients):
                before = {n: b.clone() for n, b in self.model.named_buffers()}
                grads = {n: None if p.grad is None else p.grad.clone()
                         for n, p in self.model.named_parameters()}
                main = self.model.other.main_grad.clone()
                self.snapshot.take()
                first = step(self.model, self.tracker)
                self.extra += 1
                self.snapshot.restore()
                for name, parameter in self.model.named_parameters():
                    if grads[name] is None:
                        self.assertIsNone(parameter.grad)
                    else:
                        self.assertTrue(torch.equal(parameter.grad, grads[name]))
                for name, buffer in self.model.named_buffers():
                    self.assertTrue(torch.equal(buffer, before[name]))
                self.assertTrue(torch.equal(self.model.other.main_grad, main))
                self.assertEqual((self.tracker.states["name"], self.extra.sum().item()),
                                 ("default" if gradients == "none" else "changed", 0))
                self.assertEqual(step(self.model, self.tracker), first)

    def test_zero_and_missing_gradients_cost_no_copy(self):
        buffers = 4 * 4 + 3 * 4
        self.assertEqual(self.snapshot.take().copied_bytes, buffers)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.assertEqual(self.snapshot.take().copied_bytes, buffers)
        address = self.model.linear.weight.grad.data_ptr()
        step(self.model, self.tracker)
        self.snapshot.restore()
        self.assertEqual(self.model.linear.weight.grad.abs().sum().item(), 0)
        self.assertEqual(self.model.linear.weight.grad.data_ptr(), address)
        self.model.linear.weight.grad[0, 0] = float("nan")
        self.assertEqual(self.snapshot.take().copied_bytes, buffers + 64)
        known = Snapshot([self.model], gradients="zero").take()
        self.assertEqual(known.copied_bytes, 16)

    def test_gradient_replaced_in_the_step(self):
        weight = self.model.linear.weight
        weight.grad = kept = torch.ones_like(weight)
        self.snapshot.take()
        weight.grad = torch.full_like(weight, 7)
        self.snapshot.restore()
        self.assertIs(weight.grad, kept)
        self.assertTrue((kept == 1).all())

    def test_buffer_replaced_in_the_step(self):
        kept = self.model.tokens
        self.snapshot.take()
        self.model.tokens = self.model.tokens + 1
        self.snapshot.restore()
        self.assertIs(self.model.tokens, kept)
        self.assertEqual(kept.sum().item(), 0)

    def test_bad_use(self):
        with self.assertRaisesRegex(pagestash.Error, "nothing is kept"):
            self.snapshot.restore()
        self.snapshot.take()
        self.snapshot.drop()
        self.assertFalse(self.snapshot.taken)
        with self.assertRaisesRegex(pagestash.Error, "look, zero"):
            Snapshot(gradients="none")
        with self.assertRaisesRegex(pagestash.Error, "Router has no get_states"):
            Snapshot(trackers=[self.model])


if __name__ == "__main__":
    unittest.main()
