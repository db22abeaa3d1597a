"""Records one training step with the allocator of the process; its rows say of which layer they are."""
from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import tempfile
from collections.abc import Callable
from typing import Optional

from .. import allocator
from .._c import Error
from . import _fingerprint, _micro, _trace


MICRO_BATCHES = 3  # recorded where the optimizer comes once: the first, and two that are to be alike


class _Labels:
    """Tells the allocator where a step is, by hooks on its layers.

    A layer's forward is that of its module. Its backward begins when autograd comes to the node that made
    the layer's output, or to the layer's forward within a backward, as a checkpoint has it, and ends where
    that of the layer before begins, or where the gradient of the first layer's input is there."""

    def __init__(self, blocks: list):
        self.blocks = blocks
        self.inputs: list = []
        self.calls = 0
        self.micro_batch: Optional[int] = None  # in work
        self.used = 0, 0  # bytes of the GPU, and how many it has

    def begin(self, micro_batch: Optional[int]) -> None:
        """A micro-batch begins; None: what comes once."""
        self.calls = 0
        self.micro_batch = micro_batch
        allocator.label("other", None, micro_batch)

    @contextlib.contextmanager
    def on(self):
        """With the hooks."""
        handles = []
        for index, block in enumerate(self.blocks):
            handles.append(block.register_forward_pre_hook(self._before(index), with_kwargs=True))
            handles.append(block.register_forward_hook(self._after(index)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            allocator.label()

    def _before(self, index):
        def hook(_module, args, kwargs):
            if _in_backward():
                allocator.label("backward", index, self.micro_batch)
                return
            given = [value for value in (*args, *kwargs.values()) if _is_tensor(value)]
            if index == 0:
                self.inputs = [[str(value.dtype).removeprefix("torch."), list(value.shape)]
                               for value in given]
            self.calls += 1
            for value in given:
                if value.requires_grad and self.calls == 1:
                    self._when_reached(value, "other", None)
            allocator.label("forward", index, self.micro_batch)
        return hook

    def _after(self, index):
        def hook(_module, _args, out):
            if _in_backward():
                return
            allocator.label("other", None, self.micro_batch)
            for value in out if isinstance(out, (tuple, list)) else (out,):
                if _is_tensor(value) and value.requires_grad:
                    self._when_reached(value, "backward", index)
        return hook


    def _when_reached(self, value, phase, layer):
        """Has autograd say where it is when the gradient of the tensor is complete."""
        def hook(*_):
            allocator.label(phase, layer, self.micro_batch)
        if value.grad_fn is not None:
            value.grad_fn.register_prehook(hook)
        else:
            value.register_hook(hook)


def _is_tensor(value):
    import torch
    return isinstance(value, torch.Tensor)


def _in_backward():
    import torch
    return torch._C._current_graph_task_id() != -1  # pylint: disable=protected-access


def ready(device: Optional[str]) -> None:
    """The process's allocator is ours. Errors: torch has used the GPU already; a mem_pool is in use."""
    if not allocator.is_installed():
        allocator.install(device=device)


@dataclasses.dataclass
class Recording:
    """One step of a model with so many layers. used_bytes: of the GPU's memory_bytes, by all of it."""
    layers: int
    rows: list
    fingerprint: dict
    inputs: list
    used_bytes: int
    memory_bytes: int


def record(build: Callable, step: Callable, optimize: Optional[Callable], layers: int,
           blocks: Optional[Callable], warmup: int) -> Recording:
    """Builds the model, runs `warmup` steps, then records: with `optimize` a step of three micro-batches.
    What it allocated is free again, but for what
    torch keeps. Errors: no layers; a step that does not ask for the same each time."""
    allocator.switch()
    made = build(layers)
    found = _fingerprint.blocks_of(made, blocks, layers)
    fingerprint = _fingerprint.of(made, blocks, layers)
    labels = _Labels(found)
    for _ in range(warmup):
        _step(made, step, optimize, None)
    with tempfile.TemporaryDirectory(prefix="pagestash-") as folder:
        path = os.path.join(folder, "trace.csv")
        _run(made, step, optimize, labels, path)
        with open(path, encoding="ascii") as file:
            rows, _ = _trace.read(file, "the recording")
    used, memory = labels.used
    del made, found
    gc.collect()
    allocator.switch()
    return Recording(layers, _one_step(rows), fingerprint, labels.inputs, used, memory)


def _step(made, step, optimize, labels):
    for micro_batch in range(1 if optimize is None else MICRO_BATCHES):
        if labels is not None:
            labels.begin(micro_batch)
        step(made)
        if labels is not None and labels.calls != len(labels.blocks):
            raise Error(f"profile: a step ran {labels.calls} forwards of {len(labels.blocks)} layers: "
                        "allowed is one micro-batch, in which each layer runs once")
    if optimize is not None:
        if labels is not None:
            labels.begin(None)
        optimize(made)


def _run(made, step, optimize, labels, path):
    """Two steps into a file; the second has what the first left behind."""
    import torch
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()  # garbage is collected at any time, which is no part of the step
    try:
        with labels.on():
            allocator.switch(trace=path)
            for _ in range(2):
                allocator.mark_iteration()
                _step(made, step, optimize, labels)
            allocator.mark_iteration()
            free, memory = torch.cuda.mem_get_info()
            labels.used = memory - free, memory
    finally:
        allocator.switch()
        if was_on:
            gc.enable()


def _one_step(rows):
    first, second = _trace.iterations(rows)[:2]
    if said := _trace.difference(_trace.shape(first), _trace.shape(second)):
        raise Error(f"profile: two steps do not ask for the same: {said} (the first, then the second): "
                    "warmup= may have to be higher")
    later = [_trace.shape(_micro.of(second, number)) for number in range(1, MICRO_BATCHES)]
    if said := _trace.difference(*later):
        raise Error(f"profile: two micro-batches that follow the first do not ask for the same: {said}")
    if not any(row.phase == "forward" for row in second):
        raise Error("profile: the layers allocate nothing in their forward: blocks= names the layers")
    if not any(row.phase == "backward" for row in second):
        raise Error("profile: no layer has a backward: step runs one training step, with its backward")
    return _closed(_joined(second))


def _joined(rows):
    """What stands between the passes of two layers belongs to the first of the two."""
    last, between = None, []
    for row in rows:
        if row.phase not in ("forward", "backward"):
            between.append(row)
            continue
        if last is not None and (last.phase, last.micro_batch) == (row.phase, row.micro_batch):
            for one in between:
                one.phase, one.layer = last.phase, last.layer
        last, between = row, []
    return rows


def _closed(rows):
    """Frees of a layer's input that follow its forward at once belong to it: with a loop like `x =
    layer(x)` the variable dies only then."""
    last = None  # the forward before
    born = {row.id: row for row in rows if row.op == "malloc"}
    for row in rows:
        if row.phase == "forward":
            last = row
        elif last is not None and row.op == "free" and row.phase == "other":
            before = born[row.id]
            is_input = before.phase == "other" or before.layer != last.layer
            if is_input and _has_output(rows, before.bytes, last.layer):
                row.phase, row.layer = "forward", last.layer
        else:
            last = None
    return rows


def _has_output(rows, size, layer):
    """Whether a layer's forward leaves a tensor of that size."""
    inside = {row.id for row in rows if row.op == "malloc" and row.phase == "forward"
              and row.layer == layer and row.bytes == size}
    freed = {row.id for row in rows if row.op == "free" and row.phase == "forward"
             and row.layer == layer}
    return bool(inside - freed)
