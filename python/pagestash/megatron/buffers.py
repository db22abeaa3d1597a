"""Megatron-Core's global memory buffer, with leases of scratch behind it.

Its callers take a tensor by name and never say that they are done. Here the lease ends when nobody holds that
tensor or a view of it any more, and at the latest when the name is taken again, as it does in Megatron-Core;
then whoever still holds the former one reads what the next has written, and is named."""
import importlib
import logging
import os
import weakref

from .._c import Error
from .._checks import number_of
from ..torch import leases

_log = logging.getLogger("pagestash")
_PARALLEL_STATE = "megatron.core.parallel_state"
ON_HELD = ("warn", "raise")
_installed = []


class _User:
    """Who has a name. alive: a weak reference to the memory, which ends the lease when it dies."""

    __slots__ = ("lease", "stream", "alive")

    def __init__(self, lease, stream):
        self.lease, self.stream, self.alive = lease, stream, None


class Buffers:
    """See pagestash.megatron.scratch. In the place of Megatron-Core's GlobalMemoryBuffer.

    num_gets: tensors that were asked for. num_held: of these, those whose former one was held still."""

    def __init__(self, device, on_held):
        if on_held is None:
            on_held = "raise" if os.environ.get("PAGESTASH_CHECK") == "1" else "warn"
        number_of(ON_HELD, on_held, "on_held")
        if _installed:
            raise Error("pagestash.megatron.scratch: it is there already; close() the one before")
        self.scratch, self.on_held = leases.scratch.of(device), on_held
        self.num_gets, self.num_held = 0, 0
        self._users, self._named = {}, set()
        self._state = importlib.import_module(_PARALLEL_STATE)
        missing = [name for name in ("_GLOBAL_MEMORY_BUFFER", "GlobalMemoryBuffer")
                   if not hasattr(self._state, name)]
        if missing:
            raise Error(f"pagestash.megatron.scratch: {_PARALLEL_STATE} has no {', '.join(missing)}: this "
                        "Megatron-Core is another than those tried")
        self._class, self._before = self._state.GlobalMemoryBuffer, self._state._GLOBAL_MEMORY_BUFFER
        self._state.GlobalMemoryBuffer = self._again = lambda: self  # by initialize_model_parallel
        if self._before is not None:
            self._state._GLOBAL_MEMORY_BUFFER = self
        _installed.append(self)

    def get_tensor(self, tensor_shape, dtype, name, mem_alloc_context=None):
        """As Megatron-Core's: a tensor of that name and dtype, whatever is in it. mem_alloc_context is for
        torch's memory, and is not entered: this is none.

        Errors: on_held="raise", and the former one is held (both places); in a capture, too small."""
        del mem_alloc_context
        key, place = f"megatron.{name}.{str(dtype).removeprefix('torch.')}", leases.caller(2)
        with leases.settled(self.scratch.lock, lambda: self._is_awaited(key, place), leases.PATIENCE):
            user = self._users.get(key)
            if user is not None:
                if user.lease.memory() is not None:
                    self._report(user.lease, place)
                if self._users.get(key) is user:  # else it died as it was looked at: _let_go in this thread
                    self._end(key, user, place)
            lease = self.scratch.lease(key, tensor_shape, dtype, place=place)
            tensor, lease.tensor = lease.tensor, None
            self.num_gets += 1
            user = self._users[key] = _User(lease, self.scratch.streams.current())
            memory = lease.memory()
            if memory is None:  # no elements, no memory
                self._end(key, user, place)
            else:
                user.alive = weakref.ref(
                    memory, lambda _: self.scratch.later(lambda: self._let_go(key, user)))
            return tensor

    def _let_go(self, key, user):
        """Nobody holds the tensor."""
        try:
            if self._users.get(key) is user:
                self._end(key, user, "the last that held it")
        except Error as error:
            _log.warning("pagestash: %s: its lease stays: %s", key, error)

    def _end(self, key, user, place):
        """Ends the lease, on the stream that it was taken on: whatever used it there is before this.

        Errors: it lives on, since it was taken outside of a capture and that stream is captured now. One that
        ends all the same, since its capture is over, is told by a warning: its user may be a finaliser."""
        del self._users[key]  # first: the memory may die, and _let_go be called, within the release
        num_live = self.scratch.info().num_live
        try:
            user.lease.release_on(user.stream, place)
        except Error as error:
            if self.scratch.info().num_live == num_live:
                self._users[key] = user
                raise
            _log.warning("pagestash: %s", error)

    def _is_awaited(self, key, place):
        """Whether somebody holds the former tensor, perhaps a thread that is about to let go. Who was named before is
        not waited for again."""
        user = self._users.get(key)
        return user is not None and user.lease.memory() is not None and \
            (key, user.lease.place, place) not in self._named

    def _report(self, lease, place):
        sentence = (f"Megatron-Core's buffer '{lease.name}': {place} takes it, and what {lease.place} took "
                    "is held still: who reads that finds other bytes")
        if self.on_held == "raise":
            raise Error(f"pagestash.megatron.scratch: {sentence}")
        self.num_held += 1
        if (lease.name, lease.place, place) not in self._named:
            self._named.add((lease.name, lease.place, place))
            _log.warning("pagestash: %s", sentence)

    def close(self):
        """Puts Megatron-Core's own back. What its callers still hold stays readable until somebody leases the
        same name."""
        if self not in _installed:
            return
        with self.scratch.lock:
            for key, user in list(self._users.items()):
                self._end(key, user, "pagestash.megatron.scratch, close")
        if self._state._GLOBAL_MEMORY_BUFFER is self:
            self._state._GLOBAL_MEMORY_BUFFER = self._before if self._before is not None else self._class()
        if self._state.GlobalMemoryBuffer is self._again:
            self._state.GlobalMemoryBuffer = self._class
        _installed.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
