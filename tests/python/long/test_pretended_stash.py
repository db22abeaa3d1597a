"""Stash with device="cuda" on the pretended GPU: eager, captured, replayed, with bytes looked at."""
import gc
import threading
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
import pagestash  # noqa: E402 pylint: disable=wrong-import-position
from pagestash.torch import Stash  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)
pretended.use_as_cuda()
ROWS, WIDTH, LAYERS = 64, 128, 3


class Keep(torch.autograd.Function):
    """Saves a tensor with the bytes of `source`; its backward copies what it gets to `seen`. Copies
    only, so that it is real on the pretended GPU."""

    @staticmethod
    def forward(ctx, x, source, seen, threads):
        kept = torch.empty_like(source)
        kept.copy_(source)
        ctx.save_for_backward(kept)
        ctx.seen, ctx.threads = seen, threads
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.copy_(ctx.saved_tensors[0])
        ctx.threads.add(threading.get_ident())
        return grad.clone(), None, None, None


class Model:
    """Layers that keep `source[k]`, of which counts[k] rows are live, and see seen[k] come back."""

    def __init__(self, stash, layers=LAYERS, side=None):
        self.stash, self.side, self.threads = stash, side, set()
        new = lambda: torch.empty(ROWS, WIDTH, device="cuda")  # noqa: E731
        self.source, self.seen = [new() for _ in range(layers)], [new() for _ in range(layers)]
        self.counts = [torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(layers)]
        self.x = torch.empty(8, device="cuda", requires_grad=True)
        self.grad = torch.empty(8, device="cuda")
        self.draw = torch.Generator().manual_seed(1)
        self.live = [0] * layers

    def fill(self, *live):
        """New bytes, and these counts, as a router has them in a replay."""
        self.live = live
        for k, count in enumerate(live):
            self.source[k].copy_(torch.rand(ROWS, WIDTH, generator=self.draw))
            self.seen[k].copy_(torch.full((ROWS, WIDTH), -1.))
            self.counts[k].copy_(torch.tensor([count]))

    def forward(self):
        y = self.x
        for source, seen, count in zip(self.source, self.seen, self.counts):
            with self.stash.layer(count, ROWS):
                y = Keep.apply(y, source, seen, self.threads)
        return y

    def step(self, step=True):
        y = self.forward()
        (grad,) = torch.autograd.grad(y, [self.x], self.grad)
        del y, grad
        if step:
            self.stash.step()

    def capture(self, step=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(step)
        return graph

    def wrong(self):
        """Layers whose rows did not come back, with zeros behind them."""
        out = []
        for k, count in enumerate(self.live):
            wanted = self.source[k].cpu()
            wanted[count:] = 0
            if not torch.equal(self.seen[k].cpu(), wanted):
                out.append(k)
        return out


class StashTest(unittest.TestCase):
    def stash(self, **options):
        stash = Stash("cuda", **options)
        self.addCleanup(self.end, stash)
        return stash

    def end(self, stash):
        gc.collect()
        if not stash.closed:
            stash.pool and stash.pool.check()
            stash.pool and stash.step()
            status = stash.status()
            if status is not None:
                self.assertEqual((status.in_use, status.check_errors), ((0, 0), 0))
            stash.close()
        self.assertEqual(pretended.missing(), {})

    def right(self, model):
        torch.cuda.synchronize()
        self.assertEqual(model.wrong(), [])

    def measured(self, *live, **options):
        model = Model(self.stash(**options))
        model.fill(*live or (ROWS,) * LAYERS)
        model.step()
        self.right(model)
        return model


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
        self.assertEqual(torch.cuda.memory_allocated(), before)

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
    LIVE = ((20, 0, ROWS), (1, 2, 3), (0, 0, 0), (ROWS, ROWS, ROWS))

    def replay(self, model, graph, live=LIVE):
        for counts in live:
            model.fill(*counts)
            graph.replay()
            self.right(model)

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
                self.assertEqual(status.steps - (before.steps if before else 0), len(self.LIVE))
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
        for live in self.LIVE:
            model.fill(*live)
            forward.replay()
            backward.replay()
            self.right(model)
        self.assertTrue(model.stash.status().valid)
        self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_side_streams_in_a_capture(self):
        for overlap in (False, True):
            model = self.measured(overlap=overlap)
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    model.step(step=False)
                torch.cuda.current_stream().wait_stream(side)
                model.stash.step()
            self.replay(model, graph)

    def test_a_forward_dropped_on_a_side_stream_in_a_capture(self):
        for overlap in (False, True):
            model = self.measured(overlap=overlap)
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    y = model.forward()
                torch.cuda.current_stream().wait_stream(side)
                del y
                model.stash.step()
            for live in self.LIVE:
                model.fill(*live)
                graph.replay()
            self.assertTrue(model.stash.status().valid)
            self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_a_backward_that_stopped_before_a_capture(self):
        model = self.measured(overlap=True)
        model.step()
        y, after = model.forward(), None
        for node in (y.grad_fn, y.grad_fn.next_functions[0][0]):
            after = node
        after.register_prehook(lambda grads: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            torch.autograd.grad(y, [model.x], model.grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            del y, node, after
            gc.collect()
            model.step()
        self.replay(model, graph)
        model.stash.step()
        self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_a_stash_that_dies_inside_a_capture_of_another(self):
        model, other = self.measured(), Model(Stash("cuda", pages=64))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
            other.stash = None
            gc.collect()
            model.step()
        self.replay(model, graph)
        self.measured()

    def test_rerun(self):
        model = self.measured(4, 4, 4, page_bytes=16384)
        model.fill(ROWS, ROWS, ROWS)
        model.stash.rerun(lambda: model.step(step=False))
        self.right(model)

    def test_two_stashes_in_one_capture(self):
        model, other = self.measured(), self.measured(overlap=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
            other.step()
            model.step()
        for live in self.LIVE:
            model.fill(*live)
            other.fill(*live[::-1])
            graph.replay()
            self.right(model)
            self.right(other)

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

    def test_a_forward_dropped_in_a_capture_gives_its_pages_back(self):
        model = self.measured()
        model.fill(5, 5, 5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model.forward()
            del y
            model.step()
        self.replay(model, graph)
        self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_an_eager_forward_dropped_inside_a_capture(self):
        model = self.measured()
        model.fill(5, 5, 5)
        y = model.forward()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            del y
            gc.collect()
            model.step()
        self.replay(model, graph)
        model.stash.step()
        self.assertEqual(model.stash.status().in_use, (0, 0))

    def test_a_capture_that_fails_leaves_the_stash_usable(self):
        model = self.measured()
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(ZeroDivisionError, ""):
            with torch.cuda.graph(graph):
                y = model.forward()
                raise ZeroDivisionError
        del y, graph
        gc.collect()
        model.fill(1, 2, 3)
        model.step()
        self.right(model)
        self.replay(model, model.capture())

    def test_close_while_a_graph_lives(self):
        model = self.measured()
        graph = model.capture()
        with self.assertRaisesRegex(pagestash.Error, "graph"):
            model.stash.close()
        self.replay(model, graph)
        graph.reset()
        model.stash.close()
        with self.assertRaisesRegex(pagestash.Error, "closed"):
            model.step()

    def test_a_stash_that_died_leaves_its_graph_alive(self):
        model = Model(Stash("cuda", pages=64))
        graph = model.capture()
        model.stash = None
        gc.collect()
        self.replay(model, graph)

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

    def test_checkpoint_in_a_capture(self):
        model = self.measured()

        def step():
            y = torch.utils.checkpoint.checkpoint(model.forward, use_reentrant=False)
            (grad,) = torch.autograd.grad(y, [model.x], model.grad)
            del grad
            model.stash.step()
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        model.fill(5, 6, 7)
        graph.replay()
        self.right(model)


if __name__ == "__main__":
    unittest.main()
