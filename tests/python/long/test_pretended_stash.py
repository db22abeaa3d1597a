"""Stash with device="cuda" on the pretended GPU: eager, captured, replayed; bytes are looked at."""
import gc
import threading
import unittest
from unittest import mock

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
import pagestash  # noqa: E402 pylint: disable=wrong-import-position
from common.copying import LIVE, ROWS, WIDTH, Keep, Model, StashTest  # noqa: E402
from pagestash.torch import Stash  # noqa: E402 pylint: disable=wrong-import-position


class Eager(StashTest):
    def test_measured_then_in_pages(self):
        model = self.measured(20, 0, ROWS)
        for live in ((20, 0, ROWS), (1, 2, 3), (0, 0, 0), (ROWS, 0, 20)):
            model.fill(*live)
            model.step()
            self.right(model)
        self.assertTrue(model.stash.status().valid)
        self.assertEqual(model.stash.status().steps, 4)

    def test_the_backward_runs_in_a_thread_of_torchs(self):
        model = self.measured()
        model.step()
        self.right(model)
        self.assertNotIn(threading.get_ident(), model.threads)

    def test_memory_comes_back(self):
        model = self.measured()
        gc.collect()
        model.step()
        before = torch.cuda.memory_allocated()
        for _ in range(5):
            model.step()
        # torch's thread may let go of the last gradient a moment later
        self.assertLess(torch.cuda.memory_allocated() - before, 4 * ROWS * WIDTH)

    def test_memory_that_torch_cannot_give(self):
        self.addCleanup(pretended.set_memory, 8 << 30)
        model = Model(self.stash(headroom=1000.))
        model.fill(ROWS, ROWS, ROWS)
        torch.cuda.empty_cache()
        pretended.set_memory(pretended.allocated() + (1 << 20))
        with self.assertRaisesRegex(pagestash.Error, "torch cannot give"):
            model.step()
        self.right(model)
        with self.assertRaisesRegex(pagestash.Error, "torch cannot give"):
            Stash("cuda", pages=4096)
        pretended.set_memory(8 << 30)
        model.step()
        self.assertGreater(model.stash.pages, 0)
        model.step()
        self.right(model)

    def test_memory_that_is_not_there_for_more_pages(self):
        self.addCleanup(pretended.set_memory, 8 << 30)
        model = self.measured(4, 4, 4, page_bytes=16384)
        pages = model.stash.pages
        model.fill(ROWS, ROWS, ROWS)
        model.step()
        gc.collect()
        torch.cuda.empty_cache()
        model.stash.headroom = 1000.
        pretended.set_memory(pretended.allocated() + (4 << 20))
        with self.assertRaisesRegex(pagestash.Error, "torch cannot give"):
            model.stash.grow()
        self.assertEqual(model.stash.pages, pages)
        model.fill(1, 2, 3)
        model.step()
        self.right(model)
        pretended.set_memory(8 << 30)
        model.fill(ROWS, ROWS, ROWS)
        model.step()
        self.assertGreater(model.stash.grow(), pages)
        model.step()
        self.right(model)

    def test_a_wrapped_module_with_two_micro_batches(self):
        stash = self.stash()
        first, second = Model(stash), Model(stash)

        class Experts(torch.nn.Module):
            def forward(self, y, model, k):
                return Keep.apply(y, model.source[k], model.seen[k], model.threads)

        experts = stash.wrap(Experts(), counts=lambda y, model, k: model.counts[k], capacity=ROWS)

        def step():
            ys = []
            for model in (first, second):
                y = model.x
                for k in range(3):
                    y = experts(y, model, k)
                ys.append(y)
            for model, y in zip((first, second), ys):
                torch.autograd.grad(y, [model.x], model.grad)
            stash.step()
        for live in LIVE[::-1]:
            first.fill(*live)
            second.fill(*live[::-1])
            step()
            self.right(first)
            self.right(second)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for live in LIVE:
            first.fill(*live)
            second.fill(*live[::-1])
            graph.replay()
            self.right(first)
            self.right(second)

    def test_a_tensor_of_the_cpu_in_a_layer_of_the_gpu(self):
        """Also where a stash of the CPU has met such a layer."""
        x = torch.ones(8, 4, requires_grad=True)
        with Stash("cpu", pages=8, page_bytes=16384) as other:
            for _ in range(2):
                with other.layer(torch.tensor([3]), 8):
                    y = (x * 2).square()
                y.sum().backward()
        stash = self.stash(pages=8)
        with self.assertRaisesRegex(pagestash.Error, "saves a tensor on cpu; the stash is on cuda:0"):
            with stash.layer(torch.zeros(1, dtype=torch.int64, device="cuda"), 8):
                y = (x * 2).square()
        del y
        gc.collect()
        self.assertFalse(stash.dropped)  # nothing was launched

    def test_two_streams_in_one_layer(self):
        """What was restored for a node on one stream is used by a node on another: that waits, and the memory
        is told."""
        for overlap in (False, True):
            model, side, used = self.measured(overlap=overlap), torch.cuda.Stream(), []
            model.fill(4, 5, 6)
            here = torch.cuda.current_stream()
            with model.stash.layer(model.counts[0], ROWS):
                y = Keep.apply(model.x, model.source[0], model.seen[0], model.threads)
                side.wait_stream(here)
                with torch.cuda.stream(side):
                    y = Keep.apply(y, model.source[0], model.seen[1], model.threads)
                here.wait_stream(side)
            with mock.patch.object(torch.Tensor, "record_stream",
                                   lambda tensor, stream, used=used: used.append(stream)):
                torch.autograd.grad(y, [model.x], model.grad)
            self.assertEqual(used, [here])
            model.stash.step()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(model.seen[0].cpu(), model.seen[1].cpu()))

    def test_layers_on_two_streams_that_are_restored_ahead(self):
        model, side, used = self.measured(overlap=True), torch.cuda.Stream(), []
        model.fill(4, 5, 6)
        here = torch.cuda.current_stream()
        with model.stash.layer(model.counts[0], ROWS):
            y = Keep.apply(model.x, model.source[0], model.seen[0], model.threads)
        side.wait_stream(here)
        with torch.cuda.stream(side), model.stash.layer(model.counts[1], ROWS):
            y = Keep.apply(y, model.source[1], model.seen[1], model.threads)
        here.wait_stream(side)
        with mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: used.append(stream)):
            torch.autograd.grad(y, [model.x], model.grad)
        self.assertEqual(used, [here])  # which uses what was restored for the side stream's
        model.stash.step()

    def test_a_layer_that_waits_outside_a_capture(self):
        """A captured backward must not restore it ahead."""
        for overlap in (False, True):
            model = self.measured(overlap=overlap, pages=64)
            model.fill(4, 5, 6)
            y, x = model.forward(), model.x
            model.x = torch.empty(8, device="cuda", requires_grad=True)
            graph = model.capture()
            self.replay(model, graph, live=((1, 2, 3),))
            self.assertEqual(model.stash.status().num_faults, 0)
            torch.autograd.grad(y, [x], model.grad)
            model.stash.step()
            del graph

    def test_beside_the_current_stream(self):
        for overlap in (False, True):
            model = self.measured(overlap=overlap)
            side = torch.cuda.Stream()
            for live in ((5, 6, 7), (ROWS, 0, 1)):
                model.fill(*live)
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    model.step()
                torch.cuda.current_stream().wait_stream(side)
                self.right(model)
                model.fill(*live)
                model.step()
                self.right(model)

    def test_overflow_grows_and_runs_again(self):
        for memory in ("torch", "pool"):
            model = self.measured(4, 4, 4, memory=memory, page_bytes=16384)
            small = model.stash.pages
            model.fill(ROWS, ROWS, ROWS)
            model.step()
            self.assertFalse(model.stash.status().valid)
            self.assertNotEqual(model.wrong(), [])
            self.assertEqual(model.seen[2].cpu().isnan().sum(), 0)
            self.assertGreater(model.stash.grow(), small)
            model.step()
            self.right(model)
            self.assertTrue(model.stash.status().valid)


class Captured(StashTest):
    def test_counts_and_bytes_are_those_of_each_replay(self):
        for options in ({}, {"overlap": True}, {"mode": "concurrent"}, {"memory": "pool"},
                        {"retain": True}, {"page_bytes": 16384}):
            with self.subTest(options=options):
                model = self.measured(**options)
                model.fill(7, 7, 7)
                graph = model.capture()
                self.assertEqual(model.wrong(), [0, 1, 2], "a capture runs nothing")
                before = model.stash.status()
                self.replay(model, graph)
                status = model.stash.status()
                self.assertTrue(status.valid)
                self.assertEqual(status.steps - (before.steps if before else 0), len(LIVE))
                self.assertEqual(status.in_use, (0, 0))
                self.assertNotIn(threading.get_ident(), model.threads)
                del graph
                gc.collect()
                model.step()
                self.right(model)

    def test_pages_are_given_and_nothing_is_measured(self):
        model = Model(self.stash(pages=64))
        self.replay(model, model.capture())

    def test_nothing_measured_is_said(self):
        model = Model(self.stash())
        model.fill(1, 2, 3)
        with self.assertRaisesRegex(pagestash.Error, "run one step before, with step()"):
            model.capture()
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        model.step()
        self.right(model)
        self.replay(model, model.capture(), [(3, 2, 1), (0, 0, 6)])

    def test_the_first_step_is_not_ended_inside_a_capture(self):
        model = Model(self.stash())
        model.fill(1, 2, 3)
        model.step(step=False)
        with self.assertRaisesRegex(pagestash.Error, "run one step before, with step()"):
            model.capture()
        model.stash.step()
        self.replay(model, model.capture(), [(3, 2, 1), (0, 0, 6)])

    def test_an_overflow_in_a_replay_is_seen_and_zeros_come_back(self):
        model = self.measured(4, 4, 4, page_bytes=16384)
        graph = model.capture()
        self.replay(model, graph, [(4, 4, 4)])
        model.fill(ROWS, ROWS, ROWS)
        graph.replay()
        status = model.stash.status()
        self.assertFalse(status.valid)
        self.assertNotEqual(model.wrong(), [])
        self.assertEqual(model.seen[2].cpu().abs().sum(), 0)
        self.replay(model, graph, [(4, 4, 4)])
        with self.assertRaisesRegex(pagestash.Error, "graph"):
            model.stash.grow(status)
        self.replay(model, graph, [(3, 4, 5)])
        graph.reset()
        gc.collect()
        self.assertGreater(model.stash.grow(status), 0)
        self.replay(model, model.capture())

    def test_a_pool_of_its_own_grows_under_a_captured_graph(self):
        model = self.measured(4, 4, 4, page_bytes=16384, memory="pool")
        graph = model.capture()
        model.fill(ROWS, ROWS, ROWS)
        graph.replay()
        status = model.stash.status()
        self.assertFalse(status.valid)
        pages = model.stash.pages
        self.assertGreater(model.stash.grow(status), pages)
        self.replay(model, graph)
        self.assertTrue(model.stash.status().valid)

    def test_graphs_and_eager_steps_take_turns(self):
        model = self.measured()
        graphs = [model.capture() for _ in range(3)]
        for graph in graphs + graphs:
            self.replay(model, graph, [(9, 0, 33)])
            model.fill(3, 4, 5)
            model.step()
            self.right(model)

    def test_many_captures_one_after_the_other(self):
        model = self.measured()
        for _ in range(20):
            graph = model.capture()
            self.replay(model, graph, [(5, 6, 7)])
            del graph
            model.step()
            self.right(model)

    def test_a_forward_in_one_graph_and_its_backward_in_another(self):
        model = self.measured()
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward):
            y = model.forward()
        with torch.cuda.graph(backward, pool=forward.pool()):
            (grad,) = torch.autograd.grad(y, [model.x], model.grad)
            model.stash.step()
        del y, grad
        for live in LIVE:
            model.fill(*live)
            forward.replay()
            backward.replay()
            self.right(model)
        self.assertTrue(model.stash.status().valid)
        self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_rerun(self):
        model = self.measured(4, 4, 4, page_bytes=16384)
        model.fill(ROWS, ROWS, ROWS)
        model.stash.rerun(lambda: model.step(step=False))
        self.right(model)

    def test_segments_and_sums(self):
        stash, seen = self.stash(pages=256), torch.empty(4, 16, 32, device="cuda")
        source = torch.empty(4, 16, 32, device="cuda")
        counts = torch.empty(4, dtype=torch.int32, device="cuda")
        x = torch.empty(4, device="cuda", requires_grad=True)
        for kind in ("segments", "sum"):
            capacity, segments = (16, 4) if kind == "segments" else (64, 0)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                with stash.layer(counts, capacity, segments=segments):
                    y = Keep.apply(x, source if segments else source.view(64, 32),
                                   seen if segments else seen.view(64, 32), set())
                torch.autograd.grad(y, [x], torch.empty_like(x))
                stash.step()
                del y
            for live in ((1, 0, 16, 5), (16, 16, 16, 16), (0, 0, 0, 1)):
                source.copy_(torch.rand(4, 16, 32))
                counts.copy_(torch.tensor(live, dtype=torch.int32))
                graph.replay()
                wanted = source.cpu()
                if segments:
                    for slab, count in zip(wanted, live):
                        slab[count:] = 0
                else:
                    wanted.view(64, 32)[sum(live):] = 0
                self.assertTrue(torch.equal(seen.cpu(), wanted))
            self.assertTrue(stash.status().valid)
            graph.reset()

    def test_valid_in_a_capture(self):
        model = self.measured(4, 4, 4, page_bytes=16384)
        seen, graph = torch.empty(1, dtype=torch.int32, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step(step=False)
            seen.copy_(model.stash.valid)
            model.stash.step()
        for live, valid in (((4, 4, 4), 1), ((ROWS, ROWS, ROWS), 0), ((1, 1, 1), 1)):
            model.fill(*live)
            graph.replay()
            self.assertEqual(seen.item(), valid)

if __name__ == "__main__":
    unittest.main()
