"""What a stash would have to keep and do, observed without one: the tensors that autograd saves in
each layer, and when. From that the pages of a run, by two ways that share nothing with the stash."""
import contextlib
import dataclasses

import torch

import pagestash
from pagestash.pool import Form, Rows, Space
from pagestash.schedule import Pass, Schedule


@dataclasses.dataclass
class Visit:
    """One layer of one micro-batch: bytes of a row of each storage that it keeps, live rows, and bytes
    of the whole storages."""
    capacity: int
    segments: int
    rows: tuple
    live: tuple
    static_bytes: int

    def usage(self, page_bytes):
        """What its live rows take in pages: pagestash.pool.Usage."""
        kind = "segments" if self.segments else "prefix"
        form = Form([Space(self.capacity, kind, self.segments)], [Rows(row) for row in self.rows])
        return form.measure(self.live if self.segments else [sum(self.live)], page_bytes)


class _Kept:
    """Autograd keeps this in place of a tensor."""

    def __init__(self, layer, tensor):
        self.layer, self.tensor = layer, tensor


class Recorder:
    """`layer` as a Stash has it, which keeps every tensor and notes. on_mark("out" or "in", bytes) is
    called where a stash would have let bytes go, and where it would have brought them back.

    visits: in order of their forwards. events: (step, "stash" or "restore", visit)."""

    def __init__(self, on_mark=None):
        self.visits, self.events, self.steps, self.on_mark = [], [], 0, on_mark

    def step(self):
        """The end of a step."""
        self.steps += 1

    @contextlib.contextmanager
    def layer(self, counts, capacity, segments=0):
        """A layer whose saved tensors are noted."""
        num_rows = capacity * (segments or 1)
        sizes, state = {}, {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if tensor.is_leaf and tensor.requires_grad or not tensor.is_floating_point() \
                    or storage.nbytes() % num_rows:
                return tensor
            sizes[storage._cdata] = storage.nbytes()
            return _Kept(state, tensor)

        def unpack(kept):
            if not isinstance(kept, _Kept):
                return kept
            visit = kept.layer.pop("dormant", None)
            if visit is not None:
                self.note("restore", visit)
            return kept.tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield
        if sizes:
            rows = tuple(num_bytes // num_rows for num_bytes in sizes.values())
            self.visits.append(Visit(capacity, segments, rows, tuple(counts.tolist()),
                                     sum(sizes.values())))
            state["dormant"] = len(self.visits) - 1
            self.note("stash", state["dormant"])

    def note(self, what, visit):
        """One event."""
        self.events.append((self.steps, what, visit))
        if self.on_mark is not None:
            self.on_mark("out" if what == "stash" else "in", self.visits[visit].static_bytes)

    def most(self, size, step=None):
        """The most of size(visit) that is stashed at once, in this step or in all."""
        now, most = 0, [0] * (self.steps + 1)
        for at, what, visit in self.events:
            now += size(self.visits[visit]) * (1 if what == "stash" else -1)
            most[at] = max(most[at], now)
        return max(most) if step is None else most[step]

    def pages(self, page_bytes, step=None):
        """The most pages at once: what each visit takes by Form.measure, in the order seen."""
        return self.most(lambda visit: visit.usage(page_bytes).pages, step)

    def static_bytes(self):
        """The most bytes of whole storages at once."""
        return self.most(lambda visit: visit.static_bytes)


def simulated_pages(recorder, step, num_layers, schedule, page_bytes):
    """The most pages at once in this step by pagestash.simulate: one GPU that makes the passes of
    `schedule` ([("F" or "B", micro-batch)]), every visit stashed, restored when it is needed."""
    stashed = [recorder.visits[visit] for at, what, visit in recorder.events
               if at == step and what == "stash"]
    by_pass = {m: stashed[at * num_layers:(at + 1) * num_layers]
               for at, m in enumerate(m for kind, m in schedule if kind == "F")}
    layers = [pagestash.SimulatedLayer(layer, pages=[
        by_pass[m][layer].usage(page_bytes).pages for m in sorted(by_pass)])
        for layer in range(num_layers)]
    kinds = {"F": "forward", "B": "backward"}
    passes = [Pass(kinds[kind], 0, m) for kind, m in schedule]
    return pagestash.simulate(Schedule.of(passes), layers, events=False, keeps_nothing=True, rule="next",
                              in_call_order=True, page_bytes=page_bytes).demand
