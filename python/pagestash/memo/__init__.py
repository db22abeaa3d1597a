"""MEMO: one layer is recorded, a model of many planned, its activations swapped by tokens (docs/memo.md).

    from pagestash import memo
    profile = memo.profile(build, step)             # build(layers) -> model, step(model): one step
    plan = profile.expand(32).plan()                # an address for every tensor, proved optimal
    plan.use()                                      # torch allocates by the plan from here on
    model = build(32)                               # pagestash.allocator.mark_iteration() in each step
    run = memo.run(model.layers, ...)               # see Run; experts in the list: memo.paged(experts, ...)

`profile` records one training step with the process's allocator (pagestash.allocator.install, before torch
first uses the GPU), `Profile.expand` makes the requests of many layers and micro-batches of it, and
`Expansion.plan` gives a MemoPlan: peak, lower bound, proof, and what torch's own caching allocator would
reserve for the same requests. Profiles and plans are files for the commands `pagestash trace` and `pagestash
plan`, too; `load` reads both. Errors: pagestash.Error."""
import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:  # what __getattr__ gives
    from ._caching import Reserved, native_reserved, reserved
    from ._paged import Paged, paged
    from ._plan import Expansion, MemoPlan
    from ._profile import Profile, load, profile
    from ._run import Run, run

# name: the module that has it
_FUNCTIONS = {"Expansion": "_plan", "MemoPlan": "_plan", "Profile": "_profile",
              "Reserved": "_caching", "Run": "_run", "load": "_profile",
              "native_reserved": "_caching", "Paged": "_paged", "paged": "_paged", "profile": "_profile",
              "reserved": "_caching", "run": "_run"}

__all__ = sorted(_FUNCTIONS)


def __getattr__(name):
    """What costs more to import, when it is first asked for."""
    if name in _FUNCTIONS:
        value = getattr(_importlib.import_module(f".{_FUNCTIONS[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pagestash.memo' has no attribute '{name}'")


def __dir__():
    return sorted({*globals(), *__all__})
