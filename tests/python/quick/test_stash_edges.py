"""What a training loop does beside the straight way, and what a Stash makes of it. Every test ends with no
page in use and none lost."""
import gc
import sys
import threading
import unittest
import weakref

import torch

import pagestash
from common.edges import PAGE_BYTES, Small, StashTest, equal, settled
from pagestash.torch import Stash

def setUpModule():
    """Makes the collections of garbage quick that the tests ask for."""
    gc.collect()
    gc.freeze()


def tearDownModule():
    gc.unfreeze()


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

    def test_second_backward_raises(self):
        loss = self.small.stashed(self.stash()).sum()
        loss.backward(retain_graph=True)
        with self.refused("second backward.*retain=True"):
            loss.backward()

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

    def test_no_grad_and_inference(self):
        stash = self.stash()
        with torch.no_grad():
            self.small.stashed(stash)
        with torch.inference_mode():
            self.small.stashed(stash)
        self.assertEqual(self.used(stash), 0)

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
        from pagestash.pool import Form, Rows, Space
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
                        {"page_bytes": 12345, "pages": 4}, {"headroom": 0.5}, {"headroom": "a"},
                        {"memory": "mine"}, {"mode": "fast"}, {"max_pages": 9}, {"num_sms": -1},
                        {"num_sms": 99}, {"num_sms": None},
                        {"host_pages": -1}, {"tickets": -1}, {"pages": 2 ** 40},
                        {"device": "meta"}, {"device": "nowhere"}, {"tickets": 0, "pages": 4},
                        {"headroom": float("nan")}, {"page_bytes": "big", "pages": 4}):
            with self.subTest(options), self.refused("."):
                Stash(**{"device": "cpu", **options})

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


if __name__ == "__main__":
    unittest.main()
