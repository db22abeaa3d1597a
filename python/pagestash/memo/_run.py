"""Swaps what a list of transformer layers keeps, by tokens: pagestash.memo.run."""
import fractions
import threading
from typing import Any, Callable, Optional, Sequence, Union

import torch

from .. import pool as _pool
from .._c import Error
from ..schedule import Layer, Schedule, TorchScheduler
from . import _choose
from ._kept import Buffers, Kept
from ._pieces import spans_of
from ._unit import Unit, forward_kept, forward_plain


class Run:
    """Layers whose tensors are kept in two rounding buffers and in host memory; made by memo.run.

    Call step() at the end of each training step. units: the layers. choice: what was chosen, and why, from
    the first training call on. trackers: of random states that a layer draws from beside torch's own."""

    unit_type, trackers = Unit, ()

    def __init__(self, chunks, *, fraction, keep_last, host_bytes, attention, token_dim, cut, block_tokens,
                 micro_batches, schedule, check, link_bytes_per_second, gpu_bytes=None, group=None, **fields):
        self.fraction, self.keep_last = fraction, keep_last
        self.host_bytes, self.gpu_bytes = host_bytes, gpu_bytes
        self.cut, self.block_tokens, self.check = cut, block_tokens, check
        self.link_bytes_per_second = link_bytes_per_second
        self.group = group
        _choose.checked(self, sum(map(len, chunks)))
        self.schedule = schedule or Schedule("1f1b", num_micro_batches=micro_batches)
        self.fields = fields
        self.units, self.choice, self.scheduler, self.buffers = [], None, None, None
        self.deviations, self._calls, self._open = {}, {}, False
        self._lock = threading.RLock()
        self._hook = None
        for c, layers in enumerate(chunks):
            for place, module in enumerate(layers):
                module, method = module if isinstance(module, tuple) else (module, "forward")
                self.units.append(self.unit_type(self, (c, place), module, method=method,
                                                 token_dim=token_dim, attention=attention))
        for unit in self.units:
            unit.wrap()

    @property
    def wants_times(self):
        """Whether layers are timed to choose by."""
        return isinstance(self.fraction, str)

    # ---- calls of layers ----

    def call(self, unit, args, kwargs):
        """In place of the module's own forward."""
        if not torch.is_grad_enabled():
            return unit.original(*args, **kwargs)
        x, _ = unit.hidden(args, kwargs)
        if self.choice is None:
            self._prepare(x, args, kwargs)
        if (tuple(x.shape), x.dtype) != (unit.measured.shape, unit.measured.dtype):
            self.deviates(f"hidden states of shape {tuple(x.shape)}, {x.dtype}")
            return self._visited(unit, x, lambda: unit.original(*args, **kwargs))
        if unit.layout is None:
            return forward_plain(unit, spans_of(unit.measured.num_tokens, self.cut or 0), args, kwargs)
        kept = self._forward_begins(unit, unit.fixed(args, kwargs), x)
        out = forward_kept(unit, kept, args, kwargs, self._hook)
        self._forward_ends(kept)
        return out

    def _visited(self, unit, _x, call):
        """A call that keeps its tensors in memory."""
        if unit.layout is None:
            return call()
        raise Error(f"{unit.name}: not yet")

    def deviates(self, what):
        """Counts what was not as planned."""
        self.deviations[what] = self.deviations.get(what, 0) + 1

    # ---- hooks of the scheduler ----

    def _forward_begins(self, unit, fixed, _x):
        chunk, layer = unit.place
        micro_batch = self.micro_batch(unit)
        if not self._open:
            self.scheduler.step_begin(num_micro_batches=self.num_micro_batches())
            self._open = True
        self._calls[unit.place] = micro_batch + 1
        visit = self.scheduler.forward_begin(chunk, layer, micro_batch)
        kept = Kept(unit, unit.layout, self.buffers, visit.set, fixed)
        kept.key = chunk, layer, micro_batch
        return kept

    def micro_batch(self, unit):
        """Of the call of a layer that begins."""
        return self._calls.get(unit.place, 0)

    def num_micro_batches(self):
        """Of the step that begins; 0: the schedule's."""
        return 0

    def _forward_ends(self, kept):
        self.scheduler.forward_end(*kept.key)

    def backward_begins(self, kept):
        """From the backward of a layer's output."""
        if kept.is_open or kept.is_over:
            raise Error(f"{kept.unit.name}: a second backward: what it keeps is gone after the first")
        visit = self.scheduler.backward_begin("backward", *kept.key)
        kept.index = visit.set
        kept.compute_again(visit.in_place)

    def backward_ends(self, kept):
        """From that of its input."""
        kept.backward_ends()
        self.scheduler.backward_end("backward", *kept.key)

    def step(self) -> None:
        """At the end of each training step, behind its last backward; also in a captured one. Errors: a layer's
        backward is missing."""
        self._calls.clear()
        if self._open:
            self._open = False
            self.scheduler.step_end()

    def abort(self) -> None:
        """After an exception in a step: the next one starts anew."""
        self._calls.clear()
        if self._open:
            self._open = False
            self.scheduler.abort()

    def close(self) -> None:
        """The layers are as they were; buffers and host memory go back. Errors: a step is open."""
        if self._open:
            raise Error("close: a step is open: step() or abort()")
        for unit in self.units:
            unit.unwrap()
        if self.scheduler is not None:
            self.scheduler.close()
            self.pool.close()
        self.buffers = self.scheduler = None

    # ---- the first training call ----

    def _prepare(self, x, args, kwargs):
        """Measures all layers with the arguments of this call, chooses, and makes buffers and scheduler."""
        for unit in self.units:
            unit.measure(args, kwargs, self.check)
        self.choice = _choose.choose(self, x.device)
        self._hook = torch.zeros((), device=x.device, requires_grad=True)
        layers = []
        for unit, tokens in zip(self.units, self.choice.tokens):
            if tokens is not None:
                cut = tokens if self.cut is None else self.cut
                unit.layout = unit.measured.layout(tokens, cut)
        layouts = [unit.layout for unit in self.units if unit.layout is not None]
        if not layouts:
            return
        self.buffers = Buffers(max(layout.num_bytes for layout in layouts), x.device)
        for unit in self.units:
            layers.append(self._layer(unit))
        device = _pool.Device.open("cuda", x.device.index or 0) if x.is_cuda else _pool.Device.open("host")
        self.pool = _pool.Pool(device, pages=1)
        self.scheduler = TorchScheduler(self.pool, layers, schedule=self.schedule,
                                        keeps_nothing=self.keep_last == 0, **self.fields)

    def _layer(self, unit):
        chunk, place = unit.place
        layout = unit.layout
        if layout is None:
            return Layer(place, chunk, keep="planned")
        return Layer(place, chunk, keep="swapped", buffers=self.buffers.addresses,
                     whole_bytes=layout.whole_bytes, token_bytes=layout.token_bytes,
                     num_tokens=layout.num_tokens, swap_tokens=layout.swap_tokens)


def run(layers: Sequence, *, fraction: Any = "auto", keep_last: int = 2, host_bytes: Optional[int] = None,
        attention: Union[None, str, Callable] = None, token_dim: int = 1, cut: Optional[int] = None,
        block_tokens: int = 128, micro_batches: int = 1, schedule: Optional[Schedule] = None,
        check: bool = True, link_bytes_per_second: Optional[int] = None, gpu_bytes: Optional[int] = None,
        group: Any = None, **fields) -> Run:
    """Wraps a list of transformer layers."""
    layers = list(layers)
    chunks = layers if layers and isinstance(layers[0], (list, torch.nn.ModuleList)) else [layers]
    return Run(chunks, fraction=fraction, keep_last=keep_last, host_bytes=host_bytes, attention=attention,
               token_dim=token_dim, cut=cut, block_tokens=block_tokens, micro_batches=micro_batches,
               schedule=schedule, check=check, link_bytes_per_second=link_bytes_per_second,
               gpu_bytes=gpu_bytes, group=group, **fields)
