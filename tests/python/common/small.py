"""The smallest layer of experts, for tests of edges: two products and a gate, prefix or segments."""
import gc

import torch
import torch.nn.functional as F


class Small:
    """num experts of one rank. prefix: x is [capacity, hidden] and expert 0 does all; segments: x is
    [num, capacity, hidden]. Rows behind the live ones are zero. counts: live rows of each expert."""

    def __init__(self, counts=(3, 0, 32, 7), capacity=32, hidden=16, ffn=24, segments=True,
                 dtype=torch.float32, seed=0):
        generator = torch.Generator().manual_seed(seed)
        num = len(counts) if segments else 1
        self.counts, self.capacity = torch.tensor(counts), capacity
        self.segments = num if segments else 0

        def weights(*shape):
            made = torch.randn(*shape, generator=generator) * shape[-2] ** -0.5
            return made.to(dtype).requires_grad_()
        self.w1, self.w2 = weights(num, hidden, 2 * ffn), weights(num, ffn, hidden)
        x = torch.zeros(num, capacity, hidden, dtype=dtype)
        for slab, count in zip(x, counts if segments else [sum(counts)]):
            slab[:count] = torch.randn(count, hidden, generator=generator).to(dtype)
        self.x = x.requires_grad_()

    @property
    def layer(self):
        """What stash.layer wants to know."""
        return {"counts": self.counts, "capacity": self.capacity, "segments": self.segments}

    def experts(self, x):
        """Keeps five tensors: x, [gate, up], silu(gate), up's view, the product."""
        gate, up = torch.bmm(x, self.w1).chunk(2, -1)
        return torch.bmm(F.silu(gate) * up, self.w2)

    def plain(self):
        """Without a stash."""
        return self.experts(self.x * 1)

    def stashed(self, stash, **options):
        """In a layer of this stash."""
        x = self.x * 1
        if not self.segments:
            x = x.squeeze(0)
        with stash.layer(**{**self.layer, **options}):
            return self.experts(x if self.segments else x.unsqueeze(0))

    @property
    def inputs(self):
        """Leaves that get gradients."""
        return [self.x, self.w1, self.w2]

    def gradients(self, forward):
        """The loss of forward() and the gradients of the inputs."""
        for leaf in self.inputs:
            leaf.grad = None
        loss = forward().square().sum()
        loss.backward()
        return [loss.detach()] + [leaf.grad.clone() for leaf in self.inputs]


def equal(these, those):
    """Bits of all tensors."""
    return len(these) == len(those) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(these, those))


def settled(stash):
    """Status after a check of the pages and a step; dead graphs are collected before."""
    gc.collect()
    stash.pool.check(0)
    stash.step()
    return stash.status()
