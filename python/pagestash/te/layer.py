"""A layer of Transformer Engine: marked tensors go to pages, quantised ones as their data and scales."""
import itertools
import operator
from typing import Callable, Optional, Union

import torch

from .._checks import Error, is_a
from ..torch import layer as visits
from ..torch.rows import is_of_parameter
from ..torch.stash import Stash
from . import markers
from .markers import ROWS


def layer(stash, counts: Union[torch.Tensor, Callable[[], torch.Tensor]], capacity: int,
          segments: int = 0, *, num_groups: Optional[int] = None, unmarked: bool = False,
          name: str = "") -> "Layer":
    """A context like Stash.layer for what Transformer Engine saves in it.

    counts: of rows, as Transformer Engine sees them: its split sizes, with the rows that it pads each
        group by. capacity: rows of its input (of a slab, with segments).
    num_groups: None: as many as counts; of a function 1. With one group, flat scales that come without
        their quantised object stay: Transformer Engine may have laid them out by the capacity.
    unmarked: plain tensors without a marker go by the rule of Stash.layer. Otherwise they stay;
        one that may be rows is named once in the log.
    Errors: those of Stash.layer; a marked tensor that has not the rows of the layer, when it is saved."""
    return Layer(stash, counts, capacity, segments, num_groups, unmarked, name)


class Layer:
    """What `layer` answers. One pass: not entered twice."""

    def __init__(self, stash, counts, capacity, segments, num_groups, unmarked, name):
        self.stash, self.capacity, self.unmarked, self.name = stash, capacity, unmarked, name
        is_a(stash, Stash, "stash")
        if num_groups is None:
            num_groups = counts.numel() if isinstance(counts, torch.Tensor) else 1
        self.one_group = num_groups == 1
        visit = stash.layer(counts, capacity, segments, name=name)
        # Nothing is stashed without grad and inside a backward.
        self.visit = visit if isinstance(visit, visits.Visit) else None
        self.apart = visit if isinstance(visit, visits.Apart) else None
        self.rows = capacity * (segments or 1) if self.visit is not None else 0
        self.hooks = None

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, kind, error, trace):
        self.end()
        if self.visit is not None:
            self.visit.finish(kind is not None)

    def begin(self) -> None:
        """From here on saved tensors are packed."""
        self.hooks = self.apart
        if self.visit is not None:
            self.hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        if self.hooks is not None:
            self.hooks.__enter__()

    def end(self) -> None:
        """No more; what was packed waits for visit.finish()."""
        hooks, self.hooks = self.hooks, None  # which refer to this layer
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def _pack(self, tensor):
        """A hook of autograd."""
        choice = markers.marked(tensor)
        if choice is False:
            return tensor
        if hasattr(tensor, "prepare_for_saving"):
            return self._pack_quantised(tensor)
        return self._pack_plain(tensor, choice, flat_scales=not self.one_group)

    def _pack_quantised(self, tensor):
        choices = self._of_parts(tensor)
        logical = getattr(tensor, "logical_shape", tensor.shape)
        if not any(choices.values()):
            if _leads(logical, self.rows) and not is_of_parameter(tensor):
                self._stays(tensor, "has no marker")
            return tensor
        if not _leads(logical, self.rows):
            raise Error(f"layer {self.name!r} saves a {type(tensor).__name__} of shape {tuple(logical)}, "
                        f"which has not the {self.rows} rows of the layer")
        shell = tensor.detach()  # its parts are taken out; `tensor` is the caller's
        by_id = {id(part): choices[name] for name, part in markers.parts_of(shell).items()}
        saved, shell = shell.prepare_for_saving()
        return _Quantised(shell, [
            self._pack_plain(part, by_id[id(part)], flat_scales=True) if by_id.get(id(part)) else part
            for part in saved])

    def _of_parts(self, tensor):
        """The Choice for each part of a quantised tensor, by attribute; False: it stays."""
        whole, known = markers.marked(tensor), markers.choices_of(tensor)
        choices = {}
        for name, part in markers.parts_of(tensor).items():
            choice = markers.marked(part)
            if choice is None and whole or known.get(name) is False:
                choice = known.get(name)
            choices[name] = choice or False
        return choices

    def _pack_plain(self, tensor, choice, flat_scales):
        if choice is None and not self.unmarked:
            self._name_unmarked(tensor)
            return tensor
        if choice is ROWS:
            choice = self._data(tensor)
        elif choice is not None:
            choice = self._scales(tensor, choice, flat_scales)
        return tensor if choice is False else self._pack_base(tensor, choice)

    def _name_unmarked(self, tensor):
        """Once, where it may be rows whose marker was lost."""
        if (tensor.is_floating_point() or tensor.dtype == torch.uint8) and self._has_rows(tensor) and \
                not is_of_parameter(tensor):
            self._stays(tensor, "has no marker")

    def _has_rows(self, tensor):
        flat = tensor.dim() == 1 and tensor.numel() and tensor.numel() % self.rows == 0
        return flat or _leads(tensor.shape, self.rows)

    def _data(self, tensor):
        """True, or False for what is empty. Errors: it has not the rows."""
        if not tensor.numel():
            return False
        if self._has_rows(tensor):
            return True
        base = _base_of(tensor)
        if base is not None and _leads(base.shape, self.rows):
            return True
        raise Error(f"layer {self.name!r} saves a marked tensor of shape {tuple(tensor.shape)}, strides "
                    f"{tensor.stride()}, which has not the {self.rows} rows of the layer")

    def _scales(self, tensor, ratio, flat_scales):
        """(num, den) of the rows, by the padded ones that are there; False: they stay in memory."""
        num, den = ratio
        if self.capacity != self.rows and self.capacity * num % den:
            return self._stays(tensor, f"has scales of slabs that are no multiple of {den} rows")
        least = -(-self.rows * num // den)
        if tensor.dim() == 1:
            if not flat_scales:
                return self._stays(tensor, "has the scales of one group")
            if not tensor.numel() or tensor.numel() % least:
                return self._stays(tensor, f"has not {least} rows of scales")
            return ratio
        have = tensor.shape[0]
        if have == least:
            return ratio
        if least < have <= self.rows == self.capacity:  # padded
            return have, self.rows
        return self._stays(tensor, f"has not {least} rows of scales")

    def _stays(self, tensor, why):
        self.stash.name_kept(self.name, tensor, why)
        return False

    def _pack_base(self, tensor, choice):
        """Packs the base of a view where Transformer Engine would, so that views share its rows."""
        base = None if isinstance(choice, tuple) else _base_of(tensor)
        if base is None or not _leads(base.shape, self.rows):
            return self.visit.pack(tensor, choice)
        return _View(self.visit.pack(base, choice), tensor, base)


def _base_of(tensor):
    """The base that is saved instead of a view of it; None: the tensor itself is."""
    base = tensor._base
    if base is None or not base.is_contiguous():
        return None
    if getattr(tensor, markers.BASE, False) or base.numel() == tensor.numel():
        return base
    return None


def _leads(shape, rows):
    """Whether the leading dimensions of a shape count the rows."""
    return rows in itertools.accumulate(shape, operator.mul)


class _View:
    """A view of a tensor that is saved whole."""
    __slots__ = ("base", "dtype", "size", "strides", "shift")

    def __init__(self, saved, tensor, base):
        self.base, self.dtype = saved, tensor.dtype
        self.size, self.strides = tensor.shape, tensor.stride()
        self.shift = tensor.storage_offset() * tensor.element_size() - \
            base.storage_offset() * base.element_size()

    def unpack(self):
        base = _unpack(self.base)
        begin = base.storage_offset() * base.element_size() + self.shift
        return torch.empty(0, dtype=self.dtype, device=base.device).set_(
            base.untyped_storage(), begin // self.dtype.itemsize, self.size, self.strides)


class _Quantised:
    """A quantised tensor: its parts, and an object of its class without them."""
    __slots__ = ("shell", "parts")

    def __init__(self, shell, parts):
        self.shell, self.parts = shell, parts

    def unpack(self):
        shell = self.shell
        shell.restore_from_saved([_unpack(part) for part in self.parts])
        whole = shell.detach()      # a second backward finds the shell empty again, and no memory in it
        shell.prepare_for_saving()
        return whole


def _unpack(saved):
    """A hook of autograd."""
    if isinstance(saved, (_Quantised, _View)):
        return saved.unpack()
    return visits.unpack(saved)
