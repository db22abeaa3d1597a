#!/usr/bin/env python3
"""Every public function of the package, each argument in turn of a wrong type, out of range, or the name of
what is not there: it is taken, or an Error with one sentence, and the interpreter lives."""
import os
import subprocess
import sys
import tempfile
import unittest

from common import vectors
from common.needs import absent, needs

import pagestash
from pagestash import SimulatedLayer, SimulatedPart, build_ops, pool as pools, schedule as schedules
from pagestash.pool import Form, Rows, Space

if not absent("torch"):
    import torch
    from pagestash import te
    from pagestash.torch import Stash, ops
    from pagestash.torch.rerun import Snapshot

BAD = (None, "x", 1.5, -1, 1 << 64, "/nowhere/at/all.csv", [], (), {}, object(), float("nan"), "a\0b",
       [None], ["x"], [-1], [1 << 64], b"x")


def refusals(call, good, free=()):
    """Of each argument, but those that are free, what is neither taken nor refused by an Error."""
    wrong = []
    for name in good:
        for bad in BAD:
            if name in free:
                continue
            try:
                made = call(**{**good, name: bad})
                if hasattr(made, "close"):
                    made.close()
            except pagestash.Error as error:
                if "\n" in str(error) or len(str(error)) < 8:
                    wrong.append(f"{name}={bad!r}: {error}")
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(f"{name}={bad!r}: {type(error).__name__}: {error}")
    return wrong


class BadValues(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def all_refused(self, cases):
        for name, call, good, *free in cases:
            with self.subTest(name):
                call(**good)
                self.assertEqual(refusals(call, good, free), [])


OVERWRITES = """
import ctypes
from pagestash.pool import Device, Error, Pool
pool = Pool(Device.open("host"), 4)
info = pool.info()
assert info.num_pages[0] * info.page_bytes + info.metadata_bytes == Pool.bytes(4)
ctypes.memset(info.pages[0] + info.num_pages[0] * info.page_bytes + 3, 0, 1)
for call in (pool.check, pool.status, pool.close, pool.close):
    try:
        print(call())
    except Error as error:
        print(error)
"""


class Pools(BadValues):
    def test_an_overwritten_pool(self):
        """It is closed all the same, once."""
        done = subprocess.run([sys.executable, "-c", OVERWRITES], text=True, capture_output=True, check=True,
                              timeout=600, env={**os.environ, "PAGESTASH_CHECK": "1"})
        says = "PST_E_DAMAGED: the pool's memory was overwritten behind its pages: byte 3 is 0x00, not 0x83"
        *damaged, closed = done.stdout.splitlines()
        self.assertEqual(len(damaged), 3, done)
        self.assertTrue(all(says in line for line in damaged), damaged)
        self.assertEqual(closed, "None")

    def test_devices_and_forms(self):
        device = pools.Device.open("host")
        form = Form([Space(8, "segments", 2)], [Rows(64)])
        self.all_refused((
            ("Device.open", pools.Device.open, {"name": "host", "index": 0}),
            ("copy", device.copy, {"destination": 0, "source": 0, "num_bytes": 0, "stream": 0},
             "destination", "source"),
            ("Space", lambda **of: Form([Space(**of)], [Rows(64)]),
             {"capacity": 8, "kind": "segments", "num_segments": 2, "count_bytes": 8}),
            ("Rows", lambda **of: Form([Space(8)], [Rows(**of)]),
             {"row_bytes": 64, "row_stride": 64, "space": 0, "num": 1, "den": 1}),
            ("Form", Form, {"spaces": [Space(8)], "tensors": [Rows(64)]}),
            ("measure", form.measure, {"counts": [1, 2], "page_bytes": 16384}),
            ("buffers", form.buffers, {"bases": [1 << 20], "counts": [1 << 20]})))

    def test_pools(self):
        device = pools.Device.open("host")
        pool, form = pools.Pool(device, 4), Form([Space(8)], [Rows(64)])
        self.addCleanup(pool.close)
        ticket, memory = pool.take(), (256 << 20, 1 << 20)
        self.addCleanup(pool.give, ticket)
        nowhere = form.buffers([256 << 20], [256 << 20])

        def stash(**of):
            pool.stash(**{"form": None, **of})
        fields = {"pages": 4, "page_bytes": 16384, "host_pages": 1, "max_pages": 8, "max_host_pages": 2,
                  "tickets": 4, "slab_pages": 0, "slab_counts": 8, "mode": "ordered", "scrub": False,
                  "fails_fast": False}
        self.all_refused((
            ("Pool", pools.Pool, {"device": device, "make_room": lambda *_: False, **fields}),
            ("config", pools.Pool.config, fields),
            ("bytes", pools.Pool.bytes, fields),
            ("recommend", lambda **of: pool.step() or pool.recommend(**of), {"share": 0.5}),
            ("resize", lambda **of: pool.resize(**of), {"pages": 4, "host_pages": 0}),
            ("reset", lambda **of: pool.reset(of["what"]), {"what": "faults"}),
            ("reset", lambda **of: pool.reset(**of), {"stream": 0}),
            ("stash_options", pools.stash_options, {"num_sms": 0, "priority": "low"}),
            ("restore_options", pools.restore_options,
             {"num_sms": 0, "keep": False, "tail": "zero", "failed_zero": True, "priority": "high"})))
        for wrong in ({"memory": memory[:1]}, {"memory": 5}, {"memory": ("a", 1)}, {"memory": (-1, 4096)},
                      {"memory": (1 << 64, 1 << 20)}):
            with self.subTest(wrong), self.assertRaisesRegex(pagestash.Error, "memory"):
                pools.Pool(device, 4, **wrong)
        for bad in (value for value in BAD if value not in (None, (), {}, [])):
            for call in (lambda b: pool.stash(b, form, nowhere), lambda b: pool.stash(ticket, b, nowhere),
                         lambda b: pool.stash(ticket, form, b), lambda b: pool.restore(ticket, b, nowhere),
                         lambda b: pool.restore(ticket, form, b), lambda b: pool.give(b), pool.step,
                         lambda b: pool.take(b), lambda b: pool.stash(ticket, form, nowhere, 0, b)):
                with self.subTest(bad), self.assertRaises(pagestash.Error):
                    if type(bad) is int and bad == 1 << 64 or type(bad) is not int or bad < 0:
                        call(bad)
        pool.check()
        pool.step()
        self.assertEqual(pool.status().check_errors, 0)

    def test_the_sentence_names_the_field(self):
        device = pools.Device.open("host")
        for said, call in (
                ("num_pages -1: allowed are 0 to 18446744073709551615$", lambda: pools.Pool(device, -1)),
                ("slab_tickets 4294967297: allowed are 0 to 4294967295$",
                 lambda: pools.Pool(device, 4, tickets=(1 << 32) + 1)),
                ("^num_pages 'x': an integer is wanted$", lambda: pools.Pool(device, "x")),
                ("^space 0: capacity 1.5: an integer is wanted$", lambda: Form([Space(1.5)], [Rows(4)])),
                ("^tensor 1: row_bytes 18446744073709551616: allowed",
                 lambda: Form([Space(1)], [Rows(4), Rows(1 << 64)])),
                ("^pst_device_open: index 2147483648|^device index 2147483648: allowed",
                 lambda: pools.Device.open("host", 1 << 31))):
            with self.assertRaisesRegex(pagestash.Error, said):
                call()


class Schedules(BadValues):
    def test_schedules(self):
        plain, of = schedules.Schedule(num_micro_batches=2), schedules.Schedule.of
        schedules.write_lists("list.csv", [plain])
        self.all_refused((
            ("Schedule", schedules.Schedule,
             {"kind": "interleaved", "num_stages": 2, "stage": 0, "num_micro_batches": 4, "num_chunks": 2,
              "group": 2, "overlaps_exchange": False, "limit": 0}),
            ("of", of, {"passes": list(plain), "num_stages": 1, "stage": 0}),
            ("pipeline", schedules.Schedule.pipeline,
             {"kind": "1f1b", "num_stages": 2, "num_micro_batches": 2}),
            ("recognise", schedules.Schedule.recognise, {"passes": list(plain), "num_stages": 1, "stage": 0}),
            ("with_micro_batches", plain.with_micro_batches, {"num_micro_batches": 3}),
            ("slots", plain.slots, {"chunk": 0}),
            ("slot", plain.slot, {"chunk": 0, "micro_batch": 0}),
            ("write_lists", schedules.write_lists, {"path": "list2.csv", "schedules": [plain]}),
            ("read_lists", schedules.read_lists, {"path": "list.csv"})))

    def test_schedulers(self):
        pool, form = pools.Pool(pools.Device.open("host"), 64), Form([Space(8)], [Rows(64)])
        self.addCleanup(pool.close)
        layer = {"layer": 0, "chunk": 0, "keep": "paged", "parts": [schedules.Part(form)], "host_share": 0,
                 "move": "direct", "promote_ahead": 0, "swap_tokens": 0, "holds": False}
        whole = {"pool": pool, "layers": [schedules.Layer(**layer)],
                 "schedule": schedules.Schedule(num_micro_batches=2), "destination": lambda *_: None,
                 "num_stages": 0, "stage": 0, "num_sources": 0, "num_destinations": 0, "one_ring": False,
                 "keeps_nothing": False, "measures": False, "ahead": 0, "rule": "asap", "max_slots": 0,
                 "capture": "iteration", "num_streams": 0, "streams": (), "num_sms": (0, 0),
                 "tail": "untouched", "failed_zero": False}

        def scheduler(**of):
            schedules.Scheduler(**{**whole, **of}).close()

        def swapped(**of):
            scheduler(layers=[schedules.Layer(keep="swapped", **of)])
        self.all_refused((
            ("Scheduler", scheduler, whole),
            ("Layer", lambda **of: scheduler(layers=[schedules.Layer(**of)]), layer),
            ("Part", lambda **of: scheduler(layers=[schedules.Layer(parts=[schedules.Part(**of)])]),
             {"form": form, "sources": None, "destinations": None, "uses": "both"}),
            ("swapped", swapped, {"buffers": (1 << 20, 2 << 20), "whole_bytes": 4096, "token_bytes": 64,
                                  "num_tokens": 64, "swap_tokens": 8}, "buffers")))
        one = schedules.Scheduler(**whole)
        self.addCleanup(lambda: one.is_open and one.abort() or one.close())
        place, calls = {"chunk": 0, "layer": 0, "micro_batch": 0, "stream": None}, []
        for name, more in (("forward_begin", {}), ("forward_part", {"part": 0, "source": None}),
                           ("forward_end", {"sources": None}), ("backward_begin", {"kind": "backward"}),
                           ("backward_end", {"kind": "backward"})):
            for key in (*place, *more):
                calls += [(name, {**place, **more, key: bad}) for bad in BAD]
        calls += [("step_begin", {key: bad}) for bad in BAD for key in ("stream", "num_micro_batches")]
        calls += [("set_schedule", {"schedule": bad}) for bad in BAD]
        calls += [("layer_capture_begin", {"kind": "forward", "chunk": 0, "layer": 0, "slot": 0, key: bad})
                  for bad in BAD for key in ("kind", "chunk", "slot", "stream", "buffers", "alias")]
        for name, arguments in calls:
            with self.subTest(name, **arguments):
                try:
                    getattr(one, name)(**arguments)
                except pagestash.Error:
                    pass
                if one.is_open:
                    one.abort()


class Simulations(BadValues):
    def test_simulate_and_policy(self):
        plain, form = schedules.Schedule(num_micro_batches=2), Form([Space(8)], [Rows(64)])
        fields = {"num_sources": 1, "num_destinations": 1, "one_ring": False, "ahead": 0, "num_streams": 1,
                  "rule": "asap", "mode": "ordered", "keeps_nothing": False, "by_slot": False,
                  "pages": "auto", "host_pages": 0, "page_bytes": 16384, "steps": 1, "p2p_ns": 0,
                  "stash_ns": 1, "stash_rate": 0, "interference_per_mille": 0, "chunk_order": "kind",
                  "in_call_order": False, "alone": None}
        layer = {"layer": 0, "chunk": 0, "keep": "paged", "pages": 1, "forward_ns": (1, 1, 1),
                 "backward_ns": (1, 1, 1), "weight_ns": (1, 1, 1), "host_share": 0, "move": "direct",
                 "promote_ahead": 0, "swap_tokens": 0, "holds": False, "recompute_ns": 0, "swap_bytes": 0,
                 "max_demote_pages": 0, "treatments": (), "planned_bytes": 0, "whole_bytes": 0,
                 "token_bytes": 0, "num_tokens": 0, "block_tokens": 0}
        chosen = {"gpu_bytes": 1 << 30, "set_bytes": 1 << 20, "host_bytes": 0, "static_bytes": None,
                  "reserve_bytes": 0, "objective": "least-bytes", "sets": "fixed", "given": (),
                  "share_den": 0, "max_sets": 0, "max_tickets": 0, "max_evaluations": 0,
                  "max_combinations": 0}

        def policy(**of):
            return pagestash.policy(**{"schedules": plain, "layers": [SimulatedLayer()],
                                       "gpu_bytes": 1 << 30, "set_bytes": 1 << 20, **of})
        self.all_refused((
            ("simulate", pagestash.simulate, {"schedules": plain, "layers": [SimulatedLayer()], **fields}),
            ("policy", policy, {"schedules": plain, "layers": [SimulatedLayer()], **chosen}),
            ("layer", lambda **of: pagestash.simulate(plain, [SimulatedLayer(**of)]), layer),
            ("layer of a policy", lambda **of: policy(layers=[SimulatedLayer(**of)]), layer),
            ("bytes", lambda **of: pagestash.simulate(plain, [SimulatedLayer(**of)]), {"bytes": [1, 2]}),
            ("part", lambda **of: pagestash.simulate(plain, [SimulatedLayer(parts=[SimulatedPart(**of)])]),
             {"form": form, "counts": [1, 2], "uses": "both", "part_ns": 0}),
            ("parts", lambda **of: pagestash.simulate(plain, [SimulatedLayer(**of)]),
             {"parts": [SimulatedPart()]}),
            ("repeat", SimulatedLayer.repeat, {"num_layers": 1, "num_chunks": 1})))

    def test_results_and_files(self):
        plain, form = schedules.Schedule(num_micro_batches=2), Form([Space(8)], [Rows(64)])
        whole = pagestash.simulate(plain, [SimulatedLayer()])
        with open("routing.csv", "w", encoding="ascii") as file:
            file.write("step,layer,e0,e1\n0,0,5,1\n1,0,1,2\n")
        self.all_refused((
            ("to_html", whole.to_html, {"path": "page.html"}),
            ("fault", whole.fault, {"stage": 0}),
            ("read_routing", pagestash.read_routing, {"path": "routing.csv"}),
            ("routed_layers", pagestash.routed_layers,
             {"schedules": plain, "routing": "routing.csv", "form": form, "num_layers": 1,
              "expert_model_parallel_size": 2, "expert_model_parallel_rank": 0, "iteration": 0,
              "chunk_order": "kind"})))

    @needs("matplotlib")
    def test_plot(self):
        whole = pagestash.simulate(schedules.Schedule(), [SimulatedLayer()])
        self.all_refused((("plot", whole.plot, {"figure": None, "stages": [0]}),))

    def test_files_that_are_not_text(self):
        whole = pagestash.simulate(schedules.Schedule(), [SimulatedLayer()])
        with open("bytes.csv", "wb") as file:
            file.write(b"rank,\xff\n")
        os.mkdir("folder")
        for read in (schedules.read_lists, pagestash.read_routing):
            for name, said in (("bytes.csv", "bytes.csv: it is no text"), ("folder", "folder: Is a directory"),
                               ("absent.csv", "absent.csv: No such file"), (3, "3: the name of a file")):
                with self.assertRaisesRegex(pagestash.Error, said):
                    read(name)
        for write in (whole.to_html, lambda path: schedules.write_lists(path, [schedules.Schedule()]),
                      pagestash.plan([("malloc", 1, 8), ("free", 1, 0)]).save):
            for name, said in (("folder", "folder: Is a directory"), ("no/where", "no/where: No such file")):
                with self.assertRaisesRegex(pagestash.Error, said):
                    write(name)
        self.assertEqual(sorted(os.listdir()), ["bytes.csv", "folder"])


class Commands(BadValues):
    def test_estimate_and_plan(self):
        rows = [("malloc", 1, 4096), ("free", 1, 0)]
        self.all_refused((
            ("estimate", pagestash.estimate,
             {"launch": "", "preset": "mixtral-8x7b", "world_size": 64, "moe_layer_freq": [1] * 32}),
            ("plan", pagestash.plan,
             {"trace": rows, "capacity": "1GiB", "out": "plan.csv", "pin": {1: 0}, "reserve": []}),
            ("plan of a snapshot", lambda **of: pagestash.plan(**of), {"minimalloc": [(1, 0, 1, 8)]}),
            ("save", pagestash.plan(rows).save, {"path": "plan.csv"}),
            ("allocator", pagestash.allocator._settings, {"plan": None, "trace": "t.csv", "device": "host"}),
            ("command", build_ops._writable, {"folder": "folder"}, "folder")))


@needs("torch")
class Torch(BadValues):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)

    def test_stash(self):
        stash = Stash("cpu", pages=16, page_bytes=16384)
        self.addCleanup(stash.close)
        x, counts = torch.ones(8, 4, requires_grad=True), torch.tensor([3])

        def layer(**of):
            with stash.layer(**of):
                (x * 1).square().sum().backward()

        def wrapped(**of):
            stash.wrap(**{"module": torch.nn.Linear(4, 4), **of})(x * 1).sum().backward()
        fields = {"counts": counts, "capacity": 8, "segments": 0, "ratio": None, "select": None, "name": "n"}
        self.all_refused((
            ("Stash", Stash, {"device": "cpu", "pages": 4, "page_bytes": 16384, "host_pages": 1,
                              "headroom": 1.1, "max_pages": None, "tickets": 4, "mode": "ordered",
                              "num_sms": 0, "overlap": False, "retain": False, "memory": "torch"}),
            ("layer", layer, fields),
            ("wrap", wrapped, {"module": torch.nn.Linear(4, 4), **fields}),
            ("rerun", lambda **of: stash.rerun(**of),
             {"step": lambda: None, "modules": (), "tensors": (), "trackers": (), "attempts": 2,
              "group": None}),
            ("grow", lambda **of: stash.step() and stash.grow(**of), {"status": None}),
            ("Snapshot", lambda **of: Snapshot(**of).take(),
             {"modules": (), "tensors": (), "trackers": (), "gradients": "look"})))

    def test_operators(self):
        pool = pools.Pool(pools.Device.open("host"), 16, page_bytes=16384)
        self.addCleanup(pool.close)
        x, counts = torch.ones(8, 4), torch.tensor([3])

        def stash(**of):
            ops.release(ops.stash(**of))
        token = ops.stash([x], counts, pool, capacity=8)
        self.all_refused((
            ("stash", stash, {"tensors": [x], "counts": counts, "pool": pool, "capacity": 8, "segments": 0,
                              "num_sms": 0}),
            ("restore", ops.restore, {"token": token, "destinations": [torch.empty(8, 4)], "pool": pool,
                                      "num_sms": 0, "keep": True}, "keep"),
            ("drain", ops.drain, {"pool": pool, "stream": 0}),
            ("swiglu", ops.swiglu, {"x": x, "counts": counts, "pool": pool, "segments": 0, "num_sms": 0})))
        for bad in BAD:
            with self.assertRaises(pagestash.Error):
                ops.release(bad)
        ops.release(token)

    def test_te(self):
        stash = Stash("cpu", pages=16, page_bytes=16384)
        self.addCleanup(stash.close)
        x, counts = torch.ones(8, 4, requires_grad=True), torch.tensor([3])

        def layer(**of):
            with te.layer(stash, **of):
                (x * 1).square().sum().backward()
        fields = {"counts": counts, "capacity": 8, "segments": 0, "num_groups": 1}
        self.all_refused((
            ("layer", layer, {**fields, "unmarked": True, "name": "n"}),
            ("controller", te.OffloadController, {"stash": stash, "num_layers": 2, **fields, "name": "n"}),
            ("get_cpu_offload_context", te.get_cpu_offload_context,
             {"enabled": True, "model_layers": 1, "manual_synchronization": True, "stash": stash, **fields}),
            ("mark", lambda **of: te.mark_grouped_tensor(*of.values()), {"tensor": x.detach()}),
            ("mark", lambda **of: te.mark_not_offload(*of.values()), {"tensor": x.detach()})))

    def test_scheduler(self):
        pool = pools.Pool(pools.Device.open("host"), 64)
        self.addCleanup(pool.close)
        x, counts = torch.ones(8, 4), torch.tensor([3])
        form = schedules.form_of([x], counts)
        layer = schedules.Layer(parts=[schedules.Part(form)])

        def saved(**of):
            scheduler = schedules.TorchScheduler(pool, [layer],
                                                 schedule=schedules.Schedule(num_micro_batches=1))
            with scheduler, scheduler.step():
                with scheduler.forward(0, 0, 0) as visit:
                    visit.save(**of)
                with scheduler.backward("backward", 0, 0, 0) as visit:
                    visit.saved()
        self.all_refused((
            ("form_of", schedules.form_of, {"tensors": [x], "counts": counts, "segments": 0, "sums": False}),
            ("TorchScheduler", schedules.TorchScheduler,
             {"pool": pool, "layers": [layer], "schedule": None, "tail": "zero", "failed_zero": True}),
            ("save", saved, {"tensors": [x], "counts": counts, "part": 0, "complete": False})))


if __name__ == "__main__":
    unittest.main()
