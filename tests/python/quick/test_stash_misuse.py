"""The end of a stash, what it refuses, and stash.wrap. Every test ends with no page in use and none lost."""
import copy
import gc
import pickle
import sys
import threading
import time
import unittest
import weakref
from unittest import mock

import torch

from common.edges import PAGE_BYTES, StashTest, setUpModule, tearDownModule  # noqa: F401
from pagestash.pool import Device, Pool
from pagestash.torch import Stash


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

    def test_closed_in_two_threads(self):
        """A stash closes its pool under the device's lock, and who has a pool alone without."""
        stash, pool = Stash("cpu", pages=4), Pool(Device.open("host"), 4, page_bytes=PAGE_BYTES)
        other = threading.Thread(target=pool.close, daemon=True)

        def work():
            with stash.lock:
                other.start()
                time.sleep(0.1)  # until it is within close
                stash.close()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        for one in (thread, other):
            one.join(240)
            self.assertFalse(one.is_alive(), "they wait for each other")

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

    # Fault rows 69.
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

    def test_a_module_that_others_have_wrapped(self):
        linear = torch.nn.Linear(16, 16)
        linear.forward = linear.forward
        self.wrapped_again(linear)
        linear = torch.nn.Linear(16, 16)
        linear.forward = lambda x, forward=linear.forward: forward(x)
        with self.refused("Linear has a forward of its own: somebody else has replaced that of its class"):
            self.stash().wrap(linear, counts=torch.tensor([3]), capacity=32)

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
