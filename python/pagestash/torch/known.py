"""The hot path of a layer: operators in C++ that find again what Python decided for tensors of a geometry.

What is stashed of what a layer saves depends on the tensors' geometry, on which share storages, and on where
they come from (rows.origin). Where all that was seen before, one operator stashes, and one restores; where
it was not, or where a caller's choice or the number of a storage's holders counts, Python decides as ever."""
import itertools

import torch

from .._c import Error
from .calls import as_error
from .kept import SECOND, Pages
from .layer import ALONE, Slot

_numbers = itertools.count(1)
_layers = {}  # (capacity, segments, ratios, origins): a number for the operators
_MOST = 4096  # of them


class Plan:
    """What was decided: the Fits of the slots, and of each saved tensor its slot, -1 where it stays, and Fit.
    is_single: no two of them share a slot."""
    __slots__ = ("fits", "places", "is_single")

    def __init__(self, visit):
        self.fits = visit.fits
        self.places = [(-1, None) if one.slot is None else (one.slot.index, one.fit)
                       for one in visit.saved]
        self.is_single = sum(one.slot is not None for one in visit.saved) == len(visit.fits)

    def settle(self, visit):
        """Gives the saved tensors their slots."""
        visit.fits, slots = self.fits, visit.slots
        is_single, keeps = self.is_single, visit.stash.retain
        if not is_single:
            slots += [Slot(visit, i, fit, None) for i, fit in enumerate(self.fits)]
        for one, (index, fit) in zip(visit.saved, self.places):
            if index < 0:
                one.stay()
                continue
            if one.tensor._version == one.version:
                one.slot = ALONE if is_single else slots[index]
            one.fit, one.tensor = fit, None
            if is_single:  # nothing else that was saved has these rows: it does without a Slot
                one.index = index
                if keeps:
                    slots.append(one)


class Known(Pages):
    """What holds the rows of a visit whose tensors were met before."""
    __slots__ = ("plan",)

    def __init__(self, stash, name, ticket, plan):  # pylint: disable=super-init-not-called
        self.stash, self.pool, self.name, self.ticket, self.plan = stash, stash.pool, name, ticket, plan
        self.ahead, self.stream = None, stash.streams.current() if stash.streams.is_cuda else 0

    def restore(self, fits, peek=False):
        """See Pages.restore; nothing is restored ahead."""
        stash = self.stash
        keeps = peek or stash.retain
        with stash.lock:
            if not self.ticket:
                raise Error(SECOND.format(self.name))
            if stash.streams.is_cuda:
                self.stream = stash.streams.current()
            try:
                tensors = _restore(self.ticket, self.plan, self.pool.handle, stash.num_sms, keeps)
            except RuntimeError as error:
                raise as_error(error) from None
            if not keeps:
                self.ticket = 0
        return tensors


_learn = torch.ops.pagestash._layer_plan.default
# Without the call in Python that is around each of torch's operators.
_find, _restore = (getattr(operator, "_op", operator) for operator in (
    torch.ops.pagestash._layer_stash.default, torch.ops.pagestash._layer_restore.default))


def _layer(visit):
    """The number of such layers; 0: Python decides each time."""
    if not visit.can_be_known:
        return 0
    shape, origins = visit.shape, tuple(visit.origins)
    number = shape.numbers.get(origins)
    if number is None:
        key = shape.capacity, shape.segments, shape.ratios, origins
        number = _layers.get(key)
        if number is None:
            number = _layers[key] = next(_numbers) if len(_layers) < _MOST else 0
        shape.numbers[origins] = number
    return number


def keep(stash, visit):
    """Stashes what the visit saved; False: nothing was done, since this was not seen before."""
    layer, saved, shape = _layer(visit), visit.saved, visit.shape
    if not layer or not saved:
        return False
    with stash.lock:
        if stash.dropped:
            stash.drain()
        try:
            ticket, number = _find([one.tensor for one in saved], visit.counts, stash.pool.handle, layer,
                                   stash.num_sms)
        except RuntimeError as error:
            raise as_error(error) from None
    if not ticket:
        return False
    visit.kept = Known(stash, shape.name, ticket, number)
    plan = shape.plans.get(number)
    if plan is None:  # another stash has met such a layer
        visit.settle()
        visit.fits = [slot.fit for slot in visit.slots]
        plan = shape.plans[number] = Plan(visit)
        visit.slots = []
        for one in saved:
            one.slot = None
    plan.settle(visit)
    return True


def learn(visit):
    """Lets the operators know what Python decided of this visit."""
    if any(slot.bare for slot in visit.slots):  # how many hold it is asked each time
        return
    layer = _layer(visit)
    if not layer:
        return
    slots, places, strides = [], [], []
    first = {}
    for i, one in enumerate(visit.saved):
        if one.slot is not None and one.fit is one.slot.fit:
            first.setdefault(one.slot.index, i)
    for slot in visit.slots:
        fit = slot.fit
        slots += first[slot.index], int(fit.whole and fit.start != 0), int(fit.exact), fit.nbytes
        places += fit.place
        strides += fit.strides if fit.exact else ()
    shape = visit.shape
    number = _learn([one.tensor for one in visit.saved], visit.counts, layer, slots, places, strides,
                    shape.capacity, shape.segments)
    if number:
        shape.plans[number] = Plan(visit)
