"""memo.run: what would give wrong losses or gradients without a sign is an Error, or is served from memory."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.nn.functional as F
from common import gpt
from pagestash import Error, memo
from torch import nn

torch.set_num_threads(1)
HIDDEN, HEADS, TOKENS = 32, 2, 48


class Block(gpt.Block):
    """Of this file's sizes."""

    def __init__(self):
        super().__init__(HIDDEN, HEADS)


class Square(torch.autograd.Function):
    """Keeps its input where autograd does not see it."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.x * gradient


class Attention(nn.Module):
    """Of queries that may be squared."""

    def __init__(self, squares=False):
        super().__init__()
        self.squares = squares

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(Square.apply(q) if self.squares else q, k, v, is_causal=True)


class Case(unittest.TestCase):
    def layers(self, make, fraction="1/2", **fields):
        torch.manual_seed(0)
        layers = nn.ModuleList(make() for _ in range(3))
        run = memo.run(layers, fraction=fraction, block_tokens=16, host_bytes=1 << 30, keep_last=0, **fields)
        self.addCleanup(run.close)
        self.addCleanup(run.abort)
        return layers, run

    @staticmethod
    def through(layers, *others):
        x = torch.randn(1, TOKENS, HIDDEN, generator=torch.Generator().manual_seed(1)).requires_grad_()
        for layer in layers:
            x = layer(x, *others)
        return x

    def refused(self, make, text, **fields):
        layers, _ = self.layers(make, **fields)
        with self.assertRaisesRegex(Error, text):
            self.through(layers)


class Results(Case):
    def test_tensors_deep_in_what_is_returned(self):
        class Deep(Block):
            def forward(self, x):
                y = super().forward(x)
                return y, {"aux": y.square().mean()}

        self.refused(Deep, "it returns 2 tensors: one is allowed")

    def test_a_list(self):
        class Listed(Block):
            def forward(self, x):
                return [super().forward(x)]

        self.refused(Listed, "it returns a list: a tensor is wanted")

    def test_a_loss_that_hangs_on_the_module(self):
        class Hung(Block):
            def forward(self, x):
                y = super().forward(x)
                self.aux = y.square().mean()
                return y

        self.refused(Hung, "a tensor with a history in 'aux'")

    def test_weights_that_are_computed_hang_on_modules(self):
        class Normed(Block):
            def __init__(self):
                super().__init__()
                self.up = torch.nn.utils.parametrizations.weight_norm(self.up)
                self.scaled = None

            def forward(self, x):
                self.scaled = self.up.weight * 2
                return super().forward(x)

        layers, run = self.layers(Normed)
        self.through(layers).sum().backward()
        run.step()
        self.assertEqual(run.deviations, {})


class Unseen(Case):
    def test_input(self):
        class Keeps(Block):
            def forward(self, x):
                return super().forward(x + Square.apply(x))

        self.refused(Keeps, "not seen by autograd")

    def test_queries(self):
        class Keeps(Block):
            def __init__(self):
                super().__init__()
                self.core = Attention(squares=True)

            def attend(self, q, k, v):
                return self.core(q, k, v)

        self.refused(Keeps, "not seen by autograd", attention="core")


class Changed(Case):
    def fails(self, layers, run, loss, text):
        with self.assertRaisesRegex(Error, text):
            loss.backward()
        run.abort()
        self.through(layers).sum().backward()
        run.step()

    def test_weights(self):
        for fraction, text in (("1/2", "a parameter or an argument was changed in place"),
                               (1, "a tensor that its backward needs, of shape")):
            layers, run = self.layers(Block, fraction)
            loss = self.through(layers).sum()
            with torch.no_grad():
                for parameter in layers.parameters():
                    parameter.mul_(1.1)
            self.fails(layers, run, loss, text)

    def test_an_argument(self):
        class Scaled(Block):
            def forward(self, x, scale=torch.ones(HIDDEN)):
                return super().forward(x * scale)

        layers, run = self.layers(Scaled)
        scale = torch.full((HIDDEN,), 1.1)
        loss = self.through(layers, scale).sum()
        scale.mul_(2)
        self.fails(layers, run, loss, "a parameter or an argument was changed in place")

    def test_other_parameters_in_the_forward(self):
        layers, run = self.layers(Block)
        model = nn.Sequential(*layers)
        x = torch.randn(1, TOKENS, HIDDEN)
        others = {name: parameter * 1.5 for name, parameter in model.named_parameters()}
        self.fails(layers, run, torch.func.functional_call(model, others, (x,)).sum(), "its parameters are others")


class Others(Case):
    def test_gradients_of_gradients(self):
        layers, run = self.layers(Block)
        with self.assertRaisesRegex(Error, "create_graph"):
            torch.autograd.grad(self.through(layers).sum(), list(layers.parameters()), create_graph=True)
        run.abort()
        self.through(layers).sum().backward()
        run.step()

    def test_an_argument_as_long_as_the_tokens(self):
        class Cross(Block):
            def __init__(self):
                super().__init__()
                self.core = Attention()

            def attend(self, q, k, v):
                return self.core(q, k, v)

            def forward(self, x, encoded):
                x = super().forward(x)
                return x + F.scaled_dot_product_attention(x, encoded, encoded)

        layers, run = self.layers(Cross, attention="core")
        plain = nn.ModuleList(Cross() for _ in range(3))
        plain.load_state_dict(layers.state_dict())
        for length in (40, TOKENS, 40):
            encoded = torch.randn(1, length, HIDDEN)
            got, wanted = self.through(layers, encoded), self.through(plain, encoded)
            got.square().mean().backward()
            wanted.square().mean().backward()
            run.step()
            self.assertTrue(torch.allclose(got, wanted, 1e-5, 1e-6))
        for a, b in zip(layers.parameters(), plain.parameters()):
            self.assertTrue(torch.allclose(a.grad, b.grad, 1e-4, 1e-6))
        self.assertEqual(list(run.deviations.values()), [3])


if __name__ == "__main__":
    unittest.main()
