"""What a training loop does beside the straight way, and what goes wrong in it. Every test ends with no page
in use and none lost."""
import contextlib
import os
import signal
import sys
import threading
import time
import unittest
import warnings
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint

from common.edges import (PAGE_BYTES, Small, StashTest, equal, setUpModule, settled,  # noqa: F401
                          tearDownModule)
from pagestash import Error, pool
from pagestash.torch import Stash, leases, layer


class Loops(StashTest):
    """Layers, stashes and threads together; and what goes wrong in mid-step."""

    # Fault rows 25.
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

    # Fault rows 67.
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

    # Fault rows 67.
    def test_a_checkpoint_around_more_than_the_layer(self):
        """What torch's checkpoint computes again it finds by its order: the layer's tensors are in neither, those
        before and behind it are in both. All have one geometry, so that a wrong one would be taken."""
        stash, count = self.stash(), torch.tensor([64])
        for reentrant in (False, True, None):
            found = []
            for layer in (contextlib.nullcontext, lambda: stash.layer(count, 64)):
                def block(x, layer=layer):
                    before = x.sin().tanh()
                    with layer():
                        y = (before * 1).exp().cos()
                    return y.tanh() * before
                x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
                y = block(x) if reentrant is None else checkpoint(block, x * 1, use_reentrant=reentrant)
                y.sum().backward()
                found.append(x.grad)
            self.assertTrue(torch.equal(*found), reentrant)

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

    def fork(self, is_well):
        """is_well: asked in the child, too."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
        if child == 0:
            signal.alarm(120)
            os._exit(0 if is_well() else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue(is_well())

    def fork_beside(self, lock, is_well):
        """While another thread has the lock."""
        has = threading.Event()

        def work():
            with lock:
                has.set()
                time.sleep(0.1)
        thread = threading.Thread(target=work)
        thread.start()
        has.wait()
        self.fork(is_well)
        thread.join()

    def test_a_fork_while_another_thread_is_at_work(self):
        """The child goes on with the stash, whose locks nobody else has there; so does the parent."""
        stash, plain = self.stash(), self.small.gradients(self.small.plain)
        self.fork_beside(stash.lock,
                         lambda: equal(plain, self.small.gradients(lambda: self.small.stashed(stash))))

    def test_a_fork_while_another_thread_makes_the_first_scratch(self):
        self.fork_beside(leases.scratch._lock, lambda: not leases.scratch._lock.locked())

    def test_a_fork_that_a_signal_interrupts(self):
        """Python forks all the same: no lock stays taken, in the parent or in the child."""
        taken, interrupted = threading.Lock(), mock.Mock()
        interrupted.acquire.side_effect = KeyboardInterrupt
        with mock.patch.object(pool, "first_in_fork", [taken, interrupted]), \
                mock.patch.object(sys, "unraisablehook"):
            self.fork(lambda: not taken.locked() and not pool._forking)
        interrupted.acquire.assert_called_once()

    def test_pools_are_made_and_watched_in_the_order_of_locks(self):
        """The device's first, as where a pool is closed: else two threads could wait for each other."""
        device, held, watcher = pool.Device.open("host"), [], mock.Mock()
        watcher.opened.side_effect = lambda _: held.append(device.lock._is_owned())
        with mock.patch.object(pool, "_watchers", [watcher]):
            made = pool.Pool(device, 2, page_bytes=PAGE_BYTES)
            pool.watch(watcher)
            made.close()
        self.assertGreaterEqual(len(held), 2)
        self.assertEqual(set(held), {True})

    def test_damage_behind_an_exception_is_logged(self):
        owner = mock.Mock()
        for status, logs in (("PST_E_BUSY", self.assertNoLogs), ("PST_E_DAMAGED", self.assertLogs)):
            owner.close.side_effect = Error("what it was", status)
            with logs("pagestash", "WARNING"):
                pool.close_behind(owner, ValueError)
            with self.assertRaisesRegex(Error, "what it was"):
                pool.close_behind(owner, None)

    def test_a_name_that_is_none_in_a_checkpoint(self):
        stash, x = self.stash(), torch.randn(64, 8, requires_grad=True)

        def run(x):
            with stash.layer(torch.tensor([64]), 64, name=None):
                return x.sin().exp()
        out = checkpoint(run, x * 1, use_reentrant=True).sum()
        with self.assertRaisesRegex(Error, "name: None"):
            out.backward()

    def test_two_threads_of_one_backward_at_one_tensor(self):
        """The second comes when the first has restored the rows, and has not taken its own yet."""
        stash = Stash("cpu", pages=20, page_bytes=PAGE_BYTES, retain=True)
        x = torch.randn(64, 8, requires_grad=True)
        visit, out = stash.layer(torch.tensor([64]), 64), {}
        with visit:
            y = (x * 1).sin()
            saved = visit.saved[-1]

        def take(name):
            out[name] = layer.unpack(saved)

        def between(*_):
            thread = threading.Thread(target=take, args=("second",))
            thread.start()
            thread.join()
        with mock.patch.object(layer, "backward_id", return_value=7), \
                mock.patch.object(stash, "after_restore", between):
            take("first")
        self.assertIs(out["first"], out["second"])
        self.assertEqual(out["first"].shape, (64, 8))
        del y, visit, saved, out
        stash.close()

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


if __name__ == "__main__":
    unittest.main()
