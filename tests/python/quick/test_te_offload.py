"""Transformer Engine's manual offload controller over pages: its three calls in and out of order."""
import gc
import unittest
import weakref

import torch

import pagestash
import pagestash.te
from common.stashes import StashTest, stash_of


class ControllerTest(StashTest):
    COUNTS = torch.tensor([40])

    def setUp(self):
        super().setUp()
        self.stash = stash_of()
        torch.manual_seed(5)
        self.x = torch.randn(64, 16, requires_grad=True)
        self.weights = [torch.nn.Parameter(torch.randn(16, 16) / 4) for _ in range(3)]

    def context(self, layers=3, counts=None, **options):
        return pagestash.te.get_cpu_offload_context(
            enabled=True, model_layers=layers, manual_synchronization=True, stash=self.stash,
            counts=self.COUNTS if counts is None else counts, capacity=64, **options)

    def grads(self, y):
        y[:40].square().sum().backward()
        out = [self.x.grad, *(weight.grad for weight in self.weights)]
        self.x.grad = None
        for weight in self.weights:
            weight.grad = None
        return out

    def plain(self):
        y = self.x
        for weight in self.weights:
            y = (y @ weight).relu().square()
        return self.grads(y)

    def forward(self, context, sync, after=lambda layer: None):
        y = self.x
        for layer, weight in enumerate(self.weights):
            with context:
                y = (y @ weight).relu().square()
            y = sync(y)
            after(layer)
        return y

    def test_calls_in_order(self):
        context, sync, controller = self.context()
        expected = self.plain()
        for _ in range(2):  # numbers begin again at 0
            y = self.forward(context, sync, controller.start_offload_layer)
            for layer in range(3):
                controller.release_activation_forward_gpu_memory(layer)
            self.stash.step()
            self.assertGreater(self.stash.status().in_use[0], 0)
            for layer in reversed(range(3)):
                controller.start_reload_layer(layer)
            self.stash.step()
            self.assertEqual(self.stash.status().in_use[0], 0)
            self.same(self.grads(y), expected)
            del y
        self.nothing_lost(self.stash)

    def test_a_forward_that_raises(self):
        """Its layer cannot be offloaded, and the next step is numbered from 0."""
        context, sync, controller = self.context()
        expected = self.plain()
        for failing in (2, 0, 1):
            with self.assertRaises(ZeroDivisionError):
                for layer, weight in enumerate(self.weights):
                    with context:
                        y = (self.x @ weight).relu().square()
                        1 // (failing - layer)
                    controller.start_offload_layer(layer)
            with self.assertRaisesRegex(pagestash.Error, f"start_offload_layer: layer {failing} has had no forward"):
                controller.start_offload_layer(failing)
            del y
            self.same(self.grads(self.forward(context, sync, controller.start_offload_layer)), expected)
        self.nothing_lost(self.stash)

    def test_layers_that_are_not_offloaded_or_not_reloaded(self):
        context, sync, controller = self.context()
        expected = self.plain()
        y = self.forward(context, sync)
        controller.start_offload_layer(1)
        self.same(self.grads(y), expected)
        self.nothing_lost(self.stash)
        changed = self.x * 1
        with context:
            y = changed.square()
        changed += 1
        with self.assertRaisesRegex(pagestash.Error, "changed in place"):
            y.sum().backward()

    def test_nothing_is_held_that_autograd_let_go(self):
        """Neither of a layer that is never offloaded, nor of one that is after its backward."""
        context, _, controller = self.context(layers=1)
        weight = self.weights[0]
        for ends in ("backward", "dropped"):
            with context:
                hidden = (self.x @ weight).relu()  # saved by the node that made it
                y = hidden @ weight
            storage = weakref.ref(hidden.untyped_storage())
            del hidden
            self.assertIsNotNone(storage())
            if ends == "backward":
                y.sum().backward()
            del y
            self.assertIsNone(storage())
            controller.start_offload_layer(0)
            self.stash.step()
            self.assertEqual(self.stash.status().in_use[0], 0)
        self.nothing_lost(self.stash)

    def test_a_controller_is_in_no_cycle(self):
        """It refers to the stash, whose pool is the largest thing of all."""
        context, _, controller = self.context(layers=1)
        with context:
            y = self.x @ self.weights[0]
        del y
        gone = weakref.ref(controller)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        del context, _, controller
        self.assertIsNone(gone())

    def test_half_of_a_layer_is_dropped_before(self):
        context, _, controller = self.context(layers=1)
        with context:
            one, other = (self.x * 1).square(), (self.x * 2).square()
        del one
        controller.start_offload_layer(0)
        saved = other.grad_fn._saved_self
        self.assertTrue(torch.equal(saved[:40], 2 * self.x[:40]))
        del other, saved
        self.nothing_lost(self.stash)

    def test_two_passes_in_flight(self):
        """Of the same layer: each graph has its own pages."""
        context, sync, controller = self.context()
        expected = self.plain()
        first = self.forward(context, sync, controller.start_offload_layer)
        second = self.forward(context, sync, controller.start_offload_layer)
        self.same(self.grads(first), expected)
        self.same(self.grads(second), expected)
        self.nothing_lost(self.stash)

    def test_counts_by_layer(self):
        asked = []

        def counts(layer):
            asked.append(layer)
            return self.COUNTS
        context, sync, controller = self.context(counts=counts)
        y = self.forward(context, sync)
        self.assertEqual(asked, [0, 1, 2])
        controller.start_offload_layer(0)
        self.same(self.grads(y), self.plain())
        context, sync, controller = self.context(counts=lambda layer: None)
        with self.assertRaisesRegex(pagestash.Error, "counts: NoneType"):
            self.forward(context, sync)
        self.nothing_lost(self.stash)

    def test_wrong_calls(self):
        context, sync, controller = self.context()
        calls = (controller.start_offload_layer, controller.release_activation_forward_gpu_memory,
                 controller.start_reload_layer)
        self.refused("allowed: 0 to 2", calls[0], 3)
        self.refused("has had no forward", calls[0], 0)
        self.refused("before the offload context", sync, self.x)
        self.refused("requires no grad", sync, self.COUNTS)
        with context:
            y = self.x.square()
            self.refused("inside the offload context", sync, self.x)
            self.refused("is in its forward", calls[0], 0)
            with self.assertRaisesRegex(pagestash.Error, "inside itself"):
                with context:
                    pass
        for state, allowed in (("not_offloaded", 0), ("offload_started", 1), ("offload_finished", 2)):
            for i, call in enumerate(calls):
                if i != allowed:
                    self.refused(f"layer 0 is {state}; it must be", call, 0)
            calls[allowed](0)
        for call in calls:
            self.refused("layer 0 is reload_started", call, 0)
        y.sum().backward()
        self.assertTrue(torch.equal(self.x.grad[:40], 2 * self.x[:40]))
        del y
        self.nothing_lost(self.stash)

    def test_wrong_contexts(self):
        get = pagestash.te.get_cpu_offload_context
        context, same = get()
        with context:
            self.assertIs(same(self.x), self.x)
        self.assertIsNone(get(manual_synchronization=True)[2])
        self.refused("manual_synchronization", get, True)
        self.refused("not weights", get, True, offload_weights=True, manual_synchronization=True)
        self.refused("needs stash=", get, True, manual_synchronization=True)
        self.refused("num_layers 0: allowed are 1 to", self.context, 0)
        self.refused("not the stream of the stash", self.context, offload_stream=object())

    def refused(self, text, call, *args, **kwargs):
        with self.assertRaisesRegex(pagestash.Error, text):
            call(*args, **kwargs)

    def test_exception_and_no_grad(self):
        context, _, controller = self.context()
        with self.assertRaises(KeyError):
            with context:
                self.x.square()
                raise KeyError
        with torch.no_grad(), context:
            y = self.x.square()
        controller.start_offload_layer(0)
        controller.release_activation_forward_gpu_memory(0)
        controller.start_reload_layer(0)
        self.assertFalse(y.requires_grad)
        self.nothing_lost(self.stash)


if __name__ == "__main__":
    unittest.main()
