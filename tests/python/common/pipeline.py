"""A pipeline's stage on plain memory under pagestash.schedule.Scheduler: forwards write bytes that backwards
want back."""
import ctypes
import random

import pagestash
from pagestash.pool import Device, Form, Pool, Rows, Space
from pagestash.schedule import Buffers, Layer, Part, Schedule, Scheduler

PAGE, ROW, CAPACITY = 16384, 1024, 64
WHOLE, TOKEN, TOKENS = 96, 32, 6  # of a swapped layer
FORM = Form([Space(CAPACITY, count_bytes=4)], [Rows(ROW)])


class Memory:
    """Bytes with an address, as a tensor has one."""

    def __init__(self, num_bytes):
        self.num_bytes, self._memory = num_bytes, ctypes.create_string_buffer(num_bytes)

    def data_ptr(self):
        """The address."""
        return ctypes.addressof(self._memory)

    def write(self, data):
        """From the first byte on."""
        ctypes.memmove(self._memory, data, len(data))

    def read(self, num_bytes):
        """From the first byte on."""
        return self._memory.raw[:num_bytes]


class Cell:
    """What a source is: rows and their count."""

    def __init__(self):
        self.rows, self.count = Memory(CAPACITY * ROW), Memory(4)

    def buffers(self):
        """With the count."""
        return Buffers([self.rows], [self.count])


class Stage:
    """One GPU: layers of each chunk by their keeps, e.g. ["paged", "planned"]; own: the caller's own form.
    fields: of Scheduler. `wrong` counts bytes that came back otherwise, in visits."""

    def __init__(self, schedule, keeps=("paged",) * 3, *, own=False, parts=1, uses=("both",) * 4,
                 pages=300, host_pages=0, mode="ordered", share=0, move="direct", holds=False,
                 records=False, layers=None, **fields):
        self.order, self.keeps, self.own, self.num_parts = schedule, keeps, own, parts
        self.uses, self.wrong, self.share, self.move, self.holds = uses, 0, share, move, holds
        self.pool = Pool(Device.open("host"), pages, page_bytes=PAGE, host_pages=host_pages, mode=mode)
        self.fields = fields
        ring = fields.get("one_ring", False)
        sources = fields.get("num_sources", 2)
        self.sources = [[Cell() for _ in range(sources)] for _ in range(parts)]
        self.destinations = [[Cell() for _ in range(fields.get("num_destinations", 2))]
                             for _ in range(parts)]
        self.rounding = [Memory(WHOLE + TOKEN * TOKENS) for _ in range(2)]
        self.cells, self.asked, self.refuses = {}, 0, None
        named = [Part(FORM, None if own else [cell.buffers() for cell in self.sources[p]],
                      None if own or ring else [[cell.rows] for cell in self.destinations[p]], uses[p])
                 for p in range(parts)]
        self.layers = layers or [self._layer(chunk, i, named) for chunk in range(schedule.num_chunks)
                                 for i in range(len(keeps))]
        self.scheduler = Scheduler(self.pool, self.layers, schedule=None if records else schedule,
                                   destination=self.destination if own else None, **fields)

    def _layer(self, chunk, i, named):
        if self.keeps[i] == "swapped":
            return Layer(i, chunk, "swapped", buffers=self.rounding, whole_bytes=WHOLE,
                         token_bytes=TOKEN, num_tokens=TOKENS, swap_tokens=TOKENS - 2)
        if self.keeps[i] != "paged":
            return Layer(i, chunk, self.keeps[i])
        return Layer(i, chunk, parts=named, host_share=self.share, move=self.move, holds=self.holds)

    def destination(self, key, part, _stream):
        """The callback. `refuses` may raise, or answer something else."""
        self.asked += 1
        if self.refuses is not None:
            answer = self.refuses(self, key, part)
            if answer is not self:
                return answer
        self.cells[key, part] = cell = Cell()
        return [cell.rows]

    # ---- what a layer does ----

    @staticmethod
    def rows(key, part):
        """Live rows of a visit."""
        return (7 * key[3] + 5 * key[2] + 3 * key[1] + 11 * part) % CAPACITY + 1

    def data(self, key, part, num_bytes):
        """What the forward of this visit writes."""
        return random.Random(hash((*key[1:], part))).randbytes(32) * (num_bytes // 32)

    def _write(self, visit, part):
        cell = Cell() if self.own else self.sources[part][visit.set]
        rows = self.rows(visit.key, part)
        cell.rows.write(self.data(visit.key, part, rows * ROW))
        cell.count.write(rows.to_bytes(4, "little"))
        if visit.in_place:
            self.cells["in place", visit.key[1:], part] = cell
        return cell

    def _read(self, visit, part):
        if self.own:
            name = visit.key
            if visit.is_held and name.kind == "backward_weight":
                name = name._replace(kind="backward_input")
            cell = self.cells[("in place", visit.key[1:], part) if visit.in_place else (name, part)]
        else:
            in_source = visit.in_place or self.fields.get("one_ring")
            cell = (self.sources if in_source else self.destinations)[part][visit.set]
        wanted = self.data(visit.key, part, self.rows(visit.key, part) * ROW)
        self.wrong += cell.rows.read(len(wanted)) != wanted
        if not (visit.is_held and visit.key.kind == "backward_input"):
            cell.rows.write(b"\xbb" * len(wanted))  # the backward may write there

    def _swapped(self, visit, writes):
        memory, wanted = self.rounding[visit.set], self.data(visit.key, 9, WHOLE + TOKEN * TOKENS)
        if writes:
            memory.write(wanted)
        else:
            tokens = TOKENS if visit.first_token is None else visit.first_token
            kept = WHOLE + TOKEN * tokens  # the others are computed again
            self.wrong += memory.read(kept) != wanted[:kept]
            memory.write(b"\xbb" * len(wanted))

    def visit(self, p, i, stream=0):
        """The hooks of one layer of a pass, and what is between them."""
        keep = self.keeps[i]
        if p.kind == "forward":
            with self.scheduler.forward(p.chunk, i, p.micro_batch, stream) as visit:
                if keep == "swapped":
                    self._swapped(visit, True)
                if keep == "paged":
                    cells = [self._write(visit, part) for part in range(self.num_parts)]
                    if self.own:
                        visit.sources = [cell.buffers() for cell in cells]
                    if self.num_parts > 1 and p.micro_batch % 2:
                        visit.part(0, cells[0].buffers() if self.own else None)
            return
        with self.scheduler.backward(p.kind, p.chunk, i, p.micro_batch, stream) as visit:
            if keep == "recomputed":
                with self.scheduler.forward(p.chunk, i, p.micro_batch, stream) as again:
                    assert not again.is_live
            elif keep == "swapped":
                self._swapped(visit, False)
            for part in range(self.num_parts if keep == "paged" else 0):
                if p.kind == "backward" or self.uses[part] in (
                        "both", "backward" if p.kind == "backward_input" else "weight"):
                    self._read(visit, part)
        if p.kind != "backward_input":
            assert visit.key[1:] not in self.scheduler._owned.held, "held behind its backward"

    def run(self, p, stream=0):
        """A pass."""
        order = range(len(self.keeps))
        for i in order if p.kind == "forward" else reversed(order):
            self.visit(p, i, stream)

    def step(self, passes=None, **options):
        """A step; what it has copied must be right."""
        with self.scheduler.step(**options):
            for p in self.order if passes is None else passes:
                self.run(p)

    # ---- what comes out ----

    def simulated(self):
        """pagestash.simulate of the same."""
        def layer(given):
            fields = {"host_share": given.host_share, "move": given.move, "holds": given.holds}
            if given.keep != "paged":
                return pagestash.SimulatedLayer(given.layer, given.chunk, given.keep)
            counts = [[self.rows((0, given.chunk, given.layer, i), part)
                       for i in range(self.order.num_micro_batches)] for part in range(self.num_parts)]
            return pagestash.SimulatedLayer(given.layer, given.chunk, parts=[
                pagestash.SimulatedPart(form=FORM, counts=counts[part], uses=self.uses[part])
                for part in range(self.num_parts)], **fields)
        names = ("one_ring", "num_sources", "num_destinations", "ahead", "rule", "keeps_nothing",
                 "num_streams")
        info = self.pool.info()
        return pagestash.simulate(
            self.order, [layer(one) for one in self.layers], page_bytes=PAGE, in_call_order=True,
            pages=info.num_pages[0], host_pages=info.num_pages[1],
            **{name: self.fields[name] for name in names if name in self.fields}).raw_stages[0]

    def check(self, test):
        """Bytes and pages of the steps since the last check, which is a step of the pool's own."""
        status = self.pool.status()
        test.assertEqual((self.wrong, status.valid, status.in_use), (0, True, (0, 0)), status)
        self.pool.check()
        self.pool.step()
        test.assertEqual(self.pool.status().check_errors, 0)
        test.assertEqual(self.scheduler._owned.held, {})
        return status

    def close(self):
        """Both."""
        self.scheduler.close()
        self.pool.close()


def first_of_two(num_micro_batches=4, kind="1f1b", **fields):
    """A small schedule."""
    return Schedule(kind, num_stages=2, num_micro_batches=num_micro_batches, **fields)
