"""Records what torch allocates on a GPU, or has it allocate by a plan (docs/planner.md).

    from pagestash import allocator
    allocator.install(trace="trace.csv")            # before torch first uses the GPU
    step(first)                                     # the optimizer makes its state
    for batch in batches:
        allocator.mark_iteration()
        step(batch)
    # pagestash plan --trace trace.csv --iteration 1 --out plan.csv
    allocator.install(plan="plan.csv")              # the same program again
    print(allocator.stats())

There are two routes. `mem_pool` gives a torch.cuda.MemPool, and torch's own allocator stays the
current one: everything of torch goes on working, and what is recorded and planned are the segments
that torch takes for the pool and cuts tensors out of. `install` makes this the current allocator:
every tensor is recorded and planned, but torch.cuda.MemPool raises, and torch's own figures of
memory are gone.

The first call says what the process does, `switch` says something else later. The library,
libpagestash_torch.so, is $PAGESTASH_TORCH_LIBRARY, else the one beside $PAGESTASH_LIBRARY, else the one
that the wheel carries.
Errors: pagestash.Error."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any, Optional, Union

from ._checks import Error, path_of, shown, within

if TYPE_CHECKING:
    import torch

Path = Union[str, "os.PathLike[str]"]

_HOOKS = {  # of torch's C++ object; releases of torch differ in which of them it has
    "set_init_fn": "pagestash_torch_init",
    "set_reset_fn": "pagestash_torch_reset",
    "set_memory_fraction_fn": "pagestash_torch_memory_fraction",
    "set_record_stream_fn": "pagestash_torch_record_stream",
    "set_begin_allocate_to_pool": "pagestash_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "pagestash_torch_end_pool",
    "set_release_pool": "pagestash_torch_release_pool",
}
_DEVICES = ("auto", "host", "cuda")
_NUM_DEVIATIONS = 10  # the library refuses figures of another size
_PHASES = ("", "forward", "backward", "weight", "other")
_NONE = 2**32 - 1  # no layer, no micro-batch


class _Figures(ctypes.Structure):
    """pagestash_torch_figures."""
    _fields_ = ([("struct_size", ctypes.c_size_t)]
                + [(name, ctypes.c_uint64) for name in (
                    "requests", "planned", "live", "iterations", "arena_bytes",
                    "planned_peak_bytes", "fallback_bytes", "fallback_peak_bytes", "taken_bytes",
                    "taken_peak_bytes", "failures")]
                + [("deviations", ctypes.c_uint64 * _NUM_DEVIATIONS), ("base", ctypes.c_uint64),
                   ("first_deviation", ctypes.c_char * 192), ("last_failure", ctypes.c_char * 256)])


class _Process:
    """The library of this process, and what it was told to do: it reads its environment once."""

    def __init__(self):
        self.lock = threading.Lock()
        self.loaded: Any = None
        self.settings: dict[str, str] = {}
        self.failures = 0  # that were raised
        self.allocator: Any = None
        self.is_current = False  # of torch, by install

    def load(self, settings: Optional[dict[str, str]] = None) -> Any:
        """The library through ctypes. settings: of PAGESTASH_TORCH..., None: as they are."""
        with self.lock:
            if self.loaded is None:
                os.environ.update(settings or {})
                self.loaded = _open(library_path())
                self.settings = settings or {}
            elif settings is not None and settings != self.settings:
                raise Error(f"this process allocates with {_said(self.settings)}; it cannot also "
                            f"with {_said(settings)}")
            return self.loaded


_process = _Process()


def library_path() -> str:
    """Of libpagestash_torch.so: $PAGESTASH_TORCH_LIBRARY, else the one beside $PAGESTASH_LIBRARY, else the
    one that the wheel carries."""
    if named := os.environ.get("PAGESTASH_TORCH_LIBRARY"):
        return named
    if library := os.environ.get("PAGESTASH_LIBRARY"):
        beside = os.path.join(os.path.dirname(os.path.abspath(library)), "libpagestash_torch.so")
        if os.path.exists(beside):
            return beside
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libpagestash_torch.so")


def mem_pool(plan: Optional[Path] = None, *, trace: Optional[Path] = None,
             device: Optional[str] = None) -> torch.cuda.MemPool:
    """A pool of torch whose segments follow a plan; torch's own allocator stays the current one.

    with torch.cuda.use_mem_pool(pool): ... puts what this thread allocates there (a backward's own
    threads are not this thread). Segments are taken once and kept, so no iterations are marked.
    plan: a file made by `pagestash plan`. trace: a file that is written: what is asked for. Neither:
    the environment says ($PAGESTASH_TORCH), else memory is only served. device: of the library,
    "auto", "cuda", or "host" for trying things out without a GPU.
    Errors: both; the library; another call said something else. A plan that cannot be read is an
    error of the next mark_iteration, which may come once at the end."""
    import torch
    allocator = _allocator(_settings(plan, trace, device))
    try:
        return torch.cuda.MemPool(allocator.allocator())
    except RuntimeError as error:
        raise Error(f"torch makes no MemPool: {str(error).splitlines()[0]}") from error


def record(path: Path, *, device: Optional[str] = None) -> torch.cuda.MemPool:
    """mem_pool(trace=path)."""
    return mem_pool(trace=path, device=device)


def install(plan: Optional[Path] = None, *, trace: Optional[Path] = None,
            device: Optional[str] = None) -> torch.cuda.memory.CUDAPluggableAllocator:
    """Makes this the current allocator of torch: each tensor is planned, or recorded. The same
    arguments as mem_pool. Before torch first uses the GPU.

    What torch loses by that: torch.cuda.MemPool raises, memory_stats and snapshots are not there,
    and a capture needs capture_error_mode="relaxed".
    Errors: as of mem_pool; torch has used the GPU already."""
    import torch
    allocator = _allocator(_settings(plan, trace, device))
    hooks = allocator.allocator()
    for setter, function in _HOOKS.items():
        if hasattr(hooks, setter):
            address = ctypes.cast(getattr(_process.loaded, function), ctypes.c_void_p).value
            getattr(hooks, setter)(address)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise Error(f"torch does not change its allocator: {str(error).splitlines()[0]}") from error
    _process.is_current = True
    return allocator


def is_installed() -> bool:
    """Whether `install` made this the current allocator of torch."""
    return _process.is_current


def switch(plan: Optional[Path] = None, *, trace: Optional[Path] = None) -> None:
    """From here on the process follows a plan, or records, or, without arguments, only serves: as if
    it began here. After mem_pool or install, between two iterations; no other thread allocates
    meanwhile, and no capture is under way.

    What lives from before stays where it is, is neither recorded nor planned, and is freed as ever;
    cached memory is given back. A trace that was being recorded is complete. A plan of one iteration
    is followed from the next mark_iteration; until then requests have memory of their own, which is
    where a new model and its optimizer's state belong. stats() counts anew.
    Errors: neither mem_pool nor install came first; a plan that cannot be read; a trace that cannot
    be written; no memory for the plan: then all is as it was."""
    if _process.loaded is None:
        raise Error("switch: there is no allocator to switch: mem_pool or install comes first")
    settings = _settings(plan, trace, None)
    mode, path = settings.pop("PAGESTASH_TORCH", "off"), None
    for value in settings.values():
        path = os.fsencode(value)
    if _process.loaded.pagestash_torch_switch(mode.encode(), path) != 0:
        now = stats()
        _process.failures = now["failures"]
        raise Error(now["last_failure"])
    _process.settings = _settings(plan, trace, None)


def label(phase: str = "", layer: Optional[int] = None, micro_batch: Optional[int] = None) -> None:
    """Of what is recorded from here on, by any thread: its phase ("forward", "backward", "weight",
    "other", "": none), layer and micro-batch, None: none. Errors: a phase or a number that there is
    not."""
    if phase not in _PHASES:
        raise Error(f"phase {phase!r}: allowed are {', '.join(_PHASES[1:])} and nothing")
    for name, number in (("layer", layer), ("micro_batch", micro_batch)):
        if number is not None and not 0 <= number < _NONE:
            raise Error(f"{name} {number}: allowed is 0 to {_NONE - 1}")
    _process.load().pagestash_torch_label(
        _PHASES.index(phase), _NONE if layer is None else layer,
        _NONE if micro_batch is None else micro_batch)


def mark_iteration() -> None:
    """An iteration begins, on all devices. In both runs, where the plan is recorded and where it is
    followed. Errors: what the allocator could not since the last mark; a request that failed gave
    torch a null pointer, which it does not look at."""
    library = _process.load()
    library.pagestash_torch_iteration()
    now = stats()
    if now["failures"] != _process.failures:
        _process.failures = now["failures"]
        raise Error(now["last_failure"])


def stats(device: int = 0) -> dict[str, Any]:
    """Figures of a device since the start or the last switch: requests, planned (of these, served
    where the plan says), live (also from before a switch), iterations, arena_bytes (of the plan),
    planned_peak_bytes, fallback_bytes, fallback_peak_bytes, taken_bytes, taken_peak_bytes (live or
    cached, besides the plan), failures, first_deviation and last_failure in words, deviations:
    {kind: how many}. Errors: no such device."""
    device = within(device, "device", 0, 63)
    library, figures = _process.load(), _Figures(struct_size=ctypes.sizeof(_Figures))
    if library.pagestash_torch_stats(device, ctypes.byref(figures)) != 0:
        raise Error(f"device {device}: allowed are 0 to 63")
    out = {name: getattr(figures, name) for name, _ in _Figures._fields_
           if name not in ("struct_size", "deviations", "base")}
    for name in ("first_deviation", "last_failure"):
        out[name] = out[name].decode(errors="replace")
    out["deviations"] = {
        library.pagestash_torch_deviation_name(kind).decode(): figures.deviations[kind]
        for kind in range(_NUM_DEVIATIONS)}
    return out


def _settings(plan, trace, device):
    plan = plan if plan is None else path_of(plan, "plan")
    trace = trace if trace is None else path_of(trace, "trace")
    if plan is not None and trace is not None:
        raise Error(f"plan {plan!r} and trace {trace!r}: a process follows a "
                    "plan or records, not both")
    if device is not None and device not in _DEVICES:
        raise Error(f"device {shown(device)}: allowed are {', '.join(_DEVICES)}")
    out = {}
    if plan is not None:
        out["PAGESTASH_TORCH"], out["PAGESTASH_TORCH_PLAN"] = "plan", os.path.abspath(plan)
    if trace is not None:
        out["PAGESTASH_TORCH"], out["PAGESTASH_TORCH_TRACE"] = "record", os.path.abspath(trace)
    if device is not None:
        out["PAGESTASH_TORCH_DEVICE"] = device
    return out


def _said(settings):
    named = ", ".join(f"{name}={value}" for name, value in settings.items())
    return named or "what the environment says"


def _open(path):
    try:
        library = ctypes.CDLL(path)
        library.pagestash_torch_malloc.restype = ctypes.c_void_p
        library.pagestash_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        library.pagestash_torch_free.restype = None
        library.pagestash_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                                                 ctypes.c_void_p]
        library.pagestash_torch_switch.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        library.pagestash_torch_label.argtypes = [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32]
        library.pagestash_torch_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Figures)]
        library.pagestash_torch_deviation_name.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise Error(f"cannot load {path}: {error}; PAGESTASH_TORCH_LIBRARY may name the "
                    "libpagestash_torch.so of a build") from None
    return library


def _allocator(settings):
    """torch's object, one in a process: memory that lives refers to it."""
    import torch
    _process.load(settings)
    if _process.allocator is None:
        _process.allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library_path(), "pagestash_torch_malloc", "pagestash_torch_free")
    return _process.allocator
