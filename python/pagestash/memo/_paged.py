"""Units whose saved rows go to pages: experts, or a block that has them."""
import dataclasses
import threading
import weakref
from typing import Any, Callable, Optional

import torch

from .._abi import PST_MAX_TENSORS
from .._c import Error
from .._checks import integer, is_a
from ..schedule import Layer, Part, TorchScheduler
from ..torch import kept, layer, measure, rows, stash, streams
from . import _nodes
from ._visits import BACKWARD
from ._wrap import Wrapped


@dataclasses.dataclass(frozen=True)
class Paged:
    """What memo.paged was given."""
    module: Any
    counts: Any
    capacity: Any
    segments: int = 0
    ratio: Any = None
    select: Optional[Callable] = None
    name: str = ""
    host_share: Any = 0
    move: str = "direct"
    promote_ahead: int = 0


def paged(module, *, counts, capacity, segments: int = 0, ratio=None, select=None, name: str = "",
          host_share: Any = 0, move: str = "direct", promote_ahead: int = 0) -> Paged:
    """For memo.run's list of layers: of this module (or (module, "method")) the rows that it keeps go to pages.

    counts, capacity: values, or functions of the forward's arguments; counts may answer a function without
    arguments, which is called when the forward ends. These, segments, ratio and select have the meaning that
    they have for Stash.layer (pagestash.torch), and what is a row is decided by its rules. host_share: of the
    pages, in host memory, from 0 to 1; move, promote_ahead: pagestash.schedule.Layer has them."""
    return Paged(module, counts, capacity, integer(segments, "segments"), ratio, select, name, host_share,
                 move, promote_ahead)


class PagedUnit(Wrapped):
    """A module of which each call is a visit of a layer that is paged. From the first, measured step: shape: its
    rows; places: of each tensor of rows that it saves; form: of all of them; counted: row counts of its calls."""

    is_paged = True

    def __init__(self, run, place, given, name):
        module, method = given.module if isinstance(given.module, tuple) else (given.module, "forward")
        super().__init__(run, place, is_a(module, torch.nn.Module, "memo.paged"), method, given.name or name)
        self.given, self.shape, self.places, self.form, self.counted = given, None, None, None, []
        ratios = () if given.ratio is None else given.ratio
        self.ratios = (ratios,) if rows.is_ratio(ratios) else ratios
        if not isinstance(self.ratios, tuple) or not all(map(rows.is_ratio, self.ratios)):
            raise Error(f"{self.name}: ratio {given.ratio!r}: (num, den) with 0 < num <= den, or a tuple of such")

    def capacity(self, args, kwargs):
        """Of this call."""
        given = self.given.capacity
        return integer(given(*args, **kwargs) if callable(given) else given, f"{self.name}: capacity")

    def visit(self, store, args, kwargs):
        """The context of pagestash.torch in which its forward runs."""
        counts = self.given.counts
        counts = counts(*args, **kwargs) if callable(counts) else counts
        if not callable(counts):
            rows.check_counts(counts, self.shape, store.torch_device)
        return layer.Visit(store, counts, self.shape)

    # ---- the measured step ----

    def forward_measured(self, store, hook, args, kwargs):
        """Its rows are cut out and kept."""
        capacity = self.capacity(args, kwargs)
        if self.shape is None:
            given = self.given
            self.shape = rows.Shape(capacity, given.segments, self.ratios, given.select, self.name)
        if self.shape.capacity != capacity:
            return self.original(*args, **kwargs)
        store.unit = self
        return self._between(_nodes.Unseen(self), hook, store, args, kwargs)

    def measured(self, visit, forms):
        """Its first call's rows are those that the scheduler will know."""
        if self.places is None:
            self.places, self.form = [fit.place for fit in visit.fits], forms[1]
        counts = [int(count) for count in visit.counts.flatten().tolist()]
        self.counted.append(counts if self.shape.segments else [sum(counts)])

    def layer(self):
        """Of the scheduler."""
        chunk, seat = self.seat
        given = self.given
        return Layer(seat, chunk, parts=[Part(self.form)], host_share=given.host_share, move=given.move,
                     promote_ahead=given.promote_ahead)

    # ---- a step ----

    def forward(self, call, hook, args, kwargs):
        """A call whose rows the scheduler keeps."""
        return self._between(call, hook, _Scheduled(self, call), args, kwargs)

    def _between(self, call, hook, store, args, kwargs):
        def forward(*args, **kwargs):
            with self.visit(store, args, kwargs):
                return self.original(*args, **kwargs)
        return _nodes.between(call, hook, forward, args, kwargs)

    def save_nothing(self, visit, device):
        """Keeps the scheduler's order where a visit has no rows: tensors with none that are live."""
        space = self.form.spaces[0]
        dtype = {4: torch.int32, 8: torch.int64}[space.count_bytes]
        counts = torch.zeros(max(space.num_segments, 1), dtype=dtype, device=device)
        visit.save([torch.empty(num, dtype=torch.uint8, device=device) for num in self.bytes_at_capacity()],
                   counts)

    def bytes_at_capacity(self):
        """Of each tensor."""
        space = self.form.spaces[0]
        slabs = space.num_segments if space.kind == "segments" else 1
        return [-(-space.capacity * one.num // one.den) * slabs * one.row_bytes for one in self.form.tensors]


class _Store:
    """What layer.Visit asks of a Stash."""
    known, pool, retain, overlap = None, None, False, False
    max_tensors = PST_MAX_TENSORS
    name_kept = stash.Stash.name_kept

    def __init__(self, device):
        self.torch_device, self.streams = device, streams.Inline(device)
        self.lock, self.named = threading.RLock(), set()

    def learn(self, visit):
        """Nothing."""


class Measuring(_Store):
    """Of the first step: copies of the live rows, and a log of them."""

    def __init__(self, device):
        super().__init__(device)
        self.log, self.unit = measure.Log(), None

    def keep(self, visit):
        """See Stash."""
        forms = visit.shape.form(visit.counts, visit.fits)
        cut = kept.Cut(self, visit, forms)  # which looks at the counts
        self.unit.measured(visit, forms)
        return cut


class _Scheduled(_Store):
    """Of one call: rows go to the scheduler."""

    def __init__(self, unit, call):
        store = unit.run.store
        self.torch_device, self.streams, self.named = store.torch_device, store.streams, store.named
        self.lock = store.lock
        self.unit, self.call = unit, call

    def keep(self, visit):
        """See Stash. What is not as in the first step stays in memory."""
        if self.call.visit.in_place:
            _leave(visit, visit.slots)
            return _Nothing()
        chosen = self._as_measured(visit)
        others = [slot for slot in visit.slots if slot not in chosen]
        if others:
            self.unit.run.deviates("a tensor of rows that a paged layer saves")
            _leave(visit, others)
        if not chosen:
            return _Nothing()
        visit.fits = [slot.fit for slot in chosen]
        out = Rows(self.call)
        # The caller may write its counts again before a stash on a stream beside has read them.
        self.call.visit.save([_source(slot, visit.shape) for slot in chosen], visit.counts.clone())
        return out

    def _as_measured(self, visit):
        """The slots that have the measured places, in order; none, if one is missing."""
        places, chosen = self.unit.places, []
        for slot in visit.slots:
            if len(chosen) < len(places) and slot.fit.place == places[len(chosen)]:
                chosen.append(slot)
        space = self.unit.form.spaces[0]
        same = len(chosen) == len(places) and visit.counts.numel() == max(1, space.num_segments) and \
            rows.COUNT_TYPES[visit.counts.dtype] == space.count_bytes
        return chosen if same else []


def _leave(visit, slots):
    """To autograd."""
    gone = set(slots)
    for one in visit.saved:
        if one.slot in gone:
            one.slot = None
    visit.slots = [slot for slot in visit.slots if slot not in gone]
    for index, slot in enumerate(visit.slots):
        slot.index = index


def _source(slot, shape):
    """A slot's rows as bytes: all of its storage, or rows that lie apart."""
    fit, storage = slot.fit, slot.tensor.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=slot.tensor.device)
    if fit.whole:
        return flat.set_(storage)
    row_bytes, stride, num, den = fit.place
    num_rows = shape.inner((num, den)) * (shape.segments or 1)
    return flat.set_(storage, fit.offset, (num_rows, row_bytes), (stride, 1))


class _Nothing:
    """Of a visit whose tensors stay in memory."""

    def drop(self):
        """Nothing."""


class Rows:
    """What the scheduler keeps of a call."""
    __slots__ = ("call", "tensors", "__weakref__")

    def __init__(self, call):
        self.call, self.tensors = call, None
        call.rows = weakref.ref(self)

    def restore(self, fits, peek=False):
        """The rows, in the backward of the call."""
        if self.tensors is None or peek:
            name, state = self.call.unit.name, self.call.state
            raise Error(f"{name}: its rows are in its backward only" if state != BACKWARD else
                        f"{name}: a second backward: what it keeps is gone after the first")
        tensors, self.tensors = self.tensors, None
        return [fit.view(tensor) if fit.exact else tensor for fit, tensor in zip(fits, tensors)]

    def drop(self):
        """Of a visit that died."""


class Scheduler(TorchScheduler):
    """A visit that is kept in place may have saved nothing: autograd has it all."""

    def _sources(self, visit):
        if visit.in_place and not visit.parts:
            return None
        return super()._sources(visit)
