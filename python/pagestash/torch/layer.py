"""One pass through a layer: what autograd saves in it goes to pages, and comes back in its backward.

A Visit is one pass. Its slots are the storages (or rows inside larger storages) that autograd saved, each
once, however many views were saved. A slot lives as long as autograd holds a view of it, and what was
restored into it as long as the slot: so memory goes back when the last node that needs it has run."""
import weakref

import torch

from .._c import Error
from . import rows
from .rows import MAKERS, NO_HISTORY, PLAIN

_push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
_pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
backward_id = torch._C._current_graph_task_id  # of the backward that runs in this thread; else -1


class Slot:
    """Rows that are kept once. tensor: the first one that was saved, until the visit is stashed; then
    nothing; then (id of a backward, what was restored for it, the stream that it is for, or None).
    bare: no tensor that was saved of it has a history, nor was chosen by `select`."""
    __slots__ = ("visit", "index", "fit", "tensor", "bare", "__weakref__")

    def __init__(self, visit, index, fit, tensor):
        self.visit, self.index, self.fit, self.tensor = visit, index, fit, tensor
        self.bare = True


ALONE = object()


class Saved:
    """What autograd keeps instead of a tensor.

    tensor: the tensor itself, until the visit is over; then what a Slot has there, or, where it stays in
        memory, the tensor without its history, which may lead back here.
    slot: None where it stays, ALONE where this is its slot, too; and None, with no tensor, where it was
        changed before it was stashed.
    visit: the layer's name where it stays."""
    __slots__ = ("visit", "slot", "fit", "version", "index", "tensor", "__weakref__")

    def stay(self):
        """Leaves the tensor in memory."""
        self.visit = self.visit.shape.name  # a visit lives no longer than its slots
        if self.tensor.grad_fn is not None:
            self.tensor = self.tensor.detach()

    def end(self):
        """The visit is stashed: lets the tensor go."""
        if self.tensor._version != self.version:
            self.slot = None
        self.tensor = None


class Visit:
    """Between `with stash.layer(...)` and the end of what autograd saved there."""
    __slots__ = ("stash", "counts", "shape", "slots", "saved", "origins", "fits", "kept",
                 "restored", "can_be_known", "before", "lost", "choices", "is_paused", "__weakref__")

    def __init__(self, stash, counts, shape):
        self.stash, self.counts, self.shape = stash, counts, shape
        self.slots, self.saved = [], []
        self.choices = None  # rows.Choice that was made of a tensor, by its place in saved
        # (id of a backward, what was restored for it by slot, until that is asked for, its stream or None)
        self.restored = None
        self.kept = None    # what holds the rows (kept.py), once they are stashed
        self.before = None  # weak reference to the visit before: its backward mostly comes next
        self.lost = ""      # why nothing can come back
        self.is_paused = False
        # Set at the end: origins, of what was saved; can_be_known: no choice and no wrapper is among it;
        # fits, of the slots.

    def __enter__(self):
        # What torch.autograd.graph.saved_tensors_hooks does, without its object and calls.
        _push_hooks(self._pack if self.shape.select is None else self.pack, unpack)
        return self

    def __exit__(self, kind, error, trace):
        _pop_hooks()
        self.finish(kind is not None)

    def pause(self):
        """After the forward of a layer that is stashed later, by finish, or never: what becomes of its tensors
        is settled, and what autograd lets go of meanwhile is not held."""
        try:
            self.ask_counts()
            self._find_origins()
            self.settle()
            self._leave_shared()
        except BaseException:
            self.abandon("its stash failed")
            raise
        for one in self.saved:
            if one.slot is None:
                one.stay()
            else:
                one.tensor = one.tensor.detach()
        for slot in self.slots:
            slot.tensor = slot.tensor.detach()
        self.saved = [weakref.ref(one) for one in self.saved if one.slot is not None]
        self.slots = [weakref.ref(slot) for slot in self.slots]
        self.is_paused = True

    def _resume(self):
        self.saved = [one for one in (reference() for reference in self.saved) if one is not None]
        self.slots = [slot for slot in (reference() for reference in self.slots) if slot is not None]
        for index, slot in enumerate(self.slots):
            slot.index = index

    def finish(self, failed=False):
        """After the layer's forward: stashes what was packed; failed: lets it go."""
        if failed:
            self.abandon("its forward did not end")
            return
        try:
            self.commit()
        except BaseException:
            self.abandon("its stash failed")
            raise

    def pack(self, tensor, choice=None):
        """A hook of autograd; whoever has hooks of its own may bring a rows.Choice. What becomes of the tensor is
        settled when the visit ends."""
        if choice is None and self.shape.select is not None:
            choice = self.shape.select(tensor)
        if choice is not None:
            if self.choices is None:
                self.choices = {}
            self.choices[len(self.saved)] = choice
        return self._pack(tensor)

    def _pack(self, tensor):
        """The hook where nobody chooses. It runs for each tensor: what can wait for the end waits."""
        one = Saved()
        one.visit, one.slot = self, None
        one.tensor, one.version = tensor, tensor._version
        self.saved.append(one)
        return one

    def commit(self):
        """After the layer's forward: live rows go to pages, and the sources are let go."""
        stash = self.stash
        if callable(self.counts):
            self.ask_counts()
        if self.is_paused:
            self._resume()
            self._stash()
        else:
            self._find_origins()
            known = stash.known
            if known is None or stash.pool is None or not known.keep(stash, self):
                self.settle()
                self._leave_shared()
                self._stash()
        self.slots = [weakref.ref(slot) for slot in self.slots] if stash.retain else None
        self.saved = self.origins = self.counts = self.choices = None

    def _stash(self):
        """What was settled is done."""
        if self.slots:
            self.fits = [slot.fit for slot in self.slots]
            self.kept = self.stash.keep(self)
            if not self.is_paused:  # then what tells where tensors come from is gone
                self.stash.learn(self)
        for one in self.saved:
            if one.slot is None:
                one.stay()
            else:
                one.end()
        for slot in self.slots:
            slot.tensor = None

    def _find_origins(self):
        """rows.origin of what was saved."""
        self.can_be_known = self.choices is None
        self.origins = origins = []
        maker = MAKERS.get
        for one in self.saved:
            tensor = one.tensor
            origin = maker(type(tensor.grad_fn))
            if origin is None:
                origin = rows.origin(tensor)
                if origin == NO_HISTORY:
                    one.tensor = tensor.detach()  # how many hold its storage is asked later
            if type(tensor) not in PLAIN:
                self.can_be_known = False
            origins.append(origin)

    def settle(self):
        """Finds the slots."""
        by_key, shape, behind = {}, self.shape, []
        choices = self.choices or {}
        for i, (one, origin) in enumerate(zip(self.saved, self.origins)):
            tensor, choice = one.tensor, choices.get(i)
            try:
                storage = tensor.untyped_storage()
            except NotImplementedError:  # of a sparse tensor
                one.fit = rows.Fit(tensor)
                continue
            one.fit = fit = shape.choose(tensor, storage, origin, choice)
            if fit.place is None:
                if fit.why:
                    self.stash.name_kept(shape.name, tensor, fit.why)
                continue
            key = (storage._cdata, fit.place[2:]) if fit.whole else (storage._cdata, fit.offset, fit.place)
            slot = by_key.get(key)
            if slot is None:
                if not fit.leads and choice is None:
                    behind.append((key, one))
                    continue
                if not self._takes(tensor):
                    continue
                slot = by_key[key] = Slot(self, len(self.slots), fit, tensor)
                self.slots.append(slot)
            self._put(one, slot, choice)
        for key, one in behind:
            slot = by_key.get(key)
            if slot is not None:
                self._put(one, slot)
            else:
                self.stash.name_kept(shape.name, one.tensor, "has its rows in memory, and not as its first "
                                     "dimension, as the weight of a Linear may")

    @staticmethod
    def _put(one, slot, choice=None):
        if one.tensor.grad_fn is not None or choice is not None:
            slot.bare = False
        one.slot = slot

    def _takes(self, tensor):
        """Whether there is room for another tensor. Errors: it is on another device."""
        if tensor.device != self.stash.torch_device:
            raise Error(f"layer {self.shape.name!r} saves a tensor on {tensor.device}; the stash is on "
                        f"{self.stash.torch_device}")
        if len(self.slots) < self.stash.max_tensors:
            return True
        self.stash.name_kept(self.shape.name, tensor, "is one tensor too many for a launch")
        return False

    def _leave_shared(self):
        """Leaves bare tensors in memory whose storage others hold, too: so compiled code saves views of
        parameters, which have rows behind the live ones; and where it is none, nothing is lost, either."""
        stays = set()
        for slot in self.slots:
            if slot.bare:
                storage = slot.tensor.untyped_storage()
                ours = sum(one.tensor.untyped_storage()._cdata == storage._cdata for one in self.saved)
                if torch._C._storage_Use_Count(storage._cdata) > ours + 1:
                    stays.add(slot)
                    self.stash.name_kept(self.shape.name, slot.tensor, "has no history and is held by "
                                         "others, too, as parameters are in compiled code")
        if stays:
            for one in self.saved:
                if one.slot in stays:
                    one.slot = None
            self.slots = [slot for slot in self.slots if slot not in stays]
            for index, slot in enumerate(self.slots):
                slot.index = index

    def ask_counts(self):
        """Calls the function that was given for the counts. Errors: they are none."""
        if callable(self.counts):
            self.counts = self.counts()
            rows.check_counts(self.counts, self.shape, self.stash.torch_device)

    def abandon(self, why):
        """Lets everything go; a backward through this visit raises."""
        if self.is_paused and self.saved:
            self._resume()
        for one in self.saved or ():
            one.tensor = one.slot = None
        self.lost, self.slots, self.saved, self.counts = why, [], None, None

    def bring(self, slot, backward):
        """What a slot's `tensor` is in this backward; -1: somebody looks at a node's saved tensors."""
        if backward < 0:
            return -1, self.kept.restore(self.fits, peek=True)[slot.index], None
        with self.stash.lock:  # with retain several backwards may run at once
            while True:  # as unpack may take the tensor meanwhile
                held, index, restored = slot.tensor, slot.index, self.restored
                if held is not None and held[0] == backward:  # by another thread of this backward
                    return held
                # Where its tensor is gone, another backward has taken the slot.
                if restored is None or restored[0] != backward or restored[1][index] is None:
                    restored = self._restore(backward)
                tensor = restored[1][index]
                if tensor is not None:
                    slot.tensor = held = backward, tensor, restored[2]
                    restored[1][index] = None
                    return held

    def _restore(self, backward):
        """Brings all rows back, into new tensors, for this backward."""
        stash = self.stash
        stream = stash.streams.current() if stash.streams.is_cuda else None
        self.restored = restored = backward, self.kept.restore(self.fits), stream
        if stash.retain or stash.overlap:
            stash.after_restore(self, backward)
        return restored

    def forget(self, backward):
        """With retain: lets go of what was restored for a backward, as far as it is still there."""
        if self.restored is not None and self.restored[0] == backward:
            self.restored = None
        for reference in self.slots:
            slot = reference()
            if slot is not None and slot.tensor is not None and slot.tensor[0] == backward:
                slot.tensor = None


class Apart:
    """A context for a layer's forward where nothing is stashed: what is saved in it stays in memory, and hooks
    around it do not see that, as they do not see what a Visit stashes. torch's checkpoint goes by the order of
    what its hooks see: the forward and the one that is computed again must be alike."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        _push_hooks(self._pack, unpack)
        return self

    def __exit__(self, *error):
        _pop_hooks()

    def _pack(self, tensor):
        one = Saved()
        one.visit, one.slot, one.tensor, one.version = self.name, None, tensor, tensor._version
        if tensor.grad_fn is not None:  # which may lead back here
            one.tensor = tensor.detach()
        return one


def unpack(saved):
    """A hook of autograd."""
    if type(saved) is not Saved:
        return saved
    slot, visit = saved.slot, saved.visit
    if slot is ALONE:
        slot = saved
    elif slot is None or visit.kept is None:
        return _source(saved)
    backward, held = backward_id(), slot.tensor
    if held is None or held[0] != backward:
        restored, index = visit.restored, slot.index
        tensor = restored[1][index] if restored is not None and restored[0] == backward else None
        if tensor is not None:
            # Without the lock: another thread of this backward finds the same tensor, or takes the lock.
            slot.tensor = held = backward, tensor, restored[2]
            restored[1][index] = None
        else:
            held = visit.bring(slot, backward)
    _, tensor, stream = held
    if stream is not None:
        visit.stash.streams.share((tensor,), stream)
    fit = saved.fit
    return tensor if fit.exact and fit is slot.fit else fit.view(tensor)


def _source(saved):
    """Of a tensor that stays, or of a visit that is not over."""
    visit, source = saved.visit, saved.tensor
    stays = isinstance(visit, str)
    name = visit if stays else visit.shape.name
    if not stays and visit.lost:
        raise Error(f"layer {name!r} cannot run its backward: {visit.lost}")
    if source is None or source._version != saved.version:
        shape = saved.fit.size if source is None else source.shape
        raise Error(f"layer {name!r}: a tensor of shape {tuple(shape)} that is needed for the backward was "
                    f"changed in place{'' if stays else ' before it was stashed'}")
    return source
