"""What autograd saved in a layer: as a tensor, cut to its live rows, or in pages."""
import ctypes
import typing

import torch

from .. import pool as pools
from .._abi import PST_MAX_TENSORS
from .._c import Error

SCALE_ROWS = 32  # rows that share a row of scales
_COUNT_DTYPES = {torch.int32: 4, torch.int64: 8}


class Visit:
    """One run of a layer's experts: how many rows are live, of how many, and how many are
    expected."""

    __slots__ = ("source", "counts", "capacity", "average", "name", "_live")

    def __init__(self, source, capacity, average, name, device):
        counts = source.reshape(-1)
        if counts.dtype not in _COUNT_DTYPES or counts.numel() != 1:
            raise Error(f"{name}: the number of tokens is {counts.numel()} of {counts.dtype}; one "
                        "int32 or int64 is allowed")
        if counts.device != device:
            raise Error(f"{name}: the number of tokens is on {counts.device}, what is saved on "
                        f"{device}")
        self.source, self.counts, self.capacity = source, counts, int(capacity)
        self.average = None if average is None else min(int(average), self.capacity)
        self.name, self._live = name, None

    @property
    def live(self):
        """Live rows; waits for the device the first time. Errors: below 0, above the capacity."""
        if self._live is None:
            live = int(self.counts.item())
            if not 0 <= live <= self.capacity:
                raise Error(f"{self.name}: {live} live rows; allowed are 0 to {self.capacity}")
            self._live = live
        return self._live

    def rows(self, tensor, scales):
        """The pools.Rows of a saved tensor, or None where it is no multiple of the rows."""
        den = SCALE_ROWS if scales else 1
        width, rest = divmod(tensor.numel(), -(-self.capacity // den))
        if rest or not width:
            return None
        return pools.Rows(width * tensor.element_size(), num=1, den=den)

    def space(self):
        """The pools.Space of the rows."""
        return pools.Space(self.capacity, count_bytes=_COUNT_DTYPES[self.counts.dtype])


class Described(typing.NamedTuple):
    """What is remembered of a saved tensor of the recording step."""
    rows: pools.Rows
    visit: Visit


def parts(saved):
    """Lists of Saved or Described that one launch can take: of one visit, up to PST_MAX_TENSORS."""
    by_visit = {}
    for one in saved:
        by_visit.setdefault(id(one.visit), []).append(one)
    for same in by_visit.values():
        for at in range(0, len(same), PST_MAX_TENSORS):
            yield same[at:at + PST_MAX_TENSORS]


class Saved:
    """Stands for a saved tensor in autograd's graph.

    tensor: the whole one, while there is one. cut: bytes of its live rows, of the recording step.
    batch: whose pages hold it. version: of the tensor when it was saved; changed: it was another
    one when its copy was made."""

    __slots__ = ("tensor", "cut", "batch", "shape", "dtype", "device", "rows", "visit", "version",
                 "changed", "_original_tensor", "key", "__weakref__")

    def __init__(self, tensor, rows, visit):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.rows, self.visit, self.cut, self.batch = rows, visit, None, None
        self.key = key_of(tensor)
        self.tensor, self._original_tensor = tensor.detach().contiguous(), None
        self.version, self.changed = self.tensor._version, False

    def look(self):
        """Notices whether somebody wrote into what is still in memory. Whether it is as it was."""
        for tensor in (self.tensor, self._original_tensor):
            if tensor is not None and tensor._version != self.version:
                self.changed = True
        return not self.changed

    def check(self):
        """Errors: it was changed, as torch says of what it saves itself."""
        if not self.look():
            raise Error(f"{self.visit.name}: a tensor of shape {tuple(self.shape)} that is needed "
                        "for the backward was changed in place after it was saved")

    def cut_out(self):
        """Keeps only the live rows. Waits for the device."""
        live = -(-self.visit.live * self.rows.num // self.rows.den) * self.rows.row_bytes
        self.cut = self.tensor.view(-1).view(torch.uint8)[:live].clone()
        self.tensor = None

    def whole(self):
        """The tensor anew, zeros behind the live rows; of one that was cut out."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        flat = out.view(-1).view(torch.uint8)
        flat[:self.cut.numel()] = self.cut
        flat[self.cut.numel():].zero_()
        return out


def key_of(tensor):
    """Tells whether two tensors that are alive are the same memory in the same form; None: not
    told."""
    return (tensor.data_ptr(), tensor.shape, tensor.dtype) if tensor.is_contiguous() else None


class Batch:
    """What one launch stashed, in a ticket of the pool; restored once, or dropped."""

    __slots__ = ("pool", "ticket", "form", "saved")

    def __init__(self, pool, form, saved, stream, options):
        """Takes a ticket and enqueues the stash. Errors: none can be had, or it is too small."""
        self.pool, self.form, self.saved = pool, form, saved
        buffers = form.buffers([s.tensor.data_ptr() for s in saved],
                               [saved[0].visit.counts.data_ptr()])
        self.ticket = pool.take(stream)
        try:
            pool.stash(self.ticket, form, buffers, stream, ctypes.byref(options))
        except Error:
            pool.give(self.ticket, stream)
            raise
        for one in saved:
            one._original_tensor, one.tensor, one.batch = one.tensor, None, self

    def allocate(self):
        """Makes the destinations, on the current stream."""
        for one in self.saved:
            one.tensor = torch.empty(one.shape, dtype=one.dtype, device=one.device)
            one._original_tensor, one.version = None, one.tensor._version

    def restore(self, stream, options):
        """Enqueues the restore into what allocate made, and gives the ticket back."""
        buffers = self.form.buffers([one.tensor.data_ptr() for one in self.saved])
        self.pool.restore(self.ticket, self.form, buffers, stream, ctypes.byref(options))
        self._done(stream)

    def drop(self, stream):
        """Frees the pages unread: the graph is gone, or the step was lost."""
        self._done(stream)

    @property
    def is_held(self):
        """Whether the pages are still its own."""
        return bool(self.saved)

    def _done(self, stream):
        for one in self.saved:
            one.batch = None
        self.saved = ()
        self.pool.give(self.ticket, stream)
