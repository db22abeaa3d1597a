"""The kernels of torch.ops.pagestash.glu_forward and glu_backward: one launch each, with a ticket of a pool
or in memory alone."""
import ctypes
import functools

import torch

from .. import _abi, _c
from .. import pool as pools
from .._checks import Error, number_of
from .python_ops import counting, form_of, sms
from .tokens import Cell, Place, Token, Tokens, check_open

KINDS = {"swiglu": _abi.PST_GLU_SWIGLU, "geglu": _abi.PST_GLU_GEGLU,
         "geglu_tanh": _abi.PST_GLU_GEGLU_TANH, "reglu": _abi.PST_GLU_REGLU,
         "quick_geglu": _abi.PST_GLU_QUICK_GEGLU, "clamped": _abi.PST_GLU_CLAMPED}
TAILS = ("zero", "untouched")
_DTYPES = {torch.bfloat16: _abi.PST_GLU_BF16, torch.float16: _abi.PST_GLU_FP16,
           torch.float32: _abi.PST_GLU_FP32}
_NONE = _abi.pst_ticket(0)


class GluOps(Tokens):
    """The kernels, and the pools and tokens that they know."""

    def forward(self, x, counts, probability, pool, kind="swiglu", segments=0, interleave=0, limit=0.0,
                alpha=0.0, bias=0.0, tail="zero", num_sms=0, site=0):
        """See gated.SCHEMAS."""
        del site
        what = "pagestash.glu"
        features = check_input(x, segments)
        glu = _glu(kind, x.dtype, interleave, limit, alpha, bias)
        known = self.pool_of(pool, what) if pool else _place(x.device)
        output = _allocate(x, (*x.shape[:-1], features), tail)
        if not x.numel():
            return output, torch.zeros(1, dtype=torch.int64)
        with known.lock:
            launch = _Launch(known, x, counts, segments, what)
            launch.operand("output", output)
            launch.operand("probability", check_probability(known, probability, x.shape))
            options = pools.stash_options(sms(num_sms, what), "stream")
            if not pool:
                launch.enqueue("pst_glu_forward", glu, _NONE, options, known.stream())
                return output, torch.zeros(1, dtype=torch.int64)
            return output, self._stash(known, launch, glu, options)

    def _stash(self, known, launch, glu, options):
        """The launch with a ticket: the token."""
        stream = self._enter(known)
        if known.graves:
            self.drain_of(known, stream, False)
        cell = Cell(self.died)
        token = torch.frombuffer(cell, dtype=torch.int64)
        ticket = known.pool.take(stream)
        try:
            launch.enqueue("pst_glu_forward", glu, _abi.pst_ticket(ticket), options, stream)
        except BaseException:
            known.pool.give(ticket, stream)
            raise
        self.tokens[ticket] = Token(ticket, known, (launch.form_key, bytes(glu)), stream)
        cell.value = cell.id = ticket
        return token

    def backward(self, token, x, gradient, counts, probability, pool, kind="swiglu", segments=0,
                 interleave=0, limit=0.0, alpha=0.0, bias=0.0, tail="zero", num_sms=0, of_probability=False,
                 output=False):
        """See gated.SCHEMAS."""
        what = "pagestash.glu_backward"
        shape = (*gradient.shape[:-1], 2 * gradient.shape[-1])
        found = (_allocate(gradient, shape, tail),
                 gradient.new_zeros(shape[:-1] if of_probability else 0, dtype=torch.float32),
                 _allocate(gradient, gradient.shape if output else (0,), tail))
        if not gradient.numel():
            return found
        glu = _glu(kind, gradient.dtype, interleave, limit, alpha, bias)
        known = self.pool_of(pool, what) if pool else _place(gradient.device)
        with known.lock:
            probability = check_probability(known, probability, shape)
            if pool:
                launch = _Launch(known, None, None, segments, what, shape, gradient.element_size())
            else:
                launch = _Launch(known, x, counts, segments, what)
            for name, tensor in zip(("input_gradient", "probability_gradient", "output"), found):
                launch.operand(name, tensor if tensor.numel() else None)
            launch.operand("probability", probability)
            launch.operand("gradient", gradient)
            if pool:
                self._restore(known, launch, glu, token, sms(num_sms, what))
            else:
                launch.enqueue("pst_glu_backward", glu, _NONE, _options(sms(num_sms, what)), known.stream())
        return found

    def _restore(self, known, launch, glu, token, num_sms):
        """The launch with the token's ticket, which it consumes but where the pool's stash retains."""
        what = "pagestash.glu_backward"
        stream, keep = self._enter(known), _retains(known.pool)
        claimed = self.claim(token, known, what)
        try:
            form, activation = claimed.shape
            if form != launch.form_key:
                raise Error(f"{what}: the gradient is of (rows, segments, bytes of an input's row) "
                            f"{launch.form_key}, and the token of {form}")
            if activation != bytes(glu):
                raise Error(f"{what}: the token's activation is {_named(activation)}, and this is "
                            f"{_named(glu)}")
            launch.enqueue("pst_glu_backward", glu, _abi.pst_ticket(claimed.ticket), _options(num_sms, keep),
                           stream)
        except BaseException:
            self.keep(claimed, claimed.stream)
            raise
        (self.keep if keep else self.give)(claimed, stream)

    @staticmethod
    def _enter(known):
        """The stream for a launch in an open pool, behind what its stash does on another one."""
        check_open(known)
        owner = _owner(known.pool)
        if owner is not None:
            owner.drain()
            owner.streams.enter()
            owner.streams.leave(waits=True)
        return known.stream()


class _Launch:
    """Addresses of one launch. form_key: rows, segments, bytes of an input's row. Errors: what does not fit.
    x None: the input, of this shape, is in pages."""

    def __init__(self, known, x, counts, segments, what, shape=None, item=0):
        self.known, self.what, self.held = known, what, []
        shape, item = (shape, item) if x is None else (x.shape, x.element_size())
        self.shape, self.capacity, row_bytes = shape, shape[-2], shape[-1] * item
        self.form_key = self.capacity, segments, row_bytes
        kind, num, count_bytes = ("segments", segments, 8) if segments else ("prefix", 0, 8)
        if counts is not None:
            kind, num, count_bytes = counting(known, counts, segments, what)
        self.form = form_of(kind, num, count_bytes, (row_bytes,), _abi.PST_WRITTEN_BY_GLU)
        base, row_stride, segment_stride = (0, 0, 0) if x is None else self._rows(x, "x")
        self.raw = self.form.buffers([base], () if counts is None else (counts.data_ptr(),))
        self.raw.capacities = (ctypes.c_int64 * 1)(self.capacity)
        self.raw.row_strides = (ctypes.c_uint64 * 1)(row_stride)
        self.raw.segment_strides = (ctypes.c_uint64 * 1)(segment_stride)
        self.operands = _c.sized(_abi.pst_glu_operands)

    def operand(self, name, tensor):
        """Of these rows; None: there are none."""
        if tensor is not None:
            setattr(self.operands, name, _abi.pst_glu_rows(*self._rows(tensor, name)))

    def _rows(self, tensor, name):
        """(address, bytes from one row to the next, bytes from one segment to the next); 0: packed. What has
        no rows without gaps is copied."""
        self.known.check_device(tensor, self.what, name)
        dims = len(self.shape) - 1
        strides, sizes = tensor.stride()[:dims], tensor.shape[:dims]
        dense = tensor.dim() == dims or tensor.shape[-1] == 1 or tensor.stride(-1) == 1
        row = tensor.shape[-1] if tensor.dim() > dims else 1
        mixed = dims > 1 and sizes[0] > 1 and strides[0] < (sizes[1] - 1) * strides[1] + row
        if not dense or mixed or any(size > 1 and stride < row for size, stride in zip(sizes, strides)):
            tensor = tensor.contiguous()
            strides = tensor.stride()[:dims]
        self.held.append(tensor)
        return (tensor.data_ptr(), strides[-1] * tensor.element_size() if sizes[-1] > 1 else 0,
                strides[0] * tensor.element_size() if dims > 1 and sizes[0] > 1 else 0)

    def enqueue(self, name, glu, ticket, options, stream):
        """Calls pst_glu_forward or pst_glu_backward."""
        _c.call(name, self.known.raw.handle, glu, ticket, self.form.handle, ctypes.byref(self.raw),
                ctypes.byref(self.operands), options, stream)


def check_input(x, segments):
    """F of (capacity, 2 F), or of (segments, capacity, 2 F)."""
    dims = 3 if segments else 2
    if x.dim() != dims or segments and x.shape[0] != segments or x.shape[-1] % 2 or not x.shape[-1]:
        raise Error(f"pagestash.glu: x has shape {tuple(x.shape)}; with segments={segments} it must be "
                    f"({f'{segments}, ' if segments else ''}capacity, 2 F)")
    return x.shape[-1] // 2


def check_probability(known, probability, shape):
    """The same. shape: of the input."""
    if probability is None:
        return None
    known.check_device(probability, "pagestash.glu", "probability")
    if probability.dtype != torch.float32 or probability.shape != shape[:-1]:
        raise Error(f"pagestash.glu: probability is {probability.dtype} of shape {tuple(probability.shape)}; "
                    f"it must be torch.float32 of {tuple(shape[:-1])}")
    return probability


@functools.lru_cache(maxsize=64)
def _glu(kind, dtype, interleave, limit, alpha, bias):
    if dtype not in _DTYPES:
        raise Error(f"pagestash.glu: x is {dtype}; allowed are {', '.join(map(str, _DTYPES))}")
    return _c.sized(_abi.pst_glu, kind=number_of(KINDS, kind, "pagestash.glu: kind"), dtype=_DTYPES[dtype],
                    interleave=interleave, limit=limit, alpha=alpha, bias=bias)


def _named(glu):
    """Of a pst_glu, or its bytes."""
    glu = _abi.pst_glu.from_buffer_copy(glu)
    kind = next(name for name, value in KINDS.items() if value == glu.kind)
    dtype = next(name for name, value in _DTYPES.items() if value == glu.dtype)
    clamped = f", limit {glu.limit:g}, alpha {glu.alpha:g}, bias {glu.bias:g}" if kind == "clamped" else ""
    return f"{kind} of {dtype}, interleave {glu.interleave}{clamped}"


def _options(num_sms, keep=False):
    return pools.restore_options(num_sms, keep, tail="untouched", priority="stream")


def _allocate(like, shape, tail):
    number_of(TAILS, tail, "pagestash.glu: tail")
    return like.new_zeros(shape) if tail == "zero" else like.new_empty(shape)


@functools.lru_cache(maxsize=64)
def _place(device):
    if device.type not in ("cpu", "cuda"):
        raise Error(f"pagestash.glu: x is on {device}; allowed are cpu and cuda")
    name = "cuda" if device.type == "cuda" else "host"
    return Place(pools.Device.open(name, device.index or 0))


def _owner(pool):
    """The stash that has made the pool; None: nobody has, or it is gone."""
    return pool.owner and pool.owner()


def _retains(pool):
    owner = _owner(pool)
    return owner is not None and owner.retain
