"""One pass through a layer: what autograd saves in it goes to pages, and comes back in its backward.

A Visit is one pass. Its slots are the storages (or rows inside larger storages) that autograd saved, each
once, however many views were saved. A slot lives as long as autograd holds a view of it, and what was
restored into it as long as the slot: so memory goes back when the last node that needs it has run."""
import weakref

import torch

from .._c import Error
from . import rows

backward_id = torch._C._current_graph_task_id  # of the backward that runs in this thread; else -1


class Slot:
    """Rows that are kept once. storage: the source until the visit is stashed, then nothing, then what was
    restored for the backward of that id."""
    __slots__ = ("visit", "index", "place", "storage", "origin", "backward", "__weakref__")

    def __init__(self, visit, index, place, tensor, storage):
        self.visit, self.index, self.place, self.storage = visit, index, place, storage
        self.origin = tensor.detach()  # shares the version counter
        self.backward = -1

    @property
    def nbytes(self):
        """Of its rows at capacity, without the gaps between them."""
        shape, place = self.visit.shape, self.place
        return -(-shape.capacity * place.num // place.den) * (shape.segments or 1) * place.row_bytes


class Saved:
    """What autograd keeps instead of a tensor."""
    __slots__ = ("slot", "dtype", "size", "stride", "offset", "version", "changed")

    def __init__(self, slot, tensor):
        self.slot, self.dtype, self.size = slot, tensor.dtype, tensor.shape
        self.stride, self.offset = tensor.stride(), tensor.storage_offset()
        self.version, self.changed = tensor._version, False

    def view(self, storage, is_source=False):
        """The tensor, in the source, or in what was restored."""
        stride, offset, place = self.stride, self.offset, self.slot.place
        if not is_source and not place.whole:  # there the rows are packed
            stride, step, offset = list(stride), place.row_bytes // self.dtype.itemsize, 0
            for dim in reversed(place.row_dims):
                stride[dim], step = step, step * self.size[dim]
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(
            storage, offset, self.size, stride)


class Visit:
    """Between `with stash.layer(...)` and the end of what autograd saved there."""

    def __init__(self, stash, counts, shape):
        self.stash, self.counts, self.shape = stash, counts, shape
        self.slots, self.by_key, self.saved = [], {}, []
        self.kept = None    # what holds the rows (kept.py), once they are stashed
        self.sizes = ()     # bytes of the slots
        self.before = None  # weak reference to the visit before: its backward mostly comes next
        self.lost = ""      # why nothing can come back
        self.hooks = None

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, unpack)
        self.hooks.__enter__()
        return self

    def __exit__(self, kind, error, trace):
        hooks, self.hooks = self.hooks, None  # which refer to this visit
        hooks.__exit__(kind, error, trace)
        if kind is not None:
            self.abandon("its forward did not end")
            return
        try:
            self.commit()
        except BaseException:
            self.abandon("its stash failed")
            raise

    def pack(self, tensor):
        """A hook of autograd."""
        place, why = rows.choose(tensor, self.shape)
        if place is None:
            if why:
                self.stash.name_kept(self.shape.name, tensor, why)
            return tensor
        if tensor.device != self.stash.torch_device:
            raise Error(f"layer {self.shape.name!r} saves a tensor on {tensor.device}; the stash is on "
                        f"{self.stash.torch_device}")
        storage = tensor.untyped_storage()
        key = storage._cdata if place.whole else (storage._cdata, place.offset, place.row_bytes,
                                                  place.row_stride)
        slot = self.by_key.get(key)
        if slot is None:
            if len(self.slots) == self.stash.max_tensors:
                self.stash.name_kept(self.shape.name, tensor, "is one tensor too many for a launch")
                return tensor
            slot = self.by_key[key] = Slot(self, len(self.slots), place, tensor, storage)
            self.slots.append(slot)
        saved = Saved(slot, tensor)
        self.saved.append(saved)
        return saved

    def commit(self):
        """After the layer's forward: live rows go to pages, and the sources are let go."""
        for saved in self.saved:
            saved.changed = saved.slot.origin._version != saved.version
        slots, self.saved, self.by_key = self.slots, None, None
        if slots:
            self.sizes = [slot.nbytes for slot in slots]
            self.kept = self.stash.keep(self)
            for slot in slots:
                slot.storage = slot.origin = None
        self.slots = [weakref.ref(slot) for slot in slots]
        self.counts = None

    def abandon(self, why):
        """Lets everything go; a backward through this visit raises."""
        for slot in self.slots or ():
            if isinstance(slot, Slot):
                slot.storage = slot.origin = None
        self.lost, self.slots, self.by_key, self.saved, self.counts = why, [], None, None, None

    def restore(self, backward):
        """Brings all rows back, into new storages, which the slots that live hold for this backward."""
        storages = self.kept.restore(self.sizes)
        for reference, storage in zip(self.slots, storages):
            slot = reference()
            if slot is not None:
                slot.storage, slot.backward = storage, backward
        self.stash.after_restore(self, backward)

    def forget(self):
        """Lets go of what was restored, as far as it is still there."""
        for reference in self.slots:
            slot = reference()
            if slot is not None:
                slot.storage = None

    def __del__(self):
        kept = getattr(self, "kept", None)
        if kept is not None:
            kept.drop()


def unpack(saved):
    """A hook of autograd."""
    if not isinstance(saved, Saved):
        return saved
    slot = saved.slot
    visit = slot.visit
    name = visit.shape.name
    if visit.lost:
        raise Error(f"layer {name!r} cannot run its backward: {visit.lost}")
    if saved.changed:
        raise Error(f"layer {name!r}: a tensor of shape {tuple(saved.size)} that is needed for the backward "
                    "was changed in place before the layer ended")
    if visit.kept is None:
        return saved.view(slot.storage, is_source=True)
    backward = backward_id()
    if backward < 0:  # somebody looks at a node's saved tensors
        return saved.view(visit.kept.restore(visit.sizes, peek=True)[slot.index])
    if slot.storage is None or slot.backward != backward:
        visit.restore(backward)
    return saved.view(slot.storage)
