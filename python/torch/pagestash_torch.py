"""Records what PyTorch allocates, or has it allocate by a plan.

    import pagestash_torch
    pagestash_torch.install("record", trace="trace.csv")    # before the first use of CUDA
    for batch in batches:
        pagestash_torch.mark_iteration()
        step(batch)

    pagestash_torch.install("plan", plan="plan.csv")        # the same program, planned
    ...
    print(pagestash_torch.stats())

The library, libpagestash_torch.so, is $PAGESTASH_TORCH_LIBRARY, or lies beside this file. Its
environment variables, PAGESTASH_TORCH and so on, are what install() sets.
"""
import ctypes
import os

_MODES = ("off", "record", "plan")
_HOOKS = {  # of torch's C++ object; releases of torch differ in which of them it has
    "set_init_fn": "pagestash_torch_init",
    "set_reset_fn": "pagestash_torch_reset",
    "set_memory_fraction_fn": "pagestash_torch_memory_fraction",
    "set_record_stream_fn": "pagestash_torch_record_stream",
    "set_begin_allocate_to_pool": "pagestash_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "pagestash_torch_end_pool",
    "set_release_pool": "pagestash_torch_release_pool",
}
_NUM_DEVIATIONS = 10
_library = None
_failures = 0


class _Figures(ctypes.Structure):
    _fields_ = ([("struct_size", ctypes.c_size_t)]
                + [(name, ctypes.c_uint64) for name in (
                    "requests", "planned", "live", "iterations", "arena_bytes",
                    "planned_peak_bytes", "fallback_bytes", "fallback_peak_bytes", "taken_bytes",
                    "taken_peak_bytes", "failures")]
                + [("deviations", ctypes.c_uint64 * _NUM_DEVIATIONS), ("base", ctypes.c_uint64),
                   ("first_deviation", ctypes.c_char * 192), ("last_failure", ctypes.c_char * 256)])


def library_path():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpagestash_torch.so")
    return os.environ.get("PAGESTASH_TORCH_LIBRARY", beside)


def load(mode=None, plan=None, trace=None, device=None):
    """The library, through ctypes; what is None is left as the environment says. Without torch."""
    global _library
    if mode is not None and mode not in _MODES:
        raise ValueError(f"mode {mode!r}: allowed are {', '.join(_MODES)}")
    if _library is not None:
        return _library
    for name, value in (("PAGESTASH_TORCH", mode), ("PAGESTASH_TORCH_PLAN", plan),
                        ("PAGESTASH_TORCH_TRACE", trace), ("PAGESTASH_TORCH_DEVICE", device)):
        if value is not None:
            os.environ[name] = os.fspath(value)
    library = ctypes.CDLL(library_path())
    library.pagestash_torch_malloc.restype = ctypes.c_void_p
    library.pagestash_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.pagestash_torch_free.restype = None
    library.pagestash_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                                             ctypes.c_void_p]
    library.pagestash_torch_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Figures)]
    library.pagestash_torch_deviation_name.restype = ctypes.c_char_p
    _library = library
    return library


def install(mode=None, plan=None, trace=None, device=None):
    """Makes this the allocator of torch. Before the first allocation on a GPU."""
    import torch
    library = load(mode, plan, trace, device)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library_path(), "pagestash_torch_malloc", "pagestash_torch_free")
    hooks = allocator.allocator()
    for setter, function in _HOOKS.items():
        if hasattr(hooks, setter):
            getattr(hooks, setter)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    return allocator


def stats(device=0):
    """Figures since the start: a dictionary, with one of the deviations by kind in it."""
    figures = _Figures(struct_size=ctypes.sizeof(_Figures))
    if load().pagestash_torch_stats(device, ctypes.byref(figures)) != 0:
        raise ValueError(f"device {device}")
    out = {name: getattr(figures, name) for name, _ in _Figures._fields_
           if name not in ("struct_size", "deviations", "base")}
    for name in ("first_deviation", "last_failure"):
        out[name] = out[name].decode(errors="replace")
    out["deviations"] = {
        load().pagestash_torch_deviation_name(kind).decode(): figures.deviations[kind]
        for kind in range(_NUM_DEVIATIONS)}
    return out


def mark_iteration():
    """An iteration begins. Raises what the allocator could not: a request that failed since the
    last mark gave torch a null pointer, which it does not look at."""
    global _failures
    load().pagestash_torch_iteration()
    now = stats()
    if now["failures"] != _failures:
        _failures = now["failures"]
        raise RuntimeError(f"pagestash: {now['last_failure']}")
