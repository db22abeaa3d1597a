"""Layers as the simulator wants them: what each visit takes, and how long it works."""
import ctypes
import dataclasses
import os
from typing import Any, Callable, Optional, Sequence, Union

from . import _abi, _files, pool as _pool
from ._checks import Error, integer, is_a, listed, number_of
from .schedule._layers import policy_of
from .schedule._order import Schedule
from .schedule._words import KEEPS, USES

CHUNK_ORDERS = ("kind", "looped", "v", "directions")
_TILE = 16 << 10  # to which each tensor of a byte stream is rounded up, group.h


@dataclasses.dataclass(frozen=True)
class SimulatedPart:
    """Tensors of a paged layer with a ticket of their own. What each visit takes is said in one of three
    ways, each for all micro-batches, or a sequence with one for each of the chunk's: pages; bytes (live);
    form and counts (rows of the form's row spaces, one after the other; ints where it has one count).
    None of them: nothing. uses: "both", "backward", "weight". part_ns: of the forward's core, after which
    the part is announced; 0: with the end."""
    pages: Any = None
    bytes: Any = None
    form: Optional[_pool.Form] = None
    counts: Any = None
    uses: str = "both"
    part_ns: int = 0

    def usages(self, page_bytes: int, what: str) -> list:
        """pst_group_usage of each micro-batch, or of all of them."""
        given = [name for name in ("pages", "bytes", "counts") if getattr(self, name) is not None]
        if len(given) > 1 or (self.counts is None) != (self.form is None):
            raise Error(f"{what}: {', '.join(given)}: one of pages, bytes, and form with counts")
        if not given:
            return [_abi.pst_group_usage()]
        values = getattr(self, given[0])
        values = listed(values, f"{what}: {given[0]}") if hasattr(values, "__len__") else [values]
        if not values:
            raise Error(f"{what}: {given[0]}: none")
        return [self._usage(given[0], value, page_bytes, f"{what}: {given[0]} {i}")
                for i, value in enumerate(values)]

    def _usage(self, kind, value, page_bytes, what):
        if kind == "counts":
            counts = listed(value, what) if hasattr(value, "__len__") else [value]
            if len(counts) != is_a(self.form, _pool.Form, f"{what}: form").num_counts:
                raise Error(f"{what}: {len(counts)}: the form has {self.form.num_counts}")
            usage = self.form.measure([integer(c, what, 63) for c in counts], page_bytes)
            return _abi.pst_group_usage(usage.payload_bytes, usage.stream_bytes, usage.pages)
        number = integer(value, what, 31 if kind == "pages" else 62)
        if kind == "pages":
            return _abi.pst_group_usage(number * page_bytes, number * page_bytes, number)
        stream = -(-number // _TILE) * _TILE
        return _abi.pst_group_usage(number, stream, -(-stream // page_bytes))


@dataclasses.dataclass(frozen=True)
class SimulatedLayer:
    """A layer of a stage: `layer` from 0 within its chunk, every one exactly once.

    keep, host_share, move, promote_ahead, swap_tokens, holds: as for schedule.Layer. pages, bytes, form,
    counts: what its visits take (SimulatedPart), or parts. forward_ns, backward_ns, weight_ns: the main
    stream's time before, between and after the hooks; a whole backward takes backward_ns and weight_ns, a
    split one each by itself. recompute_ns: recomputed: all of it; swapped: the dropped tokens.
    swap_bytes: swapped: of one visit. max_demote_pages: that one demote moves at most; 0: all.
    For the policy: treatments: keeps that are allowed besides; planned_bytes: of the stage's static bytes,
    gone when the layer is not "planned"; whole_bytes, token_bytes, num_tokens, block_tokens: swapped."""
    layer: int = 0
    chunk: int = 0
    keep: str = "paged"
    pages: Any = None
    bytes: Any = None
    form: Optional[_pool.Form] = None
    counts: Any = None
    parts: Sequence[SimulatedPart] = ()
    forward_ns: Sequence[int] = (0, 0, 0)
    backward_ns: Sequence[int] = (0, 0, 0)
    weight_ns: Sequence[int] = (0, 0, 0)
    host_share: Any = 0
    move: str = "direct"
    promote_ahead: int = 0
    swap_tokens: int = 0
    holds: bool = False
    recompute_ns: int = 0
    swap_bytes: int = 0
    max_demote_pages: int = 0
    treatments: Sequence[str] = ()
    planned_bytes: int = 0
    whole_bytes: int = 0
    token_bytes: int = 0
    num_tokens: int = 0
    block_tokens: int = 0

    @property
    def name(self) -> str:
        """As the library calls it."""
        return f"layer {self.layer} of chunk {self.chunk}"

    @property
    def says_pages(self) -> bool:
        """Whether its visits are known in pages of one size only."""
        return any(part.pages is not None for part in (self, *self.parts))

    @classmethod
    def repeat(cls, num_layers: int, *, num_chunks: int = 1, **fields) -> list:
        """So many layers of each chunk, all alike; a field that is a function gets (chunk, layer)."""
        def value(given, chunk, layer):
            return given(chunk, layer) if isinstance(given, Callable) else given
        return [cls(layer, chunk, **{name: value(given, chunk, layer)
                                     for name, given in fields.items()})
                for chunk in range(integer(num_chunks, "num_chunks", 20))
                for layer in range(integer(num_layers, "num_layers", 20))]

    def fill(self, raw: _abi.pst_simulated_layer, page_bytes: int) -> None:
        """The C struct; it keeps alive what it points to."""
        raw.struct_size = ctypes.sizeof(raw)
        raw.chunk, raw.layer = integer(self.chunk, "chunk"), integer(self.layer, "layer")
        raw.keep = number_of(KEEPS, self.keep, f"{self.name}: keep")
        raw.policy = policy_of(self)
        raw.policy.recomputes = "recomputed" in self._treatments()
        forward, backward, weight = (self._times(name) for name in
                                     ("forward_ns", "backward_ns", "weight_ns"))
        raw.forward = _abi.pst_times(*forward)
        raw.backward_input, raw.backward_weight = _abi.pst_times(*backward), _abi.pst_times(*weight)
        raw.backward = _abi.pst_times(*(a + b for a, b in zip(backward, weight)))
        for name in ("recompute_ns", "swap_bytes", "max_demote_pages"):
            setattr(raw, name, integer(getattr(self, name), f"{self.name}: {name}", 64))
        if self.keep == "paged":
            self._fill_parts(raw, page_bytes)

    def _fill_parts(self, raw, page_bytes):
        one = SimulatedPart(self.pages, self.bytes, self.form, self.counts)
        parts = listed(self.parts, f"{self.name}: parts") or [one]
        if parts != [one] and one != SimulatedPart():
            raise Error(f"{self.name}: parts, and pages, bytes, form or counts: one of both")
        if len(parts) > _abi.PST_MAX_PARTS:
            raise Error(f"{self.name}: {len(parts)} parts: allowed are 1 to {_abi.PST_MAX_PARTS}")
        usages = [is_a(part, SimulatedPart, f"{self.name}, part {i}").usages(
            page_bytes, f"{self.name}, part {i}") for i, part in enumerate(parts)]
        num = max(map(len, usages))
        if any(len(of_part) not in (1, num) for of_part in usages):
            raise Error(f"{self.name}: its parts have {[len(u) for u in usages]} visits")
        flat = [usage for of_part in usages
                for usage in (of_part if len(of_part) == num else of_part * num)]
        raw.usages, raw.num_usages = (_abi.pst_group_usage * len(flat))(*flat), num
        raw.num_parts = len(parts)
        for i, part in enumerate(parts):
            raw.uses[i] = number_of(USES, part.uses, f"{self.name}, part {i}: uses")
            raw.part_ns[i] = integer(part.part_ns, f"{self.name}, part {i}: part_ns", 63)

    def _times(self, name):
        times = [integer(ns, f"{self.name}: {name}", 62) for ns in
                 listed(getattr(self, name), f"{self.name}: {name}")]
        if len(times) != 3:
            raise Error(f"{self.name}: {name}: {len(times)} times: before, between and after the hooks")
        return times

    def _treatments(self):
        return listed(self.treatments, f"{self.name}: treatments")

    def fill_policy(self, raw: _abi.pst_policy_layer) -> None:
        """What the policy may do with it."""
        raw.struct_size = ctypes.sizeof(raw)
        keeps = [number_of(KEEPS, name, f"{self.name}: treatments") for name in self._treatments()]
        raw.treatments = sum({1 << keep for keep in keeps + [KEEPS.index(self.keep)]}) if keeps else 0
        for name in ("planned_bytes", "whole_bytes", "token_bytes", "num_tokens", "block_tokens",
                     "recompute_ns"):
            setattr(raw, name, integer(getattr(self, name), f"{self.name}: {name}", 64))


def read_routing(path) -> Any:
    """Rows of a routing trace (step,layer,e0,e1,...), as [steps][layers][experts]: an array of numpy where
    numpy is there. Errors: Error with file and line."""
    path, rows = _files.read_rows(path, "read_routing")
    header, *rows = rows or [[]]
    experts = len(header) - 2
    if experts < 1 or header != ["step", "layer", *(f"e{i}" for i in range(experts))]:
        raise Error(f"{path}:1: header {','.join(header[:4])!r}: wanted is step,layer,e0,e1,...")
    steps = []
    for line, row in enumerate(rows, 2):
        try:
            _, layer, *counts = map(int, row)
        except ValueError:
            raise Error(f"{path}:{line}: a field is no integer") from None
        if layer == 0:
            steps.append([])
        if len(counts) != experts or not steps or len(steps[-1]) != layer:
            raise Error(f"{path}:{line}: layer {layer}, {len(counts)} experts: out of order, or not "
                        f"{experts}")
        steps[-1].append(counts)
    if not steps or len(set(map(len, steps))) != 1:
        raise Error(f"{path}: its steps have not all as many layers")
    try:
        import numpy
    except ImportError:
        return steps
    return numpy.array(steps, numpy.int64)


def routed_layers(schedules: Union[Schedule, Sequence[Schedule]], routing, form: _pool.Form, num_layers: int, *,
                  expert_model_parallel_size: int = 1, expert_model_parallel_rank: int = 0,
                  iteration: int = 0, chunk_order: str = "kind", **fields) -> list:
    """The layers of each stage, with the rows of a routing trace, as `pagestash simulate --routing` takes
    them (for one Schedule, those of its stage): each micro-batch of an iteration takes a step, the n-th layer of the model the trace's layer n
    modulo their count. routing: a file or [steps][layers][experts]. form: of the rows of a layer; its one
    row space is a prefix or a sum (rows of this rank's experts) or segments (of each). num_layers: of
    each chunk. fields: of SimulatedLayer. Errors: too few steps, experts that do not divide evenly."""
    schedules = [schedules] if isinstance(schedules, Schedule) else listed(schedules, "schedules")
    for i, schedule in enumerate(schedules):
        is_a(schedule, Schedule, f"schedules[{i}]")
    if not schedules:
        raise Error("schedules: none")
    is_a(form, _pool.Form, "form")
    num_layers = integer(num_layers, "num_layers", 20)
    steps = read_routing(routing) if isinstance(routing, (str, os.PathLike)) else routing
    try:
        num_experts = len(steps[0][0])
    except (TypeError, IndexError, KeyError):
        raise Error("routing: a file, or [steps][layers][experts], is wanted") from None
    size = integer(expert_model_parallel_size, "expert_model_parallel_size")
    rank = integer(expert_model_parallel_rank, "expert_model_parallel_rank")
    if size == 0 or num_experts % size or rank >= size:
        raise Error(f"expert_model_parallel_size {size}, rank {rank}: the routing has {num_experts} experts")
    local = num_experts // size
    mine = slice(local * rank, local * (rank + 1))
    order = _order_of(schedules[0], chunk_order)
    shared = order == "directions"  # both chunks of a stage then share the micro-batches
    batches = [schedules[0].num_micro_batches // (schedules[0].num_chunks if shared else 1)
               for _ in range(schedules[0].num_chunks)]
    first = integer(iteration, "iteration") * schedules[0].num_micro_batches
    if first + schedules[0].num_micro_batches > len(steps):
        raise Error(f"iteration {iteration}: the routing has {len(steps)} steps, each micro-batch takes "
                    f"one, an iteration {schedules[0].num_micro_batches}")

    def rows(place, micro_batch):
        try:
            experts = [int(n) for n in steps[first + micro_batch][place % len(steps[0])][mine]]
        except (TypeError, ValueError, IndexError):
            raise Error(f"routing: step {first + micro_batch}: {num_experts} integers for each layer are "
                        "wanted") from None
        return experts if form.spaces[0].kind == "segments" else [sum(experts)]

    def layer_of(schedule, chunk, layer):
        stage = _virtual_stage(schedule.num_stages, schedule.stage, chunk, order)
        place = stage * num_layers + layer
        before = sum(batches[:chunk]) if shared else 0
        counts = [rows(place, before + i) for i in range(batches[chunk])]
        return SimulatedLayer(layer, chunk, form=form, counts=counts, **fields)

    return [[layer_of(schedule, chunk, layer) for chunk in range(schedule.num_chunks)
             for layer in range(num_layers)] for schedule in schedules]


def _order_of(schedule, chunk_order):
    number_of(CHUNK_ORDERS, chunk_order, "chunk_order")
    if chunk_order != "kind":
        return chunk_order
    return {"zb-v": "v", "dualpipe-v": "v", "dualpipe": "directions"}.get(schedule.kind, "looped")


def _virtual_stage(num_stages, stage, chunk, order):
    backwards = order != "looped" and chunk % 2 == 1
    base = 0 if order == "directions" else chunk * num_stages
    return base + (num_stages - 1 - stage if backwards else stage)
