#!/usr/bin/env python3
"""pagestash.torch.glu: what torch computes, the same bits in pages and in memory, and its errors."""
import unittest

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    import torch.nn.functional as F
    from common import ops as helper
    from common.ops import CAPACITY, LIVE, Refusing, gradients, make_pool, rows, taken
    from common.stashes import StashTest, stash_of
    import pagestash
    helper.use_binary()
    from pagestash.torch import glu, ops
else:
    Refusing = StashTest = unittest.TestCase

KINDS = {
    "swiglu": lambda g: g * g.sigmoid(),
    "geglu": lambda g: F.gelu(g),
    "geglu_tanh": lambda g: F.gelu(g, approximate="tanh"),
    "reglu": lambda g: g.relu(),
    "quick_geglu": lambda g: g * (1.702 * g).sigmoid(),
    "clamped": lambda g: g.clamp(max=0.51) * (1.5 * g.clamp(max=0.51)).sigmoid(),
}
# The limit is none of the numbers of 16 bits, at which torch's versions differ in the slope.
CLAMPED = {"limit": 0.51, "alpha": 1.5, "bias": 0.25}


def halves(x, interleave):
    """Gate and up."""
    if not interleave:
        return x.chunk(2, -1)
    pairs = x.unflatten(-1, (-1, 2, interleave))
    return pairs.select(-2, 0).flatten(-2), pairs.select(-2, 1).flatten(-2)


def by_torch(x, kind, probability, interleave=0):
    """In float64."""
    gate, up = halves(x.double(), interleave)
    if kind == "clamped":
        up = up.clamp(-0.51, 0.51) + 0.25
    y = KINDS[kind](gate) * up
    return y if probability is None else y * probability.double().view(*x.shape[:-1], 1)


def alive(counts, *shape):
    """Which rows of (capacity) or (segments, capacity) are live."""
    live = torch.zeros(shape, dtype=torch.bool)
    for slab, count in zip(live if len(shape) > 1 else [live], counts.tolist()):
        slab[:count] = True
    return live[..., None]


@needs("torch")
class Values(Refusing):
    def compare(self, x, counts, kind, interleave=0, segments=0, has_probability=True):
        options = {"segments": segments, "interleave": interleave, **(CLAMPED if kind == "clamped" else {})}
        live = alive(counts, *x.shape[:-1])
        given = [x] + [rows(*x.shape[:-1], 1, seed=3)] * has_probability

        def paged(x, probability=None):
            return glu(x, counts, kind, stash=self.pool, probability=probability, **options)

        def in_memory(x, probability=None):
            return glu(x, counts, kind, probability=probability, **options)

        got = gradients(paged, *given)
        self.same(got, gradients(in_memory, *given))
        want = gradients(lambda x, p=None: torch.where(live, by_torch(x, kind, p, interleave), 0), *given)
        error = 1e-5 if x.dtype == torch.float32 else 1e-2
        for mine, theirs in zip(got, want, strict=True):
            self.assertEqual(mine[~live.expand_as(mine)].abs().sum(), 0)
            torch.testing.assert_close(mine.double(), theirs.double(), rtol=error, atol=error)

    def test_every_kind(self):
        for kind in KINDS:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                self.compare(rows(CAPACITY, 128, dtype=dtype), torch.tensor([LIVE]), kind)
            self.compare(rows(CAPACITY, 32), torch.tensor([LIVE]), kind, has_probability=False)
            self.compare(rows(3, 16, 32), torch.tensor([2, 0, 16], dtype=torch.int32), kind, segments=3)

    def test_interleaved(self):
        for interleave in (1, 32):
            self.compare(rows(CAPACITY, 128), torch.tensor([LIVE]), "swiglu", interleave)
            self.compare(rows(2, 16, 64), torch.tensor([7, 16]), "geglu", interleave, segments=2)

    def test_sum_of_counts_and_all_rows(self):
        x = rows(CAPACITY, 32)
        got = gradients(lambda x: glu(x, torch.tensor([3, 0, 17]), stash=self.pool), x)
        self.same(got, gradients(lambda x: glu(x, torch.tensor([LIVE])), x))
        got = gradients(lambda x: glu(x, stash=self.pool), x)
        self.same(got, gradients(lambda x: glu(x, torch.tensor([CAPACITY])), x))

    def test_rows_in_wider_ones(self):
        """Of x, of the gradient, and what has gaps in its rows, which is copied."""
        wide, counts = rows(CAPACITY, 80), torch.tensor([LIVE])
        for cut in (wide[:, 8:40], wide[:, ::2], rows(32, CAPACITY).t(), rows(1, 32).expand(CAPACITY, 32)):
            for pool in (None, self.pool):
                got = gradients(lambda x: glu(cut * 0 + x, counts, stash=pool), cut.contiguous())
                x = cut.detach().requires_grad_()
                y = glu(x, counts, stash=pool)
                y.backward(torch.cat([rows(*y.shape, seed=1)] * 2, -1)[:, :y.shape[1]])
                self.same(got, [y, x.grad])
        x = wide.clone().requires_grad_()
        glu(x, counts, stash=self.pool).sum().backward()  # one number for all elements
        ones = wide.clone().requires_grad_()
        glu(ones, counts).backward(torch.ones(CAPACITY, 40))
        self.same([x.grad], [ones.grad])
        slabs, counts = rows(2, 20, 40)[:, 2:18, 4:36], torch.tensor([16, 7])
        got = gradients(lambda x: glu(slabs * 0 + x, counts, stash=self.pool, segments=2), slabs.contiguous())
        x = slabs.detach().requires_grad_()
        y = glu(x, counts, stash=self.pool, segments=2)
        y.backward(rows(2, 18, 20, seed=2)[:, 1:17, 2:18].copy_(rows(*y.shape, seed=1)))
        self.same(got, [y, x.grad])

    def test_no_rows(self):
        self.assertEqual(gradients(lambda x: glu(x, stash=self.pool), rows(0, 8))[1].shape, (0, 8))
        counts = torch.tensor([0])
        for got in gradients(lambda x: glu(x, counts, stash=self.pool), rows(CAPACITY, 8)):
            self.assertEqual(got.abs().sum(), 0)

    def test_tails_that_nobody_reads(self):
        filled = torch.utils.deterministic.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
            got = gradients(lambda x: glu(x, counts, stash=self.pool, tail="untouched"), x)
        finally:
            torch.use_deterministic_algorithms(False)
            torch.utils.deterministic.fill_uninitialized_memory = filled
        for mine, other in zip(got, gradients(lambda x: glu(x, counts), x)):
            self.same([mine[:LIVE]], [other[:LIVE]])
            self.assertTrue(mine[LIVE:].isnan().all())

    def test_defaults_of_clamped_are_gpt_oss_s(self):
        x = rows(CAPACITY, 32) * 8
        gate, up = x.chunk(2, -1)
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        torch.testing.assert_close(glu(x, kind="clamped"), gate * (1.702 * gate).sigmoid() * (up + 1))


@needs("torch")
class Pages(Refusing):
    def test_only_pages_keep_x(self):
        x, counts = rows(CAPACITY, 256).requires_grad_(), torch.tensor([LIVE])
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
            y = glu(x * 1, counts, stash=self.pool)
        self.assertNotIn(x.shape, seen)
        self.assertEqual(taken(self.pool), 1)
        self.pool.step()
        self.assertEqual(self.pool.status().in_use[0], -(-LIVE * 256 * 4 // helper.PAGE_BYTES))
        y.sum().backward()
        self.assertEqual(taken(self.pool), 0)

    def test_stashes_only_for_a_backward(self):
        x = rows(CAPACITY, 32)
        glu(x, stash=self.pool)
        with torch.no_grad():
            glu(x.requires_grad_(), stash=self.pool)
        self.assertEqual(taken(self.pool), 0)

    def test_probability_alone(self):
        x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
        got, want = (gradients(lambda p: glu(x, counts, stash=pool, probability=p), rows(CAPACITY, seed=3))
                     for pool in (self.pool, None))
        self.same(got, want)
        half, = gradients(lambda p: glu(x, counts, stash=self.pool, probability=p),
                          rows(CAPACITY, seed=3).bfloat16())[1:]
        self.assertEqual(half.dtype, torch.bfloat16)

    def test_dropped_graphs_give_their_pages_back(self):
        self.pool.close()
        self.pool = make_pool(tickets=1)
        for _ in range(3):
            y = glu(rows(CAPACITY, 32).requires_grad_(), stash=self.pool)
            del y
        self.assertEqual(taken(self.pool), 1)
        self.assertEqual(ops.drain(self.pool), 0)
        self.assertEqual(taken(self.pool), 0)

    # Fault rows 67.
    def test_checkpoints_compute_again(self):
        from torch.utils.checkpoint import checkpoint
        x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
        for reentrant in (False, True):
            got = gradients(lambda x: checkpoint(lambda x: glu(x, counts, stash=self.pool), x,
                                                 use_reentrant=reentrant), x)
            self.same(got, gradients(lambda x: glu(x, counts), x))
            ops.drain(self.pool)
            self.assertEqual(taken(self.pool), 0)

    def test_function_of_one_s_own(self):
        """Computes the activation once more for the gradient of the next product's weight."""
        pool, counts = self.pool, torch.tensor([LIVE])

        class Experts(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, probability, weight):
                y, token = ops.glu_forward(x, counts, pool, probability=probability)
                ctx.save_for_backward(token, probability, weight)
                return y @ weight

            @staticmethod
            def backward(ctx, dz):
                token, probability, weight = ctx.saved_tensors
                dx, dp, y = ops.glu_backward(token, dz @ weight.t(), pool, probability=probability,
                                             output=True)
                return dx, dp, y.t() @ dz

        given = rows(CAPACITY, 32), rows(CAPACITY, seed=3), rows(16, 8)
        want = gradients(lambda x, p, w: glu(x, counts, probability=p) @ w, *given)
        self.same(gradients(Experts.apply, *given), want)

    def test_refusals(self):
        x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
        self.refused("x has shape .64, 33.", glu, rows(CAPACITY, 33), counts)
        self.refused("with segments=2 it must be .2, capacity, 2 F.", glu, x, counts, segments=2)
        self.refused("x is torch.float64", glu, x.double(), counts, stash=self.pool)
        self.refused("kind 'silu': allowed are swiglu, geglu", glu, x, counts, "silu")
        self.refused("limit 7: kind geglu has none", glu, x, counts, "geglu", limit=7)
        for stash in (None, self.pool):
            self.refused("limit -1: must be above 0", glu, x.detach().requires_grad_(), counts, "clamped",
                         limit=-1, stash=stash)
        self.refused("interleave 3: allowed are 0, 1 and 32", glu, x, counts, interleave=3)
        self.refused("must be a multiple of interleave 32", glu, x, counts, interleave=32)
        self.refused("tail 'garbage': allowed are zero, untouched", glu, x, counts, tail="garbage")
        self.refused("probability is torch.float32 of shape .20,", glu, x, counts, probability=rows(20))
        self.refused("counts has 2 elements for 3 segments", glu, rows(3, 4, 8), torch.tensor([1, 2]),
                     segments=3)
        self.refused("counts must be int32 or int64", glu, x, torch.tensor([1.0]))
        self.refused("stash: str", glu, x, counts, stash="pool")
        self.refused("pool 4711 is not open", glu, x.requires_grad_(), counts, stash=4711)
        y = glu(x.requires_grad_(), counts, stash=self.pool)
        y.sum().backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "restored or released already"):
            y.sum().backward()

    def test_a_backward_that_is_refused_changes_nothing(self):
        x, counts = rows(CAPACITY, 32), torch.tensor([LIVE])
        y, token = ops.glu_forward(x, counts, self.pool)
        self.refused("the gradient is of .*, and the token of", ops.glu_backward, token, y[:, :8], self.pool)
        self.refused("the gradient is of .*, and the token of", ops.glu_backward, token, y[:32], self.pool)
        self.refused("activation is swiglu of torch.float32, interleave 0, and this is swiglu of .* "
                     "interleave 1", ops.glu_backward, token, y, self.pool, interleave=1)
        self.refused("activation is swiglu of .*, and this is clamped of .*limit 7, alpha 1.702, bias 1",
                     ops.glu_backward, token, y, self.pool, "clamped")
        self.refused("is not the token of a stash", ops.glu_backward, torch.tensor([3]), y, self.pool)
        self.assertEqual(ops.glu_backward(token, y, self.pool)[0].shape, x.shape)

    def test_no_ticket_left(self):
        self.pool.close()
        self.pool = make_pool(tickets=1)
        x = rows(CAPACITY, 32).requires_grad_()
        y = glu(x, stash=self.pool)
        self.refused("PST_E_BUSY", glu, x, stash=self.pool)
        y.sum().backward()
        glu(x, stash=self.pool).sum().backward()


@needs("torch")
class InAStash(StashTest):
    def experts(self, stash, x, w, counts, paged):
        with stash.layer(counts, CAPACITY):
            return glu(x * 1 @ w, counts, stash=stash if paged else None).square()

    def test_is_not_packed_twice(self):
        x, w, counts = rows(CAPACITY, 1024).requires_grad_(), rows(1024, 2048), torch.tensor([LIVE])
        in_use = []
        for paged in (True, False):
            with stash_of() as stash:
                got = self.experts(stash, x, w.requires_grad_(), counts, paged)
                in_use.append(stash.step() and stash.status().in_use[0])
                got[:LIVE].sum().backward()
                self.nothing_lost(stash)
        self.assertEqual(in_use[0], in_use[1])
        self.assertEqual(in_use[0], LIVE * (4096 + 8192 + 4096) // helper.PAGE_BYTES)

    def test_measures_the_first_step(self):
        x, w, counts = rows(CAPACITY, 256), rows(256, 512), torch.tensor([LIVE])
        wide = rows(CAPACITY, 600)

        def step(stash, paged):
            leaves, own = [tensor.clone().requires_grad_() for tensor in (w, wide)], counts.clone()
            y = self.experts(stash, x, leaves[0], own, paged)
            loss = y.sum() + glu(leaves[1][:, 8:520], own, stash=stash if paged else None).sum()
            if paged:
                own.zero_()  # nothing asks again for what was stashed
            loss.backward()
            return [y.detach()] + [leaf.grad for leaf in leaves]

        with pagestash.torch.Stash("cpu") as stash, stash_of() as other:
            want = step(other, False)
            self.same(step(stash, True), want)
            stash.step()
            self.assertGreater(stash.pages, 0)
            self.same(step(stash, True), want)
            self.nothing_lost(stash)
            self.assertGreater(stash.status().high_water[0], 0.8 * stash.pages)

    def test_a_step_that_failed(self):
        """Pages run out: what forward computes is right, the gradients are zeros, and no page is lost."""
        x, counts = rows(CAPACITY, 8192), torch.tensor([LIVE])
        p = rows(CAPACITY, seed=3)
        right = gradients(lambda x, p: glu(x, counts, probability=p), x, p)
        with stash_of(pages=3) as stash:
            y, *zeros = gradients(lambda x, p: glu(x, counts, stash=stash, probability=p), x, p)
            self.assertEqual(stash.valid.item(), 0)
            self.same([y], right[:1])
            for gradient in zeros:
                self.assertEqual(gradient.abs().sum(), 0)
            stash.step()
            stash.grow()
            self.same(gradients(lambda x, p: glu(x, counts, stash=stash, probability=p), x, p), right)
            self.nothing_lost(stash)

    def test_rerun(self):
        x, counts = rows(CAPACITY, 8192).requires_grad_(), torch.tensor([LIVE])
        with stash_of(pages=3) as stash:
            stash.rerun(lambda: glu(x, counts, stash=stash).sum().backward(), tensors=[x])
            want = rows(CAPACITY, 8192).requires_grad_()
            glu(want, counts).sum().backward()
            self.same([x.grad], [want.grad])
            self.nothing_lost(stash)

    def test_retain(self):
        x, counts = rows(CAPACITY, 32).requires_grad_(), torch.tensor([LIVE])
        with stash_of(retain=True) as stash:
            y = glu(x, counts, stash=stash).sum()
            first, = torch.autograd.grad(y, x, retain_graph=True)
            self.same([first], torch.autograd.grad(y, x))
            del y
            stash.step()  # which gives the pages back
            self.nothing_lost(stash)

    def test_takes_the_tickets_of_layers_that_were_dropped(self):
        x, counts = rows(CAPACITY, 32).requires_grad_(), torch.tensor([LIVE])
        with stash_of(tickets=1) as stash:
            with stash.layer(counts, CAPACITY):
                y = (x * 1).square()
            del y
            glu(x, counts, stash=stash).sum().backward()
            self.nothing_lost(stash)

    def test_closed(self):
        stash = stash_of()
        stash.close()
        with self.assertRaisesRegex(pagestash.Error, "the stash is closed"):
            glu(rows(CAPACITY, 8), stash=stash)


if __name__ == "__main__":
    main()
