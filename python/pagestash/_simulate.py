"""What a pipeline's schedule will cost: pagestash.simulate, and what comes out of it."""
import ctypes
from typing import Any, Optional, Sequence, Union

from . import _abi, _c, _files, _timeline
from ._checks import Error, integer, listed, number_of, within
from ._simulated_layers import CHUNK_ORDERS, SimulatedLayer
from .schedule._order import Schedule
from .schedule._words import RULES, key_of

STREAMS = ("main", "stash", "restore", "to host", "from host")
EVENT_KINDS = ("work", "recompute", "stall", "bubble", "stash", "restore", "demote", "promote",
               "swap out", "swap in")
_MODES = ("ordered", "concurrent")


class Input:
    """pst_simulation_config of a pipeline, with all that it points to."""

    def __init__(self, schedules, layers, *, num_sources=0, num_destinations=0, one_ring=False,
                 ahead=0, num_streams=0, rule="asap", mode=None, keeps_nothing=False, by_slot=False,
                 pages="auto", host_pages=0, page_bytes=0, steps=1, p2p_ns=0, stash_ns=0,
                 restore_ns=0, demote_ns=0, promote_ns=0, stash_rate=0, restore_rate=0, out_rate=0,
                 in_rate=0, interference_per_mille=0, chunk_order="kind", in_call_order=False,
                 alone=None):
        self.schedules = [schedules] if isinstance(schedules, Schedule) else listed(
            schedules, "schedules", "a pagestash.schedule.Schedule, or one for each stage,")
        alone = isinstance(schedules, Schedule) if alone is None else alone
        if not self.schedules or not all(isinstance(one, Schedule) for one in self.schedules):
            raise Error("schedules: a pagestash.schedule.Schedule, or one for each stage, is wanted")
        self.page_bytes = integer(page_bytes, "page_bytes") or _abi.PST_PAGE_BYTES_DEFAULT
        self.layers = _of_stages(layers, len(self.schedules))
        self._raw_layers = [self._filled(stage) for stage in self.layers]
        num = len(self.schedules)
        if mode is None:
            mode = _MODES[integer(num_streams, "num_streams") > 1]
        rates = _abi.pst_simulated_rates(*(integer(value, name, 63) for name, value in (
            ("stash_ns", stash_ns), ("restore_ns", restore_ns), ("demote_ns", demote_ns),
            ("promote_ns", promote_ns), ("stash_rate", stash_rate), ("restore_rate", restore_rate),
            ("out_rate", out_rate), ("in_rate", in_rate))))
        pointer = ctypes.POINTER(_abi.pst_simulated_layer)
        self.raw = _c.sized(
            _abi.pst_simulation_config, num_stages=num, alone=bool(alone), one_ring=bool(one_ring),
            keeps_nothing=bool(keeps_nothing), by_slot=bool(by_slot),
            schedules=(ctypes.c_void_p * num)(*(one.handle for one in self.schedules)),
            layers=(pointer * num)(*(ctypes.cast(raw, pointer) for raw in self._raw_layers)),
            num_layers=(ctypes.c_uint32 * num)(*map(len, self.layers)),
            num_sources=integer(num_sources, "num_sources"),
            num_destinations=integer(num_destinations, "num_destinations"),
            ahead=integer(ahead, "ahead"), num_streams=integer(num_streams, "num_streams"),
            rule=number_of(RULES, rule, "rule"), mode=number_of(_MODES, mode, "mode"),
            steps=integer(steps, "steps"), p2p_ns=integer(p2p_ns, "p2p_ns", 63),
            page_bytes=self.page_bytes, rates=rates,
            interference_per_mille=integer(interference_per_mille, "interference_per_mille"),
            chunk_order=number_of(CHUNK_ORDERS, chunk_order, "chunk_order"),
            in_call_order=bool(in_call_order))
        for tier, (name, wanted) in enumerate((("pages", pages), ("host_pages", host_pages))):
            is_auto = isinstance(wanted, str) and wanted == "auto"
            self.raw.num_pages[tier] = (1 << 64) - 1 if is_auto else integer(wanted, name, 63)

    def _filled(self, stage):
        raw = (_abi.pst_simulated_layer * len(stage))()
        for one, layer in zip(raw, stage):
            layer.fill(one, self.page_bytes)
        return raw


def _of_stages(layers, num_stages):
    """Layers of each stage."""
    wanted = f"a list of SimulatedLayer, or one for each of the {num_stages} stages,"
    layers = listed(layers, "layers", wanted)
    if all(isinstance(layer, SimulatedLayer) for layer in layers):
        return [layers] * num_stages
    stages = [listed(stage, "layers: a stage's", wanted) for stage in layers]
    if len(stages) != num_stages or not all(isinstance(layer, SimulatedLayer)
                                            for stage in stages for layer in stage):
        raise Error(f"layers: {wanted} is wanted")
    return stages


def simulate(schedules: Union[Schedule, Sequence[Schedule]], layers: Sequence, *,
             events: bool = True, **fields) -> "Simulation":
    """Runs the operations that the scheduler would enqueue, on clocks and counters; no GPU is needed.

    schedules: of all stages (Schedule.pipeline), or of one alone, which waits for no other. layers:
    SimulatedLayer of each stage, or a list that all stages have. events: keep the timeline.
    fields, all with the scheduler's or the pool's meaning:
      num_sources, num_destinations (0: 2), one_ring, ahead, num_streams (1, 2, 4), rule ("asap", "next"),
      keeps_nothing, by_slot (sets belong to slots, as with captured layers), mode ("ordered", or
      "concurrent", which more streams want)
      pages, host_pages: of the pool, or "auto": as many as it takes; page_bytes (0: 256 KiB)
      stash_ns, restore_ns, demote_ns, promote_ns: of an operation, whatever its pages; stash_rate,
      restore_rate (device pages), out_rate, in_rate (the link): bytes per second, 0: no time
      p2p_ns: from a pass's end to where its neighbour can begin; interference_per_mille: by which work
      is slower while a copy runs; steps: that follow each other (figures of the last); chunk_order:
      "kind", "looped", "v", "directions" (simulate.h); in_call_order; alone
    Errors: Error with stage, layer and field. What does not fit is an answer (Simulation.fits)."""
    given = Input(schedules, layers, **fields)
    timeline, failed = bytearray(), []
    event_bytes = ctypes.sizeof(_abi.pst_simulated_event)

    def add(_user, event):
        try:
            timeline.extend(ctypes.string_at(event, event_bytes))
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)

    if events:
        given.raw.on_event = type(given.raw.on_event)(add)
    whole = _abi.pst_simulation()
    stages = (_abi.pst_stage_result * len(given.schedules))()
    _c.call("pst_simulate_sized", ctypes.byref(given.raw), ctypes.byref(whole),
            ctypes.sizeof(whole), stages, ctypes.sizeof(_abi.pst_stage_result))
    if failed:
        raise failed[0]
    return Simulation(given, whole, stages, timeline if events else None)


class Simulation:
    """What pagestash.simulate found.

    makespan_ns: of all ranks (of several steps: what the last one adds). deadlock: which passes wait for
    each other; "" if none do. fits: no fault and no deadlock. demand: the most pages, both tiers, that
    any stage has in use at once, had no stash failed. EVENT_KINDS and STREAMS name the numbers in events."""

    EVENT_KINDS, STREAMS = EVENT_KINDS, STREAMS

    def __init__(self, given, whole, stages, timeline):
        self.schedules, self.layers, self.page_bytes = given.schedules, given.layers, given.page_bytes
        self.makespan_ns, self.deadlock = whole.makespan_ns, whole.deadlock.decode()
        self.raw_stages, self._timeline = list(stages), timeline  # an array of ctypes cannot be pickled
        self.has_host_pages = given.raw.num_pages[1] > 0
        self.fits = not whole.deadlocked and all(stage.num_faults == 0 for stage in stages)
        self.demand = max(stage.demand_high_water for stage in stages)

    @property
    def stages(self) -> Any:
        """Figures of each stage, as pst_stage_result: a structured array of numpy, or without numpy the C
        structs. Times in ns; pairs are (device, host), of the link (out, in)."""
        return _array(self.raw_stages, _abi.pst_stage_result)

    @property
    def events(self) -> Any:
        """The timeline, as pst_simulated_event: a structured array of numpy, or without numpy the C
        structs. stream and kind are indices into STREAMS and EVENT_KINDS, visit.kind into
        pagestash.schedule.PASSES; pages and in_use are (device, host). Errors: events=False."""
        return _array(self.raw_events(), _abi.pst_simulated_event)

    def raw_events(self) -> ctypes.Array:
        """The same as C structs. Errors: events=False."""
        if self._timeline is None:
            raise Error("events: the simulation was asked to keep none (events=False)")
        size = ctypes.sizeof(_abi.pst_simulated_event)
        kind = _abi.pst_simulated_event * (len(self._timeline) // size)
        return kind.from_buffer_copy(self._timeline)

    def fault(self, stage: int) -> Optional[str]:
        """The first fault of a stage as a sentence; None: none."""
        stage = within(stage, "stage", 0, len(self.raw_stages) - 1)
        raw = self.raw_stages[stage]
        if not raw.num_faults:
            return None
        text = _c.lib.pst_fault_text(raw.fault).decode()
        return (f"{key_of(raw.fault_visit)}: {text}: wanted {raw.fault_wanted}, free "
                f"{raw.fault_free[0]} and {raw.fault_free[1]} on the host")

    def table(self) -> str:
        """The table of `pagestash simulate`: a line for each rank, at most 100 columns wide, and therefore with
        times in the smallest unit that leaves room. `stages` has all figures."""
        return _timeline.table(self)

    def plot(self, figure=None, stages: Optional[Sequence[int]] = None) -> Any:
        """The timeline and the pages of the stages (all, or those of these numbers), with matplotlib 3.7 or
        later, in its current style; the figure. figure: where to draw, a figure or subfigure without axes,
        whose layout becomes "constrained". Errors: matplotlib is not installed, or older; events=False."""
        return _timeline.plot(self, figure, stages)

    def to_html(self, path=None) -> str:
        """One page that loads nothing: the timeline as a picture, and the figures; written to `path`,
        too. At most 20,000 events are drawn, and the page says so. Errors: events=False; the file cannot be
        written."""
        text = _timeline.page(self)
        if path is not None:
            _files.write(path, text.encode(), "to_html")
        return text

    def _repr_html_(self):
        return _timeline.fragment(self) if self._timeline is not None else None

    def __repr__(self):
        state = "deadlocked, " if self.deadlock else "" if self.fits else "does not fit, "
        return (f"Simulation({len(self.schedules)} stages, {state}makespan "
                f"{self.makespan_ns / 1000:g} us, {self.demand} pages)")


def _array(raw, struct):
    try:
        import numpy
    except ImportError:
        return raw
    fields = [(name, ctype) for name, ctype in struct._fields_ if not name.startswith("padding")]
    dtype = numpy.dtype({"names": [name for name, _ in fields],
                         "formats": [numpy.dtype(ctype) for _, ctype in fields],
                         "offsets": [getattr(struct, name).offset for name, _ in fields],
                         "itemsize": ctypes.sizeof(struct)})
    return numpy.frombuffer(b"".join(map(bytes, raw)) if isinstance(raw, list) else bytes(raw), dtype)
