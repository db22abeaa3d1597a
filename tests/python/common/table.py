"""One row of the table of trained models: trained with and without pages, compared bit by bit, with the
bytes that the process holds. Printed by bench/python/train_memory.py, asserted by the tests."""
import dataclasses
import math

import pagestash.torch

from . import memory, moe, record

PAGE_BYTES = 16384
SHAPE = {"batch": 2, "sequence": 96, "experts": 16}  # of the models in the table
MOST_MEMORY = 1.03  # of what is allowed


@dataclasses.dataclass
class Row:
    """Bytes, pages and steps of one model and schedule. Peaks are of torch's allocator, the pool is in
    them; allowed_peak is the pool and what one layer and everything else take without stashing."""
    layout: str
    dtype: str
    activation: str
    schedule: str
    steps: int
    steps_bit_equal: int
    static_bytes: int
    pool_bytes: int
    plain_peak: int
    stashed_peak: int
    allowed_peak: int
    pages: int
    pages_measured: int
    pages_simulated: int

    def problems(self):
        """What is not as it must be; sentences."""
        name = f"{self.layout}, {self.dtype}, {self.activation}, {self.schedule}: "
        if self.steps_bit_equal != self.steps:
            yield f"{name}step {self.steps_bit_equal + 1} has other bits"
        if not self.pages == self.pages_measured == self.pages_simulated:
            yield (f"{name}{self.pages} pages; {self.pages_measured} were counted and "
                   f"{self.pages_simulated} simulated")
        if self.stashed_peak > MOST_MEMORY * self.allowed_peak:
            yield f"{name}{self.stashed_peak} bytes at most; allowed: {self.allowed_peak} and 3 %"
        if self.stashed_peak >= self.plain_peak:
            yield f"{name}{self.stashed_peak} bytes at most, without pages {self.plain_peak}"


HEADS = (("layout", "layout"), ("dtype", "dtype"), ("activation", "activation"), ("schedule", "schedule"),
         ("steps bit-equal", "steps_bit_equal"), ("static MiB", "static_bytes"),
         ("pool MiB", "pool_bytes"), ("peak MiB", "plain_peak"), ("with pages", "stashed_peak"),
         ("allowed", "allowed_peak"), ("pages", "pages"))


def rows(shape, steps):
    """Trains this model in both schedules, with memory that nobody has written NaN."""
    with moe.poisoned():
        reference = moe.train(shape, steps=steps)
    if not all(math.isfinite(loss) for loss in reference.losses):
        raise AssertionError(f"{shape}: losses {reference.losses}")
    return [row(shape, schedule, reference, steps) for schedule in moe.SCHEDULES]


def row(shape, schedule, reference, steps, memory_steps=2):
    """Trains `steps` with a Stash against the reference, and measures memory over memory_steps."""
    seen = record.Recorder()
    with moe.poisoned():
        plain = moe.train(shape, seen, steps=steps, schedule=schedule)
        with pagestash.torch.Stash(page_bytes=PAGE_BYTES) as stash:
            got = moe.train(shape, stash, steps=steps, schedule=schedule)
            status, pool_bytes = stash.status(), stash.block.nbytes
    if plain.bits != reference.bits:
        raise AssertionError(f"{shape}, {schedule}: the model does not repeat")
    if status.num_faults or status.in_use != (0, 0):
        raise AssertionError(f"{shape}, {schedule}: {status}")
    marked = record.Recorder(memory.mark)
    with memory.measured() as without:
        moe.train(shape, marked, steps=memory_steps, schedule=schedule)
    with memory.measured() as within:
        with pagestash.torch.Stash(page_bytes=PAGE_BYTES) as stash:
            moe.train(shape, stash, steps=memory_steps, schedule=schedule)
    passes, paged = moe.SCHEDULES[schedule](shape.micro), range(1, steps)  # the first is measured
    return Row(
        shape.layout, str(shape.dtype).removeprefix("torch."), "glu" if shape.glu else "torch", schedule,
        steps,
        got.equal_steps(reference), seen.static_bytes(), pool_bytes, without.peak(), within.peak(),
        pool_bytes + without.peak_of_one_layer(), status.high_water[0],
        max(seen.pages(PAGE_BYTES, step) for step in paged),
        max(record.simulated_pages(seen, step, shape.layers * shape.ep, passes, PAGE_BYTES)
            for step in paged))


def text(found_rows):
    """The table, for people."""
    lines = ["| " + " | ".join(head for head, _ in HEADS) + " |", "|" + "---|" * len(HEADS)]
    for found in found_rows:
        cells = []
        for _, name in HEADS:
            value = getattr(found, name)
            if name.endswith(("bytes", "peak")):
                value = f"{value / 2 ** 20:.1f}"
            elif name == "steps_bit_equal":
                value = f"{value} of {found.steps}"
            cells.append(str(value))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
