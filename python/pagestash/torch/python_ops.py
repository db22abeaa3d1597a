"""The kernels of torch.ops.pagestash.* in Python: for a torch below 2.10, and where no binary was built.

They do and say what csrc/*.cpp does and says."""
import ctypes
import functools

import torch

from .. import _abi
from .. import pool as pools
from .._c import Error
from .tokens import Cell, Token, Tokens, check_open

_MAX_COUNTS = _abi.PST_MAX_SEGMENTS
_MOST_ROWS = 1 << 45


class PythonOps(Tokens):
    """The kernels, and the pools and tokens that they know."""
    kind = "python"

    def __init__(self, library, key):
        super().__init__()
        for name in ("stash", "_stash_into", "restore", "release"):
            library.impl(name, getattr(self, name), key)

    # ---- kernels

    def stash(self, tensors, counts, pool, capacity, segments=0, num_sms=0, site=0):
        """See ops.SCHEMAS."""
        del site
        cell = Cell(self.died)
        token = torch.frombuffer(cell, dtype=torch.int64)
        self._stash_into(token, tensors, counts, pool, capacity, segments, num_sms)
        cell.id = cell.value
        return token

    def _stash_into(self, cell, tensors, counts, pool, capacity, segments, num_sms):
        what = "pagestash.stash"
        known = self.pool_of(pool, what)
        with known.lock:
            check_open(known)
            found = Buffers(known, tensors, counts, capacity, segments, what, "tensor")
            options = pools.stash_options(sms(num_sms, what))
            stream = known.stream()
            if known.graves:
                self.drain_of(known, stream, False)
            ticket = known.pool.take(stream)
            try:
                known.pool.stash(ticket, found.form, found.raw, stream, options)
            except Error:
                known.pool.give(ticket, stream)
                raise
            self.tokens[ticket] = Token(ticket, known, (capacity, segments, found.row_bytes), stream)
            cell.fill_(ticket)

    def restore(self, token, destinations, pool, num_sms=0, keep=False, after=None):
        """See ops.SCHEMAS."""
        del after
        what = "pagestash.restore"
        known = self.pool_of(pool, what)
        with known.lock:
            check_open(known)
            stream = known.stream()
            claimed = self.claim(token, known, what)
            try:
                self._restore(claimed, destinations, sms(num_sms, what), keep, stream)
            except BaseException:
                self.keep(claimed, claimed.stream)
                raise
            (self.keep if keep else self.give)(claimed, stream)

    @staticmethod
    def _restore(token, destinations, num_sms, keep, stream):
        what = "pagestash.restore"
        capacity, segments, row_bytes = token.shape
        if len(destinations) != len(row_bytes):
            raise Error(f"{what}: {len(destinations)} destinations for a stash of {len(row_bytes)} tensors")
        found = Buffers(token.pool, destinations, None, capacity, segments, what, "destination")
        for i, (mine, stashed) in enumerate(zip(found.row_bytes, row_bytes)):
            if mine != stashed:
                raise Error(f"{what}: destination {i} has {mine} bytes in a row, and what was stashed "
                            f"{stashed}")
        token.pool.pool.restore(token.ticket, found.form, found.raw, stream,
                                pools.restore_options(num_sms, keep))

    def release(self, token):
        """See ops.SCHEMAS."""
        claimed = self.claim(token, None, "pagestash.release")
        known = claimed.pool
        with known.lock:
            try:
                check_open(known)
                stream = known.stream()
            except BaseException:
                self.keep(claimed, claimed.stream)
                raise
            self.give(claimed, stream)


def sms(num_sms, what):
    """The same, looked at."""
    if not 0 <= num_sms <= 1 << 20:
        raise Error(f"{what}: num_sms {num_sms} must be 0 (all) or more")
    return num_sms


@functools.lru_cache(maxsize=1024)
def form_of(kind, num_segments, count_bytes, row_bytes, written_by=_abi.PST_WRITTEN_BY_STASH):
    """Each launch names its own capacity and strides. written_by: of every tensor."""
    return pools.Form([pools.Space(1, kind, num_segments, count_bytes)],
                      [pools.Rows(size, written_by=written_by) for size in row_bytes])


class Buffers:
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
            found.append(rows_of(tensor, capacity, segments, what, f"{name} {i}"))
        self.row_bytes = tuple(row_bytes for row_bytes, _, _ in found)
        kind, num, count_bytes = ("segments", segments, 8) if segments else ("prefix", 0, 8)
        if counts is not None:
            kind, num, count_bytes = counting(known, counts, segments, what)
        self.form = form_of(kind, num, count_bytes, self.row_bytes)
        strides = ctypes.c_uint64 * len(tensors)
        self.raw = self.form.buffers([tensor.data_ptr() for tensor in tensors],
                                     () if counts is None else (counts.data_ptr(),))
        self.raw.capacities = (ctypes.c_int64 * 1)(capacity)
        self.raw.row_strides = strides(*(stride for _, stride, _ in found))
        self.raw.segment_strides = strides(*(stride for _, _, stride in found))


def counting(known, counts, segments, what):
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


def rows_of(tensor, capacity, segments, what, name):
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
