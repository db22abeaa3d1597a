"""Lets Megatron-Core run on CPU tensors: streams, events and the current device of CUDA as no-ops.

"cuda" as a device means the CPU while `OnCpu` is entered. Random states of "cuda" are torch's on
the CPU.
One call, install(), changes torch for the rest of the process: for tests that have their own."""
import contextlib
import logging

import torch
from torch.overrides import TorchFunctionMode


class Stream:
    """All work is done at once, so nothing waits."""
    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass

    def record_event(self, event=None):
        return event or Event()


class Event(Stream):
    """Has always happened."""

    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    def query(self):
        return True


def _is_cuda(device):
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool) or \
        isinstance(device, str) and device.startswith("cuda")


class OnCpu(TorchFunctionMode):
    """Reads device="cuda" as the CPU, and forgets pinned memory."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        kwargs.pop("pin_memory", None)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        if func is torch.Tensor.to:
            args = tuple(torch.device("cpu") if not isinstance(a, int) and _is_cuda(a) else a
                         for a in args)
        return func(*args, **kwargs)


def install():
    """Changes torch, and enters OnCpu, for good."""
    cuda = torch.cuda
    stream = Stream()
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = cuda.default_stream = lambda device=None: stream
    cuda.stream = lambda which: contextlib.nullcontext()
    cuda.synchronize = lambda device=None: None
    cuda.current_device = lambda: "cpu"
    cuda.set_device = lambda device: None
    cuda.nvtx.range_push = lambda text: None
    cuda.nvtx.range_pop = lambda: None
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = cuda.random.get_rng_state = lambda device="cuda": torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, device="cuda": \
        torch.set_rng_state(state)
    OnCpu().__enter__()


def install_megatron():
    """After Megatron-Core is imported: its tracker sets random states by itself."""
    from megatron.core.tensor_parallel import random
    logging.getLogger(random.__name__).setLevel(logging.ERROR)  # on the CPU both states are one
    random._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: \
        torch.set_rng_state(state)
