"""The pool behind Megatron-Core's paged stash: how large, where, and larger after a lost step."""
import logging
import math

import torch

from .. import pool as pools
from .._abi import PST_FAULT_EXHAUSTED, PST_FAULT_FAILED, PST_FAULT_LOST
from .._c import Error
from . import sizing
from .saved import parts

_log = logging.getLogger("pagestash")
_ALIGNMENT = 256  # of the memory that a pool is given
_SPARE_TICKETS, _FEWEST_TICKETS = 8, 128  # a step with more micro-batches than before needs more
_MOST_FORMS = 1000  # where the number of rows changes from step to step
_MENDED = 1 << PST_FAULT_EXHAUSTED | 1 << PST_FAULT_FAILED | 1 << PST_FAULT_LOST


class _Steps:
    """Stands where Megatron keeps its buffers by dtype and width; it only resets them."""

    def __init__(self, manager):
        self.reset = manager.close_step


class Space:
    """Of the manager: what makes, fits and frees its pool."""

    def prepare(self, config) -> None:
        """Makes the pool as soon as the first step is over, so that the second can be captured."""
        if self.status == "capture" and self.pool is None and sizing.is_whole(self._pp_schedule):
            self.allocate_stash_buffers(config.moe_paged_stash_buffer_size_factor_cuda,
                                        config.moe_paged_stash_buffer_size_factor_cpu)

    def allocate_stash_buffers(self, moe_paged_stash_buffer_size_factor_cuda=1.10,
                               moe_paged_stash_buffer_size_factor_cpu=0.0):
        """Makes the pool: Megatron's factors, times pages of the order that was recorded."""
        self.factors = (moe_paged_stash_buffer_size_factor_cuda,
                        moe_paged_stash_buffer_size_factor_cpu)
        self.stash_buffers = {None: {0: _Steps(self)}} if self.pool else {}
        if self.pool is not None:
            return
        if not self.records:
            if self.device is not None:  # None: this rank has no experts
                _log.warning("pagestash: no saved tensor of the first step is tagged as rows of "
                             "experts: nothing will be stashed")
            return
        if is_capturing():
            raise Error("a capture, and there is no pool yet: pagestash.megatron's runner makes it "
                        "after the first step; without it cuda_graph_warmup_steps must be at "
                        "least 2")
        self.page_bytes = self.options.page_bytes or sizing.page_bytes(
            [usage.stream_bytes for record in self.records.values()
             for usage in self._usages(record, actual=False)])
        sized = self._sized()
        try:
            self._make_pool(max(sized, self.grown))
        except (Error, torch.OutOfMemoryError) as error:
            if self.grown <= sized:
                raise
            _log.warning("pagestash: %d pages, which a lost step wanted, cannot be had: %s; %d are "
                         "taken", self.grown, error, sized)
            self.grown = 0
            self._make_pool(sized)

    def form(self, part):
        """The pools.Form of what one launch takes."""
        key = part[0].visit.space(), tuple(one.rows for one in part)
        if key not in self.forms:
            if len(self.forms) >= _MOST_FORMS:
                self.forms.clear()
            self.forms[key] = pools.Form([key[0]], key[1])
        return self.forms[key]

    def _usages(self, record, actual):
        """pools.Usage of each launch of a layer: with the rows that were recorded, or expected."""
        for part in parts(record):
            visit = part[0].visit
            live = visit.live if actual or visit.average is None else visit.average
            yield self.form(part).measure([live], self.page_bytes)

    def _peak(self, actual):
        """Pages at the peak of the order: with the counts that were recorded, or those expected."""
        pages = {entry: sum(usage.pages for usage in self._usages(record, actual))
                 for entry, record in self.records.items()}
        return max(1, sizing.peak(self._pp_schedule, pages, max(pages.values())))

    def _sized(self):
        """Device pages by Megatron's factor (below 0: of what was recorded), and sets
        host_pages."""
        cuda, cpu = self.factors
        self.host_pages = math.ceil(self._peak(actual=cpu < 0) * abs(cpu)) if cpu else 0
        return max(1, math.ceil(self._peak(actual=cuda < 0) * abs(cuda)))

    def _tickets(self):
        launches = {entry: len(list(parts(record))) for entry, record in self.records.items()}
        at_once = sizing.peak(self._pp_schedule, launches, max(launches.values()))
        return max(at_once + _SPARE_TICKETS, _FEWEST_TICKETS)

    def _fit(self):
        """Follows a new order: no fewer pages and tickets than it needs."""
        pages = max(self._sized(), self.grown)
        if pages > self.num_pages and self.options.grow or self._tickets() > self.num_tickets:
            self._remake_pool(max(pages, self.num_pages) if self.options.grow else self.num_pages)

    def _make_pool(self, pages):
        if self.options.max_pages is not None:
            pages = min(pages, self.options.max_pages)
        device = pools.Device.open("host" if self.device.type == "cpu" else "cuda",
                                   self.device.index or 0)
        self.num_tickets = self._tickets()
        most = max(self.form(part).measure(None, self.page_bytes).pages
                   for record in self.records.values() for part in parts(record))
        fields = dict(page_bytes=self.page_bytes, host_pages=self.host_pages, slab_pages=most,
                      tickets=self.num_tickets, slab_counts=1, fails_fast=True,
                      scrub=self.options.scrub)
        num_bytes = pools.Pool.bytes(pages, **fields)
        # Of torch's allocator: torch counts it, and step_valid is a slice of a tensor.
        memory = torch.empty(num_bytes + _ALIGNMENT, dtype=torch.uint8, device=self.device)
        skip = -memory.data_ptr() % _ALIGNMENT
        self.pool = pools.Pool(device, pages, memory=(memory.data_ptr() + skip, num_bytes),
                               **fields)
        at = self.pool.step_valid_address - memory.data_ptr()
        self.memory, self.valid = memory, memory[at:at + 4].view(torch.int32)
        self.stash_buffers = {None: {0: _Steps(self)}}
        self.steps_seen = self.spilled_pages = 0
        self._host_spill.begin()
        _log.info("pagestash: %d pages of %d bytes on the device, %d on the host, %d bytes in all",
                  pages, self.page_bytes, self.host_pages, num_bytes)

    def _close_pool(self):
        """Errors: captured graphs hold it."""
        if self.pool is not None:
            self._forget()
            self.pool.device.synchronize()
            self.pool.close()
            self.pool = self.memory = self.valid = None

    def _remake_pool(self, pages):
        """A pool of so many pages in place of this one; as it was where that cannot be. Whether."""
        before = self.num_pages
        try:
            self._close_pool()
        except Error as error:  # captured graphs
            _log.warning("pagestash: %d pages stay: %s", before, error)
            return False
        try:
            self._make_pool(pages)
        except (Error, torch.OutOfMemoryError) as error:
            _log.warning("pagestash: %d pages cannot be had, %d stay: %s", pages, before, error)
            self._make_pool(before)
            return False
        return True

    def grow(self) -> bool:
        """After a lost step: a pool for what it wanted. Whether running it again can do; False:
        another fault than a want of pages, options.max_pages, no memory, captured graphs that
        hold the pool. Waits for the device."""
        status = self.finish()
        if status is None or not self.options.grow:
            return False
        if status.valid:
            return True  # another rank lost it
        if status.raw.flags & ~_MENDED:
            _log.warning("pagestash: pages do not mend this step: %s", status.fault)
            return False
        pages = self._wanted(status)
        if pages <= self.num_pages or not self._remake_pool(pages):
            return False
        self.grown = self.num_pages
        _log.info("pagestash: a step wanted %d pages; there are %d now", status.step_demand,
                  self.num_pages + self.host_pages)
        return self.num_pages >= pages

    def _wanted(self, status):
        return math.ceil(status.step_demand * self.options.headroom) - self.host_pages

    def release_stash_buffers(self):
        """Of Megatron's runner, before it reruns without stash: the next step makes a pool anew,
        with as many pages as the lost one wanted. Errors: captured graphs hold it."""
        status = self.finish()
        if status is not None and self.options.grow and not status.raw.flags & ~_MENDED:
            self.grown = max(self.grown, self._wanted(status))
        self._close_pool()
        self.stash_buffers = None

    def close(self):
        """Frees the pool; of uninstall."""
        self._close_pool()
        self.stash_buffers = None


def is_capturing():
    """Whether the current stream is being captured."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
