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
