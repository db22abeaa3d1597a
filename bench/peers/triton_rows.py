"""The Triton peer: kernels written for this benchmark, in the style that paged_rows.py describes.
One program per token row on a capped grid, 64-bit division and a freelist load for each row."""
import triton
import triton.language as tl

from paged_rows import BLOCK, PAGE_ROWS, PagedRows


@triton.jit
def copy_row(to, source, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    for first in range(0, WIDTH, BLOCK):
        column = first + tl.arange(0, BLOCK)
        if WIDTH % BLOCK == 0:
            tl.store(to + column, tl.load(source + column))
        else:
            inside = column < WIDTH
            tl.store(to + column, tl.load(source + column, mask=inside), mask=inside)


@triton.jit
def stash_rows(source, pages, live, freelist, head, tail, slots, record, overflow, spilled,
               new_head, PAGE_ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    rows = tl.load(live)
    first = tl.load(head)
    num_slots = tl.load(slots)
    wanted = (rows + PAGE_ROWS - 1) // PAGE_ROWS
    fits = (tl.load(tail) - first >= wanted) & (tl.load(overflow) == 0)
    if block == 0:
        tl.store(new_head, first + tl.where(fits, wanted, 0))
        tl.store(new_head + 1, tl.load(head + 1))
        tl.store(spilled, 0)
        if fits == 0:
            tl.store(overflow, 1)
    if fits:
        for row in range(block, rows, tl.num_programs(0)):
            slot = row // PAGE_ROWS
            place = row % PAGE_ROWS
            page = tl.load(freelist + (first + slot) % num_slots)
            if place == 0:
                tl.store(record + slot, page)
            copy_row(pages + (page * PAGE_ROWS + place) * WIDTH, source + row * WIDTH, WIDTH, BLOCK)


@triton.jit
def pop_rows(pages, destination, live, freelist, tail, slots, record, overflow, new_tail,
             PAGE_ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    rows = tl.load(live)
    last = tl.load(tail)
    num_slots = tl.load(slots)
    kept = tl.load(overflow) == 0
    if block == 0:
        given = (rows + PAGE_ROWS - 1) // PAGE_ROWS
        tl.store(new_tail, last + tl.where(kept, given, 0))
        tl.store(new_tail + 1, tl.load(tail + 1))
    if kept:
        for row in range(block, rows, tl.num_programs(0)):
            slot = row // PAGE_ROWS
            place = row % PAGE_ROWS
            page = tl.load(record + slot)
            copy_row(destination + row * WIDTH, pages + (page * PAGE_ROWS + place) * WIDTH, WIDTH,
                     BLOCK)
            if place == 0:
                tl.store(freelist + (last + slot) % num_slots, page)


@triton.jit
def copy_flat(to, source, num_elements, BLOCK: tl.constexpr):
    """A contiguous copy: a candidate for the anchor A0."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_elements
    tl.store(to + at, tl.load(source + at, mask=inside), mask=inside)


def copy_contiguous(destination, source):
    """Both of int64."""
    block = 4096
    copy_flat[(triton.cdiv(source.numel(), block),)](destination, source, source.numel(),
                                                     BLOCK=block)


class TritonRows(PagedRows):
    name = "triton"

    def launch_stash(self, tensor):
        pool = tensor.pool
        stash_rows[tensor.grid](tensor.source, pool.pages, tensor.live, pool.freelist, pool.head,
                                pool.tail, pool.slots, tensor.record, pool.overflow,
                                tensor.spilled, tensor.new_head, PAGE_ROWS=PAGE_ROWS,
                                WIDTH=tensor.shape.width, BLOCK=BLOCK)

    def launch_pop(self, tensor):
        pool = tensor.pool
        pop_rows[tensor.grid](pool.pages, tensor.destination, tensor.live, pool.freelist,
                              pool.tail, pool.slots, tensor.record, pool.overflow,
                              tensor.new_tail, PAGE_ROWS=PAGE_ROWS, WIDTH=tensor.shape.width,
                              BLOCK=BLOCK)
