"""torch.ops.pagestash for tests: the binary of these sources, and pools."""
import os
import sys
import tempfile
import unittest

import torch

from pagestash import build_ops, pool as pools
from pagestash._c import Error

PAGE_BYTES = 16384
CAPACITY, LIVE = 64, 20  # rows


def use_binary():
    """Lets pagestash.torch.ops load kernels of these very sources, where run.sh has not said which, and
    nothing has loaded others yet."""
    if "PAGESTASH_OPS" in os.environ or "pagestash.torch.ops" in sys.modules:
        return
    folder = os.environ.get("PSTI_TEST_BUILD") or os.path.join(tempfile.gettempdir(),
                                                               f"pagestash-{os.getuid()}")
    try:
        os.environ["PAGESTASH_OPS"] = build_ops.cached(os.path.join(folder, "python-ops"))
    except Error as error:
        if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1":
            raise
        print(f"{error}; the operators in Python are tested", file=sys.stderr)


def make_pool(pages=64, **fields):
    """A pool in this process's memory."""
    return pools.Pool(pools.Device.open("host"), pages, page_bytes=PAGE_BYTES, **fields)


def taken(pool):
    """Tickets that are lent now."""
    return pool.info().slab_taken


def rows(*shape, dtype=torch.float32, seed=0):
    """Random numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradients(function, *tensors, seed=1):
    """The result, and the gradients of a random one, of leaves of these."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = function(*leaves)
    y.backward(rows(*y.shape, seed=seed).to(y.dtype))
    return [y.detach()] + [leaf.grad for leaf in leaves]


def garbage(like):
    """Memory to restore into."""
    return torch.full_like(like, float("nan"))


class Case(unittest.TestCase):
    """With a pool, which must end with no ticket lent and no page in use."""

    def setUp(self):
        torch.set_num_threads(1)
        self.pool = make_pool()
        self.handle = self.pool.handle

    def tearDown(self):
        from pagestash.torch import ops  # pylint: disable=import-outside-toplevel
        if self.pool.handle:
            self.assertEqual(ops.drain(self.pool), 0)
            self.assertEqual(taken(self.pool), 0)
            self.pool.check()
            self.pool.step()
            status = self.pool.status()
            self.assertEqual((status.in_use[0], status.check_errors), (0, 0))
            self.pool.close()


class CompiledCase(Case):
    """The same, with nothing compiled before and counts of LIVE rows."""

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.counts = torch.tensor([LIVE])


class Refusing(Case):
    """The same, with Errors of one line, and tensors that are equal."""

    def refused(self, sentence, call, *args, **kwargs):
        with self.assertRaisesRegex(Error, sentence) as caught:
            call(*args, **kwargs)
        self.assertNotIn("\n", str(caught.exception))

    def same(self, some, others):
        for one, other in zip(some, others, strict=True):
            self.assertTrue(torch.equal(one, other))
