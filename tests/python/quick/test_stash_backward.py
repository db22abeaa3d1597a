"""Ways through autograd, and which tensors a Stash takes along them. Every test ends with no page in use and
none lost."""
import sys
import threading
import unittest

import torch

from common.edges import (PAGE_BYTES, Small, StashTest, equal, setUpModule, settled,  # noqa: F401
                          tearDownModule)
from pagestash.pool import Form, Rows, Space


class Backward(StashTest):
    """Ways through autograd."""

    def test_both_layouts(self):
        for segments in (True, False):
            for dtype in (torch.float32, torch.bfloat16):
                self.small = Small(capacity=64, segments=segments, dtype=dtype)
                stash = self.stash()
                self.same(stash)
                self.assertGreater(self.used(stash), 0)

    def test_no_live_row_and_all(self):
        stash = self.stash()
        for counts in ((0, 0, 0, 0), (32, 32, 32, 32)):
            self.small = Small(counts)
            self.same(stash)

    # Fault rows 67.
    def test_second_backward_raises(self):
        loss = self.small.stashed(self.stash()).sum()
        loss.backward(retain_graph=True)
        with self.refused("second backward.*retain=True"):
            loss.backward()

    # Fault rows 67.
    def test_retain(self):
        stash = self.stash(retain=True)
        loss = self.small.stashed(stash).square().sum()
        loss.backward(retain_graph=True)
        once = [leaf.grad.clone() for leaf in self.small.inputs]
        self.assertGreater(settled(stash).in_use[0], 0)
        loss.backward()
        self.assertTrue(equal([2 * grad for grad in once],
                              [leaf.grad for leaf in self.small.inputs]))
        del loss
        self.assertEqual(settled(stash).in_use, (0, 0))

    def test_several_backwards_at_once(self):
        """Of one retained graph, in several threads, each with what was restored for it."""
        stash, wrong, x = self.stash(retain=True), [], torch.randn(64, 8, requires_grad=True)
        y = x * 1
        with stash.layer(torch.tensor([64]), 64):
            for _ in range(20):
                y = y.sin() * y.tanh()
        loss = y.sum()
        want = torch.autograd.grad(loss, x, retain_graph=True)

        def work():
            try:
                for _ in range(150):
                    if not equal(want, torch.autograd.grad(loss, x, retain_graph=True)):
                        wrong.append("other bits")
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(repr(error))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, interval)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(stash.restored, {})
        del y, loss, work

    def test_backwards_that_fail_are_forgotten(self):
        stash = self.stash(retain=True)

        def fail(_gradient):
            raise ZeroDivisionError
        for _ in range(3):
            x = self.small.x * 1
            with stash.layer(**self.small.layer):
                y = self.small.experts(x)
            x.register_hook(fail)
            with self.assertRaises(ZeroDivisionError):
                y.sum().backward()
            del x, y
        self.assertLessEqual(len(stash.restored), 1)

    # Fault rows 67.
    def test_no_grad_and_inference(self):
        stash = self.stash()
        with torch.no_grad():
            self.small.stashed(stash)
        with torch.inference_mode():
            self.small.stashed(stash)
        self.assertEqual(self.used(stash), 0)

    # Fault rows 20.
    def test_dropped_graph(self):
        stash = self.stash()
        y = self.small.stashed(stash)
        self.assertGreater(settled(stash).in_use[0], 0)
        del y
        self.assertEqual(settled(stash).in_use, (0, 0))

    def test_dropped_in_the_middle_of_a_step(self):
        """The next layer finds the pages free."""
        self.small.stashed(stash := self.stash())
        need = self.used(stash)
        tight = self.stash(need)
        for _ in range(3):
            self.small.stashed(tight)
        self.assertTrue(settled(tight).valid)

    def test_gradient_of_some_inputs(self):
        stash = self.stash()
        plain = torch.autograd.grad(self.small.plain().square().sum(), [self.small.w2])
        ours = torch.autograd.grad(self.small.stashed(stash).square().sum(), [self.small.w2])
        self.assertTrue(equal(plain, ours))

    def test_backward_in_two_parts(self):
        """First the gradient of one input, then that of another, of one graph."""
        stash = self.stash(retain=True)
        plain, ours = self.small.plain().square().sum(), self.small.stashed(stash).square().sum()
        for leaf in self.small.inputs:
            self.assertTrue(equal(torch.autograd.grad(plain, [leaf], retain_graph=True),
                                  torch.autograd.grad(ours, [leaf], retain_graph=True)))

    # Fault rows 67.
    def test_double_backward(self):
        """create_graph: right with retain, an Error without it; never a wrong gradient."""
        def second(loss):
            first, = torch.autograd.grad(loss, [self.small.x], create_graph=True)
            return torch.autograd.grad(first.square().sum(), self.small.inputs)
        plain = second(self.small.plain().square().sum())
        kept = self.stash(retain=True)
        self.assertTrue(equal(plain, second(self.small.stashed(kept).square().sum())))
        with self.refused("second backward"):
            second(self.small.stashed(self.stash()).square().sum())

    def test_saved_tensors_twice_in_one_backward(self):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (one,), (two,) = ctx.saved_tensors, ctx.saved_tensors
                assert torch.equal(one, two)
                return grad * (one + two)
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(**self.small.layer):
            y = Twice.apply(x)
        y.sum().backward()
        self.assertTrue(torch.equal(self.small.x.grad, 2 * self.small.x))

    def test_someone_looks_at_saved_tensors(self):
        """Outside a backward, which works afterwards."""
        stash = self.stash()
        with stash.layer(**self.small.layer):
            y = (self.small.x * 1).square()
        for _ in range(2):
            self.assertTrue(torch.equal(y.grad_fn._saved_self, self.small.x))
        y.sum().backward()
        self.assertTrue(torch.equal(self.small.x.grad, 2 * self.small.x))


class Saved(StashTest):
    """Which tensors go, and what comes back."""

    def kept(self, function, **options):
        """The gradient of function(x) through a layer; the most pages that it took."""
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(**{**self.small.layer, **options}):
            y = function(x)
        y.sum().backward()
        return self.small.x.grad.clone(), self.used(stash)

    def test_views_of_a_storage_once(self):
        """x, [gate, up], silu(gate), silu(gate) * up: four tensors, though five views are saved."""
        form = Form([Space(32, "segments", 4)], [Rows(4 * width) for width in (16, 48, 24, 24)])
        stash = self.stash()
        self.same(stash)
        self.assertEqual(self.used(stash), form.measure((3, 0, 32, 7), PAGE_BYTES).pages)

    def test_masks_indices_and_scalars_stay(self):
        class Keep(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x > 0, torch.zeros(4, 32, dtype=torch.int64), torch.ones(()))
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                mask, index, one = ctx.saved_tensors
                return torch.where(mask, grad, index.unsqueeze(2) * one)
        _, pages = self.kept(Keep.apply)
        self.assertEqual(pages, 0)

    # Fault rows 69.
    def test_leaves_stay(self):
        """Parameters whose shape is that of rows, views of them, and casts."""
        leaf = torch.nn.Parameter(torch.ones(4, 32, 16))
        for view in (lambda: leaf, lambda: leaf.view(4, 32, 16), lambda: leaf.to(torch.bfloat16),
                     lambda: leaf.transpose(1, 2).transpose(1, 2)):
            leaf.grad = None
            stash = self.stash()
            with stash.layer(**self.small.layer):
                y = view() * torch.full((4, 32, 16), 2.0).requires_grad_()
            y.sum().backward()
            self.assertEqual(self.used(stash), 0)
            self.assertTrue((leaf.grad == 2).all())

    def test_tails_come_back_as_zeros(self):
        """From pages, and from what is measured."""
        for pages in (64, "measure"):
            x = self.small.x.detach().clone()
            for slab, count in zip(x, self.small.counts):
                slab[count:] = float("nan")
            x.requires_grad_()
            stash = self.stash(pages)
            y = x * 1
            with stash.layer(**self.small.layer):
                y = y.square()
            y.sum().backward()
            self.assertTrue(torch.equal(x.grad, 2 * self.small.x))

    def test_changed_in_place_inside(self):
        """As autograd: an error, not a wrong gradient."""
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(**self.small.layer):
            y = x.square()
            x.add_(1)
        with self.refused("changed in place"):
            y.sum().backward()

    def test_parameter_without_a_history(self):
        """As compiled code saves them: a view of a parameter that shows no more where it is from. All its
        rows come back; and it is guarded as autograd does."""
        leaf = torch.nn.Parameter(torch.ones(4, 32, 16))

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(weight)
                return x * weight

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.saved_tensors[0], None
        stash = self.stash()
        ys = []
        for _ in range(2):
            with stash.layer(**self.small.layer):
                ys.append(Scale.apply(self.small.x * 1, leaf.detach()))
        ys[0].sum().backward()
        self.assertTrue((self.small.x.grad == 1).all())
        self.assertEqual(self.used(stash), 0)
        with torch.no_grad():
            leaf.add_(1)
        with self.refused("changed in place"):
            ys[1].sum().backward()

    def test_changed_in_place_behind(self):
        """The rows are in the pages already."""
        stash = self.stash()
        x = self.small.x * 1
        with stash.layer(**self.small.layer):
            y = x.square()
        with torch.no_grad():
            x.add_(1)
        y.sum().backward()
        self.assertTrue(torch.equal(self.small.x.grad, 2 * self.small.x))

    def test_no_multiple_of_the_rows_is_named_once(self):
        other = torch.randn(200, 16)
        with self.assertLogs("pagestash", "WARNING") as logs:
            stash = self.stash()
            for _ in range(3):
                x = self.small.x * 1
                with stash.layer(**self.small.layer, name="experts"):
                    y = x.sum() * (other * x.sum()).square().sum()
                y.backward()
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertRegex(logs.output[0], r"'experts'.*\(200, 16\).*4 x 32 rows.*stays in memory")

    def test_names_made_anew_do_not_fill_memory(self):
        stash, other = self.stash(), torch.ones(200, 16)
        with self.assertLogs("pagestash", "WARNING") as logs:
            for number in range(300):
                stash.name_kept(f"experts of step {number}", other, "is not rows")
        self.assertEqual((len(stash.named), len(logs.output)), (256, 257))
        self.assertRegex(logs.output[-1], "256 such tensors were named; more are not")

    def test_ratio(self):
        """Scales: one row for each 8."""
        scale = torch.randn(4, 4, 16)
        for slab, count in zip(scale, self.small.counts):
            slab[-(-count // 8):] = 0
        weight = torch.ones(4, 4, 16, requires_grad=True)
        results = []
        for ratio in (None, (1, 8)):
            stash = self.stash()
            with stash.layer(**self.small.layer, ratio=ratio):
                y = (scale * 1) * weight
            weight.grad = None
            y.sum().backward()
            results.append((self.used(stash), weight.grad))
        self.assertEqual([pages > 0 for pages, _ in results], [False, True])
        self.assertTrue(torch.equal(results[0][1], results[1][1]))

    def test_select(self):
        """False keeps a tensor in memory, True takes an index along."""
        stays, pages = self.kept(torch.square, select=lambda tensor: False)
        goes, more = self.kept(torch.square)
        self.assertTrue(pages == 0 and more > 0)
        index = torch.zeros(4, 32, 16, dtype=torch.int64)
        _, pages = self.kept(lambda x: x.gather(2, index), select=lambda tensor: True)
        self.assertGreater(pages, 0)
        with self.refused(r"select chose .*\(3, 5\).*4 x 32 rows"):
            self.kept(lambda x: x + (torch.ones(3, 5, requires_grad=True) * torch.ones(3, 5)).sum(),
                      select=lambda tensor: tensor.shape == (3, 5) or None)


if __name__ == "__main__":
    unittest.main()
