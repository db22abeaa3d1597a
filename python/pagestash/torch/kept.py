"""What holds the live rows of a visit until its backward: pages, or, while measuring, copies of them."""
import torch

from .._c import Error

_SECOND = ("a second backward through layer {!r}: its pages were freed by the first; "
           "Stash(retain=True) keeps them")


def _new_storages(sizes, device):
    return [torch.empty(size, dtype=torch.uint8, device=device).untyped_storage() for size in sizes]


class Pages:
    """A ticket of the pool. Made and used under the stash's lock."""
    __slots__ = ("stash", "pool", "form", "ticket", "stream", "name", "ahead")

    def __init__(self, stash, visit, forms):
        source, self.form = forms
        self.stash, self.pool, self.name = stash, stash.pool, visit.shape.name
        self.ticket, self.ahead = 0, None  # ahead: (storages, event) of a restore that was started early
        buffers = source.buffers([slot.storage.data_ptr() + slot.place.offset for slot in visit.slots],
                                 (visit.counts.data_ptr(),))
        self.stream = stream = stash.streams.enter()
        ticket = self.pool.take(stream)
        try:
            self.pool.stash(ticket, source, buffers, stream, stash.stash_options)
        except Error:
            self.pool.give(ticket, stream)
            raise
        self.ticket = ticket
        stash.streams.hold(([slot.storage for slot in visit.slots], visit.counts))

    def restore(self, sizes, peek=False):
        """Storages with the rows, zeros behind them. Consumes the pages, but for a peek and with retain."""
        with self.stash.lock:
            if self.ahead is None:
                storages = self._enqueue(sizes, peek)
                self.stash.streams.leave(waits=True)
                return storages
            storages, event = self.ahead
            event.wait()
            if not peek:
                self.ahead = None
            return storages

    def start(self, sizes):
        """Enqueues the restore before it is asked for; restore waits for it."""
        with self.stash.lock:
            if self.ahead is None and self.ticket:
                storages = self._enqueue(sizes, peek=False)
                self.ahead = storages, self.stash.streams.record()

    def _enqueue(self, sizes, peek):
        if not self.ticket:
            raise Error(_SECOND.format(self.name))
        storages = _new_storages(sizes, self.stash.torch_device)
        buffers = self.form.buffers([storage.data_ptr() for storage in storages])
        keeps = peek or self.stash.retain
        self.stream = stream = self.stash.streams.enter()
        self.pool.restore(self.ticket, self.form, buffers, stream, self.stash.restore_options[keeps])
        if not keeps:
            ticket, self.ticket = self.ticket, 0
            self.pool.give(ticket, stream)
        return storages

    def drop(self):
        """Of a visit that died, in any thread, also inside a capture: the stash gives the ticket later."""
        if self.ticket or self.ahead:
            self.stash.dropped.append((self.pool, self.ticket, self.stream, self.ahead))
            self.ticket, self.ahead = 0, None


class Cut:
    """Copies of the live rows, while there is no pool. Waits for the device to read the counts."""
    __slots__ = ("stash", "name", "copies", "log", "number")

    def __init__(self, stash, visit, forms):
        self.stash, self.name, self.log = stash, visit.shape.name, stash.log
        counts = [int(count) for count in visit.counts.flatten().tolist()]
        shape = visit.shape
        self.number = self.log.stashed(forms[1], self._checked(counts, shape))
        self.copies = [self._copy(slot, shape, counts) for slot in visit.slots]

    @staticmethod
    def _checked(counts, shape):
        for count in counts:
            if not 0 <= count <= shape.capacity:
                raise Error(f"layer {shape.name!r}: a row count of {count}; allowed are 0 to the capacity, "
                            f"{shape.capacity}")
        if not shape.segments and sum(counts) > shape.capacity:
            raise Error(f"layer {shape.name!r}: {sum(counts)} rows; the capacity is {shape.capacity}")
        return counts if shape.segments else [sum(counts)]

    @staticmethod
    def _rows(storage, place, shape, offset, stride):
        """Bytes as (slabs, rows, row_bytes)."""
        inner = -(-shape.capacity * place.num // place.den)
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
            storage, offset, (shape.segments or 1, inner, place.row_bytes), (inner * stride, stride, 1))

    def _copy(self, slot, shape, counts):
        place = slot.place
        data = self._rows(slot.storage, place, shape, place.offset, place.row_stride)
        live = counts if shape.segments else [sum(counts)]
        live = [-(-count * place.num // place.den) for count in live]
        return place, shape, [slab[:count].clone() for slab, count in zip(data, live)]

    def restore(self, sizes, peek=False):
        """Storages with the rows, zeros behind them."""
        if self.copies is None:
            raise Error(_SECOND.format(self.name))
        storages = _new_storages(sizes, self.stash.torch_device)
        for storage, (place, shape, slabs) in zip(storages, self.copies):
            for slab, rows in zip(self._rows(storage, place, shape, 0, place.row_bytes), slabs):
                slab[:len(rows)] = rows
                slab[len(rows):] = 0
        if not peek and not self.stash.retain:
            self.drop()
        return storages

    def start(self, sizes):
        """Nothing is early here."""

    def drop(self):
        """The copies go; the log knows."""
        if self.copies is not None:
            self.copies = None
            self.log.ended(self.number)
