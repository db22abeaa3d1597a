"""Captures of a Stash on the pretended GPU: side streams, what is dropped and dies, what fails."""
import gc
import threading
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
import pagestash  # noqa: E402 pylint: disable=wrong-import-position
from common.copying import LIVE, ROWS, Keep, Model, StashTest  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402 pylint: disable=wrong-import-position
from pagestash.torch import Stash  # noqa: E402 pylint: disable=wrong-import-position


class Captured(StashTest):
    def beside(self, work):
        """Yields (model, graph): a capture with work(model) on a side stream, without and with overlap."""
        for overlap in (False, True):
            model = self.measured(overlap=overlap)
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    left = work(model)
                torch.cuda.current_stream().wait_stream(side)
                del left
                model.stash.step()
            yield model, graph

    def test_side_streams_in_a_capture(self):
        for model, graph in self.beside(lambda model: model.step(step=False)):
            self.replay(model, graph)

    def test_a_forward_dropped_on_a_side_stream_in_a_capture(self):
        for model, graph in self.beside(lambda model: model.forward()):
            for live in LIVE:
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

    def test_two_stashes_in_one_capture(self):
        model, other = self.measured(), self.measured(overlap=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
            other.step()
            model.step()
        for live in LIVE:
            model.fill(*live)
            other.fill(*live[::-1])
            graph.replay()
            self.right(model)
            self.right(other)

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

    # Fault rows 68.
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

    def test_what_waits_for_the_device_is_refused_in_a_capture_and_breaks_nothing(self):
        model = self.measured()
        model.step()
        for what in (model.stash.close, model.stash.status, model.stash.grow,
                     lambda: Stash("cuda", pages=64), lambda: model.stash.rerun(model.step)):
            graph = torch.cuda.CUDAGraph()
            with self.assertRaisesRegex(pagestash.Error, "captur.*call it outside"):
                with torch.cuda.graph(graph):
                    model.step()
                    what()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step()
            self.assertRaises(pagestash.Error, model.stash.close)
            model.step()
        self.replay(model, graph)

    def test_a_graph_that_is_reset_before_what_it_made_dies(self):
        model, graph = self.measured(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model.forward()
            model.stash.step()
        graph.replay()
        graph.reset()
        del y
        model.step()
        self.right(model)

    def test_an_eager_backward_of_a_captured_forward(self):
        model, graph = self.measured(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model.forward()
        model.fill(3, 4, 5)
        graph.replay()
        torch.autograd.grad(y, [model.x], model.grad)
        model.stash.step()
        self.right(model)

    def test_graphed_callables(self):
        stash = self.stash(pages=64)
        model = Model(stash, layers=1)

        class Experts(torch.nn.Module):
            def forward(self, x):
                with stash.layer(model.counts[0], ROWS):
                    return Keep.apply(x, model.source[0], model.seen[0], model.threads)
        sample = torch.empty(8, device="cuda", requires_grad=True)
        model.fill(5)
        experts = torch.cuda.make_graphed_callables(Experts(), (sample,))
        for live in (7, 0, ROWS):
            model.fill(live)
            x = torch.empty(8, device="cuda", requires_grad=True)
            experts(x).backward(model.grad)
            stash.step()
            self.right(model)
        self.assertTrue(stash.status().valid)

    def test_threads_with_streams_of_their_own(self):
        stash, wrong = self.stash(pages=256, mode="concurrent"), []

        def work():
            model = Model(stash)
            with torch.cuda.stream(torch.cuda.Stream()):
                for live in range(12):
                    model.fill(live, 3, ROWS)
                    model.step(step=False)
                    torch.cuda.current_stream().synchronize()
                    wrong.extend(model.wrong())
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stash.step()
        self.assertEqual(wrong, [])
        self.assertTrue(stash.status().valid)

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

    def test_checkpoints_in_a_capture(self):
        for reentrant in (False, True):
            model, graph = self.measured(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = checkpoint(lambda x, m=model: m.forward(), model.x, use_reentrant=reentrant,
                               preserve_rng_state=False)
                y.backward(model.grad)
                del y
                model.stash.step()
            for live in LIVE:
                model.fill(*live)
                graph.replay()
                if reentrant:  # nothing was stashed: the forward runs again, with all rows
                    model.live = (ROWS,) * 3
                self.right(model)
            model.x.grad = None

    def test_two_backwards_in_a_capture(self):
        model, graph = self.measured(retain=True), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model.forward()
            torch.autograd.grad(y, [model.x], model.grad, retain_graph=True)
            for seen in model.seen:
                seen.zero_()
            torch.autograd.grad(y, [model.x], model.grad)
            del y
            model.stash.step()
        self.replay(model, graph)

    def test_a_second_backward_raises_and_the_capture_goes_on(self):
        for overlap in (False, True):
            model, graph = self.measured(overlap=overlap), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model.forward()
                torch.autograd.grad(y, [model.x], model.grad, retain_graph=True)
                with self.assertRaisesRegex(pagestash.Error, "a second backward"):
                    torch.autograd.grad(y, [model.x], model.grad)
                del y
                model.stash.step()
            self.replay(model, graph)

    def test_two_threads_capture_at_once(self):
        models, wrong = [Model(self.stash(pages=64)) for _ in range(2)], []
        both = threading.Barrier(2, timeout=60)

        def work(model):
            with torch.cuda.stream(torch.cuda.Stream()):
                model.fill(1, 2, 3)
                graph = torch.cuda.CUDAGraph()
                both.wait()
                graph.capture_begin(capture_error_mode="thread_local")
                model.step()
                both.wait()
                graph.capture_end()
                graph.replay()
                torch.cuda.current_stream().synchronize()
                wrong.append(model.wrong())
        threads = [threading.Thread(target=work, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [[], []])


if __name__ == "__main__":
    unittest.main()
