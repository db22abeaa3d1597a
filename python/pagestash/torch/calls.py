"""What all of torch.ops.pagestash.* share: how they are declared, and how they raise for Python."""
import functools
import re

import torch

from .. import pool as pools
from .._checks import Error, is_a, within

KERNELS = "CompositeExplicitAutograd"


def tags():
    """Tickets are taken on the host: a graph of CUDA must not replay that (torch.cuda.graph, which captures
    whole iterations, may)."""
    names = ("pt2_compliant_tag", "cudagraph_unsafe",
             "needs_exact_strides" if hasattr(torch.Tag, "needs_exact_strides")
             else "needs_fixed_stride_order")
    return tuple(getattr(torch.Tag, name) for name in names if hasattr(torch.Tag, name))


_STATUS = re.compile(r"\b(PST_E_[A-Z_]+): ")


def as_error(error):
    """The Error that torch has made a RuntimeError of; what is not of ours as it is."""
    text = str(error)
    status = _STATUS.search(text)
    if isinstance(error, Error) or status is None and "pagestash" not in text:
        return error
    return Error(text, status[1] if status else "")


def raising(call):
    """Error instead of torch's RuntimeError, outside of torch.compile."""
    @functools.wraps(call)
    def wrapped(*args, **kwargs):
        if torch.compiler.is_compiling():
            return call(*args, **kwargs)
        try:
            return call(*args, **kwargs)
        except RuntimeError as error:
            raise as_error(error) from None
    return wrapped


def once(backward, sentence="an activation in pages has no second derivative"):
    """A backward that cannot be differentiated itself: what it gives raises where a second one gets to it. As
    torch's once_differentiable, which does so only where the gradients that come in require one."""
    @functools.wraps(backward)
    def wrapped(ctx, *gradients):
        with torch.no_grad():
            found = backward(ctx, *gradients)
        if not torch.is_grad_enabled():
            return found
        error = torch._C._functions.DelayedError(f"pagestash: {sentence}".encode(), len(found))
        return error(*(None if one is None else one.detach().requires_grad_() for one in found))
    return wrapped


def has_tangent(*tensors):
    """Whether forward-mode differentiation is under way with one of these."""
    mode = torch.autograd.forward_ad
    return mode._current_level >= 0 and any(
        tensor is not None and mode.unpack_dual(tensor).tangent is not None for tensor in tensors)


def handle_of(pool, what="pool"):
    """The number that operators know a pool by."""
    handle = pool if isinstance(pool, int) else is_a(pool, pools.Pool, what).handle
    if handle is None:
        raise Error("the pool is closed")
    if not torch.compiler.is_compiling():
        within(handle, "pool", 0, (1 << 63) - 1)
    return handle


def check(tensors=(), numbers=(), **one):
    """Raises where a tensor is none, or a number none that torch can pass on; a compiler looks for itself."""
    if torch.compiler.is_compiling():
        return
    for name, given in [*one.items(), *((f"tensor {i}", tensor) for i, tensor in enumerate(tensors))]:
        is_a(given, torch.Tensor, name)
    for name, number in numbers:
        within(number, name, -1 << 31, (1 << 63) - 1)
