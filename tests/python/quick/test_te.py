"""pagestash.te on doubles of Transformer Engine: the same bits with and without pages."""
import types
import unittest
import weakref
from contextlib import nullcontext

import torch
from torch.utils.checkpoint import checkpoint

import pagestash
import pagestash.te
from common import te_doubles as te
from common.stashes import StashTest, stash_of

ROWS, HIDDEN, FFN, EXPERTS = 384, 32, 64, 3
SPLITS = ((128, 0, 128), (0, 128, 256), (0, 0, 0))


def experts(dtype):
    torch.manual_seed(3)
    return [(torch.randn(EXPERTS, *size) / 8).to(dtype).requires_grad_()
            for size in ((HIDDEN, FFN), (FFN, HIDDEN))]


def inputs(splits, dtype, seed):
    torch.manual_seed(seed)
    live = sum(splits)
    x, scales = torch.randn(ROWS, HIDDEN), torch.rand(ROWS)
    x[live:] = float("nan")
    scales[live:] = float("nan")
    return (x.to(dtype).requires_grad_(), scales.to(dtype).requires_grad_(),
            torch.tensor(splits, dtype=torch.int64))


def loss(y, split_sizes):
    return y[:int(split_sizes.sum())].float().square().sum()


class GroupedMlpTest(StashTest):
    def train(self, stash, dtype=torch.bfloat16, cls=te.GroupedTensorStorage,
              mark=te.mark_grouped_tensor, run=lambda f, *a: f(*a), **options):
        """Gradients of all steps; two passes of the layer are live in each."""
        weights, out = experts(dtype), []
        for step, splits in enumerate(SPLITS):
            ends = []
            for half in range(2):
                x, scales, split_sizes = inputs(splits, dtype, 10 * step + half)

                def body(x, scales, split_sizes=split_sizes):
                    if stash is None:
                        return te.GroupedMLP.apply(x, scales, split_sizes, *weights, cls, mark)
                    with pagestash.te.layer(stash, split_sizes, ROWS, **options):
                        return te.GroupedMLP.apply(x, scales, split_sizes, *weights, cls, mark)
                ends.append((loss(run(body, x, scales), split_sizes), x, scales))
            for end, x, scales in reversed(ends):
                end.backward()
                out += [end.detach()[None], x.grad, scales.grad]
            if stash is not None:
                stash.step()
        return out + [weight.grad for weight in weights]

    def test_bit_equal(self):
        for dtype, cls in ((torch.bfloat16, te.GroupedTensorStorage), (torch.float32, te.GroupedTensor)):
            plain = self.train(None, dtype)
            for stash in (stash_of(), stash_of("measure", headroom=2.0)):
                with self.subTest(dtype=dtype, cls=cls.__name__, pages=stash.pages):
                    self.same(self.train(stash, dtype, cls), plain)
                    self.nothing_lost(stash)

    def test_bytes_are_those_of_live_rows(self):
        """Data, scales, activation and factors: nothing more is stashed, and nothing less."""
        for cls in (te.GroupedTensorStorage, te.GroupedTensor):
            stash = stash_of("measure")
            weights = experts(torch.bfloat16)
            x, scales, split_sizes = inputs((128, 0, 128), torch.bfloat16, 1)
            with pagestash.te.layer(stash, split_sizes, ROWS):
                y = te.GroupedMLP.apply(x, scales, split_sizes, *weights, cls, te.mark_grouped_tensor)
            form, counts = stash.log.events[0]
            live = 256
            wanted = live * (HIDDEN + FFN) + live // 32 * (HIDDEN + FFN) + live * FFN * 2 + live * 2
            self.assertEqual(form.measure(counts).payload_bytes, wanted)
            self.assertEqual(len(form.tensors), 6)
            del y

    def test_checkpoint(self):
        """Computed again in the backward, with markers set anew: nothing is stashed twice."""
        plain = self.train(None)
        for reentrant in (False, True):
            stash = stash_of()
            again = self.train(stash, run=lambda f, *a: checkpoint(f, *a, use_reentrant=reentrant))
            self.same(again, plain)
            self.nothing_lost(stash)

    def test_checkpoint_around_more(self):
        """See test_a_checkpoint_around_more_than_the_layer."""
        def more(f, x, scales):
            x = x.sin()
            return f(x, scales).tanh() * x[:, :1]
        plain = self.train(None, run=more)
        for reentrant in (False, True):
            stash = stash_of()
            self.same(self.train(stash, run=lambda f, *a: checkpoint(more, f, *a, use_reentrant=reentrant)), plain)
            self.nothing_lost(stash)

    def test_markers_lost_by_detach(self):
        def losing(*tensors):
            for tensor in tensors:
                mark(tensor)
                parts = pagestash.te.markers.parts_of(tensor)
                for name, part in parts.items():
                    setattr(tensor, name, part.detach())

        plain = self.train(None)
        for cls in (te.GroupedTensorStorage, te.GroupedTensor):
            for mark, tensors in ((te.mark_grouped_tensor, 2), (pagestash.te.mark_grouped_tensor, 6)):
                with self.assertLogs("pagestash", "WARNING") if tensors == 2 else nullcontext() as logs:
                    self.same(self.train(stash_of(), cls=cls, mark=losing), plain)
                    stash = stash_of("measure")
                    x, scales, split_sizes = inputs((128, 0, 128), torch.bfloat16, 1)
                    with pagestash.te.layer(stash, split_sizes, ROWS):
                        y = te.GroupedMLP.apply(x, scales, split_sizes, *experts(torch.bfloat16), cls,
                                                losing)
                self.assertEqual(len(stash.log.events[0][0].tensors), tensors)
                if logs:
                    self.assertIn("has no marker: it stays in memory", logs.output[0])
                del y

    def test_dropped_graph_and_exception(self):
        stash = stash_of()
        weights = experts(torch.bfloat16)
        x, scales, split_sizes = inputs((128, 0, 128), torch.bfloat16, 1)
        with pagestash.te.layer(stash, split_sizes, ROWS):
            y = te.GroupedMLP.apply(x, scales, split_sizes, *weights, te.GroupedTensor,
                                    te.mark_grouped_tensor)
        stash.step()
        self.assertGreater(stash.status().in_use[0], 0)
        del y
        self.nothing_lost(stash)
        with self.assertRaises(KeyError):
            with pagestash.te.layer(stash, split_sizes, ROWS):
                y = te.GroupedMLP.apply(x, scales, split_sizes, *weights, te.GroupedTensor,
                                        te.mark_grouped_tensor)
                raise KeyError
        with self.assertRaisesRegex(pagestash.Error, "did not end"):
            loss(y, split_sizes).backward()
        self.nothing_lost(stash)

    def test_wrong_capacity(self):
        for cls, text in ((te.GroupedTensor, "of shape .384, 32., which has not the 200 rows"),
                          (te.GroupedTensorStorage, "which has not the 200 rows of the layer")):
            stash = stash_of()
            x, scales, split_sizes = inputs((128, 0, 0), torch.bfloat16, 1)
            with self.assertRaisesRegex(pagestash.Error, text):
                with pagestash.te.layer(stash, split_sizes, 200):
                    te.GroupedMLP.apply(x, scales, split_sizes, *experts(torch.bfloat16), cls,
                                        te.mark_grouped_tensor)
            self.nothing_lost(stash)


class Keep(torch.autograd.Function):
    """Keeps tensors, and hands what comes back to `seen`."""

    @staticmethod
    def forward(ctx, x, seen, *tensors):
        ctx.seen = seen
        ctx.save_for_backward(*tensors)
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.extend(ctx.saved_tensors)
        return grad, None, *[None] * (len(ctx.needs_input_grad) - 2)


def keep(context, *tensors):
    """(what came back, the graph's end)."""
    seen, x = [], torch.ones(1, requires_grad=True)
    with context:
        y = Keep.apply(x, seen, *tensors)
    return seen, y


class PiecesTest(StashTest):
    def test_select(self):
        data, scales, never, none = (torch.zeros(8, 4) for _ in range(4))
        data.grouped_tensor_scale_inv, scales.grouped_tensor_scale_inv = False, True
        never.grouped_tensor_scale_inv, never._TE_do_not_offload = False, True
        self.assertEqual([pagestash.te.select(t) for t in (data, scales, never, none)],
                         [True, (1, 32), False, False])
        self.assertIs(pagestash.te.select(torch.nn.Parameter(data)), False)

    def test_select_with_a_plain_stash(self):
        """Flat data and scales, indices beside them."""
        data, scales = torch.randint(256, (96 * 8,), dtype=torch.uint8), torch.arange(24, dtype=torch.uint8)
        index = torch.arange(96)
        expected = data.clone(), scales.clone(), index
        data.grouped_tensor_scale_inv, scales.grouped_tensor_scale_inv = False, True
        with stash_of() as stash:
            seen, y = keep(stash.layer(torch.tensor([70]), 96, select=pagestash.te.select),
                           data, scales, index)
            y.backward()
            self.assertTrue(torch.equal(seen[0][:560], expected[0][:560]))
            self.assertFalse(seen[0][560:].any())
            self.same(seen[1:], expected[1:])  # 3 rows of scales for 70 rows
            self.assertEqual(seen[2].data_ptr(), index.data_ptr())
            del y
            with self.assertRaisesRegex(pagestash.Error, "has no 95 rows"):
                keep(stash.layer(torch.tensor([70]), 95, select=pagestash.te.select), data)

    def test_notes_die_with_a_write_and_with_the_tensor(self):
        tensor = torch.zeros(64, 4)
        pagestash.te.mark_grouped_tensor(tensor)
        self.assertIs(pagestash.te.select(tensor.detach()), True)
        self.assertIs(pagestash.te.select(tensor.view(32, 8)), True)
        self.assertIs(pagestash.te.select(tensor[1:]), False)
        other = tensor.detach()
        tensor += 1
        self.assertIs(pagestash.te.select(other), False)
        pagestash.te.mark_not_offload(tensor[:8])
        self.assertIs(pagestash.te.select(tensor.detach()[4:]), False)
        self.assertIs(pagestash.te.select(tensor), False)

    def test_follow_markers(self):
        module = types.SimpleNamespace(mark_grouped_tensor=te.mark_grouped_tensor,
                                       mark_not_offload=te.mark_not_offload)
        undo = pagestash.te.follow_markers(module)
        pagestash.te.follow_markers(module)()  # followed already
        one, two = torch.zeros(8, 2), torch.zeros(8, 2)
        module.mark_grouped_tensor(None, one, two)
        module.mark_not_offload(two)
        self.assertIs(pagestash.te.select(one.detach()), True)
        self.assertIs(pagestash.te.select(two.detach()), False)
        undo()
        self.assertIs(module.mark_grouped_tensor, te.mark_grouped_tensor)
        self.assertIs(module.mark_not_offload, te.mark_not_offload)

    def test_do_not_offload(self):
        stash = stash_of()
        tensor = torch.randn(64, 8)
        te.mark_grouped_tensor(tensor)
        te.mark_not_offload(tensor)
        seen, y = keep(pagestash.te.layer(stash, torch.tensor([5]), 64), tensor)
        y.backward()
        self.assertEqual(seen[0].data_ptr(), tensor.data_ptr())
        view = tensor.view(64, 2, 4)
        te.mark_grouped_tensor(view)
        self.assertIs(pagestash.te.select(view), False)
        self.assertIs(pagestash.te.select(torch.nn.Parameter(torch.ones(64, 8)).view(64, 2, 4)), False)
        self.nothing_lost(stash)

    def test_mxfp8_wrapper(self):
        """100 rows of data, scales with padded columns, scales that are no rows; a second backward."""
        stash = stash_of(retain=True)
        live = 70
        data, scales = te.quantise_columnwise(torch.randn(100, 40))
        row_scales = torch.zeros(128, 4, dtype=torch.uint8)
        tensor = te.MXFP8Tensor(data.clone(), row_scales, data.clone(), scales.clone(), "e4m3", None,
                                False, fake_dtype=torch.bfloat16, shape=(100, 40))
        pagestash.te.mark_grouped_tensor(tensor)
        with self.assertLogs("pagestash", "WARNING"):  # row scales, padded beyond the rows, stay
            seen, y = keep(pagestash.te.layer(stash, torch.tensor([live]), 100), tensor)
        del tensor
        y.backward(retain_graph=True)
        first = weakref.ref(seen[0]._columnwise_data.untyped_storage())
        seen.clear()
        self.assertIsNone(first())  # the graph holds no memory between backwards
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(len(seen), 2)
        for back in seen:
            self.assertIs(type(back), te.MXFP8Tensor)
            self.assertEqual((back.shape, back.dtype, back._fp8_dtype), ((100, 40), torch.bfloat16, "e4m3"))
            self.same([back._rowwise_data[:live], back._columnwise_data[:live]], [data[:live]] * 2)
            self.assertFalse(back._columnwise_data[live:].any())
            self.same([back._columnwise_scale_inv[:3]], [scales[:3]])
            self.assertEqual(back._columnwise_scale_inv.shape, scales.shape)
            self.assertIs(back._rowwise_scale_inv, row_scales)
        del y, seen, back
        self.nothing_lost(stash)

    # Fault rows 51.
    def test_padded_scales(self):
        """Of 96 rows: 3 of scales, padded to 4."""
        stash = stash_of()
        for live in (0, 1, 32, 33, 95, 96):
            data, scales = te.quantise_columnwise(torch.randn(96, 8))
            self.assertEqual(len(scales), 4)
            expected, address = scales.clone(), scales.data_ptr()
            scales.grouped_tensor_scale_inv = True
            seen, y = keep(pagestash.te.layer(stash, torch.tensor([live, 0]), 96), scales)
            y.backward()
            rows = -(-live // 32)
            self.assertNotEqual(seen[0].data_ptr(), address)
            self.same([seen[0][:rows]], [expected[:rows]])
            del y
        self.nothing_lost(stash)

    def test_one_group_swizzled_by_capacity(self):
        """Tiles of one matrix: its scales are no rows, and stay."""
        stash = stash_of()
        sizes = torch.tensor([64])
        one = te.grouped(torch.randn(128, 32), sizes, te.GroupedTensor)
        scales = one.columnwise_scale_inv
        te.mark_grouped_tensor(one)
        seen, y = keep(pagestash.te.layer(stash, sizes, 128), one)
        y.backward()
        self.assertIs(seen[0].columnwise_scale_inv, scales)
        self.assertIsNot(seen[0].columnwise_data, one.columnwise_data)
        flat = scales.clone()
        flat.grouped_tensor_scale_inv = True
        with self.assertLogs("pagestash", "WARNING"):
            seen, y = keep(pagestash.te.layer(stash, sizes, 128), flat)
        y.backward()
        self.assertEqual(seen[0].data_ptr(), flat.data_ptr())
        del y
        self.nothing_lost(stash)

    def test_base_tensors(self):
        """Views of one base, of which some have no rows themselves: the base is stashed once."""
        stash = stash_of("measure")
        base = torch.randn(16, 2, 24)  # 32 rows in two dimensions
        expected = base.clone()
        views = [base.view(16, 2, 3, 8)[:, :, i] for i in range(3)]
        te.mark_grouped_tensor(*views)
        te.start_offload(*views, offload_base_tensor=True)
        seen, y = keep(pagestash.te.layer(stash, torch.tensor([20]), 32), *views)
        form, _ = stash.log.events[0]
        self.assertEqual([(t.row_bytes, t.num, t.den) for t in form.tensors], [(96, 1, 1)])
        storage, strides = weakref.ref(base.untyped_storage()), views[0].stride()
        del base, views
        self.assertIsNone(storage())
        y.backward()
        for i, view in enumerate(seen):
            self.assertEqual(view.stride(), strides)
            self.assertTrue(torch.equal(view[:10], expected[:10, :, 8 * i:8 * i + 8]))
            self.assertFalse(view[10:].any())
        del y

    def test_wrapper_in_a_plain_layer_stays(self):
        stash = stash_of()
        tensor = te.grouped(torch.randn(64, 32), torch.tensor([32, 0]), te.GroupedTensor)
        with self.assertLogs("pagestash", "WARNING") as logs:
            seen, y = keep(stash.layer(torch.tensor([32]), 64), tensor)
        self.assertIn("a GroupedTensor, whose bytes are in other tensors", logs.output[0])
        y.backward()
        self.assertIs(seen[0].columnwise_data, tensor.columnwise_data)
        del y
        self.nothing_lost(stash)


if __name__ == "__main__":
    unittest.main()
