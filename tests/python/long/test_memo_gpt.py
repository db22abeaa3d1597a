"""memo.run: a GPT of 8 layers and 2,048 tokens trains bit by bit as it does without swapping, whatever fraction
of the tokens leaves, and keeps the bytes of the closed form and no byte more."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
import torch.nn.functional as F
from common import gpt, memory
from pagestash import memo

torch.set_num_threads(1)
LAYERS, HIDDEN, TOKENS = 8, 16, 2048
FRACTIONS = ((0, 0), ("1/4", 512), ("1/2", 1024), (1, 2048))  # and the tokens that these are
HEADS = {"flash": 2, "plain": 1}
STEPS = {"flash": 20, "plain": 3}  # 16 MiB of shares for each layer take their time
BLOCKS = {"flash": (gpt.Block, {}), "plain": (gpt.PlainBlock, {"attention": "core"})}


def build(kind, fraction, cut=None):
    """(model, Run)."""
    block, fields = BLOCKS[kind]
    torch.manual_seed(0)
    model = gpt.GPT(LAYERS, HIDDEN, HEADS[kind], block)
    return model, memo.run(model.layers, fraction=fraction, cut=cut, host_bytes=1 << 30, **fields)


def trained(kind, fraction, cut, steps):
    """(losses, weights)."""
    model, run = build(kind, fraction, cut)
    losses = gpt.train(model, run, steps, tokens=TOKENS)
    run.close()
    return losses, [p.detach().clone() for p in model.parameters()]


class Compiled(gpt.Block):
    """What surrounds attention is compiled."""

    def __init__(self, hidden, heads, backend):
        super().__init__(hidden, heads)
        self.before = torch.compile(lambda x: self.qkv(self.norm1(x)), backend=backend)
        self.behind = torch.compile(lambda x: x + self.down(F.gelu(self.up(self.norm2(x)))), backend=backend)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.before(x).chunk(3, -1))
        return self.behind(x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2)))


class Bits(unittest.TestCase):
    def same(self, one, other):
        self.assertEqual(one[0], other[0])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True)))

    def test_of_20_steps_in_the_same_two_pieces(self):
        for kind, steps in STEPS.items():
            wanted = trained(kind, None, 512, steps)
            self.assertLess(wanted[0][-1], wanted[0][0])
            for fraction, _ in FRACTIONS:
                with self.subTest(kind=kind, fraction=fraction):
                    self.same(trained(kind, fraction, 512, steps), wanted)

    def test_where_the_pieces_part_where_the_swapped_tokens_end(self):
        for fraction, tokens in FRACTIONS:
            with self.subTest(fraction=fraction):
                self.same(trained("flash", fraction, None, 4), trained("flash", None, tokens, 4))

    def test_of_compiled_parts(self):
        for backend in ("aot_eager", "inductor"):
            got = []
            for fraction in (None, 0, "1/4", 1):
                torch.manual_seed(0)
                model = gpt.GPT(3, HIDDEN, 2, Compiled, backend=backend)
                run = memo.run(model.layers, fraction=fraction, cut=96, block_tokens=32, host_bytes=1 << 30)
                losses = gpt.train(model, run, 3, batch=2, tokens=256)
                self.assertEqual(run.deviations, {})
                run.close()
                got.append((losses, [p.detach().clone() for p in model.parameters()]))
                with self.subTest(backend=backend, fraction=fraction):
                    self.same(got[-1], got[0])


def up(num_bytes):
    """To whole lines of 256."""
    return -(-num_bytes // 256) * 256


def bytes_of_layer(kind):
    """What a layer keeps in float32, by its shapes: (input, what else goes whole, of a token)."""
    hidden = 4 * HIDDEN
    attention = up(hidden * TOKENS)                       # its output
    norms = 2 * (hidden + 2 * 4)                          # their outputs, means and deviations
    token = norms + 3 * hidden + hidden + 8 * hidden      # q, k, v; behind attention's residual; around gelu
    if kind == "flash":
        attention += up(4 * HEADS[kind] * TOKENS)         # a logarithm for each token and head
    else:
        attention += up(hidden * TOKENS) + up(4 * TOKENS * TOKENS)  # q, scaled; the softmax
    return hidden * TOKENS, attention, token


class Bytes(unittest.TestCase):
    """Alive between forward and backward, of all that torch has and beside the output of the last layer."""

    def alive(self, model, run):
        """In the second step: the first one makes buffers."""
        for _ in range(2):
            x = y = None
            x = torch.randn(1, TOKENS, HIDDEN, requires_grad=True)
            with memory.measured() as timeline:
                y = x
                for layer in model.layers:
                    y = layer(y)
            y.sum().backward()
            run.step()
        return [held for kind, held in timeline.points if kind == "held"][-1] - y.nbytes

    def test_are_the_closed_form(self):
        for kind in BLOCKS:
            first, attention, token = bytes_of_layer(kind)
            whole = up(first) + attention
            for fraction, tokens in FRACTIONS[::3 if kind == "plain" else 1]:
                with self.subTest(kind=kind, fraction=fraction):
                    model, run = build(kind, fraction, 512)
                    self.assertEqual(self.alive(model, run), 0)
                    self.assertEqual(run.buffers.memory.nbytes, 2 * up(whole + TOKENS * token))
                    self.assertEqual(run.choice.host_bytes, (LAYERS - 2) * up(whole + tokens * token))
                    self.assertEqual(run.deviations, {})
                    run.close()

    def test_of_no_swapping_are_those_of_all_layers(self):
        for kind in BLOCKS:
            model, run = build(kind, None, 512)
            first, attention, token = bytes_of_layer(kind)
            self.assertEqual(self.alive(model, run), LAYERS * (first + attention + TOKENS * token) - first)
            run.close()


if __name__ == "__main__":
    unittest.main()
