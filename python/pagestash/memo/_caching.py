"""What torch's own caching allocator reserves for a sequence of requests: by its rules, or by asking it."""
from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Sequence

from .. import allocator
from .._c import Error
from ._trace import Row

_MIN_BLOCK = 512
_SMALL = 1 << 20  # requests up to this share segments of _SMALL_SEGMENT
_SMALL_SEGMENT = 2 << 20
_LARGE_SEGMENT = 20 << 20  # of requests below _OWN_SEGMENT
_OWN_SEGMENT = 10 << 20  # from here on each request has a segment, rounded up to _ROUND
_ROUND = 2 << 20
_ITERATIONS = 2  # played: from the second on it has what the first left cached


@dataclasses.dataclass(frozen=True)
class Reserved:
    """Bytes at torch's caching allocator for a plan's requests alone, the same iteration several times;
    weights and other lasting memory are not in them."""
    reserved: int  # the most that it took from the GPU
    allocated: int  # the most in blocks that it gave out
    method: str  # "model": by its rules (default settings), "native": the allocator itself

    @property
    def fragmentation(self) -> float:
        """Share of what is reserved that was never given out: 1 - allocated / reserved."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


class _Block:
    __slots__ = ("address", "bytes", "pool", "is_free", "before", "after")

    def __init__(self, address, size, pool, before=None, after=None):
        self.address, self.bytes, self.pool = address, size, pool
        self.is_free, self.before, self.after = True, before, after

    @property
    def key(self):
        """The order in which a fit is looked for: by size, then address."""
        return self.bytes, self.address


class _Pool:
    """Free blocks of a stream, of small or of large requests."""

    def __init__(self, is_small):
        self.is_small = is_small
        self.keys: list = []
        self.blocks: dict = {}

    def add(self, block):
        """A free block."""
        bisect.insort(self.keys, block.key)
        self.blocks[block.address] = block

    def remove(self, block):
        """A block that is no longer free."""
        del self.keys[bisect.bisect_left(self.keys, block.key)]
        del self.blocks[block.address]

    def fit(self, size):
        """The smallest block that holds it, or None."""
        at = bisect.bisect_left(self.keys, (size, 0))
        return self.blocks[self.keys[at][1]] if at < len(self.keys) else None


class _Model:
    """CUDACachingAllocator's rules, default settings, without an end of memory."""

    def __init__(self):
        self.pools: dict = {}
        self.next_address = _ROUND
        self.reserved = self.most_reserved = 0
        self.allocated = self.most_allocated = 0

    def malloc(self, size, stream):
        """A block."""
        size = max(_MIN_BLOCK, -(-size // _MIN_BLOCK) * _MIN_BLOCK)
        is_small = size <= _SMALL
        pool = self.pools.setdefault((stream, is_small), _Pool(is_small))
        block = pool.fit(size)
        if block is None:
            block = self._segment(size, pool)
        else:
            pool.remove(block)
        rest = block.bytes - size
        if rest >= _MIN_BLOCK if is_small else rest > _SMALL:
            self._split(block, size)
        block.is_free = False
        self.allocated += block.bytes
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def _segment(self, size, pool):
        taken = _SMALL_SEGMENT if pool.is_small else (
            _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // _ROUND) * _ROUND)
        block = _Block(self.next_address, taken, pool)
        self.next_address += taken
        self.reserved += taken
        self.most_reserved = max(self.most_reserved, self.reserved)
        return block

    @staticmethod
    def _split(block, size):
        rest = _Block(block.address + size, block.bytes - size, block.pool, block, block.after)
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.bytes = rest, size
        block.pool.add(rest)

    def free(self, block):
        """Gives a block back, joined with free ones beside it."""
        self.allocated -= block.bytes
        before, after = block.before, block.after
        if before is not None and before.is_free:
            block.pool.remove(before)
            block.address, block.bytes = before.address, block.bytes + before.bytes
            block.before = before.before
            if block.before is not None:
                block.before.after = block
        if after is not None and after.is_free:
            block.pool.remove(after)
            block.bytes += after.bytes
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        block.is_free = True
        block.pool.add(block)


def _play(rows: Sequence[Row], malloc, free) -> None:
    """The iteration several times. What is never freed in one is freed at the begin of the next."""
    live: dict = {}
    for _ in range(_ITERATIONS):
        for block in live.values():
            free(block)
        live = {}
        for row in rows:
            if row.op == "malloc":
                live[row.id] = malloc(row.bytes, row.stream)
            elif row.op == "free":
                free(live.pop(row.id))
    for block in live.values():
        free(block)


def reserved(rows: Iterable[Row]) -> Reserved:
    """By the rules of torch's allocator (default settings, memory without an end). What is used on
    another stream is reused at once, where torch waits for an event."""
    model = _Model()
    _play(list(rows), model.malloc, model.free)
    return Reserved(model.most_reserved, model.most_allocated, "model")


def native_reserved(rows: Iterable[Row]) -> Reserved:
    """By asking torch's own allocator on the current GPU, which needs that memory there. What is cached is
    given back before. Errors: the allocator of pagestash is installed here; no GPU; memory that is not
    there."""
    import torch
    if allocator.is_installed():
        raise Error("native_reserved: this process allocates with pagestash.allocator: allowed is "
                    "another process, in which torch has its own")
    if not torch.cuda.is_available():
        raise Error("native_reserved: torch has no GPU here")
    streams = {0: torch.cuda.current_stream()}
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    def malloc(size, stream):
        if stream not in streams:
            streams[stream] = torch.cuda.Stream()
        return torch.cuda.caching_allocator_alloc(size, stream=streams[stream])

    held: set = set()

    def noted(size, stream):
        address = malloc(size, stream)
        held.add(address)
        return address

    def free(address):
        held.discard(address)
        torch.cuda.caching_allocator_delete(address)

    try:
        _play(list(rows), noted, free)
    except torch.OutOfMemoryError as error:
        raise Error(f"native_reserved: {str(error).splitlines()[0]}") from None
    finally:
        for address in held:
            torch.cuda.caching_allocator_delete(address)
    out = Reserved(torch.cuda.max_memory_reserved() - before[0],
                   torch.cuda.max_memory_allocated() - before[1], "native")
    torch.cuda.empty_cache()
    return out
