"""The pretended GPU itself: what torch does with it is what it would do with a GPU, and what CUDA
refuses is refused."""
import ctypes
import gc
import unittest

from common import pretended

pretended.start()

import torch  # noqa: E402 pylint: disable=wrong-import-position

torch.set_num_threads(1)


class RuntimeTest(unittest.TestCase):
    def setUp(self):
        self.a, self.b = (torch.empty(1000, device="cuda") for _ in range(2))
        self.a.copy_(torch.arange(1000.))
        self.b.zero_()
        self.graph = torch.cuda.CUDAGraph()

    def tearDown(self):
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        torch.cuda.synchronize()

    def test_memory_is_memory(self):
        self.assertTrue(torch.equal(self.a.cpu(), torch.arange(1000.)))
        self.assertTrue(torch.empty(5 << 20, dtype=torch.uint8, device="cuda").cpu().eq(0xff).all())
        self.assertTrue(torch.empty(3).pin_memory().is_pinned())
        self.assertFalse(torch.empty(3).is_pinned())

    def test_kernels_are_counted_and_do_nothing(self):
        before, kept = pretended.kernels(), self.a.clone()
        self.a.mul_(2)
        (self.a.view(10, 100) @ self.b.view(100, 10)).sum()
        self.assertGreaterEqual(pretended.kernels() - before, 3)
        self.assertTrue(torch.equal(self.a.cpu(), kept.cpu()))

    def test_a_graph_runs_when_it_is_replayed(self):
        with torch.cuda.graph(self.graph):
            self.b.copy_(self.a)
            self.a.mul_(2)
        self.assertEqual(self.b.cpu().abs().sum(), 0)
        before = pretended.kernels()
        for number in (3., 4.):
            self.a.copy_(torch.full((1000,), number))
            self.graph.replay()
            self.assertTrue((self.b.cpu() == number).all())
        self.assertEqual(pretended.kernels() - before, 2)

    def test_streams_join_a_capture_by_events(self):
        side = torch.cuda.Stream()
        with torch.cuda.graph(self.graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.assertTrue(torch.cuda.is_current_stream_capturing())
                self.b.copy_(self.a)
            torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.stream(side):
            self.assertFalse(torch.cuda.is_current_stream_capturing())
        self.graph.replay()
        self.assertTrue(torch.equal(self.b.cpu(), self.a.cpu()))

    def refuses(self, what):
        """In a capture; the graph is lost, and torch goes on."""
        with self.assertRaises(torch.AcceleratorError):
            with torch.cuda.graph(self.graph):
                self.b.copy_(self.a)
                what()
        del what
        gc.collect()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            self.b.copy_(self.a)

    def test_what_blocks_breaks_a_capture(self):
        event = torch.cuda.Event()
        event.record()
        self.refuses(torch.cuda.synchronize)
        self.refuses(lambda: torch.cuda.current_stream().synchronize())
        self.refuses(event.synchronize)
        self.refuses(lambda: self.a[0].item())
        self.refuses(lambda: torch.cuda.current_stream().wait_event(event))

    def test_a_stream_that_is_not_joined_back(self):
        side = torch.cuda.Stream()

        def fork():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.b.copy_(self.a)
        self.refuses(fork)

    def test_memory_in_a_capture(self):
        before = pretended.mallocs()
        with torch.cuda.graph(self.graph):  # torch relaxes the capture for its own mallocs
            made = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        self.assertGreater(pretended.mallocs(), before)
        del made

    def test_there_is_so_much_memory_and_no_more(self):
        pretended.set_memory(64 << 20)
        self.addCleanup(pretended.set_memory, 8 << 30)
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(65 << 20, dtype=torch.uint8, device="cuda")
        self.assertEqual(torch.cuda.mem_get_info()[1], 64 << 20)
        del self.a, self.b
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(pretended.allocated(), torch.cuda.memory_reserved())
        self.assertTrue(torch.empty(60 << 20, dtype=torch.uint8, device="cuda").is_cuda)
        self.setUp()

    def test_events_are_timed(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        end.record()
        self.assertGreaterEqual(begin.elapsed_time(end), 0)
        self.assertTrue(end.query())

    def test_what_is_not_there_says_so(self):
        self.assertEqual(pretended.missing(), {})
        pretended.call("cudaMallocManaged", ctypes.c_void_p(), 8, 1)
        with self.assertRaisesRegex(RuntimeError, "not there in the pretended CUDA"):
            torch.cuda.check_error(pretended.call("cudaMallocManaged", None, 8, 1))
        self.assertEqual(pretended.missing(), {"cudaMallocManaged": 2})


if __name__ == "__main__":
    unittest.main()
