#!/usr/bin/env python3
"""pagestash.schedule: lists of passes, and the scheduler's hooks on plain memory of the host device."""
import unittest
import weakref

from common.pipeline import Cell, Stage, first_of_two

from pagestash import Error, _c
from pagestash.pool import Device
from pagestash.schedule import KINDS, Pass, Schedule


class Schedules(unittest.TestCase):
    def test_kinds(self):
        for kind in KINDS[:-1]:
            for stage in range(2):
                schedule = Schedule(kind, num_stages=2, stage=stage, num_micro_batches=4)
                self.assertEqual(len(list(schedule)), len(schedule))
                again = Schedule.of(schedule, num_stages=2, stage=stage)
                self.assertEqual(list(again), list(schedule))
                self.assertEqual(list(Schedule.of(schedule.numpy())), list(schedule))
                known = Schedule.recognise(schedule, num_stages=2, stage=stage)
                self.assertEqual(list(known), list(schedule), kind)
                self.assertEqual(schedule[0], Pass("forward", schedule[0].chunk, 0))
                seven = schedule.with_micro_batches(6)
                self.assertEqual(seven.num_micro_batches, 6)
        pipeline = Schedule.pipeline("zb-v", 4, 8)
        self.assertEqual({s.info.digest for s in pipeline}, {pipeline[0].info.digest})
        self.assertEqual([s.stage for s in pipeline], [0, 1, 2, 3])

    def test_slots(self):
        schedule = Schedule("1f1b", num_stages=4, num_micro_batches=8)
        self.assertEqual((schedule.slots(0), schedule.slot(0, 5), schedule.slot(0, 8)), (4, 1, None))
        self.assertEqual(schedule.info.peak, 4)
        self.assertTrue(schedule.info.is_fifo and not schedule.info.splits_backward)
        self.assertIsNone(Schedule.recognise([("F", 0, 1), ("F", 0, 0), ("B", 0, 1), ("B", 0, 0)]))

    def test_refusals(self):
        for said, call in (
                ("kind '2f2b': allowed are 1f1b", lambda: Schedule("2f2b")),
                ("Schedule.of takes", lambda: Schedule("list")),
                ("num_micro_batches -1", lambda: Schedule(num_micro_batches=-1)),
                ("num_stages 4294967296", lambda: Schedule(num_stages=1 << 32)),
                ("stage 2.0: an integer", lambda: Schedule(stage=2.0)),
                ("PST_E_INVALID", lambda: Schedule("interleaved", num_stages=4, num_micro_batches=3)),
                ("pass 1, backward of chunk 0, micro-batch 1: its forward",
                 lambda: Schedule.of([("F", 0, 0), ("B", 0, 1)])),
                ("pass 0: kind 'X'", lambda: Schedule.of([("X", 0, 0)])),
                ("pass 0: kind 4", lambda: Schedule.of([(4, 0, 0)])),
                ("pass 1: 7", lambda: Schedule.of([("F", 0, 0), 7])),
                ("pass 0: chunk -1", lambda: Schedule.of([("F", -1, 0)])),
                ("no passes|num_passes", lambda: Schedule.of([])),
                ("one number", lambda: Schedule.of(first_of_two()).with_micro_batches(3)),
                ("PST_E_INVALID", lambda: first_of_two().slots(1)),
                ("PST_E_INVALID", lambda: Schedule.recognise([("B", 0, 0)]))):
            with self.assertRaisesRegex(Error, said):
                call()


class Steps(unittest.TestCase):
    """Every byte comes back, and pages are the simulator's."""

    def runs(self, stage, steps=2):
        for _ in range(steps):
            stage.step()
            status = stage.check(self)
            said = stage.simulated()
            self.assertEqual((status.step_demand, status.high_water),
                             (said.demand_high_water, tuple(said.high_water)))
        stats = stage.scheduler.stats()
        self.assertEqual((stats.stashed + stats.swapped, stats.kept_in_place),
                         (said.stashed * steps, said.kept_in_place * steps))
        stage.close()
        return stats

    def test_kinds_and_forms(self):
        for own in (False, True):
            for kind in KINDS[:-1]:
                stages = 1 if kind == "interleaved" else 2
                schedule = Schedule(kind, num_stages=stages, num_micro_batches=4)
                with self.subTest(kind=kind, own=own):
                    self.runs(Stage(schedule, ("paged",) * 2, own=own))

    def test_sets_and_rules(self):
        for fields in ({"one_ring": True}, {"one_ring": True, "num_sources": 3}, {"rule": "next"},
                       {"keeps_nothing": True}, {"num_sources": 1, "num_destinations": 3, "ahead": 1},
                       {"mode": "concurrent", "num_streams": 4}):
            with self.subTest(**fields):
                self.runs(Stage(first_of_two(), **fields))

    def test_parts(self):
        for own in (False, True):
            self.runs(Stage(first_of_two(), own=own, parts=3))
            schedule = first_of_two(4, "zb-h1")
            for holds in (False, True):
                self.runs(Stage(schedule, own=own, parts=3, uses=("both", "backward", "weight"),
                                holds=holds))

    def test_keeps(self):
        keeps = ("swapped", "paged", "swapped", "planned", "recomputed", "paged")
        stats = self.runs(Stage(first_of_two(), keeps))
        self.assertEqual((stats.planned, stats.recomputed), (8, 8))
        self.assertGreater(stats.swapped, 0)

    def test_host_pages(self):
        stage = Stage(first_of_two(), share="1/2", host_pages=100)
        self.runs(stage)
        stage = Stage(first_of_two(), share=0.5, move="demote", host_pages=100, mode="concurrent",
                      num_streams=4)
        stage.step()
        self.assertGreater(stage.scheduler.stats().demotes, 0)
        stage.check(self)
        stage.close()

    def test_plain_hooks(self):
        """Without contexts."""
        stage, scheduler = Stage(first_of_two(2), own=True), None
        scheduler = stage.scheduler
        scheduler.step_begin()
        for p in stage.order:
            for i in range(3) if p.kind == "forward" else (2, 1, 0):
                if p.kind == "forward":
                    visit = scheduler.forward_begin(p.chunk, i, p.micro_batch)
                    cell = stage._write(visit, 0)
                    scheduler.forward_end(p.chunk, i, p.micro_batch, [cell.buffers()])
                else:
                    visit = scheduler.backward_begin(p.kind, p.chunk, i, p.micro_batch)
                    stage._read(visit, 0)
                    scheduler.backward_end(p.kind, p.chunk, i, p.micro_batch)
        scheduler.step_end()
        stage.check(self)
        stage.close()

    def test_sources_live_until_they_are_read(self):
        """Nobody but the scheduler refers to them."""
        stage = Stage(first_of_two(4), own=True, keeps_nothing=True)
        alive = []
        write = stage._write

        def remember(visit, part):
            cell = write(visit, part)
            alive.append(weakref.ref(cell.rows))
            return cell
        stage._write = remember
        most = 0
        with stage.scheduler.step():
            for p in stage.order:
                stage.run(p)
                most = max(most, sum(ref() is not None for ref in alive))
        self.assertEqual(most, 2)  # as many as there are sources
        self.assertEqual(sum(ref() is not None for ref in alive), 0)
        stage.check(self)
        stage.close()

    def test_other_numbers_of_micro_batches(self):
        stage = Stage(first_of_two(4))
        for num in (2, 7, 4):
            stage.order = stage.order.with_micro_batches(num)
            stage.step(num_micro_batches=num)
            stage.check(self)
        stage.close()

    def test_evaluation(self):
        """Any order, and nothing is kept."""
        stage = Stage(first_of_two(2), own=True)
        with stage.scheduler.step(forward_only=True):
            for micro_batch in (5, 1):
                with stage.scheduler.forward(0, 1, micro_batch) as visit:
                    self.assertFalse(visit.is_live)
                    visit.sources = [Cell().buffers()]
                self.assertEqual(stage.scheduler._owned.held, {})
        self.assertEqual(stage.scheduler.stats().visits, 0)
        stage.step()
        stage.check(self)
        stage.close()

    def test_recording(self):
        stage = Stage(first_of_two(4), records=True, own=True, num_stages=2)
        self.assertIsNone(stage.scheduler.schedule)
        with self.assertRaisesRegex(Error, "PST_E_AGAIN"):
            stage.scheduler.digest()
        stage.step()
        stage.check(self)
        self.assertEqual(stage.scheduler.schedule.kind, "1f1b")
        stage.order = stage.order.with_micro_batches(6)
        stage.step(num_micro_batches=6)
        stage.check(self)
        stage.close()
        order = Schedule.of([("F", 0, 1), ("F", 0, 0), ("B", 0, 1), ("B", 0, 0)])
        stage = Stage(order, records=True)
        for _ in range(2):
            stage.step()
            stage.check(self)
        with self.assertRaisesRegex(Error, "none of the library's kinds"):
            stage.scheduler.schedule
        stage.close()

    def test_set_schedule_and_digest(self):
        stage = Stage(first_of_two(4))
        other = Stage(Schedule(num_stages=2, stage=1, num_micro_batches=4))
        self.assertEqual(stage.scheduler.digest(), other.scheduler.digest())
        before = stage.scheduler.digest()
        stage.order = first_of_two(3, "gpipe-reversed")
        with self.assertRaisesRegex(Error, "slots"):
            stage.scheduler.set_schedule(stage.order)
        stage.order = Schedule(num_stages=2, stage=1, num_micro_batches=4)
        stage.scheduler.set_schedule(stage.order)
        self.assertIs(stage.scheduler.schedule, stage.order)
        stage.step()
        stage.check(self)
        self.assertEqual(stage.scheduler.digest(), before)  # it is the pipeline's, not the stage's
        stage.close()
        other.close()


class Graphs(unittest.TestCase):
    """Captured with the library's own calls."""

    def setUp(self):
        self.device = Device.open("host")
        self.stream = _c.create("pst_stream_create", self.device.handle)
        self.addCleanup(_c.call, "pst_stream_destroy", self.device.handle, self.stream)

    def capture(self, work):
        _c.call("pst_graph_begin", self.device.handle, self.stream)
        try:
            work()
        finally:
            graph = _c.create("pst_graph_end", self.device.handle, self.stream)
        return graph

    def test_iteration(self):
        """One graph holds the step, and the scheduler, which says so."""
        stage = Stage(first_of_two(2), keeps_nothing=True)

        def step():
            with stage.scheduler.step(self.stream):
                for p in stage.order:
                    for i in range(3) if p.kind == "forward" else (2, 1, 0):
                        around = (stage.scheduler.forward(0, i, p.micro_batch, self.stream)
                                  if p.kind == "forward" else
                                  stage.scheduler.backward(p.kind, 0, i, p.micro_batch, self.stream))
                        with around:
                            pass
        graph = self.capture(step)
        for rows in (3, 40):
            for cell in stage.sources[0]:
                cell.count.write(rows.to_bytes(4, "little"))
            _c.call("pst_graph_launch", graph, self.stream)
            _c.call("pst_stream_synchronize", self.device.handle, self.stream)
            status = stage.pool.status()
            self.assertTrue(status.valid)
            self.assertEqual(status.step_demand > 10, rows == 40)
        with self.assertRaisesRegex(Error, "PST_E_BUSY: .*1 captured graphs"):
            stage.scheduler.close()
        self.assertFalse(stage.scheduler.is_closed)
        _c.call("pst_graph_destroy", graph)
        stage.close()

    def test_exception_in_a_capture(self):
        """The step cannot be given up there; the next one does it."""
        stage = Stage(first_of_two(2))

        def step():
            with stage.scheduler.step(self.stream):
                stage.run(stage.order[0], self.stream)
                raise ValueError("mine")
        with self.assertRaises((ValueError, Error)) as raised:
            self.capture(step)
        while raised.exception.__context__ is not None:
            raised.exception = raised.exception.__context__
        self.assertEqual(str(raised.exception), "mine")
        stage.step()
        stage.check(self)
        stage.close()

    def test_layers(self):
        """Each slot's forward and backward is a graph; hooks stay outside."""
        stage = Stage(first_of_two(4), ("paged",), own=True, capture="layers")
        graphs, scheduler = {}, stage.scheduler
        cells = {slot: Cell() for slot in range(stage.order.slots(0))}
        for slot, cell in cells.items():
            cell.count.write((9).to_bytes(4, "little"))
            for kind in ("forward", "backward"):
                def work():
                    scheduler.layer_capture_begin(kind, 0, 0, slot, stream=self.stream, alias=slot,
                                                  buffers=[cell.buffers()])
                    scheduler.layer_capture_end(kind, 0, 0, slot, stream=self.stream)
                graphs[kind, slot] = self.capture(work)
        self.assertEqual(len(scheduler._owned.owners), len(graphs))  # they live as long as it does
        for _ in range(2):
            with scheduler.step(self.stream):
                for p in stage.order:
                    around = (scheduler.forward(0, 0, p.micro_batch, self.stream)
                              if p.kind == "forward" else
                              scheduler.backward(p.kind, 0, 0, p.micro_batch, self.stream))
                    with around as visit:
                        rows, data = cells[visit.slot].rows, bytes([65 + p.micro_batch]) * 9216
                        _c.call("pst_graph_launch", graphs[p.kind, visit.slot], self.stream)
                        if p.kind == "forward":
                            rows.write(data)
                        else:
                            self.assertEqual(rows.read(9216), data)
                            rows.write(b"\xbb" * 9216)
        self.assertTrue(stage.pool.status().valid)
        with self.assertRaisesRegex(Error, "its graph was captured"):
            with scheduler.step(self.stream):
                with scheduler.forward(0, 0, 0, self.stream) as visit:
                    visit.part(0, cells[0].buffers())
        for graph in graphs.values():
            _c.call("pst_graph_destroy", graph)
        stage.close()


if __name__ == "__main__":
    unittest.main()
