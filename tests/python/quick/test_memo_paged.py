"""memo.run with attention that is swapped by tokens and experts whose rows go to pages."""
import logging
import math
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from common import moe
from common.edges import setUpModule, tearDownModule  # noqa: F401 pylint: disable=unused-import
from common.needs import from_torch
from pagestash import Error, memo
from pagestash.schedule import Schedule
from torch import nn

torch.set_num_threads(1)
TOKENS = 48
GROUPED = from_torch(2, 10, what="torch.nn.functional.grouped_mm")


class Case(unittest.TestCase):
    def shape(self, **fields):
        return moe.Shape(**{**dict(layers=3, hidden=16, heads=2, ffn=24, experts=4, ep=1, batch=1,
                                   sequence=TOKENS, micro=1), **fields})

    def model(self, shape, fraction="1/2", pages=True, **fields):
        """(model, its run): dense layers and experts in the order of calls."""
        model, layers = moe.build(shape), []
        for block in model.blocks:
            layers.append((block, "attend"))
            layers += [self.paged(experts, shape) for experts in block.moe.ranks] if pages else []
        run = memo.run(layers, fraction=fraction, cut=16, block_tokens=16, **fields)
        self.addCleanup(self.end, run)
        return model, run

    @staticmethod
    def paged(experts, shape):
        slabs = shape.layout == "segments"
        return memo.paged(experts, counts=lambda x, probs, counts: counts, capacity=lambda x, *_: x.shape[slabs],
                          segments=shape.local if slabs else 0)

    def setUp(self):
        log = logging.getLogger("pagestash")  # which names what stays in memory
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.ERROR)

    def end(self, run):
        run.abort()
        if run.pool is not None:
            run.pool.check(0)
            run.pool.step()
            status = run.status()
            self.assertEqual((status.in_use, status.check_errors), ((0, 0), 0))
            self.assertEqual(run.scheduler._owned.held, {})
        run.close()

    @staticmethod
    def train(model, run, batches, order="FBFB"):
        """Losses."""
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
        for micro_batches in batches:
            losses += [loss.item() for loss in moe.run_step(model, micro_batches, order)]
            run.step()
            optimizer.step()
            optimizer.zero_grad()
        return losses

    def same(self, shape, order="FBFB", steps=3, **fields):
        """Trained with swaps and pages it has the bits of one without; its run."""
        bits, batches = [], moe.batches(shape, steps)
        with moe.poisoned():
            for swaps in ({"fraction": None, "pages": False}, fields):
                model, run = self.model(shape, micro_batches=shape.micro, **swaps)
                bits.append((self.train(model, run, batches, order), moe.weight_bits(model)))
        self.assertEqual(*bits)
        return run


class Equal(Case):
    @GROUPED
    def test_dense_layers_swapped_and_experts_paged(self):
        for fields in ({}, {"ep": 2, "micro": 2, "dtype": torch.bfloat16}):
            with self.subTest(**fields):
                shape = self.shape(**fields)
                run = self.same(shape)
                figures, status = run.scheduler.stats(), run.status()
                units = 3 + 3 * shape.ep
                self.assertEqual((figures.steps, figures.visits), (2, 2 * units * shape.micro))
                self.assertGreater(min(figures.stashed, figures.swapped, figures.kept_in_place), 0)
                self.assertEqual((run.deviations, status.valid), ({}, True))
                self.assertEqual(figures.restores, figures.stashed)
                report = run.report()
                self.assertEqual([one.keep == "paged" for one in report.layers], 3 * ([False] + shape.ep * [True]))
                self.assertRegex(str(report), r"layer 1 of chunk 0 +paged +- +96 .*\n(.*\n)*\d+ pages of \d+ KiB")

    @GROUPED
    def test_one_budget_for_both(self):
        shape, room = self.shape(), 1 << 20
        run = self.same(shape, steps=2, fraction="auto", host_bytes=room, gpu_bytes=room)
        choice, info = run.choice, run.pool.info()
        self.assertLessEqual(choice.gpu_bytes, choice.gpu_limit)
        self.assertGreaterEqual(room - choice.gpu_limit, info.num_pages[0] * info.page_bytes)
        with self.assertRaisesRegex(Error, r"gpu_bytes 100000: \d+ pages take \d+ bytes, .* without any buffer"):
            self.same(shape, steps=1, gpu_bytes=100_000, host_bytes=room)

    @GROUPED
    def test_all_forwards_first(self):
        run = self.same(self.shape(micro=2, layers=2), "FFBB", steps=2, schedule=Schedule("gpipe", num_micro_batches=2),
                        page_bytes=16384)
        self.assertEqual(run.pool.info().num_pages[0], math.ceil(1.1 * run.status().demand))

    def test_host_pages_and_streams(self):
        self.same(self.shape(layers=2, layout="segments"), steps=2, num_streams=2, host_pages=64, pages=2,
                  page_bytes=16384, keep_last=0)

    @GROUPED
    def test_chunks(self):
        """Interleaved, with a boundary between two blocks."""
        schedule, shape = Schedule("interleaved", num_chunks=2, num_micro_batches=2, group=2), self.shape(layers=2)
        out = []
        for swaps in (False, True):
            model = moe.build(shape)
            chunks = [[(block, "attend")] + ([self.paged(block.moe.ranks[0], shape)] if swaps else [])
                      for block in model.blocks]
            run = memo.run(chunks, fraction="1/2" if swaps else None, cut=16, block_tokens=16, schedule=schedule,
                           keep_last=0)
            self.addCleanup(self.end, run)
            for batches in moe.batches(self.shape(micro=2), 2):
                sent, got, losses = {}, {}, {}
                for kind, chunk, m, _ in schedule:
                    if (kind, chunk) == ("forward", 0):
                        sent[m] = model.blocks[0](model.embedding(batches[m][:, :-1]))
                    elif kind == "forward":
                        got[m] = sent[m].detach().requires_grad_()
                        losses[m] = model.head(model.norm(model.blocks[1](got[m]))).square().mean()
                    elif chunk == 1:
                        losses.pop(m).backward()
                    else:
                        sent.pop(m).backward(got.pop(m).grad)
                run.step()
            out.append([parameter.grad for parameter in model.parameters()])
        self.assertTrue(all(map(torch.equal, *out)))
        figures = run.scheduler.stats()
        self.assertEqual((figures.visits, figures.stashed, figures.swapped, run.deviations), (8, 4, 4, {}))

    @GROUPED
    def test_nothing_but_experts(self):
        """The rest is as it is."""
        shape = self.shape()
        model, plain = moe.build(shape), moe.build(shape)
        run = memo.run([self.paged(block.moe.ranks[0], shape) for block in model.blocks])
        self.addCleanup(self.end, run)
        for (batch,) in moe.batches(shape, 2):
            with moe.poisoned():
                model.loss(batch).backward()
                plain.loss(batch).backward()
            run.step()
        for a, b in zip(model.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(a.grad, b.grad))
        self.assertEqual(run.scheduler.stats().visits, 3)


class Odd(nn.Module):
    """Experts that keep what `keeps` says: rows, rows that lie apart in larger memory, one more, one less."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.keeps = nn.Parameter(torch.randn(width, width) / 8), "rows"

    def forward(self, x, counts):
        y = torch.mm(x, self.weight)                         # keeps x
        both = torch.stack([y, y], 0) * 0.5                  # [2, rows, width]
        y = both[1][:, :4].square()                          # keeps rows that lie apart
        if self.keeps == "more":
            y = y.cos()
        return (y * 2 if self.keeps == "less" else y.sin()) + x[:, :4]


class Deviations(Case):
    """What is not as in the first step; beside a run that swaps and pages nothing."""

    def odd(self, paged=True, **fields):
        """(function of (step, capacity, ...) that answers gradients, its run)."""
        torch.manual_seed(0)
        dense, odd = nn.Linear(8, 8), Odd(8)
        given = memo.paged(odd, counts=lambda x, counts: counts, capacity=lambda x, counts: len(x))
        run = memo.run([given] if paged else [], page_bytes=16384,
                       **{"fraction": None, "num_sources": 1, "num_destinations": 1, "keep_last": 0, **fields})
        self.addCleanup(self.end, run)

        def forward(seed, rows=32, keeps="rows"):
            odd.keeps = keeps
            x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))
            x[rows // 2:] = 0
            return odd(dense(x), torch.tensor([rows])).square().sum()
        forward.module, forward.dense = odd, dense
        return forward, run

    def gradients(self, forward):
        out = [p.grad for p in (*forward.module.parameters(), *forward.dense.parameters())]
        forward.module.zero_grad(), forward.dense.zero_grad()
        return out

    def same(self, *steps, **fields):
        """Steps of calls of forward; the run."""
        (one, run), (other, plain) = self.odd(**fields), self.odd(paged=False)
        for calls in steps:
            for forward, its in ((one, run), (other, plain)):
                for call in calls:
                    forward(*call).backward()
                its.step()
            for a, b in zip(self.gradients(one), self.gradients(other)):
                self.assertTrue(torch.equal(a, b))
        return run

    def test_rows_that_lie_apart(self):
        run = self.same([(0,)], [(1,)], [(2,)])
        self.assertEqual((run.deviations, run.scheduler.stats().stashed), ({}, 2))
        self.assertEqual(len(run.order[0].places), 3)
        self.assertEqual([stride for _, stride, *_ in run.order[0].places][1], 32)
        self.assertEqual(run.status().step_demand, 3)

    def test_another_capacity(self):
        run = self.same([(0,), (1,)], [(2, 20), (3,)], [(4,), (5, 20)], micro_batches=2)
        self.assertEqual(run.deviations, {"a paged layer with a capacity of 20 rows": 2})

    def test_other_tensors(self):
        run = self.same([(0,)], [(1, 32, "more")], [(2,)], [(3, 32, "less")], [(4,)])
        self.assertEqual(run.deviations, {"a tensor of rows that a paged layer saves": 2})
        self.assertEqual(run.scheduler.stats().stashed, 4)

    def test_other_numbers_of_micro_batches(self):
        run = self.same([(0,), (1,)], [(2,)], [(3,), (4,), (5,)], micro_batches=2)
        self.assertEqual(run.deviations, {"fewer micro-batches in a step than were said": 2,
                                          "more micro-batches in a step than were said": 1})

    def test_the_first_step_does_not_end(self):
        forward, run = self.odd()
        handle = forward.dense.register_forward_hook(lambda *_: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            forward(0)
        handle.remove()
        lost = forward(0)
        run.abort()
        del lost
        for step in range(2):
            forward(step).backward()
            run.step()
        self.assertEqual((run.order[0].counted, run.scheduler.stats().steps), ([[32]], 1))

    def test_exceptions(self):
        forward, run = self.odd()
        for step in range(3):
            forward(step).backward()
            run.step()
            handle = forward.module.register_forward_hook(lambda *_: 1 / 0)
            with self.assertRaises(ZeroDivisionError):
                forward(step)
            handle.remove()
            forward(step)  # is dropped
        loss = forward(0)
        loss.backward(retain_graph=True)
        with self.assertRaisesRegex(Error, "layer 0 of chunk 0: a second backward"):
            loss.backward()
        run.step()
        lost = forward(0)
        with self.assertRaisesRegex(Error, "PST_E_ORDER"):
            run.step()
        with self.assertRaisesRegex(Error, "given up, and what it kept is gone"):
            lost.backward()

    def test_too_few_pages(self):
        forward, run = self.odd(pages=1)
        forward(0).backward()
        run.step()
        forward(1).backward()
        self.assertEqual(run.valid.item(), 0)
        run.step()
        self.assertFalse(run.status().valid)
        self.assertEqual(run.grow(), 4)
        self.gradients(forward)
        forward(1).backward()
        self.assertEqual(run.valid.item(), 1)
        run.step()
        other, _ = self.odd(paged=False)
        other(1).backward()
        self.assertTrue(all(map(torch.equal, self.gradients(forward), self.gradients(other))))

    def test_too_few_pages_in_a_part_of_a_step(self):
        forward, run = self.odd(pages=1)
        forward(0).backward()
        run.step()
        forward(1).backward()
        with torch.no_grad():
            forward(1)
        forward(2, 20).backward()  # another micro-batch than was said: kept in memory, and valid
        self.assertEqual(run.valid.item(), 0)
        run.step()

    def test_gradients_that_nobody_wants(self):
        for frozen in ("dense", "module"):
            one, run = self.odd()
            other, _ = self.odd(paged=False)
            for step in range(2):
                for forward in (one, other):
                    getattr(forward, frozen).requires_grad_(False)
                    forward(step).backward()
                run.step()
                mine, wanted = self.gradients(one), self.gradients(other)
                self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(mine, wanted)))
            self.assertEqual(run.deviations, {})

    def test_a_block_that_has_experts(self):
        """Its counts are known when it ends."""
        bits, shape = [], self.shape(layers=2, layout="segments")
        for paged in (False, True):
            model = moe.build(shape)
            for block in model.blocks:
                block.moe.call = lambda experts, *given, moe=block.moe: self.note(moe, experts, given)
            run = memo.run([memo.paged(block.moe, counts=lambda x, moe=block.moe: lambda: moe.counts,
                                       capacity=TOKENS, segments=shape.local) for block in model.blocks]
                           if paged else [], page_bytes=16384, num_sources=1, num_destinations=1)
            self.addCleanup(self.end, run)
            bits.append((self.train(model, run, moe.batches(shape, 2)), moe.weight_bits(model)))
        self.assertEqual(*bits)
        self.assertEqual((run.scheduler.stats().stashed, run.deviations), (1, {}))

    @staticmethod
    def note(moe_, experts, given):
        moe_.counts = given[2]
        return experts(*given)

    def test_refused(self):
        forward, run = self.odd(pages=100, gpu_bytes=1 << 20)
        forward(0).backward()
        with self.assertRaisesRegex(Error, r"gpu_bytes 1048576: 100 pages take \d+ bytes, the plan 0: \d+ too few"):
            run.step()
        odd = Odd(8)
        run = memo.run([memo.paged(odd, counts=lambda x, counts: counts, capacity=31)])
        with self.assertRaisesRegex(Error, "layer 1 of chunk 0: another run has it"):
            memo.run([memo.paged(nn.Linear(8, 8), counts=None, capacity=1),
                      memo.paged(odd, counts=None, capacity=1)])
        run.step()
        odd(torch.zeros(32, 8), torch.tensor([3])).sum().backward()
        with self.assertRaisesRegex(Error, "layer 0 of chunk 0 saves no tensor of 31 rows"):
            run.step()
        run.close()
        run = memo.run([memo.paged(odd, counts=lambda x, counts: counts, capacity=32, name="odd"),
                        memo.paged((nn.Linear(8, 8), "forward"), counts=None, capacity=32)])
        self.addCleanup(self.end, run)
        odd(torch.zeros(32, 8), torch.tensor([3])).sum().backward()
        with self.assertRaisesRegex(Error, "layer 1 of chunk 0 was not called in the first step"):
            run.step()
        with self.assertRaisesRegex(Error, "'odd': a row count of 33"):
            odd(torch.zeros(32, 8), torch.tensor([33])).sum().backward()
        run.close()
        for given, why in ((dict(capacity="x"), "capacity"), (dict(counts=[1]), "counts: list"),
                           (dict(ratio=3), "ratio 3"), (dict(segments=-1), "segments"), (dict(module=3), "memo.paged")):
            with self.subTest(why), self.assertRaisesRegex(Error, why):
                with memo.run([memo.paged(**{"module": odd, "counts": None, "capacity": 32, **given})]):
                    odd(torch.zeros(32, 8), None)


if __name__ == "__main__":
    unittest.main()
