#!/usr/bin/env python3
"""pagestash.schedule where it is misused: callbacks that raise, hooks out of order, objects that die early."""
import gc
import threading
import unittest
import weakref

from common.pipeline import FORM, PAGE, Cell, Memory, Stage, first_of_two

from pagestash import Error, _c
from pagestash.pool import Device, Form, Pool, Space
from pagestash.schedule import Buffers, Layer, Part, Schedule, Scheduler


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

    def test_forms(self):
        for said, call in (("measure: 0 counts: the form has 1", lambda: FORM.measure([])),
                           ("measure: 2 counts", lambda: FORM.measure([1, 2])),
                           ("space 0: kind 'all': allowed are prefix", lambda: Form([Space(4, "all")], [])),
                           ("space 0: count_bytes 2: allowed are 4, 8",
                            lambda: Form([Space(4, count_bytes=2)], []))):
            with self.subTest(said), self.assertRaisesRegex(Error, said):
                call()

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
                ("num_sms: 8: a sequence", [Layer(parts=[fixed])], {"num_sms": 8}),
                (r"streams: \(1, 2, 3, 4, 5\): .*at most 4", [Layer(parts=[fixed])],
                 {"streams": (1, 2, 3, 4, 5), "num_streams": 4}),
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

    # Fault rows 68.
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
