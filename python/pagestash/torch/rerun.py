"""What a step changes beside the weights, put back so that a lost step can run again."""
import random
import sys
from collections.abc import Iterable
from typing import Any

import torch

from .._checks import Error, is_a, listed, shown


class Snapshot:
    """Random states, gradients, buffers and the like from before a step, to be put back after it.

        snapshot = Snapshot(modules=[model])
        snapshot.take()
        loss = step()
        if not valid:
            snapshot.restore()
            loss = step()

    Kept are: the random states of torch on the CPU and on the current CUDA device, of `random`,
    and of NumPy where it is loaded; gradients of the modules' parameters (`grad`, and `main_grad`
    where a parameter has one); the modules' buffers (token counts and expert biases of a router,
    statistics of a norm); `tensors`; and the states of `trackers`.

    Not kept are the weights and the optimizer: a step must not change them before it is known to be
    valid. Data that the step reads must be the same the second time.

    modules: torch.nn.Module, wrapped ones too. tensors: more tensors that the step writes in place.
    trackers: objects with get_states(), a dict of tensors, torch.Generator and plain values, and
    set_states(dict); Megatron's and Transformer Engine's trackers of random states are such
    objects. What a tracker got since take() is left to its set_states(), which is given the names
    of then.
    gradients: "look": gradients that are None or all zero take no memory; which ones are zero is
    asked of the device at once, and waited for. "zero": those that are not None are known to be
    zero, and nothing is asked.

    Memory: a copy of the gradients that are not zero and of all buffers, from take() until
    restore(), drop() or the next take(). The addresses of gradients and buffers stay, so that
    captured graphs find them. Not thread safe; not while a stream is captured (Error)."""

    def __init__(self, modules: Iterable[torch.nn.Module] = (),
                 tensors: Iterable[torch.Tensor] = (), trackers: Iterable[Any] = (),
                 gradients: str = "look"):
        if gradients not in ("look", "zero"):
            raise Error(f"Snapshot: gradients {shown(gradients)}: allowed are look, zero")
        self.modules = tuple(listed(modules, "Snapshot: modules"))
        self.tensors = tuple(listed(tensors, "Snapshot: tensors"))
        self.trackers, self.gradients = tuple(listed(trackers, "Snapshot: trackers")), gradients
        for given, kind in ((self.modules, torch.nn.Module), (self.tensors, torch.Tensor)):
            for one in given:
                is_a(one, kind, "Snapshot")
        for tracker in self.trackers:
            if not (hasattr(tracker, "get_states") and hasattr(tracker, "set_states")):
                raise Error(f"Snapshot: tracker {type(tracker).__name__} has no get_states and "
                            "set_states")
        self._kept = None

    @property
    def taken(self) -> bool:
        """Whether there is something to restore."""
        return self._kept is not None

    @property
    def copied_bytes(self) -> int:
        """Bytes of tensors that the last take() copied, random states left out; 0 when nothing is
        taken."""
        if self._kept is None:
            return 0
        copies = [copy for _, copy in self._kept["tensors"]]
        copies += [copy for *_, copy in self._kept["gradients"] if copy is not None]
        return sum(copy.numel() * copy.element_size() for copy in copies)

    @torch.no_grad()
    def take(self) -> "Snapshot":
        """Keeps the state of now in place of what was kept before."""
        _refuse_capture("taken")
        self._kept = None  # its memory first
        self._kept = {"random": _random_states(), "gradients": self._take_gradients(),
                      "buffers": self._named_buffers(),
                      "tensors": [(tensor, tensor.detach().clone()) for tensor in self._buffers()],
                      "trackers": [_keep_states(tracker) for tracker in self.trackers]}
        return self

    @torch.no_grad()
    def restore(self) -> None:
        """Puts back what take() kept; once. Errors: nothing was taken."""
        if self._kept is None:
            raise Error("Snapshot.restore: nothing is kept; call take() before the step")
        _refuse_capture("put back")
        kept, self._kept = self._kept, None
        for owner, name, tensor, copy in kept["gradients"]:
            if getattr(owner, name, None) is not tensor:
                setattr(owner, name, tensor)
            if copy is not None:
                tensor.copy_(copy)
            elif tensor is not None:
                tensor.zero_()
        for module, name, tensor in kept["buffers"]:  # a step may have put others in their place
            if module._buffers.get(name) is not tensor:
                setattr(module, name, tensor)
        for tensor, copy in kept["tensors"]:
            tensor.detach().copy_(copy)
        for tracker, states in zip(self.trackers, kept["trackers"]):
            _put_states(tracker, states)
        _set_random_states(kept["random"])  # last: trackers may touch the generators

    def drop(self) -> None:
        """Frees what is kept; the step was valid."""
        self._kept = None

    def _named_buffers(self):
        """(module, name, tensor or None) of each buffer."""
        return [(owner, name, tensor) for module in self.modules
                for owner in torch.nn.Module.modules(module)
                for name, tensor in owner._buffers.items()]

    def _buffers(self):
        seen, out = set(), []
        # Unbound, since a wrapper may have a list under that name, as Megatron's has.
        buffers = [b for m in self.modules for b in torch.nn.Module.buffers(m)]
        for tensor in buffers + list(self.tensors):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                out.append(tensor)
        return out

    def _take_gradients(self):
        """(parameter, "grad" or "main_grad", tensor or None, copy or None for zero) of each one."""
        seen, found = set(), []
        for parameter in (p for m in self.modules
                          for p in torch.nn.Module.parameters(m)):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            found.append((parameter, "grad", parameter.grad))
            if isinstance(getattr(parameter, "main_grad", None), torch.Tensor):
                found.append((parameter, "main_grad", parameter.main_grad))
        present = [tensor for _, _, tensor in found if tensor is not None]
        kept = [False] * len(present) if self.gradients == "zero" else _not_zero(present)
        copies = iter([tensor.detach().clone() if keep else None
                       for tensor, keep in zip(present, kept)])
        return [(owner, name, tensor, None if tensor is None else next(copies))
                for owner, name, tensor in found]


def _refuse_capture(what):
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise Error(f"Snapshot: it cannot be {what} while a stream is captured; call it outside")


def _not_zero(tensors):
    """For each tensor whether anything in it is not 0 (NaN is not); one wait per device and
    dtype."""
    out, groups = [True] * len(tensors), {}
    for at, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel():
            groups.setdefault((tensor.device, tensor.dtype), []).append(at)
        elif tensor.layout is torch.strided:
            out[at] = False
    for indices in groups.values():
        norms = torch._foreach_norm([tensors[i].detach() for i in indices], ord=float("inf"))
        for i, norm in zip(indices, torch.stack(norms).tolist()):
            out[i] = norm != 0
    return out


def _random_states():
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {"cpu": torch.get_rng_state(), "random": random.getstate(),
            "cuda": torch.cuda.get_rng_state() if cuda else None,
            "numpy": numpy.random.get_state() if numpy is not None else None}


def _set_random_states(states):
    torch.set_rng_state(states["cpu"])
    random.setstate(states["random"])
    if states["cuda"] is not None:
        torch.cuda.set_rng_state(states["cuda"])
    if states["numpy"] is not None:
        sys.modules["numpy"].random.set_state(states["numpy"])


def _keep_states(tracker):
    """name: (object, copy): of a tensor its values, of a generator its state."""
    kept = {}
    for name, state in tracker.get_states().items():
        if isinstance(state, torch.Tensor):
            kept[name] = state, state.detach().clone()
        elif isinstance(state, torch.Generator):
            kept[name] = state, state.get_state()
        else:
            kept[name] = state, None
    return kept


def _put_states(tracker, kept):
    """The same objects with their old values: captured graphs know generators by identity."""
    for state, copy in kept.values():
        if isinstance(state, torch.Tensor):
            state.detach().copy_(copy)
        elif isinstance(state, torch.Generator):
            state.set_state(copy)
    tracker.set_states({name: state for name, (state, _) in kept.items()})
