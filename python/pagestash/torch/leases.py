"""Memory that is used for a moment: named buffers with one user at a time, at addresses that never move.

    with pagestash.torch.scratch("allgather", shape, dtype) as gathered:
        ...                          # on the current stream, or on what is joined to it

What a frame keeps of such a tensor is somebody else's afterwards. That is found: a second lease of a name is
an Error that names both places, a lease that outlives its scope is one, autograd refuses to give back what it
saved of a lease that has ended, and with PAGESTASH_CHECK=1 the bytes are NaN. See docs/parallel.md."""
import collections
import contextlib
import ctypes
import math
import sys
import threading
import time
import weakref
from typing import Optional, Sequence, Union

import torch

from .. import _abi, _c, pool as pools
from .._checks import Error, Once, is_a, listed, within
from .streams import Inline

_DEVICES = {"cpu": "host", "cuda": "cuda"}
_MOST_BYTES = (1 << 63) - 1
_QUANTIZED = tuple(getattr(torch, name) for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
                   if hasattr(torch, name))  # a view of torch.frombuffer of these crashes
PATIENCE = 2  # seconds: gloo's thread lets go of what it has gathered behind wait(), when it next runs
Device = Union[None, str, int, torch.device]


class Memory:
    """Lives as long as any tensor over one lease's memory does."""

    def __init__(self, scratch, name, address, num_bytes):
        self.scratch, self.name = scratch, name  # the memory stays while somebody could read it
        self.ended = False  # its lease
        self.__cuda_array_interface__ = {"shape": (num_bytes,), "typestr": "|u1", "version": 3,
                                         "data": (address, False), "stream": None}


class Lease(Once):
    """A buffer's only user, until `release` or the end of a `with`. tensor: over its memory; None: released."""

    __slots__ = ("name", "place", "tensor", "scratch", "memory", "_raw", "__weakref__")

    def __init__(self, scratch, name, place, tensor, memory, raw):
        self.name, self.place, self.tensor = name, place, tensor
        self.scratch, self.memory, self._raw = scratch, weakref.ref(memory), raw

    def release(self, place: Optional[str] = None) -> None:
        """The work with it ends here, in the order of the current stream. place: for messages; None: the
        caller's file and line. Errors: it was released before, and where."""
        self.release_on(self.scratch.streams.current(), place or caller(2))

    def release_on(self, stream, place):
        """The same, of a stream, an int."""
        raw = _abi.pst_lease(self._raw.address, self._raw.bytes, self._raw.id)  # the library clears it
        try:
            self.scratch.call("pst_scratch_release", ctypes.byref(raw), text(place), stream)
        finally:
            if raw.id == 0:  # also where the library says that something was wrong
                self._end()

    def _end(self):
        tensor, self.tensor, memory = self.tensor, None, self.memory()
        if memory is not None:
            memory.ended = True
        if tensor is not None and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)  # of what was saved of it autograd says so

    def __enter__(self) -> torch.Tensor:
        return self.tensor

    def __exit__(self, *error):
        if self.tensor is not None:
            self.release(caller(2))


class Scratch(Once):
    """Named buffers of a device. For all threads, one at a time; ranks that are threads have one each.

    device: of torch, cpu or cuda; None: cuda if there is one. reserve_bytes: addresses for each name, the most
    that it can grow to; 0: twice the device's memory. Errors: no such device, no addresses."""

    def __init__(self, device: Device = None, *, reserve_bytes: int = 0):
        self.handle = None
        self.torch_device = torch_device(device)
        self.device = pools.Device.open(_DEVICES[self.torch_device.type], self.torch_device.index or 0)
        self.streams, self.lock = Inline(self.torch_device), self.device.lock
        self.handed = weakref.WeakSet()  # Memory of tensors that somebody has
        self._late = collections.deque()  # of `later`
        config = _c.sized(_abi.pst_scratch_config, reserve_bytes=within(reserve_bytes, "reserve_bytes", 0,
                                                                        _MOST_BYTES))
        with self.lock:
            self.handle = _c.create("pst_scratch_create", self.device.handle, ctypes.byref(config))

    def call(self, function, *arguments):
        """One of the library's functions on this scratch. Errors: closed; its own."""
        with self.lock:
            self._catch_up()
            if self.handle is None:
                raise Error("the scratch is closed")
            _c.call(function, self.handle, *arguments)

    def later(self, end):
        """Calls end() under the lock: now where nobody has that, else before the next call of this scratch. For
        finalisers, which run in any thread and must not wait."""
        self._late.append(end)
        if self.lock.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self.lock.release()

    def _catch_up(self):
        while self._late:
            self._late.popleft()()

    def lease(self, name: str, shape: Sequence[int], dtype: torch.dtype, *,
              place: Optional[str] = None) -> Lease:
        """Leases the buffer of that name for work of the current stream from here on, which waits for the work
        of the lease before. Grows the buffer where it is too small.

        place: who asks, for messages; None: the caller's file and line. Its last 63 bytes are kept.
        Errors: the name is leased (by whom); in a capture, too small; names, bytes; no memory."""
        place = place or caller(2)
        shape, num_bytes = extent(shape, dtype)
        raw = _abi.pst_lease()
        with self.lock:  # who closes looks through `handed`
            self.call("pst_scratch_lease", text(name, "name"), num_bytes, text(place), self.streams.current(),
                      ctypes.byref(raw))
            memory = Memory(self, name, raw.address, num_bytes)
            self.handed.add(memory)
        return Lease(self, name, place, self._tensor(memory, raw, shape, dtype), memory, raw)

    def _tensor(self, memory, raw, shape, dtype):
        count = math.prod(shape)
        if self.streams.is_cuda:
            flat = torch.as_tensor(memory, device=self.torch_device).view(dtype) if count else \
                torch.empty(0, dtype=dtype, device=self.torch_device)
        else:
            array = (ctypes.c_char * raw.bytes).from_address(raw.address)
            array.memory = memory
            flat = torch.frombuffer(array, dtype=dtype, count=count) if count else \
                torch.empty(0, dtype=dtype, device="cpu")
        return flat.view(shape)

    @contextlib.contextmanager
    def scope(self, place: Optional[str] = None):
        """A context: what is leased in it is released in it. It may be around other scopes.

        Errors, at the end: a lease of it is alive (which, from where); it then counts as of the scope around."""
        self.call("pst_scratch_scope_begin", text(place or caller(3)))
        try:
            yield
        except BaseException:
            with contextlib.suppress(Error):  # what the exception left alive is not the news
                self.call("pst_scratch_scope_end")
            raise
        self.call("pst_scratch_scope_end")

    def reserve(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        """The buffer of that name is large enough for such a tensor, before a capture say, in which nothing
        grows. Waits for the device. Errors: in a capture; names, bytes; no memory."""
        _, num_bytes = extent(shape, dtype)
        self.call("pst_scratch_reserve", text(name, "name"), num_bytes)

    def info(self) -> "_abi.pst_scratch_info":
        """pst_scratch_info: mapped_bytes, leased_bytes, their peaks, num_leases, num_waits, num_live, ..."""
        out = _abi.pst_scratch_info()
        self.call("pst_scratch_get_info_sized", ctypes.byref(out), ctypes.sizeof(out))
        return out

    def trim(self) -> None:
        """Gives memory of names back that are not leased and that no graph leases. Waits for the releases.
        Errors: somebody holds a tensor of a lease that has ended (of which name); in a capture."""
        with settled(self.lock, self._dead, PATIENCE) as names:
            _check_dead(names, "trim")
            self.call("pst_scratch_trim")

    def close(self) -> None:
        """Frees everything. Errors: a lease lives, or a graph that leased; somebody holds a tensor of a lease
        that has ended; in a capture."""
        with settled(self.lock, self._dead, PATIENCE) as names:
            if self.handle is None:
                return
            _check_dead(names, "close")
            self.call("pst_scratch_destroy")
            self.handle = None

    def _dead(self):
        """Names of tensors that somebody holds, whose leases have ended."""
        return {memory.name for memory in self.handed if memory.ended and self.handle is not None}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pools.close_behind(self, kind)

    def __del__(self):
        if getattr(self, "handle", None) is not None and _c is not None:  # the interpreter may be ending
            _c.lib.pst_scratch_destroy(self.handle)  # refused where a graph holds it: then it stays


class Scratches:
    """The scratch of each device of this process, made when it is first asked for, and never closed.

    All its functions have `device`, None: cuda if there is one."""

    def __init__(self):
        self._made, self._lock = {}, threading.Lock()

    def of(self, device: Device = None) -> Scratch:
        """The device's Scratch."""
        device = torch_device(device)
        made = self._made.get(device)
        if made is None:
            with self._lock:
                made = self._made.get(device)
                if made is None:
                    made = self._made[device] = Scratch(device)
        return made

    def __call__(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: Device = None, *,
                 place: Optional[str] = None) -> Lease:
        """See Scratch.lease."""
        return self.of(device).lease(name, shape, dtype, place=place or caller(2))

    def scope(self, place: Optional[str] = None, device: Device = None):
        """See Scratch.scope."""
        return self.of(device).scope(place or caller(2))

    def reserve(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: Device = None) -> None:
        """See Scratch.reserve."""
        self.of(device).reserve(name, shape, dtype)

    def info(self, device: Device = None) -> "_abi.pst_scratch_info":
        """See Scratch.info."""
        return self.of(device).info()

    def trim(self, device: Device = None) -> None:
        """See Scratch.trim."""
        self.of(device).trim()


scratch = Scratches()
pools.first_in_fork.append(scratch._lock)


@contextlib.contextmanager
def settled(lock, look, seconds):
    """A context with the lock, and with what look() finds under it: for that long not what a thread is about to let
    go. The lock is free between two looks, so that such a thread, and others, go on."""
    deadline = time.monotonic() + seconds
    while True:
        with lock:
            found = look()
            if not found or time.monotonic() >= deadline:
                yield found
                return
        time.sleep(1e-4)


def _check_dead(names, what):
    if names:
        raise Error(f"scratch: {what}: somebody holds a tensor of '{min(names)}', whose lease has ended: its memory "
                    "would go under it")


def torch_device(device):
    """A device that scratch can be on, with its index. Errors: another one, none."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise Error(f"device {device!r}: {str(error).splitlines()[0]}") from None
    if device.type not in _DEVICES:
        raise Error(f"device {device}: allowed are cpu and cuda")
    return torch.device("cpu") if device == torch.device("cpu", 0) else device  # as tensors say it


def extent(shape, dtype):
    """(shape, bytes) of a tensor, at least 1. Errors: sizes that are none, bytes beyond 63 bits, quantized dtypes."""
    if is_a(dtype, torch.dtype, "dtype") in _QUANTIZED:
        raise Error(f"dtype {dtype}: scratch has no scales for a quantized tensor: any other dtype is allowed")
    shape = tuple(within(size, f"shape[{i}]", 0, _MOST_BYTES) for i, size in enumerate(listed(shape, "shape")))
    return shape, within(max(math.prod(shape) * dtype.itemsize, 1), "bytes of the shape", 0, _MOST_BYTES)


def text(given, what="place"):
    """For the library. Of a place the end, since a path's end says most."""
    data = is_a(given, str, what).encode(errors="replace")
    if b"\0" in data:
        raise Error(f"{what} {given!r}: it has a zero in it")
    most = _abi.PST_SCRATCH_MAX_NAME_BYTES - 1
    return data if what != "place" or len(data) <= most else b"..." + data[3 - most:]


def caller(depth):
    """"file:line" of a frame above this one."""
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
