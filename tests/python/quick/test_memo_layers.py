"""memo.run with layers as people write them: bit by bit what they are without swapping, and nothing stays that
was to leave; and layers that are not token-wise, which the first step refuses."""
import contextlib
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.nn.functional as F
from common import gpt
from pagestash import Error, memo
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
HIDDEN, HEADS, TOKENS, CUT = 32, 2, 48, 24


class Block(gpt.Block):
    """Of this file's sizes."""

    def __init__(self, dropout=0.0):
        super().__init__(HIDDEN, HEADS, dropout)


class SequenceFirst(Block):
    """[tokens, batch, hidden]."""

    def forward(self, x):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class Modern(nn.Module):
    """RMSNorm, rotary embedding that is given, groups of queries, SwiGLU of one projection."""

    def __init__(self, heads=4, groups=2):
        super().__init__()
        self.size = HIDDEN // heads
        self.widths = [HIDDEN, groups * self.size, groups * self.size]
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, sum(self.widths)), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)

    @staticmethod
    def turned(x, cos, sin):
        """[batch, heads, tokens, size]."""
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, rotary):
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(self.widths, -1))
        o = F.scaled_dot_product_attention(self.turned(q, *rotary), self.turned(k, *rotary), v,
                                           is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).flatten(-2))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Biased(Block):
    """A learned bias for each pair of positions."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(HEADS, TOKENS, TOKENS))

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)


def encoder(**fields):
    """torch's own layer."""
    return nn.TransformerEncoderLayer(HIDDEN, HEADS, 2 * HIDDEN, **{"dropout": 0.0, "batch_first": True, **fields})


def plain(layer, x):
    """Of one argument."""
    return layer(x)


def trained(make, call, fraction, *, shape=(2, TOKENS, HIDDEN), dtype=torch.float32, around=contextlib.nullcontext,
            steps=2, **fields):
    """(losses and gradients of some steps, deviations)."""
    torch.manual_seed(0)
    layers = nn.ModuleList(make() for _ in range(3)).to(dtype)
    run = memo.run(layers, fraction=fraction, cut=CUT, block_tokens=16, host_bytes=1 << 30, **fields)
    out = []
    try:
        for step in range(steps):
            torch.manual_seed(step)
            first = x = torch.randn(shape, dtype=dtype, requires_grad=True)
            with around():
                for layer in layers:
                    x = call(layer, x)
            x.float().square().mean().backward()
            run.step()
            out += [x.detach(), first.grad, *(p.grad.clone() for p in layers.parameters() if p.grad is not None)]
    finally:
        run.abort()
        run.close()
    return out, dict(run.deviations)


class Same(unittest.TestCase):
    def same(self, make, call=plain, fractions=("1/3", 1), **fields):
        wanted, _ = trained(make, call, None, **fields)
        for fraction in fractions:
            got, deviations = trained(make, call, fraction, **fields)
            self.assertEqual(deviations, {})
            self.assertEqual(len(got), len(wanted))
            self.assertEqual([i for i, (a, b) in enumerate(zip(got, wanted)) if not torch.equal(a, b)], [])

    def test_batch_of_two(self):
        self.same(Block, fractions=(0, "1/3", "1/2", 1))

    def test_tokens_first(self):
        self.same(SequenceFirst, shape=(TOKENS, 2, HIDDEN), token_dim=0)

    def test_bfloat16(self):
        self.same(Block, dtype=torch.bfloat16)

    def test_autocast(self):
        self.same(Block, around=lambda: torch.autocast("cpu", torch.bfloat16))

    def test_rotary_groups_and_swiglu(self):
        angle = torch.arange(TOKENS)[:, None] / 10.0 ** torch.arange(HIDDEN // 8)
        self.same(Modern, lambda layer, x: layer(x, (angle.cos(), angle.sin())))
        self.same(Modern, lambda layer, x: layer(x=x, rotary=(angle.cos(), angle.sin())), fractions=(0,))

    def test_an_optional_argument_that_is_none(self):
        class Other(Block):
            def forward(self, hidden, input=None):  # pylint: disable=redefined-builtin
                return super().forward(hidden if input is None else hidden + input)
        self.same(Other, lambda layer, x: layer(x, input=None), fractions=(0,))

    def test_transformer_encoder_layer(self):
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        self.same(lambda: encoder(norm_first=True, dropout=0.1), lambda layer, x: layer(x, mask, is_causal=True))
        self.same(lambda: encoder(batch_first=False), shape=(TOKENS, 2, HIDDEN), token_dim=0, fractions=(0,))

    def test_transformer_encoder_layer_with_padding(self):
        padding = torch.zeros(2, TOKENS, dtype=torch.bool)
        padding[1, 40:] = True
        for attention in (None, "self_attn"):
            self.same(encoder, lambda layer, x: layer(x, src_key_padding_mask=padding), attention=attention,
                      fractions=("1/3",))

    def test_dropout(self):
        self.same(lambda: Block(dropout=0.2), fractions=(0, "1/3"))

    def test_learned_bias_of_positions(self):
        self.same(Biased)

    def test_learned_positions_as_an_argument(self):
        positions = nn.Parameter(torch.randn(TOKENS, HIDDEN))

        class Placed(Block):
            def forward(self, x, where):
                return super().forward(x + where)
        gradients = []
        for fraction in (None, "1/3"):
            positions.grad = None
            trained(Placed, lambda layer, x: layer(x, positions), fraction)
            gradients.append(positions.grad)
        self.assertTrue(torch.equal(*gradients))

    def test_within_a_checkpoint(self):
        """What it finds by its order is not what the layer keeps."""
        def block(layer, x):
            x = x.tanh()
            return layer(x).sin() * x
        for reentrant in (False, True):
            self.same(Block, lambda layer, x, r=reentrant: checkpoint(block, layer, x, use_reentrant=r),
                      fractions=("1/3",))

    def test_frozen(self):
        self.same(lambda: Block().requires_grad_(False), fractions=(0,))


class Wrong(Block):
    """Something before the layer."""

    def __init__(self, change):
        super().__init__()
        self.change, self.norm = change, nn.BatchNorm1d(HIDDEN)
        self.conv = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)

    def forward(self, x):
        return super().forward(self.change(self, x))


class Refused(unittest.TestCase):
    def refused(self, make, text):
        with self.assertRaises(Error) as caught:
            trained(make, plain, 1)
        self.assertRegex(str(caught.exception), f"^layer 0 of chunk 0: {text}")
        self.assertNotIn("\n", str(caught.exception))

    def test_what_mixes_tokens_before_attention(self):
        for name, change in (
                ("batch norm", lambda self, x: self.norm(x.transpose(1, 2)).transpose(1, 2)),
                ("positions", lambda _, x: x + torch.arange(x.shape[1])[:, None] / 10),
                ("mean", lambda _, x: x - x.mean(1, keepdim=True)),
                ("order", lambda _, x: x.flip(1)),
                ("neighbours", lambda self, x: self.conv(x.transpose(1, 2)).transpose(1, 2)),
                ("neighbour", lambda _, x: x + 0.1 * x.roll(1, 1))):
            with self.subTest(name):
                self.refused(lambda change=change: Wrong(change),
                             r"token \d+ comes out otherwise by .* when the tokens from 16 on are run on their own: "
                             "what surrounds its attention is not token-wise$")

    def test_what_mixes_tokens_behind_attention(self):
        class Summed(Block):
            def forward(self, x):
                return super().forward(x).cumsum(1)
        self.refused(Summed, "token 1[6-9] comes out|token [2-4][0-9] comes out")

    def test_shapes(self):
        self.refused(lambda: Wrong(lambda _, x: x[:, 1:]), r"argument 0 of its attention: .* is not token-wise")
        self.refused(lambda: Wrong(lambda _, x: x.view(2, TOKENS, HIDDEN)),
                     "it runs for all 48 tokens and not for 16 of them: shape .* is invalid")

        class Short(Block):
            def forward(self, x):
                return super().forward(x)[:, 1:]
        for shape, dim in (((TOKENS,), 1), ((TOKENS, HIDDEN), 2), ((TOKENS, HIDDEN), -3)):
            with self.assertRaisesRegex(Error, rf"layer 0 of chunk 0: hidden states of shape \({TOKENS}.*\): token_dim "
                                               f"{dim} is none of their dimensions"):
                trained(Block, plain, 1, shape=shape, token_dim=dim)
        self.refused(Short, r"it returns \(2, 47, 32\) for \(2, 48, 32\), .*: it is not token-wise")

    def test_attention(self):
        class Without(Block):
            def forward(self, x):
                return x + self.down(F.gelu(self.up(x)))

        class Twice(Block):
            def attend(self, q, k, v):
                return super().attend(super().attend(q, k, v), k, v)
        self.refused(Without, "it calls no attention")
        self.refused(Twice, "it calls attention twice: one call is allowed")

    def test_compiled_with_its_attention(self):
        def make():
            layer = Block()
            layer._compiled_call_impl = layer._call_impl  # as layer.compile() makes one, in seconds
            return layer
        self.refused(make, "it is compiled, with its attention: compile what surrounds that$")

    def test_input_changed_in_place(self):
        self.refused(lambda: Wrong(lambda _, x: x.mul_(2)), "it changes its input in place")


if __name__ == "__main__":
    unittest.main()
