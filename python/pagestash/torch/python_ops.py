"""The kernels of torch.ops.pagestash.* in Python: for a torch below 2.10, and where no binary was built.

They do and say what csrc/*.cpp does and says. A token is the memory of a ctypes object, which torch keeps
as long as any tensor shares it."""
import collections
import ctypes
import functools
import threading

import torch

from .. import _abi
from .. import pool as pools
from .._c import Error

_MAX_COUNTS = _abi.PST_MAX_SEGMENTS
_MOST_ROWS = 1 << 45


class Cell(ctypes.c_int64):
    """The int64 of a token. Calls died(id) when no tensor shares it any more; 0: it never was one."""
    id = 0

    def __init__(self, died):
        ctypes.c_int64.__init__(self, 0)  # super() needs a metaclass that ctypes lacks in some 3.12
        self.died = died

    def __del__(self):
        if self.id:
            self.died(self.id)


class _Pool:
    """An open pool. graves: tokens that died, appended by finalisers in any thread."""

    def __init__(self, pool):
        self.handle, self.ordered = pool.handle, pool.mode == "ordered"
        self.pool, self.lock, self.is_open = pool, pool.device.lock, True
        self.is_cuda = int(pool.device.info().kind) == _abi.PST_DEVICE_CUDA
        self.device = torch.device("cuda", pool.device.index) if self.is_cuda else torch.device("cpu")
        self.graves = collections.deque()

    def stream(self):
        """The current one, as an int."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.is_cuda else 0

    def check_device(self, tensor, what, name):
        """Raises where the tensor is not on the pool's device."""
        if tensor.layout != torch.strided:
            raise Error(f"{what}: {name} is not a strided tensor")
        if tensor.device != self.device:
            raise Error(f"{what}: {name} is on {_place(tensor.device)}, and the pool on "
                        f"{_place(self.device)}")


def _place(device):
    if device.type == "cuda":
        return str(device)
    return "the CPU" if device.type == "cpu" else "another device"


class _Token:
    __slots__ = ("ticket", "pool", "shape", "stream", "held", "is_dead")

    def __init__(self, ticket, pool, shape, stream):
        self.ticket, self.pool, self.shape, self.stream = ticket, pool, shape, stream
        self.held, self.is_dead = "live", False  # held: live, busy, given


class PythonOps:
    """The kernels, and the pools and tokens that they know."""
    kind = "python"

    def __init__(self, library, key):
        self.pools, self.tokens = {}, {}  # by handle; by id, of tensors that live
        self.lock = threading.RLock()     # of `held`; a finaliser may run under it
        for name in ("stash", "_stash_into", "restore", "release"):
            library.impl(name, getattr(self, name), key)

    # ---- pools

    def opened(self, pool):
        """Of pool.watch."""
        self.pools[pool.handle] = _Pool(pool)

    def closing(self, pool):
        """Of pool.watch."""
        self.drain(pool.handle, 0)
        known = self.pools[pool.handle]
        with known.lock:
            known.is_open = False

    def closed(self, pool, is_gone):
        """Of pool.watch."""
        if is_gone:
            self.pools.pop(pool.handle, None)
        else:
            self.pools[pool.handle].is_open = True

    def _pool(self, handle, what):
        known = self.pools.get(handle)
        if known is None:
            raise Error(f"{what}: pool {handle} is not open: it was closed, or never was a Pool.handle")
        return known

    # ---- tokens

    def _died(self, ticket):
        """Called by finalisers."""
        token = self.tokens.pop(ticket, None)
        if token is None:
            return
        token.is_dead = True
        if token.held == "live":
            token.pool.graves.append(token)

    def _claim(self, tensor, known, what):
        if tensor.device.type != "cpu" or tensor.numel() != 1 or tensor.dtype != torch.int64:
            raise Error(f"{what}: the token must be what stash gave: one int64 on the CPU")
        number = tensor.item()
        with self.lock:
            token = self.tokens.get(number)
            if token is None:
                raise Error(f"{what}: {number} is not the token of a stash that is still there")
            if known is not None and token.pool is not known:
                raise Error(f"{what}: token {number} is of another pool")
            if token.held == "busy":
                raise Error(f"{what}: token {number} is in use by another thread")
            if token.held == "given":
                raise Error(f"{what}: token {number} was restored or released already; a restore with "
                            "keep can be repeated")
            token.held = "busy"
        return token

    def _keep(self, token, stream):
        with self.lock:
            token.stream, token.held = stream, "live"
            if token.is_dead:
                token.pool.graves.append(token)

    def _give(self, token, stream):
        waits = not _given(token.ticket, stream)
        with self.lock:
            token.stream, token.held = stream, "given"
            if waits:
                token.pool.graves.append(token)

    def drain(self, handle, stream):
        """Tickets that have to wait still; -1: the pool is not open."""
        known = self.pools.get(handle)
        if known is None:
            return -1
        with known.lock:
            return self._drain(known, stream, True)

    @staticmethod
    def _drain(known, stream, everything):
        for _ in range(len(known.graves)):
            token = known.graves.popleft()
            # Of an ordered pool the caller has ordered every stream behind the one before.
            may = everything or known.ordered or token.stream == stream
            if not may or not _given(token.ticket, stream if known.ordered else token.stream):
                known.graves.append(token)
        return len(known.graves)

    # ---- kernels

    def stash(self, tensors, counts, pool, capacity, segments=0, num_sms=0, site=0):
        """See ops.SCHEMAS."""
        del site
        cell = Cell(self._died)
        token = torch.frombuffer(cell, dtype=torch.int64)
        self._stash_into(token, tensors, counts, pool, capacity, segments, num_sms)
        cell.id = cell.value
        return token

    def _stash_into(self, cell, tensors, counts, pool, capacity, segments, num_sms):
        what = "pagestash.stash"
        known = self._pool(pool, what)
        with known.lock:
            _check_open(known)
            found = _Buffers(known, tensors, counts, capacity, segments, what, "tensor")
            options = pools.stash_options(_sms(num_sms, what))
            stream = known.stream()
            if known.graves:
                self._drain(known, stream, False)
            ticket = known.pool.take(stream)
            try:
                known.pool.stash(ticket, found.form, found.raw, stream, options)
            except Error:
                known.pool.give(ticket, stream)
                raise
            self.tokens[ticket] = _Token(ticket, known, (capacity, segments, found.row_bytes), stream)
            cell.fill_(ticket)

    def restore(self, token, destinations, pool, num_sms=0, keep=False, after=None):
        """See ops.SCHEMAS."""
        del after
        what = "pagestash.restore"
        known = self._pool(pool, what)
        with known.lock:
            _check_open(known)
            stream = known.stream()
            claimed = self._claim(token, known, what)
            try:
                self._restore(claimed, destinations, _sms(num_sms, what), keep, stream)
            except BaseException:
                self._keep(claimed, claimed.stream)
                raise
            (self._keep if keep else self._give)(claimed, stream)

    @staticmethod
    def _restore(token, destinations, num_sms, keep, stream):
        what = "pagestash.restore"
        capacity, segments, row_bytes = token.shape
        if len(destinations) != len(row_bytes):
            raise Error(f"{what}: {len(destinations)} destinations for a stash of {len(row_bytes)} tensors")
        found = _Buffers(token.pool, destinations, None, capacity, segments, what, "destination")
        for i, (mine, stashed) in enumerate(zip(found.row_bytes, row_bytes)):
            if mine != stashed:
                raise Error(f"{what}: destination {i} has {mine} bytes in a row, and what was stashed "
                            f"{stashed}")
        token.pool.pool.restore(token.ticket, found.form, found.raw, stream,
                                pools.restore_options(num_sms, keep))

    def release(self, token):
        """See ops.SCHEMAS."""
        claimed = self._claim(token, None, "pagestash.release")
        known = claimed.pool
        with known.lock:
            try:
                _check_open(known)
                stream = known.stream()
            except BaseException:
                self._keep(claimed, claimed.stream)
                raise
            self._give(claimed, stream)


def _check_open(known):
    if not known.is_open:
        raise Error("pagestash: the pool is closed")


def _given(ticket, stream):
    """Whether the ticket is given; a capture of the stream refuses it."""
    try:
        pools.Pool.give(ticket, stream)
    except Error as error:
        return error.status != "PST_E_CAPTURE"
    return True


def _sms(num_sms, what):
    if not 0 <= num_sms <= 1 << 20:
        raise Error(f"{what}: num_sms {num_sms} must be 0 (all) or more")
    return num_sms


@functools.lru_cache(maxsize=1024)
def _form(kind, num_segments, count_bytes, row_bytes):
    """Each launch names its own capacity and strides."""
    return pools.Form([pools.Space(1, kind, num_segments, count_bytes)],
                      [pools.Rows(size) for size in row_bytes])


class _Buffers:
    """The form and the addresses of one launch. Errors: what does not fit; `what` (the operator) and `name`
    (of the tensors) begin the sentence. counts None: a restore."""

    def __init__(self, known, tensors, counts, capacity, segments, what, name):
        if not 1 <= len(tensors) <= _abi.PST_MAX_TENSORS:
            raise Error(f"{what}: {len(tensors)} tensors; 1 to {_abi.PST_MAX_TENSORS} are allowed")
        if not 1 <= capacity <= _MOST_ROWS:
            raise Error(f"{what}: capacity {capacity} must be 1 to 2^45 rows")
        if not 0 <= segments <= _MAX_COUNTS:
            raise Error(f"{what}: segments {segments} must be 0 to {_MAX_COUNTS}")
        found = []
        for i, tensor in enumerate(tensors):
            known.check_device(tensor, what, f"{name} {i}")
            found.append(_rows(tensor, capacity, segments, what, f"{name} {i}"))
        self.row_bytes = tuple(row_bytes for row_bytes, _, _ in found)
        kind, num, count_bytes = ("segments", segments, 8) if segments else ("prefix", 0, 8)
        if counts is not None:
            kind, num, count_bytes = _counting(known, counts, segments, what)
        self.form = _form(kind, num, count_bytes, self.row_bytes)
        strides = ctypes.c_uint64 * len(tensors)
        self.raw = self.form.buffers([tensor.data_ptr() for tensor in tensors],
                                     () if counts is None else (counts.data_ptr(),))
        self.raw.capacities = (ctypes.c_int64 * 1)(capacity)
        self.raw.row_strides = strides(*(stride for _, stride, _ in found))
        self.raw.segment_strides = strides(*(stride for _, _, stride in found))


def _counting(known, counts, segments, what):
    """(kind, number of segments, bytes of a count)."""
    known.check_device(counts, what, "counts")
    if counts.dtype not in (torch.int32, torch.int64):
        raise Error(f"{what}: counts must be int32 or int64")
    num = counts.numel()
    if not 1 <= num <= _MAX_COUNTS:
        raise Error(f"{what}: counts has {num} elements; 1 to {_MAX_COUNTS} are allowed")
    if segments and num != segments:
        raise Error(f"{what}: counts has {num} elements for {segments} segments")
    if not counts.is_contiguous():
        raise Error(f"{what}: counts is not contiguous")
    kind = "segments" if segments else "sum" if num > 1 else "prefix"
    return kind, 0 if kind == "prefix" else num, counts.element_size()


def _rows(tensor, capacity, segments, what, name):
    """(bytes of a row, bytes from one to the next, bytes from one segment to the next); 0: packed."""
    rows = capacity * max(segments, 1)
    if tensor.is_contiguous():
        total = tensor.numel() * tensor.element_size()
        if not total or total % rows:
            raise Error(f"{what}: {name} has {total} bytes, no multiple of {rows} rows (capacity "
                        f"{capacity}, segments {segments})")
        return total // rows, 0, 0
    first = 2 if segments else 1
    fits = tensor.dim() >= first and tensor.shape[first - 1] == capacity and \
        (not segments or tensor.shape[0] == segments)
    row_bytes = _dense_bytes(tensor, first) if fits else 0
    if not row_bytes:
        raise Error(f"{what}: {name} is neither contiguous nor rows without gaps of dimension {first - 1}, "
                    f"which must be the capacity {capacity}")
    item = tensor.element_size()
    row_stride = tensor.stride(first - 1) * item if capacity > 1 else 0
    segment_stride = tensor.stride(0) * item if segments > 1 else 0
    if capacity > 1 and row_stride < row_bytes or segments > 1 and segment_stride < row_bytes:
        raise Error(f"{what}: the rows of {name} overlap")
    return row_bytes, row_stride, segment_stride


def _dense_bytes(tensor, first):
    """Bytes of a row, the dimensions from `first` on; 0 where they have gaps."""
    elements = 1
    for size, stride in zip(reversed(tensor.shape[first:]), reversed(tensor.stride()[first:])):
        if size != 1 and stride != elements:
            return 0
        elements *= size
    return elements * tensor.element_size()
