"""A test case with pagestash.megatron installed, over Megatron-Core's own calls and no GPU. Imported where
Megatron-Core is."""
import unittest

import torch

from common import cuda_shim

cuda_shim.install()

import pagestash.megatron  # noqa: E402
from common.megatron_layers import wrong  # noqa: E402
from megatron.core.transformer.moe import paged_stash  # noqa: E402

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = True  # with NaN


def overflowed():
    return bool(paged_stash.check_paged_stash_overflow())


class Adapter(unittest.TestCase):
    options = {}

    def setUp(self):
        torch.manual_seed(5)
        self.manager = pagestash.megatron.install(**self.options)
        self.addCleanup(pagestash.megatron.uninstall)

    def train(self, model, live, steps=3, **kwargs):
        """Steps, all exact."""
        for step in range(steps):
            with self.subTest(step=step):
                self.assertEqual(wrong(model.step(live, **kwargs), live, model.capacity), 0)
                self.assertFalse(overflowed())

    def closed(self):
        status = self.manager.finish()
        self.assertEqual(status.in_use, (0, 0))
        self.manager.pool.check()
        self.assertEqual(self.manager.finish().check_errors, 0)
        return status
