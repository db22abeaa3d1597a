"""Saved tensors of any geometry: what comes back is the tensor with zeros behind the live rows, or, where its
rows are not what the layer says, the tensor as it was."""
import random
import unittest

import torch

from common.edges import StashTest, setUpModule, tearDownModule  # noqa: F401

CASES = 150


class Keep(torch.autograd.Function):
    """Saves tensors; its backward leaves in `got` what came back."""
    got = []

    @staticmethod
    def forward(ctx, x, *tensors):
        ctx.save_for_backward(*tensors)
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        Keep.got = ctx.saved_tensors
        return (grad, *[None] * len(ctx.saved_tensors))


def dimensions(draw, segments, capacity):
    """Of a tensor's rows: one dimension or two."""
    if segments and draw.random() < 0.5:
        return [segments, capacity]
    return [(segments or 1) * capacity]


def made(draw, segments, capacity, dtype):
    """(a view, how many of its first dimensions count rows): rows within wider rows, behind a gap, with
    inner dimensions in any order, expanded; and what has no such rows in memory."""
    rows = dimensions(draw, segments, capacity)
    one = torch.ones((), dtype=dtype, requires_grad=True)  # so that it has a history
    kind = draw.random()
    if kind < 0.1:  # windows that overlap
        num = rows[0] * (rows[1] if len(rows) > 1 else 1)
        return (torch.arange(1, num + 3).to(dtype) * one).unfold(0, 3, 1), 1
    if kind < 0.2:  # rows are the inner dimension
        num = rows[0] * (rows[1] if len(rows) > 1 else 1)
        return (torch.arange(1, 5 * num + 1).to(dtype) * one).view(5, num).t(), 1
    if kind < 0.4 and len(rows) > 1:  # slabs with a gap between them
        base = torch.arange(1, segments * (capacity + 1) * 3 + 1).to(dtype) * one
        return base.view(segments, capacity + 1, 3)[:, :capacity], 2
    inner = [draw.choice((1, 2, 3, 5)) for _ in range(draw.randrange(3))]
    gap = draw.choice((0, 0, 1, 4))
    width = draw.choice((0, 0, 3)) if inner else 0
    base_shape = [*rows, *inner[:-1], inner[-1] + width] if inner else rows
    numel = 1
    for size in base_shape:
        numel *= size
    base = torch.arange(1, gap + numel + draw.choice((0, 0, 2)) + 1).to(dtype) * one
    tensor = base[gap:gap + numel].view(base_shape)
    if width:
        tensor = tensor[..., draw.choice((0, width)):][..., :inner[-1]]
    order = list(range(len(rows), tensor.dim()))
    draw.shuffle(order)
    tensor = tensor.permute(*range(len(rows)), *order)
    if draw.random() < 0.2:
        tensor = tensor.unsqueeze(-1).expand(*tensor.shape, 3)
    return tensor, len(rows)


def cut(tensor, num_row_dims, segments, capacity, counts):
    """With zeros behind the live rows."""
    out = tensor.clone()
    slabs = out.reshape(segments or 1, capacity, *out.shape[num_row_dims:])
    for slab, count in zip(slabs, counts):
        slab[count:] = 0
    return slabs.reshape(tensor.shape)


class Geometry(StashTest):
    def check(self, seed, pages):
        draw = random.Random(seed)
        capacity, segments = draw.choice((1, 2, 7, 16)), draw.choice((0, 0, 1, 3))
        counts = [draw.randrange(capacity + 1) for _ in range(segments or 1)]
        dtype = draw.choice((torch.float32, torch.bfloat16, torch.float64))
        made_ones = [made(draw, segments, capacity, dtype) for _ in range(draw.randrange(1, 5))]
        if draw.random() < 0.5:  # another view of the same storage
            made_ones.append((made_ones[0][0].view_as(made_ones[0][0]), made_ones[0][1]))
        whole = [tensor.detach().clone() for tensor, _ in made_ones]
        zeroed = [cut(tensor.detach(), dims, segments, capacity, counts) for tensor, dims in made_ones]
        stash = self.stash(pages)
        x = torch.ones(3, requires_grad=True)
        with stash.layer(torch.tensor(counts), capacity, segments):
            y = Keep.apply(x, *[tensor for tensor, _ in made_ones])
        del made_ones
        y.sum().backward()
        of_rows = 0
        for got, all_, live in zip(Keep.got, whole, zeroed, strict=True):
            is_cut = torch.equal(got, live)
            self.assertTrue(is_cut or torch.equal(got, all_), f"seed {seed}: {got.shape} {got.stride()}")
            of_rows += is_cut
        return of_rows

    def test_any_geometry(self):
        for pages in (64, "measure"):
            of_rows = sum(self.check(seed, pages) for seed in range(CASES))
            self.assertGreater(of_rows, CASES)


if __name__ == "__main__":
    unittest.main()
