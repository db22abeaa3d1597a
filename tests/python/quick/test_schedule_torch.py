#!/usr/bin/env python3
"""pagestash.schedule.TorchScheduler: pipelines of a small MLP whose backward is written by hand, in one
process, bit-equal to keeping everything, with as many pages as the simulator says."""
import gc
import unittest
import weakref
from unittest import mock

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    torch.set_num_threads(1)
    from pagestash.schedule import TorchScheduler, form_of

import pagestash
from pagestash import Error
from pagestash.pool import Device, Pool
from pagestash.schedule import Buffers, Layer, Part, Schedule, Scheduler

PAGE, CAPACITY, HIDDEN = 16384, 96, 48


class Keeps:
    """Keeps everything, with the hooks of TorchScheduler."""

    class Visit:
        def __init__(self, kept):
            self.save = lambda tensors, counts, part=0: kept.__setitem__(part, tensors)
            self.saved = lambda part=0: kept[part]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def __init__(self):
        self.kept = {}

    def forward(self, *place):
        return self.Visit(self.kept.setdefault(place, {}))

    def backward(self, _kind, *place):
        return self.Visit(self.kept[place])


class Mlp:
    """All stages of a pipeline: layers y = relu(x w), rows behind the live ones NaN. Each layer keeps x, for
    its weight pass, and relu's output, for both halves of its backward."""

    def __init__(self, kind, num_stages, num_micro_batches, num_layers, **fields):
        self.schedules = Schedule.pipeline(kind, num_stages, num_micro_batches, **fields)
        self.num_stages, self.num_layers = num_stages, num_layers
        self.num_chunks = self.schedules[0].num_chunks
        self.order = {"zb-v": "v", "dualpipe-v": "v"}.get(kind, "looped")
        torch.manual_seed(1)
        places = [(stage, chunk, layer) for stage in range(num_stages)
                  for chunk in range(self.num_chunks) for layer in range(num_layers)]
        self.weights = {place: torch.randn(HIDDEN, HIDDEN) * 0.2 for place in places}
        self.inputs = torch.randn(num_micro_batches, CAPACITY, HIDDEN)
        # All layers of a micro-batch have the same rows here.
        self.counts = torch.tensor([13 * i % CAPACITY + 1 for i in range(num_micro_batches)],
                                   dtype=torch.int32)

    def virtual(self, stage, chunk):
        """Which virtual stage of the pipeline."""
        back = self.order == "v" and chunk == 1
        return chunk * self.num_stages + (self.num_stages - 1 - stage if back else stage)

    def layers(self):
        """Of each stage: two parts."""
        like = torch.empty(CAPACITY, HIDDEN, device="meta")
        form = form_of([like], self.counts[:1])
        return [Layer(layer, chunk, parts=[Part(form, uses="weight"), Part(form)])
                for chunk in range(self.num_chunks) for layer in range(self.num_layers)]

    def simulated(self, **fields):
        """pst_stage_result of each stage."""
        layers = [pagestash.SimulatedLayer(one.layer, one.chunk, parts=[
            pagestash.SimulatedPart(form=part.form, counts=self.counts.tolist(), uses=part.uses)
            for part in one.parts]) for one in self.layers()]
        return [pagestash.simulate(schedule, layers, page_bytes=PAGE, **fields).raw_stages[0]
                for schedule in self.schedules]

    def forward(self, scheduler, place, i, x):
        rows = int(self.counts[i])
        for layer in range(self.num_layers):
            y = torch.full((CAPACITY, HIDDEN), float("nan"))
            y[:rows] = torch.relu(x[:rows] @ self.weights[(*place, layer)])
            with scheduler.forward(place[1], layer, i) as visit:
                visit.save([x], self.counts[i:i + 1])
                visit.save([y], self.counts[i:i + 1], part=1)
            x = y
        return x

    def backward(self, scheduler, kind, place, i, dy):
        """dy of the stage's input; self.gradients grow in weight passes."""
        rows = int(self.counts[i])
        for layer in reversed(range(self.num_layers)):
            at = (*place, layer)
            with scheduler.backward(kind, place[1], layer, i) as visit:
                if kind == "backward_weight":
                    dy = self.later.pop((at, i))
                dz = torch.where(visit.saved(1)[0][:rows] > 0, dy, 0)
                if kind != "backward_input":
                    self.gradients[at] += visit.saved(0)[0][:rows].T @ dz
                else:
                    self.later[at, i] = dy
                dy = dz @ self.weights[at].T
        return dy

    def run(self, schedulers):
        """A step of all stages; whoever can runs its next pass."""
        last = self.num_stages * self.num_chunks
        self.gradients = {at: torch.zeros(HIDDEN, HIDDEN) for at in self.weights}
        self.losses, self.later = [], {}
        ups = {(0, i): self.inputs[i].clone() for i in range(len(self.inputs))}
        downs, cursors = {}, [0] * self.num_stages
        while sum(cursors) < sum(map(len, self.schedules)):
            before = list(cursors)
            for stage, schedule in enumerate(self.schedules):
                if cursors[stage] == len(schedule):
                    continue
                kind, chunk, i, _ = schedule[cursors[stage]]
                at, place = self.virtual(stage, chunk), (stage, chunk)
                if kind == "forward" and (at, i) in ups:
                    y = ups[at + 1, i] = self.forward(schedulers[stage], place, i, ups.pop((at, i)))
                    if at + 1 == last:
                        del ups[at + 1, i]
                        self.losses.append(y[:int(self.counts[i])].square().sum())
                        downs[at, i] = 2 * y[:int(self.counts[i])]
                elif kind == "backward_weight":
                    self.backward(schedulers[stage], kind, place, i, None)
                elif kind != "forward" and (at, i) in downs:
                    down = self.backward(schedulers[stage], kind, place, i, downs.pop((at, i)))
                    downs[at - 1, i] = down
                else:
                    continue
                cursors[stage] += 1
            assert cursors != before, "passes wait for each other"
        return self.losses + list(self.gradients.values())


@needs("torch")
class Pipelines(unittest.TestCase):
    def bit_equal(self, model, **fields):
        said = model.simulated(**{name: value for name, value in fields.items() if name != "holds"})
        pools = [Pool(Device.open("host"), max(1, stage.high_water[0]), page_bytes=PAGE)
                 for stage in said]
        schedulers = [TorchScheduler(pool, model.layers(), schedule=schedule, **fields)
                      for pool, schedule in zip(pools, model.schedules)]
        wanted = model.run([Keeps() for _ in pools])
        self.assertTrue(all(tensor.isfinite().all() for tensor in wanted))
        for _ in range(2):
            for scheduler in schedulers:
                scheduler.step_begin()
            got = model.run(schedulers)
            for scheduler in schedulers:
                scheduler.step_end()
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, wanted)))
        for pool, scheduler, stage in zip(pools, schedulers, said):
            status = pool.status()
            self.assertEqual((status.valid, status.in_use, status.high_water, status.step_demand),
                             (True, (0, 0), (stage.high_water[0], 0), stage.demand_high_water))
            self.assertEqual(scheduler.stats().stashed, 2 * stage.stashed)
            scheduler.close()
            pool.close()
        return said

    def test_two_chunks_on_one_process(self):
        """1F1B in which each micro-batch goes through both chunks."""
        said = self.bit_equal(Mlp("interleaved", 1, 4, 3, group=2))
        self.assertGreater(said[0].stashed, 10)
        self.assertGreater(said[0].kept_in_place, 0)

    def test_kinds(self):
        for kind, stages in (("1f1b", 3), ("zb-h1", 2), ("zb-v", 2), ("gpipe-reversed", 2)):
            with self.subTest(kind=kind):
                self.bit_equal(Mlp(kind, stages, 4, 2))

    def test_rules(self):
        for fields in ({"rule": "next"}, {"keeps_nothing": True}, {"one_ring": True}):
            with self.subTest(**fields):
                self.bit_equal(Mlp("1f1b", 2, 4, 2), **fields)


@needs("torch")
class Tensors(unittest.TestCase):
    def setUp(self):
        self.schedule = Schedule(num_stages=2, num_micro_batches=2)
        self.counts = torch.tensor([5], dtype=torch.int64)
        self.form = form_of([torch.empty(CAPACITY, 8, 2), torch.empty(CAPACITY, dtype=torch.int16)],
                            self.counts)
        self.pool = Pool(Device.open("host"), 64, page_bytes=PAGE)

    def scheduler(self, **fields):
        made = TorchScheduler(self.pool, [Layer(parts=[Part(self.form)])], schedule=self.schedule,
                              keeps_nothing=True, **fields)
        self.addCleanup(made.close)
        return made

    def tensors(self, value=1):
        return [torch.full((CAPACITY, 8, 2), float(value)),
                torch.full((CAPACITY,), value, dtype=torch.int16)]

    def test_restored(self):
        """Shapes, dtypes, zeros behind the live rows; what was saved is gone in between."""
        scheduler, alive = self.scheduler(num_sources=1, num_destinations=1), []
        pages = self.form.measure([5], PAGE).pages
        with scheduler.step():
            for p in self.schedule:
                if p.kind == "forward":
                    with scheduler.forward(0, 0, p.micro_batch) as visit:
                        self.assertEqual([ref() for ref in alive], [None] * len(alive))
                        tensors = self.tensors(3 + p.micro_batch)
                        alive += map(weakref.ref, tensors)
                        visit.save(tensors, self.counts, complete=bool(p.micro_batch))
                        self.pool.step()
                        self.assertEqual(self.pool.status().in_use[0], pages * p.micro_batch)
                        del tensors, visit
                    continue
                with scheduler.backward(p.kind, 0, 0, p.micro_batch) as visit:
                    for got, like in zip(visit.saved(), self.tensors(3 + p.micro_batch)):
                        self.assertEqual((got.shape, got.dtype), (like.shape, like.dtype))
                        self.assertTrue(torch.equal(got[:5], like[:5]) and not got[5:].any())
                    alive += map(weakref.ref, visit.saved())
                del got, like, visit
                self.assertEqual([ref() for ref in alive[4:]], [None] * len(alive[4:]))
        self.assertEqual([ref() for ref in alive], [None] * 8)
        self.assertTrue(self.pool.status().valid)

    def test_plain_hooks(self):
        scheduler = self.scheduler()
        scheduler.step_begin()
        for p in self.schedule:
            if p.kind == "forward":
                scheduler.forward_begin(0, 0, p.micro_batch).save(self.tensors(), self.counts)
                scheduler.forward_end(0, 0, p.micro_batch)
            else:
                visit = scheduler.backward_begin(p.kind, 0, 0, p.micro_batch)
                self.assertTrue(torch.equal(visit.saved()[1][:5], self.tensors()[1][:5]))
                scheduler.backward_end(p.kind, 0, 0, p.micro_batch)
        scheduler.step_end()

    def test_evaluation(self):
        scheduler = self.scheduler()
        with scheduler.step(forward_only=True), scheduler.forward(0, 0, 7) as visit:
            visit.save(self.tensors(), self.counts)
        self.assertEqual((scheduler._owned.held, scheduler._shelf.saved), ({}, {}))

    def test_no_memory(self):
        """A restore that finds none waits until it is due, and is an exception then."""
        scheduler, empty, fails = self.scheduler(), torch.empty, []

        def allocate(*arguments, **fields):
            if fails and fails.pop():
                raise torch.OutOfMemoryError("mine")
            return empty(*arguments, **fields)

        def step():
            with scheduler.step():
                for p in self.schedule:
                    if p.kind == "forward":
                        with scheduler.forward(0, 0, p.micro_batch) as visit:
                            visit.save(self.tensors(), self.counts)
                    else:
                        with scheduler.backward(p.kind, 0, 0, p.micro_batch) as visit:
                            self.assertTrue(torch.equal(visit.saved()[0][:5], self.tensors()[0][:5]))
        with mock.patch.object(torch, "empty", allocate):
            fails[:] = [True]
            step()
            self.assertEqual(scheduler.stats().deferred_restores, 1)
            fails[:] = [True] * 3
            with self.assertRaises(torch.OutOfMemoryError):
                step()
        step()
        self.assertEqual((self.pool.status().valid, self.pool.status().in_use), (True, (0, 0)))

    def test_refusals(self):
        scheduler, good = self.scheduler(), self.tensors()
        long = torch.empty(CAPACITY + 1, 8, 2)
        for said, save in (
                ("1 tensors and 1 counts", lambda v: v.save(good[:1], self.counts)),
                ("2 tensors and 2 counts", lambda v: v.save(good, [self.counts] * 2)),
                ("tensor 0 of shape .97", lambda v: v.save([long, good[1]], self.counts)),
                ("contiguous", lambda v: v.save([good[0].transpose(1, 2), good[1]], self.counts)),
                ("tensor 1: on meta", lambda v: v.save([good[0], good[1].to("meta")], self.counts)),
                ("counts of space 0: .*int32", lambda v: v.save(good, self.counts.int())),
                ("counts of space 0: .2,", lambda v: v.save(good, torch.zeros(2, dtype=torch.int64))),
                ("on meta", lambda v: v.save(good, self.counts.to("meta"))),
                ("part 1: the layer has 1", lambda v: v.save(good, self.counts, part=1)),
                ("saved already", lambda v: [v.save(good, self.counts) for _ in range(2)]),
                ("saved is for a backward", lambda v: v.saved()),
                ("0 of its 1 parts", lambda v: None)):
            with self.subTest(said), self.assertRaisesRegex(Error, said):
                with scheduler.step(), scheduler.forward(0, 0, 0) as visit:
                    save(visit)
        self.assertEqual(scheduler._shelf.saved, {})
        part = Part(self.form)
        for said, layers, fields in (("allocates destinations itself", [Layer(parts=[part])],
                                      {"destination": print}),
                                     ("takes them in each visit",
                                      [Layer(parts=[Part(self.form, [[1, 2]])])], {})):
            with self.assertRaisesRegex(Error, said):
                TorchScheduler(self.pool, layers, schedule=self.schedule, **fields)
        for said, arguments, fields in (
                ("no tensors", ([], self.counts), {}),
                ("allowed are int32", (good, self.counts.float()), {}),
                ("2 elements: one", (good, torch.zeros(2, dtype=torch.int32)), {}),
                ("rows .96, 97", ([good[0], long], self.counts), {}),
                ("have no bytes", ([torch.empty(4, 0)], self.counts), {}),
                ("with 5 segments", (good, torch.zeros(5, dtype=torch.int32)), {"segments": 5})):
            with self.assertRaisesRegex(Error, said):
                form_of(*arguments, **fields)

    def test_segments_and_sums(self):
        counts = torch.tensor([3, 0, 24, 7], dtype=torch.int32)
        x = torch.randn(CAPACITY, 8)
        for fields, live in (({"segments": 4}, [(24 * e, 24 * e + n) for e, n in enumerate([3, 0, 24, 7])]),
                             ({"sums": True}, [(0, 34)])):
            form = form_of([x], counts, **fields)
            scheduler = TorchScheduler(self.pool, [Layer(parts=[Part(form)])], keeps_nothing=True,
                                       schedule=Schedule())
            wanted = torch.zeros_like(x)
            for begin, end in live:
                wanted[begin:end] = x[begin:end]
            with scheduler.step():
                with scheduler.forward(0, 0, 0) as visit:
                    visit.save([x.clone()], counts)
                with scheduler.backward("backward", 0, 0, 0) as visit:
                    self.assertTrue(torch.equal(visit.saved()[0], wanted))
            scheduler.close()

    def test_collected(self):
        """Scheduler, tensors and pages of a step that nobody ends."""
        made = TorchScheduler(self.pool, [Layer(parts=[Part(self.form)])], schedule=self.schedule)
        made.step_begin()
        tensors = self.tensors()
        made.forward_begin(0, 0, 0).save(tensors, self.counts)
        made.forward_end(0, 0, 0)
        gone = [weakref.ref(made)] + [weakref.ref(tensor) for tensor in tensors]
        gc.collect()
        gc.disable()  # there is no cycle that holds memory
        self.addCleanup(gc.enable)
        del made, tensors
        self.assertEqual([ref() for ref in gone], [None] * 3)
        self.pool.step()
        self.assertEqual(self.pool.status().in_use, (0, 0))
        self.pool.close()

    def test_tensors_that_are_not_the_forms(self):
        """Raw addresses cannot be checked; tensors are, where the library would read or write behind them."""
        pool = Pool(Device.open("host"), 16, page_bytes=16384)
        form = form_of([torch.empty(64, 128)], torch.zeros(1, dtype=torch.int64))
        rows, counts = torch.ones(64, 128), torch.tensor([64])
        for said, bases, given, more in (
                (r"bases\[0\]: 2048 bytes: wanted are 32768", rows[:4], counts, {}),
                (r"bases\[0\]: 32768 bytes with gaps", rows[:, :1].expand(64, 128), counts, {}),
                (r"counts\[0\]: 4 bytes: wanted are 8", rows, counts.int(), {}),
                (r"counts\[0\]: torch.int32: the form's are int64", rows, counts.repeat(2).int(), {}),
                (r"counts\[0\]: torch.float64: the form's", rows, counts.double(), {}),
                (r"counts\[0\]: on meta: the pool is on cpu", rows, counts.to("meta"), {}),
                (r"bases\[0\]: on meta: the pool is on cpu", rows.to("meta"), counts, {}),
                (r"bases\[0\]: on meta", rows.to("meta"), counts, {"row_strides": (1024,)}),
                (r"bases\[0\]: 1024 bytes in a row \(torch.float64\): the form has 512", rows.double(),
                 counts, {}),
                (r"bases\[0\]: 32768 bytes: wanted are 33280", rows, counts, {"capacities": (65,)}),
                (r"capacities: 2: the form has 1", rows, counts, {"capacities": (65, 65)})):
            with Scheduler(pool, [Layer(parts=[Part(form)])], schedule=Schedule(),
                           destination=lambda *_: None) as scheduler, \
                    self.assertRaisesRegex(Error, said), scheduler.step(), \
                    scheduler.forward(0, 0, 0) as visit:
                visit.sources = [Buffers([bases], [given], **more)]
        with TorchScheduler(pool, [Layer(parts=[Part(form)])], schedule=Schedule()) as scheduler:
            for tensors, given in ((None, counts), ([None], counts), ([rows], 5), ([rows.to_sparse()], counts)):
                with self.assertRaisesRegex(Error, "a list of strided tensors"), scheduler.step(), \
                        scheduler.forward(0, 0, 0) as visit:
                    visit.save(tensors, given)
        buffers = (Buffers([rows], [counts], capacities=(32,)), Buffers([rows[:, :1]], row_strides=(512,)),
                   Buffers([torch.empty(1 << 16, dtype=torch.uint8)]))
        for given in buffers:
            given.raw(form, "", "cpu")
        far = Buffers([rows.to("meta")], [counts])
        with self.assertRaisesRegex(Error, r"part 0, sources\[1\]: bases\[0\]: on meta"):
            Scheduler(pool, [Layer(parts=[Part(form, [Buffers([rows], [counts]), far], [[rows], [rows]])])],
                      schedule=Schedule())
        with self.assertRaisesRegex(Error, "buffer 1: 8 bytes: wanted are 96"):
            Scheduler(pool, [Layer(keep="swapped", buffers=[torch.empty(96, dtype=torch.uint8),
                                                            torch.empty(8, dtype=torch.uint8)],
                                   whole_bytes=64, token_bytes=8, num_tokens=4)], schedule=Schedule())


if __name__ == "__main__":
    main()
