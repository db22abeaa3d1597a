"""A stash's pool of pages: how large it is made, in whose memory, and another in its place."""
import math
import weakref

import torch

from .. import pool as pools
from .._abi import PST_MAX_SEGMENTS
from .._c import Error

_ALIGNMENT = 256  # of memory that a pool is given
_TICKETS = 64     # where nothing was measured
_COUNTS = 64      # that a ticket has room for at least
_GROWTH = 8       # memory="pool": addresses for so many times the pages
_lost_pools = []  # (pool, memory) of stashes that died under captured graphs; those may still run


class Room:
    """The part of a Stash that has its pool."""

    def _check_outside(self, what):
        if self.streams.is_capturing():
            raise Error(f"{what} waits for the device, which would break the capture: call it outside")

    def _make_measured_pool(self):
        if self.page_bytes is None:
            self.page_bytes = self.log.page_bytes()
        pages, live = self.log.peak(self.page_bytes)
        if self.tickets is None:
            self.tickets = 4 * live + 16
        self._make_pool(max(1, math.ceil(pages * self.headroom)))

    def _make_pool(self, pages):
        self._check_outside("making a pool")
        _close_lost_pools()
        forms = [form for shape in self.shapes.values() for pair in shape.forms.values() for form in pair]
        fields = {
            "page_bytes": self.page_bytes or 0, "host_pages": self.host_pages, "mode": self.mode,
            "tickets": self.tickets or _TICKETS, "fails_fast": True,
            "slab_counts": max([_COUNTS] + [form.num_counts for form in forms]) if forms
            else PST_MAX_SEGMENTS}
        if self.memory == "pool":
            fields["max_pages"] = self.max_pages or min(_GROWTH * pages, 2 ** 31 - 1)
            fields["make_room"] = self._make_room
        else:
            fields["memory"] = self._block(pages, fields)
        self.pool = pools.Pool(self.device, pages, **fields)
        self.pool.owner = weakref.ref(self)

    def _block(self, pages, fields):
        """(address, bytes) of torch's memory."""
        num_bytes = pools.Pool.bytes(pages, **fields)
        try:
            self.block = torch.empty(num_bytes + _ALIGNMENT, dtype=torch.uint8,
                                     device=self.torch_device)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            raise Error(f"torch cannot give {num_bytes} bytes for {pages} pages: "
                        f"{str(error).splitlines()[0]}") from error
        return self.block.data_ptr() + -self.block.data_ptr() % _ALIGNMENT, num_bytes

    def _replace_pool(self, pages, old_pages):
        """Another pool; where there is no memory for it one as before, so that the stash stays usable."""
        self._close_pool()
        try:
            self._make_pool(pages)
        except Error:
            try:
                self._make_pool(old_pages)
            except Error:
                self.closed = True
            raise

    def _make_room(self, num_bytes, tier):
        if tier == 0 and self.torch_device.type == "cuda":
            torch.cuda.empty_cache()
            return True
        return False

    def _close_pool(self):
        if self.pool is not None:
            self.pool.close()
        self.pool = self.block = None


def lose(pool, block):
    """Keeps a pool that cannot be closed now, with its memory."""
    _lost_pools.append((pool, block))


def _close_lost_pools():
    for lost in _lost_pools[:]:
        try:
            lost[0].close()
            _lost_pools.remove(lost)
        except Error:
            pass
