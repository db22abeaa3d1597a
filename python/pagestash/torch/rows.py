"""Which saved tensors are rows of a layer, and where their rows lie in memory."""
import dataclasses
from typing import Callable, Optional, Union

import torch

from .._c import Error
from ..pool import Space

COUNT_TYPES = {torch.int32: 4, torch.int64: 8}
_MOST_STEPS = 8  # from a tensor back to the parameter that it is a view or a cast of

#: What a caller's `select` answers for a saved tensor: None (the rule decides), False (it stays in memory),
#: True (it has the rows of the layer) or (num, den) (it has rows * num / den of them, rounded up).
Choice = Union[None, bool, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The rows of a layer: `capacity` of them, or of each of `segments` slabs."""
    capacity: int
    segments: int = 0
    ratios: tuple = ()
    select: Optional[Callable[[torch.Tensor], Choice]] = None
    name: str = ""

    def space(self, counts: torch.Tensor) -> Space:
        """The row space of these counts. Errors: their number."""
        if self.segments:
            kind, num = "segments", self.segments
        else:
            kind, num = ("prefix", 0) if counts.numel() == 1 else ("sum", counts.numel())
        return Space(self.capacity, kind, num, COUNT_TYPES[counts.dtype])


def check_counts(counts, shape, device):
    """Raises where counts are not what a launch can read."""
    if not isinstance(counts, torch.Tensor):
        raise Error(f"counts: {type(counts).__name__}; allowed is a tensor of int32 or int64")
    if counts.dtype not in COUNT_TYPES:
        raise Error(f"counts: {counts.dtype}; allowed are torch.int32, torch.int64")
    if counts.device != device:
        raise Error(f"counts are on {counts.device}; the stash is on {device}")
    if not counts.is_contiguous():
        raise Error(f"counts have strides {tuple(counts.stride())}; they must be contiguous")
    if shape.segments and counts.numel() != shape.segments:
        raise Error(f"counts: {counts.numel()} elements; segments={shape.segments}")
    if not counts.numel():
        raise Error("counts: 0 elements; allowed are 1, or one for each expert or segment")


class Place:
    """Where the rows of a tensor lie: from `offset` (bytes of its storage) on, row_bytes each, row_stride
    apart. whole: the rows are all of the storage, so every view of it is served by the same copy."""
    __slots__ = ("offset", "row_bytes", "row_stride", "num", "den", "whole", "row_dims")

    def __init__(self, offset, row_bytes, row_stride, ratio, whole, row_dims):
        self.offset, self.row_bytes, self.row_stride = offset, row_bytes, row_stride
        self.num, self.den = ratio
        self.whole, self.row_dims = whole, row_dims


def _row_dims(tensor, outer, inner):
    """The dimensions that count rows: one of outer * inner, or (inner > 0) two, slabs outside. Only where no
    other dimension has a larger stride."""
    sizes, strides = tensor.shape, tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    order = [d for d in order if sizes[d] != 1] or order[:1]
    if sizes[order[0]] == outer * inner:
        return (order[0],)
    if len(order) > 1 and sizes[order[0]] == outer and sizes[order[1]] == inner and \
            strides[order[0]] == inner * strides[order[1]]:
        return tuple(order[:2])
    return None


def place(tensor, shape, ratio=(1, 1)):
    """The Place of a tensor whose rows are the layer's, times the ratio; None if they are not."""
    num, den = ratio
    inner = -(-shape.capacity * num // den)
    dims = _row_dims(tensor, shape.segments or 1, inner)
    if dims is None:
        return None
    item, rows = tensor.element_size(), inner * (shape.segments or 1)
    stride = tensor.stride(dims[-1]) * item
    offset, nbytes = tensor.storage_offset() * item, tensor.untyped_storage().nbytes()
    extent = item * (1 + sum((size - 1) * step for d, (size, step) in
                             enumerate(zip(tensor.shape, tensor.stride())) if d not in dims))
    if rows == 1:
        stride = max(stride, extent)
    if stride < extent or not stride:
        return None
    if nbytes == rows * stride and offset + extent <= stride:
        return Place(0, stride, stride, ratio, True, dims)
    return Place(offset, extent, stride, ratio, False, dims)


def is_of_parameter(tensor):
    """Whether it is a parameter, a view of one, or made of one alone (a cast of autocast's, say)."""
    base = tensor if tensor._base is None else tensor._base
    if isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad):
        return True
    node = tensor.grad_fn
    for _ in range(_MOST_STEPS):
        if node is None:
            return False
        following = [edge for edge, _ in node.next_functions if edge is not None]
        if len(following) != 1:
            return False
        if hasattr(following[0], "variable"):
            return isinstance(following[0].variable, torch.nn.Parameter)
        node = following[0]
    return False


def choose(tensor, shape):
    """(Place, "") of a saved tensor that is to be stashed; (None, why) of one that stays in memory and
    that somebody may have meant, else (None, "")."""
    choice = shape.select(tensor) if shape.select else None
    if choice is False:
        return None, ""
    if choice is not None:
        ratio = (1, 1) if choice is True else choice
        found = place(tensor, shape, ratio)
        if found is None:
            raise Error(f"layer {shape.name!r}: select chose a tensor of shape {tuple(tensor.shape)}, "
                        f"strides {tuple(tensor.stride())}, which has no {_rows_text(shape, ratio)}")
        return found, ""
    if not tensor.is_floating_point() or not tensor.dim() or not tensor.numel() or \
            tensor.is_leaf and tensor.requires_grad or tensor.layout != torch.strided:
        return None, ""
    for ratio in ((1, 1),) + shape.ratios:
        found = place(tensor, shape, ratio)
        if found is not None:
            return (None, "") if is_of_parameter(tensor) else (found, "")
    if is_of_parameter(tensor) or tensor.numel() < shape.capacity:
        return None, ""
    return None, f"has no {_rows_text(shape, (1, 1))}"


def _rows_text(shape, ratio):
    rows = -(-shape.capacity * ratio[0] // ratio[1])
    return f"{shape.segments} x {rows} rows" if shape.segments else f"{rows} rows"
