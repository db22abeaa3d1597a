#!/usr/bin/env python3
"""torch.ops.pagestash.*: what they copy, refuse and give back, in eager mode."""
import threading
import unittest

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    import torch.nn.functional as F
    from common import ops as helper
    from common.ops import CAPACITY, Case, garbage, make_pool, rows, taken
    import pagestash
    helper.use_binary()
    from pagestash.torch import ops
    kernels = torch.ops.pagestash
else:
    Case, CAPACITY = unittest.TestCase, 0


class Refusing(Case):
    def refused(self, sentence, call, *args, **kwargs):
        with self.assertRaisesRegex(pagestash.Error, sentence) as caught:
            call(*args, **kwargs)
        self.assertNotIn("\n", str(caught.exception))
        return caught.exception


@needs("torch")
class Copies(Refusing):
    def pair(self, tensors, counts, capacity=CAPACITY, segments=0):
        token = ops.stash(tensors, counts, self.pool, capacity=capacity, segments=segments)
        out = [garbage(torch.empty(t.shape, dtype=t.dtype)) for t in tensors]
        ops.restore(token, out, self.pool)
        return out

    def test_prefix_restores_live_rows_and_clears_the_others(self):
        x, y = rows(CAPACITY, 33), rows(CAPACITY, 2, 5, dtype=torch.bfloat16)
        for count_type in (torch.int32, torch.int64):
            for live in (0, 1, 17, CAPACITY):
                for got, was in zip(self.pair([x, y], torch.tensor([live], dtype=count_type)), (x, y)):
                    self.assertTrue(torch.equal(got[:live], was[:live]))
                    self.assertEqual(got[live:].abs().sum(), 0)

    def test_sum_of_counts(self):
        x = rows(CAPACITY, 8)
        got, = self.pair([x], torch.tensor([3, 0, 9], dtype=torch.int32))
        self.assertTrue(torch.equal(got[:12], x[:12]))
        self.assertEqual(got[12:].abs().sum(), 0)

    def test_segments(self):
        for x in (rows(3, 16, 8), rows(48, 8)):
            got, = self.pair([x], torch.tensor([2, 0, 16]), capacity=16, segments=3)
            for slab, was, live in zip(got.view(3, 16, 8), x.view(3, 16, 8), (2, 0, 16)):
                self.assertTrue(torch.equal(slab[:live], was[:live]))
                self.assertEqual(slab[live:].abs().sum(), 0)

    def test_views_of_strided_rows(self):
        wide = rows(CAPACITY, 40)
        got, = self.pair([wide[:, 8:24]], torch.tensor([20]))
        self.assertTrue(torch.equal(got[:20], wide[:20, 8:24]))
        slabs = rows(3, 20, 10)[:, :16, :6]
        got, = self.pair([slabs], torch.tensor([16, 16, 16]), capacity=16, segments=3)
        self.assertTrue(torch.equal(got, slabs))
        token = ops.stash([wide], torch.tensor([20]), self.pool, capacity=CAPACITY)
        into = garbage(rows(CAPACITY, 50))
        ops.restore(token, [into[:, :40]], self.pool)
        self.assertTrue(torch.equal(into[:20, :40], wide[:20]))
        self.assertTrue(into[:, 40:].isnan().all())

    def test_a_failed_stash_restores_zeros(self):
        got, = self.pair([rows(CAPACITY, 8)], torch.tensor([CAPACITY + 1]))
        self.assertEqual(got.abs().sum(), 0)
        self.pool.step()
        self.assertFalse(self.pool.status().valid)
        self.pool.reset("faults")

    def test_keep_restores_again(self):
        x = rows(CAPACITY, 8)
        token = ops.stash([x], torch.tensor([9]), self.pool, capacity=CAPACITY)
        for keep in (True, True, False):
            out = garbage(x)
            ops.restore(token, [out], self.pool, keep=keep)
            self.assertTrue(torch.equal(out[:9], x[:9]))
        self.refused("restored or released already", ops.restore, token, [out], self.pool)

    def test_binary_and_ctypes_see_one_pool(self):
        """One library in the process: a ticket that an operator took is one that the pool knows."""
        token = ops.stash([rows(CAPACITY, 8)], torch.tensor([9]), self.pool, capacity=CAPACITY)
        self.assertEqual(taken(self.pool), 1)
        index = pagestash._c.lib.pst_ticket_index(pagestash._abi.pst_ticket(token.item()))
        self.assertLess(index, 64)
        ops.release(token)
        self.assertEqual(taken(self.pool), 0)


@needs("torch")
class Refusals(Refusing):
    def setUp(self):
        super().setUp()
        self.x, self.counts = rows(CAPACITY, 8), torch.tensor([9])

    def stash(self, tensors=None, counts=None, **kwargs):
        kwargs.setdefault("capacity", CAPACITY)
        return ops.stash([self.x] if tensors is None else tensors,
                         self.counts if counts is None else counts, self.pool, **kwargs)

    # Fault rows 69.
    def test_tensors(self):
        self.refused("0 tensors; 1 to 64", self.stash, [])
        self.refused("65 tensors", self.stash, [self.x] * 65)
        self.refused("tensor 1 has .* no multiple of 64 rows", self.stash, [self.x, rows(63, 3)])
        self.refused("tensor 0 has 0 bytes", self.stash, [rows(0, 3)])
        self.refused("neither contiguous nor rows without gaps", self.stash, [rows(8, CAPACITY).t()])
        self.refused("rows of tensor 0 overlap", self.stash, [rows(1, 8).expand(CAPACITY, 8)])
        self.refused("not a strided tensor", self.stash, [self.x.to_sparse()])

    def test_numbers(self):
        self.refused("capacity 0", self.stash, capacity=0)
        self.refused("capacity -1", self.stash, capacity=-1)
        self.refused("segments -1", self.stash, segments=-1)
        self.refused("segments 2000", self.stash, segments=2000)
        self.refused("num_sms -3", self.stash, num_sms=-3)

    def test_counts(self):
        self.refused("int32 or int64", self.stash, counts=torch.tensor([9.0]))
        self.refused("counts has 0 elements", self.stash, counts=torch.tensor([], dtype=torch.int64))
        self.refused("2 elements for 4 segments", self.stash, counts=torch.tensor([1, 2]), segments=4)
        self.refused("not contiguous", self.stash, counts=torch.arange(8)[::2])

    def test_pools(self):
        handle = self.pool.handle
        self.refused("pool 4711 is not open", ops.stash, [self.x], self.counts, 4711, capacity=CAPACITY)
        token, other = self.stash(), make_pool()
        self.refused("of another pool", ops.restore, token, [self.x], other)
        other.close()
        self.refused("BUSY", self.pool.close)
        ops.restore(token, [garbage(self.x)], self.pool)  # still open
        self.pool.close()
        self.refused("closed", ops.drain, self.pool)
        self.refused("not open", ops.stash, [self.x], self.counts, handle, capacity=CAPACITY)
        self.refused("restored or released already", ops.release, token)

    def test_no_ticket_left(self):
        self.pool.close()
        self.pool = make_pool(tickets=2)
        tokens = [self.stash(), self.stash()]
        error = self.refused("PST_E_BUSY", self.stash)
        self.assertEqual(error.status, "PST_E_BUSY")
        for token in tokens:
            ops.release(token)
        ops.release(self.stash())

    def test_tokens(self):
        token = self.stash([self.x, self.x])
        out = garbage(self.x)
        self.refused("1 destinations for a stash of 2", ops.restore, token, [out], self.pool)
        self.refused("destination 1 has 16 bytes in a row, and what was stashed 32", ops.restore, token,
                     [out, garbage(rows(CAPACITY, 4))], self.pool)
        self.refused("is not the token of a stash", ops.restore, torch.tensor([3]), [out], self.pool)
        self.refused("one int64 on the CPU", ops.restore, torch.tensor([3.0]), [out], self.pool)
        ops.restore(token, [out, garbage(self.x)], self.pool)  # what was refused changed nothing
        self.refused("restored or released already", ops.release, token)

    def test_destination_with_grad(self):
        token = self.stash()
        leaf = garbage(self.x).requires_grad_()
        self.refused("destination 0 requires grad", ops.restore, token, [leaf], self.pool)
        with torch.no_grad():
            ops.restore(token, [leaf], self.pool)
        self.assertTrue(torch.equal(leaf[:9], self.x[:9]))

    def test_restore_counts_as_a_change(self):
        """What autograd saved and a restore overwrites is noticed."""
        out = rows(CAPACITY, 8)
        y = rows(CAPACITY, 8).requires_grad_() * out
        ops.restore(self.stash(), [out], self.pool)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_torch_raises_the_same_sentence(self):
        with self.assertRaisesRegex(RuntimeError, "capacity 0 must be"):
            kernels.stash([self.x], self.counts, self.pool.handle, 0)


@needs("torch")
class Dropped(Refusing):
    def test_next_stash_takes_the_ticket(self):
        self.pool.close()
        self.pool = make_pool(tickets=1)
        x = rows(CAPACITY, 8)
        for _ in range(5):
            token = ops.stash([x], torch.tensor([9]), self.pool, capacity=CAPACITY)
            del token
        self.assertEqual(taken(self.pool), 1)
        self.assertEqual(ops.drain(self.pool), 0)
        self.assertEqual(taken(self.pool), 0)

    def test_a_view_keeps_the_pages(self):
        token = ops.stash([rows(CAPACITY, 8)], torch.tensor([9]), self.pool, capacity=CAPACITY)
        view = token.view(1, 1)
        del token
        ops.drain(self.pool)
        self.assertEqual(taken(self.pool), 1)
        ops.release(view.view(1))

    def test_overwritten_bytes_do_not_matter(self):
        """A compiler may reuse the memory of a token that was used last."""
        token = ops.stash([rows(CAPACITY, 8)], torch.tensor([9]), self.pool, capacity=CAPACITY)
        token.fill_(1)
        del token
        ops.drain(self.pool)
        self.assertEqual(taken(self.pool), 0)

    def test_closing_gives_back(self):
        token = ops.stash([rows(CAPACITY, 8)], torch.tensor([9]), self.pool, capacity=CAPACITY)
        del token
        self.pool.close()

    def test_threads(self):
        """Tokens stashed in some threads, restored in others, dropped in any."""
        counts, x, wrong = torch.tensor([9]), rows(CAPACITY, 8), []
        tokens, lock = [], threading.Lock()

        def work(seed):
            try:
                for i in range(40):
                    token = ops.stash([x], counts, self.pool, capacity=CAPACITY)
                    with lock:
                        tokens.append(token)
                        mine = tokens.pop((seed * i) % len(tokens))
                    del token
                    if i % 3:
                        out = garbage(x)
                        ops.restore(mine, [out], self.pool)
                        if not torch.equal(out[:9], x[:9]):
                            wrong.append(i)
                    del mine
            except Exception as error:  # pylint: disable=broad-exception-caught
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


@needs("torch")
class SwiGLU(Refusing):
    def compare(self, x, counts, segments=0):
        live = torch.zeros(x.shape[:-1], dtype=torch.bool)
        for slab, count in zip(live if segments else [live], counts.tolist()):
            slab[:count] = True
        dy = torch.where(live[..., None], rows(*x.shape[:-1], x.shape[-1] // 2, seed=1), 0).to(x.dtype)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        gate, up = theirs.chunk(2, -1)
        want = F.silu(gate) * up
        got = ops.swiglu(mine, counts, self.pool, segments=segments)
        self.assertEqual(taken(self.pool), 1)
        want.backward(dy)
        got.backward(dy)
        self.assertTrue(torch.equal(got, want))
        self.assertTrue(torch.equal(mine.grad, theirs.grad))
        self.assertEqual(taken(self.pool), 0)

    def test_gradients_are_torch_s(self):
        for dtype in (torch.float32, torch.bfloat16):
            self.compare(rows(CAPACITY, 32, dtype=dtype), torch.tensor([20]))
            self.compare(rows(3, 16, 32, dtype=dtype), torch.tensor([2, 0, 16]), segments=3)

    def test_stashes_only_for_a_backward(self):
        x, counts = rows(CAPACITY, 32), torch.tensor([20])
        ops.swiglu(x, counts, self.pool)
        with torch.no_grad():
            ops.swiglu(x.requires_grad_(), counts, self.pool)
        self.assertEqual(taken(self.pool), 0)

    def test_refusals(self):
        counts = torch.tensor([20])
        self.refused("last dimension is even", ops.swiglu, rows(CAPACITY, 33), counts, self.pool)
        self.refused("it must be .segments, capacity", ops.swiglu, rows(CAPACITY, 32).requires_grad_(),
                     torch.tensor([1, 2]), self.pool, segments=2)
        y = ops.swiglu(rows(CAPACITY, 32).requires_grad_(), counts, self.pool)
        y.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
            y.sum().backward()


if __name__ == "__main__":
    main()
