"""The three calls of Transformer Engine's manual offload controller, over a stash of pages."""
import contextlib
import weakref
from typing import Any, Callable, Optional, Union

import torch

from .._checks import Error, is_a, within
from ..torch.stash import Stash
from .layer import Layer

_MOST_LAYERS = 1 << 20
Counts = Union[torch.Tensor, Callable[[int], torch.Tensor]]

# What a layer is, by Transformer Engine's names.
_KEPT, _STARTED, _FINISHED, _RELOAD = ("not_offloaded", "offload_started", "offload_finished",
                                       "reload_started")


class _Pass:
    """The last forward of a layer. Earlier ones live as long as their graphs and need no more calls."""

    def __init__(self, layer):
        self.layer, self.state, self.visit = layer, _KEPT, None


class OffloadController:
    """Which layer's saved tensors go to pages when: forwards in `context` are numbered 0 to num_layers - 1
    and again from 0, also after a forward that raised.

    counts: a tensor, or a function of the layer's number, called at the end of its forward. capacity,
    segments: as for pagestash.te.layer. num_groups: the groups of each layer.
    A layer that is never offloaded keeps its tensors; one whose reload was not started reloads when its
    backward asks. Threads: the calls of one controller come from one at a time.
    Errors of the calls: pagestash.Error: no such layer, no forward yet, a wrong order (as Transformer
    Engine's: start_offload, release, start_reload, once each for a forward), and those of a stash."""

    def __init__(self, stash, num_layers: int, counts: Counts, capacity: int, segments: int = 0, *,
                 num_groups: Optional[int] = None, name: str = "layer"):
        is_a(stash, Stash, "stash")
        num_layers = within(num_layers, "num_layers", 1, _MOST_LAYERS)
        self.stash, self.num_layers, self.counts = stash, num_layers, counts
        self.capacity, self.segments, self.num_groups = capacity, segments, num_groups
        self.name = name
        self.passes: list[Optional[_Pass]] = [None] * num_layers
        self.next_id: Optional[int] = None   # of the layer whose forward comes next; None: none came yet
        self.current: Optional[Layer] = None  # that is in its forward

    @property
    def context(self) -> "_Context":
        """The forward of a layer, of the next number each time."""
        return _Context(self)  # not kept here: a cycle would keep the stash and its memory

    def start_offload_layer(self, layer_id: int) -> None:
        """Stashes what the layer saved. With a stream beside, its memory goes back when the copy is done."""
        one = self._in(layer_id, "start_offload_layer", _KEPT)
        one.state = _STARTED
        visit, one.layer.visit = one.layer.visit, None
        if visit is not None:
            visit.finish()
            one.visit = weakref.ref(visit)  # its pages go with its graph

    def release_activation_forward_gpu_memory(self, layer_id: int) -> None:
        """Makes the current stream wait for the copy, and lets go of what it read."""
        self._in(layer_id, "release_activation_forward_gpu_memory", _STARTED).state = _FINISHED
        with self.stash.lock:
            self.stash.streams.release()

    def start_reload_layer(self, layer_id: int) -> None:
        """Brings the rows back, into memory that is taken now; the backward waits for them."""
        one = self._in(layer_id, "start_reload_layer", _FINISHED)
        one.state = _RELOAD
        visit = one.visit and one.visit()
        if visit is not None and visit.kept is not None:
            visit.kept.start(visit.fits)

    def synchronize(self, tensor: torch.Tensor) -> torch.Tensor:
        """What Transformer Engine calls sync_function: checks, and answers the tensor; restores need no
        hook in it. Errors: it has no gradient; inside the context; before it."""
        if not tensor.requires_grad:
            raise Error(f"sync_function got a tensor of shape {tuple(tensor.shape)} that requires no grad")
        if self.current is not None:
            raise Error("sync_function was called inside the offload context")
        if self.next_id is None:
            raise Error("sync_function was called before the offload context was entered")
        return tensor

    def _in(self, layer_id, call, state):
        if not isinstance(layer_id, int) or not 0 <= layer_id < self.num_layers:
            raise Error(f"{call}: layer {layer_id!r}; allowed: 0 to {self.num_layers - 1}")
        one = self.passes[layer_id]
        if one is None:
            raise Error(f"{call}: layer {layer_id} has had no forward in the offload context")
        if self.current is one.layer:
            raise Error(f"{call}: layer {layer_id} is in its forward")
        if one.state != state:
            raise Error(f"{call}: layer {layer_id} is {one.state}; it must be {state}")
        return one


class _Context(contextlib.ContextDecorator):
    """Has no state of its own."""

    def __init__(self, controller):
        self.controller = controller

    def __enter__(self):
        controller = self.controller
        if controller.current is not None:
            raise Error("the offload context was entered inside itself")
        layer_id = controller.next_id or 0
        layer = Layer(controller.stash, self._counts(layer_id), controller.capacity,
                      controller.segments, controller.num_groups, True, f"{controller.name} {layer_id}")
        layer.begin()
        controller.current, controller.next_id = layer, (layer_id + 1) % controller.num_layers
        controller.passes[layer_id] = _Pass(layer)
        return self

    def _counts(self, layer_id):
        counts = self.controller.counts
        return (lambda: counts(layer_id)) if callable(counts) else counts

    def __exit__(self, kind, error, trace):
        controller = self.controller
        layer, controller.current = controller.current, None
        layer.end()
        if kind is not None:  # the step is over: its layer has had no forward, and the next step's begin at 0
            controller.passes[(controller.next_id - 1) % controller.num_layers] = None
            controller.next_id = 0
        if layer.visit is None:
            return
        if kind is not None:
            layer.visit.finish(failed=True)
        else:
            layer.visit.pause()


def get_cpu_offload_context(enabled: bool = False, num_layers: Optional[int] = 1,
                            model_layers: int = 1, offload_activations: bool = True,
                            offload_weights: bool = False, double_buffering: bool = False,
                            manual_synchronization: bool = False,
                            retain_pinned_cpu_buffers: bool = False,
                            offload_stream: Optional[torch.Stream] = None, *, stash: Any = None,
                            counts: Optional[Counts] = None, capacity: int = 0, segments: int = 0,
                            num_groups: Optional[int] = None):
    """Transformer Engine's function of this name with pages: (context, sync_function, controller).

    Its parameters come first and mean what they mean there; those for a stash are added, see
    OffloadController. num_layers, double_buffering and retain_pinned_cpu_buffers change nothing, as there
    with manual synchronisation or since pages are kept anyway. offload_stream must be the one that the
    stash was made with: Stash(overlap=stream).
    Errors: enabled without manual_synchronization; offload_weights; another stream."""
    del num_layers, double_buffering, retain_pinned_cpu_buffers
    if not enabled:
        context = contextlib.nullcontext()
        return (context, _same, None) if manual_synchronization else (context, _same)
    if not manual_synchronization:
        raise Error("manual_synchronization is False; pagestash.te has the manual controller only, and "
                    "`with pagestash.te.layer(...)` without one")
    if offload_weights or not offload_activations:
        raise Error("pagestash.te offloads activations, not weights")
    if stash is None or counts is None:
        raise Error("get_cpu_offload_context needs stash=, counts= and capacity=")
    if offload_stream is not None and offload_stream is not getattr(stash.streams, "side", None):
        raise Error("offload_stream is not the stream of the stash; make it with "
                    "Stash(overlap=offload_stream)")
    controller = OffloadController(stash, model_layers, counts, capacity, segments,
                                   num_groups=num_groups)
    return controller.context, controller.synchronize, controller


def _same(tensor):
    return tensor
