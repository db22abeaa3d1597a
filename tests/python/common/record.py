"""What a stash would have to keep and do, observed without one: the tensors that autograd saves in
each layer, and when. From that the pages of a run, by two ways that share nothing with the stash."""
import contextlib
import ctypes
import dataclasses

import torch
from pagestash import _abi, _c
from pagestash.pool import Form, Rows, Space


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
    """The most pages at once in this step by pst_simulate: one GPU that makes the passes of `schedule`
    ([("F" or "B", micro-batch)]), every visit stashed, restored when it is needed."""
    stashed = [visit for at, what, visit in recorder.events if at == step and what == "stash"]
    forwards = [m for kind, m in schedule if kind == "F"]
    usages = [(_abi.pst_group_usage * len(forwards))() for _ in range(num_layers)]
    for position, visit in enumerate(stashed):
        took = recorder.visits[visit].usage(page_bytes)
        usages[position % num_layers][forwards[position // num_layers]] = _abi.pst_group_usage(
            took.payload_bytes, took.stream_bytes, took.pages)
    return _simulate(usages, schedule, page_bytes)


def _simulate(usages, schedule, page_bytes):
    layers = (_abi.pst_simulated_layer * len(usages))()
    for number, (layer, usage) in enumerate(zip(layers, usages)):
        layer.struct_size, layer.layer, layer.keep = ctypes.sizeof(layer), number, _abi.PST_KEEP_PAGED
        layer.usages, layer.num_usages = usage, len(usage)
        layer.forward.core = layer.backward.core = 1000
    with _listed(schedule) as handle:
        config = _c.sized(
            _abi.pst_simulation_config, num_stages=1, alone=True, keeps_nothing=True,
            in_call_order=True, rule=_abi.PST_RESTORE_NEXT, page_bytes=page_bytes,
            schedules=(ctypes.c_void_p * 1)(handle),
            layers=(ctypes.POINTER(_abi.pst_simulated_layer) * 1)(layers),
            num_layers=(ctypes.c_uint32 * 1)(len(layers)), num_pages=(2 ** 64 - 1, 0))
        simulation, stage = _abi.pst_simulation(), _abi.pst_stage_result()
        _c.call("pst_simulate_sized", ctypes.byref(config), ctypes.byref(simulation),
                ctypes.sizeof(simulation), ctypes.byref(stage), ctypes.sizeof(stage))
    return stage.high_water[0]


@contextlib.contextmanager
def _listed(schedule):
    kinds = {"F": _abi.PST_PASS_FORWARD, "B": _abi.PST_PASS_BACKWARD}
    passes = (_abi.pst_pass * len(schedule))(*(
        _abi.pst_pass(micro_batch=m, kind=kinds[kind]) for kind, m in schedule))
    config = _c.sized(_abi.pst_schedule_config, kind=_abi.PST_SCHEDULE_LIST, passes=passes,
                      num_passes=len(passes))
    handle = _c.create("pst_schedule_create", ctypes.byref(config))
    try:
        yield handle
    finally:
        _c.lib.pst_schedule_destroy(handle)
