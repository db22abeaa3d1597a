"""The scheduler: it decides when what a layer keeps is stashed and restored, and enqueues it."""
import ctypes
import dataclasses
import threading
import weakref
from typing import Callable, Iterable, Optional, Sequence

from .. import _abi, _c, pool as _pool
from .._c import lib
from .._checks import Error, Once, integer, is_a, listed, number_of, shown
from ._hooks import Hooks, callback_of
from ._layers import Buffers, Layer, RawLayers, device_of
from ._order import Schedule
from ._visit import Stats, Visit
from ._words import KINDS, PASSES, RULES, VisitKey, key_of, stream_of

_CAPTURES = ("iteration", "layers")
_TAILS = {"untouched": _abi.PST_TAIL_UNTOUCHED, "zero": _abi.PST_TAIL_ZERO_ALL}
_PRIORITIES = (_abi.PST_PRIORITY_LOW, _abi.PST_PRIORITY_HIGH)
_SETS = ctypes.POINTER(_abi.pst_buffers)


class _Owned:
    """What the C scheduler needs as long as it lives; refers to no Scheduler, so that one can be
    collected. `held` are sources and destinations that copies may still read and write."""

    def __init__(self, pool):
        self.handle = self.forms = self.owners = None
        self.pool, self.stream, self.is_open, self.held = pool, 0, False, {}
        self.lock = pool.device.lock if pool is not None else threading.RLock()

    def destroy(self):
        """Whatever state it is in. Errors: BUSY (captured graphs hold it), CAPTURE, ..."""
        if self.handle is None:
            return
        if self.is_open:
            _c.call("pst_scheduler_abort", self.handle, self.stream)
            self.is_open = False
        status = lib.pst_scheduler_destroy(self.handle)
        if status in (_abi.PST_OK, _abi.PST_E_CUDA, _abi.PST_E_DAMAGED):  # of these the handle is gone
            self.handle = None
            self.held.clear()
        _c.check(status, "pst_scheduler_destroy")


# Schedulers that nobody has and that could not be destroyed when they were collected: within a capture,
# while a captured graph holds them, or while another thread was at work on the device.
_left = []


def _collected(owned):
    if not owned.lock.acquire(blocking=False):
        _left.append(owned)
        return
    try:
        owned.destroy()
    except Error:
        if owned.handle is not None:
            _left.append(owned)
    finally:
        owned.lock.release()


def _sweep():
    for _ in range(len(_left)):
        try:
            owned = _left.pop(0)
        except IndexError:  # another thread sweeps
            return
        _collected(owned)


def _sequence(given, name, most):
    """A list of at most so many. Errors: it is none, or longer."""
    if not hasattr(given, "__len__") or len(given) > most:
        raise Error(f"{name}: {shown(given)}: a sequence of at most {most} is wanted")
    return list(given)


class Scheduler(Once, Hooks):
    """Decides for every visit of a layer when what it keeps is stashed, restored, swapped or left, and
    enqueues it: call a hook before and after what writes and reads it. docs/scheduler.md says more.

    pool: pages (pagestash.pool.Pool), kept alive; None: no layer is paged or swapped. layers: Layer.
    schedule: None: the first training step is recorded; num_stages, stage then say which pipeline it is
    one of. destination(key, part, stream): the caller's own form: where to restore part `part` of the
    visit to: Buffers or a sequence of addresses or tensors; None: not now, which is an Error when it is
    due. It runs within a hook, in its thread, and must not call the scheduler; what it raises is raised
    by the hook. num_sources, num_destinations: 1 to 8 (0: as many as the layers name, or 2). ahead:
    restores that may be issued and not begun (0: num_destinations). rule: "asap", or "next" as in
    Megatron-LM. capture: "iteration", or "layers" for graphs of single layers. num_streams: side
    streams 1, 2, 4; streams: the caller's. num_sms: budgets of stash and restore. tail: "zero" clears
    rows behind the restored ones; failed_zero: a restore that cannot copy clears all rows.

    Hooks come from any thread, one at a time. A hook that is not the schedule's next, and a callback
    that raises, break the step: all hooks raise until abort. Tensors that are given as sources and
    destinations are kept alive until nothing reads or writes them any more.
    Errors: Error with the C library's sentence."""

    def __init__(self, pool: Optional[_pool.Pool], layers: Iterable[Layer], *,
                 schedule: Optional[Schedule] = None, destination: Optional[Callable] = None,
                 num_stages: int = 0, stage: int = 0, num_sources: int = 0,
                 num_destinations: int = 0, one_ring: bool = False, keeps_nothing: bool = False,
                 measures: bool = False, ahead: int = 0, rule: str = "asap", max_slots: int = 0,
                 capture: str = "iteration", num_streams: int = 0, streams: Sequence = (),
                 num_sms: Sequence[int] = (0, 0), tail: str = "untouched",
                 failed_zero: bool = False):
        _sweep()
        if pool is not None:
            is_a(pool, _pool.Pool, "pool")
        if schedule is not None:
            is_a(schedule, Schedule, "schedule")
        if destination is not None and not callable(destination):
            raise Error(f"destination {shown(destination)}: a function is wanted")
        if pool is not None and not pool.handle:
            raise Error("pool: it is closed")
        self._owned = owned = _Owned(pool)
        self._lock = owned.lock  # the device's: a stream is used by one thread at a time
        self._asking = self._is_broken = self._aborts_later = False
        self._raised = self._due = self._lacking = None
        self._answers, self._open = [], {}
        self._schedule, self._ask = schedule, destination
        self._place = device_of(pool)
        raw = RawLayers(listed(layers, "layers"), integer(num_sources, "num_sources"),
                        integer(num_destinations, "num_destinations"), bool(one_ring), self._place)
        config = _c.sized(
            _abi.pst_scheduler_config, pool=pool.handle if pool else None,
            schedule=schedule.handle if schedule else None, layers=raw.array,
            num_layers=len(raw.array), num_stages=integer(num_stages, "num_stages"),
            stage=integer(stage, "stage"), num_sources=raw.num_sources,
            num_destinations=raw.num_destinations, one_ring=bool(one_ring),
            keeps_nothing=bool(keeps_nothing), measures=bool(measures),
            ahead=integer(ahead, "ahead"), rule=number_of(RULES, rule, "rule"),
            max_slots=integer(max_slots, "max_slots"), failed=int(bool(failed_zero)),
            capture=number_of(_CAPTURES, capture, "capture"), tail=number_of(_TAILS, tail, "tail"),
            num_streams=integer(num_streams, "num_streams"))
        streams, num_sms = _sequence(streams, "streams", 4), _sequence(num_sms, "num_sms", 2)
        for i, one in enumerate(streams):
            config.streams[i] = stream_of(one)
        for i, (budget, priority) in enumerate(zip(num_sms, _PRIORITIES)):
            config.launch[i].num_sms = integer(budget, "num_sms", 31)
            config.launch[i].priority = priority
        if destination is not None:
            config.destination = self._callback = callback_of(weakref.ref(self))
        self._forms, self._is_own = raw.forms, bool(raw.is_own)
        owned.owners, owned.forms = raw.owners, raw.forms
        owned.handle = _c.create("pst_scheduler_create", ctypes.byref(config))
        weakref.finalize(self, _collected, owned).atexit = False

    @property
    def schedule(self) -> Optional[Schedule]:
        """In force: given, or recognised in what was recorded; None: nothing is recorded yet. Errors:
        the recorded order is none of the library's kinds, so it serves these micro-batches only."""
        config = _abi.pst_schedule_config()
        with self._lock:
            if self._schedule is not None:
                return self._schedule
            try:
                self._call("pst_scheduler_get_schedule_sized", ctypes.byref(config),
                           ctypes.sizeof(config), mends=True)
            except Error as error:
                if error.status == "PST_E_AGAIN":
                    return None
                raise
        if KINDS[config.kind] == "list":
            raise Error("schedule: the recorded order is none of the library's kinds")
        return Schedule.of_config(config)

    def set_schedule(self, schedule: Schedule) -> None:
        """Another schedule over the same layers, between steps. Waits for the device. Graphs of whole
        steps captured before do nothing but fault when launched; graphs of layers stay right. Errors:
        more slots than there are, a step is open, ..."""
        is_a(schedule, Schedule, "schedule")
        with self._lock:
            self._call("pst_scheduler_set_schedule", schedule.handle)
            self._schedule = schedule

    @property
    def is_open(self) -> bool:
        """Whether a step is open."""
        return self._owned.is_open

    @property
    def is_closed(self) -> bool:
        """Whether close was called."""
        return self._owned.handle is None

    def stats(self) -> Stats:
        """Figures up to now; with `measures` of the steps that have run."""
        raw = _abi.pst_scheduler_stats()
        self._call("pst_scheduler_get_stats_sized", ctypes.byref(raw), ctypes.sizeof(raw), mends=True)
        names = [field.name for field in dataclasses.fields(Stats)]
        return Stats(*(getattr(raw, name) for name in names[:-1]), key_of(raw.worst))

    def digest(self) -> int:
        """Equal on all ranks that run the same schedule over the same layers with the same policy:
        compare it before the first step. Errors: no schedule yet."""
        out = ctypes.c_uint64()
        self._call("pst_scheduler_get_digest", ctypes.byref(out), mends=True)
        return out.value

    # ---- graphs of layers ----

    def layer_capture_begin(self, kind: str, chunk: int, layer: int, slot: int, *, stream=None,
                            buffers: Optional[Sequence] = None, alias: int = 0) -> Visit:
        """capture="layers": inside the capture of one layer's graph, where forward_begin or
        backward_begin would be. buffers: the caller's own form: Buffers of each part, for good, kept
        alive; equal aliases are one set of memory, and all backwards of a slot have the same. The graph
        is launched between the hooks of its visits."""
        place = (integer(chunk, "chunk"), integer(layer, "layer"), integer(slot, "slot"))
        raw, own, kept = _abi.pst_visit(), None, []
        if buffers is not None:
            forms, buffers = self._forms.get(place[:2], ()), listed(buffers, "buffers")
            if len(buffers) != len(forms):
                raise Error(f"buffers: {len(buffers)}: the layer has {len(forms)} parts")
            array = (_SETS * max(len(forms), 1))()
            for part, (form, given) in enumerate(zip(forms, buffers)):
                what = f"buffers of part {part}"
                kept.append(Buffers.of(given, what))
                array[part] = ctypes.pointer(kept[-1].raw(form, what, self._place))
            own = ctypes.byref(_c.sized(_abi.pst_layer_buffers, buffers=array,
                                        alias=integer(alias, "alias")))
        number = number_of(PASSES, kind, "kind")
        with self._lock:
            self._call("pst_scheduler_layer_capture_begin", number, *place, own, self._handle(stream),
                       ctypes.byref(raw))
            self._owned.owners.extend(kept)
        return Visit(VisitKey(kind, *place[:2], 0), raw)

    def layer_capture_end(self, kind: str, chunk: int, layer: int, slot: int, *, stream=None) -> None:
        """Where forward_end or backward_end would be."""
        self._call("pst_scheduler_layer_capture_end", number_of(PASSES, kind, "kind"),
                   integer(chunk, "chunk"), integer(layer, "layer"), integer(slot, "slot"),
                   self._handle(stream))

    # ---- the end ----

    def close(self) -> None:
        """Waits for the device and frees it. Errors: a step is open, captured graphs hold it."""
        with self._lock:
            if self._asking:
                raise Error("close: called by a destination callback, which runs within a hook")
            if self._owned.is_open and not self._is_broken:
                raise Error("close: PST_E_BUSY: a step is open: step_end or abort", "PST_E_BUSY")
            self._owned.destroy()
        _sweep()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and self._owned.handle is not None and self._owned.is_open:
            self._give_up(self._owned.stream)
        self.close()
