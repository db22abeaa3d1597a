"""A model that only copies, which is real on the pretended GPU: layers that keep rows, and what
came back in their backwards. Import it after pretended.start()."""
import gc
import threading
import unittest

import torch

from common import pretended
from pagestash.torch import Stash

torch.set_num_threads(1)
pretended.use_as_cuda()
ROWS, WIDTH, LAYERS = 64, 128, 3
LIVE = ((20, 0, ROWS), (1, 2, 3), (0, 0, 0), (ROWS, ROWS, ROWS))  # counts of replays


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

    def replay(self, model, graph, live=LIVE):
        for counts in live:
            model.fill(*counts)
            graph.replay()
            self.right(model)
