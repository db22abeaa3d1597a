"""torch.ops.pagestash on tensors of the pretended GPU: current stream, captures, dropped tokens."""
import gc
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position
from common import ops as helpers  # noqa: E402 pylint: disable=wrong-import-position

helpers.use_binary()
from pagestash import pool as pools  # noqa: E402 pylint: disable=wrong-import-position
from pagestash.torch import Stash, glu, ops  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)
pretended.use_as_cuda()
ROWS, WIDTH = 48, 64
LIVE = (5, 0, ROWS, 17)


class OpsTest(unittest.TestCase):
    def setUp(self):
        self.pool = pools.Pool(pools.Device.open("cuda"), 64, page_bytes=16384)
        self.x = torch.empty(ROWS, WIDTH, device="cuda")
        self.out = torch.empty_like(self.x)
        self.counts = torch.empty(1, dtype=torch.int64, device="cuda")

    def tearDown(self):
        gc.collect()
        ops.drain(self.pool)
        self.pool.step()
        self.assertEqual(self.pool.status().in_use, (0, 0))
        self.pool.close()
        self.assertEqual(pretended.missing(), {})

    def fill(self, live):
        self.x.copy_(torch.rand(ROWS, WIDTH))
        self.out.copy_(torch.full(self.out.shape, -1.))
        self.counts.copy_(torch.tensor([live]))

    def check(self, live):
        wanted = self.x.cpu()
        wanted[live:] = 0
        self.assertTrue(torch.equal(self.out.cpu(), wanted))

    def round(self):
        token = torch.ops.pagestash.stash([self.x], self.counts, self.pool.handle, ROWS)
        torch.ops.pagestash.restore(token, [self.out], self.pool.handle)

    def test_eager_on_any_stream(self):
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            for live in LIVE:
                self.fill(live)
                with torch.cuda.stream(stream):
                    self.round()
                self.check(live)

    def test_a_capture_reads_counts_and_bytes_anew(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.round()
            self.pool.step(torch.cuda.current_stream().cuda_stream)
        for live in LIVE:
            self.fill(live)
            graph.replay()
            self.check(live)
        self.assertEqual(self.pool.status().steps, len(LIVE))
        graph.reset()

    # Fault rows 68.
    def test_a_token_dropped_inside_a_capture(self):
        self.fill(9)
        eager = torch.ops.pagestash.stash([self.x], self.counts, self.pool.handle, ROWS)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token = torch.ops.pagestash.stash([self.x], self.counts, self.pool.handle, ROWS)
            del token, eager
            gc.collect()
            self.round()
        for live in LIVE:
            self.fill(live)
            graph.replay()
            self.check(live)
        graph.reset()
        del graph

    def test_counts_on_the_cpu_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "counts"):
            torch.ops.pagestash.stash([self.x], torch.tensor([3]), self.pool.handle, ROWS)


class GluTest(OpsTest):
    """The same with glu: out is its output, and its input's gradient where the output is the gradient."""

    def setUp(self):
        super().setUp()
        self.out = torch.empty(3 * ROWS * WIDTH // 2, device="cuda")

    def round(self):
        y, token = ops.glu_forward(self.x, self.counts, self.pool)
        dx, _, _ = ops.glu_backward(token, y, self.pool)
        self.out[:y.numel()].copy_(y.view(-1))
        self.out[y.numel():].copy_(dx.view(-1))

    def check(self, live):
        x, counts = self.x.cpu().requires_grad_(), torch.tensor([live])
        y = glu(x, counts)
        y.backward(y.detach())
        self.assertTrue(torch.equal(self.out.cpu(), torch.cat([y.detach().view(-1), x.grad.view(-1)])))

    def test_in_memory(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = self.x.detach().requires_grad_()
            y = glu(x, self.counts)
            dx, = torch.autograd.grad(y, x, y.detach())
            self.out[:y.numel()].copy_(y.detach().view(-1))
            self.out[y.numel():].copy_(dx.view(-1))
        for live in LIVE:
            self.fill(live)
            graph.replay()
            self.check(live)
        graph.reset()

    def test_a_stash_with_a_stream_of_its_own(self):
        """Its layers' copies, and glu on the current stream, are in one order, in a capture, too."""
        self.fill(9)
        x = self.x.detach().requires_grad_()
        with Stash("cuda", pages=64, page_bytes=16384, overlap=True) as stash:
            def step():
                with stash.layer(self.counts, ROWS):
                    y = glu(x * 1, self.counts, stash=stash)
                y.backward(y.detach())
                stash.step()

            step()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            graph.replay()
            self.assertTrue(stash.status().valid)
            graph.reset()
            del graph


if __name__ == "__main__":
    unittest.main()
