"""pagestash.megatron with device="cuda" on a pretended GPU: streams, and a captured step."""
import os
import sys
import types
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
warnings.filterwarnings("ignore")

from common import pretended  # noqa: E402
from common.needs import absent, main, needs  # noqa: E402
from common.pages import run_block  # noqa: E402

os.environ.setdefault("NO_VCS_VERSION", "1")
if not absent("megatron"):
    pretended.start()
    import torch

    pretended.use_as_cuda()
    import pagestash.megatron
    from megatron.core.transformer.moe.paged_stash import PagedStashManager
    from common.megatron_layers import Model, as_bytes, config
    torch.set_num_threads(1)

CAPACITY, WIDTH, LAYERS = 256, 512, 3


@needs("megatron")
class Captured(unittest.TestCase):
    def setUp(self):
        run_block("docs/megatron.md", "# before the model and the runner are built", {})
        self.manager = PagedStashManager.STASH_MGR
        self.addCleanup(pagestash.megatron.uninstall)
        self.source = torch.empty(LAYERS, CAPACITY, WIDTH, dtype=torch.bfloat16, device="cuda")
        self.counts = torch.empty((), dtype=torch.int64, device="cuda")
        self.model = Model(LAYERS, CAPACITY, 128, make=self.make, device="cuda")
        self.outs = []

    def make(self, layer):
        """Copies only: kernels do nothing here."""
        tensor = torch.empty_like(self.source[layer]).copy_(self.source[layer])
        tensor.grouped_tensor_scale_inv = False
        return [tensor]

    def fill(self, live):
        """New bytes, new counts."""
        torch.manual_seed(live)
        values = torch.randint(1, 120, self.source.shape + (2,), dtype=torch.uint8)
        self.source.copy_(values.view(torch.bfloat16).view(self.source.shape))
        self.counts.copy_(torch.tensor(live))

    def step(self):
        return self.model.step([self.counts] * LAYERS, 2, config(1.5))

    def assert_exact(self, seen, live):
        torch.cuda.synchronize()
        self.assertEqual(len(seen), 2 * LAYERS)
        for at, tensors in enumerate(seen):
            layer = LAYERS - 1 - at % LAYERS
            got = as_bytes(tensors[0][0].cpu(), live)
            self.assertTrue(torch.equal(got, as_bytes(self.source[layer].cpu(), live)), (at, live))

    def test_eager(self):
        for live in (128, 100, 180, 0):
            self.fill(live)
            self.assert_exact(self.step(), live)
        torch.cuda.synchronize()
        self.assertEqual(self.manager.finish().num_faults, 0)
        self.assertEqual(self.manager.pool.device.name, "cuda")

    def test_replays(self):
        self.fill(128)
        self.step()
        self.manager.prepare(config(1.5))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            seen = self.step()
        launches = dict(self.manager.num_launches)
        self.assertEqual(launches, {"stash": 5, "restore": 5})
        for live in (128, 7, 0, 150, 128):
            self.fill(live)
            graph.replay()
            self.assert_exact(seen, live)
            self.assertEqual(int(self.manager.valid.cpu()), 1)
        self.fill(256)  # more than the pool has
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(int(self.manager.valid.cpu()), 0)
        self.assertFalse(self.manager.grow())  # the graph holds the pool
        pages = self.manager.num_pages
        with self.assertRaisesRegex(pagestash.Error, "1 captured graphs hold this pool"):
            pagestash.megatron.uninstall()
        self.fill(128)  # all goes on
        graph.replay()
        self.assert_exact(seen, 128)
        self.assertEqual((self.manager.num_launches, self.manager.num_pages), (launches, pages))

    def test_growing_when_the_graph_is_gone(self):
        self.fill(128)
        self.step()
        self.manager.prepare(types.SimpleNamespace(**vars(config(0.5))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(int(self.manager.valid.cpu()), 0)
        del graph
        self.model.seen.clear()
        pages = self.manager.num_pages
        self.assertTrue(self.manager.grow())
        self.assertGreater(self.manager.num_pages, pages)
        self.assert_exact(self.step(), 128)
        self.assertEqual(int(self.manager.valid.cpu()), 1)

    def test_a_capture_without_a_pool(self):
        self.fill(128)
        self.step()
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(pagestash.Error, "a capture, and there is no pool yet"):
            with torch.cuda.graph(graph):
                self.step()

    def test_snapshots(self):
        from pagestash.torch.rerun import Snapshot
        parameter = torch.nn.Parameter(torch.empty(4, device="cuda"))
        module = torch.nn.ParameterList([parameter])
        torch.cuda.manual_seed(3)
        snapshot = Snapshot([module]).take()
        before = torch.cuda.get_rng_state()
        torch.rand(8, device="cuda")
        self.assertFalse(torch.equal(torch.cuda.get_rng_state(), before))
        parameter.grad = torch.empty_like(parameter)
        snapshot.restore()
        self.assertTrue(torch.equal(torch.cuda.get_rng_state(), before))
        self.assertIsNone(parameter.grad)
        snapshot.take()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in (snapshot.take, snapshot.restore):
                with self.assertRaisesRegex(pagestash.Error, "while a stream is captured"):
                    call()
        snapshot.restore()


if __name__ == "__main__":
    main()
