"""Which saved tensors are rows of a layer, and where their rows lie in memory."""
import itertools
import operator
from typing import Callable, Optional, Union

import torch

from .._c import Error
from ..pool import Form, Rows, Space

PLAIN = (torch.Tensor, torch.nn.Parameter)
_MOST_FITS = 1024  # that a layer's shape remembers
COUNT_TYPES = {torch.int32: 4, torch.int64: 8}
MAKERS = {}          # origin of what nodes of a type made that is not in the next list, as far as met
_MOST_MAKERS = 1024
# Nodes whose result has the bytes of what they got, or a cast of them.
_SAME_TENSOR = frozenset(
    f"{name}Backward0" for name in (
        "Alias", "AsStrided", "Clone", "Expand", "Permute", "ReshapeAlias", "_ReshapeAlias", "Select",
        "Slice", "Split", "SplitWithSizes", "T", "ToCopy", "Transpose", "Unbind", "UnsafeView",
        "Unsqueeze", "View")) | {"TransposeBackward1", "SqueezeBackward1", "ToBackward0"}

# Nodes by which one weight is made of several.
_MAKES_WEIGHTS = frozenset(f"{name}Backward0" for name in (
    "Add", "Bmm", "Cat", "Div", "LinalgVectorNorm", "Mm", "Mul", "Norm", "Pow", "Sqrt", "Stack", "Sub",
    "Sum", "WeightNormInterface")) | {"NormBackward1", "SumBackward1"}
_Tensor = torch.Tensor
_Leaf = torch._C._functions.AccumulateGrad
_MOST_NODES = 256  # of a tensor's history that are looked at

#: What a caller's `select` answers for a saved tensor: None (the rule decides), False (it stays in memory),
#: True (it has the rows of the layer) or (num, den) (it has rows * num / den of them, rounded up). What is
#: chosen and contiguous may also be flat, cut into so many equal rows, or have rows of several dimensions.
Choice = Union[None, bool, tuple[int, int]]


class Fit:
    """How tensors of one geometry lie in their rows. Of one geometry there is one Fit in a Shape.

    place: (row_bytes, row_stride, num, den), or None: it has no such rows, and `why` says it where somebody
    may have meant it. offset: bytes from the storage's begin to the first row. whole: the rows are all of
    the storage, so every view of it is served by the same copy. What is restored has packed rows: there
    the tensor has `strides` and the element offset `start`, in `nbytes` bytes; exact: and is all of them.
    leads: the rows are its first dimensions, too; where they are not, a weight may look like this."""
    __slots__ = ("place", "why", "offset", "whole", "dtype", "size", "strides", "start", "nbytes",
                 "exact", "leads")

    def __init__(self, tensor, why=""):
        self.place, self.why, self.dtype, self.size = None, why, tensor.dtype, tensor.shape

    def allocate(self, device):
        """A tensor for the rows to be restored into."""
        if self.exact:
            return torch.empty_strided(self.size, self.strides, dtype=self.dtype, device=device)
        return torch.empty(self.nbytes, dtype=torch.uint8, device=device)

    def view(self, restored):
        """The tensor of this geometry in what was restored."""
        return torch.empty(0, dtype=self.dtype, device=restored.device).set_(
            restored.untyped_storage(), self.start, self.size, self.strides)


class Shape:
    """The rows of a layer: `capacity` of them, or of each of `segments` slabs; and what was found out about
    the tensors that are saved in such a layer."""

    def __init__(self, capacity: int, segments: int = 0, ratios: tuple = (),
                 select: Optional[Callable[[torch.Tensor], Choice]] = None, name: str = ""):
        self.capacity, self.segments, self.ratios = capacity, segments, ratios
        self.select, self.name = select, name
        self.fits = {}   # by geometry
        self.forms = {}  # by counts and fits: (Form of a stash, Form of a restore)
        self.numbers, self.plans = {}, {}  # of known.py

    def choose(self, tensor, storage, origin, choice=None):
        """The Fit of a saved tensor of that origin; its place is None where it stays in memory. choice: of
        `select`."""
        key = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), storage.nbytes()
        if choice is False:
            return Fit(tensor)
        if origin == NEGATED or choice is not None and tensor.is_conj():
            return Fit(tensor, "is a view that negates what is in memory")
        if type(tensor) not in PLAIN and not _has_own_memory(storage):
            return Fit(tensor, f"is a {type(tensor).__name__}, whose bytes are in other tensors")
        if choice is not None:
            return self._chosen(tensor, storage, key, (1, 1) if choice is True else choice)
        fit = self.fits.get(key)
        if fit is None:
            fit = self._remember(key, self._by_rule(tensor, storage))
        if fit.place is not None or fit.why:
            if origin == OF_PARAMETER or origin != MADE and is_of_parameter(tensor):
                return Fit(tensor)
        return fit

    def _chosen(self, tensor, storage, key, ratio):
        if not is_ratio(ratio):
            raise Error(f"layer {self.name!r}: select answered {ratio!r}; allowed: None, False, True, "
                        "(num, den) with 0 < num <= den")
        fit = self.fits.get((key, ratio))
        if fit is None:
            fit = _fit(tensor, storage, self, ratio) or _flat_fit(tensor, storage, self, ratio)
            if fit is None:
                raise Error(f"layer {self.name!r}: select chose a tensor of shape {tuple(tensor.shape)}, "
                            f"strides {tensor.stride()}, which has no {self._text(ratio)}")
            self._remember((key, ratio), fit)
        return fit

    def _remember(self, key, fit):
        if len(self.fits) >= _MOST_FITS:  # a model whose tensors differ in each step
            self.fits.clear()
            self.forms.clear()
        self.fits[key] = fit
        return fit

    def _by_rule(self, tensor, storage):
        if not tensor.is_floating_point() or not tensor.dim() or not tensor.numel() or \
                tensor.layout != torch.strided:
            return Fit(tensor)
        for ratio in ((1, 1),) + self.ratios:
            fit = _fit(tensor, storage, self, ratio)
            if fit is not None:
                return fit
        return Fit(tensor, f"has no {self._text((1, 1))}" if tensor.numel() >= self.capacity else "")

    def _text(self, ratio):
        rows = self.inner(ratio)
        return f"{self.segments} x {rows} rows" if self.segments else f"{rows} rows"

    def inner(self, ratio):
        """Rows of a slab."""
        return -(-self.capacity * ratio[0] // ratio[1])

    def form(self, counts, fits):
        """(Form of the stash, Form of the restore, where rows are packed) of tensors with these Fits."""
        key = counts.numel(), counts.dtype, *fits
        forms = self.forms.get(key)
        if forms is None:
            if len(self.forms) >= _MOST_FITS:
                self.forms.clear()
            if self.segments:
                kind, num = "segments", self.segments
            else:
                kind, num = ("prefix", 0) if counts.numel() == 1 else ("sum", counts.numel())
            space = Space(self.capacity, kind, num, COUNT_TYPES[counts.dtype])
            places = [fit.place for fit in fits]
            forms = self.forms[key] = (
                Form([space], [Rows(row, stride, 0, num, den) for row, stride, num, den in places]),
                Form([space], [Rows(row, 0, 0, num, den) for row, _, num, den in places]))
        return forms


def is_ratio(value):
    """Whether it is (num, den), a share of rows."""
    return isinstance(value, tuple) and len(value) == 2 and \
        all(isinstance(part, int) and 0 < part < 1 << 32 for part in value) and value[0] <= value[1]


def check_counts(counts, shape, device):
    """Raises where counts are not what a launch can read."""
    if not isinstance(counts, torch.Tensor):
        raise Error(f"counts: {type(counts).__name__}; allowed is a tensor of int32 or int64")
    if counts.dtype not in COUNT_TYPES:
        raise Error(f"counts: {counts.dtype}; allowed are torch.int32, torch.int64")
    if counts.device != device:
        raise Error(f"counts are on {counts.device}; the stash is on {device}")
    if not counts.is_contiguous():
        raise Error(f"counts have strides {counts.stride()}; they must be contiguous")
    num = counts.numel()
    if num != shape.segments if shape.segments else num < 1:
        allowed = f"{shape.segments}, as segments says" if shape.segments else "at least 1"
        raise Error(f"counts: {num} elements; allowed: {allowed}")


def _row_dims(tensor, outer, inner):
    """The dimensions that count rows: one of outer * inner, or two, slabs outside. None where another one has a
    larger stride."""
    sizes, strides = tensor.shape, tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    order = [d for d in order if sizes[d] != 1] or order[:1]
    if sizes[order[0]] == outer * inner:
        return (order[0],)
    if len(order) > 1 and sizes[order[0]] == outer and sizes[order[1]] == inner and \
            strides[order[0]] == inner * strides[order[1]]:
        return tuple(order[:2])
    return None


def _fit(tensor, storage, shape, ratio):
    """The Fit of a tensor whose rows are the layer's, times the ratio; None if they are not."""
    inner = shape.inner(ratio)
    dims = _row_dims(tensor, shape.segments or 1, inner)
    if dims is None:
        return None
    item, rows = tensor.element_size(), inner * (shape.segments or 1)
    strides, sizes = tensor.stride(), tensor.shape
    offset = tensor.storage_offset() * item
    extent = item * (1 + sum((sizes[d] - 1) * strides[d] for d in range(len(sizes)) if d not in dims))
    stride = max(strides[dims[-1]] * item, extent if rows == 1 else 0)
    if not extent <= stride:
        return None
    fit = Fit(tensor)
    fit.leads = dims == tuple(d for d in range(len(sizes)) if sizes[d] != 1)[:len(dims)] or rows == 1
    fit.whole = storage.nbytes() == rows * stride and offset + extent <= stride
    if fit.whole:
        fit.place, fit.offset, fit.nbytes = (stride, stride, *ratio), 0, rows * stride
        fit.strides, fit.start = strides, tensor.storage_offset()
    else:
        fit.place, fit.offset, fit.nbytes = (extent, stride, *ratio), offset, rows * extent
        packed, step = list(strides), extent // item
        for d in reversed(dims):
            packed[d], step = step, step * sizes[d]
        fit.strides, fit.start = tuple(packed), 0
    fit.exact = fit.start == 0 and tensor.numel() * item == fit.nbytes
    return fit


def _flat_fit(tensor, storage, shape, ratio):
    """The Fit of a contiguous tensor whose rows are equal parts of its one dimension, or whose leading
    dimensions together count them."""
    rows = shape.inner(ratio) * (shape.segments or 1)
    if not tensor.is_contiguous() or tensor.numel() % rows or not tensor.numel():
        return None
    if tensor.dim() > 1 and rows not in itertools.accumulate(tensor.shape, operator.mul):
        return None
    fit = Fit(tensor)
    fit.leads = True
    fit.nbytes = tensor.numel() * tensor.element_size()
    fit.place = (fit.nbytes // rows, fit.nbytes // rows, *ratio)
    fit.offset, fit.start = tensor.storage_offset() * tensor.element_size(), 0
    fit.whole, fit.exact = storage.nbytes() == fit.nbytes, True
    fit.strides = tensor.stride()
    return fit


def _has_own_memory(storage):
    """False of wrappers of other tensors, as quantised ones are."""
    try:
        storage.data_ptr()
    except RuntimeError:
        return False
    return True


MADE, OF_PARAMETER, NO_HISTORY, NEGATED = range(4)


def origin(tensor):
    """Where a tensor comes from: OF_PARAMETER, NO_HISTORY, or MADE of other things; a name where that may be
    parameters."""
    if tensor.is_neg():
        return NEGATED
    node = tensor.grad_fn
    if node is None:
        return OF_PARAMETER if tensor.requires_grad else NO_HISTORY
    kind, name = type(node), node.name()
    if name in _SAME_TENSOR:
        return OF_PARAMETER if is_of_parameter(tensor) else MADE
    made = name if name in _MAKES_WEIGHTS else MADE
    # Nodes that torch's Python does not know have one type, whatever their names are. A view may negate.
    if not tensor._is_view() and kind.__name__ == name and len(MAKERS) < _MOST_MAKERS:
        MAKERS[kind] = made
    return made


def is_of_parameter(tensor):
    """Whether it is a leaf that wants a gradient, a parameter mostly, or a view or cast of one, or made of
    parameters alone: stacked, say, or with an adapter added."""
    node = tensor.grad_fn
    if node is None:
        base = tensor if tensor._base is None else tensor._base
        return base.requires_grad and base.is_leaf
    if node.name() in _MAKES_WEIGHTS:  # of activations mostly
        first = node.next_functions[0][0]
        if first is None or MAKERS.get(type(first)) == MADE or \
                type(first) is _Leaf and type(first.variable) is _Tensor:
            return False
    left, num = (), 0
    while True:
        if type(node) is _Leaf:
            if not _is_parameter(node.variable):
                return False
            if not left:
                return True
            *left, (node, _) = left
        elif (name := node.name()) in _SAME_TENSOR:
            node = node.next_functions[0][0]
        elif name in _MAKES_WEIGHTS:
            (node, _), *more = node.next_functions
            left = (*left, *more)
        else:
            return False
        num += 1
        if node is None or num > _MOST_NODES:
            return False


def _is_parameter(leaf):
    """isinstance, which is slow of parameters' class."""
    return type(leaf) is not _Tensor and isinstance(leaf, torch.nn.Parameter)
