"""Named, recycled buffers of torch tensors: one user at a time, who is not to keep them."""
import ctypes
import gc
import threading
import unittest
from unittest import mock

import torch

import pagestash.torch
from pagestash import _c
from pagestash.torch import Scratch, leases, scratch


class Leases(unittest.TestCase):
    def setUp(self):
        self.scratch = Scratch("cpu")

    def tearDown(self):
        gc.collect()
        self.scratch.close()

    def refuses(self, text):
        return self.assertRaisesRegex(pagestash.Error, text)

    def test_a_name_is_one_address(self):
        with self.scratch.lease("a", (3, 4), torch.float32) as first:
            self.assertEqual((first.shape, first.dtype, first.device.type), ((3, 4), torch.float32, "cpu"))
            address = first.data_ptr()
            self.assertEqual(address % 256, 0)
            first.fill_(2)
        with self.scratch.lease("a", (5,), torch.int64) as second:
            self.assertEqual(second.data_ptr(), address)
        with self.scratch.lease("b", (0, 7), torch.bfloat16) as empty:
            self.assertEqual(empty.shape, (0, 7))
        info = self.scratch.info()
        self.assertEqual((info.num_names, info.num_leases, info.num_live, info.leased_bytes), (2, 3, 0, 0))
        self.assertEqual(info.peak_leased_bytes, 48)
        del first, second, empty

    def test_a_second_user_is_refused_with_both_places(self):
        lease = self.scratch.lease("a", (4,), torch.float32)
        with self.refuses(r"'a' is wanted by .*test_scratch.py:\d+', but '.*test_scratch.py:\d+' has leased it"):
            self.scratch.lease("a", (1,), torch.float32)
        lease.release()
        with self.refuses("has released it before"):
            lease.release()
        self.assertIsNone(lease.tensor)

    def test_a_lease_that_ends_with_an_error_has_ended(self):
        """Leased in a capture and released behind it, while its graph lives."""
        device, stream, graph = self.scratch.device.handle, ctypes.c_void_p(), ctypes.c_void_p()
        _c.call("pst_stream_create", device, ctypes.byref(stream))
        self.addCleanup(_c.call, "pst_stream_destroy", device, stream)
        self.scratch.reserve("a", (4,), torch.float32)
        with mock.patch.object(self.scratch.streams, "current", return_value=stream.value):
            _c.call("pst_graph_begin", device, stream)
            lease = self.scratch.lease("a", (4,), torch.float32)
            _c.call("pst_graph_end", device, stream, ctypes.byref(graph))
            kept, version = lease.tensor, lease.tensor._version
            with self.refuses("a graph of that capture must not be launched"):
                lease.release()
        _c.call("pst_graph_destroy", graph)
        self.assertEqual(self.scratch.info().num_live, 0)
        self.assertIsNone(lease.tensor)
        self.assertEqual(kept._version, version + 1)
        with mock.patch.object(leases, "PATIENCE", 0), self.refuses("holds a tensor of 'a', whose lease has ended"):
            self.scratch.trim()
        with self.refuses("has released it before"):
            lease.release()

    def test_a_lease_ends_with_its_scope(self):
        with self.refuses("'layer 3' ends, but 'a', which 'somewhere' has"), self.scratch.scope("layer 3"):
            lease = self.scratch.lease("a", (4,), torch.float32, place="somewhere")
        lease.release()
        with self.assertRaisesRegex(ValueError, "mine"), self.scratch.scope("layer 4"):
            other = self.scratch.lease("b", (4,), torch.float32)
            raise ValueError("mine")
        other.release()

    def test_what_autograd_has_saved_of_a_lease_is_refused(self):
        """nanotron's mistake: what a layer keeps of the recycled buffer is another layer's in its backward."""
        weight = torch.ones(4, 4, requires_grad=True)
        with self.scratch.lease("gathered", (2, 4), torch.float32) as gathered:
            gathered.fill_(1)
            out = gathered @ weight
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()

    def test_memory_that_somebody_holds_is_not_freed(self):
        lease = self.scratch.lease("a", (4,), torch.float32)
        kept = lease.tensor[1:]
        lease.release()
        for call, name in ((self.scratch.trim, "trim"), (self.scratch.close, "close")):
            with self.refuses(f"scratch: {name}: somebody holds a tensor of 'a'"), \
                    mock.patch.object(leases, "PATIENCE", 0):
                call()
        del kept
        self.scratch.trim()
        self.assertEqual(self.scratch.info().mapped_bytes, 0)

    def test_a_thread_that_lets_go_late(self):
        """As gloo's does of what it has gathered."""
        for call in (self.scratch.trim, self.scratch.close):
            lease = self.scratch.lease("a", (4,), torch.float32)
            kept = [lease.tensor]
            lease.release()
            with mock.patch.object(leases, "PATIENCE", 60):
                thread = threading.Timer(0.05, kept.clear)
                thread.start()
                call()
            self.assertEqual(kept, [])
            thread.join()

    def test_others_use_the_scratch_while_one_waits(self):
        """Who waits for a tensor does not have the lock: the one that holds it may need that before it lets go."""
        for call in (self.scratch.trim, self.scratch.close):
            lease = self.scratch.lease("a", (4,), torch.float32)
            kept = [lease.tensor]
            lease.release()

            def use_and_let_go(kept=kept):
                self.scratch.lease("b", (4,), torch.float32).release()
                kept.clear()
            with mock.patch.object(leases, "PATIENCE", 20):
                thread = threading.Timer(0.05, use_and_let_go)
                thread.start()
                call()
            thread.join()

    def test_reserve_and_what_is_refused(self):
        self.scratch.reserve("a", (1 << 17,), torch.float32)
        self.assertEqual(self.scratch.info().mapped_bytes, 1 << 19)
        for call, text in (
                (lambda: self.scratch.lease("", (1,), torch.float32), "name is empty"),
                (lambda: self.scratch.lease("x" * 64, (1,), torch.float32), "at most 63 bytes"),
                (lambda: self.scratch.lease("a\0", (1,), torch.float32), "it has a zero in it"),
                (lambda: self.scratch.lease(1, (1,), torch.float32), "name: int: a str is wanted"),
                (lambda: self.scratch.lease("a", (-1,), torch.float32), r"shape\[0\] -1"),
                (lambda: self.scratch.lease("a", 3, torch.float32), "shape 3"),
                (lambda: self.scratch.lease("a", (1,), "float32"), "dtype: str: a dtype is wanted"),
                (lambda: self.scratch.lease("a", (1 << 40, 1 << 20), torch.float32), "bytes"),
                (lambda: Scratch("meta"), "device meta: allowed are cpu and cuda"),
                (lambda: Scratch("nowhere"), "device 'nowhere'")):
            with self.refuses(text):
                call()

    def test_quantized_dtypes_are_refused(self):
        """torch would die of a tensor over memory that it is given."""
        for dtype in (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4):
            for call in (self.scratch.lease, self.scratch.reserve):
                with self.refuses(f"dtype {dtype}: scratch has no scales for a quantized tensor"):
                    call("a", (4,), dtype)
        self.assertEqual(self.scratch.info().num_names, 0)

    def test_a_closed_one(self):
        other = Scratch("cpu")
        lease = other.lease("a", (4,), torch.float32)
        with self.refuses("'a'"):
            other.close()
        lease.release()
        other.close()
        other.close()
        with self.refuses("the scratch is closed"):
            other.lease("a", (4,), torch.float32)

    def test_the_one_of_a_device(self):
        self.assertIs(scratch.of("cpu"), scratch.of(torch.device("cpu")))
        self.assertIs(scratch.of("cpu"), scratch.of("cpu:0"))
        with scratch("test", (2,), torch.float32, "cpu") as tensor:
            self.assertEqual(tensor.shape, (2,))
        with scratch.scope("test", "cpu"), scratch("test", (2,), torch.float32, "cpu"):
            pass
        self.assertEqual(scratch.info("cpu").num_live, 0)

    def test_inference_and_long_places(self):
        with torch.inference_mode(), self.scratch.lease("a", (4,), torch.float32, place="p" * 100 + "end") as tensor:
            self.assertEqual(tensor.shape, (4,))
        lease = self.scratch.lease("a", (4,), torch.float32, place="p" * 100 + "end")
        with self.refuses("'[.]{3}p+end' has leased it"):
            self.scratch.lease("a", (4,), torch.float32)
        lease.release()


if __name__ == "__main__":
    unittest.main()
