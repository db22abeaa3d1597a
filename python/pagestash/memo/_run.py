"""Swaps what a list of transformer layers keeps, by tokens, and pages what their experts keep:
pagestash.memo.run."""
import contextlib
from typing import Any, Callable, Optional, Sequence, Union

import torch

from .._checks import Error, Once
from ..schedule import Layer, Schedule
from ..torch.layer import Apart
from . import _choose, _nodes, _pool
from ._kept import Buffers, Kept
from ._paged import Measuring, Paged, PagedUnit, Scheduler
from ._pieces import spans_of
from ._planned import Planned, refuse_cpu
from ._run_report import Report
from ._unit import Unit, forward_kept, forward_plain
from ._visits import Visits, in_backward, is_capturing


class Run(Once):
    """Layers whose tensors are kept in two rounding buffers and in host memory; made by memo.run.

    Call step() at the end of each training step. units: the layers. choice: what was chosen, and why, from
    the first training call on. deviations: what was not as planned, and how often: those calls keep their tensors
    in memory. trackers: of random states that a layer draws from beside torch's own."""

    unit_type, trackers, plan = Unit, (), None

    def __init__(self, chunks, *, fraction, keep_last, host_bytes, attention, token_dim, cut, block_tokens,
                 micro_batches, schedule, check, link_bytes_per_second, plan=None, gpu_bytes=None, group=None,
                 pages="measure", page_bytes=None, host_pages=0, headroom=1.1, **fields):
        self.fraction, self.keep_last = fraction, keep_last
        self.host_bytes, self.gpu_bytes = host_bytes, gpu_bytes
        self.cut, self.block_tokens, self.check = cut, block_tokens, check
        self.link_bytes_per_second = link_bytes_per_second
        self.group = group
        self.pages, self.page_bytes, self.host_pages, self.headroom = pages, page_bytes, host_pages, headroom
        _choose.checked(self, sum(not isinstance(layer, Paged) for layers in chunks for layer in layers))
        self.schedule = schedule or Schedule("1f1b", num_micro_batches=micro_batches)
        if self.schedule.info.splits_backward:
            raise Error(f"schedule {self.schedule.kind!r}: autograd runs whole backwards, and this one splits them")
        self.fields = fields
        self.choice = self.scheduler = self.buffers = self.pool = self.device = self.store = None
        self.deviations, self._hook = {}, None
        self.visits, self._shared = Visits(self.deviates), {}
        self.visits.valid = lambda: _pool.valid(self)
        self.order = [unit for c, layers in enumerate(chunks) for unit in self._units_of(c, layers, attention,
                                                                                         token_dim)]
        self.units = [unit for unit in self.order if not unit.is_paged]
        for unit in self.order:
            unit.check()
            self._shared.setdefault((id(unit.module), unit.method), []).append(unit)
        for same in self._shared.values():
            if same[0].place[0] != same[-1].place[0]:
                raise Error(f"{same[-1].name}: it is {same[0].name}, too: in two chunks a module can be once")
        self.planned = None if plan is None else Planned(plan, [unit.module for unit in self.units])
        self.plan = self.planned and self.planned.plan
        for unit in self.order:
            unit.wrap()

    def _units_of(self, chunk, layers, attention, token_dim):
        swapped = 0
        for i, layer in enumerate(layers):
            name = f"layer {i} of chunk {chunk}"
            if isinstance(layer, Paged):
                yield PagedUnit(self, (chunk, i), layer, name)
                continue
            module, method = layer if isinstance(layer, tuple) else (layer, "forward")
            yield self.unit_type(self, (chunk, swapped), module, method=method, token_dim=token_dim,
                                 attention=attention, name=name)
            swapped += 1

    @property
    def wants_times(self):
        """Whether layers are timed to choose by."""
        return isinstance(self.fraction, str)

    # ---- calls of layers ----

    def call(self, unit, args, kwargs):
        """In place of the module's own forward."""
        if not torch.is_grad_enabled():
            return unit.original(*args, **kwargs)
        if not getattr(unit.module, "training", True):
            if in_backward() < 0:
                self.deviates("a call in evaluation, with gradients")
            return unit.original(*args, **kwargs)
        with Apart(unit.name):
            return self._call(unit, args, kwargs)

    def _call(self, unit, args, kwargs):
        if in_backward() >= 0:
            return unit.original(*args, **kwargs)
        self.visits.recover()
        if self.choice is None and len(self.units) < len(self.order):
            return self._measure(unit, args, kwargs)
        unit = self._turn_of(unit)
        if unit.is_paged:
            return self._paged(unit, args, kwargs)
        x, _ = unit.hidden(args, kwargs)
        if self.choice is None:
            self._prepare(x, args, kwargs)
        if (tuple(x.shape), x.dtype) != (unit.measured.shape, unit.measured.dtype):
            self.deviates(f"hidden states of shape {tuple(x.shape)}, {x.dtype}")
            return self._visited(unit, args, kwargs)
        if unit.is_cut_otherwise(args, kwargs):
            self.deviates("an argument that has as many elements as there are tokens, or no longer")
            return self._visited(unit, args, kwargs)
        if unit.seat is None:
            return forward_plain(unit, spans_of(unit.measured.num_tokens, self.cut or 0), args, kwargs)
        if not unit.wants_gradients([x]):
            self.deviates("a layer without gradients")
            return self._visited(unit, args, kwargs)
        return self._as_visit(unit, lambda call: self._swapped(unit, call, args, kwargs))

    def _paged(self, unit, args, kwargs):
        if unit.seat is None:
            return unit.original(*args, **kwargs)
        capacity = unit.capacity(args, kwargs)
        if capacity != unit.shape.capacity:
            self.deviates(f"a paged layer with a capacity of {capacity} rows")
            return self._visited(unit, args, kwargs)
        return self._as_visit(unit, lambda call: unit.forward(call, self._hook, args, kwargs))

    def _turn_of(self, unit):
        """A module that is several layers: they take turns."""
        same = self._shared[id(unit.module), unit.method]
        if len(same) == 1:
            return unit
        calls = [self.visits.calls.get(one.seat, 0) if one.seat else 0 for one in same]
        return same[calls.index(min(calls))]

    def _visited(self, unit, args, kwargs):
        """A call that keeps its tensors in memory."""
        if unit.seat is None:
            return unit.original(*args, **kwargs)
        return self._as_visit(unit, lambda call: _nodes.between(call, self._hook, unit.original, args, kwargs))

    def _as_visit(self, unit, forward):
        call = self.visits.forward_begins(unit, self.micro_batch, self.num_micro_batches())
        try:
            out = forward(call)
        except BaseException as error:
            self.visits.give_up(f"{type(error).__name__} in the forward of {unit.name}")
            raise
        if unit.is_paged and not call.visit.parts and not call.visit.in_place:
            unit.save_nothing(call.visit, self.device)
        call.forward_ends()
        return out

    def _swapped(self, unit, call, args, kwargs):
        layout, visit = unit.layout, call.visit
        kept = Kept(unit, layout, self.buffers, visit.set, unit.fixed(args, kwargs))
        kept.call = call
        kept.drops = layout.swap_tokens < layout.num_tokens and not visit.in_place
        if kept.drops and unit.measured.draws and is_capturing():
            raise Error(f"{unit.name}: it draws random numbers, and tokens that are dropped draw theirs again, "
                        "which a capture cannot: fraction=1, or no dropout")
        return forward_kept(unit, kept, args, kwargs, self._hook)

    def micro_batch(self, unit):
        """Of the call of a layer that begins, in its step."""
        return self.visits.calls.get(unit.seat, 0)

    def num_micro_batches(self):
        """Of the step that begins; 0: the schedule's."""
        return 0

    def deviates(self, what):
        """Counts what was not as planned."""
        self.deviations[what] = self.deviations.get(what, 0) + 1

    # ---- backwards ----

    def backward_begins(self, kept):
        """From the backward of a layer's output."""
        if torch.is_grad_enabled():
            raise Error(f"{kept.unit.name}: create_graph: what it keeps has no history: a gradient of a gradient is "
                        "not possible")
        visit = kept.call.backward_begins()
        kept.index = visit.set
        try:
            kept.compute_again(visit.in_place)
        except BaseException as error:
            self.visits.give_up(f"{type(error).__name__} in the backward of {kept.unit.name}")
            raise

    @staticmethod
    def backward_ends(kept):
        """From that of its input."""
        kept.backward_ends()
        kept.call.backward_ends()

    # ---- steps ----

    def begin(self, micro_batches: int = 0) -> None:
        """Before a step's first forward, where it has another number of micro-batches than the schedule (0: its
        own); with a plan before its first request of memory, always: an iteration of the plan begins, from the
        second step on. A step that was not ended is given up."""
        if self.planned is not None:
            self.planned.begin(self.choice is None)
        self.visits.begin(micro_batches)

    def step(self) -> None:
        """At the end of each training step, behind its last backward; also in a captured one. Errors: a layer's
        backward is missing; the step is given up then, and the next one is good."""
        if self.planned is not None:
            self.planned.end()
        if self.choice is None and self.store is not None:
            self._measured()
        self.visits.step()

    def status(self):
        """What the pool said of the step before (pagestash.pool.Status); waits for the device. None: no step has
        ended yet."""
        if self.pool is None:
            return None
        self.pool.device.synchronize()
        return self.pool.status()

    @property
    def valid(self) -> torch.Tensor:
        """int32, 1 element, on the device: 1, or 0 once pages ran out in this step, as of here on the current
        stream: then its gradients are wrong. To be read before step(); can be captured."""
        return _pool.valid(self)

    def grow(self) -> int:
        """After a step that ran out of pages, outside of captures: at least `headroom` times what it wanted.
        The pages now; captured graphs stay right. Errors: no memory; no step has ended yet."""
        if self.pool is None:
            raise Error("grow: nothing is paged yet")
        return _pool.grow(self)

    def abort(self) -> None:
        """After an exception in a step: what is kept is gone, the next forward begins a step. An exception that
        comes through a layer does it, too, and so does what shows in the next forward: a graph that was dropped,
        a backward that did not end."""
        self.visits.give_up("abort")
        if self.choice is None:
            self._forget()

    @contextlib.contextmanager
    def iteration(self, micro_batches: int = 0):
        """begin to step(); an exception aborts the step."""
        self.begin(micro_batches)
        try:
            yield self
            self.step()
        except BaseException:
            self.abort()
            raise

    def report(self) -> Report:
        """What was chosen for each layer, why, and what it takes; str() of it is text. Errors: before the first
        training call."""
        return Report(self)

    def close(self) -> None:
        """The layers are as they were; buffers, pages and host memory go back. Errors: a step is open; captured
        graphs hold them."""
        if self.visits.is_open:
            raise Error("close: a step is open: step() or abort()")
        if self.scheduler is not None:
            self.scheduler.close()
            self.buffers = self.scheduler = self.visits.scheduler = None
        if self.pool is not None:
            self.pool.close()
            self.pool = None
        for unit in reversed(self.order):
            unit.unwrap()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.abort()
        self.close()

    # ---- the first training call, or, with paged layers, the first step ----

    def _prepare(self, x, args, kwargs):
        """Measures all layers with the arguments of this call, chooses, and makes buffers and scheduler."""
        if self.planned is not None:
            refuse_cpu(x)
        for unit in self.units:
            unit.measure(args, kwargs, self.check)
        self.device = x.device
        self._choose(_pool.taken(self))
        self._seat(x.requires_grad)
        if self.visits.seats:
            self._make(_pool.without_pages(self.device))

    def _choose(self, taken):
        self.choice = _choose.choose(self, self.device, taken) if self.units else _choose.Choice(
            (), "nothing is swapped")
        for unit, tokens in zip(self.units, self.choice.tokens):
            if tokens is not None:
                unit.layout = unit.measured.layout(tokens, tokens if self.cut is None else self.cut)

    def _seat(self, wants):
        """Gives those layers a place in the scheduler whose tensors go somewhere: in each chunk from 0 on. The
        first ones have no backward where nothing in them wants a gradient. wants: the first input does."""
        for unit in self.order:
            chunk = unit.place[0]
            wants = wants or chunk > 0 or unit.wants_gradients(())
            if (unit.is_paged or unit.layout is not None) and wants:
                unit.seat = chunk, self.visits.seats.get(chunk, 0)
                self.visits.seats[chunk] = unit.seat[1] + 1

    def _make(self, pool):
        layouts = [unit.layout for unit in self.units if unit.seat is not None]
        if layouts:
            self.buffers = Buffers(max(layout.num_bytes for layout in layouts), self.device)
        layers = [unit.layer() if unit.is_paged else self._layer(unit)
                  for unit in self.order if unit.seat is not None]
        self._hook = torch.zeros((), device=self.device, requires_grad=True)
        self.pool = pool
        self.scheduler = Scheduler(pool, layers, schedule=self.schedule, keeps_nothing=self.keep_last == 0,
                                   **self.fields)
        self.visits.scheduler, self.visits.schedule = self.scheduler, self.schedule

    def _layer(self, unit):
        chunk, seat = unit.seat
        layout = unit.layout
        return Layer(seat, chunk, keep="swapped", buffers=self.buffers.addresses,
                     whole_bytes=layout.whole_bytes, token_bytes=layout.token_bytes,
                     num_tokens=layout.num_tokens, swap_tokens=layout.swap_tokens)

    def _measure(self, unit, args, kwargs):
        """A call of the first step: live rows are cut out; other layers keep their input, and run again."""
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs))
                   if isinstance(leaf, torch.Tensor)]
        if self.store is None:
            if is_capturing():
                raise Error("a capture, and nothing is measured yet: run one step before, with step() at its end")
            if not tensors:
                raise Error(f"{unit.name}: it is called without a tensor")
            self.device, self.store = tensors[0].device, Measuring(tensors[0].device)
            self._hook = torch.zeros((), device=self.device, requires_grad=True)
            self._wants = any(tensor.requires_grad for tensor in tensors)
        if unit.is_paged:
            return unit.forward_measured(self.store, self._hook, args, kwargs)
        x, _ = unit.hidden(args, kwargs)
        for one in self._shared[id(unit.module), unit.method]:
            if one.measured is None:
                one.measure(args, kwargs, self.check)
        if tuple(x.shape) != unit.measured.shape or unit.is_cut_otherwise(args, kwargs):
            return unit.original(*args, **kwargs)
        spans = spans_of(unit.measured.num_tokens, self.cut or 0)
        if self.fraction is None:
            return forward_plain(unit, spans, args, kwargs)
        return torch.utils.checkpoint.checkpoint(
            lambda _x: forward_plain(unit, spans, args, kwargs), x, use_reentrant=False)

    def _forget(self):
        """What a first step that did not end has measured."""
        self.store = None
        for unit in self.order:
            if unit.is_paged:
                unit.counted.clear()

    def _measured(self):
        """Behind the first step: pool, buffers and scheduler. Errors: a layer was not called, or has no rows;
        memory."""
        log = self.store.log
        for unit in self.order:
            if (unit.form if unit.is_paged else unit.measured) is None:
                why = "was not called in the first step" if not unit.is_paged or unit.shape is None else \
                    f"saves no tensor of {unit.shape.capacity} rows"
                self._forget()
                raise Error(f"{unit.name} {why}")
        pages, fields = _pool.fields_of(self, log)
        self._choose(_pool.taken(self, pages, fields))
        self._seat(self._wants)
        self._make(_pool.make(self, pages, fields))


def run(layers: Sequence, *, fraction: Any = "auto", keep_last: int = 2, host_bytes: Optional[int] = None,
        attention: Union[None, str, Callable] = None, token_dim: int = 1, cut: Optional[int] = None,
        block_tokens: int = 128, micro_batches: int = 1, schedule: Optional[Schedule] = None,
        check: bool = True, link_bytes_per_second: Optional[int] = None, plan: Any = None,
        gpu_bytes: Optional[int] = None,
        group: Any = None, pages: Union[str, int] = "measure", page_bytes: Optional[int] = None,
        host_pages: int = 0, headroom: float = 1.1, **fields) -> Run:
    """Wraps a list of transformer layers, or of such lists, the chunks of a pipeline's stage: in training each of
    them keeps its tensors in one of two buffers. From there its input and attention's output go whole to pinned
    host memory, of all else the first tokens; the others are computed again in its backward. An item is a module,
    or (module, "method"): that method is the layer; or memo.paged(...): experts, whose rows go to pages, in the same
    schedule. Items stand in the order of their calls; a module that is called twice stands there twice.

    fraction: of the tokens that go: "7/15", a Fraction, an int, a float, from 0 to 1; rounded down to whole blocks
    of block_tokens (a power of two from 16 on), but 1 is all. A list has one for each layer. None: a layer stays in
    memory; for all: nothing is swapped. "auto": layers and the link to the host are timed in the first training
    call; MEMO's formula gives one fraction for all, a search over simulated steps one for each layer, and these are
    taken where they save more than 0.5 % of a step. A backward is taken to be twice as long as its forward.
    keep_last: so many layers at the end of each chunk do not leave: the last two, which are in the buffers anyhow
    where no other chunk or micro-batch comes between, and before them others, which stay in memory. 0: all leave,
    for comparison.
    host_bytes: of pinned memory, for this GPU; None: what the machine and its container have free, without an
    eighth of all, divided by $LOCAL_WORLD_SIZE. gpu_bytes: for the buffers and for layers that stay in memory;
    with "auto" layers stay if there is room for them; None: not looked at, and only keep_last layers stay.
    link_bytes_per_second: each way, None: measured. group: of torch.distributed, whose ranks run each layer
    together (tensor, context parallel): they choose by the slowest rank's times and the least host memory.
    micro_batches, schedule: of a step; micro-batches in flight at once multiply host memory.
    attention: the path of the module in a layer that is attention, or a function from a layer to it; None:
    scaled_dot_product_attention is looked for. token_dim: of hidden states. cut: where the two pieces that a layer
    is run in part; None: where the swapped tokens end. check: compare the pieces with the whole layer at first.
    With paged layers the first step is measured: live rows are cut out, and other layers keep their input and run
    again; its step() makes all else. pages: "measure": `headroom` times what the schedule takes with the rows of
    that step, or how many; page_bytes: None: chosen by that step. host_pages: in pinned memory, for what finds no
    device page. gpu_bytes then holds for the pool, too, and host_bytes for host_pages.
    plan: a MemoPlan, or the file of one (memo.profile), of a model with these layers: torch allocates by it from
    the second step on; begin() or iteration() then begins each step. What deviates from it is served and counted
    (pagestash.allocator.stats). The allocator is installed if it was not: before torch first uses the GPU.
    fields: of pagestash.schedule.TorchScheduler.

    Errors: Error, before anything is allocated: host memory that does not hold a fraction, with the one that would
    fit; with "auto" also where what goes whole takes longer than a forward; layers that are not token-wise."""
    layers = list(layers)
    chunks = layers if layers and isinstance(layers[0], (list, torch.nn.ModuleList)) else [layers]
    return Run(chunks, fraction=fraction, keep_last=keep_last, host_bytes=host_bytes, attention=attention,
               token_dim=token_dim, cut=cut, block_tokens=block_tokens, micro_batches=micro_batches,
               schedule=schedule, check=check, link_bytes_per_second=link_bytes_per_second,
               plan=plan, gpu_bytes=gpu_bytes, group=group, pages=pages, page_bytes=page_bytes, host_pages=host_pages,
               headroom=headroom, **fields)
