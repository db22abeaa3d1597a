#!/usr/bin/env python3
"""pagestash.torch.glu: rows in any order of memory, steps that measure, derivatives of derivatives."""
import unittest

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    from common import ops as helper
    from common.ops import CAPACITY, LIVE, Refusing, gradients, rows
    from common.stashes import StashTest
    import pagestash
    helper.use_binary()
    from pagestash.torch import glu, glu_ops, ops
else:
    Refusing = StashTest = unittest.TestCase


def expanded():
    """A row that stands for all."""
    return rows(1, 32).expand(CAPACITY, 32)


@needs("torch")
class Rows(Refusing):
    def test_segments_in_turn(self):
        """Row by row, of which each has one of every segment: x, the gradient and the probability."""
        counts = torch.tensor([2, 16, 5])
        turned, p = rows(16, 3, 32).transpose(0, 1), rows(16, 3, seed=3).t()
        for pool in (None, self.pool):
            def wide(x, p, pool=pool):
                y = glu(x, counts, stash=pool, segments=3, probability=p)
                return y.transpose(0, 1).reshape(16, 48)

            got = gradients(lambda x, p: wide(x + 0 * turned, p.t().contiguous().t()), turned, p)
            flat = gradients(lambda x, p: wide(x.contiguous(), p.contiguous()), turned.contiguous(), p)
            self.same(got, flat)
        leaf = turned.detach().requires_grad_()
        y = glu(leaf, counts, stash=self.pool, segments=3, probability=p)
        y.sum().backward()
        self.same([y], [glu(turned.contiguous(), counts, segments=3, probability=p.contiguous())])

    def test_another_gradient_s_dtype(self):
        x, counts = rows(CAPACITY, 32, dtype=torch.bfloat16), torch.tensor([LIVE])
        y, token = ops.glu_forward(x, counts, self.pool)
        self.refused("is swiglu of torch.bfloat16, interleave 0, and this is swiglu of torch.float16",
                     ops.glu_backward, token, y.half(), self.pool)
        ops.glu_backward(token, y, self.pool)

    def test_an_interrupt_gives_the_ticket_back(self):
        failing, enqueue = [], glu_ops._Launch.enqueue

        def interrupted(*_):
            failing.append(1)
            raise KeyboardInterrupt

        glu_ops._Launch.enqueue = interrupted
        try:
            with self.assertRaises(KeyboardInterrupt):
                glu(rows(CAPACITY, 32).requires_grad_(), stash=self.pool)
        finally:
            glu_ops._Launch.enqueue = enqueue
        self.assertEqual((len(failing), helper.taken(self.pool)), (1, 0))


@needs("torch")
class Derivatives(Refusing):
    def test_no_second_derivative(self):
        x = rows(CAPACITY, 32).requires_grad_()
        for stash in (None, self.pool):
            g, = torch.autograd.grad(glu(x, stash=stash).sum(), x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "no second derivative"):
                (g.square().sum() + x.square().sum()).backward()
            g, = torch.autograd.grad(glu(x, stash=stash).sum(), x)
            self.assertFalse(g.requires_grad)
        y = torch.ops.pagestash.swiglu(x, torch.tensor([LIVE]), self.handle)
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            g.square().sum().backward()

    def test_no_forward_mode(self):
        x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            self.refused("no forward-mode derivative", glu, dual, counts)
            glu(x, counts)
            with self.assertRaisesRegex(RuntimeError, "no forward-mode derivative"):
                torch.ops.pagestash.swiglu(dual, counts, self.handle)


@needs("torch")
class Measuring(StashTest):
    def steps(self, given, counts):
        """The first step and another, and without a stash."""
        with pagestash.torch.Stash("cpu") as stash:
            found = []
            for which in (stash, stash, None):
                x = given().detach().requires_grad_()
                y = glu(x, counts, stash=which)
                y.sum().backward()
                found.append([y.detach(), x.grad])
                stash.step()
            for got in found[:2]:
                for one, other in zip(got, found[2], strict=True):
                    self.assertTrue(torch.equal(one, other))

    def test_rows_in_any_order(self):
        counts = torch.tensor([LIVE])
        self.steps(lambda: rows(32, CAPACITY).t(), counts)
        self.steps(expanded, counts)
        with pagestash.torch.Stash("cpu") as stash:
            padded = rows(3, CAPACITY + 4, 32)[:, 2:CAPACITY + 2]
            x = padded.detach().requires_grad_()
            glu(x, torch.tensor([1, 2, 3]), stash=stash, segments=3).sum().backward()

    def test_no_rows(self):
        """A rank that got no token."""
        with pagestash.torch.Stash("cpu") as stash:
            x = rows(0, 32).requires_grad_()
            y = glu(x, stash=stash)
            y.sum().backward()
            self.assertEqual((y.shape, x.grad.shape), ((0, 16), (0, 32)))
            full = rows(CAPACITY, 32).requires_grad_()
            glu(full, stash=stash).sum().backward()
            stash.step()
            self.assertGreater(stash.pages, 0)

    def test_without_a_gradient_nothing_is_measured(self):
        with pagestash.torch.Stash("cpu") as stash:
            glu(rows(CAPACITY, 32), stash=stash)
            wanted = rows(CAPACITY, 32).requires_grad_()
            glu(wanted, stash=stash).sum().backward()
            stash.step()
            alone = stash.pages
        with pagestash.torch.Stash("cpu") as stash:
            glu(rows(CAPACITY, 4096), stash=stash)
            glu(wanted, stash=stash).sum().backward()
            stash.step()
            self.assertEqual(stash.pages, alone)


if __name__ == "__main__":
    main()
