#!/usr/bin/env python3
"""Leases behind Megatron-Core's global memory buffer end with their tensors, whoever lets these go, and when."""
import contextlib
import ctypes
import gc
import sys
import threading
import types
import unittest
from unittest import mock

import torch

from common.edges import setUpModule, tearDownModule  # noqa: F401
from pagestash import _abi, _c
from pagestash.megatron import buffers
from pagestash.torch import leases, scratch


class Other:
    """Another thread that has the lock of the scratch, within the context."""

    def __init__(self, lock):
        self.lock, self.has, self.ends = lock, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.lock:
            self.has.set()
            self.ends.wait()

    def __enter__(self):
        self.thread.start()
        self.has.wait()

    def __exit__(self, *error):
        self.ends.set()
        self.thread.join()


class Buffers(unittest.TestCase):
    def setUp(self):
        state = types.ModuleType("megatron.core.parallel_state")
        state._GLOBAL_MEMORY_BUFFER, state.GlobalMemoryBuffer = None, object
        patch = mock.patch.dict(sys.modules, {"megatron.core.parallel_state": state})
        patch.start()
        self.addCleanup(patch.stop)
        self.buffers = buffers.Buffers("cpu", "warn")
        self.addCleanup(self.buffers.close)

    def get(self, name="a"):
        return self.buffers.get_tensor((4,), torch.float32, name)

    def live(self):
        """Names that are leased."""
        return scratch.info("cpu").num_live

    def test_a_tensor_that_dies_while_another_thread_has_the_lock(self):
        """Its lease ends before whatever is asked of the scratch next: of info, of trim, of another name."""
        for ask in (self.live, lambda: scratch.trim("cpu"), lambda: self.get("b")):
            tensor = self.get()
            with Other(self.buffers.scratch.lock):
                del tensor
            other = ask()
            self.assertNotIn("megatron.a.float32", self.buffers._users)
            del other
            self.assertEqual(self.live(), 0)

    def test_a_tensor_that_dies_while_its_lease_ends(self):
        """One in a cycle, which is found when the next one takes the name."""
        class Cycle:
            pass

        def collecting(*fields):
            gc.collect()
            return lease(*fields)
        gc.disable()  # but for the collection that is asked for
        self.addCleanup(gc.enable)
        lease, cycle = _abi.pst_lease, Cycle()
        cycle.itself, cycle.tensor = cycle, self.get()
        del cycle
        with mock.patch.object(_abi, "pst_lease", collecting), mock.patch.object(leases, "PATIENCE", 0), \
                self.assertLogs("pagestash", "WARNING") as said:
            tensor = self.get()
        self.assertEqual(len(said.records), 1)
        self.assertIn("is held still", said.output[0])
        self.assertEqual(self.live(), 1)
        del tensor
        self.assertEqual(self.live(), 0)

    def test_a_thread_that_leases_before_it_lets_go(self):
        """Who waits for the former tensor of a name does not have the lock."""
        kept = [self.get()]

        def use_and_let_go():
            self.buffers.scratch.lease("b", (4,), torch.float32).release()
            kept.clear()
        thread = threading.Timer(0.05, use_and_let_go)
        with mock.patch.object(leases, "PATIENCE", 20), self.assertNoLogs("pagestash", "WARNING"):
            thread.start()
            tensor = self.get()
        thread.join()
        self.assertEqual((self.live(), self.buffers.num_held), (1, 0))
        del tensor
        self.assertEqual(self.live(), 0)

    def test_who_was_named_is_not_waited_for_again(self):
        """Of a tensor that is held on and on, each place waits and warns once."""
        held = [self.get()]
        with mock.patch.object(leases, "PATIENCE", 0.1), self.assertLogs("pagestash", "WARNING") as said:
            held.append(self.get())
            with mock.patch.object(leases.time, "sleep", side_effect=AssertionError("it waits again")):
                held.append(self.get())
        self.assertEqual((len(said.records), self.buffers.num_held), (1, 2))

    def test_a_lease_that_cannot_end(self):
        """It is told, and ends with close."""
        tensor = self.get()
        user = self.buffers._users["megatron.a.float32"]
        with mock.patch.object(type(user.lease), "release_on", side_effect=buffers.Error("a capture")), \
                self.assertLogs("pagestash", "WARNING") as said:
            del tensor
        self.assertIn("megatron.a.float32: its lease stays: a capture", said.output[0])
        self.assertEqual(self.live(), 1)
        self.buffers.close()
        self.assertEqual(self.live(), 0)

    @contextlib.contextmanager
    def captured(self):
        """What is asked for within is enqueued on a stream that is captured, else on that stream."""
        device, stream, graph = self.buffers.scratch.device.handle, ctypes.c_void_p(), ctypes.c_void_p()
        _c.call("pst_stream_create", device, ctypes.byref(stream))
        self.addCleanup(_c.call, "pst_stream_destroy", device, stream)

        @contextlib.contextmanager
        def capture():
            _c.call("pst_graph_begin", device, stream)
            try:
                yield
            finally:
                _c.call("pst_graph_end", device, stream, ctypes.byref(graph))
                self.addCleanup(_c.call, "pst_graph_destroy", graph)
        with mock.patch.object(self.buffers.scratch.streams, "current", lambda: stream.value):
            yield capture

    def test_a_tensor_of_a_capture_that_dies_behind_it(self):
        """Nobody would hear the finaliser raise: it is told, with both places, and the name is of use still."""
        with self.captured() as capture:
            self.get("captured")  # sized ahead
            with capture():
                tensor = self.get("captured")
            with self.assertLogs("pagestash", "WARNING") as said:
                del tensor
            self.assertEqual(len(said.records), 1)
            self.assertRegex(said.output[0], "'megatron.captured.float32' is released by 'the last that held it' "
                             r"outside the capture in which '.*test_megatron_buffers.py:\d+' has leased it")
            self.assertEqual(self.live(), 0)
            self.get("captured")

    def test_a_tensor_that_dies_in_a_capture_which_is_younger(self):
        """Its lease stays, so the capture is refused the name, and ends behind the capture."""
        with self.captured() as capture:
            tensor = self.get()
            with capture():
                with self.assertLogs("pagestash", "WARNING") as said:
                    del tensor
                self.assertRegex(said.output[0], "its lease stays: .*'megatron.a.float32' is released in a capture")
                with self.assertRaisesRegex(buffers.Error, "has leased it outside of that"):
                    self.get()
            self.assertEqual(self.live(), 1)
            self.get()
            self.assertEqual(self.live(), 0)


if __name__ == "__main__":
    unittest.main()
