"""What a training loop does beside the straight way, what goes wrong in it, and what a Stash refuses. Every
test ends with no page in use and none lost."""
import copy
import gc
import pickle
import sys
import threading
import unittest
import weakref
from unittest import mock

import torch

from common.edges import (PAGE_BYTES, Small, StashTest, equal, setUpModule, settled,  # noqa: F401
                          tearDownModule)
from pagestash.torch import Stash


class Loops(StashTest):
    """Layers, stashes and threads together; and what goes wrong in mid-step."""

    def test_overflow_grow_again(self):
        for memory in ("torch", "pool"):
            for segments in (True, False):
                self.small = Small(capacity=64, segments=segments)
                stash = self.stash(2, memory=memory)
                plain = self.small.gradients(self.small.plain)
                lost = self.small.gradients(lambda: self.small.stashed(stash))
                self.assertFalse(any(tensor.isnan().any() for tensor in lost))
                self.assertEqual(stash.valid.item(), 0)
                status = settled(stash)
                self.assertFalse(status.valid)
                self.assertGreaterEqual(stash.grow(status), status.demand)
                self.assertEqual(stash.valid.item(), 1)
                self.assertTrue(equal(plain, self.small.gradients(
                    lambda: self.small.stashed(stash))))
                self.assertTrue(settled(stash).valid)

    def test_growth_in_place_under_live_layers(self):
        self.small.stashed(stash := self.stash())
        stash = self.stash(self.used(stash), memory="pool")
        live = self.small.stashed(stash).square().sum()
        address = stash.pool.info().pages[0]
        lost = self.small.stashed(stash)
        stash.step()
        self.assertFalse(stash.status().valid)
        stash.grow()
        self.assertEqual(stash.pool.info().pages[0], address)
        live.backward()
        del lost
        self.assertTrue(torch.equal(self.small.x.grad, self.small.gradients(self.small.plain)[1]))

    def test_growth_of_torch_memory_under_live_layers_is_refused(self):
        stash = self.stash(8)
        live = self.small.stashed(stash).square().sum()
        stash.step()
        with self.refused("1 tickets and 0 captured graphs hold this pool"):
            stash.grow()
        live.backward()
        self.same(stash)

    def test_rerun(self):
        stash = self.stash(2)
        plain = self.small.gradients(self.small.plain)
        weights = torch.nn.ParameterList(self.small.inputs)
        for leaf in self.small.inputs:
            leaf.grad = None

        def step():
            loss = self.small.stashed(stash).square().sum()
            loss.backward()
            return loss.detach()
        loss = stash.rerun(step, modules=[weights])
        self.assertTrue(equal(plain, [loss] + [leaf.grad for leaf in self.small.inputs]))

    def test_rerun_of_a_rank_without_a_pool(self):
        """It takes part in what the group agrees on, and runs again with the others."""
        stash, calls, answers = Stash("cpu"), [], iter((0, 1))
        ranks = mock.Mock(spec=torch.distributed.ProcessGroup)

        def all_reduce(valid, _op, group):
            self.assertEqual((valid.item(), group), (1, ranks))
            valid.fill_(next(answers))
        with mock.patch.object(torch.distributed, "all_reduce", all_reduce):
            stash.rerun(lambda: calls.append(None), group=ranks)
        self.assertEqual(len(calls), 2)

    def test_counts_beyond_the_capacity(self):
        """The step is lost and says why; pages do not help and nobody buys them."""
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(torch.tensor([3, 33, 0, 0]), 32, 4, name="wrong"):
            y = x.square()
        y.sum().backward()
        self.assertEqual(self.small.x.grad.abs().sum().item(), 0)
        status = settled(stash)
        self.assertFalse(status.valid)
        self.assertRegex(status.fault, "row count")
        with self.refused("more pages do not help: stash read a row count.*33"):
            stash.grow(status)
        self.same(stash)
        self.assertTrue(settled(stash).valid)

    def test_host_pages(self):
        stash = self.stash(2, host_pages=64)
        self.same(stash)
        status = settled(stash)
        self.assertTrue(status.valid)
        self.assertGreater(status.spilled_pages, 0)

    def test_measured(self):
        stash = Stash("cpu", page_bytes=PAGE_BYTES, headroom=1.0)
        self.addCleanup(self.conserved, stash)
        self.assertIsNone(stash.status())
        for _ in range(2):  # one after the other
            self.same(stash)
        self.assertIsNone(stash.step())
        self.same(stash)
        status = settled(stash)
        self.assertEqual((status.valid, status.high_water[0]), (True, stash.pages))

    def test_measured_without_a_backward(self):
        """A first step that stashes nothing makes no pool; a visit that lives on is measured."""
        stash = Stash("cpu", page_bytes=PAGE_BYTES)
        self.addCleanup(self.conserved, stash)
        self.assertIsNone(stash.step())
        self.assertEqual(stash.pages, 0)
        y = self.small.stashed(stash).square().sum()
        stash.step()
        self.assertGreater(stash.pages, 0)
        y.backward()
        self.assertTrue(torch.equal(self.small.x.grad, self.small.gradients(self.small.plain)[1]))

    def test_exception_in_the_layer(self):
        stash = self.stash()
        with self.assertRaises(ZeroDivisionError):
            with stash.layer(**self.small.layer):
                y = self.small.experts(self.small.x * 1)
                1 // 0
        with self.refused("its forward did not end"):
            y.sum().backward()
        del y
        self.same(stash)

    def test_exception_in_the_backward(self):
        stash = self.stash()
        x = self.small.x * 1

        def fail(grad):
            raise ZeroDivisionError
        x.register_hook(fail)
        with stash.layer(**self.small.layer):
            y = self.small.experts(x)
        other = self.small.stashed(stash)
        with self.assertRaises(ZeroDivisionError):
            (y.sum() + other.sum()).backward()
        del x, y, other
        self.same(stash)

    def test_layer_in_layer(self):
        """The inner one has what is saved in it."""
        outer, inner = self.stash(), self.stash()
        for within in (inner, outer):
            def forward(within=within):
                x = self.small.x * 1
                with outer.layer(**self.small.layer):
                    x = x.square()
                    with within.layer(**self.small.layer):
                        y = self.small.experts(x)
                    return y * y

            def plain():
                return self.small.experts((self.small.x * 1).square()).square()
            self.assertTrue(equal(self.small.gradients(plain), self.small.gradients(forward)))
        self.assertGreater(self.used(inner), 0)

    def test_two_stashes(self):
        one, two = self.stash(), self.stash(retain=True)
        y = self.small.stashed(one) + self.small.stashed(two)
        y.square().sum().backward()
        ours = self.small.x.grad.clone()
        self.small.x.grad = None
        (self.small.plain() + self.small.plain()).square().sum().backward()
        self.assertTrue(torch.equal(ours, self.small.x.grad))

    def test_threads_share_a_stash(self):
        """Layers and backwards at once in several threads; and a backward elsewhere than its forward."""
        stash, models = self.stash(), [Small(seed=seed) for seed in range(4)]
        plain = [small.gradients(small.plain) for small in models]
        forwards = [small.stashed(stash).square().sum() for small in models]
        wrong = []

        def work(number):
            small = models[number]
            forwards[number].backward()
            for _ in range(10):
                if not equal(plain[number], small.gradients(lambda: small.stashed(stash))):
                    wrong.append(number)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del forwards
        self.assertEqual(wrong, [])

    def test_many_segments(self):
        """More than the 64 counts that a ticket has room for by default."""
        self.small = Small([1] * 100, capacity=4)
        for pages in (64, "measure"):
            stash = self.stash(pages)
            for _ in range(2):
                self.same(stash)
                stash.step()

    def test_held_tensor_outlives_its_layer(self):
        """What was restored belongs to torch: it may be kept, and the stash may be closed."""
        stash = self.stash()
        x = self.small.x * 1
        got = []

        class Keep(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                got.extend(ctx.saved_tensors)
                return grad
        with stash.layer(**self.small.layer):
            y = Keep.apply(x)
        y.sum().backward()
        del y
        self.conserved(stash)
        self.assertTrue(torch.equal(got[0], self.small.x))

    def test_output_of_the_layer_is_its_own(self):
        """A saved tensor that the caller holds stays what it is."""
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(**self.small.layer):
            y = x.exp()
        before = y.detach().clone()
        y.sum().backward()
        self.assertTrue(torch.equal(before, y))
        live = torch.zeros_like(before)
        for slab, rows, count in zip(live, before, self.small.counts):
            slab[:count] = rows[:count]
        self.assertTrue(torch.equal(self.small.x.grad, live))


class Closing(StashTest):
    """The end of a stash."""

    def test_closed(self):
        stash = self.stash()
        self.same(stash)
        stash.close()
        stash.close()
        for use in (lambda: self.small.stashed(stash), stash.step, stash.status, stash.grow,
                    lambda: stash.valid, lambda: stash.rerun(lambda: None)):
            with self.refused("closed"):
                use()
        self.assertEqual(stash.pages, 0)

    def test_close_under_live_layers(self):
        stash = self.stash()
        y = self.small.stashed(stash).square().sum()
        with self.refused("1 tickets and 0 captured graphs hold this pool"):
            stash.close()
        self.assertFalse(stash.closed)
        y.backward()
        stash.close()

    def test_close_under_a_retained_graph(self):
        stash = self.stash(retain=True)
        loss = self.small.stashed(stash).sum()
        loss.backward(retain_graph=True)
        with self.refused("1 tickets and 0 captured graphs hold this pool"):
            stash.close()
        loss.backward()
        del loss
        stash.close()

    def test_stash_outlived_by_a_graph(self):
        """Visits keep what they need."""
        stash = Stash("cpu", pages=64, page_bytes=PAGE_BYTES)
        y = self.small.stashed(stash).square().sum()
        dead = weakref.ref(stash)
        del stash
        gc.collect()
        y.backward()
        self.assertTrue(torch.equal(self.small.x.grad, self.small.gradients(self.small.plain)[1]))
        del y
        gc.collect()
        self.assertIsNone(dead())

    def test_dies_in_a_cycle(self):
        """As that of a module which it wraps."""
        class Model:
            pass
        said, hook = [], sys.unraisablehook
        self.addCleanup(setattr, sys, "unraisablehook", hook)
        sys.unraisablehook = lambda what: said.append(what.exc_value)
        model = Model()
        model.self, model.stash = model, Stash("cpu", pages=4, page_bytes=PAGE_BYTES)
        pool = model.stash.pool
        del model
        gc.collect()
        self.assertEqual((said, pool.handle), ([], None))
        del pool
        model = Model()
        model.self, model.stash = model, Stash("cpu", pages=4, page_bytes=PAGE_BYTES)
        del model
        gc.collect()
        self.assertEqual(said, [])

    def test_as_a_context(self):
        with Stash("cpu", pages=64, page_bytes=PAGE_BYTES) as stash:
            self.same(stash)
        self.assertTrue(stash.closed)


class Refusals(StashTest):
    """Bad input: one sentence, and the stash goes on."""

    def test_counts(self):
        stash = self.stash()
        good = self.small.counts
        for counts, pattern in ((good.to("meta"), "counts are on meta; the stash is on cpu"),
                                (good.float(), "torch.float32; allowed are torch.int32, torch.int64"),
                                (good[:3], "3 elements; allowed: 4"),
                                (good.repeat(2)[::2], "contiguous"),
                                ([3, 0, 32, 7], "list; allowed is a tensor")):
            with self.refused(pattern):
                stash.layer(counts, 32, 4)
        with self.refused("0 elements"):
            stash.layer(good[:0], 32)
        self.same(stash)

    def test_capacity_and_the_like(self):
        stash, counts = self.stash(), self.small.counts
        for arguments in ({"capacity": 0}, {"capacity": -1}, {"capacity": 2.5}, {"capacity": True},
                          {"capacity": "many"}, {"capacity": 32, "segments": -1},
                          {"capacity": 32, "segments": 4.0}, {"capacity": 32, "ratio": (2, 1)},
                          {"capacity": 32, "ratio": 3},
                          {"capacity": 32, "ratio": (0, 1)}, {"capacity": 32, "ratio": ("a", 1)},
                          {"capacity": 32, "select": 1}, {"capacity": 32, "select": lambda t: (3, 2)},
                          {"capacity": 32, "select": lambda t: "yes"},
                          {"capacity": 32, "ratio": [1, 2]}, {"capacity": 32, "name": 3}):
            with self.subTest(arguments), self.refused("."):
                with stash.layer(counts, **arguments):
                    self.small.experts(self.small.x * 1)
        self.same(stash)

    def test_options(self):
        for options in ({"pages": 0}, {"pages": -3}, {"pages": "many"}, {"pages": 2.5},
                        {"page_bytes": 12345, "pages": 4}, {"page_bytes": 12345},
                        {"page_bytes": 1 << 23}, {"headroom": 0.5}, {"headroom": "a"},
                        {"memory": "mine"}, {"mode": "fast"}, {"max_pages": 9}, {"num_sms": -1},
                        {"num_sms": 99}, {"num_sms": None},
                        {"host_pages": -1}, {"tickets": -1}, {"pages": 2 ** 40},
                        {"device": "meta"}, {"device": "nowhere"}, {"tickets": 0, "pages": 4},
                        {"headroom": float("nan")}, {"page_bytes": "big", "pages": 4}):
            with self.subTest(options), self.refused("."):
                Stash(**{"device": "cpu", **options})

    def test_no_gpu(self):
        with mock.patch.object(torch.cuda, "current_device", side_effect=RuntimeError("No GPUs\nmore")), \
                self.refused("device cuda: No GPUs$"):
            Stash("cuda")

    def test_a_tensor_of_another_device(self):
        stash = self.stash()
        elsewhere = torch.ones(4, 32, 16, device="meta", requires_grad=True) * 1
        with self.refused("'far' saves a tensor on meta; the stash is on cpu"):
            with stash.layer(**self.small.layer, name="far"):
                elsewhere.square()
        self.same(stash)

    def test_memory_that_is_not_there(self):
        with self.refused("torch cannot give"):
            Stash("cpu", pages=2 ** 30, page_bytes=1 << 22)

    def test_out_of_tickets(self):
        stash = self.stash(tickets=2)
        held = [self.small.stashed(stash) for _ in range(2)]
        with self.refused("ticket"):
            self.small.stashed(stash)
        del held
        self.same(stash)

    def test_grow_without_a_step(self):
        with self.refused("nothing to grow by"):
            self.stash().grow()


class Wrap(StashTest):
    """stash.wrap."""

    class Experts(torch.nn.Module):
        def __init__(self, small):
            super().__init__()
            self.small = small

        def forward(self, x, counts=None):
            return self.small.experts(x)

    def test_functions_and_values(self):
        for counts, capacity in ((self.small.counts, 32),
                                 (lambda x, counts: counts, lambda x, counts: x.shape[1])):
            stash = self.stash()
            experts = self.Experts(self.small)
            self.assertIs(stash.wrap(experts, counts=counts, capacity=capacity, segments=4), experts)
            self.same(stash, lambda e=experts: e(self.small.x * 1, counts=self.small.counts))
            self.assertGreater(self.used(stash), 0)
            with self.refused("wrapped already"):
                stash.wrap(experts, counts=counts, capacity=capacity)

    def test_wrong_functions(self):
        stash = self.stash()
        experts = stash.wrap(self.Experts(self.small), counts=lambda x: [1], capacity=32, segments=4)
        with self.refused("list; allowed is a tensor"):
            experts(self.small.x * 1)
        with self.refused("wrap: 'no module'; allowed: a torch.nn.Module"):
            stash.wrap("no module", counts=self.small.counts, capacity=32)

    def test_module_stays_what_it_is(self):
        experts = self.stash().wrap(self.Experts(self.small), counts=self.small.counts, capacity=32)
        self.assertEqual(type(experts).__name__, "Experts")
        self.assertEqual(list(experts.state_dict()), [])

    def test_a_copy_has_its_own_weights(self):
        stash = self.stash()
        linear = stash.wrap(torch.nn.Linear(16, 16), counts=torch.tensor([3]), capacity=32)
        other = copy.deepcopy(linear)
        with torch.no_grad():
            other.weight.zero_()
            other.bias.zero_()
        x = torch.ones(32, 16, requires_grad=True)
        y = other(x * 1).square()
        self.assertFalse(y.any())
        y.sum().backward()
        self.assertIsNone(linear.weight.grad)
        self.assertGreater(self.used(stash), 0)

    def test_a_pickle_is_not_wrapped(self):
        linear = self.stash().wrap(torch.nn.Linear(16, 16), counts=torch.tensor([3]), capacity=32)
        read = pickle.loads(pickle.dumps(linear))
        x = torch.ones(5, 16)
        self.assertTrue(torch.equal(read(x), linear(x)))
        self.assertGreater(self.used(self.wrapped_again(read)), 0)

    def wrapped_again(self, module):
        stash = self.stash()
        stash.wrap(module, counts=torch.tensor([3]), capacity=32)
        module(torch.ones(32, 16, requires_grad=True) * 1).sum().backward()
        return stash


if __name__ == "__main__":
    unittest.main()
