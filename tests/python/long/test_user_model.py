"""A model as a user writes it, that no other test has, and what the user adds for pagestash: four
statements (marked). Switch routing (top-1) with a capacity factor below 1, so that tokens are dropped; a dense
first layer; a shared expert; biases, GELU, dropout, gradient clipping, an evaluation between steps. Routing
becomes more even as it trains, so that fewer tokens are dropped, more pages are wanted than in the first
step, and a step runs out of them and is run again."""
import unittest

import torch
from torch import nn

import pagestash.torch
from common import moe

WIDTH, EXPERTS, FACTOR = 48, 4, 0.75
BATCH, LENGTH = 6, 96


class Mlp(nn.Sequential):
    def __init__(self, inner):
        super().__init__(nn.Linear(WIDTH, inner), nn.GELU(), nn.Linear(inner, WIDTH))


class SwitchExperts(nn.Module):
    """x: [experts, capacity, width], live rows first; kept: [experts] live rows."""

    def __init__(self, inner=64):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(EXPERTS, WIDTH, inner) / WIDTH ** 0.5)
        self.b1 = nn.Parameter(torch.randn(EXPERTS, 1, inner) * 0.1)
        self.w2 = nn.Parameter(torch.randn(EXPERTS, inner, WIDTH) / inner ** 0.5)
        self.b2 = nn.Parameter(torch.randn(EXPERTS, 1, WIDTH) * 0.1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, kept):
        h = nn.functional.gelu(torch.baddbmm(self.b1, x, self.w1))
        return torch.baddbmm(self.b2, self.drop(h), self.w2)


class SwitchLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts, self.shared = nn.Linear(WIDTH, EXPERTS), SwitchExperts(), Mlp(32)
        self.register_buffer("dropped", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        tokens = flat.shape[0]
        capacity = int(FACTOR * tokens / EXPERTS)
        weight, expert = self.router(flat).softmax(-1).max(-1)
        hot = nn.functional.one_hot(expert, EXPERTS)
        place = (hot.cumsum(0) * hot).sum(1) - 1
        fits = place < capacity
        slot = torch.where(fits, expert * capacity + place, EXPERTS * capacity)
        buffer = flat.new_zeros(EXPERTS * capacity + 1, WIDTH).index_copy(0, slot[fits], flat[fits])
        kept = hot.sum(0).clamp(max=capacity)
        y = self.experts(buffer[:-1].view(EXPERTS, capacity, WIDTH), kept)
        y = torch.cat([y.reshape(-1, WIDTH), flat.new_zeros(1, WIDTH)])[slot] * weight.unsqueeze(1)
        self.dropped += tokens - kept.sum()
        return (self.shared(flat) + y).view_as(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(256, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.ffn = nn.ModuleList([Mlp(96), SwitchLayer(), SwitchLayer(), SwitchLayer()])
        self.norm = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in self.ffn)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        x = self.mix(self.embed(tokens))[0]
        for norm, ffn in zip(self.norm, self.ffn):
            x = x + ffn(norm(x))
        return self.head(x)


def loss_of(net, batch):
    return nn.functional.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(paged, steps=12):
    """Losses of every step, weights and dropped tokens at the end; the stash, how often it grew."""
    torch.manual_seed(3)
    net, text, out, grown = Net(), moe.text(), [], 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    stash = None
    if paged:
        stash = pagestash.torch.Stash(page_bytes=16384)                          # 1
        for layer in net.ffn[1:]:
            stash.wrap(layer.experts, counts=lambda x, kept: kept,               # 2
                       capacity=lambda x, kept: x.shape[1], segments=EXPERTS)    # 3
    for _ in range(steps):
        at = torch.randint(len(text) - LENGTH - 1, (3 * BATCH,))
        batches = torch.stack([text[i:i + LENGTH + 1] for i in at]).split(BATCH)

        def step():
            losses = [loss_of(net.train(), batch) for batch in batches[:2]]
            sum(losses).backward()
            return [loss.item() for loss in losses]

        pages = stash.pages if paged else 0
        out += stash.rerun(step, modules=[net]) if paged else step()             # 4
        grown += bool(pages) and stash.pages > pages
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            out.append(loss_of(net.eval(), batches[2]).item())
    dropped = sum(int(layer.dropped) for layer in net.ffn[1:])
    return out, moe.weight_bits(net), dropped, stash, grown


class UserModel(unittest.TestCase):
    def test_trains_to_the_same_bits(self):
        with moe.poisoned():
            losses, weights, dropped, _, _ = train(paged=False)
            self.assertEqual((losses, weights), train(paged=False)[:2], "the model does not repeat")
            ours = train(paged=True)
        self.assertGreater(dropped, 0)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual((losses, weights, dropped), ours[:3])
        stash, grown = ours[3:]
        self.assertGreater(grown, 0, "nothing overflowed: the test has lost its point")
        status = stash.status()
        self.assertTrue(status.valid)
        self.assertEqual((status.num_faults, status.in_use), (0, (0, 0)))
        self.assertGreater(status.high_water[0], 0)
        stash.close()


if __name__ == "__main__":
    unittest.main()
