#!/usr/bin/env python3
"""Dense layers swapped by tokens and experts paged, in one captured iteration on a pretended GPU: every byte of
losses and weights is that of an eager run without either."""
import contextlib
import gc
import unittest
import warnings
from unittest import mock

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
from common import copied_layers as copies  # noqa: E402 pylint: disable=wrong-import-position
from pagestash import Error, memo  # noqa: E402 pylint: disable=wrong-import-position
from pagestash.schedule import Schedule  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)
pretended.use_as_cuda()
CUT, REPLAYS = 16, 20


class Memo(unittest.TestCase):
    def setUp(self):
        patched = mock.patch("torch.cat", copies.cat)
        patched.start()
        self.addCleanup(patched.stop)

    def model(self, swaps=True, draws=False, fraction="1/2", micro_batches=1, **fields):
        """(model, its run)."""
        model = copies.Model(draws, micro_batches)
        if not swaps:
            run = memo.run(model.dense, fraction=None, cut=CUT, attention="core", check=False)
        else:
            layers = []
            for i, layer in enumerate(model.dense):
                layers.append(layer)
                if i % 2:
                    layers.append(memo.paged(model.experts[i // 2], counts=lambda rows, counts, *_: counts,
                                             capacity=copies.ROWS))
            run = memo.run(layers, fraction=fraction, cut=CUT, block_tokens=16, attention="core", check=False,
                           page_bytes=16384, schedule=Schedule("gpipe", num_micro_batches=micro_batches), **fields)
        self.addCleanup(self.end, run)
        return model, run

    def end(self, run):
        gc.collect()
        torch.cuda.synchronize()
        run.abort()
        if run.pool is not None:
            status = run.status()
            self.assertEqual(status and status.in_use, status and (0, 0))
        run.close()
        self.assertEqual(pretended.missing(), {})

    @staticmethod
    def step(model, run):
        model.run()
        run.step()

    def both(self, plain, other, steps=1):
        """Steps of models without and with, and whether they have the same bytes."""
        for step in range(steps):
            for model, run in (plain, other):
                model.fill(full=step == 0)  # by which pages are measured
                self.step(model, run)
            self.equal(plain[0], other[0])

    def equal(self, plain, other):
        for a, b in zip(plain.state(), other.state()):
            self.assertTrue(torch.equal(a, b))

    def captured(self, micro_batches=1, **fields):
        """Two eager steps, a capture, and replays, beside eager steps without swapping; the run's figures."""
        plain = self.model(swaps=False, micro_batches=micro_batches)
        model, run = self.model(micro_batches=micro_batches, **fields)
        self.both(plain, (model, run), 3)
        before, graph = run.scheduler.stats(), self.capture(model, run)
        figures = run.scheduler.stats()
        self.assertEqual(figures.visits - before.visits, 6 * micro_batches)
        demands, memory = set(), None
        for _ in range(REPLAYS):
            plain[0].fill()
            self.step(*plain)
            model.fill()
            graph.replay()
            self.equal(plain[0], model)
            status = run.status()
            self.assertEqual((status.valid, status.in_use), (True, (0, 0)))
            demands.add(status.step_demand)
            self.assertLessEqual(status.high_water[0], run.pool.info().num_pages[0])
            memory = memory or torch.cuda.memory_allocated()
            # torch's thread may let go of a gradient a moment later
            self.assertLess(abs(torch.cuda.memory_allocated() - memory), 1 << 16)
        self.assertEqual(run.deviations, {})
        graph.reset()
        del graph
        self.both(plain, (model, run))
        return figures, demands

    def capture(self, model, run):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(model, run)
        return graph

    def test_the_last_layers_stay(self):
        figures, _ = self.captured(num_sources=1, num_destinations=1)
        self.assertGreater(min(figures.stashed, figures.swapped, figures.kept_in_place), 0)

    def test_all_layers_leave(self):
        figures, demands = self.captured(keep_last=0, num_streams=4)
        self.assertEqual((figures.kept_in_place, figures.stashed, figures.swapped), (0, 6, 12))
        self.assertGreater(len(demands), 1)

    def test_two_micro_batches(self):
        figures, _ = self.captured(micro_batches=2, num_streams=2)
        self.assertGreater(min(figures.stashed, figures.swapped, figures.kept_in_place), 0)

    def test_random_numbers_of_dropped_tokens(self):
        """Cannot be drawn again in a capture; eager steps can, and captures in which no token is dropped."""
        plain, (model, run) = self.model(swaps=False, draws=True), self.model(draws=True, keep_last=0)
        self.both(plain, (model, run), 2)
        graph, said = torch.cuda.CUDAGraph(), []
        with contextlib.suppress(RuntimeError), torch.cuda.graph(graph):  # of half a step
            try:
                self.step(model, run)
            except Error as error:
                said.append(str(error))
        self.assertRegex("".join(said), "layer 0 of chunk 0: it draws random numbers")
        del graph
        torch.cuda.synchronize()
        self.both(plain, (model, run))
        plain, (model, run) = self.model(swaps=False, draws=True), self.model(draws=True, fraction=1, keep_last=0)
        self.both(plain, (model, run), 2)
        graph = self.capture(model, run)
        plain[0].fill()
        self.step(*plain)
        model.fill()
        graph.replay()
        self.equal(plain[0], model)
        graph.reset()

    def test_nothing_is_measured_yet(self):
        model, run = self.model()
        model.fill()
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings(), torch.cuda.graph(graph):
            warnings.simplefilter("ignore")  # it is empty
            with self.assertRaisesRegex(Error, "nothing is measured yet"):
                self.step(model, run)
        del graph
        torch.cuda.synchronize()
        self.both(self.model(swaps=False), self.model(), 2)

    def test_more_pages_for_a_captured_graph(self):
        plain = self.model(swaps=False)
        model, run = self.model(keep_last=0, pages=4)
        for one in (plain, (model, run)):
            one[0].fill()
            self.step(*one)
        graph = self.capture(model, run)
        for _ in range(2):
            for one in (plain[0], model):
                one.fill(full=True)
            self.step(*plain)
            graph.replay()
            status = run.status()
            if not status.valid:
                self.assertEqual(run.grow(), run.pool.info().num_pages[0])
                model.become(plain[0])
        self.equal(plain[0], model)
        self.assertGreater(run.pool.info().num_pages[0], 4)
        graph.reset()


if __name__ == "__main__":
    unittest.main()
