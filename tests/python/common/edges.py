"""For tests of a Stash's edges: the smallest layer of experts, and a test case whose stashes are checked at
its end."""
import gc
import logging
import unittest

import torch
import torch.nn.functional as F

import pagestash
from pagestash.torch import Stash

PAGE_BYTES = 16384


def setUpModule():
    """For the modules of these tests: makes the collections of garbage quick that they ask for."""
    gc.collect()
    gc.freeze()


def tearDownModule():
    gc.unfreeze()


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


class StashTest(unittest.TestCase):
    """Stashes made by self.stash are checked when the test ends."""

    def setUp(self):
        self.small = Small()
        log = logging.getLogger("pagestash")
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.ERROR)

    def stash(self, pages=64, **options):
        """A Stash on the CPU."""
        stash = Stash("cpu", pages=pages, page_bytes=PAGE_BYTES, **options)
        self.addCleanup(self.conserved, stash)
        return stash

    def conserved(self, stash):
        """Nothing in use, nothing lost; and it closes."""
        if not stash.closed and stash.pool is not None:
            status = settled(stash)
            self.assertEqual((status.in_use, status.check_errors), ((0, 0), 0))
        stash.close()

    def same(self, stash, forward=None):
        """forward() in the stash has the bits of the plain one: loss and gradients."""
        small = self.small
        self.assertTrue(equal(small.gradients(small.plain),
                              small.gradients(forward or (lambda: small.stashed(stash)))))

    def used(self, stash):
        """The most pages since the last statistics were reset."""
        return settled(stash).high_water[0]

    def refused(self, pattern, status=""):
        """A context: an Error of the package with such a sentence."""
        return self.assertRaisesRegex(pagestash.Error, pattern)
