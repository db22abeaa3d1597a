"""What holds the live rows of a visit until its backward: pages, or, while measuring, copies of them."""
import ctypes

import torch

from .. import _abi
from .._c import Error, check, lib

_BUFFERS_BYTES = ctypes.sizeof(_abi.pst_buffers)
SECOND = ("a second backward through layer {!r}: its pages were freed by the first; "
           "Stash(retain=True) keeps them")


def _address(slot):
    """Of the first row; the tensor may begin within it."""
    fit, tensor = slot.fit, slot.tensor
    if fit.whole and fit.start:
        return tensor.untyped_storage().data_ptr()
    return tensor.data_ptr()


def _buffers(form, bases):
    return _abi.pst_buffers(_BUFFERS_BYTES, form.bases_type(*bases))


class Pages:
    """A ticket of the pool. Made and used under the stash's lock.

    The launches go to the library without the checks of a Pool, whose caller may be anybody: what is named
    in them was made here. raw: the ticket for these calls."""
    __slots__ = ("raw", "stash", "pool", "form", "ticket", "stream", "name", "ahead", "is_captured")

    def __init__(self, stash, visit, forms):
        source, self.form = forms
        self.stash, self.pool, self.name = stash, stash.pool, visit.shape.name
        # ahead: (tensors, event, stream that they are for) of a restore that was started early
        self.ticket, self.ahead = 0, None
        self.is_captured = stash.overlap and stash.streams.is_capturing()
        buffers = _buffers(source, [_address(slot) for slot in visit.slots])
        buffers.counts = source.counts_type(visit.counts.data_ptr())
        self.stream = stream = stash.streams.enter()
        self.raw = ticket = _abi.pst_ticket()
        check(lib.pst_ticket_take(self.pool.handle, stream, ctypes.byref(ticket)), "pst_ticket_take")
        try:
            check(lib.pst_ticket_stash(ticket, source.handle, ctypes.byref(buffers), stash.stash_options,
                                        stream), "pst_ticket_stash")
        except Error:
            lib.pst_ticket_give(ticket, stream)
            raise
        self.ticket = ticket.id
        stash.streams.hold(([slot.tensor for slot in visit.slots], visit.counts))

    def restore(self, fits, peek=False):
        """Tensors with the rows, zeros behind them. Consumes the pages, but for a peek and with retain."""
        with self.stash.lock:
            if self.ahead is None:
                tensors = self._enqueue(fits, peek)
                self.stash.streams.leave(waits=True)
                return tensors
            tensors, event, stream = self.ahead
            if event is not None:
                event.wait()
            self.stash.streams.share(tensors, stream)
            if not peek:
                self.ahead = None
            return tensors

    def start(self, fits):
        """Enqueues the restore before it is asked for; restore waits for it."""
        with self.stash.lock:
            streams = self.stash.streams
            if self.ahead is None and self.ticket and streams.is_capturing() == self.is_captured:
                tensors = self._enqueue(fits, peek=False)
                self.ahead = tensors, streams.record(), streams.current()

    def _enqueue(self, fits, peek):
        if not self.ticket:
            raise Error(SECOND.format(self.name))
        tensors = [fit.allocate(self.stash.torch_device) for fit in fits]
        buffers = _buffers(self.form, [tensor.data_ptr() for tensor in tensors])
        keeps = peek or self.stash.retain
        self.stream = stream = self.stash.streams.enter()
        check(lib.pst_ticket_restore(self.raw, self.form.handle, ctypes.byref(buffers),
                                      self.stash.restore_options[keeps], stream), "pst_ticket_restore")
        if not keeps:
            ticket, self.ticket = self.ticket, 0
            try:
                check(lib.pst_ticket_give(self.raw, stream), "pst_ticket_give")
            except Error as error:
                if error.status == "PST_E_CAPTURE":  # then it is still to be given
                    self.ticket = ticket
                raise
        return tensors

    def drop(self):
        """Of a visit that died, in any thread, also inside a capture: the stash gives the ticket later."""
        if self.ticket or self.ahead:
            self.stash.dropped.append((self.pool, self.ticket, self.stream, self.ahead))
            self.ticket, self.ahead = 0, None

    __del__ = drop  # a visit is all that refers to this


class Cut:
    """Copies of the live rows, while there is no pool. Waits for the device to read the counts."""
    __slots__ = ("stash", "name", "copies", "log", "number")

    def __init__(self, stash, visit, forms):
        self.stash, self.name, self.log, self.copies = stash, visit.shape.name, stash.log, None
        counts = [int(count) for count in visit.counts.flatten().tolist()]
        self.number = self.log.stashed(forms[1], _checked(counts, visit.shape))
        self.copies = [self._copy(slot, visit.shape, counts) for slot in visit.slots]

    def _copy(self, slot, shape, counts):
        fit = slot.fit
        _, stride, num, den = fit.place
        data = _rows(slot.tensor.untyped_storage(), fit, shape, fit.offset, stride)
        live = counts if shape.segments else [sum(counts)]
        live = [-(-count * num // den) for count in live]
        return shape, [slab[:count].clone() for slab, count in zip(data, live)]

    def restore(self, fits, peek=False):
        """Tensors with the rows, zeros behind them."""
        if self.copies is None:
            raise Error(SECOND.format(self.name))
        tensors = [fit.allocate(self.stash.torch_device) for fit in fits]
        for tensor, fit, (shape, slabs) in zip(tensors, fits, self.copies):
            for slab, rows in zip(_rows(tensor.untyped_storage(), fit, shape, 0, fit.place[0]), slabs):
                slab[:len(rows)] = rows
                slab[len(rows):].zero_()
        if not peek and not self.stash.retain:
            self.drop()
        return tensors

    def start(self, fits):
        """Nothing is early here."""

    def drop(self):
        """The copies go; the log knows."""
        if self.copies is not None:
            self.copies = None
            self.log.ended(self.number)

    __del__ = drop


def _checked(counts, shape):
    """What a Form measures by: of a sum the sum. Errors: counts that a stash would refuse."""
    for count in counts:
        if not 0 <= count <= shape.capacity:
            raise Error(f"layer {shape.name!r}: a row count of {count}; allowed are 0 to the capacity, "
                        f"{shape.capacity}")
    if not shape.segments and sum(counts) > shape.capacity:
        raise Error(f"layer {shape.name!r}: {sum(counts)} rows; the capacity is {shape.capacity}")
    return counts if shape.segments else [sum(counts)]


def _rows(storage, fit, shape, offset, stride):
    """Bytes of a storage as (slabs, rows, row_bytes)."""
    inner = shape.inner(fit.place[2:])
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
        storage, offset, (shape.segments or 1, inner, fit.place[0]), (inner * stride, stride, 1))
