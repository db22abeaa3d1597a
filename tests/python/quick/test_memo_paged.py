"""memo.run with attention that is swapped by tokens and experts whose rows go to pages."""
import gc
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import moe
from pagestash import Error, memo
from pagestash.schedule import Schedule
from torch import nn

torch.set_num_threads(1)
TOKENS = 48


class Case(unittest.TestCase):
    def shape(self, **fields):
        return moe.Shape(**{**dict(layers=3, hidden=16, heads=2, ffn=24, experts=4, ep=1, batch=1,
                                   sequence=TOKENS, micro=1), **fields})

    def model(self, shape, fraction="1/2", pages=True, **fields):
        """(model, its run): dense layers and experts in the order of calls."""
        model, layers = moe.build(shape), []
        for block in model.blocks:
            layers.append((block, "attend"))
            layers += [self.paged(experts, shape) for experts in block.moe.ranks] if pages else []
        run = memo.run(layers, fraction=fraction, cut=16, block_tokens=16, **fields)
        self.addCleanup(self.end, run)
        return model, run

    @staticmethod
    def paged(experts, shape):
        slabs = shape.layout == "segments"
        return memo.paged(experts, counts=lambda x, probs, counts: counts, capacity=lambda x, *_: x.shape[slabs],
                          segments=shape.local if slabs else 0)

    def end(self, run):
        run.abort()
        gc.collect()
        if run.pool is not None:
            run.pool.check(0)
            run.pool.step()
            status = run.status()
            self.assertEqual((status.in_use, status.check_errors), ((0, 0), 0))
            self.assertEqual(run.scheduler._owned.held, {})
        run.close()

    @staticmethod
    def train(model, run, batches, order="FBFB"):
        """Losses."""
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
        for micro_batches in batches:
            losses += [loss.item() for loss in moe.run_step(model, micro_batches, order)]
            run.step()
            optimizer.step()
            optimizer.zero_grad()
        return losses

    def same(self, shape, order="FBFB", steps=3, **fields):
        """Trained with swaps and pages it has the bits of one without; its run."""
        bits, batches = [], moe.batches(shape, steps)
        with moe.poisoned():
            for swaps in ({"fraction": None, "pages": False}, fields):
                model, run = self.model(shape, micro_batches=shape.micro, **swaps)
                bits.append((self.train(model, run, batches, order), moe.weight_bits(model)))
        self.assertEqual(*bits)
        return run


class Equal(Case):
    def test_dense_layers_swapped_and_experts_paged(self):
        for fields in ({}, {"layout": "segments"}, {"ep": 2, "micro": 2}, {"dtype": torch.bfloat16}):
            with self.subTest(**fields):
                shape = self.shape(**fields)
                run = self.same(shape)
                figures, status = run.scheduler.stats(), run.status()
                units = 3 + 3 * shape.ep
                self.assertEqual((figures.steps, figures.visits), (2, 2 * units * shape.micro))
                self.assertGreater(min(figures.stashed, figures.swapped, figures.kept_in_place), 0)
                self.assertEqual((run.deviations, status.valid), ({}, True))
                self.assertEqual(figures.restores, figures.stashed)

    def test_all_forwards_first(self):
        run = self.same(self.shape(micro=2), "FFBB", schedule=Schedule("gpipe", num_micro_batches=2),
                        page_bytes=16384)
        self.assertGreater(run.status().high_water[0], 0)

    def test_host_pages_and_streams(self):
        self.same(self.shape(), num_streams=2, host_pages=64, pages=2, page_bytes=16384)

    def test_nothing_but_experts(self):
        """The rest is as it is."""
        shape = self.shape()
        model, plain = moe.build(shape), moe.build(shape)
        run = memo.run([self.paged(block.moe.ranks[0], shape) for block in model.blocks])
        self.addCleanup(self.end, run)
        for (batch,) in moe.batches(shape, 2):
            with moe.poisoned():
                model.loss(batch).backward()
                plain.loss(batch).backward()
            run.step()
        for a, b in zip(model.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(a.grad, b.grad))
        self.assertEqual(run.scheduler.stats().visits, 3)

    def test_pages_are_those_of_the_first_step(self):
        shape = self.shape(micro=2)
        run = self.same(shape, steps=2, page_bytes=16384, headroom=1)
        self.assertGreaterEqual(run.pool.info().num_pages[0], run.status().demand)


if __name__ == "__main__":
    unittest.main()
