#!/usr/bin/env python3
"""Stash.layer by the operators, and by ctypes: the same tensors come back, the same pages are in use."""
import gc
import unittest
import weakref

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    import pagestash
    from common import ops as helper
    from common.ops import rows
    helper.use_binary()
    from pagestash.torch import Stash, ops

CAPACITY, LIVE = 64, 20


@needs("torch")
class Kept(unittest.TestCase):
    def test_an_output_that_stays_is_freed(self):
        """Autograd saves the result of a sigmoid for its own node: that must not hold itself."""
        with Stash("cpu", pages=8, page_bytes=16384) as stash:
            x = rows(7, 8).requires_grad_()
            with stash.layer(torch.tensor([LIVE]), CAPACITY):
                y = (x * 2).sigmoid()
            y.sum().backward(retain_graph=True)
            torch.testing.assert_close(x.grad, 2 * y.detach() * (1 - y.detach()))
            gone = weakref.ref(y)
            del y
            gc.collect()
            self.assertIsNone(gone())

    def test_a_tensor_that_stays_is_not_to_change(self):
        with Stash("cpu", pages=8, page_bytes=16384) as stash:
            x = rows(7, 8).requires_grad_()
            with stash.layer(torch.tensor([LIVE]), CAPACITY):
                y = (x * 2).sigmoid()
            with torch.no_grad():
                y.zero_()
            with self.assertRaisesRegex(pagestash.Error, "was changed in place$"):
                y.sum().backward()


@needs("torch")
class Plans(unittest.TestCase):
    """The operators of the hot path, given what no layer of ours gives them."""

    def plan(self, slots, places, strides=(8, 1), capacity=16, segments=0, layer=1 << 40):
        if ops.kind != "stable":
            self.skipTest("they are in C++ only")
        return torch.ops.pagestash._layer_plan([rows(16, 8)], torch.tensor([1]), layer, slots, places,
                                               strides, capacity, segments)

    def test_rows_that_are_not_there(self):
        for slots, places, capacity, segments in (
                ([0, 0, 1, 512], [3200, 3200, 1, 1], 16, 0), ([0, 0, 1, 512], [32, 3200, 1, 1], 16, 0),
                ([0, 0, 1, 512], [32, 32, 1, 1], 17, 0), ([0, 0, 1, 512], [32, 32, 1, 1], 1 << 62, 0),
                ([0, 0, 1, 512], [32, 32, 1, 1], 16, 4), ([0, 0, 0, 480], [32, 32, 1, 1], 16, 0),
                ([0, 0, 0, -5], [32, 32, 1, 1], 16, 0), ([0, 0, 1, 512], [32, 32, 1, 0], 16, 0)):
            with self.assertRaisesRegex(RuntimeError, "_layer_plan: .* rows of"):
                self.plan(slots, places, capacity=capacity, segments=segments)
        with self.assertRaisesRegex(RuntimeError, "no saved tensor 5"):
            self.plan([5, 0, 1, 512], [32, 32, 1, 1])
        with self.assertRaisesRegex(RuntimeError, "bytes with these strides"):
            self.plan([0, 0, 1, 512], [32, 32, 1, 1], strides=(7, 1))

    def test_a_token_of_meta_tensors_is_nobodys(self):
        token = torch.ops.pagestash.stash([torch.empty(16, 8, device="meta")], torch.tensor([1]), 1, 16)
        self.assertEqual(int(token), 0)


if not absent("torch"):
    class Saves(torch.autograd.Function):
        """Saves what it is given; its backward hands it over."""

        @staticmethod
        def forward(ctx, x, seen, *tensors):
            ctx.save_for_backward(*tensors)
            ctx.seen = seen
            return x.clone()

        @staticmethod
        def backward(ctx, dy):
            ctx.seen.extend(ctx.saved_tensors)
            return (dy, None) + (None,) * len(ctx.saved_tensors)


@needs("torch")
class Known(unittest.TestCase):
    """Three passes through each layer, of which the operators know the second and third."""

    def setUp(self):
        torch.set_num_threads(1)
        self.x = rows(CAPACITY, 32).requires_grad_()
        self.weight = torch.nn.Parameter(rows(CAPACITY, 32, seed=1))

    def run_layer(self, tensors, counts, by_ops, passes=3, segments=0, capacity=CAPACITY, **fields):
        """What each pass got back, the pages in use before its backward, and what held them."""
        found = []
        with Stash("cpu", pages=64, page_bytes=16384, **fields) as stash:
            if not by_ops:
                stash.known = None
            for _ in range(passes):
                seen, made = [], tensors()
                with stash.layer(counts, capacity, segments) as visit:
                    y = Saves.apply(self.x[:1].sum(), seen, *made)
                kept, copies = type(visit.kept).__name__, [one.detach().clone() for one in made]
                del made, visit
                stash.step()
                in_use = stash.status().in_use[0]
                y.backward()
                found.append((seen, copies, in_use, kept))
                stash.step()
            self.assertEqual(stash.status().in_use[0], 0)
        return found

    def compare(self, tensors, counts=None, live=None, **fields):
        """By the operators as by ctypes; rows behind the live ones are zeros in both."""
        counts = torch.tensor([LIVE]) if counts is None else counts
        mine = self.run_layer(tensors, counts, True, **fields)
        theirs = self.run_layer(tensors, counts, False, **fields)
        for (got, copies, pages, _), (want, _, same_pages, _) in zip(mine, theirs):
            self.assertEqual(pages, same_pages)
            for a, b, copy in zip(got, want, copies):
                self.assertEqual((a.dtype, a.shape, a.stride()), (b.dtype, b.shape, b.stride()))
                self.assertTrue(torch.equal(a, b))
                self.assertTrue(torch.equal(a[:live], copy[:live]))
        if ops.kind == "stable":
            self.assertEqual([kind for *_, kind in mine[1:]], ["Known"] * (len(mine) - 1))
        self.assertNotIn("Known", [kind for *_, kind in theirs])

    def test_rows_of_several_dtypes(self):
        self.compare(lambda: [self.x * 2, (self.x * 3).bfloat16(), (self.x * 4).double()], live=LIVE)

    def test_views_share_a_slot(self):
        def tensors():
            wide = self.x * 2
            return [wide, wide[:, :16], wide[:, 16:], wide.view(CAPACITY, 4, 8), self.x * 3]
        self.compare(tensors, live=LIVE)

    def test_geometry_alike_but_shared_or_not(self):
        for order in ((0, 0), (0, 1), (0, 0), (1, 1)):
            def tensors(order=order):
                made = [self.x * 2, self.x * 3]
                return [made[i] for i in order]
            self.compare(tensors, live=LIVE)

    def test_rows_inside_a_larger_storage(self):
        def tensors():
            wide = torch.cat([self.x * 2, self.x * 3])
            return [wide[:CAPACITY], wide[CAPACITY:, 4:12], (self.x * 5)[:, 8:24]]
        self.compare(tensors, live=LIVE)

    def test_what_stays(self):
        mask = torch.arange(CAPACITY) % 2 == 0
        self.compare(lambda: [self.x * 2, self.weight, self.weight.t(), mask, (self.x * 2).sum(0)], live=0)

    def test_sums_and_segments(self):
        self.compare(lambda: [self.x * 2], torch.tensor([5, 0, 9], dtype=torch.int32), live=14)
        self.compare(lambda: [self.x * 2, (self.x * 3).view(4, 16, 32)], torch.tensor([16, 16, 16, 16]),
                     segments=4, capacity=16)

    def test_transposed_rows(self):
        def tensors():
            wide = self.x * 2
            return [wide.t(), wide, self.x * 3]
        self.compare(tensors, live=0)

    def test_retain(self):
        self.compare(lambda: [self.x * 2, self.x * 3], live=LIVE, retain=True)

    def test_bare_rows_are_asked_each_time_who_holds_them(self):
        held = rows(CAPACITY, 32)
        for *_, in_use, kept in self.run_layer(lambda: [held], torch.tensor([LIVE]), True):
            self.assertEqual((in_use, kept), (0, "NoneType"))

    def test_what_was_changed_does_not_come_back(self):
        """In each pass, whether others have the same rows or not, is it an error and no wrong gradient."""
        for views in (0, 1):
            with Stash("cpu", pages=64, page_bytes=16384) as stash:
                for number in range(3):
                    wide = self.x * 2
                    with stash.layer(torch.tensor([LIVE]), CAPACITY) as visit:
                        y = Saves.apply(self.x[:1].sum(), [], wide, self.x * 3, *[wide[:, :16]] * views)
                        with torch.no_grad():  # its history stays as it is
                            wide.add_(1)
                    if ops.kind == "stable" and number:
                        self.assertEqual(type(visit.kept).__name__, "Known")
                    with self.assertRaisesRegex(pagestash.Error, r"shape \(64, 32\).*before it was stashed$"):
                        y.backward()
                    del visit, y, wide
                stash.step()
                stash.step()
                self.assertEqual(stash.status().in_use[0], 0)

    def test_a_choice_may_have_its_rows_behind(self):
        """What has the rows, and not as its first dimension, is no weight where `select` says so."""
        with Stash("cpu", pages=64, page_bytes=16384) as stash:
            for _ in range(2):
                turned, seen = (self.x * 2).t(), []
                with stash.layer(torch.tensor([LIVE]), CAPACITY, select=lambda tensor: True):
                    y = Saves.apply(self.x[:1].sum(), seen, turned)
                stash.step()
                self.assertGreater(stash.status().in_use[0], 0)
                y.backward()
                self.assertTrue(torch.equal(seen[0][:, :LIVE], turned.detach()[:, :LIVE]))

    def test_dropped_graphs_and_errors(self):
        with Stash("cpu", pages=8, page_bytes=16384, tickets=2) as stash:
            for _ in range(6):  # more than there are tickets
                with stash.layer(torch.tensor([LIVE]), CAPACITY):
                    y = Saves.apply(self.x[:1].sum(), [], self.x * 2)
                del y
            graphs = []
            with self.assertRaisesRegex(pagestash.Error, "PST_E_BUSY"):
                for _ in range(3):
                    with stash.layer(torch.tensor([LIVE]), CAPACITY):
                        graphs.append(Saves.apply(self.x[:1].sum(), [], self.x * 2))
            graphs[0].backward(retain_graph=True)
            with self.assertRaisesRegex(pagestash.Error, "a second backward"):
                graphs[0].backward()
            graphs.clear()
            changed = self.x * 2
            with stash.layer(torch.tensor([LIVE]), CAPACITY):
                y = Saves.apply(self.x[:1].sum(), [], changed)
                changed += 1
            with self.assertRaisesRegex(pagestash.Error, "changed in place"):
                y.backward()
            del y


if __name__ == "__main__":
    main()
