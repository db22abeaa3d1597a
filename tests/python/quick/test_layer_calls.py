#!/usr/bin/env python3
"""Stash.layer by the operators, and by ctypes: the same tensors come back, the same pages are in use."""
import gc
import unittest
import weakref

from common.needs import absent, needs

if not absent("torch"):
    import torch
    import pagestash
    from common import ops as helper
    from common.ops import rows
    helper.use_binary()
    from pagestash.torch import Stash, ops

CAPACITY, LIVE = 64, 20


@needs("torch")
class Kept(unittest.TestCase):
    def test_an_output_that_stays_is_freed(self):
        """Autograd saves the result of a sigmoid for its own node: that must not hold itself."""
        with Stash("cpu", pages=8, page_bytes=16384) as stash:
            x = rows(7, 8).requires_grad_()
            with stash.layer(torch.tensor([LIVE]), CAPACITY):
                y = (x * 2).sigmoid()
            y.sum().backward(retain_graph=True)
            torch.testing.assert_close(x.grad, 2 * y.detach() * (1 - y.detach()))
            gone = weakref.ref(y)
            del y
            gc.collect()
            self.assertIsNone(gone())

    def test_a_tensor_that_stays_is_not_to_change(self):
        with Stash("cpu", pages=8, page_bytes=16384) as stash:
            x = rows(7, 8).requires_grad_()
            with stash.layer(torch.tensor([LIVE]), CAPACITY):
                y = (x * 2).sigmoid()
            with torch.no_grad():
                y.zero_()
            with self.assertRaisesRegex(pagestash.Error, "was changed in place$"):
                y.sum().backward()


if __name__ == "__main__":
    unittest.main()
