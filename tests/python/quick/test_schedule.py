#!/usr/bin/env python3
"""pagestash.schedule: lists of passes, and the scheduler's hooks on plain memory of the host device."""
import gc
import threading
import unittest
import weakref

from common.pipeline import FORM, PAGE, Cell, Memory, Stage, first_of_two

from pagestash import Error, _c
from pagestash.pool import Device, Pool
from pagestash.schedule import KINDS, Buffers, Layer, Part, Pass, Schedule, Scheduler


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


class Callbacks(unittest.TestCase):
    def test_exceptions_surface(self):
        """Whatever is raised, at whatever call: the hook raises it, and an abort leaves all whole."""
        for kind in (ValueError, KeyboardInterrupt, SystemExit, MemoryError):
            stage = Stage(first_of_two(3), own=True, keeps_nothing=True)
            raised = 0
            for when in range(1, 12):
                error = kind("mine")

                def refuse(self, _key, _part):
                    if self.asked == when:
                        raise error
                    return self
                stage.asked, stage.refuses = 0, refuse
                try:
                    stage.step()
                except kind as caught:
                    self.assertIs(caught, error)
                    self.assertFalse(stage.scheduler.is_open)
                    raised += 1
                    stage.cells.clear()
            self.assertEqual(raised, 9)  # as many restores
            stage.refuses = None
            stage.step()
            stage.check(self)
            self.assertEqual(stage.scheduler.stats().aborted_steps, raised)
            stage.close()

    def test_hooks_raise_until_abort(self):
        """Also where the library had put the restore off."""
        stage = Stage(first_of_two(3), own=True, keeps_nothing=True)

        def refuse(_self, _key, _part):
            raise ValueError("mine")
        stage.refuses = refuse
        stage.scheduler.step_begin()
        with self.assertRaisesRegex(ValueError, "mine"):
            for p in stage.order:
                for i in range(3) if p.kind == "forward" else (2, 1, 0):
                    if p.kind == "forward":
                        stage.scheduler.forward_begin(0, i, p.micro_batch)
                        stage.scheduler.forward_end(0, i, p.micro_batch, [Cell().buffers()])
        for call in (lambda: stage.scheduler.forward_begin(0, 0, 1), stage.scheduler.step_end,
                     stage.scheduler.step_begin):
            with self.assertRaisesRegex(Error, "PST_E_ORDER.* abort") as raised:
                call()
            self.assertEqual(raised.exception.status, "PST_E_ORDER")
        stage.scheduler.abort()
        stage.refuses = None
        stage.step()
        stage.check(self)
        stage.close()

    def test_put_off(self):
        """None: later; when it is due, it is an Error."""
        stage = Stage(first_of_two(3), own=True, keeps_nothing=True)
        stage.refuses = lambda self, key, part: self if self.asked % 3 == 0 else None
        with self.assertRaisesRegex(Error, "gave no destination for part 0 of backward of chunk 0, "
                                           "layer ., micro-batch .*, which is due"):
            stage.step()
        due = []

        def first_not(self, key, part):
            due.append(key)
            return self if due.count(key) == 2 else None
        stage.refuses = first_not
        stage.step()
        self.assertEqual(stage.scheduler.stats().deferred_restores > 0, True)
        stage.check(self)
        stage.close()

    def test_nonsense(self):
        answers = (7, "x", [], [1, 2], ["x"], [-1], [None], Buffers([1], capacities=[1, 2]),
                   Buffers([1], row_strides=[-1]), [1 << 64], object())
        stage = Stage(first_of_two(2), own=True, keeps_nothing=True)
        for answer in answers:
            stage.refuses = lambda *_: answer
            with self.subTest(answer=answer), self.assertRaises(Error):
                stage.step()
        stage.refuses = None
        stage.step()
        stage.check(self)
        stage.close()

    def test_calls_of_the_scheduler(self):
        """They would wait for themselves."""
        stage = Stage(first_of_two(2), own=True, keeps_nothing=True)
        for call in (lambda: stage.scheduler.stats(), lambda: stage.scheduler.abort(),
                     lambda: stage.scheduler.close(), lambda: stage.scheduler.digest(),
                     lambda: stage.scheduler.schedule and stage.scheduler.step_end()):
            stage.refuses = lambda *_: call()
            with self.assertRaisesRegex(Error, "called by a destination callback"):
                stage.step()
        stage.refuses = None
        stage.step()
        stage.check(self)
        stage.close()


class Misuse(unittest.TestCase):
    def test_order(self):
        stage = Stage(first_of_two(2))
        with self.assertRaisesRegex(Error, "PST_E_ORDER") as raised:
            with stage.scheduler.step():
                stage.scheduler.forward_begin(0, 1, 0)
        self.assertEqual(raised.exception.status, "PST_E_ORDER")
        with self.assertRaisesRegex(Error, "is missing"):
            stage.step(stage.order[:-1])
        with self.assertRaisesRegex(ValueError, "mine"):  # of the layer itself
            with stage.scheduler.step():
                with stage.scheduler.forward(0, 0, 0):
                    raise ValueError("mine")
        with self.assertRaisesRegex(Error, "no step is open"):
            stage.scheduler.step_end()
        stage.step()
        stage.check(self)
        self.assertEqual(stage.scheduler.stats().aborted_steps, 3)
        stage.close()

    def test_arguments(self):
        stage = Stage(first_of_two(2), own=True, parts=2)
        scheduler, cell = stage.scheduler, Cell().buffers()
        for said, call in (
                ("chunk -1", lambda: scheduler.forward_begin(-1, 0, 0)),
                ("micro_batch 4294967296", lambda: scheduler.forward_begin(0, 0, 1 << 32)),
                ("layer 'a': an integer", lambda: scheduler.forward_begin(0, "a", 0)),
                ("stream 'a'", lambda: scheduler.forward_begin(0, 0, 0, "a")),
                ("kind 'forward': allowed are backward",
                 lambda: scheduler.backward_begin("forward", 0, 0, 0)),
                ("kind 'up'", lambda: scheduler.backward_begin("up", 0, 0, 0)),
                ("sources: 1: the layer has 2 parts", lambda: scheduler.forward_end(0, 0, 0, [cell])),
                ("part 2: the layer has 2", lambda: scheduler.forward_part(0, 0, 0, 2, cell)),
                ("PST_E_INVALID", lambda: scheduler.forward_part(0, 0, 0, 0)),
                ("bases: 2: the form has 1",
                 lambda: scheduler.forward_part(0, 0, 0, 0, Buffers([1, 2], [3]))),
                ("PST_E_INVALID.*count", lambda: scheduler.forward_part(0, 0, 0, 0, Buffers([1 << 12]))),
                ("PST_E_INVALID", lambda: scheduler.forward_end(0, 0, 0, [cell, None])),
                ("PST_E_INVALID", lambda: scheduler.forward_end(0, 0, 0))):
            with self.subTest(said), self.assertRaisesRegex(Error, said):
                with scheduler.step():
                    scheduler.forward_begin(0, 0, 0)
                    call()
        stage.step()
        stage.check(self)
        stage.close()

    def test_create(self):
        pool = Pool(Device.open("host"), 8, page_bytes=PAGE)
        memory, schedule = Memory(1 << 16), first_of_two()
        cell, part = Cell(), Part(FORM)
        fixed = Part(FORM, [cell.buffers()], [[memory]])
        for said, layers, fields in (
                ("Layer is wanted", [1], {}), ("no layers", [], {}),
                ("keep 'kept'", [Layer(keep="kept")], {}),
                ("num_parts 0", [Layer()], {}),
                ("Part with a pagestash.pool.Form", [Layer(parts=[1])], {}),
                ("Part with a pagestash.pool.Form", [Layer(parts=[Part(None)])], {}),
                ("destination is NULL", [Layer(parts=[part])], {}),
                ("name theirs, or none", [Layer(parts=[fixed, part])], {}),
                ("destinations: one ring", [Layer(parts=[fixed])], {"one_ring": True}),
                ("sources: 1: num_sources is 2", [Layer(parts=[fixed])], {"num_sources": 2}),
                ("destinations is NULL", [Layer(parts=[Part(FORM, [cell.buffers()])])], {}),
                ("counts", [Layer(parts=[Part(FORM, [[cell.rows]], [[memory]])])], {}),
                ("buffers: 1: a swapped layer has two", [Layer(keep="swapped", buffers=[memory])], {}),
                ("swap_tokens 3: it has num_tokens 2",
                 [Layer(keep="swapped", buffers=[memory] * 2, num_tokens=2, swap_tokens=3)], {}),
                ("host_num 1: the pool has no host", [Layer(parts=[fixed], host_share=1)], {}),
                ("host_share 2: allowed", [Layer(parts=[fixed], host_share=2)], {}),
                ("uses 'never'", [Layer(parts=[Part(FORM, uses="never")])], {}),
                ("given twice", [Layer(parts=[fixed])] * 2, {}),
                ("num_streams 3", [Layer(parts=[fixed])], {"num_streams": 3}),
                ("rule 'soon'", [Layer(parts=[fixed])], {"rule": "soon"}),
                ("tail 'cut'", [Layer(parts=[fixed])], {"tail": "cut"}),
                ("num_sms 2147483648", [Layer(parts=[fixed])], {"num_sms": (1 << 31, 0)})):
            with self.subTest(said), self.assertRaisesRegex(Error, said):
                Scheduler(pool, layers, schedule=schedule, **fields)
        with self.assertRaisesRegex(Error, "PAGED and SWAPPED need a pool"):
            Scheduler(None, [Layer(parts=[fixed])], schedule=schedule)
        for said, arguments in (("pool: int: a Pool", (3, None)), ("schedule: int: a Schedule", (pool, 3))):
            with self.assertRaisesRegex(Error, said):
                Scheduler(arguments[0], [Layer(parts=[fixed])], schedule=arguments[1])
        pool.close()
        with self.assertRaisesRegex(Error, "pool: it is closed"):
            Scheduler(pool, [Layer(parts=[fixed])], schedule=schedule)
        gc.collect()

    def test_closed(self):
        stage = Stage(first_of_two(2))
        with self.assertRaisesRegex(Error, "PST_E_BUSY"):
            stage.pool.close()
        stage.scheduler.step_begin()
        with self.assertRaisesRegex(Error, "PST_E_BUSY: a step is open"):
            stage.scheduler.close()
        stage.scheduler.abort()
        stage.close()
        stage.scheduler.close()
        for call in (stage.scheduler.stats, stage.scheduler.abort, stage.scheduler.step_begin,
                     stage.scheduler.digest, lambda: stage.scheduler.forward_begin(0, 0, 0)):
            with self.assertRaisesRegex(Error, "the scheduler is closed"):
                call()
        stage = Stage(first_of_two(2))
        with self.assertRaisesRegex(ValueError, "mine"):
            with stage.scheduler as scheduler:
                scheduler.step_begin()
                raise ValueError("mine")
        self.assertTrue(stage.scheduler.is_closed)
        stage.pool.close()


class Lifetimes(unittest.TestCase):
    def test_collected_anywhere(self):
        """In mid-step, in cycles, with everything that it needs going at the same time."""
        for passes in (None, 0, 1, 3):
            for cycle in (False, True):
                stage = Stage(first_of_two(3), own=True)
                if passes is not None:
                    stage.scheduler.step_begin()
                    for p in stage.order[:passes]:
                        stage.run(p)
                if cycle:
                    stage.scheduler.mine = stage.scheduler
                gone, kept = weakref.ref(stage.scheduler), stage.pool
                del stage
                gc.collect()
                self.assertIsNone(gone())
                kept.check()
                kept.step()
                self.assertEqual(kept.status().in_use, (0, 0))
                kept.close()  # nothing holds it

    def test_borrowed_objects_live(self):
        """Forms, schedule, buffers and callback are the scheduler's own."""
        pool = Pool(Device.open("host"), 64, page_bytes=PAGE)
        asked = []

        def make():
            form = Stage(first_of_two(2), own=True)
            form.close()
            from pagestash.pool import Form, Rows, Space
            part = Part(Form([Space(64, count_bytes=4)], [Rows(1024)]))

            def destination(key, _part, _stream):
                asked.append(key)
                return [Memory(1 << 16)]
            return Scheduler(pool, [Layer(parts=[part])], schedule=first_of_two(2),
                             destination=destination, keeps_nothing=True)
        scheduler = make()
        gc.collect()
        with scheduler.step():
            for p in first_of_two(2):
                if p.kind == "forward":
                    with scheduler.forward(0, 0, p.micro_batch) as visit:
                        visit.sources = [Cell().buffers()]
                    gc.collect()
                else:
                    with scheduler.backward(p.kind, 0, 0, p.micro_batch):
                        gc.collect()
        self.assertEqual(len(asked), 2)
        self.assertTrue(pool.status().valid)
        scheduler.close()
        pool.close()

    def test_dropped_under_a_graph(self):
        """It lives until the graph is gone; what is made next sweeps it."""
        device = Device.open("host")
        stream = _c.create("pst_stream_create", device.handle)
        stage = Stage(first_of_two(1), ("paged",))
        _c.call("pst_graph_begin", device.handle, stream)
        with stage.scheduler.step(stream):
            for p in stage.order:
                stage.run(p, stream)
        graph = _c.create("pst_graph_end", device.handle, stream)
        pool, sets = stage.pool, (stage.sources, stage.destinations)
        del stage
        gc.collect()
        _c.call("pst_graph_launch", graph, stream)
        _c.call("pst_stream_synchronize", device.handle, stream)
        self.assertTrue(pool.status().valid)
        with self.assertRaisesRegex(Error, "PST_E_BUSY"):
            pool.close()
        _c.call("pst_graph_destroy", graph)
        Stage(first_of_two(1), ("paged",)).close()
        pool.close()
        _c.call("pst_stream_destroy", device.handle, stream)
        del sets

    def test_dropped_while_another_thread_is_at_work(self):
        """A finaliser does not wait for it: what is made next sweeps."""
        stage = Stage(first_of_two(2), own=True)
        stage.scheduler.step_begin()
        stage.run(stage.order[0])
        pool, working, over = stage.pool, threading.Event(), threading.Event()

        def works():
            with pool.device.lock:
                working.set()
                over.wait()
        thread = threading.Thread(target=works)
        thread.start()
        working.wait()
        gone = weakref.ref(stage.scheduler)
        del stage
        gc.collect()
        self.assertIsNone(gone())
        over.set()
        thread.join()
        with self.assertRaisesRegex(Error, "PST_E_BUSY"):
            pool.close()
        Stage(first_of_two(1)).close()
        pool.close()

    def test_threads(self):
        """Pairs of passes in two threads; others ask for figures and collect garbage."""
        schedule = Schedule("dualpipe", num_stages=2, num_micro_batches=8)
        stage = Stage(schedule, ("paged",) * 2, own=True)
        failed, over = [], threading.Event()

        def guarded(work):
            def run():
                try:
                    work()
                except BaseException as error:  # pylint: disable=broad-except
                    failed.append(error)
            thread = threading.Thread(target=run)
            thread.start()
            return thread

        def asks():
            while not over.is_set():
                stage.scheduler.stats()
                Stage(first_of_two(1), ("paged",), own=True).scheduler.step_begin()
                gc.collect(0)
        others = [guarded(asks) for _ in range(2)]
        with stage.scheduler.step():
            n = 0
            while n < len(schedule):
                passes = schedule[n:n + 1 + schedule[n].pairs]
                threads = [guarded(lambda p=p: stage.run(p)) for p in passes]
                for thread in threads:
                    thread.join()
                n += len(passes)
                self.assertEqual(failed, [])
        over.set()
        for thread in others:
            thread.join()
        self.assertEqual(failed, [])
        stage.check(self)
        stage.close()


if __name__ == "__main__":
    unittest.main()
