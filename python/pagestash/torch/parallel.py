"""Linear layers whose weight is split over the ranks of a group, with what they gather in scratch.

    layer = pagestash.torch.ColumnParallelLinear(h, 4 * h, group=group, sequence_parallel=True)
    y = layer(x)      # x: this rank's part of the sequence

With sequence parallelism a column-parallel layer gathers its input before its product, and again before the
product of the weight's gradient: autograd keeps this rank's part alone, and what is gathered stands in memory
that every layer uses in turn, which is leased and given back within a call. See docs/parallel.md."""
import contextlib
import functools
import os
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist

from .._checks import Error, is_a, shown
from . import leases
from .calls import has_tangent, once

GATHERED, PARTIAL = "pagestash.linear.gathered", "pagestash.linear.partial"  # names of scratch
_once = functools.partial(once, sentence="a parallel linear layer has no second derivative")


class How(NamedTuple):
    """What a call is told beside its tensors."""
    kind: str  # for messages
    group: Optional[dist.ProcessGroup]
    size: int  # of the group
    sequence_parallel: bool
    keeps: bool  # what is gathered stays for the backward
    fused: bool  # the weight's gradient is added to weight.main_grad
    scratch: leases.Scratch

    @property
    def exchanges(self):
        """Whether parts of the sequence are exchanged."""
        return self.sequence_parallel and self.size > 1

    def lease(self, name, shape, dtype, where):
        """Of scratch, for this layer."""
        return self.scratch.lease(name, shape, dtype, place=f"{self.kind}, {where}")

    def whole(self, part):
        """The shape of all ranks' parts."""
        return (part.shape[0] * self.size, *part.shape[1:])


# ---- products, and what is exchanged around them

def _rows(x):
    """[..., features] as a matrix."""
    return x.reshape(-1, x.shape[-1])


def _gather(how, part, whole):
    """Starts to gather. Answers a function that the current stream waits with."""
    return dist.all_gather_into_tensor(whole, part.contiguous(), group=how.group, async_op=True).wait


def _scatter(how, whole, part):
    """Starts to add the ranks' up and to hand the parts out."""
    return dist.reduce_scatter_tensor(part, whole, group=how.group, async_op=True).wait


def _weight_gradient(weight, how, dy, x):
    """dy' x, of matrices; or None, or what Megatron-Core's hooks want to see, where it went to main_grad."""
    if not how.fused:
        return dy.t().mm(x)
    total = weight.main_grad
    if total.dtype == dy.dtype:
        total.addmm_(dy.t(), x)
    elif dy.is_cuda:
        total.add_(torch.mm(dy.t(), x, out_dtype=total.dtype))
    else:
        total.addmm_(dy.t().to(total.dtype), x.to(total.dtype))
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    weight.grad_added_to_main_grad = True  # a gradient that is not looked at has its hooks run
    make = torch.zeros if getattr(weight, "zero_out_wgrad", False) else torch.empty
    return make(weight.shape, dtype=weight.dtype, device=weight.device)


def _cast(weight, dtype):
    """For the product; under autocast another dtype than the parameter's."""
    return weight if weight.dtype == dtype else weight.to(dtype)


def _plain(call):
    """Without autocast: its casts are done before, and it has none for products into given memory."""
    @functools.wraps(call)
    def wrapped(ctx, first, *others):
        if not torch.is_autocast_enabled(first.device.type):
            return call(ctx, first, *others)
        with torch.autocast(first.device.type, enabled=False):
            return call(ctx, first, *others)
    return wrapped


class _Column(torch.autograd.Function):
    """y = gathered(x) weight' + bias."""

    @staticmethod
    @_plain
    def forward(ctx, x, weight, bias, how):
        ctx.how, ctx.weight, whole = how, weight, x
        with contextlib.ExitStack() as ends:
            if how.exchanges and how.keeps:
                whole = x.new_empty(how.whole(x))
            elif how.exchanges:
                whole = ends.enter_context(how.lease(GATHERED, how.whole(x), x.dtype, "forward"))
            if how.exchanges:
                _gather(how, x, whole)()
            y = _rows(whole).mm(_cast(weight, x.dtype).t())
            y = y.view(*whole.shape[:-1], y.shape[-1])
        kept = whole if how.keeps else x
        ctx.save_for_backward(kept if ctx.needs_input_grad[1] else None, weight)
        return y if bias is None else y.add_(bias)

    @staticmethod
    @_plain
    @_once
    def backward(ctx, dy):
        how, wants = ctx.how, ctx.needs_input_grad
        x, weight = ctx.saved_tensors  # a checkpoint runs the forward here, which has leases of its own
        gathers = how.exchanges and not how.keeps and wants[1]
        rows, dx, dw, db = _rows(dy).contiguous(), None, None, None
        with contextlib.ExitStack() as ends:
            wait = _nothing
            if gathers:  # beside the product of the input's gradient
                whole = ends.enter_context(how.lease(GATHERED, how.whole(x), x.dtype, "backward"))
                wait = _end_with(ends, _gather(how, x, whole))
                x = whole
            if wants[0]:
                dx, added = _column_input_gradient(ends, how, dy, rows, _cast(weight, rows.dtype))
            wait()
            if wants[1]:  # beside the exchange of the input's gradient
                dw = _weight_gradient(ctx.weight, how, rows, _rows(x))
            if wants[2]:
                db = rows.sum(0)
            if wants[0]:
                added()
        return dx, dw, db, None


def _column_input_gradient(ends, how, dy, rows, weight):
    """(dy weight added up over the ranks, what waits for that)."""
    shape = (*dy.shape[:-1], weight.shape[1])
    if not how.exchanges:
        dx = rows.mm(weight).view(shape)
        if how.size == 1:
            return dx, _nothing
        return dx, _end_with(ends, dist.all_reduce(dx, group=how.group, async_op=True).wait)
    partial = ends.enter_context(how.lease(PARTIAL, shape, rows.dtype, "backward"))
    torch.mm(rows, weight, out=_rows(partial))
    dx = rows.new_empty((shape[0] // how.size, *shape[1:]))
    return dx, _end_with(ends, _scatter(how, partial, dx))


class _Row(torch.autograd.Function):
    """y = the sum of all ranks' x weight', or this rank's part of it, + bias."""

    @staticmethod
    @_plain
    def forward(ctx, x, weight, bias, how):
        ctx.how, ctx.weight = how, weight
        shape = (*x.shape[:-1], weight.shape[0])
        factor = _cast(weight, x.dtype).t()
        if how.exchanges:
            with how.lease(PARTIAL, shape, x.dtype, "forward") as partial:
                torch.mm(_rows(x), factor, out=_rows(partial))
                y = x.new_empty((shape[0] // how.size, *shape[1:]))
                _scatter(how, partial, y)()
        else:
            y = _rows(x).mm(factor).view(shape)
            if how.size > 1:
                dist.all_reduce(y, group=how.group)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return y if bias is None else y.add_(bias)

    @staticmethod
    @_plain
    @_once
    def backward(ctx, dy):
        how, wants = ctx.how, ctx.needs_input_grad
        x, weight = ctx.saved_tensors
        dx, dw, db, whole = None, None, None, dy
        with contextlib.ExitStack() as ends:
            wait = _nothing
            if how.exchanges and (wants[0] or wants[1]):
                whole = ends.enter_context(how.lease(GATHERED, how.whole(dy), dy.dtype, "backward"))
                wait = _end_with(ends, _gather(how, dy, whole))
            if wants[2]:  # the parts' sums are added up by whoever adds up the ranks' gradients
                db = _rows(dy).sum(0)
            wait()
            rows = _rows(whole).contiguous()
            if wants[0]:
                dx = rows.mm(_cast(weight, rows.dtype)).view(*whole.shape[:-1], weight.shape[1])
            if wants[1]:
                dw = _weight_gradient(ctx.weight, how, rows, _rows(x))
        return dx, dw, db, None


def _nothing():
    """There is nothing to wait for."""


def _end_with(ends, wait):
    """The same, called at the end of `ends` where it was not: before memory that is exchanged is given back."""
    calls = [wait]

    def waits():
        if calls:
            calls.pop()()

    ends.callback(waits)
    return waits


# ---- as functions

def column_parallel_linear(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None, *,
                           group: Optional[dist.ProcessGroup] = None, sequence_parallel: bool = False,
                           recompute: bool = True, gradient_accumulation_fusion: bool = False,
                           scratch: Optional[leases.Scratch] = None) -> torch.Tensor:
    """See ColumnParallelLinear; weight and bias are this rank's."""
    return _linear(_Column, "ColumnParallelLinear", x, weight, bias, group, sequence_parallel, recompute,
                   gradient_accumulation_fusion, scratch)


def row_parallel_linear(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None, *,
                        group: Optional[dist.ProcessGroup] = None, sequence_parallel: bool = False,
                        gradient_accumulation_fusion: bool = False,
                        scratch: Optional[leases.Scratch] = None) -> torch.Tensor:
    """See RowParallelLinear; weight is this rank's, bias everybody's."""
    return _linear(_Row, "RowParallelLinear", x, weight, bias, group, sequence_parallel, True,
                   gradient_accumulation_fusion, scratch)


def _linear(function, kind, *arguments):
    """A compiler breaks its graph here: leases are taken when the call runs."""
    if torch.compiler.is_compiling():
        from ._uncompiled import run  # pylint: disable=import-outside-toplevel
        return run(function, kind, *arguments)
    return run_linear(function, kind, *arguments)


def run_linear(function, kind, x, weight, bias, group, sequence_parallel, recompute, fused, scratch):
    """Runs one of the two functions."""
    group, size = group_of(group, kind)
    parts = size if function is _Row and sequence_parallel else 1
    check = functools.partial(_check, kind, x, weight, bias, parts, fused, scratch)
    if size > 1 and os.environ.get("PAGESTASH_CHECK") == "1":
        scratch = _compare(kind, group, _described(x, weight, bias, sequence_parallel, recompute, fused), check)
    else:
        scratch = check()
    dtype, keeps = _dtype(x), not recompute and torch.is_grad_enabled() and weight.requires_grad
    how = How(kind, group, size, bool(sequence_parallel), keeps, fused, scratch)
    return function.apply(x.to(dtype), weight, None if bias is None else bias.to(dtype), how)


def group_of(group, kind):
    """(group, how many ranks). None: the default one; where torch.distributed has none, one rank alone."""
    if group is None:
        if not (dist.is_available() and dist.is_initialized()):
            return None, 1
        group = dist.group.WORLD
    size = is_a(group, dist.ProcessGroup, f"{kind}: group").size()
    return group, size


def _check(kind, x, weight, bias, parts, fused, scratch):
    """The scratch that is used. Errors: what a rank can know by itself; parts: of the sequence in its input."""
    given = {"input": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, tensor in given.items():
        is_a(tensor, torch.Tensor, f"{kind}: {name}")
        if tensor.device != weight.device:
            raise Error(f"{kind}: {name} is on {tensor.device}, and weight on {weight.device}")
    if weight.dim() != 2 or x.dim() < 2 or x.shape[-1] != weight.shape[1]:
        raise Error(f"{kind}: input {tuple(x.shape)}, weight {tuple(weight.shape)}: of (rows, ..., features) "
                    "the features, and of (out, in) the second, are wanted to be the same")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise Error(f"{kind}: bias {tuple(bias.shape)}: {tuple(weight.shape[:1])} is wanted")
    if x.shape[0] % parts:
        raise Error(f"{kind}: {x.shape[0]} rows of the sequence: they are to be divided by {parts} ranks")
    if has_tangent(x, weight, bias):
        raise Error(f"{kind}: it has no forward-mode derivative")
    if fused and weight.requires_grad:
        _check_main_grad(kind, weight)
    scratch = leases.scratch.of(x.device) if scratch is None else is_a(scratch, leases.Scratch, "scratch")
    if scratch.torch_device != x.device:
        raise Error(f"{kind}: input is on {x.device}, and scratch on {scratch.torch_device}")
    _check_dtypes(kind, x, weight, bias)
    return scratch


def _check_main_grad(kind, weight):
    total = getattr(weight, "main_grad", None)
    if not isinstance(total, torch.Tensor) or total.shape != weight.shape or \
            total.dtype not in (torch.float32, weight.dtype):
        raise Error(f"{kind}: gradient_accumulation_fusion wants weight.main_grad, float32 or of the "
                    f"weight's dtype, {tuple(weight.shape)}; it is {shown(total)}")


def _described(x, weight, bias, sequence_parallel, recompute, fused):
    """What ranks are to be given alike, as they were given it, right or wrong."""
    given = {"input": x, "weight": weight, "bias": bias}
    tensors = {name: tensor for name, tensor in given.items() if isinstance(tensor, torch.Tensor)}
    call = {name: tuple(tensor.shape) if name in tensors and not tensor.is_nested else shown(tensor)
            for name, tensor in given.items()}
    if "input" in tensors:
        call |= {"dtype": str(_dtype(x)), "layout": str(x.layout), "device": x.device.type}
    wanted = [name for name, tensor in tensors.items() if tensor.requires_grad and torch.is_grad_enabled()]
    return call | {"wanted gradients": " and ".join(wanted) or "none", "recompute": bool(recompute),
                   "sequence_parallel": bool(sequence_parallel), "gradient_accumulation_fusion": bool(fused)}


def _compare(kind, group, call, check):
    """What check() answers. Tells all ranks of the group the same where they do not make the same call, before
    any of them is refused for its own part of it; what one is refused for is told to all."""
    answer = refusal = None
    try:
        answer = check()
    except RuntimeError as error:  # torch's, too: whatever it is, the others are not to wait for this rank
        refusal = error
    calls = [None] * group.size()
    dist.all_gather_object(calls, ({"layer": kind} | call, refusal and str(refusal)), group=group)
    for name, first in calls[0][0].items():
        for rank, (other, _) in enumerate(calls):
            if other[name] != first:
                raise Error(f"{kind}: {name}: rank 0 has {first}, rank {rank} has {other[name]}: the ranks are to "
                            "make the same calls in the same order")
    if refusal is not None:
        raise refusal
    for rank, (_, sentence) in enumerate(calls):
        if sentence is not None:
            raise Error(f"{kind}: rank {rank} is refused: {sentence}")
    return answer


def _dtype(x):
    """Of the product: under autocast not the input's."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _check_dtypes(kind, x, weight, bias):
    if torch.is_autocast_enabled(x.device.type):
        return
    for name, tensor in (("input", x), ("bias", bias)):
        if tensor is not None and tensor.dtype != weight.dtype:
            raise Error(f"{kind}: {name} is {tensor.dtype}, and weight {weight.dtype}")
