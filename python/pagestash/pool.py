"""Devices, forms of layers, and pools: the C interface as Python objects, without torch.

Addresses and streams are ints (tensor.data_ptr(), stream.cuda_stream); 0 is the default stream. What
is said in include/pagestash/*.h about threads, streams and capture holds here."""
import contextlib
import ctypes
import dataclasses
import logging
import os
import threading
import weakref

from . import _abi, _c
from ._c import call, lib
from ._checks import Error, Once, Same, is_a, listed, number_of, shown, within

_KINDS = {"prefix": _abi.PST_ROWS_PREFIX, "segments": _abi.PST_ROWS_SEGMENTS,
          "sum": _abi.PST_ROWS_SUM}
_COUNTS = {4: _abi.PST_COUNT_INT32, 8: _abi.PST_COUNT_INT64}
_TAILS = {"untouched": _abi.PST_TAIL_UNTOUCHED, "zero": _abi.PST_TAIL_ZERO_ALL}
MODES = {"ordered": _abi.PST_POOL_ORDERED, "concurrent": _abi.PST_POOL_CONCURRENT}
_RESETS = {"pages": _abi.PST_RESET_PAGES, "faults": _abi.PST_RESET_FAULTS,
           "statistics": _abi.PST_RESET_STATISTICS}
_PRIORITIES = {"stream": 0, "low": _abi.PST_PRIORITY_LOW, "high": _abi.PST_PRIORITY_HIGH}
_SHARES = {0.5: _abi.PST_STEPS_P50, 0.9: _abi.PST_STEPS_P90, 0.99: _abi.PST_STEPS_P99,
           0.999: _abi.PST_STEPS_P999, 1.0: _abi.PST_STEPS_ALL}
_make_room_type = dict(_abi.pst_pool_config._fields_)["make_room"]


class Device(Once):
    """A device of the library: "host" (this process's memory), "cuda", or "auto".

    Open ones of a name and index are one and the same: Device.open. Never closed but by the end of the
    process, since captured graphs may outlive everything else."""

    _open = {}
    _lock = threading.Lock()

    def __init__(self, name, index=0):
        self.name, self.index = is_a(name, str, "device"), index
        self.lock = threading.RLock()  # for callers that keep a stream to one thread at a time
        self.handle = _c.create("pst_device_open", name.encode(errors="replace"), index)

    @classmethod
    def open(cls, name, index=0):
        """The device of this name; opened once. Errors: no such device, a library without CUDA."""
        is_a(name, str, "device")
        index = within(index, "device index", -(1 << 31), (1 << 31) - 1)
        with cls._lock:
            if (name, index) not in cls._open:
                cls._open[name, index] = cls(name, index)
            return cls._open[name, index]

    def info(self):
        """pst_device_info: kind, name, num_sms, total_bytes, free_bytes, ..."""
        return _c.get("pst_device_get_info_sized", self.handle, _abi.pst_device_info)

    def copy(self, destination, source, num_bytes, stream=0):
        """Enqueues a copy between any two addresses of host and device memory."""
        call("pst_device_copy", self.handle, destination, source, num_bytes, stream)

    def synchronize(self):
        """Waits for all work of the device."""
        call("pst_device_synchronize", self.handle)


@dataclasses.dataclass(frozen=True)
class Space:
    """How live rows are counted: kind "prefix" (one count), "sum" (the sum of num_segments counts) or
    "segments" (a count for each of num_segments slabs of `capacity` rows)."""
    capacity: int
    kind: str = "prefix"
    num_segments: int = 0
    count_bytes: int = 8  # 4: int32; 8: int64


@dataclasses.dataclass(frozen=True)
class Rows:
    """A tensor of a form: bytes of a row, from one row to the next (0: row_bytes), index of its row
    space, rows as a share num/den of the space's, rounded up, and PST_WRITTEN_BY_*."""
    row_bytes: int
    row_stride: int = 0
    space: int = 0
    num: int = 1
    den: int = 1
    written_by: int = _abi.PST_WRITTEN_BY_STASH


@dataclasses.dataclass(frozen=True)
class Usage:
    """What live rows take: bytes of them, bytes of the byte stream, pages."""
    payload_bytes: int
    stream_bytes: int
    pages: int


class Form(Same):
    """A pst_group: what one launch stashes or restores, without addresses. Never changes; any thread.

    Errors: Error with the C library's sentence (space or tensor, field, value, allowed)."""

    __slots__ = ("spaces", "tensors", "handle", "num_counts", "bases_type", "counts_type",
                 "__weakref__")

    def __init__(self, spaces, tensors):
        self.spaces = tuple(listed(spaces, "spaces", "a sequence of Space"))
        self.tensors = tuple(listed(tensors, "tensors", "a sequence of Rows"))
        rows = (_abi.pst_row_space * len(self.spaces))(*(
            _raw_space(is_a(space, Space, f"space {i}"), f"space {i}")
            for i, space in enumerate(self.spaces)))
        described = (_abi.pst_tensor * len(self.tensors))(*(
            _c.filled(_abi.pst_tensor, f"tensor {i}", **vars(is_a(tensor, Rows, f"tensor {i}")))
            for i, tensor in enumerate(self.tensors)))
        config = _c.sized(_abi.pst_group_config, spaces=rows, num_spaces=len(rows),
                          tensors=described, num_tensors=len(described))
        self.handle = _c.create("pst_group_create", ctypes.byref(config))
        weakref.finalize(self, lib.pst_group_destroy, self.handle).atexit = False
        self.num_counts = lib.pst_group_num_counts(self.handle)
        self.bases_type = ctypes.c_void_p * len(described)
        self.counts_type = ctypes.c_void_p * len(rows)

    def __reduce__(self):
        return Form, (self.spaces, self.tensors)

    def measure(self, counts=None, page_bytes=0):
        """Usage for counts (ints, spaces one after the other; of a sum: the sum); None: at capacity."""
        usage, array = _abi.pst_group_usage(), None
        if counts is not None:
            array = _c.array(ctypes.c_int64, counts, "counts")
            if len(array) != self.num_counts:
                raise Error(f"measure: {len(array)} counts: the form has {self.num_counts}")
        call("pst_group_measure", self.handle, array, page_bytes, ctypes.byref(usage))
        return Usage(usage.payload_bytes, usage.stream_bytes, usage.pages)

    def buffers(self, bases, counts=()):
        """pst_buffers of these addresses: one for each tensor, one for each space. Errors: another number
        of them, what is no address."""
        out = _abi.pst_buffers(_BUFFERS_BYTES, _addresses(self.bases_type, bases, "bases"))
        if counts:
            out.counts = _addresses(self.counts_type, counts, "counts")
        return out


def _raw_space(space, where):
    return _c.filled(_abi.pst_row_space, where, capacity=space.capacity,
                     kind=number_of(_KINDS, space.kind, f"{where}: kind"),
                     count_type=number_of(_COUNTS, space.count_bytes, f"{where}: count_bytes"),
                     num_segments=space.num_segments)


def _addresses(kind, given, what):
    try:
        if len(given) == kind._length_ and min(given) >= 0 and not max(given) >> 64:
            return kind(*given)
    except (TypeError, ValueError):
        pass
    raise Error(f"{what} {shown(given)}: {kind._length_} addresses are wanted")


_BUFFERS_BYTES = ctypes.sizeof(_abi.pst_buffers)


@dataclasses.dataclass(frozen=True)
class Status:
    """A pool's status block as last published by a step. Pages of (device, host) are tuples.

    valid: nothing failed in the step that was closed. fault: a sentence about the first fault since the
    last reset, "" if there is none. demand: the most pages that were wanted at once since the last reset
    of the statistics, failed stashes included; step_demand: of the step that was closed."""
    steps: int
    valid: bool
    fault: str
    num_faults: int
    fault_wanted: int
    fault_free: tuple
    in_use: tuple
    high_water: tuple
    demand: int
    step_demand: int
    spilled_pages: int
    offloaded_pages: int
    check_errors: int
    raw: _abi.pst_pool_status = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, raw):
        """Of the C struct."""
        fault = lib.pst_fault_text(raw.fault).decode() if raw.fault_state else ""
        return cls(raw.steps, bool(raw.step_valid), fault, raw.num_faults, raw.fault_wanted,
                   tuple(raw.fault_free), tuple(raw.in_use), tuple(raw.high_water),
                   raw.demand_high_water, raw.step_demand, raw.spilled_pages,
                   raw.offloaded_pages, raw.check_errors, raw)


class Pool(Once):
    """Pages of `page_bytes` on a device, with tickets that are lent.

    pages, host_pages: how many on the device and in pinned host memory. max_pages, max_host_pages:
    what resize can go up to (addresses are reserved). tickets: stashes that can be live at once.
    slab_counts: row counts that one of them may have. memory: (address, bytes) of the caller's device
    memory, alive until close, aligned to 256; then max_pages must not be given. make_room(bytes, tier)
    is asked to free memory where there is too little; True: it is worth another try.
    Errors: Error with the C library's sentence."""

    def __init__(self, device, pages, *, page_bytes=0, host_pages=0, max_pages=0, max_host_pages=0,
                 tickets=64, slab_pages=0, slab_counts=0, mode="ordered", memory=None, scrub=False,
                 fails_fast=False, make_room=None):
        self.device = is_a(device, Device, "device")
        config = self.config(pages, page_bytes=page_bytes, host_pages=host_pages, max_pages=max_pages,
                             max_host_pages=max_host_pages, tickets=tickets, slab_pages=slab_pages,
                             slab_counts=slab_counts, mode=mode, scrub=scrub, fails_fast=fails_fast)
        if memory is not None:
            if not isinstance(memory, (tuple, list)) or len(memory) != 2:
                raise Error(f"memory {shown(memory)}: (address, bytes) is wanted")
            given = _c.filled(_abi.pst_pool_config, "memory", memory=memory[0], memory_bytes=memory[1])
            config.memory, config.memory_bytes = given.memory, given.memory_bytes
        if make_room is not None and not callable(make_room):
            raise Error(f"make_room {shown(make_room)}: a function is wanted")
        if make_room is not None:  # the C library calls it as long as the pool lives
            self._make_room = _make_room_type(
                lambda context, num_bytes, tier: bool(make_room(num_bytes, tier)))
            config.make_room = self._make_room
        self.handle, self.owner = _c.create("pst_pool_create", device.handle, ctypes.byref(config)), None
        self.mode, self.page_bytes = mode, self.info().page_bytes
        with device.lock, _watching:  # as in close
            _open_pools[self.handle] = self
            for watcher in _watchers:
                watcher.opened(self)

    @staticmethod
    def config(pages, *, page_bytes=0, host_pages=0, max_pages=0, max_host_pages=0, tickets=64,
               slab_pages=0, slab_counts=0, mode="ordered", scrub=False, fails_fast=False):
        """The pst_pool_config of these."""
        return _c.sized(_abi.pst_pool_config, page_bytes=page_bytes, num_pages=pages,
                        mode=number_of(MODES, mode, "pool mode"), num_host_pages=host_pages, max_pages=max_pages,
                        max_host_pages=max_host_pages, slab_tickets=tickets, slab_pages=slab_pages,
                        slab_counts=slab_counts, scrub=scrub, fails_fast=fails_fast)

    @classmethod
    def bytes(cls, pages, **fields):
        """Device bytes that a pool of these takes."""
        out, config = ctypes.c_uint64(), cls.config(pages, **fields)
        call("pst_pool_bytes", ctypes.byref(config), ctypes.byref(out))
        return out.value

    def info(self):
        """pst_pool_info: num_pages, max_pages, held_bytes, slab_taken, ..."""
        return _c.get("pst_pool_get_info_sized", self.handle, _abi.pst_pool_info)

    def take(self, stream=0):
        """A ticket for work on `stream`, an int. Errors: none can be had (the sentence has the numbers)."""
        ticket = _abi.pst_ticket()
        call("pst_ticket_take", self.handle, stream, ctypes.byref(ticket))
        return ticket.id

    @staticmethod
    def give(ticket, stream=0):
        """Gives it back; `stream` is behind everything that was enqueued with it."""
        call("pst_ticket_give", _ticket(ticket), stream)

    @staticmethod
    def stash(ticket, form, buffers, stream=0, options=None):
        """Copies the live rows into pages; options: pst_stash_options, or None."""
        call("pst_ticket_stash", _ticket(ticket), is_a(form, Form, "form").handle, _reference(buffers),
             options, stream)

    @staticmethod
    def restore(ticket, form, buffers, stream=0, options=None):
        """Copies them back; options: pst_restore_options, or None."""
        call("pst_ticket_restore", _ticket(ticket), is_a(form, Form, "form").handle,
             _reference(buffers), options, stream)

    def step(self, stream=0):
        """Closes a step, and publishes the status."""
        call("pst_pool_step", self.handle, stream)

    def check(self, stream=0):
        """Checks that no page is lost or owned twice: Status.check_errors of the next step."""
        call("pst_pool_check", self.handle, stream)

    def reset(self, *what, stream=0):
        """Resets "pages", "faults", "statistics"; without a name all of them."""
        bits = sum({number_of(_RESETS, name, "reset") for name in what}) or _abi.PST_RESET_ALL
        call("pst_pool_reset", self.handle, bits, stream)

    def status(self):
        """The Status last published, or None before the first; waits for nothing."""
        raw = _abi.pst_pool_status()
        status = lib.pst_pool_poll(self.handle, ctypes.byref(raw))
        if status == _abi.PST_E_AGAIN:
            return None
        _c.check(status, "pst_pool_poll")
        return Status.of(raw)

    def recommend(self, share=1.0):
        """Pages of both tiers that are enough for this share of the steps: 0.5, 0.9, 0.99, 0.999, 1."""
        number = number_of(_SHARES, share, "share")
        raw, out = _abi.pst_pool_status(), ctypes.c_uint64()
        call("pst_pool_poll", self.handle, ctypes.byref(raw))
        call("pst_pool_recommend_pages", ctypes.byref(raw), number, ctypes.byref(out))
        return out.value

    def resize(self, pages, host_pages=None):
        """Changes the number of pages: what is live stays when they become more. Waits for the device."""
        if host_pages is None:
            host_pages = self.info().num_pages[1]
        call("pst_pool_resize", self.handle, pages, host_pages)

    @property
    def step_valid_address(self):
        """Device address of the int32 that is 0 once something failed in this step; until close."""
        return ctypes.cast(lib.pst_pool_step_valid(self.handle), ctypes.c_void_p).value

    def close(self):
        """Waits for the device and frees the pool. Errors: tickets or captured graphs hold it; with
        PAGESTASH_CHECK=1 its memory was overwritten, and then it is freed, too."""
        with self.device.lock, _watching:  # in this order, as who closes a pool under the device's lock has them
            if not self.handle:
                return
            for watcher in _watchers:
                watcher.closing(self)
            status = lib.pst_pool_destroy(self.handle)
            is_gone = status in (_abi.PST_OK, _abi.PST_E_DAMAGED)
            for watcher in _watchers:
                watcher.closed(self, is_gone)
            if is_gone:
                _open_pools.pop(self.handle, None)  # gone already where garbage is collected
                self.handle = None
            _c.check(status, "pst_pool_destroy")


def _ticket(number):
    if type(number) is int and 0 <= number < 1 << 64:
        return _abi.pst_ticket(number)
    raise Error(f"ticket {shown(number)}: a number that take answered is wanted")


def _reference(buffers):
    return ctypes.byref(is_a(buffers, _abi.pst_buffers, "buffers"))


def close_behind(owner, kind):
    """Closes at the end of a `with`. Behind an exception what stays alive is not the news, and goes with the owner;
    damage may be why there is one, and is told."""
    try:
        owner.close()
    except Error as error:
        if kind is None:
            raise
        if error.status == "PST_E_DAMAGED":
            logging.getLogger("pagestash").warning("pagestash: %s", error)


_watching = threading.RLock()
_watchers = []
_open_pools = weakref.WeakValueDictionary()  # by handle
_forking = []  # locks that the thread which forks has taken
first_in_fork = []  # of other modules, held by who asks for those here


def _before_fork():
    """Waits for threads that are at work: in the child nobody would give back what they have. A signal's handler
    may raise in here, and the process forks all the same: so each lock is noted as it is taken."""
    taken = []
    _forking.append(taken)
    for lock in (*first_in_fork, Device._lock, *(device.lock for device in list(Device._open.values())), _watching):
        lock.acquire()
        taken.append(lock)


def _after_fork():
    for lock in reversed(_forking.pop()):
        lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def watch(watcher):
    """Tells watcher.opened(pool) of every pool, those that are open included; watcher.closing(pool) before
    one is destroyed; watcher.closed(pool, is_gone) after that was tried. For who is given handles by
    others (torch's operators), so that a stale one is an error."""
    with contextlib.ExitStack() as held:
        for lock in (*(device.lock for device in list(Device._open.values())), _watching):
            held.enter_context(lock)
        _watchers.append(watcher)
        for pool in list(_open_pools.values()):
            watcher.opened(pool)


def stash_options(num_sms=0, priority="low"):
    """pst_stash_options with an SM budget; 0: $PAGESTASH_NUM_SMS, else all SMs."""
    return _c.sized(_abi.pst_stash_options, launch=_launch(num_sms, priority))


def restore_options(num_sms=0, keep=False, tail="zero", failed_zero=True, priority="high"):
    """pst_restore_options. keep: the pages stay. tail "zero": rows behind the live ones are cleared.
    failed_zero: a restore that cannot copy clears all rows, so that a lost step carries no NaN."""
    return _c.sized(_abi.pst_restore_options, launch=_launch(num_sms, priority), pages=int(bool(keep)),
                    tail=number_of(_TAILS, tail, "tail"), failed=int(bool(failed_zero)))


def _launch(num_sms, priority):
    return _c.filled(_abi.pst_launch_options, num_sms=num_sms,
                     priority=number_of(_PRIORITIES, priority, "priority"))
