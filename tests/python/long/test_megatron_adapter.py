"""pagestash.megatron without a model: Megatron-Core's own calls, each defect of its stash in
turn."""
import contextlib
import logging
import os
import sys
import types
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
warnings.filterwarnings("ignore")

from common.needs import absent, main, needs  # noqa: E402

os.environ.setdefault("NO_VCS_VERSION", "1")  # Megatron-Core asks git at its import otherwise
if not absent("megatron"):
    import torch
    import pagestash.megatron
    from common.megatron_adapter import Adapter, overflowed
    from common.megatron_layers import Model, as_bytes, config, rows, wrong
    from megatron.core.full_cuda_graph import FullCudaGraphWrapper
    from megatron.core.transformer.moe import paged_stash
else:
    @needs("megatron")
    class Adapter(unittest.TestCase):
        """Skipped, or failed, with all that are made of it."""


class Sizes(Adapter):
    def test_balanced_routing_at_the_default_factor(self):
        model = Model(layers=4)
        self.train(model, 128, micro_batches=1)
        status = self.closed()
        self.assertEqual(self.manager.num_launches, {"stash": 6, "restore": 6})
        self.assertLessEqual(status.demand, self.manager.num_pages)
        self.assertEqual(status.demand, 3 * 3)  # a page for each tensor of three layers

    def test_factor_1_is_enough_to_the_page(self):
        model = Model(layers=4)
        self.train(model, 128, micro_batches=3, settings=config(1.0))
        self.assertEqual(self.closed().demand, self.manager.num_pages)

    def test_negative_factor_goes_by_what_was_recorded(self):
        model = Model(layers=3, average=16)
        self.train(model, 250, settings=config(-1.0))
        self.assertEqual(self.closed().demand, self.manager.num_pages)

    def test_scale_rows_are_rounded_up(self):
        for capacity, live in ((256, 100), (100, 67), (96, 1), (256, 0)):
            with self.subTest(capacity=capacity):
                def make(layer, capacity=capacity):
                    return [rows(capacity, 32, torch.float8_e4m3fn),
                            rows(-(-capacity // 32), 8, torch.float8_e8m0fnu, scales=True)]

                model = Model(capacity=capacity, average=capacity // 2, make=make)
                for _ in range(3):
                    seen = model.step(live, settings=config(2.0))
                    self.assertEqual(wrong([t[:1] for t in seen], live, capacity), 0)
                    for _, (got, want) in seen:
                        num = -(-live // 32)
                        self.assertTrue(torch.equal(as_bytes(got, num), as_bytes(want, num)))
                self.assertEqual(self.manager.named, set())
                self.assertFalse(overflowed())

    def test_the_pool_lies_in_a_tensor(self):
        self.train(Model(), 128)
        memory, valid = self.manager.memory, self.manager.valid
        inside = range(memory.data_ptr(), memory.data_ptr() + memory.numel())
        self.assertIn(valid.data_ptr(), inside)
        pages = self.manager.pool.info().pages[0]
        self.assertIn(pages, inside)
        self.assertEqual(pages % 256, 0)

    def test_host_pages(self):
        model = Model()
        self.train(model, 128, settings=config(0.4, 1.0))
        status = self.closed()
        self.assertGreater(status.spilled_pages, 0)
        model.step(128, settings=config(0.4, 1.0))
        self.assertTrue(bool(paged_stash.check_paged_stash_host_spill()))

    def test_more_than_one_launch_can_take(self):
        model = Model(layers=2, make=lambda layer: [rows(256, 2) for _ in range(70)])
        self.train(model, 128, micro_batches=1)
        self.assertEqual(self.manager.num_launches, {"stash": 4, "restore": 4})

    def test_saved_twice_is_stashed_once(self):
        def twice(layer):
            tensor = rows(256, 64)
            return [tensor, tensor]

        self.train(Model(make=twice), 128)
        self.assertEqual({len(form.tensors) for form in self.manager.forms.values()}, {1, 2})
        self.assertLess(self.closed().demand, self.manager.num_pages)


class Named(Adapter):
    def test_what_stays_is_named_once(self):
        def make(layer):
            odd = rows(50, 130)
            return [rows(256, 64), rows(256, 8, tag=False), odd]

        model = Model(layers=2, average=256, make=make)
        with self.assertLogs("pagestash", logging.WARNING) as log:
            for _ in range(3):
                for tensors in model.step(256, micro_batches=3):
                    for got, want in tensors:
                        self.assertTrue(torch.equal(got, want))
        self.assertEqual(len(log.output), 2, log.output)
        self.assertRegex(log.output[0], r"experts, layer 1 of chunk 0 saves a tensor of shape "
                         r"\(256, 8\), torch.bfloat16, 4096 bytes, which is not tagged")
        self.assertRegex(log.output[1], r"\(50, 130\), torch.bfloat16, 13000 bytes, which is no "
                         r"multiple of the rows, 256")

    def test_parameters_and_small_tensors_are_not_named(self):
        weight = torch.nn.Parameter(torch.ones(300, 8))
        model = Model(make=lambda layer: [rows(256, 64), weight, torch.arange(8)])
        with self.assertNoLogs("pagestash", logging.WARNING):
            model.step(256)
            model.step(256)

    def test_nothing_tagged(self):
        model = Model(make=lambda layer: [rows(256, 64, tag=False)])
        with self.assertLogs("pagestash", logging.WARNING) as log:
            for _ in range(3):
                model.step(256)
        self.assertRegex(log.output[-1], "nothing will be stashed")
        self.assertFalse(overflowed())


class Orders(Adapter):
    def test_more_micro_batches_than_recorded(self):
        model = Model()
        self.train(model, 128, micro_batches=2, settings=config(4.0))
        pages = self.manager.num_pages
        self.train(model, 128, micro_batches=5, settings=config(4.0))
        self.assertGreater(self.manager.num_pages, pages)  # for the new order
        self.assertTrue(self.manager._pp_schedule.on)
        self.train(model, 128, micro_batches=1, settings=config(4.0))
        self.closed()

    def test_two_models_in_turn(self):
        first, second = Model(layers=2), Model(layers=4)
        for _ in range(4):
            self.assertEqual(wrong(first.step(128, settings=config(3.0)), 128), 0)
            self.assertEqual(wrong(second.step(128, settings=config(3.0)), 128), 0)
        self.closed()

    def test_evaluation_before_and_between(self):
        model = Model()
        model.evaluate(128, 3)
        self.train(model, 128, steps=1)
        model.evaluate(128, 5)
        self.train(model, 128)
        self.assertTrue(self.manager._pp_schedule.on)
        self.closed()

    def test_exceptions_and_dropped_graphs(self):
        model = Model()
        self.train(model, 128)
        with self.assertRaisesRegex(ValueError, "broken"):
            model.step(128, broken_at=2)
        self.train(model, 128)
        paged_stash.paged_stash_reset(True, config())
        loss = model.forward(128)
        self.train(model, 128)
        with self.assertRaisesRegex(pagestash.Error, "layer 3 of chunk 0: a backward after its"):
            loss.backward()
        self.train(model, 128)
        self.closed()

    def test_a_second_backward(self):
        model = Model()
        self.train(model, 128)
        paged_stash.paged_stash_reset(True, config())
        model.seen.clear()
        loss = model.forward(128)
        loss.backward(retain_graph=True)
        loss.backward()
        self.assertEqual((len(model.seen), wrong(model.seen, 128)), (6, 0))
        self.train(model, 128)
        self.closed()


class Lost(Adapter):
    options = {"grow": False}

    def test_an_evaluation_does_not_hide_it(self):
        model = Model()
        model.step(128, settings=config(0.5))
        model.step(128, settings=config(0.5))
        self.assertTrue(overflowed())
        model.evaluate(128)
        self.assertTrue(overflowed())
        with self.assertLogs("pagestash", logging.WARNING) as log:
            model.step(128, settings=config(0.5))
        self.assertRegex(log.output[0], "a step was lost and not run again: stash wanted more "
                         "pages than are free; it wanted 15 pages of 8")
        self.assertFalse(self.manager.grow())
        model.step(128, settings=config(0.5))
        self.manager.overflow.zero_()  # what a runner does that deals with it
        self.assertFalse(overflowed())

    def test_it_stops_copying_and_leaves_zeros(self):
        model = Model(layers=4, average=128)
        small = [10, 256, 10, 10]
        model.make = lambda layer: [rows(256, 64 if layer != 1 else 4096)]
        model.step([10, 10, 10, 10], 1, config(-1.0))
        seen = model.step(small, 1, config(-1.0))  # backwards: the last layer first
        self.assertTrue(overflowed())
        sums = [int(tensors[0][0].view(-1).view(torch.uint8).sum()) for tensors in seen]
        self.assertGreater(sums[0], 0)  # the kept one
        self.assertEqual(sums[1:3], [0, 0])  # the third would have had room: it copied nothing
        self.assertEqual(wrong([seen[3]], 10), 0)  # stashed before it was lost
        for tensors in seen:
            self.assertFalse(tensors[0][0].isnan().any())
        self.manager.finish()
        self.assertEqual(wrong(model.step([10] * 4, 1, config(-1.0)), 10), 0)

    def test_bad_counts(self):
        model = Model()
        for bad in (-1, 257):
            with self.assertRaisesRegex(pagestash.Error, f"{bad} live rows; allowed are 0 to 256"):
                model.step(bad)
            pagestash.megatron.uninstall()
            self.manager = pagestash.megatron.install()
        self.train(model, 128)
        model.step(257)
        self.assertTrue(overflowed())
        with self.assertLogs("pagestash", logging.WARNING):
            self.assertFalse(self.manager.grow())
        self.train(model, 128)

    def test_bad_count_tensors(self):
        paged_stash.paged_stash_reset(True, config())
        for counts, text in ((torch.tensor(3.0), "1 of torch.float32"),
                             (torch.tensor([1, 2]), "2 of torch.int64")):
            with self.assertRaisesRegex(pagestash.Error, text):
                with paged_stash.get_paged_stash_context("x", 8, counts, 4):
                    self.manager.on_save_for_backward(rows(8, 4))


@needs("megatron")
class Planned(unittest.TestCase):
    def test_the_step_runs_in_the_pool_of_the_plan(self):
        """Here only that the allocator is asked and used; it has tests of its own."""
        used, entered = [], []
        from pagestash import allocator

        @contextlib.contextmanager
        def use(pool):
            entered.append(pool)
            yield
            entered.append(None)

        with mock.patch.object(allocator, "mem_pool", lambda plan: f"pool of {plan}"), \
                mock.patch.object(torch.cuda, "use_mem_pool", use):
            manager = pagestash.megatron.install(allocator_plan="plan.csv")
            self.addCleanup(pagestash.megatron.uninstall)
            with manager.planned():
                used.append(list(entered))
            graph = FullCudaGraphWrapper(None)
            with self.assertRaisesRegex(pagestash.Error, "allocator_plan and a full-iteration"):
                paged_stash.PagedStashRunner(config(), False, [], None, graph)
        self.assertEqual((used, entered), ([["pool of plan.csv"]], ["pool of plan.csv", None]))


class Growing(Adapter):
    def test_to_what_the_step_wanted(self):
        model = Model()
        model.step(128, settings=config(0.3))
        model.step(128, settings=config(0.3))
        self.assertTrue(overflowed())
        self.assertTrue(self.manager.grow())
        self.assertFalse(overflowed())
        self.assertEqual(self.manager.num_pages, -(-15 * 11 // 10))
        self.train(model, 128, settings=config(0.3))
        self.assertEqual(self.manager.num_lost_steps, 0)
        self.closed()

    def test_memory_that_cannot_be_had(self):
        model = Model()
        model.step(128, settings=config(0.3))
        model.step(128, settings=config(0.3))
        make, pages = self.manager._make_pool, self.manager.num_pages

        def no_memory(num):
            if num > pages:
                raise torch.OutOfMemoryError("no memory")
            make(num)

        self.manager._make_pool = no_memory
        with self.assertLogs("pagestash", logging.WARNING) as log:
            self.assertFalse(self.manager.grow())
        self.assertRegex(log.output[0], "17 pages cannot be had, 5 stay: no memory")
        self.assertEqual(self.manager.num_pages, pages)
        self.train(model, 0, settings=config(0.3))


@needs("megatron")
class Installing(unittest.TestCase):
    def tearDown(self):
        pagestash.megatron.uninstall()

    def test_twice_and_back(self):
        names = ("check_paged_stash_overflow", "check_paged_stash_host_spill", "PagedStashRunner")
        before = [getattr(paged_stash, name) for name in names]
        manager = pagestash.megatron.install(page_bytes=16384)
        self.assertIs(pagestash.megatron.install(page_bytes=16384), manager)
        self.assertIs(paged_stash.PagedStashManager.get_instance(), manager)
        self.assertTrue(issubclass(paged_stash.PagedStashRunner, before[2]))
        with self.assertRaisesRegex(pagestash.Error, "installed with .*uninstall"):
            pagestash.megatron.install()
        pagestash.megatron.uninstall()
        pagestash.megatron.uninstall()
        self.assertEqual([getattr(paged_stash, name) for name in names], before)
        self.assertIsNone(paged_stash.PagedStashManager.STASH_MGR)
        self.assertIsNot(pagestash.megatron.install(), manager)

    def test_nothing_is_shared_with_the_one_before(self):
        for width in (64, 32):
            manager = pagestash.megatron.install()
            model = Model(make=lambda layer, width=width: [rows(256, width)])
            for _ in range(3):
                self.assertEqual(wrong(model.step(200, settings=config(2.0)), 200), 0)
            self.assertEqual(len(manager.forms), 1)
            pagestash.megatron.uninstall()
            self.assertIsNone(manager.pool)

    def test_megatrons_manager_in_use(self):
        paged_stash.PagedStashManager.get_instance()
        try:
            with self.assertRaisesRegex(pagestash.Error, "in use already"):
                pagestash.megatron.install()
        finally:
            paged_stash.PagedStashManager.STASH_MGR = None

    def test_a_manager_of_somebody_else(self):
        pagestash.megatron.install()
        paged_stash.PagedStashManager.STASH_MGR = None
        try:
            self.assertFalse(overflowed())  # Megatron's own answer, of its own manager
            self.assertFalse(bool(paged_stash.check_paged_stash_host_spill()))
        finally:
            paged_stash.PagedStashManager.STASH_MGR = None
        manager = pagestash.megatron.install(tail="untouched")
        self.assertIs(paged_stash.PagedStashManager.get_instance(), manager)

    def test_capacities_that_change(self):
        manager = pagestash.megatron.install()
        model = Model()
        with self.assertNoLogs("pagestash", logging.WARNING):
            for capacity in (256, 256, 192, 96, 256):
                model.capacity = capacity
                self.assertEqual(wrong(model.step(80), 80, capacity), 0)
        self.assertEqual(manager.finish().num_faults, 0)

    def test_bad_arguments(self):
        for name, value in (("recovery", "x"), ("tail", "ones"), ("headroom", 0.5),
                            ("max_pages", 0), ("page_bytes", 3)):
            with self.assertRaisesRegex(pagestash.Error, f"{name} {value!r}: allowed"):
                pagestash.megatron.install(**{name: value})

    def test_versions(self):
        import megatron.core
        real = megatron.core.__version__
        self.addCleanup(setattr, megatron.core, "__version__", real)
        for other in ("0.16.1", "0.20.0"):
            megatron.core.__version__ = other
            text = f"Megatron-Core {other} was not tried .*0.19.2"
            with self.assertRaisesRegex(pagestash.Error, text):
                pagestash.megatron.install()
        pagestash.megatron.install(version="0.20.0")
        pagestash.megatron.uninstall()
        megatron.core.__version__ = real + "+abc"
        pagestash.megatron.install()
        pagestash.megatron.uninstall()
        name = "megatron.core.transformer.moe.paged_stash"
        sys.modules[name] = types.ModuleType(name)
        self.addCleanup(sys.modules.__setitem__, name, paged_stash)
        with self.assertRaisesRegex(pagestash.Error, "has no PagedStashManager"):
            pagestash.megatron.install()
        sys.modules[name] = None
        with self.assertRaisesRegex(pagestash.Error, "has no paged stash"):
            pagestash.megatron.install()


if __name__ == "__main__":
    main()
