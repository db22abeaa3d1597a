"""Our MoE, three steps of it: tests/python/long/test_train.py is the same with 20, in four forms."""
import dataclasses
import unittest
from unittest import mock

import torch

import pagestash.torch
from pagestash.torch import gated
from common import moe, record
from common.needs import from_torch

SHAPE = moe.Shape(layers=2, hidden=32, ffn=48, ep=2, batch=2, sequence=64)
STEPS, PAGE_BYTES = 3, 16384


class TrainQuick(unittest.TestCase):
    @from_torch(2, 10, what="torch.nn.functional.grouped_mm")
    def test_three_steps(self):
        self.check(SHAPE)

    @from_torch(2, 10, what="torch.nn.functional.grouped_mm")
    def test_with_glu(self):
        self.check(dataclasses.replace(SHAPE, glu=True))

    def check(self, shape):
        seen = record.Recorder()
        with moe.poisoned():
            self.assertTrue(torch.empty(4).isnan().all())
            plain = moe.train(shape, seen, steps=STEPS)
            with pagestash.torch.Stash(page_bytes=PAGE_BYTES) as stash, \
                    mock.patch.object(gated.kernels, "_stash", wraps=gated.kernels._stash) as filled:
                paged = moe.train(shape, stash, steps=STEPS)
                status = stash.status()
        self.assertEqual(plain.bits, paged.bits)
        visits = shape.layers * shape.ep * shape.micro * (STEPS - 1)  # the first step is measured
        self.assertEqual(filled.call_count, visits if shape.glu else 0)
        self.assertEqual((status.num_faults, status.in_use), (0, (0, 0)))
        self.assertEqual(sorted(seen.visits[0].rows), sorted(shape.row_bytes))
        self.assertEqual(status.high_water[0], max(
            seen.pages(PAGE_BYTES, step) for step in range(1, STEPS)))
        self.assertEqual(status.high_water[0], max(record.simulated_pages(
            seen, step, shape.layers * shape.ep, moe.SCHEDULES["FFBB"](shape.micro), PAGE_BYTES)
            for step in range(1, STEPS)))


if __name__ == "__main__":
    unittest.main()
