#!/usr/bin/env python3
"""TorchScheduler on torch's streams: a captured iteration that is replayed with other rows, pairs on two
streams, and memory that is not used again too early. On a pretended GPU."""
import unittest
from unittest import mock

from common import pretended

CAPACITY, WIDTH, PAGE = 64, 128, 16384


class OnStreams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pretended.start()
        global torch, schedule, Pool, device, form
        import torch
        from pagestash import schedule
        from pagestash.pool import Pool
        torch.set_num_threads(1)
        device = pretended.use_as_cuda()
        form = schedule.form_of([torch.empty(CAPACITY, WIDTH)], torch.zeros(1, dtype=torch.int32))

    def open(self, order, num_layers, **fields):
        self.order, self.num_layers = order, num_layers
        self.pool = Pool(device, 64, page_bytes=PAGE, mode="concurrent")
        layers = [schedule.Layer(i, chunk, parts=[schedule.Part(form)])
                  for chunk in range(order.num_chunks) for i in range(num_layers)]
        self.scheduler = schedule.TorchScheduler(self.pool, layers, schedule=order, num_streams=4,
                                                 **fields)
        of_chunk = 1 + max(p.micro_batch for p in order)
        shape = (order.num_chunks, num_layers, of_chunk, CAPACITY, WIDTH)
        self.wanted = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
        self.inputs, self.outputs = self.wanted.cuda(), torch.zeros(shape).cuda()
        self.rows = torch.zeros(shape[:3], dtype=torch.int32)
        self.counts = self.rows.cuda().unsqueeze(-1)

    def close(self):
        self.scheduler.close()
        self.pool.close()

    def visit(self, p, i):
        at = (p.chunk, i, p.micro_batch)
        if p.kind == "forward":
            with self.scheduler.forward(*at) as visit:
                kept = torch.empty(CAPACITY, WIDTH, device="cuda")
                kept.copy_(self.inputs[at])
                visit.save([kept], self.counts[at])
        else:
            with self.scheduler.backward(p.kind, *at) as visit:
                self.outputs[at].copy_(visit.saved()[0])

    def run_pass(self, p):
        order = range(self.num_layers)
        for i in order if p.kind == "forward" else reversed(order):
            self.visit(p, i)

    def set_rows(self, seed):
        n = torch.arange(self.rows.numel(), dtype=torch.int32).reshape(self.rows.shape)
        self.rows = (7 * n + seed) % CAPACITY + 1
        self.counts.copy_(self.rows.unsqueeze(-1))
        self.outputs.copy_(torch.zeros(self.wanted.shape))

    def check(self):
        torch.cuda.synchronize()
        got, rows = self.outputs.cpu(), self.rows
        live = torch.arange(CAPACITY)[None, None, None, :] < rows[..., None]
        self.assertTrue(torch.equal(got[live], self.wanted[live]))
        status = self.pool.status()
        self.assertTrue(status.valid and status.in_use == (0, 0), status)
        self.assertEqual(self.scheduler._owned.held, {})
        return status.step_demand

    def test_captured_iteration(self):
        self.open(schedule.Schedule(num_stages=3, num_micro_batches=6), 3)
        self.set_rows(0)
        with self.scheduler.step():
            for p in self.order:
                self.run_pass(p)
        self.check()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with self.scheduler.step():
                for p in self.order:
                    self.run_pass(p)
        demands = set()
        for seed in (3, 17, 40):
            self.set_rows(seed)
            graph.replay()
            demands.add(self.check())
        self.assertGreater(len(demands), 1)
        with self.assertRaisesRegex(schedule._scheduler.Error, "PST_E_BUSY"):
            self.scheduler.close()
        graph.reset()
        del graph
        self.close()

    def test_pairs_on_two_streams(self):
        """What one stream allocated is dropped on another."""
        self.open(schedule.Schedule("dualpipe", num_stages=2, num_micro_batches=8), 2)
        streams, recorded = [torch.cuda.Stream(), torch.cuda.Stream()], []
        record = torch.Tensor.record_stream

        def note(tensor, stream):
            recorded.append(tensor.shape)
            record(tensor, stream)
        patched = mock.patch.object(torch.Tensor, "record_stream", note)
        patched.start()
        self.addCleanup(patched.stop)
        for seed in range(3):
            self.set_rows(seed)
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
            with self.scheduler.step():
                n = 0
                while n < len(self.order):
                    pair = self.order[n:n + 1 + self.order[n].pairs]
                    for k, p in enumerate(pair):  # a later pass may run where the other one did
                        with torch.cuda.stream(streams[(k + n) % 2]):
                            self.run_pass(p)
                    n += len(pair)
                for stream in streams:
                    torch.cuda.current_stream().wait_stream(stream)
            self.check()
        self.assertIn((CAPACITY, WIDTH), recorded)
        self.close()

    def test_exception_in_a_capture(self):
        """It comes out of torch's capture; the next step begins anew."""
        self.open(schedule.Schedule(num_micro_batches=2), 2, keeps_nothing=True)
        self.set_rows(1)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex((ValueError, RuntimeError), "mine|capture"):
            with torch.cuda.graph(graph):
                with self.scheduler.step():
                    self.run_pass(self.order[0])
                    raise ValueError("mine")
        del graph
        torch.cuda.synchronize()
        with self.scheduler.step():
            for p in self.order:
                self.run_pass(p)
        self.check()
        self.close()


if __name__ == "__main__":
    unittest.main()
