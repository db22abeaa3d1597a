"""The scheduler with tensors of torch: keeps a layer's tensors until their stash has read them, allocates
what they are restored into, and hands it back."""
import math
from typing import Iterable, Optional, Sequence

import torch

from .. import pool as _pool
from .._checks import Error, integer, is_a, listed
from ._layers import Buffers, Layer, bytes_at_capacity, device_of
from ._order import Schedule
from ._scheduler import Scheduler
from ._visit import Visit
from ._words import PASSES, stream_of

_COUNT_TYPES = {torch.int32: 4, torch.int64: 8}


def form_of(tensors: Sequence[torch.Tensor], counts: torch.Tensor, *, segments: int = 0,
            sums: bool = False) -> _pool.Form:
    """The Form of tensors like these, also of device "meta", and of their row counts.

    tensors: contiguous, rows in the first dimension ([capacity, ...]), or with segments E
    [E * capacity, ...]; all of one capacity. counts: int32 or int64; one element (rows [0, count) are
    live), with sums as many as are summed, with segments E. Errors: Error with tensor and shape."""
    tensors = listed(tensors, "tensors", "a sequence of tensors")
    for i, tensor in enumerate(tensors):
        is_a(tensor, torch.Tensor, f"tensors[{i}]")
    if not tensors:
        raise Error("form_of: no tensors")
    is_a(counts, torch.Tensor, "counts")
    segments = integer(segments, "segments")
    if counts.dtype not in _COUNT_TYPES:
        raise Error(f"counts: {counts.dtype}: allowed are int32 and int64")
    rows = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors}
    if len(rows) != 1 or 0 in rows:
        raise Error(f"form_of: rows {sorted(rows)}: all tensors have the same, at least one")
    capacity, kind, number = rows.pop(), "prefix", 0
    if segments or sums:
        kind, number = ("segments", segments) if segments else ("sum", counts.numel())
    elif counts.numel() != 1:
        raise Error(f"counts: {counts.numel()} elements: one, or say segments or sums")
    if segments:
        if capacity % segments or counts.numel() != segments:
            raise Error(f"form_of: {capacity} rows and {counts.numel()} counts: with {segments} "
                        "segments these are a multiple and as many")
        capacity //= segments
    space = _pool.Space(capacity, kind, number, _COUNT_TYPES[counts.dtype])
    return _pool.Form([space], [_pool.Rows(_row_bytes(i, t)) for i, t in enumerate(tensors)])


def _row_bytes(i, tensor):
    width = math.prod(tensor.shape[1:]) * tensor.element_size()
    if width == 0:
        raise Error(f"tensor {i} of shape {tuple(tensor.shape)}: its rows have no bytes")
    return width


def _row_stride(tensor):
    """Bytes from a row to the next; 0: there are no gaps; None: it has others than between its rows."""
    if tensor.is_contiguous():
        return 0
    rows_apart = tensor.dim() == 2 and tensor.stride(1) == 1 and tensor.stride(0) >= tensor.size(1)
    return tensor.stride(0) * tensor.element_size() if rows_apart else None


class _Shelf:
    """Which tensors each visit has, and what new ones look like; knows no scheduler, so that callback
    and scheduler make no cycle that holds memory."""

    def __init__(self, device):
        self.device, self.like, self.saved, self.restored = device, {}, {}, {}

    def allocate(self, key, part, _stream):
        """The destination callback: on the hook's stream, which is torch's current one."""
        tensors = [torch.empty(shape, dtype=dtype, device=self.device)
                   for shape, dtype in self.like[key[1:]][part]]
        self.restored[key, part] = tensors
        return tensors

    def clear(self):
        self.like.clear()
        self.saved.clear()
        self.restored.clear()


class TorchScheduler(Scheduler):
    """A Scheduler of the caller's own form for tensors of torch.

        with scheduler.step():
            for p in schedule:
                with scheduler.forward(p.chunk, layer, p.micro_batch) as visit:
                    y, kept = my_forward(x)            # tensors at capacity
                    visit.save(kept, counts)
                ...
                with scheduler.backward(p.kind, p.chunk, layer, p.micro_batch) as visit:
                    dx = my_backward(dy, *visit.saved())

    pool: on the device of the tensors. layers: Layer with Part(form) (form_of), no sources. All other
    fields as for Scheduler, but tail: "zero" unless said, and failed_zero: True, so that a restored
    tensor has no garbage behind its live rows. Hooks run on torch's current stream. Tensors given to
    save are kept until their stash has read them, or until their backward where they stay in place; drop
    your own references, or nothing is saved. Restored tensors come from torch's allocator, on the
    stream of the hook that issues the restore; where that has no memory, the restore waits until it
    is due."""

    _put_off = (torch.cuda.OutOfMemoryError,)

    def __init__(self, pool: Optional[_pool.Pool], layers: Iterable[Layer], *,
                 schedule: Optional[Schedule] = None, tail: str = "zero", failed_zero: bool = True,
                 **fields):
        if "destination" in fields:
            raise Error("destination: TorchScheduler allocates destinations itself")
        if pool is not None:
            is_a(pool, _pool.Pool, "pool")
        layers = listed(layers, "layers")
        for layer in layers:
            parts = listed(is_a(layer, Layer, "layers").parts, f"{layer.name}: parts")
            if any(getattr(part, "sources", None) is not None for part in parts):
                raise Error(f"{layer.name}: sources: TorchScheduler takes them in each visit")
        self._device = torch.device(device_of(pool))
        self._shelf, self._streams = _Shelf(self._device), {}
        super().__init__(pool, layers, schedule=schedule, destination=self._shelf.allocate,
                         tail=tail, failed_zero=failed_zero, **fields)
        self._bytes_of = {form: [bytes_at_capacity(form, rows) for rows in form.tensors]
                          for forms in self._forms.values() for form in forms}

    def _stream(self):
        return torch.cuda.current_stream(self._device) if self._device.type == "cuda" else 0

    def _handle(self, stream):
        return stream_of(self._stream() if stream is None else stream)

    def _visit(self, key, raw):
        return TorchVisit(key, raw, self)

    def _sources(self, visit):
        """All parts."""
        wanted, key = len(self._forms.get(visit.key[1:3], ())), visit.key
        if not visit.is_live or wanted == 0:
            return None
        if len(visit.parts) != wanted:
            raise Error(f"{key}: {len(visit.parts)} of its {wanted} parts were saved")
        return [visit.parts[part] for part in range(wanted)]

    # ---- what is kept alive ----

    def _hold(self, key, part, buffers, kind="forward"):
        super()._hold(key, part, buffers, kind)
        if self._device.type == "cuda":
            self._streams[id(buffers)] = self._stream()

    def _drop(self, buffers):
        """Memory of another stream than the hook's is not reused before that one has come here."""
        allocated = self._streams.pop(id(buffers), None)
        now = self._stream()
        if allocated is not None and allocated != now:
            for tensor in buffers.bases:
                tensor.record_stream(now)
            for counts in buffers.counts:
                counts.record_stream(now)

    def _let_go(self, place, kinds):
        super()._let_go(place, kinds)
        shelf = self._shelf
        if "forward" in kinds:
            shelf.saved.pop(place, None)
        for name in [name for name in shelf.restored
                     if name[0][1:] == place and name[0].kind in kinds]:
            del shelf.restored[name]
        if len(kinds) == len(PASSES):
            shelf.like.pop(place, None)

    def _drop_all(self):
        super()._drop_all()
        self._streams.clear()
        self._shelf.clear()

    def _check(self, key, part, tensors, counts):
        forms = self._forms.get(key[1:3], ())
        if part >= len(forms):
            raise Error(f"{key}: part {part}: the layer has {len(forms)}")
        form = forms[part]
        if len(tensors) != len(form.tensors) or len(counts) != len(form.spaces):
            raise Error(f"{key}: {len(tensors)} tensors and {len(counts)} counts: the form of part "
                        f"{part} has {len(form.tensors)} and {len(form.spaces)}")
        for i, (tensor, wanted, rows) in enumerate(zip(tensors, self._bytes_of[form], form.tensors)):
            stride = _row_stride(tensor)
            if tensor.nbytes != wanted or stride is None or stride and tensor[0].nbytes != rows.row_bytes:
                raise Error(f"{key}: tensor {i} of shape {tuple(tensor.shape)}, {tensor.dtype}: "
                            f"{tensor.nbytes} bytes: wanted are {wanted}, contiguous, or with rows "
                            "that lie apart in two dimensions")
            if tensor.device != self._device:
                raise Error(f"{key}: tensor {i}: on {tensor.device}: the pool is on {self._device}")
        for i, (count, space) in enumerate(zip(counts, form.spaces)):
            wanted = max(space.num_segments, 1)
            if (_COUNT_TYPES.get(count.dtype) != space.count_bytes or count.numel() != wanted or
                    not count.is_contiguous()):
                raise Error(f"{key}: counts of space {i}: {tuple(count.shape)}, {count.dtype}: wanted "
                            f"are {wanted} of int{8 * space.count_bytes}, contiguous")
            if count.device != self._device:
                raise Error(f"{key}: counts of space {i}: on {count.device}: the pool is on "
                            f"{self._device}")


class TorchVisit(Visit):
    """A Visit that takes tensors in a forward and gives them in a backward."""

    __slots__ = ("parts", "_scheduler")

    def __init__(self, key, raw, scheduler):
        super().__init__(key, raw)
        self.parts, self._scheduler = {}, scheduler

    def save(self, tensors: Sequence[torch.Tensor], counts, part: int = 0,
             complete: bool = False) -> None:
        """These are what the layer keeps, at capacity, contiguous or of two dimensions with rows that lie
        apart, and their row counts on the device (a tensor for each row space of the form). complete: their
        stash starts now, not at the end of the visit.
        Errors: Error where they are not of the part's form, or were saved already."""
        if self.key.kind != "forward":
            raise Error(f"{self.key}: save is for a forward")
        part = integer(part, f"{self.key}: part")
        counts = [counts] if isinstance(counts, torch.Tensor) else counts
        for name, given in (("tensors", tensors), ("counts", counts)):
            if not isinstance(given, (list, tuple)) or not all(
                    isinstance(one, torch.Tensor) and one.layout is torch.strided for one in given):
                raise Error(f"{self.key}: {name}: a list of strided tensors is wanted")
        counts, tensors = list(counts), [tensor.detach() for tensor in tensors]
        self._scheduler._check(self.key, part, tensors, counts)
        if part in self.parts:
            raise Error(f"{self.key}: part {part} was saved already")
        strides = [_row_stride(tensor) for tensor in tensors]
        self.parts[part] = buffers = Buffers(tensors, counts, (), strides if any(strides) else ())
        if self.is_live:
            shelf, place = self._scheduler._shelf, self.key[1:]
            shelf.saved.setdefault(place, {})[part] = tensors
            shelf.like.setdefault(place, {})[part] = [(t.shape, t.dtype) for t in tensors]
            if complete:
                self._scheduler.forward_part(*place, part, buffers)

    def saved(self, part: int = 0) -> list:
        """What the forward saved: its own tensors where they stayed in place, else restored ones, with
        zeros behind the live rows. For the stream of the hook, until the visit ends. Errors: this pass
        does not read the part."""
        shelf, key = self._scheduler._shelf, self.key
        if key.kind == "forward":
            raise Error(f"{key}: saved is for a backward")
        if self.in_place:
            tensors = shelf.saved.get(key[1:], {}).get(part)
        else:
            held = self.is_held and key.kind == "backward_weight"
            tensors = shelf.restored.get((key._replace(kind="backward_input") if held else key, part))
        if tensors is None:
            raise Error(f"{key}: part {part}: nothing was kept for this pass")
        return list(tensors)
