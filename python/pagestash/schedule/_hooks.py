"""The hooks: calls that raise, the destination callback, what is kept alive for copies, contexts."""
import contextlib
import ctypes
from typing import Iterator, Optional, Sequence

from .. import _abi, _c
from .._checks import Error, integer, listed, number_of
from ._layers import Buffers
from ._visit import Visit
from ._words import PASSES, VisitKey, key_of, stream_of

_SETS = ctypes.POINTER(_abi.pst_buffers)


def callback_of(reference):
    """The C callback of the Hooks that a weakref means."""
    def ask(_user, visit, part, stream, out):
        hooks = reference()
        if hooks is None:
            return _abi.PST_E_INVALID
        return hooks._answer(key_of(visit[0]), part, stream or 0, out)
    return _abi.pst_destination_fn(ask)


class Hooks:
    """The part of Scheduler that a step calls."""

    _put_off = ()  # exceptions of the callback that put a restore off until it is due

    # ---- calls ----

    def _call(self, name, *arguments, mends=False):
        """A call of the library that raises; after a broken step only what mends."""
        with self._lock:
            if self._asking:
                raise Error(f"{name}: called by a destination callback, which runs within a hook")
            if self._owned.handle is None:
                raise Error(f"{name}: the scheduler is closed")
            if self._is_broken and not mends:
                raise Error(f"{name}: PST_E_ORDER: the step is broken by an earlier exception: abort",
                            "PST_E_ORDER")
            status = _c.status_of(name, self._owned.handle, *arguments)
            raised, lacking, self._raised, self._lacking = self._raised, self._lacking, None, None
            self._answers.clear()
            if raised is not None:
                self._is_broken = True
                raise raised
            if status == _abi.PST_E_DEVICE_NOMEM and lacking:
                raise Error(f"{name}: PST_E_DEVICE_NOMEM: the callback gave no destination for "
                            f"{lacking}, which is due", "PST_E_DEVICE_NOMEM")
            _c.check(status, name)

    def _answer(self, key, part, stream, out):
        """The callback: a pst_status, never an exception."""
        self._asking = True
        try:
            given = self._ask(key, part, stream)
            if given is None:
                self._lacking = f"part {part} of {key}"
                return _abi.PST_E_DEVICE_NOMEM
            what = f"destination of {key}, part {part}"
            buffers = Buffers.of(given, what)
            raw = buffers.raw(self._forms[key.chunk, key.layer][part], what, self._place)
            self._answers.append(raw)  # the library reads it before the hook returns
            out[0] = raw
            self._hold(key, part, buffers, key.kind)
            return _abi.PST_OK
        except BaseException as error:  # pylint: disable=broad-except
            if isinstance(error, self._put_off) and key != self._due:
                return _abi.PST_E_DEVICE_NOMEM
            self._raised = error
            return _abi.PST_E_INVALID
        finally:
            self._asking = False

    # ---- what TorchScheduler has in another way ----

    def _handle(self, stream):
        return stream_of(stream)

    def _visit(self, key, raw):
        return Visit(key, raw)

    def _sources(self, visit):
        """For forward_end, where it is given none."""
        return visit.sources

    # ---- what is kept alive ----

    def _hold(self, key, part, buffers, kind="forward"):
        self._owned.held.setdefault(key[1:], {})[kind, part] = buffers

    def _let_go(self, place, kinds):
        held = self._owned.held.get(place)
        if held is None:
            return
        for name in [name for name in held if name[0] in kinds]:
            self._drop(held.pop(name))
        if not held:
            del self._owned.held[place]

    def _drop(self, buffers):
        """Nothing that was enqueued on the hook's stream from here on needs these."""

    def _drop_all(self):
        for held in self._owned.held.values():
            for buffers in held.values():
                self._drop(buffers)
        self._owned.held.clear()
        self._open.clear()

    # ---- the step ----

    def step_begin(self, stream=None, *, num_micro_batches: int = 0, forward_only: bool = False) -> None:
        """Opens a step. num_micro_batches: another number than the schedule's (not of a list).
        forward_only: evaluation: hooks come in any order, and nothing is kept. Errors: a step is open,
        ..."""
        stream = self._handle(stream)
        if self._aborts_later:
            self.abort(stream)
        options = _c.sized(_abi.pst_step_options, forward_only=bool(forward_only),
                           num_micro_batches=integer(num_micro_batches, "num_micro_batches"))
        with self._lock:
            self._owned.stream = stream
            self._call("pst_scheduler_step_begin", ctypes.byref(options), stream)
            self._owned.is_open = True

    def step_end(self, stream=None) -> None:
        """Closes it: the stream waits for all copies, then the pool's step ends. Every source is free.
        Errors: visits are missing (names the first), ..."""
        with self._lock:
            self._call("pst_scheduler_step_end", self._handle(stream))
            self._owned.is_open = False
            self._drop_all()

    def abort(self, stream=None) -> None:
        """From any state: the stream waits for all copies, pages and faults of the pool are reset (other
        users of the pool lose theirs), and the next step_begin starts anew. Errors: a capture must end
        first."""
        with self._lock:
            self._call("pst_scheduler_abort", self._handle(stream), mends=True)
            self._is_broken = self._aborts_later = self._owned.is_open = False
            self._drop_all()

    @contextlib.contextmanager
    def step(self, stream=None, *, num_micro_batches: int = 0,
             forward_only: bool = False) -> Iterator["Hooks"]:
        """step_begin to step_end; an exception aborts the step."""
        self.step_begin(stream, num_micro_batches=num_micro_batches, forward_only=forward_only)
        try:
            yield self
            self.step_end(stream)
        except BaseException:
            self._give_up(stream)
            raise

    def _give_up(self, stream):
        """In a capture the next step_begin does it."""
        with self._lock:
            if not self._owned.is_open or self._owned.handle is None:
                return
            self._is_broken = True
            try:
                self.abort(stream)
            except Error as error:
                if error.status != "PST_E_CAPTURE":
                    raise
                self._aborts_later = True

    # ---- the hooks ----

    def forward_begin(self, chunk: int, layer: int, micro_batch: int, stream=None) -> Visit:
        """Before what writes the kept tensors. The Visit says where to."""
        return self._begin("forward", chunk, layer, micro_batch, stream)

    def _begin(self, kind, chunk, layer, micro_batch, stream):
        key = VisitKey(kind, integer(chunk, "chunk"), integer(layer, "layer"),
                       integer(micro_batch, "micro_batch"))
        raw, stream = _abi.pst_visit(), self._handle(stream)
        with self._lock:
            if kind == "forward":
                self._call("pst_scheduler_forward_begin", *key[1:], stream, ctypes.byref(raw))
            else:
                number, self._due = number_of(PASSES, kind, "kind"), key
                try:
                    self._call("pst_scheduler_backward_begin", number, *key[1:], stream,
                               ctypes.byref(raw))
                finally:
                    self._due = None
            visit = self._visit(key, raw)
            self._open[key] = visit
            for freed in visit.freed:
                self._let_go(freed[1:], ("forward",))
        return visit

    def forward_part(self, chunk: int, layer: int, micro_batch: int, part: int, source=None,
                     stream=None) -> None:
        """Part `part` is complete: its stash starts now. source: None with fixed sets, else Buffers
        with counts."""
        key = VisitKey("forward", integer(chunk, "chunk"), integer(layer, "layer"),
                       integer(micro_batch, "micro_batch"))
        part = integer(part, "part")
        with self._lock:
            raw = self._source(key, part, source)
            self._call("pst_scheduler_forward_part", *key[1:], part,
                       None if raw is None else ctypes.byref(raw), self._handle(stream))

    def _source(self, key, part, source):
        """The C struct of a source, which is held if the visit keeps anything."""
        if source is None or not self._is_own:
            return None
        forms = self._forms.get(key[1:3], ())
        if part >= len(forms):
            raise Error(f"{key}: part {part}: the layer has {len(forms)}")
        what = f"source of {key}, part {part}"
        buffers = Buffers.of(source, what)
        raw = buffers.raw(forms[part], what, self._place)
        visit = self._open.get(key)
        if visit is not None and visit.is_live:
            self._hold(key, part, buffers)
        return raw

    def forward_end(self, chunk: int, layer: int, micro_batch: int, sources: Optional[Sequence] = None,
                    stream=None) -> None:
        """Behind it. sources: None with fixed sets; else Buffers with counts for each part, of which
        those announced are not looked at (None will do). They must stay as they are until a hook lists
        the visit as freed."""
        key = VisitKey("forward", integer(chunk, "chunk"), integer(layer, "layer"),
                       integer(micro_batch, "micro_batch"))
        with self._lock:
            array, visit = None, self._open.get(key)
            if sources is None and visit is not None:
                sources = self._sources(visit)
            if sources is not None and self._is_own:
                wanted = len(self._forms.get(key[1:3], ()))
                sources = listed(sources, f"{key}: sources")
                if len(sources) != wanted:
                    raise Error(f"{key}: sources: {len(sources)}: the layer has {wanted} parts")
                array = (_SETS * max(wanted, 1))()
                for part, source in enumerate(sources):
                    raw = self._source(key, part, source)
                    if raw is not None:
                        array[part] = ctypes.pointer(raw)
            self._call("pst_scheduler_forward_end", *key[1:], array, self._handle(stream))
            self._open.pop(key, None)

    def backward_begin(self, kind: str, chunk: int, layer: int, micro_batch: int,
                       stream=None) -> Visit:
        """Before what reads the kept tensors. kind: "backward", "backward_input", "backward_weight".
        The Visit says where they are."""
        if kind == "forward":
            raise Error(f"kind {kind!r}: allowed are {', '.join(PASSES[1:])}")
        return self._begin(kind, chunk, layer, micro_batch, stream)

    def backward_end(self, kind: str, chunk: int, layer: int, micro_batch: int, stream=None) -> None:
        """Behind it: the destinations are free."""
        number = number_of(PASSES, kind, "kind")
        key = VisitKey(kind, integer(chunk, "chunk"), integer(layer, "layer"),
                       integer(micro_batch, "micro_batch"))
        with self._lock:
            self._call("pst_scheduler_backward_end", number, *key[1:], self._handle(stream))
            visit = self._open.pop(key, None)
            if kind != "backward_input":
                self._let_go(key[1:], PASSES)
            elif visit is None or not visit.is_held:
                self._let_go(key[1:], (kind,))

    @contextlib.contextmanager
    def forward(self, chunk: int, layer: int, micro_batch: int, stream=None) -> Iterator[Visit]:
        """forward_begin to forward_end around the layer; the caller's own form: set visit.sources, or
        call visit.part. An exception aborts the step."""
        visit = self.forward_begin(chunk, layer, micro_batch, stream)
        visit._announce = lambda part, source: self.forward_part(chunk, layer, micro_batch, part,
                                                                 source, stream)
        try:
            yield visit
            self.forward_end(chunk, layer, micro_batch, None, stream)
        except BaseException:
            self._give_up(stream)
            raise
        finally:
            visit._announce = None

    @contextlib.contextmanager
    def backward(self, kind: str, chunk: int, layer: int, micro_batch: int,
                 stream=None) -> Iterator[Visit]:
        """backward_begin to backward_end around the layer. An exception aborts the step."""
        visit = self.backward_begin(kind, chunk, layer, micro_batch, stream)
        try:
            yield visit
            self.backward_end(kind, chunk, layer, micro_batch, stream)
        except BaseException:
            self._give_up(stream)
            raise
