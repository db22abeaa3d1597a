"""Gated activations whose input goes to pages as they compute, and whose backward reads it there.

    y = pagestash.torch.glu(x, counts, stash=stash)     # (rows, 2 F) -> (rows, F); x is not kept by autograd

torch.ops.pagestash.glu is the same as an operator, for torch.compile and export; glu_forward and glu_backward
are its halves, for an autograd.Function of one's own."""
import itertools
import types
from typing import Optional, Union

import torch

from .. import pool as pools
from .._checks import Error, number_of
from . import kept, layer, rows
from .calls import KERNELS, check, handle_of, has_tangent, once, raising, tags
from .glu_ops import KINDS, TAILS, GluOps, check_input
from .stash import Stash

__all__ = ["glu", "glu_forward", "glu_backward"]

_HOW = ("int pool, str kind='swiglu', int segments=0, int interleave=0, float limit=0, float alpha=0, "
        "float bias=0, str tail='zero', int num_sms=0")
SCHEMAS = {
    # pool 0: x is kept by autograd, and not in pages.
    "glu": f"(Tensor x, Tensor counts, Tensor? probability, {_HOW}) -> Tensor",
    # What is computed, and the token of the pages, as of stash; 0 with pool 0.
    "glu_forward": f"(Tensor x, Tensor counts, Tensor? probability, {_HOW}, int site=0) -> (Tensor, Tensor)",
    # The gradients of x and of the probability, and what forward has computed; where not asked for, no
    # elements. token: with a pool; else x and counts.
    "glu_backward": "(Tensor? token, Tensor? x, Tensor gradient, Tensor? counts, Tensor? probability, "
                    f"{_HOW}, bool of_probability=False, bool output=False) -> (Tensor, Tensor, Tensor)",
}
_library = torch.library.Library("pagestash", "FRAGMENT")
for _name, _schema in SCHEMAS.items():
    _library.define(_name + _schema, tags=tags())
kernels = GluOps()
pools.watch(kernels)
_library.impl("glu_forward", kernels.forward, KERNELS)
_library.impl("glu_backward", kernels.backward, KERNELS)
_sites = itertools.count(1)


# ---- fake kernels

@torch.library.register_fake("pagestash::glu", lib=_library)
def _glu_fake(x, counts, probability, pool, kind="swiglu", segments=0, *how):
    return x.new_empty((*x.shape[:-1], check_input(x, segments)))


@torch.library.register_fake("pagestash::glu_forward", lib=_library)
def _forward_fake(x, counts, probability, pool, kind="swiglu", segments=0, *how):
    token = torch.zeros(1, dtype=torch.int64, device="cpu")
    return _glu_fake(x, counts, probability, pool, kind, segments), token


@torch.library.register_fake("pagestash::glu_backward", lib=_library)
def _backward_fake(token, x, gradient, counts, probability, pool, kind="swiglu", segments=0, interleave=0,
                   limit=0.0, alpha=0.0, bias=0.0, tail="zero", num_sms=0, of_probability=False,
                   output=False):
    shape = gradient.shape
    return (gradient.new_empty((*shape[:-1], 2 * shape[-1])),
            gradient.new_empty(shape[:-1] if of_probability else 0, dtype=torch.float32),
            gradient.new_empty(shape if output else 0))


# ---- autograd

class _Glu(torch.autograd.Function):
    """how: the operators' arguments behind the tensors."""

    @staticmethod
    def forward(ctx, x, counts, probability, site, *how):
        y, token = torch.ops.pagestash.glu_forward(x, counts, probability, *how, site)
        if how[0]:  # where the pages hold x, its rows are known, too
            ctx.save_for_backward(token, None, None, probability)
        else:
            ctx.save_for_backward(None, x, counts, probability)
        ctx.how = how
        return y

    @staticmethod
    @once
    def backward(ctx, dy):
        token, x, counts, probability = ctx.saved_tensors
        return _gradients(ctx, token, x, dy, counts, probability) + (None,) * len(ctx.how)


def _gradients(ctx, token, x, dy, counts, probability):
    """Of x, counts, probability, and one argument behind them."""
    wants = probability is not None and ctx.needs_input_grad[2]
    dx, dp, _ = torch.ops.pagestash.glu_backward(token, x, dy, counts, probability, *ctx.how, wants)
    return dx, None, dp if wants else None, None


def _wants(x, probability):
    return torch.is_grad_enabled() and (x.requires_grad or
                                        probability is not None and probability.requires_grad)


def _glu_autograd(x, counts, probability, pool, *how):
    if _wants(x, probability):
        how += _DEFAULTS[len(how):]
        return _Glu.apply(x, counts, probability, next(_sites), pool, *how)
    if has_tangent(x, probability):
        raise Error("pagestash.glu: it has no forward-mode derivative")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.pagestash.glu(x, counts, probability, pool, *how)


def _glu(x, counts, probability, pool, *how):
    """Without a gradient nothing is stashed."""
    del pool
    return torch.ops.pagestash.glu_forward(x, counts, probability, 0, *how)[0]


_DEFAULTS = ("swiglu", 0, 0, 0.0, 0.0, 0.0, "zero", 0)
_library.impl("glu", _glu, KERNELS)
_library.impl("glu", _glu_autograd, "Autograd")


class _Measured(torch.autograd.Function):
    """While a stash measures: a copy of the live rows, counted as the pages that they will be."""

    @staticmethod
    def forward(ctx, x, counts, probability, stash, *how):
        y, _ = torch.ops.pagestash.glu_forward(x, counts, probability, *how)
        shape = stash.shape_of(x.shape[-2], how[2], name="glu")
        try:
            fit = shape.choose(x, x.untyped_storage(), rows.MADE, True)
        except Error:  # rows that do not lie in turn
            x = x.contiguous()
            fit = shape.choose(x, x.untyped_storage(), rows.MADE, True)
        visit = types.SimpleNamespace(shape=shape, counts=counts, slots=[layer.Slot(None, 0, fit, x)])
        ctx.cut, ctx.fit, ctx.how = kept.Cut(stash, visit, shape.form(counts, [fit])), fit, how
        ctx.save_for_backward(counts.clone(), probability)
        return y

    @staticmethod
    @once
    def backward(ctx, dy):
        counts, probability = ctx.saved_tensors
        x, = ctx.cut.restore([ctx.fit])
        x = x if ctx.fit.exact else ctx.fit.view(x)
        return _gradients(ctx, None, x, dy, counts, probability) + (None,) * len(ctx.how)


# ---- functions for Python

@raising
def glu(x: torch.Tensor, counts: Optional[torch.Tensor] = None, kind: str = "swiglu", *,
        stash: Union[None, Stash, pools.Pool, int] = None, probability: Optional[torch.Tensor] = None,
        segments: int = 0, interleave: int = 0, limit: Optional[float] = None,
        alpha: Optional[float] = None, bias: Optional[float] = None, tail: str = "zero",
        num_sms: int = 0) -> torch.Tensor:
    """probability * act(gate) * up of each live row of x, (capacity, 2 F) or (segments, capacity, 2 F), of
    bfloat16, float16 or float32; computed in float32, rounded once: (capacity, F) or (segments, capacity, F).

    Where a gradient is wanted, the live rows of x go into pages of the stash in the launch that computes;
    the backward reads them there, in one launch, too, and frees them. Nothing else keeps x.

    counts: of live rows, as for Stash.layer, int32 or int64; None: all are.
    kind: "swiglu", "geglu", "geglu_tanh", "reglu", "quick_geglu", or "clamped": gpt-oss's, with alpha, bias
        and limit (1.702, 1 and 7).
    stash: a Stash, a Pool with a slab of tickets, or Pool.handle. None: autograd keeps x.
    probability: of each row, (capacity) or (capacity, 1), with segments (segments, capacity) or with a 1
        behind. Another dtype is cast to float32. It has a gradient.
    interleave: 0: the gates are the first half of a row; 1 or 32: one gate and one up, or so many, in turn.
    tail: "zero": rows behind the live ones are zeros, in y and in the gradient of x. "untouched": they are
        whatever the memory held, for products that do not read them.
    Of a step that failed y is right, and the gradients are zeros.
    Errors: Error: shapes, dtypes; a pool that is closed, or has no ticket; a second backward."""
    given = {"x": x, "counts": counts, "probability": probability}
    check(numbers=(("segments", segments), ("num_sms", num_sms), ("interleave", interleave)),
          **{name: tensor for name, tensor in given.items() if name == "x" or tensor is not None})
    check_input(x, segments)
    number_of(TAILS, tail, "tail")
    limit, alpha, bias = _numbers(kind, limit, alpha, bias)
    if counts is None:
        counts = torch.full((max(segments, 1),), x.shape[-2], dtype=torch.int32, device=x.device)
    if probability is not None:
        probability = probability.float()
        if probability.dim() == x.dim():
            probability = probability.squeeze(-1)
    if isinstance(stash, Stash):
        num_sms = num_sms or stash.num_sms
        measures = stash.needs_measuring()  # and that it is open
        if measures and x.numel() and _wants(x, probability):
            return _Measured.apply(x, counts, probability, stash, 0, kind, segments, interleave, limit,
                                   alpha, bias, tail, num_sms)
        stash = stash.pool
    pool = 0 if stash is None else handle_of(stash, "stash")
    return torch.ops.pagestash.glu(x, counts, probability, pool, kind, segments, interleave, limit, alpha,
                                   bias, tail, num_sms)


def _numbers(kind, limit, alpha, bias):
    """Of "clamped" gpt-oss's where none is given; others have none."""
    number_of(KINDS, kind, "kind")
    given = {"limit": limit, "alpha": alpha, "bias": bias}
    if kind == "clamped":
        usual = {"limit": 7.0, "alpha": 1.702, "bias": 1.0}
        return tuple(float(usual[name] if value is None else value) for name, value in given.items())
    for name, value in given.items():
        if value is not None:
            raise Error(f"{name} {value!r}: kind {kind} has none, only clamped has")
    return 0.0, 0.0, 0.0


@raising
def glu_forward(x: torch.Tensor, counts: torch.Tensor, pool, kind: str = "swiglu", *,
                probability: Optional[torch.Tensor] = None, segments: int = 0, interleave: int = 0,
                limit: Optional[float] = None, alpha: Optional[float] = None, bias: Optional[float] = None,
                tail: str = "zero", num_sms: int = 0):
    """(what glu computes, the token of the pages that hold x). Without a gradient of its own, for the forward
    of an autograd.Function. probability: float32, (capacity) or (segments, capacity)."""
    return torch.ops.pagestash.glu_forward(
        x, counts, probability, handle_of(pool), kind, segments, interleave,
        *_numbers(kind, limit, alpha, bias), tail, num_sms)


@raising
def glu_backward(token: torch.Tensor, gradient: torch.Tensor, pool, kind: str = "swiglu", *,
                 probability: Optional[torch.Tensor] = None, segments: int = 0, interleave: int = 0,
                 limit: Optional[float] = None, alpha: Optional[float] = None, bias: Optional[float] = None,
                 tail: str = "zero", num_sms: int = 0, output: bool = False):
    """(gradient of x, that of the probability or None, what glu_forward computed or None) of the gradient of
    what it computed; frees the pages. output: that is wanted once more, so that nobody has to keep it for
    the gradient of the next product's weight. The other arguments as for glu_forward."""
    wants = probability is not None
    dx, dp, y = torch.ops.pagestash.glu_backward(
        token, None, gradient, None, probability, handle_of(pool), kind, segments, interleave,
        *_numbers(kind, limit, alpha, bias), tail, num_sms, wants, output)
    return dx, dp if wants else None, y if output else None
