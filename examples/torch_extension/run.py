"""A layer whose saved tensors are kept by the extension: bit-equal to keeping them, and what bad input gets.
python run.py [layer_pages.so] [cpu|cuda]"""
import os
import sys

import torch

import pagestash  # loads libpagestash, which the extension uses

CAPACITY, HIDDEN, FFN = 128, 64, 96
ROUTED = ((40, 0, 17), (0, 0, 0), (100, 20, 8))  # rows of each expert, steps
PAGES, PAGE_BYTES = 12, 16384
ops = torch.ops.layer_pages


class Layer(torch.autograd.Function):
    """relu(x @ w1) @ w2 on the live rows; of what it saves, the rows are in pages until the backward."""

    @staticmethod
    def forward(ctx, x, w1, w2, counts, pool):
        hidden = (x @ w1).relu()
        # Scales as of quantised tensors: one row for 32.
        ctx.scales = scales = hidden.view(-1, 32, FFN).amax(1).nan_to_num()
        ctx.save_for_backward(w1, w2)
        ctx.pool, ctx.kept = pool, None
        if pool is None:
            ctx.kept = x, hidden, scales
        else:  # nothing of x and hidden is held from here on
            ctx.layer = ops.stash(pool, [x, hidden, scales], counts, CAPACITY)
            ctx.shapes = [(t.shape, t.dtype, t.device) for t in (x, hidden, scales)]
            ctx.scales = None
        return hidden @ w2

    @staticmethod
    def backward(ctx, grad):
        w1, w2 = ctx.saved_tensors
        if ctx.pool is None:
            x, hidden, _ = ctx.kept
        else:
            x, hidden, scales = kept = [torch.empty(shape, dtype=dtype, device=device)
                                        for shape, dtype, device in ctx.shapes]
            ops.restore(ctx.pool, ctx.layer, kept)
            live = hidden.view(-1, 32, FFN).amax(1)
            check(torch.equal(scales[:1], live[:1]), "scales that came back")
        # The reference has NaN behind the live rows, pages bring zeros; neither counts.
        x, hidden, grad = x.nan_to_num(), hidden.nan_to_num(), grad.nan_to_num()
        grad_hidden = (grad @ w2.t()) * (hidden > 0)
        return grad_hidden @ w1.t(), x.t() @ grad_hidden, hidden.t() @ grad, None, None


def check(holds, what):
    """Ends the script where it does not."""
    if not holds:
        sys.exit(f"wrong: {what}")


def train(pool, device, dtype):
    """Gradients of all steps, as bytes."""
    generator = torch.Generator().manual_seed(7)
    w1, w2 = ((torch.randn(*size, generator=generator) / 8).to(device, dtype).requires_grad_()
              for size in ((HIDDEN, FFN), (FFN, HIDDEN)))
    out = []
    for routed in ROUTED:
        counts, live = torch.tensor(routed, device=device), sum(routed)
        y = x = torch.randn(CAPACITY, HIDDEN, generator=generator).to(device, dtype)
        x[live:] = float("nan")  # memory that nobody has written
        x.requires_grad_()
        for _ in range(2):       # two layers wait for their backward
            y = Layer.apply(y, w1, w2, counts, pool)
        y[:live].float().square().sum().backward()
        out += [x.grad[:live], w1.grad.clone(), w2.grad.clone()]
        if pool is not None:
            valid, in_use, demand, lost = ops.step(pool)
            check((valid, in_use, lost) == (1, 0, 0), "the pool's status")
            print(f"{str(dtype):15} {live:4} live rows of {CAPACITY}: at most {demand} pages so far")
    return [grad.contiguous().view(torch.uint8) for grad in out]


def refused(what, call, *arguments):
    """Bad input: an exception with a sentence, and the pool goes on."""
    try:
        call(*arguments)
    except RuntimeError as error:
        print(f"{what}: {str(error).splitlines()[0]}")
    else:
        sys.exit(f"wrong: {what} was taken")


def misuse(device):
    """What must not crash the interpreter."""
    pool = ops.create(torch.empty(0, device=device), PAGES, PAGE_BYTES)
    x, counts = torch.randn(CAPACITY, 8, device=device), torch.tensor([5, 6], device=device)
    refused("no such pool", ops.stash, 12345, [x], counts, CAPACITY)
    refused("no page", ops.create, x, 0, PAGE_BYTES)
    refused("a page of a strange size", ops.create, x, PAGES, 12345)
    refused("no memory", ops.create, x, 1 << 30, 1 << 22)
    refused("no tensor", ops.stash, pool, [], counts, CAPACITY)
    refused("65 tensors", ops.stash, pool, [x] * 65, counts, CAPACITY)
    refused("an empty tensor", ops.stash, pool, [x[:0]], counts, CAPACITY)
    refused("a tensor of a number", ops.stash, pool, [x.sum()], counts, CAPACITY)
    refused("other rows", ops.stash, pool, [x], counts, CAPACITY + 1)
    refused("gaps between rows", ops.stash, pool, [x[:, :4]], counts, CAPACITY)
    refused("a tensor on meta", ops.stash, pool, [x.to("meta")], counts, CAPACITY)
    refused("a sparse tensor", ops.stash, pool, [x.to_sparse()], counts, CAPACITY)
    refused("capacity 0", ops.stash, pool, [x], counts, 0)
    refused("a huge capacity", ops.stash, pool, [x], counts, (1 << 63) - 1)
    refused("counts of float", ops.stash, pool, [x], counts.float(), CAPACITY)
    refused("no counts", ops.stash, pool, [x], counts[:0], CAPACITY)
    refused("1025 counts", ops.stash, pool, [x], counts.new_zeros(1025), CAPACITY)

    layer = ops.stash(pool, [x], counts, CAPACITY)
    refused("too few tensors", ops.restore, pool, layer, [])
    refused("another size", ops.restore, pool, layer, [torch.empty(CAPACITY, 7, device=device)])
    refused("close while a layer waits", ops.close, pool)
    back = torch.full_like(x, 9)
    ops.restore(pool, layer, [back])
    check(torch.equal(back[:11], x[:11]) and not back[11:].any(), "rows after bad input")
    refused("restored twice", ops.restore, pool, layer, [back])
    refused("dropped after", ops.drop, pool, layer)

    # Faults of the device: the step is not valid, destinations are zeros, and no page is lost.
    wide = torch.ones(CAPACITY, 1 << 12, device=device)
    for what, tensor, rows in (("more rows than capacity", x, CAPACITY + 1),
                               ("a negative count", x, -1), ("too few pages", wide, CAPACITY)):
        layer = ops.stash(pool, [tensor], torch.tensor([rows], device=device), CAPACITY)
        back = torch.full_like(tensor, 9)
        ops.restore(pool, layer, [back])
        valid, in_use, _, lost = ops.step(pool)
        check((valid, in_use, lost) == (0, 0, 0) and not back.any(), what)
        print(f"{what}: the step is not valid, and nothing is lost")
    ops.drop(pool, ops.stash(pool, [x], counts, CAPACITY))
    waiting = [ops.stash(pool, [x[:, :1].contiguous()], counts * 0, CAPACITY) for _ in range(64)]
    refused("a 65th layer", ops.stash, pool, [x], counts, CAPACITY)
    for layer in waiting:
        ops.drop(pool, layer)
    check(ops.step(pool)[1] == 0, "pages in use at the end")
    ops.close(pool)
    refused("closed", ops.step, pool)


def main(path, device="cpu"):
    """Everything."""
    torch.set_num_threads(1)
    torch.ops.load_library(path)
    print(f"pagestash {pagestash.__version__}, torch {torch.__version__}, {device}")
    for dtype in (torch.float32, torch.bfloat16):
        pool = ops.create(torch.empty(0, device=device), PAGES, PAGE_BYTES)
        for grad, reference in zip(train(pool, device, dtype), train(None, device, dtype)):
            check(torch.equal(grad, reference), f"gradients of {dtype}")
        ops.close(pool)
    misuse(device)
    print("everything as it should be")


if __name__ == "__main__":
    main(*sys.argv[1:] or [os.path.join(os.path.dirname(os.path.abspath(__file__)), "layer_pages.so")])
