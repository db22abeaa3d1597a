"""torch.ops.pagestash.*: stash and restore as operators, for torch.compile, export and autograd.Function.

    class Experts(torch.autograd.Function):
        def forward(ctx, x, weight, counts, pool):
            token = torch.ops.pagestash.stash([x], counts, pool, x.shape[0])
            ctx.save_for_backward(token, weight); ctx.pool, ctx.shape = pool, x.shape
            return x @ weight
        def backward(ctx, dy):
            token, weight = ctx.saved_tensors
            x = dy.new_empty(ctx.shape)
            torch.ops.pagestash.restore(token, [x], ctx.pool, after=dy)
            return dy @ weight.t(), x.t() @ dy, None, None

pool is Pool.handle, of a pool with a slab of tickets (Stash.pool is one). The functions of this module do the
same with a Pool, and raise pagestash.Error; outside of torch.compile what torch raises is a RuntimeError
with the same sentence.

`kind` says which kernels run: "stable", in C++ by torch's stable interface (torch 2.10 on; in the package, or
built by python -m pagestash.build_ops), or "python". Names, schemas and behaviour are the same."""
import ctypes
import functools
import itertools
import os
import re
import warnings

import torch
import torch.nn.functional as F

from .. import build_ops
from .. import pool as pools
from .._c import lib
from .._checks import Error, listed, within
from . import gated
from .calls import KERNELS, check, handle_of, has_tangent, once, raising, tags
from .gated import glu_backward, glu_forward

__all__ = ["kind", "stash", "restore", "release", "drain", "swiglu", "glu_forward", "glu_backward"]

#: of each operator; the same for both kinds of kernels.
SCHEMAS = {
    # Copies the live rows of dimension 0 into pages, in one launch: capacity rows in each tensor, or with
    # segments as many slabs of capacity rows. counts as for Stash.layer. The token, one int64 on the CPU,
    # stands for the pages; when it dies unrestored they are freed by the next stash. site: compilers may
    # merge two stashes of the same tensors in one graph unless this number differs.
    "stash": "(Tensor[] tensors, Tensor counts, int pool, SymInt capacity, int segments=0, int num_sms=0, "
             "int site=0) -> Tensor",
    # Copies them back and frees the pages, but for keep; zeros behind the live rows, and everywhere if the
    # stash had failed. after: what a compiler must compute before: the gradient, so that it restores in the
    # backward graph.
    "restore": "(Tensor token, Tensor(a!)[] destinations, int pool, int num_sms=0, bool keep=False, "
               "Tensor? after=None) -> ()",
    # Frees the pages.
    "release": "(Tensor(a!) token) -> ()",
    # silu(gate) * up, [gate, up] being the halves of x's last dimension; keeps x in pages for its backward.
    "swiglu": "(Tensor x, Tensor counts, int pool, int segments=0, int num_sms=0) -> Tensor",
    # stash, for a torch whose stable interface makes no token.
    "_stash_into": "(Tensor(a!) cell, Tensor[] tensors, Tensor counts, int pool, int capacity, int segments, "
                   "int num_sms) -> ()",
    # The hot path of Stash.layer, in C++ only: csrc/layers.cpp.
    "_layer_plan": "(Tensor[] saved, Tensor counts, int layer, int[] slots, int[] places, int[] strides, "
                   "int capacity, int segments) -> int",
    "_layer_stash": "(Tensor[] saved, Tensor counts, int pool, int layer, int num_sms) -> (int, int)",
    "_layer_restore": "(int ticket, int plan, int pool, int num_sms, bool keep) -> Tensor[]",
}
_INTERFACE = 1  # of csrc/ops.cpp with this file

_library = torch.library.Library("pagestash", "DEF")
for _name, _schema in SCHEMAS.items():
    _library.define(_name + _schema, tags=tags())


# ---- kernels in C++

def _places():
    """Functions that answer a path of the binary: what $PAGESTASH_OPS names, else first the package's, then
    that of the cache, which is called by headers that may not be there (Error)."""
    if named := os.environ.get("PAGESTASH_OPS"):
        return [lambda: named]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [lambda: os.path.join(package, "lib", build_ops.NAME),
            lambda: os.path.join(build_ops.cache_folder(), build_ops.NAME)]


def _load_stable(path):
    """The binary, bound to the library that ctypes has loaded. Errors: Error."""
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"cannot load {path}: {error}") from None
    number = getattr(found, "pagestash_ops_interface", lambda: 0)()
    if number != _INTERFACE:
        raise Error(f"{path} is of interface {number}, the package of {_INTERFACE}: run python -m "
                    "pagestash.build_ops")
    found.pagestash_ops_bind.restype = ctypes.c_char_p
    found.pagestash_ops_bind.argtypes = [ctypes.c_void_p]
    found.pagestash_ops_opened.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int32, ctypes.c_int]
    found.pagestash_ops_closing.argtypes = [ctypes.c_int64]
    found.pagestash_ops_closed.argtypes = [ctypes.c_int64, ctypes.c_int]
    found.pagestash_ops_died.argtypes = [ctypes.c_uint64]
    found.pagestash_ops_drain.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    found.pagestash_ops_drain.restype = ctypes.c_int64
    missing = found.pagestash_ops_bind(lib._handle)
    if missing:
        raise Error(f"{path} wants {missing.decode()}, which the library lacks")
    return found


class _Stable:
    """The kernels of a binary: they register themselves when it is loaded."""
    kind = "stable"

    def __init__(self, binary):
        self.binary = binary
        if not binary.pagestash_ops_makes_tokens():  # torch 2.10
            from .tokens import Cell  # pylint: disable=import-outside-toplevel
            self.cell = functools.partial(Cell, binary.pagestash_ops_died)
            for key in ("CPU", "CUDA"):
                _library.impl("stash", self._stash, key)

    def _stash(self, tensors, counts, pool, capacity, segments=0, num_sms=0, site=0):
        del site
        cell = self.cell()
        token = torch.frombuffer(cell, dtype=torch.int64)
        torch.ops.pagestash._stash_into(token, tensors, counts, pool, capacity, segments, num_sms)
        cell.id = cell.value
        return token

    def opened(self, pool):
        """Of pool.watch."""
        device = pool.device.info()
        self.binary.pagestash_ops_opened(pool.handle, int(device.kind), pool.device.index,
                                         int(pool.mode == "ordered"))

    def closing(self, pool):
        """Of pool.watch."""
        self.binary.pagestash_ops_closing(pool.handle)

    def closed(self, pool, is_gone):
        """Of pool.watch."""
        self.binary.pagestash_ops_closed(pool.handle, int(is_gone))

    def drain(self, handle, stream):
        """Tickets that have to wait still; -1: the pool is not open."""
        return self.binary.pagestash_ops_drain(handle, stream)


def _load():
    """The kernels, and why they are not the C++ ones."""
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    reason = "python -m pagestash.build_ops has not been run"
    if os.environ.get("PAGESTASH_OPS") == "python":
        reason = "PAGESTASH_OPS is python"
    elif version < build_ops.OLDEST:
        reason = f"torch {torch.__version__} is older than 2.10"
    else:
        is_named = bool(os.environ.get("PAGESTASH_OPS"))
        for place in _places():
            try:
                path = place()
                if is_named or os.path.exists(path):
                    return _Stable(_load_stable(path)), ""
            except Error as error:
                if is_named:
                    raise
                reason = str(error)
                warnings.warn(f"pagestash: {error}; the ops in Python serve", stacklevel=3)
    from .python_ops import PythonOps  # pylint: disable=import-outside-toplevel
    return PythonOps(_library, KERNELS), reason


_kernels, why_python = _load()
kind = _kernels.kind
pools.watch(_kernels)


# ---- fake kernels

@torch.library.register_fake("pagestash::stash", lib=_library)
def _stash_fake(tensors, counts, pool, capacity, segments=0, num_sms=0, site=0):
    return torch.zeros(1, dtype=torch.int64, device="cpu")  # with meta tensors somebody gets it


@torch.library.register_fake("pagestash::_stash_into", lib=_library)
def _stash_into_fake(cell, tensors, counts, pool, capacity, segments, num_sms):
    return None


@torch.library.register_fake("pagestash::restore", lib=_library)
def _restore_fake(token, destinations, pool, num_sms=0, keep=False, after=None):
    return None


@torch.library.register_fake("pagestash::release", lib=_library)
def _release_fake(token):
    return None


@torch.library.register_fake("pagestash::swiglu", lib=_library)
def _swiglu_fake(x, counts, pool, segments=0, num_sms=0):
    _check_halves(x)
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


# ---- autograd

def _restore_autograd(token, destinations, pool, num_sms=0, keep=False, after=None):
    """What comes out of pages has no gradient; an autograd.Function gives it one."""
    if torch.is_grad_enabled():
        for i, destination in enumerate(destinations):
            if destination.requires_grad:
                raise Error(f"pagestash.restore: destination {i} requires grad, and what is restored has none: "
                            "restore in an autograd.Function's backward, or under torch.no_grad()")
    for destination in destinations:
        torch.autograd.graph.increment_version(destination)
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.pagestash.restore(token, destinations, pool, num_sms, keep, after)


def _check_halves(x):
    if x.dim() < 2 or x.shape[-1] % 2:
        raise Error(f"pagestash.swiglu: x has shape {tuple(x.shape)}; allowed are rows whose last dimension "
                    "is even: gate, up")


def _capacity(x, segments):
    if segments and (x.dim() < 3 or x.shape[0] != segments):
        raise Error(f"pagestash.swiglu: x has shape {tuple(x.shape)}; with segments={segments} it must be "
                    "(segments, capacity, ...)")
    return x.shape[1] if segments else x.shape[0]


def _swiglu(x, counts, pool, segments=0, num_sms=0):
    _check_halves(x)
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, counts, pool, segments, num_sms, site):
        token = torch.ops.pagestash.stash([x], counts, pool, _capacity(x, segments), segments, num_sms,
                                          site)
        ctx.save_for_backward(token)
        ctx.shape, ctx.dtype, ctx.pool, ctx.num_sms = x.shape, x.dtype, pool, num_sms
        return _swiglu(x, counts, pool)

    @staticmethod
    @once
    def backward(ctx, dy):
        token, = ctx.saved_tensors
        x = torch.empty(ctx.shape, dtype=ctx.dtype, device=dy.device)
        torch.ops.pagestash.restore(token, [x], ctx.pool, ctx.num_sms, False, dy)
        gate, up = x.chunk(2, -1)
        dgate = torch.ops.aten.silu_backward(dy * up, gate)
        return torch.cat((dgate, dy * F.silu(gate)), -1), None, None, None, None, None


_sites = itertools.count(1)


def _swiglu_autograd(x, counts, pool, segments=0, num_sms=0):
    if torch.is_grad_enabled() and x.requires_grad:
        _check_halves(x)
        return _SwiGLU.apply(x, counts, pool, segments, num_sms, next(_sites))
    if has_tangent(x):
        raise Error("pagestash.swiglu: it has no forward-mode derivative")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.pagestash.swiglu(x, counts, pool, segments, num_sms)


_library.impl("restore", _restore_autograd, "Autograd")
_library.impl("swiglu", _swiglu, KERNELS)
_library.impl("swiglu", _swiglu_autograd, "Autograd")
for _name in ("_layer_plan", "_layer_stash"):  # no tensor comes out, so no history is to be looked at
    _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")


# ---- functions for Python

@raising
def stash(tensors, counts: torch.Tensor, pool, *, capacity: int, segments: int = 0,
          num_sms: int = 0) -> torch.Tensor:
    """Copies the live rows of tensors into pages of the pool, on the current stream. The token.

    tensors: up to 64, on the pool's device, each contiguous with a multiple of capacity * max(1, segments)
        bytes, or a view (capacity, ...) or (segments, capacity, ...) whose rows have no gaps.
    counts: int32 or int64, contiguous: 1 element (a prefix), E (their sum), or with segments as many.
    num_sms: SM budget; 0: all. Errors: Error; what only the device knows is in the pool's status."""
    tensors = listed(tensors, "tensors", "a sequence of tensors")
    check(tensors, (("capacity", capacity), ("segments", segments), ("num_sms", num_sms)), counts=counts)
    return torch.ops.pagestash.stash(tensors, counts, handle_of(pool), capacity, segments, num_sms)


@raising
def restore(token: torch.Tensor, destinations, pool, *, num_sms: int = 0, keep: bool = False) -> None:
    """Copies back what a stash copied, on the current stream: as many destinations, with the same rows. The
    rows behind the live ones are cleared. keep: the pages stay, for another restore.
    Errors: Error: restored before, another pool's, other rows, a destination that requires grad."""
    destinations = listed(destinations, "destinations", "a sequence of tensors")
    check(destinations, [("num_sms", num_sms)], token=token)
    torch.ops.pagestash.restore(token, destinations, handle_of(pool), num_sms, keep)


@raising
def release(token: torch.Tensor) -> None:
    """Frees the pages without copying. A token that just dies is freed by the next stash or drain.
    Errors: Error: restored or released before."""
    check(token=token)
    torch.ops.pagestash.release(token)


def drain(pool, stream: int = 0) -> int:
    """Frees the pages of tokens that died; stream is behind what was enqueued with them. How many have to
    wait still: they were filled outside a capture that is going on. Errors: Error: the pool is closed."""
    pool, stream = handle_of(pool), within(stream, "stream", 0, (1 << 64) - 1)
    left = _kernels.drain(pool, stream)
    if left < 0:
        raise Error("pagestash.drain: the pool is not open")
    return left + gated.kernels.drain(pool, stream)


@raising
def swiglu(x: torch.Tensor, counts: torch.Tensor, pool, *, segments: int = 0,
           num_sms: int = 0) -> torch.Tensor:
    """silu(gate) * up, where gate and up are the halves of the last dimension of x: (capacity, ..., 2 f), or
    (segments, capacity, ..., 2 f). Where x requires grad its live rows go to pages until the backward; the
    gradient's rows behind them are what their gradient makes of zeros.
    Errors: Error as of stash; a second backward."""
    check(numbers=(("segments", segments), ("num_sms", num_sms)), x=x, counts=counts)
    return torch.ops.pagestash.swiglu(x, counts, handle_of(pool), segments, num_sms)
