"""Tickets that tensors stand for: a token is the memory of a ctypes object, which torch keeps as long as any
tensor shares it; when the last one is gone, the ticket is given back by the next launch."""
import collections
import ctypes
import threading

import torch

from .. import _abi
from .. import pool as pools
from .._c import Error


class Cell(ctypes.c_int64):
    """The int64 of a token. Calls died(id) when no tensor shares it any more; 0: it never was one."""
    id = 0

    def __init__(self, died):
        ctypes.c_int64.__init__(self, 0)  # super() needs a metaclass that ctypes lacks in some 3.12
        self.died = died

    def __del__(self):
        if self.id:
            self.died(self.id)


class Place:
    """A device, as torch knows it. what: has it, in sentences."""
    what = "the work"

    def __init__(self, device):
        self.raw, self.lock = device, device.lock
        self.is_cuda = int(device.info().kind) == _abi.PST_DEVICE_CUDA
        self.device = torch.device("cuda", device.index) if self.is_cuda else torch.device("cpu")

    def stream(self):
        """The current one, as an int."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.is_cuda else 0

    def check_device(self, tensor, what, name):
        """Raises where the tensor is not on the pool's device."""
        if tensor.layout != torch.strided:
            raise Error(f"{what}: {name} is not a strided tensor")
        if tensor.device != self.device:
            raise Error(f"{what}: {name} is on {_named(tensor.device)}, and {self.what} on "
                        f"{_named(self.device)}")


class OpenPool(Place):
    """An open pool. graves: tokens that died, appended by finalisers in any thread."""
    what = "the pool"

    def __init__(self, pool):
        super().__init__(pool.device)
        self.handle, self.ordered = pool.handle, pool.mode == "ordered"
        self.pool, self.is_open = pool, True
        self.graves = collections.deque()


def _named(device):
    if device.type == "cuda":
        return str(device)
    return "the CPU" if device.type == "cpu" else "another device"


class Token:
    """A ticket. shape: what the kernels that filled it have to know."""
    __slots__ = ("ticket", "pool", "shape", "stream", "held", "is_dead")

    def __init__(self, ticket, pool, shape, stream):
        self.ticket, self.pool, self.shape, self.stream = ticket, pool, shape, stream
        self.held, self.is_dead = "live", False  # held: live, busy, given


class Tokens:
    """The pools and tokens that one set of kernels knows: a watcher of pool.watch."""
    every = []  # of this process

    def __init__(self):
        self.every.append(self)
        self.pools, self.tokens = {}, {}  # by handle; by id, of tensors that live
        self.lock = threading.RLock()     # of `held`; a finaliser may run under it

    # ---- pools

    def opened(self, pool):
        """Of pool.watch."""
        self.pools[pool.handle] = OpenPool(pool)

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

    def pool_of(self, handle, what):
        """The OpenPool of a handle."""
        known = self.pools.get(handle)
        if known is None:
            raise Error(f"{what}: pool {handle} is not open: it was closed, or never was a Pool.handle")
        return known

    # ---- tokens

    def died(self, ticket):
        """Called by finalisers."""
        token = self.tokens.pop(ticket, None)
        if token is None:
            return
        token.is_dead = True
        if token.held == "live":
            token.pool.graves.append(token)

    def claim(self, tensor, known, what):
        """The Token of a tensor, for one launch, which ends with keep or give."""
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

    def keep(self, token, stream):
        """Its pages stay."""
        with self.lock:
            token.stream, token.held = stream, "live"
            if token.is_dead:
                token.pool.graves.append(token)

    def give(self, token, stream):
        """Its ticket goes back, now or with the next launch."""
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
            return self.drain_of(known, stream, True)

    @staticmethod
    def drain_of(known, stream, everything):
        """See drain. everything: also what was filled on other streams of a concurrent pool."""
        for _ in range(len(known.graves)):
            token = known.graves.popleft()
            # Of an ordered pool the caller has ordered every stream behind the one before.
            may = everything or known.ordered or token.stream == stream
            if not may or not _given(token.ticket, stream if known.ordered else token.stream):
                known.graves.append(token)
        return len(known.graves)


def drain_all(handle, stream):
    """Gives back the tickets of tokens that died, as far as the stream is behind them."""
    for one in Tokens.every:
        known = one.pools.get(handle)
        if known is not None and known.graves:
            with known.lock:
                one.drain_of(known, stream, False)


def check_open(known):
    """Raises where the pool is being closed."""
    if not known.is_open:
        raise Error("pagestash: the pool is closed")


def _given(ticket, stream):
    """Whether the ticket is given; a capture of the stream refuses it."""
    try:
        pools.Pool.give(ticket, stream)
    except Error as error:
        return error.status != "PST_E_CAPTURE"
    return True
